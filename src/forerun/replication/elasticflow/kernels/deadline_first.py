"""EDF as the published simulator runs it: each job in deadline order takes as much as is free, from now on.

Profiles are as in `planner`: ascending instants and the GPUs free from each on.
"""

from __future__ import annotations

import numpy as np

from forerun.cluster.engine.kernels.arrays import I64
from forerun.core.kernels.jit import kernel
from forerun.replication.elasticflow.kernels.elastic import hold
from forerun.replication.elasticflow.kernels.events import register, set_end, start
from forerun.replication.elasticflow.kernels.plan_state import (
    DEADLINE,
    END,
    HOLDING,
    KIND,
    OLD_END,
    RUNNABLE,
    STATE,
    TOP,
    PlanState,
)
from forerun.replication.elasticflow.kernels.planner import (
    Grid,
    Ladder,
    Task,
    grid_up,
    key_before,
    level_within,
    put,
    tidy,
    whole_up,
)


@kernel
def plan_greedily(
    task: Task, ladder: Ladder, grid: Grid, exact: bool, free: I64, free_n: int, new: I64
) -> tuple[int, int, int]:
    """Plan a job at its largest count, or the largest free: (GPUs now, end, entries of the profile left).

    Unless `exact`, the free count at the end is written at the end's slot, which may be another key of the profile: a known
    bug.

    Parameters
    ----------
    task, ladder, grid : as of `planner.plan`.
    free, free_n : the profile, and its entries in use.
    new : written: the profile that remains.
    """
    left, _, rate, top = task
    levels, floor_level = ladder
    free_t, free_g, new_t, new_g = free[0], free[1], new[0], new[1]
    total = len(floor_level) - 1
    for i in range(free_n):
        new_t[i] = free_t[i]
        new_g[i] = free_g[i]
    count = free_n
    most = top - 1
    while most > 0 and levels[most] > total:
        most -= 1
    gpus_now = -1
    for i in range(free_n):
        begin_s = free_t[i]
        last = i + 1 == free_n
        # the published code trusts that nothing is taken after the last key
        there = total if last and not exact else free_g[i]
        at = most
        if there < levels[most]:
            at = min(most, level_within(floor_level, there))
            if at >= 0 and rate[at] <= 0.0:
                at = -1  # below the least that the job can run on
        held = levels[at] if at >= 0 else 0
        if gpus_now < 0:
            gpus_now = held
        if at < 0:
            continue
        end = whole_up(begin_s + left / rate[at])
        if not last and free_t[i + 1] < end:
            left -= (free_t[i + 1] - begin_s) * rate[at]
            new_g[i] -= held
            continue
        if last or not (at == most and begin_s == end):
            new_g[i] = there - held
        place_at = key_before(free_t, free_n, end) + 1
        if last or place_at >= free_n or free_t[place_at] != end:
            count = put(new, count, end if exact else grid_up(grid.now_s, end, grid.slot_s), there)
        return gpus_now, end, tidy(new, count)
    return gpus_now, grid.now_s, count


@kernel
def plan_everybody(
    m: PlanState, grid: Grid, rows: I64, count: int, exact: bool, whole: bool, gpus: I64, ends: I64
) -> None:
    """Plan jobs in order of deadline.

    Parameters
    ----------
    rows, count : the jobs, in that order, and how many.
    exact : as of `plan_greedily`.
    whole : whether every planned end is asked for. Else a job that never ran and comes after the last GPU was given away
        keeps the end it has: nobody asks for it before the job starts, and then it has another.
    gpus, ends : written, by row: GPUs now, and the planned end.
    """
    needed = count
    if not whole:
        # work below zero would let a plan end before now, and free a GPU there
        while needed > 0 and m.j[STATE, rows[needed - 1]] != HOLDING and m.left[rows[needed - 1]] > 0.0:
            needed -= 1
    ladder = Ladder(m.levels, m.floor_level)
    free, new = np.empty((2, 2 * count + 8), np.int64), np.empty((2, 2 * count + 8), np.int64)
    free[0, 0] = grid.now_s
    free[1, 0] = len(m.floor_level) - 1
    keys = 1
    for i in range(count):
        job = rows[i]
        if i >= needed and keys > 1 and m.floor_level[free[1, 0]] < 0:
            gpus[job], ends[job] = 0, m.j[END, job]
            continue
        task = Task(m.left[job], m.j[DEADLINE, job], m.rate[m.j[KIND, job]], m.j[TOP, job])
        gpus[job], ends[job], keys = plan_greedily(task, ladder, grid, exact, free, keys, new)
        free, new = new, free


@kernel
def take_plans(m: PlanState, gpus: I64, ends: I64, record: bool, only_placed: bool, set_old: bool) -> None:
    """Runnable jobs take their planned GPUs and ends; waiting ones that get some start.

    Parameters
    ----------
    gpus, ends : by row, as `plan_everybody` writes them.
    record : their present ends count as the old ones first.
    only_placed : jobs without GPUs keep their end.
    set_old : the new end counts as the old one afterwards.
    """
    for i in range(m.meta[RUNNABLE]):
        job = m.lists[RUNNABLE, i]
        hold(m, job, gpus[job])
        if only_placed and gpus[job] == 0:
            continue
        if record:
            m.j[OLD_END, job] = m.j[END, job]
        m.j[END, job] = ends[job]
        if m.j[STATE, job] == HOLDING:
            set_end(m, job)
        elif gpus[job] > 0:
            start(m, job)
            register(m, job)
        if set_old and (m.j[STATE, job] == HOLDING):
            m.j[OLD_END, job] = m.j[END, job]
