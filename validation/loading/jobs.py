"""Several jobs on one store: each a process of its own with a loader, a loop and maybe a cache; started together."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from queue import Empty
from typing import Any, Final

import numpy as np

from forerun.core.errors import ForerunError, StoreError
from forerun.core.rng import stream as random_stream
from forerun.core.study.executors.interrupts import blocked
from forerun.loading.engine.calibration import StoreProfile
from forerun.loading.engine.model import CacheModel, Reader, StoreModel
from forerun.loading.engine.threads import open_caches, stream
from forerun.loading.measure.answers import Job
from forerun.loading.measure.corpus import Corpus
from forerun.loading.measure.runner import Piece
from forerun.loading.policy import Cell, Load
from validation.loading.caching import CachedFiles, CachingPolicy

#: a job that sends nothing for so long has died
STUCK_S: Final = 600.0


@dataclass(frozen=True)
class CacheSpec:
    """A cache in each job's process; it begins empty and stays from epoch to epoch.

    Parameters
    ----------
    capacity_bytes : of all items together.
    policy : which item leaves (default: `lru`).
    """

    capacity_bytes: float
    policy: CachingPolicy = "lru"


@dataclass(frozen=True)
class JobEpoch:
    """One pass of one job: seconds, samples, requests that its cache had and that it had not.

    Parameters
    ----------
    job, epoch : which, from 0.
    total_s : seconds.
    samples : delivered.
    hits, misses : requests that its cache answered, and that it did not.
    """

    job: int
    epoch: int
    total_s: float
    samples: int
    hits: int
    misses: int

    @property
    def samples_per_s(self) -> float:
        """Samples a second.

        Of the epoch as a whole, its start-up included.
        """
        return self.samples / self.total_s


def epoch_pieces(corpus: Corpus, cell: Cell, samples: int, epoch: int, job: int, seed: int) -> list[Piece]:
    """The first pieces of the corpus, in this epoch's order of this job.

    The simulation of the same jobs uses it too.

    Parameters
    ----------
    corpus : what is read.
    cell : samples a piece; its threads do not matter here.
    samples : in all.
    epoch, job : numbers that name the random stream of the order, so that each job has another order in each epoch.
    seed : of all orders.
    """
    pieces = corpus.pieces(cell.block, samples)
    order = random_stream(seed, "shuffle", epoch, job).permutation(len(pieces))
    return [pieces[at] for at in order.tolist()]


def run_jobs(
    corpus: Corpus,
    job: Job,
    cell: Cell,
    samples: int,
    *,
    jobs: int,
    epochs: int = 1,
    cache: CacheSpec | None = None,
    seed: int = 0,
) -> tuple[JobEpoch, ...]:
    """Run equal jobs together, each over the same samples in an order of its own.

    Raises what a job raised, or StoreError for one that died.

    Parameters
    ----------
    corpus, job : what is read, and by what training job.
    cell : block size and threads of each.
    samples : of an epoch.
    jobs : how many at once.
    epochs : of each (default: 1).
    cache : in each process (default: none).
    seed : of the orders (default: 0).
    """
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    barrier: Barrier = context.Barrier(jobs)
    given = (corpus, job, cell, samples, epochs, cache, seed)
    processes = [
        context.Process(target=_work, args=(number, *given, barrier, results), daemon=True)
        for number in range(jobs)
    ]
    with blocked():  # this process ends them
        for process in processes:
            process.start()
    try:
        epochs_of_jobs: list[JobEpoch] = []
        while len(epochs_of_jobs) < jobs * epochs:
            entry = next_result(results, processes)
            if isinstance(entry, ForerunError):
                raise entry
            epochs_of_jobs.append(entry)
    finally:
        for process in processes:
            process.join(1)
            if process.is_alive():
                process.terminate()
    return tuple(sorted(epochs_of_jobs, key=lambda entry: (entry.epoch, entry.job)))


def next_result(results: Any, processes: Sequence[Any]) -> Any:
    """What a job sent next. Raises StoreError where one died, or all are silent for `STUCK_S`."""
    waited_s = 0.0
    while waited_s < STUCK_S:
        try:
            return results.get(timeout=1.0)
        except Empty:
            waited_s += 1.0
            dead = [process for process in processes if process.exitcode not in (None, 0)]
            if dead:
                raise StoreError.at(
                    "jobs", f"a job ended with code {dead[0].exitcode} and said nothing"
                ) from None
    raise StoreError.at("jobs", f"said nothing for {STUCK_S:g} s")


def _work(
    number: int, corpus: Corpus, job: Job, cell: Cell, samples: int, epochs: int, cache: CacheSpec | None, seed: int,
    barrier: Barrier, results: Any,
) -> None:  # fmt: skip
    """A job's process.

    Parameters
    ----------
    number : of the job.
    corpus, job, cell : what is read, by what training job, in which blocks and by how many threads.
    samples, epochs : of an epoch, and how many.
    cache : its own (None: none).
    seed : of the orders.
    barrier : all jobs begin each epoch together.
    results : gets a `JobEpoch` an epoch, or the error that ended the job.
    """
    try:
        client = corpus.client_for(cell.block)
        cached = CachedFiles(client, cache.capacity_bytes, cache.policy) if cache is not None else None
        for epoch in range(epochs):
            pieces = epoch_pieces(corpus, cell, samples, epoch, number, seed)
            before = (cached.hits, cached.misses) if cached else (0, 0)
            barrier.wait(STUCK_S)
            run = job.load(cached or client, pieces, cell.threads)
            after = (cached.hits, cached.misses) if cached else (0, len(pieces))
            results.put(
                JobEpoch(number, epoch, run.total_s, run.samples, after[0] - before[0], after[1] - before[1])
            )
    except ForerunError as error:
        results.put(error)
        barrier.abort()


def predict_jobs(
    corpus: Corpus,
    profile: StoreProfile,
    load: Load,
    cell: Cell,
    *,
    jobs: int,
    epochs: int = 1,
    cache: CacheSpec | None = None,
    seed: int = 0,
    store: StoreModel | None = None,
) -> tuple[JobEpoch, ...]:
    """The same, simulated: the same pieces in the same orders, on a store with the profile's numbers.

    Parameters
    ----------
    store : the store as it is known, in place of the one that one job's probes measured.
    corpus, cell, jobs, epochs, cache, seed : as they were run.
    profile : the store as it was measured.
    load : the work of each job.
    """
    pieces = corpus.pieces(cell.block, load.samples)
    names = {(piece.name, piece.first): key for key, piece in enumerate(pieces)}
    models = [] if cache is None else [CacheModel(cache.capacity_bytes, cache.policy)] * jobs
    caches = open_caches(models, len(names))
    known = store or StoreModel(profile.conn_bytes_per_s, profile.shared_bytes_per_s, cores=profile.cores)
    predicted = []
    for epoch in range(epochs):
        readers = []
        for number in range(jobs):
            ordered = epoch_pieces(corpus, cell, load.samples, epoch, number, seed)
            readers.append(
                Reader(
                    [np.array(piece.lengths, float) for piece in ordered], cell.threads, load.batch, load.step_s,
                    profile.decode_s - profile.decode_cpu_s, profile.decode_cpu_s, load.buffer_samples,
                    keys=np.array([names[piece.name, piece.first] for piece in ordered]),
                    caches=(number,) if cache is not None else (),
                )
            )  # fmt: skip
        run = stream(readers, known, latency_s=profile.latency_s, caches=caches)
        for number, done in enumerate(run.jobs):
            hits = int((done.requests.source >= 0).sum())
            predicted.append(
                JobEpoch(number, epoch, done.total_s, done.samples, hits, len(done.requests.source) - hits)
            )
    return tuple(predicted)
