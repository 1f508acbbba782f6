"""From a figure (data and meaning) to a drawing: a Vega-Lite specification, its rows, a legend and notes.

The specification never contains a name from the user's data as code: columns are renamed x, y, series ..., and texts
appear only as data values, titles and scale domains, which Vega draws as text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from forerun.core.report import marks
from forerun.core.report.marks import Legend, Parts
from forerun.core.report.palette import LIGHT, Palette
from forerun.core.report.thin import Array, Columns, codes_of, is_text, rows_of, thin
from forerun.core.result.figures import Axis, Figure
from forerun.core.result.numbers import format_number, readable_scale

SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v6.json"

#: kinds whose x is a continuous axis that the pointer is followed along
FOLLOWED: Final = frozenset({"line", "step", "cdf", "stacked_bar", "histogram"})

#: a category axis with more text than this lies on its side (characters over all categories)
_MOST_ACROSS: Final = 34


@dataclass(frozen=True)
class Drawing:
    """A figure ready to be drawn.

    Parameters
    ----------
    figure : what is drawn.
    spec : Vega-Lite without data.
    columns : the rows to draw, by column.
    titles : what each column is called, with its unit.
    legend : the series, drawn beside the chart (default: none).
    notes : what was left out or changed (default: nothing).
    wide : whether it takes the whole width of the page (default: no).
    followed : whether the pointer is followed along x (default: no).
    """

    figure: Figure
    spec: Mapping[str, Any] = field(repr=False)
    columns: Mapping[str, list[Any]] = field(repr=False)
    titles: Mapping[str, str]
    legend: tuple[Legend, ...] = ()
    notes: tuple[str, ...] = ()
    wide: bool = False
    followed: bool = False

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows to draw, as records."""
        return [dict(zip(self.columns, values)) for values in zip(*self.columns.values())]

    def vega_lite(self) -> dict[str, Any]:
        """The whole specification, data included."""
        return {"$schema": SCHEMA, **self.spec, "data": {"values": self.rows}}


def draw(figure: Figure, palette: Palette = LIGHT, *, width: int | None = None) -> Drawing:
    """A drawing of a figure: its values made finite, thinned, scaled to readable units, and put into marks.

    Parameters
    ----------
    figure : data and meaning.
    palette : its colours (default: light).
    width : of the plot [pixels], with title, caption and legend drawn inside the picture; None: as wide as the page's
        column, without them, since the page shows them as text (default: None).
    """
    columns = _columns(figure)
    columns, invalid = _finite(figure, columns)
    columns, thinned = thin(figure.kind, columns, log_x=figure.x.log)
    columns, axes = _scaled(figure, columns)
    notes = (*invalid, *thinned)
    axes = {name: replace(axis, column=name) for name, axis in axes.items()}
    lying = figure.kind in ("bar", "stacked_bar", "points") and _crowded(columns)
    rules = [
        (rule.axis, rule.value, rule.label) for rule in figure.rules if _drawable(rule.value, axes[rule.axis])
    ]
    if len(rules) < len(figure.rules):
        notes += ("A reference line at zero or below has no place on a logarithmic axis.",)
    if lying:
        columns, axes = _on_its_side(columns, axes)
        rules = [("y" if axis == "x" else "x", value, label) for axis, value, label in rules]
    factors = {name: _factor(figure, axes, name, lying) for name in ("x", "y")}
    parts = Parts(
        kind=figure.kind,
        columns=columns,
        axes=axes,
        palette=palette,
        inside=width is not None,
        series=_series(figure, columns),
        series_label=figure.series_label or "series",
        order=figure.order,
        rules=tuple((axis, value / factors[axis], label) for axis, value, label in rules),
        lying=lying,
    )
    layers = [*marks.MARKS[figure.kind](parts), *marks.rule_layers(parts)]
    if figure.equal and figure.x.unit == figure.y.unit:
        layers += marks.equal_layers(parts, factors["x"], factors["y"])
    spec: dict[str, Any] = {
        "description": " ".join(text for text in (figure.title + ".", figure.caption) if text),
        "width": width or "container",
        "height": marks.height(parts),
        "autosize": {"type": "pad" if width else "fit-x", "contains": "padding"},
        "config": config(palette),
        "layer": layers,
    }
    if width is not None:
        spec["title"] = _title(figure, palette, width)
        spec["padding"] = 14
    return Drawing(
        figure=figure,
        spec=spec,
        columns={name: _plain(values) for name, values in parts.columns.items()},
        titles=_titles(parts),
        legend=() if width else marks.legend(parts),
        notes=notes,
        wide=figure.kind in ("gantt", "heatmap"),
        followed=figure.kind in FOLLOWED and not _categorical(parts.columns),
    )


