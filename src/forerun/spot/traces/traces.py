"""`forerun trace` for the spot domain: generate, fit and describe histories of a preemptible fleet.

A description is the part of a scenario that says where nodes come from, its `fleet`, and for how long; a scenario file
is a description, and what `fit` writes can be pasted into one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np

from forerun.core.errors import TraceError, UsageError
from forerun.core.scenario.numbers import NotNegative
from forerun.core.scenario.spec import Spec, to_data
from forerun.core.scenario.text import read_document
from forerun.core.trace.domain_traces import (
    DomainTraces,
    Fitted,
    GeneratedTrace,
    Recorded,
    ReportTable,
    TraceReport,
    Wanted,
    decoded,
    is_description,
)
from forerun.core.trace.files import save_trace
from forerun.core.trace.rows import TEXT
from forerun.core.trace.table import Provenance, Trace, schema_of
from forerun.spot.engine.membership import Membership
from forerun.spot.inputs.recorded import fleet_of, looked_until_s
from forerun.spot.readers.spot_membership import COLUMNS
from forerun.spot.reserved.failures import ClusterFit, FailureLog, failure_rows, fit_cluster
from forerun.spot.reserved.scenario import Cluster
from forerun.spot.scenario import Leaves, Scenario
from forerun.spot.scenario import Recorded as RecordedFleet
from forerun.spot.scenario.processes import Process, generate
from forerun.spot.traces import fit as fitting
from forerun.spot.traces.laws import supported
from forerun.spot.traces.statistics import (
    CountTraces,
    FleetStatistics,
    as_the_notebook,
    fleet_statistics,
    read_counts,
    statistics_of_counts,
)
from forerun.spot.traces.tables import (
    batches_table,
    beside,
    features_table,
    figures_table,
    laws_table,
    measured_run_shown,
    notebook_table,
    rates_table,
    recording_table,
    survival_table,
    tests_table,
)

#: stretches of a recording, where it is not said how far trials look ahead, and at most
STRETCHES: Final = 8
MOST_STRETCHES: Final = 500
#: what a name, or nothing, starts from: the two count files of Bamboo's 64-node fleet, corrected
START: Final[dict[str, Any]] = {
    "name": "poisson",
    "removals_per_min": 0.1634,
    "adds_per_min": 0.1408,
    "removal_batch": {"name": "geometric", "p": 0.4143},
    "add_batch": {"name": "geometric", "p": 0.393},
    "add_burst": {"probability": 0.04},
}
_SURVIVAL_H: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 24.0)
_INVISIBLE: Final = (
    "known by counts: removals and additions are net of swaps within a row, lives of nodes are unknown"
)


class _Described(Spec, frozen=True, kw_only=True):
    """A fleet's process, and the length of the history to generate."""

    fleet: Process | Cluster
    horizon_s: float = 0.0


class _FitSettings(Spec, frozen=True, kw_only=True):
    """How a fleet is fitted.

    model: `poisson`, `per_node`, `lifetimes`, or the `best` of them; or `cluster`, a reserved cluster whose nodes fail and
    come back under their names.  arrivals: when the cluster's failures of single nodes come: `poisson`, `weibull` gaps,
    `hawkes` (failures cause others), `modulated` (storms), or the simplest that the log supports (`best`).
    batches: sizes of Poisson events.  method: `notebook` fits by the 2021 notebook's definitions (two count files).
    cap: the fleet's size when complete (0: the most nodes seen).  traces: fleets generated to judge the fit.
    leaves: which node leaves where only counts are known.  ahead: how far trials will look ahead (0: an eighth of the
    recording); their rates differ as those of stretches so long did.
    """

    method: Literal["corrected", "notebook"] = "corrected"
    model: Literal["best", "poisson", "per_node", "lifetimes", "cluster"] = "best"
    arrivals: Literal["best", "poisson", "weibull", "hawkes", "modulated"] = "best"
    batches: Literal["empirical", "geometric", "marks"] = "empirical"
    cap: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    traces: Annotated[int, msgspec.Meta(ge=40, le=100_000)] = 1000
    leaves: Leaves = "lifo"
    ahead_s: NotNegative = 0.0

    def problems(self) -> list[tuple[str, str]]:
        """Nothing is set that the fit does not read."""
        unread: tuple[str, ...]
        if self.method == "notebook":
            fit, unread = "method=notebook", ("model", "arrivals", "batches", "cap", "traces", "ahead_s")
        elif self.model == "cluster":
            fit, unread = "model=cluster", ("batches", "cap", "ahead_s")
        else:
            fit, unread = f"model={self.model}", ("arrivals",)
        return [
            (one.name, f"changes nothing with {fit}")
            for one in msgspec.structs.fields(self)
            if one.name in unread and getattr(self, one.name) != one.default
        ]


