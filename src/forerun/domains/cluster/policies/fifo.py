"""First come, first served."""

from __future__ import annotations

from typing import ClassVar

from forerun.domains.cluster.inputs.setting import F64
from forerun.domains.cluster.policy import OracleView, PriorityPolicy


class Fifo(PriorityPolicy, tag="fifo", frozen=True, kw_only=True):
    """Jobs in order of submission at their requested counts; running jobs do not give way.

    A job that does not fit holds back all behind it, unless `backfill`.
    """

    paper: ClassVar[str] = "textbook"
    needs: ClassVar[tuple[str, ...]] = ("gpus",)
    guarantees: ClassVar[str] = "no job starves"
    cost: ClassVar[str] = "O(log jobs) an event"
    preemptive: ClassVar[bool] = False
    kernel_key: ClassVar[int] = 0

    @staticmethod
    def key(view: OracleView) -> F64:
        """Instants of submission."""
        priority: F64 = view.submit_s
        return priority
