"""Elastic scaling: plans are committed, spare GPUs are counted, and trials of one more level kept while they hold.

The planner is in `planner`, the state in `plan_state`. `reserve_s`, int64[jobs]: what a plan keeps free before a deadline.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.core.kernels.jit import kernel
from forerun.replication.elasticflow.kernels.plan_state import (
    DEADLINE,
    END,
    FAR,
    GPUS,
    KEYS,
    PLANNED,
    RUNNABLE,
    SLOT,
    PlanState,
)
from forerun.replication.elasticflow.kernels.planner import (
    Grid,
    Planned,
    gpu_time,
    grid_up,
    key_before,
)

#: no boost: the planner chooses the share. A constant passed on as it is has a type of its own, and the callee would be
#: compiled once more for it; hence `int(...)` where constants are handed to kernels
NO_LEVEL: Final = -1


@kernel
def commit(m: PlanState, job: int, made: Planned, out: I64, new: I64) -> None:
    """Make a plan the job's own, and the profile that it leaves the cluster's.

    Parameters
    ----------
    made : what the plan comes to.
    out, new : the plan and the profile, as `planner.plan` writes them.
    """
    at = m.j[SLOT, job]
    if at < 0:
        at = m.j[SLOT, job] = m.free_slots[m.free_slots[0]]
        m.free_slots[0] -= 1
    for i in range(made.entries):
        m.plans[0, at, i] = out[0, i]
        m.plans[1, at, i] = out[1, i]
    m.plan_n[at] = made.entries
    for i in range(made.keys):
        m.free[0, i] = new[0, i]
        m.free[1, i] = new[1, i]
    m.meta[KEYS] = made.keys
    m.j[END, job] = made.end_s
    m.j[PLANNED, job] = made.real_s


@kernel
def empty_profile(m: PlanState, now_s: int) -> None:
    """All GPUs are free from now on."""
    m.free[0, 0] = now_s
    m.free[1, 0] = len(m.floor_level) - 1
    m.meta[KEYS] = 1


@kernel
def window_before(m: PlanState, job: int, until_s: int, out: I64) -> int:
    """The free profile before an instant, with a job's own plan given back, tidy, into `out`; the number of entries."""
    at = m.j[SLOT, job]
    own_t, own_g, own_n = m.plans[0, at], m.plans[1, at], m.plan_n[at]
    out_t, out_g = out[0], out[1]
    free_t, free_g, keys = m.free[0], m.free[1], m.meta[KEYS]
    end_s = m.j[END, job]
    free, own = free_g[0], own_g[0]
    next_free = free_t[1] if keys > 1 else int(FAR)
    next_own = min(own_t[1], end_s) if own_n > 1 else end_s
    if end_s <= free_t[0]:
        own, next_own = 0, int(FAR)
    held = free + own
    out_t[0] = free_t[0]
    out_g[0] = held
    count = 1
    i, k = 1, 1
    while True:
        time_s = min(next_free, next_own)
        if time_s >= until_s:
            return count
        if next_free == time_s:
            free = free_g[i]
            i += 1
            next_free = free_t[i] if i < keys else int(FAR)
        if next_own == time_s:
            if time_s >= end_s:
                own = 0
                next_own = int(FAR)
            else:
                own = own_g[k]
                k += 1
                next_own = min(own_t[k], end_s) if k < own_n else end_s
        if free + own != held:
            held = free + own
            out_t[count] = time_s
            out_g[count] = held
            count += 1


@kernel
def changed_spans(old: I64, old_n: int, new: I64, new_n: int, out: I64) -> int:
    """Where two profiles differ: spans [out[0, i], out[1, i]); their number. The first ends where the difference changes."""
    old_t, old_g, new_t, new_g = old[0], old[1], new[0], new[1]
    count = 0
    i, k = 0, 0
    was, now, before = 0, 0, 0
    while i < old_n or k < new_n:
        time_s = int(FAR)
        if i < old_n:
            time_s = old_t[i]
        if k < new_n and new_t[k] < time_s:
            time_s = new_t[k]
        if i < old_n and old_t[i] == time_s:
            was = old_g[i]
            i += 1
        if k < new_n and new_t[k] == time_s:
            now = new_g[k]
            k += 1
        differ = now - was
        if differ != 0 and (before == 0 or (count == 1 and differ != before)):
            if before != 0:
                out[1, 0] = time_s
            out[0, count] = time_s
            count += 1
        elif differ == 0 and before != 0:
            out[1, count - 1] = time_s
        before = differ
    if before != 0:
        out[1, count - 1] = int(FAR)
    return count


