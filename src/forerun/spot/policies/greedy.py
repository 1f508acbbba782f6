"""Spot while there is slack, on-demand when there is none."""

from __future__ import annotations

from forerun.spot.policy import DeadlineRule, DeadlineView, Held


class Greedy(DeadlineRule, frozen=True, kw_only=True, tag="greedy"):
    """Use spot while it is there; once only on-demand can still meet the deadline, use that to the end.

    Time is counted in whole ticks, so that deadlines between ticks are met as well.
    [Wu et al., Can't be late, NSDI'24, section 4.1.]
    """

    def choose(self, view: DeadlineView) -> Held:
        """Spot or nothing, until time for the rest and one change-over is all that is left."""
        if view.ticks_needed_s(1) >= view.left_s:
            return Held.SPOT if view.held is Held.SPOT else Held.ON_DEMAND
        return Held.SPOT if view.spot_available else Held.NONE
