"""ElasticFlow's planner: as few GPUs as possible, as late as possible, on a profile of free GPUs.

A profile is two arrays, ascending instants and the GPUs free from each on; the last value holds for ever. A plan is
two arrays too: instants and the job's GPUs from each on. Consecutive entries differ ("tidy"), except where noted.
Levels are indices into the legal GPU counts; -1 stands for none. Source: Gu et al., ElasticFlow, ASPLOS'23, algorithms
1 and 2, with the published simulator's rounding to slots.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from forerun.domains.cluster.engine.kernels.arrays import F64, I64
from forerun.kernels.jit import kernel


class Planned(NamedTuple):
    """What a plan comes to: `end_s` on the slot grid, `real_s` before rounding, whether it meets the deadline."""

    end_s: int
    real_s: int
    in_time: bool
    gpu_s: int
    entries: int
    keys: int


class Tried(NamedTuple):
    """A plan in time; or `found` false and the state of the search, from which `late` continues."""

    plan: Planned
    found: bool
    left: float
    aligned: int
    limit: int
    start: int
    keys: int


@kernel
def whole_up(value: float) -> int:
    """The least whole number not below `value`."""
    return int(np.ceil(value))


@kernel
def grid_up(anchor_s: int, time_s: int, slot_s: int) -> int:
    """The first instant of the grid through `anchor_s` that is not before `time_s`."""
    return anchor_s - ((anchor_s - time_s) // slot_s) * slot_s


@kernel
def key_before(times: I64, count: int, time_s: int) -> int:
    """Index of the last entry before `time_s`, -1 if there is none."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if times[middle] < time_s:
            low = middle + 1
        else:
            high = middle
    return low - 1


@kernel
def put(times: I64, values: I64, count: int, time_s: int, value: int) -> int:
    """Set the entry at `time_s`, inserting it in order; the new number of entries."""
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
def tidy(times: I64, values: I64, count: int) -> int:
    """Drop entries that repeat the value before them, in place; the new number of entries."""
    kept = 1
    for i in range(1, count):
        if values[i] != values[kept - 1]:
            times[kept] = times[i]
            values[kept] = values[i]
            kept += 1
    return kept


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
def plan_in_time(
    left: float,
    deadline_s: int,
    rate: F64,
    top: int,
    levels: I64,
    floor_level: I64,
    now_s: int,
    slot_s: int,
    anchor_s: int,
    free_t: I64,
    free_g: I64,
    free_n: int,
    assign: int,
    out_t: I64,
    out_g: I64,
    new_t: I64,
    new_g: I64,
) -> Tried:
    """Plan one job so that it meets its deadline, if that can be; arguments as of `plan`."""
    total = len(floor_level) - 1
    anchor = now_s if anchor_s < 0 else anchor_s
    aligned = grid_up(anchor, deadline_s, slot_s)

    # the keys that matter: those of the profile, and the deadline's slot
    count = free_n
    for i in range(free_n):
        new_t[i] = free_t[i]
        new_g[i] = free_g[i]
    if aligned >= now_s:
        before = key_before(new_t, count, aligned)
        if before + 1 >= count or new_t[before + 1] != aligned:
            count = put(new_t, new_g, count, aligned, new_g[before])
    limit = key_before(new_t, count, aligned)  # the last key before the deadline's slot
    for i in range(count):
        out_t[i] = new_t[i]
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
            free = new_g[0]
            new_g[0] -= held
            place = key_before(free_t, free_n, end) + 1
            if place >= free_n or free_t[place] != end:
                count = put(new_t, new_g, count, end, free)
            alone = Planned(end, real, True, held * (end - now_s), 1, tidy(new_t, new_g, count))
            return Tried(alone, True, left, aligned, limit, start, count)
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
            free = new_g[i]
            at = level
            if free < levels[level]:
                at = floor_level[free] if free > 0 else -1
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
    if switch < 0:
        none = Planned(-1, -1, False, 0, 0, 0)
        return Tried(none, False, left, aligned, limit, start, count)
    filled = _fill(
        left,
        deadline_s,
        rate,
        levels,
        floor_level,
        slot_s,
        anchor_s,
        free_t,
        free_g,
        free_n,
        aligned,
        limit,
        start,
        switch,
        chosen,
        count,
        out_t,
        out_g,
        new_t,
        new_g,
    )
    return Tried(filled, True, left, aligned, limit, start, count)