class _StatsSettings(Spec, frozen=True, kw_only=True):
    """leaves: which node leaves where only counts are known; it changes lives and batches, not node-hours."""

    leaves: Leaves = "lifo"


class SpotTraces(DomainTraces):
    """Histories of fleets: statistics and fitted processes of recorded ones, and generated ones."""

    makes = "changes of membership"
    about = "poisson, per_node, hourly, lifetimes, bathtub, storms, tick (the 2021 notebook's), cluster"

    def generate(self, wanted: Wanted) -> GeneratedTrace:
        """One history from a process's name, a description file or a scenario."""
        if wanted.count is not None:
            raise UsageError.at("--count", "a fleet is generated for a time: --horizon 6h")
        described = _described(wanted.description, wanted.settings)
        until_s = described.horizon_s if wanted.horizon_s is None else wanted.horizon_s
        if not until_s > 0:
            raise UsageError.at("--horizon", "is missing: set the length of the history, such as 6h")
        if isinstance(described.fleet, Cluster):
            fleet = Membership.from_rows(failure_rows(described.fleet, until_s, wanted.seed, 0))
        else:
            fleet = generate(described.fleet, seed=wanted.seed, horizon_s=until_s)
        process = {"fleet": to_data(described.fleet), "seed": wanted.seed, "horizon_s": until_s}
        trace = trace_of(fleet, Provenance(format="generated", options=process))
        seen = fleet_statistics(fleet, until_s)
        return GeneratedTrace(
            count=len(trace),
            what=self.makes,
            save=lambda path: save_trace(trace, path),
            report=TraceReport(data=process | {"statistics": seen.data()}, tables=(figures_table(seen),)),
            next_step="forerun trace stats spot {out}",
        )

    def fit(self, recorded: Recorded, settings: Sequence[str], *, seed: int) -> Fitted:
        """A process like the recorded fleet, intervals of its rates, tests, and posterior-predictive bands.

        Parameters
        ----------
        recorded : a membership trace, counts over time, or the notebook's pair of count files.
        settings : model, batches, cap and number of generated fleets; see `_FitSettings`.
        seed : of the draws.

        Raises UsageError for a cap below the recording's nodes, TraceError for a fleet without removals or additions.
        """
        chosen = decoded("", {}, settings, _FitSettings)
        if chosen.model == "cluster":
            return _as_cluster(recorded, chosen, seed)
        pair, seen, notes, looked = _seen(recorded, chosen.leaves, seed)
        if chosen.method == "notebook":
            return _as_notebook(pair, seen, recorded)
        if 0 < chosen.cap < seen.max_nodes:
            raise UsageError.at(
                "--set cap", f"{chosen.cap} is below the {seen.max_nodes} nodes of the recording"
            )
        fitted = fitting.fit(
            seen, model=chosen.model, batches=chosen.batches, cap=chosen.cap, traces=chosen.traces, seed=seed
        )
        tests = fitting.tests(seen, seed)
        process, ahead = _ahead(fitted.process, seen, chosen.ahead_s)
        description = {"fleet": to_data(process), "horizon_s": seen.duration_h * 3600.0}
        outside = ", ".join(feature.name for feature in fitted.features if not feature.ok)
        notes = [*notes, f"process: {_short(fitted.process)}"]
        if fitted.compared:
            tried = ", ".join(f"{name} {share:.0%}" for name, share in fitted.compared)
            notes.append(f"figures in their bands, by model: {tried}")
        band = f"the 95 % band of {fitted.traces} generated fleets"
        notes.append(
            f"outside {band}: {outside}; in this the process does not represent the recording"
            if outside
            else f"all figures lie in {band}"
        )
        notes += [ahead, "its `fleet` can replace the recording in a scenario, for trials and plans"]
        data = {
            "process": to_data(process),
            "rates": [asdict(rate) for rate in fitted.rates],
            "features": [asdict(one) | {"ok": one.ok} for one in fitted.features],
            "tests": [asdict(one) | {"ok": one.ok} for one in tests],
            "agreement": fitted.agreement,
            "recording": looked,
        }
        tables = (rates_table(fitted.rates), features_table(fitted.features))
        report = _report(recorded, data, (*tables, *((tests_table(tests),) if tests else ())), notes)
        return Fitted(description=description, report=report)

    def stats(self, recorded: Recorded, settings: Sequence[str], *, seed: int) -> TraceReport:
        """A fleet's figures; of two count files the notebook's twelve values too, and what they were meant to be; of a
        folder with the logs of a measured run its ledger beside the model's.
        """
        chosen = decoded("", {}, settings, _StatsSettings)
        if len(recorded.files) == 1 and recorded.files[0].is_dir():
            return measured_run_shown(recorded)
        pair, seen, notes, looked = _seen(recorded, chosen.leaves, seed)
        tests = fitting.tests(seen, seed)
        tables = [figures_table(seen), batches_table(seen), tests_table(tests)]
        data: dict[str, Any] = {
            "statistics": seen.data(),
            "recording": looked,
            "tests": [asdict(one) for one in tests],
        }
        if looked:
            tables.insert(0, recording_table(looked))
        if seen.lifetimes_h:
            at_h = [t for t in _SURVIVAL_H if t <= max(*seen.lifetimes_h, *seen.ages_h, 0.5)]
            shares = fitting.survival(seen, at_h)
            data["survival"] = dict(zip(map(str, at_h), shares, strict=True))
            tables.append(survival_table(at_h, shares))
        if pair is not None:
            corrected = {name: better for name, _, better, _ in beside(pair)}
            data |= {"notebook": as_the_notebook(pair), "corrected": corrected}
            tables.insert(0, notebook_table(pair))
        return _report(recorded, data, tables, notes)


