"""The marks of each kind of figure, as Vega-Lite layers, and the legend that explains them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from forerun.report.palette import DASHES, SEQUENTIAL, Palette
from forerun.report.quantities import format_number
from forerun.report.thin import Array, Columns, codes_of, is_text
from forerun.result.figures import Axis

Side = Literal["x", "y"]
Layer = dict[str, Any]

_HEIGHT: Final = 250
_SHAPES: Final = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
#: reference lines closer than this share of the axis get their labels on different lines
_NEAR: Final = 0.3
_FORMAT: Final = ",.6~g"
#: a long category label keeps its beginning and its end, where names tend to differ
_SHORTENED: Final = (
    "length(datum.label) > 24 ? slice(datum.label, 0, 12) + '…' + slice(datum.label, -11) : datum.label"
)


@dataclass(frozen=True)
class Legend:
    """One entry of a legend: how the series looks and its name."""

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
    """A figure on its way to layers: columns x, y, x2, z, low, high, series, and axes x, y, z in drawn units.

    series: their names in order. rules: (axis, value, label). lying: bars grow along x. inside: the legend is drawn in
    the picture.
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
        """Whether two lines run on top of each other, over a tenth of the length that they share."""
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
        """The finite values of some columns together."""
        found = [self.columns[name].astype(np.float64) for name in names if name in self.columns]
        values = np.concatenate(found) if found else np.empty(0)
        finite: Array = values[np.isfinite(values)]
        return finite


