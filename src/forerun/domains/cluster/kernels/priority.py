"""Rigid jobs in strict priority order, whole runs at a time.

At every instant the jobs that hold GPUs are the longest prefix, in order of priority, that fits: a better job takes
the GPUs of worse ones (preemptive), or waits until enough are free (not preemptive). Priorities do not change while a
job waits, nor the order of running jobs while they run: so two heaps suffice, of waiting jobs by priority and of running
jobs worst first, and a third by end; arrivals are merged by a pointer. O(log jobs) an event.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.domains.cluster.kernels.arrays import F64, I64
from forerun.domains.cluster.kernels.heap import push, remove
from forerun.kernels.jit import kernel

#: what the priority is, least first
BY_SUBMISSION: Final = 0
BY_DURATION: Final = 1
BY_AREA: Final = 2
BY_REMAINING: Final = 3
BY_DEADLINE: Final = 4

#: places in `meta`
ARRIVED: Final = 0
WAITING: Final = 1
RUNNING: Final = 2
FREE: Final = 3
LOGGED: Final = 4
EVENTS: Final = 5


class Queue(NamedTuple):
    """A run in progress. Columns have one element a job; times in seconds; -1 is "never".

    `left`: seconds of work left at the last change; `since`: when that was; `key`: priority while waiting; `ends`: when
    a running job ends. `worst_order` counts jobs from the end, so that of equals the later submitted is the worse.
    `log_*`, `event_*`: changes and events not yet taken by the caller.
    """

    submit: F64
    work: F64
    gpus: I64
    fixed: F64
    left: F64
    since: F64
    key: F64
    ends: F64
    first_start: F64
    end: F64
    preempts: I64
    waiting: I64
    waiting_key: F64
    waiting_at: I64
    worst_order: I64
    worst_key: F64
    worst_at: I64
    end_order: I64
    end_key: F64
    end_at: I64
    meta: I64
    log_time: F64
    log_row: I64
    log_gpus: I64
    event_time: F64
    event_pending: I64
    event_first: I64


@kernel
def advance(q: Queue, kind: int, preemptive: bool, restart_s: float, until_s: float) -> float:
    """Play on until `until_s` (not included), the end of the trace, or a full log; the instant of the next event.

    Infinity means that nothing is left to happen. Cutting a run anywhere does not change it.
    """
    jobs = len(q.submit)
    room = len(q.log_row) - 4
    while True:
        now = np.inf
        if q.meta[ARRIVED] < jobs:
            now = q.submit[q.meta[ARRIVED]]
        if q.meta[RUNNING] > 0:
            now = min(now, q.end_key[0])
        if now >= until_s or now == np.inf:
            return now
        if q.meta[LOGGED] + 2 * q.meta[RUNNING] + 64 > room or q.meta[EVENTS] + 1 >= len(q.event_time):
            return now
        while q.meta[RUNNING] > 0 and q.end_key[0] <= now:
            _finish(q, q.end_order[0], now)
        while q.meta[ARRIVED] < jobs and q.submit[q.meta[ARRIVED]] <= now:
            job = q.meta[ARRIVED]
            q.meta[ARRIVED] += 1
            q.key[job] = q.left[job] if kind == BY_REMAINING else q.fixed[job]
            q.meta[WAITING] = push(q.waiting, q.waiting_key, q.waiting_at, q.meta[WAITING], job, q.key[job])
            if q.meta[LOGGED] + 2 * q.meta[RUNNING] + 64 > room:
                break
        _fill(q, kind, preemptive, restart_s, now)
        at = q.meta[EVENTS]
        q.event_time[at] = now
        q.event_pending[at] = q.meta[WAITING]
        q.event_first[at + 1] = q.meta[LOGGED]
        q.meta[EVENTS] = at + 1


@kernel(inline=True)
def _fill(q: Queue, kind: int, preemptive: bool, restart_s: float, now: float) -> None:
    """Start the best waiting jobs; worse running ones give way."""
    while q.meta[WAITING] > 0:
        job = q.waiting[0]
        need = q.gpus[job]
        while need > q.meta[FREE]:
            if not preemptive or not _worse_runs(q, kind, job, now):
                return
            _preempt(q, kind, len(q.submit) - 1 - q.worst_order[0], now)
        q.meta[WAITING] = remove(q.waiting, q.waiting_key, q.waiting_at, q.meta[WAITING], job)
        _start(q, kind, job, restart_s, now)


@kernel(inline=True)
def _worse_runs(q: Queue, kind: int, job: int, now: float) -> bool:
    """Whether the worst running job is worse than a waiting one (then the running set is no prefix yet)."""
    if q.meta[RUNNING] == 0:
        return False
    worst = len(q.submit) - 1 - q.worst_order[0]
    other = q.fixed[worst]
    if kind == BY_REMAINING:
        other = q.ends[worst] - now
    return bool(q.key[job] < other or (q.key[job] == other and job < worst))


@kernel(inline=True)
def _start(q: Queue, kind: int, job: int, restart_s: float, now: float) -> None:
    pause = restart_s if q.first_start[job] >= 0 else 0.0
    if q.first_start[job] < 0:
        q.first_start[job] = now
    q.since[job] = now + pause
    q.ends[job] = now + pause + q.left[job]
    mirror = len(q.submit) - 1 - job
    worst = -q.ends[job] if kind == BY_REMAINING else -q.fixed[job]
    q.meta[FREE] -= q.gpus[job]
    push(q.worst_order, q.worst_key, q.worst_at, q.meta[RUNNING], mirror, worst)
    q.meta[RUNNING] = push(q.end_order, q.end_key, q.end_at, q.meta[RUNNING], job, q.ends[job])
    _log(q, now, job, q.gpus[job])


@kernel(inline=True)
def _leave(q: Queue, job: int, now: float) -> None:
    remove(q.worst_order, q.worst_key, q.worst_at, q.meta[RUNNING], len(q.submit) - 1 - job)
    q.meta[RUNNING] = remove(q.end_order, q.end_key, q.end_at, q.meta[RUNNING], job)
    q.meta[FREE] += q.gpus[job]
    _log(q, now, job, 0)


@kernel(inline=True)
def _finish(q: Queue, job: int, now: float) -> None:
    _leave(q, job, now)
    q.left[job] = 0.0
    q.end[job] = now


@kernel(inline=True)
def _preempt(q: Queue, kind: int, job: int, now: float) -> None:
    _leave(q, job, now)
    if now > q.since[job]:
        q.left[job] -= now - q.since[job]
    q.preempts[job] += 1
    q.key[job] = q.left[job] if kind == BY_REMAINING else q.fixed[job]
    q.meta[WAITING] = push(q.waiting, q.waiting_key, q.waiting_at, q.meta[WAITING], job, q.key[job])


@kernel(inline=True)
def _log(q: Queue, now: float, job: int, gpus: int) -> None:
    at = q.meta[LOGGED]
    q.log_time[at] = now
    q.log_row[at] = job
    q.log_gpus[at] = gpus
    q.meta[LOGGED] = at + 1
