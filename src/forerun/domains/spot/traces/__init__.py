"""`forerun trace` for the spot domain: generate, fit and describe histories of a preemptible fleet.

A description is the part of a scenario that says where nodes come from, its `fleet`, and for how long; a scenario file
is a description, and what `fit` writes can be pasted into one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Literal

import numpy as np

from forerun.domains.spot.engine.membership import Membership
from forerun.domains.spot.inputs.recorded import looked_until_s, of_counts, of_membership
from forerun.domains.spot.scenario.processes import Process, generate
from forerun.domains.spot.traces import fit as fitting
from forerun.domains.spot.traces.measured_run import START_DELAY_S, model_run, read_run
from forerun.domains.spot.traces.statistics import (
    CountTraces,
    FleetStatistics,
    as_the_notebook,
    corrected,
    fleet_statistics,
    read_counts,
    stamp_effects,
    statistics_of_counts,
)
from forerun.errors import TraceError, UsageError
from forerun.scenario.spec import Spec, to_data
from forerun.scenario.text import read_document
from forerun.trace.domain_traces import (
    DomainTraces,
    Fitted,
    GeneratedTrace,
    Recorded,
    ReportTable,
    TraceReport,
    decoded,
    is_description,
)
from forerun.trace.files import save_trace
from forerun.trace.readers.spot_membership import COLUMNS
from forerun.trace.rows import TEXT
from forerun.trace.table import Provenance, Trace, schema_of

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

    fleet: Process
    horizon_s: float = 0.0


class _FitSettings(Spec, frozen=True, kw_only=True):
    """How a fleet is fitted.

    model: `poisson`, `per_node`, `lifetimes`, or the `best` of them.  batches: sizes of Poisson events.  method:
    `notebook` fits by the 2021 notebook's definitions (two count files).  cap: the fleet's size when complete (0: the
    most nodes seen).  traces: fleets generated to judge the fit.  leaves: which node leaves where only counts are known.
    """

    method: Literal["corrected", "notebook"] = "corrected"
    model: Literal["best", "poisson", "per_node", "lifetimes"] = "best"
    batches: Literal["empirical", "geometric", "marks"] = "empirical"
    cap: int = 0
    traces: int = 1000
    leaves: Literal["fifo", "lifo", "random"] = "lifo"

    def problems(self) -> list[tuple[str, str]]:
        """Enough traces for a 95 % band, a size that is one."""
        problems = []
        if not 40 <= self.traces <= 100_000:
            problems.append(("traces", f"{self.traces} is not between 40 and 100000"))
        if not 0 <= self.cap <= 100_000:
            problems.append(("cap", f"{self.cap} is not between 0 and 100000"))
        return problems


class _StatsSettings(Spec, frozen=True, kw_only=True):
    """leaves: which node leaves where only counts are known; it changes lives and batches, not node-hours."""

    leaves: Literal["fifo", "lifo", "random"] = "lifo"


class SpotTraces(DomainTraces):
    """Histories of fleets: statistics and fitted processes of recorded ones, and generated ones."""

    makes = "changes of membership"
    about = "poisson, per_node, hourly, lifetimes, bathtub, storms, tick (the 2021 notebook's)"

    def generate(
        self,
        description: str,
        settings: Sequence[str],
        *,
        count: int | None,
        horizon_s: float | None,
        seed: int,
    ) -> GeneratedTrace:
        """One history from a process's name, a description file or a scenario."""
        if count is not None:
            raise UsageError.at("--count", "a fleet is generated for a time: --horizon 6h")
        described = _described(description, settings)
        until_s = horizon_s if horizon_s is not None else described.horizon_s
        if not until_s > 0:
            raise UsageError.at("--horizon", "is missing: say how long a history is wanted, such as 6h")
        fleet = generate(described.fleet, seed=seed, horizon_s=until_s)
        process = {"fleet": to_data(described.fleet), "seed": seed, "horizon_s": until_s}
        trace = trace_of(fleet, Provenance(format="generated", options=process))
        seen = fleet_statistics(fleet, until_s)
        return GeneratedTrace(
            count=len(trace),
            what=self.makes,
            save=lambda path: save_trace(trace, path),
            report=TraceReport(data=process | {"statistics": seen.data()}, tables=(_figures(seen),)),
            next_step="forerun trace stats spot {out}",
        )

    def fit(self, recorded: Recorded, settings: Sequence[str], *, seed: int) -> Fitted:
        """A process like the recorded fleet, intervals of its rates, tests, and posterior-predictive bands."""
        chosen = decoded("", {}, settings, _FitSettings)
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
        description = {"fleet": to_data(fitted.process), "horizon_s": seen.duration_h * 3600.0}
        outside = [feature.name for feature in fitted.features if not feature.ok]
        notes = [*notes, f"process: {_short(fitted.process)}"]
        if fitted.compared:
            tried = ", ".join(f"{name} {share:.0%}" for name, share in fitted.compared)
            notes.append(f"figures in their bands, by model: {tried}")
        notes.append(
            f"outside the 95 % band of {fitted.traces} generated fleets: {', '.join(outside)}; in this the "
            "process does not represent the recording"
            if outside
            else f"all figures lie in the 95 % band of {fitted.traces} generated fleets"
        )
        notes.append("its `fleet` can replace the recording in a scenario, for trials and plans")
        return Fitted(
            description=description,
            report=TraceReport(
                data={
                    "process": to_data(fitted.process),
                    "rates": [asdict(rate) for rate in fitted.rates],
                    "features": [asdict(one) | {"ok": one.ok} for one in fitted.features],
                    "tests": [asdict(one) | {"ok": one.ok} for one in tests],
                    "agreement": fitted.agreement,
                    "recording": looked,
                    "repairs": recorded.log.rows(),
                    "notes": notes,
                },
                tables=(
                    ReportTable(
                        "fitted rates, exact 95 % intervals",
                        ("rate", "value", "low", "high", "unit"),
                        tuple((r.name, r.value, r.low, r.high, r.unit) for r in fitted.rates),
                        "low, high: the 95 % interval of the value, all three in the unit of the row",
                    ),
                    ReportTable(
                        "recorded figures in the posterior-predictive bands",
                        ("figure", "recorded", "low", "high", "in the 95 % band"),
                        tuple((f.name, f.recorded, f.low, f.high, _yes(f.ok)) for f in fitted.features),
                        "low, high: the band in which 95 % of fleets generated by the fit lie",
                    ),
                    *((_tested(tests),) if tests else ()),
                ),
                notes=tuple(notes),
                repairs=recorded.log.repairs,
            ),
        )

    def stats(self, recorded: Recorded, settings: Sequence[str], *, seed: int) -> TraceReport:
        """A fleet's figures; of two count files the notebook's twelve values too, and what they were meant to be; of a
        folder with the logs of a measured run its ledger beside the model's.
        """
        chosen = decoded("", {}, settings, _StatsSettings)
        if len(recorded.files) == 1 and recorded.files[0].is_dir():
            return _measured(recorded)
        pair, seen, notes, looked = _seen(recorded, chosen.leaves, seed)
        tests = fitting.tests(seen, seed)
        tables = [_figures(seen), _batches(seen), _tested(tests)]
        data: dict[str, Any] = {
            "statistics": seen.data(),
            "recording": looked,
            "repairs": recorded.log.rows(),
            "tests": [asdict(one) for one in tests],
        }
        if looked:
            said = tuple((name, value) for name, value in looked.items() if value not in ("", None))
            tables.insert(
                0,
                ReportTable(
                    "the recording",
                    ("what", "value"),
                    said,
                    "how the file was read, and what it contains",
                ),
            )
        if seen.lifetimes_h:
            at_h = [t for t in _SURVIVAL_H if t <= max(*seen.lifetimes_h, *seen.ages_h, 0.5)]
            shares = fitting.survival(seen, at_h)
            data["survival"] = dict(zip(map(str, at_h), shares, strict=True))
            rows = tuple(zip(at_h, shares, strict=True))
            tables.append(
                ReportTable(
                    "nodes that live longer, survivors cut off",
                    ("hours", "share"),
                    rows,
                    "share: of nodes that live longer than so many hours (Kaplan-Meier estimate)",
                )
            )
        if pair is not None:
            data |= {
                "notebook": as_the_notebook(pair),
                "corrected": {row[0]: row[2] for row in beside(pair)},
            }
            tables.insert(0, _notebook_table(pair))
        return TraceReport(
            data=data | {"notes": notes},
            tables=tuple(tables),
            notes=tuple(notes),
            repairs=recorded.log.repairs,
        )


