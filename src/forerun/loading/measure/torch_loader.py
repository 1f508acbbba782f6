"""torch's own loader, measured: worker processes, or workers that decode with a pool of threads; and a torch step.

Both read pieces of a corpus. `workers`: batches go to the workers in turn, each reads and decodes its batch sample by
sample or block by block. `pooled_workers`: each worker owns a contiguous share, reads a block when nothing is decoded
ahead, and hands its samples to threads. These are the loaders that the simulator knows under the same names.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from forerun.blocks.reader.clients import Client
from forerun.core.errors import DataError, ForerunError, StoreError, UsageError
from forerun.loading.engine.kernels.deliver import deliver
from forerun.loading.engine.model import batches_of
from forerun.loading.measure.corpus import Corpus
from forerun.loading.measure.runner import ACTS, Decoder, Piece
from forerun.loading.measure.torch_step import require_torch
from forerun.loading.policy import F64

#: a worker that gives no batch for so long hangs
STUCK_S: Final = 60.0


@dataclass(frozen=True)
class _Reader:
    """What a worker process reads with, and how it decodes a sample.

    Parameters
    ----------
    client : reads pieces; it is opened anew in the process.
    decode_s : seconds of decoding a sample.
    decode : what takes them, by its name in `ACTS`.
    decoder : decodes in earnest instead (default: none).
    """

    client: Client
    decode_s: float
    decode: str
    decoder: Decoder | None = None

    def fetch(self, piece: Piece) -> list[tuple[Piece, int, memoryview]]:
        """The samples of a piece, checked, with where each is from.

        Parameters
        ----------
        piece : read with one request.

        Raises DataError for a sample that fails its checksum.
        """
        data = memoryview(self.client.read(piece.name, piece.first, piece.length, piece.what))
        edges = list(itertools.accumulate(piece.lengths, initial=0))
        samples = [data[a:b] for a, b in itertools.pairwise(edges)]
        for number, sample in enumerate(samples):
            piece.check(number, sample)
        return [(piece, number, sample) for number, sample in enumerate(samples)]

    def decoded(self, piece: Piece, number: int, sample: memoryview) -> int:
        """Decode; what is handed on is small, so that handing over is not what is measured."""
        if self.decoder is not None:
            piece.decoded(number, sample, self.decoder)
        elif self.decode_s:
            ACTS[self.decode](self.decode_s)
        return len(sample)


class _Batches:
    """A data set of batches for torch's loader: an item is a batch of pieces, read and decoded one after another."""

    def __init__(self, reader: _Reader, batches: Sequence[Sequence[Piece]]) -> None:
        self.reader, self.batches = reader, batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> Any:
        """The lengths of a batch's samples. What cannot be read or decoded is returned as an error, not raised.

        Parameters
        ----------
        number : of the batch.
        """
        try:
            lengths = [
                self.reader.decoded(*sample)
                for piece in self.batches[number]
                for sample in self.reader.fetch(piece)
            ]
        except ForerunError as error:
            return error  # handed on as it is: torch would make a text of it, with its traceback
        return np.array(lengths, np.int64)


class _Pooled:
    """A data set whose worker w gives the batches of the w-th share, decoding with threads.

    Parameters
    ----------
    reader : of pieces.
    shares : the pieces of each worker.
    threads : of a worker's pool.
    batch : samples a batch.
    """

    def __init__(self, reader: _Reader, shares: Sequence[Sequence[Piece]], threads: int, batch: int) -> None:
        self.reader, self.shares, self.threads, self.batch = reader, shares, threads, batch

    def __reduce__(self) -> tuple[Any, ...]:
        # The class that torch is shown has no name to be imported by.
        return _pooled, (self.reader, self.shares, self.threads, self.batch)

    def __iter__(self) -> Iterator[Any]:
        """The batches of the worker in whose process this is called; an error ends them."""
        try:
            yield from self.batches(require_torch().utils.data.get_worker_info().id)
        except ForerunError as error:
            yield error

    def batches(self, worker: int) -> Iterator[Any]:
        """The lengths of the samples of a worker's batches."""
        todo = iter(self.shares[worker])
        ahead: deque[Future[int]] = deque()
        gathered: list[int] = []
        with ThreadPoolExecutor(self.threads) as pool:
            while True:
                if not ahead:
                    piece = next(todo, None)
                    if piece is None:
                        break
                    ahead.extend(
                        pool.submit(self.reader.decoded, *sample) for sample in self.reader.fetch(piece)
                    )
                gathered.append(ahead.popleft().result())
                if len(gathered) == self.batch:
                    yield np.array(gathered, np.int64)
                    gathered = []
            if gathered:
                yield np.array(gathered, np.int64)


