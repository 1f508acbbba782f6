"""Plans that are promises: each holds what its restarts cost, and none is replaced by one that comes too late.

A plan is made by `planner` for a job's work and what its changes of GPUs will cost in work; how many those are shows in the
plan itself, so it is made again until it holds them. Jobs work only between the instants of a slot grid through time 0, on
which all plans change. Times in seconds, `pause_s[job]` is what is left of a restart.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.domains.cluster.engine.kernels.arrays import F64, I64
from forerun.domains.cluster.engine.kernels.elastic import (
    NO_LEVEL,
    changed_spans,
    commit,
    drop_fallen,
    window_before,
)
from forerun.domains.cluster.engine.kernels.order import rank_descending
from forerun.domains.cluster.engine.kernels.plan_state import (
    DEADLINE,
    END,
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
from forerun.domains.cluster.engine.kernels.planner import (
    Planned,
    gpu_time,
    grid_up,
    next_level,
    plan_in_time,
    whole_up,
)
from forerun.kernels.jit import kernel

#: how often a plan is made again because it has more changes than it holds time for
MOST_TIMES: Final = 24


class Costs(NamedTuple):
    """What changes of GPUs cost. `seconds[row, from level + 1, to level + 1]`, level -1: no GPUs; `row` of each job;
    `begun[job]` 0: its first start is still to come, and free.
    """

    seconds: F64
    row: I64
    begun: I64


class Found(NamedTuple):
    """A plan, and whether it is feasible: in time, with all its changes paid for, and within the tables."""

    plan: Planned
    kept: bool


@kernel
def plan_promise(
    m: PlanState,
    costs: Costs,
    pause_s: F64,
    job: int,
    now_s: int,
    slot_s: int,
    free_t: I64,
    free_g: I64,
    free_n: int,
    assign: int,
    out_t: I64,
    out_g: I64,
    new_t: I64,
    new_g: I64,
) -> Found:
    """Plan a job's work and what its changes cost: again with more, until the planned GPU time is enough."""
    rate, floor_level = m.rate[m.j[KIND, job]], m.floor_level
    seconds = costs.seconds[costs.row[job]]
    last, has_begun = m.j[LAST_GPUS, job], costs.begun[job]
    # what is left of a restart is lost at the rate of the present GPUs
    owed = pause_s[job] * rate[floor_level[last]] if last > 0 else 0.0
    extra = owed
    turn = 0
    while True:
        tried = plan_in_time(
            m.left[job] + extra,
            m.j[DEADLINE, job],
            rate,
            m.j[TOP, job],
            m.levels,
            floor_level,
            now_s,
            slot_s,
            0,
            free_t,
            free_g,
            free_n,
            assign,
            out_t,
            out_g,
            new_t,
            new_g,
        )
        plan = tried.plan
        if not tried.found:
            return Found(plan, False)
        lost = 0.0  # iterations that the plan's changes of GPUs cost, counted from the GPUs that the job had last
        held, begun = last, has_begun
        for i in range(plan.entries):
            gpus = out_g[i]
            if gpus > 0 and gpus != held:
                level = floor_level[gpus]
                if begun == 1:
                    lost += seconds[(floor_level[held] if held > 0 else -1) + 1, level + 1] * rate[level]
                begun = 1
            held = gpus
        lost += owed
        turn += 1
        if lost <= extra:
            fits = plan.entries <= m.plans.shape[2] and plan.keys + 4 <= m.free.shape[1]
            return Found(plan, plan.in_time and fits)
        if turn >= MOST_TIMES:
            return Found(plan, False)
        extra = lost


@kernel
def plan_promises(
    m: PlanState, costs: Costs, pause_s: F64, rows: I64, count: int, now_s: int, slot_s: int, fresh: bool
) -> int:
    """Plan jobs in order and commit; how many were planned before one had no feasible plan (`count`: all).

    `fresh`: on an empty cluster; else on the profile as it stands.
    """
    capacity = m.free.shape[1]
    out_t, out_g = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    new_t, new_g = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    if fresh:
        m.free[0, 0] = now_s
        m.free[1, 0] = len(m.floor_level) - 1
        m.meta[KEYS] = 1
    for i in range(count):
        job = rows[i]
        if m.meta[KEYS] + 4 > capacity:
            return i
        attempt = plan_promise(
            m,
            costs,
            pause_s,
            job,
            now_s,
            slot_s,
            m.free[0],
            m.free[1],
            m.meta[KEYS],
            int(NO_LEVEL),
            out_t,
            out_g,
            new_t,
            new_g,
        )
        if not attempt.kept:
            return i
        made = attempt.plan
        commit(m, job, made.end_s, made.real_s, out_t, out_g, made.entries, new_t, new_g, made.keys)
    return count


