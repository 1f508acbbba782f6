"""Policies of recurring jobs: who chooses batch size and power limit, and how a file names it.

There are three kinds: a batch size policy, which works beside a limit policy, and a policy for both knobs. A policy
spec is the frozen parameters that a scenario names; `build(setting)` makes the policy of one run, which sees a `View`,
decides, and learns from outcomes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from forerun.core.errors import Problem
from forerun.core.registry import Registry
from forerun.core.scenario.spec import NamedSpec
from forerun.energy.policy.failures import BestNotProfiled, DefaultMissing, DefaultNotInRange
from forerun.energy.policy.rules import Rules
from forerun.energy.policy.view import (
    AttemptOutcome,
    Job,
    Knobs,
    MeasuredLimits,
    OracleView,
    ProfileLimits,
    View,
)

#: batch size, mean of the belief about its cost [J], its standard deviation [J], costs it rests on
Belief = tuple[int, float, float, int]


@dataclass(frozen=True)
class Setting:
    """What a policy is built for.

    job: the job. sizes: batch sizes on offer, ascending. eta: weight of energy against time. max_power_w: price of a second
    in costs [W]. rules: which known bugs are fixed. rng: the policy's own random stream. oracle: what only an oracle may
    see (default: nothing). known_bugs: where a policy counts the known bugs that it meets (default: a new counter).
    """

    job: Job
    sizes: tuple[int, ...]
    eta: float
    max_power_w: float
    rules: Rules
    rng: np.random.Generator
    oracle: OracleView = field(default_factory=OracleView)
    known_bugs: Counter[str] = field(default_factory=Counter)

    def default(self) -> int:
        """The default batch size. Raises DefaultMissing or DefaultNotInRange if it cannot be run."""
        size = self.job.default_batch_size
        if not size:
            what = f"no default batch size is given; measured: {', '.join(map(str, self.sizes))}"
            raise DefaultMissing(Problem("$.job.default_batch_size", what))
        if size not in self.sizes:
            raise DefaultNotInRange.of(size, self.sizes)
        return size


class BatchSizePolicy(Protocol):
    """Chooses batch sizes."""

    @property
    def exploring(self) -> bool:
        """Whether the last choice was made to learn."""

    @property
    def bound_j(self) -> float | None:
        """The bound that this policy wants [J], None for the simulator's."""

    def choose(self, view: View) -> int:
        """The batch size of the attempt that is to start."""

    def learn(self, outcome: AttemptOutcome) -> None:
        """An attempt has ended."""


class LimitPolicy(Protocol):
    """Chooses power limits."""

    def choose(self, view: View, batch_size: int) -> float | ProfileLimits:
        """The limit for this batch size [W], or a profile to run first."""

    def profiled(self, measured: MeasuredLimits) -> None:
        """A profile was run. A policy that profiles nothing leaves this as it is."""
        return


class KnobPolicy(Protocol):
    """Chooses batch size, limit and bound together."""

    def choose(self, view: View) -> Knobs:
        """The knobs of the attempt that is to start."""

    def profiled(self, view: View, measured: MeasuredLimits) -> float:
        """The limit for the rest of the attempt, now that a profile was run [W]."""
        raise AssertionError(f"{type(self).__name__} profiles nothing")

    def learn(self, outcome: AttemptOutcome) -> None:
        """An attempt has ended. A policy that learns nothing leaves this as it is."""
        return


@runtime_checkable
class Believes(Protocol):
    """A policy whose beliefs about costs the result shows."""

    def beliefs(self) -> list[Belief]:
        """What it believes of each batch size."""


@runtime_checkable
class KeepsLimits(Protocol):
    """A policy that profiles limits, which the result shows.

    best: the limit that it chose for a batch size [W]. measured: what its profile measured.
    """

    best: dict[int, float]
    measured: dict[int, MeasuredLimits]


class MeasuredSpec(NamedSpec, frozen=True, kw_only=True):
    """A policy whose parameters may name what must have been measured."""

    def unmeasured(self, limits_w: Mapping[int, Sequence[float]]) -> list[tuple[str, str]]:
        """(parameter, what is wrong) of each that names what was not measured. limits_w: by batch size [W]."""
        return []


