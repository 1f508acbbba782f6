"""One configuration that somebody has chosen."""

from __future__ import annotations

from forerun.domains.energy.policies.default import Constant
from forerun.domains.energy.policy import KnobPolicy, KnobRecipe, Setting


class Fixed(KnobRecipe, frozen=True, kw_only=True, tag="fixed"):
    """Always `batch_size` at `limit_w` [W] (0: the highest measured), without a bound."""

    batch_size: int
    limit_w: float = 0.0

    def build(self, setting: Setting) -> KnobPolicy:
        """A cook without memory."""
        return Constant(self.batch_size, self.limit_w)
