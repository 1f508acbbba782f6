"""Uniformly random knobs, the floor under every optimiser."""

from __future__ import annotations

from forerun.energy.policy import KnobPolicy, KnobSpec, Setting
from forerun.energy.policy.view import Knobs, View


class Random(KnobSpec, frozen=True, kw_only=True, tag="random"):
    """Each attempt draws one of all measured configurations; under the simulator's bound."""

    def build(self, setting: Setting) -> KnobPolicy:
        """A policy with its own random stream."""
        return RandomPolicy(setting)


class RandomPolicy(KnobPolicy):
    """Draws one integer a choice."""

    def __init__(self, setting: Setting) -> None:
        self._rng = setting.rng

    def choose(self, view: View) -> Knobs:
        """Any configuration."""
        grid = [(size, limit) for size in view.sizes for limit in view.limits_w[size]]
        size, limit = grid[int(self._rng.integers(len(grid)))]
        return Knobs(size, limit, exploring=True)
