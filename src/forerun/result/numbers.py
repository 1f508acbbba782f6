"""Numbers as people read them."""

from __future__ import annotations

from typing import Any


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
