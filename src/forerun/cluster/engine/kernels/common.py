"""What restarts cost in the published simulator, and random bits that belong to a counter."""

from __future__ import annotations

from typing import Final

import numpy as np

from forerun.core.kernels.jit import kernel

#: the step of a counter of random numbers (splitmix64)
GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)


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


@kernel
def mixed(counter: np.uint64) -> np.uint64:
    """The random 64 bits that belong to a counter (the finaliser of splitmix64)."""
    z = (counter ^ (counter >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
