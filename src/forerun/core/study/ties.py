"""Whether a result depends on the order of events at one instant.

Traces are stamped in whole seconds or milliseconds, so events coincide that did not in the world. A domain's explainer says
in `orders(scenario)` how events at one instant could have come otherwise, or why there is no other order (`Untied`).
The scenario is simulated in several such orders, and every figure that changes is reported with how far it moves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from forerun.core.domain import Orders, Untied, get_domain
from forerun.core.result.numbers import is_number
from forerun.core.result.run import Result, SavedRun
from forerun.core.study.explain import scenario_of

#: relative change below which a figure counts as unmoved: what breaks the ties moves instants by less
UNMOVED: Final = 1e-6


@dataclass(frozen=True, slots=True)
class OrderSensitive:
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
    """What other orders of same-instant events do.

    what: what was permuted. orders: how many were tried. figures: how many were compared.
    """

    what: str
    orders: int
    figures: int
    moved: tuple[OrderSensitive, ...]


def tie_sensitivity(
    summary: Mapping[str, Any],
    others: Orders,
    *,
    orders: int = 10,
    progress: Callable[[str], None] = lambda _: None,
) -> Ties:
    """What becomes of a run's summary in other orders of its same-instant events; largest movements first.

    A figure that the other orders do not have (an interval that is not asked for again) is not compared.
    """
    given = _numbers(summary)
    seen: dict[str, list[float]] = {name: [value] for name, value in given.items()}
    for number in range(orders):
        progress(f"order {number + 1} of {orders}")
        for name, value in _numbers(others.simulate(number).summary).items():
            if name in seen:
                seen[name].append(value)
    compared = {name: values for name, values in seen.items() if len(values) > 1}
    moved = [OrderSensitive(name, given[name], min(values), max(values)) for name, values in compared.items()]
    sensitive = [one for one in moved if one.share > UNMOVED]
    return Ties(others.what, orders, len(compared), tuple(sorted(sensitive, key=lambda one: -one.share)))


def _numbers(summary: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in summary.items() if is_number(value)}


def ties_of(
    run: Result | SavedRun, orders: int, *, progress: Callable[[str], None] = lambda _: None
) -> Ties | Untied:
    """The effect of other orders of events at one instant on a run, or why it has none."""
    explainer = get_domain(run.domain).explainer
    if explainer is None:
        return Untied(f"the {run.domain} domain does not say how events at one instant are ordered")
    others = explainer.orders(scenario_of(run))
    if isinstance(others, Untied):
        return others
    return tie_sensitivity(run.summary, others, orders=orders, progress=progress)
