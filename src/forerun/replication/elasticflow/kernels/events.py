"""The published simulator's events: which instant is next, the work done until then, and what jobs pay for restarts."""

from __future__ import annotations

import numpy as np

from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.core.kernels.jit import kernel
from forerun.replication.elasticflow.kernels.plan_state import (
    ACCEPTED,
    ARRIVED,
    CAP,
    CHARGED,
    END,
    ENDING,
    ENDS,
    EVENT_AT,
    FAR,
    FIRST,
    FIRST_NODE,
    GPUS,
    HIT,
    HOLDING,
    JOBS_IN,
    KIND,
    LAST_GPUS,
    LEVEL,
    MY_TURN,
    OLD_END,
    OPEN,
    PENDING,
    PLANNED,
    RUNNABLE,
    RUNNING,
    SLO,
    STATE,
    SUBMIT,
    TICKS,
    TURN,
    WAKES,
    Places,
    PlanState,
    remove,
)
from forerun.replication.elasticflow.kernels.planner import key_before, whole_up
from forerun.replication.elasticflow.kernels.restarts import overhead_s


@kernel
def is_wake(m: PlanState, time_s: int) -> bool:
    """Whether an empty wake-up event stands at an instant."""
    place = key_before(m.wakes, m.meta[WAKES], time_s) + 1
    return bool(place < m.meta[WAKES] and m.wakes[place] == time_s)


@kernel
def is_event(m: PlanState, time_s: int) -> bool:
    """Whether any event stands at an instant."""
    if is_wake(m, time_s):
        return True
    place = m.meta[ARRIVED] + np.searchsorted(m.j[SUBMIT, m.meta[ARRIVED] :], time_s)
    if place < len(m.j[SUBMIT]) and m.j[SUBMIT, place] == time_s:
        return True
    due = False
    for i in range(m.meta[RUNNABLE]):
        due |= m.j[EVENT_AT, m.lists[RUNNABLE, i]] == time_s
    return bool(due)


@kernel
def add_wake(m: PlanState, time_s: int) -> None:
    """Put an empty event at an instant if none is there."""
    if is_event(m, time_s):
        return
    count = m.meta[WAKES]
    place = key_before(m.wakes, count, time_s) + 1
    for i in range(count, place, -1):
        m.wakes[i] = m.wakes[i - 1]
    m.wakes[place] = time_s
    m.meta[WAKES] = count + 1


@kernel
def drop_wake(m: PlanState, time_s: int) -> None:
    """Take the empty event at an instant away."""
    place = key_before(m.wakes, m.meta[WAKES], time_s) + 1
    for i in range(place, m.meta[WAKES] - 1):
        m.wakes[i] = m.wakes[i + 1]
    m.meta[WAKES] -= 1


@kernel
def register(m: PlanState, job: int) -> None:
    """Put a job into the event at its end."""
    m.j[EVENT_AT, job] = m.j[END, job]
    m.j[MY_TURN, job] = m.meta[TURN]
    m.meta[TURN] += 1


@kernel
def set_end(m: PlanState, job: int) -> None:
    """Move a job from the event at its old end to the one at its new end; an event left empty goes, wake-up or not."""
    old = m.j[OLD_END, job]
    if old == m.j[END, job]:
        return
    if m.j[EVENT_AT, job] == old and old >= 0:
        m.j[EVENT_AT, job] = -1
        if is_wake(m, old):
            alone = True
            for i in range(m.meta[RUNNABLE]):
                alone &= m.j[EVENT_AT, m.lists[RUNNABLE, i]] != old
            if alone:
                drop_wake(m, old)
    register(m, job)


@kernel
def next_instant(m: PlanState, now_s: int, slot_s: int) -> int:
    """The next instant: events within a slot of now are postponed to the slot's end; -1 if no event is left.

    A lone last event is not postponed, where no more jobs can come.
    """
    jobs = len(m.j[SUBMIT])
    first, second = int(FAR), int(FAR)  # the two least distinct instants of events
    arrived = m.meta[ARRIVED]
    if arrived < jobs:
        first = m.j[SUBMIT, arrived]
        later = np.searchsorted(m.j[SUBMIT, arrived:], first, side="right") + arrived
        if later < jobs:
            second = m.j[SUBMIT, later]
    for i in range(m.meta[WAKES]):
        if i > 1:
            break
        first, second = two_least(first, second, m.wakes[i])
    for i in range(m.meta[RUNNABLE]):
        time_s = m.j[EVENT_AT, m.lists[RUNNABLE, i]]
        if time_s >= 0:
            first, second = two_least(first, second, time_s)
    if first == FAR:
        return -1
    if first - now_s <= slot_s and (second < FAR or m.meta[OPEN] == 1):
        return now_s + slot_s
    return first


