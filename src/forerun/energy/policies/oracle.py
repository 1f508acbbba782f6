"""The best fixed configuration, known in advance: what regret is measured against."""

from __future__ import annotations

from typing import ClassVar

from forerun.core.errors import Infeasible, Problem
from forerun.energy.policies.default import ConstantPolicy
from forerun.energy.policy import KnobPolicy, KnobSpec, Setting
from forerun.energy.policy.view import OracleView


class Oracle(KnobSpec, frozen=True, kw_only=True, tag="oracle"):
    """The configuration with the least expected cost among those whose recorded paths all reach the target."""

    omniscient: ClassVar[bool] = True

    def build(self, setting: Setting) -> KnobPolicy:
        """The best configuration of the recorded paths, for ever. Raises Infeasible if no configuration always reaches."""
        size, limit = best_configuration(setting.oracle, str(setting.job))
        return ConstantPolicy(size, limit)


def best_configuration(view: OracleView, job: str) -> tuple[int, float]:
    """Batch size and limit [W] with the least expected cost among those that always reach the target."""
    certain = [point for point in view.configurations if point.reach == 1]
    if not certain:
        raise Infeasible(Problem(job, "no measured batch size reaches the target in every recorded run"))
    best = min(certain, key=lambda point: point.cost_j)
    return best.batch_size, best.limit_w
