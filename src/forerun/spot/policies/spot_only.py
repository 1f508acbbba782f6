"""Spot whenever it is there, whatever the deadline."""

from __future__ import annotations

from forerun.spot.policy import DeadlineRule, DeadlineView, Held


class SpotOnly(DeadlineRule, frozen=True, kw_only=True, tag="spot_only"):
    """Hold spot while it is there and nothing else; the cheapest rule, and blind to the deadline.

    A baseline of [Wu et al., Can't be late, NSDI'24].
    """

    def choose(self, view: DeadlineView) -> Held:
        """Spot or nothing."""
        return Held.SPOT if view.spot_available and view.remaining_s > 0 else Held.NONE
