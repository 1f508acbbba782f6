"""One simulation of a recurring job under a policy: bounds, recorded paths, counts, and single attempts.

An attempt: ask the policy for its knobs, draw a recorded path, and stop at the target, the bound or the epoch limit. How
attempts follow each other is in `engine.loops`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

import numpy as np

from forerun.core.errors import PolicyError, Problem
from forerun.core.rng import stream
from forerun.energy.inputs.workload import Workload
from forerun.energy.policy import KnobPolicy, KnobSpec, Setting
from forerun.energy.policy.failures import DefaultDidNotReach, TargetNotInTrace, TriesExhausted
from forerun.energy.policy.rules import Rules
from forerun.energy.policy.view import (
    AttemptOutcome,
    EndedBy,
    Knobs,
    OracleView,
    ProfileLimits,
    Standing,
    View,
)
from forerun.energy.scenario import Drift

#: attempts of one submission, as in the published simulator
MAX_TRIES: Final = 20
#: a quotient this close below a whole number is one (known bug B4)
WHOLE_TOLERANCE: Final = 1e-9
#: what an attempt was for
Stage = Literal["explore", "sample", "concurrent", "retry"]


class Paths(Protocol):
    """Which recorded path an attempt follows."""

    def draw(self, batch_size: int, count: int) -> int:
        """An index below `count`."""


class OneStream:
    """The published simulator's stream: one generator for all sizes, in the order of attempts."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def draw(self, batch_size: int, count: int) -> int:
        """The next bounded integer; nothing is drawn where there is one path."""
        return int(self.rng.integers(count))


class StreamPerSize:
    """One stream a batch size: policies that are compared at one seed draw the same paths at the same size."""

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
    """One attempt of the history.

    recurrence, attempt: which one, from 0. outcome: how it ended. stage: what it was for. incumbent: the batch size with the
    lowest mean cost when it started (0: none yet). start_s, end_s: when it ran [s]; in a group as in its trace. ratio:
    scales energy and time in tables (default 1).
    """

    recurrence: int
    attempt: int
    outcome: AttemptOutcome
    stage: Stage
    incumbent: int
    start_s: float
    end_s: float
    ratio: float = 1.0


@dataclass
class History:
    """What happened in a run.

    attempts: in the order in which the policy learned of them. known_bugs: how often each known bug was met, by its key in
    `KNOWN_BUGS`.
    """

    attempts: list[Attempt] = field(default_factory=list)
    known_bugs: Counter[str] = field(default_factory=Counter)


