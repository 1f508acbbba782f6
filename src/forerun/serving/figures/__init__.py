"""What a run's report shows, as data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from forerun.core.result.figures import Axis, Figure, Rule, by_series, quantile_curve
from forerun.core.result.numbers import format_number, quantity
from forerun.core.result.run import Result, SavedRun
from forerun.core.result.tables import Table
from forerun.core.scenario.spec import to_data
from forerun.serving.inputs.pipeline import Floats
from forerun.serving.summary.tables import BANDS

#: points of a distribution's curve, and spans that a queue's course is cut into
POINTS = 400
SPANS = 300

TIME = Axis("at_s", "time", "s")


def figures(run: Result | SavedRun) -> tuple[Figure, ...]:
    """The pictures that the run's tables allow, most informative first."""
    tables, summary = run.tables, run.summary
    shown = []
    if "queries" in tables:
        shown.append(latency_distribution(tables["queries"], summary))
    if "decisions" in tables and "queries" in tables:
        load, *misses = _load_and_misses(tables["queries"], summary)
        shown.append(load)
        if tables["replicas"]["paid"].any():
            shown.append(replicas_over_time(tables["replicas"]))
        shown += misses
    if "envelopes" in tables:
        shown.append(envelopes(tables["envelopes"]))
    if "requests" in tables:
        from forerun.serving.llm.figures.llm import llm_figures

        shown += llm_figures(tables, summary)
    if "splits" in tables:
        shown.append(where_the_time_went(tables["splits"]))
    if "visits" in tables:
        shown.append(queue_over_time(tables["visits"]))
    if "batches" in tables:
        shown.append(batch_sizes(tables["batches"], to_data(run.scenario)["configuration"]))
    return tuple(shown)


def latency_distribution(queries: Table, summary: Mapping[str, Any]) -> Figure:
    """Share of queries at or below a latency, with the objective.

    Parameters
    ----------
    queries : a row a query; refused ones, which have no answer, are left out of the curve.
    summary : of the run, for the objective and the share that meets it.
    """
    slo_ms, required = float(summary.get("slo_ms", math.inf)), float(summary["attainment_wanted"])
    within = summary.get("latency_attainment", summary["attainment"])
    # A query that misses within the objective was refused: it has no answer, hence no latency.
    answered = queries["latency_ms"][~(queries["missed"] & (queries["latency_ms"] <= slo_ms))]
    most_ms = float(np.max(answered, initial=0.0))
    limited = math.isfinite(slo_ms)
    p99_ms = summary["latency_p99_ms"]
    # Near saturation it has no value; in a saved run that is None.
    known = isinstance(p99_ms, (int, float)) and math.isfinite(p99_ms)
    slow = (
        f"P99 is {quantity(p99_ms, 'ms', most_ms)}."
        if known
        else "P99 has no value: the run is near saturation."
    )
    said = (
        f"{format_number(100 * within)} % of the queries stay within {quantity(slo_ms, 'ms', most_ms)}; "
        f"{format_number(100 * required)} % are required. "
        if limited
        else ""
    )
    return Figure.of(
        "cdf",
        "latency-cdf",
        "Latency of queries",
        quantile_curve("latency_ms", answered, POINTS),
        x=Axis("latency_ms", "latency", "ms"),
        y=Axis("share", "share of queries"),
        caption=f"{said}{slow}",
        rules=(Rule(slo_ms, "SLO"), Rule(required, "required", axis="y")) if limited else (),
    )


