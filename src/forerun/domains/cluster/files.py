"""Reading the files of a scenario, and running nothing."""

from __future__ import annotations

from forerun.domains.cluster.scenario import Scenario
from forerun.domains.cluster.simulate import prepare


def read(scenario: Scenario) -> None:
    """Read jobs, machines and profiles as a run would. Raises TraceError, ProfileError or ScenarioError as it would."""
    prepare(scenario)
