"""Ideal nodes on a virtual clock: groups start and leave at once, and work as fast as their profile says."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forerun.live.controller import Course
from forerun.live.engines.engine import Command, Drain, Heartbeat, Kill, Skip, Start
from forerun.live.observation import (
    Checkpointed,
    FirstStep,
    Gone,
    Left,
    NodeUp,
    Observation,
    Started,
)


class VirtualClock:
    """Time that goes on only when an engine waits."""

    def __init__(self, course: Course | None = None) -> None:
        self.course = course or Course()
        self.time_s = 0.0
        self._due_s = math.nan

    def begin(self, now_s: float) -> None:
        self.time_s = max(self.time_s, now_s)  # while no controller was there, time went on

    def now_s(self) -> float:
        return self.time_s

    def wall_s(self) -> float:
        return self.time_s

    def wait_s(self, due_s: float) -> float:
        self._due_s = due_s
        return max(0.0, due_s - self.time_s)

    def jump(self, to_s: float) -> None:
        self.time_s = max(self.time_s, to_s)

    def after(self, wait_s: float) -> float:
        """The instant after a wait: just the one that was waited for, where sums would be a rounding off."""
        return self._due_s if wait_s == self._due_s - self.time_s else self.time_s + wait_s


@dataclass
class _Group:
    start: Start
    begin_s: float
    done: float
    events: list[int] = field(default_factory=list)


class IdealEngine:
    """Nodes that never fail.

    Parameters
    ----------
    clock : moved on by `poll`.
    nodes : slots by name.
    """

    def __init__(self, clock: VirtualClock, nodes: Mapping[str, int]) -> None:
        self.clock, self.nodes = clock, nodes
        self.groups: dict[str, _Group] = {}
        self.exact: dict[str, float] = {}
        self.sent: list[Command] = []
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Observation | Heartbeat]] = []
        for name, slots in nodes.items():
            self._at(-math.inf, NodeUp(node=name, boot="1", slots=slots))

    def poll(self, timeout_s: float) -> Sequence[Observation | Heartbeat]:
        until_s = self.clock.after(timeout_s)
        if not self._events or self._events[0][0] > until_s:
            assert math.isfinite(until_s), "everybody waits for ever"
            self.clock.time_s = until_s
            return []
        at_s = self.clock.time_s = max(self._events[0][0], self.clock.time_s)
        due = []
        while self._events and self._events[0][0] <= at_s:
            due.append(heapq.heappop(self._events)[2])
        return [what for what in due if self._happens(what)]

    def wake(self) -> None:
        pass

    def send(self, command: Command) -> None:
        self.sent.append(command)
        now_s = self.clock.time_s
        if isinstance(command, Start):
            self._start(command, now_s)
            return
        group = self.groups.get(command.job)
        if group is None or group.start.epoch != command.epoch:
            return
        done = self._done(group, now_s)
        match command:
            case Drain(job=job, epoch=epoch):
                self.exact[job] = done
                step = math.floor(done)
                self._at(
                    now_s, Checkpointed(job=job, epoch=epoch, step=step, file=f"{epoch}-{step}", sha256="-")
                )
                self._leave(group, now_s, "drained", step)
            case Kill():
                self._end(group, now_s)
            case Skip(job=job, epoch=epoch, step=step):
                group.done = max(done, float(step))
                if step >= group.start.spec.iterations:
                    self._leave(group, now_s, "finished", step)

    def renew(self, beat: Heartbeat, term_s: float, groups: Mapping[str, int]) -> None:
        raise AssertionError("no heartbeat was sent")

    def close(self) -> None:
        pass

    def _start(self, start: Start, now_s: float) -> None:
        assert start.job not in self.groups, "two groups of one job"
        taken = {
            (node, slot)
            for group in self.groups.values()
            for node, at in group.start.slots.items()
            for slot in at
        }
        for node, at in start.slots.items():
            assert not taken & {(node, slot) for slot in at}, "two jobs on a slot"
            self._at(now_s, Started(job=start.job, epoch=start.epoch, node=node))
        assert start.pace is not None
        done = 0.0
        if start.checkpoint is not None:
            done = self.exact[start.job]
            assert math.floor(done) == start.checkpoint.step
        group = self.groups[start.job] = _Group(start, now_s + start.pace.start_s, done)
        self._at(group.begin_s, FirstStep(job=start.job, epoch=start.epoch, step=math.floor(done)))
        if start.pace.rate_per_s > 0:
            # an end at an instant of the policy must not come after it by a rounding
            end_s = round(group.begin_s + (start.spec.iterations - done) / start.pace.rate_per_s, 6)
            left = Left(job=start.job, epoch=start.epoch, why="finished", step=start.spec.iterations)
            self._at(end_s, left)

    def _done(self, group: _Group, now_s: float) -> float:
        assert group.start.pace is not None
        return group.done + max(0.0, now_s - group.begin_s) * group.start.pace.rate_per_s

    def _leave(self, group: _Group, now_s: float, why: str, step: int) -> None:
        self._at(now_s, Left(job=group.start.job, epoch=group.start.epoch, why=why, step=step))  # type: ignore[arg-type]
        self._end(group, now_s)

    def _end(self, group: _Group, now_s: float) -> None:
        self.groups.pop(group.start.job, None)
        for node in group.start.slots:
            self._at(now_s, Gone(job=group.start.job, epoch=group.start.epoch, node=node))

    def _happens(self, what: Observation | Heartbeat) -> bool:
        """Whether something planned still happens; a group that finishes is gone as well."""
        if not isinstance(what, FirstStep) and not (isinstance(what, Left) and what.why == "finished"):
            return True
        group = self.groups.get(what.job)
        if group is None or group.start.epoch != what.epoch:
            return isinstance(what, Left) and group is None and what.job in self._skipped(what)
        if isinstance(what, Left):
            self._end(group, self.clock.time_s)
        return True

    def _skipped(self, what: Left) -> set[str]:
        return {
            c.job for c in self.sent if isinstance(c, Skip) and (c.job, c.epoch) == (what.job, what.epoch)
        }

    def _at(self, at_s: float, what: Observation | Heartbeat) -> None:
        heapq.heappush(self._events, (at_s, next(self._numbers), what))
