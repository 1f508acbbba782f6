"""Search for the prices that prove the most: deadlines met, makespan, largest slowdown.

Each search yields what its prices prove so far, in floating point; `Proof.exact` says what they prove exactly.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np

from forerun.cluster.bound import checker
from forerun.cluster.bound.files import Files
from forerun.cluster.bound.program import Aim, Grid, Master, Solution, Task, TaskPlan, cheapest
from forerun.cluster.bound.schedule import Schedule
from forerun.cluster.bound.world import World, columns
from forerun.cluster.inputs.arrays import F64, I64

#: prices are whole multiples of 1 / this
DENOMINATOR: Final = 10**18
#: intervals of the first grid, and the most there are
FIRST_INTERVALS: Final = 100
MOST_INTERVALS: Final = 400
#: rounds of column generation on one grid
MOST_ROUNDS: Final = 30
#: when prices for deadlines are near enough, and rounds towards that, in all tasks
CLOSE_DEADLINES: Final = 0.02
POLISHING: Final = 8000
#: how much of new prices is the best ones so far
SMOOTHING: Final = 0.5
#: ends at which prices are searched, rounds of column generation for each, and by how little more is no use
MOST_STEPS: Final = 40
ROUNDS_AN_END: Final = 200
CLOSE: Final = 1e-5
#: share of what the linear program shows that prices for ends must reach
ENOUGH: Final = 0.7
#: intervals for completion times, rounds of column generation, and when it is near enough
MEAN_INTERVALS: Final = 160
ROUNDS_OF_MEAN: Final = 300
CLOSE_MEAN: Final = 1e-3
#: most that an iteration of one job is worth in a certificate for completion times
MOST_WORTHS: Final = 12
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
    worths : for completion times, several a job: an iteration is worth less the later its job ends (default: none).
    """

    edges_s: F64
    price: F64
    worth: F64
    worths: tuple[F64, ...] = ()

    def exact(self, gpus: int) -> tuple[checker.Prices, list[Any]]:
        """The same, rounded to whole numbers: what the checker takes."""
        edges = tuple(
            int(end) if end.is_integer() else Fraction(round(end * 10**6), 10**6)
            for end in self.edges_s.tolist()
        )
        price = (0, *(int(one) for one in np.maximum(np.rint(self.price * DENOMINATOR), 0.0)), 0)
        worth: list[Any] = [int(one) for one in np.maximum(np.rint(self.worth * DENOMINATOR), 0.0)]
        if self.worths:
            worth = [[int(one) for one in np.rint(several * DENOMINATOR)] for several in self.worths]
        return checker.Prices(gpus, DENOMINATOR, edges, price), worth

    def certificate(self, files: Files, world: World, objective: str, claim: Fraction) -> dict[str, Any]:
        """The certificate of a claim, as the checker reads it.

        Parameters
        ----------
        files : what the jobs come from.
        world : the jobs.
        objective : as certificates name it.
        claim : what the prices prove.
        """
        prices, worth = self.exact(world.gpus)
        digests = {name: hashlib.sha256(table).hexdigest() for name, table in sorted(files.tables.items())}
        inputs = {"trace_sha256": hashlib.sha256(files.trace).hexdigest(), "profile_sha256": digests}
        known = {job.id: one for job, one in zip(world.jobs, worth) if one or objective == "mean_completion"}
        return {
            "format": "forerun-bound/1",
            "objective": objective,
            "claim": str(claim),
            "gpus": world.gpus,
            "denominator": prices.denominator,
            "edges_s": [str(edge) for edge in prices.edges],
            "price": list(prices.price[1:-1]),
            "work_value": known,
            "inputs": inputs | ({"first": files.first} if files.first else {}),
        }

    def merged(self) -> Proof:
        """The same with neighbours of one price as one interval."""
        new = np.flatnonzero(np.diff(np.rint(self.price * DENOMINATOR), prepend=-1.0) != 0)
        edges_s = np.append(self.edges_s[new], self.edges_s[-1])
        return Proof(edges_s, self.price[new], self.worth, self.worths)

    def finer(self, parts: int) -> Proof:
        """The same with every interval in so many parts: for completion times, which the checker bounds part by part."""
        share = np.arange(parts) / parts
        edges = np.rint(self.edges_s[:-1, None] + np.diff(self.edges_s)[:, None] * share).ravel()
        edges, first = np.unique(edges, return_index=True)
        return Proof(np.append(edges, self.edges_s[-1]), np.repeat(self.price, parts)[first], self.worth)

    def until(self, end_s: float) -> Proof:
        """The same, with the last price until another end, after the last change of prices."""
        return Proof(np.append(self.edges_s[:-1], end_s), self.price, self.worth)


