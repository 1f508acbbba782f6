"""One power limit for every batch size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forerun.core.scenario.numbers import Positive
from forerun.energy.policy import LimitPolicy, LimitSpec, Setting, not_measured
from forerun.energy.policy.view import View


class FixedLimit(LimitSpec, frozen=True, kw_only=True, tag="fixed-limit"):
    """Always the same power limit.

    limit_w: above 0 [W].
    """

    limit_w: Positive

    def unmeasured(self, limits_w: Mapping[int, Sequence[float]]) -> list[tuple[str, str]]:
        """A limit that no batch size was measured at."""
        known = sorted({limit for limits in limits_w.values() for limit in limits}, reverse=True)
        return [] if self.limit_w in known else [not_measured("limit_w", self.limit_w, known)]

    def build(self, setting: Setting) -> LimitPolicy:
        """A policy without state."""
        return KeepLimit(self.limit_w)


class KeepLimit(LimitPolicy):
    """One limit, for ever; 0 stands for the highest measured."""

    def __init__(self, limit_w: float) -> None:
        self._limit_w = limit_w

    def choose(self, view: View, batch_size: int) -> float:
        """The limit."""
        return self._limit_w or view.limits_w[batch_size][0]
