"""An elastic job with a deadline that rents spot nodes of one zone, on-demand nodes, or nothing, tick by tick.

In `deadline` a rule decides for one machine that works or does not; here it decides for a fleet, on which the job trains in
the event loop: losses roll back, and changes of what is rented cost provisioning, a pause and what was not durable. So a
rule sees goodput: the work done is the steps that are durable, in seconds of on-demand time.
[Rules: Wu et al., Can't be late, NSDI'24.  The layer, its choice of a zone and its last word are this project's.]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from forerun.domains.spot.engine.closed_forms import useful_every_steps
from forerun.domains.spot.engine.events import (
    CheckpointDurable,
    FleetChange,
    ReconfigEnd,
    Reconfiguring,
    StepEnd,
)
from forerun.domains.spot.engine.history import Replay
from forerun.domains.spot.engine.job import TrainingJob
from forerun.domains.spot.engine.membership import Instant, Membership
from forerun.domains.spot.engine.outlook import spared_probability
from forerun.domains.spot.engine.state import RunState
from forerun.domains.spot.policy import DeadlineJob, DeadlineRule, DeadlineView, GrowthPolicy, Held, Outlook
from forerun.errors import PolicyError
from forerun.trace.signal import Signal


@dataclass(frozen=True, slots=True)
class ZoneHistory:
    """The spot nodes of a zone: which can be rented when, and what a node costs an hour."""

    name: str
    fleet: Membership
    usd_per_h: Signal
    outlook: Outlook


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is wanted, and what can be bought.

    egress_usd: to move the job's state to another zone.  last_word: on-demand nodes are rented for good once nothing
    else is sure to be in time.  by_goodput: a zone is offered to the rule only while it is preferred to on-demand nodes,
    by the cost of a kept step and of changing over (see `Preference`).
    """

    goal_steps: int
    deadline_s: float
    tick_s: float
    on_demand_nodes: int
    on_demand_usd_per_h: float
    egress_usd: float = 0.0
    last_word: bool = True
    by_goodput: bool = True


@dataclass(slots=True)
class Preference:
    """Whether a zone is preferred to on-demand nodes, where a change from one to the other costs money.

    preferred: so at the start.  saved_usd: what the zone would have saved lately, between minus the cost of a change to
    on-demand nodes and the cost of a change to the zone.  The preference changes when it reaches the end, so that a
    change has been worth its cost before it is made, and a zone whose cost a step swings about that of on-demand nodes
    is neither taken nor left at every swing.
    [The work function algorithm for two states: Borodin, Linial, Saks, An optimal on-line algorithm for metrical task
    systems, JACM 1992.]
    """

    preferred: bool = True
    saved_usd: float = 0.0

    def update(self, saved_usd: float, *, to_zone_usd: float, to_on_demand_usd: float) -> None:
        """Take up one more tick: what the zone saves in it (dollars, negative if it costs more), and what changes cost."""
        total_usd = self.saved_usd + saved_usd
        if saved_usd > 0 and total_usd >= to_zone_usd:
            self.preferred = True
        elif saved_usd < 0 and total_usd <= -to_on_demand_usd:
            self.preferred = False
        self.saved_usd = min(max(total_usd, -to_on_demand_usd), to_zone_usd)


@dataclass(frozen=True, slots=True)
class Holding:
    """What was rented for a while: [start_s, end_s)."""

    held: Held
    zone: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneRun:
    """What happened to the job, what was rented, and what it cost."""

    replay: Replay
    fleet: Membership
    holdings: Sequence[Holding]
    spot_usd: float
    on_demand_usd: float
    egress_usd: float

    @property
    def cost_usd(self) -> float:
        """Everything paid."""
        return self.spot_usd + self.on_demand_usd + self.egress_usd

    @property
    def moves(self) -> int:
        """Changes of what is held."""
        return len(self.holdings) - 1


def run_zones(
    job: TrainingJob,
    zones: Sequence[ZoneHistory],
    terms: Terms,
    rule: DeadlineRule,
    growth: GrowthPolicy,
    outlook: Outlook,
) -> ZoneRun:
    """Follow a rule until the goal, or the job's horizon; nothing is rented at the start."""
    return _Run(job, zones, terms, rule, growth, outlook).run()


