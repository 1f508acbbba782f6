"""Units and names as people read them."""

from __future__ import annotations

from typing import Any

from forerun.result.numbers import capital, format_number, readable_scale
from forerun.units import readable_unit, split_name

__all__ = ["format_number", "readable_scale", "readable_unit", "split_name", "capital", "whole"]


def whole(value: Any) -> Any:
    """A number that is a whole one as int; anything else unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value
