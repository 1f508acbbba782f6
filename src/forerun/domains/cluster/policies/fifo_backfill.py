"""First come, first served, with backfill."""

from __future__ import annotations

from typing import ClassVar

from forerun.domains.cluster.allocator import OracleView
from forerun.domains.cluster.model import F64
from forerun.domains.cluster.priority import PriorityPolicy


class FifoBackfill(PriorityPolicy, tag="fifo-backfill", frozen=True, kw_only=True):
    """As `fifo`, but jobs behind one that does not fit may start; a large job may wait for ever."""

    paper: ClassVar[str] = "textbook"
    needs: ClassVar[tuple[str, ...]] = ("gpus",)
    guarantees: ClassVar[str] = "none"
    cost: ClassVar[str] = "O(log jobs) an event"
    preemptive: ClassVar[bool] = False
    kernel_key: ClassVar[int] = 0
    backfill: bool = True

    @staticmethod
    def key(view: OracleView) -> F64:
        """Instants of submission."""
        priority: F64 = view.submit_s
        return priority
