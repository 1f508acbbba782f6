"""Plans that are promises: each holds what its restarts cost, and none is replaced by one that comes too late.

A plan is made by `planner` for a job's work and what its changes of GPUs will cost in work; how many those are shows in the
plan itself, so it is made again until it holds them. Jobs work only between the instants of a slot grid through time 0, on
which all plans change. Times in seconds, `pause_s[job]` is what is left of a restart, `worked_s[job]` what was worked.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.domains.cluster.kernels.arrays import F64, I64
from forerun.domains.cluster.kernels.elastic import (
    NO_LEVEL,
    commit,
    ends_in_first_segment,
    first_turn_on,
    hold,
    next_change,
    present_gpus,
    trial_profile,
)
from forerun.domains.cluster.kernels.machine import (
    ARRIVED,
    DEADLINE,
    END,
    ENDING,
    ENDS,
    FAR,
    FIRST,
    GPUS,
    KEYS,
    KIND,
    LAST_GPUS,
    LEVEL,
    PENDING,
    RUNNABLE,
    SLOT,
    STATE,
    SUBMIT,
    TOP,
    WAITING,
    Machine,
    start,
)
from forerun.domains.cluster.kernels.order import rank_descending
from forerun.domains.cluster.kernels.planner import Planned, gpu_time, grid_up, plan, whole_up
from forerun.kernels.jit import kernel

#: how often a plan is made again because it has more changes than it holds time for
MOST_TIMES: Final = 24

#: seconds that sums of work may be off by, through rounding
SLIP_S: Final = 1e-6


class Costs(NamedTuple):
    """What changes of GPUs cost. `seconds[row, from level + 1, to level + 1]`, level -1: no GPUs; `row` of each job;
    `begun[job]` 0: its first start is still to come, and free.
    """

    seconds: F64
    row: I64
    begun: I64


class Found(NamedTuple):
    """A plan, and whether it can be kept: in time, with all its changes paid for, and within the tables."""

    plan: Planned
    kept: bool


@kernel
def lost_work(m: Machine, costs: Costs, job: int, times: I64, gpus: I64, entries: int) -> float:
    """Iterations that a plan's changes of GPUs cost, counted from what the job held last."""
    lost = 0.0
    held = m.j[LAST_GPUS, job]
    begun = costs.begun[job]
    rate = m.rate[m.j[KIND, job]]
    for i in range(entries):
        now = gpus[i]
        if now > 0 and now != held:
            before = m.floor_level[held] if held > 0 else -1
            level = m.floor_level[now]
            if begun == 1:
                lost += costs.seconds[costs.row[job], before + 1, level + 1] * rate[level]
            begun = 1
        held = now
    return lost