TRACES: Final = SpotTraces()


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
    wanted = [_placed(text) for text in settings]
    if description and (is_description(description) or Path(description).exists()):
        data = read_document(Path(description)).data
        if isinstance(data, dict) and data.get("domain") == "spot":
            from forerun.domains.spot.scenario import Recorded as RecordedFleet
            from forerun.domains.spot.scenario import Scenario

            scenario = decoded(description, {}, wanted, Scenario)
            if isinstance(scenario.fleet, RecordedFleet):
                raise UsageError.at(
                    description, "its fleet is a recording; fit it first: forerun trace fit spot"
                )
            return _Described(fleet=scenario.fleet, horizon_s=scenario.horizon_s)
        return decoded(description, {}, wanted, _Described)
    start = {"name": description} if description not in ("", START["name"]) else START
    return decoded("", {"fleet": dict(start)}, wanted, _Described)


def _placed(text: str) -> str:
    """A short key where it belongs: `removals_per_min` in the fleet."""
    first = text.partition("=")[0].partition(".")[0].strip()
    return text if first in ("fleet", "horizon", "horizon_s") else f"fleet.{text}"


# --------------------------------------------------------------------------- what was recorded


def _seen(
    recorded: Recorded, leaves: Literal["fifo", "lifo", "random"], seed: int
) -> tuple[CountTraces | None, FleetStatistics, list[str], dict[str, Any]]:
    """The recording: a membership file, a count file, or a count file with its terminations; its figures, what to know
    about it, and how it was read.
    """
    if len(recorded.files) == 2:
        pair = read_counts(*recorded.files, repairs=recorded.log)
        ramp = "the first big rise of the count is taken for the ramp-up: nodes after it are the start"
        shown = int(stamp_effects(pair)["nodes lost by falls of the count"][1])
        lost = sum(pair.terminated)
        hidden = f"{lost - shown} of {lost} terminations do not show in the counts: swapped within a row"
        return pair, statistics_of_counts(pair), [_INVISIBLE, hidden, ramp], {}
    trace = recorded.trace()
    if trace.kind == "membership":
        fleet = of_membership(trace)
        notes = []
    elif trace.kind == "capacity":
        fleet = of_counts(trace["t_s"].tolist(), trace["nodes"].tolist(), leaves, seed)
        notes = [f"{_INVISIBLE}; nodes are made of counts by the rule {leaves!r}"]
    else:
        raise TraceError.at(
            recorded.only(), f"contains {trace.kind}, not the membership or capacity of a fleet"
        )
    seen = fleet_statistics(fleet, looked_until_s(trace))
    if seen.duration_h == 0:
        raise TraceError.at(recorded.only(), "contains one instant only; statistics need a duration")
    return None, seen, notes, _looked_at(trace)


