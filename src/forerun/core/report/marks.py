"""The marks of each kind of figure, as Vega-Lite layers, and the legend that explains them.

Sizes, weights and colours of marks, axes and legends are in charts.json, the style sheet of charts as page.css is that of
pages; a name after `$` there is a colour of the palette.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from string import Template
from typing import Any, Final, Literal

import numpy as np

from forerun.core.report.palette import DASHES, SEQUENTIAL, Palette
from forerun.core.report.thin import Array, Columns, codes_of, is_text
from forerun.core.result.figures import Axis
from forerun.core.result.numbers import format_number, whole

Side = Literal["x", "y"]
Layer = dict[str, Any]

_HEIGHT: Final = 250
_SHAPES: Final = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
#: characters of a category's label on one line, and pixels of a row whose label has two
_LONG_LABEL: Final = 24
_TWO_LINES: Final = 30
#: reference lines closer than this share of the axis get their labels on different lines
_NEAR: Final = 0.3
_FORMAT: Final = ",.6~g"


@dataclass(frozen=True)
class Legend:
    """One entry of a legend: how a series looks and its name.

    Parameters
    ----------
    name : of the series.
    colour : as CSS understands it.
    dash : lengths of dashes and gaps [pixels] (default: none, a solid line).
    shape : `line`, `square`, or the shape of a point (default: square).
    """

    name: str
    colour: str
    dash: tuple[int, ...] = ()
    shape: str = "square"  # line, square, or the shape of a point


#: lines nearer than this share of the figure's height hide each other
_HIDDEN: Final = 0.01
#: lines that are compared with each other
_MOST_COMPARED: Final = 12


@dataclass
class Parts:
    """A figure on its way to layers.

    Parameters
    ----------
    kind : of the figure.
    columns : x, y, x2, z, low, high, series, in drawn units; the marks may add columns.
    axes : of x, y and z, in drawn units.
    palette : the colours.
    series : their names in order.
    series_label : what the series are.
    order : the order that the figure asks for.
    rules : (axis, value, label) of reference lines.
    lying : bars grow along x.
    inside : the legend is drawn in the picture.
    """

    kind: str
    columns: Columns = field(repr=False)
    axes: Mapping[str, Axis]
    palette: Palette
    series: tuple[str, ...]
    series_label: str
    order: tuple[str, ...]
    rules: tuple[tuple[Side, float, str], ...]
    lying: bool
    inside: bool

    def look(self, name: str, **more: Any) -> dict[str, Any]:
        """A style of charts.json, with more or other properties.

        Parameters
        ----------
        name : of the style.
        more : Vega-Lite properties that are added or replaced.
        """
        return {**styles(self.palette)[name], **more}

    @property
    def plain_colour(self) -> dict[str, Any]:
        """The colour of marks that no series colours."""
        return {} if self.series else {"color": self.palette.series_colour(0)}

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval around y."""
        return "low" in self.columns and "high" in self.columns

    @property
    def category_side(self) -> Side | None:
        """The axis with categories, if there is one."""
        if is_text(self.columns["y"]):
            return "y"
        return "x" if is_text(self.columns["x"]) else None

    @property
    def value_side(self) -> Side:
        """The axis along which bars and intervals extend."""
        return "x" if self.category_side == "y" else "y"

    @cached_property
    def overlapping(self) -> bool:
        """Whether two lines run on top of each other, over a tenth of the length that they share.

        Lines closer than 1 % of the figure's height count as one; more than twelve lines are not compared.
        """
        if self.kind not in ("line", "step", "cdf") or not 1 < len(self.series) <= _MOST_COMPARED:
            return False
        if is_text(self.columns["x"]) or is_text(self.columns["y"]):
            return False
        x, y = (self.columns[name].astype(np.float64) for name in ("x", "y"))
        near = _HIDDEN * (float(np.ptp(self.numbers("y"))) if self.numbers("y").size else 0.0)
        lines = [rows[np.isfinite(y[rows]) & np.isfinite(x[rows])] for rows in _rows_by_series(self)]
        for one, other in itertools.combinations(
            [rows[np.argsort(x[rows])] for rows in lines if len(rows)], 2
        ):
            low, high = max(x[one[0]], x[other[0]]), min(x[one[-1]], x[other[-1]])
            if low > high:
                continue
            at = np.linspace(low, high, 200)
            ahead, behind = (np.interp(at, x[rows], y[rows]) for rows in (one, other))
            if np.mean(np.abs(ahead - behind) <= near) >= 0.1:
                return True
        return False

    def numbers(self, *names: str) -> Array:
        """The finite values of some columns together, float64; columns that the figure lacks are left out."""
        columns = [self.columns[name].astype(np.float64) for name in names if name in self.columns]
        values = np.concatenate(columns) if columns else np.empty(0)
        finite: Array = values[np.isfinite(values)]
        return finite