@kernel
def plan(
    left: float,
    deadline_s: int,
    rate: F64,
    top: int,
    levels: I64,
    floor_level: I64,
    now_s: int,
    slot_s: int,
    anchor_s: int,
    free_t: I64,
    free_g: I64,
    free_n: int,
    assign: int,
    out_t: I64,
    out_g: I64,
    new_t: I64,
    new_g: I64,
) -> Planned:
    """Plan one job on a profile of free GPUs.

    `rate`: float64[levels], iterations/s; `top`: how many of the levels the job may use; `floor_level[x]`: the largest
    level within x GPUs; `anchor_s`: what the slot grid hangs on, below 0 for the moment of planning; `assign`: a level
    that the job holds from now to the first change of the profile (a boost trial), or -1. The job's plan goes to
    `out_t, out_g`, the profile that remains to `new_t, new_g`; both must be two entries longer than the profile.
    """
    tried = plan_in_time(
        left,
        deadline_s,
        rate,
        top,
        levels,
        floor_level,
        now_s,
        slot_s,
        anchor_s,
        free_t,
        free_g,
        free_n,
        assign,
        out_t,
        out_g,
        new_t,
        new_g,
    )
    if tried.found:
        return tried.plan
    anchor = now_s if anchor_s < 0 else anchor_s
    return _late(
        tried.left,
        deadline_s,
        rate,
        top,
        levels,
        floor_level,
        now_s,
        slot_s,
        anchor,
        free_t,
        free_g,
        free_n,
        tried.aligned,
        tried.limit,
        tried.start,
        assign,
        tried.keys,
        out_t,
        out_g,
        new_t,
        new_g,
    )


@kernel
def _fill(
    left: float,
    deadline_s: int,
    rate: F64,
    levels: I64,
    floor_level: I64,
    slot_s: int,
    anchor_s: int,
    free_t: I64,
    free_g: I64,
    free_n: int,
    aligned: int,
    limit: int,
    start: int,
    switch: int,
    chosen: int,
    count: int,
    out_t: I64,
    out_g: I64,
    new_t: I64,
    new_g: I64,
) -> Planned:
    """Hold `chosen` from key `switch` on, one level less before it, until the work is done."""
    final = limit + 1 if limit + 1 < count and new_t[limit + 1] == aligned else limit
    begin_s = new_t[start]
    i = start
    while True:
        want = chosen if i >= switch else chosen - 1
        free = new_g[i]
        at = want
        if want >= 0 and free < levels[want]:
            at = floor_level[free] if free > 0 else -1
        if at >= 0 and rate[at] <= 0.0:
            at = -1
        held = levels[at] if at >= 0 else 0
        out_g[i] = held
        new_g[i] -= held
        if i >= final:
            break
        if at >= 0:
            until = deadline_s if new_t[i + 1] == aligned else new_t[i + 1]
            work = (until - new_t[i]) * rate[at]
            if i >= switch and work >= left:
                break
            left -= work
        i += 1
    needed = whole_up(left / rate[at]) if at >= 0 else 0
    real = new_t[i] + needed
    end = grid_up(new_t[i], real, slot_s) if anchor_s < 0 else grid_up(anchor_s, real, slot_s)
    # keys up to the deadline's slot have an entry each; the slot itself only if the walk reached it
    entries = limit + 1 if i <= limit else i + 1
    place = key_before(free_t, free_n, end)
    if place + 1 >= free_n or free_t[place + 1] != end:
        in_force = free_g[place] if place >= 0 and free_t[place] >= begin_s else len(floor_level) - 1
        count = put(new_t, new_g, count, end, in_force)
    entries = tidy(out_t, out_g, entries)
    spent = gpu_time(out_t, out_g, entries, end)
    return Planned(end, real, real <= deadline_s, spent, entries, tidy(new_t, new_g, count))


