"""Rigid jobs in an order of priority: by submission, duration, size, what is left, or deadline."""

from __future__ import annotations

from typing import ClassVar

from forerun.cluster.policy import PriorityOrder, PriorityPolicy


class Fifo(PriorityPolicy, tag="fifo", frozen=True, kw_only=True):
    """Jobs in order of submission at their requested counts; running jobs do not give way.

    A job that does not fit holds back all behind it, unless `backfill`.
    """

    paper: ClassVar[str] = "textbook"
    needs: ClassVar[tuple[str, ...]] = ("gpus",)
    guarantees: ClassVar[str] = "no job starves"


class FifoBackfill(PriorityPolicy, tag="fifo-backfill-unreserved", frozen=True, kw_only=True):
    """As `fifo`, but jobs behind one that does not fit may start. Nothing is reserved for the first in the queue.

    So this is not EASY backfilling, where a job starts early only if the first in the queue is not delayed: a wide job
    waits here until enough GPUs happen to be free at once, which may be never.
    """

    paper: ClassVar[str] = "textbook"
    needs: ClassVar[tuple[str, ...]] = ("gpus",)
    guarantees: ClassVar[str] = "none; a wide job may wait for ever"
    backfill: bool = True


class Sjf(PriorityPolicy, tag="sjf", frozen=True, kw_only=True):
    """The shortest waiting job starts next; running jobs do not give way. It knows durations."""

    paper: ClassVar[str] = "textbook"
    guarantees: ClassVar[str] = (
        "least mean completion time on one GPU without preemption, if all jobs are there at the start"
    )
    order: ClassVar[PriorityOrder] = PriorityOrder.DURATION


class SmallestJobFirst(PriorityPolicy, tag="sjf-area", frozen=True, kw_only=True):
    """The waiting job of least GPU-seconds (duration times GPUs) starts next; jobs do not give way. It knows durations."""

    paper: ClassVar[str] = "textbook"
    guarantees: ClassVar[str] = "none"
    order: ClassVar[PriorityOrder] = PriorityOrder.AREA


class Srtf(PriorityPolicy, tag="srtf", frozen=True, kw_only=True):
    """The jobs of least remaining time run, others give way. It knows durations."""

    paper: ClassVar[str] = "Schrage, 1968"
    guarantees: ClassVar[str] = "least mean completion time on one GPU without restart cost"
    order: ClassVar[PriorityOrder] = PriorityOrder.REMAINING
    preemptive: ClassVar[bool] = True


class EdfRigid(PriorityPolicy, tag="edf-rigid", frozen=True, kw_only=True):
    """The jobs of earliest deadline run at their requested counts, others give way; jobs without deadline come last."""

    paper: ClassVar[str] = "Liu and Layland, 1973"
    needs: ClassVar[tuple[str, ...]] = ("gpus", "deadline")
    guarantees: ClassVar[str] = "meets all deadlines on one GPU if anything can"
    order: ClassVar[PriorityOrder] = PriorityOrder.DEADLINE
    preemptive: ClassVar[bool] = True
