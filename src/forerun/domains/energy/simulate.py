"""The core loops: recurrences one after another, and groups whose submissions overlap.

Both are made of the same step, one attempt: ask the policy, draw a recorded path, stop at the target, the bound or
the epoch limit, and tell the policy.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol

import numpy as np

from forerun.domains.energy.failures import (
    DefaultDidNotReach,
    DefaultMissing,
    Livelock,
    TargetNotInTrace,
    TriesExhausted,
)
from forerun.domains.energy.model import (
    MAX_TRIES,
    EndedBy,
    GroupRow,
    Knobs,
    Measured,
    OracleView,
    Outcome,
    Profile,
    Rules,
    Standing,
    View,
)
from forerun.domains.energy.policy import KnobPolicy, KnobRecipe, Setting
from forerun.domains.energy.workload import Workload
from forerun.errors import PolicyError, Problem
from forerun.rng import stream

Stage = Literal["explore", "sample", "concurrent", "retry"]

#: what the reference charges an attempt that never ran, in bounds
NEVER_RAN_PENALTY: Final = 100.0
#: a quotient this close below a whole number is one (rule B4)
WHOLE_TOLERANCE: Final = 1e-9


class Paths(Protocol):
    """Which recorded path an attempt follows."""

    def draw(self, batch_size: int, count: int) -> int:
        """An index below `count`."""


class OneStream:
    """The reference's stream: one generator for all sizes, in the order of attempts."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def draw(self, batch_size: int, count: int) -> int:
        """The next bounded integer; nothing is drawn where there is one path."""
        return int(self.rng.integers(count))


