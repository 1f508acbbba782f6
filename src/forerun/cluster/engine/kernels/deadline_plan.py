"""Plans of jobs beside one another: when each ends on the GPUs that those before it leave.

A plan is float64[pieces, 4]: from when until when it has how many GPUs of which type.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.kernels.allocator import change_s
from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.core.kernels.jit import kernel

#: no bound on GPUs
ANY: Final = 1 << 40


class Shown(NamedTuple):
    """What plans rest on.

    Parameters
    ----------
    now : the instant.
    view_f, view_i : the columns of the view.
    rate : float64[types, kinds, GPUs + 1], iterations a second.
    levels : the counts at which any job with a profile can run.
    reach : int64[jobs, types], 1 for the GPU types that a job may have, by position.
    cost : seconds of changes, as of `AllocatorState`.
    """

    now: float
    view_f: F64
    view_i: I64
    rate: F64
    levels: I64
    reach: I64
    cost: F64


class Spans(NamedTuple):
    """GPUs left in spans of time, linked in order; span 0 stands before the first.

    Parameters
    ----------
    begins, until : of each span.
    after : the next span, -1: there is none.
    left : int64[spans, pools], GPUs left of each type, then of each user's quota (none: no quotas).
    meta : spans in use, and types.
    """

    begins: F64
    until: F64
    after: I64
    left: I64
    meta: I64


class Served(NamedTuple):
    """What a plan comes to: when the job ends (infinite: never), its GPU time, and the number of pieces."""

    end: float
    gpu_s: float
    pieces: int


@kernel
def all_free(now: float, free: I64, types: int, capacity: int) -> Spans:
    """GPUs that are free from now on, with space for so many spans. free: as a row of `Spans.left`."""
    begins, until, after = np.empty(capacity), np.empty(capacity), np.full(capacity, -1, np.int64)
    left = np.empty((capacity, len(free)), np.int64)
    begins[1], until[1] = now, np.inf
    for pool in range(len(free)):
        left[1, pool] = free[pool]
    after[0] = 1
    return Spans(begins, until, after, left, np.array([2, types]))


@kernel(allocates=False)
def _fastest(
    shown: Shown, at: int, spans: Spans, span: int, most: int, gpus: int, gpu_type: int
) -> tuple[int, int, float]:
    """The GPUs, up to a number, on which a job is fastest of those left in a span: how many, their type, its speed."""
    view_i, rate, left, types = shown.view_i, shown.rate, spans.left, spans.meta[1]
    kind, asked = view_i[3, at], view_i[1, at]
    if left.shape[1] > types:
        most = min(most, left[span, types + view_i[4, at]])
    best, of, speed = 0, -1, 0.0
    for number in range(types):
        here = min(most, left[span, number]) if shown.reach[at, number] == 1 else 0
        if kind < 0:
            if asked <= here and (best == 0 or number == gpu_type):
                best, of, speed = asked, number, 1.0
            continue
        for level in shown.levels:
            if level > here:
                break
            fast = rate[number, kind, level] / rate[0, kind, asked]
            same = fast == speed and fast > 0
            if fast > speed or (same and (level < best or (level == gpus and number == gpu_type))):
                best, of, speed = level, number, fast
    return best, of, speed


@kernel(allocates=False)
def serve(
    shown: Shown, spans: Spans, at: int, most: int, pinned: int, pinned_type: int, by_s: float, pieces: F64
) -> Served:
    """Plan a job on what is left, from now to its end: at any time on the GPUs, up to a number, on which it is fastest.

    Parameters
    ----------
    at : its position of the view.
    most : so many GPUs.
    pinned, pinned_type : GPUs that it has in the first span, whatever the rest; 0: none are fixed.
    by_s : a later end is none.
    pieces : written: the plan, which is no longer than there are spans.
    """
    view_f, view_i = shown.view_f, shown.view_i
    work, ready = max(0.0, view_f[4, at]), shown.now + view_f[8, at]
    held, of = view_i[2, at], view_i[6, at]
    if held == 0 and view_i[8, at] == 0:
        held = -1
    used, gpu_s, reached = 0, 0.0, shown.now
    span = spans.after[0]
    while span >= 0 and spans.begins[span] < by_s:
        begin, until = spans.begins[span], spans.until[span]
        gpus, number, speed = _fastest(shown, at, spans, span, most, held, of)
        if pinned > 0 and begin <= shown.now:
            left, pool = spans.left, spans.meta[1] + view_i[4, at]
            if left[span, pinned_type] < pinned or (pool < left.shape[1] and left[span, pool] < pinned):
                break
            gpus, number, speed = pinned, pinned_type, 1.0
            if view_i[3, at] >= 0:
                kind = view_i[3, at]
                speed = shown.rate[number, kind, gpus] / shown.rate[0, kind, view_i[1, at]]
        if gpus == 0 or begin > reached:
            held = min(held, 0)
        if gpus > 0:
            if gpus != held or number != of:
                ready = begin + change_s(shown.cost, view_i[7, at], held, gpus)
            if used == 0 or gpus != held or number != of:
                pieces[used, 0], pieces[used, 2], pieces[used, 3] = begin, gpus, number
                used += 1
            held, of, reached = gpus, number, until
            since = max(begin, ready)
            end = since + work / speed
            pieces[used - 1, 1] = min(end, until)
            gpu_s += gpus * (min(end, until) - begin)
            if end <= until:
                return Served(end if end <= by_s else np.inf, gpu_s, used)
            work -= max(0.0, until - since) * speed
        span = spans.after[span]
    return Served(np.inf, gpu_s, used)


@kernel(allocates=False)
def in_time(shown: Shown, spans: Spans, at: int, pinned: int, pinned_type: int, pieces: F64) -> Served:
    """The plan with the least most GPUs that ends by the job's deadline; its end is infinite if none does.

    Gu et al., ElasticFlow, ASPLOS'23, algorithm 1: the minimum satisfactory share, by progressive filling.
    """
    served, due_s = Served(np.inf, 0.0, 0), shown.view_f[1, at]
    if shown.view_i[3, at] < 0:
        return serve(shown, spans, at, int(ANY), pinned, pinned_type, due_s, pieces)
    for level in shown.levels:
        served = serve(shown, spans, at, level, pinned, pinned_type, due_s, pieces)
        if served.end < np.inf:
            break
    return served


@kernel(allocates=False)
def _split(spans: Spans, span: int, at_s: float) -> None:
    """Cut a span in two at an instant within it."""
    new = spans.meta[0]
    spans.begins[new], spans.until[new], spans.after[new] = at_s, spans.until[span], spans.after[span]
    for pool in range(spans.left.shape[1]):
        spans.left[new, pool] = spans.left[span, pool]
    spans.until[span], spans.after[span] = at_s, new
    spans.meta[0] = new + 1


@kernel(allocates=False)
def book(spans: Spans, pieces: F64, count: int, user: int, sign: int, drops: bool) -> None:
    """Take the GPUs of a plan from what is left; each piece needs space for two spans more.

    Parameters
    ----------
    pieces, count : the plan, and its pieces in use.
    user : whose job it is.
    sign : 1; -1 gives them back.
    drops : spans in which nothing is left are taken out, and not visited again.
    """
    types, before = spans.meta[1], 0
    for i in range(count):
        from_s, until_s, gpus, number = pieces[i, 0], pieces[i, 1], int(pieces[i, 2]), int(pieces[i, 3])
        while spans.after[before] >= 0:
            span = spans.after[before]
            if spans.begins[span] >= until_s:
                break
            if spans.until[span] > from_s > spans.begins[span]:
                _split(spans, span, from_s)
            if spans.until[span] > from_s:
                if spans.until[span] > until_s:
                    _split(spans, span, until_s)
                spans.left[span, number] -= sign * gpus
                if spans.left.shape[1] > types:
                    spans.left[span, types + user] -= sign * gpus
                idle = 0
                for pool in range(types):
                    idle += spans.left[span, pool]
                if drops and idle == 0:
                    spans.after[before] = spans.after[span]
                    continue
            before = span


@kernel
def grown(spans: Spans, more: int) -> Spans:
    """A copy with space for so many spans more, in which neighbours are one where the same is left."""
    capacity = spans.meta[0] + more
    made = all_free(0.0, spans.left[0], spans.meta[1], capacity)
    last, span = 0, spans.after[0]
    while span >= 0:
        same = last > 0
        for pool in range(spans.left.shape[1]):
            same = same and made.left[last, pool] == spans.left[span, pool]
        if not same:
            made.after[last] = last + 1
            last += 1
            made.begins[last] = spans.begins[span]
            for pool in range(spans.left.shape[1]):
                made.left[last, pool] = spans.left[span, pool]
        made.until[last] = spans.until[span]
        span = spans.after[span]
    made.after[last] = -1
    made.meta[0] = last + 1
    return made


@kernel
def plan_ends(shown: Shown, order: I64, free: I64, types: int, ends: F64) -> None:
    """Plan jobs to their ends, in an order: each has at any time the GPUs on which it is fastest of those left by others.

    Parameters
    ----------
    order : positions of the view, the first to serve first; others have no GPUs.
    free, types : GPUs of each type, then of each user's quota (none: no quotas); and the number of types.
    ends : written, by position: when the job ends; infinite: never.
    """
    capacity = len(order) + 3  # plans change where spans begin, and each ends in one
    spans, pieces = all_free(shown.now, free, types, capacity), np.empty((capacity, 4))
    for at in order:
        served = serve(shown, spans, at, int(ANY), 0, 0, np.inf, pieces)
        ends[at] = served.end
        book(spans, pieces, served.pieces, shown.view_i[4, at], 1, True)


@kernel
def plan_shares(shown: Shown, order: I64, free: I64, types: int, first: I64) -> tuple[Spans, F64]:
    """Plan jobs in an order, each with the least share that has it in time, until one would be late.

    Parameters
    ----------
    order, free, types : as of `plan_ends`.
    first : int64[jobs + 1], written: where each plan begins, and one after the last; -1 from a job on that would be late.

    Returns
    -------
    What is left, and the plans one after another.
    """
    capacity = len(order) + 3
    spans, pieces = all_free(shown.now, free, types, capacity), np.empty((capacity, 4))
    plans = np.empty((capacity, 4))
    first[0] = 0
    for i in range(len(order)):
        served = in_time(shown, spans, order[i], 0, 0, pieces)
        first[i + 1] = first[i] + served.pieces
        if served.end == np.inf:
            first[i + 1] = -1
            break
        if first[i + 1] > len(plans):
            more = np.empty((2 * first[i + 1], 4))
            for k in range(first[i] * 4):
                more[k // 4, k % 4] = plans[k // 4, k % 4]
            plans = more
        for k in range(served.pieces * 4):
            plans[first[i] + k // 4, k % 4] = pieces[k // 4, k % 4]
        book(spans, pieces, served.pieces, shown.view_i[4, order[i]], 1, False)
    return spans, plans


@kernel
def plan_beside(
    shown: Shown, spans: Spans, at: int, own: F64, pinned: int, pinned_type: int, promised: bool, pieces: F64
) -> Served:
    """Plan a job anew beside the plans of all others.

    Parameters
    ----------
    spans : what is left.
    own : its present plan, whose GPUs it has again.
    pinned, pinned_type : as of `serve`.
    promised : it must be in time; else it has no more than the pinned GPUs (none are pinned: any number).
    pieces : written: the plan, with up to as many pieces as `spans` has, and two for each of `own`.
    """
    free = grown(spans, 2 * len(own))
    book(free, own, len(own), shown.view_i[4, at], -1, False)
    free = grown(free, 0)
    if promised:
        return in_time(shown, free, at, pinned, pinned_type, pieces)
    return serve(shown, free, at, pinned if pinned > 0 else int(ANY), pinned, pinned_type, np.inf, pieces)


@kernel
def plan_along(shown: Shown, at: int, own: F64, pools: int, types: int, by_s: float, pieces: F64) -> Served:
    """Carry a job's plan on from now: what is past is cut off, and what the job has already done.

    Parameters
    ----------
    own : the plan.
    pools, types : as of `Spans`.
    by_s : a later end is none.
    pieces : written: the plan, with up to two pieces more than it had.
    """
    lane = all_free(shown.now, np.zeros(pools, np.int64), types, 2 * len(own) + 2)
    book(lane, own, len(own), shown.view_i[4, at], -1, False)
    return serve(shown, lane, at, int(ANY), 0, 0, by_s, pieces)