def config(palette: Palette) -> dict[str, Any]:
    """How every chart looks: the `config` part of a Vega-Lite specification.

    Parameters
    ----------
    palette : its colours; the background is transparent where they are CSS variables.
    """
    background = palette.card if palette.card.startswith("#") else "transparent"
    return {**marks.styles(palette)["config"], "background": background}


def _columns(figure: Figure) -> Columns:
    """The figure's data under the names x, y, x2, z, low, high, series."""
    named = {
        "x": figure.x.column,
        "y": figure.y.column,
        "x2": figure.x2,
        "low": figure.low,
        "high": figure.high,
        "z": figure.z.column if figure.z else "",
        "series": figure.series,
    }
    columns = {name: _array(figure.data[column]) for name, column in named.items() if column}
    if "series" in columns and not is_text(columns["series"]):
        columns["series"] = np.array(
            [format_number(value) for value in columns["series"].tolist()], dtype=object
        )
    if figure.kind in ("bar", "points") and figure.series in (figure.x.column, figure.y.column):
        # The categories are the series: one colour each would say the same thing twice.
        columns.pop("series", None)
    if figure.kind in ("bar", "stacked_bar") and figure.order and _categorical(columns):
        columns = _ordered(columns, figure.order)
    if figure.kind == "gantt":
        columns["y"] = columns["y"].astype(str).astype(object)
    if figure.kind == "stacked_bar" and "series" in columns and not _categorical(columns):
        rows = np.argsort(columns["x"], kind="stable")
        columns = rows_of(columns, rows)
    return columns


def _ordered(columns: Columns, order: tuple[str, ...]) -> Columns:
    """The rows in the order that the figure gives its categories; those it does not name come last."""
    axis = "y" if is_text(columns["y"]) else "x"
    place = {name: number for number, name in enumerate(order)}
    keys = [place.get(str(name), len(place)) for name in columns[axis].tolist()]
    return rows_of(columns, np.argsort(np.array(keys), kind="stable"))


def _array(values: Any) -> Array:
    """A column as numbers or as objects that are text: yes and no become words, None among numbers becomes nan."""
    array = np.asarray(values)
    if array.dtype.kind == "b":
        return np.array(["yes" if value else "no" for value in array.tolist()], dtype=object)
    if array.dtype.kind in "OUS":
        items = array.tolist()
        if all(item is None or isinstance(item, (int, float)) for item in items):
            return np.array([np.nan if item is None else float(item) for item in items], dtype=np.float64)
        return np.array(["" if item is None else str(item) for item in items], dtype=object)
    return array


def _finite(figure: Figure, columns: Columns) -> tuple[Columns, tuple[str, ...]]:
    """Values that cannot be drawn (infinite; not positive on a logarithmic axis) become gaps, and are counted."""
    notes: list[str] = []
    logs = {name for name, axis in (("x", figure.x), ("y", figure.y), ("z", figure.z)) if axis and axis.log}
    logs |= {"low", "high"} if "y" in logs else set()
    logs |= {"x2"} if "x" in logs else set()
    for name, values in columns.items():
        if is_text(values) or (values.dtype.kind != "f" and name not in logs):
            continue
        number = values.astype(np.float64)
        endless, too_low = np.isinf(number), (number <= 0) & (name in logs)
        # A histogram's empty bins have no bar on any axis.
        counted = int(too_low.sum()) if figure.kind != "histogram" else 0
        if name in ("x", "y", "z"):
            if endless.any():
                notes.append(f"{int(endless.sum()):,} infinite values of {name} are not drawn.")
            if counted:
                notes.append(f"{counted:,} values at zero or below have no place on a logarithmic axis.")
        columns[name] = np.where(endless | too_low, np.nan, number)
    return columns, tuple(notes)


