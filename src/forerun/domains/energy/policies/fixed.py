"""One configuration that somebody has chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forerun.domains.energy.policies.default import ConstantPolicy
from forerun.domains.energy.policy import KnobPolicy, KnobSpec, Setting


class Fixed(KnobSpec, frozen=True, kw_only=True, tag="fixed"):
    """Always the same configuration, without a bound.

    batch_size: samples a step. limit_w: [W] (default 0: the highest measured).
    """

    batch_size: int
    limit_w: float = 0.0

    def unmeasured(self, limits_w: Mapping[int, Sequence[float]]) -> list[tuple[str, str]]:
        """The size, or the limit at that size."""
        if self.batch_size not in limits_w:
            known = ", ".join(map(str, limits_w))
            return [("batch_size", f"batch size {self.batch_size} was not measured: {known}")]
        known = ", ".join(f"{limit:g}" for limit in limits_w[self.batch_size])
        if self.limit_w and self.limit_w not in limits_w[self.batch_size]:
            what = f"{self.limit_w:g} W was not measured at batch size {self.batch_size}: {known}"
            return [("limit_w", what)]
        return []

    def build(self, setting: Setting) -> KnobPolicy:
        """A policy without state."""
        return ConstantPolicy(self.batch_size, self.limit_w)