class _Run:
    def __init__(
        self,
        job: TrainingJob,
        zones: Sequence[ZoneHistory],
        terms: Terms,
        rule: DeadlineRule,
        growth: GrowthPolicy,
        outlook: Outlook,
    ) -> None:
        self.job, self.zones, self.terms, self.policy = job, zones, terms, rule.build()
        self.markets = [_ZoneState(zone, job) for zone in zones]
        names = [f"on-demand-{i}" for i in range(terms.on_demand_nodes)]
        for market in self.markets:
            market.offset = len(names)
            names += [f"{market.zone.name}/{node}" for node in market.zone.fleet.names]
        self.state = RunState(job, Membership((), tuple(names)), growth, outlook)
        self.held, self.at = Held.NONE, -1  # at: the zone held, if any
        self.last_at = -1  # the zone whose storage has the state
        self.committed = False
        self.holdings: list[Holding] = []
        self.since_s = self.egress_usd = 0.0
        #: the checkpoints' cycle on on-demand nodes, and the seconds a step takes there, its share of stalls included
        self.cycle = _Cycle.of(job, nodes_in_use(job, terms.on_demand_nodes))
        self.work_per_step_s = self.cycle.step_s + self.cycle.stall_s / self.cycle.steps
        self.on_demand_usd_per_s = terms.on_demand_nodes * terms.on_demand_usd_per_h / 3600.0

    def run(self) -> ZoneRun:
        """Tick by tick."""
        tick, finished_s = 0, None
        while finished_s is None and (t_s := tick * self.terms.tick_s) < self.job.horizon_s:
            self._decide(t_s)
            tick += 1
            finished_s = self._advance(min(tick * self.terms.tick_s, self.job.horizon_s))
        end_s = self.job.horizon_s if finished_s is None else finished_s
        self._hold(self.held, self.at, end_s)
        replay = self.state.finish(end_s, finished_s)
        spot, steady = self._paid(replay)
        return ZoneRun(
            replay=replay,
            fleet=self.state.fleet,
            holdings=self.holdings,
            spot_usd=spot,
            on_demand_usd=steady,
            egress_usd=self.egress_usd,
        )

    # ------------------------------------------------------------------ deciding

    def _decide(self, t_s: float) -> None:
        """Ask the rule, then change what is rented, or continue with the zone's own changes."""
        offered = [market for market in self.markets if self._offered(market, t_s)]
        answer = self.policy.choose(self._view(t_s, bool(offered)))
        if answer is Held.SPOT and not offered:
            what = f"{type(self.policy).__name__} asks for spot where no zone has a pipeline's worth of it"
            raise PolicyError.at(f"t = {t_s:g} s", what)
        if self.terms.last_word and (self.committed or self._must_commit(t_s)):
            self.committed, answer = True, Held.ON_DEMAND
        at = self._zone(t_s, offered) if answer is Held.SPOT else -1
        changes: list[Instant] = []
        if (answer, at) != (self.held, self.at):
            changes.append(Instant(t_s, tuple(self._nodes()), tuple(self._nodes_of(answer, at, t_s))))
            self._hold(answer, at, t_s)
        elif at >= 0:
            changes += self.markets[at].changes(t_s, t_s)
        if at >= 0:
            changes += self.markets[at].changes(t_s, t_s + self.terms.tick_s)
        self.state.expect(change for change in changes if change.removed or change.added)

    def _view(self, t_s: float, spot: bool) -> DeadlineView:
        terms, left_s = self.terms, self._pause_left_s(t_s)
        done = min(self.state.saved + 1, terms.goal_steps)
        job = DeadlineJob(
            work_s=terms.goal_steps * self.work_per_step_s,
            deadline_s=terms.deadline_s,
            tick_s=terms.tick_s,
            changeover_s=self.job.prep_s + self.job.reconfig_s,
            spot_usd_per_h=min((m.zone.usd_per_h.at(t_s) for m in self.markets), default=0.0),
            on_demand_usd_per_h=terms.on_demand_usd_per_h,
        )
        held = Held.NONE if self.held is Held.SPOT and not spot else self.held  # what is gone is not held
        return DeadlineView(t_s, done * self.work_per_step_s, held, left_s, spot, job)

    def _pause_left_s(self, t_s: float) -> float:
        state = self.state.job
        return max(0.0, state.until_s - t_s) if isinstance(state, Reconfiguring) else 0.0

    def _must_commit(self, t_s: float) -> bool:
        """Whether a tick from now on-demand nodes, prepared from scratch, might be too late.

        The step that ends the run must be complete, and the one running when nodes are dropped is lost.
        """
        left = self.terms.goal_steps - (self.state.saved + 1)
        needed_s = left * self.work_per_step_s + self.job.prep_s + self.job.reconfig_s + self.job.stall_s
        return t_s + self.terms.tick_s + needed_s >= self.terms.deadline_s

    def _zone(self, t_s: float, offered: Sequence[_ZoneState]) -> int:
        """The zone to rent: the present one while it is offered, else the one with the cheapest kept step."""
        if self.at >= 0 and self.markets[self.at] in offered:
            return self.at

        def usd_per_step(market: _ZoneState) -> float:
            return market.usd_per_s(t_s) / self._kept_steps_per_s(market, t_s)

        return self.markets.index(min(offered, key=usd_per_step))

    def _offered(self, market: _ZoneState, t_s: float) -> bool:
        """Whether a zone has enough nodes to train and, if asked for, is preferred to on-demand nodes."""
        if not nodes_in_use(self.job, len(market.alive_at(t_s))):
            return False
        if self.terms.by_goodput:
            self._compare(market, t_s)
            return market.preference.preferred
        return True

    def _compare(self, market: _ZoneState, t_s: float) -> None:
        """Update a zone's preference by a tick with the nodes it has now.

        Saved is what its kept steps would cost on on-demand nodes, less its rent.  A change pays the rent of what is
        taken while it is prepared and rebuilt, and loses what is not durable of what is left.
        """
        job, rent = self.job, market.usd_per_s(t_s)
        other = self.last_at >= 0 and self.markets[self.last_at] is not market
        pause_s = job.prep_s + job.reconfig_s
        size = nodes_in_use(job, len(market.alive_at(t_s)))
        worth = self._kept_steps_per_s(market, t_s) * self.work_per_step_s * self.on_demand_usd_per_s
        market.preference.update(
            (worth - rent) * self.terms.tick_s,
            to_zone_usd=pause_s * rent
            + self.cycle.lost_s * self.on_demand_usd_per_s
            + (self.terms.egress_usd if other else 0.0),
            to_on_demand_usd=pause_s * self.on_demand_usd_per_s + _Cycle.of(job, size).lost_s * rent,
        )

    def _kept_steps_per_s(self, market: _ZoneState, t_s: float) -> float:
        """Kept steps a second, by the closed form for the nodes there are and the hits to be expected."""
        nodes = len(market.alive_at(t_s))
        active = nodes_in_use(self.job, nodes)
        lam = market.zone.outlook.hit_rate_per_s(active=active, alive=nodes, t_s=t_s, hits=market.hits)
        one = _Cycle.of(self.job, active)
        useful = useful_every_steps(lam, one.step_s, one.steps, one.stall_s, one.write_s, self.job.reconfig_s)
        return max(useful, 1e-9) / one.step_s

    # ------------------------------------------------------------------ holding

    def _nodes(self) -> list[int]:
        """All nodes in the fleet now."""
        return sorted(self.state.nodes)

    def _nodes_of(self, held: Held, at: int, t_s: float) -> list[int]:
        if held is Held.ON_DEMAND:
            return list(range(self.terms.on_demand_nodes))
        return sorted(self.markets[at].alive_at(t_s)) if held is Held.SPOT else []

    def _hold(self, held: Held, at: int, t_s: float) -> None:
        name = self.zones[self.at].name if self.at >= 0 else ""
        if t_s > self.since_s:
            self.holdings.append(Holding(self.held, name, self.since_s, t_s))
        if at >= 0:
            moved = self.last_at >= 0 and at != self.last_at
            self.egress_usd += self.terms.egress_usd if moved else 0.0
            self.last_at = at
        self.held, self.at, self.since_s = held, at, t_s

    def _advance(self, until_s: float) -> float | None:
        """Process the events before a decision; returns when the goal was reached, if it was."""
        state = self.state
        while True:
            event = state.next_event()
            if event.t_s > until_s or (isinstance(event, FleetChange) and event.t_s >= until_s):
                return None
            match event:
                case CheckpointDurable(t_s):
                    state.complete_checkpoint(t_s)
                case StepEnd(t_s):
                    state.complete_step(t_s)
                    if state.steps_completed >= self.terms.goal_steps:
                        return t_s
                    state.grow_if_due(t_s)
                case ReconfigEnd(t_s):
                    state.start_training(t_s)
                case FleetChange(t_s):
                    state.change_fleet(t_s)

    def _paid(self, replay: Replay) -> tuple[float, float]:
        """Dollars for spot and for on-demand nodes: every second of every node held."""
        steady_s = sum(s.end_s - s.start_s for s in replay.node_spells if s.node < self.terms.on_demand_nodes)
        spot = 0.0
        for market in self.markets:
            last = market.offset + len(market.zone.fleet.names)
            for spell in replay.node_spells:
                if market.offset <= spell.node < last:
                    spot += float(market.zone.usd_per_h.integral(spell.start_s, spell.end_s)) / 3600.0
        return spot, steady_s * self.terms.on_demand_usd_per_h / 3600.0


