"""What the published schedules charge for starts and restarts."""

from __future__ import annotations

import math

from forerun.cluster.inputs.setting import Setting
from forerun.replication.elasticflow.known_bugs import Corrections


def uses_table(setting: Setting, corrected: Corrections) -> bool:
    """Whether published schedules charge what a table of costs says."""
    return setting.costs is not None and "cost_table" in corrected


def first_costs_s(setting: Setting, corrected: Corrections) -> tuple[list[int], list[int]]:
    """Whole seconds of the first start of each rigid job, and until its GPUs are free again when it is stopped."""
    jobs = setting.jobs
    if not uses_table(setting, corrected):
        return [0] * len(jobs), [0] * len(jobs)
    assert setting.costs is not None
    counts, table = list(enumerate(jobs.gpus.tolist())), setting.costs
    starts = [math.ceil(table.start_s(row, gpus) - 1e-9) for row, gpus in counts]
    return starts, [math.ceil(table.drain_s(row, gpus) - 1e-9) for row, gpus in counts]


def restart_costs_s(setting: Setting, corrected: Corrections) -> dict[bool, list[int]]:
    """Whole seconds each rigid job of a published schedule loses at a start, by whether all groups are rebuilt then.

    The simulator's formula; or, where that is corrected and the scenario has a table, the table's (nothing is rebuilt then,
    and first starts cost something else: `first_costs_s`).
    """
    from forerun.replication.elasticflow.kernels.restarts import overhead_s  # here: it is compiled code

    jobs = setting.jobs
    if uses_table(setting, corrected):
        assert setting.costs is not None
        return {False: setting.costs.restart_s(jobs.gpus).tolist()}
    seconds = {}
    for tick in (False, True):
        each = {
            gpus: int(overhead_s(gpus, tick, False, setting.cluster.gpus)) for gpus in set(jobs.gpus.tolist())
        }
        seconds[tick] = [each[gpus] for gpus in jobs.gpus.tolist()]
    return seconds
