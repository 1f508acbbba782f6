"""No limit below the highest: the baseline of a GPU as it is sold."""

from __future__ import annotations

from forerun.energy.policies.fixed_limit import KeepLimit
from forerun.energy.policy import LimitPolicy, LimitSpec, Setting


class MaxLimit(LimitSpec, frozen=True, kw_only=True, tag="max-limit"):
    """The highest limit measured for the batch size."""

    def build(self, setting: Setting) -> LimitPolicy:
        """A policy without state."""
        return KeepLimit(0.0)
