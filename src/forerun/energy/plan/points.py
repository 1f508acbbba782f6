"""Configurations as points in time and energy: bounds, frontier, knee, and the certificate of a plan with its checker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun.core.errors import CheckFailed, Problem
from forerun.core.result.objective import pareto


@dataclass(frozen=True)
class Point:
    """One configuration, and what a training to the target is expected to take there.

    gpu, batch_size, limit_w: the configuration. reach: share of its recorded paths that reach the target. time_s, energy_j,
    cost_j: to the target, retries included. power_w: mean draw of all GPUs. usd, gco2: at the best start (default NaN: no
    signal); usd_now, gco2_now: if started at once. start_s: the best start (default 0). stretches: (from, to) in which the
    run works [s].
    """

    gpu: str
    batch_size: int
    limit_w: float
    reach: float
    time_s: float
    energy_j: float
    cost_j: float
    power_w: float
    usd: float = math.nan
    gco2: float = math.nan
    start_s: float = 0.0
    usd_now: float = math.nan
    gco2_now: float = math.nan
    stretches: tuple[tuple[float, float], ...] = ()

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.gpu} batch size {self.batch_size} at {self.limit_w:g} W"

    def value(self, of: str) -> float:
        """The figure that a goal minimises, by its name in a scenario."""
        return float(getattr(self, {"time": "time_s", "energy": "energy_j", "cost": "cost_j"}.get(of, of)))


@dataclass(frozen=True)
class PlanBound:
    """One bound of a plan.

    name: in the scenario's goal. figure: of a point, by its name there. limit: what it must not exceed. against: index of
    the point that the limit is a multiple of (default None: the limit is an amount).
    """

    name: str
    figure: str
    limit: float
    against: int | None = None

    def broken_by(self, point: Point) -> bool:
        """Whether the point's expectation breaks the bound (an unknown figure does)."""
        return not point.value(self.figure) <= self.limit * (1 + 1e-12)


@dataclass(frozen=True)
class Certificate:
    """What a checker needs.

    points: every configuration that can reach the target. bounds, minimise: the goal. frontier: indices of the points
    that no other dominates. dominated_by: a dominating point of each other one. chosen: index of the plan's point.
    """

    points: tuple[Point, ...]
    bounds: tuple[PlanBound, ...]
    minimise: str
    frontier: tuple[int, ...]
    dominated_by: dict[int, int]
    chosen: int


def certified_frontier(points: Sequence[Point], among: Sequence[int]) -> tuple[list[int], dict[int, int]]:
    """Indices of the frontier of time against energy, by time; and for each dominated point one that dominates it.

    A point is dominated if another is no worse in both and better in one; equal points stay together.
    """

    def costs(at: int) -> tuple[float, float]:
        return points[at].time_s, points[at].energy_j

    frontier = pareto(among, costs)
    dominated = sorted(set(among).difference(frontier), key=lambda at: (costs(at), at))
    return frontier, {at: [by for by in frontier if costs(by) <= costs(at)][-1] for at in dominated}


def knee(points: Sequence[Point], frontier: Sequence[int]) -> int:
    """The frontier point farthest below the chord of its ends, in log time and log energy, each scaled to [0, 1]."""
    x = np.log([points[at].time_s for at in frontier])
    y = np.log([points[at].energy_j for at in frontier])
    if len(frontier) < 3 or x[-1] == x[0] or y[0] == y[-1]:
        return frontier[int(np.argmin(x + y))] if len(frontier) else -1
    scaled = (x - x[0]) / (x[-1] - x[0]) + (y - y[-1]) / (y[0] - y[-1])
    return frontier[int(np.argmin(scaled))]


def verify(certificate: Certificate) -> None:
    """Check a certificate by itself, pair by pair and bound by bound. Raises CheckFailed."""
    points = certificate.points
    for at in certificate.frontier:
        for other in (*certificate.frontier, *certificate.dominated_by):
            if _dominates(points[other], points[at]):
                raise CheckFailed(
                    Problem("frontier", f"{points[at].name} is dominated by {points[other].name}")
                )
    for at, by in certificate.dominated_by.items():
        if not _dominates(points[by], points[at]):
            raise CheckFailed(Problem("frontier", f"{points[by].name} does not dominate {points[at].name}"))
    chosen = points[certificate.chosen]
    for bound in certificate.bounds:
        if bound.broken_by(chosen):
            raise CheckFailed(Problem(f"goal.{bound.name}", f"the chosen {chosen.name} breaks it"))
    for point in points:
        if any(bound.broken_by(point) for bound in certificate.bounds) or point.reach < chosen.reach == 1:
            continue
        if point.value(certificate.minimise) < chosen.value(certificate.minimise):
            raise CheckFailed(
                Problem(f"goal.minimise {certificate.minimise}", f"{point.name} is better than the chosen")
            )


def _dominates(one: Point, other: Point) -> bool:
    """Whether one point is no worse than another in time and energy and better in one."""
    no_worse = one.time_s <= other.time_s and one.energy_j <= other.energy_j
    return no_worse and (one.time_s < other.time_s or one.energy_j < other.energy_j)
