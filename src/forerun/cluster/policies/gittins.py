"""Gittins' index: the jobs most likely to finish soon, judged by what has finished before [Gittins, 1979].

With sizes unknown but their distribution known, serving the highest index first gives the least mean completion time
on one server. Here the distribution is the sample of work seen, in GPU-seconds, as Tiresias does in two dimensions
[Gu et al., NSDI'19, section 3.2].
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

import msgspec
import numpy as np

from forerun.cluster.inputs.arrays import F64
from forerun.cluster.policy import Allocation, Allocator, OracleAllocator, OracleView, Scheduler, View


class Gittins(Allocator, tag="gittins", frozen=True, kw_only=True):
    """The jobs of highest index run, others give way; judged at arrivals, ends and every `quantum_s`.

    The sample is the work of finished jobs, at most `most_sample` of them (evenly spaced quantiles of all): a job is
    never judged by its own future. Until `least_sample` have finished, least attained service comes first.
    """

    quantum_s: Annotated[float, msgspec.Meta(gt=0)] = 600.0
    least_sample: Annotated[int, msgspec.Meta(ge=1)] = 10
    most_sample: Annotated[int, msgspec.Meta(ge=2)] = 500

    paper: ClassVar[str] = "Gittins, J. R. Stat. Soc. B 41, 1979; for GPUs: Gu et al., Tiresias, NSDI'19"
    needs: ClassVar[tuple[str, ...]] = ("gpus",)
    guarantees: ClassVar[str] = "least mean completion time on one GPU, if the sample is the distribution"
    cost: ClassVar[str] = "O(active jobs x sample) a decision"

    def build(self, rng: np.random.Generator) -> Scheduler:
        """A scheduler that has seen nothing finish."""
        return GittinsScheduler(self.quantum_s, self.least_sample, self.most_sample)


class GittinsOracle(OracleAllocator, tag="gittins-oracle", frozen=True, kw_only=True):
    """As `gittins`, judged by the true work of all jobs that have arrived: it knows sizes, though not whose."""

    quantum_s: Annotated[float, msgspec.Meta(gt=0)] = 600.0
    most_sample: Annotated[int, msgspec.Meta(ge=2)] = 500

    paper: ClassVar[str] = "Gittins, J. R. Stat. Soc. B 41, 1979"
    needs: ClassVar[tuple[str, ...]] = ("gpus", "duration")
    guarantees: ClassVar[str] = "least mean completion time on one GPU, if the sample is the distribution"
    cost: ClassVar[str] = "O(active jobs x sample) a decision"

    def build(self, rng: np.random.Generator) -> Scheduler:
        """A scheduler that has seen no job arrive."""
        return GittinsOracleScheduler(self.quantum_s, self.most_sample)


class Sample:
    """Sizes seen so far; `values` are at most `most` evenly spaced quantiles of them, ascending."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sizes: list[float] = []
        self._values: F64 = np.zeros(0)
        self._thinned_at = 0

    def __len__(self) -> int:
        return len(self._sizes)

    def add(self, size: float) -> None:
        """One more job's size."""
        self._sizes.append(size)

    @property
    def values(self) -> F64:
        """The sample, brought up to date when it has grown by a twentieth."""
        if len(self._sizes) > 1.05 * self._thinned_at or len(self._sizes) <= self._most:
            ranked = np.sort(np.array(self._sizes))
            if len(ranked) > self._most:
                at = (np.arange(self._most) + 0.5) / self._most * len(ranked)
                ranked = ranked[at.astype(np.int64)]
            self._values, self._thinned_at = ranked, len(self._sizes)
        return self._values


class GittinsScheduler:
    """Remembers what each job had and was given when last seen; who is gone has finished with it."""

    def __init__(self, quantum_s: float, least_sample: int, most_sample: int) -> None:
        self._quantum_s, self._least = quantum_s, least_sample
        self._sample = Sample(most_sample)
        self._seen: dict[int, tuple[float, int]] = {}
        self._seen_s = 0.0

    def allocate(self, view: View) -> Allocation:
        """Jobs by index, least served first among equals."""
        self._learn(view)
        index = np.zeros(view.count)
        if len(self._sample) >= self._least:
            index = _index(self._sample, view, self._quantum_s)
        answer = _in_order(view, index, self._quantum_s)
        had = zip(view.served_gpu_s.tolist(), answer.gpus.tolist(), strict=True)
        self._seen = dict(zip(view.job.tolist(), had, strict=True))
        self._seen_s = view.now_s
        return answer

    def _learn(self, view: View) -> None:
        """A job that is no longer there had its GPUs until now, as there is a decision at every end.

        Where nobody seen before is left the cluster may have stood empty since: those ends were not seen and teach
        nothing.
        """
        here = set(view.job.tolist())
        if not here.intersection(self._seen):
            return
        for job, (served, gpus) in self._seen.items():
            if job not in here:
                self._sample.add(served + gpus * (view.now_s - self._seen_s))


class GittinsOracleScheduler:
    """Knows the work of every job that has arrived."""

    def __init__(self, quantum_s: float, most_sample: int) -> None:
        self._quantum_s = quantum_s
        self._sample = Sample(most_sample)
        self._known: set[int] = set()

    def allocate(self, view: OracleView) -> Allocation:
        """Jobs by index, least served first among equals."""
        for job, work_gpu_s in zip(view.job.tolist(), (view.work_s * view.gpus).tolist(), strict=True):
            if job not in self._known:
                self._known.add(job)
                self._sample.add(work_gpu_s)
        return _in_order(view, _index(self._sample, view, self._quantum_s), self._quantum_s)


def _index(sample: Sample, view: View, quantum_s: float) -> F64:
    """The index of each job of a view, which will hold its GPUs for a quantum at least."""
    from forerun.cluster.engine.kernels.gittins import gittins_index

    served = np.ascontiguousarray(view.served_gpu_s)
    index: F64 = gittins_index(sample.values, served, quantum_s * view.gpus.astype(np.float64))
    return index


def _in_order(view: View, index: F64, quantum_s: float) -> Allocation:
    order = np.lexsort((view.served_gpu_s, -index))
    return replace(view.take(order), wake_s=view.now_s + quantum_s)
