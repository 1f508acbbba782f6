"""ElasticFlow at one instant: plan all jobs, admit, distribute spare GPUs, place, look ahead.

The planner is in `planner`, the machine in `machine`. Flags: `FLAG_*` places of an int64 array, 1 where the published
behaviour is corrected.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.domains.cluster.engine.kernels.arrays import BOOL, I64
from forerun.domains.cluster.engine.kernels.order import rank_descending
from forerun.domains.cluster.engine.kernels.plan_state import (
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
    PENDING,
    PLANNED,
    RUNNABLE,
    RUNNING,
    SLOT,
    STATE,
    SUBMIT,
    TOP,
    WAITING,
    WAKES,
    PlanState,
    add_wake,
    register,
    set_end,
    start,
)
from forerun.domains.cluster.engine.kernels.planner import (
    Planned,
    gpu_time,
    grid_up,
    key_before,
    next_level,
    plan,
    whole_up,
)
from forerun.kernels.jit import kernel

LEAST_FIRST: Final = 0  # marginal_order
ANCHOR_ZERO: Final = 1  # grid_anchor
RESERVE: Final = 2  # admission_overhead

#: no boost: the planner chooses the share. A constant passed on as it is has a type of its own, and the callee would be
#: compiled once more for it; hence `int(...)` where constants are handed to kernels
NO_LEVEL: Final = -1


@kernel
def plan_job(
    m: PlanState,
    job: int,
    now_s: int,
    slot_s: int,
    flags: I64,
    reserve_s: I64,
    free_t: I64,
    free_g: I64,
    free_n: int,
    assign: int,
    out_t: I64,
    out_g: I64,
    new_t: I64,
    new_g: I64,
) -> Planned:
    """`planner.plan` with a job's own numbers; the deadline is moved forward by what is reserved for overhead."""
    return plan(
        m.left[job],
        m.j[DEADLINE, job] - reserve_s[job],
        m.rate[m.j[KIND, job]],
        m.j[TOP, job],
        m.levels,
        m.floor_level,
        now_s,
        slot_s,
        0 if flags[ANCHOR_ZERO] else -1,
        free_t,
        free_g,
        free_n,
        assign,
        out_t,
        out_g,
        new_t,
        new_g,
    )


@kernel
def commit(
    m: PlanState,
    job: int,
    end_s: int,
    real_s: int,
    times: I64,
    gpus: I64,
    entries: int,
    new_t: I64,
    new_g: I64,
    keys: int,
) -> None:
    """Take a plan over: the job's own and the profile it leaves."""
    at = m.j[SLOT, job]
    if at < 0:
        at = m.j[SLOT, job] = m.free_slots[m.free_slots[0]]
        m.free_slots[0] -= 1
    for i in range(entries):
        m.plans[0, at, i] = times[i]
        m.plans[1, at, i] = gpus[i]
    m.plan_n[at] = entries
    for i in range(keys):
        m.free[0, i] = new_t[i]
        m.free[1, i] = new_g[i]
    m.meta[KEYS] = keys
    m.j[END, job] = end_s
    m.j[PLANNED, job] = real_s


@kernel
def plan_all(
    m: PlanState,
    rows: I64,
    count: int,
    now_s: int,
    slot_s: int,
    flags: I64,
    reserve_s: I64,
    record: bool,
    late: BOOL,
) -> bool:
    """Plan a list of jobs afresh, earliest deadline first, and commit; whether all meet their deadlines.

    `rows` come in order of deadline. With `record` their present ends count as the old ones. `late` tells which do not,
    by position.
    """
    if record:
        for i in range(count):
            m.j[OLD_END, rows[i]] = m.j[END, rows[i]]
    m.free[0, 0] = now_s
    m.free[1, 0] = len(m.floor_level) - 1
    m.meta[KEYS] = 1
    capacity = len(m.free[0])
    out_t, out_g = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    new_t, new_g = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    fine = True
    for i in range(count):
        job = rows[i]
        planned = plan_job(
            m,
            job,
            now_s,
            slot_s,
            flags,
            reserve_s,
            m.free[0],
            m.free[1],
            m.meta[KEYS],
            int(NO_LEVEL),
            out_t,
            out_g,
            new_t,
            new_g,
        )
        commit(
            m, job, planned.end_s, planned.real_s, out_t, out_g, planned.entries, new_t, new_g, planned.keys
        )
        late[i] = not planned.in_time
        fine &= planned.in_time
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
    m.j[LEVEL, job] = m.floor_level[gpus] if gpus > 0 else -1


