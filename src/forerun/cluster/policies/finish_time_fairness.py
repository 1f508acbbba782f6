"""Finish-time fairness by leases and auctions: Themis [Mahajan et al., NSDI'20, sections 3 to 5].

A job's rho is the time from its submission to its end in the shared cluster over the time that it would take in a cluster of
its own with an equal part of the GPUs. Rho near 1 for everybody means that sharing costs nobody much.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

import msgspec
import numpy as np

from forerun.cluster.inputs.arrays import F64
from forerun.cluster.policy import Allocation, OracleAllocator, OracleView, Scheduler


class FinishTimeFairness(OracleAllocator, tag="themis-auction", frozen=True, kw_only=True):
    """GPUs are lent for `lease_s`; those that come free are offered to the worst-off jobs, and go where they help most.

    rho = (time since submission + work left) / (work x max(1, its GPUs x N / all GPUs)), N the mean number of jobs since.
    The share `1 - fairness` of the jobs without a lease, those of largest rho, get the offer. Each bids its rho with what it
    asks for, and without it for a lease more; the auction maximises the product of 1/rho, taking bids by their logarithm a
    GPU. What is left goes to the others, the largest rho first (the paper: at random). Left out: hidden payments, which keep
    bidders truthful, as nobody lies here; apps of several jobs; bids for a part of a request.
    """

    lease_s: Annotated[float, msgspec.Meta(gt=0)] = 1200.0
    fairness: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.8

    paper: ClassVar[str] = "Mahajan et al., Themis, NSDI'20"
    needs: ClassVar[tuple[str, ...]] = ("gpus", "duration")
    guarantees: ClassVar[str] = "no job starves: whoever waits becomes the worst off"
    cost: ClassVar[str] = "O(jobs log jobs) an event and a lease"

    def build(self, rng: np.random.Generator) -> Scheduler:
        """An arbiter that has lent nothing."""
        return FairnessScheduler(self.lease_s, self.fairness)


class FairnessScheduler:
    """Remembers the end of each lease, and job-seconds so far, now and when each job came, for the mean number of jobs."""

    def __init__(self, lease_s: float, fairness: float) -> None:
        self._lease_s, self._fairness = lease_s, fairness
        self._seen_s, self._jobs, self._job_s = 0.0, 0, 0.0
        self._until_s: F64 = np.zeros(0)
        self._job_s_before: F64 = np.zeros(0)

    def allocate(self, view: OracleView) -> Allocation:
        """Leases go on; then come the winners of the auction, then the others, the worst off first."""
        jobs = view.job
        self._job_s += (view.now_s - self._seen_s) * self._jobs
        self._seen_s, self._jobs = view.now_s, view.count
        if (most := int(jobs.max()) + 1) > len(self._until_s):
            fresh = np.zeros(2 * most - len(self._until_s))
            self._until_s = np.append(self._until_s, fresh)
            self._job_s_before = np.append(self._job_s_before, fresh + np.nan)
        new = np.isnan(self._job_s_before[jobs])
        self._job_s_before[jobs[new]] = self._job_s
        self._until_s[jobs[view.held == 0]] = 0.0
        bound = self._until_s[jobs] > view.now_s
        rho = self._rho(view)
        worst = np.lexsort((-rho, bound))
        free = int(np.count_nonzero(~bound))
        offered = np.zeros(view.count, np.bool_)
        offered[worst[: int(np.ceil((1 - self._fairness) * free))]] = True
        shared_s = np.maximum(view.now_s - view.submit_s + view.left_s, 1e-9)
        bid = np.where(offered, np.log1p(self._lease_s / shared_s) / view.gpus, 0.0)
        answer = view.take(np.lexsort((-rho, -bid, ~bound)))
        lent = (answer.gpus > 0) & ~bound
        self._until_s[jobs[lent]] = view.now_s + self._lease_s
        ends_s = self._until_s[jobs[answer.gpus > 0]]
        wait = (answer.gpus == 0).any()
        return replace(answer, wake_s=float(ends_s.min(initial=np.inf)) if wait else np.inf)

    def _rho(self, view: OracleView) -> F64:
        """Finish-time fairness of each job if it went on with what it asks for from now on."""
        past_s = view.now_s - view.submit_s
        job_s = self._job_s - self._job_s_before[view.job]
        mean = np.divide(job_s, past_s, out=np.full(view.count, float(view.count)), where=past_s > 0)
        alone_s = view.work_s * np.maximum(1.0, view.gpus * mean / view.total)
        rho: F64 = (past_s + view.left_s) / np.maximum(alone_s, 1e-9)
        return rho
