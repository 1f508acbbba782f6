"""From a scenario's files to the arrays that a simulation runs on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from forerun.domains.energy.failures import DefaultNotInRange
from forerun.domains.energy.model import GroupRow, Job, Rules
from forerun.domains.energy.scenario import Scenario
from forerun.domains.energy.workload import Workload, join
from forerun.errors import Problem, ScenarioError, TraceError
from forerun.scenario.spec import Input, file_digest
from forerun.trace.readers.energy_groups import EnergyGroups
from forerun.trace.readers.energy_power import PowerTrace, read_power
from forerun.trace.readers.energy_train import TrainTrace, read_train
from forerun.trace.repair import RepairLog

Measured = TypeVar("Measured", TrainTrace, PowerTrace)


@dataclass(frozen=True)
class World:
    """What was read: the job on its GPU, the submissions of its group (empty: in sequence), and repairs made."""

    workload: Workload
    rows: tuple[GroupRow, ...]
    repairs: tuple[str, ...]


def read_world(scenario: Scenario, gpu: str = "", rules: Rules | None = None) -> World:
    """Read the files of a scenario, for one of its GPU types (default: the one it names).

    Raises TraceError for unusable files, the room's named failures for a job that they do not hold.
    """
    if scenario.trace.train is None:
        what = "is not measured as a recurring job: it has a pipeline, which `forerun plan` and `forerun simulate` know"
        raise ScenarioError(Problem("the scenario", what))
    repairs = RepairLog()
    train = _about(scenario.job, read_train(_path(scenario.trace.train), repairs))
    power = _about(scenario.job, read_power(_path(scenario.trace.power[gpu or scenario.gpu_type]), repairs))
    workload = join(train, power, scenario.job, rules or scenario.switches, scenario.max_power_w)
    default, sizes = scenario.job.default_batch_size, workload.sizes.tolist()
    if default and default not in sizes and not gpu:
        fits = [size for size in sizes if size <= default]
        offer = f"; the largest below it is {max(fits)}" if fits else ""
        known = ", ".join(map(str, sizes))
        what = f"default batch size {default} was not measured on {scenario.gpu_type}: {known}{offer}"
        raise DefaultNotInRange(Problem("$.job.default_batch_size", what))
    return World(workload, _group_rows(scenario, repairs), tuple(repairs.lines()))


def _about(job: Job, measured: Measured) -> Measured:
    """Measurements that do not say of what they are, by a column they lack, taken as the job's."""
    filled: dict[tuple[str, ...], tuple[str, ...]] = {
        key: tuple(said or wanted for said, wanted in zip(key, job.workload))
        for key in set(measured.workload)
    }
    changes: dict[str, Any] = {"workload": tuple(filled[key] for key in measured.workload)}
    if isinstance(measured, TrainTrace):
        changes["target_metric"] = np.nan_to_num(measured.target_metric, nan=job.target_metric)
    return replace(measured, **changes)


def _group_rows(scenario: Scenario, repairs: RepairLog) -> tuple[GroupRow, ...]:
    if scenario.group is None:
        return ()
    trace = EnergyGroups(group=scenario.group.id).read(_path(scenario.group.file), repairs)
    groups = sorted(set(trace["group"].tolist()))
    if len(groups) > 1:
        known = ", ".join(groups[:20]) + (", ..." if len(groups) > 20 else "")
        raise TraceError(
            Problem(scenario.group.file.path, f"holds several groups, name one as group.id: {known}")
        )
    columns = (trace["start_s"].tolist(), trace["end_s"].tolist(), trace["runtime_ratio"].tolist())
    return tuple(GroupRow(*row) for row in zip(*columns))


def _path(given: Input) -> Path:
    path = Path(given.path)
    if given.sha256 and path.is_file() and file_digest(path) != given.sha256:
        raise TraceError(
            Problem(given.path, "has changed since the scenario was resolved; its digest differs")
        )
    return path
