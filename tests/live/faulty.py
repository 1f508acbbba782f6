"""Nodes that fail, on a virtual clock: slow and failing jobs, nodes that die or cannot be reached, clocks that drift.

A node starts, renews and ends groups as the protocol says (`live.engines.engine`): leases end by its own clock, starts that
come after their term are refused, groups that a renewal does not name end. Who is on which slot is noted where ranks would
note it, and two groups on one slot, or two epochs of one job, are an error at once.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from forerun.live.engines.engine import Command, Drain, Heartbeat, Kill, Start
from forerun.live.observation import (
    Checkpointed,
    FirstStep,
    Gone,
    Left,
    NodeUp,
    Observation,
    Progressed,
    Refused,
    Started,
)

from .virtual import VirtualClock


class TwoOnOne(AssertionError):
    """Two groups were on one slot, or two epochs of one job ran."""


@dataclass
class Group:
    start: Start
    lease_end: float
    begin_s: float
    slowness: float
    done: float
    ended: bool = False
    drains: bool = False
    reports: list[Observation] = field(default_factory=list)


@dataclass
class Node:
    name: str
    slots: int
    speed: float
    offset: float
    boot: int = 1
    cut: bool = False
    dead: bool = False
    groups: dict[str, Group] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    last: dict[str, Group] = field(default_factory=dict)
    left_behind: list[Group] = field(default_factory=list)

    def clock(self, now_s: float) -> float:
        """The node's own clock."""
        return self.offset + self.speed * now_s