class Simulation:
    """The state of one run: what stands between a policy and the recorded paths.

    workload: the job. spec: the policy. eta: weight of energy against time. beta: the bound, in lowest costs. rules: which
    known bugs are fixed. seed: of the paths and of the policy. drift: changes of the job (default none).

    `least_j` is the lowest cost so far as the published simulator counts it and `best` its batch size. `standing` counts
    finished attempts a size; `incumbent` is the size with the lowest mean cost (0 before any reached), `lowest_j` that
    mean.
    """

    def __init__(
        self,
        workload: Workload,
        spec: KnobSpec,
        *,
        eta: float,
        beta: float,
        rules: Rules,
        seed: int,
        drift: Sequence[Drift] = (),
    ) -> None:
        self.workload, self.eta, self.beta, self.rules = workload, eta, beta, rules
        self.history = History()
        self.sizes = tuple(workload.sizes.tolist())
        named = rules.named_streams
        rng = stream(seed, "policy", str(workload.job)) if named else np.random.default_rng(seed)
        setting = Setting(
            job=workload.job,
            sizes=self.sizes,
            eta=eta,
            max_power_w=workload.max_power_w,
            rules=rules,
            rng=rng,
            oracle=OracleView(workload.expected(eta)) if spec.omniscient else OracleView(),
            known_bugs=self.history.known_bugs,
        )
        self.policy: KnobPolicy = spec.build(setting)
        self.paths: Paths = StreamPerSize(seed, str(workload.job)) if named else OneStream(seed)
        self.least_j = math.inf
        self.best = workload.job.default_batch_size or 0
        self.standing = {size: Standing() for size in self.sizes}
        self.incumbent, self.lowest_j = 0, math.inf
        self.finished: list[AttemptOutcome] = []
        self._limits = {size: workload.limits_of(at) for at, size in enumerate(self.sizes)}
        self._phases = [(0, workload)]
        for change in drift:
            moved = self._phases[-1][1].drifted(change.exponent, change.pivot)
            self._phases.append((change.from_recurrence, moved))
        for known_bug, _ in workload.notes:
            self.history.known_bugs[known_bug] += 1

    @property
    def bound_j(self) -> float:
        """The cost above which an attempt is stopped, unless the policy says otherwise."""
        if not self.rules.bound_by_mean:
            return self.beta * self.least_j
        return self.beta * self.lowest_j if self.lowest_j < math.inf else math.inf

    def job_at(self, recurrence: int) -> Workload:
        """The job as it is at this recurrence."""
        workload = self._phases[0][1]
        for first, changed in self._phases[1:]:
            if recurrence >= first:
                workload = changed
        return workload

    def view(self, recurrence: int, attempt: int, in_flight: tuple[int, ...] = ()) -> View:
        """What the policy may know now.

        recurrence, attempt: which one is to start, from 0. in_flight: batch sizes that are running (default: none).
        """
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

    def start(self, view: View) -> tuple[AttemptOutcome, Stage]:
        """Ask the policy, run the attempt it wants, and say what the attempt was for."""
        knobs = self.policy.choose(view)
        first: Stage = "explore" if knobs.exploring else "concurrent" if view.in_flight else "sample"
        return self._run(knobs, view), "retry" if view.attempt else first

    def _run(self, knobs: Knobs, view: View) -> AttemptOutcome:
        """Run the attempt that the policy wants. Raises PolicyError for impossible knobs.

        With a profile the first epoch is split over its limits, and the best of them carries on.
        """
        size = knobs.batch_size
        at = self.workload.size_index(size)
        where = f"{view.job} recurrence {view.recurrence} attempt {view.attempt}"
        if at < 0:
            offered = ", ".join(map(str, self.sizes))
            raise PolicyError(Problem(where, f"batch size {size} is not on offer: {offered}"))
        bound = view.bound_j if knobs.bound_j is None else knobs.bound_j
        workload = self.job_at(view.recurrence)
        if not workload.count[at].any():
            raise TargetNotInTrace(Problem(where, f"no run of batch size {size} records the target"))
        price = (1 - self.eta) * workload.top_limit_w[at]
        first_s = first_j = first_cost = 0.0
        measured, charged = None, False
        if isinstance(knobs.limit, ProfileLimits):
            first_s, first_j = self._first_epoch(workload, at, knobs.limit, where)
            first_cost = self.eta * first_j + price * first_s
            charged = self.rules.profiling_charged
            if charged and first_cost > bound * (1 + WHOLE_TOLERANCE):
                return self._never_ran(size, knobs.limit.limits_w[0], bound)
            measured = workload.measured(at, knobs.limit.limits_w)
            limit_w = self.policy.profiled(view, measured)
        else:
            limit_w = knobs.limit
        target, epoch_s, epoch_j = self._path(workload, at, limit_w, where)
        cost = self.eta * epoch_j + price * epoch_s
        if charged:
            cap = min(1 + self._cap(bound - first_cost, cost), workload.job.max_epochs)
        else:
            cap = self._cap(bound, cost)
            if measured is not None:
                self.history.known_bugs["B7"] += bound < math.inf
        if cap == 0:
            return self._never_ran(size, limit_w, bound)
        epochs, ended_by = _ended(target, cap, workload.job.max_epochs)
        if measured is None:
            energy_j, time_s = epoch_j * epochs, epoch_s * epochs
        elif epochs:
            energy_j, time_s = first_j + epoch_j * (epochs - 1), first_s + epoch_s * (epochs - 1)
        else:  # a bound that is not a number: stopped before the first epoch
            energy_j = time_s = first_j = first_s = 0.0
        spent = self.eta * energy_j + ((1 - self.eta) * self.workload.max_power_w) * time_s
        return AttemptOutcome(
            batch_size=size,
            limit_w=limit_w,
            epochs=epochs,
            energy_j=energy_j,
            time_s=time_s,
            cost_j=spent,
            observed_j=spent,
            bound_j=bound,
            ended_by=ended_by,
            measured=measured,
            profiling_j=first_j,
            profiling_s=first_s,
        )

    def _first_epoch(
        self, workload: Workload, at: int, profile: ProfileLimits, where: str
    ) -> tuple[float, float]:
        """Seconds and joules of an epoch that is split over the limits of a profile.

        at: index of the batch size. where: the attempt, for messages. Raises PolicyError for limits that were not
        measured.
        """
        offered = workload.limits_of(at)
        unknown = [limit for limit in profile.limits_w if limit not in offered]
        if unknown or not profile.limits_w:
            what = f"cannot profile {unknown or 'no limit at all'} at {workload.sizes[at]}"
            raise PolicyError(Problem(where, what))
        if len(profile.limits_w) >= len(offered):
            return float(workload.split_s[at]), float(workload.split_j[at])
        chosen = [workload.limit_index(limit) for limit in profile.limits_w]
        seconds, watts = workload.time_mean_s[at, chosen], workload.power_mean_w[at, chosen]
        return float(seconds.mean()), float((seconds * watts).mean())

    def _path(self, workload: Workload, at: int, limit_w: float, where: str) -> tuple[int, float, float]:
        """Draw a path: epochs to the target (0 never), seconds and joules of an epoch.

        at: index of the batch size. where: the attempt, for messages. Raises PolicyError for a limit that was not
        measured.
        """
        p = workload.limit_index(limit_w)
        count = int(workload.count[at, p]) if p >= 0 else 0
        if not count:
            known = ", ".join(f"{limit:g}" for limit in workload.limits_of(at))
            raise PolicyError(
                Problem(where, f"{limit_w:g} W was not measured at batch size {workload.sizes[at]}: {known}")
            )
        row = int(workload.start[at, p]) + self.paths.draw(int(workload.sizes[at]), count)
        return int(workload.epochs[row]), float(workload.epoch_s[row]), float(workload.epoch_j[row])

    def _cap(self, bound: float, epoch_cost: float) -> int:
        """How many epochs fit under the bound, at most those of the job; -1 for a bound that is not a number."""
        most = self.workload.job.max_epochs
        if bound == math.inf:
            return most
        if bound != bound:  # zero times an infinite cost: the published simulator then stops at once
            return -1
        plain, tolerant = bound // epoch_cost, math.floor((bound / epoch_cost) * (1 + WHOLE_TOLERANCE))
        self.history.known_bugs["B4"] += plain != tolerant and plain < most
        return int(min(tolerant if self.rules.bound_tolerant else plain, most))

    def _never_ran(self, batch_size: int, limit_w: float, bound: float) -> AttemptOutcome:
        """The outcome of an attempt whose first epoch does not fit its bound."""
        self.history.known_bugs["B1"] += 1
        return AttemptOutcome(batch_size, limit_w, 0, 0.0, 0.0, 0.0, bound, bound, "never_ran")

    def learn(self, outcome: AttemptOutcome) -> None:
        """Count a finished attempt and let the policy learn from it."""
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

    def failed_at_first(self, outcome: AttemptOutcome, recurrence: int) -> DefaultDidNotReach:
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
    """Epochs run, and why the attempt ended.

    target: epochs to the target (0: never). cap: epochs that fit under the bound.
    """
    if 0 < target <= cap:
        return target, "reached"
    return max(cap, 0), "max_epochs" if cap == max_epochs else "bound"
