"""What a report shows of stages that serve language models, as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from forerun.result.figures import Axis, Figure, Rule
from forerun.result.tables import Table

#: points of a distribution's curve
POINTS = 300


def llm_figures(tables: Mapping[str, Table], summary: Mapping[str, Any]) -> list[Figure]:
    """How long the first token takes, how fast the others follow, and what the replicas hold over time."""
    requests = tables["requests"]
    found = [
        _distribution(
            requests,
            summary,
            "ttft",
            "Time to first token",
            "time to first token",
            "From entering the stage to the first token.",
        ),
        _distribution(
            requests,
            summary,
            "tpot",
            "Time between tokens",
            "time between tokens",
            "The mean of each answer after its first token.",
        ),
    ]
    course = tables.get("llm_course")
    if course is not None:
        found += [_held(course), _cache(course), _tokens(course)]
    return [figure for figure in found if figure is not None]


def _distribution(
    requests: Table, summary: Mapping[str, Any], name: str, title: str, what: str, caption: str
) -> Figure | None:
    shares = np.concatenate(
        [np.linspace(0.0, 0.98, POINTS // 2), np.linspace(0.98, 1.0, POINTS // 2 + 1)[1:]]
    )
    columns: dict[str, list[Any]] = {f"{name}_ms": [], "share": [], "stage": []}
    for stage in dict.fromkeys(requests["stage"].tolist()):
        values = requests[f"{name}_ms"][requests["stage"] == stage]
        values = values[~np.isnan(values)]
        if not len(values):
            continue
        columns[f"{name}_ms"].append(np.quantile(values, shares))
        columns["share"].append(shares)
        columns["stage"].append(np.full(len(shares), stage, dtype=object))
    if not columns["share"]:
        return None
    limits = _limits(summary, name, dict.fromkeys(requests["stage"].tolist()))
    return Figure(
        id=f"{name}-cdf",
        title=title,
        kind="cdf",
        x=Axis(f"{name}_ms", what, "ms"),
        y=Axis("share", "share of requests"),
        data=_columns(columns),
        series="stage",
        series_label="stage",
        caption=" ".join([caption, *(met for _, _, met in limits)]),
        rules=tuple(Rule(limit_ms, label) for limit_ms, label, _ in limits),
    )


def _limits(summary: Mapping[str, Any], name: str, stages: Iterable[str]) -> list[tuple[float, str, str]]:
    """The objectives of this kind: (limit in ms, label, how many requests meet it)."""
    found = []
    for stage in stages:
        several = f"{stage}_{name}_p50_ms" in summary
        key = f"{stage}_{name}" if several else name
        limit_ms, share = summary.get(f"{key}_slo_ms"), summary.get(f"{key}_attainment")
        if limit_ms and share is not None:
            where = f" of {stage}" if several else ""
            met = f"{100 * share:.4g} % of the requests{where} are within {limit_ms:g} ms; refused ones are not."
            found.append((float(limit_ms), f"SLO{where}", met))
    return found


def _columns(parts: Mapping[str, list[Any]]) -> dict[str, Any]:
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def _held(course: Table) -> Figure:
    return Figure(
        id="llm-requests",
        title="Requests running and waiting",
        kind="step",
        x=Axis("at_s", "time", "s"),
        y=Axis("requests", "most at once", "requests"),
        data=_stacked(course, "requests", {"running": course["running"], "waiting": course["waiting"]}),
        series="what",
        series_label="requests",
        caption="The most that ran and that waited at one instant, in each of equal spans of time, all replicas together.",
    )


def _cache(course: Table) -> Figure:
    return Figure(
        id="llm-cache",
        title="Cache in use",
        kind="step",
        x=Axis("at_s", "time", "s"),
        y=Axis("share", "most of the blocks in use"),
        data=_stacked(course, "share", {"cache": course["cache_share"]}),
        series="what" if len(set(course["stage"].tolist())) > 1 else "",
        series_label="stage",
        caption="The largest share of all blocks that was in use in each span. Every block was in use in "
        f"{100 * float(np.mean(course['cache_share'] >= 1)):.3g} % of the spans.",
    )


def _tokens(course: Table) -> Figure:
    rates = {"prompt tokens": course["prefill_tokens_per_s"], "output tokens": course["output_tokens_per_s"]}
    return Figure(
        id="llm-tokens",
        title="Tokens processed",
        kind="step",
        x=Axis("at_s", "time", "s"),
        y=Axis("rate", "tokens a second", "tokens/s"),
        data=_stacked(course, "rate", rates),
        series="what",
        series_label="tokens",
        caption="Prompt tokens (chunks, and what is processed anew after preemptions) and decodes, all replicas together.",
    )


def _stacked(course: Table, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Several columns one behind the other, distinguished by `what`; the stage is named where there are several."""
    stages = course["stage"]
    several = len(set(stages.tolist())) > 1
    labels = [
        np.array([f"{stage}: {what}" if several else what for stage in stages], dtype=object)
        for what in values
    ]
    return {
        "at_s": np.tile(course["at_ms"] / 1e3, len(values)),
        name: np.concatenate([np.asarray(column, dtype=np.float64) for column in values.values()]),
        "what": np.concatenate(labels),
    }
