"""Reading the files of a scenario, and running nothing."""

from __future__ import annotations

from forerun.domains.serving.inputs import prepare
from forerun.domains.serving.scenario import Scenario


def read(scenario: Scenario) -> None:
    """Read arrivals and profiles as a run would. Raises TraceError, ProfileError or ScenarioError as it would."""
    prepare(scenario)
