"""What the objective and the load are worth: exact plans over grids, read as steps, with the price of the next one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from forerun.serving.plan.exact import Found, cheapest
from forerun.serving.plan.space import Space

#: shares of the scenario's objective, and of its rate, that are planned again
SLO_SHARES: Final = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0)
RATE_SHARES: Final = (0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0)

#: how precisely a step of the cost is located, as a share of the scenario's objective or rate
STEP_SHARE: Final = 0.01


@dataclass(frozen=True)
class Point:
    """The cheapest plan at one objective and rate.

    Parameters
    ----------
    slo_ms : the objective: latency above which a query misses.
    rate_rps : mean rate of the trace, in queries a second.
    plan : the search; without a configuration there is no plan.
    """

    slo_ms: float
    rate_rps: float
    plan: Found

    @property
    def cost(self) -> float:
        """$ per hour; infinite where there is no plan."""
        return self.plan.cost if self.plan.configuration is not None else math.inf


def at_slo(space: Space, slo_ms: float) -> Point:
    """The plan for another objective."""
    return Point(slo_ms, space.traffic.rate_rps, cheapest(space.under(slo_ms=slo_ms)))


def at_share(space: Space, share: float) -> Point:
    """The plan for the same trace at `share` times its rate."""
    traffic = space.traffic.scaled(1 / share)
    return Point(space.slo_ms, space.traffic.rate_rps * share, cheapest(space.under(traffic=traffic)))


def busier(space: Space, more_rps: float) -> Point:
    """The plan for the same trace at `more_rps` more."""
    return at_share(space, 1 + more_rps / space.traffic.rate_rps)


def by_slo(space: Space, shares: Iterable[float] = SLO_SHARES) -> list[Point]:
    """Plans at shares of the objective, ascending.

    Parameters
    ----------
    space : with the scenario's own objective.
    shares : of it (default: 15 from half to twice).
    """
    return [at_slo(space, space.slo_ms * share) for share in sorted(shares)]


def by_rate(space: Space, shares: Iterable[float] = RATE_SHARES) -> list[Point]:
    """Plans for the same trace sped up or slowed down, by rate, ascending.

    Parameters
    ----------
    space : with the trace at its own rate.
    shares : of that rate (default: 14 from a quarter to twice).
    """
    return [at_share(space, share) for share in sorted(shares)]


def next_step_down(space: Space, points: Sequence[Point]) -> Point | None:
    """A looser objective with a cheaper plan than the scenario's; None if there is none on the grid.

    The first on the grid is moved nearer until the objective where the cost steps is known to STEP_SHARE. Cost need
    not fall everywhere as the objective grows; between two grid points that differ there is a step, and this finds
    one.

    Parameters
    ----------
    space : with the scenario's own objective.
    points : plans by objective, the scenario's own among them, ascending.
    """
    here = next(point for point in points if point.slo_ms == space.slo_ms)
    after = next((p for p in points if p.slo_ms > here.slo_ms and p.cost < here.cost), None)
    if after is None:
        return None
    before = max(p.slo_ms for p in points if p.slo_ms < after.slo_ms)
    while after.slo_ms - before > STEP_SHARE * space.slo_ms:
        middle = at_slo(space, (before + after.slo_ms) / 2)
        before, after = (before, middle) if middle.cost < here.cost else (middle.slo_ms, after)
    return after


def next_step_up(space: Space, points: Sequence[Point]) -> Point | None:
    """More load with a dearer plan than the scenario's, located by the same bisection; None if there is none on the grid.

    Parameters
    ----------
    space : with the trace at its own rate.
    points : plans by rate, ascending.
    """
    rate = space.traffic.rate_rps
    here = min(points, key=lambda point: abs(point.rate_rps - rate))
    after = next((p for p in points if p.rate_rps > here.rate_rps and p.cost > here.cost), None)
    if after is None:
        return None
    before = max(p.rate_rps for p in points if p.rate_rps < after.rate_rps)
    while after.rate_rps - before > STEP_SHARE * rate:
        middle = at_share(space, (before + after.rate_rps) / 2 / rate)
        before, after = (before, middle) if middle.cost > here.cost else (middle.rate_rps, after)
    return after