def axis_of(axis: Axis, values: Array, *, zero: bool, ceiling: float | None = None) -> dict[str, Any]:
    """The encoding of a continuous axis."""
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
    """How high the plot is, in pixels: by the number of rows where rows are listed down the side."""
    if parts.kind == "heatmap":
        return min(420, max(140, 24 * len(_distinct(parts.columns["y"]))))
    rows = max(1, len(codes_of(parts.columns["y"])[0])) if parts.category_side == "y" else 0
    if parts.kind == "gantt":
        return rows * (24 if rows <= 12 else 17 if rows <= 30 else 12)
    if rows:
        each = len(parts.series) if parts.kind != "stacked_bar" and len(parts.series) > 1 else 1
        return rows * min(60, max(14 * each + 10, 190 // rows))
    return _HEIGHT


def legend(parts: Parts) -> tuple[Legend, ...]:
    """The entries of the legend; none for a single series whose name says nothing."""
    shape = {"line": "line", "step": "line", "cdf": "line"}.get(parts.kind, "square")
    entries = []
    for number, name in enumerate(parts.series):
        entries.append(
            Legend(
                name,
                _colour(parts, number),
                _dash(parts, number) if shape == "line" else (),
                _SHAPES[number % len(_SHAPES)] if parts.kind == "points" else shape,
            )
        )
    return tuple(entries)


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
    """The line where y is x; the factors are how many of the figure's units make one of each axis."""
    if parts.category_side is not None:
        return []
    found = np.concatenate([parts.numbers("x") * x_factor, parts.numbers("y") * y_factor])
    if parts.axes["x"].log or parts.axes["y"].log:
        found = found[found > 0]
    if not len(found):
        return []
    ends = (float(found.min()), float(found.max()))
    look = {
        "type": "line",
        "color": parts.palette.ink,
        "strokeDash": [4, 3],
        "strokeWidth": 1.2,
        "tooltip": None,
    }
    encoding = {
        side: {"field": side, "type": "quantitative", "title": parts.axes[side].title} for side in ("x", "y")
    }
    points = [{"x": end / x_factor, "y": end / y_factor} for end in ends]
    return [{"data": {"values": points}, "mark": look, "encoding": encoding}]


def _beside(parts: Parts, share: float, row: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Style and position of the label of a vertical line: on the side with more space."""
    left = share > 0.5
    # The foot of a cumulative curve is empty, its head is not.
    foot = parts.kind == "cdf"
    look: dict[str, Any] = {
        "align": "right" if left else "left",
        "dx": -5 if left else 5,
        "baseline": "middle",
    }
    look["dy"] = (-1 if foot else 1) * (8 + 15 * row)
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
    paper, ink = parts.palette.card, parts.palette.ink
    encoding: dict[str, Any] = {side: {"datum": value, "type": "quantitative"}}
    dashed = {"type": "rule", "color": ink, "strokeDash": [4, 3], "strokeWidth": 1.2, "tooltip": None}
    text = {"type": "text", "text": label, "fontSize": 11, "tooltip": None, **look}
    halo = {**text, "color": paper, "stroke": paper, "strokeWidth": 4, "strokeJoin": "round"}
    one: dict[str, Any] = {"values": [{}]}
    return [
        {"data": one, "mark": dashed, "encoding": encoding},
        {"data": one, "mark": halo, "encoding": {**encoding, **place}},
        {"data": one, "mark": {**text, "color": ink}, "encoding": {**encoding, **place}},
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
    step = parts.kind == "step"
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
    look: dict[str, Any] = {
        "type": "line",
        "strokeWidth": 1.9,
        "clip": True,
        "tooltip": None,
        "strokeJoin": "round",
    }
    look |= {"interpolate": "step-after" if step else "linear", **_plain_colour(parts)}
    if dotted:
        look["point"] = {"filled": True, "size": 28, **_plain_colour(parts)}
    strokes = encoding | _colours(parts, "color")
    if any(_dash(parts, number) for number in range(len(parts.series))):
        dashes = [list(_dash(parts, number)) or [1, 0] for number in range(len(parts.series))]
        strokes["strokeDash"] = {
            "field": "series",
            "type": "nominal",
            "legend": None,
            "scale": {"domain": list(parts.series), "range": dashes},
        }
    layers: list[Layer] = []
    if "low" in parts.columns and "high" in parts.columns:
        band = {
            "type": "area",
            "opacity": 0.18,
            "clip": True,
            "tooltip": None,
            "interpolate": look["interpolate"],
        }
        layers.append(
            {
                "mark": band | _plain_colour(parts),
                "encoding": encoding
                | {"y": {**encoding["y"], "field": "low"}, "y2": {"field": "high"}}
                | _colours(parts, "color"),
            }
        )
    layers.append({"mark": look, "encoding": strokes})
    layers[0]["params"] = [_ZOOM]
    return layers


def _bars(parts: Parts) -> list[Layer]:
    values = parts.numbers("x" if parts.value_side == "x" else "y", "low", "high")
    grouped = len(parts.series) > 1
    plain = "low" not in parts.columns and not grouped
    labelled = plain and parts.category_side is not None and len(parts.columns["x"]) <= 24
    ceiling = None
    if labelled and not parts.axes[parts.value_side].log and len(values) and values.max() > 0:
        ceiling = float(values.max()) * 1.15
    encoding = _category_plane(parts, zero=True, ceiling=ceiling)
    look = {"type": "bar", "tooltip": True, "cornerRadiusEnd": 1.5, **_plain_colour(parts)}
    if parts.category_side is None:
        look["width"] = 4
    layers: list[Layer] = [{"mark": look, "encoding": encoding | _colours(parts, "color") | _tooltip(parts)}]
    if "low" in parts.columns and "high" in parts.columns:
        layers.append(_whiskers(parts, encoding, parts.palette.ink))
    if labelled:
        lie = parts.value_side == "x"
        number = parts.columns[parts.value_side].tolist()
        parts.columns["text"] = np.array([format_number(_as_number(value)) for value in number], dtype=object)
        text = {"type": "text", "fontSize": 11, "color": parts.palette.soft, "tooltip": None}
        text |= {"align": "left", "baseline": "middle", "dx": 4} if lie else {"baseline": "bottom", "dy": -3}
        layers.append({"mark": text, "encoding": encoding | {"text": {"field": "text", "type": "nominal"}}})
    return layers


def _stacks(parts: Parts) -> list[Layer]:
    if parts.category_side is None and len(_distinct(parts.columns["x"])) > 24:
        encoding = _plane(parts, zero=True)
        encoding["y"]["stack"] = "zero"
        look: dict[str, Any] = {
            "type": "area",
            "interpolate": "step-after",
            "clip": True,
            "tooltip": None,
            "opacity": 0.9,
            **_plain_colour(parts),
        }
        return [
            {
                "params": [_ZOOM],
                "mark": look,
                "encoding": encoding | _colours(parts, "color") | _stack_order(parts),
            }
        ]
    if parts.category_side is None:
        parts.columns["x"] = np.array(
            [format_number(_as_number(v)) for v in parts.columns["x"].tolist()], dtype=object
        )
    encoding = _category_plane(parts, zero=True, ceiling=None)
    encoding[parts.value_side]["stack"] = "zero"
    look = {
        "type": "bar",
        "tooltip": True,
        "stroke": parts.palette.card,
        "strokeWidth": 0.6,
        **_plain_colour(parts),
    }
    colours = _colours(parts, "color")
    return [{"mark": look, "encoding": encoding | colours | _stack_order(parts) | _tooltip(parts)}]


def _points(parts: Parts) -> list[Layer]:
    encoding = _category_plane(parts, zero=False, ceiling=None) if parts.category_side else _plane(parts)
    size = len(parts.columns["x"])
    look = {
        "type": "point",
        "filled": True,
        "tooltip": True,
        "size": 64 if size <= 60 else 34 if size <= 600 else 14,
        "opacity": 0.95 if size <= 60 else 0.75,
        "clip": False,
        **_plain_colour(parts),
    }
    strokes = encoding | _colours(parts, "color")
    if parts.series:
        shapes = [_SHAPES[number % len(_SHAPES)] for number in range(len(parts.series))]
        strokes["shape"] = {
            "field": "series",
            "type": "nominal",
            "legend": _legend(parts),
            "scale": {"domain": list(parts.series), "range": shapes},
        }
        if parts.inside:
            strokes["shape"]["legend"] = {**(_legend(parts) or {}), "title": parts.series_label}
    layers: list[Layer] = []
    if "low" in parts.columns and "high" in parts.columns:
        layers.append(_whiskers(parts, strokes, None))
    return [*layers, {"mark": look, "encoding": strokes | _tooltip(parts)}]


def _heatmap(parts: Parts) -> list[Layer]:
    encoding: dict[str, Any] = {}
    for side in ("x", "y"):
        axis = parts.axes[side]
        values = parts.columns[side]
        names = codes_of(values)[0] if is_text(values) else _distinct(values)
        texts = names if is_text(values) else [format_number(_as_number(value)) for value in names]
        if not is_text(values):
            number = dict(zip(names, texts))
            parts.columns[side] = np.array([number[value] for value in values.tolist()], dtype=object)
            if side == "y":
                texts = texts[::-1]
        most = 12 if side == "x" else 18
        shown = texts[:: max(1, -(-len(texts) // most))]
        encoding[side] = {
            "field": side,
            "type": "ordinal",
            "title": axis.title,
            "sort": texts,
            "scale": {"padding": 0},
            "axis": {
                "values": shown,
                "labelAngle": 0,
                "labelLimit": 130,
                "labelOverlap": "parity",
                "labelSeparation": 6,
                "ticks": False,
                "domain": False,
                "grid": False,
            },
        }
    z = parts.axes.get("z")
    title = z.title if z else "value"
    encoding["color"] = {
        "field": "z",
        "type": "quantitative",
        "title": title,
        "scale": {"scheme": SEQUENTIAL, **({"type": "log"} if z and z.log else {"zero": False})},
        "legend": {
            "orient": "top",
            "direction": "horizontal",
            "gradientLength": 180,
            "gradientThickness": 10,
            "tickCount": 4,
            "titleAnchor": "start",
            "titleLimit": 260,
            **({"format": "~s"} if parts.numbers("z").max(initial=0.0) >= 1e5 else {}),
        },
    }
    return [{"mark": {"type": "rect", "tooltip": True}, "encoding": encoding | _tooltip(parts)}]


def _gantt(parts: Parts) -> list[Layer]:
    values = parts.numbers("x", "x2")
    encoding = {
        "x": axis_of(parts.axes["x"], values, zero=_near_zero(values)),
        "x2": {"field": "x2"},
        "y": _category(parts, "y"),
    }
    encoding["x"]["scale"] |= {"nice": False}
    look = {"type": "bar", "tooltip": True, "clip": True, "strokeWidth": 0.4, "height": {"band": 0.82}}
    look |= _plain_colour(parts)
    strokes = _colours(parts, "stroke", quiet=True) if parts.series else {}
    return [
        {
            "params": [_ZOOM],
            "mark": look,
            "encoding": encoding
            | _colours(parts, "fill" if parts.series else "color")
            | strokes
            | _tooltip(parts),
        }
    ]


def _histogram(parts: Parts) -> list[Layer]:
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
        line = {"type": "line", "interpolate": "step-after", "strokeWidth": 1.9, "tooltip": None}
        area = {"type": "area", "interpolate": "step-after", "opacity": 0.1, "tooltip": None}
        filled = encoding | {"y2": {"datum": foot}, "y": {**encoding["y"], "stack": None}}
        return [{"mark": area, "encoding": filled | colours}, {"mark": line, "encoding": encoding | colours}]
    look = {"type": "rect", "tooltip": True, "stroke": parts.palette.card, "strokeWidth": 0.4}
    bins = encoding | {"x2": {"field": "x2"}, "y2": {"datum": foot}}
    colour = _colours(parts, "color")
    return [{"mark": look | _plain_colour(parts), "encoding": bins | colour | _tooltip(parts)}]


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
    axis = parts.axes[side]
    return {
        "field": side,
        "type": "nominal",
        "title": axis.title,
        "sort": codes_of(parts.columns[side])[0],
        "axis": {
            "labelAngle": 0,
            "labelLimit": 180,
            "labelExpr": _SHORTENED,
            "grid": False,
            "ticks": False,
            "labelOverlap": side == "x",
            "domain": side == "x",
            "titleAnchor": "middle",
        },
        "scale": {"paddingInner": 0.18, "paddingOuter": 0.1} if parts.kind != "points" else {"type": "band"},
    }


def _whiskers(parts: Parts, encoding: Mapping[str, Any], colour: str | None) -> Layer:
    side = parts.value_side
    look = {"type": "rule", "strokeWidth": 1.4, "tooltip": None} | (
        {"color": colour} if colour else _plain_colour(parts)
    )
    kept = {name: channel for name, channel in encoding.items() if name != "shape"}
    kept[side] = {**kept[side], "field": "low"}
    kept[f"{side}2"] = {"field": "high"}
    return {"mark": look, "encoding": kept}


def _colours(parts: Parts, channel: str, *, quiet: bool = False) -> dict[str, Any]:
    if not parts.series:
        return {}
    colours = [_colour(parts, number) for number in range(len(parts.series))]
    return {
        channel: {
            "field": "series",
            "type": "nominal",
            "title": parts.series_label,
            "scale": {"domain": list(parts.series), "range": colours},
            "legend": None if quiet else _legend(parts),
        }
    }


def _legend(parts: Parts) -> dict[str, Any] | None:
    if not parts.inside:
        return None
    longest = max((len(name) for name in parts.series), default=1)
    return {"orient": "top", "direction": "horizontal", "columns": max(1, min(6, 90 // (longest + 5)))}


def _plain_colour(parts: Parts) -> dict[str, Any]:
    return {} if parts.series else {"color": parts.palette.series_colour(0)}


def _colour(parts: Parts, number: int) -> str:
    """The colour of a series: lines and points have dashes and shapes beyond the colours, areas have tints."""
    area = parts.kind in ("bar", "stacked_bar", "gantt")
    return parts.palette.area_colour(number) if area else parts.palette.series_colour(number)


def _dash(parts: Parts, number: int) -> tuple[int, ...]:
    """The dashes of line `number`: other ones for each line where lines hide each other, or beyond the colours."""
    return DASHES[(number if parts.overlapping else number // len(parts.palette.series)) % len(DASHES)]


def _stack_order(parts: Parts) -> dict[str, Any]:
    if not parts.series:
        return {}
    place = {name: number for number, name in enumerate(parts.series)}
    parts.columns["rank"] = np.array(
        [place[name] for name in parts.columns["series"].tolist()], dtype=np.int64
    )
    return {"order": {"field": "rank", "type": "quantitative"}}


def _tooltip(parts: Parts) -> dict[str, Any]:
    shown: list[dict[str, Any]] = []
    if "series" in parts.columns:
        shown.append({"field": "series", "type": "nominal", "title": parts.series_label})
    for name, title in (
        ("y", None),
        ("x", None),
        ("x2", "to"),
        ("z", None),
        ("low", "low"),
        ("high", "high"),
    ):
        if name not in parts.columns:
            continue
        text = is_text(parts.columns[name])
        kind = {"type": "nominal"} if text else {"type": "quantitative", "format": _FORMAT}
        shown.append({"field": name, "title": title or parts.axes[name].title, **kind})
    return {"tooltip": shown}


def _near_zero(values: Array, share: float = 0.25) -> bool:
    """Whether an axis of these values should begin at zero: they lie above it, and not far in proportion."""
    return bool(len(values)) and 0 <= float(values.min()) < share * float(values.max())


def _rows_by_series(parts: Parts) -> list[Array]:
    if "series" not in parts.columns:
        return [np.arange(len(parts.columns["x"]))]
    names, codes = codes_of(parts.columns["series"])
    return [np.flatnonzero(codes == code) for code in range(len(names))]


def _distinct(values: Array) -> list[Any]:
    if is_text(values):
        return codes_of(values)[0]
    distinct: list[Any] = np.unique(values[~np.isnan(values.astype(np.float64))]).tolist()
    return distinct


def _as_number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value
