"""Linear programs over plans of jobs, solved by column generation: the prices of GPU time that a bound needs.

Time is cut into intervals. A plan of a job is the GPU-seconds that it uses in each. The master program chooses plans
within the GPUs there are; its dual prices say what a GPU-second is worth, and for each job the cheapest plan at these
prices is a new column (Dantzig and Wolfe, 1960), found greedily on the hull of its speeds. Prices in between the best
so far and the master's converge faster (Wentges, 1997). Nothing here is exact, and nothing needs to be: a bound is
computed from prices alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from forerun.cluster.bound.world import Curve
from forerun.cluster.inputs.arrays import F64
from forerun.core.highs import new_solver, solve

if TYPE_CHECKING:
    import highspy

#: among plans of equal price, those of fewer GPU-seconds come first
_TINY: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Task:
    """A job that is to be done in a time window.

    Parameters
    ----------
    curve : hull of its speeds.
    work : iterations.
    start_s, end_s : the window.
    """

    curve: Curve
    work: float
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Grid:
    """Intervals of time. edges_s: float64[intervals + 1]."""

    edges_s: F64

    @property
    def length_s(self) -> F64:
        """Seconds of each interval."""
        return np.diff(self.edges_s)

    def window(self, start_s: float, end_s: float) -> tuple[int, F64]:
        """The first interval of a window, and how many seconds of it and the following ones are in the window."""
        first = int(np.searchsorted(self.edges_s, start_s, "right")) - 1
        last = int(np.searchsorted(self.edges_s, end_s, "left"))
        first, last = max(first, 0), min(last, len(self.edges_s) - 1)
        low, high = self.edges_s[first:last], self.edges_s[first + 1 : last + 1]
        return first, np.minimum(high, end_s) - np.maximum(low, start_s)


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """A way to do a task.

    Parameters
    ----------
    first : its first interval.
    gpu_s : GPU-seconds in this interval and the following ones.
    worth : price of one iteration more; 0 where GPU time is free.
    cost : price of all.
    wait_s : time from the submission to the end, where that has a price, too (default: none).
    """

    first: int
    gpu_s: F64
    worth: float
    cost: float
    wait_s: float = 0.0


def cheapest(task: Task, grid: Grid, price: F64) -> TaskPlan:
    """The cheapest way to do a task at prices of GPU-seconds by interval.

    Pieces of the hull in all intervals are taken by the price of their iterations until the work is done: within an
    interval they come in their order, because each needs more GPU-seconds for an iteration than the one before.
    """
    first, inside_s = grid.window(task.start_s, task.end_s)
    here, curve = price[first : first + len(inside_s)], task.curve
    pieces = len(curve.rate)
    order = np.argsort(((here + _TINY)[:, None] * curve.gpu_s).ravel(), kind="stable")
    able = (inside_s[:, None] * curve.rate).ravel()[order]
    done = np.cumsum(able)
    last = min(int(np.searchsorted(done, task.work)), len(done) - 1)
    taken = able[: last + 1].copy()
    taken[last] = max(0.0, task.work - (done[last] - able[last]))
    at, piece = np.divmod(order[: last + 1], pieces)
    gpu_s: F64 = np.bincount(at, taken * curve.gpu_s[piece], len(inside_s)).astype(np.float64)
    worth = float(here[at[last]] * curve.gpu_s[piece[last]])
    return TaskPlan(first, gpu_s, worth, float(gpu_s @ here))


@dataclass(frozen=True, slots=True)
class Solution:
    """Of a master program.

    Parameters
    ----------
    value : of the objective.
    price : float64[intervals], per GPU-second.
    share : float64[tasks], how much of each task is done.
    chosen : float64[plans], how much of each plan is chosen.
    """

    value: float
    price: F64
    share: F64
    chosen: F64


class Aim(Enum):
    """What a master program is to find: the most tasks done; all tasks on the fewest GPUs; all with the least waiting."""

    MOST = "most"
    FEWEST_GPUS = "fewest GPUs"
    LEAST_WAITING = "least waiting"


class Master:
    """The program that chooses plans within the GPUs there are.

    Rows are the GPU-seconds of each interval as a share of all, then the tasks, each done once (at most once for the most).
    Columns are plans. For the fewest GPUs, the first column says how many times the GPUs there are are needed.
    """

    def __init__(self, grid: Grid, gpus: int, tasks: int, aim: Aim) -> None:
        import highspy

        self.grid, self._all = grid, gpus * grid.length_s
        self._task: list[int] = []
        self._tasks, self._aim = tasks, aim
        self._solver: highspy.Highs = new_solver()
        # New columns leave the last choice of plans possible: primal simplex goes on from there.
        self._solver.setOptionValue("simplex_strategy", 4)
        intervals = len(self._all)
        lower = np.full(intervals + tasks, -np.inf)
        upper = np.ones(intervals + tasks)
        if aim is not Aim.MOST:
            lower[intervals:] = 1.0
        if aim is Aim.FEWEST_GPUS:
            upper[:intervals] = 0.0
        self._solver.addRows(
            len(upper), lower, upper, 0, np.zeros(len(upper), np.int32), np.zeros(0, np.int32), np.zeros(0)
        )
        if aim is Aim.FEWEST_GPUS:
            rows = np.arange(intervals, dtype=np.int32)
            self._solver.addCol(1.0, 0.0, np.inf, intervals, rows, -np.ones(intervals))
        elif aim is Aim.MOST:
            self._solver.changeObjectiveSense(highspy.ObjSense.kMaximize)

    def add(self, plans: Sequence[tuple[int, TaskPlan]]) -> None:
        """Add plans, each of a task by its number."""
        starts: list[int] = []
        index: list[npt.NDArray[np.int32]] = []
        value: list[F64] = []
        for task, plan in plans:
            starts.append(sum(len(one) for one in index))
            used = np.flatnonzero(plan.gpu_s > 0)
            index.append(np.append(plan.first + used, len(self._all) + task).astype(np.int32))
            value.append(np.append(plan.gpu_s[used] / self._all[plan.first + used], 1.0))
            self._task.append(task)
        count = len(plans)
        flat, coefficient = np.concatenate(index), np.concatenate(value)
        waits_s = np.array([plan.wait_s for _, plan in plans])
        gain = np.ones(count) if self._aim is Aim.MOST else waits_s
        bounds = gain, np.zeros(count), np.full(count, np.inf)
        self._solver.addCols(count, *bounds, len(flat), np.array(starts, np.int32), flat, coefficient)

    def solve(self) -> Solution:
        """The best choice of the plans so far, and what GPU-seconds are worth."""
        import highspy

        status = solve(self._solver)
        if status != highspy.HighsModelStatus.kOptimal:
            raise AssertionError(f"a program of plans ended as {status}")
        found = self._solver.getSolution()
        dual = np.abs(np.array(found.row_dual[: len(self._all)]))
        chosen = np.array(found.col_value[int(self._aim is Aim.FEWEST_GPUS) :])
        share: F64 = np.bincount(self._task, chosen, self._tasks).astype(np.float64)
        return Solution(
            float(self._solver.getInfo().objective_function_value), dual / self._all, share, chosen
        )
