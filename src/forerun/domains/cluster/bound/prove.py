"""Search for the prices that prove the most: deadlines met, makespan, largest slowdown.

Each search yields what its prices prove so far, in floating point; `Proof.exact` says what they prove exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from forerun.domains.cluster.bound import checker
from forerun.domains.cluster.bound.program import Grid, Master, Solution, Task, TaskPlan, cheapest
from forerun.domains.cluster.bound.world import World
from forerun.domains.cluster.inputs.setting import F64, I64

#: prices are whole multiples of 1 / this
DENOMINATOR: Final = 10**18
#: intervals of the first grid, and the most there are
FIRST_INTERVALS: Final = 100
MOST_INTERVALS: Final = 400
#: rounds of column generation on one grid
MOST_ROUNDS: Final = 30
#: how much of new prices is the best ones so far
SMOOTHING: Final = 0.5
#: rounding of a linear program
SMALL: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Proof:
    """Prices of GPU-seconds, and what an iteration of each job is worth at them.

    Parameters
    ----------
    edges_s : float64[intervals + 1].
    price : float64[intervals].
    worth : float64[jobs].
    """

    edges_s: F64
    price: F64
    worth: F64

    def exact(self, gpus: int) -> tuple[checker.Prices, list[int]]:
        """The same, rounded to whole numbers: what the checker takes. Neighbours of one price become one interval."""
        price = np.maximum(np.rint(self.price * DENOMINATOR), 0.0)
        new = np.flatnonzero(np.diff(price, prepend=-1.0) != 0)
        ends = [*self.edges_s[new].tolist(), float(self.edges_s[-1])]
        edges = tuple(int(end) if end.is_integer() else Fraction(round(end * 10**6), 10**6) for end in ends)
        whole = (0, *(int(one) for one in price[new]), 0)
        worth = [int(one) for one in np.maximum(np.rint(self.worth * DENOMINATOR), 0.0)]
        return checker.Prices(gpus, DENOMINATOR, edges, whole), worth


@dataclass(frozen=True, slots=True)
class Step:
    """How far a search is.

    Parameters
    ----------
    bound : what the best prices prove.
    relaxed : what a better search could prove at most with these intervals.
    proof : the best prices.
    share : float64[jobs], how much of each job the relaxation does.
    """

    bound: float
    relaxed: float
    proof: Proof
    share: F64


def free(world: World) -> Proof:
    """Prices of nothing, which prove what no prices are needed for."""
    releases = [job.release for job in world.jobs]
    return Proof(
        np.array([min(releases), max(releases) + 1], np.float64), np.zeros(1), np.zeros(len(world.jobs))
    )


def prove_deadlines(world: World) -> Iterator[Step]:
    """Search for prices that prove that few deadlines can be met. Yields after every grid, until finer ones are no use."""
    rows, curves = world.due(), world.curves
    tasks = [
        Task(curves[row], float(world.jobs[row].work), float(world.jobs[row].release), float(world.jobs[row].deadline or 0))
        for row in rows
    ]  # fmt: skip
    points = np.unique([edge for task in tasks for edge in (task.start_s, task.end_s)])
    if len(points) < 2:
        return
    grid = Grid(_quantiles(points, FIRST_INTERVALS))
    price, plans = np.zeros(len(grid.length_s)), list[tuple[int, TaskPlan]]()
    while True:
        search = _Deadlines(tasks, grid, world.gpus, price, plans)
        solution = search.run()
        worth, share = np.zeros(len(world.jobs)), np.zeros(len(world.jobs))
        worth[rows], share[rows] = search.worth, solution.share
        yield Step(search.bound, solution.value, Proof(grid.edges_s, search.price, worth), share)
        finer = _refined(grid, search.price, points)
        if len(finer.edges_s) == len(grid.edges_s):
            return
        price, plans = _carried(search.price, grid, finer), search.used(finer)
        grid = finer


class _Deadlines:
    """Column generation on one grid, from prices and plans of a coarser one."""

    def __init__(
        self, tasks: list[Task], grid: Grid, gpus: int, price: F64, plans: list[tuple[int, TaskPlan]]
    ) -> None:
        self.tasks, self.grid, self.price = tasks, grid, price
        self._whole = gpus * grid.length_s
        self._master = Master(grid, gpus, len(tasks))
        self._plans: list[tuple[int, TaskPlan]] = []
        self.bound, self.worth = math.inf, np.zeros(len(tasks))
        self._add(plans)
        self._try(price)

    def run(self) -> Solution:
        """Until no column would change the whole number of deadlines, or the rounds are over."""
        solution = self._master.solve()
        for _ in range(MOST_ROUNDS):
            if math.floor(self.bound + SMALL) <= math.floor(solution.value + SMALL):
                break
            self._try(SMOOTHING * self.price + (1 - SMOOTHING) * solution.price)
            solution = self._master.solve()
        self.solution = solution
        return solution

    def _try(self, price: F64) -> None:
        """The bound at some prices, and the plans that are cheapest at them as new columns."""
        plans = [cheapest(task, self.grid, price) for task in self.tasks]
        gains = np.maximum(0.0, 1.0 - np.array([plan.cost for plan in plans]))
        bound = float(self._whole @ price + gains.sum())
        if bound < self.bound:
            self.bound, self.price = bound, price
            self.worth = np.array([plan.worth for plan in plans])
        self._add([(task, plans[task]) for task in np.flatnonzero(gains).tolist()])

    def _add(self, plans: list[tuple[int, TaskPlan]]) -> None:
        if plans:
            self._master.add(plans)
            self._plans += plans

    def used(self, finer: Grid) -> list[tuple[int, TaskPlan]]:
        """The plans that the last solution chose, on a finer grid: spread evenly over their time in each interval."""
        plans = []
        for at in np.flatnonzero(self.solution.chosen > SMALL).tolist():
            number, plan = self._plans[at]
            task = self.tasks[number]
            _, inside_s = self.grid.window(task.start_s, task.end_s)
            first, finer_s = finer.window(task.start_s, task.end_s)
            middle_s = (finer.edges_s[first:-1] + finer.edges_s[first + 1 :])[: len(finer_s)] / 2
            into = (
                np.searchsorted(self.grid.edges_s, np.maximum(middle_s, task.start_s), "right")
                - 1
                - plan.first
            )
            density = plan.gpu_s / inside_s
            plans.append(
                (number, TaskPlan(first, density[np.minimum(into, len(density) - 1)] * finer_s, 0.0, 0.0))
            )
        return plans


def _quantiles(points: F64, intervals: int) -> F64:
    """Some of the points, evenly spread among them, both ends included."""
    at: I64 = np.unique(np.rint(np.linspace(0, len(points) - 1, intervals + 1)).astype(np.int64))
    return points[at]


def _refined(grid: Grid, price: F64, points: F64) -> Grid:
    """The grid with intervals halved where the price changes at one of their ends, at a point in their middle.

    The largest changes come first, so that there are never more intervals than the limit.
    """
    jump = np.abs(np.diff(price, prepend=price[:1], append=price[-1:]))
    change = np.maximum(jump[:-1], jump[1:])
    low, high = (
        np.searchsorted(points, grid.edges_s[:-1], "right"),
        np.searchsorted(points, grid.edges_s[1:], "left"),
    )
    able = np.flatnonzero((high > low) & (change > SMALL * max(float(price.max(initial=0.0)), 1e-300)))
    most = max(0, MOST_INTERVALS - len(price))
    chosen = able[np.argsort(-change[able], kind="stable")][:most]
    return Grid(np.union1d(grid.edges_s, points[(low[chosen] + high[chosen]) // 2]))


def _carried(price: F64, grid: Grid, finer: Grid) -> F64:
    """The same prices on a finer grid."""
    return price[np.searchsorted(grid.edges_s, finer.edges_s[:-1], "right") - 1]