@functools.cache
def styles(palette: Palette) -> dict[str, Any]:
    """The style sheet of charts in the colours of a palette; nobody may change it."""
    sheet = files("forerun.core.report").joinpath("charts.json").read_text(encoding="utf-8")
    names: dict[str, Any] = json.loads(Template(sheet).substitute(palette.named()))
    return names


def axis_of(axis: Axis, values: Array, *, zero: bool, ceiling: float | None = None) -> dict[str, Any]:
    """The encoding of a continuous axis.

    Parameters
    ----------
    axis : column, title and scale.
    values : what is drawn along it, finite.
    zero : whether a linear axis includes 0.
    ceiling : where it ends (default: by the values).
    """
    scale: dict[str, Any] = {"type": "log"} if axis.log else {"zero": zero}
    if ceiling is not None:
        scale["domainMax"] = ceiling
    look: dict[str, Any] = {"tickCount": 6}
    if axis.column == "x":
        look["tickCount"] = {"expr": "clamp(width / 70, 2, 8)"}
    largest = float(np.abs(values).max()) if len(values) else 0.0
    if largest >= 1e5:
        look["format"] = "~s"
    elif axis.log:
        look["format"] = ",~g"
    if axis.log and len(values) and float(values.max()) / max(float(values.min()), 1e-300) > 50:
        # Powers of ten only, so that labels do not crowd.
        low, high = np.floor(np.log10(values.min())), np.ceil(np.log10(values.max()))
        step = max(1, int((high - low) // 8) + ((high - low) % 8 > 0 and high - low > 8))
        look["values"] = [float(10.0**power) for power in np.arange(low, high + 1, step)]
    return {"field": axis.column, "type": "quantitative", "title": axis.title, "scale": scale, "axis": look}


def height(parts: Parts) -> int:
    """How high the plot is [pixels]: by the number of rows where rows are listed down the side."""
    if parts.kind == "heatmap":
        return min(420, max(140, 24 * len(_distinct(parts.columns["y"]))))
    rows = max(1, len(codes_of(parts.columns["y"])[0])) if parts.category_side == "y" else 0
    if parts.kind == "gantt":
        return rows * (24 if rows <= 12 else 17 if rows <= 30 else 12)
    if rows:
        each = len(parts.series) if parts.kind != "stacked_bar" and len(parts.series) > 1 else 1
        lines = _TWO_LINES if _has_split_labels(parts) else 0
        return rows * min(60, max(14 * each + 10, lines, 190 // rows))
    return _HEIGHT


def _has_split_labels(parts: Parts) -> bool:
    """Whether a label of a row is so long that it has two lines, for which tracks of a timeline are too close."""
    if parts.kind not in ("bar", "stacked_bar", "points") or parts.category_side != "y":
        return False
    return any(len(str(name)) > _LONG_LABEL for name in _distinct(parts.columns["y"]))


def legend(parts: Parts) -> tuple[Legend, ...]:
    """The entries of the legend, one for each series in order; none for a figure without series."""
    lines = parts.kind in ("line", "step", "cdf")
    shape = "line" if lines else "square"
    return tuple(
        Legend(
            name,
            _colour(parts, number),
            _dash(parts, number) if lines else (),
            _SHAPES[number % len(_SHAPES)] if parts.kind == "points" else shape,
        )
        for number, name in enumerate(parts.series)
    )


def rule_layers(parts: Parts) -> list[Layer]:
    """Reference lines, then their labels: no label is on another, and no line strikes one through."""
    lines: list[Layer] = []
    labels: list[Layer] = []
    for side in ("x", "y"):
        if is_text(parts.columns[side]):
            continue
        mine = sorted((value, label) for axis, value, label in parts.rules if axis == side)
        values = parts.numbers(*(("x", "x2") if side == "x" else ("y", "low", "high")))
        everything = np.concatenate([values, [value for value, _ in mine]])
        shares = [_share(value, everything, parts.axes[side].log) for value, _ in mine]
        rows = _rows_of_labels(shares, _NEAR if side == "x" else 0.08)
        for (value, label), share, row in zip(mine, shares, rows):
            look, place = _beside(parts, share, row) if side == "x" else _above(share, row)
            line, *text = _rule(parts, side, value, label, look, place)
            lines.append(line)
            labels += text
    return lines + labels


def equal_layers(parts: Parts, x_factor: float, y_factor: float) -> list[Layer]:
    """The line where y is x; none where an axis has categories or nothing is drawn.

    Parameters
    ----------
    parts : the figure.
    x_factor, y_factor : how many of the figure's units make one of each axis.
    """
    if parts.category_side is not None:
        return []
    coordinates = np.concatenate([parts.numbers("x") * x_factor, parts.numbers("y") * y_factor])
    if parts.axes["x"].log or parts.axes["y"].log:
        coordinates = coordinates[coordinates > 0]
    if not len(coordinates):
        return []
    ends = (float(coordinates.min()), float(coordinates.max()))
    encoding = {
        side: {"field": side, "type": "quantitative", "title": parts.axes[side].title} for side in ("x", "y")
    }
    points = [{"x": end / x_factor, "y": end / y_factor} for end in ends]
    return [{"data": {"values": points}, "mark": parts.look("equal"), "encoding": encoding}]


def _beside(parts: Parts, share: float, row: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Style and position of the label of a vertical line: on the side with more space.

    Parameters
    ----------
    parts : the figure.
    share : where the line is, 0 (left) ... 1 (right).
    row : on which row the label goes, from 0.
    """
    left = share > 0.5
    # The foot of a cumulative curve is empty, its head is not.
    foot = parts.kind == "cdf"
    look: dict[str, Any] = {"align": "right" if left else "left", "dx": -5 if left else 5}
    look |= {"baseline": "middle", "dy": (-1 if foot else 1) * (8 + 15 * row)}
    space = share if left else 1.0 - share
    look["limit"] = {"expr": f"max(50, {space:.4f} * width - 8)"}
    return look, {"y": {"value": "height" if foot else 0}}


def _above(share: float, row: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Look and place of the label of a horizontal line: at the right end, at the left one for a near neighbour."""
    right = row % 2 == 0
    look: dict[str, Any] = {"align": "right" if right else "left", "dx": -3 if right else 3}
    look["limit"] = {"expr": "width - 8"}
    look |= {"baseline": "top", "dy": 4} if share > 0.9 else {"baseline": "bottom", "dy": -3}
    return look, {"x": {"value": "width" if right else 0}}


def _rule(
    parts: Parts, side: Side, value: float, label: str, look: dict[str, Any], place: dict[str, Any]
) -> list[Layer]:
    """A reference line, and its label drawn twice: a halo in the colour of the paper, then the text.

    Parameters
    ----------
    parts : the figure.
    side : the axis on which the value lies.
    value : in drawn units.
    label : its text.
    look, place : style and position of the label.
    """
    encoding: dict[str, Any] = {side: {"datum": value, "type": "quantitative"}}
    text = parts.look("rule label", text=label, **look)
    halo = parts.look("rule halo")
    one: dict[str, Any] = {"values": [{}]}
    return [
        {"data": one, "mark": parts.look("rule"), "encoding": encoding},
        {"data": one, "mark": text | halo, "encoding": encoding | place},
        {"data": one, "mark": text, "encoding": encoding | place},
    ]


def _rows_of_labels(shares: list[float], near: float) -> list[int]:
    """For each line, in the order of its place, on which row its label goes: neighbours on different ones."""
    rows: list[int] = []
    for number, here in enumerate(shares):
        taken = {rows[other] for other in range(number) if here - shares[other] < near}
        rows.append(next(row for row in range(len(shares) + 1) if row not in taken))
    return rows


def _share(value: float, values: Array, log: bool) -> float:
    """Where a value lies between the smallest (0) and the largest (1)."""
    if log:
        values, value = np.log(values[values > 0]), float(np.log(value))
    low, high = float(values.min()), float(values.max())
    return (value - low) / ((high - low) or 1.0)


def _lines(parts: Parts) -> list[Layer]:
    """Lines, steps and cumulative curves, above the band of their intervals.

    Short lines get a dot at each point. Shares of a curve end at 1, or at 100 where they are percentages.
    """
    encoding = _plane(parts)
    most = max((len(rows) for rows in _rows_by_series(parts)), default=0)
    dotted = parts.kind == "line" and most <= 24
    if dotted:  # margin for dots at the edge, which would be cut in half
        encoding["x"]["scale"] |= {"padding": 5}
        if not encoding["y"]["scale"].get("zero", True):
            encoding["y"]["scale"] |= {"padding": 5}
    if parts.kind == "cdf":
        top = float(parts.numbers("y").max(initial=0.0))
        encoding["y"]["scale"] = {"domain": [0, 1 if top <= 1.0 + 1e-9 else 100], "nice": False}
    smooth = "step-after" if parts.kind == "step" else "linear"
    look = parts.look("line", interpolate=smooth, **parts.plain_colour)
    if dotted:
        look["point"] = parts.look("dot", **parts.plain_colour)
    colours = _colours(parts, "color")
    strokes = encoding | colours
    if any(_dash(parts, number) for number in range(len(parts.series))):
        dashes = [list(_dash(parts, number)) or [1, 0] for number in range(len(parts.series))]
        strokes["strokeDash"] = _by_series(parts, dashes, legend=None)
    layers: list[Layer] = [{"mark": look, "encoding": strokes}]
    if parts.has_interval:
        band = parts.look("band", interpolate=smooth, **parts.plain_colour)
        ends = {"y": {**encoding["y"], "field": "low"}, "y2": {"field": "high"}}
        layers.insert(0, {"mark": band, "encoding": encoding | ends | colours})
    layers[0]["params"] = [_ZOOM]
    return layers


def _bars(parts: Parts) -> list[Layer]:
    """Bars of categories, or thin bars along a numeric axis.

    Single bars without an interval are labelled with their values, if there are at most 24; the axis leaves space for
    that.
    """
    values = parts.numbers("x" if parts.value_side == "x" else "y", "low", "high")
    grouped = len(parts.series) > 1
    plain = "low" not in parts.columns and not grouped
    labelled = plain and parts.category_side is not None and len(parts.columns["x"]) <= 24
    ceiling = None
    if labelled and not parts.axes[parts.value_side].log and len(values) and values.max() > 0:
        ceiling = float(values.max()) * 1.15
    encoding = _category_plane(parts, zero=True, ceiling=ceiling)
    look = parts.look("bar", **parts.plain_colour)
    if parts.category_side is None:
        look["width"] = 4
    layers: list[Layer] = [{"mark": look, "encoding": encoding | _colours(parts, "color") | _tooltip(parts)}]
    if parts.has_interval:
        layers.append(_whiskers(parts, encoding, {"color": parts.palette.ink}))
    if labelled:
        parts.columns["text"] = _texts(parts.columns[parts.value_side])
        place = {"baseline": "bottom", "dy": -3}
        if parts.value_side == "x":
            place = {"align": "left", "baseline": "middle", "dx": 4}
        # Beside the end of the bar; a bar below zero has its label on the other side of the axis, not on its colour.
        parts.columns["beside"] = np.maximum(parts.columns[parts.value_side], 0)
        text = {"text": {"field": "text", "type": "nominal"}}
        text[parts.value_side] = encoding[parts.value_side] | {"field": "beside"}
        layers.append({"mark": parts.look("bar label", **place), "encoding": encoding | text})
    return layers


def _stacks(parts: Parts) -> list[Layer]:
    """Parts stacked: bars of categories, or areas where x has more than 24 different numbers."""
    if parts.category_side is None and len(_distinct(parts.columns["x"])) > 24:
        encoding = _plane(parts, zero=True)
        encoding["y"]["stack"] = "zero"
        look = parts.look("stacked areas", **parts.plain_colour)
        colours = _colours(parts, "color") | _stack_order(parts)
        return [{"params": [_ZOOM], "mark": look, "encoding": encoding | colours}]
    if parts.category_side is None:
        parts.columns["x"] = _texts(parts.columns["x"])
    encoding = _category_plane(parts, zero=True, ceiling=None)
    encoding[parts.value_side]["stack"] = "zero"
    look = parts.look("stack", **parts.plain_colour)
    colours = _colours(parts, "color") | _stack_order(parts)
    return [{"mark": look, "encoding": encoding | colours | _tooltip(parts)}]


def _points(parts: Parts) -> list[Layer]:
    """Marks, smaller and paler the more there are; each series has a shape of its own besides its colour."""
    encoding = _category_plane(parts, zero=False, ceiling=None) if parts.category_side else _plane(parts)
    size = len(parts.columns["x"])
    look = parts.look(
        "point",
        size=64 if size <= 60 else 34 if size <= 600 else 14,
        opacity=0.95 if size <= 60 else 0.75,
        **parts.plain_colour,
    )
    strokes = encoding | _colours(parts, "color")
    if parts.series:
        shapes = [_SHAPES[number % len(_SHAPES)] for number in range(len(parts.series))]
        legend = {**(_legend(parts) or {}), "title": parts.series_label} if parts.inside else None
        strokes["shape"] = _by_series(parts, shapes, legend=legend)
    layers = [_whiskers(parts, strokes, parts.plain_colour)] if parts.has_interval else []
    return [*layers, {"mark": look, "encoding": strokes | _tooltip(parts)}]


def _heatmap(parts: Parts) -> list[Layer]:
    """Cells of a grid, coloured by z.

    Both axes are categories, also of numbers; at most 12 labels fit along x and 18 along y.
    """
    encoding: dict[str, Any] = {}
    for side in ("x", "y"):
        axis = parts.axes[side]
        values = parts.columns[side]
        texts = _texts(np.array(_distinct(values))).tolist()
        if not is_text(values):
            parts.columns[side] = _texts(values)
            texts = texts[::-1] if side == "y" else texts
        most = 12 if side == "x" else 18
        encoding[side] = {
            "field": side,
            "type": "ordinal",
            "title": axis.title,
            "sort": texts,
            "scale": {"padding": 0},
            "axis": parts.look("grid axis", values=texts[:: max(1, -(-len(texts) // most))]),
        }
    z = parts.axes.get("z")
    legend = parts.look("gradient")
    if parts.numbers("z").max(initial=0.0) >= 1e5:
        legend["format"] = "~s"
    encoding["color"] = {
        "field": "z",
        "type": "quantitative",
        "title": z.title if z else "value",
        "scale": {"scheme": SEQUENTIAL, **({"type": "log"} if z and z.log else {"zero": False})},
        "legend": legend,
    }
    return [{"mark": parts.look("cell"), "encoding": encoding | _tooltip(parts)}]


def _gantt(parts: Parts) -> list[Layer]:
    """Intervals on tracks; the pointer zooms along time."""
    values = parts.numbers("x", "x2")
    encoding = {
        "x": axis_of(parts.axes["x"], values, zero=_near_zero(values)),
        "x2": {"field": "x2"},
        "y": _category(parts, "y"),
    }
    encoding["x"]["scale"] |= {"nice": False}
    colours = _colours(parts, "fill" if parts.series else "color") | _colours(parts, "stroke", quiet=True)
    look = parts.look("interval", **parts.plain_colour)
    return [{"params": [_ZOOM], "mark": look, "encoding": encoding | colours | _tooltip(parts)}]


def _histogram(parts: Parts) -> list[Layer]:
    """Bins as bars from 0; of several series as outlines, since bars on top of each other would mix their colours."""
    if len(parts.series) > 1:
        parts.columns = _outlines(parts.columns)
    foot = 0.8 if parts.axes["y"].log else 0
    encoding = {
        "x": axis_of(parts.axes["x"], parts.numbers("x", "x2"), zero=_near_zero(parts.numbers("x"))),
        "y": axis_of(parts.axes["y"], parts.numbers("y"), zero=True),
    }
    encoding["x"]["scale"] |= {"nice": False}
    if foot:
        encoding["y"]["scale"] |= {"domainMin": foot}
    if len(parts.series) > 1:
        # Bars on top of each other would mix their colours: outlines stay apart.
        colours = _colours(parts, "color")
        filled = encoding | {"y2": {"datum": foot}, "y": {**encoding["y"], "stack": None}}
        return [
            {"mark": parts.look("outlined"), "encoding": filled | colours},
            {"mark": parts.look("outline"), "encoding": encoding | colours},
        ]
    bins = encoding | {"x2": {"field": "x2"}, "y2": {"datum": foot}}
    look = parts.look("bin", **parts.plain_colour)
    return [{"mark": look, "encoding": bins | _colours(parts, "color") | _tooltip(parts)}]


def _outlines(columns: Columns) -> Columns:
    """The bins of each series, with an empty bin after each that has no neighbour: there its outline ends."""
    codes = codes_of(columns["series"])[1]
    order = np.lexsort((columns["x"].astype(np.float64), codes))
    bins = {name: values[order] for name, values in columns.items()}
    last = np.ones(len(order), dtype=bool)
    last[:-1] = (codes[order][1:] != codes[order][:-1]) | (bins["x"][1:] > bins["x2"][:-1])
    ends = {name: values[last] for name, values in bins.items()}
    ends = {**ends, "x": ends["x2"], "y": np.zeros(int(last.sum()))}
    place = np.argsort(np.concatenate([np.arange(len(order)), np.flatnonzero(last)]), kind="stable")
    return {name: np.concatenate([bins[name], ends[name]])[place] for name in columns}


MARKS: Final[dict[str, Callable[[Parts], list[Layer]]]] = {
    "line": _lines,
    "step": _lines,
    "cdf": _lines,
    "bar": _bars,
    "stacked_bar": _stacks,
    "points": _points,
    "heatmap": _heatmap,
    "gantt": _gantt,
    "histogram": _histogram,
}

#: shift and the wheel zoom along x; without shift the wheel scrolls the page, and dragging selects nothing
_ZOOM: Final[dict[str, Any]] = {
    "name": "zoom",
    "select": {"type": "interval", "encodings": ["x"], "zoom": "wheel![event.shiftKey]", "translate": False},
    "bind": "scales",
}


def _plane(parts: Parts, *, zero: bool | None = None) -> dict[str, Any]:
    """Encodings of two continuous axes."""
    x, y = parts.numbers("x", "x2"), parts.numbers("y", "low", "high")
    from_zero = zero if zero is not None else _near_zero(y, 0.5)
    encoding = {
        "x": axis_of(parts.axes["x"], x, zero=_near_zero(x)),
        "y": axis_of(parts.axes["y"], y, zero=bool(from_zero)),
    }
    if not parts.axes["x"].log:
        encoding["x"]["scale"] |= {"nice": False}
    if parts.kind == "points":
        encoding["x"]["scale"] |= {"nice": not parts.axes["x"].log}
        if not encoding["x"]["scale"].get("zero"):  # from zero on, an axis begins there; dots are not cut
            encoding["x"]["scale"] |= {"padding": 10}
    return encoding


def _category_plane(parts: Parts, *, zero: bool, ceiling: float | None) -> dict[str, Any]:
    """Encodings of a category axis and a continuous one."""
    side = parts.category_side
    if side is None:
        return _plane(parts, zero=zero)
    values = parts.numbers(parts.value_side, "low", "high")
    encoding: dict[str, Any] = {
        side: _category(parts, side),
        parts.value_side: axis_of(parts.axes[parts.value_side], values, zero=zero, ceiling=ceiling),
    }
    if parts.lying or side == "y":
        encoding["x"]["axis"] |= {"grid": True, "domain": False}
    if len(parts.series) > 1 and parts.kind in ("bar", "points"):
        encoding[f"{side}Offset"] = {"field": "series", "type": "nominal", "sort": list(parts.series)}
    return encoding


def _category(parts: Parts, side: Side) -> dict[str, Any]:
    """The encoding of an axis of categories, in the order of their first appearance."""
    axis = parts.axes[side]
    look = parts.look("category axis", labelOverlap=side == "x", domain=side == "x")
    if side == "y" and _has_split_labels(parts):
        look |= parts.look("split labels")
    return {
        "field": side,
        "type": "nominal",
        "title": axis.title,
        "sort": codes_of(parts.columns[side])[0],
        "axis": look,
        "scale": {"paddingInner": 0.18, "paddingOuter": 0.1} if parts.kind != "points" else {"type": "band"},
    }


def _whiskers(parts: Parts, encoding: Mapping[str, Any], colour: Mapping[str, Any]) -> Layer:
    """The intervals around the values, as lines."""
    side = parts.value_side
    channels = {name: channel for name, channel in encoding.items() if name != "shape"}
    channels |= {side: {**channels[side], "field": "low"}, f"{side}2": {"field": "high"}}
    return {"mark": parts.look("whisker", **colour), "encoding": channels}


def _colours(parts: Parts, channel: str, *, quiet: bool = False) -> dict[str, Any]:
    """A channel with the colour of each series; nothing for a figure without series.

    Parameters
    ----------
    parts : the figure.
    channel : of the encoding, such as `color`.
    quiet : no legend for this channel (default: off).
    """
    if not parts.series:
        return {}
    colours = [_colour(parts, number) for number in range(len(parts.series))]
    legend = None if quiet else _legend(parts)
    return {channel: {**_by_series(parts, colours, legend=legend), "title": parts.series_label}}


def _by_series(parts: Parts, values: Sequence[Any], *, legend: dict[str, Any] | None) -> dict[str, Any]:
    """A channel that has one value for each series."""
    scale = {"domain": list(parts.series), "range": values}
    return {"field": "series", "type": "nominal", "legend": legend, "scale": scale}


def _legend(parts: Parts) -> dict[str, Any] | None:
    """How the legend is drawn inside a picture; None where it is drawn beside the chart."""
    if not parts.inside:
        return None
    longest = max((len(name) for name in parts.series), default=1)
    return {"orient": "top", "direction": "horizontal", "columns": max(1, min(6, 90 // (longest + 5)))}


def _colour(parts: Parts, number: int) -> str:
    """The colour of a series: lines and points have dashes and shapes beyond the colours, areas have tints."""
    area = parts.kind in ("bar", "stacked_bar", "gantt")
    return parts.palette.area_colour(number) if area else parts.palette.series_colour(number)


def _dash(parts: Parts, number: int) -> tuple[int, ...]:
    """The dashes of line `number`: other ones for each line where lines hide each other, or beyond the colours."""
    return DASHES[(number if parts.overlapping else number // len(parts.palette.series)) % len(DASHES)]


def _stack_order(parts: Parts) -> dict[str, Any]:
    """The channel that stacks the parts in the order of the legend."""
    if not parts.series:
        return {}
    place = {name: number for number, name in enumerate(parts.series)}
    parts.columns["rank"] = np.array(
        [place[name] for name in parts.columns["series"].tolist()], dtype=np.int64
    )
    return {"order": {"field": "rank", "type": "quantitative"}}


def _tooltip(parts: Parts) -> dict[str, Any]:
    """What the pointer shows of a mark: its series, both values, and the ends of its interval."""
    shown: list[dict[str, Any]] = []
    if "series" in parts.columns:
        shown.append({"field": "series", "type": "nominal", "title": parts.series_label})
    for name in ("y", "x", "x2", "z", "low", "high"):
        if name in parts.columns:
            title = parts.axes[name].title if name in parts.axes else {"x2": "to"}.get(name, name)
            text = is_text(parts.columns[name])
            kind = {"type": "nominal"} if text else {"type": "quantitative", "format": _FORMAT}
            shown.append({"field": name, "title": title, **kind})
    return {"tooltip": shown}


def _near_zero(values: Array, share: float = 0.25) -> bool:
    """Whether an axis of these values should begin at zero: they lie above it, and not far in proportion."""
    return bool(len(values)) and 0 <= float(values.min()) < share * float(values.max())


def _rows_by_series(parts: Parts) -> list[Array]:
    """The rows of each series, in order of appearance; all rows for a figure without series."""
    if "series" not in parts.columns:
        return [np.arange(len(parts.columns["x"]))]
    names, codes = codes_of(parts.columns["series"])
    return [np.flatnonzero(codes == code) for code in range(len(names))]


def _distinct(values: Array) -> list[Any]:
    """The distinct values of a column: texts by appearance, numbers ascending and without nan."""
    if is_text(values):
        return codes_of(values)[0]
    distinct: list[Any] = np.unique(values[~np.isnan(values.astype(np.float64))]).tolist()
    return distinct


def _texts(values: Array) -> Array:
    """Numbers as people read them, for an axis of categories; text as it is."""
    shown = values.tolist() if is_text(values) else [format_number(whole(value)) for value in values.tolist()]
    return np.array(shown, dtype=object)