def _load_and_misses(queries: Table, summary: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Arrivals a second in equal spans of the run; where latency is limited, also the share of them that is late."""
    arrivals = queries["arrival_ms"]
    count = max(10, min(SPANS // 2, len(arrivals) // 50))
    edges = np.linspace(float(arrivals[0]), float(arrivals[-1]), count + 1)
    span = np.clip(np.searchsorted(edges, arrivals, side="right") - 1, 0, count - 1)
    counts = np.bincount(span, minlength=count)
    missed = np.bincount(span, weights=queries["missed"].astype(float), minlength=count)
    width_s = (edges[1] - edges[0]) / 1e3
    columns = {
        "at_s": edges[:-1] / 1e3,
        "rate_rps": counts / width_s if width_s else counts * 0.0,
        "missed_percent": 100 * missed / np.maximum(counts, 1),
    }
    load = Figure.of(
        "step",
        "load-over-time",
        "Load over time",
        columns,
        x=TIME,
        y=Axis("rate_rps", "arrivals", "1/s"),
        caption=f"Queries that arrive, in spans of {quantity(width_s, 's', edges[-2] / 1e3)}.",
    )
    if "slo_ms" not in summary:
        return (load,)
    misses = Figure.of(
        "step",
        "misses-over-time",
        "Misses over time",
        columns,
        x=TIME,
        y=Axis("missed_percent", "queries that miss", "%"),
        caption=f"Of the queries that arrive in a span, those above {float(summary['slo_ms']):g} ms; over the whole run "
        f"{100 * float(queries['missed'].mean()):.3g} %.",
        rules=(Rule(100 - 100 * float(summary["attainment_wanted"]), "allowed", axis="y"),),
    )
    return load, misses


def replicas_over_time(replicas: Table) -> Figure:
    """Replicas paid for, by stage; a step up is a decision, active a while later."""
    curves = {}
    for stage in dict.fromkeys(replicas["stage"].tolist()):
        every = replicas.rows(replicas["stage"] == stage)
        paid = every.rows(every["paid"] > 0)
        curves[stage] = {
            "at_s": np.append(paid["from_ms"], every["to_ms"].max()) / 1e3,
            "paid": np.append(paid["paid"], paid["paid"][-1]).astype(float),
        }
    return Figure.of(
        "step",
        "replicas-over-time",
        "Replicas over time",
        by_series("stage", curves),
        x=TIME,
        y=Axis("paid", "replicas paid for"),
        series="stage",
        series_label="stage",
        caption="A replica is paid for from the decision on, and active when it has come up.",
        order=curves,
    )


def envelopes(table: Table) -> Figure:
    """The traffic envelope of the sample that the plan was made for, and the run's."""
    windows = table["window_ms"] / 1e3
    above = int(np.count_nonzero(table["run"] > table["sample"]))
    curves = {which: {"window_s": windows, "rate_rps": table[which] / windows} for which in ("sample", "run")}
    return Figure.of(
        "line",
        "envelopes",
        "Traffic envelopes: what was planned for, and what came",
        by_series("traffic", curves),
        x=Axis("window_s", "window", "s", log=True),
        y=Axis("rate_rps", "most arrivals in a window, a second", "1/s"),
        series="traffic",
        series_label="traffic",
        caption=f"The run is above the sample, which was planned for, in {above} of {len(windows)} windows.",
    )


def where_the_time_went(splits: Table) -> Figure:
    """The critical path of fast and of slow queries, by stage and kind of waiting."""
    part = np.array([f"{s}: {k}" for s, k in zip(splits["stage"], splits["kind"])], dtype=object)
    shown = np.isin(part, part[splits["mean_ms"] > 0])
    return Figure.of(
        "stacked_bar",
        "where-the-time-went",
        "Where the time of fast and slow queries went",
        {**splits.rows(shown).columns, "part": part[shown]},
        x=Axis("band", "queries by latency"),
        y=Axis("mean_ms", "mean latency", "ms"),
        series="part",
        series_label="on the critical path",
        caption="Each bar is the mean latency of its queries, split along the path that decided it.",
        order=[name for name, _, _ in BANDS],
    )


def queue_over_time(visits: Table) -> Figure:
    """The longest queue at each stage, span by span."""
    edges = np.linspace(float(visits["enqueue_ms"].min()), float(visits["start_ms"].max()), SPANS + 1)
    curves = {}
    for stage in dict.fromkeys(visits["stage"].tolist()):
        mine = visits.rows(visits["stage"] == stage)
        longest = _longest(mine["enqueue_ms"], mine["start_ms"], edges)
        curves[stage] = {"at_ms": edges[:-1], "queued": longest}
    return Figure.of(
        "step",
        "queue-over-time",
        "Queues over time",
        by_series("stage", curves),
        x=Axis("at_ms", "time", "ms"),
        y=Axis("queued", "longest queue", "queries"),
        series="stage",
        series_label="stage",
        caption=f"The longest queue at each stage in each of {SPANS} equal spans of time.",
    )


def batch_sizes(batches: Table, configuration: Mapping[str, Any]) -> Figure:
    """How large the batches were that each stage formed, and how many of them were full.

    Parameters
    ----------
    batches : a row a batch.
    configuration : the scenario's, as plain data, for the largest batch of each stage.
    """
    curves, full = {}, []
    for stage in dict.fromkeys(batches["stage"].tolist()):
        sizes = batches["size"][batches["stage"] == stage]
        counts = np.bincount(sizes)
        at = np.arange(1, len(counts))
        curves[stage] = {"from": at - 0.5, "to": at + 0.5, "share": counts[1:] / counts.sum()}
        most = int(configuration[stage]["max_batch"])
        full.append(f"{stage} {100 * float(np.mean(sizes == most)):.3g} % of {most}")
    return Figure.of(
        "histogram",
        "batch-sizes",
        "Batch sizes",
        by_series("stage", curves),
        x=Axis("from", "batch size", "queries"),
        x2="to",
        y=Axis("share", "share of batches"),
        series="stage",
        series_label="stage",
        caption=f"Share of each stage's batches that are full: {', '.join(full)}.",
    )


def _longest(enqueue_ms: Floats, start_ms: Floats, edges: Floats) -> Floats:
    """The longest queue within each span of time: its length at the span's begin and after each arrival in it."""
    come, gone = np.sort(enqueue_ms), np.sort(start_ms)
    at_begin = np.searchsorted(come, edges[:-1], side="left") - np.searchsorted(gone, edges[:-1], side="left")
    longest = at_begin.astype(np.float64)
    after = np.searchsorted(come, come, side="right") - np.searchsorted(gone, come, side="left")
    span = np.clip(np.searchsorted(edges, come, side="right") - 1, 0, len(longest) - 1)
    np.maximum.at(longest, span, after)
    return longest
