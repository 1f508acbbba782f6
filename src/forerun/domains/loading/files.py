"""Reading the files of a scenario, and running nothing."""

from __future__ import annotations

from forerun.domains.loading.scenario import Scenario
from forerun.domains.loading.world import draw


def read(scenario: Scenario) -> None:
    """Read the sizes of samples as a run would. Raises TraceError or ProfileError as it would."""
    draw(scenario)