def _pooled(reader: _Reader, shares: Sequence[Sequence[Piece]], threads: int, batch: int) -> Any:
    """A `_Pooled` that torch takes for one of its own."""
    return type("Pooled", (_Pooled, require_torch().utils.data.IterableDataset), {})(
        reader, shares, threads, batch
    )


@dataclass(frozen=True)
class WorkerRun:
    """What torch's loader did, in seconds: waits of each batch, the total, and samples of each batch.

    Parameters
    ----------
    load_s : float64[batches], waits; the first includes the start of the workers.
    total_s : with all steps.
    samples : of each batch.
    """

    load_s: F64
    total_s: float
    samples: tuple[int, ...]

    @property
    def got_s(self) -> F64:
        """When each batch arrived, with a step that takes no time."""
        return np.cumsum(self.load_s)


@contextlib.contextmanager
def more_workers_than_cores() -> Iterator[None]:
    """torch advises against more workers than cores; those that wait for a store may well be more."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
        yield


@more_workers_than_cores()
def run_workers(
    corpus: Corpus,
    *,
    block: int,
    samples: int,
    workers: int,
    batch: int,
    step_s: float,
    decode_s: float,
    prefetch: int = 2,
    pool_threads: int = 0,
    step: str = "sleep",
    decode: str = "sleep",
    decoder: Decoder | None = None,
    start: str = "",
) -> WorkerRun:
    """Load samples once through torch's loader.

    Parameters
    ----------
    corpus : what is read.
    block : samples a read.
    samples : in all; with a pool each worker reads its own share of them.
    workers : processes.
    batch : samples a step.
    step_s, decode_s : seconds of a step, and of decoding a sample.
    prefetch : batches that each worker makes ahead (default: 2).
    pool_threads : threads that decode in each worker (default: 0: the worker decodes by itself).
    step, decode : what takes that long (default: sleeping).
    decoder : decodes in earnest instead (default: none).
    start : how worker processes are started: `fork`, `forkserver` or `spawn` (default: as torch does it, but by spawn
        where the client does not survive a fork).

    Raises UsageError without torch, StoreError or DataError for what a worker could not read or decode.
    """
    torch = require_torch()
    client = corpus.client_for(block)
    reader = _Reader(client, decode_s, decode, decoder)
    if pool_threads:
        plan = batches_of(samples, batch, workers, "contiguous", take_all=True)
        shares = [
            corpus.pieces(block, int(plan.samples[plan.worker == w].sum()), start=w * 7919)
            for w in range(workers)
        ]
        data = _pooled(reader, shares, pool_threads, batch)
        count = len(plan)
    else:
        data = _Batches(reader, _cut(corpus.pieces(block, samples), batch))
        count = len(data)
    loader = torch.utils.data.DataLoader(
        data, batch_size=None, num_workers=workers, prefetch_factor=prefetch, timeout=STUCK_S, shuffle=False,
        multiprocessing_context=start or (None if client.forks else "spawn"),
    )  # fmt: skip
    loads: list[float] = []
    sizes: list[int] = []
    begun = time.perf_counter()
    try:
        batches = iter(loader)
        for _ in range(count):
            # The first wait includes the start of the worker processes.
            asked = begun if not loads else time.perf_counter()
            got = next(batches)
            if isinstance(got, ForerunError):
                raise got
            sizes.append(len(got))
            loads.append(time.perf_counter() - asked)
            ACTS[step](step_s)
        total_s = time.perf_counter() - begun
    except StopIteration:
        raise StoreError.at("loader", f"gave {len(loads)} batches of {count}") from None
    except ForerunError:
        raise
    except RuntimeError as error:
        raise DataError.at("loader", _said(error)) from error
    return WorkerRun(np.array(loads), total_s, tuple(sizes))


def _said(error: RuntimeError) -> str:
    """What a worker died of: torch hands on its traceback as text, whose last line is the error."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "a worker ended without a word"


