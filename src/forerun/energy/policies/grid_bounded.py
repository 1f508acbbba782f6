"""Grid search that starts from the default and stops what costs too much."""

from __future__ import annotations

from forerun.energy.policies.grid import GridPolicy
from forerun.energy.policy import KnobPolicy, KnobSpec, Setting


class GridBounded(KnobSpec, frozen=True, kw_only=True, tag="grid-bounded"):
    """The default at its highest limit first, then as `grid`, under the simulator's bound."""

    def build(self, setting: Setting) -> KnobPolicy:
        """A policy at the start of the grid. Raises DefaultMissing or DefaultNotInRange."""
        return GridPolicy(setting, bounded=True)
