"""torch's loader measured and set beside the recursion: two probes, a fit, every number of workers predicted and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from forerun.core.errors import UsageError
from forerun.loading.measure.answers import Host, Job, keeps_up, load_average, scenario_of
from forerun.loading.measure.checking import Compared
from forerun.loading.measure.corpus import Corpus
from forerun.loading.measure.torch_loader import WorkerFit, WorkerRun, fit_workers, run_workers

#: repeats of every number of workers, batches a worker in a probe, batches of a run and of each worker in it at least
REPEATS: Final = 3
PROBE_BATCHES: Final = 5
RUN_BATCHES: Final = 16
RUN_BATCHES_A_WORKER: Final = 8


@dataclass(frozen=True, kw_only=True)
class WorkersRow(Compared):
    """Some workers, measured repeatedly and predicted.

    Parameters
    ----------
    workers : processes of the run.
    """

    workers: int


@dataclass(frozen=True)
class WorkersAnswer:
    """What was measured of torch's loader, and how many workers are enough.

    Parameters
    ----------
    source, job, host : what was measured, for which job, on which machine.
    block, pool_threads : samples a read, and threads of a worker's pool (0: none).
    fit : of the probes.
    rows : each number of workers beside its prediction.
    """

    source: str
    job: Job
    block: int
    pool_threads: int
    fit: WorkerFit
    rows: tuple[WorkersRow, ...]
    host: Host

    @property
    def sentence(self) -> str:
        """How long a batch takes and how many workers hide it."""
        build = self.fit.build_at(1)
        enough = self.fit.enough(self.job.step_s)
        keeps = keeps_up(enough, max(row.workers for row in self.rows), self.host.cores)
        keeps = keeps or "no number of workers up to 64 keeps up"
        hidden = "loading is hidden" if enough == 1 else "not hidden with 1 worker"
        return f"{hidden}: a worker builds a batch in {build:.3g} s, a step takes {self.job.step_s:.3g} s; {keeps}"

    def data(self) -> dict[str, Any]:
        """Plain data.

        The answer as a measurement file has it.
        """
        return {
            "source": self.source,
            "answer": self.sentence,
            "loader": "pooled_workers" if self.pool_threads else "workers",
            "block_samples": self.block,
            "pool_threads": self.pool_threads,
            "build_s": [{"workers": w, "build_s": s} for w, s in self.fit.build_s],
            "start_s": [{"workers": w, "start_s": s} for w, s in self.fit.start_s],
            "workers_enough": self.fit.enough(self.job.step_s),
            "workers": [
                {"workers": row.workers, **row.data()} for row in self.rows
            ],
            "scenario": scenario_of(
                self.job, 64 * self.job.batch, 1.0, store={}, cpu={"decode_s": self.fit.build_at(1) / self.job.batch},
                loader={"mode": "workers", "workers": self.rows[0].workers},
                grid={"blocks": [self.block], "threads": [1], "workers": [1, 2, 4, 8, 16]}, block_samples=self.block,
            ),
            "host": self.host.data(),
        }  # fmt: skip


def measure_workers(
    corpus: Corpus,
    job: Job,
    many: Sequence[int],
    *,
    block: int = 1,
    pool_threads: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> WorkersAnswer:
    """Probe one worker and the most, predict every number by the recursion, and run each a few times, interleaved.

    Raises UsageError where torch is not installed or blocks are smaller than asked for.

    Parameters
    ----------
    corpus, job : what is read, and by what training job.
    many : numbers of workers.
    block : samples a read (default: 1).
    pool_threads : of each worker (default: 0: no pool).
    progress : called with a line about each run.
    """
    if block > corpus.largest_piece:
        raise UsageError.at(
            "--set block", f"{block}; the blocks of {corpus.name} hold at most {corpus.largest_piece}"
        )
    before = load_average()

    def run(workers: int, batches: int, step_s: float) -> WorkerRun:
        return run_workers(
            corpus, block=block, samples=batches * job.batch, workers=workers, batch=job.batch, step_s=step_s,
            decode_s=job.decode_s, pool_threads=pool_threads, step=job.step if step_s else "none", decode=job.decode,
            decoder=job.decoder,
        )  # fmt: skip

    probed = []
    for workers in sorted({1, max(many)}):
        progress(f"probing {workers} workers")
        probed.append((workers, run(workers, PROBE_BATCHES * workers, 0.0)))
    fit = fit_workers(probed, job.batch)
    # Few batches a worker would make a measure of how fast processes start.
    batches = {workers: max(RUN_BATCHES, RUN_BATCHES_A_WORKER * workers) for workers in many}
    totals: dict[int, list[float]] = {workers: [] for workers in many}
    for repeat in range(REPEATS):
        for workers in many:
            progress(f"repeat {repeat + 1} of {REPEATS}: {workers} workers")
            totals[workers].append(run(workers, batches[workers], job.step_s).total_s)
    rows = tuple(
        WorkersRow(
            workers=workers,
            seconds=tuple(seconds),
            predicted_s=fit.predict(batches[workers] * job.batch, workers, job.step_s),
        )
        for workers, seconds in totals.items()
    )
    return WorkersAnswer(corpus.name, job, block, pool_threads, fit, rows, Host.since(before))
