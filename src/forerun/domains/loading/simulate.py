"""From a scenario to its result: epochs, stall split, laws, cells, probes and placement."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from forerun.domains.loading.observer import Observer
from forerun.domains.loading.policy import PaceRecipe, PlacementRecipe, TunerRecipe
from forerun.domains.loading.scenario import Scenario
from forerun.observers import checked_observers

if TYPE_CHECKING:
    from forerun.result.run import Result


def simulate(
    scenario: Scenario,
    *,
    policy: PlacementRecipe | TunerRecipe | PaceRecipe | None = None,
    watch: Iterable[Any] = (),
) -> Result:
    """Run a scenario and return its result; `policy` replaces the scenario's placement policy, its tuner or its pace.

    Observers in `watch` see every epoch (see `Observer`).
    Raises Infeasible if a request fails more often than it may be repeated, or a gang fits nowhere.
    """
    from forerun.domains.loading.runs import run_scenario

    observers = checked_observers(watch, Observer)
    if isinstance(policy, TunerRecipe):
        scenario = scenario.with_(tuner=policy)
    elif isinstance(policy, PaceRecipe):
        scenario = scenario.with_(pace=policy)
    elif policy is not None:
        scenario = scenario.with_(policy=policy)
    return run_scenario(scenario, watch=observers)
