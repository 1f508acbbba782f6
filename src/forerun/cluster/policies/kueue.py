"""Kueue's order of admission, its preemption and its fair sharing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from forerun.cluster.inputs.arrays import I64
from forerun.cluster.inputs.limits import Limits, QueuesOfJobs, ShareStrategy, Tally
from forerun.cluster.policy import Allocation, Allocator, Scheduler, View


class Kueue(Allocator, tag="kueue", frozen=True, kw_only=True):
    """Workloads on the GPUs that they request, as the ClusterQueues of `machines` admit and preempt them.

    A queue looks at its workloads by priority, then by creation. In each cycle the first of every queue is tried on the
    queue's flavors in their order; those that fit are admitted, ones within the nominal quota before ones that borrow, then
    by priority and creation; under fair sharing the queue first whose share is least with its workload. Under
    `BestEffortFIFO` a workload that does not fit lets those behind it pass; under `StrictFIFO` it does not. One that does
    not fit stops others as the queue's `preemption` and `fairSharing` say. These wait again at their old places, keep their
    work, and pay `costs.restart_s`. Requested times play no part. Without ClusterQueues all jobs are in one queue
    (`BestEffortFIFO`).

    The rules are those of Kueue's documentation, version 0.20, pages "Cluster Queue" and "Preemption", and of its proposal
    1714. GPUs are the only resource, so a queue's share is what it borrows over its weight. A workload starts at the instant
    at which it stops others, and stops others once at an instant.
    """

    paper: ClassVar[str] = "Kueue, kueue.sigs.k8s.io"
    needs: ClassVar[tuple[str, ...]] = ("gpus",)
    guarantees: ClassVar[str] = "`StrictFIFO`: no job of a queue is passed; `BestEffortFIFO`: none"
    cost: ClassVar[str] = "O(waiting) an event; where queues preempt, O(waiting x running)"

    def build(self, rng: np.random.Generator) -> Scheduler:
        """A scheduler that decides by the view alone."""
        return KueueScheduler()


class KueueScheduler:
    """Admits waiting jobs in cycles over the heads of their queues."""

    def allocate(self, view: View) -> Allocation:
        """Let running jobs go on, stop those that others preempt, and admit what the queues admit now."""
        limits = view.limits
        if limits is None or limits.queues is None:
            return view.take(np.argsort(view.held == 0, kind="stable"))
        return _Round(view, limits, limits.queues).decided()


@dataclass(frozen=True, slots=True)
class _Option:
    """How a job may start: whether it then borrows, on which type of GPUs, and whom it stops."""

    borrows: bool
    gpu_type: int
    stopped: Sequence[int] = ()


class _Round:
    """One decision: who has GPUs so far. Jobs are positions of the view."""

    def __init__(self, view: View, limits: Limits, queues: QueuesOfJobs) -> None:
        self.view, self.queues, self.tally = view, queues, Tally(limits)
        self.types, self.owner = view.gpu_type.copy(), view.owner.copy()
        self.seats: dict[int, I64] = {}  # of those who start
        self.places: dict[int, I64] = {}  # of those who were moved in this decision
        self.free: list[int] = view.type_total.tolist()
        self.job, self.gpus = view.job.tolist(), view.gpus.tolist()
        self.submit_s, self.since_s = view.submit_s.tolist(), view.changed_s.tolist()
        self.queue = [queues.of[job] for job in self.job]
        self.priority = [queues.priority[job] for job in self.job]
        self.used = [[0] * len(self.free) for _ in queues.terms]
        self.running: set[int] = set()
        self.on: list[list[set[int]]] = [
            [set() for _ in self.free] for _ in queues.terms
        ]  # by queue and type
        self.preempted: set[int] = set()  # who stopped others in this decision
        self.news = 0  # how many have started
        self.failed: set[tuple[object, ...]] = set()  # what nobody could have since then
        for at in np.flatnonzero(view.held > 0).tolist():
            self._count(at, int(self.types[at]), 1)

    def decided(self) -> Allocation:
        """Admit in cycles until nobody else may start."""
        given = np.zeros(self.view.count, np.int64)
        while self._cycles():
            pass  # somebody was stopped: all who wait are looked at again
        for at in self.running:
            given[at] = self.gpus[at]
        seats = {at: seats for at, seats in self.seats.items() if at in self.running}
        return Allocation(given, self.types, seats=seats)

    def _cycles(self) -> bool:
        """Admit the heads of the queues, cycle after cycle. Returns whether somebody was stopped."""
        waiting: dict[int, list[int]] = {}
        for at in range(self.view.count):
            if at not in self.running:
                waiting.setdefault(self.queue[at], []).append(at)
        for line in waiting.values():
            line.sort(key=lambda at: (-self.priority[at], at), reverse=True)  # the first is the last
        while waiting:
            heads: dict[int, _Option] = {}
            for queue, line in list(waiting.items()):
                if (option := self._first_option(line[-1])) is not None:
                    heads[line[-1]] = option
                elif self.queues.terms[queue].strict or len(line) == 1:
                    del waiting[queue]
                else:
                    line.pop()
            stopped, news = False, self.news
            while heads:
                at = min(heads, key=lambda at: self._rank(at, heads[at]))
                option = heads.pop(at)
                if news != self.news:
                    option = self._option(at, stops=bool(option.stopped))
                if option is None:
                    continue
                stopped = stopped or bool(option.stopped)
                self._start(at, option)
                line = waiting[self.queue[at]]
                line.pop()
                if not line:
                    del waiting[self.queue[at]]
            if stopped:
                return True
        return False

    def _first_option(self, at: int) -> _Option | None:
        """As `_option`; who asks for what somebody before him in the queue could not have in the same state has none."""
        queue = self.queue[at]
        groups = [self.tally.groups_of[number][self.job[at]] for number in self.queues.nominal_gpus[queue]]
        asks = (queue, self.gpus[at], self.priority[at], at in self.preempted, *groups)
        if asks in self.failed:
            return None
        if (option := self._option(at)) is None:
            self.failed.add(asks)
        return option

    def _rank(self, at: int, option: _Option) -> tuple[float, float, int]:
        """The order of the heads in a cycle, least first."""
        first: float = option.borrows
        if self.queues.terms[self.queue[at]].strategies:
            first = self._share(self.queue[at], option.gpu_type, self.gpus[at])
        return first, -self.priority[at], at

    def _start(self, at: int, option: _Option) -> None:
        number, view = option.gpu_type, self.view
        self.news += 1
        self.failed.clear()
        for other in option.stopped:
            self._count(other, number, -1)
        if option.stopped:
            self.preempted.add(at)
        if len(self.owner):
            self.places[at] = self.seats[at] = view.seats_for(at, self.owner, self.gpus[at], number)
        self.types[at], self.since_s[at] = number, view.now_s
        self._count(at, number, 1)

    def _count(self, at: int, number: int, sign: int) -> None:
        """A job has its GPUs from now on (1), or has them no more (-1) and may get them back."""
        job, gpus = self.job[at], self.gpus[at]
        self.free[number] -= sign * gpus
        self.used[self.queue[at]][number] += sign * gpus
        if sign > 0:
            self.running.add(at)
            self.on[self.queue[at]][number].add(at)
            self.tally.add(job, number, gpus)
            if at in self.places:
                self.owner[self.places[at]] = job
        else:
            self.running.remove(at)
            self.on[self.queue[at]][number].remove(at)
            self.tally.remove(job, number, gpus)
            if len(self.owner):
                self.places[at] = np.flatnonzero(self.owner == job)
                self.owner[self.places[at]] = -1

    def _option(self, at: int, *, stops: bool = True) -> _Option | None:
        """How a job may start now; None: it may not. stops: whether it may stop others."""
        queue, best = self.queue[at], None
        terms, stops = self.queues.terms[queue], stops and at not in self.preempted
        for number, nominal in self.queues.nominal_gpus[queue].items():
            if self._fits(at, number):
                borrows = self.used[queue][number] + self.gpus[at] > nominal
                if best is None or best.stopped or (best.borrows and not borrows):
                    best = _Option(borrows, number)
                if not borrows or not terms.tries_next:
                    break
            elif stops and (best is None or terms.preempts_first):
                option = self._by_stopping(at, number)
                best = best or option
                if option is not None and terms.preempts_first:
                    break
        return best

    def _fits(self, at: int, number: int, *, borrows: bool = True) -> bool:
        """Whether a job has GPUs of a type, within all limits, on nodes. borrows: beyond the nominal quota if need be."""
        need, queue = self.gpus[at], self.queue[at]
        if self.free[number] < need or not self.tally.fits(self.job[at], number, need):
            return False
        if not borrows and self.used[queue][number] + need > self.queues.nominal_gpus[queue][number]:
            return False
        return not len(self.owner) or bool(len(self.view.seats_for(at, self.owner, need, number)))

    def _over(self, queue: int, number: int) -> int:
        """The GPUs of a type that a queue has beyond its nominal quota."""
        return self.used[queue][number] - self.queues.nominal_gpus[queue].get(number, 0)

    def _share(self, queue: int, number: int, more: int) -> float:
        """The share of a queue with so many GPUs more of a type: what it borrows, over its weight."""
        borrowed = sum(
            max(0, self._over(queue, other) + more * (other == number)) for other in range(len(self.free))
        )
        weight = self.queues.terms[queue].weight
        return borrowed / weight if weight else math.inf if borrowed else 0.0

    def _by_stopping(self, at: int, number: int) -> _Option | None:
        """How a job may start on GPUs of a type when others are stopped; None: not that way."""
        queue, terms = self.queue[at], self.queues.terms[self.queue[at]]
        nominal, rank = self.queues.nominal_gpus[queue][number], self.priority[at]
        reclaims = bool(terms.cohort) and terms.reclaims != "Never"
        borrows = terms.borrows_below is not None or (reclaims and bool(terms.strategies))
        if (terms.within == "Never" and not reclaims) or not (self.gpus[at] <= nominal or borrows):
            return None

        def in_order(some: Iterable[int]) -> list[int]:
            return sorted(some, key=lambda other: (self.priority[other], -self.since_s[other], -other))

        own = in_order(
            other
            for other in self.on[queue][number]
            if terms.within != "Never"
            if self.priority[other] < rank
            or (
                terms.within == "LowerOrNewerEqualPriority"
                and self.priority[other] == rank
                and self.submit_s[other] > self.submit_s[at]
            )
        )
        mine = self._share(queue, number, self.gpus[at])
        others = in_order(
            other
            for one, theirs in enumerate(self.queues.terms)
            if reclaims and one != queue and theirs.cohort == terms.cohort and self._over(one, number) > 0
            if own or not terms.strategies or mine <= self._share(one, number, 0)
            for other in self.on[one][number]
            if terms.reclaims == "Any" or self.priority[other] < rank
        )
        if self.free[number] + sum(self.gpus[other] for other in (*own, *others)) < self.gpus[at]:
            return None
        if not own and not others:
            return None
        if terms.strategies:
            stopped = self._by_share(at, number, own, others)
        else:
            stopped = []
            for candidates, may_borrow in self._plans(at, number, own, others):
                if stopped := self._greedy(at, number, candidates, borrows=may_borrow):
                    break
        if not stopped:
            return None
        freed = sum(self.gpus[other] for other in stopped if self.queue[other] == queue)
        return _Option(self._over(queue, number) - freed + self.gpus[at] > 0, number, stopped)

    def _plans(
        self, at: int, number: int, own: list[int], others: list[int]
    ) -> Iterable[tuple[list[int], bool]]:
        """Whom to try to stop without fair sharing, and whether the job may then borrow; in this order."""
        queue = self.queue[at]
        below = self.queues.terms[queue].borrows_below
        if others and below is not None:
            least = min(below, self.priority[at])
            yield [*(other for other in others if self.priority[other] < least), *own], True
        if others and self._over(queue, number) < 0:
            yield [*others, *own], False
        yield own, True

    def _greedy(self, at: int, number: int, candidates: Iterable[int], *, borrows: bool) -> list[int]:
        """The first candidates that have to be stopped so that a job fits, without those that need not; none: it never does.

        Of queues that do not borrow any more, nobody is stopped.
        """
        stopped: list[int] = []
        for other in candidates:
            if self.queue[other] != self.queue[at] and self._over(self.queue[other], number) <= 0:
                continue
            self._count(other, number, -1)
            stopped.append(other)
            if self._fits(at, number, borrows=borrows):
                return self._needed(at, number, stopped, borrows=borrows)
        return self._needed(at, number, stopped, borrows=borrows, enough=False)

    def _needed(
        self, at: int, number: int, stopped: list[int], *, borrows: bool = True, enough: bool = True
    ) -> list[int]:
        """Those of some stopped jobs that a job needs to fit; all have their GPUs back. enough: whether it fits at all."""
        needed: list[int] = []
        for turn, other in enumerate(reversed(stopped)):
            self._count(other, number, 1)
            if enough and (turn == 0 or not self._fits(at, number, borrows=borrows)):
                self._count(other, number, -1)
                needed.append(other)
        for other in needed:
            self._count(other, number, 1)
        return needed[::-1]

    def _by_share(self, at: int, number: int, own: list[int], others: list[int]) -> list[int]:
        """Whom to stop so that shares become equal: one of the queue with the greatest share after the other."""
        queue, stopped = self.queue[at], list[int]()
        for strategy in self.queues.terms[queue].strategies:
            left: dict[int, list[int]] = {}
            for other in (*others, *own):
                if other not in stopped:
                    left.setdefault(self.queue[other], []).append(other)
            while left:
                most = max(
                    left, key=lambda one: (self._share(one, number, self.gpus[at] * (one == queue)), one)
                )
                chosen = self._fair(at, number, strategy, most, left[most])
                if chosen is None:
                    del left[most]
                    continue
                left[most].remove(chosen)
                if not left[most]:
                    del left[most]
                self._count(chosen, number, -1)
                stopped.append(chosen)
                if self._fits(at, number):
                    return self._needed(at, number, stopped)
        return self._needed(at, number, stopped, enough=False)

    def _fair(
        self, at: int, number: int, strategy: ShareStrategy, queue: int, candidates: Sequence[int]
    ) -> int | None:
        """Which job of a queue may be stopped by its share; None: none."""
        if queue == self.queue[at]:
            return candidates[0]
        if self._over(queue, number) <= 0:
            return None
        mine = self._share(self.queue[at], number, self.gpus[at])
        if strategy == "LessThanInitialShare":
            return candidates[0] if mine < self._share(queue, number, 0) else None
        return next(
            (other for other in candidates if mine <= self._share(queue, number, -self.gpus[other])), None
        )