def _measured(recorded: Recorded) -> TraceReport:
    """A measured run, in the layout of Bamboo's run 86, beside the model with its own times and segments."""
    run = read_run(recorded.only(), recorded.log)
    model = model_run(run, run.profile, delay_s=START_DELAY_S)
    measured, whole = run.ledger(), run.total_s
    lines = tuple(
        (line, seconds, model.ledger_s[line], (model.ledger_s[line] - seconds) / whole)
        for line, seconds in measured.items()
    )
    totals = (
        ("steps executed", run.executed, model.total_executed, model.total_executed / run.executed - 1),
        (
            "steps kept through the last reconfiguration",
            run.retained,
            model.total_retained,
            model.total_retained / run.retained - 1 if run.retained else None,
        ),
    )
    segments = tuple(
        (
            i,
            one.world_size,
            one.train_start_s,
            one.end_s,
            one.executed,
            model.executed[i],
            len(one.kept),
            model.retained[i],
        )
        for i, one in enumerate(run.segments)
    )
    profile = run.profile
    times = (
        *((f"step at {size} nodes", seconds) for size, seconds in profile.step_s.items()),
        ("pause to rebuild", profile.reconfig_s),
        ("load, in the pause", profile.load_s),
        ("write", profile.write_s),
        ("stall", profile.stall_s),
    )
    heads = ("segment", "nodes", "start_s", "end_s", "executed", "model", "kept", "model's")
    note = (
        "the model has the run's own segments, the mean times of its logs, back-to-back checkpoints, and "
        f"{START_DELAY_S:g} s from a pause to the first step; differences of lines are shares of the run"
    )
    return TraceReport(
        data={
            "total_s": whole,
            "profile": asdict(profile),
            "ledger": {
                line: {"measured_s": was, "model_s": made, "difference_share": gap}
                for line, was, made, gap in lines
            },
            "steps": {name: {"measured": was, "model": made} for name, was, made, _ in totals},
            "segments": [
                dict(zip((*heads[:5], "model_executed", "kept", "model_kept"), row)) for row in segments
            ],
            "repairs": recorded.log.rows(),
            "notes": [note],
        },
        tables=(
            ReportTable(
                "mean times of the logs", ("what", "seconds"), times, "seconds: mean over the logs' rows"
            ),
            ReportTable(
                "where the time went",
                ("line", "measured_s", "model_s", "difference"),
                lines,
                "seconds of the logs, and of the model driven by the same segments; difference: as a share of the run",
            ),
            ReportTable(
                "steps",
                ("what", "measured", "model", "difference"),
                totals,
                "numbers of steps; difference: of the model to the logs, as a share",
            ),
            ReportTable("segment by segment", heads, segments, "a row: from one reconfiguration to the next"),
        ),
        notes=(note,),
        repairs=recorded.log.repairs,
    )


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


