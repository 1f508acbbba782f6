"""Bounds for clusters with GPUs of several types.

A GPU of each type has its own price, in a fixed proportion to the others': GPU time of all types together is then like that
of one type, of which a job takes its GPUs times the weight of their type. A job still has one type at a time. Every choice
of weights bounds every schedule; some are tried, and the best bound counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Final

import numpy as np

from forerun.cluster.bound.insertion import insert_all, orders
from forerun.cluster.bound.schedule import Schedule
from forerun.cluster.bound.search import Search
from forerun.cluster.bound.world import World
from forerun.core.rng import stream

#: weights are the speeds of a GPU of each type to these powers, as multiples of 1 / PARTS of the smallest
POWERS: Final = (1.0, 0.5, 0.0)
PARTS: Final = 12
#: attempts to repair the schedule of each type
REPAIRS: Final = 100


def weighted(pools: Sequence[World], weights: Sequence[int]) -> World:
    """One cluster of GPUs of one type that can do whatever several types can.

    Parameters
    ----------
    pools : for each type the same jobs with their speeds there, which may be none.
    weights : how many of the one type a GPU of each type is.
    """
    jobs = []
    for same in zip(*(pool.jobs for pool in pools), strict=True):
        speeds: dict[int, Fraction] = {}
        for job, weight in zip(same, weights, strict=True):
            for count, speed in job.speed:
                before = speeds.get(count * weight, Fraction(0))
                speeds[count * weight] = max(before, Fraction(speed, job.unit))
        unit = lcm(*(one.denominator for one in speeds.values()))
        jobs.append(
            same[0]._replace(
                unit=unit, speed=tuple((n, int(one * unit)) for n, one in sorted(speeds.items()))
            )
        )
    total = sum(pool.gpus * weight for pool, weight in zip(pools, weights, strict=True))
    return World(tuple(jobs), total, seed=pools[0].seed)


def weights_of(pools: Sequence[World]) -> list[tuple[int, ...]]:
    """Weights worth trying, from how much work a GPU of each type does of a job that runs on all types, in the middle."""
    efficiency = np.array(
        [
            [max(speed / job.unit / count for count, speed in job.speed) for job in same]
            for same in zip(*(pool.jobs for pool in pools), strict=True)
            if all(job.speed for job in same)
        ]
    ).reshape(-1, len(pools))
    ratio = np.median(efficiency / efficiency[:, :1], axis=0) if len(efficiency) else np.ones(len(pools))
    tried = (np.rint(PARTS * (ratio / ratio.min()) ** power) for power in POWERS)
    return list(dict.fromkeys(tuple(int(one) for one in weights) for weights in tried))


@dataclass(frozen=True, slots=True)
class Apart:
    """A schedule that keeps every job on one type of GPU.

    Parameters
    ----------
    schedules : one a type, checked exactly.
    met : deadlines met.
    """

    schedules: tuple[Schedule, ...]
    met: int

    def rows(self, pools: Sequence[World]) -> tuple[tuple[str, float, float, int], ...]:
        """Job, start [s], end [s] and GPUs of every piece, by start."""
        rows = [row for one, pool in zip(self.schedules, pools, strict=True) for row in one.rows(pool)]
        return tuple(sorted(rows, key=lambda one: (one[1], one[0])))


def apart(pools: Sequence[World]) -> Apart:
    """A schedule that meets many deadlines: the types are filled one after the other, in either order."""
    numbers = range(len(pools))
    made = [_filled(pools, order) for order in (numbers, numbers[::-1])]
    return max(made, key=lambda one: one.met)


def _filled(pools: Sequence[World], order: Sequence[int]) -> Apart:
    """Each type in some order with as many as fit of the jobs that are left."""
    schedules, left, met = [Schedule({}) for _ in pools], set(range(len(pools[0].jobs))), 0
    for at in order:
        pool = pools[at]
        until = {
            row: float(job.deadline)
            for row, job in enumerate(pool.jobs)
            if row in left and job.speed and job.deadline and job.release + job.alone() <= job.deadline
        }
        if not until:
            continue
        edges_s, price = np.array([min(job.release for job in pool.jobs), max(until.values())]), np.zeros(1)
        share = np.ones(len(pool.jobs))
        tried = [insert_all(pool, edges_s, price, until, each) for each in orders(pool, until, share)]
        best = max(tried, key=lambda one: len(one.pieces))
        for _ in best.repair(REPAIRS, len(until), stream(pool.seed, "bound", "repairs", at)):
            pass
        schedules[at] = best.schedule()
        met += schedules[at].met(pool)
        left -= best.pieces.keys()
    return Apart(tuple(schedules), met)


def searches(kind: Callable[[World], Search], pools: Sequence[World]) -> Iterator[tuple[Search, Fraction]]:
    """The bound of every choice of weights, as it gets better, with the best of all so far."""
    best: Fraction | None = None
    for weights in weights_of(pools):
        search = kind(weighted(pools, weights))
        for _ in search.run():
            better = min if search.better == "higher" else max
            best = search.bound if best is None else better(best, search.bound)
            yield search, best
