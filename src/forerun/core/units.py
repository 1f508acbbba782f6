"""Units: the suffixes of names, and quantities with units in files.

A field named `slo_ms` is in milliseconds. Values in files may have units: `350ms`, `0.35 s`,
`30min`, `10Gbps`, `250W`, `$2.4/h`. `parse_quantity(text, unit)` turns such a text into a number of `unit`.
"""

from __future__ import annotations

import functools
import math
import re
from typing import Final

#: dimension of each unit and its size in the dimension's base unit
_SCALE: Final[dict[str, tuple[str, float]]] = {
    # time, base second
    "ns": ("time", 1e-9),
    "us": ("time", 1e-6),
    "µs": ("time", 1e-6),
    "ms": ("time", 1e-3),
    "s": ("time", 1.0),
    "sec": ("time", 1.0),
    "min": ("time", 60.0),
    "h": ("time", 3600.0),
    "hr": ("time", 3600.0),
    "d": ("time", 86400.0),
    "day": ("time", 86400.0),
    "days": ("time", 86400.0),
    # information, base byte
    "B": ("bytes", 1.0),
    "bytes": ("bytes", 1.0),
    "kB": ("bytes", 1e3),
    "KB": ("bytes", 1e3),
    "MB": ("bytes", 1e6),
    "GB": ("bytes", 1e9),
    "TB": ("bytes", 1e12),
    "KiB": ("bytes", 1024.0),
    "MiB": ("bytes", 1024.0**2),
    "GiB": ("bytes", 1024.0**3),
    "TiB": ("bytes", 1024.0**4),
    # information rate, base byte per second
    "B/s": ("byte rate", 1.0),
    "kB/s": ("byte rate", 1e3),
    "MB/s": ("byte rate", 1e6),
    "GB/s": ("byte rate", 1e9),
    "KiB/s": ("byte rate", 1024.0),
    "MiB/s": ("byte rate", 1024.0**2),
    "GiB/s": ("byte rate", 1024.0**3),
    "bps": ("byte rate", 1.0 / 8),
    "kbps": ("byte rate", 1e3 / 8),
    "Mbps": ("byte rate", 1e6 / 8),
    "Gbps": ("byte rate", 1e9 / 8),
    "bytes_per_s": ("byte rate", 1.0),
    # power, base watt
    "mW": ("power", 1e-3),
    "W": ("power", 1.0),
    "w": ("power", 1.0),
    "kW": ("power", 1e3),
    # energy, base joule
    "mJ": ("energy", 1e-3),
    "J": ("energy", 1.0),
    "j": ("energy", 1.0),
    "kJ": ("energy", 1e3),
    "MJ": ("energy", 1e6),
    "Wh": ("energy", 3600.0),
    "kWh": ("energy", 3.6e6),
    # money and its rate, base dollar and dollar per hour
    "usd": ("money", 1.0),
    "USD": ("money", 1.0),
    "usd_per_h": ("money rate", 1.0),
    "usd/h": ("money rate", 1.0),
    "USD/h": ("money rate", 1.0),
    "usd/s": ("money rate", 3600.0),
    "usd/d": ("money rate", 1.0 / 24),
    "usd_per_kwh": ("energy price", 1.0),
    "usd/kWh": ("energy price", 1.0),
    "usd/MWh": ("energy price", 1e-3),
    "usd_per_gb": ("byte price", 1.0),
    "usd/GB": ("byte price", 1.0),
    "g_per_kwh": ("carbon intensity", 1.0),
    "g/kWh": ("carbon intensity", 1.0),
    "kg/kWh": ("carbon intensity", 1e3),
    # rates, base per second
    "rps": ("rate", 1.0),
    "qps": ("rate", 1.0),
    "/s": ("rate", 1.0),
    "per_s": ("rate", 1.0),
    "/min": ("rate", 1.0 / 60),
    "per_min": ("rate", 1.0 / 60),
    "/h": ("rate", 1.0 / 3600),
    "per_h": ("rate", 1.0 / 3600),
    "hz": ("rate", 1.0),
    "Hz": ("rate", 1.0),
    # GPU-time, base GPU-second
    "gpu_s": ("GPU time", 1.0),
    "gpu_h": ("GPU time", 3600.0),
    "GPU-s": ("GPU time", 1.0),
    "GPU-h": ("GPU time", 3600.0),
    "node_s": ("node time", 1.0),
    "node_h": ("node time", 3600.0),
    # shares
    "%": ("share", 0.01),
    "share": ("share", 1.0),
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

_PERCENT: Final = re.compile(r"_percent(?=_|$)")

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


def split_name(name: str) -> tuple[str, str]:
    """Label and unit of a name that ends in its unit: `latency_p99_ms` -> ("latency p99", "ms")."""
    if _PERCENT.search(name):  # also in the middle of a name: `saved_percent_last5`
        return _words(_PERCENT.sub("", name)), "%"
    unit = unit_of(name)
    if unit is None:
        return _words(name), ""
    return _words(stem(name) if unit != "share" else name), readable_unit(unit)


def _words(name: str) -> str:
    words = (_SPELT.get(word, word) for word in name.split("_"))
    return " ".join(word.upper() if word in _ACRONYMS else word for word in words)


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
    if match is None:
        raise ValueError(f"{text!r} is not a quantity; write a number with a unit, such as {_example(unit)}")
    given = match["unit"]
    if match["dollar"]:
        given = "usd" + given
    dimension, size = _SCALE[unit]
    if given not in _SCALE:
        known = ", ".join(name for name, (dim, _) in _SCALE.items() if dim == dimension)
        problem = f"has the unknown unit {given!r}" if given else "has no unit"
        raise ValueError(f"{text!r} {problem}; known here: {known}")
    given_dimension, given_size = _SCALE[given]
    if given_dimension != dimension:
        raise ValueError(
            f"{text!r} is a {given_dimension}, a {dimension} is wanted, such as {_example(unit)}"
        )
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


def _example(unit: str) -> str:
    examples = {
        "time": "30min",
        "bytes": "16MiB",
        "byte rate": "10Gbps",
        "power": "250W",
        "energy": "3kWh",
        "money": "$12",
        "money rate": "$2.4/h",
        "rate": "100rps",
        "share": "5%",
        "energy price": "0.12usd/kWh",
        "carbon intensity": "250g/kWh",
    }
    return examples.get(_SCALE[unit][0], f"10{unit}")
