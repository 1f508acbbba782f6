"""Profile a batch size's limits in its first epoch, keep the cheapest [You, Chung, Chowdhury, NSDI 2023, section 4.2]."""

from __future__ import annotations

from forerun.energy.policy import LimitPolicy, LimitSpec, Setting
from forerun.energy.policy.profiling import ProfileThenKeep
from forerun.energy.policy.view import MeasuredLimits


class Jit(LimitSpec, frozen=True, kw_only=True, tag="jit"):
    """Just in time: the first epoch of a new batch size is split over all its limits; the cheapest stays.

    The cost of a limit is (eta * power + (1 - eta) * max power) * epoch time; the highest limit wins ties.
    """

    def build(self, setting: Setting) -> LimitPolicy:
        """A policy that has profiled nothing yet."""

        def cheapest(measured: MeasuredLimits) -> float:
            """The limit with the least cost of an epoch; the highest wins ties."""
            costs = measured.epoch_cost_j(setting.eta)
            return measured.limits_w[costs.index(min(costs))]

        return ProfileThenKeep(cheapest)