def nodes_in_use(job: TrainingJob, nodes: int) -> int:
    """How many of so many nodes train: whole pipelines, none if they are fewer than the job needs."""
    pipelines = min(job.max_pipelines, nodes // job.depth)
    return pipelines * job.depth if pipelines >= job.min_pipelines else 0


@dataclass(frozen=True, slots=True)
class _Cycle:
    """From one checkpoint to the next: steps, seconds a step, seconds blocked, seconds written beside training."""

    steps: int
    step_s: float
    stall_s: float
    write_s: float

    @classmethod
    def of(cls, job: TrainingJob, size: int) -> _Cycle:
        """The cycle of so many training nodes."""
        sync, step_s = job.checkpoint.write == "sync", job.step_s[size]
        stall_s, write_s = job.stall_s + (job.write_s if sync else 0.0), 0.0 if sync else job.write_s
        return cls(job.checkpoint.spacing_steps(step_s, stall_s, write_s), step_s, stall_s, write_s)

    @property
    def lost_s(self) -> float:
        """Mean training time not yet durable: the write and half a cycle."""
        return self.write_s + (self.steps * self.step_s + self.stall_s) / 2


class _ZoneState:
    """A zone's nodes as they come and go; asked for in order of time."""

    def __init__(self, zone: ZoneHistory, job: TrainingJob) -> None:
        self.zone, self.job, self.offset = zone, job, 0
        self.preference = Preference()
        #: expected removals so far that took a node in use, had the zone been in use all along
        self.hits = 0.0
        self.alive: set[int] = set()
        self.seen = 0
        self.until_s = -math.inf

    def alive_at(self, t_s: float) -> set[int]:
        """Who could be held, the changes of that instant included; times must not fall."""
        instants = self.zone.fleet.instants
        while self.seen < len(instants) and instants[self.seen].t_s <= t_s:
            alive = len(self.alive)
            gone = len(self.alive.intersection(node + self.offset for node in instants[self.seen].removed))
            self.hits += 1 - spared_probability(alive - nodes_in_use(self.job, alive), alive, gone)
            self.alive.difference_update(node + self.offset for node in instants[self.seen].removed)
            self.alive.update(node + self.offset for node in instants[self.seen].added)
            self.seen += 1
        return self.alive

    def usd_per_s(self, t_s: float) -> float:
        """Rent of all nodes there are."""
        return self.zone.usd_per_h.at(t_s) * len(self.alive_at(t_s)) / 3600.0

    def changes(self, from_s: float, to_s: float) -> list[Instant]:
        """Changes after `from_s` and before `to_s`; of the one instant if they are equal."""

        def wanted(t_s: float) -> bool:
            return t_s == from_s if from_s == to_s else from_s < t_s < to_s

        return [
            Instant(
                instant.t_s,
                tuple(node + self.offset for node in instant.removed),
                tuple(node + self.offset for node in instant.added),
            )
            for instant in self.zone.fleet.instants
            if wanted(instant.t_s)
        ]
