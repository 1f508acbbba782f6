"""Live beside simulated: the same jobs under the same policy, job by job.

Two simulations answer two questions. The *forecast* has the costs of the scenario, which were known before the run: it is
judged. The *explanation* has the costs that this run measured: it says how much of a difference is due to costs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import run
from forerun.cluster.inputs.costs import ANY_MODEL
from forerun.cluster.inputs.prepare import Inputs, costs_of
from forerun.cluster.scenario import Costs
from forerun.core.errors import PolicyError
from forerun.core.result.tables import Column, Table, TableSchema
from forerun.live.stays import Stay

PREDICTIONS: Final = TableSchema(
    "predictions",
    (
        Column("job", "", "name"),
        Column("submit_s", "s", "submission"),
        Column("deadline_s", "s", "deadline, absolute; nan: none"),
        Column("admitted", "", "whether it was taken in"),
        Column("predicted_admitted", "", "whether the simulation takes it in"),
        Column("first_start_s", "s", "when it first had slots; nan: never"),
        Column("predicted_first_start_s", "s", "the same, simulated"),
        Column("end_s", "s", "when it ended; nan: never"),
        Column("predicted_end_s", "s", "the same, simulated"),
        Column("explained_end_s", "s", "the same, simulated with the costs that this run measured"),
        Column("met", "", "whether it met its deadline"),
        Column("predicted_met", "", "whether it does in the simulation"),
    ),
    "one row a job, in order of submission: measured beside simulated",
)

#: a start later than this after its slots were free was no change of count: the job had waited
WAITED_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Prediction:
    """One job, live and simulated; instants in seconds of the run, nan where there is none."""

    job: str
    submit_s: float
    deadline_s: float
    admitted: bool
    predicted_admitted: bool
    first_start_s: float
    predicted_first_start_s: float
    end_s: float
    predicted_end_s: float
    explained_end_s: float
    met: bool
    predicted_met: bool

    @property
    def jct_error(self) -> float:
        """How far its measured time from submission to end is from the forecast, as a share; nan where one has no end."""
        return (self.end_s - self.predicted_end_s) / (self.predicted_end_s - self.submit_s)


def predictions_table(predictions: Iterable[Prediction]) -> Table:
    """The table of predictions."""
    return Table.of_records(PREDICTIONS, predictions)


@dataclass(frozen=True, slots=True)
class Errors:
    """How far a simulation is from the run, over the jobs that ended in both; shares of what was simulated.

    Parameters
    ----------
    makespan : of the time from the first submission to the last end.
    mean_jct : of the mean time from submission to end.
    worst_jct : the largest of any one job, without sign.
    jobs : how many ended in both.
    """

    makespan: float
    mean_jct: float
    worst_jct: float
    jobs: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A run beside its forecast and its explanation.

    Parameters
    ----------
    jobs : every job.
    forecast, explanation : how far they are off; None: no job ended in both.
    measured_costs : seconds that changes took in this run, by model and change.
    notes : what a reader must know.
    """

    jobs: tuple[Prediction, ...]
    forecast: Errors | None
    explanation: Errors | None
    measured_costs: Mapping[str, Mapping[str, float]]
    notes: tuple[str, ...] = ()

    @property
    def same_admissions(self) -> bool:
        """Whether the same jobs were taken in."""
        return all(job.admitted == job.predicted_admitted for job in self.jobs)

    @property
    def same_deadlines(self) -> bool:
        """Whether the same jobs met their deadlines."""
        return all(job.met == job.predicted_met for job in self.jobs)

    def data(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {
            "forecast": None if self.forecast is None else asdict(self.forecast),
            "explanation": None if self.explanation is None else asdict(self.explanation),
            "same_admissions": self.same_admissions,
            "same_deadlines": self.same_deadlines,
            "measured_costs": self.measured_costs,
            "jobs": predictions_table(self.jobs).records(),
            "notes": list(self.notes),
        }


def compare(inputs: Inputs, record: Record, stays: Sequence[Stay]) -> Comparison:
    """Simulate the jobs of a run, with the scenario's costs and with measured ones, and lay them beside it.

    Parameters
    ----------
    inputs : of the run's scenario.
    record : what the policy decided and what was observed in the run.
    stays : of all jobs.
    """
    setting = replace(record.setting, costs=costs_of(inputs.scenario, record.setting.jobs))
    measured = measured_costs(stays, dict(zip(map(str, setting.jobs.id), setting.jobs.model, strict=True)))
    forecast, said = _simulated(replace(inputs, setting=setting))
    explanation, _ = _simulated(_with_costs(replace(inputs, setting=setting), measured))
    jobs = tuple(
        Prediction(
            job=str(live["job"]),
            submit_s=live["submit_s"],
            deadline_s=live["deadline_s"],
            admitted=bool(live["admitted"]),
            predicted_admitted=bool(foretold["admitted"]),
            first_start_s=live["first_start_s"],
            predicted_first_start_s=foretold["first_start_s"],
            end_s=live["end_s"],
            predicted_end_s=foretold["end_s"],
            explained_end_s=explained["end_s"],
            met=bool(live["met"]),
            predicted_met=bool(foretold["met"]),
        )
        for live, foretold, explained in zip(_rows(record), _rows(forecast), _rows(explanation), strict=True)
    )
    return Comparison(
        jobs,
        errors_of([(job.submit_s, job.end_s, job.predicted_end_s) for job in jobs]),
        errors_of([(job.submit_s, job.end_s, job.explained_end_s) for job in jobs]),
        measured,
        said,
    )


def errors_of(ends: Sequence[tuple[float, float, float]]) -> Errors | None:
    """Errors over jobs given as (submission, measured end, simulated end) in seconds; None if none ended in both."""
    both = [(submit, end, predicted) for submit, end, predicted in ends if not math.isnan(end - predicted)]
    if not both:
        return None
    first = min(submit for submit, _, _ in both)
    measured, predicted = (max(job[at] for job in both) - first for at in (1, 2))
    jct, predicted_jct = (statistics.fmean(job[at] - job[0] for job in both) for at in (1, 2))
    worst = max(abs(end - foretold) / (foretold - submit) for submit, end, foretold in both)
    return Errors(measured / predicted - 1, jct / predicted_jct - 1, worst, len(both))


def measured_costs(stays: Sequence[Stay], model_of: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """What changes took in a run: median seconds by model and change, in the form of the scenario's `costs: {models: ...}`.

    A start, a restart, a growth and a migration take from the start command, which waits until the slots are free, to the
    first step; a drain from the request to leave to that instant; a shrinkage both, because nobody waits for its slots.
    Models without a measured growth or shrinkage have those of all models together, or else of what was measured.

    Parameters
    ----------
    stays : of all jobs.
    model_of : the model of each job; jobs without one count as the model `*`.
    """
    seconds: dict[str, dict[str, list[float]]] = {}
    together: dict[str, list[float]] = {"grow": [], "shrink": []}
    by_job: dict[str, list[Stay]] = {}
    for stay in stays:
        by_job.setdefault(stay.job, []).append(stay)

    def note(job: str, change: str, spent_s: float) -> None:
        seconds.setdefault(model_of.get(job) or ANY_MODEL, {}).setdefault(change, []).append(spent_s)

    for job, own in by_job.items():
        if own[0].first_step_s is not None:
            note(job, "start", own[0].first_step_s - own[0].start_s)
        for before, after in pairwise(own):
            if after.first_step_s is None or before.why != "drained" or before.asked_s is None:
                continue
            free_s = max(before.free_s.values(), default=after.start_s)
            note(job, "drain", free_s - before.asked_s)
            start_s = after.first_step_s - after.start_s
            if after.start_s - free_s > WAITED_S:
                note(job, "restart", start_s)
            elif before.count == after.count:
                note(job, "migrate", start_s)
            else:
                grows = after.count > before.count
                spent_s = start_s if grows else after.first_step_s - before.asked_s
                together["grow" if grows else "shrink"].append(spent_s)
                note(job, f"{before.count}->{after.count}", spent_s)
    medians = {
        model: {change: statistics.median(each) for change, each in changes.items()}
        for model, changes in seconds.items()
    }
    for changes in medians.values():
        if not any(_grows(change) is True for change in changes):
            changes["1->2"] = statistics.median(together["grow"] or list(changes.values()))
        if not any(_grows(change) is False for change in changes):
            changes["2->1"] = statistics.median(together["shrink"] or list(changes.values()))
    return medians


def _grows(change: str) -> bool | None:
    """Whether a change is to more slots; None for restarts and migrations."""
    before, arrow, after = change.partition("->")
    return int(after) > int(before) if arrow else None


def _with_costs(inputs: Inputs, measured: Mapping[str, Mapping[str, float]]) -> Inputs:
    """The inputs with measured costs in place of the scenario's; models that have none of their own have those of all."""
    if not measured:
        return inputs
    everything = measured.get(ANY_MODEL) or {
        change: statistics.median(model[change] for model in measured.values() if change in model)
        for change in dict.fromkeys(change for model in measured.values() for change in model)
    }
    costs = Costs(
        models={**{model: dict(changes) for model, changes in measured.items()}, ANY_MODEL: dict(everything)}
    )
    scenario = inputs.scenario.with_(costs=costs)
    setting = replace(inputs.setting, costs=costs_of(scenario, inputs.setting.jobs))
    return replace(inputs, scenario=scenario, setting=setting)


def _simulated(inputs: Inputs) -> tuple[Record, tuple[str, ...]]:
    """What happens in a simulation, as far as it goes, and why it went no further."""
    record = Record(inputs.setting)
    try:
        run(inputs, record)
    except PolicyError as error:
        return record, (f"the simulation ends early: {error}",)
    return record, ()


def simulated_rows(inputs: Inputs) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The jobs of a simulation with what is compared, in order of submission, and why it ends early if it does."""
    record, notes = _simulated(inputs)
    return _rows(record), notes


def _rows(record: Record) -> list[dict[str, Any]]:
    """The jobs of a record, with what is compared."""
    jobs = record.setting.jobs
    ended = record.end_s >= 0
    columns = {
        "job": list(jobs.id),
        "submit_s": jobs.submit_s.astype(np.float64),
        "deadline_s": np.where(jobs.has_deadline, jobs.deadline_s.astype(np.float64), np.nan),
        "admitted": record.admitted != 0,
        "first_start_s": np.where(record.first_start_s >= 0, record.first_start_s, np.nan),
        "end_s": np.where(ended, record.end_s, np.nan),
        "met": ended & (~jobs.has_deadline | (record.end_s <= jobs.deadline_s)),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
