"""The decisions of a spot run: what each policy sees, what it may answer, and the base class of its specs.

`GrowthRule` says when returning nodes join the pipelines, `RecoveryPolicy` what a loss costs and what survives it,
`DeadlineRule` which kind of instance a job with a deadline rents. The files in `policies/` name their papers.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final, Protocol

import numpy as np

from forerun.core.registry import Registry
from forerun.core.scenario.spec import NamedSpec
from forerun.spot.engine.events import JobStateName
from forerun.spot.engine.history import Replay
from forerun.spot.engine.job import Continuation, TrainingJob
from forerun.spot.engine.membership import Membership

_PACKAGE: Final = "forerun.spot.policies"


class Outlook(Protocol):
    """What is known about coming removals."""

    def hit_rate_per_s(self, *, active: int, alive: int, t_s: float, hits: float) -> float:
        """Rate of removals that take an active node.

        Parameters
        ----------
        active, alive : nodes in pipelines, and in all.
        t_s : now.
        hits : such removals so far.
        """


class Absorb(Enum):
    """What to do with nodes that would allow more pipelines."""

    NOW = "now"
    WAIT = "wait"
    AT_NEXT_DURABLE = "at_next_durable"


@dataclass(frozen=True, slots=True)
class GrowthView:
    """What a growth rule may know when standby nodes would allow more pipelines.

    Parameters
    ----------
    t_s : now.
    state : of the job.
    pipelines, step_s : the present ones, and the time of a step on them.
    possible_pipelines, possible_step_s : the same after growing.
    would_lose_s : training time that growing now discards.
    spent_s : time since the pause started, which growing would start again (0 unless reconfiguring).
    reconfig_s : length of a pause.
    write_s : time until a checkpoint is durable.
    hit_rate_per_s : rate of removals that take an active node, as far as it is known.
    """

    t_s: float
    state: JobStateName
    pipelines: int
    possible_pipelines: int
    step_s: float
    possible_step_s: float
    would_lose_s: float
    spent_s: float
    reconfig_s: float
    write_s: float
    hit_rate_per_s: float


class GrowthPolicy(Protocol):
    """Says whether returning nodes are taken up at once, later, or at the next durable checkpoint."""

    def absorb(self, view: GrowthView) -> Absorb:
        """Decide for the nodes that are ready at ``view.t_s``."""
        ...


class GrowthRule(NamedSpec, frozen=True, kw_only=True):
    """When nodes that would allow more pipelines join the job: the base class of growth rules.

    kernel_code: the number of the rule in the Monte Carlo kernel; -1 for a rule that only the event loop can follow.
    """

    kernel_code: ClassVar[int] = -1

    def build(self, rng: np.random.Generator | None = None) -> GrowthPolicy:
        """The policy of one run; a rule without memory is its own policy.

        Parameters
        ----------
        rng : its stream of random numbers.
        """
        return self

    def absorb(self, view: GrowthView) -> Absorb:
        """Decide for the nodes that are ready now."""
        raise TypeError(f"{type(self).__name__} does not say when to grow")


@functools.cache
def growth_rules() -> Registry[GrowthRule]:
    """The growth rules known by name."""
    return Registry("growth rule", _PACKAGE, base=GrowthRule, group="forerun.spot.growth")


class Held(Enum):
    """What kind of instance the job rents."""

    NONE = "none"
    SPOT = "spot"
    ON_DEMAND = "on_demand"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineJob:
    """A job with a deadline, as a deadline rule sees it.

    Parameters
    ----------
    work_s : time that the work takes.
    deadline_s : by when it must be done.
    tick_s : time between decisions.
    changeover_s : time lost after a change of what is rented.
    spot_usd_per_h, on_demand_usd_per_h : prices of an instance. The defaults are those of the study in "Can't be
        late".
    """

    work_s: float = 48 * 3600.0
    deadline_s: float = 52 * 3600.0
    tick_s: float = 600.0
    changeover_s: float = 360.0
    spot_usd_per_h: float = 0.9731
    on_demand_usd_per_h: float = 3.06

    def price_usd(self, held: Held) -> float:
        """The price of one tick."""
        if held is Held.NONE:
            return 0.0
        per_h = self.spot_usd_per_h if held is Held.SPOT else self.on_demand_usd_per_h
        return per_h * self.tick_s / 3600.0


@dataclass(frozen=True, slots=True)
class DeadlineView:
    """What a deadline rule may know.

    Parameters
    ----------
    elapsed_s : time since the start.
    done_s : work done.
    held : what is rented now.
    changeover_left_s : the rest of its change-over.
    spot_available : whether spot can be rented now.
    job : work, deadline and prices.
    """

    elapsed_s: float
    done_s: float
    held: Held
    changeover_left_s: float
    spot_available: bool
    job: DeadlineJob

    @property
    def remaining_s(self) -> float:
        """Work left."""
        return self.job.work_s - self.done_s

    @property
    def left_s(self) -> float:
        """Time to the deadline, in whole ticks."""
        return math.floor((self.job.deadline_s - self.elapsed_s) / self.job.tick_s) * self.job.tick_s

    def ticks_needed_s(self, changeovers: int) -> float:
        """Time to finish after `changeovers` change-overs, in whole ticks."""
        tick_s = self.job.tick_s
        return math.ceil((self.remaining_s + changeovers * self.job.changeover_s) / tick_s) * tick_s


class DeadlineRule(NamedSpec, frozen=True, kw_only=True):
    """Which kind of instance a job with a deadline rents: the base class of deadline rules."""

    def build(self, rng: np.random.Generator | None = None) -> DeadlineRule:
        """A policy for one run."""
        return self

    def choose(self, view: DeadlineView) -> Held:
        """Decide at the start of a tick."""
        raise TypeError(f"{type(self).__name__} does not say what to rent")


@functools.cache
def deadline_rules() -> Registry[DeadlineRule]:
    """The deadline rules known by name."""
    return Registry("deadline rule", _PACKAGE, base=DeadlineRule, group="forerun.spot.deadline")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a recovery policy works on.

    Parameters
    ----------
    fleet : all nodes, on-demand ones first.
    job : what trains.
    growth : when returning nodes join.
    outlook : what is known about removals.
    goal_steps : steps at which the run ends (default: none).
    samples_per_step : of the job (default: 1).
    """

    fleet: Membership
    job: TrainingJob
    growth: GrowthPolicy
    outlook: Outlook
    goal_steps: int | None = None
    samples_per_step: int = 1


class RecoveryPolicy(NamedSpec, frozen=True, kw_only=True):
    """What a loss costs and what survives it: the base class of recovery policies."""

    def continuation(self) -> Continuation | None:
        """How replicas go on after a loss on a reserved cluster; None if the job restarts."""
        return None

    def replay(self, setting: Setting) -> Replay:
        """What happens to the job on the fleet of the setting."""
        raise TypeError(f"{type(self).__name__} does not say how to recover")


@functools.cache
def recovery_policies() -> Registry[RecoveryPolicy]:
    """The recovery policies known by name."""
    return Registry("recovery policy", _PACKAGE, base=RecoveryPolicy, group="forerun.spot.recovery")
