"""Numbers as people read them, and as JSON has them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from forerun.core.units import readable_unit, split_name, titled

if TYPE_CHECKING:
    from forerun.core.result.stats import Interval


def format_number(value: object) -> str:
    """A number as people read it: four significant digits, thousands apart; other values as text."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if value != value:
            return "–"
        if abs(value) >= 10_000:
            return f"{value:,.0f}"
        return f"{value:,.4g}" if abs(value) >= 1e-4 or value == 0 else f"{value:.3e}"
    return str(value)


#: unit -> coarser units, coarsest first: (from how many, coarser unit, how many make one)
_COARSER: Final[dict[str, tuple[tuple[float, str, float], ...]]] = {
    "ms": ((3 * 3.6e6, "h", 3.6e6), (20_000.0, "s", 1e3)),
    "s": ((4 * 86_400.0, "d", 86_400.0), (3 * 3_600.0, "h", 3_600.0)),
    "GPU-s": ((36_000.0, "GPU-h", 3_600.0),),
    "node-s": ((36_000.0, "node-h", 3_600.0),),
    "B": ((1e13, "TB", 1e12), (1e10, "GB", 1e9), (1e7, "MB", 1e6)),
    "B/s": ((1e10, "GB/s", 1e9), (1e7, "MB/s", 1e6)),
    "J": ((3.6e6, "kWh", 3.6e6), (1e4, "kJ", 1e3)),
}


def readable_scale(unit: str, largest: float) -> tuple[str, float]:
    """The unit to draw values of up to `largest` in, and how many of `unit` make one of it."""
    shown = readable_unit(unit)
    for least, coarser, size in _COARSER.get(shown, ()):
        if largest >= least:
            return coarser, size
    return shown, 1.0


def quantity(value: float, unit: str, largest: float) -> str:
    """A value in words, in the unit of an axis that shows values of `unit` up to `largest`: `0.35 s`."""
    shown, size = readable_scale(unit, largest)
    return f"{format_number(float(value) / size)} {shown}"


def duration(seconds: float) -> str:
    """Seconds in words, in the unit that suits them: `3.5 h`."""
    return quantity(seconds, "s", abs(seconds))


def signed(value: float) -> str:
    """A difference as people read it: with its sign, if it is not zero."""
    return ("+" if value > 0 else "") + format_number(value)


def shown_instant(at_s: float) -> str:
    """`2023-05-01 12:00 UTC`, from seconds since 1970."""
    return f"{datetime.fromtimestamp(round(at_s / 60) * 60, UTC):%Y-%m-%d %H:%M} UTC"


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def whole(value: object) -> object:
    """A number that is a whole one as int; anything else unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number; yes and no are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def plain(data: object) -> Any:
    """Plain JSON data: sequences as lists, keys as text, numpy's scalars as Python's; what is not finite becomes None."""
    if isinstance(data, Mapping):
        return {str(key): plain(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [plain(value) for value in data]
    if hasattr(data, "item") and not isinstance(data, (str, bytes)):
        data = data.item()
    return None if isinstance(data, float) and not math.isfinite(data) else data


def span(interval: Interval | None) -> str:
    """`1.2 … 3.4`, or nothing."""
    return f"{format_number(interval.low)} … {format_number(interval.high)}" if interval else ""


def figure_row(name: str, value: Any, interval: Interval | None) -> tuple[str, Any, str, str]:
    """(name without its unit, value, unit, interval) of a figure; joules in a unit that suits their size."""
    label, unit = split_name(name)
    if unit == "J" and is_number(value):
        unit, size = readable_scale(unit, abs(value))
        value = value / size
        if interval:
            interval = replace(interval, low=interval.low / size, high=interval.high / size)
    return label, value, unit, span(interval)


def readable_rows(rows: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Head and rows of a table of figures by name, columns of one unit in one that suits the largest of their values."""
    columns = {key: split_name(key) for row in rows.values() for key in row}
    largest: dict[str, float] = {}
    for row in rows.values():
        for key, value in row.items():
            if is_number(value):
                largest[columns[key][1]] = max(largest.get(columns[key][1], 0.0), abs(value))
    scales = {unit: readable_scale(unit, most) for unit, most in largest.items()}
    shown = {key: scales.get(unit, (unit, 1.0)) for key, (_, unit) in columns.items()}
    head = ("", *(titled(columns[key][0], unit) for key, (unit, _) in shown.items()))
    return head, [
        (name, *(_in_unit(row.get(key), size) for key, (_, size) in shown.items()))
        for name, row in rows.items()
    ]


def _in_unit(value: Any, size: float) -> Any:
    """A value in a unit that is `size` of its own."""
    return value / size if size != 1.0 and is_number(value) else value


def summary_rows(
    summary: Mapping[str, Any], intervals: Mapping[str, Interval], names: Sequence[str]
) -> Iterator[tuple[str, Any, str, str]]:
    """`figure_row` of each figure that is one value."""
    for name in names:
        if not isinstance(summary.get(name), (dict, list, tuple)):
            yield figure_row(name, summary.get(name), intervals.get(name))
