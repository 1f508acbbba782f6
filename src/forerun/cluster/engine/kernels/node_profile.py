"""Free GPUs of each node over the time to come, as a scheduler believes: one step function a node, in linked steps.

A step lasts until the next one of its node, the last one for ever. The first of a node began at the present instant or
before it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.core.kernels.jit import kernel

#: after the last step, and after the last that is spare
NONE: Final = -1
#: places in `Profile.meta`: the first step that was given up, and how many were ever used
SPARE: Final = 0
USED: Final = 1


class Profile(NamedTuple):
    """The steps.

    Parameters
    ----------
    head : int64[nodes], the first step of each node.
    time, free, after : of each step: when it begins, how many GPUs are free in it, and the step after it.
    meta : counters, see above.
    """

    head: I64
    time: F64
    free: I64
    after: I64
    meta: I64


@kernel(allocates=False)
def start_over(p: Profile, size: I64) -> None:
    """Of each node so many GPUs are free for ever."""
    p.meta[SPARE], p.meta[USED] = NONE, len(size)
    for node in range(len(size)):
        p.head[node], p.time[node], p.free[node], p.after[node] = node, -np.inf, size[node], NONE


@kernel(allocates=False)
def forget(p: Profile, node: int, now: float) -> None:
    """Steps of a node that are over go."""
    at = p.head[node]
    while p.after[at] != NONE and p.time[p.after[at]] <= now:
        p.head[node] = p.after[at]
        p.after[at], p.meta[SPARE] = p.meta[SPARE], at
        at = p.head[node]


@kernel(allocates=False)
def _split(p: Profile, at: int, from_s: float) -> int:
    """Let a new step begin inside one; which it is."""
    new = p.meta[SPARE]
    if new == NONE:
        new = p.meta[USED]
        p.meta[USED] += 1
    else:
        p.meta[SPARE] = p.after[new]
    p.time[new], p.free[new], p.after[new] = from_s, p.free[at], p.after[at]
    p.after[at] = new
    return int(new)


@kernel(allocates=False)
def take(p: Profile, node: int, from_s: float, to_s: float, gpus: int) -> None:
    """Somebody has GPUs of a node from one instant to another; a negative number gives them back."""
    if not from_s < to_s:
        return
    before, at = NONE, p.head[node]
    while p.after[at] != NONE and p.time[p.after[at]] <= from_s:
        before, at = at, p.after[at]
    if p.time[at] < from_s:
        before, at = at, _split(p, at, from_s)
    while True:
        following = p.after[at]
        end = p.time[following] if following != NONE else np.inf
        if end > to_s:
            _split(p, at, to_s)
            end = to_s
        p.free[at] -= gpus
        # where nothing changes, one step goes on
        if before != NONE and p.free[before] == p.free[at]:
            p.after[before] = p.after[at]
            p.after[at], p.meta[SPARE] = p.meta[SPARE], at
            at = before
        if end >= to_s:
            break
        before, at = at, p.after[at]
    following = p.after[at]
    if following != NONE and p.free[following] == p.free[at]:
        p.after[at] = p.after[following]
        p.after[following], p.meta[SPARE] = p.meta[SPARE], following


@kernel(allocates=False)
def least(p: Profile, node: int, from_s: float, to_s: float) -> int:
    """The fewest GPUs of a node that are free at once between two instants, the second not included."""
    at = p.head[node]
    while p.after[at] != NONE and p.time[p.after[at]] <= from_s:
        at = p.after[at]
    fewest = p.free[at]
    while p.after[at] != NONE and p.time[p.after[at]] < to_s:
        at = p.after[at]
        fewest = min(fewest, p.free[at])
    return int(fewest)


@kernel(allocates=False)
def earliest(p: Profile, node: int, after_s: float, seconds: float, gpus: int) -> float:
    """The first instant from another on, from which so many GPUs of a node are free for so long; infinite: none."""
    at, start = p.head[node], after_s
    while p.after[at] != NONE and p.time[p.after[at]] <= after_s:
        at = p.after[at]
    while True:
        following = p.after[at]
        if p.free[at] < gpus:
            if following == NONE:
                return np.inf
            start = p.time[following]
        elif following == NONE or p.time[following] >= start + seconds:
            return start
        at = following


@kernel(allocates=False)
def next_rise(p: Profile, node: int, after_s: float) -> float:
    """The first instant after another at which more GPUs of a node are free than before; infinite: none."""
    at = p.head[node]
    while p.after[at] != NONE:
        following = p.after[at]
        if p.time[following] > after_s and p.free[following] > p.free[at]:
            return float(p.time[following])
        at = following
    return np.inf