def _cut(pieces: Sequence[Piece], batch: int) -> list[list[Piece]]:
    """Pieces dealt out to batches of `batch` samples; a piece that crosses an edge is read in two parts.

    Parameters
    ----------
    pieces : in order.
    batch : samples a batch; the last batch may be short.
    """
    batches: list[list[Piece]] = [[]]
    left = batch
    for whole in pieces:
        piece: Piece | None = whole
        while piece is not None:
            taken = min(left, len(piece.lengths))
            batches[-1].append(piece.cut(0, taken))
            left -= taken
            piece = piece.cut(taken, len(piece.lengths)) if taken < len(piece.lengths) else None
            if not left:
                batches.append([])
                left = batch
    return [pieces for pieces in batches if pieces]


@dataclass(frozen=True)
class WorkerFit:
    """Two probes of torch's loader put into the recursion's terms.

    Parameters
    ----------
    build_s : a worker's seconds for a batch, by number of workers, linear between the two that were probed.
    start_s : seconds until all workers are up (torch starts them one after another and then hands out the first
        batches), by number of workers in the same way.
    batch, prefetch : samples a batch, and batches that each worker makes ahead.
    """

    build_s: tuple[tuple[int, float], ...]
    start_s: tuple[tuple[int, float], ...]
    batch: int
    prefetch: int

    def build_at(self, workers: int) -> float:
        """Seconds of a batch with this number of workers."""
        many, seconds = zip(*self.build_s)
        return float(np.interp(workers, many, seconds))

    def start_at(self, workers: int) -> float:
        """Seconds until this number of workers are up."""
        many, seconds = zip(*self.start_s)
        return float(np.interp(workers, many, seconds))

    def predict(self, samples: int, workers: int, step_s: float) -> float:
        """Total seconds of a run, by the recursion.

        Parameters
        ----------
        samples : in all.
        workers : processes.
        step_s : seconds of a step.
        """
        plan = batches_of(samples, self.batch, workers)
        start = np.full(workers, self.start_at(workers))
        build: F64 = np.asarray(self.build_at(workers) * plan.samples / self.batch, np.float64)
        return float(deliver(plan.worker, build, np.array([step_s]), start, workers * self.prefetch).total_s)

    def enough(self, step_s: float, most: int = 64) -> int | None:
        """The least number of workers that build batches as fast as they are stepped; None up to `most`.

        Parameters
        ----------
        step_s : seconds of a step.
        most : workers that are tried (default: 64).
        """
        return next((w for w in range(1, most + 1) if self.build_at(w) <= w * step_s), None)


def fit_workers(runs: Sequence[tuple[int, WorkerRun]], batch: int, prefetch: int = 2) -> WorkerFit:
    """From runs whose step takes no time, of one worker and of more: build times and starts.

    A worker's batches come one build apart: batch j and batch j + W are of the same worker. Raises UsageError for runs
    of fewer than three full batches a worker.

    Parameters
    ----------
    runs : workers and what their run measured.
    batch : samples a batch.
    prefetch : of the runs (default: 2).
    """
    builds = []
    for workers, run in runs:
        full = [at for at, size in zip(run.got_s.tolist(), run.samples) if size == batch]
        apart = [b - a for a, b in zip(full, full[workers:])]
        if len(apart) < 2 * workers:
            raise UsageError.at(
                "samples", f"{len(full)} batches for {workers} workers; at least three each are needed"
            )
        builds.append((workers, statistics.fmean(apart)))
    starts = [
        (workers, max(0.0, float(run.got_s[0]) - build_s))
        for (workers, run), (_, build_s) in zip(runs, builds)
    ]
    return WorkerFit(tuple(builds), tuple(starts), batch, prefetch)
