"""Published ElasticFlow at one instant: plan all jobs, admit, distribute spare GPUs, look ahead.

`reserve_s`, int64[jobs]: what a plan keeps free before a deadline.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from forerun.cluster.engine.kernels.arrays import BOOL, I64
from forerun.cluster.engine.kernels.order import rank_descending
from forerun.core.kernels.jit import kernel
from forerun.replication.elasticflow.kernels.events import add_wake, register, set_end, start
from forerun.replication.elasticflow.kernels.plan_state import (
    ARRIVED,
    DEADLINE,
    END,
    EVENT_AT,
    FAR,
    GPUS,
    HOLDING,
    KEYS,
    KIND,
    LEVEL,
    OLD_END,
    OPEN,
    PENDING,
    RUNNABLE,
    RUNNING,
    SLOT,
    STATE,
    SUBMIT,
    TOP,
    WAITING,
    WAKES,
    PlanState,
)
from forerun.replication.elasticflow.kernels.planner import (
    Grid,
    Ladder,
    Task,
    grid_up,
    key_before,
    level_within,
    next_level,
    plan,
    whole_up,
)
from forerun.replication.elasticflow.kernels.scaling import (
    NO_LEVEL,
    begin_boost,
    changed_spans,
    commit,
    drop_fallen,
    empty_profile,
    spare_gpus,
    window_before,
)


@kernel
def task_of(m: PlanState, job: int, reserve_s: I64) -> Task:
    """What the planner needs to know of a job; the deadline is moved forward by what is reserved for overhead."""
    rate = m.rate[m.j[KIND, job]]
    return Task(m.left[job], m.j[DEADLINE, job] - reserve_s[job], rate, m.j[TOP, job])


@kernel
def plan_all(
    m: PlanState, grid: Grid, reserve_s: I64, rows: I64, count: int, record: bool, late: BOOL
) -> bool:
    """Plan jobs afresh on an empty cluster and commit; whether all meet their deadlines.

    Parameters
    ----------
    rows, count : the jobs, in order of deadline, and how many.
    record : whether their present ends count as the old ones from now on.
    late : written, by position: which do not meet their deadlines.
    """
    if record:
        for i in range(count):
            m.j[OLD_END, rows[i]] = m.j[END, rows[i]]
    empty_profile(m, grid.now_s)
    capacity = m.free.shape[1]
    out, new = np.empty((2, capacity), np.int64), np.empty((2, capacity), np.int64)
    ladder = Ladder(m.levels, m.floor_level)
    fine = True
    for i in range(count):
        job = rows[i]
        task = task_of(m, job, reserve_s)
        made = plan(task, ladder, grid, m.free, m.meta[KEYS], int(NO_LEVEL), out, new)
        commit(m, job, made, out, new)
        late[i] = not made.in_time
        fine &= made.in_time
    return fine


@kernel
def present_gpus(m: PlanState, job: int, now_s: int) -> int:
    """What a job's plan gives it now."""
    at = m.j[SLOT, job]
    spot = key_before(m.plans[0, at], m.plan_n[at], now_s + 1)
    return int(m.plans[1, at, spot]) if spot >= 0 else 0


@kernel
def first_turn_on(m: PlanState, job: int) -> int:
    """When a job's plan first gives it GPUs."""
    at = m.j[SLOT, job]
    for i in range(m.plan_n[at]):
        if m.plans[1, at, i] > 0:
            return int(m.plans[0, at, i])
    return int(FAR)


@kernel
def next_change(m: PlanState, job: int, now_s: int) -> int:
    """When a job's plan next has an entry after now; -1 if never."""
    at = m.j[SLOT, job]
    spot = key_before(m.plans[0, at], m.plan_n[at], now_s + 1) + 1
    return int(m.plans[0, at, spot]) if spot < m.plan_n[at] else -1


@kernel
def hold(m: PlanState, job: int, gpus: int) -> None:
    """Give a job a number of GPUs, and remember which level that is."""
    m.j[GPUS, job] = gpus
    m.j[LEVEL, job] = level_within(m.floor_level, gpus)


@kernel
def apply_plans(m: PlanState, now_s: int, also_waiting: bool) -> None:
    """Jobs take what their plans give them now; the end events of running jobs follow, and where asked of waiting ones."""
    for i in range(m.meta[RUNNABLE]):
        job = m.lists[RUNNABLE, i]
        hold(m, job, present_gpus(m, job, now_s))
        if also_waiting or m.j[STATE, job] == HOLDING:
            set_end(m, job)
        m.j[OLD_END, job] = m.j[END, job]


