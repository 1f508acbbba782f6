"""What the delivery law explains of published runs: fit one row, predict the others.

A setting is fitted on its shortest step alone: the build time of a full batch such that the recursion gives the
measured mean completion, and the loop's overhead as measured there. Everything else is prediction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from forerun.domains.loading.kernels.deliver import Pool, deliver, deliver_pooled
from forerun.domains.loading.model import F64, Batches, batches_of
from forerun.domains.loading.notebook import BATCH, PREFETCH, WORKERS

#: seconds of loop overhead where the workers leave cores idle
IDLE_OVERHEAD_S = 0.068


@dataclass(frozen=True)
class FittedDelivery:
    """A setting of the notebook's loader: its samples, `build_s` of a full batch, overhead of the loop [s]."""

    samples: int
    build_s: float
    overhead_s: float
    workers: int = WORKERS
    batch: int = BATCH
    prefetch: int = PREFETCH

    @property
    def plan(self) -> Batches:
        """The batches of an epoch."""
        return batches_of(self.samples, self.batch, self.workers, "contiguous")

    def completion_s(self, sleep_s: float, *, overhead_s: float | None = None) -> float:
        """Mean wait plus step at a sleep of `sleep_s`."""
        overhead = self.overhead_s if overhead_s is None else overhead_s
        return delivered_completion_s(self.plan, self.build_s, sleep_s + overhead, self)

    def worker_bound(self, step_s: float) -> bool:
        """Whether W steps are shorter than a build: the workers bind."""
        return self.workers * step_s < self.build_s


def delivered_completion_s(plan: Batches, build_s: float, step_s: float, shape: FittedDelivery) -> float:
    """Seconds a batch, waits and steps, by the recursion."""
    build = build_s * plan.samples / shape.batch
    found = deliver(
        plan.worker, build, np.array([step_s]), np.zeros(shape.workers), shape.workers * shape.prefetch
    )
    return found.total_s / len(plan)


def fit_delivery(samples: int, sleep_s: float, compute_s: float, completion_s: float) -> FittedDelivery:
    """The setting whose completion at one sleep is the measured one. compute_s: measured mean step there."""
    shape = FittedDelivery(samples, 0.0, compute_s - sleep_s)
    build = bisect(
        lambda build_s: delivered_completion_s(shape.plan, build_s, compute_s, shape), completion_s, 0.0, 1e4
    )
    return FittedDelivery(samples, build, compute_s - sleep_s)


def bisect(rising: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """Where a non-decreasing function reaches a value, within [low, high], to the last bits."""
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if rising(middle) < wanted:
            low = middle
        else:
            high = middle
    return high


def improvement_percent(
    base: FittedDelivery, ours: FittedDelivery, sleep_s: float, merged_share: float = 1.0
) -> float:
    """The gain in throughput that the law gives merging, where only a share of the runs was merged.

    A loader that the workers bind keeps the CPU busy, and its loop's overhead is as fitted; else it is the idle one's.
    """
    plain, merged = (1 / _completion(setting, sleep_s) for setting in (base, ours))
    return 100 * merged_share * (merged / plain - 1)


def _completion(setting: FittedDelivery, sleep_s: float) -> float:
    busy = setting.worker_bound(sleep_s + IDLE_OVERHEAD_S)
    return setting.completion_s(sleep_s, overhead_s=setting.overhead_s if busy else IDLE_OVERHEAD_S)


@dataclass(frozen=True)
class PooledSetting:
    """A pooled loader of the notebook's shape: samples, threads a worker, seconds to assemble a batch."""

    samples: int
    threads: int = 1
    collate_s: float = 0.6

    def completion_s(self, block: int, read_block_s: float, decode_s: float, step_s: float) -> float:
        """Seconds a batch at blocks of `block`, each read in `read_block_s`."""
        plan = batches_of(self.samples, BATCH, WORKERS, "contiguous")
        everything = batches_of(self.samples, BATCH, WORKERS, "contiguous", take_all=True)
        pool = Pool(self.threads, block, 0.0, read_block_s / block, decode_s, self.collate_s, 0.0)
        found = deliver_pooled(
            everything.worker,
            everything.samples,
            np.array([step_s]),
            np.zeros(WORKERS),
            WORKERS * PREFETCH,
            pool,
        )
        ends: F64 = found.got_s[: len(plan)] + step_s
        return float(ends[-1]) / len(plan)

    def fit_decode_s(self, block: int, read_block_s: float, step_s: float, completion_s: float) -> float:
        """Seconds of decoding a sample that give the measured completion."""
        return bisect(
            lambda decode_s: self.completion_s(block, read_block_s, decode_s, step_s), completion_s, 0.0, 1.0
        )
