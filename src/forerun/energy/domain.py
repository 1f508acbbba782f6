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

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forerun.core.domain import Domain
from forerun.core.registry import Registry
from forerun.core.result.objective import Objective
from forerun.energy.observer import Observer
from forerun.energy.policy import limit_policy_registry, policy_registry
from forerun.energy.scenario import Scenario

if TYPE_CHECKING:
    from forerun.core.result.figures import Figure
    from forerun.core.result.run import Result, SavedRun
    from forerun.core.scenario.spec import Spec
    from forerun.energy.engine import Outcome
    from forerun.energy.explain import EnergyExplainer
    from forerun.energy.inputs import Inputs
    from forerun.energy.plan import EnergyPlanner


class Energy(Domain[Scenario, "Inputs", "Outcome"]):
    """See the module's docstring."""

    name = "energy"
    scenario_type = Scenario
    observer_type = Observer
    policy_kinds: Mapping[str, Registry[Any]] = {
        "policy": policy_registry(),
        "limit_policy": limit_policy_registry(),
    }
    objectives = (
        Objective("cost_j", "lower", "cost"),
        Objective("energy_j", "lower", "energy"),
        Objective("time_s", "lower", "training time"),
        Objective("cost_ratio_to_oracle", "lower", "cost over the oracle's"),
        Objective("energy_saved_percent", "higher", "energy saved against the default"),
    )
    environment = ("trace", "job", "gpu", "drift", "signals")

    def prepare(self, scenario: Scenario) -> Inputs:
        """Read the scenario's files."""
        from forerun.energy.inputs import prepare

        return prepare(scenario)

    def run(self, inputs: Inputs, *, observers: Sequence[Any] = ()) -> Outcome:
        """Simulate a job, or plan a pipeline."""
        from forerun.energy.engine import run

        return run(inputs, observers=observers)

    def summarize(self, outcome: Outcome) -> Result:
        """Make the result."""
        from forerun.energy.summary import summarize

        return summarize(outcome)

    def not_observable(self, scenario: Scenario) -> str:
        """A pipeline is planned, not simulated."""
        return "a pipeline, which is planned and not simulated," if scenario.pipeline is not None else ""

    def without_intervals(self, scenario: Scenario) -> Scenario:
        """The scenario without the further seeds and resampled paths behind its intervals."""
        return scenario.with_(trials=0)

    def resampled(self, scenario: Scenario) -> Scenario:
        """The scenario with the recorded trainings drawn anew."""
        return scenario.with_(trace=scenario.trace.with_(resample=True))

    def figures(self, run: Result | SavedRun) -> tuple[Figure, ...]:
        """The figures of a run."""
        from forerun.energy.figures import figures

        return figures(run)

    def plan_figures(self, plan: Mapping[str, Any], scenario: Mapping[str, Any]) -> tuple[Figure, ...]:
        """The figures of a plan file."""
        from forerun.energy.figures.plans import plan_figures

        return plan_figures(plan, scenario)

    def measured_figures(self, measured: Mapping[str, Any]) -> tuple[Figure, ...]:
        """The figures of a measurement file."""
        from forerun.energy.figures.plans import measured_figures

        return measured_figures(measured)

    @property
    def planner(self) -> EnergyPlanner:
        """What finds the best configuration."""
        from forerun.energy.plan import EnergyPlanner

        return EnergyPlanner()

    @property
    def explainer(self) -> EnergyExplainer:
        """What explains a run."""
        from forerun.energy.explain import EnergyExplainer

        return EnergyExplainer()

    @property
    def exporter(self) -> Callable[[Scenario, Sequence[int]], Spec]:
        """Makes the profile that other domains read."""
        from forerun.energy.export import export

        return export


DOMAIN = Energy()
