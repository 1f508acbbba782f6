"""Free GPUs over the time to come, for promises that move: a step function as a linked list.

Each step begins where somebody's GPUs begin or cease to be needed, and knows how many do so there. A job remembers the
steps at which its promise begins and ends, so that moving it by a little touches a few steps and searches for none.

A promise can move forward in two ways. If the step before it has enough free GPUs, it moves to where these begin.
Otherwise it needs a hole that ends before it and is at least as long as its request. `Linked.soonest` bounds when the first
hole of each length begins, for so many GPUs at least as one of a few counts (a level): it knows every hole, and for a while
also some that have been filled since. Most promises need a longer hole than there is, and no search; where there may be one,
a search goes from the promise back to that bound, and makes it true. The bound never falls with the level or the length.

Steps are numbered by unsigned integers, which index arrays faster than signed ones.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.kernels.arrays import F64, I64, U32
from forerun.core.kernels.jit import kernel

# places in `link`
HEAD: Final = 0  # the first step
SPARE: Final = 1  # the first of the steps that are no longer in use
UNUSED: Final = 2  # the first of those that never were
LINKS: Final = 3

# places in `meta`
GIVEN: Final = 0  # how often GPUs were given back since a pass began
FINE: Final = 1  # bits of a length that classes do not tell apart
SHORT: Final = 2  # the others, of the lengths of the first class
PLACES: Final = 3

#: before the first step and after the last: nothing is free there, and it begins never
NONE: Final = 0

#: the most levels, and the classes of lengths in each; one more that has no holes
MOST_LEVELS: Final = 32
CLASSES: Final = 256
WIDTH: Final = CLASSES + 1
#: a hole counts as longer than it is by so much of the time at which it ends, since sums of times are rounded
ROUNDED: Final = 2.0**-51


class Linked(NamedTuple):
    """Steps by number, in no order; times in seconds.

    Parameters
    ----------
    time, free : when each step begins, and its free GPUs.
    before, after : its neighbours.
    refs : who begins or ends there.
    begins, ends : by job, the steps at which its promise begins, and at which its GPUs become free.
    slot : by job, its level and its class of lengths, as one number.
    level : by GPUs, up to those of the last level, the last level of no more (-1: none).
    gpus : of each level.
    soonest : by level and class, the instant before which no hole of the class or a longer one begins.
    link, meta : the places above.
    """

    time: F64
    free: I64
    before: U32
    after: U32
    refs: U32
    begins: U32
    ends: U32
    slot: U32
    level: I64
    gpus: I64
    soonest: F64
    link: U32
    meta: I64


@kernel(allocates=False)
def start_over(p: Linked, now: float, gpus: int) -> None:
    """All GPUs are free from now on."""
    p.time[NONE], p.free[NONE], p.refs[NONE] = np.inf, -1, 1
    p.time[1], p.free[1], p.refs[1] = now, gpus, 0
    p.before[1] = p.after[1] = p.after[NONE] = NONE
    p.before[NONE] = 1
    p.link[HEAD], p.link[SPARE], p.link[UNUSED], p.meta[GIVEN] = 1, NONE, 2, 1
    for slot in range(len(p.soonest)):
        nobody = slot % WIDTH == CLASSES
        p.soonest[slot] = np.inf if nobody else -np.inf


@kernel(allocates=False, internal=True)
def forget(p: Linked, now: float) -> None:
    """The first step begins now; those that are over go."""
    at = p.link[HEAD]
    following = p.after[at]
    while p.time[following] <= now:
        p.after[at] = p.link[SPARE]
        p.link[SPARE] = at
        at = following
        following = p.after[at]
    p.before[at] = NONE
    p.time[at] = now
    p.link[HEAD] = at


@kernel(allocates=False, internal=True)
def _insert(p: Linked, at: int, from_s: float, gpus: int) -> int:
    """A new step after another; its number."""
    new = p.link[SPARE]
    if new == NONE:
        new = p.link[UNUSED]
        p.link[UNUSED] += 1
    else:
        p.link[SPARE] = p.after[new]
    following = p.after[at]
    p.time[new], p.free[new], p.refs[new] = from_s, gpus, 0
    p.before[new], p.after[new] = at, following
    p.after[at] = p.before[following] = new
    return int(new)


@kernel(allocates=False, internal=True)
def release(p: Linked, at: int) -> None:
    """Somebody no longer begins or ends at a step."""
    p.refs[at] -= 1
    if p.refs[at] == 0 and at != p.link[HEAD]:
        before, following = p.before[at], p.after[at]
        p.after[before] = following
        p.before[following] = before
        p.after[at] = p.link[SPARE]
        p.link[SPARE] = at


@kernel(allocates=False, internal=True)
def take(p: Linked, first: int, to_s: float, gpus: int) -> int:
    """Somebody has GPUs from the beginning of a step to an instant (which may be infinite); the step that begins then."""
    at = last = first
    while p.time[at] < to_s:
        p.free[at] -= gpus
        last, at = at, p.after[at]
    if p.time[at] > to_s:
        at = _insert(p, last, to_s, p.free[last] + gpus)
    p.refs[at] += 1
    return int(at)


@kernel(allocates=False, internal=True)
def step_from(p: Linked, from_s: float) -> int:
    """The step that begins at an instant, which is not before now; made if there is none. Somebody begins there."""
    at = p.link[HEAD]
    while p.time[p.after[at]] <= from_s:
        at = p.after[at]
    if p.time[at] < from_s:
        at = _insert(p, at, from_s, p.free[at])
    p.refs[at] += 1
    return int(at)


@kernel(allocates=False, internal=True)
def least_free(p: Linked, at: int, until_s: float) -> int:
    """The fewest GPUs that are free from the beginning of a step until an instant."""
    least = p.free[at]
    while p.time[at] < until_s:
        least = min(least, p.free[at])
        at = p.after[at]
    return int(least)


@kernel(allocates=False, internal=True)
def earliest(p: Linked, seconds: float, gpus: int, before_s: float) -> int:
    """The first step, of those that begin before `before_s`, from which so many GPUs are free for so long, or NONE.

    What begins at `before_s` belongs to whoever asks, so it only matters what is free until then.
    """
    at = first = p.link[HEAD]
    start = p.time[at]
    while start < before_s:
        following = p.after[at]
        if p.free[at] < gpus:
            first, start = following, p.time[following]
        elif p.time[following] >= start + seconds or p.time[following] >= before_s:
            return int(first)
        at = following
    return int(NONE)


@kernel(allocates=False, internal=True)
def give_back(p: Linked, first: int, stop: int, gpus: int) -> None:
    """GPUs are free again from a step to another (not included)."""
    most = least = p.free[first]
    at = first
    while at != stop:
        least, most = min(least, p.free[at]), max(most, p.free[at])
        p.free[at] += gpus
        at = p.after[at]
    p.meta[GIVEN] += 1
    level = _level_of(p, most + gpus)
    while level >= 0 and p.gpus[level] > least:  # where enough have been free, the hole is known
        need, until_s = p.gpus[level], p.time[stop]
        at = first
        while p.free[p.before[at]] >= need:
            at = p.before[at]
        while p.time[at] < until_s:
            begin_s, begins = p.time[at], p.free[at] >= need
            while p.free[at] >= need:
                at = p.after[at]
            if begins:
                _note(p, level, begin_s, p.time[at])
            else:
                at = p.after[at]
        level -= 1


@kernel(allocates=False, internal=True)
def _note(p: Linked, level: int, begin_s: float, end_s: float) -> None:
    """Remember a hole."""
    least = level * WIDTH
    slot = least + _class_of(p, begin_s, end_s)
    while slot >= least and p.soonest[slot] > begin_s:
        p.soonest[slot] = begin_s
        slot -= 1


@kernel(allocates=False, inline=True)
def _note_step(p: Linked, step: int, stop: int, least: int) -> None:
    """Remember the holes that begin with a step; it had `least` GPUs, and the one before it has no more."""
    level = _level_of(p, p.free[step])
    if level < 0 or p.gpus[level] <= least:
        return
    begin_s = p.time[step]
    if p.free[stop] <= least and p.soonest[level * WIDTH + _class_of(p, begin_s, p.time[stop])] <= begin_s:
        return  # and so those of fewer GPUs
    while level >= 0 and p.gpus[level] > least:
        while p.free[stop] >= p.gpus[level]:
            stop = p.after[stop]
        _note(p, level, begin_s, p.time[stop])
        level -= 1


@kernel(allocates=False, internal=True)
def _level_of(p: Linked, gpus: int) -> int:
    """The last level of no more GPUs, which may be fewer than none; -1: there is none."""
    return int(p.level[min(max(gpus, 0), len(p.level) - 1)])


@kernel(allocates=False, internal=True)
def _class_of(p: Linked, begin_s: float, end_s: float) -> int:
    """The class of the length of a hole: by the leading bits of the number."""
    long_s = np.float64(end_s - begin_s + abs(end_s) * ROUNDED)
    return int(min(max((long_s.view(np.int64) >> p.meta[FINE]) - p.meta[SHORT], 0), CLASSES - 1))


@kernel(allocates=False, internal=True)
def search(p: Linked, job: int, first: int, seconds: float, gpus: int) -> int:
    """The step where the first hole begins that ends before a promise and is long enough; `first`: there is none.

    It goes back from the promise as far as there may be such holes, and forgets those that there are not.

    Parameters
    ----------
    job : whose promise it is; it asks for so many `seconds` and `gpus`.
    """
    slot, start = int(p.slot[job]), p.begins[job]
    level = slot // WIDTH
    need, floor_s, start_s = p.gpus[level], p.soonest[slot], p.time[start]
    beyond = slot
    while p.soonest[beyond] < start_s:
        p.soonest[beyond] = start_s
        beyond += 1
    at = stop = start
    while p.free[stop] >= need:
        stop = p.after[stop]
    while True:
        at = p.before[at]
        if p.free[at] < need:
            while p.free[at] < need and at != NONE:
                at = p.before[at]
            stop = p.after[at]
        if at == NONE or p.time[at] < floor_s:
            break
        end_s = p.time[stop]
        own_end_s = min(end_s, start_s)
        while True:
            if p.free[at] < gpus:
                own_end_s = p.time[at]
            elif own_end_s >= p.time[at] + seconds:
                first = at
            if p.free[p.before[at]] < need:
                break
            at = p.before[at]
        other = level * WIDTH + _class_of(p, p.time[at], end_s)
        while other >= slot:
            p.soonest[other] = p.time[at]
            other -= 1
    for above in range(WIDTH, len(p.soonest) - level * WIDTH, WIDTH):  # more GPUs are not free sooner
        for other in range(slot, beyond):
            p.soonest[above + other] = max(p.soonest[above + other], p.soonest[other])
    return int(first)


@kernel(allocates=False, internal=True)
def promise(p: Linked, job: int, at: int, seconds: float, gpus: int) -> None:
    """A job is promised its GPUs from the beginning of a step on."""
    p.refs[at] += 1
    p.begins[job] = at
    p.ends[job] = take(p, at, p.time[at] + seconds, gpus)


@kernel(allocates=False, internal=True)
def lapse(p: Linked, job: int, gpus: int) -> None:
    """A job's promise is given up."""
    give_back(p, p.begins[job], p.ends[job], gpus)
    release(p, p.begins[job])
    release(p, p.ends[job])


