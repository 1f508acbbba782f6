"""Leave the replicas alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forerun.serving.policy.tuning import FleetView, Keep, Tuner, Tuning

if TYPE_CHECKING:
    import numpy as np

    from forerun.serving.policy.handover import Handover


class Fixed(Tuner, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="fixed"):
    """The configuration as it stands, whatever comes: a plan by itself, and what every tuner is compared with.

    The provisioning of a planner that runs once, as InferLine's does between its slow re-plannings [Crankshaw et al.,
    SoCC'20, section 4].
    """

    def build(self, handover: Handover, rng: np.random.Generator) -> _Fixed:
        """The policy; it draws nothing."""
        return _Fixed()


class _Fixed:
    def decide(self, view: FleetView) -> Tuning:
        return Keep()
