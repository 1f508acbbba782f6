"""Plans that are promises: each holds what its restarts cost, and none is replaced by one that comes too late.

A plan is made by `planner` for a job's work and what its changes of GPUs will cost in work; how many those are shows in the
plan itself, so it is made again until it holds them. Jobs work only between the instants of a slot grid through time 0, on
which all plans change. Times in seconds.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.cluster.engine.kernels.order import rank_descending
from forerun.core.kernels.jit import kernel
from forerun.replication.elasticflow.kernels.plan_state import (
    DEADLINE,
    FAR,
    GPUS,
    KEYS,
    KIND,
    LAST_GPUS,
    LEVEL,
    RUNNABLE,
    SLOT,
    TOP,
    PlanState,
)
from forerun.replication.elasticflow.kernels.planner import (
    Grid,
    Ladder,
    Planned,
    Task,
    grid_up,
    level_within,
    next_level,
    plan_in_time,
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

#: how often a plan is made again because it has more changes than it holds time for
MOST_TIMES: Final = 24


class Costs(NamedTuple):
    """What changes of GPUs cost, and what is left of those under way.

    Parameters
    ----------
    seconds : float64[rows, from, to], by level + 1; 0: no GPUs; the last `from` is a first start.
    row : int64[jobs], the row of each job.
    begun : int64[jobs]; 0: the job's first start is still to come.
    pause_s : float64[jobs], what is left of a restart.
    """

    seconds: F64
    row: I64
    begun: I64
    pause_s: F64


class Attempt(NamedTuple):
    """A plan, and whether it is feasible: in time, with all its changes paid for, and within the tables."""

    plan: Planned
    is_feasible: bool


@kernel
def plan_promise(
    m: PlanState,
    costs: Costs,
    job: int,
    grid: Grid,
    free: I64,
    free_n: int,
    assign: int,
    out: I64,
    new: I64,
) -> Attempt:
    """Plan a job's work and what its changes cost: again with more, until the planned GPU time is enough.

    `free`, `free_n`, `assign`, `out` and `new` are those of `planner.plan`.
    """
    rate, floor_level = m.rate[m.j[KIND, job]], m.floor_level
    ladder = Ladder(m.levels, floor_level)
    seconds = costs.seconds[costs.row[job]]
    last, has_begun = m.j[LAST_GPUS, job], costs.begun[job]
    # what is left of a restart is lost at the rate of the present GPUs
    owed = costs.pause_s[job] * rate[floor_level[last]] if last > 0 else 0.0
    extra = owed
    turn = 0
    while True:
        task = Task(m.left[job] + extra, m.j[DEADLINE, job], rate, m.j[TOP, job])
        tried = plan_in_time(task, ladder, grid, free, free_n, assign, out, new)
        plan = tried.plan
        if not tried.is_found:
            return Attempt(plan, False)
        lost = 0.0  # iterations that the plan's changes of GPUs cost, counted from the GPUs that the job had last
        held, begun = last, has_begun
        for i in range(plan.entries):
            gpus = out[1, i]
            if gpus > 0 and gpus != held:
                level = floor_level[gpus]
                before = level_within(floor_level, held) + 1 if begun == 1 else len(seconds) - 1
                lost += seconds[before, level + 1] * rate[level]
                begun = 1
            held = gpus
        lost += owed
        turn += 1
        if lost <= extra:
            fits = plan.entries <= m.plans.shape[2] and plan.keys + 4 <= m.free.shape[1]
            return Attempt(plan, plan.in_time and fits)
        if turn >= MOST_TIMES:
            return Attempt(plan, False)
        extra = lost


@kernel
def plan_promises(m: PlanState, costs: Costs, grid: Grid, rows: I64, count: int, fresh: bool) -> int:
    """Plan jobs in order and commit; how many were planned before one had no feasible plan (`count`: all).

    `fresh`: on an empty cluster; else on the profile as it stands.
    """
    capacity = m.free.shape[1]
    out, new = np.empty((2, capacity), np.int64), np.empty((2, capacity), np.int64)
    if fresh:
        empty_profile(m, grid.now_s)
    for i in range(count):
        job = rows[i]
        if m.meta[KEYS] + 4 > capacity:
            return i
        attempt = plan_promise(m, costs, job, grid, m.free, m.meta[KEYS], int(NO_LEVEL), out, new)
        if not attempt.is_feasible:
            return i
        commit(m, job, attempt.plan, out, new)
    return count


@kernel
def plan_move(m: PlanState, costs: Costs, grid: Grid, job: int, commits: bool) -> bool:
    """Whether a job that goes on with the GPUs that it has now can be planned beside the others, with all of its pause.

    `commits`: the plan becomes the job's own.
    """
    capacity = m.free.shape[1]
    if m.meta[KEYS] + m.plan_n[m.j[SLOT, job]] + 8 > capacity:
        return False
    free = np.empty((2, 2 * capacity), np.int64)
    out, new = np.empty((2, capacity), np.int64), np.empty((2, capacity), np.int64)
    entries = window_before(m, job, int(FAR), free)
    attempt = plan_promise(m, costs, job, grid, free, entries, m.j[LEVEL, job], out, new)
    if commits and attempt.is_feasible:
        commit(m, job, attempt.plan, out, new)
    return attempt.is_feasible


@kernel
def rests_from(free: I64, keys: int, out: I64, entries: int, least: int) -> int:
    """The instant from which on a trial rests on the profile: its first change, or the one that its least share begins at.

    The latter if the plan leaves GPUs unused until then, `least` of which it could have had: then it needs no more than
    the least share, so late, and asked nothing of the profile before.
    """
    times, plan_t, plan_g = free[0], out[0], out[1]
    at = 0
    spared = False
    for k in range(1, keys):
        while at + 1 < entries and plan_t[at + 1] <= times[k]:
            at += 1
        if plan_g[at] > 0:
            return int(times[k] if spared else times[1])
        spared |= free[1, k] >= least
    return int(times[1] if keys > 1 else plan_t[0])


@kernel
def boost_promises(m: PlanState, costs: Costs, grid: Grid, least_first: bool) -> int:
    """Hand spare GPUs out, one level to one job at a time, by the GPU time that a level more costs; the trials made.

    As `elastic.boost`, but a trial that is not feasible does not count, and jobs that wait are not started. A feasible trial
    stands until somebody's new share changes the profile that it rests on.

    Parameters
    ----------
    costs : what changes of GPUs cost.
    grid : the moment, and the slots.
    least_first : as of `elastic.boost`.
    """
    now_s, slot_s, _ = grid
    count, spare = m.meta[RUNNABLE], spare_gpus(m)
    if spare <= 0 or count == 0:
        return 0
    capacity = m.free.shape[1]
    free, spans = np.empty((2, 2 * capacity), np.int64), np.empty((2, 2 * capacity), np.int64)
    out, new = np.empty((2, capacity), np.int64), np.empty((2, capacity), np.int64)
    trials = begin_boost(m, grid, np.empty(0, np.int64))
    jobs, worth, spent, due_s, after, change, low = trials
    order = np.arange(count)
    sign = -1.0 if least_first else 1.0
    tried = 0
    going = True
    while going and spare > 0:
        for i in range(count + 1):
            choosing = i == count  # after all trials, the best one is carried out
            if choosing:
                order = order[rank_descending(worth[order])]
            p = order[0] if choosing else i
            job = jobs[p]
            gpus, rates = m.j[GPUS, job], m.rate[m.j[KIND, job]]
            want = next_level(rates, m.j[LEVEL, job], m.j[TOP, job])
            if choosing:
                going = worth[p] > -np.inf
                if not going:
                    break
            elif want >= m.j[TOP, job] or m.levels[want] - gpus > spare:
                worth[p] = -np.inf
                continue
            elif after[p] >= 0:
                continue
            entries = window_before(m, job, int(FAR), free)
            if not choosing:
                worth[p] = -np.inf
                rate = rates[want]
                last = m.j[LAST_GPUS, job]
                cost_s = costs.pause_s[job]
                if m.levels[want] != last:
                    before = costs.seconds.shape[1] - 1
                    if costs.begun[job] == 1:
                        before = level_within(m.floor_level, last) + 1
                    cost_s += costs.seconds[costs.row[job], before, want + 1]
                real = whole_up(now_s + (m.left[job] + cost_s * rate) / rate)
                end = grid_up(0, real, slot_s)
                if real <= m.j[DEADLINE, job] and (entries == 1 or free[0, 1] >= end):
                    # done before the profile first changes: no plan is needed
                    after[p] = m.levels[want] * (end - now_s)
                    change[p] = end + 1 if entries == 1 else max(end + 1, free[0, 1])
                    low[p] = end
            if choosing or after[p] < 0:
                attempt = Attempt(Planned(-1, -1, False, 0, 0, 0), False)
                if m.meta[KEYS] + m.plan_n[m.j[SLOT, job]] + 8 <= capacity:
                    tried += 1
                    attempt = plan_promise(m, costs, job, grid, free, entries, want, out, new)
                made = attempt.plan
                if choosing:
                    going = attempt.is_feasible
                    if not going:
                        break
                    differing = changed_spans(m.free, m.meta[KEYS], new, made.keys, spans)
                    commit(m, job, made, out, new)
                    spare -= m.levels[want] - gpus
                    m.j[GPUS, job], m.j[LEVEL, job] = m.levels[want], want
                    spent[p], after[p] = made.gpu_s, -1
                    drop_fallen(m, trials, spans, differing)
                    break
                if not attempt.is_feasible:
                    continue
                after[p] = made.gpu_s
                change[p] = free[0, 1] if entries > 1 else due_s[p]
                least = m.levels[next_level(rates, -1, m.j[TOP, job])]
                low[p] = rests_from(free, entries, out, made.entries, least)
                if change[p] >= due_s[p]:
                    low[p], change[p] = int(FAR), int(FAR)  # stands on nothing that is watched: made again
            gpu_s = after[p]
            if low[p] == FAR:
                after[p] = -1
            worth[p] = np.inf if gpus == 0 else sign * (gpu_s - spent[p]) / (m.levels[want] - gpus)
    # One by one: assigning a slice compiles what checks shapes and words the error, for seconds.
    for row in range(count):
        m.lists[RUNNABLE, row] = jobs[order[row]]
    return tried
