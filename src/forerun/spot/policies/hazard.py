"""Grow when the expected gain until the next hit is more than the growth throws away."""

from __future__ import annotations

from typing import ClassVar

from forerun.spot.policy import Absorb, GrowthRule, GrowthView


class Hazard(GrowthRule, frozen=True, kw_only=True, tag="hazard"):
    """Weigh steps gained until the next hit against steps thrown away now.

    With hits at rate lam, growing from step time s1 to s2 gains (1/lam)(1/s2 - 1/s1) steps until the next hit
    and costs the rolled-back time at the old speed plus the pause at the new one.  A rule of this project.
    """

    kernel_code: ClassVar[int] = 4

    def absorb(self, view: GrowthView) -> Absorb:
        """Now if the gain is larger, wait otherwise."""
        return Absorb.NOW if worth_growing(view, view.would_lose_s) else Absorb.WAIT


def worth_growing(view: GrowthView, lost_s: float) -> bool:
    """Whether the steps gained until the next hit outweigh those lost by growing with a rollback of
    ``lost_s``.
    """
    if view.state == "idle" or view.hit_rate_per_s == 0.0:
        return True
    gained = (1.0 / view.possible_step_s - 1.0 / view.step_s) / view.hit_rate_per_s
    if view.state == "reconfiguring":
        return gained > view.spent_s / view.possible_step_s
    return gained > lost_s / view.step_s + view.reconfig_s / view.possible_step_s
