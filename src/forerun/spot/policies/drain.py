"""Grow at the next durable checkpoint."""

from __future__ import annotations

from typing import ClassVar

from forerun.spot.policy import Absorb, GrowthRule, GrowthView


class Drain(GrowthRule, frozen=True, kw_only=True, tag="drain"):
    """While training, let the running write become durable first; then grow.

    The rollback is then one write long instead of up to a write and a checkpoint interval.  A rule of this
    project.
    """

    kernel_code: ClassVar[int] = 3

    def absorb(self, view: GrowthView) -> Absorb:
        """At the next durable instant while training, otherwise now."""
        return Absorb.AT_NEXT_DURABLE if view.state == "training" else Absorb.NOW
