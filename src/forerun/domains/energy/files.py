"""Reading the files of a scenario, and running nothing."""

from __future__ import annotations

from forerun.domains.energy import pipeline_plan
from forerun.domains.energy.scenario import Scenario
from forerun.domains.energy.world import read_world


def read(scenario: Scenario) -> None:
    """Read measurements and groups as a run would. Raises TraceError or the room's failures as it would."""
    if scenario.pipeline is not None:
        pipeline_plan.read(scenario)
    else:
        read_world(scenario)