@kernel
def plan_promise(
    m: Machine,
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
    """Plan a job's work and what its changes cost: again with more, until what is held is enough."""
    rate = m.rate[m.j[KIND, job]]
    last = m.j[LAST_GPUS, job]
    # what is left of a restart is lost at the rate of the GPUs held
    owed = pause_s[job] * rate[m.floor_level[last]] if last > 0 else 0.0
    extra = owed
    turn = 0
    while True:
        found = plan(
            m.left[job] + extra,
            m.j[DEADLINE, job],
            rate,
            m.j[TOP, job],
            m.levels,
            m.floor_level,
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
        lost = lost_work(m, costs, job, out_t, out_g, found.entries) + owed
        turn += 1
        if lost <= extra:
            fits = found.entries <= m.plans.shape[2] and found.keys + 4 <= m.free.shape[1]
            return Found(found, found.in_time and fits)
        if turn >= MOST_TIMES:
            return Found(found, False)
        extra = lost


@kernel
def plan_promises(
    m: Machine, costs: Costs, pause_s: F64, rows: I64, count: int, now_s: int, slot_s: int, fresh: bool
) -> int:
    """Plan jobs in order and commit; how many were planned before one could not be kept (`count`: all).

    `fresh`: on an empty cluster; else on the profile as it stands.
    """
    room = m.free.shape[1]
    out_t, out_g = np.empty(room, np.int64), np.empty(room, np.int64)
    new_t, new_g = np.empty(room, np.int64), np.empty(room, np.int64)
    if fresh:
        m.free[0, 0] = now_s
        m.free[1, 0] = len(m.floor_level) - 1
        m.meta[KEYS] = 1
    for i in range(count):
        job = rows[i]
        if m.meta[KEYS] + 4 > room:
            return i
        found = plan_promise(
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
        if not found.kept:
            return i
        made = found.plan
        commit(m, job, made.end_s, made.real_s, out_t, out_g, made.entries, new_t, new_g, made.keys)
    return count


@kernel
def next_instant(m: Machine, pause_s: F64, now_s: int, slot_s: int) -> int:
    """The next instant on the grid at which somebody comes, ends or changes GPUs; -1 if never."""
    first = int(FAR)
    if m.meta[ARRIVED] < len(m.j[SUBMIT]):
        first = grid_up(0, m.j[SUBMIT, m.meta[ARRIVED]], slot_s)
    for i in range(m.meta[RUNNABLE]):
        job = m.lists[RUNNABLE, i]
        change = next_change(m, job, now_s)
        if change >= 0:
            first = min(first, int(change))
        if m.j[GPUS, job] > 0:
            need_s = pause_s[job] + m.left[job] / m.rate[m.j[KIND, job], m.j[LEVEL, job]]
            first = min(first, grid_up(0, whole_up(now_s + need_s - SLIP_S), slot_s))
    if first == FAR:
        return -1
    return max(first, now_s + 1)


@kernel
def work_until(m: Machine, pause_s: F64, worked_s: F64, from_s: int, now_s: int) -> None:
    """Count the work done since `from_s`; jobs that are done go to the list of ends, at the second that they were."""
    m.meta[ENDS] = 0
    m.meta[FIRST] = m.meta[ARRIVED]
    while m.meta[ARRIVED] < len(m.j[SUBMIT]) and m.j[SUBMIT, m.meta[ARRIVED]] <= now_s:
        m.meta[ARRIVED] += 1
    for i in range(m.meta[RUNNABLE]):
        job = m.lists[RUNNABLE, i]
        if m.j[GPUS, job] <= 0:
            continue
        begin = from_s + pause_s[job]
        pause_s[job] = max(0.0, begin - now_s)
        span = max(0.0, now_s - begin)
        rate = m.rate[m.j[KIND, job], m.j[LEVEL, job]]
        need = m.left[job] / rate
        if need <= span + SLIP_S:
            m.j[END, job] = whole_up(begin + need - SLIP_S)
            m.lists[ENDING, m.meta[ENDS]] = job
            m.meta[ENDS] += 1
            span = need
        m.left[job] = max(0.0, m.left[job] - span * rate)
        m.useful[job] += m.j[GPUS, job] * span
        worked_s[job] += span


@kernel
def take_turns(m: Machine, now_s: int) -> None:
    """Jobs hold what their plans give them now; waiting ones whose turn has come start."""
    for i in range(m.meta[RUNNABLE]):
        job = m.lists[RUNNABLE, i]
        hold(m, job, present_gpus(m, job, now_s))
    waiting = m.lists[PENDING, : m.meta[PENDING]].copy()
    for job in waiting:
        if first_turn_on(m, job) <= now_s:
            start(m, job)


@kernel
def boost_promises(
    m: Machine,
    costs: Costs,
    pause_s: F64,
    now_s: int,
    slot_s: int,
    least_first: bool,
    flags: I64,
    none_s: I64,
) -> int:
    """Hand spare GPUs out, one level to one job at a time, by the GPU time that a level more costs; the trials made.

    As `elastic.boost`, but a trial that cannot be kept is none. `flags`: of the grid; `none_s`: zeros, one a job.
    """
    count = m.meta[RUNNABLE]
    spare = len(m.floor_level) - 1
    rows = m.lists[RUNNABLE, :count].copy()
    room = m.free.shape[1]
    trial_t, trial_g = np.empty(room, np.int64), np.empty(room, np.int64)
    out_t, out_g = np.empty(room, np.int64), np.empty(room, np.int64)
    new_t, new_g = np.empty(room, np.int64), np.empty(room, np.int64)
    worth = np.full(len(m.left), -np.inf)
    spent = np.zeros(len(m.left), np.int64)
    for i in range(count):
        job = rows[i]
        spare -= m.j[GPUS, job]
        at = m.j[SLOT, job]
        spent[job] = gpu_time(m.plans[0, at], m.plans[1, at], m.plan_n[at], m.j[END, job])
    sign = -1.0 if least_first else 1.0
    trials = 0
    while spare > 0 and count > 0:
        for i in range(count):
            job = rows[i]
            worth[job] = -np.inf
            want = m.j[LEVEL, job] + 1
            if want >= m.j[TOP, job] or m.levels[want] - m.j[GPUS, job] > spare:
                continue
            rate = m.rate[m.j[KIND, job], want]
            last = m.j[LAST_GPUS, job]
            cost_s = pause_s[job]
            if m.levels[want] != last and costs.begun[job] == 1:
                before = m.floor_level[last] if last > 0 else -1
                cost_s += costs.seconds[costs.row[job], before + 1, want + 1]
            left = m.left[job]
            m.left[job] = left + cost_s * rate
            end = ends_in_first_segment(m, job, now_s, slot_s, flags, none_s, want)
            m.left[job] = left
            if end >= 0:
                after = m.levels[want] * (end - now_s)
            else:
                if m.meta[KEYS] + m.plan_n[m.j[SLOT, job]] + 8 > room:
                    continue
                trials += 1
                entries = trial_profile(m, job, trial_t, trial_g)
                found = plan_promise(
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
                if not found.kept:
                    continue
                after = found.plan.gpu_s
            if m.j[GPUS, job] == 0:
                worth[job] = np.inf
            else:
                worth[job] = sign * (after - spent[job]) / (m.levels[want] - m.j[GPUS, job])
        rows = rows[rank_descending(worth[rows])]
        job = rows[0]
        if worth[job] == -np.inf:
            break
        want = m.j[LEVEL, job] + 1
        if m.meta[KEYS] + m.plan_n[m.j[SLOT, job]] + 8 > room:
            break
        entries = trial_profile(m, job, trial_t, trial_g)
        found = plan_promise(
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
        if not found.kept:
            break
        made = found.plan
        commit(m, job, made.end_s, made.real_s, out_t, out_g, made.entries, new_t, new_g, made.keys)
        spare -= m.levels[want] - m.j[GPUS, job]
        hold(m, job, m.levels[want])
        spent[job] = made.gpu_s
        if m.j[STATE, job] == WAITING:
            start(m, job)
    for i in range(count):
        m.lists[RUNNABLE, i] = rows[i]
    return trials
