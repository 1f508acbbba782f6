"""What the delivery law explains of published runs: fit one row, predict the others.

A setting is fitted on its shortest step alone: the build time of a full batch such that the recursion gives the
measured mean completion, and the loop's overhead as measured there. Everything else is prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun.loading.engine.kernels.deliver import Pool, deliver, deliver_pooled
from forerun.loading.engine.model import Batches, batches_of
from forerun.loading.engine.workers import bisect
from forerun.loading.policy import F64
from forerun.replication.cndlsys.runs import BATCH, PREFETCH, WORKERS, Recorded

#: seconds of loop overhead where the workers leave cores idle
IDLE_OVERHEAD_S = 0.068
#: CPUs of the published pod
POD_CORES = 8.0


@dataclass(frozen=True)
class FittedDelivery:
    """A setting of the notebook's loader, fitted to one measured completion.

    Parameters
    ----------
    samples : samples of the data set.
    build_s : time in which a worker builds a full batch [s].
    overhead_s : overhead of the loop, a step [s].
    workers : number of worker processes (default: 8).
    batch : samples of a full batch (default: 512).
    prefetch : batches ahead, a worker (default: 2).
    """

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
        """Mean wait plus step.

        Parameters
        ----------
        sleep_s : the compute time that the loop sleeps for in each step [s].
        overhead_s : overhead of the loop [s] (default: as fitted).
        """
        overhead = self.overhead_s if overhead_s is None else overhead_s
        return delivered_completion_s(self.plan, self.build_s, sleep_s + overhead, self)

    def worker_bound(self, step_s: float) -> bool:
        """Whether W steps of the loop are shorter than a build, so that the workers bind.

        Parameters
        ----------
        step_s : time of a step, overhead included [s].
        """
        return self.workers * step_s < self.build_s


def delivered_completion_s(plan: Batches, build_s: float, step_s: float, shape: FittedDelivery) -> float:
    """Seconds a batch, waits and steps, by the recursion of the delivery law.

    Parameters
    ----------
    plan : worker and samples of each batch.
    build_s : time in which a worker builds a full batch [s]; smaller batches take less in proportion.
    step_s : time of a step [s].
    shape : workers, prefetch and samples of a full batch.
    """
    build = build_s * plan.samples / shape.batch
    delivery = deliver(
        plan.worker, build, np.array([step_s]), np.zeros(shape.workers), shape.workers * shape.prefetch
    )
    return delivery.total_s / len(plan)


def fit_delivery(samples: int, sleep_s: float, compute_s: float, completion_s: float) -> FittedDelivery:
    """The setting whose completion at one sleep is the measured one.

    Parameters
    ----------
    samples : samples of the data set.
    sleep_s : the compute time that the loop sleeps for [s].
    compute_s : measured mean step at that sleep [s]; what it exceeds the sleep by is the loop's overhead.
    completion_s : measured mean wait plus step [s].
    """
    shape = FittedDelivery(samples, 0.0, compute_s - sleep_s)
    build = bisect(
        lambda build_s: delivered_completion_s(shape.plan, build_s, compute_s, shape), completion_s, 0.0, 1e4
    )
    return FittedDelivery(samples, build, compute_s - sleep_s)


def improvement_percent(
    base: FittedDelivery, ours: FittedDelivery, sleep_s: float, merged_share: float = 1.0
) -> float:
    """The gain in throughput that the law gives merging, where only a share of the runs was merged.

    A loader that the workers bind keeps the CPU busy, and its loop's overhead is as fitted; else it is the idle one's.

    Parameters
    ----------
    base : the setting without merging.
    ours : the setting with merging.
    sleep_s : the compute time that the loop sleeps for [s].
    merged_share : share of the runs that were merged (default: 1).
    """
    plain, merged = (1 / _completion(setting, sleep_s) for setting in (base, ours))
    return 100 * merged_share * (merged / plain - 1)


def _completion(setting: FittedDelivery, sleep_s: float) -> float:
    """The completion of a setting with the overhead of a busy or an idle CPU, whichever applies at this sleep [s]."""
    busy = setting.worker_bound(sleep_s + IDLE_OVERHEAD_S)
    return setting.completion_s(sleep_s, overhead_s=setting.overhead_s if busy else IDLE_OVERHEAD_S)


@dataclass(frozen=True)
class PooledSetting:
    """A pooled loader of the notebook's shape.

    As many threads as decode at once share the cores: of all workers' threads, as if all of them were busy.

    Parameters
    ----------
    samples : samples of the data set.
    threads : decoding threads a worker (default: 1).
    collate_s : time to assemble a batch [s] (default: 0.6).
    cores : CPUs of the pod (default: 8).
    """

    samples: int
    threads: int = 1
    collate_s: float = 0.6
    cores: float = POD_CORES

    def completion_s(self, block: int, read_block_s: float, decode_s: float, step_s: float) -> float:
        """Seconds a batch, waits and steps.

        Parameters
        ----------
        block : samples of a block.
        read_block_s : time to read a block [s].
        decode_s : time to decode a sample on a core of its own [s].
        step_s : time of a step, overhead included [s].
        """
        plan = batches_of(self.samples, BATCH, WORKERS, "contiguous")
        everything = batches_of(self.samples, BATCH, WORKERS, "contiguous", take_all=True)
        crowd = max(1.0, WORKERS * self.threads / self.cores)
        pool = Pool(self.threads, block, 0.0, read_block_s / block, decode_s * crowd, self.collate_s, 0.0)
        delivery = deliver_pooled(
            everything.worker,
            everything.samples,
            np.array([step_s]),
            np.zeros(WORKERS),
            WORKERS * PREFETCH,
            pool,
        )
        ends: F64 = delivery.got_s[: len(plan)] + step_s
        return float(ends[-1]) / len(plan)

    def fit_decode_s(self, block: int, read_block_s: float, step_s: float, completion_s: float) -> float:
        """Time to decode a sample on a core of its own that gives a measured completion, between 0 and 1 [s].

        Parameters
        ----------
        block : samples of a block.
        read_block_s : time to read a block [s].
        step_s : time of a step, overhead included [s].
        completion_s : measured mean wait plus step [s].
        """
        return bisect(
            lambda decode_s: self.completion_s(block, read_block_s, decode_s, step_s), completion_s, 0.0, 1.0
        )


@dataclass(frozen=True)
class Explained:
    """A row of measured runs beside the law.

    Parameters
    ----------
    approach : `baseline1`, `baseline2` or `ours`.
    sleep_s : the compute time that the loop sleeps for [s].
    threads : decoding threads a worker.
    block : samples of a block; 1 without merging.
    completion_s : measured mean wait plus step [s].
    law_s : the same by the law [s].
    fitted : whether the law was fitted on this row; the others are predicted.
    """

    approach: str
    sleep_s: float
    threads: int
    block: int
    completion_s: float
    law_s: float
    fitted: bool

    @property
    def error(self) -> float:
        """The law over what was measured, minus one."""
        return self.law_s / self.completion_s - 1


def explain_unmerged(runs: Sequence[Recorded]) -> tuple[Explained, ...]:
    """Runs without merging: fitted on the shortest compute time alone, every other predicted.

    With fewer than two compute times there are no rows.

    Parameters
    ----------
    runs : of any approach; only `baseline1` without merging counts.
    """
    plain = [run for run in runs if run.approach == "baseline1" and not run.merged]
    means = {
        sleep: np.mean([(r.compute_s.mean(), r.completion_s) for r in plain if r.sleep_s == sleep], axis=0)
        for sleep in sorted({run.sleep_s for run in plain})
    }
    if len(means) < 2:
        return ()
    first = min(means)
    fitted = fit_delivery(plain[0].processing.records, first, *(float(value) for value in means[first]))
    return tuple(
        Explained(
            "baseline1", sleep, 1, 1, float(means[sleep][1]), fitted.completion_s(sleep), sleep == first
        )
        for sleep in means
    )


def explain_pooled(runs: Sequence[Recorded]) -> tuple[Explained, ...]:
    """Merged runs, by workers with pools that share the cores: decode fitted on one run, every other predicted.

    The run is one of blocks of 100 with one thread, if there is one, else of the blocks nearest to it and the fewest
    threads.

    Parameters
    ----------
    runs : of any approach; only merged ones with blocks count. With fewer than two there are no rows.
    """
    merged = [run for run in runs if run.merged and run.block > 1]
    if len(merged) < 2:
        return ()
    one = min(merged, key=lambda run: (run.threads, abs(run.block - 100), run.sleep_s, str(run.folder)))
    samples = one.processing.records

    def numbers(run: Recorded) -> tuple[float, float]:
        return run.io.mean_s, float(run.compute_s.mean())

    decode_s = PooledSetting(samples, one.threads).fit_decode_s(one.block, *numbers(one), one.completion_s)
    return tuple(
        Explained(
            run.approach,
            run.sleep_s,
            run.threads,
            run.block,
            run.completion_s,
            PooledSetting(samples, run.threads).completion_s(
                run.block, run.io.mean_s, decode_s, float(run.compute_s.mean())
            ),
            run is one,
        )
        for run in merged
    )