class StreamPerSize:
    """One stream a batch size, so that policies compared at one seed meet the same luck at the same size."""

    def __init__(self, seed: int, job: str) -> None:
        self._seed, self._job = seed, job
        self._streams: dict[int, np.random.Generator] = {}

    def draw(self, batch_size: int, count: int) -> int:
        """The index of the k-th attempt at this size."""
        if batch_size not in self._streams:
            self._streams[batch_size] = stream(self._seed, "path", self._job, batch_size)
        return int(self._streams[batch_size].integers(count))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One line of the history: who, when, and how it ended. Energy and time are scaled by `ratio` where shown."""

    recurrence: int
    attempt: int
    outcome: Outcome
    stage: Stage
    incumbent: int
    start_s: float
    end_s: float
    ratio: float = 1.0


@dataclass
class Run:
    """All attempts in the order they were learned, and the oddities that fired, by letter and number."""

    attempts: list[Attempt] = field(default_factory=list)
    fired: Counter[str] = field(default_factory=Counter)

    def history(self) -> list[Attempt]:
        """The attempts that ran."""
        return [attempt for attempt in self.attempts if attempt.outcome.ended_by != "never_ran"]


@dataclass(frozen=True)
class Drift:
    """From this recurrence on, epochs(b) are multiplied by (b / pivot) ** exponent."""

    from_recurrence: int
    exponent: float
    pivot: float


class Shop:
    """What stands between a policy and the recorded world in one run: bounds, paths, counts.

    `least_j` is the reference's idea of the lowest cost so far; `standing` what finished attempts say a size;
    `incumbent` the size with the lowest mean cost so far (0 before any reached) and `lowest_j` that mean.
    """

    def __init__(
        self,
        workload: Workload,
        recipe: KnobRecipe,
        *,
        eta: float,
        beta: float,
        rules: Rules,
        seed: int,
        policy_seed: int | None = None,
        drift: Sequence[Drift] = (),
    ) -> None:
        self.workload, self.eta, self.beta, self.rules = workload, eta, beta, rules
        self.run = Run()
        self.sizes = tuple(workload.sizes.tolist())
        rng = np.random.default_rng(seed if policy_seed is None else policy_seed)
        if rules.named_streams:
            rng = stream(seed if policy_seed is None else policy_seed, "policy", str(workload.job))
        setting = Setting(
            job=workload.job,
            sizes=self.sizes,
            eta=eta,
            max_power_w=workload.max_power_w,
            rules=rules,
            rng=rng,
            oracle=OracleView(workload.expected(eta))
            if getattr(recipe, "omniscient", False)
            else OracleView(),
            fired=self.run.fired,
        )
        self.policy: KnobPolicy = recipe.build(setting)
        self.paths: Paths = StreamPerSize(seed, str(workload.job)) if rules.named_streams else OneStream(seed)
        self.least_j = math.inf
        self.best = workload.job.default_batch_size or 0
        self.standing = {size: Standing() for size in self.sizes}
        self.incumbent, self.lowest_j = 0, math.inf
        self.finished: list[Outcome] = []
        self._limits = {size: workload.limits_of(at) for at, size in enumerate(self.sizes)}
        self._phases = [(0, workload)]
        for change in drift:
            moved = self._phases[-1][1].drifted(change.exponent, change.pivot)
            self._phases.append((change.from_recurrence, moved))
        for oddity, _ in workload.notes:
            self.run.fired[oddity] += 1

    @property
    def bound_j(self) -> float:
        """The cost above which an attempt is stopped, unless the policy says otherwise."""
        if not self.rules.bound_by_mean:
            return self.beta * self.least_j
        return self.beta * self.lowest_j if self.lowest_j < math.inf else math.inf

    def world(self, recurrence: int) -> Workload:
        """The job as it is at this recurrence."""
        world = self._phases[0][1]
        for first, changed in self._phases[1:]:
            if recurrence >= first:
                world = changed
        return world

    def view(self, recurrence: int, attempt: int, in_flight: tuple[int, ...] = ()) -> View:
        """What the policy may know now."""
        return View(
            job=self.workload.job,
            sizes=self.sizes,
            limits_w=self._limits,
            eta=self.eta,
            max_power_w=self.workload.max_power_w,
            recurrence=recurrence,
            attempt=attempt,
            in_flight=in_flight,
            bound_j=self.bound_j,
            best=self.best,
            standing=self.standing,
            finished=self.finished,
        )

    def start(self, view: View) -> tuple[Outcome, Stage]:
        """Ask the policy, run the attempt it wants, and say what the attempt was for."""
        knobs = self.policy.choose(view)
        first: Stage = "explore" if knobs.exploring else "concurrent" if view.in_flight else "sample"
        return self._run(knobs, view), "retry" if view.attempt else first

    def _run(self, knobs: Knobs, view: View) -> Outcome:
        at = self.workload.size_index(knobs.batch_size)
        where = f"{view.job} recurrence {view.recurrence} attempt {view.attempt}"
        if at < 0:
            offered = ", ".join(map(str, self.sizes))
            raise PolicyError(Problem(where, f"batch size {knobs.batch_size} is not on offer: {offered}"))
        bound = view.bound_j if knobs.bound_j is None else knobs.bound_j
        world = self.world(view.recurrence)
        if not world.count[at].any():
            what = f"no run of batch size {knobs.batch_size} records the target"
            raise TargetNotInTrace(Problem(where, what))
        if isinstance(knobs.limit, Profile):
            return self._profiled(world, at, knobs, knobs.limit, bound, view, where)
        return self._plain(world, at, knobs, knobs.limit, bound, where)

    def _plain(
        self, world: Workload, at: int, knobs: Knobs, limit_w: float, bound: float, where: str
    ) -> Outcome:
        """An attempt at a known limit."""
        target, epoch_s, epoch_j = self._path(world, at, limit_w, where)
        cap = self._cap(bound, self.eta * epoch_j + ((1 - self.eta) * world.top_limit_w[at]) * epoch_s)
        if cap == 0:
            return self._never_ran(knobs.batch_size, limit_w, bound)
        epochs, ended_by = _ended(target, cap, world.job.max_epochs)
        return self._outcome(
            knobs.batch_size, limit_w, epochs, epoch_j * epochs, epoch_s * epochs, bound, ended_by
        )

    def _profiled(
        self, world: Workload, at: int, knobs: Knobs, profile: Profile, bound: float, view: View, where: str
    ) -> Outcome:
        """An attempt whose first epoch is split over limits; the best of them carries on."""
        rates = world.top_limit_w[at]
        first_s, first_j = float(world.split_s[at]), float(world.split_j[at])
        unknown = [limit for limit in profile.limits_w if limit not in world.limits_of(at)]
        if unknown or not profile.limits_w:
            raise PolicyError(
                Problem(where, f"cannot profile {unknown or 'no limit at all'} at {knobs.batch_size}")
            )
        if len(profile.limits_w) < len(world.limits_of(at)):
            chosen = [world.limit_index(limit) for limit in profile.limits_w]
            first_s = float(world.time_mean_s[at, chosen].mean())
            first_j = float((world.time_mean_s[at, chosen] * world.power_mean_w[at, chosen]).mean())
        first_cost = self.eta * first_j + ((1 - self.eta) * rates) * first_s
        charged = self.rules.profiling_charged
        if charged and first_cost > bound * (1 + WHOLE_TOLERANCE):
            return self._never_ran(knobs.batch_size, profile.limits_w[0], bound)
        measured = world.measured(at, profile.limits_w)
        limit_w = self.policy.profiled(view, measured)
        target, epoch_s, epoch_j = self._path(world, at, limit_w, where)
        cost = self.eta * epoch_j + ((1 - self.eta) * rates) * epoch_s
        if charged:
            cap = min(1 + self._cap(bound - first_cost, cost), world.job.max_epochs)
        else:
            cap = self._cap(bound, cost)
            self.run.fired["B7"] += bound < math.inf
        if cap == 0:
            return self._never_ran(knobs.batch_size, limit_w, bound)
        epochs, ended_by = _ended(target, cap, world.job.max_epochs)
        if epochs == 0:  # a bound that is not a number: stopped before the first epoch
            first_j = first_s = epoch_j = epoch_s = 0.0
        return self._outcome(
            knobs.batch_size,
            limit_w,
            epochs,
            first_j + epoch_j * (epochs - 1),
            first_s + epoch_s * (epochs - 1),
            bound,
            ended_by,
            measured=measured,
            profiling_j=first_j,
            profiling_s=first_s,
        )

    def _path(self, world: Workload, at: int, limit_w: float, where: str) -> tuple[int, float, float]:
        """Draw a path: epochs to target (0 never), seconds and joules of an epoch."""
        p = world.limit_index(limit_w)
        count = int(world.count[at, p]) if p >= 0 else 0
        if not count:
            known = ", ".join(f"{limit:g}" for limit in world.limits_of(at))
            raise PolicyError(
                Problem(where, f"{limit_w:g} W was not measured at batch size {world.sizes[at]}: {known}")
            )
        row = int(world.start[at, p]) + self.paths.draw(int(world.sizes[at]), count)
        return int(world.epochs[row]), float(world.epoch_s[row]), float(world.epoch_j[row])

    def _cap(self, bound: float, epoch_cost: float) -> int:
        """How many epochs fit under the bound."""
        most = self.workload.job.max_epochs
        if bound == math.inf:
            return most
        if bound != bound:  # zero times an infinite cost: the reference then stops at once
            return -1
        plain, tolerant = bound // epoch_cost, math.floor((bound / epoch_cost) * (1 + WHOLE_TOLERANCE))
        self.run.fired["B4"] += plain != tolerant and plain < most
        return int(min(tolerant if self.rules.bound_tolerant else plain, most))

    def _never_ran(self, batch_size: int, limit_w: float, bound: float) -> Outcome:
        self.run.fired["B1"] += 1
        return Outcome(batch_size, limit_w, 0, 0.0, 0.0, 0.0, bound, bound, "never_ran")

    def _outcome(
        self,
        batch_size: int,
        limit_w: float,
        epochs: int,
        energy_j: float,
        time_s: float,
        bound: float,
        ended_by: EndedBy,
        *,
        measured: Measured | None = None,
        profiling_j: float = 0.0,
        profiling_s: float = 0.0,
    ) -> Outcome:
        cost = self.eta * energy_j + ((1 - self.eta) * self.workload.max_power_w) * time_s
        return Outcome(
            batch_size=batch_size,
            limit_w=limit_w,
            epochs=epochs,
            energy_j=energy_j,
            time_s=time_s,
            cost_j=cost,
            observed_j=cost,
            bound_j=bound,
            ended_by=ended_by,
            measured=measured,
            profiling_j=profiling_j,
            profiling_s=profiling_s,
        )

    def learn(self, outcome: Outcome) -> None:
        """Tell the policy and count."""
        self.finished.append(outcome)
        standing = self.standing[outcome.batch_size]
        standing.reached += outcome.reached
        standing.failed += not outcome.reached
        # An attempt that never ran would have cost at least its bound.
        standing.spent_j += outcome.cost_j if outcome.ended_by != "never_ran" else outcome.bound_j
        if outcome.batch_size == self.incumbent or standing.mean_j < self.lowest_j:
            means = {size: each.mean_j for size, each in self.standing.items() if each.reached}
            if means:
                self.incumbent = min(means, key=means.__getitem__)
                self.lowest_j = means[self.incumbent]
        self.policy.learn(outcome)

    def failed_at_first(self, outcome: Outcome, recurrence: int) -> DefaultDidNotReach:
        """The error for a first attempt that failed, naming the size that ran."""
        job = self.workload.job
        blamed = (
            outcome.batch_size if self.rules.blame_what_ran else job.default_batch_size or outcome.batch_size
        )
        others = ", ".join(str(size) for size in self.sizes if size != outcome.batch_size)
        what = (
            f"batch size {blamed} did not reach the target within {job.max_epochs} epochs; others: {others}"
        )
        return DefaultDidNotReach(Problem(f"{job} recurrence {recurrence}", what))

    def exhausted(self, recurrence: int) -> TriesExhausted:
        """The error for a submission that failed as often as it may."""
        last = self.finished[-1]
        able = ", ".join(str(size) for size, standing in self.standing.items() if standing.reached) or "none"
        what = (
            f"{MAX_TRIES} attempts failed, the last at batch size {last.batch_size} under a bound of "
            f"{last.bound_j:g} J; sizes that have reached the target so far: {able}"
        )
        return TriesExhausted(Problem(f"{self.workload.job} recurrence {recurrence}", what))


def _ended(target: int, cap: int, max_epochs: int) -> tuple[int, EndedBy]:
    if 0 < target <= cap:
        return target, "reached"
    return max(cap, 0), "max_epochs" if cap == max_epochs else "bound"


def sequence(shop: Shop, recurrences: int) -> Run:
    """Recurrences one after another; each ends with its first attempt that reaches the target.

    Raises DefaultDidNotReach, TriesExhausted, or what the policy raises.
    """
    rules, clock_s = shop.rules, 0.0
    for recurrence in range(recurrences):
        spent_j = 0.0
        for attempt in range(MAX_TRIES):
            incumbent = shop.incumbent
            outcome, stage = shop.start(shop.view(recurrence, attempt))
            if outcome.ended_by == "never_ran" and not rules.never_ran_censored:
                outcome = _observed(outcome, (NEVER_RAN_PENALTY * shop.beta) * shop.least_j)
            spent_j += outcome.cost_j
            shop.learn(outcome)
            line = Attempt(recurrence, attempt, outcome, stage, incumbent, clock_s, clock_s + outcome.time_s)
            shop.run.attempts.append(line)
            clock_s += outcome.time_s
            if outcome.reached:
                break
            if recurrence == 0 and outcome.ended_by != "never_ran":
                shop.run.fired["B18"] += 1
                shop.run.fired["B16"] += outcome.batch_size != shop.workload.job.default_batch_size
                if not rules.first_may_retry:
                    raise shop.failed_at_first(outcome, recurrence)
        else:
            raise shop.exhausted(recurrence)
        shop.run.fired["B19"] += attempt > 0 and spent_j < shop.least_j
        shop.least_j = min(shop.least_j, outcome.cost_j if rules.least_by_attempt else spent_j)
        shop.run.fired["B5"] += outcome.cost_j < shop.standing[outcome.batch_size].mean_j
    return shop.run


def _observed(outcome: Outcome, cost_j: float) -> Outcome:
    """The same outcome as a learner is told it cost something else."""
    return replace(outcome, observed_j=cost_j)


def group(shop: Shop, rows: Sequence[GroupRow]) -> Run:
    """Submissions at the instants of a group trace, sorted by start; those that overlap do not wait for each other.

    An attempt is decided when it is launched and learned when it ends; ends come from the trace alone. A failed
    attempt is launched again at its end, for the same length.
    Raises Livelock or TriesExhausted where retries do not end, or what the policy raises.
    """
    if any(later.start_s < earlier.start_s for earlier, later in itertools.pairwise(rows)):
        raise AssertionError("group rows are sorted by their reader")
    flights: list[tuple[float, int, Attempt]] = []  # (end, launch number, attempt): a heap
    launched = reaped = 0
    patience = 1_000 + 100 * len(rows)
    if not shop.best:
        raise DefaultMissing(
            Problem("$.job.default_batch_size", "a group starts from a default batch size; none is given")
        )

    def launch(recurrence: int, attempt: int, start_s: float, end_s: float, ratio: float) -> None:
        nonlocal launched
        in_flight = tuple(flight.outcome.batch_size for _, _, flight in flights)
        incumbent = shop.incumbent
        outcome, stage = shop.start(shop.view(recurrence, attempt, in_flight))
        if outcome.ended_by == "never_ran" and not shop.rules.never_ran_censored:
            outcome = _observed(outcome, outcome.cost_j)
        line = Attempt(recurrence, attempt, outcome, stage, incumbent, start_s, end_s, ratio)
        heapq.heappush(flights, (end_s, launched, line))
        launched += 1

    def reap(now_s: float) -> None:
        nonlocal reaped
        while flights and flights[0][0] <= now_s:
            end_s, _, line = heapq.heappop(flights)
            reaped += 1
            if reaped > patience:
                raise _livelock(shop, line, reaped)
            shop.learn(line.outcome)
            shop.run.attempts.append(line)
            if line.outcome.reached:
                if line.outcome.cost_j < shop.least_j:
                    shop.least_j, shop.best = line.outcome.cost_j, line.outcome.batch_size
                continue
            if line.attempt + 1 == MAX_TRIES:
                shop.run.fired["B2"] += 1
                if shop.rules.retries_limited:
                    raise shop.exhausted(line.recurrence)
            launch(line.recurrence, line.attempt + 1, end_s, end_s + (end_s - line.start_s), line.ratio)

    for recurrence, row in enumerate(rows):
        reap(row.start_s)
        launch(recurrence, 0, row.start_s, row.end_s, row.runtime_ratio)
    reap(math.inf)
    return shop.run


def _livelock(shop: Shop, line: Attempt, reaped: int) -> Livelock:
    able = ", ".join(str(size) for size, standing in shop.standing.items() if standing.reached) or "none"
    what = (
        f"{reaped} attempts and no end: batch size {line.outcome.batch_size} is retried under a bound of "
        f"{line.outcome.bound_j:g} J that it cannot meet; sizes that have reached the target: {able}"
    )
    return Livelock(Problem(f"{shop.workload.job} recurrence {line.recurrence}", what))
