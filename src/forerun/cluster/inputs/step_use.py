"""Steps slowed by data that arrive too late and by power limits.

A supply profile caps the iterations of a job: readers x supply / batch, one reader a node, on as few nodes as its GPUs
fill. A power limit slows every step by the measured factor. Jobs do not share one store here: each has a supply of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from forerun.cluster.inputs.arrays import F64, Cluster, Jobs, ThroughputTable
from forerun.cluster.scenario import Bill, Loading, Scenario
from forerun.core.errors import ProfileError, ScenarioError
from forerun.core.profile.files import read_profile
from forerun.core.profile.power import Power
from forerun.core.profile.supply import Supply


@dataclass(frozen=True, slots=True)
class StepUse:
    """What a training step is made of, per kind of job and GPU count: float64[kinds, top + 1].

    Parameters
    ----------
    computing : share of a step that computes; the rest waits for data.
    draw_w : watts of a GPU while it computes; 0: not known.
    """

    computing: F64
    draw_w: F64


def slowed(
    profile: ThroughputTable, scenario: Scenario, cluster: Cluster
) -> tuple[ThroughputTable, StepUse, tuple[str, ...]]:
    """The profile at the speed that power limit and data supply allow, the terms of the bill, and what to know.

    Raises ProfileError for profiles of another kind or that do not reach as far as the jobs do.
    """
    shape = (len(profile.kinds), int(profile.levels[-1]) + 1)
    computing, draw_w = np.ones(shape), np.full(shape, scenario.bill.busy_w if scenario.bill else 0.0)
    rate, notes = profile.rate.copy(), []
    if scenario.bill is not None and scenario.bill.power:
        notes += _limited(profile, scenario.bill, rate, draw_w)
    for loading in scenario.loading:
        notes += _supplied(profile, loading, cluster, rate, computing)
    return replace(profile, rate=rate), StepUse(computing, draw_w), tuple(notes)


def stretched(jobs: Jobs, before: ThroughputTable, after: ThroughputTable) -> Jobs:
    """The jobs with durations as long as the slower steps make them, on the GPUs they ask for.

    Policies that keep a job on what it asks for work off its recorded duration, which knew nothing of the slowing.
    """
    known = np.flatnonzero((jobs.kind >= 0) & (jobs.gpus <= int(before.levels[-1])))
    kind, gpus = jobs.kind[known], jobs.gpus[known]
    fast, slow = before.rate_at()[kind, gpus], after.rate_at()[kind, gpus]
    factor = np.divide(fast, slow, out=np.ones(len(known)), where=slow > 0)
    duration_s = jobs.duration_s.copy()
    duration_s[known] = np.maximum(1, np.rint(duration_s[known] * factor)).astype(np.int64)
    return replace(jobs, duration_s=duration_s)


def _limited(profile: ThroughputTable, bill: Bill, rate: F64, draw_w: F64) -> list[str]:
    """Draws and speeds of the measured power profiles."""
    notes = []
    for given in bill.power:
        power = read_profile(given.file, Power)
        beyond = set()
        for row in _rows(profile, given.models, given.file.path):
            batch = profile.kinds[row][1]
            for column, count in enumerate(profile.levels.tolist()):
                if not rate[row, column] > 0:
                    continue
                local = batch / count
                watts, speed = power.at(local, given.limit_w)
                draw_w[row, count] = watts
                rate[row, column] *= speed
                if not power.measured(local):
                    beyond.add(profile.kinds[row])
        limit = given.limit_w or power.limits_w[0]
        notes.append(f"power: {power.source}, at {limit:g} W")
        if beyond:
            notes.append(
                f"power: {len(beyond)} kinds of job run batches per GPU that were not measured; the nearest is taken"
            )
    return notes


def _supplied(
    profile: ThroughputTable, loading: Loading, cluster: Cluster, rate: F64, computing: F64
) -> list[str]:
    """Rates capped by what a supply profile delivers."""
    supply = read_profile(loading.file, Supply)
    bound: dict[str, int] = {}
    per_node = cluster.gpus_per_node
    # Counts that the cluster does not have are never taken.
    top = min(int(profile.levels[-1]), cluster.gpus)
    if math.ceil(top / per_node) > supply.readers[-1]:
        raise ProfileError.at(
            loading.file.path,
            f"knows {supply.readers[0]} to {supply.readers[-1]} readers; jobs here read from up to "
            f"{math.ceil(top / per_node)} nodes ({top} GPUs, {per_node} a node)",
        )
    for row in _rows(profile, loading.models, loading.file.path):
        model, batch = profile.kinds[row]
        for column, count in enumerate(profile.levels.tolist()):
            free = rate[row, column]
            if not free > 0 or count > top:
                continue
            capped = min(free, supply.at(-(-count // per_node)) / batch)
            rate[row, column] = capped
            computing[row, count] = capped / free
            if capped < free:
                bound[model] = bound.get(model, 0) + 1
    what = ", ".join(f"{model} ({cells} counts of GPUs)" for model, cells in sorted(bound.items()))
    return [f"data: {supply.source}; {'slows ' + what if what else 'hides behind every step'}"]


def _rows(profile: ThroughputTable, models: tuple[str, ...], where: str) -> list[int]:
    """Rows of the profile that some models have (none named: all). Raises ScenarioError for a model without any."""
    known = {model for model, _ in profile.kinds}
    if unknown := [model for model in models if model not in known]:
        raise ScenarioError.at(
            where, f"is given for {unknown[0]!r}, which no job is profiled for: {', '.join(sorted(known))}"
        )
    return [row for row, (model, _) in enumerate(profile.kinds) if not models or model in models]