@dataclass(frozen=True, slots=True)
class Step:
    """How far a search is.

    Parameters
    ----------
    bound : what the best prices prove.
    proof : the best prices.
    share : float64[jobs], how much of each job the relaxation does.
    """

    bound: float
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
        yield search.step(search.run(), rows, len(world.jobs))
        finer = _refined(grid, search.price, points)
        if len(finer.edges_s) == len(grid.edges_s):
            if polished := search.polish(POLISHING // len(tasks)):
                yield search.step(polished, rows, len(world.jobs))
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
        self._master = Master(grid, gpus, len(tasks), Aim.MOST)
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

    def step(self, solution: Solution, rows: list[int], jobs: int) -> Step:
        """How far the search is, in arrays of its own.

        Parameters
        ----------
        solution : of the relaxation.
        rows : the jobs of the tasks.
        jobs : how many jobs there are.
        """
        worth, share = np.zeros(jobs), np.zeros(jobs)
        worth[rows], share[rows] = self.worth, solution.share
        return Step(self.bound, Proof(self.grid.edges_s, self.price, worth), share)

    def polish(self, rounds: int) -> Solution | None:
        """Better prices of the same whole number, by which schedules are better, too; None without rounds."""
        solution: Solution | None = None
        for _ in range(rounds):
            self._try(SMOOTHING * self.price + (1 - SMOOTHING) * (solution or self.solution).price)
            solution = self._master.solve()
            if self.bound - solution.value < CLOSE_DEADLINES:
                break
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


class Ends(ABC):
    """By when all jobs are to end, for a number that is to be small.

    Parameters
    ----------
    world : the jobs.

    Attributes
    ----------
    release_s, alone_s : float64[jobs], submission and shortest duration.
    least : what the number cannot be below, whatever the number of GPUs.
    origin : what it counts from.
    """

    least: float
    origin: float

    def __init__(self, world: World) -> None:
        self.release_s, _, self.alone_s = columns(world.jobs)

    @abstractmethod
    def at(self, x: float) -> F64:
        """The end of each job [s]."""

    def last(self, price: F64) -> float:
        """What a GPU-second costs after the last interval, until the ends (default: nothing)."""
        return 0.0

    def until(self, proof: Proof, x: float) -> Proof:
        """The prices with those that hold until the ends (default: as they are)."""
        return proof


class OneEnd(Ends):
    """One instant for all."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.least = float((self.release_s + self.alone_s).max())
        self.origin = float(self.release_s.min())

    def at(self, x: float) -> F64:
        return np.full(len(self.release_s), x)

    def last(self, price: F64) -> float:
        return float(price[-1])

    def until(self, proof: Proof, x: float) -> Proof:
        return proof.until(x)


class ScaledEnds(Ends):
    """For each job so many times its shortest duration after its submission."""

    least, origin = 1.0, 0.0

    def at(self, x: float) -> F64:
        return self.release_s + x * self.alone_s


def prove_ends(world: World, ends: Ends) -> Iterator[tuple[float, Proof]]:
    """Search for prices that prove that the last end, or the largest slowdown, is not below some x.

    At an x, all jobs together must pay more than all GPUs cost, or nothing is proved. The prices found there prove more than
    this x; the search goes on at the largest that they prove (Newton's method on a concave function), until the linear
    program says that no prices do at this x. Yields each x with its prices.
    """
    curves, (_, work, _), x = world.curves, columns(world.jobs), ends.least
    before: Proof | None = None
    for _ in range(MOST_STEPS):
        due_s = ends.at(x)
        points = np.unique(np.concatenate((ends.release_s, due_s)))
        tasks = [Task(*one) for one in zip(curves, work.tolist(), ends.release_s.tolist(), due_s.tolist())]
        grid = Grid(_quantiles(points, FIRST_INTERVALS))
        price = np.ones(len(grid.length_s))
        if before is not None:
            price = _carried(before.price, Grid(before.edges_s), grid)
        proof = _all_must_pay(tasks, grid, world.gpus, price)
        if proof is None:
            return
        further = _furthest(world, ends, proof, x)
        proof = ends.until(proof, further)
        yield further, proof
        if further - x <= CLOSE * max(1.0, x - ends.origin):
            return
        x, before = further, proof


def _all_must_pay(tasks: list[Task], grid: Grid, gpus: int, price: F64) -> Proof | None:
    """Prices at which all tasks together pay more than all GPUs cost; None if there are none."""
    whole = gpus * grid.length_s
    master = Master(grid, gpus, len(tasks), Aim.FEWEST_GPUS)
    best, found = 0.0, Proof(grid.edges_s, price, np.zeros(len(tasks)))
    for _ in range(ROUNDS_AN_END):
        total = float(whole @ price)
        price = price / total if total > 0 else 1.0 / (len(whole) * whole)
        plans = [cheapest(task, grid, price) for task in tasks]
        paid = float(np.sum([plan.cost for plan in plans]))
        if paid > best:
            best = paid
            found = Proof(grid.edges_s, price, np.array([plan.worth for plan in plans]))
        master.add(list(enumerate(plans)))
        solution = master.solve()
        if solution.value <= 1 + SMALL or best >= 1 + (solution.value - 1) * ENOUGH:
            break
        price = SMOOTHING * found.price + (1 - SMOOTHING) * solution.price
    return found if best > 1 else None


def _furthest(world: World, ends: Ends, proof: Proof, x: float) -> float:
    """The largest x that prices prove, at least the given one."""
    edges = np.append(proof.edges_s, np.inf)
    price = np.append(proof.price, ends.last(proof.price))
    rows = list(zip(world.curves, proof.worth.tolist()))
    profit = np.array(
        [(c.rate * np.maximum(0.0, mu - price[:, None] * c.gpu_s)).sum(axis=1) for c, mu in rows]
    )
    owes = proof.worth * columns(world.jobs)[1]
    low = np.maximum(edges[:-1], ends.release_s[:, None])
    whole = world.gpus * float(np.diff(proof.edges_s) @ proof.price)

    def left(at: float) -> float:
        due_s = ends.at(at)
        inside_s = np.maximum(0.0, np.minimum(edges[1:], due_s[:, None]) - low)
        more = world.gpus * float(price[-1]) * max(0.0, at - float(proof.edges_s[-1]))
        return float(np.maximum(0.0, owes - (inside_s * profit).sum(axis=1)).sum()) - whole - more

    step = 1e-3 * max(1.0, x - ends.origin)
    high = x + step
    while left(high) > 0:
        high, step = high + step, 2 * step
    for _ in range(60):
        middle = (x + high) / 2
        x, high = (middle, high) if left(middle) > 0 else (x, middle)
    return x


def prove_mean(world: World, schedule: Schedule) -> Iterator[tuple[float, Proof]]:
    """Search for prices that prove that completion times sum to much. Yields the sum proved [s] at every improvement.

    Each job ends when its GPU time until then and its completion time cost the least together.

    Parameters
    ----------
    schedule : ends all jobs; the program starts from it, and prices are zero after its last end.
    """
    release_s, work, alone_s = columns(world.jobs)
    ends_s = [math.ceil(pieces[-1].end_s) for pieces in schedule.pieces.values()]
    even = np.rint(np.linspace(release_s.min(), max(ends_s), MEAN_INTERVALS // 2 + 1))
    busy = _quantiles(np.union1d(release_s, ends_s), MEAN_INTERVALS // 2)
    grid = Grid(np.union1d(even, busy))
    windows = zip(world.curves, work.tolist(), release_s.tolist(), (release_s + alone_s).tolist())
    tasks = [Task(*one) for one in windows]
    whole = world.gpus * grid.length_s
    master = Master(grid, world.gpus, len(tasks), Aim.LEAST_WAITING)
    master.add([(row, _as_plan(world, schedule, row, grid)) for row in range(len(tasks))])
    solution = master.solve()
    best, price, used = -math.inf, solution.price, solution.price
    for _ in range(ROUNDS_OF_MEAN):
        plans = [_best_end(task, grid, price) for task in tasks]
        proved = sum(plan.cost for plan in plans) - float(whole @ price)
        if proved > best:
            best, used = proved, price
            worth = np.array([plan.worth for plan in plans])
            yield best, Proof(grid.edges_s, price, worth)
        master.add(list(enumerate(plans)))
        solution = master.solve()
        if best >= solution.value * (1 - CLOSE_MEAN):
            return
        price = SMOOTHING * used + (1 - SMOOTHING) * solution.price


def several_worths(world: World, proof: Proof) -> Proof:
    """The prices with what an iteration of each job is worth for those ends that may be its best.

    The end that is best by the worths so far is priced anew, until its price is what they say.
    """
    release_s, work, alone_s = columns(world.jobs)
    grid, worths = Grid(proof.edges_s), list[F64]()
    for row, curve in enumerate(world.curves):
        task = Task(curve, float(work[row]), float(release_s[row]), float(release_s[row] + alone_s[row]))
        known = [float(proof.worth[row])]
        for _ in range(MOST_WORTHS):
            end_s, said = _least_end(task, grid, proof.price, np.array(known))
            plan = cheapest(Task(curve, task.work, task.start_s, end_s), grid, proof.price)
            if end_s - task.start_s + plan.cost <= said * (1 + CLOSE_MEAN / 10) or plan.worth in known:
                break
            known.append(plan.worth)
        worths.append(np.array(known))
    return Proof(proof.edges_s, proof.price, proof.worth, tuple(worths))


def _least_end(task: Task, grid: Grid, price: F64, worths: F64) -> tuple[float, float]:
    """The end of a task, not before `task.end_s`, that costs the least by some worths, and what it costs with its time."""
    first, inside_s = grid.window(task.start_s, math.inf)
    profit = np.zeros((len(worths), len(inside_s)))
    for rate, gpu_s in zip(task.curve.rate.tolist(), task.curve.gpu_s.tolist()):
        profit += rate * np.maximum(0.0, worths[:, None] - price[first:] * gpu_s)
    earned = np.cumsum(profit * inside_s, axis=1)
    edges_s = grid.edges_s[first + 1 :]
    after = int(np.searchsorted(edges_s, task.end_s, "right"))  # the edge after the earliest end
    owes = worths[:, None] * task.work - earned[:, after:]
    sooner = (
        np.zeros(len(worths)) if after == len(edges_s) else profit[:, after] * (edges_s[after] - task.end_s)
    )
    soonest = worths * task.work - earned[:, min(after, len(edges_s) - 1)] + sooner
    ends_s = np.append(task.end_s, edges_s[after:])
    costs = ends_s - task.start_s
    costs = costs + np.maximum(0.0, np.append(soonest[:, None], owes, axis=1).max(axis=0))
    at = int(np.argmin(costs))
    return float(ends_s[at]), float(costs[at])


def _best_end(task: Task, grid: Grid, price: F64) -> TaskPlan:
    """The cheapest plan of a task with the end at which it and the time until then cost the least, nearly.

    task: its end is the earliest possible.
    """
    first, _ = grid.window(task.start_s, math.inf)
    top = float(price[first:].max(initial=0.0) * task.curve.gpu_s[-1])
    worths = np.geomspace(top / 200, top, 40) if top > 0 else np.zeros(1)
    end_s, _ = _least_end(task, grid, price, worths)
    made = []
    for end in {task.end_s, end_s}:
        plan = cheapest(Task(task.curve, task.work, task.start_s, end), grid, price)
        wait_s = end - task.start_s
        made.append(TaskPlan(plan.first, plan.gpu_s, plan.worth, plan.cost + wait_s, wait_s))
    return min(made, key=lambda plan: plan.cost)


def _as_plan(world: World, schedule: Schedule, row: int, grid: Grid) -> TaskPlan:
    """A job's pieces as a plan: GPU-seconds by interval, and the time until its end."""
    edges, gpu_s, pieces = grid.edges_s, np.zeros(len(grid.length_s)), schedule.pieces[row]
    for piece in pieces:
        inside_s = np.maximum(0.0, np.minimum(edges[1:], piece.end_s) - np.maximum(edges[:-1], piece.start_s))
        gpu_s += inside_s * piece.gpus
    return TaskPlan(0, gpu_s, 0.0, 0.0, pieces[-1].end_s - world.jobs[row].release)


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
    at = np.searchsorted(grid.edges_s, finer.edges_s[:-1], "right") - 1
    return price[np.minimum(at, len(price) - 1)]