@kernel
def start_due(m: PlanState, now_s: int, wake_others: bool, registered: bool) -> None:
    """Waiting jobs whose plan begins by now start; for the others a wake-up is asked for, where wanted."""
    waiting = m.lists[PENDING, : m.meta[PENDING]].copy()
    for job in waiting:
        first = first_turn_on(m, job)
        if first <= now_s:
            start(m, job)
            if not registered:
                register(m, job)
        elif wake_others:
            add_wake(m, first)


class Trial(NamedTuple):
    """What a boost trial comes to, and what it rests on.

    The trial knows the profile (with the job's own plan given back) only by the instant at which it first changes, and from
    a later instant to the deadline's slot.

    Parameters
    ----------
    gpu_s : GPU time of the plan; -1: the job would be late, so the whole planner is needed.
    change_s : that first instant.
    low_s : the later one.
    """

    gpu_s: int
    change_s: int
    low_s: int


@kernel
def try_level(m: PlanState, grid: Grid, reserve_s: I64, job: int, want: int, keys: I64) -> Trial:
    """The GPU time of a boost trial, without the plan itself: `planner.plan` for the case that the deadline is met.

    Parameters
    ----------
    want : the level that the job has until the profile first changes.
    keys : int64[2, capacity], working space for the profile.
    """
    rate = m.rate[m.j[KIND, job]]
    now_s, slot_s, anchor_s = grid
    deadline_s = m.j[DEADLINE, job] - reserve_s[job]
    anchor = now_s if anchor_s < 0 else anchor_s
    aligned = grid_up(anchor, deadline_s, slot_s)
    late = Trial(-1, now_s, now_s)
    if aligned <= now_s:
        return late
    keys_t, keys_g = keys[0], keys[1]
    left = m.left[job]
    held = m.levels[want]
    real = whole_up(now_s + left / rate[want])
    count = window_before(m, job, aligned, keys)
    change = keys_t[1] if count > 1 else aligned
    if real <= deadline_s:
        end = grid_up(anchor, real, slot_s)
        if change >= end:
            return Trial(held * (end - now_s), max(change, end + 1), end)
    if count == 1:
        return late
    left -= (change - now_s) * rate[want]
    total = len(m.floor_level) - 1
    longest_s = (deadline_s - change + slot_s) * (1.0 + 1e-9)
    best = 0.0
    switch, chosen = -1, -1
    for level in range(m.j[TOP, job]):
        share = m.levels[level]
        if share > total:
            break
        if rate[level] <= 0.0:
            continue
        best = max(best, rate[level])
        if best * longest_s < left:
            continue
        done = 0.0
        until = deadline_s
        for i in range(count - 1, 0, -1):
            at = level if keys_g[i] >= share else level_within(m.floor_level, keys_g[i])
            if at >= 0:
                done += (until - keys_t[i]) * rate[at]
                if done >= left:
                    switch = i
                    break
            until = keys_t[i]
        if switch >= 0:
            chosen = level
            break
    if chosen < 0:
        return late
    spent = held * (change - now_s)
    i = switch if chosen == 0 else 1
    low_s = keys_t[i]
    while True:
        at = chosen if i >= switch else chosen - 1
        if keys_g[i] < m.levels[at]:
            at = level_within(m.floor_level, keys_g[i])
        if at >= 0 and rate[at] > 0.0:
            until = keys_t[i + 1] if i + 1 < count else deadline_s
            work = (until - keys_t[i]) * rate[at]
            if i >= switch and work >= left:
                break
            left -= work
            until = keys_t[i + 1] if i + 1 < count else aligned
            spent += m.levels[at] * (until - keys_t[i])
        i += 1
        if i == count:
            return late  # a rounding away from the deadline's slot
    until = keys_t[i + 1] if i + 1 < count else 0
    if i + 1 == count:
        ended = keys_t[i] + whole_up(left / rate[at])
        until = grid_up(keys_t[i] if anchor_s < 0 else anchor_s, ended, slot_s)
    spent += m.levels[at] * (until - keys_t[i])
    return Trial(spent, change, low_s)


