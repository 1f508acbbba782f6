"""Other orders of what happens at one instant: answers of the store a hair later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from forerun.domain import Orders, Untied
from forerun.domains.loading.model import F64
from forerun.domains.loading.scenario import Scenario
from forerun.domains.loading.world import Drawn, sample_sizes
from forerun.rng import stream

if TYPE_CHECKING:
    from forerun.result.run import Result

#: a hair, in s: far below any answer of a store; a million of them are a millisecond
HAIR_S = 1e-9


def orders(scenario: Scenario) -> Orders | Untied:
    """Answers of the store before or after what else happens at their instant; threads run in lock-step without."""
    if scenario.loader.mode != "threads":
        return Untied("each worker reads and decodes for itself, so the order of instants decides nothing")
    what = "each answer of the store comes up to two hairs (2 ns) later, so that no two threads go in step"
    return Orders(what, lambda number: simulate_in(scenario, number))


def simulate_in(scenario: Scenario, number: int) -> Result:
    """The scenario's result with its ties broken in order `number`."""
    from forerun.domains.loading.runs import run_scenario

    return run_scenario(scenario, draw=lambda given: _Shaken(given, sample_sizes(given), number))


class _Shaken(Drawn):
    """What was drawn, with every latency up to two hairs longer."""

    number: int

    def __init__(self, scenario: Scenario, sizes: F64, number: int) -> None:
        super().__init__(scenario, sizes)
        object.__setattr__(self, "number", number)

    def latencies(self, epoch: int) -> F64:
        """Latencies in the order of serving, each with its hairs."""
        given = super().latencies(epoch)
        count = self.requests() if len(given) == 1 else len(given)
        hairs = stream(self.scenario.seed, "ties", self.number, epoch).integers(0, 3, size=count)
        return np.broadcast_to(given, count) + HAIR_S * hairs
