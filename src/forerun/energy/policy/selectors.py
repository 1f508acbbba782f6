"""Selectors: functions that choose a power limit from measured windows.

Windows are given in the order measured, highest limit first; the first measured wins ties. Arrays are float64[limits]:
`limits_w`, `time_s` and `energy_j` of the same number of steps at each limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from forerun.core.errors import Problem, UsageError


def least_energy(limits_w: Sequence[float], energy_j: Sequence[float]) -> float:
    """The limit whose window took the fewest joules [W]."""
    return limits_w[_first_least(energy_j)]


def least_time(limits_w: Sequence[float], time_s: Sequence[float]) -> float:
    """The limit whose window took the least time [W]."""
    return limits_w[_first_least(time_s)]


def least_cost(
    limits_w: Sequence[float],
    time_s: Sequence[float],
    energy_j: Sequence[float],
    *,
    eta: float,
    max_power_w: float,
) -> float:
    """The limit with the least eta * energy + (1 - eta) * max_power * time [W].

    limits_w, time_s, energy_j: of each window. eta: weight of energy. max_power_w: price of a second, of all GPUs
    together [W].
    """
    return limits_w[_first_least([eta * e + (1 - eta) * max_power_w * t for t, e in zip(time_s, energy_j)])]


def max_slowdown(
    limits_w: Sequence[float],
    time_s: Sequence[float],
    *,
    factor: float,
    of: Literal["highest", "fastest"] = "highest",
) -> float:
    """The lowest limit whose time is within `factor` of the highest limit's, or of the fastest's [W].

    Raises UsageError for a factor below 1.
    """
    if not factor >= 1:
        raise UsageError(
            Problem("max-slowdown", f"factor {factor} is below 1: nothing is faster than itself")
        )
    reference = time_s[limits_w.index(max(limits_w))] if of == "highest" else min(time_s)
    return min(limit for limit, seconds in zip(limits_w, time_s) if seconds <= factor * reference)


def _first_least(values: Sequence[float]) -> int:
    """Index of the first of the least values."""
    return min(range(len(values)), key=values.__getitem__)
