"""The state of one run: every node, the job, the ledgers, and the transitions between them.

`replay.replay` and `zones.run_zones` take the next event; this module defines what each one does.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from forerun.domains.spot.engine.events import (
    Active,
    CheckpointDurable,
    Event,
    FleetChange,
    Idle,
    JobState,
    NodeState,
    Provisioning,
    ReconfigEnd,
    Reconfiguring,
    Standby,
    StepEnd,
    Training,
    Write,
)
from forerun.domains.spot.engine.history import NODE_LINES, WALL_LINES, Counts, NodeSpell, Replay, Spell
from forerun.domains.spot.engine.job import ROUNDING_S, Continuation, TrainingJob, whole_steps
from forerun.domains.spot.engine.membership import Instant, Membership
from forerun.domains.spot.policy import Absorb, GrowthPolicy, GrowthView, Outlook

StateName = Literal["training", "reconfiguring", "idle"]


@dataclass(slots=True)
class RunState:
    """One job on one fleet at ``t_s``.

    job_spec: what trains; job: its state now. saved: index of the last durable step, -1 for none. nodes: those alive, by
    rank. active, standby, provisioning: how many are in each state. hits: instants so far that took an active node.
    wall_s, node_s: the ledgers, up to t_charged_s. next_change_s: when the fleet changes next.
    """

    job_spec: TrainingJob
    fleet: Membership
    growth: GrowthPolicy
    outlook: Outlook
    continuation: Continuation | None = None
    t_s: float = 0.0
    job: JobState = field(default_factory=lambda: Idle(0.0))
    cause: str = "start"
    saved: int = -1
    nodes: dict[int, NodeState] = field(default_factory=dict)
    active: int = 0
    standby: int = 0
    provisioning: int = 0
    hits: int = 0
    alive_node_s: float = 0.0
    t_charged_s: float = 0.0
    wall_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WALL_LINES, 0.0))
    node_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(NODE_LINES, 0.0))
    counts: Counts = field(default_factory=Counts)
    spells: list[Spell] = field(default_factory=list)
    node_spells: list[NodeSpell] = field(default_factory=list)
    next_change_s: float = math.inf
    _next_instant: int = 0
    _ready_queue: deque[tuple[float, int]] = field(default_factory=deque)
    _since_s: dict[int, float] = field(default_factory=dict)
    _grow_due: bool = False

    def __post_init__(self) -> None:
        self.saved = self.job_spec.initial_saved
        self.next_change_s = self._find_next_change()

    # ----------------------------------------------------------------- what comes next

    def _find_next_change(self) -> float:
        """Time of the next removal, readiness or addition; infinity if there is none."""
        queue, instants = self._ready_queue, self.fleet.instants
        while queue and self.nodes.get(queue[0][1]) != Provisioning(queue[0][0]):
            queue.popleft()  # removed before it was ready
        ready_s = queue[0][0] if queue else math.inf
        listed_s = instants[self._next_instant].t_s if self._next_instant < len(instants) else math.inf
        return min(ready_s, listed_s)

    def next_event(self) -> Event:
        """The next event; at one instant: durable, then step end, then reconfiguration end, then the
        fleet.
        """
        change_s, job = self.next_change_s, self.job
        latest_s = change_s + ROUNDING_S
        if isinstance(job, Training):
            end_s, write = job.step_end_s, job.write
            if write is not None and write.durable_s <= end_s + ROUNDING_S:
                if write.durable_s <= latest_s:
                    return CheckpointDurable(self._listed(write.durable_s))
            elif end_s <= latest_s:
                return StepEnd(self._listed(end_s))
        elif isinstance(job, Reconfiguring) and job.until_s <= latest_s:
            return ReconfigEnd(self._listed(job.until_s))
        return FleetChange(change_s)

    def _listed(self, t_s: float) -> float:
        """The instant of the fleet's next change, or the horizon, where ``t_s`` is that but for rounding."""
        change_s, horizon_s = self.next_change_s, self.job_spec.horizon_s
        if t_s < change_s - ROUNDING_S and t_s < horizon_s - ROUNDING_S:
            return t_s
        return (
            change_s
            if abs(t_s - change_s) <= ROUNDING_S
            else horizon_s
            if abs(t_s - horizon_s) <= ROUNDING_S
            else t_s
        )

    def expect(self, instants: Iterable[Instant]) -> None:
        """Changes of the fleet that are known only now, none before the present, all after those known."""
        self.fleet = Membership((*self.fleet.instants, *instants), self.fleet.names)
        self.next_change_s = self._find_next_change()

    @property
    def steps_completed(self) -> int:
        """Index of the last completed step that has not been rolled back, plus one."""
        return self.job.next_step if isinstance(self.job, Training) else self.saved + 1

    # ----------------------------------------------------------------- the four events

    def complete_step(self, t_s: float) -> None:
        """The running step is done; perhaps a checkpoint of it begins, which blocks training for the stall."""
        job = self.job
        assert isinstance(job, Training)
        self.t_s = t_s
        step = job.next_step
        job.steps_done += 1
        self.counts.steps_executed += 1
        rule = self.job_spec.checkpoint
        if job.write is None and rule.due(job.steps_done, job.step_s, t_s - job.last_checkpoint_s):
            self._start_checkpoint(job, step, t_s)

    def coast(self, horizon_s: float, goal_steps: int | None) -> float:
        """Complete the steps in which nothing can begin: while a write is running, until it is durable or the
        fleet changes.

        Returns the time of the last step completed.  The same steps as one by one, at the same instants.
        """
        job = self.job
        assert isinstance(job, Training)
        if job.write is None or job.next_step == goal_steps or self._grow_due:
            return self.t_s
        limit_s = min(self.next_change_s, horizon_s, job.write.durable_s) - ROUNDING_S
        origin_s, step_s, done = job.origin_s, job.step_s, job.steps_done - job.origin_steps
        most = math.inf if goal_steps is None else done + goal_steps - job.next_step
        while done < most and (end_s := origin_s + (done + 1) * step_s) < limit_s:
            done += 1
            self.t_s = end_s
        self.counts.steps_executed += done + job.origin_steps - job.steps_done
        job.steps_done = done + job.origin_steps
        return self.t_s

    def _start_checkpoint(self, job: Training, step: int, t_s: float) -> None:
        spec = self.job_spec
        if spec.checkpoint.write == "sync":
            resume_s = durable_s = t_s + spec.stall_s + spec.write_s
        else:
            resume_s = t_s + spec.stall_s
            # A write as long as whole steps ends with the step, whatever the rounding of their sum.
            steps = whole_steps(spec.write_s, job.step_s)
            durable_s = min(resume_s + spec.write_s, resume_s + steps * job.step_s)
        job.write = Write(step, job.steps_done, resume_s, durable_s)
        job.origin_s, job.origin_steps = resume_s, job.steps_done
        job.last_checkpoint_s = t_s
        self.counts.checkpoints_started += 1

    def complete_checkpoint(self, t_s: float) -> None:
        """The running write is durable: its step and all before it can no longer be lost."""
        job = self.job
        assert isinstance(job, Training) and job.write is not None
        self.t_s = t_s
        write = job.write
        self.saved = write.step
        job.durable_steps = write.steps_done
        job.durable_stall_s += write.blocked_until_s - job.last_checkpoint_s
        job.undurable_from_s = write.blocked_until_s
        job.write = None
        self.counts.checkpoints_durable += 1
        if job.regrow_when_durable and t_s < self.job_spec.horizon_s:
            job.regrow_when_durable = False
            self._grow_due = True
            if job.step_end_s > t_s + ROUNDING_S:  # otherwise the step of this instant ends first
                self.grow_if_due(t_s)

    def grow_if_due(self, t_s: float) -> None:
        """Take up the nodes that waited for a checkpoint; a fleet change of this instant re-plans once for both."""
        if self._grow_due and self.next_change_s > t_s:
            self._settle(t_s, lost=0)

    def start_training(self, t_s: float) -> None:
        """The pipelines are built: continue after the last durable step."""
        job = self.job
        assert isinstance(job, Reconfiguring)
        self._close_spell(t_s, final=False)
        self._train(t_s, job.world_size, "reconfigured")

    def change_fleet(self, t_s: float) -> None:
        """Removals, then readies, then additions of this instant, then one re-plan."""
        self._advance(t_s)
        instants, lost = self.fleet.instants, 0
        instant = instants[self._next_instant] if self._next_instant < len(instants) else None
        listed = instant is not None and instant.t_s == t_s
        if instant is not None and listed:
            self._next_instant += 1
            lost = sum(self._remove(node) for node in instant.removed)
        while self._ready_queue and self._ready_queue[0][0] <= t_s:
            ready_s, node = self._ready_queue.popleft()
            if self.nodes.get(node) == Provisioning(ready_s):
                self._move(node, Standby(ready_s))
        if instant is not None and listed:
            for node in instant.added:
                self._add(node)
        self.next_change_s = self._find_next_change()
        self.hits += lost > 0
        self._settle(t_s, lost)

    # ----------------------------------------------------------------- nodes

    def _advance(self, t_s: float) -> None:
        """Charge the time since the last change to the nodes that were alive."""
        span_s = t_s - self.t_charged_s
        self.node_s["standby"] += self.standby * span_s
        self.node_s["prepping"] += self.provisioning * span_s
        self.alive_node_s += len(self.nodes) * span_s
        self.t_charged_s = self.t_s = t_s

    def _tally(self, state: NodeState, change: int) -> None:
        match state:
            case Provisioning():
                self.provisioning += change
            case Standby():
                self.standby += change
            case Active():
                self.active += change

    def _remove(self, node: int) -> bool:
        """Take a node out; True if it was active.  A node that is not there is not an event."""
        state = self.nodes.pop(node, None)
        if state is None:
            return False
        self._close_node(node, state)
        self._tally(state, -1)
        match state:
            case Provisioning():
                self.counts.removed_provisioning += 1
            case Standby():
                self.counts.removed_standby += 1
            case Active():
                self.counts.removed_active += 1
        return isinstance(state, Active)

    def _add(self, node: int) -> None:
        self.counts.adds += 1
        spec = self.job_spec
        ready_s = self.t_s if self.t_s == 0 and spec.warm_start else self.t_s + spec.prep_s
        state = Standby(ready_s) if ready_s <= self.t_s else Provisioning(ready_s)
        self.nodes[node] = state
        self._since_s[node] = self.t_s
        self._tally(state, +1)
        if isinstance(state, Provisioning):
            self._ready_queue.append((ready_s, node))

    def _move(self, node: int, state: NodeState) -> None:
        before = self.nodes[node]
        self._close_node(node, before)
        self._tally(before, -1)
        self._tally(state, +1)
        self.nodes[node] = state
        self._since_s[node] = self.t_s

    def _close_node(self, node: int, state: NodeState) -> None:
        start_s = self._since_s.pop(node)
        if self.t_s > start_s:
            name: Literal["prepping", "standby", "active"] = "active"
            if isinstance(state, Provisioning):
                name = "prepping"
            elif isinstance(state, Standby):
                name = "standby"
            self.node_spells.append(NodeSpell(node, name, start_s, self.t_s))

    # ----------------------------------------------------------------- the re-plan

    def _settle(self, t_s: float, lost: int) -> None:
        """Re-plan once for the whole instant, if active nodes were lost or growth is possible and wanted."""
        spec = self.job_spec
        pipelines = min(spec.max_pipelines, (self.active + self.standby) // spec.depth)
        if pipelines < spec.min_pipelines:
            pipelines = 0
        grows = pipelines * spec.depth > self.active
        if lost:
            keeps = self.continuation is not None and pipelines > 0 and lost <= self.continuation.tolerates
            self._replan(t_s, pipelines, "loss", keeps)
        elif grows and (self._grow_due or self._absorb(pipelines) is Absorb.NOW):
            self._replan(t_s, pipelines, "growth", self.continuation is not None)
        self._grow_due = False

    def _absorb(self, pipelines: int) -> Absorb:
        if self.t_s == 0 and isinstance(self.job, Idle):
            return Absorb.NOW  # the start is not a decision
        answer = self.growth.absorb(self._growth_view(pipelines))
        if isinstance(self.job, Training):
            self.job.regrow_when_durable = answer is Absorb.AT_NEXT_DURABLE
        return answer

    def _growth_view(self, pipelines: int) -> GrowthView:
        spec, job = self.job_spec, self.job
        return GrowthView(
            t_s=self.t_s,
            state=state_name(job),
            pipelines=self.active // spec.depth,
            possible_pipelines=pipelines,
            step_s=math.inf if isinstance(job, Idle) else spec.step_s[job.world_size],
            possible_step_s=spec.step_s[pipelines * spec.depth],
            would_lose_s=self.t_s - job.undurable_from_s if isinstance(job, Training) else 0.0,
            spent_s=self.t_s - job.start_s if isinstance(job, Reconfiguring) else 0.0,
            reconfig_s=spec.reconfig_s,
            write_s=spec.write_s,
            hit_rate_per_s=self.outlook.hit_rate_per_s(
                active=self.active, alive=len(self.nodes), t_s=self.t_s, hits=self.hits
            ),
        )

    def _replan(self, t_s: float, pipelines: int, cause: str, keeps: bool) -> None:
        """Continue with so many pipelines; ``keeps``: from the last completed step, after the shorter pause."""
        before = self.job
        pause_s = self.job_spec.reconfig_s
        if keeps and self.continuation is not None:
            pause_s = self.continuation.pause_s
            if isinstance(before, Training):
                self._complete_all(before)
        self._close_spell(t_s, final=False)
        self._advance(t_s)
        world_size = pipelines * self.job_spec.depth
        self._fill(world_size)
        self.cause = cause
        if world_size == 0:
            self.job = Idle(t_s)
            self.counts.idle_spells += 1
        elif t_s == 0 and self.job_spec.warm_start:
            self._train(t_s, world_size, "start")
        elif isinstance(before, Reconfiguring):
            self.counts.reconfig_restarts += 1
            from_s = before.until_s if self.job_spec.reconfig_rule == "extend" else t_s
            self.job = Reconfiguring(world_size, t_s, from_s + pause_s)
        else:
            self.counts.reconfigs += 1
            self.job = Reconfiguring(world_size, t_s, t_s + pause_s)

    def _complete_all(self, job: Training) -> None:
        """Survivors have every completed step: it counts as durable, and only the running step is lost."""
        if job.write is not None:
            job.durable_stall_s += min(self.t_s, job.write.blocked_until_s) - job.last_checkpoint_s
            self.counts.checkpoints_aborted += 1
            job.write = None
        job.durable_steps = job.steps_done
        job.undurable_from_s = min(self.t_s, job.origin_s + (job.steps_done - job.origin_steps) * job.step_s)
        self.saved = max(self.saved, job.next_step - 1)

    def _fill(self, world_size: int) -> None:
        """Take standby nodes in the order they became ready, or let the highest active ones go."""
        missing = world_size - self.active
        if missing > 0:
            waiting = sorted((s.ready_s, node) for node, s in self.nodes.items() if isinstance(s, Standby))
            for ready_s, node in waiting[:missing]:
                self._move(node, Active(ready_s))
        elif missing < 0:
            training = sorted((node for node, s in self.nodes.items() if isinstance(s, Active)), reverse=True)
            for node in training[:-missing]:
                self._move(node, Standby(self.nodes[node].ready_s))

    def _train(self, t_s: float, world_size: int, cause: str) -> None:
        self.cause = cause
        self.job = Training(
            world_size=world_size,
            step_s=self.job_spec.step_s[world_size],
            start_s=t_s,
            first_step=self.saved + 1,
            origin_s=t_s,
            last_checkpoint_s=t_s,
            undurable_from_s=t_s,
        )

    # ----------------------------------------------------------------- ledgers

    def _parts(self, t_s: float, final: bool) -> dict[str, float]:
        """What the current spell's time has been, if it ends now: by disruption, or (``final``) by the
        horizon.
        """
        job = self.job
        match job:
            case Training() if final:
                return _kept_parts(job, t_s)
            case Training():
                return {
                    "useful": job.durable_steps * job.step_s,
                    "stall": job.durable_stall_s,
                    "lost": t_s - job.undurable_from_s,
                }
            case Reconfiguring():
                return {"reconfig": t_s - self._spell_start_s()}
            case Idle():
                return {"idle": t_s - job.start_s}

    def _spell_start_s(self) -> float:
        return self.spells[-1].end_s if self.spells else 0.0

    def _close_spell(self, t_s: float, final: bool) -> None:
        """End the current spell and charge its time; a disruption also discards what was not durable."""
        job, parts = self.job, self._parts(t_s, final)
        world_size = 0 if isinstance(job, Idle) else job.world_size
        executed = retained = 0
        if isinstance(job, Training):
            executed = job.steps_done
            retained = executed if final else job.durable_steps
            self.counts.steps_lost += executed - retained
            self.counts.rollbacks += parts.get("lost", 0.0) > ROUNDING_S
            self.counts.checkpoints_aborted += job.write is not None and not final
        for line, seconds in parts.items():
            self.wall_s[line] += seconds
            if line != "idle":
                self.node_s[line] += seconds * world_size
        start_s = self._spell_start_s()
        if t_s > start_s:
            first = job.first_step if isinstance(job, Training) else self.saved + 1
            self.spells.append(
                Spell(state_name(job), world_size, start_s, t_s, self.cause, parts, first, executed, retained)
            )
        self.t_s = t_s

    def check(self) -> None:
        """The laws that hold after every event: time and node time are conserved, world sizes are whole."""
        job, now_s = self.job, self.t_s
        parts = self._parts(now_s, final=True)
        whole_s = math.fsum(self.wall_s.values()) + math.fsum(parts.values())
        assert abs(whole_s - now_s) <= 1e-9 * max(1.0, now_s), (whole_s, now_s)
        world_size = 0 if isinstance(job, Idle) else job.world_size
        span_s = now_s - self.t_charged_s
        charged = math.fsum(self.node_s.values()) + (self.standby + self.provisioning) * span_s
        charged += world_size * math.fsum(seconds for line, seconds in parts.items() if line != "idle")
        alive = self.alive_node_s + len(self.nodes) * span_s
        assert abs(charged - alive) <= 1e-9 * max(1.0, alive), (charged, alive)
        assert self.active == world_size and world_size % self.job_spec.depth == 0
        assert world_size <= self.job_spec.depth * self.job_spec.max_pipelines
        assert self.active + self.standby + self.provisioning == len(self.nodes)

    def finish(self, t_s: float, finished_s: float | None) -> Replay:
        """Close the ledgers at ``t_s``: completed steps count as useful even if they are not durable."""
        completed, state = self.steps_completed, state_name(self.job)
        self._close_spell(t_s, final=True)
        self._advance(t_s)
        for node, node_state in sorted(self.nodes.items()):
            self._close_node(node, node_state)
        return Replay(
            end_s=t_s,
            steps_completed=completed,
            steps_durable=self.saved + 1,
            wall_s=self.wall_s,
            node_s=self.node_s,
            counts=self.counts,
            final_state=state,
            final_active=self.active,
            final_standby=self.standby,
            final_provisioning=self.provisioning,
            spells=self.spells,
            node_spells=self.node_spells,
            finished_s=finished_s,
        )


def _kept_parts(job: Training, t_s: float) -> dict[str, float]:
    """Where a segment's time went if nothing of it is rolled back."""
    stall_s = job.durable_stall_s
    if job.write is not None:
        stall_s += min(t_s, job.write.blocked_until_s) - job.last_checkpoint_s
    running_s = t_s - (job.origin_s + (job.steps_done - job.origin_steps) * job.step_s)
    return {"useful": job.steps_done * job.step_s, "stall": stall_s, "inflight": max(0.0, running_s)}


def state_name(job: JobState) -> StateName:
    """The word for a job state in tables."""
    match job:
        case Training():
            return "training"
        case Reconfiguring():
            return "reconfiguring"
        case Idle():
            return "idle"
