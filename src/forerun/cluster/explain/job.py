"""The story of one job of a cluster's run: its life, its waiting by cause, and who had the GPUs meanwhile.

The run is repeated, and its record says all. A run that does not repeat is an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import Outcome, terms_of
from forerun.cluster.explain.ahead import Occupancy, total_ahead
from forerun.cluster.explain.job_changes import Beside
from forerun.cluster.explain.job_story import (
    Fate,
    Moment,
    Others,
    Story,
    Wait,
    mostly,
    row_of,
    seconds_by_cause,
)
from forerun.cluster.inputs.arrays import F64, I64
from forerun.cluster.inputs.prepare import Inputs
from forerun.cluster.scenario import Scenario
from forerun.cluster.summary.causes import CAUSES as OF_WAITING
from forerun.cluster.summary.causes import Caused, Decided, causes_of_log, within
from forerun.cluster.summary.gpus import nodes_of
from forerun.cluster.summary.ledgers import WORK_PARTS, part_of
from forerun.cluster.summary.operators import calendar
from forerun.cluster.summary.past import Recorded
from forerun.cluster.summary.spans import Spans
from forerun.cluster.summary.tables import nodes_text
from forerun.cluster.summary.waits import (
    horizon_of,
    stretches_of,
    waits_of,
)
from forerun.core.domain import Domain
from forerun.core.errors import StoreError, UsageError
from forerun.core.result.figures import Axis, Figure, by_series
from forerun.core.result.ledger import Ledger
from forerun.core.result.numbers import duration, format_number
from forerun.core.result.run import Result, SavedRun

#: causes of waiting, in words
CAUSES: Final = {
    "admission": "the policy had not taken it in yet",
    **{cause: meaning for cause, (_, meaning) in OF_WAITING.items()},
}
#: stretches that the figure divides the time of waiting into; it draws areas from 25 on
SLOTS: Final = 120
#: jobs ahead that the figure names
NAMED: Final = 3


def story_of(
    domain: Domain[Scenario, Inputs, Outcome], scenario: Scenario, run: Result | SavedRun, job: str
) -> Story:
    """What happened to a job. Raises UnknownName, UsageError for a live run, StoreError for one that does not repeat."""
    if "predictions" in run.tables or "slots" in run.tables:
        what = "is for simulated runs, and this one ran live; `forerun live compare` simulates it beside"
        raise UsageError.at("--job", what)
    jobs = run.tables["jobs"]
    names = [str(name) for name in jobs["job"].tolist()]
    row = row_of(names, job)
    inputs = domain.prepare(scenario)
    record = domain.run(inputs).record
    again = [(-1.0 if math.isnan(at) else at) for at in (jobs["first_start_s"][row], jobs["end_s"][row])]
    if len(record.end_s) != len(names) or again != [record.first_start_s[row], record.end_s[row]]:
        where = run.folder if isinstance(run, SavedRun) else f"run {run.id}"
        raise StoreError.at(
            where, "is another run when it is simulated again; simulate it anew, then explain"
        )
    terms = terms_of(scenario, inputs.setting)
    decided = Decided.by(inputs.policy, terms, record.setting, named=record.names_gpus)
    told = _Telling(record, row, decided).story(Beside(jobs, job).as_it_was())
    if isinstance(inputs.past, Recorded) and math.isfinite(start_s := float(inputs.past.jobs.start_s[row])):
        wait_s = max(start_s - float(inputs.setting.jobs.submit_s[row]), 0.0)
        life = sorted((*told.moments, Moment(start_s, "in the log: started")), key=lambda one: one.at_s)
        recorded = causes_of_log(inputs.setting, inputs.past, inputs.known, focus=row).stretches
        why = f"{told.why}; in the log it waited {duration(wait_s)}"
        if recorded:
            why += f", {mostly(seconds_by_cause(recorded, CAUSES), CAUSES, wait_s)[1]}"
        told = replace(told, why=why, moments=tuple(life), recorded_s=(wait_s, start_s), recorded=recorded)
    when = calendar(np.array([round(one.at_s) for one in told.moments]), inputs)
    dated = [replace(one, when=at) for one, at in zip(told.moments, when, strict=True)]
    return replace(told, moments=tuple(dated))


class _Telling:
    """What a record says about one job.

    Parameters
    ----------
    record : of the whole run.
    row : of the job.
    decided : by what it went so.
    """

    def __init__(self, record: Record, row: int, decided: Decided) -> None:
        self.record, self.row = record, row
        self.jobs = record.setting.jobs
        stretches = stretches_of(record)
        self.all_waits = waits_of(record, stretches, decided, focus=row)
        #: of all jobs, as far as they had GPUs that the job may use, and how many these are
        seats = record.seats(stretches.row, stretches.from_s) if record.names_gpus else None
        size = record.setting.cluster.node_gpus()
        self.stretches, self.total = within(stretches, seats, size, self.all_waits.causes.reach)
        self.own = np.flatnonzero(self.stretches.row == row)
        self.came_s = record.came_s.astype(np.float64)
        self.occupancy = Occupancy(self.stretches, self.total, self.jobs.id, self.came_s, row)
        self.submit_s = float(self.came_s[row])
        judged_s = float(record.judged_s[row])
        judged_s = self.submit_s if math.isnan(judged_s) else max(judged_s, self.submit_s)
        if record.end_s[row] >= 0:
            end_s = float(record.end_s[row])
        else:
            end_s = judged_s if record.admitted[row] == 0 else horizon_of(record)[1]
        self.end_s = max(end_s, self.submit_s)
        self.judged_s = min(judged_s, self.end_s)

    def story(self, others: Others) -> Story:
        """All of it. others: the other jobs."""
        waits = tuple(self._waits())
        fate = self._fate()
        return Story(
            job=str(self.jobs.id[self.row]),
            why=self._why(waits, fate),
            fate=fate,
            moments=tuple(self._moments(waits, fate)),
            waits=waits,
            ledger=self._ledger(waits),
            others=others,
            figure=self._figure(waits),
        )

    def _fate(self) -> Fate:
        record, row = self.record, self.row
        return Fate(
            start_s=float(record.first_start_s[row]) if record.first_start_s[row] >= 0 else None,
            end_s=float(record.end_s[row]) if record.end_s[row] >= 0 else None,
            deadline_s=float(self.jobs.deadline_s[row]) if self.jobs.has_deadline[row] else None,
            refused=record.refusals.get(row, ""),
        )

    def _waits(self) -> Iterator[Wait]:
        """Every stretch of waiting by its cause, with who had GPUs in it."""
        came_s = self.submit_s - float(self.all_waits.causes.waited_s[self.row, 0])
        early = [("not_eligible", came_s, self.submit_s), ("admission", self.submit_s, self.judged_s)]
        stretches = [
            Caused(from_s, to_s, cause, CAUSES[cause]) for cause, from_s, to_s in early if to_s > from_s
        ]
        return self.occupancy.waits([*stretches, *self.all_waits.causes.stretches], self.end_s)

    def _moments(self, waits: Sequence[Wait], fate: Fate) -> list[Moment]:
        """Its life in order."""
        record, row, of = self.record, self.row, self.stretches
        asked = int(self.jobs.gpus[row])
        due = "" if fate.deadline_s is None else f", due at {format_number(fate.deadline_s)} s"
        life = [Moment(self.submit_s, f"submitted, asks for {_gpus(asked)}{due}")]
        if record.admitted[row] == 0:
            life.append(Moment(self.judged_s, f"refused: {fate.refused or 'by the policy'}"))
        elif not math.isnan(record.judged_s[row]):
            life.append(Moment(self.judged_s, "admitted"))
        life += [Moment(wait.from_s, f"waits: {wait.because}") for wait in waits]
        places = nodes_of(record, stretches_of(record)) if record.names_gpus else None
        node = np.repeat(np.arange(record.setting.cluster.nodes), record.setting.cluster.node_gpus())
        before, until_s, started = 0, math.nan, False
        for number in self.own.tolist():
            from_s, to_s, gpus = float(of.from_s[number]), float(of.to_s[number]), int(of.gpus[number])
            if from_s >= self.end_s:
                break  # kept to the end of a slot, without work
            if before and until_s < from_s:
                life.append(Moment(until_s, "stopped: it loses its GPUs"))
                before = 0
            what = _change(before, gpus, started)
            life.append(Moment(from_s, what, gpus, nodes_text(places[number], node) if places else ""))
            before, until_s, started = gpus, to_s, True
        if before and until_s < self.end_s:
            life.append(Moment(until_s, "stopped: it loses its GPUs"))
        if fate.deadline_s is not None and self.end_s > fate.deadline_s > self.submit_s:
            life.append(Moment(fate.deadline_s, "its deadline passes"))
        if fate.end_s is not None:
            life.append(Moment(fate.end_s, f"ended{_in_time(fate)}"))
        elif record.admitted[row] != 0:
            life.append(Moment(self.end_s, "the run ends, the job has not"))
        return sorted(life, key=lambda moment: moment.at_s)

    def _ledger(self, waits: Sequence[Wait]) -> Ledger:
        """Its time from submission to end, or to the refusal."""
        by_cause_s = seconds_by_cause(waits, CAUSES)
        parts, meanings = {}, {}
        for part, (column, meaning) in WORK_PARTS.items():
            working = self.all_waits.running if column == "running" else self.all_waits.reconfiguration
            parts[part] = by_cause_s.get(column, 0.0) if column in CAUSES else float(working[self.row])
            meanings[part] = meaning
        for cause, (_, meaning) in OF_WAITING.items():
            parts[part_of(cause)], meanings[part_of(cause)] = by_cause_s.get(cause, 0.0), meaning
        return Ledger("time of the job", "s", math.fsum(parts.values()), parts, meanings)

    def _why(self, waits: Sequence[Wait], fate: Fate) -> str:
        """How long it waited and for what, in a sentence."""
        name, whole_s = f"job {self.jobs.id[self.row]}", self.end_s - self.submit_s
        if self.record.admitted[self.row] == 0:
            return f"{name} was refused: {fate.refused or 'by the policy'}"
        waited_s = math.fsum(wait.seconds for wait in waits)
        ended = (
            f"it ended{_in_time(fate)}"
            if fate.end_s is not None
            else "it has not ended by the end of the run"
        )
        if not waited_s:
            return f"{name} never waited; {ended}"
        worst, most = mostly(seconds_by_cause(waits, CAUSES), CAUSES, waited_s)
        text = f"{name} waited {duration(waited_s)} of {duration(whole_s)}, {most}"
        if ahead := total_ahead([wait for wait in waits if wait.cause == worst]):
            first = [f"job {other} ({_gpu_time(gpu_s)})" for other, gpu_s in ahead[:2]]
            text += f"; most of the GPU time then went to {' and '.join(first)}"
        if worst in ("promised", "order"):
            longest = max((wait for wait in waits if wait.cause == worst), key=lambda wait: wait.seconds)
            if longest.queued_before:
                text += f"; it let job {longest.queued_before[0]}, which waited, too, go first"
        return f"{text}; {ended}"

    def _mean_gpus(self, numbers: I64, edges: F64) -> F64:
        """The mean GPUs of some stretches between each two of some instants."""
        of = self.stretches
        at_s, in_use = Spans(of.from_s[numbers], of.to_s[numbers], of.gpus[numbers]).levels()
        if not len(at_s):
            return np.zeros(len(edges) - 1)
        gpu_s = np.append(0.0, np.cumsum(in_use[:-1] * np.diff(at_s)))
        means: F64 = np.diff(np.interp(edges, at_s, gpu_s)) / np.diff(edges)
        return means

    def _figure(self, waits: Sequence[Wait]) -> Figure | None:
        """GPUs in use while it waited: its own, those of the jobs ahead, of others, and free ones."""
        ahead = total_ahead(waits)
        if not waits or waits[-1].to_s <= waits[0].from_s:
            return None
        edges = np.linspace(waits[0].from_s, waits[-1].to_s, SLOTS + 1)
        names = {other: f"job {other}" for other, _ in ahead[:NAMED]}
        names[str(self.jobs.id[self.row])] = mine = f"job {self.jobs.id[self.row]} itself"
        whose = np.array([names.get(str(name), "other jobs") for name in self.jobs.id])[self.stretches.row]
        order = (mine, *(name for name in names.values() if name != mine), "other jobs")
        curves = {name: self._mean_gpus(np.flatnonzero(whose == name), edges) for name in order}
        curves["free"] = np.maximum(self.total - np.sum(list(curves.values()), axis=0), 0.0)
        shown = {name: curve for name, curve in curves.items() if curve.any()}
        return Figure.of(
            "stacked_bar",
            "gpus-while-it-waited",
            "GPUs while it waited",
            by_series(
                "whose",
                # A mean lasts from its instant to the next; the last one is said again at its end.
                {
                    name: {"time_s": edges, "gpus": np.append(curve, curve[-1])}
                    for name, curve in shown.items()
                },
            ),
            x=Axis("time_s", "time", "s"),
            y=Axis("gpus", "GPUs"),
            series="whose",
            order=tuple(shown),
            caption=(
                f"GPUs from the first to the last second in which job {self.jobs.id[self.row]} waited: its own, those of "
                f"the jobs that had most, of all others, and free ones; means over {SLOTS} equal stretches."
            ),
        )


def _change(before: int, gpus: int, started: bool) -> str:
    """What a stretch of GPUs means after the one before it."""
    if not before:
        return f"{'goes on' if started else 'starts'} on {_gpus(gpus)}"
    if gpus == before:
        return f"moves to other GPUs, {gpus} as before"
    return f"{'grows' if gpus > before else 'shrinks'} from {before} to {_gpus(gpus)}"


def _in_time(fate: Fate) -> str:
    """How an end stands to the deadline."""
    if (early_s := fate.early_s) is None:
        return ""
    return (
        f" {duration(early_s)} before its deadline"
        if early_s >= 0
        else f" {duration(-early_s)} after its deadline"
    )


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count != 1)}"


def _gpu_time(gpu_s: float) -> str:
    return f"{gpu_s / 3600:.3g} GPU-h" if gpu_s >= 3600 else f"{gpu_s:.4g} GPU-s"
