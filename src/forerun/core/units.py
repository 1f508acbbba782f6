"""Units: the suffixes of names, and quantities with units in files.

A field named `slo_ms` is in milliseconds. Values in files may have units: `350ms`, `0.35 s`,
`30min`, `10Gbps`, `250W`, `$2.4/h`. `parse_quantity(text, unit)` turns such a text into a number of `unit`.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from typing import Final

#: each dimension: a quantity as people write it, if one is usual, and its units with their sizes
_DIMENSIONS: Final[dict[str, tuple[str, dict[str, float]]]] = {
    "time": (
        "30min",
        {
            "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "hr": 3600.0,
            "d": 86400.0, "day": 86400.0, "days": 86400.0,
        },
    ),
    "bytes": (
        "16MiB",
        {
            "B": 1.0, "bytes": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
            "KiB": 1024.0, "MiB": 1024.0**2, "GiB": 1024.0**3, "TiB": 1024.0**4,
        },
    ),
    "byte rate": (
        "10Gbps",
        {
            "B/s": 1.0, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "KiB/s": 1024.0, "MiB/s": 1024.0**2, "GiB/s": 1024.0**3,
            "bps": 1.0 / 8, "kbps": 1e3 / 8, "Mbps": 1e6 / 8, "Gbps": 1e9 / 8, "bytes_per_s": 1.0,
        },
    ),
    "power": ("250W", {"mW": 1e-3, "W": 1.0, "w": 1.0, "kW": 1e3}),
    "energy": ("3kWh", {"mJ": 1e-3, "J": 1.0, "j": 1.0, "kJ": 1e3, "MJ": 1e6, "Wh": 3600.0, "kWh": 3.6e6}),
    "money": ("$12", {"usd": 1.0, "USD": 1.0}),
    "money rate": ("$2.4/h", {"usd_per_h": 1.0, "usd/h": 1.0, "USD/h": 1.0, "usd/s": 3600.0, "usd/d": 1.0 / 24}),
    "energy price": ("0.12usd/kWh", {"usd_per_kwh": 1.0, "usd/kWh": 1.0, "usd/MWh": 1e-3}),
    "byte price": ("", {"usd_per_gb": 1.0, "usd/GB": 1.0}),
    "carbon intensity": ("250g/kWh", {"g_per_kwh": 1.0, "g/kWh": 1.0, "kg/kWh": 1e3}),
    "rate": (
        "100rps",
        {
            "rps": 1.0, "qps": 1.0, "/s": 1.0, "per_s": 1.0, "/min": 1.0 / 60, "per_min": 1.0 / 60, "/h": 1.0 / 3600,
            "per_h": 1.0 / 3600, "hz": 1.0, "Hz": 1.0,
        },
    ),
    "GPU time": ("", {"gpu_s": 1.0, "gpu_h": 3600.0, "GPU-s": 1.0, "GPU-h": 3600.0}),
    "node time": ("", {"node_s": 1.0, "node_h": 3600.0}),
    "share": ("5%", {"%": 0.01, "share": 1.0}),
}  # fmt: skip

#: dimension of each unit and its size
_SCALE: Final = {
    unit: (name, size) for name, (_, units) in _DIMENSIONS.items() for unit, size in units.items()
}

#: units that names end in, in small letters, and how each is printed
_PRINTED: Final = {
    "bytes_per_s": "B/s",
    "usd_per_kwh": "USD/kWh",
    "usd_per_gb": "USD/GB",
    "usd_per_h": "USD/h",
    "g_per_kwh": "g/kWh",
    "per_min": "1/min",
    "per_s": "1/s",
    "per_h": "1/h",
    "gpu_s": "GPU-s",
    "gpu_h": "GPU-h",
    "node_s": "node-s",
    "node_h": "node-h",
    "bytes": "B",
    "share": "",
    "min": "min",
    "rps": "1/s",
    "usd": "USD",
    "ms": "ms",
    "us": "µs",
    "GB": "GB",
    "hz": "Hz",
    "s": "s",
    "h": "h",
    "w": "W",
    "j": "J",
}

#: other spellings of these units in tables and figures
_ALIASES: Final = {
    "$": "usd",
    "$/h": "usd_per_h",
    "usd/h": "usd_per_h",
    "$/kWh": "usd_per_kwh",
    "usd/kWh": "usd_per_kwh",
    "bytes/s": "bytes_per_s",
}

#: unit of each name suffix, longest first
SUFFIX_UNIT: Final = {f"_{unit.lower()}": unit for unit in sorted(_PRINTED, key=len, reverse=True)}

#: words that are printed in capitals
_ACRONYMS: Final = {"slo", "gpu", "cpu", "jct", "ttft", "tpot", "itl", "e2e", "id", "io", "ssd"}

#: words with another printed form
_SPELT: Final = {"last5": "last five"}

_QUANTITY: Final = re.compile(
    r"""^\s*(?P<dollar>\$)?\s*(?P<number>[+-]?(?:\d+(?:_\d+)*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(?P<unit>[A-Za-zµ%/_.-]*)\s*$""",
    re.VERBOSE,
)


def whole_number(text: str, most_digits: int = 18) -> int | None:
    """The number that ASCII digits spell, at most `most_digits` of them; None for any other text.

    `str.isdigit` is true of `²`, which `int` refuses, and `int` refuses more than 4,300 digits.
    """
    return int(text) if len(text) <= most_digits and text.isascii() and text.isdigit() else None


@functools.cache
def unit_of(field_name: str) -> str | None:
    """The unit of a name's suffix, or None: `slo_ms` -> `ms`, `replicas` -> None."""
    return next((unit for suffix, unit in SUFFIX_UNIT.items() if field_name.endswith(suffix)), None)


@functools.cache
def stem(field_name: str) -> str:
    """A name without its unit: `slo_ms` -> `slo`, `replicas` -> `replicas`."""
    unit = unit_of(field_name)
    return field_name if unit is None else field_name[: -len(unit) - 1]


def readable_unit(unit: str) -> str:
    """The printed form of a unit: `usd_per_h` and `$/h` -> `USD/h`; an unknown unit is unchanged."""
    return _PRINTED.get(_ALIASES.get(unit, unit), unit)


def titled(label: str, unit: str) -> str:
    """A heading with its unit in parentheses."""
    shown = readable_unit(unit)
    return f"{label} ({shown})" if shown else label


def split_name(name: str) -> tuple[str, str]:
    """Label and unit of a name that ends in its unit: `latency_p99_ms` -> ("latency p99", "ms")."""
    first, *rest = name.split("_")
    if "percent" in rest:  # also in the middle of a name: `saved_percent_last5`
        return _words([first, *(word for word in rest if word != "percent")]), "%"
    unit = unit_of(name)
    own = stem(name) if unit not in (None, "share") else name
    return _words(own.split("_")), readable_unit(unit or "")


def _words(words: Sequence[str]) -> str:
    spelt = (_SPELT.get(word, word) for word in words)
    return " ".join(word.upper() if word in _ACRONYMS else word for word in spelt)


def parse_quantity(text: str, unit: str) -> float:
    """The number of `unit` that `text` stands for.

    >>> parse_quantity("30min", "s")
    1800.0
    >>> parse_quantity("$2.4/h", "usd_per_h")
    2.4

    unit: a key of the table of units, which gives the dimension. Raises ValueError, with the known units, for a text that is
    no quantity, has no unit, or has one of another dimension.
    """
    match = _QUANTITY.match(text)
    dimension, size = _SCALE[unit]
    usual, units = _DIMENSIONS[dimension]
    example = usual or f"10{unit}"
    if match is None:
        raise ValueError(f"{text!r} is not a quantity; write a number with a unit, such as {example}")
    given = match["unit"]
    if match["dollar"]:
        given = "usd" + given
    if given not in _SCALE:
        problem = f"has the unknown unit {given!r}" if given else "has no unit"
        raise ValueError(f"{text!r} {problem}; known here: {', '.join(units)}")
    given_dimension, given_size = _SCALE[given]
    if given_dimension != dimension:
        raise ValueError(f"{text!r} is a {given_dimension}, a {dimension} is wanted, such as {example}")
    number = float(match["number"].replace("_", ""))
    value = number if given_size == size else _convert(number, given_size, size)
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not finite")
    return value


def _convert(number: float, from_size: float, to_size: float) -> float:
    # Dividing by an exact ratio loses less than multiplying by an inexact one (1 ms -> s: 1/1000, not 1*0.001).
    ratio = from_size / to_size
    if ratio >= 1 or ratio == 0:
        return number * (round(ratio) if abs(ratio - round(ratio)) < 1e-9 * ratio else ratio)
    inverse = to_size / from_size
    return number / (round(inverse) if abs(inverse - round(inverse)) < 1e-9 * inverse else inverse)