@kernel(allocates=False, internal=True)
def move(p: Linked, job: int, at: int, seconds: float, gpus: int) -> None:
    """A job's promise moves forward to a step, far enough to leave all that it had."""
    start, end = p.begins[job], p.ends[job]
    promise(p, job, at, seconds, gpus)
    give_back(p, start, end, gpus)
    release(p, start)
    release(p, end)


@kernel(allocates=False, inline=True)
def slide(p: Linked, job: int, at: int, seconds: float, gpus: int) -> None:
    """A job's promise moves forward to a step, less than it is long; until it begins, all steps have enough free GPUs."""
    start, end, to_s = p.begins[job], p.ends[job], p.time[at] + seconds
    p.refs[at] += 1
    p.begins[job] = at
    while at != start:
        p.free[at] -= gpus
        at = p.after[at]
    last = p.before[end]
    if p.time[last] < to_s:
        if p.refs[end] == 1:  # nobody else begins or ends there
            p.time[end] = to_s
            _note_step(p, end, p.after[end], p.free[last])
        else:
            p.refs[end] -= 1
            p.ends[job] = first = _insert(p, last, to_s, p.free[last] + gpus)
            p.refs[first] = 1
            _note_step(p, first, end, p.free[last])
        p.meta[GIVEN] += 1
    else:
        while p.time[last] > to_s:
            last = p.before[last]
        if p.time[last] < to_s:
            last = _insert(p, last, to_s, p.free[last])
        p.refs[last] += 1
        p.ends[job] = last
        give_back(p, last, end, gpus)
        release(p, end)
    release(p, start)
