"""Units and names as people read them."""

from __future__ import annotations

from forerun.result.numbers import format_number, readable_scale
from forerun.units import readable_unit, split_name

__all__ = ["format_number", "readable_scale", "readable_unit", "split_name", "title_of"]


def title_of(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]
