"""Large figures made small enough to draw, without changing what they show, and saying what was done.

Columns are numpy arrays under the names x, y, x2, z, low, high, series; text columns are arrays of objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Columns: TypeAlias = dict[str, Array]
Thinned: TypeAlias = tuple[Columns, tuple[str, ...]]

#: how much of each kind one figure draws
MOST_POINTS: Final = 6_000
MOST_MARKS: Final = 3_000
MOST_CATEGORIES: Final = 50
MOST_INTERVALS: Final = 3_000
MOST_TRACKS: Final = 60
MOST_BINS: Final = 200
MOST_CELLS: Final = (160, 80)


def is_text(values: Array) -> bool:
    """Whether a column contains categories rather than numbers."""
    return values.dtype.kind in "OUS"


def thin(kind: str, columns: Columns, *, log_x: bool = False) -> Thinned:
    """The columns to draw and what was done to them.

    Parameters
    ----------
    kind : of the figure; it decides how rows are left out or joined.
    columns : arrays of one length, under the names x, y, x2, z, low, high, series.
    log_x : whether x is drawn on a logarithmic axis, along which spans are then equal (default: no).

    Returns
    -------
    The columns, unchanged if they are small enough, and a note for each change.
    """
    if not len(columns["x"]):
        return columns, ()
    method: Callable[[Columns, bool], Thinned] = {
        "line": _lines,
        "step": _lines,
        "cdf": _lines,
        "points": _points,
        "bar": _bars,
        "stacked_bar": _stacks,
        "histogram": _bins,
        "heatmap": _cells,
        "gantt": _intervals,
    }[kind]
    return method(columns, log_x)


def rows_of(columns: Mapping[str, Array], rows: Array) -> Columns:
    """Some rows of every column.

    Parameters
    ----------
    columns : arrays of one length.
    rows : int64[.] or bool[rows], as numpy indexes.
    """
    return {name: values[rows] for name, values in columns.items()}


def codes_of(values: Array) -> tuple[list[str], Array]:
    """The distinct texts in order of appearance, and the code of each row, int64[rows]."""
    number: dict[str, int] = {}
    codes = np.fromiter((number.setdefault(value, len(number)) for value in values), np.int64, len(values))
    return list(number), codes


def _groups(columns: Columns) -> list[Array]:
    """The rows of each series, in order of appearance; all rows for a figure without series."""
    if "series" not in columns:
        return [np.arange(len(columns["x"]))]
    names, codes = codes_of(columns["series"])
    return [np.flatnonzero(codes == code) for code in range(len(names))]


def _lines(columns: Columns, log_x: bool) -> Thinned:
    """Per series and narrow span of x: the first, last, lowest and highest point. A curve drawn at screen width
    through these looks the same as through all of them."""
    size = len(columns["x"])
    if size <= MOST_POINTS or is_text(columns["x"]):
        return columns, ()
    groups = _groups(columns)
    spans = max(20, MOST_POINTS // (4 * len(groups)))
    parts = [_extremes(columns, rows, spans, log_x) for rows in groups]
    rows = np.sort(np.concatenate(parts))
    if len(rows) == size:
        return columns, ()
    note = (
        f"{len(rows):,} of {size:,} points drawn: the first, last, lowest and highest of each of {spans:,} "
        f"spans{' of each line' if len(groups) > 1 else ''}."
    )
    return rows_of(columns, rows), (note,)


def _extremes(columns: Columns, rows: Array, spans: int, log_x: bool) -> Array:
    """The rows of one line to draw.

    Of each part the first, last, lowest and highest point remain, of y and of both ends of its interval; a line of up to
    four points a part remains whole.

    Parameters
    ----------
    columns : of the figure.
    rows : of the line.
    spans : into how many equal parts of x, or of its logarithm, the line is cut.
    log_x : whether the parts are equal in the logarithm.
    """
    if len(rows) <= 4 * spans:
        return rows
    place = columns["x"][rows].astype(np.float64)
    if log_x:
        with np.errstate(divide="ignore", invalid="ignore"):
            place = np.log(place)
    usable = np.isfinite(place)
    rows, place = rows[usable], place[usable]
    low, high = (float(place.min()), float(place.max())) if len(place) else (0.0, 0.0)
    width = (high - low) or 1.0
    span = np.minimum(((place - low) / width * spans).astype(np.int64), spans - 1)
    chosen = [_best(rows, span, np.arange(len(rows), dtype=np.float64), sign) for sign in (1.0, -1.0)]
    for name in ("y", "low", "high"):
        if name in columns:
            values = columns[name][rows].astype(np.float64)
            chosen += [_best(rows, span, values, 1.0), _best(rows, span, values, -1.0)]
            # A gap in a line stays a gap.
            chosen.append(rows[np.isnan(values)][:spans])
    return np.unique(np.concatenate(chosen))


def _best(rows: Array, span: Array, values: Array, sign: float) -> Array:
    """The row with the smallest `sign * values` in each span that has rows.

    Parameters
    ----------
    rows : int64[n], numbers of rows.
    span : int64[n], the span of each.
    values : float64[n].
    sign : 1 for the smallest value, -1 for the largest.
    """
    order = np.lexsort((sign * values, span))
    first = np.ones(len(order), dtype=bool)
    first[1:] = span[order][1:] != span[order][:-1]
    best: Array = rows[order[first]]
    return best


def _points(columns: Columns, log_x: bool) -> Thinned:
    """One point for each small cell of the drawing area (and series), then evenly by number if that does not do.

    The grid has 300 cells along x and 150 along y; categories and series are cells of their own.
    """
    size = len(columns["x"])
    if size <= MOST_MARKS:
        return columns, ()
    cell = np.zeros(size, dtype=np.int64)
    for name, steps in (("x", 300), ("y", 150), ("series", 0)):
        if name in columns:
            values = columns[name]
            code = codes_of(values)[1] if is_text(values) else _grid(values.astype(np.float64), steps)
            cell = cell * (int(code.max()) + 1) + code
    _, rows = np.unique(cell, return_index=True)
    rows = np.sort(rows)
    if len(rows) > MOST_MARKS:
        rows = rows[np.linspace(0, len(rows) - 1, MOST_MARKS).astype(np.int64)]
    note = f"{len(rows):,} of {size:,} points drawn; those left out lie close to one that is drawn."
    return rows_of(columns, rows), (note,)


def _grid(values: Array, steps: int) -> Array:
    """The cell of each value on a grid of `steps` cells between the smallest and the largest; nan is in the first."""
    usable = np.isfinite(values)
    if not usable.any():
        return np.zeros(len(values), dtype=np.int64)
    low, high = float(values[usable].min()), float(values[usable].max())
    filled = np.where(usable, values, low)
    cells: Array = ((filled - low) / ((high - low) or 1.0) * (steps - 1)).astype(np.int64)
    return cells


def _bars(columns: Columns, log_x: bool) -> Thinned:
    """The categories with the largest bars."""
    axis = "y" if is_text(columns["y"]) else "x"
    size = columns["x" if axis == "y" else "y"].astype(np.float64)
    names, codes = codes_of(columns[axis].astype(str).astype(object))
    if len(names) <= MOST_CATEGORIES:
        return columns, ()
    total = np.bincount(codes, weights=np.abs(np.nan_to_num(size)))
    shown = np.argsort(-total, kind="stable")[:MOST_CATEGORIES]
    left_out = len(names) - MOST_CATEGORIES
    share = 1 - total[shown].sum() / (total.sum() or 1.0)
    note = (
        f"The {MOST_CATEGORIES} largest of {len(names):,} bars drawn; "
        f"the other {left_out:,} hold {share:.1%} of the whole."
    )
    return rows_of(columns, np.flatnonzero(np.isin(codes, shown))), (note,)


def _stacks(columns: Columns, log_x: bool) -> Thinned:
    """Means over spans of x, for each part, so that the parts still stack up to the mean of the whole."""
    if is_text(columns["x"]) or is_text(columns["y"]):
        return _bars(columns, log_x)
    places, code = np.unique(columns["x"], return_inverse=True)
    names, part = codes_of(columns["series"]) if "series" in columns else ([""], np.zeros_like(code))
    spans = max(50, MOST_POINTS // max(1, len(names)))
    if len(places) <= spans:
        return columns, ()
    span = code * spans // len(places)
    cell = span * len(names) + part
    total = np.bincount(
        cell, weights=np.nan_to_num(columns["y"].astype(np.float64)), minlength=spans * len(names)
    )
    # The mean over the places of a span, so that the parts still stack up to the mean of the whole.
    width = np.bincount(np.arange(len(places)) * spans // len(places), minlength=spans)
    where = places[np.searchsorted(np.arange(len(places)) * spans // len(places), np.arange(spans))]
    thinned: Columns = {"x": np.repeat(where, len(names)), "y": total / np.repeat(width, len(names))}
    if "series" in columns:
        thinned["series"] = np.tile(np.array(names, dtype=object), spans)
    return thinned, (f"Means over {spans:,} spans of {len(places):,} moments drawn.",)


def _bins(columns: Columns, log_x: bool) -> Thinned:
    """Neighbouring bins joined, their counts added."""
    groups = _groups(columns)
    most = max(len(rows) for rows in groups)
    if most <= MOST_BINS:
        return columns, ()
    together = -(-most // MOST_BINS)
    parts: list[Columns] = []
    for rows in groups:
        order = rows[np.argsort(columns["x"][rows], kind="stable")]
        starts = np.arange(0, len(order), together)
        ends = np.minimum(starts + together, len(order)) - 1
        part = rows_of(columns, order[starts])
        part["x2"] = columns["x2"][order[ends]]
        part["y"] = np.add.reduceat(columns["y"][order].astype(np.float64), starts)
        parts.append(part)
    joined = {name: np.concatenate([part[name] for part in parts]) for name in columns}
    return joined, (f"{together} neighbouring bins drawn as one ({most:,} bins in all).",)


def _cells(columns: Columns, log_x: bool) -> Thinned:
    """Blocks of neighbouring cells, drawn at their mean; blocks without a finite value are left out."""
    sides = {
        name: np.unique(
            columns[name].astype(str) if is_text(columns[name]) else columns[name], return_inverse=True
        )
        for name in ("x", "y")
    }
    factor = {name: -(-len(sides[name][0]) // most) for name, most in zip(("x", "y"), MOST_CELLS)}
    if factor == {"x": 1, "y": 1}:
        return columns, ()
    block = {name: sides[name][1] // factor[name] for name in ("x", "y")}
    cell = block["x"] * (int(block["y"].max()) + 1) + block["y"]
    z = columns["z"].astype(np.float64)
    usable = np.isfinite(z)
    total = np.bincount(cell[usable], weights=z[usable])
    count = np.bincount(cell[usable])
    filled = np.flatnonzero(count)
    deep = int(block["y"].max()) + 1
    thinned: Columns = {
        "x": sides["x"][0][(filled // deep) * factor["x"]],
        "y": sides["y"][0][(filled % deep) * factor["y"]],
        "z": total[filled] / count[filled],
    }
    thinned = {name: values.astype(object) if is_text(values) else values for name, values in thinned.items()}
    note = f"Means of blocks of {factor['x']} × {factor['y']} cells drawn ({len(z):,} cells in all)."
    return thinned, (note,)


def _intervals(columns: Columns, log_x: bool) -> Thinned:
    """Some of the tracks, evenly chosen, and on each its longest intervals, first and last."""
    notes: list[str] = []
    names, track = codes_of(columns["y"].astype(str).astype(object))
    if len(names) > MOST_TRACKS:
        shown = np.unique(np.linspace(0, len(names) - 1, MOST_TRACKS).astype(np.int64))
        rows = np.flatnonzero(np.isin(track, shown))
        columns, track = rows_of(columns, rows), track[rows]
        notes.append(f"{len(shown)} of {len(names):,} tracks drawn, evenly chosen.")
    size = len(columns["x"])
    if size > MOST_INTERVALS:
        start, end = columns["x"].astype(np.float64), columns["x2"].astype(np.float64)
        keep = np.zeros(size, dtype=bool)
        for code in np.unique(track):
            rows = np.flatnonzero(track == code)
            most = max(2, MOST_INTERVALS * len(rows) // size)
            keep[rows[np.argsort(start[rows] - end[rows], kind="stable")[:most]]] = True
            keep[rows[[np.argmin(start[rows]), np.argmax(end[rows])]]] = True
        shown_s, whole_s = (end - start)[keep].sum(), (end - start).sum()
        columns = rows_of(columns, np.flatnonzero(keep))
        notes.append(
            f"The {int(keep.sum()):,} longest of {size:,} intervals drawn; they cover "
            f"{shown_s / (whole_s or 1.0):.1%} of the time."
        )
    return columns, tuple(notes)
