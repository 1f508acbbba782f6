"""Units and names as people read them."""

from __future__ import annotations

from typing import Final

from forerun.result.run import format_number
from forerun.units import SUFFIX_UNIT, unit_of

__all__ = ["format_number", "readable_scale", "readable_unit", "split_name", "title_of"]

_SHOWN: Final = {
    "w": "W",
    "j": "J",
    "usd": "USD",
    "rps": "1/s",
    "per_s": "1/s",
    "per_min": "1/min",
    "per_h": "1/h",
    "hz": "Hz",
    "share": "",
    "bytes": "B",
    "us": "µs",
    "gpu_s": "GPU-s",
    "gpu_h": "GPU-h",
    "node_s": "node-s",
    "node_h": "node-h",
    "bytes_per_s": "B/s",
    "usd_per_h": "USD/h",
    "usd_per_kwh": "USD/kWh",
    "usd_per_gb": "USD/GB",
    "g_per_kwh": "g/kWh",
}

_ACRONYMS: Final = {"slo", "gpu", "cpu", "jct", "ttft", "tpot", "id", "io", "ssd"}

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


def readable_unit(unit: str) -> str:
    """A unit as printed: `usd_per_h` -> `USD/h`; what is unknown stays as it is."""
    return _SHOWN.get(unit, unit)


def readable_scale(unit: str, largest: float) -> tuple[str, float]:
    """The unit to draw values of up to `largest` in, and how many of `unit` make one of it."""
    shown = readable_unit(unit)
    for least, coarser, size in _COARSER.get(shown, ()):
        if largest >= least:
            return coarser, size
    return shown, 1.0


def split_name(name: str) -> tuple[str, str]:
    """Label and unit of a name that carries its unit: `latency_p99_ms` -> ("latency p99", "ms")."""
    unit = unit_of(name)
    if unit is None:
        return _words(name), ""
    suffix = next(suffix for suffix in SUFFIX_UNIT if name.endswith(suffix))
    bare = name.removesuffix(suffix) if unit != "share" else name
    return _words(bare), readable_unit(unit)


def _words(name: str) -> str:
    return " ".join(word.upper() if word in _ACRONYMS else word for word in name.split("_"))


def title_of(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]
