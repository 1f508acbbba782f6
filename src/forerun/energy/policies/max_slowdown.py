"""Profile a batch size's limits in its first epoch, keep the lowest that is not too slow [Zeus project, power limits]."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from forerun.energy.policy import LimitPolicy, LimitSpec, Setting
from forerun.energy.policy.profiling import ProfileThenKeep
from forerun.energy.policy.selectors import max_slowdown


class MaxSlowdown(LimitSpec, frozen=True, kw_only=True, tag="max-slowdown"):
    """The lowest limit whose epoch takes at most `factor` times that of another limit.

    factor: at least 1 (default 1.1). of: the other limit, the highest (default) or the fastest; the highest need not be the
    fastest, since measured times are not monotone.
    """

    factor: Annotated[float, msgspec.Meta(ge=1, description="nothing is faster than itself")] = 1.1
    of: Literal["highest", "fastest"] = "highest"

    def build(self, setting: Setting) -> LimitPolicy:
        """A policy that has profiled nothing yet."""
        return ProfileThenKeep(
            lambda profile: max_slowdown(profile.limits_w, profile.epoch_s, factor=self.factor, of=self.of)
        )
