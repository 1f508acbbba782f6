"""What restarts cost in the published simulator."""

from __future__ import annotations

import numpy as np

from forerun.core.kernels.jit import kernel


@kernel
def overhead_s(gpus: int, tick: bool, hit: bool, total_gpus: int) -> int:
    """Seconds lost when a job is started or restarted.

    Constants of the published simulator; twice log2 of a count that is no power of two is rounded down.

    Parameters
    ----------
    gpus : GPUs of the job.
    tick : whether the periodic full rebuild of groups falls on this event.
    hit : whether the job's communication group is already known.
    total_gpus : GPUs of the cluster.
    """
    large = total_gpus >= 256
    base = 7 if large else 2
    if hit:
        return base
    if tick:
        base += 47 if large else 27
    return base + int(2.0 * (np.log2(float(gpus)) + 1.0))
