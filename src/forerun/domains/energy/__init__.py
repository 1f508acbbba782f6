"""Recurring training jobs: which batch size and which GPU power limit, and what it costs to find out.

A team trains the same model again and again. Each submission, a recurrence, must reach its target; it may need
several attempts. Two knobs are turned: a larger batch size takes more epochs and fewer seconds each, a lower power
limit takes seconds and saves joules. What an attempt costs is a blend of energy and time, weighed by eta. Epochs to
the target come from recorded trainings, seconds and watts of an epoch from measurements of each GPU type. A policy
sees only what has run, chooses the knobs, and learns from outcomes; an attempt is stopped when its cost would cross a
bound. Submissions follow each other, or overlap as in a group trace. The result says what was spent and on what,
against the team's default configuration and against an oracle. A plan, which needs no learning, reads the frontier of
time against energy off the measurements, with bounds, prices, carbon and the confidence that the data allow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

# The loops' module has the name of the door: imported first, so that the door's name stays.
import forerun.domains.energy.simulate as _loops  # noqa: F401
from forerun.domains.energy.policy import Chooser, choosers, limit_policies
from forerun.domains.energy.scenario import Scenario
from forerun.registry import Registry
from forerun.study.objective import Objective

if TYPE_CHECKING:
    from forerun.result.run import Result

__all__ = ["GIVEN", "OBJECTIVES", "POLICIES", "Scenario", "simulate", "without_intervals"]

POLICIES: dict[str, Registry[Any]] = {"policy": choosers(), "limit_policy": limit_policies()}

OBJECTIVES = (
    Objective("cost_j", "lower", "cost"),
    Objective("energy_j", "lower", "energy"),
    Objective("time_s", "lower", "training time"),
    Objective("cost_ratio_to_oracle", "lower", "cost over the oracle's"),
    Objective("energy_saved_percent", "higher", "energy saved against the default"),
)

#: the sections of a scenario that describe the environment: axes of a study in them are no choices
GIVEN = ("trace", "job", "gpu", "drift", "signals")


def simulate(scenario: Scenario, *, policy: Chooser | None = None, watch: Iterable[Any] = ()) -> Result:
    """Run a scenario and return its result; `policy` replaces the scenario's.

    Observers in `watch` see every attempt (see `Observer`).
    Raises TraceError, or the failures of `forerun.domains.energy.failures`.
    """
    from forerun.domains.energy.runs import run_scenario

    return run_scenario(scenario, policy=policy, watch=watch)


def without_intervals(scenario: Scenario) -> Scenario:
    """The scenario without the further seeds and worlds that its intervals need."""
    return scenario.with_(trials=0)
