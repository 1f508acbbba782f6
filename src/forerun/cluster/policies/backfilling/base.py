"""What the backfilling policies have in common: believed ends, a profile of free GPUs, and promised starts.

This is the form that decides through a view, with nodes, quotas, costs and GPU types. Where none of them matters the same
decisions are made by a compiled queue (`engine.backfill`).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Final

import msgspec
import numpy as np

from forerun.cluster.inputs.arrays import F64, I64
from forerun.cluster.inputs.limits import Tally
from forerun.cluster.policies.orders.fcfs import Fcfs
from forerun.cluster.policy import Allocation, Allocator, Order, Scheduler, View, orders
from forerun.core.scenario.spec import chosen_from

#: the built-in policies that plan by requested times, which are compared with each other
BACKFILLING: Final = ("easy", "conservative", "first-fit")


class BackfillPolicy(Allocator, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs on the GPUs that they request, never stopped; jobs out of order start where no promise is in their way.

    The scheduler knows requested times, not durations. It believes that a job runs for its requested time, and one that has
    outlived it, `grace_s` longer than now.

    order: in which waiting jobs are looked at (default: `fcfs`, as they came). grace_s: default 60.
    """

    needs: ClassVar[tuple[str, ...]] = ("gpus", "requested_s")
    keeps_promises: ClassVar[bool] = False

    order: Annotated[Order, chosen_from(orders)] = Fcfs()
    grace_s: Annotated[float, msgspec.Meta(gt=0)] = 60.0

    @property
    def promises(self) -> int:
        """How many of the first jobs that cannot start are promised a start at each decision."""
        return 0

    @property
    def examined(self) -> int:
        """How many of the first waiting jobs are looked at, or moved forward, at each decision; 0: all."""
        return 0

    @property
    def window_s(self) -> float:
        """How far away a start may be that a job is promised for one decision; 0: any."""
        return 0.0

    def build(self, rng: np.random.Generator) -> Scheduler:
        """A scheduler that remembers its promises, if the policy keeps them."""
        return BackfillScheduler(self)


class FreeProfile:
    """GPUs of one type that are believed to be free, from now on, as a step function of time.

    Parameters
    ----------
    now_s : from when.
    gpus : how many are free from then on, before anybody takes some.
    """

    def __init__(self, now_s: float, gpus: int) -> None:
        self.times_s, self.free = [now_s], [gpus]

    def take(self, from_s: float, to_s: float, gpus: int) -> None:
        """Somebody has GPUs from one instant to another; a negative number gives them back."""
        if not from_s < to_s:
            return
        first = self._cut(from_s)
        for at in range(first, self._cut(to_s)):
            self.free[at] -= gpus

    def _cut(self, at_s: float) -> int:
        """Let a step begin at an instant; which one it is."""
        at = bisect_left(self.times_s, at_s)
        if at == len(self.times_s) or self.times_s[at] != at_s:
            self.times_s.insert(at, at_s)
            self.free.insert(at, self.free[at - 1])
        return at

    def fits(self, start_s: float, seconds: float, gpus: int) -> bool:
        """Whether so many GPUs are free for so long from an instant on."""
        at = bisect_right(self.times_s, start_s) - 1
        end_s = start_s + seconds
        while at < len(self.times_s) and self.times_s[at] < end_s:
            if self.free[at] < gpus:
                return False
            at += 1
        return True

    def earliest(self, seconds: float, gpus: int, after_s: float = -math.inf) -> float:
        """The first instant, from `after_s` on, at which so many GPUs are free for so long; infinite if there is none."""
        start_s = math.inf  # where the steps with enough of them begin
        for at, (from_s, free) in enumerate(zip(self.times_s, self.free, strict=True)):
            if free < gpus:
                start_s = math.inf
                continue
            start_s = min(start_s, max(from_s, after_s))
            if at + 1 == len(self.times_s) or self.times_s[at + 1] >= start_s + seconds:
                return start_s
        return math.inf


@dataclass(frozen=True, slots=True)
class Promise:
    """A start that a waiting job is promised: when, on GPUs of which type, and how many on each node (where tracked)."""

    start_s: float
    gpu_type: int
    on: tuple[tuple[int, int], ...] = ()