class FaultyEngine:
    """Nodes with faults drawn from a seed; ranks of a group leave together.

    Parameters
    ----------
    clock : moved on by `poll`.
    nodes : slots by name.
    rng : draws what happens.
    until_s : after it, no more faults.
    counts_from_receipt : a seeded bug: nodes count leases from the receipt of an answer.
    """

    def __init__(
        self,
        clock: VirtualClock,
        nodes: Mapping[str, int],
        rng: np.random.Generator,
        until_s: float,
        *,
        counts_from_receipt: bool = False,
    ) -> None:
        self.clock, self.rng, self.until_s = clock, rng, until_s
        self.counts_from_receipt = counts_from_receipt
        self.slowness: dict[str, float] = {}
        self.owner: dict[tuple[str, int], Group] = {}
        self.faults = {"cut": 0, "death": 0, "failure": 0, "corrupt": 0, "expired": 0}
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._inbox: list[Observation | Heartbeat] = []
        self.nodes = {
            name: Node(name, slots, 1 + rng.uniform(-0.004, 0.004), rng.uniform(0, 1000))
            for name, slots in nodes.items()
        }
        for node in self.nodes.values():
            self._say(node, self._up(node))
            self._after(0.5, lambda node=node: self._beat(node))  # type: ignore[misc]
            self._plan_fault(node)

    # ------------------------------------------------------------------------------------------------- the engine

    def poll(self, timeout_s: float) -> Sequence[Observation | Heartbeat]:
        until_s = self.clock.after(timeout_s)
        while not self._inbox and self._events and self._events[0][0] <= until_s:
            at_s, _, happen = heapq.heappop(self._events)
            self.clock.time_s = max(self.clock.time_s, at_s)
            happen()
        if not self._inbox:
            self.clock.time_s = max(self.clock.time_s, until_s)
        received, self._inbox = self._inbox, []
        return received

    def send(self, command: Command) -> None:
        delay_s = self._delay()
        if isinstance(command, Start):
            for name in command.slots:
                self._after(delay_s, lambda name=name: self._start(self.nodes[name], command))  # type: ignore[misc]
            return
        for node in self.nodes.values():
            self._after(delay_s, lambda node=node: self._command(node, command))  # type: ignore[misc]

    def renew(self, beat: Heartbeat, term_s: float, groups: Mapping[str, int]) -> None:
        named = dict(groups)
        self._after(self._delay(), lambda: self._renewed(self.nodes[beat.node], beat, term_s, named))

    def close(self) -> None:
        pass

    def reconnect(self) -> None:
        """Another controller is there: what was on its way is lost, and nodes say what they run."""
        self._inbox.clear()
        for node in self.nodes.values():
            if not node.dead and not node.cut:
                self._say(node, self._up(node))

    # --------------------------------------------------------------------------------------------------- the nodes

    def _start(self, node: Node, start: Start) -> None:
        now_s = self.clock.time_s
        if node.dead or node.cut or start.epoch < node.epochs.get(start.job, 0):
            return
        if start.epoch == node.epochs.get(start.job, 0):
            return  # the same start once more
        term = start.terms.get(node.name)
        if term is None or term.boot != str(node.boot) or node.clock(now_s) >= term.end_s:
            self._say(
                node, Refused(job=start.job, epoch=start.epoch, node=node.name, why="the lease is over")
            )
            return
        node.epochs[start.job] = start.epoch
        if self.rng.random() < 0.05 and now_s < self.until_s:
            self._say(node, Refused(job=start.job, epoch=start.epoch, node=node.name, why="drawn"))
            return
        assert start.pace is not None
        slowness = self.slowness.setdefault(
            start.job, float(self.rng.choice([1.0, 1.0, self.rng.uniform(0.7, 2)]))
        )
        late_s = float(self.rng.choice([0.1, self.rng.uniform(0, 8)]))
        done = 0.0 if start.checkpoint is None else float(start.checkpoint.step)
        group = Group(start, term.end_s, now_s + start.pace.start_s + late_s, slowness, done)
        for other in self.nodes.values():
            for held in (*other.groups.values(), *other.left_behind):
                if held.start.job == start.job and held.start.epoch != start.epoch and not held.ended:
                    raise TwoOnOne(f"{start.job}: epochs {held.start.epoch} and {start.epoch} at {now_s}")
        for number in start.slots[node.name]:
            held = self.owner.get((node.name, number))
            if held is not None and not held.ended:
                raise TwoOnOne(f"{node.name}:{number} at {now_s}: {held.start.job} and {start.job}")
            self.owner[node.name, number] = group
        node.groups[start.job] = node.last[start.job] = group
        self._say(node, Started(job=start.job, epoch=start.epoch, node=node.name))
        if node.name != next(iter(start.slots)):
            return  # rank 0 is elsewhere
        self._at(group.begin_s, lambda: self._first_step(node, group))
        if self.rng.random() < 0.1 and now_s < self.until_s:
            self._at(now_s + self.rng.exponential(120), lambda: self._fail(node, group))

    def _first_step(self, node: Node, group: Group) -> None:
        if group.ended:
            return
        start = group.start
        if group.done and self.rng.random() < 0.05:  # damaged: the one before is taken up
            group.done = float(start.older[0].step) if start.older else 0.0
            self.faults["corrupt"] += 1
        assert start.pace is not None
        self._say(node, FirstStep(job=start.job, epoch=start.epoch, step=int(group.done)))
        rate = start.pace.rate_per_s / group.slowness
        end_s = self.clock.time_s + (start.spec.iterations - group.done) / rate
        group.begin_s = self.clock.time_s
        self._at(end_s, lambda: self._leave(node, group, "finished"))
        self._after(5.0, lambda: self._report(node, group))
        self._after(30.0, lambda: self._save(node, group))

    def _done(self, group: Group) -> int:
        assert group.start.pace is not None
        worked_s = max(0.0, self.clock.time_s - group.begin_s)
        done = group.done + worked_s * group.start.pace.rate_per_s / group.slowness
        return min(math.floor(done + 1e-9), group.start.spec.iterations)

    def _report(self, node: Node, group: Group) -> None:
        if not group.ended:
            self._say(node, Progressed(job=group.start.job, epoch=group.start.epoch, step=self._done(group)))
            self._after(5.0, lambda: self._report(node, group))

    def _save(self, node: Node, group: Group, *, again: bool = True) -> None:
        if group.ended:
            return
        start, step = group.start, self._done(group)
        file = f"{start.epoch}-{step}"
        self._say(node, Checkpointed(job=start.job, epoch=start.epoch, step=step, file=file, sha256="-"))
        if again:
            self._after(30.0, lambda: self._save(node, group))

    def _leave(self, node: Node, group: Group, why: str) -> None:
        if group.ended:
            return
        if why == "drained":
            self._save(node, group, again=False)
        start = group.start
        left = Left(job=start.job, epoch=start.epoch, why=why, step=self._done(group))  # type: ignore[arg-type]
        group.reports.append(left)
        self._say(node, left)
        for each in self.nodes.values():
            other = each.groups.get(start.job)
            if other is not None and other.start.epoch == start.epoch:
                self._end(each, other)  # ranks leave together
        self._end(node, group)

    def _fail(self, node: Node, group: Group) -> None:
        if not group.ended:
            self.faults["failure"] += 1
            self._leave(node, group, "failed")

    def _end(self, node: Node, group: Group) -> None:
        """No process of a group is left."""
        if group.ended:
            return
        group.ended = True
        node.groups.pop(group.start.job, None)
        gone = Gone(job=group.start.job, epoch=group.start.epoch, node=node.name)
        group.reports.append(gone)
        self._say(node, gone)

    def _command(self, node: Node, command: Command) -> None:
        group = node.groups.get(command.job)
        if node.dead or node.cut or group is None or group.start.epoch != command.epoch:
            return
        if isinstance(command, Drain) and not group.drains:
            group.drains = True
            if self.rng.random() < 0.1:  # it ignores the request
                self._after(command.within_s, lambda: self._end(node, group))
            else:
                if node.name == next(iter(group.start.slots)):
                    self._after(self.rng.uniform(0, 2), lambda: self._leave(node, group, "drained"))
        elif isinstance(command, Kill):
            self._end(node, group)

    def _renewed(self, node: Node, beat: Heartbeat, term_s: float, groups: Mapping[str, int]) -> None:
        if node.dead or node.cut or str(node.boot) != beat.boot:
            return
        stamp_s = node.clock(self.clock.time_s) if self.counts_from_receipt else beat.stamp_s
        for job, epoch in groups.items():
            group = node.groups.get(job)
            if group is not None and group.start.epoch == epoch:
                group.lease_end = max(group.lease_end, stamp_s + term_s)
            elif (last := node.last.get(job)) is not None and last.start.epoch == epoch and last.ended:
                for report in last.reports:
                    self._say(node, report)
        for job in [job for job in beat.holds if job not in groups and job in node.groups]:
            if node.groups[job].start.epoch == beat.holds[job]:
                self._end(node, node.groups[job])

    def _beat(self, node: Node) -> None:
        now_s = self.clock.time_s
        for group in [*node.groups.values(), *node.left_behind]:
            if node.clock(now_s) >= group.lease_end:
                self.faults["expired"] += 1
                if group in node.left_behind:
                    group.ended = True
                    node.left_behind.remove(group)
                else:
                    self._end(node, group)
        if not node.dead:
            holds = {job: group.start.epoch for job, group in node.groups.items()}
            self._say(node, Heartbeat(node.name, str(node.boot), node.clock(now_s), holds))
        self._after(1.0, lambda: self._beat(node))

    # --------------------------------------------------------------------------------------------------- the faults

    def _plan_fault(self, node: Node) -> None:
        at_s = self.clock.time_s + self.rng.exponential(self.until_s / 3)
        if at_s < self.until_s:
            self._at(at_s, lambda: self._cut(node) if self.rng.random() < 0.6 else self._die(node))

    def _cut(self, node: Node) -> None:
        """Nobody can talk to a node for a while."""
        self.faults["cut"] += 1
        node.cut = True
        self._after(self.rng.uniform(0.5, 40), lambda: self._back(node))

    def _die(self, node: Node) -> None:
        """A node process dies; its ranks go on until their leases end, or its next life ends them."""
        self.faults["death"] += 1
        node.dead = True
        node.left_behind += node.groups.values()
        node.groups = {}
        self._after(self.rng.uniform(0.5, 60), lambda: self._back(node))

    def _back(self, node: Node) -> None:
        if node.dead:
            node.boot += 1
            for group in node.left_behind:
                group.ended = True
            node.left_behind, node.last, node.epochs, node.dead = [], {}, {}, False
        node.cut = False
        self._say(node, self._up(node))
        self._plan_fault(node)

    def _up(self, node: Node) -> NodeUp:
        holds = {
            job: (group.start.epoch, tuple(group.start.slots[node.name]))
            for job, group in node.groups.items()
        }
        stamp_s = node.clock(self.clock.time_s)
        return NodeUp(node=node.name, boot=str(node.boot), slots=node.slots, holds=holds, stamp_s=stamp_s)

    # ------------------------------------------------------------------------------------------------------ messages

    def _say(self, node: Node, what: Observation | Heartbeat) -> None:
        """A node sends something, in order; while nobody can talk it is lost."""
        if not node.dead and not node.cut:
            self._inbox.append(what)

    def _delay(self) -> float:
        return float(
            self.rng.choice([0.0, self.rng.uniform(0, 0.3), self.rng.uniform(0, 9)], p=[0.6, 0.37, 0.03])
        )

    def _after(self, wait_s: float, happen: Callable[[], None]) -> None:
        self._at(self.clock.time_s + wait_s, happen)

    def _at(self, at_s: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._numbers), happen))
