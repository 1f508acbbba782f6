"""Rigid jobs in strict priority order, whole runs at a time.

At every instant the jobs that hold GPUs are the longest prefix, in order of priority, that fits: a better job takes
the GPUs of worse ones (preemptive), or waits until enough are free (not preemptive). Priorities do not change while a
job waits, nor the order of running jobs while they run: so two heaps suffice, of waiting jobs by priority and of running
jobs worst first, and a third by end; arrivals are merged by a pointer. O(log jobs) an event.

A running job has a *slot*: what the two heaps of running jobs move about are slots, whose columns are as long as the
cluster has GPUs, not as the trace has jobs, and stay in the processor's cache. Waiting jobs leave their heap at the top
only, so nothing needs to know where they stand in it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.cluster.engine.kernels.heap import pop_least, push, push_least, remove
from forerun.core.kernels.jit import kernel

#: the priority that changes while a job runs (`PriorityOrder.REMAINING`)
BY_REMAINING: Final = 3

#: places in `meta`
ARRIVED: Final = 0
WAITING: Final = 1
RUNNING: Final = 2
FREE: Final = 3
LOGGED: Final = 4
EVENTS: Final = 5

#: rows of `slots`
JOB: Final = 0
LATER: Final = 1  # counts jobs from the end, so that of equals the later submitted is the worse
WORST_AT: Final = 2
END_AT: Final = 3
SPARE: Final = 4  # the slots not in use, as a stack
WORST: Final = 5  # the two heaps of slots
ENDING: Final = 6

#: rows of `slot_times`
SINCE: Final = 0
ENDS: Final = 1
WORST_KEY: Final = 2
END_KEY: Final = 3


class Queue(NamedTuple):
    """A run in progress. Columns have one element a job; times in seconds; -1 is "never".

    Parameters
    ----------
    submit, gpus : of the jobs, in order of submission.
    fixed : priority, where it does not change; least first.
    left : seconds of work left at the last change.
    first_start, end, preempts : what becomes of each job.
    waiting, waiting_key : heap of waiting jobs by priority.
    slots, slot_times : int64[7, GPUs + 1] and float64[4, GPUs + 1], running jobs and their two heaps.
    meta : the counters above.
    log_row, log_gpus : changes of GPUs that the caller has not taken yet.
    event_time, event_pending, event_first : events likewise: jobs waiting after each, and its first entry of the log.
    """

    submit: F64
    gpus: I64
    fixed: F64
    left: F64
    first_start: F64
    end: F64
    preempts: I64
    waiting: I64
    waiting_key: F64
    slots: I64
    slot_times: F64
    meta: I64
    log_row: I64
    log_gpus: I64
    event_time: F64
    event_pending: I64
    event_first: I64


@kernel
def advance(q: Queue, kind: int, preemptive: bool, restart_s: float, until_s: float) -> float:
    """Play on until `until_s` (not included), the end of the trace, or a full log; the instant of the next event.

    Infinity means that nothing is left to happen. Cutting a run anywhere does not change it.

    Parameters
    ----------
    q : the run, changed in place.
    kind : what the priority is, a number of `PriorityOrder`.
    preemptive : whether better jobs take the GPUs of worse ones.
    restart_s : seconds that a job loses when it starts again.
    """
    jobs, most_events = len(q.submit), len(q.event_time) - 1
    # at one instant a job stops and starts at most once each, and no more jobs run than there are GPUs
    capacity = len(q.log_row) - 4 * q.slots.shape[1]
    submit, gpus, left = q.submit, q.gpus, q.left
    waiting, waiting_key = q.waiting, q.waiting_key
    job_in, later, worst_at = q.slots[JOB], q.slots[LATER], q.slots[WORST_AT]
    end_at, spare, worst, ending = q.slots[END_AT], q.slots[SPARE], q.slots[WORST], q.slots[ENDING]
    since, ends, worst_key, end_key = q.slot_times[0], q.slot_times[1], q.slot_times[2], q.slot_times[3]
    by_remaining = kind == BY_REMAINING
    arrived, waits, running, free = q.meta[ARRIVED], q.meta[WAITING], q.meta[RUNNING], q.meta[FREE]
    logged, events = q.meta[LOGGED], q.meta[EVENTS]
    while True:
        now = submit[arrived] if arrived < jobs else np.inf
        if running > 0 and end_key[0] < now:
            now = end_key[0]
        if now >= until_s or now == np.inf or events >= most_events or logged > capacity:
            break
        while running > 0 and end_key[0] <= now:
            slot = ending[0]
            job = job_in[slot]
            remove(worst, worst_key, worst_at, later, running, slot)
            running = remove(ending, end_key, end_at, job_in, running, slot)
            spare[running] = slot
            free += gpus[job]
            left[job] = 0.0
            q.end[job] = now
            q.log_row[logged] = job
            q.log_gpus[logged] = 0
            logged += 1
        newest, newest_key = -1, 0.0  # the latest arrival stays out of the heap until it is known to wait
        while arrived < jobs and submit[arrived] <= now:
            if newest >= 0:
                waits = push_least(waiting, waiting_key, waits, newest, newest_key)
            newest = arrived
            newest_key = left[arrived] if by_remaining else q.fixed[arrived]
            arrived += 1
        while newest >= 0 or waits > 0:
            if newest >= 0 and waits > 0 and waiting_key[0] <= newest_key:
                waits = push_least(waiting, waiting_key, waits, newest, newest_key)
                newest = -1
            job, key = (newest, newest_key) if newest >= 0 else (waiting[0], waiting_key[0])
            need = gpus[job]
            while need > free and preemptive and running > 0:
                slot = worst[0]
                other = job_in[slot]
                worth = q.fixed[other]
                if by_remaining:
                    # what it would wait with: a restart under way is no work
                    worth = ends[slot] - now if now > since[slot] else left[other]
                if key > worth or (key == worth and job > other):
                    break  # the running jobs are a prefix of the order already
                remove(ending, end_key, end_at, job_in, running, slot)
                running = remove(worst, worst_key, worst_at, later, running, slot)
                spare[running] = slot
                free += gpus[other]
                if now > since[slot]:
                    left[other] -= now - since[slot]
                q.preempts[other] += 1
                waits = push_least(waiting, waiting_key, waits, other, worth)
                q.log_row[logged] = other
                q.log_gpus[logged] = 0
                logged += 1
            if need > free:
                break
            # jobs that gave way stand behind this one, so it still is at the top
            if newest >= 0:
                newest = -1
            else:
                waits = pop_least(waiting, waiting_key, waits)
            slot = spare[running]
            begins = now
            if q.first_start[job] < 0:
                q.first_start[job] = now
            else:
                begins += restart_s
            job_in[slot], later[slot] = job, jobs - 1 - job
            since[slot], ends[slot] = begins, begins + left[job]
            free -= need
            badness = -ends[slot] if by_remaining else -q.fixed[job]
            push(worst, worst_key, worst_at, later, running, slot, badness)
            running = push(ending, end_key, end_at, job_in, running, slot, ends[slot])
            q.log_row[logged] = job
            q.log_gpus[logged] = need
            logged += 1
        if newest >= 0:
            waits = push_least(waiting, waiting_key, waits, newest, newest_key)
        q.event_time[events] = now
        q.event_pending[events] = waits
        events += 1
        q.event_first[events] = logged
    q.meta[ARRIVED], q.meta[WAITING], q.meta[RUNNING], q.meta[FREE] = arrived, waits, running, free
    q.meta[LOGGED], q.meta[EVENTS] = logged, events
    return now
