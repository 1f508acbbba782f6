"""No limit below the highest: the baseline of a GPU as it is sold."""

from __future__ import annotations

from forerun.domains.energy.policy import LimitPolicy, LimitSpec, Setting
from forerun.domains.energy.policy.view import MeasuredLimits, View


class MaxLimit(LimitSpec, frozen=True, kw_only=True, tag="max-limit"):
    """The highest limit measured for the batch size."""

    def build(self, setting: Setting) -> LimitPolicy:
        """A policy without state."""
        return MaxLimitPolicy()


class MaxLimitPolicy:
    """Knows nothing and needs nothing."""

    def choose(self, view: View, batch_size: int) -> float:
        """The top."""
        return view.limits_w[batch_size][0]

    def profiled(self, measured: MeasuredLimits) -> None:
        """Nothing is learned."""