@kernel
def rests_from(times: I64, free: I64, keys: int, plan_t: I64, plan_g: I64, entries: int, least: int) -> int:
    """The instant from which on a trial rests on the profile: its first change, or the one that its least share begins at.

    The latter if the plan leaves GPUs unused until then, `least` of which it could have had: then it needs no more than
    the least share, so late, and asked nothing of the profile before.
    """
    at = 0
    spared = False
    for k in range(1, keys):
        while at + 1 < entries and plan_t[at + 1] <= times[k]:
            at += 1
        if plan_g[at] > 0:
            return int(times[k] if spared else times[1])
        spared |= free[k] >= least
    return int(times[1] if keys > 1 else plan_t[0])


@kernel
def boost_promises(
    m: PlanState, costs: Costs, pause_s: F64, now_s: int, slot_s: int, least_first: bool
) -> int:
    """Hand spare GPUs out, one level to one job at a time, by the GPU time that a level more costs; the trials made.

    As `elastic.boost`, but a trial that is not feasible is none; and jobs that wait are not started. A trial that was kept
    stands until somebody's new share changes the profile it rests on.
    """
    count = m.meta[RUNNABLE]
    spare = len(m.floor_level) - 1
    for i in range(count):
        spare -= m.j[GPUS, m.lists[RUNNABLE, i]]
    if spare <= 0 or count == 0:
        return 0
    capacity = m.free.shape[1]
    trial_t, trial_g = np.empty(2 * capacity, np.int64), np.empty(2 * capacity, np.int64)
    out_t, out_g = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    new_t, new_g = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    spans = np.empty((3, 2 * capacity), np.int64)
    jobs, order = np.empty(count, np.int64), np.empty(count, np.int64)
    worth = np.empty(count, np.float64)
    spent, due_s = np.empty(count, np.int64), np.empty(count, np.int64)
    after = np.empty(count, np.int64)  # GPU time of the trial that stands; -1: none does
    change, low = np.empty(count, np.int64), np.empty(count, np.int64)
    for p in range(count):
        job = jobs[p] = m.lists[RUNNABLE, p]
        order[p], worth[p], after[p] = p, -np.inf, -1
        at = m.j[SLOT, job]
        spent[p] = gpu_time(m.plans[0, at], m.plans[1, at], m.plan_n[at], m.j[END, job])
        due_s[p] = grid_up(0, m.j[DEADLINE, job], slot_s)
    sign = -1.0 if least_first else 1.0
    trials = 0
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
            entries = window_before(m, job, int(FAR), trial_t, trial_g)
            if not choosing:
                worth[p] = -np.inf
                rate = rates[want]
                last = m.j[LAST_GPUS, job]
                cost_s = pause_s[job]
                if m.levels[want] != last and costs.begun[job] == 1:
                    before = m.floor_level[last] if last > 0 else -1
                    cost_s += costs.seconds[costs.row[job], before + 1, want + 1]
                real = whole_up(now_s + (m.left[job] + cost_s * rate) / rate)
                end = grid_up(0, real, slot_s)
                if real <= m.j[DEADLINE, job] and (entries == 1 or trial_t[1] >= end):
                    # done before the profile first changes: no plan is needed
                    after[p] = m.levels[want] * (end - now_s)
                    change[p] = end + 1 if entries == 1 else max(end + 1, trial_t[1])
                    low[p] = end
            if choosing or after[p] < 0:
                attempt = Found(Planned(-1, -1, False, 0, 0, 0), False)
                if m.meta[KEYS] + m.plan_n[m.j[SLOT, job]] + 8 <= capacity:
                    trials += 1
                    attempt = plan_promise(
                        m,
                        costs,
                        pause_s,
                        job,
                        now_s,
                        slot_s,
                        trial_t,
                        trial_g,
                        entries,
                        want,
                        out_t,
                        out_g,
                        new_t,
                        new_g,
                    )
                made = attempt.plan
                if choosing:
                    going = attempt.kept
                    if not going:
                        break
                    differing = changed_spans(
                        m.free[0], m.free[1], m.meta[KEYS], new_t, new_g, made.keys, spans
                    )
                    commit(
                        m, job, made.end_s, made.real_s, out_t, out_g, made.entries, new_t, new_g, made.keys
                    )
                    spare -= m.levels[want] - gpus
                    m.j[GPUS, job], m.j[LEVEL, job] = m.levels[want], want
                    spent[p], after[p] = made.gpu_s, -1
                    drop_fallen(m, jobs, after, change, low, due_s, spans, differing)
                    break
                if not attempt.kept:
                    continue
                after[p] = made.gpu_s
                change[p] = trial_t[1] if entries > 1 else due_s[p]
                least = m.levels[next_level(rates, -1, m.j[TOP, job])]
                low[p] = rests_from(trial_t, trial_g, entries, out_t, out_g, made.entries, least)
                if change[p] >= due_s[p]:
                    low[p], change[p] = int(FAR), int(FAR)  # stands on nothing that is watched: made again
            gpu_s = after[p]
            if low[p] == FAR:
                after[p] = -1
            worth[p] = np.inf if gpus == 0 else sign * (gpu_s - spent[p]) / (m.levels[want] - gpus)
    for i in range(count):
        m.lists[RUNNABLE, i] = jobs[order[i]]
    return trials
