"""What a report shows of stages that serve language models, as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from forerun.core.result.figures import Axis, Columns, Figure, Rule, by_series, quantile_curve
from forerun.core.result.numbers import quantity
from forerun.core.result.tables import Table
from forerun.serving.llm.scenario.language_model import Kind
from forerun.serving.llm.summary.objectives import WORDS

TIME = Axis("at_s", "time", "s")
#: what is drawn of each time that an objective may limit: the column of the requests, and the caption
DISTRIBUTIONS: Final[dict[Kind, tuple[str, str]]] = {
    "ttft": ("ttft_ms", "From entering the stage to the first token."),
    "tpot": ("tpot_ms", "The mean of each answer after its first token."),
    "itl": ("longest_gap_ms", "The longest of each answer."),
    "e2e": ("e2e_ms", "From entering the stage to the last token."),
}
#: those that are drawn whether they are limited or not
ALWAYS: Final = ("ttft", "tpot")
#: iterations in the timeline of a replica
TIMELINE: Final = 240
#: points of a distribution's curve
POINTS = 300


def llm_figures(tables: Mapping[str, Table], summary: Mapping[str, Any]) -> list[Figure]:
    """How long the first token takes, how fast the others follow, and what the replicas hold over time."""
    requests, course = tables["requests"], tables.get("llm_course")
    shown = [
        _distribution(requests, summary, one, WORDS[one], column, caption)
        for one, (column, caption) in DISTRIBUTIONS.items()
        if (one in ALWAYS or any(key.endswith(f"{one}_slo_ms") for key in summary))
        and not np.isnan(requests[column]).all()
    ]
    shown += [] if course is None else [_requests(course), _cache(course), _tokens(course)]
    return [*shown, _timeline(tables["iterations"])] if "iterations" in tables else shown


def _distribution(
    requests: Table, summary: Mapping[str, Any], name: str, what: str, column: str, caption: str
) -> Figure:
    """Share of the requests at or below a time.

    Parameters
    ----------
    requests : a row a request.
    summary : of the run, for the objectives.
    name, what : of the time: as the summary names it, and in words.
    column : of the requests, with the time.
    caption : what the time is.
    """
    curves = {}
    stages = list(dict.fromkeys(requests["stage"].tolist()))
    for stage in stages:
        values = requests[column][requests["stage"] == stage]
        if not np.isnan(values).all():
            curves[stage] = quantile_curve(column, values[~np.isnan(values)], POINTS)
    limits = _limits(summary, name, stages)
    return Figure.of(
        "cdf",
        f"{name}-cdf",
        what.capitalize(),
        by_series("stage", curves),
        x=Axis(column, what, "ms"),
        y=Axis("share", "share of requests"),
        series="stage",
        series_label="stage",
        caption=" ".join([caption, *(met for _, _, met in limits)]),
        rules=[Rule(limit_ms, label) for limit_ms, label, _ in limits],
    )


def _limits(summary: Mapping[str, Any], name: str, stages: Iterable[str]) -> list[tuple[float, str, str]]:
    """The objectives of this kind: (limit in ms, label, how many requests meet it)."""
    limits = []
    for stage in stages:
        several = f"{stage}_{name}_p50_ms" in summary
        key = f"{stage}_{name}" if several else name
        limit_ms, share = summary.get(f"{key}_slo_ms"), summary.get(f"{key}_attainment")
        if limit_ms and share is not None:
            where = f" of {stage}" if several else ""
            met = f"{100 * share:.4g} % of the requests{where} are within {limit_ms:g} ms; refused ones are not."
            limits.append((float(limit_ms), f"SLO{where}", met))
    return limits


def _requests(course: Table) -> Figure:
    return _over_time(
        "llm-requests",
        "Requests running and waiting",
        _stacked(course, "requests", running="running", waiting="waiting"),
        Axis("requests", "most at once", "requests"),
        label="requests",
        caption="The most that ran and that waited at one instant, in each of equal spans of time, all replicas together.",
    )


def _cache(course: Table) -> Figure:
    return _over_time(
        "llm-cache",
        "Cache in use",
        _stacked(course, "share", cache="cache_share"),
        Axis("share", "most of the blocks in use"),
        series="what" if len(set(course["stage"].tolist())) > 1 else "",
        label="stage",
        caption="The largest share of all blocks that was in use in each span. Every block was in use in "
        f"{100 * float(np.mean(course['cache_share'] >= 1)):.3g} % of the spans.",
    )


def _tokens(course: Table) -> Figure:
    columns = {"prompt tokens": "prefill_tokens_per_s", "output tokens": "output_tokens_per_s"}
    return _over_time(
        "llm-tokens",
        "Tokens processed",
        _stacked(course, "rate", **columns),
        Axis("rate", "tokens a second", "tokens/s"),
        caption="Prompt tokens (chunks, and what is processed anew after preemptions) and decodes, all replicas together.",
    )


def _over_time(
    key: str,
    title: str,
    data: Columns,
    y: Axis,
    *,
    series: str = "what",
    label: str = "tokens",
    **others: Any,
) -> Figure:
    """Steps over time, by default of tokens by what they are."""
    return Figure.of("step", key, title, data, x=TIME, y=y, series=series, series_label=label, **others)


def _timeline(iterations: Table) -> Figure:
    """What the iterations of one replica consist of, around its longest."""
    longest = int(np.argmax(iterations["end_ms"] - iterations["start_ms"]))
    stage, replica = iterations["stage"][longest], int(iterations["replica"][longest])
    mine = np.flatnonzero((iterations["stage"] == stage) & (iterations["replica"] == replica))
    at = int(np.searchsorted(mine, longest))
    begin = max(0, min(at - TIMELINE // 2, len(mine) - TIMELINE))
    shown = iterations.rows(mine[begin : begin + TIMELINE])
    took_ms = iterations["end_ms"][longest] - iterations["start_ms"][longest]
    columns = {"prompt tokens": "prefill_tokens", "decodes": "decodes"}
    curves = {
        what: {"at_s": shown["start_ms"] / 1e3, "tokens": shown[column].astype(np.float64)}
        for what, column in columns.items()
    }
    return _over_time(
        "llm-timeline",
        "Tokens of a replica, iteration by iteration",
        by_series("what", curves),
        Axis("tokens", "tokens in the iteration", "tokens"),
        caption=f"{len(shown)} iterations of replica {replica} of {stage} around the longest of the run, which takes "
        f"{quantity(took_ms, 'ms', took_ms)}, {int(iterations['prefill_tokens'][longest])} prompt tokens beside "
        f"{int(iterations['decodes'][longest])} decodes.",
        order=columns,
    )


def _stacked(course: Table, name: str, **columns: str) -> Columns:
    """Several columns one behind the other, distinguished by `what`; the stage is named where there are several."""
    stages = list(dict.fromkeys(course["stage"].tolist()))
    curves = {}
    for what, column in columns.items():
        for stage in stages:
            mine = course.rows(course["stage"] == stage)
            label = f"{stage}: {what}" if len(stages) > 1 else what
            curves[label] = {"at_s": mine["at_ms"] / 1e3, name: mine[column].astype(np.float64)}
    return by_series("what", curves)
