"""Smallest job first."""

from __future__ import annotations

from typing import ClassVar

from forerun.domains.cluster.inputs.setting import F64
from forerun.domains.cluster.policy import OracleView, PriorityPolicy


class SmallestJobFirst(PriorityPolicy, tag="sjf-area", frozen=True, kw_only=True):
    """The waiting job of least GPU-seconds (duration times GPUs) starts next; jobs do not give way. It knows durations."""

    paper: ClassVar[str] = "textbook"
    needs: ClassVar[tuple[str, ...]] = ("gpus", "duration")
    guarantees: ClassVar[str] = "none"
    cost: ClassVar[str] = "O(log jobs) an event"
    preemptive: ClassVar[bool] = False
    kernel_key: ClassVar[int] = 2

    @staticmethod
    def key(view: OracleView) -> F64:
        """GPU-seconds in all."""
        priority: F64 = view.work_s * view.gpus
        return priority
