"""The limit policy of specs that choose from a profile: profile a batch size once, then keep the selector's choice."""

from __future__ import annotations

from collections.abc import Callable

from forerun.energy.policy.view import MeasuredLimits, ProfileLimits, View


class ProfileThenKeep:
    """select: chooses a limit [W] from what was measured.

    `best` maps a batch size to the chosen limit [W], `measured` to its profile.
    """

    def __init__(self, select: Callable[[MeasuredLimits], float]) -> None:
        self._select = select
        self.best: dict[int, float] = {}
        self.measured: dict[int, MeasuredLimits] = {}

    def choose(self, view: View, batch_size: int) -> float | ProfileLimits:
        """The chosen limit, or a profile of all limits."""
        known = self.best.get(batch_size)
        return ProfileLimits(view.limits_w[batch_size]) if known is None else known

    def profiled(self, measured: MeasuredLimits) -> None:
        """Select once and for all."""
        self.best[measured.batch_size] = self._select(measured)
        self.measured[measured.batch_size] = measured
