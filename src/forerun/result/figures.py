"""Figures as data: what to draw and what it means; the report decides how.

A domain's `figures.py` returns these. Every axis has a label and a unit; series are columns of equal length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal[
    "line",  # y against x, one line a series; optional band low..high
    "step",  # like line, but constant until the next point
    "cdf",  # share of observations at or below x; `x` holds quantile points already computed
    "bar",  # one bar a category
    "stacked_bar",  # parts of each category, stacked
    "points",  # marks; optional interval low..high
    "heatmap",  # z over a grid of x and y
    "gantt",  # intervals on tracks: y track, x from, x2 to, series state
    "histogram",  # counts of bins: x from, x2 to, y count
]


@dataclass(frozen=True)
class Axis:
    """An axis: the column it shows, its label, its unit (empty for pure numbers), and whether it is logarithmic."""

    column: str
    label: str
    unit: str = ""
    log: bool = False

    @property
    def title(self) -> str:
        """Label with unit, as printed beside the axis."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


@dataclass(frozen=True)
class Rule:
    """A reference line across a figure: an SLO, a published value, a capacity."""

    value: float
    label: str
    axis: Literal["x", "y"] = "x"


@dataclass(frozen=True)
class Figure:
    """One picture.

    id: file name stem. caption: one or two sentences, what to see. data: columns of equal length (lists or numpy
    arrays). series: the column that tells the lines or parts apart, empty if there is one. low, high: columns of an
    interval around y. z: the column of a heat map's colour. x2: the end column of intervals and bins.
    order: the order of the series (or of a bar chart's categories), as named in the data. equal: the line where y is x
    is drawn, for predictions beside what was measured, in one unit.
    """

    id: str
    title: str
    kind: Kind
    x: Axis
    y: Axis
    data: Mapping[str, Sequence[Any]] = field(repr=False)
    caption: str = ""
    series: str = ""
    series_label: str = ""
    z: Axis | None = None
    x2: str = ""
    low: str = ""
    high: str = ""
    rules: tuple[Rule, ...] = ()
    order: tuple[str, ...] = ()
    equal: bool = False

    def _repr_svg_(self) -> str:
        import importlib

        # The report, which draws, stands above this module.
        drawn: str = importlib.import_module("forerun.report.images").svg(self)
        return drawn

    def __post_init__(self) -> None:
        named = [
            self.x.column,
            self.y.column,
            self.series,
            self.x2,
            self.low,
            self.high,
            self.z.column if self.z else "",
        ]
        missing = [name for name in named if name and name not in self.data]
        assert not missing, f"figure {self.id}: no column {missing}; there are {list(self.data)}"
        lengths = {len(values) for values in self.data.values()}
        assert len(lengths) == 1, f"figure {self.id}: columns of lengths {sorted(lengths)}"
