"""What a run's report shows, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from forerun.domains.serving.inputs.pipeline import Floats
from forerun.domains.serving.summary.tables import BANDS
from forerun.result.figures import Axis, Figure, Rule
from forerun.result.numbers import format_number, quantity
from forerun.result.run import Result, SavedRun
from forerun.result.tables import Table
from forerun.scenario.spec import to_data

#: points of a distribution's curve, and spans that a queue's course is cut into
POINTS = 400
SPANS = 300


def figures(run: Result | SavedRun) -> tuple[Figure, ...]:
    """The pictures that the run's tables allow, most telling first."""
    tables, summary = run.tables, run.summary
    found = []
    if "queries" in tables:
        found.append(latency_distribution(tables["queries"], summary))
    if "decisions" in tables and "queries" in tables:
        found += [
            load_over_time(tables["queries"]),
            replicas_over_time(tables["replicas"]),
            misses_over_time(tables["queries"], summary),
        ]
    if "envelopes" in tables:
        found.append(envelopes(tables["envelopes"]))
    if "requests" in tables:
        from forerun.domains.serving.figures.llm import llm_figures

        found += llm_figures(tables, summary)
    if "splits" in tables:
        found.append(where_the_time_went(tables["splits"]))
    if "visits" in tables:
        found.append(queue_over_time(tables["visits"]))
    if "batches" in tables:
        found.append(batch_sizes(tables["batches"], to_data(run.scenario)["configuration"]))
    return tuple(found)


