"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forerun.units import split_name

if TYPE_CHECKING:
    from forerun.result.run import Interval


def format_number(value: Any) -> str:
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


def span(interval: Interval | None) -> str:
    """`1.2 … 3.4`, or nothing."""
    return f"{format_number(interval.low)} … {format_number(interval.high)}" if interval else ""


def summary_rows(
    summary: Mapping[str, Any], intervals: Mapping[str, Interval], names: Sequence[str]
) -> Iterator[tuple[str, Any, str, str]]:
    """(name without its unit, value, unit, interval) of each figure that is one value."""
    for name in names:
        value = summary.get(name)
        if not isinstance(value, (dict, list, tuple)):
            label, unit = split_name(name)
            yield label, value, unit, span(intervals.get(name))
