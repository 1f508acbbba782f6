"""One configuration that somebody has chosen."""

from __future__ import annotations

from forerun.domains.energy.policies.default import ConstantPolicy
from forerun.domains.energy.policy import KnobPolicy, KnobSpec, Setting


class Fixed(KnobSpec, frozen=True, kw_only=True, tag="fixed"):
    """Always the same configuration, without a bound.

    batch_size: samples a step. limit_w: [W] (default 0: the highest measured).
    """

    batch_size: int
    limit_w: float = 0.0

    def build(self, setting: Setting) -> KnobPolicy:
        """A policy without state."""
        return ConstantPolicy(self.batch_size, self.limit_w)
