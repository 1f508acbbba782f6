"""The cheapest schedule on a known trace of spot availability: the bound that deadline rules are compared with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import Infeasible
from forerun.spot.policy import DeadlineJob, Held


@dataclass(frozen=True, slots=True)
class Bound:
    """The cheapest schedule on a known trace, and its cost.

    Parameters
    ----------
    cost_usd : what the schedule costs [$].
    held : what is rented in each tick.
    """

    cost_usd: float
    held: Sequence[Held]


def offline_bound(job: DeadlineJob, available: Sequence[bool]) -> Bound:
    """The cheapest cost that meets the deadline when the trace is known: exact, by dynamic programming.

    State: tick, what is rented, work done in units of gcd(tick, change-over).  A change-over shorter than a tick is worked
    off in the tick that starts it.

    Parameters
    ----------
    job : work, deadline, tick, change-over and prices.
    available : whether spot is there, tick by tick; ticks after the deadline do not matter.

    Raises
    ------
    Infeasible : not even on-demand from the start is in time.
    ValueError : the change-over is longer than a tick.
    """
    unit, gain, goal = _units(job)
    ticks = min(len(available), math.floor(job.deadline_s / job.tick_s + 1e-9))
    price = [0.0, job.price_usd(Held.SPOT), job.price_usd(Held.ON_DEMAND)]
    change = round(job.changeover_s / unit)
    best = np.full((3, goal + 1), np.inf)
    best[0, 0] = 0.0
    history: list[tuple[NDArray[np.int8], list[int]]] = []
    for tick in range(ticks):
        following, came = np.full((3, goal + 1), np.inf), np.zeros((3, goal + 1), dtype=np.int8)
        before_goal = [goal, goal, goal]
        for to in range(3):
            if to == 1 and not available[tick]:
                continue
            for source in range(3):
                work = 0 if to == 0 else gain if to == source else gain - change
                moved, carried = _worked(best[source], work)
                moved += price[to]
                better = moved < following[to] - 1e-12
                if better[goal]:
                    before_goal[to] = carried
                following[to][better], came[to][better] = moved[better], source
        best = following
        history.append((came, before_goal))
    end = int(np.argmin(best[:, goal]))
    if not np.isfinite(best[end, goal]):
        raise Infeasible.at("deadline job", "no choice of instances meets the deadline on this trace")
    return Bound(float(best[end, goal]), _path(job, history, end))


def _units(job: DeadlineJob) -> tuple[int, int, int]:
    """Unit of work [s], and the work of a tick and of the job in that unit."""
    if job.changeover_s > job.tick_s:
        raise ValueError("the bound needs a change-over no longer than a tick")
    unit = math.gcd(round(job.tick_s), round(job.changeover_s)) or round(job.tick_s)
    return unit, round(job.tick_s / unit), math.ceil(job.work_s / unit - 1e-9)


def _worked(cost: NDArray[np.float64], units: int) -> tuple[NDArray[np.float64], int]:
    """Cheapest cost by work done after more work, capped at the goal; and the work from which the goal is met.

    Parameters
    ----------
    cost : the cheapest cost [$] by units of work done, float64[goal + 1]; inf where it cannot be reached.
    units : work done in this tick.
    """
    if units == 0:
        return cost.copy(), cost.size - 1
    shifted = np.full_like(cost, np.inf)
    shifted[units:] = cost[:-units]
    carried = cost.size - 1 - units + int(np.argmin(cost[-units - 1 :]))
    shifted[-1] = cost[carried]
    return shifted, carried


def _path(job: DeadlineJob, history: Sequence[tuple[NDArray[np.int8], list[int]]], end: int) -> list[Held]:
    """What is rented in each tick of a cheapest schedule: the tables of sources, followed back from the goal.

    Parameters
    ----------
    job : the job of the schedule.
    history : for each tick, int8[3, goal + 1] with what was rented in the tick before, and the work from which the goal
        was met, by kind.
    end : the kind rented in the last tick.
    """
    unit, gain, goal = _units(job)
    change = round(job.changeover_s / unit)
    kinds = (Held.NONE, Held.SPOT, Held.ON_DEMAND)
    path: list[Held] = []
    kind, work = end, goal
    for came, before_goal in reversed(history):
        path.append(kinds[kind])
        source = int(came[kind, work])
        units = 0 if kind == 0 else gain if kind == source else gain - change
        work = before_goal[kind] if work == goal else work - units
        kind = source
    return path[::-1]
