"""What a run needs: the files of a scenario, read and resolved.

A scenario of a job becomes `JobInputs`, one of a pipeline `PipelineInputs`; the second is planned, not simulated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from forerun.core.errors import Problem, ScenarioError, TraceError
from forerun.core.rng import stream
from forerun.core.scenario.spec import Input, file_digest
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.signal import Signal
from forerun.core.trace.steps import signal
from forerun.energy.inputs.pipeline import KINDS, Choices, Pipeline
from forerun.energy.inputs.resampling import redrawn_workload
from forerun.energy.inputs.workload import Submission, Workload, join
from forerun.energy.policy import BatchSizeSpec
from forerun.energy.policy.failures import DefaultNotInRange
from forerun.energy.policy.view import Job
from forerun.energy.readers.energy_groups import EnergyGroups
from forerun.energy.readers.energy_tables import PowerTrace, TrainTrace, read_pipeline, read_power, read_train
from forerun.energy.scenario import Scenario

Trace = TypeVar("Trace", TrainTrace, PowerTrace)


@dataclass(frozen=True)
class JobInputs:
    """A recurring job on one GPU type.

    scenario: as given. workload: recorded paths and measured epochs. submissions: the rows of its group (empty: the job
    recurs in sequence). price: [usd/kWh]; carbon: [g/kWh]; None if the scenario has none. repairs: what was repaired in
    the files.
    """

    scenario: Scenario
    workload: Workload
    submissions: tuple[Submission, ...]
    price: Signal | None
    carbon: Signal | None
    repairs: tuple[str, ...]

    @property
    def recurrences(self) -> int:
        """Recurrences of one run: the rows of its group, the number in the scenario, or the customary number."""
        return len(self.submissions) or self.scenario.recurrences or self.workload.recurrences()


@dataclass(frozen=True)
class PipelineInputs:
    """One iteration of a pipeline.

    scenario: as given. pipeline: what was measured. repairs: what was repaired in the profile.
    """

    scenario: Scenario
    pipeline: Pipeline
    repairs: tuple[str, ...]


Inputs = JobInputs | PipelineInputs


def prepare(scenario: Scenario) -> Inputs:
    """Read the files of a scenario.

    Raises ScenarioError for a policy that names what was not measured, and as `read_job` and `read_pipeline_profile`.
    """
    if scenario.pipeline is not None:
        return read_pipeline_profile(scenario)
    inputs = read_job(scenario)
    workload = inputs.workload
    limits_w = {size: workload.limits_of(at) for at, size in enumerate(workload.sizes.tolist())}
    problems = [
        Problem(f"$.{name}.{parameter}", what)
        for name in ("policy", "limit_policy")[: 1 + isinstance(scenario.policy, BatchSizeSpec)]
        for parameter, what in getattr(scenario, name).unmeasured(limits_w)
    ]
    if problems:
        raise ScenarioError(*problems)
    return inputs


def read_job(scenario: Scenario, gpu: str = "") -> JobInputs:
    """Read the measurements of a job.

    gpu: one of the scenario's GPU types (default: the one it names). Raises TraceError for unusable files, the named
    failures of `policy.failures` for a job that the files do not contain.
    """
    if scenario.trace.train is None:
        what = "is not measured as a recurring job: it has a pipeline, which `forerun plan` and `forerun simulate` know"
        raise ScenarioError(Problem("the scenario", what))
    repairs = RepairLog()
    train = _of_job(scenario.job, read_train(_path(scenario.trace.train), repairs))
    power = _of_job(scenario.job, read_power(_path(scenario.trace.power[gpu or scenario.gpu_type]), repairs))
    workload = join(train, power, scenario.job, scenario.switches, scenario.max_power_w)
    if scenario.trace.resample:
        workload = redrawn_workload(workload, stream(scenario.seed, "recorded trainings"))
    default, sizes = scenario.job.default_batch_size, workload.sizes.tolist()
    if default and default not in sizes and not gpu:
        raise DefaultNotInRange.of(default, sizes, scenario.gpu_type)
    return JobInputs(
        scenario=scenario,
        workload=workload,
        submissions=_submissions(scenario, repairs),
        price=signal(scenario.signals.price, unit="usd/kWh", name="price"),
        carbon=signal(scenario.signals.carbon, unit="g/kWh", name="carbon"),
        repairs=tuple(repairs.lines()),
    )


def read_pipeline_profile(scenario: Scenario) -> PipelineInputs:
    """Read the profile of a pipeline. Raises TraceError."""
    given = scenario.pipeline
    assert given is not None, "a scenario of a pipeline"
    repairs = RepairLog()
    trace = read_pipeline(Path(given.file.path), repairs)
    choices = []
    for stage in range(int(trace.stage.max()) + 1):
        of = {}
        for kind in KINDS:
            rows = [
                at for at in range(len(trace)) if trace.stage[at] == stage and trace.instruction[at] == kind
            ]
            rows.sort(key=lambda at: -trace.frequency_mhz[at])
            of[kind] = Choices(trace.frequency_mhz[rows], trace.time_s[rows], trace.energy_j[rows])
        choices.append(of)
    pipeline = Pipeline(tuple(choices), given.microbatches, given.blocked_power_w)
    return PipelineInputs(scenario, pipeline, tuple(repairs.lines()))


def _of_job(job: Job, measured: Trace) -> Trace:
    """Measurements whose file lacks the columns that say what was measured, taken as the job's."""
    filled: dict[tuple[str, ...], tuple[str, ...]] = {
        key: tuple(recorded or default for recorded, default in zip(key, job.workload))
        for key in set(measured.workload)
    }
    changes: dict[str, Any] = {"workload": tuple(filled[key] for key in measured.workload)}
    if isinstance(measured, TrainTrace):
        changes["target_metric"] = np.nan_to_num(measured.target_metric, nan=job.target_metric)
    return replace(measured, **changes)


def _submissions(scenario: Scenario, repairs: RepairLog) -> tuple[Submission, ...]:
    """The submissions of the scenario's group, empty if it has none. Raises TraceError for several groups in a file."""
    if scenario.group is None:
        return ()
    trace = EnergyGroups(group=scenario.group.id).read(_path(scenario.group.file), repairs)
    groups = sorted(set(trace["group"].tolist()))
    if len(groups) > 1:
        known = ", ".join(groups[:20]) + (", ..." if len(groups) > 20 else "")
        raise TraceError(
            Problem(scenario.group.file.path, f"has several groups, name one as group.id: {known}")
        )
    columns = (trace["start_s"].tolist(), trace["end_s"].tolist(), trace["runtime_ratio"].tolist())
    return tuple(Submission(*row) for row in zip(*columns))


def _path(given: Input) -> Path:
    """The path of an input. Raises TraceError if its content has changed since the scenario was resolved."""
    path = Path(given.path)
    if given.sha256 and path.is_file() and file_digest(path) != given.sha256:
        raise TraceError(
            Problem(given.path, "has changed since the scenario was resolved; its digest differs")
        )
    return path
