"""What the objective and the load are worth: exact plans over grids, read as steps, with the price of the next one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from forerun.domains.serving.planning.exact import Found, cheapest
from forerun.domains.serving.planning.space import Space

#: shares of the scenario's objective, and of its rate, that are planned again
SLO_SHARES: Final = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0)
RATE_SHARES: Final = (0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0)


@dataclass(frozen=True)
class Point:
    """The cheapest plan at one objective and rate."""

    slo_ms: float
    rate_rps: float
    found: Found

    @property
    def cost(self) -> float:
        """$ per hour; infinite where there is no plan."""
        return self.found.cost if self.found.configuration is not None else math.inf


def by_slo(space: Space, shares: Iterable[float] = SLO_SHARES) -> list[Point]:
    """Plans at shares of the objective, ascending."""
    found = []
    for share in sorted(shares):
        slo_ms = space.slo_ms * share
        found.append(Point(slo_ms, space.traffic.rate_rps, cheapest(space.under(slo_ms=slo_ms))))
    return found


def by_rate(space: Space, shares: Iterable[float] = RATE_SHARES) -> list[Point]:
    """Plans for the same trace sped up or slowed down, by rate, ascending."""
    found = []
    for share in sorted(shares):
        traffic = space.traffic.scaled(1 / share)
        rate = space.traffic.rate_rps * share
        found.append(Point(space.slo_ms, rate, cheapest(space.under(traffic=traffic))))
    return found


def next_step_down(points: Sequence[Point], slo_ms: float) -> Point | None:
    """The first point with a looser objective that is cheaper than the plan at `slo_ms`."""
    here = min(points, key=lambda point: abs(point.slo_ms - slo_ms))
    return next((p for p in points if p.slo_ms > here.slo_ms and p.cost < here.cost), None)


def next_step_up(points: Sequence[Point], rate_rps: float) -> Point | None:
    """The first point with more load that is dearer than the plan at `rate_rps`."""
    here = min(points, key=lambda point: abs(point.rate_rps - rate_rps))
    return next((p for p in points if p.rate_rps > here.rate_rps and p.cost > here.cost), None)
