"""Free GPUs over the time to come, as a scheduler believes: a step function in two arrays.

Step i lasts from `time[i]` to the next, the last one for ever, and has `free[i]` GPUs; two steps in a row differ. The
steps in use are those from `meta[LOW]` up to `meta[HIGH]`. The first of them began at the present instant or before it.
Both ends of the arrays have space, so that a step is put in or taken out on whichever side fewer are moved.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.core.kernels.jit import kernel

#: places in `meta`: the first step in use, and one after the last
LOW: Final = 8
HIGH: Final = 9


@kernel(allocates=False)
def start_over(time: F64, free: I64, meta: I64, now: float, gpus: int) -> None:
    """All GPUs are free from now on."""
    meta[LOW], meta[HIGH] = 0, 1
    time[0], free[0] = now, gpus


@kernel(allocates=False)
def forget(time: F64, meta: I64, now: float) -> None:
    """The first step begins now; those that are over go."""
    low, high = meta[LOW], meta[HIGH]
    while low + 1 < high and time[low + 1] <= now:
        low += 1
    time[low] = now
    meta[LOW] = low


@kernel(allocates=False)
def step_at(time: F64, meta: I64, at_s: float) -> int:
    """The step that contains an instant, which is not before the first one."""
    low, high = meta[LOW], meta[HIGH]
    while high - low > 1:
        middle = (low + high) >> 1
        if time[middle] <= at_s:
            low = middle
        else:
            high = middle
    return int(low)


@kernel(allocates=False)
def _insert(time: F64, free: I64, meta: I64, at: int, from_s: float, gpus: int) -> int:
    """Put a step before the one at `at`; where it stands now."""
    low, high = meta[LOW], meta[HIGH]
    if low > 0 and (at - low < high - at or high == len(time)):
        for k in range(low, at):
            time[k - 1] = time[k]
            free[k - 1] = free[k]
        meta[LOW] = low - 1
        at -= 1
    else:
        for k in range(high, at, -1):
            time[k] = time[k - 1]
            free[k] = free[k - 1]
        meta[HIGH] = high + 1
    time[at] = from_s
    free[at] = gpus
    return at


@kernel(allocates=False)
def _remove(time: F64, free: I64, meta: I64, at: int) -> None:
    """Take a step out, which is not the first; the one before it lasts on."""
    low, high = meta[LOW], meta[HIGH]
    if at - low < high - 1 - at:
        for k in range(at, low, -1):
            time[k] = time[k - 1]
            free[k] = free[k - 1]
        meta[LOW] = low + 1
    else:
        for k in range(at, high - 1):
            time[k] = time[k + 1]
            free[k] = free[k + 1]
        meta[HIGH] = high - 1


@kernel(allocates=False)
def take(time: F64, free: I64, meta: I64, from_s: float, to_s: float, gpus: int) -> None:
    """Somebody has GPUs from one instant to another (which may be infinite); a negative number gives them back."""
    if not from_s < to_s:
        return
    first = step_at(time, meta, from_s)
    if time[first] < from_s:
        first = _insert(time, free, meta, first + 1, from_s, free[first])
    at, high = first, meta[HIGH]
    while at < high and time[at] < to_s:
        free[at] -= gpus
        at += 1
    low = meta[LOW]
    if at == high or time[at] > to_s:
        _insert(time, free, meta, at, to_s, free[at - 1] + gpus)
    elif free[at] == free[at - 1]:
        _remove(time, free, meta, at)
    first += meta[LOW] - low
    if first > meta[LOW] and free[first] == free[first - 1]:
        _remove(time, free, meta, first)


@kernel(allocates=False)
def earliest(
    time: F64, free: I64, meta: I64, begin_s: float, seconds: float, gpus: int, before_s: float
) -> float:
    """The first instant from `begin_s` on, and before `before_s`, from which so many GPUs are free for so long.

    Infinite if there is none. What begins at `before_s` belongs to whoever asks, so it only matters what is free until then.
    """
    high, at = meta[HIGH], step_at(time, meta, begin_s)
    start = begin_s
    while start < before_s:
        if free[at] < gpus:
            at += 1
            if at == high:
                return np.inf
            start = time[at]
        else:
            if at + 1 == high or time[at + 1] >= start + seconds or time[at + 1] >= before_s:
                return start
            at += 1
    return np.inf


@kernel(allocates=False)
def descents(time: F64, free: I64, meta: I64, down_s: F64, down_to: I64) -> int:
    """When fewer GPUs are free than ever since the first step, and how many then; how many such instants there are.

    A job can start at once if it needs no more GPUs than the first of them has, and ends before the first that has fewer.
    """
    low, high = meta[LOW], meta[HIGH]
    down_s[0], down_to[0], count = time[low], free[low], 1
    least = free[low]
    for at in range(low + 1, high):
        if free[at] < least:
            least = free[at]
            down_s[count], down_to[count] = time[at], least
            count += 1
    return count