@kernel
def go_on(m: PlanState, now_s: int, slot_s: int) -> int:
    """Go to the next instant, in one call; -1 if no event is left."""
    moment = next_instant(m, now_s, slot_s)
    if moment >= 0:
        take_events(m, moment)
    return moment


@kernel
def take_events(m: PlanState, moment: int) -> None:
    """Go to an instant: move `FIRST` and `ARRIVED` around the rows that arrive by then, and use wake-ups until then up.

    Writes the rows that end by then into the list `ENDING`, in order.
    """
    jobs = len(m.j[SUBMIT])
    arrived = m.meta[ARRIVED]
    m.meta[FIRST] = arrived
    while arrived < jobs and m.j[SUBMIT, arrived] <= moment:
        arrived += 1
    m.meta[ARRIVED] = arrived
    gone = 0
    while gone < m.meta[WAKES] and m.wakes[gone] <= moment:
        gone += 1
    for i in range(gone, m.meta[WAKES]):
        m.wakes[i - gone] = m.wakes[i]
    m.meta[WAKES] -= gone
    _collect_ends(m, moment)


@kernel
def two_least(first: int, second: int, time_s: int) -> tuple[int, int]:
    """The two least distinct instants, with one more looked at."""
    if time_s < first:
        return time_s, first
    if first < time_s < second:
        return first, time_s
    return first, second


@kernel
def _collect_ends(m: PlanState, moment: int) -> None:
    """The rows whose end events were postponed to this moment, by (instant, turn)."""
    count = 0
    for i in range(m.meta[RUNNABLE]):
        job = m.lists[RUNNABLE, i]
        if 0 <= m.j[EVENT_AT, job] <= moment:
            place = count
            while place > 0 and _later(m, m.lists[ENDING, place - 1], job):
                m.lists[ENDING, place] = m.lists[ENDING, place - 1]
                place -= 1
            m.lists[ENDING, place] = job
            count += 1
    for i in range(count):
        m.j[EVENT_AT, m.lists[ENDING, i]] = -1
    m.meta[ENDS] = count


@kernel
def _later(m: PlanState, one: int, other: int) -> bool:
    same = m.j[EVENT_AT, one] == m.j[EVENT_AT, other]
    return bool(
        m.j[EVENT_AT, one] > m.j[EVENT_AT, other] or (same and m.j[MY_TURN, one] > m.j[MY_TURN, other])
    )


@kernel
def progress(m: PlanState, elapsed_s: int, now_s: int) -> None:
    """Count the work done since the last instant; a job whose work is done before its end event ends now.

    A job works on the GPUs it has, less what it was charged, until its planned end: what lies between that and the end of
    the slot is lost. Jobs that end now join the list `ENDING`.

    Parameters
    ----------
    elapsed_s : seconds since the last instant.
    now_s : the present one.
    """
    for i in range(m.meta[RUNNABLE]):
        job = m.lists[RUNNABLE, i]
        if m.j[GPUS, job] <= 0:
            continue
        rate = m.rate[m.j[KIND, job], m.j[LEVEL, job]]
        spent = elapsed_s
        until = m.j[PLANNED, job] if m.j[PLANNED, job] >= 0 else m.j[END, job]
        if now_s > until:
            spent -= now_s - until
        spent = max(0, spent - m.j[CHARGED, job])
        work = spent * rate
        if m.left[job] <= work and m.j[END, job] > now_s:
            m.j[OLD_END, job] = m.j[END, job]
            ended = now_s - elapsed_s + whole_up(m.left[job] / rate)
            spent = m.j[END, job] - now_s + elapsed_s
            work = spent * rate
            m.j[END, job] = now_s
            set_end(m, job)
            m.j[EVENT_AT, job] = -1
            m.lists[ENDING, m.meta[ENDS]] = job
            m.meta[ENDS] += 1
            m.j[END, job] = ended
        m.left[job] -= work
        m.useful[job] += m.j[GPUS, job] * max(spent, 0)
        m.j[CHARGED, job] = 0


@kernel
def see(m: PlanState, elapsed_s: int, now_s: int, left: F64, owed_s: F64, ended_s: F64) -> None:
    """Take the work done from what was observed, in place of `progress`; arrays by row.

    A job ends when it was seen to. One whose end event has passed, or that ended in another one, gets its event anew.

    Parameters
    ----------
    elapsed_s : seconds since the last instant.
    now_s : the present one.
    left : iterations left.
    owed_s : seconds until a job with GPUs works again.
    ended_s : when a job ended; nan: it has not.
    """
    for i in range(m.meta[ENDS]):
        m.j[EVENT_AT, m.lists[ENDING, i]] = -1
    m.meta[ENDS] = 0
    for i in range(m.meta[RUNNABLE]):
        job = m.lists[RUNNABLE, i]
        rate = m.rate[m.j[KIND, job], m.j[LEVEL, job]] if m.j[GPUS, job] > 0 else 0.0
        if rate > 0.0:
            m.useful[job] += m.j[GPUS, job] * max(0.0, min((m.left[job] - left[job]) / rate, elapsed_s))
        m.left[job] = left[job]
        m.j[CHARGED, job] = 0
        if not np.isnan(ended_s[job]):
            m.j[EVENT_AT, job] = -1
            m.j[END, job] = whole_up(ended_s[job])
            m.j[PLANNED, job] = m.j[END, job]
            m.lists[ENDING, m.meta[ENDS]] = job
            m.meta[ENDS] += 1
        elif rate > 0.0 and (m.j[END, job] <= now_s or m.j[EVENT_AT, job] < 0):
            m.j[END, job] = max(now_s + 1, whole_up(now_s + owed_s[job] + left[job] / rate))
            m.j[PLANNED, job] = m.j[END, job]
            register(m, job)


