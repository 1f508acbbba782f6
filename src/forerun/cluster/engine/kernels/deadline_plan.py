"""When jobs end that are served in a fixed order, each as fast as those before it allow."""

from __future__ import annotations

import numpy as np

from forerun.cluster.engine.kernels.allocator import change_s
from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.core.kernels.jit import kernel


@kernel(allocates=False)
def _fastest(
    at: int, left: I64, span: int, view_i: I64, rate: F64, levels: I64, types: int, gpus: int, gpu_type: int
) -> tuple[int, int, float]:
    """The GPUs on which a job is fastest of those left in a span: how many, their type, its speed; 0 if it can have none."""
    kind, asked = view_i[3, at], view_i[1, at]
    quota = left[span, types + view_i[4, at]] if left.shape[1] > types else -1
    best, of, speed = 0, -1, 0.0
    for number in range(types):
        most = left[span, number] if quota < 0 else min(left[span, number], quota)
        if kind < 0:
            if asked <= most and (best == 0 or number == gpu_type):
                best, of, speed = asked, number, 1.0
            continue
        for level in levels:
            if level > most:
                break
            fast = rate[number, kind, level] / rate[0, kind, asked]
            same = fast == speed and fast > 0
            if fast > speed or (same and (level < best or (level == gpus and number == gpu_type))):
                best, of, speed = level, number, fast
    return best, of, speed


@kernel
def plan_ends(
    now: float,
    order: I64,
    view_f: F64,
    view_i: I64,
    rate: F64,
    levels: I64,
    free: I64,
    types: int,
    cost: F64,
    ends: F64,
) -> None:
    """Plan jobs to their ends, in an order: each has at any time the GPUs on which it is fastest of those left by others.

    Parameters
    ----------
    now : the instant.
    order : positions of the view, the first to serve first; others have no GPUs.
    view_f, view_i : the columns of the view.
    rate : float64[types, kinds, GPUs + 1], iterations a second.
    levels : the counts at which any job with a profile can run.
    free : GPUs of each type, then of each user's quota (none: no quotas).
    types : GPU types.
    cost : seconds of changes, as of `AllocatorState`.
    ends : written, by position: when the job ends; infinite: never.
    """
    # Spans of time with GPUs left, linked in order; one without any is taken out and is not visited again.
    room = len(order) + 2
    begins, until, after = np.empty(room), np.empty(room), np.full(room, -1, np.int64)
    left = np.empty((room, len(free)), np.int64)
    begins[1], until[1], left[1], spans = now, np.inf, free, 2
    after[0] = 1
    for at in order:
        work, ready = max(0.0, view_f[4, at]), now + view_f[8, at]
        gpus, of = view_i[2, at], view_i[6, at]
        if gpus == 0 and view_i[8, at] == 0:
            gpus = -1
        ends[at] = np.inf
        before, reached = 0, now
        while after[before] >= 0 and ends[at] == np.inf:
            span = after[before]
            count, number, speed = _fastest(at, left, span, view_i, rate, levels, types, gpus, of)
            if count == 0 or begins[span] > reached:
                gpus = min(gpus, 0)
            if count == 0:
                before = span
                continue
            if count != gpus or number != of:
                ready = begins[span] + change_s(cost, view_i[7, at], gpus, count)
            gpus, of, reached = count, number, until[span]
            since = max(begins[span], ready)
            end = since + work / speed
            if begins[span] < end < until[span]:
                begins[spans], until[spans], left[spans], after[spans] = (
                    end,
                    until[span],
                    left[span],
                    after[span],
                )
                until[span], after[span] = end, spans
                spans += 1
            left[span, number] -= count
            if len(free) > types:
                left[span, types + view_i[4, at]] -= count
            if end <= until[span]:
                ends[at] = end
            work -= max(0.0, until[span] - since) * speed
            idle = 0
            for k in range(types):
                idle += left[span, k]
            if idle > 0:
                before = span
            else:
                after[before] = after[span]
