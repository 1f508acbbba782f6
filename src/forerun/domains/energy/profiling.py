"""The cook behind limits that are chosen from a profile: profile a batch size once, then keep the selector's choice."""

from __future__ import annotations

from collections.abc import Callable

from forerun.domains.energy.model import Measured, Profile, View


class ProfileThenKeep:
    """`best` maps a batch size to the limit kept [W]; `measured` to what its profile found."""

    def __init__(self, select: Callable[[Measured], float]) -> None:
        self._select = select
        self.best: dict[int, float] = {}
        self.measured: dict[int, Measured] = {}

    def choose(self, view: View, batch_size: int) -> float | Profile:
        """The limit that was found, or a profile over all of them."""
        known = self.best.get(batch_size)
        return Profile(view.limits_w[batch_size]) if known is None else known

    def profiled(self, measured: Measured) -> None:
        """Select once and for all."""
        self.best[measured.batch_size] = self._select(measured)
        self.measured[measured.batch_size] = measured
