"""The queue of an instant, played on many times.

Each draw has its own run times, its own later arrivals, and its own idea of who is kept back; what is waiting, running and
announced is the same in all. The scheduler is that of `engine.kernels.node_queue`, set to the state of the instant.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.kernels import node_queue as nq
from forerun.cluster.engine.kernels import queue_state as qs
from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.core.kernels.jit import kernel

#: after each stretch of so many seconds we look whether the job has started
STRETCH_S: Final = 21_600.0
#: the work of a waiting job that is kept back in a draw
KEPT_BACK: Final = -1.0


class Queue(NamedTuple):
    """What is waiting and running at an instant, and who has come before it. Times are instants in seconds.

    Parameters
    ----------
    now_s, gpus : float64[1] and int64[1], the instant and the GPUs of the pool.
    running_gpus, running_start_s, running_request_s : of running jobs; the request is a length.
    waiting_gpus, waiting_submit_s, waiting_request_s : of waiting jobs in order of submission; the job in question is last.
    past_gpus, past_submit_s, past_request_s, past_work_s : of former jobs in order of submission, which may come again, and
        what they take then.
    """

    now_s: F64
    gpus: I64
    running_gpus: I64
    running_start_s: F64
    running_request_s: F64
    waiting_gpus: I64
    waiting_submit_s: F64
    waiting_request_s: F64
    past_gpus: I64
    past_submit_s: F64
    past_request_s: F64
    past_work_s: F64


class Draws(NamedTuple):
    """What differs between draws; the first axis of each column is the draw.

    Parameters
    ----------
    running_end_s : float64[draws, running], instants.
    waiting_work_s : float64[draws, waiting], seconds; `KEPT_BACK`: it does not take part.
    block_first, block_last : int64[draws, blocks], the former jobs that come in each block of time, the last not included.
    block_shift_s : float64[draws, blocks], how much later they come than they came.
    """

    running_end_s: F64
    waiting_work_s: F64
    block_first: I64
    block_last: I64
    block_shift_s: F64


class Begun(NamedTuple):
    """Columns to work in; one element a job of the arrays that a draw is played in, and of `number` one more.

    Parameters
    ----------
    start_s : when running jobs started. waiting : the jobs that wait. number : the numbers of all jobs. none : zeros.
    """

    start_s: F64
    waiting: I64
    number: I64
    none: I64


@kernel(allocates=False)
def play_on(
    q: qs.Queue,
    terms: qs.Terms,
    queue: Queue,
    draws: Draws,
    at: Begun,
    until_s: float,
    start_s: F64,
) -> None:
    """When the job in question starts in each draw; infinite: not before `until_s`.

    Parameters
    ----------
    q, at : arrays to work in, with the windows.
    terms : of the scheduler.
    queue, draws : where the draws begin, and in what they differ.
    until_s : the instant at which draws end.
    start_s : float64[draws], filled with instants.
    """
    for draw in range(len(start_s)):
        ours = _set_up(q, terms, queue, draws, draw, at)
        reached_s = queue.now_s[0]
        # at once: where nothing runs, no end would bring a decision
        nq.decide(q, terms, reached_s, qs.CAME)
        while q.first_start[ours] < 0.0 and reached_s < until_s:
            stop_s = min(reached_s + STRETCH_S, until_s)
            q.meta[qs.EVENTS] = q.meta[qs.LOGGED] = q.meta[qs.SEATED] = 0
            # less than asked for where the log is full
            reached_s = min(nq.advance(q, terms, stop_s), until_s)
        start_s[draw] = q.first_start[ours] if q.first_start[ours] >= 0.0 else np.inf


@kernel(allocates=False, internal=True)
def _set_up(q: qs.Queue, terms: qs.Terms, queue: Queue, draws: Draws, draw: int, at: Begun) -> int:
    """Bring the arrays to the instant at which the draw begins; the place of the job in question."""
    job, waits, runs = 0, 0, len(queue.running_gpus)
    for k in range(runs):
        start_s = at.start_s[k] = queue.running_start_s[k]
        work_s = draws.running_end_s[draw, k] - start_s
        _add(q, job, start_s, queue.running_gpus[k], queue.running_request_s[k], work_s)
        job += 1
    for k in range(len(queue.waiting_gpus)):
        work_s = draws.waiting_work_s[draw, k]
        _add(q, job, queue.waiting_submit_s[k], queue.waiting_gpus[k], queue.waiting_request_s[k], work_s)
        if work_s != KEPT_BACK:
            at.waiting[waits] = job
            waits += 1
        job += 1
    ours, most = job - 1, len(q.submit)
    for block in range(draws.block_first.shape[1]):
        shift_s = draws.block_shift_s[draw, block]
        for k in range(draws.block_first[draw, block], draws.block_last[draw, block]):
            if job < most:
                at_s = queue.past_submit_s[k] + shift_s
                _add(q, job, at_s, queue.past_gpus[k], queue.past_request_s[k], queue.past_work_s[k])
                job += 1
    while job < most:  # places that this draw has no job for
        _add(q, job, np.inf, 1, 1.0, 1.0)
        job += 1
    nq.set_state(
        q,
        terms,
        queue.now_s[0],
        at.number[:runs],
        at.start_s[:runs],
        at.number[: runs + 1],
        at.none[:runs],
        at.none[:runs],
        at.waiting[:waits],
    )
    q.meta[qs.ARRIVED] = ours + 1
    return ours


@kernel(allocates=False, internal=True)
def _add(q: qs.Queue, job: int, submit_s: float, gpus: int, request_s: float, work_s: float) -> None:
    q.submit[job], q.ranks.since[job], q.work[job] = submit_s, submit_s, work_s
    q.gpus[job], q.nodes.gpus[job], q.nodes.each[job], q.nodes.request[job] = gpus, gpus, gpus, request_s
    q.first_start[job] = q.end[job] = -1.0
