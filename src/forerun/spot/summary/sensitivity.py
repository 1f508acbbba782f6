"""How much each assumption matters: elasticities of throughput, on the same random fleets.

An elasticity of -0.3 says that one percent more of something costs 0.3 percent of the samples a second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forerun.core.profile.supply import Supply
from forerun.spot.engine import trials
from forerun.spot.engine.estimates import Estimate
from forerun.spot.inputs import Inputs
from forerun.spot.scenario import Scenario

MOST_TRIALS = 1000
STEP = 0.1
"""Each assumption is moved by so much of its value, down and up."""

ASSUMPTIONS = (
    ("fleet", "removals_per_min", "removals"),
    ("fleet", "adds_per_min", "additions"),
    ("fleet", "removal_per_node_h", "hazard of a node"),
    ("fleet", "return_per_node_h", "return of a missing node"),
    ("job", "step_s", "time of a step"),
    ("job", "reconfig_s", "pause to rebuild"),
    ("job", "prep_s", "preparation of a node"),
    ("job", "write_s", "write of a checkpoint"),
    ("job", "stall_s", "stall of a checkpoint"),
)
"""(section, field, what it is)."""


@dataclass(frozen=True, slots=True)
class Elasticity:
    """One assumption, and percent of samples a second for a percent of it.

    Parameters
    ----------
    field : its path in the scenario.
    meaning : in words.
    value : in the scenario, the smallest of several.
    estimate : the elasticity.
    """

    field: str
    meaning: str
    value: float
    estimate: Estimate


def elasticities(inputs: Inputs) -> tuple[Elasticity, ...]:
    """Elasticities of throughput, of every assumption that has a value.

    By paired trials a tenth below and a tenth above it, on the same random fleets.
    """
    scenario = inputs.scenario
    base = float(_rate(scenario, inputs.supply).mean())
    rows = []
    for section, name, meaning in ASSUMPTIONS:
        holder = getattr(scenario, section)
        value = (
            getattr(holder, name) if name in holder.__struct_fields__ else 0
        )  # a process has rates of its own
        if name == "reconfig_s":
            value = scenario.job.pause_s
        if not value or base == 0:
            continue
        rates = [_rate(_moved(scenario, section, name, 1 + turn), inputs.supply) for turn in (-STEP, STEP)]
        shown = min(value.values()) if isinstance(value, dict) else float(value)
        estimate = Estimate.of((rates[1] - rates[0]) / (2 * STEP * base))
        rows.append(Elasticity(f"{section}.{name}", meaning, shown, estimate))
    return tuple(rows)


def _moved(scenario: Scenario, section: str, name: str, factor: float) -> Scenario:
    """The scenario with one assumption multiplied by a factor.

    Parameters
    ----------
    scenario : as it is.
    section, name : where the assumption is; of a table of values all are multiplied.
    factor : such as 1.1 for a tenth more.
    """
    if name == "reconfig_s":
        return scenario.with_(job=scenario.job.with_pause(factor))
    holder = getattr(scenario, section)
    value = getattr(holder, name)
    moved = {key: one * factor for key, one in value.items()} if isinstance(value, dict) else value * factor
    return scenario.with_(**{section: holder.with_(**{name: moved})})


def _rate(scenario: Scenario, supply: Supply | None) -> np.ndarray:
    """float64[trials]: samples a second."""
    job, count = scenario.job.built(scenario.horizon_s, supply), min(MOST_TRIALS, scenario.trials)
    done = trials.run_scenario(scenario, job, trials=count)
    return done.steps_per_s * scenario.job.samples_per_step
