"""The state of one run: every node, the job, the ledgers, and the transitions between them.

`replay.replay` and `zones.run_zones` let it advance to an instant; this module defines which event comes next and what
each one does.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from forerun.spot.engine.events import (
    Event,
    Idle,
    JobState,
    Node,
    NodeState,
    Reconfiguring,
    Training,
    Write,
)
from forerun.spot.engine.history import NodeSpell, Record, Replay, Spell
from forerun.spot.engine.job import ROUNDING_S, Continuation, TrainingJob, whole_steps
from forerun.spot.engine.membership import Instant, Membership
from forerun.spot.policy import Absorb, GrowthPolicy, GrowthView, Outlook


@dataclass(slots=True)
class RunState:
    """One job on one fleet at `t_s`.

    Parameters
    ----------
    job_spec : what trains.
    fleet : who is there when.
    growth : when returning nodes join.
    outlook : what is known about removals.
    continuation : how survivors go on without a rollback (default: they roll back).
    t_s : now (default: 0).
    job : its state now.
    cause : why that began.
    saved : index of the last durable step, -1 for none; at the start as the job says.
    nodes : those alive, by rank.
    numbers : how many of them are in each state.
    hits : instants so far that took an active node.
    alive_node_s : node time so far, in every state.
    t_charged_s : up to when the ledgers are charged.
    record : ledgers, counts and intervals, the ledgers up to t_charged_s.
    next_change_s : when the fleet changes next.
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
    nodes: dict[int, Node] = field(default_factory=dict)
    numbers: dict[NodeState, int] = field(default_factory=lambda: {"prepping": 0, "standby": 0, "active": 0})
    hits: int = 0
    alive_node_s: float = 0.0
    t_charged_s: float = 0.0
    record: Record = field(default_factory=Record)
    next_change_s: float = math.inf
    _next_instant: int = 0
    _ready_queue: deque[tuple[float, int]] = field(default_factory=deque)
    _grow_due: bool = False

    def __post_init__(self) -> None:
        self.saved = self.job_spec.initial_saved
        self.next_change_s = self._find_next_change()

    # ----------------------------------------------------------------- what comes next

    def advance(
        self,
        until_s: float,
        goal_steps: int | None = None,
        after_event: Callable[[RunState], None] | None = None,
    ) -> float | None:
        """Let everything happen until an instant; returns when the goal was reached, if it was.

        Parameters
        ----------
        until_s : completions exactly then count, changes of the fleet then do not.
        goal_steps : steps to complete (default: no goal).
        after_event : called after every event, which makes the run go step by step (default: nothing is called).
        """
        while True:
            event, t_s = self.next_event()
            if t_s > until_s or (event is Event.FLEET_CHANGE and t_s == until_s):
                return None
            match event:
                case Event.CHECKPOINT_DURABLE:
                    self.complete_checkpoint(t_s)
                case Event.STEP_END:
                    self.complete_step(t_s)
                    if after_event is None:
                        t_s = self.coast(until_s, goal_steps)
                    if goal_steps is not None and self.steps_completed >= goal_steps:
                        if self.next_event() == (Event.CHECKPOINT_DURABLE, t_s):
                            self.complete_checkpoint(t_s)  # a write that takes no time
                        return t_s
                    self.grow_if_due(t_s)
                case Event.RECONFIG_END:
                    self.start_training(t_s)
                case Event.FLEET_CHANGE:
                    self.change_fleet(t_s)
            if after_event is not None:
                after_event(self)

    def _find_next_change(self) -> float:
        """Time of the next removal, readiness or addition; infinity if there is none."""
        queue, instants = self._ready_queue, self.fleet.instants
        while queue and self._preparing(*queue[0]) is None:
            queue.popleft()  # removed before it was ready
        ready_s = queue[0][0] if queue else math.inf
        listed_s = instants[self._next_instant].t_s if self._next_instant < len(instants) else math.inf
        return min(ready_s, listed_s)

    def _preparing(self, ready_s: float, rank: int) -> Node | None:
        """The node that is to be ready then; None if it has vanished, even if another of its name has come."""
        node = self.nodes.get(rank)
        return node if node is not None and node.state == "prepping" and node.ready_s == ready_s else None

    def next_event(self) -> tuple[Event, float]:
        """The next event and its time; of several at one instant the first in the order of `Event`."""
        change_s, job = self.next_change_s, self.job
        latest_s = change_s + ROUNDING_S
        if isinstance(job, Training):
            end_s, write = job.step_end_s, job.write
            if write is not None and write.durable_s <= end_s + ROUNDING_S:
                if write.durable_s <= latest_s:
                    return Event.CHECKPOINT_DURABLE, self._listed(write.durable_s)
            elif end_s <= latest_s:
                return Event.STEP_END, self._listed(end_s)
        elif isinstance(job, Reconfiguring) and job.until_s <= latest_s:
            return Event.RECONFIG_END, self._listed(job.until_s)
        return Event.FLEET_CHANGE, change_s

    def _listed(self, t_s: float) -> float:
        """The instant of the fleet's next change, or the horizon, where `t_s` is that but for rounding."""
        for listed_s in (self.next_change_s, self.job_spec.horizon_s):
            if abs(t_s - listed_s) <= ROUNDING_S:
                return listed_s
        return t_s

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
        self.record.counts.steps_executed += 1
        rule = self.job_spec.checkpoint
        if job.write is None and rule.due(job.steps_done, t_s - job.last_checkpoint_s):
            self._start_checkpoint(job, step, t_s)

    def coast(self, until_s: float, goal_steps: int | None) -> float:
        """Complete the steps in which nothing can begin: while a write is running, until it is durable or the fleet changes.

        Returns the time of the last step completed. The same steps as one by one, at the same instants.
        """
        job = self.job
        assert isinstance(job, Training)
        if job.write is None or job.next_step == goal_steps or self._grow_due:
            return self.t_s
        limit_s = min(self.next_change_s, until_s, job.write.durable_s) - ROUNDING_S
        origin_s, step_s, done = job.origin_s, job.step_s, job.steps_done - job.origin_steps
        most = math.inf if goal_steps is None else done + goal_steps - job.next_step
        while done < most and (end_s := origin_s + (done + 1) * step_s) < limit_s:
            done += 1
            self.t_s = end_s
        self.record.counts.steps_executed += done + job.origin_steps - job.steps_done
        job.steps_done = done + job.origin_steps
        return self.t_s

    def _start_checkpoint(self, job: Training, step: int, t_s: float) -> None:
        """A checkpoint of the state after a step begins: it blocks training for the stall, and is durable later."""
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
        self.record.counts.checkpoints_started += 1

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
        self.record.counts.checkpoints_durable += 1
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
        self._charge_nodes(t_s)
        instants, lost = self.fleet.instants, 0
        instant = instants[self._next_instant] if self._next_instant < len(instants) else None
        listed = instant is not None and instant.t_s == t_s
        if instant is not None and listed:
            self._next_instant += 1
            lost = sum(self._remove(node) for node in instant.removed)
        while self._ready_queue and self._ready_queue[0][0] <= t_s:
            ready_s, rank = self._ready_queue.popleft()
            if self._preparing(ready_s, rank) is not None:
                self._move(rank, "standby")
        if instant is not None and listed:
            for node in instant.added:
                self._add(node)
        self.next_change_s = self._find_next_change()
        self.hits += lost > 0
        self._settle(t_s, lost)

    # ----------------------------------------------------------------- nodes

    def _charge_nodes(self, t_s: float) -> None:
        """Charge the time since the last change to the nodes that were alive."""
        span_s = t_s - self.t_charged_s
        self.record.node_s["standby"] += self.numbers["standby"] * span_s
        self.record.node_s["prepping"] += self.numbers["prepping"] * span_s
        self.alive_node_s += len(self.nodes) * span_s
        self.t_charged_s = self.t_s = t_s

    def _remove(self, rank: int) -> bool:
        """Take a node out; True if it was active. A node that is not there is not an event."""
        node = self.nodes.pop(rank, None)
        if node is None:
            return False
        self._close_node(rank, node)
        self.numbers[node.state] -= 1
        self.record.counts.remove(node.state)
        return node.state == "active"

    def _add(self, rank: int) -> None:
        """A node is granted: usable after its preparation, at a warm start at once."""
        self.record.counts.adds += 1
        spec = self.job_spec
        ready_s = self.t_s if self.t_s == 0 and spec.warm_start else self.t_s + spec.prep_s
        state: NodeState = "standby" if ready_s <= self.t_s else "prepping"
        self.nodes[rank] = Node(state, ready_s, self.t_s)
        self.numbers[state] += 1
        if state == "prepping":
            self._ready_queue.append((ready_s, rank))

    def _move(self, rank: int, state: NodeState) -> None:
        """A node changes its state."""
        node = self.nodes[rank]
        self._close_node(rank, node)
        self.numbers[node.state] -= 1
        self.numbers[state] += 1
        node.state, node.since_s = state, self.t_s

    def _close_node(self, rank: int, node: Node) -> None:
        """Note the state that a node leaves."""
        self.record.add_node(NodeSpell(rank, node.state, node.since_s, self.t_s))

    # ----------------------------------------------------------------- the re-plan

    def _settle(self, t_s: float, lost: int) -> None:
        """Re-plan once for the whole instant, if active nodes were lost or the growth rule asks for it."""
        world_size = self.job_spec.nodes_in_use(self.numbers["active"] + self.numbers["standby"])
        grows = world_size > self.numbers["active"]
        if lost:
            keeps = self.continuation is not None and world_size > 0 and lost <= self.continuation.tolerates
            self._replan(t_s, world_size, "loss", keeps)
        elif grows and (self._grow_due or self._absorb(world_size) is Absorb.NOW):
            if self._commit_in_s(t_s) and isinstance(self.job, Training):
                self._grow_due = True  # it joins at the end of the step
                return
            keeps = self.continuation is not None and not isinstance(self.job, Idle)
            self._replan(t_s, world_size, "growth", keeps)
        self._grow_due = False

    def _commit_in_s(self, t_s: float) -> float:
        """Seconds until the running step ends, where replicas commit steps together; 0 between two steps."""
        if self.continuation is None or not self.continuation.commits:
            return 0.0
        match self.job:
            case Training() as job if t_s > job.last_end_s + ROUNDING_S:
                return job.step_end_s - t_s
            case Reconfiguring() as job:
                return max(0.0, job.start_s + job.doomed_s - t_s)
        return 0.0

    def _absorb(self, world_size: int) -> Absorb:
        """Ask the growth rule about growing to `world_size` nodes."""
        if self.t_s == 0 and isinstance(self.job, Idle):
            return Absorb.NOW  # the start is not a decision
        answer = self.growth.absorb(self._growth_view(world_size))
        if isinstance(self.job, Training):
            self.job.regrow_when_durable = answer is Absorb.AT_NEXT_DURABLE
        return answer

    def _growth_view(self, world_size: int) -> GrowthView:
        """What the growth rule may know, asked about growing to `world_size` nodes."""
        spec, job = self.job_spec, self.job
        return GrowthView(
            t_s=self.t_s,
            state=job.name,
            pipelines=self.numbers["active"] // spec.depth,
            possible_pipelines=world_size // spec.depth,
            step_s=math.inf if isinstance(job, Idle) else spec.step_s[job.world_size],
            possible_step_s=spec.step_s[world_size],
            would_lose_s=self.t_s - job.undurable_from_s if isinstance(job, Training) else 0.0,
            spent_s=self.t_s - job.start_s if isinstance(job, Reconfiguring) else 0.0,
            reconfig_s=spec.reconfig_s,
            write_s=spec.write_s,
            hit_rate_per_s=self.outlook.hit_rate_per_s(
                active=self.numbers["active"], alive=len(self.nodes), t_s=self.t_s, hits=self.hits
            ),
        )

    def _replan(self, t_s: float, world_size: int, cause: str, keeps: bool) -> None:
        """Continue on another number of nodes.

        Parameters
        ----------
        world_size : nodes that train from now on (0: none).
        cause : a loss or growth.
        keeps : whether to go on from the last completed step, after the shorter pause, instead of rolling back.
        """
        before = self.job
        pause_s, doomed_s, joins = self.job_spec.reconfig_s, 0.0, False
        if keeps and self.continuation is not None:
            doomed_s, joins = self._commit_in_s(t_s), self.continuation.commits and cause == "growth"
            pause_s = 0.0 if joins else self.continuation.pause_s
            if isinstance(before, Training):
                self._complete_all(before)
        self._close_spell(t_s, final=False)
        self._charge_nodes(t_s)
        self._fill(world_size)
        self.cause = cause
        if world_size == 0:
            self.job = Idle(t_s)
            self.record.counts.idle_spells += 1
        elif t_s == 0 and self.job_spec.warm_start:
            self._train(t_s, world_size, "start")
        elif isinstance(before, Reconfiguring):
            self.record.counts.reconfig_restarts += 1
            extends = joins or self.job_spec.reconfig_rule == "extend"
            from_s = before.until_s if extends else t_s + doomed_s
            self.job = Reconfiguring(world_size, t_s, from_s + pause_s, doomed_s)
        else:
            self.record.counts.reconfigs += 1
            self.job = Reconfiguring(world_size, t_s, t_s + doomed_s + pause_s, doomed_s)

    def _complete_all(self, job: Training) -> None:
        """Survivors have every completed step: it counts as durable, and only the running step is lost."""
        if job.write is not None:
            job.durable_stall_s += min(self.t_s, job.write.blocked_until_s) - job.last_checkpoint_s
            self.record.counts.checkpoints_aborted += 1
            job.write = None
        job.durable_steps = job.steps_done
        job.undurable_from_s = min(self.t_s, job.step_start_s)
        self.saved = max(self.saved, job.next_step - 1)

    def _fill(self, world_size: int) -> None:
        """Take standby nodes in the order they became ready, or let the highest active ones go."""
        missing = world_size - self.numbers["active"]
        if missing > 0:
            waiting = sorted((n.ready_s, rank) for rank, n in self.nodes.items() if n.state == "standby")
            for _, rank in waiting[:missing]:
                self._move(rank, "active")
        elif missing < 0:
            training = sorted((rank for rank, n in self.nodes.items() if n.state == "active"), reverse=True)
            for rank in training[:-missing]:
                self._move(rank, "standby")

    def _train(self, t_s: float, world_size: int, cause: str) -> None:
        """A segment of training begins, after the last durable step."""
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
        """Where the time of the present interval went, if it ends now.

        Parameters
        ----------
        final : by the end of the run, which keeps all completed steps; else by a disruption, which keeps what is
            durable.
        """
        job = self.job
        match job:
            case Training() if final:
                return _final_parts(job, t_s)
            case Training():
                return {
                    "useful": job.durable_steps * job.step_s,
                    "stall": job.durable_stall_s,
                    "lost": t_s - job.undurable_from_s,
                }
            case Reconfiguring():
                spent_s = t_s - self._spell_start_s()
                lost_s = min(spent_s, job.doomed_s)
                return {"reconfig": spent_s - lost_s} | ({"lost": lost_s} if lost_s else {})
            case Idle():
                return {"idle": t_s - job.start_s}

    def _spell_start_s(self) -> float:
        """When the job's present state began."""
        return self.record.spells[-1].end_s if self.record.spells else 0.0

    def _close_spell(self, t_s: float, final: bool) -> None:
        """End the current interval and charge its time; a disruption also discards what was not durable."""
        job, parts, first = self.job, self._parts(t_s, final), self.saved + 1
        executed = retained = 0
        if isinstance(job, Training):
            first, executed = job.first_step, job.steps_done
            retained = executed if final else job.durable_steps
            counts = self.record.counts
            counts.steps_lost += executed - retained
            counts.rollbacks += parts.get("lost", 0.0) > ROUNDING_S
            counts.checkpoints_aborted += job.write is not None and not final
        start_s = self._spell_start_s()
        self.record.add(
            Spell(job.name, job.world_size, start_s, t_s, self.cause, parts, first, executed, retained)
        )
        self.t_s = t_s

    def check(self) -> None:
        """Assert what is true after every event: time and node time are conserved, world sizes are whole."""
        job, now_s, numbers = self.job, self.t_s, self.numbers
        parts = self._parts(now_s, final=True)
        whole_s = math.fsum(self.record.wall_s.values()) + math.fsum(parts.values())
        assert abs(whole_s - now_s) <= 1e-9 * max(1.0, now_s), (whole_s, now_s)
        span_s = now_s - self.t_charged_s
        charged = math.fsum(self.record.node_s.values()) + (numbers["standby"] + numbers["prepping"]) * span_s
        charged += job.world_size * math.fsum(seconds for line, seconds in parts.items() if line != "idle")
        alive = self.alive_node_s + len(self.nodes) * span_s
        assert abs(charged - alive) <= 1e-9 * max(1.0, alive), (charged, alive)
        assert numbers["active"] == job.world_size and job.world_size % self.job_spec.depth == 0
        assert job.world_size <= self.job_spec.depth * self.job_spec.max_pipelines
        assert sum(numbers.values()) == len(self.nodes)

    def finish(self, t_s: float, finished_s: float | None) -> Replay:
        """Close the ledgers: completed steps count as useful even if they are not durable.

        Parameters
        ----------
        t_s : end of the run.
        finished_s : when the goal was reached; None if it was not.
        """
        completed, record = self.steps_completed, self.record
        self._close_spell(t_s, final=True)
        self._charge_nodes(t_s)
        for rank, node in sorted(self.nodes.items()):
            self._close_node(rank, node)
        return Replay(
            end_s=t_s,
            steps_completed=completed,
            steps_durable=self.saved + 1,
            wall_s=record.wall_s,
            node_s=record.node_s,
            counts=record.counts,
            final_state=self.job.name,
            final_active=self.numbers["active"],
            final_standby=self.numbers["standby"],
            final_provisioning=self.numbers["prepping"],
            spells=record.spells,
            node_spells=record.node_spells,
            finished_s=finished_s,
        )


def _final_parts(job: Training, t_s: float) -> dict[str, float]:
    """Where a segment's time went if nothing of it is rolled back."""
    stall_s = job.durable_stall_s
    if job.write is not None:
        stall_s += min(t_s, job.write.blocked_until_s) - job.last_checkpoint_s
    inflight_s = max(0.0, t_s - job.step_start_s)
    return {"useful": job.steps_done * job.step_s, "stall": stall_s, "inflight": inflight_s}
