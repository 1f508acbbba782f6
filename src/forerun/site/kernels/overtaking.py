"""Which waiting jobs are overtaken by later ones that need as much, or more, and come later in every order of the queue."""

from __future__ import annotations

import numpy as np

from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.core.kernels.jit import kernel


@kernel(inline=True)
def _urgency(wait_s: float, request_s: float, nodes: int) -> float:
    """By WFP3: no order of the queue puts the later job in front."""
    ratio = wait_s / request_s
    return ratio * ratio * ratio * nodes


@kernel
def overtaken(
    submit_s: F64,
    start_s: F64,
    nodes: I64,
    request_s: F64,
    by_start: I64,
    patience_s: float,
    first_s: F64,
    times: I64,
) -> None:
    """Write when each job is first overtaken, and how many times; columns are by submission, infinite where never.

    Parameters
    ----------
    submit_s, start_s, nodes, request_s : of the jobs.
    by_start : int64[overtaking], the jobs that may overtake others, by `start_s`.
    patience_s : only jobs that came so much later overtake it.
    first_s, times : float64[jobs] and int64[jobs], written.
    """
    jobs = len(submit_s)
    waiting = np.zeros(jobs, np.int64)
    count = came = 0
    for job in by_start:
        now = start_s[job]
        while came < jobs and submit_s[came] <= now:
            waiting[count] = came
            count += 1
            came += 1
        still = 0
        for k in range(count):
            other = waiting[k]
            if start_s[other] <= now:
                continue
            waiting[still] = other
            still += 1
            if (
                submit_s[other] + patience_s < submit_s[job]
                and nodes[other] <= nodes[job]
                and request_s[other] <= request_s[job]
                and _urgency(now - submit_s[job], request_s[job], nodes[job])
                <= _urgency(now - submit_s[other], request_s[other], nodes[other])
            ):
                first_s[other] = min(first_s[other], now)
                times[other] += 1
        count = still
