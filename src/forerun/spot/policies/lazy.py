"""Grow only when something forces a re-plan anyway."""

from __future__ import annotations

from typing import ClassVar

from forerun.spot.policy import Absorb, GrowthRule, GrowthView


class Lazy(GrowthRule, frozen=True, kw_only=True, tag="lazy"):
    """Leave returning nodes on standby until the next loss; from idle, start at once.

    Growth then costs nothing of its own.  The elastic trainers compared in Oobleck grow like this
    [Jang et al., SOSP'23, section 7].
    """

    kernel_code: ClassVar[int] = 1

    def absorb(self, view: GrowthView) -> Absorb:
        """Only from idle."""
        return Absorb.NOW if view.state == "idle" else Absorb.WAIT
