"""What the backfilling policies have in common: believed ends, a profile of free GPUs, and promised starts.

This is the form that decides through a view, with nodes, quotas, costs and GPU types. Where none of them matters the same
decisions are made by a compiled queue (`engine.backfill`).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import msgspec
import numpy as np

from forerun.domains.cluster.inputs.limits import Tally
from forerun.domains.cluster.inputs.setting import F64, I64
from forerun.domains.cluster.policies.orders.fcfs import Fcfs
from forerun.domains.cluster.policy import Allocation, Allocator, Order, Scheduler, View, orders
from forerun.scenario.spec import chosen_from

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

    @property
    def resolution_s(self) -> float:
        """The profile changes at multiples of so many seconds from now; 0: at any instant."""
        return 0.0

    @property
    def compiles(self) -> bool:
        """Whether the compiled queue decides as the scheduler does."""
        return True

    def build(self, rng: np.random.Generator) -> Scheduler:
        """A scheduler that remembers its promises, if the policy keeps them."""
        return BackfillScheduler(self)


class FreeProfile:
    """GPUs of one type that are believed to be free, from now on, as a step function of time.

    Parameters
    ----------
    now_s : from when.
    gpus : how many are free from then on, before anybody takes some.
    resolution_s : whoever has GPUs has them for whole multiples of so many seconds from now (default 0: as long as said).
    """

    def __init__(self, now_s: float, gpus: int, resolution_s: float = 0.0) -> None:
        self.times_s, self.free = [now_s], [gpus]
        self.now_s, self.resolution_s = now_s, resolution_s

    def take(self, from_s: float, to_s: float, gpus: int) -> None:
        """Somebody has GPUs from one instant to another; a negative number gives them back."""
        if not from_s < to_s:
            return
        if self.resolution_s:
            from_s, to_s = self._on_grid(from_s, math.floor), self._on_grid(to_s, math.ceil)
        first = self._cut(from_s)
        for at in range(first, self._cut(to_s)):
            self.free[at] -= gpus

    def _on_grid(self, at_s: float, rounded: Callable[[float], int]) -> float:
        """A multiple of the resolution from now."""
        if math.isinf(at_s):
            return at_s
        return self.now_s + self.resolution_s * rounded(round((at_s - self.now_s) / self.resolution_s, 9))

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


class FreeProfiles:
    """Several profiles that a job takes GPUs from at once: those of a GPU type, and what its groups may have.

    Parameters
    ----------
    parts : the profiles; methods as of `FreeProfile`.
    """

    def __init__(self, parts: list[FreeProfile]) -> None:
        self.parts = parts

    def take(self, from_s: float, to_s: float, gpus: int) -> None:
        """Somebody has GPUs from one instant to another; a negative number gives them back."""
        for part in self.parts:
            part.take(from_s, to_s, gpus)

    def fits(self, start_s: float, seconds: float, gpus: int) -> bool:
        """Whether so many GPUs are free for so long from an instant on."""
        return all(part.fits(start_s, seconds, gpus) for part in self.parts)

    def earliest(self, seconds: float, gpus: int) -> float:
        """The first instant from which so many GPUs are free for so long; infinite if there is none."""
        start_s = -math.inf
        while True:
            later_s = max(part.earliest(seconds, gpus, start_s) for part in self.parts)
            if later_s == start_s or later_s == math.inf:
                return later_s
            start_s = later_s


@dataclass(frozen=True, slots=True)
class Believed:
    """What is believed to be free from now on.

    Parameters
    ----------
    types : by GPU type.
    groups : what groups of jobs may have, by group, where backfilling plans by it.
    planned_of : the groups of each job, by GPU type and job; empty where there are none.
    """

    types: list[FreeProfile]
    groups: dict[int, FreeProfile]
    planned_of: tuple[tuple[tuple[int, ...], ...], ...]

    def of(self, job: int, gpu_type: int) -> FreeProfile | FreeProfiles:
        """What a job takes its GPUs from. gpu_type: of these GPUs."""
        if not self.groups or not (groups := self.planned_of[gpu_type][job]):
            return self.types[gpu_type]
        return FreeProfiles([self.types[gpu_type], *(self.groups[group] for group in groups)])


@dataclass(frozen=True, slots=True)
class Promise:
    """A start that a waiting job is promised: when, and on GPUs of which type."""

    start_s: float
    gpu_type: int


class BackfillScheduler:
    """Makes one pass over the waiting jobs at each decision.

    Parameters
    ----------
    policy : the order, and which jobs are promised a start.

    Attributes
    ----------
    promised : by job, the promises that are kept; empty where each pass makes its own.
    ranking : the order, with what it remembers of the run.
    in_order_only : whether the first job that does not start ends a pass (no).
    """

    def __init__(self, policy: BackfillPolicy) -> None:
        self.policy = policy
        self.promised: dict[int, Promise] = {}
        self.ranking = policy.order.build()
        self.in_order_only = False

    def allocate(self, view: View) -> Allocation:
        """Let running jobs go on, and start what fits for its whole request beside them and beside promises."""
        profiles = self._believed(view)
        waiting = self._in_order(view)
        jobs, gpus, requests = view.job.tolist(), view.gpus.tolist(), view.requested_s.tolist()
        given, types = view.held.copy(), view.gpu_type.copy()
        tally = _running(view)
        self._keep(view, waiting, tally, profiles)
        used = np.bincount(view.user, view.held, 0 if view.quota is None else len(view.quota) - 1)
        view.over_quota = np.zeros(view.count, np.int64)
        left, wake_s = self.policy.promises, math.inf
        examined = len(waiting) if self.in_order_only else self.policy.examined or len(waiting)
        stopped = False  # those behind are only asked for their quota and limits
        for place, at in enumerate(waiting):
            job, need, request_s = jobs[at], gpus[at], requests[at]
            if view.quota is not None and used[view.user[at]] + need > view.quota[view.user[at]]:
                view.over_quota[at] = 1
                continue
            types_for = view.types_for(at, need)
            if tally is not None:
                types_for = [number for number in types_for if tally.fits(job, number, need)]
                view.over_quota[at] = not types_for
            mine = self.promised.pop(job, None)
            if mine is not None:
                profiles.of(job, mine.gpu_type).take(mine.start_s, mine.start_s + request_s, -need)
            if place >= examined and not self.policy.keeps_promises:
                break
            if not types_for or stopped:
                continue
            if mine is not None and mine.gpu_type not in types_for:
                mine = None
            moves = place < examined or mine is None or mine.start_s == view.now_s
            if (
                not moves
                or (mine is None and not self.policy.keeps_promises and not left)
                or self.in_order_only
            ):
                best = _at_once(view.now_s, job, need, request_s, types_for, profiles)
            else:
                best = _soonest(job, need, request_s, types_for, profiles)
            if mine is not None and (best is None or mine.start_s <= best.start_s):
                best = mine
            if best is None:
                stopped = self.in_order_only
                continue
            if best.start_s == view.now_s:
                given[at], types[at] = need, best.gpu_type
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
            profiles.of(job, best.gpu_type).take(best.start_s, best.start_s + request_s, need)
        if profiles.groups:
            _note_limits(view, given, types)
        return Allocation(given, types, wake_s=wake_s)

    def _believed(self, view: View) -> Believed:
        """The GPUs of each type, and of each group that is planned by, that are free beside the running jobs."""
        groups: dict[int, FreeProfile] = {}
        planned_of = () if view.limits is None else view.limits.planned_of
        if view.limits is not None:
            for job in view.job.tolist() if view.limits.planned else ():
                for group in (group for of in planned_of for group in of[job] if group not in groups):
                    limit = int(view.limits.gpus[group])
                    groups[group] = FreeProfile(view.now_s, limit, self.policy.resolution_s)
        grid_s = self.policy.resolution_s
        profiles = [FreeProfile(view.now_s, int(size), grid_s) for size in view.type_total]
        ends_s = view.changed_s + view.requested_s
        ends_s = np.where(ends_s > view.now_s, ends_s, view.now_s + self.policy.grace_s)
        for window in view.windows:  # of a cluster with one type
            profiles[0].take(max(view.now_s, window.from_s), window.to_s, window.gpus)
            for group, gpus in window.of_groups:
                if group in groups:
                    groups[group].take(max(view.now_s, window.from_s), window.to_s, gpus)
        for at, (job, gpu_type, held) in _held(view):
            end_s = float(ends_s[at])
            profiles[gpu_type].take(view.now_s, end_s, held)
            for group in planned_of[gpu_type][job] if groups else ():
                groups[group].take(view.now_s, end_s, held)
        return Believed(profiles, groups, planned_of)

    def _in_order(self, view: View) -> list[int]:
        """Positions of the waiting jobs in the policy's order."""
        keys: F64 = self.ranking.keys(view)
        order = np.argsort(keys, kind="stable")
        positions: list[int] = order[view.held[order] == 0].tolist()
        return positions

    def _keep(self, view: View, waiting: list[int], tally: Tally | None, profiles: Believed) -> None:
        """Lay the promises down in order.

        Where late jobs or lost nodes have made one impossible, or the job could not be placed on nodes when its time came,
        it is made anew. Those of jobs that have gone, or that a limit keeps waiting, lapse.
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
            request_s, start_s = float(view.requested_s[at]), max(promise.start_s, view.now_s)
            if profiles.of(job, promise.gpu_type).fits(start_s, request_s, need):
                promise = Promise(start_s, promise.gpu_type)
            elif (promise := _soonest(job, need, request_s, view.types_for(at, need), profiles)) is None:
                continue
            profiles.of(job, promise.gpu_type).take(promise.start_s, promise.start_s + request_s, need)
            self.promised[job] = promise


def _at_once(
    now_s: float, job: int, need: int, request_s: float, types_for: list[int], profiles: Believed
) -> Promise | None:
    """A start now, on the first type that is free for the whole request; None if there is none."""
    for number in types_for:
        if profiles.of(job, number).fits(now_s, request_s, need):
            return Promise(now_s, number)
    return None


def _soonest(
    job: int, need: int, request_s: float, types_for: list[int], profiles: Believed
) -> Promise | None:
    """The first possible start, of equals on the first type; None if there is none."""
    best: Promise | None = None
    for number in types_for:
        start_s = profiles.of(job, number).earliest(request_s, need)
        if start_s < (math.inf if best is None else best.start_s):
            best = Promise(start_s, number)
    return best


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
