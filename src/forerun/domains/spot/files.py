"""Reading the files of a scenario, and running nothing."""

from __future__ import annotations

from forerun.domains.spot.engine.run import history
from forerun.domains.spot.inputs.prices import spot_price
from forerun.domains.spot.scenario import Scenario


def read(scenario: Scenario) -> None:
    """Read fleet, prices and the job's loader as a run would. Raises TraceError or ProfileError as it would."""
    _, horizon_s, _ = history(scenario, trial=0)
    spot_price(scenario.prices)
    scenario.job.built(horizon_s)
