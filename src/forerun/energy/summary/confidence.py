"""Confidence intervals of a run's figures: over seeds, and over resampled paths and seeds together."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from forerun.core.errors import ForerunError
from forerun.core.result.stats import Interval
from forerun.core.rng import stream
from forerun.energy.engine import RESAMPLED_WORKLOADS, JobOutcome, work_of
from forerun.energy.engine.batch import Work, columns, run_many
from forerun.energy.inputs.resampling import resampled_workload
from forerun.energy.summary.savings import SAVED, Reference, Savings, of_attempts, reference


def intervals(outcome: JobOutcome, against: Reference) -> dict[str, Interval]:
    """The intervals of a run; none below two trials.

    Of the interval over seeds and the one over resampled paths and seeds, the wider, which is usually the latter.
    against: the default and the oracle of the run's own workload.
    """
    inputs, work = outcome.inputs, work_of(outcome.inputs)
    scenario = inputs.scenario
    if scenario.trials < 2:
        return {}
    first = scenario.first_seed
    over_seeds = [of_attempts(columns(outcome.history, inputs.workload), work.recurrences, against)]
    for seed in range(first + 1, first + scenario.trials):
        over_seeds += _savings(work, seed)
    both = []
    for number in range(min(RESAMPLED_WORKLOADS, scenario.trials)):
        rng = stream(scenario.seed, "drawn world", number)
        resampled = replace(work, workload=resampled_workload(inputs.workload, rng))
        both += _savings(resampled, first + number)
    tight, wide = _named(over_seeds, "over seeds"), _named(both, "over drawn paths and seeds")
    return {
        name: max(
            (one for one in (wide.get(name), tight.get(name)) if one), key=lambda one: one.high - one.low
        )
        for name in {**tight, **wide}
    }


def _savings(work: Work, seed: int) -> list[Savings]:
    """One run for an interval; a seed at which the policy fails is left out."""
    try:
        (log,) = run_many(work, [seed])
    except ForerunError:
        return []
    return [of_attempts(log, work.recurrences, reference(work.workload, work.eta))]


def _named(runs: list[Savings], method: str) -> dict[str, Interval]:
    """Intervals of the savings of many runs, by summary figure. method: what varies between the runs, in words."""
    intervals = {}
    for name, attribute in {**SAVED, "cost_ratio_to_oracle": "cost_ratio"}.items():
        finite = [value for run in runs if math.isfinite(value := getattr(run, attribute))]
        if len(finite) < 2:
            continue
        # What one deployment may see: percentiles of runs, outward to a run, so that few runs give their range.
        low = float(np.percentile(finite, 2.5, method="lower"))
        high = float(np.percentile(finite, 97.5, method="higher"))
        intervals[name] = Interval(low, high, 0.95, f"{method}, {len(finite)} runs")
    return intervals
