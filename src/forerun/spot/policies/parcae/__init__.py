"""Choose the shape of the job, minute by minute, by what it is expected to make under coming removals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from forerun.spot.engine.events import JobStateName, NodeState
from forerun.spot.engine.history import NodeSpell, Record, Replay, Spell
from forerun.spot.engine.job import ROUNDING_S
from forerun.spot.engine.membership import Instant
from forerun.spot.policies.parcae.liveput import Moves, Shapes, Strategy
from forerun.spot.policy import RecoveryPolicy, Setting

NOTHING: Strategy = (0, 0)


class Parcae(RecoveryPolicy, frozen=True, kw_only=True, tag="parcae"):
    """Liveput-optimal shapes: at the start of each interval the replicas that promise most over the next few.

    A planned change waits for the running step; a loss costs the running step, and the job goes on with what is
    left when it has regrouped.  The forecast is that the fleet stays as it is and loses as many nodes an interval
    as it did lately, rounded; the probabilities that stages survive are exact.  The stages of a pipeline are the
    job's `depth`; step times of shapes come from the job.  Times of moves are the paper's measurements on p3
    instances.  [Duan et al., Parcae: proactive, liveput-optimized DNN training on preemptible instances,
    NSDI'24, sections 5, 6.]
    """

    interval_s: Annotated[float, msgspec.Meta(gt=0, lt=1e9)] = 60.0
    look_ahead: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 4
    memory: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10
    regroup_s: Annotated[float, msgspec.Meta(ge=0, lt=1e9)] = 6.6
    restart_s: Annotated[float, msgspec.Meta(ge=0, lt=1e9)] = 0.24
    copy_s: Annotated[float, msgspec.Meta(ge=0, lt=1e9)] = 5.0

    def replay(self, setting: Setting) -> Replay:
        """Event by event on the fleet's history; at one instant steps end, pauses end, nodes vanish, nodes come,
        and a new interval is planned, in this order.
        """
        job = setting.job
        shapes = Shapes(
            samples_per_s={
                (size // job.depth, job.depth): setting.samples_per_step / seconds
                for size, seconds in job.step_s.items()
            },
            interval_s=self.interval_s,
            moves=Moves(regroup_s=self.regroup_s, restart_s=self.restart_s, copy_s=self.copy_s),
        )
        run = _Run(self, setting, shapes)
        instants, i, intervals = setting.fleet.instants, 0, 0
        while True:
            change_s = instants[i].t_s if i < len(instants) else math.inf
            plan_s = intervals * self.interval_s
            t_s = min(run.step_end_s, run.until_s, change_s, plan_s)
            if t_s > job.horizon_s:
                return run.finish(job.horizon_s)
            if run.step_end_s == t_s:
                run.complete_step(t_s)
                if run.steps == setting.goal_steps:
                    return run.finish(t_s, finished=True)
            elif run.until_s == t_s:
                run.train(t_s)
            elif t_s == job.horizon_s:
                return run.finish(t_s)
            elif change_s == t_s:
                run.change_fleet(instants[i])
                i += 1
            else:
                run.plan(t_s)
                intervals += 1


@dataclass(slots=True)
class _Run:
    """The run so far: nodes, the job, and the ledgers.

    Parameters
    ----------
    policy, setting, shapes : the policy's parameters, the job on its fleet, and what can be trained.
    shape : pipelines and stages that train or are being built; NOTHING while idle.
    members : the nodes in pipelines; the i-th has stage i mod depth.
    planned : the shape that the running step is to be followed by, if another.
    known : the best shape by (present shape, nodes, nodes that vanish an interval).
    state, cause, since_s : of the job, why it began, and when.
    until_s : end of the pause (infinite: there is none).
    step_end_s : end of the running step (infinite: none runs).
    steps, steps_here : steps complete in all, and in the present state.
    ready_s : by node alive, when it is or was usable.
    entered_s : by node alive, when its present state began.
    lost_now, lost_lately : usable nodes that vanished in this interval, and in each of the last few.
    record : ledgers, counts and intervals.
    """

    policy: Parcae
    setting: Setting
    shapes: Shapes
    shape: Strategy = NOTHING
    members: list[int] = field(default_factory=list)
    planned: Strategy | None = None
    known: dict[tuple[Strategy, int, int], Strategy] = field(default_factory=dict)
    state: JobStateName = "idle"
    cause: str = "start"
    since_s: float = 0.0
    until_s: float = math.inf
    step_end_s: float = math.inf
    steps: int = 0
    steps_here: int = 0
    ready_s: dict[int, float] = field(default_factory=dict)
    entered_s: dict[int, float] = field(default_factory=dict)
    lost_now: int = 0
    lost_lately: list[int] = field(default_factory=list)
    record: Record = field(default_factory=Record)

    # ----------------------------------------------------------------- what happens

    def plan(self, t_s: float) -> None:
        """An interval begins: the shape that promises most; a change waits for the running step and for pauses."""
        if t_s > 0:
            self.lost_lately = [*self.lost_lately, self.lost_now][-self.policy.memory :]
            self.lost_now = 0
        if self.state == "reconfiguring":
            return
        lately, nodes = self.lost_lately, len(self._usable(t_s))
        removed = round(sum(lately) / len(lately)) if lately else 0
        best = self._best(nodes, removed)
        self.planned = best if best != self.shape else None
        if self.state == "idle" or t_s == self._worked_until_s():
            self._move(t_s)

    def _best(self, nodes: int, removed: int) -> Strategy:
        """The shape that promises most.

        Parameters
        ----------
        nodes : usable now.
        removed : of them, how many are expected to vanish in an interval.
        """
        asked = (self.shape, nodes, removed)
        if asked not in self.known:
            ahead = range(self.policy.look_ahead)
            forecast = [(max(0, nodes - removed * i), min(removed, nodes)) for i in ahead]
            self.known[asked] = self.shapes.look_ahead(self.shape, forecast)[0][0]
        return self.known[asked]

    def complete_step(self, t_s: float) -> None:
        """The running step is done and cannot be lost: every stage of it is on some node."""
        self.steps += 1
        self.steps_here += 1
        self.record.counts.steps_executed += 1
        self.step_end_s = self.since_s + (self.steps_here + 1) * self._step_s()
        self._move(t_s)

    def train(self, t_s: float) -> None:
        """The pipelines are built."""
        self._close(t_s)
        self.state, self.until_s = "training", math.inf
        self.step_end_s = t_s + self._step_s()

    def change_fleet(self, instant: Instant) -> None:
        """Nodes vanish, then nodes come; the job goes on with what is left."""
        t_s = instant.t_s
        gone = [node for node in instant.removed if node in self.ready_s]
        stages = self.shape[1]
        training = set(self.members)
        for node in gone:
            self._leave(node, t_s)
            ready = self.ready_s.pop(node) < t_s
            self.lost_now += ready
            self.record.counts.remove("active" if node in training else "standby" if ready else "prepping")
        for node in instant.added:
            self.record.counts.adds += 1
            warm = t_s == 0 and self.setting.job.warm_start
            self.ready_s[node] = t_s if warm else t_s + self.setting.job.prep_s
            self.entered_s[node] = t_s
        if not training.isdisjoint(gone):
            alive = [[n for n in self.members[stage::stages] if n in self.ready_s] for stage in range(stages)]
            self._go_on(t_s, alive)

    def _go_on(self, t_s: float, alive: Sequence[Sequence[int]]) -> None:
        """After a loss: the replicas that every stage still has regroup; where a stage has none its states are
        copied to other nodes, as many replicas as there are nodes for.
        """
        replicas, stages = self.shape
        moves, left = self.shapes.moves, min(map(len, alive))
        if left >= 1:
            members, extra_s = [nodes[i] for i in range(left) for nodes in alive], moves.regroup_s
        else:
            usable = self._usable(t_s)
            left = min(replicas, len(usable) // stages)
            placed = {node for nodes in alive for node in nodes[:left]}
            others = [node for node in usable if node not in placed]
            rows = [[*nodes[:left], *(others.pop(0) for _ in range(left - len(nodes)))] for nodes in alive]
            members = [row[i] for i in range(left) for row in rows]
            missing = sum(not nodes for nodes in alive)
            extra_s = moves.restart_s + moves.regroup_s + missing * moves.copy_s
        self._reshape(t_s, (left, stages) if left else NOTHING, members, extra_s, "loss")

    def _move(self, t_s: float) -> None:
        """Take the planned shape, if there still are nodes for it."""
        shape, self.planned = self.planned, None
        if shape is None:
            return
        needed = shape[0] * shape[1]
        members = self.members[:needed]
        if len(members) < needed:
            standby = sorted((self.ready_s[node], node) for node in self._usable(t_s) if node not in members)
            members += [node for _, node in standby[: needed - len(members)]]
        if len(members) == needed:
            pause_s = (
                0.0 if t_s == 0 and self.setting.job.warm_start else self.shapes.change_s(self.shape, shape)
            )
            self._reshape(t_s, shape, members, pause_s, "start" if t_s == 0 else "plan")

    def _reshape(
        self, t_s: float, shape: Strategy, members: Sequence[int], pause_s: float, cause: str
    ) -> None:
        """Go on in another shape after a pause; a pause that is running ends first.

        Parameters
        ----------
        t_s : now.
        shape : pipelines and stages; NOTHING makes the job idle.
        members : the nodes of the new shape, in the order of their stages.
        pause_s : length of the pause.
        cause : why.
        """
        pausing = self.state == "reconfiguring"
        from_s = self.until_s if pausing else t_s
        self._close(t_s)
        before, after = set(self.members), set(members)
        for node in sorted((before | after) - (before & after)):
            if node in self.ready_s:
                self._leave(node, t_s)
        self.shape, self.members, self.cause, self.planned = shape, list(members), cause, None
        self.step_end_s = self.until_s = math.inf
        if shape == NOTHING:
            self.state = "idle"
            self.record.counts.idle_spells += 1
            return
        self.state, self.until_s = "reconfiguring", from_s + pause_s
        if self.until_s == t_s == 0:
            self.train(t_s)
        elif pausing:
            self.record.counts.reconfig_restarts += 1
        else:
            self.record.counts.reconfigs += 1

    # ----------------------------------------------------------------- what is

    def _usable(self, t_s: float) -> list[int]:
        """The nodes that have been prepared, by rank."""
        return sorted(node for node, ready_s in self.ready_s.items() if ready_s <= t_s)

    def _step_s(self) -> float:
        """Seconds of a step in the present shape."""
        return self.setting.job.step_s[self.shape[0] * self.shape[1]]

    def _worked_until_s(self) -> float:
        """When the last step of this stretch of training was complete."""
        return self.since_s + self.steps_here * self._step_s() if self.state == "training" else math.inf

    # ----------------------------------------------------------------- ledgers

    def _close(self, t_s: float, *, final: bool = False) -> None:
        """End the current interval of the job and charge its time; a running step is lost."""
        span_s, world_size = t_s - self.since_s, len(self.members)
        if self.state == "training":
            useful_s = self.steps_here * self._step_s()
            rest_s = max(0.0, span_s - useful_s)
            parts = {"useful": useful_s, "inflight" if final else "lost": rest_s}
            self.record.counts.rollbacks += not final and rest_s > ROUNDING_S
        else:
            parts = {"reconfig" if self.state == "reconfiguring" else "idle": span_s}
        first, here = self.steps - self.steps_here, self.steps_here
        self.record.add(
            Spell(self.state, world_size, self.since_s, t_s, self.cause, parts, first, here, here)
        )
        self.since_s, self.steps_here = t_s, 0

    def _leave(self, node: int, t_s: float) -> None:
        """A node leaves the state it is in: preparing, then standing by, or in a pipeline."""
        since_s, ready_s = self.entered_s[node], min(self.ready_s[node], t_s)
        if node in self.members:
            self._node_spell(node, "active", since_s, t_s)
        else:
            self._node_spell(node, "prepping", since_s, ready_s)
            self._node_spell(node, "standby", max(since_s, ready_s), t_s)
        self.entered_s[node] = t_s

    def _node_spell(self, node: int, state: NodeState, start_s: float, end_s: float) -> None:
        """Note an interval of a node; what it waited or was prepared is charged here."""
        self.record.add_node(NodeSpell(node, state, start_s, end_s))
        if state != "active" and end_s > start_s:
            self.record.node_s[state] += end_s - start_s

    def finish(self, end_s: float, *, finished: bool = False) -> Replay:
        """Close the ledgers; completed steps count."""
        state, record = self.state, self.record
        self._close(end_s, final=True)
        for node in sorted(self.ready_s):
            self._leave(node, end_s)
        usable = len(self._usable(end_s))
        return Replay(
            end_s=end_s,
            steps_completed=self.steps,
            steps_durable=self.steps,
            wall_s=record.wall_s,
            node_s=record.node_s,
            counts=record.counts,
            final_state=state,
            final_active=len(self.members),
            final_standby=usable - len(self.members),
            final_provisioning=len(self.ready_s) - usable,
            spells=record.spells,
            node_spells=record.node_spells,
            finished_s=end_s if finished else None,
        )
