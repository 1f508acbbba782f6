"""On-demand from the start to the end."""

from __future__ import annotations

from forerun.spot.policy import DeadlineRule, DeadlineView, Held


class OnDemand(DeadlineRule, frozen=True, kw_only=True, tag="on_demand"):
    """Hold on-demand until the work is done: what meeting the deadline costs without spot.

    A baseline of [Wu et al., Can't be late, NSDI'24].
    """

    def choose(self, view: DeadlineView) -> Held:
        """On-demand while there is work."""
        return Held.ON_DEMAND if view.remaining_s > 0 else Held.NONE
