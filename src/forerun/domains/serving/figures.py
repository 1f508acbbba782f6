"""What a run's report shows, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from forerun.domains.serving.model import Floats
from forerun.domains.serving.tables import BANDS
from forerun.result.figures import Axis, Figure, Rule
from forerun.result.run import Result, SavedRun
from forerun.result.tables import Table

#: points of a distribution's curve, and spans that a queue's course is cut into
POINTS = 400
SPANS = 300


def figures(run: Result | SavedRun) -> tuple[Figure, ...]:
    """The pictures that the run's tables allow, most telling first."""
    tables, summary = run.tables, run.summary
    found = []
    if "queries" in tables:
        found.append(latency_distribution(tables["queries"], summary))
    if "splits" in tables:
        found.append(where_the_time_went(tables["splits"]))
    if "visits" in tables:
        found.append(queue_over_time(tables["visits"]))
    if "batches" in tables:
        found.append(batch_sizes(tables["batches"]))
    return tuple(found)


def latency_distribution(queries: Table, summary: Mapping[str, Any]) -> Figure:
    """Share of queries at or below a latency, with the objective."""
    shares = np.concatenate(
        [np.linspace(0.0, 0.98, POINTS // 2), np.linspace(0.98, 1.0, POINTS // 2 + 1)[1:]]
    )
    slo_ms = float(summary["slo_ms"])
    return Figure(
        id="latency-cdf",
        title="Latency of queries",
        kind="cdf",
        x=Axis("latency_ms", "latency", "ms"),
        y=Axis("share", "share of queries"),
        data=_columns(latency_ms=np.quantile(queries["latency_ms"], shares), share=shares),
        caption=f"{summary['attainment']:.2%} of the queries stay within {slo_ms:g} ms; "
        f"{summary['attainment_wanted']:.4g} is wanted. P99 is {summary['latency_p99_ms']:.4g} ms.",
        rules=(Rule(slo_ms, "SLO"), Rule(float(summary["attainment_wanted"]), "wanted", axis="y")),
    )


def where_the_time_went(splits: Table) -> Figure:
    """The critical path of fast and of slow queries, by stage and kind of waiting."""
    part = np.array([f"{s}: {k}" for s, k in zip(splits["stage"], splits["kind"])], dtype=object)
    seen = {name for name, mean in zip(part, splits["mean_ms"]) if mean > 0}
    rows = np.array([name in seen for name in part])
    return Figure(
        id="where-the-time-went",
        title="Where the time of fast and slow queries went",
        kind="stacked_bar",
        x=Axis("band", "queries by latency"),
        y=Axis("mean_ms", "mean latency", "ms"),
        data=_columns(band=splits["band"][rows], mean_ms=splits["mean_ms"][rows], part=part[rows]),
        series="part",
        series_label="on the critical path",
        caption="Each bar is the mean latency of its queries, split along the path that decided it.",
        order=tuple(name for name, _, _ in BANDS),
    )


def queue_over_time(visits: Table) -> Figure:
    """The longest queue at each stage, span by span."""
    columns: dict[str, list[Any]] = {"at_ms": [], "queued": [], "stage": []}
    begin_ms, end_ms = float(visits["enqueue_ms"].min()), float(visits["start_ms"].max())
    edges = np.linspace(begin_ms, end_ms, SPANS + 1)
    for stage in dict.fromkeys(visits["stage"].tolist()):
        mine = visits["stage"] == stage
        columns["at_ms"].append(edges[:-1])
        columns["queued"].append(_longest(visits["enqueue_ms"][mine], visits["start_ms"][mine], edges))
        columns["stage"].append(np.full(SPANS, stage, dtype=object))
    return Figure(
        id="queue-over-time",
        title="Queues over time",
        kind="step",
        x=Axis("at_ms", "time", "ms"),
        y=Axis("queued", "longest queue", "queries"),
        data=_columns(**{name: np.concatenate(parts) for name, parts in columns.items()}),
        series="stage",
        series_label="stage",
        caption=f"The longest queue at each stage in each of {SPANS} equal spans of time.",
    )


def batch_sizes(batches: Table) -> Figure:
    """How large the batches were that each stage formed."""
    columns: dict[str, list[Any]] = {"from": [], "to": [], "share": [], "stage": []}
    for stage in dict.fromkeys(batches["stage"].tolist()):
        sizes = batches["size"][batches["stage"] == stage]
        counts = np.bincount(sizes)
        at = np.arange(1, len(counts))
        columns["from"].append(at - 0.5)
        columns["to"].append(at + 0.5)
        columns["share"].append(counts[1:] / counts.sum())
        columns["stage"].append(np.full(len(at), stage, dtype=object))
    return Figure(
        id="batch-sizes",
        title="Batch sizes",
        kind="histogram",
        x=Axis("from", "batch size", "queries"),
        y=Axis("share", "share of batches"),
        x2="to",
        data=_columns(**{name: np.concatenate(parts) for name, parts in columns.items()}),
        series="stage",
        series_label="stage",
        caption="Batches seldom fill: a stage takes what is queued when a replica is idle.",
    )


def _columns(**columns: Any) -> dict[str, Any]:
    """Columns by name."""
    return columns


def _longest(enqueue_ms: Floats, start_ms: Floats, edges: Floats) -> Floats:
    """The longest queue within each span of time: its length at the span's begin and after each arrival in it."""
    come, gone = np.sort(enqueue_ms), np.sort(start_ms)
    at_begin = np.searchsorted(come, edges[:-1], side="left") - np.searchsorted(gone, edges[:-1], side="left")
    longest = at_begin.astype(np.float64)
    after = np.searchsorted(come, come, side="right") - np.searchsorted(gone, come, side="left")
    span = np.clip(np.searchsorted(edges, come, side="right") - 1, 0, len(longest) - 1)
    np.maximum.at(longest, span, after)
    return longest
