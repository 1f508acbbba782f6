"""Themis slot by slot: finish-time fairness in closed form, then a greedy fill.

Notation of the paper's objective: job i has waited a_i seconds, needs b_i more seconds on its n_i GPUs, and would by now
and to its end take D_i on its fair share of the cluster. With a fraction x_i of every slot it ends rho_i times later
than alone: rho_i = (a_i + b_i / x_i) / D_i. The schedule minimises the largest rho under sum(n x) <= N, 0 <= x <= 1.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.cluster.engine.kernels.order import rank_descending
from forerun.core.kernels.jit import kernel

CENTRE, LEAST, LEXIMIN = 0, 1, 2
#: seconds by which rounding may put an end behind the slot that it falls on
SLIP_S: Final = 1e-6

NOW_S, EVENT_S, ARRIVED, ACTIVE, ENDING, ENDED, OVER = range(7)


class ThemisJobs(NamedTuple):
    """What the schedule knows of the jobs, one element a job in order of submission.

    Parameters
    ----------
    submit_s : when they come.
    gpus : what they ask for, and get if anything.
    rate : iterations a second on these.
    restart_s, start_s : what a start costs, and the first one, where restarts cost anything.
    drain_s : until their GPUs are free when they are stopped; empty: at once.
    """

    submit_s: I64
    gpus: I64
    rate: F64  # iterations per second on the requested GPUs
    restart_s: I64
    start_s: I64
    drain_s: I64


class ThemisState(NamedTuple):
    """Where a run stands; changed in place.

    `order[:clock[ACTIVE]]` are the active jobs, most deserving first. `rate` x seconds drives `left`; `remaining_s`
    counts down beside it, as published. `isolated` is the work the job would have done alone on its share. `owed_s` is what
    is left of a restart, `pause_s` what was left of it when the present slot began.
    """

    clock: I64  # NOW_S, EVENT_S (time of the last event), ARRIVED, ACTIVE, ENDING, ENDED, OVER (1: finished)
    order: I64
    held: I64  # GPUs in the last slot
    begun: I64  # 1: it has had GPUs
    left: F64  # iterations
    remaining_s: F64
    owed_s: F64
    pause_s: F64
    isolated: F64
    left_before: F64
    share_before: F64
    overhead_s: F64
    judged_s: F64  # when it was admitted
    end_s: F64  # -1 until known
    ended: I64  # rows in order of completion
    ended_at_s: I64


class ThemisRules(NamedTuple):
    """Parameters of the schedule.

    Parameters
    ----------
    total_gpus, slot_s : size of the cluster, and length of a slot.
    order_by : how jobs are ranked where the optimum leaves a choice: CENTRE, LEAST or LEXIMIN.
    unit_is_throughput : a fair share counts in iterations, not as if it were the throughput itself.
    now_is_present : fairness is judged at the present, not at the last event.
    restarts_cost : restarts cost what they cost under other schedules.
    first_apart : the first start has a cost of its own.
    ends_with_work : a job ends when its iterations are done, not with the slot, or when its duration is over.
    """

    total_gpus: int
    slot_s: int
    order_by: int
    unit_is_throughput: bool
    now_is_present: bool
    restarts_cost: bool
    first_apart: bool
    ends_with_work: bool


class EventBlock(NamedTuple):
    """Space for events: event i, at `time_s[i]`, changed `rows[first[i]:first[i + 1]]` to `gpus[...]`.

    `pending[i]` jobs wait after it.
    """

    time_s: I64
    pending: I64
    first: I64
    rows: I64
    gpus: I64


@kernel
def share_at(rho: float, a: float, b: float, d: float) -> float:
    """The least x with which a job ends at most rho times later than alone, at most 1."""
    bracket = rho * d - a
    return 1.0 if bracket <= 0.0 else min(1.0, b / bracket)


@kernel
def demand_at(rho: float, a: F64, b: F64, d: F64, n: F64) -> float:
    """GPUs needed for all jobs to be at most rho times later than alone."""
    total = 0.0
    for i in range(len(a)):
        total += n[i] * share_at(rho, a[i], b[i], d[i])
    return total


@kernel
def least_rho(low: float, a: F64, b: F64, d: F64, n: F64, total_gpus: float) -> float:
    """The least rho above `low` whose demand fits the cluster: 200 halvings, the feasible end."""
    high = max(low, 1e-300)
    while demand_at(high, a, b, d, n) > total_gpus:
        high *= 2.0
    for _ in range(200):
        middle = (low + high) / 2.0
        if demand_at(middle, a, b, d, n) > total_gpus:
            low = middle
        else:
            high = middle
    return high


@kernel
def centre_at(mu: float, n: F64, least: F64, x: F64) -> float:
    """Maximise sum(log(x - m) + log(1 - x)) - mu sum(n x), per job in closed form, into `x`; returns sum(n x).

    `least` holds m. With w = 1 - m and c = mu n: x = m + ((c w + 2) - sqrt((c w)^2 + 4)) / (2 c).
    """
    total = 0.0
    for i in range(len(n)):
        w = 1.0 - least[i]
        c = mu * n[i]
        cw = c * w
        if w == 0.0:
            x[i] = least[i]
        elif cw < 1e-9:
            x[i] = least[i] + w / 2.0
        else:
            x[i] = least[i] + ((cw + 2.0) - math.sqrt(cw * cw + 4.0)) / (2.0 * c)
        total += n[i] * x[i]
    return total


@kernel
def analytic_centre(n: F64, least: F64, total_gpus: float, x: F64) -> None:
    """The point an interior method leaves: maximise sum(log(x-m) + log(1-x)) + log(N - sum(n x)), into `x`.

    mu (N - sum(n x)) = 1 at the optimum; log10 mu is bisected in [-12, 12], 60 halvings, upper end.
    """
    low, high = -12.0, 12.0
    for _ in range(60):
        middle = (low + high) / 2.0
        mu = 10.0**middle
        if mu * (total_gpus - centre_at(mu, n, least, x)) >= 1.0:
            high = middle
        else:
            low = middle
    centre_at(10.0**high, n, least, x)


@kernel
def shares(a: F64, b: F64, d: F64, n: F64, total_gpus: float, order_by: int, x: F64) -> None:
    """A point x that minimises the largest rho, into `x`.

    Where the worst job alone fixes rho the optimum is a set: `order_by` picks its analytic centre, its least point
    or the one that goes on lowering the next-worst rho (leximin).

    Parameters
    ----------
    a, b, d, n : seconds waited, seconds needed, seconds on a fair share, and GPUs, as in the module's notation.
    total_gpus : N.
    """
    rho = (a[0] + b[0]) / d[0]
    for i in range(1, len(a)):
        rho = max(rho, (a[i] + b[i]) / d[i])
    crowded = demand_at(rho, a, b, d, n) > total_gpus
    if crowded:
        rho = least_rho(rho, a, b, d, n, total_gpus)
    elif order_by == LEXIMIN:
        rho = least_rho(0.0, a, b, d, n, total_gpus)
    for i in range(len(a)):
        x[i] = share_at(rho, a[i], b[i], d[i])
    if not crowded and order_by == CENTRE:
        least = np.empty(len(a))
        for i in range(len(a)):
            least[i] = x[i]
        analytic_centre(n, least, total_gpus, x)


@kernel
def _take_events(jobs: ThemisJobs, state: ThemisState) -> None:
    """Jobs that ended in the last slot leave, jobs submitted since it join at the end of the order."""
    clock, order = state.clock, state.order
    now_s = clock[NOW_S]
    if clock[ENDING]:
        kept = 0
        for i in range(clock[ACTIVE]):
            row = order[i]
            if state.end_s[row] < 0:
                order[kept] = row
                kept += 1
            else:
                state.ended[clock[ENDED]] = row
                state.ended_at_s[clock[ENDED]] = now_s
                clock[ENDED] += 1
        clock[ACTIVE], clock[ENDING], clock[EVENT_S] = kept, 0, now_s
    while clock[ARRIVED] < len(jobs.submit_s) and jobs.submit_s[clock[ARRIVED]] <= now_s:
        order[clock[ACTIVE]] = clock[ARRIVED]
        state.judged_s[clock[ARRIVED]] = now_s
        clock[ACTIVE] += 1
        clock[ARRIVED] += 1
        clock[EVENT_S] = now_s


@kernel
def see(jobs: ThemisJobs, state: ThemisState, left: F64, owed_s: F64, ended_s: F64) -> None:
    """Take what was observed of the active jobs in place of what the last slot was expected to do; arrays by row.

    Parameters
    ----------
    left : iterations left.
    owed_s : seconds until a job with GPUs works again.
    ended_s : when a job ended; nan: it has not.
    """
    state.clock[ENDING] = 0
    for i in range(state.clock[ACTIVE]):
        row = state.order[i]
        state.left[row] = left[row]
        state.owed_s[row] = owed_s[row]
        state.remaining_s[row] = left[row] / jobs.rate[row]
        state.end_s[row] = -1.0
        if not np.isnan(ended_s[row]):
            state.end_s[row] = ended_s[row]
            state.clock[ENDING] += 1


@kernel
def _rank(jobs: ThemisJobs, state: ThemisState, rules: ThemisRules) -> None:
    """Sort the active jobs by their share of the fair optimum, largest first; equal ones keep their order."""
    active = state.clock[ACTIVE]
    judged_s = state.clock[NOW_S] if rules.now_is_present else state.clock[EVENT_S]
    a, b, d = np.empty(active), np.empty(active), np.empty(active)
    n, x, rows = np.empty(active), np.empty(active), np.empty(active, np.int64)
    fair_gpus = -(-rules.total_gpus // active)
    for i in range(active):
        row = state.order[i]
        share = min(1.0, fair_gpus / jobs.gpus[row])
        if rules.unit_is_throughput:
            share *= jobs.rate[row]
        state.isolated[row] += (state.left_before[row] - state.left[row]) / state.share_before[row]
        state.left_before[row] = state.left[row]
        state.share_before[row] = share
        a[i] = judged_s - jobs.submit_s[row]
        b[i] = state.left[row] / jobs.rate[row]
        d[i] = state.isolated[row] + state.left[row] / share
        n[i] = jobs.gpus[row]
    shares(a, b, d, n, float(rules.total_gpus), rules.order_by, x)
    by_share = rank_descending(x)
    for i in range(active):
        rows[i] = state.order[i]
    for i in range(active):
        state.order[i] = rows[by_share[i]]


@kernel
def _wait_s(jobs: ThemisJobs, state: ThemisState, free: int) -> int:
    """How long those who start in this slot wait for the slowest of those who stop."""
    wait_s = 0
    for i in range(state.clock[ACTIVE] if len(jobs.drain_s) > 0 else 0):
        row = state.order[i]
        if jobs.gpus[row] <= free:
            free -= jobs.gpus[row]
        elif state.held[row] > 0:
            wait_s = max(wait_s, jobs.drain_s[row])
    return wait_s


@kernel
def _run(jobs: ThemisJobs, state: ThemisState, rules: ThemisRules, row: int, wait_s: int) -> None:
    """One job holds its GPUs for a slot; one that will be done by the slot's end is marked."""
    now_s, slot_s = state.clock[NOW_S], rules.slot_s
    worked_s = float(slot_s)
    if rules.restarts_cost and state.held[row] == 0:
        cost_s = jobs.restart_s[row]
        if rules.first_apart and state.begun[row] == 0:
            cost_s = jobs.start_s[row]
        state.owed_s[row] = float(cost_s + wait_s)
    state.pause_s[row] = state.owed_s[row]
    lost_s = min(state.owed_s[row], worked_s)
    worked_s -= lost_s
    state.owed_s[row] -= lost_s
    state.remaining_s[row] += lost_s
    state.overhead_s[row] += lost_s
    state.begun[row] = 1
    end_s = now_s + state.remaining_s[row]
    if rules.ends_with_work:
        end_s = now_s + state.pause_s[row] + state.left[row] / jobs.rate[row]
    state.remaining_s[row] = max(0.0, state.remaining_s[row] - slot_s)
    state.left[row] -= worked_s * jobs.rate[row]
    if state.left[row] <= 0.0 and not rules.ends_with_work:
        state.remaining_s[row] = 0.0
        end_s = float(now_s + slot_s)
    if end_s <= now_s + slot_s + SLIP_S:
        state.end_s[row] = min(end_s, float(now_s + slot_s))
        state.clock[ENDING] += 1