def latency_distribution(queries: Table, summary: Mapping[str, Any]) -> Figure:
    """Share of queries at or below a latency, with the objective."""
    shares = np.concatenate(
        [np.linspace(0.0, 0.98, POINTS // 2), np.linspace(0.98, 1.0, POINTS // 2 + 1)[1:]]
    )
    slo_ms = float(summary["slo_ms"])
    within = summary.get("latency_attainment", summary["attainment"])
    # A query that misses within the objective was refused: it has no answer, hence no latency.
    answered = queries["latency_ms"][~(queries["missed"] & (queries["latency_ms"] <= slo_ms))]
    most_ms = float(np.max(answered, initial=0.0))
    return Figure(
        id="latency-cdf",
        title="Latency of queries",
        kind="cdf",
        x=Axis("latency_ms", "latency", "ms"),
        y=Axis("share", "share of queries"),
        data=_columns(latency_ms=np.quantile(answered, shares), share=shares),
        caption=f"{format_number(100 * within)} % of the queries stay within {quantity(slo_ms, 'ms', most_ms)}; "
        f"{format_number(100 * summary['attainment_wanted'])} % are wanted. P99 is "
        f"{quantity(summary['latency_p99_ms'], 'ms', most_ms)}.",
        rules=(Rule(slo_ms, "SLO"), Rule(float(summary["attainment_wanted"]), "wanted", axis="y")),
    )


def _spans(queries: Table) -> tuple[Floats, Any]:
    """Edges of equal spans of the run, and per query the span that it arrives in."""
    arrivals = queries["arrival_ms"]
    count = max(10, min(SPANS // 2, len(arrivals) // 50))
    edges = np.linspace(float(arrivals[0]), float(arrivals[-1]), count + 1)
    return edges, np.clip(np.searchsorted(edges, arrivals, side="right") - 1, 0, count - 1)


def load_over_time(queries: Table) -> Figure:
    """Arrivals a second, span by span."""
    edges, span = _spans(queries)
    counts = np.bincount(span, minlength=len(edges) - 1)
    width_s = (edges[1] - edges[0]) / 1e3
    return Figure(
        id="load-over-time",
        title="Load over time",
        kind="step",
        x=Axis("at_s", "time", "s"),
        y=Axis("rate_rps", "arrivals", "1/s"),
        data=_columns(at_s=edges[:-1] / 1e3, rate_rps=counts / width_s if width_s else counts * 0.0),
        caption=f"Queries that arrive, in spans of {quantity(width_s, 's', edges[-2] / 1e3)}.",
    )


def replicas_over_time(replicas: Table) -> Figure:
    """Replicas paid for, by stage; a step up is a decision, active a while later."""
    ends = {
        stage: float(replicas["to_ms"][replicas["stage"] == stage].max()) for stage in set(replicas["stage"])
    }
    rows = [
        (at / 1e3, paid, stage)
        for at, paid, stage in zip(replicas["from_ms"], replicas["paid"], replicas["stage"])
        if paid
    ]
    last = {stage: (ends[stage] / 1e3, paid, stage) for _, paid, stage in rows}
    together = sorted([*rows, *last.values()], key=lambda row: row[0])
    return Figure(
        id="replicas-over-time",
        title="Replicas over time",
        kind="step",
        x=Axis("at_s", "time", "s"),
        y=Axis("paid", "replicas paid for"),
        data=_columns(
            at_s=[at for at, _, _ in together],
            paid=[float(paid) for _, paid, _ in together],
            stage=np.array([stage for _, _, stage in together], dtype=object),
        ),
        series="stage",
        series_label="stage",
        caption="A replica is paid for from the decision on, and active when it has come up.",
        order=tuple(dict.fromkeys(replicas["stage"].tolist())),
    )


def misses_over_time(queries: Table, summary: Mapping[str, Any]) -> Figure:
    """The share of queries that miss the objective, by when they arrive."""
    edges, span = _spans(queries)
    counts = np.bincount(span, minlength=len(edges) - 1)
    missed = np.bincount(span, weights=queries["missed"].astype(float), minlength=len(edges) - 1)
    return Figure(
        id="misses-over-time",
        title="Misses over time",
        kind="step",
        x=Axis("at_s", "time", "s"),
        y=Axis("missed_percent", "queries that miss", "%"),
        data=_columns(at_s=edges[:-1] / 1e3, missed_percent=100 * missed / np.maximum(counts, 1)),
        caption=f"Of the queries that arrive in a span, those above {float(summary['slo_ms']):g} ms; over the whole run "
        f"{100 - 100 * float(summary['attainment']):.3g} %.",
        rules=(Rule(100 - 100 * float(summary["attainment_wanted"]), "allowed", axis="y"),),
    )


def envelopes(table: Table) -> Figure:
    """The traffic envelope of the sample that the plan was made for, and the run's."""
    windows = table["window_ms"] / 1e3
    above = int(np.count_nonzero(table["run"] > table["sample"]))
    return Figure(
        id="envelopes",
        title="Traffic envelopes: what was planned for, and what came",
        kind="line",
        x=Axis("window_s", "window", "s", log=True),
        y=Axis("rate_rps", "most arrivals in a window, a second", "1/s"),
        data=_columns(
            window_s=np.tile(windows, 2),
            rate_rps=np.concatenate([table["sample"] / windows, table["run"] / windows]),
            traffic=np.repeat(np.array(["sample", "run"], dtype=object), len(windows)),
        ),
        series="traffic",
        series_label="traffic",
        caption=f"The run is above the sample, which was planned for, in {above} of {len(windows)} windows.",
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


def batch_sizes(batches: Table, configuration: Mapping[str, Any]) -> Figure:
    """How large the batches were that each stage formed, and how many of them were full."""
    columns: dict[str, list[Any]] = {"from": [], "to": [], "share": [], "stage": []}
    full = []
    for stage in dict.fromkeys(batches["stage"].tolist()):
        sizes = batches["size"][batches["stage"] == stage]
        counts = np.bincount(sizes)
        at = np.arange(1, len(counts))
        columns["from"].append(at - 0.5)
        columns["to"].append(at + 0.5)
        columns["share"].append(counts[1:] / counts.sum())
        columns["stage"].append(np.full(len(at), stage, dtype=object))
        most = int(configuration[stage]["max_batch"])
        full.append(f"{stage} {100 * float(np.mean(sizes == most)):.3g} % of {most}")
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
        caption=f"Share of each stage's batches that are full: {', '.join(full)}.",
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