def _scaled(figure: Figure, columns: Columns) -> tuple[Columns, dict[str, Axis]]:
    """Values and axes in units that suit their size: 250,000 s are drawn as 69.4 h."""
    axes = {"x": figure.x, "y": figure.y}
    if figure.z:
        axes["z"] = figure.z
    together = {"x": ("x", "x2"), "y": ("y", "low", "high"), "z": ("z",)}
    for name, axis in list(axes.items()):
        if is_text(columns[name]):
            continue
        values = np.abs(
            np.concatenate([columns[one].astype(np.float64) for one in together[name] if one in columns])
        )
        values = values[np.isfinite(values)]
        unit, factor = readable_scale(axis.unit, float(values.max()) if len(values) else 0.0)
        axes[name] = replace(axis, unit=unit)
        if factor != 1.0:
            for one in together[name]:
                if one in columns:
                    columns[one] = columns[one] / factor
    return columns, axes


def _factor(figure: Figure, axes: Mapping[str, Axis], name: str, lying: bool) -> float:
    """How many of the figure's units make one of the axis drawn as `name`.

    Parameters
    ----------
    figure : with the original units.
    axes : with the units drawn.
    name : `x` or `y`, as drawn.
    lying : whether x and y have changed places.
    """
    original = {"x": figure.y, "y": figure.x}[name] if lying else {"x": figure.x, "y": figure.y}[name]
    drawn = axes[name].unit
    return next((size for start, size in _sizes(original.unit) if start == drawn), 1.0)


def _sizes(unit: str) -> list[tuple[str, float]]:
    """The readable units for 1, 10, 100 ... of a unit, each with how many of that unit make one."""
    return [readable_scale(unit, 10.0**power) for power in range(16)]


def _drawable(value: float, axis: Axis) -> bool:
    """Whether a reference line at a value has a place on an axis."""
    return math.isfinite(value) and (value > 0 or not axis.log)


def _categorical(columns: Mapping[str, Array]) -> bool:
    """Whether one of the two axes has categories."""
    return is_text(columns["x"]) or is_text(columns["y"])


def _crowded(columns: Columns) -> bool:
    """Whether the categories along x would run into each other."""
    if not is_text(columns["x"]):
        return False
    names, _ = codes_of(columns["x"])
    return sum(len(name) + 2 for name in names) > _MOST_ACROSS or len(names) > 12


def _on_its_side(columns: Columns, axes: dict[str, Axis]) -> tuple[Columns, dict[str, Axis]]:
    """Columns and axes with x and y exchanged."""
    turned = {**columns, "x": columns["y"], "y": columns["x"]}
    return turned, {**axes, "x": replace(axes["y"], column="x"), "y": replace(axes["x"], column="y")}


def _series(figure: Figure, columns: Columns) -> tuple[str, ...]:
    """The series in the order they are shown: as the figure orders them, then by appearance."""
    if "series" not in columns:
        return ()
    there, _ = codes_of(columns["series"])
    known = set(there)
    asked = [name for name in figure.order if name in known]
    return (*asked, *(name for name in there if name not in set(asked)))


def _titles(parts: Parts) -> dict[str, str]:
    """What the columns of the data table are called: the axes with their units, the series, the ends of intervals
    and bins.
    """
    titles = {name: parts.axes[name].title for name in ("x", "y", "z") if name in parts.axes}
    if "series" in parts.columns:
        titles["series"] = parts.series_label
    if "x2" in parts.columns:
        titles = {**titles, "x": f"{titles['x']} from", "x2": f"{titles['x']} to"}
    if "low" in parts.columns:
        titles = {
            **titles,
            "low": f"{titles[parts.value_side]}, low",
            "high": f"{titles[parts.value_side]}, high",
        }
    return {name: title for name, title in titles.items() if name in parts.columns}


def _title(figure: Figure, palette: Palette, width: int) -> dict[str, Any]:
    """Title and caption as Vega-Lite draws them in a picture."""
    sheet = marks.styles(palette)
    title = {"text": figure.title, **sheet["title"]}
    if figure.caption:
        title |= {"subtitle": _wrapped(figure.caption, width // 6), **sheet["subtitle"]}
    return title


def _wrapped(text: str, width: int) -> list[str]:
    """A text in lines of at most `width` characters."""
    import textwrap

    return textwrap.wrap(text, width) or [""]


def _plain(values: Array) -> list[Any]:
    """A column as JSON data; numbers to seven significant digits, which is finer than a pixel."""
    if is_text(values):
        return [str(value) for value in values]
    if values.dtype.kind in "iu":
        return [int(value) for value in values.tolist()]
    return [
        float(f"{value:.7g}") if math.isfinite(value) else None
        for value in values.astype(np.float64).tolist()
    ]
