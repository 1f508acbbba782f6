"""Uniformly random knobs, the floor under every optimiser."""

from __future__ import annotations

from forerun.domains.energy.model import Knobs, Measured, Outcome, View
from forerun.domains.energy.policy import KnobPolicy, KnobRecipe, Setting


class Random(KnobRecipe, frozen=True, kw_only=True, tag="random"):
    """Each attempt draws one of all measured configurations; the simulator's bound holds."""

    def build(self, setting: Setting) -> KnobPolicy:
        """A cook with a stream of its own."""
        return RandomCook(setting)


class RandomCook:
    """Draws one integer a choice."""

    def __init__(self, setting: Setting) -> None:
        self._rng = setting.rng

    def choose(self, view: View) -> Knobs:
        """Any configuration."""
        grid = [(size, limit) for size in view.sizes for limit in view.limits_w[size]]
        size, limit = grid[int(self._rng.integers(len(grid)))]
        return Knobs(size, limit, exploring=True)

    def profiled(self, view: View, measured: Measured) -> float:
        """Never asked: nothing is profiled."""
        raise AssertionError("random knobs profile nothing")

    def learn(self, outcome: Outcome) -> None:
        """Nothing is learned."""
