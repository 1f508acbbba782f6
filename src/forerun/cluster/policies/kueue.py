"""Kueue's order of admission: each queue by priority and creation, in cycles over the heads of all queues."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from forerun.cluster.inputs.arrays import I64
from forerun.cluster.inputs.limits import Tally
from forerun.cluster.policy import Allocation, Allocator, Scheduler, View


class Kueue(Allocator, tag="kueue", frozen=True, kw_only=True):
    """Workloads on the GPUs that they request, never stopped, as the ClusterQueues of `machines` admit them.

    A queue looks at its workloads by priority, then by creation. In each cycle the first of every queue is tried on the
    queue's flavors in their order; those that fit are admitted, ones within the nominal quota before ones that borrow, then
    by priority and creation. Under `BestEffortFIFO` a workload that does not fit lets those behind it pass; under
    `StrictFIFO` it does not. Requested times play no part. Without ClusterQueues all jobs are in one queue
    (`BestEffortFIFO`).
    """

    paper: ClassVar[str] = "Kueue, kueue.sigs.k8s.io"
    needs: ClassVar[tuple[str, ...]] = ("gpus",)
    guarantees: ClassVar[str] = "`StrictFIFO`: no job of a queue is passed; `BestEffortFIFO`: none"
    cost: ClassVar[str] = "O(waiting) an event"

    def build(self, rng: np.random.Generator) -> Scheduler:
        """A scheduler that decides by the view alone."""
        return KueueScheduler()


class KueueScheduler:
    """Admits waiting jobs in cycles over the heads of their queues."""

    def allocate(self, view: View) -> Allocation:
        """Let running jobs go on, and admit what the queues admit now."""
        limits = view.limits
        if limits is None or limits.queues is None:
            return view.take(np.argsort(view.held == 0, kind="stable"))
        queues, tally = limits.queues, Tally(limits)
        given, types, owner = view.held.copy(), view.gpu_type.copy(), view.owner.copy()
        seats: dict[int, I64] = {}
        free: list[int] = view.type_total.tolist()
        for at in np.flatnonzero(view.held > 0).tolist():
            tally.add(int(view.job[at]), int(types[at]), int(given[at]))
            free[types[at]] -= int(given[at])
        jobs, gpus = view.job.tolist(), view.gpus.tolist()
        waiting: dict[int, list[int]] = {}
        for at in np.flatnonzero(view.held == 0).tolist():
            waiting.setdefault(queues.of[jobs[at]], []).append(at)
        for line in waiting.values():
            line.sort(key=lambda at: (-queues.priority[jobs[at]], at), reverse=True)  # the first is the last

        def chosen(at: int) -> tuple[bool, int] | None:
            """Whether a job borrows, and on which type of GPUs; None: it does not fit now."""
            job, need, queue = jobs[at], gpus[at], queues.of[jobs[at]]
            fits = None
            for number in queues.types[queue]:
                if free[number] < need or not tally.fits(job, number, need):
                    continue
                if len(owner) and not len(view.seats_for(owner, need, number)):
                    view.spread[at] = 1
                    continue
                borrows = tally.borrows(job, number, need)
                if fits is None or (fits[0] and not borrows):
                    fits = (borrows, number)
                if not borrows or not queues.tries_next[queue]:
                    break
            return fits

        while waiting:
            heads: list[tuple[bool, float, int, int]] = []
            for queue, line in list(waiting.items()):
                if (fits := chosen(line[-1])) is not None:
                    heads.append((fits[0], -queues.priority[jobs[line[-1]]], line[-1], queue))
                elif queues.strict[queue] or len(line) == 1:
                    del waiting[queue]
                else:
                    line.pop()
            for _, _, at, queue in sorted(heads):
                if (fits := chosen(at)) is None:
                    continue
                given[at], types[at] = gpus[at], fits[1]
                tally.add(jobs[at], fits[1], gpus[at])
                free[fits[1]] -= gpus[at]
                if len(owner):
                    seats[at] = view.seats_for(owner, gpus[at], fits[1])
                    owner[seats[at]] = jobs[at]
                waiting[queue].pop()
                if not waiting[queue]:
                    del waiting[queue]
        view.over_quota = np.zeros(view.count, np.int64)
        for at in np.flatnonzero(given == 0).tolist():
            enough = any(free[number] >= gpus[at] for number in queues.types[queues.of[jobs[at]]])
            view.spread[at] = 0
            view.over_quota[at] = enough and chosen(at) is None and not view.spread[at]
        return Allocation(given, types, seats=seats)
