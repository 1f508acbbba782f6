"""ElasticFlow's planner: as few GPUs as possible, as late as possible, on a profile of free GPUs.

A profile is an int64[2, n] array, of which the caller knows how many columns are in use: ascending instants, and the GPUs
free from each on; the last value applies for ever. A plan is such an array too: instants, and the job's GPUs from each on.
Consecutive entries differ ("tidy"), except where noted. Levels are indices into the legal GPU counts; -1 stands for none.
Source: Gu et al., ElasticFlow, ASPLOS'23, algorithms 1 and 2, with the published simulator's rounding to slots.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.core.kernels.jit import kernel


class Task(NamedTuple):
    """What is to be planned of a job.

    Parameters
    ----------
    left : iterations to do.
    deadline_s : when they should be done.
    rate : float64[levels], iterations a second at each level; 0 where the job cannot run.
    top : how many of the levels the job may use, from the lowest.
    """

    left: float
    deadline_s: int
    rate: F64
    top: int


class Ladder(NamedTuple):
    """The legal GPU counts of a cluster.

    Parameters
    ----------
    levels : int64[levels], the counts, ascending.
    floor_level : int64[GPUs + 1], the largest level within each number of GPUs; -1 where there is none.
    """

    levels: I64
    floor_level: I64


class Grid(NamedTuple):
    """The moment of planning and the slots to which ends are rounded up.

    Parameters
    ----------
    now_s : the moment.
    slot_s : length of a slot.
    anchor_s : an instant that the slots begin at; below 0: the moment of planning, as published.
    """

    now_s: int
    slot_s: int
    anchor_s: int


class Planned(NamedTuple):
    """What a plan comes to.

    Parameters
    ----------
    end_s : when the job gives its GPUs back, on the slot grid.
    real_s : when its work is done, before rounding.
    in_time : whether that is by the deadline.
    gpu_s : GPU time.
    entries : entries of the plan.
    keys : entries of the profile that it leaves.
    """

    end_s: int
    real_s: int
    in_time: bool
    gpu_s: int
    entries: int
    keys: int


class Search(NamedTuple):
    """How far the search for a plan is, once the profile has been laid out for it.

    Parameters
    ----------
    left : iterations to do from `start` on.
    aligned : the deadline's slot.
    limit : the last key of the profile before that slot.
    start : the first key whose GPUs are still to be chosen.
    keys : keys of the profile, the deadline's slot among them.
    """

    left: float
    aligned: int
    limit: int
    start: int
    keys: int


class Tried(NamedTuple):
    """A plan in time; or `is_found` false and the state of the search, from which a late plan continues."""

    plan: Planned
    is_found: bool
    search: Search


@kernel
def whole_up(value: float) -> int:
    """The least whole number not below `value`."""
    return int(np.ceil(value))


@kernel
def grid_up(anchor_s: int, time_s: int, slot_s: int) -> int:
    """The first instant of the grid `anchor_s + k * slot_s` that is not before `time_s`."""
    return anchor_s - ((anchor_s - time_s) // slot_s) * slot_s


@kernel
def key_before(times: I64, count: int, time_s: int) -> int:
    """Index of the last of `count` ascending instants before `time_s`, -1 if there is none."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if times[middle] < time_s:
            low = middle + 1
        else:
            high = middle
    return low - 1


@kernel
def put(steps: I64, count: int, time_s: int, value: int) -> int:
    """Set the entry at an instant of a profile or plan, inserting it in order; the new number of entries."""
    times, values = steps[0], steps[1]
    place = key_before(times, count, time_s) + 1
    if place < count and times[place] == time_s:
        values[place] = value
        return count
    for i in range(count, place, -1):
        times[i] = times[i - 1]
        values[i] = values[i - 1]
    times[place] = time_s
    values[place] = value
    return count + 1


@kernel
def next_level(rate: F64, level: int, top: int) -> int:
    """The next level above one that a job can run on, -1 for the first; `top` if there is none."""
    level += 1
    while level < top and rate[level] <= 0.0:
        level += 1
    return level


@kernel
def level_within(floor_level: I64, free: int) -> int:
    """The largest level within a number of free GPUs; -1 for none."""
    return int(floor_level[free]) if free > 0 else -1


@kernel
def tidy(steps: I64, count: int) -> int:
    """Drop entries of a profile or plan that repeat the value before them, in place; the new number of entries."""
    times, values = steps[0], steps[1]
    last = 0
    for i in range(1, count):
        if values[i] != values[last]:
            last += 1
            times[last] = times[i]
            values[last] = values[i]
    return last + 1


@kernel
def gpu_time(times: I64, gpus: I64, count: int, end_s: int) -> int:
    """GPU-seconds of a plan: each entry up to the next, the last up to the plan's end.

    As published: an entry of no GPUs after the end lets the segment before it count beyond the end.
    """
    total = 0
    for i in range(count):
        until = times[i + 1] if i + 1 < count else end_s
        total += gpus[i] * (until - times[i])
    return total