class Seated:
    """How many GPUs of each node are believed to be taken, and when.

    GPUs of a node are alike, except for the buddy placement, for which each stands for itself, as `View.node_of` has it.

    Parameters
    ----------
    view : who is where now.
    ends_s : float64[count], when each running job is believed to end.

    Attributes
    ----------
    taken, from_s, to_s : float64[count, nodes] and float64[count], the GPUs of each job of the view, and when it has them.
    """

    def __init__(self, view: View, ends_s: F64) -> None:
        self.view, self.owner, self.node = view, view.owner.copy(), view.node_of
        self.place: I64 = np.arange(len(self.node)) - np.searchsorted(self.node, self.node)
        number: I64 = np.append(view.job, np.iinfo(np.int64).max)  # the last row: GPUs that no job can have
        self.taken: F64 = np.zeros((view.count + 1, int(self.node[-1]) + 1))
        used = self.owner >= 0
        np.add.at(self.taken, (np.searchsorted(number, self.owner[used]), self.node[used]), 1.0)
        self.from_s: F64 = np.full(view.count + 1, view.now_s)
        self.to_s: F64 = np.append(np.where(view.held > 0, ends_s, -math.inf), math.inf)

    def busy(self, start_s: float, seconds: float) -> F64:
        """The most GPUs of each node that are taken at once within so many seconds from an instant on."""
        then = np.flatnonzero((self.from_s < start_s + seconds) & (self.to_s > start_s))
        begins_s = np.unique(np.maximum(self.from_s[then], start_s))[:, None]
        there = (self.from_s[then] <= begins_s) & (self.to_s[then] > begins_s)
        most: F64 = (there.astype(np.float64) @ self.taken[then]).max(axis=0)
        return most

    def find(self, at: int, start_s: float, gpu_type: int) -> tuple[tuple[int, int], ...]:
        """Where the placement puts a job for its request from an instant on; nowhere: empty."""
        view, busy = self.view, self.busy(start_s, float(self.view.requested_s[at]))
        taken = np.where(self.place < busy[self.node], 0, -1)
        seats = view.seats_for(at, taken, int(view.gpus[at]), gpu_type)
        view.spread[at] |= start_s == view.now_s and not len(seats)
        nodes, counts = np.unique(self.node[seats], return_counts=True)
        return tuple(zip(nodes.tolist(), counts.tolist(), strict=True))

    def next_end_s(self, after_s: float) -> float:
        """When anybody's GPUs are next free again; infinite: never."""
        return float(np.min(self.to_s, where=self.to_s > after_s, initial=math.inf))

    def sit(self, at: int, promise: Promise) -> list[int]:
        """The GPUs on which a job starts now: the first free ones of each node."""
        seats: list[int] = []
        for node, count in promise.on:
            seats += np.flatnonzero((self.node == node) & (self.owner < 0))[:count].tolist()
        self.owner[seats] = self.view.job[at]
        return seats