TRACES: Final = SpotTraces()


def _report(
    recorded: Recorded, data: Mapping[str, Any], tables: Sequence[ReportTable], notes: Sequence[str]
) -> TraceReport:
    """A report of recorded traces; its data have the repairs and the notes too."""
    return TraceReport(
        data={**data, "repairs": recorded.log.rows(), "notes": list(notes)},
        tables=tuple(tables),
        notes=tuple(notes),
        repairs=recorded.log.repairs,
    )


def trace_of(fleet: Membership, provenance: Provenance) -> Trace:
    """A fleet's history as a trace of membership."""
    rows = list(fleet.rows())
    table = {
        "t_s": np.array([t_s for t_s, _, _ in rows], dtype=np.float64),
        "added": np.array([int(added) for _, added, _ in rows], dtype=np.int64),
        "node": np.array([node for _, _, node in rows], dtype=TEXT),
    }
    return Trace("membership", schema_of(COLUMNS), table, time="t_s", provenance=provenance)


# --------------------------------------------------------------------------- descriptions


def _described(description: str, settings: Sequence[str]) -> _Described:
    """The process and length that a name, a description file or a scenario gives, with settings that change them."""
    changes = [_placed(text) for text in settings]
    if description and (is_description(description) or Path(description).exists()):
        data = read_document(Path(description)).data
        if isinstance(data, dict) and data.get("domain") == "spot":
            scenario = decoded(description, {}, changes, Scenario)
            if isinstance(scenario.fleet, RecordedFleet):
                what = "its fleet is a recording; fit it first: forerun trace fit spot"
                raise UsageError.at(description, what)
            return _Described(fleet=scenario.fleet, horizon_s=scenario.horizon_s)
        return decoded(description, {}, changes, _Described)
    start = {"name": description} if description not in ("", START["name"]) else START
    return decoded("", {"fleet": dict(start)}, changes, _Described)


