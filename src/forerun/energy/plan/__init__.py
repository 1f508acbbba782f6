"""The planner: the best configuration of a job, or the frequencies of a pipeline, without any learning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from forerun.core.errors import UnknownName
from forerun.core.result.plan import Planner
from forerun.energy.scenario import Scenario

if TYPE_CHECKING:
    from forerun.energy.plan.job import JobPlan
    from forerun.energy.plan.pipeline import PipelinePlan

OBJECTIVES: Final = ("cost", "time", "energy", "usd", "gco2")


class EnergyPlanner(Planner[Scenario]):
    """Plans jobs and pipelines."""

    options = ("confidence",)

    def plan(self, scenario: Scenario, objective: str = "", **options: Any) -> JobPlan | PipelinePlan:
        """The plan of a scenario's goal.

        objective: what to minimise (default: what the goal says). options: `confidence` replaces the goal's. Raises
        Infeasible naming the bound that cannot be met, UnknownName for an unknown objective, and what reading the files
        raises.
        """
        if objective and objective not in OBJECTIVES:
            raise UnknownName.among("objective", objective, OBJECTIVES)
        goal = scenario.goal.with_(minimise=objective) if objective else scenario.goal
        scenario = scenario.with_(
            goal=goal.with_(**{name: value for name, value in options.items() if value is not None})
        )
        if scenario.pipeline is not None:
            from forerun.energy.inputs import read_pipeline_profile
            from forerun.energy.plan.pipeline import plan_pipeline

            return plan_pipeline(read_pipeline_profile(scenario))
        from forerun.energy.plan.job import plan_job

        return plan_job(scenario)
