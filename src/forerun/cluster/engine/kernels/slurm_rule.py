"""Slurm's rule: jobs start in their order, and by a plan on named nodes.

At every arrival and end jobs start in their order until the first that does not fit; behind it others of the same partition
wait. At most every `interval_s`, after news, a plan lets others start, too (see `node_plan`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from forerun.cluster.engine.kernels import node_plan as npl
from forerun.cluster.engine.kernels import queue_state as qs
from forerun.cluster.engine.kernels.arrays import F64
from forerun.core.kernels.jit import kernel

#: a queue without news is planned again at the next minute
MINUTE_S: Final = 60.0
#: jobs start in their order at most so often (`batch_sched_delay`)
BATCH_S: Final = 3.0
#: an ended job is forgotten so much later (`MinJobAge`), within the minute: a plan is made then
FORGET_S: Final = 300.0


@kernel(inline=True)
def choose(q: qs.Queue, entry: int) -> int:
    """The job of an entry, which from now on asks for what it has in this partition."""
    job = q.entry_job[entry]
    if q.first_start[job] < 0.0:
        q.nodes.kind[job], q.nodes.wide[job] = q.entry_kind[entry], q.entry_wide[entry]
        q.nodes.each[job] = q.entry_each[entry]
    return int(job)


@kernel(allocates=False, internal=True)
def decide(q: qs.Queue, terms: qs.Terms, now: float, news: int) -> None:
    """Start jobs in their order, and by a plan, if it is time for it.

    news: `CAME` or `ENDED` or both, if a job came or ended.
    """
    meta, clock = q.meta, q.clock
    q.nodes.meta[npl.STARTS] = 0
    note(q, terms, now, news)
    for turn in range(2):
        # the plan comes first, or last where nothing is delayed
        if turn != (terms.latency_s == 0.0):
            if clock[qs.TRY_S] <= now:
                clock[qs.TRY_S], clock[qs.TRIED_S] = np.inf, now
                if try_in_order(q, terms, now):
                    clock[qs.WAKE_S] = min(clock[qs.WAKE_S], _plan_by(clock, terms, now))
        elif clock[qs.WAKE_S] <= now:
            plan(q, terms, now)
            _plan_next(q, terms, now, q.nodes.meta[npl.AGAIN] > 0, meta[qs.QUEUED])


@kernel(allocates=False)
def note(q: qs.Queue, terms: qs.Terms, now: float, news: int) -> None:
    """Note what happens now, and with it when jobs start in order, and by a plan. news: as of `decide`."""
    clock = q.clock
    _catch_up(q, terms, now)
    if terms.latency_s > 0.0 and news & qs.BEGAN:
        news -= qs.BEGAN
        clock[qs.TRY_S] = min(clock[qs.TRY_S], npl.ceil_s(q.nodes, now, MINUTE_S))
    if news == 0:
        return
    if news & qs.ENDED:
        _forget_after(clock, npl.ceil_s(q.nodes, now + FORGET_S, MINUTE_S) + terms.latency_s, now)
    clock[qs.NEWS] = 1.0
    act_soon(clock, terms, now)


@kernel(allocates=False, internal=True)
def act_soon(clock: F64, terms: qs.Terms, now: float) -> None:
    """Let jobs start in order, and by a plan, as soon as may be after what happens now."""
    delayed = terms.latency_s > 0.0
    clock[qs.TRY_S] = min(
        clock[qs.TRY_S], max(_soon(terms, now), clock[qs.TRIED_S] + BATCH_S) if delayed else now
    )
    clock[qs.WAKE_S] = min(clock[qs.WAKE_S], _plan_by(clock, terms, now))


@kernel(inline=True)
def _plan_by(clock: F64, terms: qs.Terms, now: float) -> float:
    """When a plan is made after news."""
    if terms.interval_s == np.inf:
        return np.inf
    return float(max(_soon(terms, now), clock[qs.PLANNED_S] + terms.interval_s))


@kernel(inline=True)
def _soon(terms: qs.Terms, now: float) -> float:
    """When the scheduler acts on what happens now."""
    return float(np.floor(now) + terms.latency_s if terms.latency_s > 0.0 else now)


@kernel(allocates=False, internal=True)
def _plan_next(q: qs.Queue, terms: qs.Terms, now: float, again: bool, waiting: int) -> None:
    """Note that a plan was made, and when the next one is without news.

    again: whether a job started or waits for what another one waits for, too. waiting: jobs that wait now.
    """
    clock = q.clock
    clock[qs.PLANNED_S], clock[qs.WAKE_S] = now, np.inf
    if terms.interval_s == 0.0:
        clock[qs.NEWS] = 0.0
        return
    if again or (waiting > 1 and clock[qs.NEWS] > 0.0):
        clock[qs.WAKE_S] = now + terms.interval_s
    elif waiting > 1:
        next_minute = npl.floor_s(q.nodes, now, MINUTE_S) + MINUTE_S + terms.latency_s
        clock[qs.WAKE_S] = max(next_minute, now + terms.interval_s)
    clock[qs.NEWS] = 0.0
    for at in range(qs.FORGET, qs.CLOCK):
        if now < clock[at] < np.inf:
            clock[qs.WAKE_S] = min(clock[qs.WAKE_S], max(clock[at], now + terms.interval_s))
            break


@kernel(allocates=False, internal=True)
def _forget_after(clock: F64, at_s: float, now: float) -> None:
    """Note when a job is forgotten that ends now."""
    stays = qs.FORGET
    for at in range(qs.FORGET, qs.CLOCK):
        if clock[at] > now and clock[at] != at_s:
            clock[stays] = clock[at]
            stays += 1
    # of no more minutes than there are places, as instants within the next six are all there are
    while stays > qs.FORGET and clock[stays - 1] == np.inf:
        stays -= 1
    clock[stays] = at_s
    for at in range(stays + 1, qs.CLOCK):
        clock[at] = np.inf


@kernel(allocates=False, internal=True)
def _catch_up(q: qs.Queue, terms: qs.Terms, now: float) -> None:
    """Let pass what was due while no job waited: a plan of no jobs, too, puts off the next one."""
    clock = q.clock
    while True:
        if clock[qs.TRY_S] < now and clock[qs.TRY_S] <= clock[qs.WAKE_S]:
            clock[qs.TRIED_S], clock[qs.TRY_S] = clock[qs.TRY_S], np.inf
        elif clock[qs.WAKE_S] < now:
            _plan_next(q, terms, clock[qs.WAKE_S], False, 0)
        else:
            return


@kernel(allocates=False, internal=True)
def try_in_order(q: qs.Queue, terms: qs.Terms, now: float) -> bool:
    """Start jobs in their order; whether any does. One that does not fit holds up those behind it."""
    meta, s = q.meta, q.nodes
    started, stays = False, 0
    npl.clear(q.shut)
    for line in range(len(q.held_up)):
        q.held_up[line] = False
    for at in range(meta[qs.WAITING]):
        entry = q.waiting[at]
        job = choose(q, entry)
        if q.first_start[job] >= 0.0:
            continue
        line = q.line[entry]
        if not q.held_up[line] and qs.fits(q.limits, job, q.nodes.kind[job], q.gpus[job]):
            leave_open(q, now, now + s.request[job])
            for word in range(len(q.shut)):
                s.usable[word] &= ~q.shut[word]
            if npl.starts_at_once(s, job):
                start(q, terms, job, now)
                started = True
                continue
            q.held_up[line] = True
            for word in range(len(q.shut)):
                q.shut[word] |= q.line_nodes[line, word]
        q.waiting[stays] = entry
        stays += 1
    meta[qs.WAITING] = stays
    return started


@kernel(allocates=False, internal=True)
def plan(q: qs.Queue, terms: qs.Terms, now: float) -> None:
    """Plan the waiting jobs, and start those whose turn is now.

    While a plan is made, nodes are only taken away: a job that has too few of them at one point cannot start later in it.
    Where no later job of a pool can start, only so many are planned as say whether one waits for another.
    """
    meta, s = q.meta, q.nodes
    _find_last(q, terms)
    npl.begin_plan(s, now, terms.resolution_s, terms.window_s)
    for window in range(len(q.window_from)):
        if q.window_announced[window] <= now < q.window_to[window]:
            for pool in range(len(s.slots)):
                npl.keep_free(s, pool, q.window_from[window], q.window_until[window], q.window_nodes[window])
    stays = 0
    for at in range(meta[qs.WAITING]):
        entry = q.waiting[at]
        if q.first_start[q.entry_job[entry]] >= 0.0:
            continue
        pool = s.pool[q.entry_kind[entry]]
        while s.last[pool] > at and not _may_start_yet(q, s.last[pool], now, terms.resolution_s):
            s.last[pool] = _last_before(q, s.last[pool], pool, at)
        if at > s.last[pool] and (at >= terms.tested or s.meta[npl.AGAIN] != 0):
            q.waiting[stays] = entry
            stays += 1
            continue
        job = choose(q, entry)
        npl.clear(s.beyond)
        for window in range(len(q.window_from)):
            until_s = min(q.window_to[window], now + s.request[job])
            if q.window_announced[window] <= now and s.horizon[0] <= q.window_from[window] < until_s:
                for word in range(len(s.beyond)):
                    s.beyond[word] |= q.window_nodes[window, word]
        if qs.fits(q.limits, job, q.nodes.kind[job], q.gpus[job]) and npl.plan_job(
            s, q.line_nodes[q.line[entry]], job, now, terms.resolution_s
        ):
            start(q, terms, job, now)
            s.meta[npl.AGAIN] = 1
            continue
        q.waiting[stays] = entry
        stays += 1
    meta[qs.WAITING] = stays


@kernel(allocates=False, internal=True)
def _find_last(q: qs.Queue, terms: qs.Terms) -> None:
    """Note the place of the last job of each pool that a plan may start, by limits and free nodes."""
    s = q.nodes
    for pool in range(len(s.last)):
        s.last[pool] = -1
    for at in range(min(q.meta[qs.WAITING], terms.tested) - 1, -1, -1):
        pool = s.pool[q.entry_kind[q.waiting[at]]]
        if s.last[pool] < 0 and _may_start(q, at):
            s.last[pool] = at


@kernel(allocates=False, internal=True)
def _last_before(q: qs.Queue, place: int, pool: int, first: int) -> int:
    """The last place before another, from `first` on, whose job a plan may start on nodes of a pool; -1: none."""
    for at in range(place - 1, first - 1, -1):
        if q.nodes.pool[q.entry_kind[q.waiting[at]]] == pool and _may_start(q, at):
            return at
    return -1


@kernel(allocates=False, internal=True)
def _may_start(q: qs.Queue, at: int) -> bool:
    """Whether limits and free nodes let the job at a place of the queue start now, whoever waits for these nodes."""
    job = choose(q, q.waiting[at])
    if q.first_start[job] >= 0.0 or not qs.fits(q.limits, job, q.nodes.kind[job], q.gpus[job]):
        return False
    return npl.may_start(q.nodes, job)


@kernel(allocates=False, internal=True)
def _may_start_yet(q: qs.Queue, at: int, now: float, resolution_s: float) -> bool:
    """Whether the job at a place of the queue may start now beside those for which nodes are kept free so far."""
    job = choose(q, q.waiting[at])
    return q.first_start[job] < 0.0 and npl.may_start_yet(q.nodes, job, now, resolution_s)


@kernel(allocates=False, internal=True)
def leave_open(q: qs.Queue, from_s: float, to_s: float) -> None:
    """Let `usable` be the nodes that are in no maintenance between two instants, as far as it is announced."""
    usable = q.nodes.usable
    for word in range(len(usable)):
        usable[word] = -1
        for window in range(len(q.window_from)):
            if (
                q.window_announced[window] <= from_s
                and q.window_from[window] < to_s
                and q.window_to[window] > from_s
            ):
                usable[word] &= ~q.window_nodes[window, word]


@kernel(allocates=False)
def start(q: qs.Queue, terms: qs.Terms, job: int, now: float) -> None:
    """A job starts on the chosen nodes."""
    qs.make_space(q)
    npl.take_chosen(q.nodes, job)
    qs.note_start(q, terms, job, now)


@kernel(allocates=False, internal=True)
def put_somewhere(q: qs.Queue, job: int, now: float) -> bool:
    """Whether a running job has a place now, which it then has."""
    leave_open(q, now, now)
    if npl.starts_at_once(q.nodes, job):
        npl.take_chosen(q.nodes, job)
        return True
    return False