@kernel
def apply_plans(m: PlanState, now_s: int, also_waiting: bool) -> None:
    """Jobs take what their plans give them now; end events follow (those of waiting jobs too, where asked)."""
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

    `gpu_s` of the plan; -1: the job would be late, so the whole planner is needed. The trial knows the profile (with the
    job's own plan given back) only by the instant it first changes, `change_s`, and from `low_s` to the deadline's slot.
    """

    gpu_s: int
    change_s: int
    low_s: int


@kernel
def window_before(m: PlanState, job: int, until_s: int, out_t: I64, out_g: I64) -> int:
    """The free profile before an instant, with a job's own plan given back, tidy; the number of entries."""
    at = m.j[SLOT, job]
    own_t, own_g, own_n = m.plans[0, at], m.plans[1, at], m.plan_n[at]
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
def try_level(
    m: PlanState,
    job: int,
    now_s: int,
    slot_s: int,
    flags: I64,
    reserve_s: I64,
    want: int,
    keys_t: I64,
    keys_g: I64,
) -> Trial:
    """The GPU time of a boost trial, without the plan itself: `planner.plan` for the case that the deadline is met."""
    rate = m.rate[m.j[KIND, job]]
    deadline_s = m.j[DEADLINE, job] - reserve_s[job]
    anchor = 0 if flags[ANCHOR_ZERO] else now_s
    aligned = grid_up(anchor, deadline_s, slot_s)
    late = Trial(-1, now_s, now_s)
    if aligned <= now_s:
        return late
    left = m.left[job]
    held = m.levels[want]
    real = whole_up(now_s + left / rate[want])
    count = window_before(m, job, aligned, keys_t, keys_g)
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
            free = keys_g[i]
            if free >= share:
                done += (until - keys_t[i]) * rate[level]
                if done >= left:
                    switch = i
                    break
            elif free > 0 and m.floor_level[free] >= 0:
                done += (until - keys_t[i]) * rate[m.floor_level[free]]
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
        free = keys_g[i]
        if free < m.levels[at]:
            at = m.floor_level[free] if free > 0 else -1
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
        until = grid_up(0 if flags[ANCHOR_ZERO] else keys_t[i], ended, slot_s)
    spent += m.levels[at] * (until - keys_t[i])
    return Trial(spent, change, low_s)


@kernel
def changed_spans(old_t: I64, old_g: I64, old_n: int, new_t: I64, new_g: I64, new_n: int, out: I64) -> int:
    """Where two profiles differ: spans [out[0, i], out[1, i]), out[2, i] the difference at a span's begin; their number.

    The first span ends where the difference first changes.
    """
    count = 0
    i, k = 0, 0
    old, new = 0, 0
    before = 0
    while i < old_n or k < new_n:
        time_s = int(FAR)
        if i < old_n:
            time_s = old_t[i]
        if k < new_n and new_t[k] < time_s:
            time_s = new_t[k]
        if i < old_n and old_t[i] == time_s:
            old = old_g[i]
            i += 1
        if k < new_n and new_t[k] == time_s:
            new = new_g[k]
            k += 1
        differ = new - old
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


@kernel
def drop_fallen(
    m: PlanState, jobs: I64, after: I64, change: I64, low: I64, due_s: I64, spans: I64, differing: int
) -> None:
    """Forget the trials (`after` -1) that are not what they were, now that the profile has changed within some spans."""
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


@kernel
def boost(m: PlanState, now_s: int, slot_s: int, flags: I64, reserve_s: I64, registered: bool) -> int:
    """Hand spare GPUs out, one level to one job at a time, by the GPU time that a level more costs; the trials made.

    A trial gives the job one level more until the profile first changes and plans the rest afresh. It is made again only
    where somebody's new share changed the profile it rests on. The order of equals is that of the rounds before, so
    `runnable` keeps every sort.
    """
    count = m.meta[RUNNABLE]
    total = len(m.floor_level) - 1
    spare = total
    for i in range(count):
        spare -= m.j[GPUS, m.lists[RUNNABLE, i]]
    if spare <= 0 or count == 0:
        return 0
    sign = -1.0 if flags[LEAST_FIRST] else 1.0
    capacity = len(m.free[0])
    trial_t, trial_g = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    out_t, out_g = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    new_t, new_g = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    spans = np.empty((3, 2 * capacity), np.int64)
    rows, j, levels, top = m.lists[RUNNABLE], m.j, m.levels, m.j[TOP]
    jobs, order = np.empty(count, np.int64), np.empty(count, np.int64)
    worth = np.empty(count, np.float64)
    spent, due_s = np.empty(count, np.int64), np.empty(count, np.int64)
    more = np.empty(count, np.int64)  # GPUs to the next level; -1: there is none
    after = np.empty(count, np.int64)  # GPU time of the trial that stands; -1: none does
    change, low = np.empty(count, np.int64), np.empty(count, np.int64)
    anchor = 0 if flags[ANCHOR_ZERO] else now_s
    trials = 0
    for p in range(count):
        job = jobs[p] = rows[p]
        order[p], worth[p], after[p] = p, -np.inf, -1
        at = j[SLOT, job]
        spent[p] = gpu_time(m.plans[0, at], m.plans[1, at], m.plan_n[at], j[END, job])
        due_s[p] = grid_up(anchor, j[DEADLINE, job] - reserve_s[job], slot_s)
        want = next_level(m.rate[j[KIND, job]], j[LEVEL, job], top[job])
        more[p] = levels[want] - j[GPUS, job] if want < top[job] else -1
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
            trials += 1
            trial = try_level(m, job, now_s, slot_s, flags, reserve_s, want, trial_t, trial_g)
            after[p], change[p], low[p] = trial.gpu_s, trial.change_s, trial.low_s
            gpu_s = after[p]
            if gpu_s < 0:
                entries = window_before(m, job, int(FAR), trial_t, trial_g)
                gpu_s = plan_job(
                    m,
                    job,
                    now_s,
                    slot_s,
                    flags,
                    reserve_s,
                    trial_t,
                    trial_g,
                    entries,
                    want,
                    out_t,
                    out_g,
                    new_t,
                    new_g,
                ).gpu_s
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
        entries = window_before(m, chosen, int(FAR), trial_t, trial_g)
        planned = plan_job(
            m,
            chosen,
            now_s,
            slot_s,
            flags,
            reserve_s,
            trial_t,
            trial_g,
            entries,
            want,
            out_t,
            out_g,
            new_t,
            new_g,
        )
        differing = changed_spans(m.free[0], m.free[1], m.meta[KEYS], new_t, new_g, planned.keys, spans)
        m.j[OLD_END, chosen] = m.j[END, chosen]
        commit(
            m,
            chosen,
            planned.end_s,
            planned.real_s,
            out_t,
            out_g,
            planned.entries,
            new_t,
            new_g,
            planned.keys,
        )
        spare -= more[picked]
        hold(m, chosen, levels[want])
        more[picked] = levels[want + 1] - levels[want] if want + 1 < top[chosen] else -1
        spent[picked] = planned.gpu_s
        after[picked] = -1
        drop_fallen(m, jobs, after, change, low, due_s, spans, differing)
        if m.j[STATE, chosen] == WAITING:
            start(m, chosen)
            if registered:
                set_end(m, chosen)
            else:
                register(m, chosen)
        else:
            set_end(m, chosen)
    for i in range(count):
        m.lists[RUNNABLE, i] = jobs[order[i]]
    return trials


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
    """The instant of the first event ahead; far away if there is none."""
    least = int(FAR)
    if m.meta[ARRIVED] < len(m.j[SUBMIT]):
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