def _placed(text: str) -> str:
    """A short key where it belongs: `removals_per_min` in the fleet."""
    first = text.partition("=")[0].partition(".")[0].strip()
    return text if first in ("fleet", "horizon", "horizon_s") else f"fleet.{text}"


# --------------------------------------------------------------------------- what was recorded


def _seen(
    recorded: Recorded, leaves: Leaves, seed: int
) -> tuple[CountTraces | None, FleetStatistics, list[str], dict[str, Any]]:
    """The recording: a membership file, a count file, or a count file with its terminations; its figures, what to know
    about it, and how it was read.
    """
    if len(recorded.files) == 2:
        pair = read_counts(*recorded.files, repairs=recorded.log)
        ramp = "the first big rise of the count is taken for the ramp-up: nodes after it are the start"
        lost = sum(pair.terminated)
        hidden = (
            f"{lost - pair.seen_lost} of {lost} terminations do not show in the counts: swapped within a row"
        )
        return pair, statistics_of_counts(pair), [_INVISIBLE, hidden, ramp], {}
    trace = recorded.trace()
    fleet = fleet_of(trace, leaves, seed, recorded.only())
    counted = trace.kind == "capacity"
    notes = [f"{_INVISIBLE}; nodes are made of counts by the rule {leaves!r}"] if counted else []
    seen = fleet_statistics(fleet, looked_until_s(trace))
    if seen.duration_h == 0:
        raise TraceError.at(recorded.only(), "contains one instant only; statistics need a duration")
    return None, seen, notes, _looked_at(trace)


def _looked_at(trace: Trace) -> dict[str, Any]:
    """How a recording was read, and what it contains: a count series as counts, not as nodes made of them."""
    made = trace.provenance
    figures: dict[str, Any] = {"format": made.format, **made.options}
    if trace.kind == "capacity":
        nodes, edges = trace["nodes"], np.append(trace["t_s"], looked_until_s(trace))
        spans, steps = np.diff(edges), np.diff(nodes)
        whole_s = float(spans.sum())
        figures |= {
            "changes": len(nodes) - 1,
            "min_nodes": int(nodes.min()),
            "max_nodes": int(nodes.max()),
            "net_up": int(steps[steps > 0].sum()),
            "net_down": int(-steps[steps < 0].sum()),
            "mean_nodes": float((nodes * spans).sum() / whole_s) if whole_s else float(nodes[0]),
            "zero_share": float(spans[nodes == 0].sum() / whole_s) if whole_s else float(nodes[0] == 0),
        }
    else:
        added = trace["node"][trace["added"] == 1].tolist()
        figures["names_reused"] = len(added) - len(set(added))
    return figures


def _as_notebook(pair: CountTraces | None, seen: FleetStatistics, recorded: Recorded) -> Fitted:
    """The process that the 2021 notebook fits, from its two files."""
    if pair is None:
        raise UsageError.at("--set method=notebook", "needs the two files of counts and terminations")
    process = fitting.notebook_process(pair)
    note = (
        "the notebook's definitions: its rounded normals make batches of 2.76 nodes of a mean of 2.41, so fleets drift; "
        "`method=corrected` keeps the mean"
    )
    data = {"process": to_data(process), "notebook": as_the_notebook(pair)}
    return Fitted(
        description={"fleet": to_data(process), "horizon_s": seen.duration_h * 3600.0},
        report=_report(recorded, data, (notebook_table(pair),), (note,)),
    )