@kernel
def boost(m: PlanState, grid: Grid, reserve_s: I64, least_first: bool, registered: bool) -> int:
    """Hand spare GPUs out, one level to one job at a time, by the GPU time that a level more costs; the trials made.

    A trial gives the job one level more until the profile first changes and plans the rest afresh. It is made again only
    where somebody's new share changed the profile it rests on. The order of equals is that of the rounds before, so
    the list `RUNNABLE` keeps every sort.

    Parameters
    ----------
    least_first : a level more goes first to the job that wastes least GPU time; as published, to the one that wastes most.
    registered : jobs that wait have an end event already, which moves when they start.
    """
    count, spare = m.meta[RUNNABLE], spare_gpus(m)
    if spare <= 0 or count == 0:
        return 0
    sign = -1.0 if least_first else 1.0
    capacity = m.free.shape[1]
    free, out = np.empty((2, capacity), np.int64), np.empty((2, capacity), np.int64)
    new, spans = np.empty((2, capacity), np.int64), np.empty((2, 2 * capacity), np.int64)
    ladder = Ladder(m.levels, m.floor_level)
    j, levels, top = m.j, m.levels, m.j[TOP]
    trials = begin_boost(m, grid, reserve_s)
    jobs, worth, spent, _, after, change, low = trials
    order, more = np.arange(count), np.empty(count, np.int64)
    for p in range(count):
        job = jobs[p]
        want = next_level(m.rate[j[KIND, job]], j[LEVEL, job], top[job])
        more[p] = levels[want] - j[GPUS, job] if want < top[job] else -1  # GPUs to the next level
    tried = 0
    while True:
        for p in range(count):
            if more[p] < 0:
                continue
            if more[p] > spare:
                worth[p] = -np.inf
                continue
            if after[p] >= 0:
                continue  # worth what it was
            job = jobs[p]
            if j[GPUS, job] == 0:
                worth[p] = np.inf
                continue
            want = j[LEVEL, job] + 1
            tried += 1
            trial = try_level(m, grid, reserve_s, job, want, free)
            after[p], change[p], low[p] = trial.gpu_s, trial.change_s, trial.low_s
            gpu_s = after[p]
            if gpu_s < 0:
                entries = window_before(m, job, int(FAR), free)
                gpu_s = plan(task_of(m, job, reserve_s), ladder, grid, free, entries, want, out, new).gpu_s
            worth[p] = sign * (gpu_s - spent[p]) / more[p]
        order = order[rank_descending(worth[order])]
        if spare <= 0:
            break
        picked = -1
        for i in range(count):
            p = order[i]
            if 0 <= more[p] <= spare:
                picked = p
                break
        if picked < 0:
            break
        chosen = jobs[picked]
        want = next_level(m.rate[j[KIND, chosen]], j[LEVEL, chosen], top[chosen])
        entries = window_before(m, chosen, int(FAR), free)
        made = plan(task_of(m, chosen, reserve_s), ladder, grid, free, entries, want, out, new)
        differing = changed_spans(m.free, m.meta[KEYS], new, made.keys, spans)
        m.j[OLD_END, chosen] = m.j[END, chosen]
        commit(m, chosen, made, out, new)
        spare -= more[picked]
        hold(m, chosen, levels[want])
        more[picked] = levels[want + 1] - levels[want] if want + 1 < top[chosen] else -1
        spent[picked] = made.gpu_s
        after[picked] = -1
        drop_fallen(m, trials, spans, differing)
        waited = m.j[STATE, chosen] == WAITING
        if waited:
            start(m, chosen)
        if waited and not registered:
            register(m, chosen)
        else:
            set_end(m, chosen)
    # One by one: assigning a slice compiles what checks shapes and words the error, for seconds.
    for row in range(count):
        m.lists[RUNNABLE, row] = jobs[order[row]]
    return tried


@kernel
def look_ahead(m: PlanState, now_s: int) -> None:
    """Ask for one wake-up, at the first change of any plan, if it comes before all events."""
    first = int(FAR)
    for i in range(m.meta[RUNNABLE]):
        time_s = next_change(m, m.lists[RUNNABLE, i], now_s)
        if time_s >= 0:
            first = min(first, int(time_s))
    if first == FAR:
        return
    if first < first_event(m):
        add_wake(m, first)


@kernel
def first_event(m: PlanState) -> int:
    """The instant of the first event ahead; far away if there is none. Where more jobs may always come, none is known."""
    least = int(FAR)
    if m.meta[OPEN] == 0 and m.meta[ARRIVED] < len(m.j[SUBMIT]):
        least = m.j[SUBMIT, m.meta[ARRIVED]]
    if m.meta[WAKES] > 0:
        least = min(least, m.wakes[0])
    for i in range(m.meta[RUNNABLE]):
        time_s = m.j[EVENT_AT, m.lists[RUNNABLE, i]]
        if time_s >= 0:
            least = min(least, time_s)
    return least


@kernel
def wake_at_changes(m: PlanState, now_s: int) -> None:
    """Ask for a wake-up at the first change of each running job's plan."""
    for i in range(m.meta[RUNNING]):
        time_s = next_change(m, m.lists[RUNNING, i], now_s)
        if time_s >= 0:
            add_wake(m, time_s)
