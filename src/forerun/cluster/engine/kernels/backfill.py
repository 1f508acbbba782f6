"""Backfilling by requested times, whole runs at a time.

Running jobs and promised starts stand in a profile of the GPUs that are believed to be free (`free_profile`). At every
arrival, end and promised start one pass goes through the waiting jobs in their order; a job starts if it fits the profile
for its whole request. Of those that do not, either the first few get a promise, which lasts for this pass alone (EASY with
one, first fit with none), or all do, and keep it (conservative): such a promise only ever moves forward.

Two things make a pass short. The order is kept sorted, and a job is only looked at again where it can matter: not at all
while no GPU is free; and kept promises stand in a profile of their own (`linked_profile`), which says of most at once that
they cannot move. A pass may also move the first jobs in the queue only (`examined`); others start as soon as they fit, and
whoever comes among the first later makes up for what it has missed.

Maintenance takes GPUs out of the profile as soon as it is announced, so that no job starts that would run into it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.kernels import free_profile as fp
from forerun.cluster.engine.kernels import linked_profile as lp
from forerun.cluster.engine.kernels.arrays import F64, I64, U32
from forerun.cluster.engine.kernels.heap import pop_least, push_least
from forerun.cluster.engine.kernels.priority import ARRIVED, EVENTS, FREE, LOGGED, RUNNING, WAITING
from forerun.core.kernels.jit import kernel

# orders of the queue, by their number
FCFS: Final = 0
SJF: Final = 1
WFP3: Final = 2

# places in meta besides those of the priority queue and the profile's two
LATE: Final = 6  # running jobs that have outlived their request
BELIEVED: Final = 7  # entries of the heap of believed ends
MARK: Final = 10  # the next instant of a window at which there is a pass
WINDOW: Final = 11  # the next window to be announced
MISSED: Final = 12  # whether jobs were not examined in the last pass
PLACES: Final = 13

#: the promise of a job that has not been looked at
NO_PROMISE: Final = -1.0


class Backfill(NamedTuple):
    """A run in progress. Columns have one element a job; times in seconds; -1 is "never".

    Parameters
    ----------
    submit, gpus, work, request : of the jobs, in order of submission; `work` is what a job really takes.
    since : from when the wait of a job counts; it may be before `submit`, from which on it can start.
    user : whose job it is; allowed : by user, how many more jobs may start.
    first_start, end : what becomes of each job.
    promise : the start that a waiting job is promised; infinite: none can be given.
    first_promise : the first start that it was promised.
    belief : when a running job is believed to end.
    queue, key : waiting jobs in their order, and the keys of that order.
    chosen : jobs that get a promise for one pass.
    ending, end_key : heap of running jobs by their end.
    believed, believed_key : heap of running jobs that will outlive their request, by its end.
    late : running jobs that have outlived their request.
    time, free, down_s, down_to : the profile, and what `free_profile.descents` makes of it.
    linked : the profile where promises are kept.
    window_from, window_to, window_gpus, window_announced : GPUs in maintenance, by announcement.
    marks : the instants at which a window is announced, begins or ends, ascending.
    wake : the next promised start.
    meta : counters.
    log_row, log_gpus, event_time, event_pending, event_first : as of the priority queue.
    """

    submit: F64
    gpus: I64
    work: F64
    request: F64
    since: F64
    user: U32
    allowed: I64
    first_start: F64
    end: F64
    promise: F64
    first_promise: F64
    belief: F64
    queue: U32
    key: F64
    chosen: I64
    ending: I64
    end_key: F64
    believed: I64
    believed_key: F64
    late: I64
    time: F64
    free: I64
    down_s: F64
    down_to: I64
    linked: lp.Linked
    window_from: F64
    window_to: F64
    window_gpus: I64
    window_announced: F64
    marks: F64
    wake: F64
    meta: I64
    log_row: I64
    log_gpus: I64
    event_time: F64
    event_pending: I64
    event_first: I64


@kernel(allocates=False)
def advance(
    q: Backfill,
    order: int,
    keeps: bool,
    reserved: int,
    examined: int,
    window_s: float,
    grace_s: float,
    until_s: float,
) -> float:
    """Play on until `until_s` (not included), the end of the trace, or a full log; the instant of the next event.

    Infinity means that nothing is left to happen. Cutting a run anywhere does not change it.

    Parameters
    ----------
    q : the run, changed in place.
    order : of the queue, a number above.
    keeps : whether every waiting job gets a promise and keeps it.
    reserved : else how many of the first that cannot start get one in each pass.
    examined : how many of the first waiting jobs a pass looks at; where promises are kept, how many may move forward.
    window_s : how far away a start may be that a job is promised for one pass.
    grace_s : how much longer a job is believed to run that has outlived its request.
    """
    jobs, most_events = len(q.submit), len(q.event_time) - 1
    # at one instant each GPU changes hands at most twice
    capacity = len(q.log_row) - 4 * len(q.ending)
    meta = q.meta
    while True:
        now = q.submit[meta[ARRIVED]] if meta[ARRIVED] < jobs else np.inf
        if meta[RUNNING] > 0 and q.end_key[0] < now:
            now = q.end_key[0]
        if meta[WAITING] > 0:
            now = min(now, q.wake[0])
            if meta[MARK] < len(q.marks):
                now = min(now, q.marks[meta[MARK]])
        if now >= until_s or now == np.inf or meta[EVENTS] >= most_events or meta[LOGGED] > capacity:
            return float(now)
        if keeps:
            lp.forget(q.linked, now)
        else:
            fp.forget(q.time, meta, now)
        while meta[RUNNING] > 0 and q.end_key[0] <= now:
            _end(q, now, keeps)
        came = meta[ARRIVED]
        while meta[ARRIVED] < jobs and q.submit[meta[ARRIVED]] <= now:
            _join(q, meta[ARRIVED], order)
            meta[ARRIVED] += 1
        crowded = _announce(q, now, keeps)
        crowded |= _believe(q, now, grace_s, keeps)
        if meta[WAITING] > 0:
            if keeps:
                if crowded:
                    _lay_out_again(q, now, order)
                _pass_kept(q, now, order, meta[ARRIVED] - came, examined)
            else:
                _pass_once(q, now, order, reserved, examined, window_s)
        events = meta[EVENTS]
        q.event_time[events] = now
        q.event_pending[events] = meta[WAITING]
        meta[EVENTS] = events + 1
        q.event_first[events + 1] = meta[LOGGED]


@kernel(allocates=False)
def _end(q: Backfill, now: float, keeps: bool) -> None:
    """The running job that ends first leaves; what it was believed to need is free."""
    job = q.ending[0]
    q.meta[RUNNING] = pop_least(q.ending, q.end_key, q.meta[RUNNING])
    q.end[job] = now
    q.meta[FREE] += q.gpus[job]
    q.allowed[q.user[job]] += 1
    if q.belief[job] > now:
        if keeps:
            p = q.linked
            lp.give_back(p, p.link[lp.HEAD], p.ends[job], q.gpus[job])
            lp.release(p, p.ends[job])
        else:
            fp.take(q.time, q.free, q.meta, now, q.belief[job], -q.gpus[job])
    _log(q, job, 0)


@kernel(allocates=False)
def _start(q: Backfill, job: int, now: float) -> None:
    """A job starts; its GPUs are in the profile already."""
    meta = q.meta
    q.first_start[job] = now
    q.belief[job] = now + q.request[job]
    meta[FREE] -= q.gpus[job]
    q.allowed[q.user[job]] -= 1
    meta[RUNNING] = push_least(q.ending, q.end_key, meta[RUNNING], job, now + q.work[job])
    if q.work[job] > q.request[job]:  # others end before anybody asks
        meta[BELIEVED] = push_least(q.believed, q.believed_key, meta[BELIEVED], job, q.belief[job])
    _log(q, job, q.gpus[job])


@kernel(allocates=False)
def _log(q: Backfill, job: int, gpus: int) -> None:
    at = q.meta[LOGGED]
    q.log_row[at] = job
    q.log_gpus[at] = gpus
    q.meta[LOGGED] = at + 1


@kernel(allocates=False)
def _join(q: Backfill, job: int, order: int) -> None:
    """A job takes its place in the queue."""
    q.promise[job] = NO_PROMISE
    key = q.request[job] if order == SJF else q.since[job]
    at = q.meta[WAITING]
    while at > 0 and q.key[at - 1] > key:  # of equals the later submitted stands behind
        q.key[at] = q.key[at - 1]
        q.queue[at] = q.queue[at - 1]
        at -= 1
    q.key[at] = key
    q.queue[at] = job
    q.meta[WAITING] += 1


@kernel(allocates=False)
def _sort(q: Backfill, now: float) -> None:
    """Bring the queue into the order of WFP3 as of now; it is nearly in it already."""
    last = -np.inf
    for k in range(q.meta[WAITING]):
        job = q.queue[k]
        waits = (now - q.since[job]) / q.request[job]
        key = -(waits * waits * waits * q.gpus[job])
        if key > last:
            q.key[k] = last = key
            continue
        at = k
        while at > 0 and (q.key[at - 1] > key or (q.key[at - 1] == key and q.queue[at - 1] > job)):
            q.key[at] = q.key[at - 1]
            q.queue[at] = q.queue[at - 1]
            at -= 1
        q.key[at] = key
        q.queue[at] = job
        last = q.key[k]


@kernel(allocates=False)
def _announce(q: Backfill, now: float, keeps: bool) -> bool:
    """Take announced windows out of the profile; whether more GPUs are now given away than there are."""
    meta, crowded = q.meta, False
    while meta[MARK] < len(q.marks) and q.marks[meta[MARK]] <= now:
        meta[MARK] += 1
    while meta[WINDOW] < len(q.window_from) and q.window_announced[meta[WINDOW]] <= now:
        at = meta[WINDOW]
        meta[WINDOW] = at + 1
        if q.window_to[at] > now:
            from_s = max(now, q.window_from[at])
            if keeps:
                p = q.linked
                step = lp.step_from(p, from_s)
                crowded |= lp.least_free(p, step, q.window_to[at]) < q.window_gpus[at]
                lp.take(p, step, q.window_to[at], q.window_gpus[at])
            else:
                fp.take(q.time, q.free, meta, from_s, q.window_to[at], q.window_gpus[at])
    return bool(crowded)


@kernel(allocates=False)
def _believe(q: Backfill, now: float, grace_s: float, keeps: bool) -> bool:
    """Jobs that have outlived their request go on for `grace_s`; whether more GPUs are now given away than there are."""
    meta = q.meta
    while meta[BELIEVED] > 0 and q.believed_key[0] <= now:
        job = q.believed[0]
        meta[BELIEVED] = pop_least(q.believed, q.believed_key, meta[BELIEVED])
        q.late[meta[LATE]] = job
        meta[LATE] += 1
    still = 0
    for k in range(meta[LATE]):
        job = q.late[k]
        if q.end[job] < 0:
            q.late[still] = job
            still += 1
            if keeps:
                p, step = q.linked, q.linked.link[lp.HEAD]
                early = q.belief[job] > now
                if early:
                    step = p.ends[job]
                p.ends[job] = lp.take(p, step, now + grace_s, q.gpus[job])
                if early:
                    lp.release(p, step)
            else:
                fp.take(q.time, q.free, meta, max(now, q.belief[job]), now + grace_s, q.gpus[job])
            q.belief[job] = now + grace_s
    meta[LATE] = still
    if still == 0 or not keeps:
        return False
    p = q.linked
    return lp.least_free(p, p.link[lp.HEAD], now + grace_s) < 0


@kernel(allocates=False)
def _fits_now(q: Backfill, steps: int, need: int, until_s: float) -> bool:
    """Whether so many GPUs, which are free now, stay free until an instant. steps: how many `descents` has found."""
    for step in range(1, steps):
        if q.down_to[step] < need:
            return bool(q.down_s[step] >= until_s)
    return True


@kernel(allocates=False)
def _pass_once(q: Backfill, now: float, order: int, reserved: int, examined: int, window_s: float) -> None:
    """Start what fits; the first few that do not fit are promised a start, until the end of the pass."""
    meta = q.meta
    if q.free[meta[fp.LOW]] <= 0:
        return
    if order == WFP3:
        _sort(q, now)
    waits, kept = meta[WAITING], 0
    chosen, laid, steps = 0, 0, 0
    for k in range(waits):
        job = q.queue[k]
        need = q.gpus[job]
        starts, allowed = False, q.allowed[q.user[job]] > 0
        if k < examined and allowed and need <= q.free[meta[fp.LOW]]:
            while laid < chosen:  # only now is a promise of any consequence
                first = q.chosen[laid]
                at_s = fp.earliest(q.time, q.free, meta, now, q.request[first], q.gpus[first], np.inf)
                if at_s > now + window_s:
                    at_s = np.inf
                q.promise[first] = at_s
                fp.take(q.time, q.free, meta, at_s, at_s + q.request[first], q.gpus[first])
                laid += 1
                steps = 0
            if steps == 0:
                steps = 1  # without promises and windows GPUs only become free
                if reserved > 0 or len(q.window_from) > 0:
                    steps = fp.descents(q.time, q.free, meta, q.down_s, q.down_to)
            starts = _fits_now(q, steps, need, now + q.request[job])
        if starts:
            fp.take(q.time, q.free, meta, now, now + q.request[job], need)
            _start(q, job, now)
            steps = 0
        else:
            if allowed and chosen < reserved:
                q.chosen[chosen] = job
                chosen += 1
            q.queue[kept] = job
            q.key[kept] = q.key[k]
            kept += 1
    meta[WAITING] = kept
    for k in range(laid):
        job = q.chosen[k]
        fp.take(q.time, q.free, meta, q.promise[job], q.promise[job] + q.request[job], -q.gpus[job])


@kernel(allocates=False)
def _lay_out_again(q: Backfill, now: float, order: int) -> None:
    """Make the profile anew where late jobs have what others were promised: who no longer fits is promised a later start."""
    meta, p = q.meta, q.linked
    total = meta[FREE]
    for k in range(meta[RUNNING]):
        total += q.gpus[q.ending[k]]
    lp.start_over(p, now, total)
    for k in range(meta[RUNNING]):
        job = q.ending[k]
        p.ends[job] = lp.take(p, p.link[lp.HEAD], q.belief[job], q.gpus[job])
    for at in range(meta[WINDOW]):
        if q.window_to[at] > now:
            step = lp.step_from(p, max(now, q.window_from[at]))
            lp.take(p, step, q.window_to[at], q.window_gpus[at])
    if order == WFP3:
        _sort(q, now)
    for k in range(meta[WAITING]):
        job = q.queue[k]
        at_s = q.promise[job]
        if at_s == NO_PROMISE or at_s == np.inf:
            continue
        step = lp.step_from(p, max(at_s, now))
        p.refs[step] -= 1  # `promise` counts it
        if lp.least_free(p, step, p.time[step] + q.request[job]) < q.gpus[job]:
            at = lp.earliest(p, q.request[job], q.gpus[job], np.inf)
            p.refs[step] += 1
            lp.release(p, step)
            step = at
        q.promise[job] = np.inf
        if step != lp.NONE:
            q.promise[job] = p.time[step]
            lp.promise(p, job, step, q.request[job], q.gpus[job])


@kernel(allocates=False)
def _pass_kept(q: Backfill, now: float, order: int, came: int, examined: int) -> None:
    """Move promises forward where GPUs have become free, make those of new jobs, and start whose time has come.

    Parameters
    ----------
    came : jobs that came just now.
    examined : how many of the first jobs may move forward; others only start, if they fit now.
    """
    meta, p = q.meta, q.linked
    few = examined < meta[WAITING] or meta[MISSED] > 0
    meta[MISSED] = examined < meta[WAITING]
    raised = p.meta[lp.GIVEN] > 0  # nobody else can move
    p.meta[lp.GIVEN] = 0
    if order == WFP3 and (few or raised or came > 1 or q.wake[0] <= now):
        _sort(q, now)
    waits, kept, wake = meta[WAITING], 0, np.inf
    for k in range(waits):
        job = q.queue[k]
        need, request, promise = q.gpus[job], q.request[job], q.promise[job]
        if q.allowed[q.user[job]] <= 0:  # nothing is kept for whom a limit keeps waiting
            if promise != NO_PROMISE and promise < np.inf:
                lp.lapse(p, job, need)
                raised = True
            q.promise[job] = NO_PROMISE
            q.queue[kept] = job
            q.key[kept] = q.key[k]
            kept += 1
            continue
        first = lp.NONE  # the step to which its promise moves, if it does
        fresh = promise == NO_PROMISE
        if fresh or promise == np.inf:
            first = lp.earliest(p, request, need, np.inf)
            if fresh:
                q.first_promise[job] = promise = np.inf
                if first != lp.NONE:
                    q.first_promise[job] = p.time[first]
            if first != lp.NONE:
                lp.promise(p, job, first, request, need)
        elif promise > now:
            first = begins = p.begins[job]
            if k >= examined:
                if lp.least_free(p, p.link[lp.HEAD], min(now + request, promise)) >= need:
                    first = p.link[lp.HEAD]
            elif raised or few:
                while p.free[p.before[first]] >= need:
                    first = p.before[first]
                if p.soonest[p.slot[job]] + request <= promise:
                    first = lp.search(p, job, first, request, need)
            if first != begins:
                if p.time[first] + request > promise:
                    lp.slide(p, job, first, request, need)
                else:
                    lp.move(p, job, first, request, need)
                raised = True
            else:
                first = lp.NONE
        if first != lp.NONE:
            promise = p.time[first]
        q.promise[job] = promise
        if promise <= now:
            _start(q, job, now)
        else:
            wake = min(wake, promise)
            q.queue[kept] = job
            q.key[kept] = q.key[k]
            kept += 1
    meta[WAITING] = kept
    q.wake[0] = wake