class Boost(NamedTuple):
    """Runnable jobs while spare GPUs are handed out; one element a job, in the order in which the schedule lists them.

    Parameters
    ----------
    jobs : their rows.
    worth : what one level more is worth; -inf: it cannot be had.
    spent : GPU time of the job's plan.
    due_s : slot of the deadline.
    after : GPU time of the trial that stands; -1: none does.
    change, low : what that trial rests on, as of `Trial`.
    """

    jobs: I64
    worth: F64
    spent: I64
    due_s: I64
    after: I64
    change: I64
    low: I64


@kernel
def spare_gpus(m: PlanState) -> int:
    """GPUs that no runnable job has."""
    spare = len(m.floor_level) - 1
    for i in range(m.meta[RUNNABLE]):
        spare -= m.j[GPUS, m.lists[RUNNABLE, i]]
    return spare


@kernel
def begin_boost(m: PlanState, grid: Grid, reserve_s: I64) -> Boost:
    """The runnable jobs before any trial. `reserve_s` as of `plan_all`; empty: nothing is reserved."""
    count = m.meta[RUNNABLE]
    spent, due_s = np.empty(count, np.int64), np.empty(count, np.int64)
    change, low = np.empty(count, np.int64), np.empty(count, np.int64)
    anchor = grid.now_s if grid.anchor_s < 0 else grid.anchor_s
    jobs = m.lists[RUNNABLE, :count].copy()
    for p in range(count):
        job = jobs[p]
        at = m.j[SLOT, job]
        spent[p] = gpu_time(m.plans[0, at], m.plans[1, at], m.plan_n[at], m.j[END, job])
        reserved = reserve_s[job] if len(reserve_s) > 0 else 0
        due_s[p] = grid_up(anchor, m.j[DEADLINE, job] - reserved, grid.slot_s)
    return Boost(jobs, np.full(count, -np.inf), spent, due_s, np.full(count, -1), change, low)


@kernel
def drop_fallen(m: PlanState, trials: Boost, spans: I64, differing: int) -> None:
    """Forget the trials (`after` -1) that are not what they were, now that the profile has changed within some spans.

    Parameters
    ----------
    trials : the jobs and their trials.
    spans, differing : where the profile changed, and the number of spans, as of `changed_spans`.
    """
    jobs, after, change, low, due_s = trials.jobs, trials.after, trials.change, trials.low, trials.due_s
    plans, plan_n, free, keys = m.plans, m.plan_n, m.free, m.meta[KEYS]
    slots, ends = m.j[SLOT], m.j[END]
    first_until = spans[1, 0]
    for p in range(len(jobs)):
        if after[p] < 0:
            continue
        if change[p] > low[p]:  # done before the profile changes: it need only stay level until then
            stands = first_until >= low[p]
        elif first_until < change[p]:
            stands = False
        else:
            last = differing - 1
            while spans[0, last] >= due_s[p]:
                last -= 1
            stands = spans[1, last] <= low[p] if low[p] == change[p] else spans[1, last] < low[p]
            if stands and first_until == change[p]:
                # does the profile, with the job's own plan given back, still change there?
                at = slots[jobs[p]]
                spot = key_before(plans[0, at], plan_n[at], first_until + 1)
                own = plans[1, at, spot] if first_until < ends[jobs[p]] else 0
                now = free[1, key_before(free[0], keys, first_until + 1)]
                stands = now + own != free[1, 0] + plans[1, at, 0]
        if not stands:
            after[p] = -1