@kernel
def advance(jobs: ThemisJobs, state: ThemisState, rules: ThemisRules, block: EventBlock) -> int:
    """Play slots until the block is full or the run is over; the number of events written.

    Every slot is an event, idle ones too. Cutting a run into blocks of any size does not change it.
    """
    clock = state.clock
    count, used = 0, 0
    while count < len(block.time_s) and used + 2 * len(jobs.gpus) <= len(block.rows) and not clock[OVER]:
        _take_events(jobs, state)
        active = clock[ACTIVE]
        leaving_from = clock[ENDED]
        while leaving_from > 0 and state.ended_at_s[leaving_from - 1] == clock[NOW_S]:
            leaving_from -= 1
        for i in range(leaving_from, clock[ENDED]):
            row = state.ended[i]
            block.rows[used], block.gpus[used] = row, 0
            state.held[row] = 0
            used += 1
        if active:
            _rank(jobs, state, rules)
        free, waiting = rules.total_gpus, 0
        wait_s = _wait_s(jobs, state, free)
        for i in range(active):
            row = state.order[i]
            if jobs.gpus[row] <= free:
                free -= jobs.gpus[row]
                _run(jobs, state, rules, row, wait_s)
                granted = jobs.gpus[row]
            else:
                granted = 0
                waiting += 1
            if granted != state.held[row]:
                block.rows[used], block.gpus[used] = row, granted
                state.held[row] = granted
                used += 1
        block.time_s[count], block.pending[count] = clock[NOW_S], waiting
        count += 1
        block.first[count] = used
        if clock[ARRIVED] == len(jobs.submit_s) and clock[ENDING] == 0 and free == rules.total_gpus:
            clock[OVER] = 1  # no job left, or only jobs larger than the cluster
        clock[NOW_S] += rules.slot_s
    return count