def not_measured(name: str, value: float, known: Iterable[float]) -> tuple[str, str]:
    """The problem of a parameter whose value is none of those measured."""
    return name, f"{value:g} was not measured; known: {', '.join(f'{one:g}' for one in known)}"


class PolicySpec(MeasuredSpec, frozen=True, kw_only=True):
    """Who chooses the batch size, alone or together with the limit: what a scenario names as its `policy`."""


class BatchSizeSpec(PolicySpec, frozen=True, kw_only=True):
    """The spec of a batch size policy, which works beside a limit policy."""

    def build(self, setting: Setting) -> BatchSizePolicy:
        """A new policy for one run."""
        raise AssertionError("a policy spec builds its own policy")


class LimitSpec(MeasuredSpec, frozen=True, kw_only=True):
    """The spec of a power limit policy."""

    def build(self, setting: Setting) -> LimitPolicy:
        """A new policy for one run."""
        raise AssertionError("a policy spec builds its own policy")


class KnobSpec(PolicySpec, frozen=True, kw_only=True):
    """The spec of a policy for both knobs.

    omniscient: whether it sees the expected totals of every configuration (default no).
    """

    omniscient: ClassVar[bool] = False

    def build(self, setting: Setting) -> KnobPolicy:
        """A new policy for one run."""
        raise AssertionError("a policy spec builds its own policy")


_PACKAGE = "forerun.energy.policies"


@cache
def policy_registry() -> Registry[PolicySpec]:
    """Policies for the batch size, or for both knobs."""
    return Registry("policy for recurring jobs", _PACKAGE, base=PolicySpec, group="forerun.energy.policy")


@cache
def limit_policy_registry() -> Registry[LimitSpec]:
    """Power limit policies."""
    return Registry("power limit policy", _PACKAGE, base=LimitSpec, group="forerun.energy.limit_policy")


class Pair(KnobSpec, frozen=True, kw_only=True):
    """A batch size policy beside a limit policy."""

    batch_size: BatchSizeSpec
    limit: LimitSpec

    def build(self, setting: Setting) -> PairedPolicy:
        """Both policies as one policy for both knobs."""
        return PairedPolicy(self.batch_size.build(setting), self.limit.build(setting), setting.rules)


class PairedPolicy:
    """A batch size policy and a limit policy at work side by side.

    While other submissions run, the published simulator repeats the best size known (known bug B3).
    """

    def __init__(self, batch_size: BatchSizePolicy, limit: LimitPolicy, rules: Rules) -> None:
        self.batch_size = batch_size
        self.limit = limit
        self._rules = rules

    def choose(self, view: View) -> Knobs:
        """The size, then its limit."""
        concurrent = bool(view.in_flight)
        if concurrent and not self._rules.best_by_mean:
            size = view.best
        else:
            size = self.batch_size.choose(view)
        limit = self.limit.choose(view, size)
        if concurrent and isinstance(limit, ProfileLimits) and not self._rules.profile_on_demand:
            where = f"{view.job} recurrence {view.recurrence}"
            raise BestNotProfiled(
                Problem(where, f"batch size {size} runs beside others and has no limit yet")
            )
        return Knobs(size, limit, self.batch_size.bound_j, not concurrent and self.batch_size.exploring)

    def profiled(self, view: View, measured: MeasuredLimits) -> float:
        """The limit policy's answer to a profile."""
        self.limit.profiled(measured)
        limit = self.limit.choose(view, measured.batch_size)
        if isinstance(limit, ProfileLimits):
            raise AssertionError("a limit policy asked for a second profile of one batch size")
        return limit

    def learn(self, outcome: AttemptOutcome) -> None:
        """The batch size policy learns; limits were learned from the profile."""
        self.batch_size.learn(outcome)


def cheapest_known(view: View, in_play: tuple[int, ...]) -> int:
    """The size with the lowest mean cost among those in play that have reached, for concurrent submissions.

    Before any has: the default, and for a retry the nearest size (in octaves) that has not failed.
    """
    known = [size for size in in_play if view.standing[size].reached]
    if known:
        return min(known, key=lambda size: view.standing[size].mean_j)
    default = view.job.default_batch_size or view.best
    if view.attempt == 0 and default in in_play:
        return default
    fresh = [size for size in in_play if not view.standing[size].failed] or list(in_play)
    return min(fresh, key=lambda size: (abs(float(np.log2(size / default))), size))
