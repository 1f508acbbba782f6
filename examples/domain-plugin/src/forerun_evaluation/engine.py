"""The simulation: whenever a GPU is idle, the policy chooses what starts on it."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import PolicyError
from forerun.core.rng import stream
from forerun_evaluation.inputs import Inputs
from forerun_evaluation.observer import Observer
from forerun_evaluation.policy import Order, View


@dataclass(frozen=True)
class Outcome:
    """What happened to each evaluation, in the order of starts: its row in the file, GPU, start and end."""

    inputs: Inputs
    row: NDArray[np.int64]
    gpu: NDArray[np.int64]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]


def run(inputs: Inputs, observers: Sequence[Observer] = ()) -> Outcome:
    """Run all evaluations. Raises PolicyError if the policy chooses one that does not exist."""
    scenario, policy = inputs.scenario, inputs.scenario.policy
    assert isinstance(policy, Order)
    factor = np.exp(scenario.spread * stream(scenario.seed, "duration").standard_normal(len(inputs.names)))
    remaining = list(range(len(inputs.names)))
    idle = [(0.0, gpu) for gpu in range(scenario.gpus)]
    happened: list[tuple[int, int, float, float]] = []
    while remaining:
        now_s, gpu = heapq.heappop(idle)
        position = policy.choose(View(now_s, inputs.duration_s[remaining]))
        if not 0 <= position < len(remaining):
            known = f"{len(remaining)} evaluations remain"
            raise PolicyError.at(
                f"{type(policy).__name__} at {now_s:g} s", f"chose position {position}; {known}"
            )
        row = remaining.pop(position)
        end_s = now_s + float(inputs.duration_s[row] * factor[row])
        heapq.heappush(idle, (end_s, gpu))
        happened.append((row, gpu, now_s, end_s))
        for observer in observers:
            observer.started(inputs.names[row], gpu, now_s)
    rows, gpus, starts, ends = zip(*happened)
    return Outcome(inputs, np.array(rows), np.array(gpus), np.array(starts), np.array(ends))
