"""Least attained service in a few queues: Tiresias [Gu et al., NSDI'19, section 3.2].

Small differences in service would stop jobs all the time, so service counts in steps: a job begins in the first queue and
falls into the next one when it has had that queue's limit of GPU-seconds.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Annotated, ClassVar

import msgspec
import numpy as np

from forerun.cluster.inputs.arrays import F64, I64
from forerun.cluster.policy import Allocation, Allocator, Scheduler, View


class LasQueues(Allocator, tag="tiresias", frozen=True, kw_only=True):
    """Jobs by queue, in each queue those that run before those that wait, then by their entry; later queues give way.

    `queue_limits_gpu_s`: what a job may have had before it leaves the first queue, the second, and so on; fixed, so that
    nothing is known of jobs to come. `promote_after` (PROMOTEKNOB): a job that has waited this many times as long as it ran
    returns to the first queue, and its service counts from nothing. Left out: profiles of how a model's tensors are skewed,
    by which Tiresias decides whether a job may be spread over nodes; the scenario's placement does.
    """

    queue_limits_gpu_s: tuple[float, ...] = (3250.0, 7200.0)
    promote_after: Annotated[float, msgspec.Meta(gt=0)] = 8.0

    paper: ClassVar[str] = "Gu et al., Tiresias, NSDI'19"
    needs: ClassVar[tuple[str, ...]] = ("gpus",)
    guarantees: ClassVar[str] = "no job starves: whoever waits long enough is promoted"
    cost: ClassVar[str] = "O(jobs log jobs) an event"

    def problems(self) -> list[tuple[str, str]]:
        """Limits must rise from above 0."""
        limits = self.queue_limits_gpu_s
        if all(one < other for one, other in itertools.pairwise((0.0, *limits, math.inf))):
            return []
        return [
            ("queue_limits_gpu_s", f"must rise from above 0, not {', '.join(f'{each:g}' for each in limits)}")
        ]

    def build(self, rng: np.random.Generator) -> Scheduler:
        """A scheduler that has promoted nobody."""
        return LasQueuesScheduler(np.array(self.queue_limits_gpu_s), self.promote_after)


class LasQueuesScheduler:
    """Remembers, by job, the queue that it is in, since when, and the service that promotions forgave."""

    def __init__(self, limits_gpu_s: F64, promote_after: float) -> None:
        self._limits_gpu_s, self._promote_after = limits_gpu_s, promote_after
        self._queue: I64 = np.zeros(0, np.int64)
        self._entered_s: F64 = np.zeros(0)
        self._forgiven_gpu_s: F64 = np.zeros(0)

    def allocate(self, view: View) -> Allocation:
        """Jobs by queue, those that just fell last; again when one is due to fall or to be promoted."""
        jobs, waits, now_s = view.job, view.held == 0, view.now_s
        if (most := int(jobs.max()) + 1) > len(self._queue):
            fresh = np.zeros(2 * most - len(self._queue))
            self._queue = np.append(self._queue, fresh.astype(np.int64) - 1)
            self._entered_s = np.append(self._entered_s, fresh)
            self._forgiven_gpu_s = np.append(self._forgiven_gpu_s, fresh)
        attained = view.served_gpu_s - self._forgiven_gpu_s[jobs]
        # a limit counts as reached a thousandth before, or rounding would have it waited for again and again
        queue = np.searchsorted(self._limits_gpu_s, attained + 1e-3, side="right")
        due_s = np.where(waits, view.changed_s, now_s) + self._promote_after * attained / view.gpus
        promoted = waits & (queue > 0) & (due_s <= now_s)
        self._forgiven_gpu_s[jobs[promoted]] = view.served_gpu_s[promoted]
        attained[promoted] = queue[promoted] = 0
        moved = queue != self._queue[jobs]
        self._entered_s[jobs[moved]], self._queue[jobs[moved]] = now_s, queue[moved]
        answer = view.take(np.lexsort((self._entered_s[jobs], waits | moved, queue)))
        falls_s = now_s + (np.append(self._limits_gpu_s, np.inf)[queue] - attained) / view.gpus
        next_s = np.where(answer.gpus > 0, falls_s, np.where(queue > 0, due_s, np.inf))
        return replace(answer, wake_s=float(next_s.min()))
