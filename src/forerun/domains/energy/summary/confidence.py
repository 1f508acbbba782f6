"""Confidence intervals of a run's figures: over seeds, and over resampled paths and seeds together."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from forerun.domains.energy.engine import RESAMPLED_WORKLOADS, JobOutcome, work_of
from forerun.domains.energy.engine.batch import Work, columns, run_many
from forerun.domains.energy.inputs.resampling import resampled_workload
from forerun.domains.energy.summary.savings import SAVED, Reference, Savings, of_attempts, reference
from forerun.errors import ForerunError
from forerun.result.run import Interval
from forerun.rng import stream


def intervals(outcome: JobOutcome, against: Reference) -> tuple[dict[str, Interval], dict[str, float]]:
    """The intervals of a run, and the medians of those over resampled paths; none below two trials.

    against: the default and the oracle of the run's own workload.
    """
    inputs, work = outcome.inputs, work_of(outcome.inputs)
    scenario = inputs.scenario
    if scenario.trials < 2:
        return {}, {}
    first = scenario.first_seed
    over_seeds = [of_attempts(columns(outcome.history, inputs.workload), work.recurrences, against)]
    for seed in range(first + 1, first + scenario.trials):
        over_seeds += _savings(work, seed)
    both = []
    for number in range(min(RESAMPLED_WORKLOADS, scenario.trials)):
        rng = stream(scenario.seed, "drawn world", number)
        resampled = replace(work, workload=resampled_workload(inputs.workload, rng))
        both += _savings(resampled, first + number)
    tight, _ = _named(over_seeds, "", "over seeds")
    wide, medians = _named(both, "_two_level", "over drawn paths and seeds")
    return {**tight, **wide}, medians


def _savings(work: Work, seed: int) -> list[Savings]:
    """One run for an interval; a seed at which the policy fails is left out."""
    try:
        (log,) = run_many(work, [seed])
    except ForerunError:
        return []
    return [of_attempts(log, work.recurrences, reference(work.workload, work.eta))]


def _named(runs: list[Savings], suffix: str, method: str) -> tuple[dict[str, Interval], dict[str, float]]:
    """Intervals and medians of the savings of many runs, by summary figure.

    suffix: of the figures' names. method: what varies between the runs, in words.
    """
    intervals, centres = {}, {}
    for name, attribute in {**SAVED, "cost_ratio_to_oracle": "cost_ratio"}.items():
        finite = [value for run in runs if math.isfinite(value := getattr(run, attribute))]
        if len(finite) < 2:
            continue
        # What one deployment may see: percentiles of runs, outward to a run, so that few runs give their range.
        low = float(np.percentile(finite, 2.5, method="lower"))
        high = float(np.percentile(finite, 97.5, method="higher"))
        intervals[name + suffix] = Interval(low, high, 0.95, f"{method}, {len(finite)} runs")
        centres[name + suffix] = float(np.median(finite))
    return intervals, centres
