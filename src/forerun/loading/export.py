"""The profile for other domains: how many samples a second reach a number of readers.

Every number of readers is simulated with a step that takes no time, on the scenario's own store, layout, caches and
loader: equal readers, each with a loader of its own, share the store. The last epoch counts, caches as warm as they
get. That a step then takes the longer of computing and loading is compared with the simulation at the scenario's own
step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from forerun.core.errors import UsageError
from forerun.core.profile.supply import Supply
from forerun.core.result.stats import standard_error, student_quantile
from forerun.loading.engine.run import Epoch, run_epochs
from forerun.loading.inputs import Inputs, prepare
from forerun.loading.scenario import Scenario

#: readers simulated where none is named
READERS: Final = (1, 2, 4, 8)
_STRETCHES: Final = 10


def export(scenario: Scenario, at: Sequence[int] = ()) -> Supply:
    """The supply profile of a loading scenario, at some numbers of readers (default 1, 2, 4, 8).

    Raises UsageError for readers that cannot be simulated: loaders of worker processes know one job only, and nodes share
    one job's data.

    Parameters
    ----------
    scenario : whose step is replaced by one that takes no time.
    at : numbers of readers.
    """
    plain = scenario.loader.mode == "threads"
    readers = tuple(sorted(set(at))) or (READERS if plain else (1,))
    if readers[0] < 1:
        raise UsageError.at("--at", f"{readers[0]} readers; at least 1 is required")
    if not plain and readers != (1,):
        raise UsageError.at("--at", f"loader.mode {scenario.loader.mode} is simulated for 1 reader only")
    if scenario.nodes is not None:
        raise UsageError.at(
            "nodes", "share one job's data; a profile is of equal readers that each read all: leave them out"
        )
    instantaneous = scenario.step.with_(step_s=0.0, overhead_s=0.0)
    inputs = prepare(scenario)
    rates = [_supply(inputs.of(scenario.with_(jobs=count, step=instantaneous))) for count in readers]
    supply = Supply(
        source=f"loading: {scenario.title or 'untitled'}, {inputs.block_samples} samples a block, "
        f"{_loader(scenario)} a reader, epoch {scenario.run.epochs} of {scenario.run.epochs}",
        readers=readers,
        samples_per_s=tuple(rate for rate, _ in rates),
        low_per_s=tuple(rate / (1 + half) for rate, half in rates),
        high_per_s=tuple(rate / max(1 - half, 1e-9) for rate, half in rates),
    )
    return supply.with_(min_law_error=_min_law_error(inputs, supply))


def _loader(scenario: Scenario) -> str:
    """The loader in words."""
    loader = scenario.loader
    if loader.mode == "threads":
        return f"{loader.threads} threads"
    threads = f" of {loader.threads} threads" if loader.mode == "pooled_workers" else ""
    return f"{loader.workers} workers{threads}"


def _supply(inputs: Inputs) -> tuple[float, float]:
    """Samples a second of all readers together, and the relative half width of its interval.

    The width is Student's, of the mean time of a batch over ten stretches of the last epoch.
    """
    last = _last_epochs(inputs)
    rate = float(sum(epoch.samples_per_s for epoch in last))
    # Seconds a batch, over ten stretches of the epoch, averaged over the readers.
    parts = [np.array_split(np.diff(epoch.got_s), _STRETCHES) for epoch in last]
    if min(len(part) for split in parts for part in split) < 1:
        return rate, 0.0
    means = np.mean([[part.mean() for part in split] for split in parts], axis=0)
    if not means.mean() > 0:
        return rate, 0.0
    return rate, student_quantile(0.975, _STRETCHES - 1) * standard_error(means) / float(means.mean())


def _last_epochs(inputs: Inputs) -> list[Epoch]:
    """The last epoch of each job, with caches as warm as they get."""
    last = inputs.scenario.run.epochs - 1
    return [epoch for epoch in run_epochs(inputs).epochs if epoch.number == last]


def _min_law_error(inputs: Inputs, supply: Supply) -> float:
    """How far the lesser of two rates is above what the simulation gives at the scenario's own step."""
    scenario = inputs.scenario
    if not supply.readers[0] <= scenario.jobs <= supply.readers[-1]:
        return 0.0
    last = _last_epochs(inputs)
    simulated = float(sum(epoch.samples_per_s for epoch in last))
    computing = sum(float(epoch.samples.sum()) / max(float(epoch.step_s.sum()), 1e-300) for epoch in last)
    return min(supply.at(scenario.jobs), computing) / simulated - 1.0
