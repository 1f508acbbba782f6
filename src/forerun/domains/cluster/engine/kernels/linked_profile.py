"""Free GPUs over the time to come, for promises that move: a step function as a linked list.

Each step begins where somebody's GPUs begin or cease to be needed, and knows how many do so there. A job remembers the
steps at which its promise begins and ends, so that moving it by a little touches a few steps and searches for none.

A promise can move forward in two ways. If the step before it has enough free GPUs, it moves to where these begin.
Otherwise it needs a hole that ends before it and is at least as long as its request. `Linked.holes` knows where the first
holes of each length begin, for so many GPUs at least as one of a few counts (a level): it has every hole, and for a while
also some that have been filled since. Most promises need a longer hole than there is, and no search.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.domains.cluster.engine.kernels.arrays import F64, I64
from forerun.kernels.jit import kernel

# places in `meta`
HEAD: Final = 0  # the first step
SPARE: Final = 1  # the first of the steps not in use
VERSION: Final = 2  # goes up with every change
GIVEN: Final = 3  # how often GPUs were given back since a pass began
PLACES: Final = 4

# columns of `steps`
FREE: Final = 0  # its free GPUs
BEFORE: Final = 1
AFTER: Final = 2
REFS: Final = 3  # who begins or ends there

# columns of `jobs`
BEGINS: Final = 0  # the step at which its promise begins
ENDS: Final = 1  # the step at which its GPUs become free
LEVEL: Final = 2  # the last level of no more GPUs than its own

# columns of `levels`
GPUS: Final = 0
HOLES: Final = 1  # how many are remembered
EXACT: Final = 2  # the version of which they are exactly the holes

#: the most levels, and the most holes that are remembered of each
MOST_LEVELS: Final = 32
MOST_HOLES: Final = 16
#: no step, and no knowledge of holes
NONE: Final = -1


class Linked(NamedTuple):
    """Steps by number, in no order; times in seconds.

    Parameters
    ----------
    time : when each step begins.
    steps, jobs, levels : one row each, the columns above.
    holes : [levels, 2, MOST_HOLES], holes that are longer than all that begin before them: beginning, then length.
    meta : the places above.
    """

    time: F64
    steps: I64
    jobs: I64
    levels: I64
    holes: F64
    meta: I64


@kernel(allocates=False)
def start_over(time: F64, steps: I64, levels: I64, meta: I64, now: float, gpus: int) -> None:
    """All GPUs are free from now on."""
    count = len(time)
    for at in range(count):
        steps[at, AFTER] = at + 1 if at + 1 < count else NONE
    meta[HEAD], meta[SPARE], meta[GIVEN] = 0, 1, 1
    time[0] = now
    steps[0, FREE], steps[0, BEFORE], steps[0, AFTER], steps[0, REFS] = gpus, NONE, NONE, 0
    for level in range(len(levels)):
        levels[level, HOLES] = NONE


@kernel(allocates=False)
def forget(time: F64, steps: I64, meta: I64, now: float) -> None:
    """The first step begins now; those that are over go."""
    at = meta[HEAD]
    following = steps[at, AFTER]
    while following != NONE and time[following] <= now:
        steps[at, AFTER] = meta[SPARE]
        meta[SPARE] = at
        at = following
        following = steps[at, AFTER]
    steps[at, BEFORE] = NONE
    time[at] = now
    meta[HEAD] = at


@kernel(allocates=False)
def _insert(time: F64, steps: I64, meta: I64, at: int, from_s: float, gpus: int) -> int:
    """A new step after another; its number."""
    new, following = meta[SPARE], steps[at, AFTER]
    meta[SPARE] = steps[new, AFTER]
    time[new] = from_s
    steps[new, FREE], steps[new, BEFORE], steps[new, AFTER], steps[new, REFS] = gpus, at, following, 0
    steps[at, AFTER] = new
    if following != NONE:
        steps[following, BEFORE] = new
    return int(new)


@kernel(allocates=False)
def release(steps: I64, meta: I64, at: int) -> None:
    """Somebody no longer begins or ends at a step."""
    steps[at, REFS] -= 1
    if steps[at, REFS] == 0 and at != meta[HEAD]:
        before, following = steps[at, BEFORE], steps[at, AFTER]
        steps[before, AFTER] = following
        if following != NONE:
            steps[following, BEFORE] = before
        steps[at, AFTER] = meta[SPARE]
        meta[SPARE] = at


@kernel(allocates=False)
def take(time: F64, steps: I64, meta: I64, first: int, to_s: float, gpus: int) -> int:
    """Somebody has GPUs from the beginning of a step to an instant (which may be infinite); the step that begins then."""
    meta[VERSION] += 1
    at, last = first, first
    while at != NONE and time[at] < to_s:
        steps[at, FREE] -= gpus
        last, at = at, steps[at, AFTER]
    if at == NONE or time[at] > to_s:
        at = _insert(time, steps, meta, last, to_s, steps[last, FREE] + gpus)
    steps[at, REFS] += 1
    return int(at)


@kernel(allocates=False)
def step_from(time: F64, steps: I64, meta: I64, from_s: float) -> int:
    """The step that begins at an instant, which is not before now; made if there is none. Somebody begins there."""
    at = meta[HEAD]
    while steps[at, AFTER] != NONE and time[steps[at, AFTER]] <= from_s:
        at = steps[at, AFTER]
    if time[at] < from_s:
        at = _insert(time, steps, meta, at, from_s, steps[at, FREE])
    steps[at, REFS] += 1
    return int(at)


@kernel(allocates=False)
def least_free(time: F64, steps: I64, at: int, until_s: float) -> int:
    """The fewest GPUs that are free from the beginning of a step until an instant."""
    least = steps[at, FREE]
    while at != NONE and time[at] < until_s:
        least = min(least, steps[at, FREE])
        at = steps[at, AFTER]
    return int(least)


@kernel(allocates=False)
def earliest(time: F64, steps: I64, meta: I64, seconds: float, gpus: int, before_s: float) -> int:
    """The first step, of those that begin before `before_s`, from which so many GPUs are free for so long, or NONE.

    What begins at `before_s` belongs to whoever asks, so it only matters what is free until then.
    """
    at = first = meta[HEAD]
    start = time[at]
    while start < before_s:
        following = steps[at, AFTER]
        if steps[at, FREE] < gpus:
            if following == NONE:
                return NONE
            first, start = following, time[following]
        elif following == NONE or time[following] >= start + seconds or time[following] >= before_s:
            return int(first)
        at = following
    return NONE


@kernel(allocates=False)
def give_back(
    time: F64, steps: I64, levels: I64, holes: F64, meta: I64, first: int, stop: int, gpus: int
) -> None:
    """GPUs are free again from a step to another (not included)."""
    most, at = 0, first
    while at != stop:
        steps[at, FREE] += gpus
        most = max(most, steps[at, FREE])
        at = steps[at, AFTER]
    meta[VERSION] += 1
    meta[GIVEN] += 1
    top = len(levels) - 1
    while top >= 0 and levels[top, GPUS] > most:
        top -= 1
    left = right = first
    for level in range(top, -1, -1):  # a hole of fewer GPUs has those of more in it
        need = levels[level, GPUS]
        while steps[left, BEFORE] != NONE and steps[steps[left, BEFORE], FREE] >= need:
            left = steps[left, BEFORE]
        if steps[first, AFTER] != stop:
            if levels[level, HOLES] != NONE:
                _note_holes(time, steps, levels, holes, level, left, time[stop])
            continue
        while right != NONE and steps[right, FREE] >= need:
            right = steps[right, AFTER]
        if levels[level, HOLES] != NONE:
            begin_s = time[left]
            _note_hole(levels, holes, level, begin_s, np.inf if right == NONE else time[right] - begin_s)


@kernel(allocates=False)
def _note_holes(time: F64, steps: I64, levels: I64, holes: F64, level: int, at: int, until_s: float) -> None:
    """Remember the holes of a level from a step until an instant; where one is then, all of it."""
    need, inside, begin_s = levels[level, GPUS], False, 0.0
    while True:
        enough = at != NONE and steps[at, FREE] >= need
        if enough and not inside:
            begin_s = time[at]
        elif inside and not enough:
            long_s = np.inf if at == NONE else time[at] - begin_s
            _note_hole(levels, holes, level, begin_s, long_s)
        if at == NONE or (not enough and time[at] >= until_s):
            return
        inside = enough
        at = steps[at, AFTER]


@kernel(allocates=False)
def _note_hole(levels: I64, holes: F64, level: int, begin_s: float, long_s: float) -> None:
    """Remember a hole, if it is longer than those that begin before it."""
    count, at = levels[level, HOLES], 0
    while at < count and holes[level, 0, at] <= begin_s:
        if holes[level, 1, at] >= long_s:
            return
        at += 1
    if at > 0 and holes[level, 0, at - 1] == begin_s:
        at -= 1
    beyond = at  # those that begin later and are no longer go
    while beyond < count and holes[level, 1, beyond] <= long_s:
        beyond += 1
    if (
        beyond == at and count == MOST_HOLES
    ):  # one with the last before it: neither begins earlier or is longer
        at = max(at, 1)
        holes[level, 0, at - 1] = min(holes[level, 0, at - 1], begin_s)
        holes[level, 1, at - 1] = max(holes[level, 1, at - 1], long_s)
        return
    if beyond == at:
        for k in range(count, at, -1):
            holes[level, 0, k] = holes[level, 0, k - 1]
            holes[level, 1, k] = holes[level, 1, k - 1]
    else:
        for k in range(beyond, count):
            holes[level, 0, k - beyond + at + 1] = holes[level, 0, k]
            holes[level, 1, k - beyond + at + 1] = holes[level, 1, k]
    levels[level, HOLES] = count - (beyond - at) + 1
    holes[level, 0, at], holes[level, 1, at] = begin_s, long_s


@kernel(allocates=False)
def hole_before(levels: I64, holes: F64, level: int, seconds: float, before_s: float) -> bool:
    """Whether there may be a hole of a level that is that long and ends before an instant."""
    count = levels[level, HOLES]
    for k in range(count):
        if holes[level, 1, k] >= seconds:
            return bool(holes[level, 0, k] + seconds <= before_s)
    return bool(count == NONE)


@kernel(allocates=False)
def sooner(p: Linked, job: int, seconds: float, gpus: int, begin_s: float) -> int:
    """The step to which a promise of `begin_s` can move forward; its own: it stays."""
    time, steps, levels, holes, meta = p.time, p.steps, p.levels, p.holes, p.meta
    start, level = p.jobs[job, BEGINS], p.jobs[job, LEVEL]
    if hole_before(levels, holes, level, seconds, begin_s):
        if levels[level, HOLES] == NONE or levels[level, EXACT] != meta[VERSION]:
            levels[level, HOLES] = 0
            _note_holes(time, steps, levels, holes, level, meta[HEAD], np.inf)
            levels[level, EXACT] = meta[VERSION]
        if hole_before(levels, holes, level, seconds, begin_s):
            at = earliest(time, steps, meta, seconds, gpus, begin_s)
            return int(start) if at == NONE else at
    while steps[start, BEFORE] != NONE and steps[steps[start, BEFORE], FREE] >= gpus:
        start = steps[start, BEFORE]
    return int(start)


@kernel(allocates=False)
def promise(p: Linked, job: int, at: int, seconds: float, gpus: int) -> None:
    """A job is promised its GPUs from the beginning of a step on."""
    p.steps[at, REFS] += 1
    p.jobs[job, BEGINS] = at
    p.jobs[job, ENDS] = take(p.time, p.steps, p.meta, at, p.time[at] + seconds, gpus)


@kernel(allocates=False)
def move(p: Linked, job: int, at: int, seconds: float, gpus: int) -> None:
    """A job's promise moves forward to a step."""
    time, steps, meta = p.time, p.steps, p.meta
    start, end, to_s = p.jobs[job, BEGINS], p.jobs[job, ENDS], time[at] + seconds
    steps[at, REFS] += 1
    p.jobs[job, BEGINS] = at
    if to_s <= time[start]:
        p.jobs[job, ENDS] = take(time, steps, meta, at, to_s, gpus)
        first = start
    else:
        while at != start:
            steps[at, FREE] -= gpus
            at = steps[at, AFTER]
        first = steps[end, BEFORE]
        while time[first] > to_s:
            first = steps[first, BEFORE]
        if time[first] < to_s:
            first = _insert(time, steps, meta, first, to_s, steps[first, FREE])
        steps[first, REFS] += 1
        p.jobs[job, ENDS] = first
    give_back(time, steps, p.levels, p.holes, meta, first, end, gpus)
    release(steps, meta, start)
    release(steps, meta, end)
