"""Rules that several published schedules share."""

from __future__ import annotations

import numpy as np

from forerun.kernels.jit import kernel


@kernel
def align(anchor_s: int, time_s: int, slot_s: int) -> int:
    """The first instant of the grid `anchor_s + k * slot_s` that is not before `time_s`."""
    return anchor_s - ((anchor_s - time_s) // slot_s) * slot_s


@kernel
def overhead_s(gpus: int, tick: bool, hit: bool, total_gpus: int) -> int:
    """Seconds lost when a job of `gpus` GPUs is (re)started.

    `hit`: its communication group is already known; `tick`: the periodic full rebuild of groups falls on this event.
    Constants of the published simulator; twice log2 of a count that is no power of two is rounded down.
    """
    large = total_gpus >= 256
    base = 7 if large else 2
    if hit:
        return base
    if tick:
        base += 47 if large else 27
    return base + int(2.0 * (np.log2(float(gpus)) + 1.0))