@kernel
def _late(
    left: float,
    deadline_s: int,
    rate: F64,
    top: int,
    levels: I64,
    floor_level: I64,
    now_s: int,
    slot_s: int,
    anchor: int,
    free_t: I64,
    free_g: I64,
    free_n: int,
    aligned: int,
    limit: int,
    start: int,
    assign: int,
    count: int,
    out_t: I64,
    out_g: I64,
    new_t: I64,
    new_g: I64,
) -> Planned:
    """The deadline cannot be met: take the largest share until then, and whatever is free afterwards."""
    total = len(floor_level) - 1
    usable = 0
    while usable < top and levels[usable] <= total:
        usable += 1
    for i in range(start, limit + 1):
        at = min(usable - 1, floor_level[new_g[i]] if new_g[i] > 0 else -1)
        if at >= 0 and rate[at] > 0.0:
            out_g[i] = levels[at]
            new_g[i] -= levels[at]
            until = deadline_s if new_t[i + 1] == aligned else new_t[i + 1]
            left -= (until - new_t[i]) * rate[at]
    i = max(start, limit + 1)
    following = limit + 1
    if following < count and new_t[following] == aligned:
        following += 1
    # a trial for a job whose deadline has passed looks first at keys before its own: the walk then starts from those
    for k in range(following, count):
        at = min(usable - 1, floor_level[new_g[i]] if new_g[i] > 0 else -1)
        if at >= 0 and rate[at] <= 0.0:
            at = -1
        held = levels[at] if at >= 0 else 0
        out_g[i] = held
        if at < 0:
            i = k
            continue
        work = (new_t[k] - new_t[i]) * rate[at]
        if work >= left:
            return _late_end(
                left,
                deadline_s,
                rate,
                at,
                held,
                slot_s,
                anchor,
                free_t,
                free_g,
                free_n,
                aligned,
                i,
                max(i, start) + 1,
                count,
                total,
                out_t,
                out_g,
                new_t,
                new_g,
            )
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
    entries = tidy(out_t, out_g, max(i, start) + 1)
    spent = gpu_time(out_t, out_g, entries, end)
    count = put(new_t, new_g, count, end, total)
    return Planned(end, real, real <= deadline_s, spent, entries, tidy(new_t, new_g, count))


@kernel
def _late_end(
    left: float,
    deadline_s: int,
    rate: F64,
    at: int,
    held: int,
    slot_s: int,
    anchor: int,
    free_t: I64,
    free_g: I64,
    free_n: int,
    aligned: int,
    i: int,
    entries: int,
    count: int,
    total: int,
    out_t: I64,
    out_g: I64,
    new_t: I64,
    new_g: I64,
) -> Planned:
    """A late job's work ends inside segment i, on `held` GPUs."""
    real = whole_up(new_t[i] + left / rate[at])
    end = grid_up(anchor, real, slot_s)
    place = key_before(free_t, free_n, end)
    if place >= 0 and free_t[place] >= aligned:
        last = free_g[place]
    else:
        before = key_before(free_t, free_n, aligned)
        last = free_g[before] if before >= 0 else total
    begin_s = new_t[i]
    out_g[i] = held
    for x in range(count):
        if begin_s <= new_t[x] < end:
            new_g[x] -= held
    if begin_s != end:
        new_g[i] = last - held
    if place + 1 >= free_n or free_t[place + 1] != end:
        count = put(new_t, new_g, count, end, last)
    entries = tidy(out_t, out_g, entries)
    spent = gpu_time(out_t, out_g, entries, end)
    return Planned(end, real, real <= deadline_s, spent, entries, tidy(new_t, new_g, count))
