"""The hazard rule with the cheaper rollback of a drain."""

from __future__ import annotations

from typing import ClassVar

from forerun.spot.policies.hazard import worth_growing
from forerun.spot.policy import Absorb, GrowthRule, GrowthView


class HazardDrain(GrowthRule, frozen=True, kw_only=True, tag="hazard_drain"):
    """Decide as `hazard` would for a rollback of one write, then wait for the next durable checkpoint.

    A rule of this project.
    """

    kernel_code: ClassVar[int] = 5

    def absorb(self, view: GrowthView) -> Absorb:
        """At the next durable instant (or now, if not training) when that pays."""
        if not worth_growing(view, view.write_s):
            return Absorb.WAIT
        return Absorb.AT_NEXT_DURABLE if view.state == "training" else Absorb.NOW
