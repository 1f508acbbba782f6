"""The power profile that other domains read: what a GPU draws, and how much slower a power limit makes it.

Both are read off the measured epochs: mean draw, and the highest limit's epoch time over the limit's own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forerun.core.errors import UsageError
from forerun.core.profile.power import Draw, Power
from forerun.energy.inputs import read_job
from forerun.energy.scenario import Scenario


def export(scenario: Scenario, at: Sequence[int] = ()) -> Power:
    """The power profile of a scenario's job on its GPU.

    at: the batch sizes to keep (default: all). Raises UsageError for batch sizes that were not measured, TraceError for
    unusable files.
    """
    workload = read_job(scenario).workload
    known = workload.sizes.tolist()
    if unknown := [size for size in at if size not in known]:
        measured = ", ".join(map(str, known))
        raise UsageError.at("--at", f"batch size {unknown[0]} was not measured; measured: {measured}")
    points = []
    for row, size in enumerate(known):
        limits = workload.limits_of(row)
        if (at and size not in at) or not limits:
            continue
        first_s = workload.time_mean_s[row, workload.limit_index(max(limits))]
        for limit in limits:
            column = workload.limit_index(limit)
            draw_w, epoch_s = workload.power_mean_w[row, column], workload.time_mean_s[row, column]
            if np.isfinite(draw_w) and np.isfinite(epoch_s):
                points.append(
                    Draw(
                        batch_size=int(size),
                        limit_w=float(limit),
                        draw_w=float(draw_w),
                        speed=float(first_s / epoch_s),
                    )
                )
    return Power(
        source=f"energy: {scenario.job.dataset} {scenario.job.network} on {scenario.gpu_type}",
        gpu_type=scenario.gpu_type,
        points=tuple(points),
    )
