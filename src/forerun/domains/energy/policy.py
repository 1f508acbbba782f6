"""What a policy of this room is: three kinds of recipe, one signature a decision.

A pair of a batch size policy and a limit policy, or one policy for both knobs. A recipe is frozen parameters;
`build(setting)` gives a fresh cook, which sees a `View`, decides, and learns from outcomes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

import numpy as np

from forerun.domains.energy.failures import BestNotProfiled, DefaultMissing, DefaultNotInRange
from forerun.domains.energy.model import Job, Knobs, Measured, OracleView, Outcome, Profile, Rules, View
from forerun.errors import Problem
from forerun.registry import Registry
from forerun.scenario.spec import Recipe


@dataclass(frozen=True)
class Setting:
    """What a cook is built for: the job, the sizes on offer (ascending), taste, rules, and its own random stream.

    `oracle` is what only an oracle may look at; a cook notes oddities that it met in `fired`.
    """

    job: Job
    sizes: tuple[int, ...]
    eta: float
    max_power_w: float
    rules: Rules
    rng: np.random.Generator
    oracle: OracleView = field(default_factory=OracleView)
    fired: Counter[str] = field(default_factory=Counter)

    def default(self) -> int:
        """The default batch size. Raises DefaultMissing or DefaultNotInRange if it cannot be run."""
        size = self.job.default_batch_size
        known = ", ".join(map(str, self.sizes))
        # A path of the scenario: the caller that read its file adds name and line.
        where = "$.job.default_batch_size"
        if not size:
            raise DefaultMissing(Problem(where, f"no default batch size is given; measured: {known}"))
        if size not in self.sizes:
            fits = [other for other in self.sizes if other <= size]
            offer = f"; the largest that was measured below it is {max(fits)}" if fits else ""
            raise DefaultNotInRange(Problem(where, f"batch size {size} is not among {known}{offer}"))
        return size


class BatchSizePolicy(Protocol):
    """Chooses batch sizes.

    `exploring` says whether the last choice was made to learn; `bound_j` replaces the simulator's bound if not None.
    """

    @property
    def exploring(self) -> bool:
        """Whether the last choice was made to learn."""

    @property
    def bound_j(self) -> float | None:
        """The bound this policy wants, None for the simulator's."""

    def choose(self, view: View) -> int:
        """The batch size of the attempt that is to start."""

    def learn(self, outcome: Outcome) -> None:
        """An attempt has ended."""


class LimitPolicy(Protocol):
    """Chooses power limits."""

    def choose(self, view: View, batch_size: int) -> float | Profile:
        """The limit for this batch size [W], or a profile to run first."""

    def profiled(self, measured: Measured) -> None:
        """A profile was run."""


class KnobPolicy(Protocol):
    """Chooses batch size, limit and bound together."""

    def choose(self, view: View) -> Knobs:
        """The knobs of the attempt that is to start."""

    def profiled(self, view: View, measured: Measured) -> float:
        """The limit for the rest of the attempt, now that a profile was run [W]."""

    def learn(self, outcome: Outcome) -> None:
        """An attempt has ended."""


class Chooser(Recipe, frozen=True, kw_only=True):
    """Who chooses the batch size, alone or together with the limit: what a scenario names as its policy."""


class BatchSizeRecipe(Chooser, frozen=True, kw_only=True):
    """A batch size policy in a file; it works beside a limit policy."""

    def build(self, setting: Setting) -> BatchSizePolicy:
        """A fresh cook."""
        raise AssertionError("a recipe builds its own cook")


class LimitRecipe(Recipe, frozen=True, kw_only=True):
    """A power limit policy in a file."""

    def build(self, setting: Setting) -> LimitPolicy:
        """A fresh cook."""
        raise AssertionError("a recipe builds its own cook")


class KnobRecipe(Chooser, frozen=True, kw_only=True):
    """A policy for both knobs in a file."""

    def build(self, setting: Setting) -> KnobPolicy:
        """A fresh cook."""
        raise AssertionError("a recipe builds its own cook")


_PACKAGE = "forerun.domains.energy.policies"


@cache
def choosers() -> Registry[Chooser]:
    """Policies for the batch size, or for both knobs."""
    return Registry(
        "policy for recurring jobs", package=_PACKAGE, base=Chooser, group="forerun.energy.policy"
    )


@cache
def limit_policies() -> Registry[LimitRecipe]:
    """Power limit policies."""
    return Registry(
        "power limit policy", package=_PACKAGE, base=LimitRecipe, group="forerun.energy.limit_policy"
    )


class Pair(KnobRecipe, frozen=True, kw_only=True):
    """A batch size policy and a limit policy, working side by side."""

    batch_size: BatchSizeRecipe
    limit: LimitRecipe

    def build(self, setting: Setting) -> KnobPolicy:
        """Both cooks behind one door."""
        return PairCook(self.batch_size.build(setting), self.limit.build(setting), setting.rules)


class PairCook:
    """The cook of a pair. While other submissions run, the reference repeats the best size known (rule B3)."""

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
        if concurrent and isinstance(limit, Profile) and not self._rules.profile_on_demand:
            where = f"{view.job} recurrence {view.recurrence}"
            raise BestNotProfiled(
                Problem(where, f"batch size {size} runs beside others and has no limit yet")
            )
        return Knobs(size, limit, self.batch_size.bound_j, not concurrent and self.batch_size.exploring)

    def profiled(self, view: View, measured: Measured) -> float:
        """The limit policy's answer to a profile."""
        self.limit.profiled(measured)
        limit = self.limit.choose(view, measured.batch_size)
        if isinstance(limit, Profile):
            raise AssertionError("a limit policy asked for a profile again, having got it")
        return limit

    def learn(self, outcome: Outcome) -> None:
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