@kernel
def plan(
    task: Task, ladder: Ladder, grid: Grid, free: I64, free_n: int, assign: int, out: I64, new: I64
) -> Planned:
    """Plan one job on a profile of free GPUs: in time if that can be, else as early as its largest share allows.

    Parameters
    ----------
    task : the job.
    ladder : the legal GPU counts.
    grid : the moment, and the slots.
    free, free_n : the profile, and its entries in use.
    assign : a level that the job has from now to the first change of the profile (a boost trial); -1: none.
    out, new : written: the job's plan, and the profile that remains. Both have two columns more than the profile.
    """
    tried = plan_in_time(task, ladder, grid, free, free_n, assign, out, new)
    if tried.is_found:
        return tried.plan
    return _late(task, ladder, grid, free, free_n, tried.search, assign, out, new)


@kernel
def plan_in_time(
    task: Task, ladder: Ladder, grid: Grid, free: I64, free_n: int, assign: int, out: I64, new: I64
) -> Tried:
    """Plan one job so that it meets its deadline, if that can be; parameters as of `plan`."""
    left, deadline_s, rate, top = task
    levels, floor_level = ladder
    now_s, slot_s, _ = grid
    free_t, new_t, new_g, out_g = free[0], new[0], new[1], out[1]
    total = len(floor_level) - 1
    anchor = now_s if grid.anchor_s < 0 else grid.anchor_s
    aligned = grid_up(anchor, deadline_s, slot_s)

    # the keys that matter: those of the profile, and the deadline's slot
    count = free_n
    for i in range(free_n):
        new_t[i] = free_t[i]
        new_g[i] = free[1, i]
    if aligned >= now_s:
        before = key_before(new_t, count, aligned)
        if before + 1 >= count or new_t[before + 1] != aligned:
            count = put(new, count, aligned, new_g[before])
    limit = key_before(new_t, count, aligned)
    for i in range(count):
        out[0, i] = new_t[i]
        out_g[i] = 0
    start = 0

    if assign >= 0:
        held = levels[assign]
        change = free_t[1] if free_n > 1 else aligned
        out_g[0] = held
        real = whole_up(now_s + left / rate[assign])
        end = grid_up(anchor, real, slot_s)
        if change >= end and deadline_s >= real:
            # the profile has no key inside, so only its present value changes
            before_g = new_g[0]
            new_g[0] -= held
            place = key_before(free_t, free_n, end) + 1
            if place >= free_n or free_t[place] != end:
                count = put(new, count, end, before_g)
            alone = Planned(end, real, True, held * (end - now_s), 1, tidy(new, count))
            return Tried(alone, True, Search(left, aligned, limit, start, count))
        span = deadline_s - now_s if change == aligned else change - now_s
        left -= span * rate[assign]
        new_g[0] -= held
        start = min(key_before(new_t, count, change) + 1, count - 1)
        for i in range(limit + 1, start):
            out_g[i] = held  # the deadline's slot lies inside the segment and is no entry of the plan

    # the smallest share that meets the deadline, and the instant from which the job has it
    switch = -1
    chosen = -1
    longest_s = (deadline_s - new_t[start] + slot_s) * (1.0 + 1e-9)
    best = 0.0
    for level in range(top):
        if levels[level] > total:
            break
        if rate[level] <= 0.0:
            continue  # below the least that the job can run on
        best = max(best, rate[level])
        if best * longest_s < left:
            continue  # not even if it were free throughout
        done = 0.0
        following = aligned
        for i in range(limit, start - 1, -1):
            at = level
            if new_g[i] < levels[level]:
                at = level_within(floor_level, new_g[i])
            if at >= 0:
                until = deadline_s if following == aligned else following
                done += (until - new_t[i]) * rate[at]
                if done >= left:
                    switch = i
                    break
            following = new_t[i]
        if switch >= 0:
            chosen = level
            break
    search = Search(left, aligned, limit, start, count)
    if switch < 0:
        return Tried(Planned(-1, -1, False, 0, 0, 0), False, search)
    planned = _fill(task, ladder, grid, free, free_n, search, switch, chosen, out, new)
    return Tried(planned, True, search)


