"""The decisions of the room, one recipe base each; a recipe's file in `policies/` names its paper.

`GrowthRule` says when returning nodes are taken up, `Recovery` what a loss costs and what is kept,
`DeadlineRule` which kind of instance a single job with a deadline holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from forerun.domains.spot.engine.deadline import DeadlineView, Held
from forerun.domains.spot.engine.model import Absorb, GrowthPolicy, GrowthView, Job, Membership, Replay
from forerun.domains.spot.engine.state import Outlook
from forerun.registry import Registry
from forerun.scenario.spec import Recipe


class GrowthRule(Recipe, frozen=True, kw_only=True):
    """When nodes that would allow more pipelines are taken up.

    A rule without memory is its own cook, so `build` returns the rule.  `kernel_code` names the rule inside
    the Monte Carlo kernel; -1 for rules that only the exact simulator can follow.
    """

    kernel_code: ClassVar[int] = -1

    def build(self, rng: np.random.Generator | None = None) -> GrowthPolicy:
        """A policy for one run."""
        return self

    def absorb(self, view: GrowthView) -> Absorb:
        """Decide for the nodes that stand ready now."""
        raise TypeError(f"{type(self).__name__} does not say when to grow")


def growth_rules() -> Registry[GrowthRule]:
    """The growth rules known by name."""
    return Registry(
        "growth rule",
        package="forerun.domains.spot.policies",
        base=GrowthRule,
        group="forerun.spot.growth",
    )


class DeadlineRule(Recipe, frozen=True, kw_only=True):
    """Which kind of instance a single job with a deadline holds; without memory, so it is its own cook."""

    def build(self, rng: np.random.Generator | None = None) -> DeadlineRule:
        """A policy for one run."""
        return self

    def choose(self, view: DeadlineView) -> Held:
        """Decide at the start of a tick."""
        raise TypeError(f"{type(self).__name__} does not say what to hold")


def deadline_rules() -> Registry[DeadlineRule]:
    """The deadline rules known by name."""
    return Registry(
        "deadline rule",
        package="forerun.domains.spot.policies",
        base=DeadlineRule,
        group="forerun.spot.deadline",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a recovery policy recovers in: the fleet, the job, the growth rule, what is known, the steps
    wanted.
    """

    fleet: Membership
    job: Job
    growth: GrowthPolicy
    outlook: Outlook
    goal_steps: int | None = None
    samples_per_step: int = 1


class RecoveryPolicy(Recipe, frozen=True, kw_only=True):
    """What a loss costs and what is kept: a way to train on a fleet that vanishes."""

    def replay(self, setting: Setting) -> Replay:
        """What becomes of the job."""
        raise TypeError(f"{type(self).__name__} does not say how to recover")


def recovery_policies() -> Registry[RecoveryPolicy]:
    """The recovery policies known by name."""
    return Registry(
        "recovery policy",
        package="forerun.domains.spot.policies",
        base=RecoveryPolicy,
        group="forerun.spot.recovery",
    )
