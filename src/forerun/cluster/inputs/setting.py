"""What a run depends on as one `Setting`, and what it charges for starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from forerun.cluster.inputs.applications import Application
from forerun.cluster.inputs.arrays import F64, Cluster, Jobs, ThroughputTable
from forerun.cluster.inputs.costs import CostTable
from forerun.cluster.inputs.limits import Limits


@dataclass(frozen=True, slots=True)
class Window:
    """GPUs that are kept free for maintenance.

    Parameters
    ----------
    from_s, to_s : from when to when.
    gpus : how many.
    announced_s : when schedulers learn of it.
    of_groups : (group, GPUs) of the limits that are planned by, how many of these GPUs are within each (default: none).
    """

    from_s: float
    to_s: float
    gpus: int
    announced_s: float
    of_groups: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything a run depends on, resolved into arrays.

    Parameters
    ----------
    jobs, cluster : what runs, and where.
    profile : throughput of the GPU type that the published schedules run on; None: jobs run rigid, for their durations.
    slot_s : slot of the published schedules.
    gpu_type : that GPU type (default: A100).
    corrected : the switches of known bugs that are off the published behaviour (default: none).
    seed : of all random numbers (default: 0).
    profiles : one a GPU type, where nodes differ (default: none).
    costs : of changes of GPUs, where a table gives them (default: no table).
    slowness : float64[jobs], how many times as long as its profile says each job's work takes, which no policy knows
        beforehand (default: 1 for all).
    applications : training measurements by model, for Pollux (default: none).
    placement_kept : whether schedules that plan ahead leave jobs on their GPUs while the number of them stays, as jobs that
        really run do; where others do not fit, the fewest move, and pay for it (default: everybody is placed afresh and
        moves for nothing, as published).
    maintenance : windows in which GPUs are kept free, by policies that plan by requested times (default: none).
    limits : of what groups of jobs have running at once, for policies that decide through a view (default: none).
    """

    jobs: Jobs
    cluster: Cluster
    profile: ThroughputTable | None
    slot_s: int
    gpu_type: str = "A100"
    corrected: frozenset[str] = frozenset()
    seed: int = 0
    profiles: tuple[ThroughputTable, ...] = field(default=())
    costs: CostTable | None = None
    slowness: F64 | None = None
    applications: Mapping[str, Application] = field(default_factory=dict)
    placement_kept: bool = False
    maintenance: tuple[Window, ...] = ()
    limits: Limits | None = None

    def is_corrected(self, switch: str) -> bool:
        """Whether a switch is corrected in this run (see `engine.known_bugs`)."""
        from forerun.cluster.engine.known_bugs import SWITCHES

        assert switch in SWITCHES, switch
        return switch in self.corrected


def uses_table(setting: Setting) -> bool:
    """Whether published schedules charge what a table of costs says."""
    return setting.costs is not None and setting.is_corrected("cost_table")


def first_costs_s(setting: Setting) -> tuple[list[int], list[int]]:
    """Whole seconds of the first start of each rigid job, and until its GPUs are free again when it is stopped."""
    jobs = setting.jobs
    if not uses_table(setting):
        return [0] * len(jobs), [0] * len(jobs)
    assert setting.costs is not None
    counts, table = list(enumerate(jobs.gpus.tolist())), setting.costs
    starts = [math.ceil(table.start_s(row, gpus) - 1e-9) for row, gpus in counts]
    return starts, [math.ceil(table.drain_s(row, gpus) - 1e-9) for row, gpus in counts]


def restart_costs_s(setting: Setting) -> dict[bool, list[int]]:
    """Whole seconds each rigid job of a published schedule loses at a start, by whether all groups are rebuilt then.

    The simulator's formula; or, where that is corrected and the scenario has a table, the table's (nothing is rebuilt then,
    and first starts cost something else: `first_costs_s`).
    """
    from forerun.cluster.engine.kernels.common import overhead_s

    jobs = setting.jobs
    if uses_table(setting):
        assert setting.costs is not None
        return {False: setting.costs.restart_s(jobs.gpus).tolist()}
    seconds = {}
    for tick in (False, True):
        each = {
            gpus: int(overhead_s(gpus, tick, False, setting.cluster.gpus)) for gpus in set(jobs.gpus.tolist())
        }
        seconds[tick] = [each[gpus] for gpus in jobs.gpus.tolist()]
    return seconds
