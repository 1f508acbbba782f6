"""Earliest deadline first at requested counts."""

from __future__ import annotations

from typing import ClassVar

from forerun.domains.cluster.inputs.setting import F64
from forerun.domains.cluster.policy import OracleView, PriorityPolicy


class EdfRigid(PriorityPolicy, tag="edf-rigid", frozen=True, kw_only=True):
    """The jobs of earliest deadline run at their requested counts, others give way; jobs without deadline come last."""

    paper: ClassVar[str] = "Liu and Layland, 1973"
    needs: ClassVar[tuple[str, ...]] = ("gpus", "deadline")
    guarantees: ClassVar[str] = "meets all deadlines on one GPU if anything can"
    cost: ClassVar[str] = "O(log jobs) an event"
    preemptive: ClassVar[bool] = True
    kernel_key: ClassVar[int] = 4

    @staticmethod
    def key(view: OracleView) -> F64:
        """Deadlines."""
        priority: F64 = view.deadline_s
        return priority
