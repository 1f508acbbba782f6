"""Units and names as people read them."""

from __future__ import annotations

from typing import Final

from forerun.result.run import format_number
from forerun.units import readable_unit, split_name

__all__ = ["format_number", "readable_scale", "readable_unit", "split_name", "title_of"]

#: unit -> coarser units, coarsest first: (from how many, coarser unit, how many make one)
_COARSER: Final[dict[str, tuple[tuple[float, str, float], ...]]] = {
    "ms": ((3 * 3.6e6, "h", 3.6e6), (20_000.0, "s", 1e3)),
    "s": ((4 * 86_400.0, "d", 86_400.0), (3 * 3_600.0, "h", 3_600.0)),
    "GPU-s": ((36_000.0, "GPU-h", 3_600.0),),
    "node-s": ((36_000.0, "node-h", 3_600.0),),
    "B": ((1e13, "TB", 1e12), (1e10, "GB", 1e9), (1e7, "MB", 1e6)),
    "B/s": ((1e10, "GB/s", 1e9), (1e7, "MB/s", 1e6)),
    "J": ((1e7, "MJ", 1e6), (1e4, "kJ", 1e3)),
}


def readable_scale(unit: str, largest: float) -> tuple[str, float]:
    """The unit to draw values of up to `largest` in, and how many of `unit` make one of it."""
    shown = readable_unit(unit)
    for least, coarser, size in _COARSER.get(shown, ()):
        if largest >= least:
            return coarser, size
    return shown, 1.0


def title_of(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]
