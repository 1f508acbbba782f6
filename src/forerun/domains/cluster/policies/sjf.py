"""Shortest job first."""

from __future__ import annotations

from typing import ClassVar

from forerun.domains.cluster.inputs.setting import F64
from forerun.domains.cluster.policy import OracleView, PriorityPolicy


class Sjf(PriorityPolicy, tag="sjf", frozen=True, kw_only=True):
    """The shortest waiting job starts next; running jobs do not give way. It knows durations."""

    paper: ClassVar[str] = "textbook"
    needs: ClassVar[tuple[str, ...]] = ("gpus", "duration")
    guarantees: ClassVar[str] = (
        "least mean completion time on one GPU without preemption, if all jobs are there at the start"
    )
    cost: ClassVar[str] = "O(log jobs) an event"
    preemptive: ClassVar[bool] = False
    kernel_key: ClassVar[int] = 1

    @staticmethod
    def key(view: OracleView) -> F64:
        """Work in all."""
        priority: F64 = view.work_s
        return priority
