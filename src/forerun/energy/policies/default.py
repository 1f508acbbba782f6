"""The team's own batch size at the highest limit: what optimising is compared with."""

from __future__ import annotations

import math

from forerun.energy.policy import KnobPolicy, KnobSpec, Setting
from forerun.energy.policy.view import Knobs, View


class Default(KnobSpec, frozen=True, kw_only=True, tag="default"):
    """The default batch size at its highest limit, without a bound."""

    def build(self, setting: Setting) -> KnobPolicy:
        """A policy without state. Raises DefaultMissing or DefaultNotInRange."""
        return ConstantPolicy(setting.default(), 0.0)


class ConstantPolicy(KnobPolicy):
    """One configuration, for ever; limit 0 stands for the highest measured."""

    def __init__(self, batch_size: int, limit_w: float) -> None:
        self._batch_size, self._limit_w = batch_size, limit_w

    def choose(self, view: View) -> Knobs:
        """The configuration."""
        limit = self._limit_w or view.limits_w[self._batch_size][0]
        return Knobs(self._batch_size, limit, math.inf)
