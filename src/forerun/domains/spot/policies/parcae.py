"""Choose the shape of the job, minute by minute, by what it is expected to make under coming removals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from forerun.domains.spot.liveput import Moves, Shapes, Strategy
from forerun.domains.spot.model import Counts, Membership, Replay, Spell
from forerun.domains.spot.policy import RecoveryPolicy, Setting


class Parcae(RecoveryPolicy, frozen=True, kw_only=True, tag="parcae"):
    """Liveput-optimal shapes: at the start of each interval the replicas that promise most over the next few.

    The forecast is that the fleet stays as it is and loses as many nodes an interval as it did lately,
    rounded; the probabilities that stages survive are exact. The stages of a pipeline are the job's `depth`;
    step times of shapes come from the job. Times of moves are the paper's measurements on p3 instances.
    [Duan et al., Parcae: proactive, liveput-optimized DNN training on preemptible instances, NSDI'24,
    sections 5, 6.]
    """

    interval_s: float = 60.0
    look_ahead: int = 4
    memory: int = 10
    regroup_s: float = 6.6
    restart_s: float = 0.24
    copy_s: float = 5.0

    def problems(self) -> list[tuple[str, str]]:
        """Positive lengths, and numbers of at least one."""
        found = [
            (name, f"{getattr(self, name)} is negative or not finite")
            for name in ("regroup_s", "restart_s", "copy_s")
            if not 0 <= getattr(self, name) < 1e9
        ]
        if not 0 < self.interval_s < 1e9:
            found.append(("interval_s", f"{self.interval_s} is not positive and finite"))
        found += [
            (name, f"{getattr(self, name)} is not between 1 and 1000")
            for name in ("look_ahead", "memory")
            if not 1 <= getattr(self, name) <= 1000
        ]
        return found

    def replay(self, setting: Setting) -> Replay:
        """Interval by interval on the fleet's history."""
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
        start_s = 0.0
        count = 0
        while start_s < job.horizon_s and not run.finished:
            count += 1
            end_s = min(count * self.interval_s, job.horizon_s)
            run.interval(start_s, end_s)
            start_s = end_s
        return run.replay(start_s)


@dataclass(slots=True)
class _Run:
    """The run so far."""

    policy: Parcae
    setting: Setting
    shapes: Shapes
    shape: Strategy = (0, 0)
    ready_s: dict[int, float] = field(default_factory=dict)
    lost_lately: list[int] = field(default_factory=list)
    samples: float = 0.0
    wall_s: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("useful", "reconfig", "idle"), 0.0)
    )
    node_s: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("useful", "reconfig", "standby", "prepping"), 0.0)
    )
    counts: Counts = field(default_factory=Counts)
    spells: list[Spell] = field(default_factory=list)
    next_instant: int = 0
    finished: bool = False

    def interval(self, start_s: float, end_s: float) -> None:
        """Plan at the start of an interval, then let happen what happens in it; losses count from its
        start.
        """
        fleet, span_s = self.setting.fleet, end_s - start_s
        self._take(fleet, start_s, inclusive=True)
        usable = sorted(node for node, ready_s in self.ready_s.items() if ready_s <= start_s)
        shape = self._plan(len(usable))
        pause_s = min(span_s, self.shapes.change_s(self.shape, shape))
        training = usable[: shape[0] * shape[1]]
        alive = len(self.ready_s)
        gone = self._take(fleet, end_s, inclusive=False)
        after, extra_s = self._outcome(shape, training, len(usable), gone)
        pause_s = min(span_s, pause_s + extra_s)
        rate = self.shapes.rate(after)
        self._book(start_s, end_s, pause_s, rate, alive, after)
        if shape != self.shape or after != shape:
            self.counts.reconfigs += after != (0, 0)
        self.counts.rollbacks += bool(gone & set(training)) and after[0] < shape[0]
        self.shape = after
        self.lost_lately = [*self.lost_lately, len(gone & set(usable))][-self.policy.memory :]

    def _plan(self, nodes: int) -> Strategy:
        lately = self.lost_lately
        removed = round(sum(lately) / len(lately)) if lately else 0
        forecast = [(max(0, nodes - removed * i), min(removed, nodes)) for i in range(self.policy.look_ahead)]
        path, _ = self.shapes.look_ahead(self.shape, forecast)
        return path[0]

    def _take(self, fleet: Membership, until_s: float, *, inclusive: bool) -> set[int]:
        """Apply the fleet's changes until a time; returns who vanished."""
        gone: set[int] = set()
        prep_s, warm = self.setting.job.prep_s, self.setting.job.warm_start
        while self.next_instant < len(fleet.instants):
            instant = fleet.instants[self.next_instant]
            if instant.t_s > until_s or (instant.t_s == until_s and not inclusive):
                break
            for node in instant.removed:
                gone |= {node} if self.ready_s.pop(node, None) is not None else set()
            for node in instant.added:
                self.counts.adds += 1
                self.ready_s[node] = instant.t_s + (0.0 if warm and instant.t_s == 0 else prep_s)
            self.next_instant += 1
        self.counts.removed_active += len(gone)
        return gone

    def _outcome(
        self, shape: Strategy, training: Sequence[int], usable: int, gone: set[int]
    ) -> tuple[Strategy, float]:
        """The shape that goes on after the losses of an interval, and the time it takes to get there."""
        replicas, stages = shape
        lost = [0] * stages
        for place, node in enumerate(training):
            lost[place % stages] += node in gone
        if replicas == 0 or not any(lost):
            return shape, 0.0
        moves = self.shapes.moves
        kept = replicas - max(lost)
        if kept >= 1:
            return (kept, stages), moves.regroup_s
        left = min(replicas, (usable - len(gone)) // stages)
        missing = sum(count == replicas for count in lost)
        after = (left, stages) if left >= 1 else (0, 0)
        return after, moves.restart_s + moves.regroup_s + missing * moves.copy_s

    def _book(
        self, start_s: float, end_s: float, pause_s: float, rate: float, alive: int, after: Strategy
    ) -> None:
        span_s = end_s - start_s
        if after == (0, 0):
            self.wall_s["idle"] += span_s
            self.node_s["standby"] += alive * span_s
            return
        useful_s = span_s - pause_s
        goal = self.setting.goal_steps
        self.samples += rate * useful_s
        self.finished = goal is not None and self.samples >= goal * self.setting.samples_per_step
        active = after[0] * after[1]
        self.wall_s["useful"] += useful_s
        self.wall_s["reconfig"] += pause_s
        self.node_s["useful"] += active * useful_s
        self.node_s["reconfig"] += active * pause_s
        self.node_s["standby"] += max(0, alive - active) * span_s
        parts = {"useful": useful_s, "reconfig": pause_s}
        self.spells.append(Spell("training", active, start_s, end_s, "interval", parts))

    def replay(self, end_s: float) -> Replay:
        """The books at the end, in the room's words."""
        steps = int(self.samples / self.setting.samples_per_step)
        self.counts.steps_executed = steps
        return Replay(
            end_s=end_s,
            steps_completed=steps,
            steps_durable=steps,
            wall_s=self.wall_s,
            node_s=self.node_s,
            counts=self.counts,
            final_state="training" if self.shape != (0, 0) else "idle",
            final_active=self.shape[0] * self.shape[1],
            final_standby=max(0, len(self.ready_s) - self.shape[0] * self.shape[1]),
            final_prepping=0,
            spells=self.spells,
            node_spells=[],
            finished_s=end_s if self.finished else None,
        )