@kernel
def start(m: PlanState, job: int) -> None:
    """A waiting job begins to run."""
    m.meta[PENDING] = remove(m.lists[PENDING], m.meta[PENDING], job)
    m.lists[RUNNING, m.meta[RUNNING]] = job
    m.meta[RUNNING] += 1
    m.j[STATE, job] = HOLDING
    if m.j[SLO, job] != 0:
        m.meta[ACCEPTED] += 1


@kernel
def learn_groups(m: Places, rows: I64, count: int, gpus_per_node: int) -> None:
    """Walk the nodes with a rank counter; `HIT` tells which jobs' groups were known, then all are."""
    for i in range(count):
        m.j[HIT, rows[i]] = 0
    for learns in (False, True):
        rank = 0
        for node in range(len(m.node_turn)):
            which = m.node_set[node]
            begin = rank
            if which >= 0:
                job = m.set_jobs[which, 0]
                if m.sets[CAP, which] > gpus_per_node or m.j[GPUS, job] >= gpus_per_node:
                    if not _counted(m, which, node, gpus_per_node):
                        _meet(m, rank, job, learns)
                else:
                    for i in range(m.sets[JOBS_IN, which]):
                        job = m.set_jobs[which, i]
                        _meet(m, rank, job, learns)
                        rank += m.j[GPUS, job]
            rank = begin + gpus_per_node


@kernel
def _meet(m: Places, rank: int, job: int, learns: bool) -> None:
    """Look up whether the group of a job is known, or know it from now on (learns)."""
    if learns:
        m.known[rank, m.j[LEVEL, job]] = True
    else:
        m.j[HIT, job] = m.known[rank, m.j[LEVEL, job]]


@kernel
def _counted(m: Places, which: int, node: int, gpus_per_node: int) -> bool:
    """Whether an earlier node of the same set was already walked."""
    nodes = m.sets[CAP, which] // gpus_per_node
    earlier = False
    for i in range(nodes):
        earlier |= m.set_nodes[m.sets[FIRST_NODE, which] + i] < node
    return bool(earlier)


@kernel
def tick(m: Places, slot_s: int) -> bool:
    """Count a scheduling event; every so many of them all communication groups are forgotten."""
    rebuilt = m.meta[TICKS] > 0 and m.meta[TICKS] % slot_s == 0
    m.meta[TICKS] += 1
    if rebuilt:
        m.known[:] = False
    return bool(rebuilt)


@kernel
def charge(m: PlanState, rows: I64, count: int, rebuilt: bool, unchanged_free: bool, total_gpus: int) -> None:
    """Jobs that have GPUs pay for their restart: their end moves by the overhead.

    Parameters
    ----------
    rows, count : the jobs.
    rebuilt : whether all communication groups are rebuilt at this event.
    unchanged_free : a job whose GPUs are those of the last event pays nothing.
    total_gpus : GPUs of the cluster.
    """
    for i in range(count):
        job = rows[i]
        if m.j[GPUS, job] > 0 and not (unchanged_free and m.j[GPUS, job] == m.j[LAST_GPUS, job]):
            _pay(m, job, overhead_s(m.j[GPUS, job], rebuilt, m.j[HIT, job] != 0, total_gpus))
        m.j[LAST_GPUS, job] = m.j[GPUS, job]


@kernel
def charge_each(m: PlanState, rows: I64, cost_s: I64) -> None:
    """Jobs pay each its own seconds, as a table of costs says: their ends move by them."""
    for i in range(len(rows)):
        job = rows[i]
        if cost_s[i] > 0:
            _pay(m, job, cost_s[i])
        m.j[LAST_GPUS, job] = m.j[GPUS, job]


@kernel
def _pay(m: PlanState, job: int, cost_s: int) -> None:
    """A job's end moves by some seconds, in which it does no work."""
    m.j[CHARGED, job] = cost_s
    m.j[OLD_END, job] = m.j[END, job]
    m.j[END, job] += cost_s
    set_end(m, job)
