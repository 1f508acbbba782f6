"""The figures of a back-test: whether quantiles are what they promise, and whether they stay so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from forerun.core.result.figures import Axis, Figure, Rule, by_series
from forerun.site.wait_time.forecast import INTERVALS


def figures(content: Mapping[str, Any]) -> tuple[Figure, ...]:
    """The reliability diagram, coverage over time, and losses over time.

    Parameters
    ----------
    content : of the file of a back-test.
    """
    return _reliability(content), _coverage(content), _losses(content)


def _reliability(content: Mapping[str, Any]) -> Figure:
    rows = content["reached"]
    names = tuple(dict.fromkeys(row["answers"] for row in rows))
    curves = {
        name: {
            "level": np.array([100.0 * row["level"] for row in rows if row["answers"] == name]),
            "share": np.array([100.0 * row["share"] for row in rows if row["answers"] == name]),
        }
        for name in names
    }
    return Figure.of(
        "points",
        "reliability",
        "Is a quantile what it promises?",
        by_series("answers", curves),
        x=Axis("level", "promised: starts by then", "%"),
        y=Axis("share", "did start by then", "%"),
        series="answers",
        order=names,
        equal=True,
        caption="For each level of an answer, the share of jobs that had started by the instant it gives. The line is "
        "where both are equal.",
    )


def _coverage(content: Mapping[str, Any]) -> Figure:
    columns = {f"{promised:.0%} interval": (f"within {promised:.0%}", 100.0) for promised in INTERVALS}
    return Figure.of(
        "line",
        "coverage-over-time",
        "How often intervals contained the start",
        _by_fortnight(content, "interval", "share", columns),
        x=Axis("day", "days since the log is complete"),
        y=Axis("share", "contained the start", "%"),
        series="interval",
        order=tuple(columns),
        rules=[Rule(100.0 * promised, f"{promised:.0%}", "y") for promised in INTERVALS],
        caption="A point a fortnight. The dashed lines are what the intervals promise.",
    )


def _losses(content: Mapping[str, Any]) -> Figure:
    kinds = {"answers": "loss", "best class history": "class history", "upper bounds": "bounds"}
    columns = {name: (column, 1.0) for name, column in kinds.items()}
    return Figure.of(
        "line",
        "losses-over-time",
        "How far off they were",
        _by_fortnight(content, "of", "loss", columns),
        x=Axis("day", "days since the log is complete"),
        y=Axis("loss", "pinball loss"),
        series="of",
        order=tuple(kinds),
        caption="Mean pinball loss on the scale log10(wait + a minute), a point a fortnight; less is better.",
    )


def _by_fortnight(
    content: Mapping[str, Any], series: str, figure: str, columns: Mapping[str, tuple[str, float]]
) -> Mapping[str, Any]:
    """A point in the middle of each fortnight. columns: by series, the column and what it is multiplied by."""
    rows = content["fortnights"]
    days = np.array([row["day"] + 7.0 for row in rows])
    curves = {
        name: {"day": days, figure: np.array([times * row[column] for row in rows])}
        for name, (column, times) in columns.items()
    }
    return by_series(series, curves)