def _figures(seen: FleetStatistics) -> ReportTable:
    rows = [(name, value, _unit(name)) for name, value in seen.data().items() if value is not None]
    return ReportTable(
        "the fleet", ("figure", "value", "unit"), tuple(rows), "one figure a row, in the unit beside it"
    )


def _unit(name: str) -> str:
    if name.endswith("per_node_hour"):
        return "1/h"
    return "h" if name.endswith(("_h", "_hours")) else "nodes" if name.endswith("nodes") else ""


def _batches(seen: FleetStatistics) -> ReportTable:
    sizes = sorted({*seen.removal_batches, *seen.add_batches})
    rows = tuple((n, seen.removal_batches.count(n), seen.add_batches.count(n)) for n in sizes)
    return ReportTable(
        "nodes at one instant",
        ("nodes", "removals", "additions"),
        rows,
        "removals, additions: instants at which so many nodes left, or came",
    )


def _tested(tests: Iterable[fitting.Test]) -> ReportTable:
    rows = tuple((t.question, t.statistic, t.p_value, "possible" if t.ok else "NO") for t in tests)
    return ReportTable(
        "what the recording says by itself",
        ("question", "statistic", "p-value", "answer"),
        rows,
        "answer: NO where the p-value is below 5 %, else possible",
    )


def _notebook_table(pair: CountTraces) -> ReportTable:
    rows = tuple((name, repr(value), repr(better), why) for name, value, better, why in beside(pair))
    return ReportTable(
        "as the notebook prints them",
        ("value", "notebook", "corrected", ""),
        rows,
        "notebook: with its definition; corrected: what was meant; last: the difference between the two",
    )


def beside(pair: CountTraces) -> tuple[tuple[str, float, float | None, str], ...]:
    """The notebook's twelve values in all their digits, what they were meant to be, and why they are not."""
    meant = corrected(pair)
    minutes = meant.hours * 60
    adds = [size for size, times in meant.add_batches.items() for _ in range(times)]
    big = [size for size in adds if size > 10]
    small = [size for size in adds if size <= 10]
    twelve = as_the_notebook(pair)
    better: dict[str, tuple[float | None, str]] = {
        "mttp_s": (meant.mean_gap_s, "gaps of terminations only, the date after midnight repaired"),
        "ttp_std_s": (meant.std_gap_s, "gaps of terminations only"),
        "preemptions_per_min": (meant.per_node_hour, "the corrected value is per node-hour"),
        "additions_per_min": (sum(adds) / minutes, "without the ramp-up; a lower bound, swaps are invisible"),
        "chance_preempt_this_minute": (len(pair.terminated) / minutes, "a rate a minute, not a probability"),
        "chance_add_this_minute": (len(adds) / minutes, "a rate a minute, without the ramp-up"),
        "probability_big_add": (len(big) / len(adds) if adds else None, "without the ramp-up"),
        "probability_regular_add": (len(small) / len(adds) if adds else None, "without the ramp-up"),
        "regular_add_mean": (fmean(small) if small else None, ""),
        "regular_add_std": (twelve["regular_add_std"], ""),
        "preempt_count_mean": (twelve["preempt_count_mean"], f"geometric with p = {meant.geometric_p:.4f}"),
        "preempt_count_std": (twelve["preempt_count_std"], "a rounded normal does not fit, a geometric does"),
    }
    return tuple((name, value, *better[name]) for name, value in twelve.items())


def _as_notebook(pair: CountTraces | None, seen: FleetStatistics, recorded: Recorded) -> Fitted:
    if pair is None:
        raise UsageError.at("--set method=notebook", "needs the two files of counts and terminations")
    process = fitting.notebook_process(pair)
    note = (
        "the notebook's definitions: its rounded normals make batches of 2.76 nodes of a mean of 2.41, so fleets drift; "
        "`method=corrected` keeps the mean"
    )
    return Fitted(
        description={"fleet": to_data(process), "horizon_s": seen.duration_h * 3600.0},
        report=TraceReport(
            data={"process": to_data(process), "notebook": as_the_notebook(pair), "notes": [note]},
            tables=(_notebook_table(pair),),
            notes=(note,),
            repairs=recorded.log.repairs,
        ),
    )


def _short(process: Process) -> str:
    values = ((k, v) for k, v in to_data(process).items() if isinstance(v, int | float | str))
    return ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in values
    )


def _yes(ok: bool) -> str:
    return "yes" if ok else "NO"
