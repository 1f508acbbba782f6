"""Grow at once: what the measured system and the notebook do."""

from __future__ import annotations

from typing import ClassVar

from forerun.spot.policy import Absorb, GrowthRule, GrowthView


class Immediate(GrowthRule, frozen=True, kw_only=True, tag="immediate"):
    """Take up returning nodes as soon as they make a pipeline, whatever it throws away.

    The rule of the elastic run behind the measured profile [Thorpe et al., Bamboo, NSDI'23, the checkpoint
    baseline].
    """

    kernel_code: ClassVar[int] = 0

    def absorb(self, view: GrowthView) -> Absorb:
        """Always now."""
        return Absorb.NOW
