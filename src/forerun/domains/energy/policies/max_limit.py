"""No limit below the highest: the baseline of a GPU as it is sold."""

from __future__ import annotations

from forerun.domains.energy.model import Measured, View
from forerun.domains.energy.policy import LimitPolicy, LimitRecipe, Setting


class MaxLimit(LimitRecipe, frozen=True, kw_only=True, tag="max-limit"):
    """The highest limit measured for the batch size."""

    def build(self, setting: Setting) -> LimitPolicy:
        """A cook without memory."""
        return MaxLimitCook()


class MaxLimitCook:
    """Knows nothing and needs nothing."""

    def choose(self, view: View, batch_size: int) -> float:
        """The top."""
        return view.limits_w[batch_size][0]

    def profiled(self, measured: Measured) -> None:
        """Nothing is learned."""