def _as_cluster(recorded: Recorded, chosen: _FitSettings, seed: int) -> Fitted:
    """A reserved cluster like a recorded log of failures and repairs, judged by logs that it generates."""
    if len(recorded.files) != 1 or (trace := recorded.trace()).kind != "membership":
        raise UsageError.at(
            "--set model=cluster", "needs one membership trace, whose nodes come back under their names"
        )
    horizon_s = looked_until_s(trace)
    log = FailureLog.of_rows(fleet_of(trace, chosen.leaves, seed, recorded.only()).rows(), horizon_s)
    fitted = fit_cluster(log, traces=chosen.traces, seed=seed, arrivals=chosen.arrivals)
    outside = ", ".join(feature.name for feature in fitted.features if not feature.ok)
    band = f"the 95 % band of {fitted.traces} generated logs"
    notes = [
        f"outside {band}: {outside}; in this the cluster does not represent the log"
        if outside
        else f"all figures lie in {band}",
        *_laws_notes(fitted),
        "its `fleet` describes the whole cluster of the log; set `fleet.gpus` and `fleet.spares` to those of a job",
    ]
    data = {
        "process": to_data(fitted.cluster),
        "rates": [asdict(rate) for rate in fitted.rates],
        "features": [asdict(one) | {"ok": one.ok} for one in fitted.features],
        "tests": [asdict(one) | {"ok": one.ok} for one in fitted.tests],
        "laws": [
            {
                "law": law.name,
                "parameters": {rate.name: [rate.value, rate.low, rate.high] for rate in law.rates},
                "log_likelihood": law.log_likelihood,
                "aic": law.aic,
                "residual_p": law.residual_p,
                "supported": law in supported(fitted.laws),
            }
            for law in fitted.laws
        ],
    }
    title = (
        "fitted parameters, 95 % intervals: exact for rates, else by the likelihood or by resampling the log"
    )
    tables = (
        rates_table(fitted.rates, title),
        features_table(fitted.features),
        tests_table(fitted.tests),
        *((laws_table(fitted.laws),) if fitted.laws else ()),
    )
    return Fitted(
        description={"fleet": to_data(fitted.cluster), "horizon_s": horizon_s},
        report=_report(recorded, data, tables, notes),
    )


def _laws_notes(fitted: ClusterFit) -> list[str]:
    """Which laws of arrivals the log supports, and whether any is good enough."""
    if fitted.law is None:
        return ["too few failures of single nodes to say which law they follow"]
    names = [law.name for law in supported(fitted.laws)]
    tie = f"does not tell {' and '.join(names)} apart" if len(names) > 1 else f"supports {names[0]}"
    notes = [f"failures of single nodes: the log {tie}; the cluster has {fitted.law.name}"]
    if fitted.law.residual_p < 0.05:
        notes.append(
            f"the residuals reject {fitted.law.name} (p = {fitted.law.residual_p:.2g}): the law is not the whole truth"
        )
    return notes


def _ahead(process: fitting.Fitted, seen: FleetStatistics, ahead_s: float) -> tuple[fitting.Fitted, str]:
    """The process as it goes on after the recording, with rates of its own for each trial, and what to know about that.

    Parameters
    ----------
    process : fitted to the recording.
    seen : figures of the recording.
    ahead_s : how far trials will look ahead (0: an eighth of the recording).

    Raises UsageError for more than half of the recording: one stretch does not say how rates differ.
    """
    duration_s = seen.duration_h * 3600.0
    if ahead_s > duration_s / 2:
        most = f"at most half of the recording's {duration_s:g} s: one stretch does not say how rates differ"
        raise UsageError.at("--set ahead", f"is {ahead_s:g} s; {most}")
    count = min(MOST_STRETCHES, int(duration_s / ahead_s + 1e-9)) if ahead_s else STRETCHES
    start, stretches = seen.alive_at_end, fitting.in_stretches(seen, process, count)
    note = (
        f"trials start with the {start} nodes of the recording's end; their rates differ as those of its {count} stretches "
        f"of {seen.duration_h / count:.3g} h do (`--set ahead=TIME` says how far you look ahead)"
    )
    if ahead_s and count == MOST_STRETCHES:
        note += f"; {ahead_s:g} s were asked for, and a recording is cut into {MOST_STRETCHES} at most"
    if min(sum(stretches.removals), sum(stretches.adds)) < count:
        note += "; most of them are too short for a removal or an addition, so how rates differ is assumed more than seen"
    return process.with_(start=start, stretches=stretches), note


def _short(process: Process) -> str:
    """A process in a line: its numbers."""
    values = ((k, v) for k, v in to_data(process).items() if isinstance(v, int | float | str))
    return ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in values
    )
