"""Intervals of a policy's savings: what covers a new deployment in the true world, and what does not."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from forerun.domains.energy.engine.batch import Work, run_many
from forerun.domains.energy.inputs.resampling import resampled_workload
from forerun.domains.energy.inputs.workload import Workload
from forerun.domains.energy.policies.jit import Jit
from forerun.domains.energy.policies.pruning_gts import PruningGts
from forerun.domains.energy.policy import Pair
from forerun.domains.energy.scenario import Rules
from forerun.domains.energy.summary.savings import of_attempts, reference
from forerun.errors import ForerunError

SPEC = Pair(batch_size=PruningGts(), limit=Jit())
RECURRENCES, TRIALS, RECORDED = 24, 16, 5
POWER = {
    size: {250.0: (seconds, 225.0), 125.0: (1.3 * seconds, 119.0)}
    for size, seconds in ((8, 30.0), (16, 20.0), (32, 16.0))
}


def savings(workload: Workload, seeds: range) -> list[float]:
    """Energy saved against the default in one run a seed; runs in which the policy fails are left out."""
    found = []
    for seed in seeds:
        try:
            (log,) = run_many(
                Work(workload, SPEC, eta=0.5, beta=2.0, rules=Rules(), recurrences=RECURRENCES), [seed]
            )
        except ForerunError:
            continue
        found.append(of_attempts(log, RECURRENCES, reference(workload, 0.5)).energy)
    return found


def coverage(make_toy: Callable[..., Workload], worlds: int, trials: int) -> tuple[int, dict[str, int]]:
    """Worlds with log-normal epochs of a log-sd between 0.05 and 0.3, of which five runs a size were recorded.

    How many had a deployment, which meets the true law; and in how many of those each interval contained it.
    """
    rng = np.random.default_rng(0)
    covered = {"seeds": 0, "two-level": 0}
    deployments = 0
    for _ in range(worlds):
        law = {size: (rng.normal(3.2, 0.15) + 0.5 * (size == 32), rng.uniform(0.05, 0.3)) for size in POWER}

        def world(runs: int, law: dict[int, tuple[float, float]] = law) -> Workload:
            paths = {
                size: [max(1, round(math.exp(rng.normal(*of)))) for _ in range(runs)]
                for size, of in law.items()
            }
            return make_toy(paths, POWER, default=32, max_epochs=400, rules=Rules())

        recorded, true = world(RECORDED), world(100)
        deployed = savings(true, range(7, 8))
        if not deployed:
            continue
        deployments += 1
        both = [
            value
            for number in range(trials)
            for value in savings(resampled_workload(recorded, rng), range(number, number + 1))
        ]
        for name, values in (("seeds", savings(recorded, range(trials))), ("two-level", both)):
            covered[name] += min(values) <= deployed[0] <= max(values)
    return deployments, covered


def test_two_levels_cover_a_new_deployment_and_seeds_alone_do_not(make_toy: Callable[..., Workload]) -> None:
    """Of 24 worlds; `benchmarks/energy/intervals.py` counts many more, with more runs each."""
    deployments, covered = coverage(make_toy, 24, TRIALS)
    assert deployments >= 20
    assert covered["two-level"] >= 0.8 * deployments
    assert covered["seeds"] <= 0.75 * deployments