@dataclass(frozen=True, slots=True)
class Believed:
    """What is believed to be free from now on. Jobs are positions of the view.

    Parameters
    ----------
    view : who runs and waits.
    types : by GPU type.
    groups : what groups of jobs may have, by group, where backfilling plans by it.
    planned_of : the groups of each job, by GPU type and job; empty where there are none.
    seated : the GPUs themselves; None: nodes do not matter.
    """

    view: View
    types: list[FreeProfile]
    groups: dict[int, FreeProfile]
    planned_of: tuple[tuple[tuple[int, ...], ...], ...]
    seated: Seated | None

    def _of(self, at: int, gpu_type: int) -> list[FreeProfile]:
        """What a job takes its GPUs from at once: those of a type, and what its groups may have."""
        groups = self.planned_of[gpu_type][int(self.view.job[at])] if self.groups else ()
        return [self.types[gpu_type], *(self.groups[group] for group in groups)]

    def _fits(self, at: int, gpu_type: int, start_s: float) -> bool:
        """Whether a job's GPUs are free by their number for its whole request."""
        request_s, need = float(self.view.requested_s[at]), int(self.view.gpus[at])
        return all(part.fits(start_s, request_s, need) for part in self._of(at, gpu_type))

    def _earliest_s(self, at: int, gpu_type: int, after_s: float = -math.inf) -> float:
        """The first instant from `after_s` on at which a job's GPUs are free so; infinite if there is none."""
        request_s, need, parts = (
            float(self.view.requested_s[at]),
            int(self.view.gpus[at]),
            self._of(at, gpu_type),
        )
        while True:
            later_s = max(part.earliest(request_s, need, after_s) for part in parts)
            if later_s in (after_s, math.inf) or len(parts) == 1:
                return later_s
            after_s = later_s

    def _count(self, at: int, promise: Promise, gpus: int) -> float:
        """Take a number of GPUs for a job's request, from its promised start on; when it is over."""
        end_s = promise.start_s + float(self.view.requested_s[at])
        for part in self._of(at, promise.gpu_type):
            part.take(promise.start_s, end_s, gpus)
        return end_s

    def take(self, at: int, promise: Promise) -> None:
        """A job has its GPUs for its whole request."""
        end_s = self._count(at, promise, int(self.view.gpus[at]))
        if self.seated is not None:
            for node, count in promise.on:
                self.seated.taken[at, node] = count
            self.seated.from_s[at], self.seated.to_s[at] = promise.start_s, end_s

    def give_back(self, at: int, promise: Promise) -> None:
        """A promise lapses."""
        self._count(at, promise, -int(self.view.gpus[at]))
        if self.seated is not None:
            self.seated.taken[at], self.seated.to_s[at] = 0.0, -math.inf

    def holds(self, at: int, promise: Promise) -> bool:
        """Whether what a job was promised is free."""
        if self.seated is None or not self._fits(at, promise.gpu_type, promise.start_s):
            return self._fits(at, promise.gpu_type, promise.start_s)
        busy = self.seated.busy(promise.start_s, float(self.view.requested_s[at]))
        free_on = np.bincount(self.seated.node) - busy
        return all(free_on[node] >= count for node, count in promise.on)

    def at_once(self, at: int, types_for: list[int]) -> Promise | None:
        """A start now, on the first type that is free for the whole request; None if there is none."""
        for number in types_for:
            if self._fits(at, number, self.view.now_s):
                if self.seated is None:
                    return Promise(self.view.now_s, number)
                if on := self.seated.find(at, self.view.now_s, number):
                    return Promise(self.view.now_s, number, on)
        return None

    def soonest(self, at: int, types_for: list[int]) -> Promise | None:
        """The first possible start of a job, of equals on the first type; None if there is none."""
        best: Promise | None = None
        for number in types_for:
            on: tuple[tuple[int, int], ...] = ()
            start_s = self._earliest_s(at, number)
            while self.seated is not None and start_s < math.inf:
                if on := self.seated.find(at, start_s, number):
                    break
                start_s = self._earliest_s(at, number, self.seated.next_end_s(start_s))
            if start_s < (math.inf if best is None else best.start_s):
                best = Promise(start_s, number, on)
        return best


