"""Training whose shape is a number of nodes, as in the simulators of the Oobleck artefact.

Every removal stops training for a pause, after which it goes on with whoever is there.  `run_elastic` is the
artefact's machine for Oobleck and for Varuna, event for event; what is not meant by either paper (steps that
complete during a pause, a failure recognised by scanning a heap's array) is part of it.
[Jang et al., Oobleck: resilient distributed training of large models using pipeline templates, SOSP'23;
Athlur et al., Varuna: scalable, low-cost training of massive deep learning models, EuroSys'22.]
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forerun.spot.policies.bamboo.ring import (
    ADD,
    GLOBAL_TIMEOUT,
    READY,
    REMOVE,
    STEP,
    Change,
    Payload,
)

CHECKPOINT = 8
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJob:
    """A job whose speed depends on the number of nodes alone.

    Parameters
    ----------
    step_ms : the time of a step by node count [ms], for the counts measured; other counts use the nearest of them.
    samples_per_step : samples of a step.
    pause_ms : how long a failure stops training [ms].
    pause_ms_by_nodes : the same by the nodes usable at the end of the pause before; the first pause takes `pause_ms`
        (default: every pause does).
    min_nodes : nodes without which training does not go on (default: 12).
    ready_ms : from the addition of a node until it is usable [ms] (default: 45,000).
    """

    step_ms: Mapping[int, int]
    samples_per_step: int
    pause_ms: int
    pause_ms_by_nodes: Mapping[int, int] | None = None
    min_nodes: int = 12
    ready_ms: int = 45_000

    def nearest(self, table: Mapping[int, int], nodes: int) -> int:
        """A table's value at a node count, clamped to the least and the largest count that the table has."""
        return table[min(max(table), max(min(table), nodes))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Varuna's checkpoints.

    Parameters
    ----------
    every_steps : steps between two checkpoints.
    checkpoint_ms : time of a checkpoint [ms]; a pause is shorter by as much.
    free : a checkpoint takes no time and is safe at once (default: off).
    """

    every_steps: int
    checkpoint_ms: int
    free: bool = False


@dataclass(slots=True)
class _Step:
    """A step that was completed. counts: off where a failure made it worthless."""

    start_ms: int
    end_ms: int
    counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticRun:
    """What the machine did.

    Parameters
    ----------
    steps : steps completed at the end, by the artefact's counter, which failures during a checkpoint turn back.
    counted_steps : steps whose work was not lost.
    samples_per_s : throughput of the counted steps, from the first training to the last step [samples/s].
    preemptions : nodes removed.
    pauses : pauses that removals caused.
    mean_nodes : time-weighted mean until the last step.
    end_ms : end of the last step [ms]; 0 without steps.
    """

    steps: int
    counted_steps: int
    samples_per_s: float
    preemptions: int
    pauses: int
    mean_nodes: float
    end_ms: int


class _Elastic:
    """The artefact's machine: its heap of events, its nodes, and what it has recorded so far.

    `ready` says of each node whether it is usable, `listed` who takes part in the coming rendezvous, `records` the steps
    completed, `safe_ms` up to when they are safe, and `changes` the number of nodes over time.
    """

    def __init__(self, job: ElasticJob, checkpoints: Checkpoints | None) -> None:
        self.job, self.checkpoints = job, checkpoints
        self.heap: list[tuple[int, Payload]] = []
        self.now_ms = 0
        self.ready: dict[str, bool] = {}
        self.listed: list[str] = []
        self.status = "stopped"
        self.version = self.steps = self.preemptions = self.pauses = self.step_ms = 0
        self.nodes_at_last: int | None = None
        self.first_running_ms: int | None = None
        self.records: list[_Step] = []
        self.safe_ms: int | None = None
        self.after_removal = False
        self.changes: list[tuple[int, int]] = []

    def push(self, t_ms: int, kind: int, value: str | int = 0) -> None:
        """Schedule an event; at one instant, lower kinds come first."""
        heapq.heappush(self.heap, (t_ms * 16 + kind, Payload(value)))

    def meet(self) -> None:
        """Training pauses; the list is who is usable now."""
        self.status = "rendezvous"
        self.listed = [name for name, usable in self.ready.items() if usable]
        pause_ms, table = self.job.pause_ms, self.job.pause_ms_by_nodes
        if table is not None and self.nodes_at_last is not None:
            pause_ms = self.job.nearest(table, self.nodes_at_last)
        less = self.checkpoints.checkpoint_ms if self.checkpoints else 0
        self.push(self.now_ms + pause_ms - less, GLOBAL_TIMEOUT)

    def remove(self, name: str) -> None:
        """Every removal is a failure; with checkpoints, it makes steps since the last safe instant worthless."""
        if self.ready.pop(name, None) is None:
            return
        self.preemptions += 1
        self.pauses += 1
        self.after_removal = True
        self.meet()
        if self.checkpoints:
            for step in self.records:
                if self.safe_ms is None or step.end_ms > self.safe_ms:
                    step.counts = False

    def make_ready(self, name: str) -> None:
        """A node is usable: it starts or joins a rendezvous, else it waits for the next failure."""
        if name not in self.ready:
            return
        self.ready[name] = True
        if self.status == "stopped":
            self.meet()
        elif self.status == "rendezvous":
            self.listed.append(name)

    def timeout(self) -> None:
        """The pause ends; training goes on with the usable nodes, if they are enough."""
        if any(name not in self.ready for name in self.listed):
            self.meet()
            return
        self.version += 1
        enough = len(self.listed) >= self.job.min_nodes
        self.listed = []
        self.nodes_at_last = sum(self.ready.values())
        if not enough:
            self.status = "stopped"
            return
        self.status = "running"
        self.first_running_ms = self.now_ms if self.first_running_ms is None else self.first_running_ms
        self.step_ms = self.job.nearest(self.job.step_ms, self.nodes_at_last)
        self.push(self.now_ms + self.step_ms, STEP, self.version)

    def step(self, version: int) -> None:
        """A step ends, perhaps followed by a checkpoint."""
        if version != self.version:
            return
        self.steps += 1
        self.records.append(_Step(self.now_ms - self.step_ms, self.now_ms))
        next_ms = self.now_ms
        if self.checkpoints and (self.steps % self.checkpoints.every_steps == 0 or self.after_removal):
            self.after_removal = False
            next_ms = self.checkpoint()
        self.push(next_ms + self.step_ms, STEP, version)

    def checkpoint(self) -> int:
        """Take a checkpoint; returns when training goes on."""
        assert self.checkpoints is not None
        if self.checkpoints.free:
            self.safe_ms = self.now_ms
            return self.now_ms
        resume_ms = self.now_ms + self.checkpoints.checkpoint_ms
        self.push(resume_ms + self.checkpoints.checkpoint_ms, CHECKPOINT)
        # The artefact looks through the heap's array, whose order is not that of time.
        first = next((key % 16 for key, _ in self.heap if key % 16 in (REMOVE, CHECKPOINT)), CHECKPOINT)
        if first == REMOVE:
            self.steps = max(0, self.steps - 10)
            for step in self.records[-10:]:
                step.counts = False
        else:
            self.safe_ms = resume_ms
        return resume_ms

    def record_count(self) -> None:
        """Note the number of nodes when a millisecond is over; the first note is dated 0."""
        if self.now_ms > 0 and not self.changes:
            self.changes.append((0, len(self.ready)))
        elif self.now_ms > 0 and self.changes[-1][1] != len(self.ready):
            self.changes.append((self.now_ms, len(self.ready)))


def run_elastic(
    job: ElasticJob, rows: Sequence[Change], checkpoints: Checkpoints | None = None
) -> ElasticRun:
    """Drive the artefact's machine by changes of the fleet, until the last of them.

    Parameters
    ----------
    job : what trains.
    rows : (time [ms], whether it is an addition, node).
    checkpoints : Varuna's checkpoints (default: none, as for Oobleck).
    """
    world = _Elastic(job, checkpoints)
    for t_ms, is_add, name in rows:
        world.push(t_ms, ADD if is_add else REMOVE, name)
    end_ms = max((t_ms for t_ms, _, _ in rows), default=0)
    while world.heap:
        key, payload = heapq.heappop(world.heap)
        t_ms, kind = divmod(key, 16)
        if t_ms >= end_ms:
            break
        world.now_ms = t_ms
        match kind:
            case 1:  # ADD
                world.ready[str(payload.value)] = False
                world.push(t_ms + job.ready_ms, READY, payload.value)
            case 2:  # REMOVE
                world.remove(str(payload.value))
            case 4:  # READY
                world.make_ready(str(payload.value))
            case 5:  # the pause ends
                world.timeout()
            case 7:  # STEP
                world.step(int(payload.value))
            case 8:  # CHECKPOINT
                pass
            case _:
                raise AssertionError(f"no event has kind {kind}")
        if not world.heap or world.heap[0][0] // 16 != t_ms:
            world.record_count()
    return _finished(world)


def _finished(world: _Elastic) -> ElasticRun:
    """The figures of a run; throughput and steps are 0 where no step was completed."""
    if not world.records or world.first_running_ms is None:
        return ElasticRun(
            steps=0,
            counted_steps=0,
            samples_per_s=0.0,
            preemptions=world.preemptions,
            pauses=world.pauses,
            mean_nodes=0.0,
            end_ms=0,
        )
    end_ms = world.records[-1].end_ms
    ends = [*(t for t, _ in world.changes[1:]), end_ms]
    node_ms = sum(nodes * (to_ms - from_ms) for (from_ms, nodes), to_ms in zip(world.changes, ends))
    counted = sum(step.counts for step in world.records)
    return ElasticRun(
        steps=world.steps,
        counted_steps=counted,
        samples_per_s=world.job.samples_per_step * counted / ((end_ms - world.first_running_ms) / 1000),
        preemptions=world.preemptions,
        pauses=world.pauses,
        mean_nodes=node_ms / end_ms,
        end_ms=end_ms,
    )


def hours(ms: int) -> float:
    """Milliseconds as hours."""
    return ms / HOUR_MS
