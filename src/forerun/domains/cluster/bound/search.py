"""A bound and a schedule that come closer together: what `forerun bound` shows."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Final

import numpy as np

from forerun.domains.cluster.bound import checker
from forerun.domains.cluster.bound.insertion import insert_all, orders
from forerun.domains.cluster.bound.prove import Proof, free, prove_deadlines
from forerun.domains.cluster.bound.schedule import Schedule
from forerun.domains.cluster.bound.world import World
from forerun.domains.cluster.inputs.setting import F64

#: attempts to repair a schedule
REPAIRS: Final = 300


class DeadlineSearch:
    """Deadlines met, from above and from below.

    Parameters
    ----------
    world : the jobs.
    proof, bound : the best prices so far, and the deadlines that no schedule exceeds by them, exactly.
    schedule, met : the best schedule so far, and the deadlines that it meets, checked exactly.
    """

    objective: Final = "deadlines"

    def __init__(self, world: World) -> None:
        self.world = world
        self.proof, self.bound = free(world), Fraction(0)
        self.bound = self._proves(self.proof)
        self.schedule, self.met = Schedule({}), 0
        self._until = {row: float(world.jobs[row].deadline or 0) for row in world.due()}

    def run(self) -> Iterator[None]:
        """Stops at every improvement: first without prices, then with prices of finer and finer intervals."""
        yield
        if not self._until:
            return
        yield from self._insert(np.ones(len(self.world.jobs)))
        for step in prove_deadlines(self.world) if self.met < self.bound else ():
            bound = self._proves(step.proof)
            if bound < self.bound:
                self.proof, self.bound = step.proof, bound
                yield
            if self.met < self.bound:
                yield from self._insert(step.share, step.proof)
            if self.met >= self.bound:
                return

    def _proves(self, proof: Proof) -> Fraction:
        return checker.limit(self.objective, self.world.jobs, *proof.exact(self.world.gpus))

    def _insert(self, share: F64, proof: Proof | None = None) -> Iterator[None]:
        """Schedules by several orders, the best one repaired."""
        prices = proof or self.proof
        made = [
            insert_all(self.world, prices.edges_s, prices.price, self._until, order)
            for order in orders(self.world, self._until, share)
        ]
        best = max(made, key=lambda one: len(one.pieces))
        yield from self._better(best.schedule())
        for _ in best.repair(REPAIRS, int(self.bound)):
            yield from self._better(best.schedule())

    def _better(self, schedule: Schedule) -> Iterator[None]:
        """Keep a schedule that meets more deadlines, counted exactly."""
        met = schedule.met(self.world)
        if met > self.met:
            self.schedule, self.met = schedule, met
            yield
