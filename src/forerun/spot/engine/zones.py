"""An elastic job with a deadline that rents spot nodes of one zone, on-demand nodes, or nothing, tick by tick.

In `deadline` a rule decides for one machine that works or does not; here it decides for a fleet, on which the job trains in
the event loop: losses roll back, and changes of what is rented cost provisioning, a pause and what was not durable. So a
rule sees goodput: the work done is the steps that are durable, in seconds of on-demand time.
[Rules: Wu et al., Can't be late, NSDI'24.  The layer, its choice of a zone and its last word are this project's.]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forerun.core.errors import PolicyError
from forerun.spot.engine.closed_forms import useful_every_steps
from forerun.spot.engine.events import Reconfiguring
from forerun.spot.engine.history import Replay
from forerun.spot.engine.job import TrainingJob
from forerun.spot.engine.membership import Instant, Membership
from forerun.spot.engine.outlook import spared_probability
from forerun.spot.engine.state import RunState
from forerun.spot.inputs import Inputs, Market
from forerun.spot.policy import DeadlineJob, DeadlineRule, DeadlineView, Held


@dataclass(slots=True)
class Preference:
    """Whether a zone is preferred to on-demand nodes, where a change from one to the other costs money.

    The preference changes when `saved_usd` reaches an end of its range, so that a change has been worth its cost
    before it is made, and a zone whose cost a step swings about that of on-demand nodes is neither taken nor left at
    every swing. [The work function algorithm for two states: Borodin, Linial, Saks, An optimal on-line algorithm for
    metrical task systems, JACM 1992.]

    Parameters
    ----------
    preferred : so at the start (default: yes).
    saved_usd : what the zone would have saved lately, between minus the cost of a change to on-demand nodes and the
        cost of a change to the zone (default: 0).
    """

    preferred: bool = True
    saved_usd: float = 0.0

    def update(self, saved_usd: float, *, to_zone_usd: float, to_on_demand_usd: float) -> None:
        """Take up one more tick.

        Parameters
        ----------
        saved_usd : what the zone saves in it; negative if it costs more.
        to_zone_usd, to_on_demand_usd : what a change to either costs.
        """
        total_usd = self.saved_usd + saved_usd
        if saved_usd > 0 and total_usd >= to_zone_usd:
            self.preferred = True
        elif saved_usd < 0 and total_usd <= -to_on_demand_usd:
            self.preferred = False
        self.saved_usd = min(max(total_usd, -to_on_demand_usd), to_zone_usd)


@dataclass(frozen=True, slots=True)
class Holding:
    """What was rented for a while.

    Parameters
    ----------
    held : spot nodes, on-demand nodes or nothing.
    zone : where, for spot nodes.
    start_s, end_s : from when until when, the end excluded.
    """

    held: Held
    zone: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneRun:
    """What happened to the job, what was rented, and what it cost.

    Parameters
    ----------
    replay : of the job.
    fleet : all nodes that were rented.
    holdings : what was rented when.
    spot_usd, on_demand_usd, egress_usd : dollars for spot nodes, for on-demand nodes, and for moves of the job's
        state to another zone.
    """

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
        """Changes of what is rented."""
        return len(self.holdings) - 1


def run_zones(
    inputs: Inputs, job: TrainingJob, rule: DeadlineRule, zones: Sequence[tuple[Market, Membership]]
) -> ZoneRun:
    """Follow a rule until the goal, or the job's horizon; nothing is rented at the start.

    Parameters
    ----------
    inputs : of a scenario with `deadline`.
    job : what trains, until its horizon.
    rule : says at every tick what to rent: spot nodes, on-demand nodes or nothing.
    zones : what can be rented, with its history.

    Raises PolicyError where the rule asks for spot that no zone has.
    """
    return _Run(inputs, job, rule, zones).run()


class _Run:
    """A job with a deadline, and what it rents.

    Attributes
    ----------
    held, at : what is rented, and the index of its zone (-1: none).
    last_at : the zone whose storage has the job's state.
    committed : whether on-demand nodes are rented for good.
    since_s : since when this is rented.
    """

    def __init__(
        self,
        inputs: Inputs,
        job: TrainingJob,
        rule: DeadlineRule,
        zones: Sequence[tuple[Market, Membership]],
    ) -> None:
        scenario = inputs.scenario
        assert scenario.deadline is not None
        self.terms, self.goal, self.job, self.policy = scenario.deadline, scenario.goal, job, rule.build()
        self.zones: list[_ZoneState] = []
        names = [f"on-demand-{i}" for i in range(self.terms.on_demand_nodes)]
        for market, fleet in zones:
            self.zones.append(_ZoneState(market, fleet, job, offset=len(names)))
            names += [f"{market.name}/{node}" for node in fleet.names]
        self.state = RunState(job, Membership((), tuple(names)), scenario.growth.build(), inputs.home.outlook)
        self.held, self.at, self.last_at = Held.NONE, -1, -1
        self.committed = False
        self.holdings: list[Holding] = []
        self.since_s = self.egress_usd = 0.0
        #: the checkpoints' cycle on on-demand nodes, and the seconds a step takes there, its share of stalls included
        self.cycle = _Cycle.of(job, job.nodes_in_use(self.terms.on_demand_nodes))
        self.work_per_step_s = self.cycle.step_s + self.cycle.stall_s / self.cycle.steps
        self.on_demand_usd_per_h = scenario.prices.on_demand_usd_per_h
        self.on_demand_usd_per_s = self.terms.on_demand_nodes * self.on_demand_usd_per_h / 3600.0

    def run(self) -> ZoneRun:
        """Tick by tick."""
        tick, finished_s = 0, None
        while finished_s is None and (t_s := tick * self.terms.tick_s) < self.job.horizon_s:
            self._decide(t_s)
            tick += 1
            until_s = min(tick * self.terms.tick_s, self.job.horizon_s)
            finished_s = self.state.advance(until_s, self.goal.steps)
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
        offered = [zone for zone in self.zones if self._offered(zone, t_s)]
        answer = self.policy.choose(self._view(t_s, bool(offered)))
        if answer is Held.SPOT and not offered:
            what = f"{type(self.policy).__name__} asks for spot where no zone has a pipeline's worth of it"
            raise PolicyError.at(f"t = {t_s:g} s", what)
        if self.terms.last_word and (self.committed or self._must_commit(t_s)):
            self.committed, answer = True, Held.ON_DEMAND
        at = self._zone(t_s, offered) if answer is Held.SPOT else -1
        changes: list[Instant] = []
        if (answer, at) != (self.held, self.at):
            changes.append(
                Instant(t_s, tuple(sorted(self.state.nodes)), tuple(self._nodes_of(answer, at, t_s)))
            )
            self._hold(answer, at, t_s)
        elif at >= 0:
            changes += self.zones[at].changes(t_s, t_s)
        if at >= 0:
            changes += self.zones[at].changes(t_s, t_s + self.terms.tick_s)
        self.state.expect(change for change in changes if change.removed or change.added)

    def _view(self, t_s: float, spot: bool) -> DeadlineView:
        """What the rule may know.

        Parameters
        ----------
        t_s : now.
        spot : whether a zone has spot nodes for a pipeline.
        """
        pausing = self.state.job
        left_s = max(0.0, pausing.until_s - t_s) if isinstance(pausing, Reconfiguring) else 0.0
        done = min(self.state.saved + 1, self.goal.steps)
        job = DeadlineJob(
            work_s=self.goal.steps * self.work_per_step_s,
            deadline_s=self.goal.deadline_s,
            tick_s=self.terms.tick_s,
            changeover_s=self.job.prep_s + self.job.reconfig_s,
            spot_usd_per_h=min((zone.market.usd_per_h.at(t_s) for zone in self.zones), default=0.0),
            on_demand_usd_per_h=self.on_demand_usd_per_h,
        )
        held = Held.NONE if self.held is Held.SPOT and not spot else self.held  # spot nodes may have vanished
        return DeadlineView(t_s, done * self.work_per_step_s, held, left_s, spot, job)

    def _must_commit(self, t_s: float) -> bool:
        """Whether a tick from now on-demand nodes, prepared from scratch, might be too late.

        The step that ends the run must be complete, and the one running when nodes are dropped is lost.
        """
        left = self.goal.steps - (self.state.saved + 1)
        needed_s = left * self.work_per_step_s + self.job.prep_s + self.job.reconfig_s + self.job.stall_s
        return t_s + self.terms.tick_s + needed_s >= self.goal.deadline_s

    def _zone(self, t_s: float, offered: Sequence[_ZoneState]) -> int:
        """The zone to rent: the present one while it is offered, else the one with the cheapest retained step."""
        if self.at >= 0 and self.zones[self.at] in offered:
            return self.at

        def usd_per_step(zone: _ZoneState) -> float:
            return zone.usd_per_s(t_s) / self._retained_steps_per_s(zone, t_s)

        return self.zones.index(min(offered, key=usd_per_step))

    def _offered(self, zone: _ZoneState, t_s: float) -> bool:
        """Whether a zone has enough nodes to train and, if asked for, is preferred to on-demand nodes."""
        if not self.job.nodes_in_use(len(zone.alive_at(t_s))):
            return False
        if self.terms.by_goodput:
            self._compare(zone, t_s)
            return zone.preference.preferred
        return True

    def _compare(self, zone: _ZoneState, t_s: float) -> None:
        """Update a zone's preference by a tick with the nodes it has now.

        Saved is what its retained steps would cost on on-demand nodes, less its rent.  A change pays the rent of what is
        taken while it is prepared and rebuilt, and loses what is not durable of what is left.
        """
        job, rent = self.job, zone.usd_per_s(t_s)
        other = self.last_at >= 0 and self.zones[self.last_at] is not zone
        pause_s = job.prep_s + job.reconfig_s
        size = job.nodes_in_use(len(zone.alive_at(t_s)))
        worth = self._retained_steps_per_s(zone, t_s) * self.work_per_step_s * self.on_demand_usd_per_s
        zone.preference.update(
            (worth - rent) * self.terms.tick_s,
            to_zone_usd=pause_s * rent
            + self.cycle.lost_s * self.on_demand_usd_per_s
            + (self.terms.egress_usd if other else 0.0),
            to_on_demand_usd=pause_s * self.on_demand_usd_per_s + _Cycle.of(job, size).lost_s * rent,
        )

    def _retained_steps_per_s(self, zone: _ZoneState, t_s: float) -> float:
        """Retained steps a second in a zone, by the closed form for the nodes that it has and the hits to be expected."""
        nodes = len(zone.alive_at(t_s))
        active = self.job.nodes_in_use(nodes)
        lam = zone.market.outlook.hit_rate_per_s(active=active, alive=nodes, t_s=t_s, hits=zone.hits)
        one = _Cycle.of(self.job, active)
        useful = useful_every_steps(lam, one.step_s, one.steps, one.stall_s, one.write_s, self.job.reconfig_s)
        return max(useful, 1e-9) / one.step_s

    # ------------------------------------------------------------------ holding

    def _nodes_of(self, held: Held, at: int, t_s: float) -> list[int]:
        """The nodes that renting this would give, by rank."""
        if held is Held.ON_DEMAND:
            return list(range(self.terms.on_demand_nodes))
        return sorted(self.zones[at].alive_at(t_s)) if held is Held.SPOT else []

    def _hold(self, held: Held, at: int, t_s: float) -> None:
        """Rent something else from now on; a move to another zone is paid for."""
        name = self.zones[self.at].market.name if self.at >= 0 else ""
        if t_s > self.since_s:
            self.holdings.append(Holding(self.held, name, self.since_s, t_s))
        if at >= 0:
            moved = self.last_at >= 0 and at != self.last_at
            self.egress_usd += self.terms.egress_usd if moved else 0.0
            self.last_at = at
        self.held, self.at, self.since_s = held, at, t_s

    def _paid(self, replay: Replay) -> tuple[float, float]:
        """Dollars for spot and for on-demand nodes: every second of every node held."""
        steady_s = sum(s.end_s - s.start_s for s in replay.node_spells if s.node < self.terms.on_demand_nodes)
        spot = 0.0
        for zone in self.zones:
            for spell in replay.node_spells:
                if spell.node in zone.ranks:
                    spot += float(zone.market.usd_per_h.integral(spell.start_s, spell.end_s)) / 3600.0
        return spot, steady_s * self.on_demand_usd_per_h / 3600.0


@dataclass(frozen=True, slots=True)
class _Cycle:
    """From one checkpoint to the next.

    Parameters
    ----------
    steps, step_s : number and seconds of its steps.
    stall_s : seconds blocked.
    write_s : seconds written beside training.
    """

    steps: int
    step_s: float
    stall_s: float
    write_s: float

    @classmethod
    def of(cls, job: TrainingJob, size: int) -> _Cycle:
        """The cycle of `size` training nodes."""
        step_s, (stall_s, write_s) = job.step_s[size], job.checkpoint_s
        return cls(job.checkpoint.spacing_steps(step_s, stall_s, write_s), step_s, stall_s, write_s)

    @property
    def lost_s(self) -> float:
        """Mean training time not yet durable: the write and half a cycle."""
        return self.write_s + (self.steps * self.step_s + self.stall_s) / 2


class _ZoneState:
    """A zone's nodes as they come and go; asked for in order of time.

    Parameters
    ----------
    market : its price and outlook.
    fleet : its nodes over time.
    job : what trains, which says how many of them would be in use.
    offset : rank of its first node among the nodes of all zones.

    Attributes
    ----------
    ranks : of its nodes among all.
    preference : for it, against on-demand nodes.
    hits : expected removals so far that took a node in use, had the zone been in use all along.
    """

    def __init__(self, market: Market, fleet: Membership, job: TrainingJob, offset: int) -> None:
        self.market, self.job = market, job
        self.ranks = range(offset, offset + len(fleet.names))
        self.instants = [instant.shifted(offset) for instant in fleet.instants]
        self.preference = Preference()
        self.hits = 0.0
        self.alive: set[int] = set()
        self.seen = 0

    def alive_at(self, t_s: float) -> set[int]:
        """The nodes that can be rented, the changes of that instant included; times must not fall."""
        while self.seen < len(self.instants) and self.instants[self.seen].t_s <= t_s:
            instant, alive = self.instants[self.seen], len(self.alive)
            gone = len(self.alive.intersection(instant.removed))
            self.hits += 1 - spared_probability(alive - self.job.nodes_in_use(alive), alive, gone)
            self.alive.difference_update(instant.removed)
            self.alive.update(instant.added)
            self.seen += 1
        return self.alive

    def usd_per_s(self, t_s: float) -> float:
        """Rent of all nodes there are."""
        return self.market.usd_per_h.at(t_s) * len(self.alive_at(t_s)) / 3600.0

    def changes(self, from_s: float, to_s: float) -> list[Instant]:
        """Changes after `from_s` and before `to_s`; of the one instant if they are equal."""
        if from_s == to_s:
            return [instant for instant in self.instants if instant.t_s == from_s]
        return [instant for instant in self.instants if from_s < instant.t_s < to_s]
