"""A bound and a schedule that come closer together: what `forerun bound` shows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import ClassVar, Final, Literal

import numpy as np

from forerun.cluster.bound import checker
from forerun.cluster.bound.insertion import insert_all, insert_soonest, least_gpu_s, orders
from forerun.cluster.bound.prove import (
    CLOSE,
    Ends,
    OneEnd,
    Proof,
    ScaledEnds,
    Step,
    free,
    prove_deadlines,
    prove_ends,
    prove_mean,
    several_worths,
)
from forerun.cluster.bound.schedule import Schedule
from forerun.cluster.bound.world import World, columns
from forerun.cluster.inputs.arrays import F64
from forerun.core.rng import stream

#: attempts to repair a schedule, and the most jobs in all of them
REPAIRS: Final = 400
MOST_REPAIRED: Final = 750_000
#: schedules by the last prices, the most jobs in all of them, and the share of a job that makes it hopeless
RESTARTS: Final = 6
MOST_JOBS: Final = 1800
HOPELESS: Final = 0.01
#: by how much a count may waste GPU-seconds in schedules for completion times, and jobs moved in the order of the best
THRIFTS: Final = (1.0, 1.2, 1.5, 2.0, 3.0)
MOVES: Final = 60
#: parts of an interval in certificates for completion times
PARTS: Final = 3
#: ends by which all jobs are inserted
ATTEMPTS: Final = 16


class Search(ABC):
    """The best proof and the best schedule so far, for one objective.

    Parameters
    ----------
    world : the jobs.

    Attributes
    ----------
    objective : as certificates name it.
    proof, claim : the best prices, and what the checker proves by them: deadlines, an instant, a slowdown.
    schedule : the best one, checked exactly.
    """

    objective: ClassVar[str]
    figure: ClassVar[str]
    title: ClassVar[str]
    impossible: ClassVar[str]
    better: ClassVar[Literal["higher", "lower"]] = "lower"

    def __init__(self, world: World) -> None:
        self.world, self.proof, self.schedule = world, free(world), Schedule({})
        self.claim = Fraction(0)

    @abstractmethod
    def run(self) -> Iterator[None]:
        """Stops at every improvement of the proof or the schedule."""

    @property
    @abstractmethod
    def reached(self) -> Fraction | None:
        """What the schedule reaches; None if there is none."""

    @property
    def bound(self) -> Fraction:
        """What no schedule exceeds, as the figure counts it."""
        return self.claim


class DeadlineSearch(Search):
    """Deadlines met."""

    objective, figure, better = "deadlines", "deadlines_met", "higher"
    title, impossible = "deadlines met", "meets more than {} deadlines"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.claim = self._proves(self.proof)
        self.met = 0
        self._draw = stream(world.seed, "bound", "repairs")
        self._until = {row: float(world.jobs[row].deadline or 0) for row in world.due()}

    @property
    def reached(self) -> Fraction:
        """Deadlines that the schedule meets."""
        return Fraction(self.met)

    def run(self) -> Iterator[None]:
        """First without prices, then with prices of finer and finer intervals."""
        yield
        if not self._until:
            return
        yield from self._insert(np.ones(len(self.world.jobs)), self.proof, self._until)
        steps: list[Step] = []
        for step in prove_deadlines(self.world) if self.met < self.claim else ():
            steps.append(step)
            proof = step.proof.merged()
            claim = self._proves(proof)
            if claim < self.claim:
                self.proof, self.claim = proof, claim
                yield
            if self.met < self.claim:
                yield from self._insert(step.share, step.proof, self._until)
            if self.met >= self.claim:
                return
        if steps:
            yield from self._once_more(steps[-1])

    def _once_more(self, step: Step) -> Iterator[None]:
        """Several schedules by the last prices, of all jobs and of those alone that the relaxation does in part."""
        hopeful = {row: end_s for row, end_s in self._until.items() if step.share[row] > HOPELESS}
        for at in range(min(RESTARTS, MOST_JOBS // len(self._until))):
            if self.met >= self.claim:
                return
            until = self._until if at % 2 or not hopeful else hopeful
            yield from self._insert(step.share, step.proof, until)

    def _proves(self, proof: Proof) -> Fraction:
        return Fraction(checker.proves(self.objective, self.world.jobs, *proof.exact(self.world.gpus)))

    def _insert(self, share: F64, proof: Proof, until: Mapping[int, float]) -> Iterator[None]:
        """Schedules by several orders, the best one repaired."""
        made = [
            insert_all(self.world, proof.edges_s, proof.price, dict(until), order)
            for order in orders(self.world, dict(until), share)
        ]
        best = max(made, key=lambda one: len(one.pieces))
        yield from self._better(best.schedule())
        attempts = min(REPAIRS, MOST_REPAIRED // len(self._until))
        for _ in best.repair(attempts, int(self.claim), self._draw, share):
            yield from self._better(best.schedule())

    def _better(self, schedule: Schedule) -> Iterator[None]:
        """Keep a schedule that meets more deadlines, counted exactly."""
        met = schedule.met(self.world)
        if met > self.met:
            self.schedule, self.met = schedule, met
            yield


class EndsSearch(Search):
    """A number that says by when all jobs end."""

    def __init__(self, world: World, ends: Ends, least: Fraction, origin: int) -> None:
        super().__init__(world)
        self._ends, self._origin = ends, origin
        self.claim = least
        self._value: Fraction | None = None

    @abstractmethod
    def _of(self, ends: Mapping[int, Fraction]) -> Fraction:
        """The number of a schedule, by the ends of all jobs."""

    @property
    def reached(self) -> Fraction | None:
        """What the schedule reaches."""
        return None if self._value is None else self._value - self._origin

    @property
    def bound(self) -> Fraction:
        """What no schedule is below."""
        return self.claim - self._origin

    def run(self) -> Iterator[None]:
        """First a schedule, then prices, then better schedules."""
        yield
        yield from self._schedules(ATTEMPTS)
        for x, proof in prove_ends(self.world, self._ends):
            if self._prove(x, proof):
                yield
            if self._value == self.claim:
                return
        yield from self._schedules(2 * ATTEMPTS)

    def _prove(self, x: float, proof: Proof) -> bool:
        """Keep prices that prove more, by the largest round number that they prove exactly."""
        for back in (1e-9, 1e-7, 1e-5):
            claim = Fraction(math.floor((x - back * (x - self._origin)) * 10**6), 10**6)
            some = self._ends.until(proof, float(claim)).merged()
            exact = some.exact(self.world.gpus)
            if claim > self.claim and checker.proves(self.objective, self.world.jobs, *exact, claim) == claim:
                self.proof, self.claim = some, claim
                return True
        return False

    def _schedules(self, attempts: int) -> Iterator[None]:
        """Insert all jobs by ends between what is proved and what is known, halving what is between them."""
        low = float(self.claim)
        step = 0.1 * (low - self._origin)
        while attempts and self._value is None:
            yield from self._try(low + step)
            step, attempts = 2 * step, attempts - 1
        for _ in range(attempts if self._value is not None else 0):
            high = float(self._value or 0)
            if high - low <= CLOSE * (high - self._origin):
                return
            middle = (low + high) / 2
            yield from self._try(middle)
            if self._value is not None and float(self._value) > middle:
                low = middle

    def _try(self, x: float) -> Iterator[None]:
        """Insert all jobs by their ends at x, the most urgent first, or the longest, or the first submitted."""
        due_s = self._ends.at(x)
        until = dict(enumerate(due_s.tolist()))
        spare_s = due_s - self._ends.release_s - self._ends.alone_s
        need = np.array([least_gpu_s(self.world, row) for row in until])
        for key in (spare_s, -need, self._ends.release_s, due_s):
            made = insert_all(
                self.world,
                self.proof.edges_s,
                self.proof.price,
                until,
                np.argsort(key, kind="stable").tolist(),
            )
            if len(made.pieces) < len(until):
                continue
            schedule = made.schedule()
            ends = schedule.ends(self.world)
            if len(ends) < len(until):
                continue
            value = self._of(ends)
            if self._value is None or value < self._value:
                self.schedule, self._value = schedule, value
                yield
            return


class MakespanSearch(EndsSearch):
    """The last end of all jobs, from the first submission on."""

    objective, figure, title = "makespan", "makespan_s", "makespan"
    impossible = "ends all jobs within less than {} s"

    def __init__(self, world: World) -> None:
        first = min(job.release for job in world.jobs)
        super().__init__(world, OneEnd(world), max(job.release + job.alone() for job in world.jobs), first)

    def _of(self, ends: Mapping[int, Fraction]) -> Fraction:
        return max(ends.values())


class SlowdownSearch(EndsSearch):
    """The largest slowdown: the time in the system over the shortest duration."""

    objective, figure, title = "max_slowdown", "largest_slowdown", "largest slowdown"
    impossible = "has a largest slowdown below {}"

    def __init__(self, world: World) -> None:
        super().__init__(world, ScaledEnds(world), Fraction(1), 0)

    def _of(self, ends: Mapping[int, Fraction]) -> Fraction:
        jobs = self.world.jobs
        return max((end - jobs[row].release) / jobs[row].alone() for row, end in ends.items())


class MeanSearch(Search):
    """The mean time from submission to end."""

    objective, figure, title = "mean_completion", "jct_mean_s", "mean completion time"
    impossible = "has a mean completion time below {} s"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.claim = Fraction(0)
        self._prove(self.proof)
        self._sum: Fraction | None = None
        self._order, self._thrift = list(range(len(world.jobs))), 1.0

    @property
    def reached(self) -> Fraction | None:
        """What the schedule reaches."""
        return None if self._sum is None else self._sum / len(self.world.jobs)

    @property
    def bound(self) -> Fraction:
        """What no schedule is below."""
        return self.claim / len(self.world.jobs)

    def run(self) -> Iterator[None]:
        """First schedules, then prices."""
        yield
        yield from self._schedules()
        shown = 0.0
        last: Proof | None = None
        for total, last in prove_mean(self.world, self.schedule):
            if total > 1.03 * shown:
                shown = total
                if self._prove(last):
                    yield
        if last is not None and self._prove(last):
            yield

    def _prove(self, proof: Proof) -> bool:
        """Keep prices that prove more."""
        proof = several_worths(self.world, proof.finer(PARTS))
        proved = checker.proves(self.objective, self.world.jobs, *proof.exact(self.world.gpus))
        claim = Fraction(math.floor(proved * 1000), 1000)
        if claim <= self.claim:
            return False
        self.proof, self.claim = proof, claim
        return True

    def _schedules(self) -> Iterator[None]:
        """Several orders with more or less thrift, then the best order with single jobs moved."""
        release_s, _, alone_s = columns(self.world.jobs)
        need = np.array([least_gpu_s(self.world, row) for row in range(len(release_s))])
        for key in (need, alone_s, release_s + alone_s, need + release_s * self.world.gpus):
            for thrift in THRIFTS:
                yield from self._try(np.argsort(key, kind="stable").tolist(), thrift)
        draw = stream(self.world.seed, "bound", "moves")
        for _ in range(MOVES):
            order = list(self._order)
            moved = order.pop(int(draw.integers(len(order))))
            order.insert(int(draw.integers(len(order) + 1)), moved)
            yield from self._try(order, self._thrift)

    def _try(self, order: list[int], thrift: float) -> Iterator[None]:
        schedule = insert_soonest(self.world, order, thrift)
        ends = schedule.ends(self.world)
        if len(ends) < len(order):
            return
        total = sum((end - self.world.jobs[row].release for row, end in ends.items()), Fraction(0))
        if self._sum is None or total < self._sum:
            self.schedule, self._sum, self._order, self._thrift = schedule, total, order, thrift
            yield


#: what can be bounded, by the name on the command line
SEARCHES: Final[Mapping[str, Callable[[World], Search]]] = {
    "deadlines": DeadlineSearch,
    "mean": MeanSearch,
    "makespan": MakespanSearch,
    "slowdown": SlowdownSearch,
}