class BackfillScheduler:
    """Makes one pass over the waiting jobs at each decision.

    Parameters
    ----------
    policy : the order, and which jobs are promised a start.

    Attributes
    ----------
    promised : by job, the promises that are kept; empty where each pass makes its own.
    ranking : the order, with what it remembers of the run.
    """

    def __init__(self, policy: BackfillPolicy) -> None:
        self.policy = policy
        self.promised: dict[int, Promise] = {}
        self.ranking = policy.order.build()

    def allocate(self, view: View) -> Allocation:
        """Let running jobs go on, and start what fits for its whole request beside them and beside promises."""
        profiles = self._believed(view)
        waiting = self._in_order(view)
        jobs, gpus = view.job.tolist(), view.gpus.tolist()
        given, types, seats = view.held.copy(), view.gpu_type.copy(), dict[int, list[int]]()
        tally = _running(view)
        self._keep(view, waiting, tally, profiles)
        used = np.bincount(view.user, view.held, 0 if view.quota is None else len(view.quota) - 1)
        view.over_quota = np.zeros(view.count, np.int64)
        left, wake_s = self.policy.promises, math.inf
        examined = self.policy.examined or len(waiting)
        for place, at in enumerate(waiting):
            job, need = jobs[at], gpus[at]
            if view.quota is not None and used[view.user[at]] + need > view.quota[view.user[at]]:
                view.over_quota[at] = 1
                continue
            types_for = view.types_for(at, need)
            if tally is not None:
                types_for = [number for number in types_for if tally.fits(job, number, need)]
                view.over_quota[at] = not types_for
            mine = self.promised.pop(job, None)
            if mine is not None:
                profiles.give_back(at, mine)
            if place >= examined and not self.policy.keeps_promises:
                break
            if not types_for:
                continue
            if mine is not None and mine.gpu_type not in types_for:
                mine = None
            moves = place < examined or mine is None or mine.start_s == view.now_s
            if not moves or (mine is None and not self.policy.keeps_promises and not left):
                best = profiles.at_once(at, types_for)
            else:
                best = profiles.soonest(at, types_for)
            if mine is not None and (best is None or mine.start_s <= best.start_s):
                best = mine
            if best is None:
                continue
            if best.start_s == view.now_s:
                given[at], types[at] = need, best.gpu_type
                if profiles.seated is not None:
                    seats[at] = profiles.seated.sit(at, best)
                used[view.user[at]] += need if view.quota is not None else 0
                if tally is not None:
                    tally.add(job, best.gpu_type, need)
            elif self.policy.keeps_promises:
                self.promised[job] = best
                wake_s = min(wake_s, best.start_s)
            else:
                left -= 1
                if best.start_s > view.now_s + (self.policy.window_s or math.inf):
                    continue
            profiles.take(at, best)
        if profiles.groups:
            _note_limits(view, given, types)
        free = view.type_total - np.bincount(types, given, len(view.type_total)).astype(np.int64)
        for reason in (view.over_quota, view.spread):
            reason[view.gpus > free.max()] = 0  # it waits for GPUs
        return Allocation(given, types, wake_s=wake_s, seats=seats)

    def _believed(self, view: View) -> Believed:
        """The GPUs of each type, and of each group that is planned by, that are free beside the running jobs."""
        groups: dict[int, FreeProfile] = {}
        planned_of = () if view.limits is None else view.limits.planned_of
        if view.limits is not None:
            for job in view.job.tolist() if view.limits.planned else ():
                for group in (group for of in planned_of for group in of[job] if group not in groups):
                    limit = int(view.limits.gpus[group])
                    groups[group] = FreeProfile(view.now_s, limit)
        profiles = [FreeProfile(view.now_s, int(size)) for size in view.type_total]
        ends_s = view.changed_s + view.requested_s
        ends_s = np.where(ends_s > view.now_s, ends_s, view.now_s + self.policy.grace_s)
        for window in view.windows:
            for profile, gpus in zip(profiles, window.of_types or (window.gpus,), strict=False):
                profile.take(max(view.now_s, window.from_s), window.to_s, gpus)
            for group, gpus in window.of_groups:
                if group in groups:
                    groups[group].take(max(view.now_s, window.from_s), window.to_s, gpus)
        for at, (job, gpu_type, held) in _held(view):
            end_s = float(ends_s[at])
            profiles[gpu_type].take(view.now_s, end_s, held)
            for group in planned_of[gpu_type][job] if groups else ():
                groups[group].take(view.now_s, end_s, held)
        seated = Seated(view, ends_s) if len(view.owner) else None
        return Believed(view, profiles, groups, planned_of, seated)

    def _in_order(self, view: View) -> list[int]:
        """Positions of the waiting jobs in the policy's order."""
        keys: F64 = self.ranking.keys(view)
        order = np.argsort(keys, kind="stable")
        positions: list[int] = order[view.held[order] == 0].tolist()
        return positions

    def _keep(self, view: View, waiting: list[int], tally: Tally | None, profiles: Believed) -> None:
        """Lay the promises down in order.

        Where late jobs or lost nodes have made one impossible, it is made anew. Those of jobs that have gone, or that a
        limit keeps waiting, lapse.
        """
        before, self.promised = self.promised, {}
        if not before:
            return
        for at in waiting:
            job, need = int(view.job[at]), int(view.gpus[at])
            promise = before.get(job)
            if promise is None:
                continue
            if tally is not None and not tally.fits(job, promise.gpu_type, need):
                continue
            promise = replace(promise, start_s=max(promise.start_s, view.now_s))
            if not profiles.holds(at, promise):
                promise = profiles.soonest(at, view.types_for(at, need))
            if promise is not None:
                profiles.take(at, promise)
                self.promised[job] = promise


def _running(view: View) -> Tally | None:
    """What groups of jobs have running, where they are limited and backfilling does not plan by it."""
    if view.limits is None:
        return None
    tally = Tally(view.limits, planned=False)
    for _, running in _held(view):
        tally.add(*running)
    return tally


def _held(view: View) -> list[tuple[int, tuple[int, int, int]]]:
    """The positions of the running jobs, each with its job, its GPU type and its GPUs."""
    at = np.flatnonzero(view.held > 0)
    columns = (view.job[at].tolist(), view.gpu_type[at].tolist(), view.held[at].tolist())
    return list(zip(at.tolist(), zip(*columns, strict=True), strict=True))


def _note_limits(view: View, given: I64, types: I64) -> None:
    """Note which jobs a limit keeps waiting that backfilling plans by. given, types: GPUs by position."""
    assert view.limits is not None
    tally = Tally(view.limits)
    for at in np.flatnonzero(given > 0).tolist():
        tally.add(int(view.job[at]), int(types[at]), int(given[at]))
    for at in np.flatnonzero(given == 0).tolist():
        job, need = int(view.job[at]), int(view.gpus[at])
        if not any(tally.fits(job, number, need) for number in view.types_for(at, need)):
            view.over_quota[at] = 1
