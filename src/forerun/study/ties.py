"""Whether a run hangs on the order of what happens at one instant.

Traces are stamped in whole seconds or milliseconds, so things coincide that did not in the world. A room says how its
same-instant events could have come otherwise (`ties.permuted`); the scenario is simulated with several such orders,
and every figure that moves is told with how far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from forerun.study.summary import is_number

#: relative change below which a figure counts as unmoved: what breaks the ties moves instants by less
UNMOVED: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Moved:
    """A figure that hangs on the order: its value as simulated, and the lowest and highest over the orders tried."""

    figure: str
    given: float
    low: float
    high: float

    @property
    def share(self) -> float:
        """The largest change, as a share of the value as simulated."""
        return max(self.high - self.given, self.given - self.low) / (abs(self.given) or 1.0)


@dataclass(frozen=True)
class Ties:
    """What other orders of same-instant events do. orders: how many were tried. figures: how many were compared."""

    orders: int
    figures: int
    moved: tuple[Moved, ...]


def tie_sensitivity(
    scenario: Any,
    permuted: Callable[[Any, int], Any | None],
    simulate: Callable[[Any], Any],
    *,
    orders: int = 10,
    progress: Callable[[str], None] = lambda _: None,
) -> Ties | None:
    """Simulate a scenario under other orders of its same-instant events; largest movements first.

    permuted(scenario, number) is the scenario with order `number`, or None where the room cannot make one: then there
    is no answer.
    """
    given = _numbers(simulate(scenario).summary)
    seen: dict[str, list[float]] = {name: [value] for name, value in given.items()}
    for number in range(orders):
        progress(f"order {number + 1} of {orders}")
        other = permuted(scenario, number)
        if other is None:
            return None
        for name, value in _numbers(simulate(other).summary).items():
            if name in seen:
                seen[name].append(value)
    moved = [Moved(name, given[name], min(values), max(values)) for name, values in seen.items()]
    told = [one for one in moved if one.share > UNMOVED]
    return Ties(orders, len(given), tuple(sorted(told, key=lambda one: -one.share)))


def _numbers(summary: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in summary.items() if is_number(value)}
