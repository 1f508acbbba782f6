"""First come, first served, with backfill and no reservation."""

from __future__ import annotations

from typing import ClassVar

from forerun.domains.cluster.inputs.setting import F64
from forerun.domains.cluster.policy import OracleView, PriorityPolicy


class FifoBackfill(PriorityPolicy, tag="fifo-backfill-unreserved", frozen=True, kw_only=True):
    """As `fifo`, but jobs behind one that does not fit may start. Nothing is reserved for the first in the queue.

    So this is not EASY backfilling, where a job starts early only if the first in the queue is not delayed: a wide job
    waits here until enough GPUs happen to be free at once, which may be never. Known as `fifo-backfill`, too.
    """

    also_named: ClassVar[tuple[str, ...]] = ("fifo-backfill",)

    paper: ClassVar[str] = "textbook"
    needs: ClassVar[tuple[str, ...]] = ("gpus",)
    guarantees: ClassVar[str] = "none; a wide job may wait for ever"
    cost: ClassVar[str] = "O(log jobs) an event"
    preemptive: ClassVar[bool] = False
    kernel_key: ClassVar[int] = 0
    backfill: bool = True

    @staticmethod
    def key(view: OracleView) -> F64:
        """Instants of submission."""
        priority: F64 = view.submit_s
        return priority
