"""A policy beside history: at each of its decisions the queue and the machine are as they really were.

The queue of `backfill` plays on to its next decision, and what it starts is compared with what really started. Where the two
differ, running and waiting jobs are set to those of history, and promises are made anew: those of another past bind nobody.
"""

from __future__ import annotations

import numpy as np

from forerun.cluster.engine.kernels import backfill as bk
from forerun.cluster.engine.kernels import free_profile as fp
from forerun.cluster.engine.kernels import linked_profile as lp
from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.cluster.engine.kernels.heap import push_least
from forerun.cluster.engine.kernels.priority import EVENTS, FREE, LOGGED, RUNNING, WAITING
from forerun.core.kernels.jit import kernel


@kernel(allocates=False)
def restore(
    q: bk.Backfill,
    now: float,
    order: int,
    keeps: bool,
    total: int,
    grace_s: float,
    start_s: F64,
    end_s: F64,
    open_jobs: I64,
    count: int,
    withheld_s: F64,
    allowed: I64,
) -> int:
    """Set the queue to history at an instant; how many jobs have neither ended nor are still to come.

    Parameters
    ----------
    q : the queue, changed in place.
    now : the instant; who starts then runs, who ends then has gone.
    order, keeps : as of `backfill.advance`.
    total : GPUs of the machine.
    grace_s : how much longer a job is believed to run that has outlived its request.
    start_s, end_s : float64[jobs], when each really started and ended; infinite: not.
    open_jobs : int64[jobs], those that had come and not ended; count : how many. Who has ended leaves it.
    withheld_s : float64[jobs], from when on a waiting job is taken for held, and not in the queue.
    allowed : int64[users], how many jobs of each may run at once.
    """
    meta = q.meta
    bk._announce(q, now, keeps)
    meta[RUNNING] = meta[WAITING] = meta[bk.LATE] = meta[bk.BELIEVED] = 0
    meta[FREE] = total
    meta[LOGGED] = meta[EVENTS] = 0
    for user in range(len(allowed)):
        q.allowed[user] = allowed[user]
    still = 0
    for k in range(count):
        job = open_jobs[k]
        if end_s[job] <= now:
            q.end[job] = end_s[job]
            continue
        open_jobs[still] = job
        still += 1
        if start_s[job] <= now:
            q.first_start[job], q.end[job] = start_s[job], -1.0
            q.promise[job] = bk.NO_PROMISE
            meta[FREE] -= q.gpus[job]
            q.allowed[q.user[job]] -= 1
            meta[RUNNING] = push_least(q.ending, q.end_key, meta[RUNNING], job, end_s[job])
            q.belief[job] = start_s[job] + q.request[job]
            if q.belief[job] <= now:
                q.belief[job] = now + grace_s
                q.late[meta[bk.LATE]] = job
                meta[bk.LATE] += 1
            elif end_s[job] > q.belief[job]:
                meta[bk.BELIEVED] = push_least(
                    q.believed, q.believed_key, meta[bk.BELIEVED], job, q.belief[job]
                )
        else:
            q.first_start[job] = q.end[job] = -1.0
            if withheld_s[job] <= now:
                q.promise[job] = bk.NO_PROMISE
                continue
            bk._join(q, job, order)
    q.wake[0] = np.inf
    if keeps:
        bk._lay_out_again(q, now, order)
        q.linked.meta[lp.GIVEN] = 1  # anybody may move
        return still
    fp.start_over(q.time, q.free, meta, now, total)
    for k in range(meta[RUNNING]):
        job = q.ending[k]
        fp.take(q.time, q.free, meta, now, q.belief[job], q.gpus[job])
    for at in range(meta[bk.WINDOW]):
        fp.take(q.time, q.free, meta, max(now, q.window_from[at]), q.window_to[at], q.window_gpus[at])
    return still
