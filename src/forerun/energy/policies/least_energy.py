"""Profile a batch size's limits in its first epoch, keep the one with the fewest joules an epoch."""

from __future__ import annotations

from forerun.energy.policy import LimitPolicy, LimitSpec, Setting
from forerun.energy.policy.profiling import ProfileThenKeep
from forerun.energy.policy.selectors import least_energy


class LeastEnergy(LimitSpec, frozen=True, kw_only=True, tag="least-energy"):
    """The limit with the fewest joules an epoch, whatever the time; the highest wins ties."""

    def build(self, setting: Setting) -> LimitPolicy:
        """A policy that has profiled nothing yet."""
        return ProfileThenKeep(
            lambda profile: least_energy(
                profile.limits_w, [p * t for p, t in zip(profile.power_w, profile.epoch_s)]
            )
        )
