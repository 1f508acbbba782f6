"""Figures as data: what to draw and what it means; the report decides how.

A domain's `figures.py` makes these with `Figure.of`, which takes a kind, the words, a table, and the columns to draw:

    Figure.of(
        "gantt",
        "jobs-over-time",
        "Jobs over time",
        run.tables["allocations"],
        x=Axis("from_s", "time", "s"),
        x2="to_s",
        y="job",
        series="gpus",
        caption="Each job's stretches of constant allocation.",
    )

An axis that is named by its column alone takes its label from the name and its unit from the table's schema, else from the
name: `y="threads"`, `x="latency_ms"` (latency in ms). Write an `Axis` where the label has other words, or for a logarithmic
axis. Columns of the data that are called low and high are the ends of an interval around y (`ends` makes them).
`by_series` puts several curves one behind the other. Columns may be lists or numpy arrays; no `tolist` is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from forerun.core.result import renderer
from forerun.core.result.tables import Table
from forerun.core.units import readable_unit, split_name

if TYPE_CHECKING:
    from forerun.core.result.stats import Interval

#: columns of a figure by name: lists or one-dimensional arrays
Columns: TypeAlias = Mapping[str, Sequence[Any] | np.ndarray[Any, Any]]

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
    data: Columns = field(repr=False)
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

    @classmethod
    def of(
        cls,
        kind: Kind,
        id: str,
        title: str,
        data: Table | Columns,
        *,
        x: str | Axis,
        y: str | Axis,
        z: str | Axis | None = None,
        x2: str = "",
        series: str = "",
        series_label: str = "",
        caption: str = "",
        rules: Iterable[Rule] = (),
        order: Iterable[str] = (),
        equal: bool = False,
        intervals: Sequence[Interval | None] = (),
    ) -> Figure:
        """A figure of some columns of a table.

        kind, id, title, caption, rules, order, equal, x2, series, series_label: as of a `Figure`.
        data: a table, or columns by name; only those that are drawn are taken. Columns called low and high, where there are
        both, are drawn as the interval around y, and so are `intervals` of the rows (default: none).
        x, y, z: an axis, or the name of its column, from which label and unit are derived.
        """
        columns = data.columns if isinstance(data, Table) else data
        if any(intervals):
            columns = {
                **columns,
                "low": [one.low if one else math.nan for one in intervals],
                "high": [one.high if one else math.nan for one in intervals],
            }
        x, y = _axis(x, data), _axis(y, data)
        z = _axis(z, data) if z else None
        low, high = ("low", "high") if {"low", "high"} <= columns.keys() else ("", "")
        drawn = (x.column, y.column, z.column if z else "", x2, series, low, high)
        return cls(
            id=id,
            title=title,
            kind=kind,
            x=x,
            y=y,
            z=z,
            data={name: columns[name] for name in dict.fromkeys(drawn) if name},
            caption=caption,
            series=series,
            series_label=series_label,
            x2=x2,
            low=low,
            high=high,
            rules=tuple(rules),
            order=tuple(order),
            equal=equal,
        )

    def _repr_svg_(self) -> str:
        text: str = renderer.find("svg")(self)
        return text

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
        number = {self.x2, self.low, self.high, self.z.column if self.z else ""}
        number |= {axis.column for axis in (self.x, self.y) if axis.unit or axis.log}
        number |= {self.y.column} if self.kind in ("line", "step", "cdf", "histogram") else set()
        columns = {
            column: _kinds(self.data[column]) for column in (*number, self.x.column, self.y.column) if column
        }
        for column, kinds in columns.items():
            assert kinds <= {"number"} or (kinds == {"text"} and column not in number), (
                f"figure {self.id}: {column} is no column of numbers"
            )


def by_series(series: str, curves: Mapping[str, Columns]) -> dict[str, np.ndarray[Any, Any]]:
    """The columns of several curves, one behind the other, as a figure with series wants them.

    series: name of the column that tells them apart. curves: the columns of each curve, by what the curve is called; all
    have the same columns, at least one curve.

    >>> by_series("state", {"waiting": {"jobs": [3, 1]}, "running": {"jobs": [0, 2]}})["state"].tolist()
    ['waiting', 'waiting', 'running', 'running']
    """
    names = list(next(iter(curves.values())))
    columns = {name: np.concatenate([np.asarray(curve[name]) for curve in curves.values()]) for name in names}
    lengths = [len(curve[names[0]]) for curve in curves.values()]
    return {**columns, series: np.repeat(np.array(list(curves), dtype=object), lengths)}


def quantile_curve(name: str, values: np.ndarray[Any, Any], points: int) -> dict[str, np.ndarray[Any, Any]]:
    """The columns `name` and `share` of a distribution, for a cdf: half of its points lie in the highest 2 % of values.

    name: of the column of quantiles. values: the observations, at least one, without nan. points: how many.
    """
    usual, highest = np.linspace(0.0, 0.98, points // 2), np.linspace(0.98, 1.0, points // 2 + 1)[1:]
    shares = np.concatenate([usual, highest])
    return {name: np.quantile(values, shares), "share": shares}


def _kinds(column: Sequence[Any] | np.ndarray[Any, Any]) -> set[str]:
    """What a column has: numbers, texts, other things."""
    if isinstance(column, np.ndarray) and column.dtype.kind not in "OTU":
        return {"number"}
    known = (value for value in column if value is not None)
    return {
        "text"
        if isinstance(value, str)
        else "number"
        if isinstance(value, (int, float, np.generic))
        else "other"
        for value in known
    }


def _axis(axis: str | Axis, data: Table | Columns) -> Axis:
    """An axis; of a column's name: label from the name, unit from the table's schema, else from the name."""
    if isinstance(axis, Axis):
        return axis
    label, unit = split_name(axis)
    if isinstance(data, Table):
        unit = next((column.unit for column in data.schema.columns if column.name == axis), unit)
    return Axis(axis, label, readable_unit(unit))
