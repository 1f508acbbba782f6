"""One configuration that somebody has chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forerun.energy.policies.default import ConstantPolicy
from forerun.energy.policy import KnobPolicy, KnobSpec, Setting, not_measured


class Fixed(KnobSpec, frozen=True, kw_only=True, tag="fixed"):
    """Always the same configuration, without a bound.

    batch_size: samples a step. limit_w: [W] (default 0: the highest measured).
    """

    batch_size: int
    limit_w: float = 0.0

    def unmeasured(self, limits_w: Mapping[int, Sequence[float]]) -> list[tuple[str, str]]:
        """The size, or the limit at that size."""
        limits = limits_w.get(self.batch_size)
        if limits is None:
            return [not_measured("batch_size", self.batch_size, limits_w)]
        good = not self.limit_w or self.limit_w in limits
        return [] if good else [not_measured("limit_w", self.limit_w, limits)]

    def build(self, setting: Setting) -> KnobPolicy:
        """A policy without state."""
        return ConstantPolicy(self.batch_size, self.limit_w)