@kernel
def _fill(
    task: Task,
    ladder: Ladder,
    grid: Grid,
    free: I64,
    free_n: int,
    search: Search,
    switch: int,
    chosen: int,
    out: I64,
    new: I64,
) -> Planned:
    """Give the job level `chosen` from key `switch` on, one level less before it, until the work is done."""
    rate, slot_s = task.rate, grid.slot_s
    levels, floor_level = ladder
    left, aligned, limit, start, count = search
    free_t, new_t, new_g = free[0], new[0], new[1]
    final = limit + 1 if limit + 1 < count and new_t[limit + 1] == aligned else limit
    begin_s = new_t[start]
    i = start
    while True:
        at = chosen if i >= switch else chosen - 1
        if at >= 0 and new_g[i] < levels[at]:
            at = level_within(floor_level, new_g[i])
        if at >= 0 and rate[at] <= 0.0:
            at = -1
        held = levels[at] if at >= 0 else 0
        out[1, i] = held
        new_g[i] -= held
        if i >= final:
            break
        if at >= 0:
            until = task.deadline_s if new_t[i + 1] == aligned else new_t[i + 1]
            work = (until - new_t[i]) * rate[at]
            if i >= switch and work >= left:
                break
            left -= work
        i += 1
    needed = whole_up(left / rate[at]) if at >= 0 else 0
    real = new_t[i] + needed
    end = grid_up(new_t[i] if grid.anchor_s < 0 else grid.anchor_s, real, slot_s)
    # keys up to the deadline's slot have an entry each; the slot itself only if the walk reached it
    entries = limit + 1 if i <= limit else i + 1
    place = key_before(free_t, free_n, end)
    if place + 1 >= free_n or free_t[place + 1] != end:
        in_force = free[1, place] if place >= 0 and free_t[place] >= begin_s else len(floor_level) - 1
        count = put(new, count, end, in_force)
    return _finished(task, out, entries, new, count, end, real)


@kernel
def _finished(task: Task, out: I64, entries: int, new: I64, count: int, end_s: int, real_s: int) -> Planned:
    """What a plan comes to whose steps and remaining profile are written."""
    entries = tidy(out, entries)
    spent = gpu_time(out[0], out[1], entries, end_s)
    return Planned(end_s, real_s, real_s <= task.deadline_s, spent, entries, tidy(new, count))


@kernel
def _late(
    task: Task,
    ladder: Ladder,
    grid: Grid,
    free: I64,
    free_n: int,
    search: Search,
    assign: int,
    out: I64,
    new: I64,
) -> Planned:
    """The deadline cannot be met: take the largest share until then, and whatever is free afterwards."""
    rate, slot_s = task.rate, grid.slot_s
    levels, floor_level = ladder
    left, aligned, limit, start, count = search
    new_t, new_g, out_g = new[0], new[1], out[1]
    total = len(floor_level) - 1
    anchor = grid.now_s if grid.anchor_s < 0 else grid.anchor_s
    usable = 0
    while usable < task.top and levels[usable] <= total:
        usable += 1
    for i in range(start, limit + 1):
        at = min(usable - 1, level_within(floor_level, new_g[i]))
        if at >= 0 and rate[at] > 0.0:
            out_g[i] = levels[at]
            new_g[i] -= levels[at]
            until = task.deadline_s if new_t[i + 1] == aligned else new_t[i + 1]
            left -= (until - new_t[i]) * rate[at]
    i = max(start, limit + 1)
    following = limit + 1
    if following < count and new_t[following] == aligned:
        following += 1
    # a trial for a job whose deadline has passed looks first at keys before its own: the walk then starts from those
    for k in range(following, count):
        at = min(usable - 1, level_within(floor_level, new_g[i]))
        if at >= 0 and rate[at] <= 0.0:
            at = -1
        held = levels[at] if at >= 0 else 0
        out_g[i] = held
        if at < 0:
            i = k
            continue
        work = (new_t[k] - new_t[i]) * rate[at]
        if work >= left:
            real = whole_up(new_t[i] + left / rate[at])
            end = grid_up(anchor, real, slot_s)
            count = _take_segment(free, free_n, aligned, total, new, count, i, held, end)
            return _finished(task, out, max(i, start) + 1, new, count, end, real)
        left -= work
        for x in range(i, k):
            new_g[x] -= held
        i = k
    at = usable - 1 if usable > 0 else assign
    held = levels[at]
    out_g[i] = held
    real = whole_up(new_t[i] + left / rate[at])
    end = grid_up(anchor, real, slot_s)
    new_g[i] = total - held
    entries = max(i, start) + 1
    count = put(new, count, end, total)
    return _finished(task, out, entries, new, count, end, real)


@kernel
def _take_segment(
    free: I64, free_n: int, aligned: int, total: int, new: I64, count: int, i: int, held: int, end_s: int
) -> int:
    """Take `held` GPUs from key i to the end of a late job out of the profile; the new number of its entries."""
    free_t, new_t, new_g = free[0], new[0], new[1]
    place = key_before(free_t, free_n, end_s)
    if place >= 0 and free_t[place] >= aligned:
        last = free[1, place]
    else:
        before = key_before(free_t, free_n, aligned)
        last = free[1, before] if before >= 0 else total
    begin_s = new_t[i]
    for x in range(count):
        if begin_s <= new_t[x] < end_s:
            new_g[x] -= held
    if begin_s != end_s:
        new_g[i] = last - held
    if place + 1 >= free_n or free_t[place + 1] != end_s:
        count = put(new, count, end_s, last)
    return count
