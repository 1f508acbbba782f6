"""Records of the engines: batches and who builds them, a loader of threads and its store, what a run recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from forerun.domains.loading.policy import F64, I64, UNBOUNDED
from forerun.domains.loading.scenario import CachePolicy, Partition


@dataclass(frozen=True)
class Batches:
    """The batches of an epoch in the order the loop takes them: int64 `worker` that builds each, `samples` in it."""

    worker: I64
    samples: I64

    def __len__(self) -> int:
        return len(self.worker)


def batches_of(
    samples: int,
    batch: int,
    workers: int,
    partition: Partition = "round_robin",
    *,
    drop_last: bool = False,
    take_all: bool = False,
) -> Batches:
    """The batches of an epoch.

    `round_robin` (torch): full batches go to the workers in turn; a short last one unless `drop_last`.
    `contiguous` (the notebook's loader): the samples are split among the workers in one part each, larger parts
    first; each part is cut into batches, its last one short; they are delivered round by round, exhausted workers
    skipped, and the loop takes ceil(samples / batch) of them, or `take_all`. With `drop_last` short ones are not built.
    """
    if partition == "round_robin":
        sizes = np.full(-(-samples // batch), batch, np.int64)
        if samples % batch:
            sizes[-1] = samples % batch
            sizes = sizes[:-1] if drop_last else sizes
        return Batches(np.arange(len(sizes), dtype=np.int64) % workers, sizes)
    parts = samples // workers + (np.arange(workers) < samples % workers)
    counts = parts // batch if drop_last else -(-parts // batch)
    rounds = np.arange(counts.max(initial=0))[:, None]
    size = np.minimum(batch, parts - rounds * batch)
    there = rounds < counts
    worker = np.broadcast_to(np.arange(workers), there.shape)[there]
    most = len(worker) if take_all else -(-samples // batch)
    return Batches(worker[:most].astype(np.int64), size[there][:most].astype(np.int64))


@dataclass(frozen=True)
class StoreModel:
    """What answers requests: latency, bandwidth of a connection and shared by all, slots, request rate, errors.

    Seconds, bytes, bytes/s, requests/s; infinite rates and `slots` 0 are no limit. `client_s` and
    `client_s_per_byte` are the reader's own work after the last byte. An attempt that fails holds its slot for
    `timeout_s`; attempt i is repeated after `backoff_s * 2**i`, `retries` times. `changes`: from an instant [s] on,
    latencies are so many times as long as at the start; instants ascend.
    """

    conn_bytes_per_s: float = math.inf
    shared_bytes_per_s: float = math.inf
    slots: int = 0
    requests_per_s: float = math.inf
    burst: float = 1.0
    client_s: float = 0.0
    client_s_per_byte: float = 0.0
    timeout_s: float = 0.0
    backoff_s: float = 0.0
    retries: int = 0
    cores: float = math.inf
    one_core_python: bool = False
    changes: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class CacheModel:
    """A cache before the store: capacity [bytes], policy, latency [s] and bandwidth [bytes/s] of a hit.

    fetch_s, fetch_bytes_per_s: what a miss costs, which the policy `cost` weighs.
    """

    capacity_bytes: float
    policy: CachePolicy = "lru"
    latency_s: float = 0.0
    bytes_per_s: float = math.inf
    fetch_s: float = 1.0
    fetch_bytes_per_s: float = math.inf


@dataclass(frozen=True)
class Look:
    """What a loader did since it was last looked at: `batch` batches are taken of the epoch, `threads` may take blocks.

    Of each batch taken float64 `load_s` and `step_s`; of each block whose last sample was handed over its bytes, its
    samples, when it was asked for (since the last look, negative if before), the seconds of its request and of decoding
    it. elapsed_s: since the last look.
    """

    now_s: float
    elapsed_s: float
    batch: int
    threads: int
    load_s: F64
    step_s: F64
    block_bytes: F64
    block_samples: F64
    asked_s: F64
    request_s: F64
    decode_s: F64


@dataclass(frozen=True)
class Steering:
    """Changes the threads of a loader while it runs.

    threads: at first. every_batches: how often `look` is asked for the number of threads from then on. ended: called with
    the record since the last look when the epoch is over.
    """

    threads: int
    every_batches: int
    look: Callable[[Look], int]
    ended: Callable[[Look], None]


@dataclass(frozen=True)
class Reader:
    """One job's loader: its blocks in the order taken (float64 sample bytes each), threads, consumer and buffer.

    `step_s`, `decode_s`, `decode_cpu_s`: one value, or one a batch, or one a sample. `keys`: of the
    blocks in the caches (default: their numbers); `failures` how many attempts on each will fail. `caches` are numbers in
    the run's list of caches, asked in order. `steering`: how many of the `threads`, which are then the most, take blocks.
    `shuffle_samples`: in the consumer's shuffle buffer, which is full before the first batch and empties at the end.
    `most_batches`: the consumer stops after so many (0: when the data end).
    """

    blocks: Sequence[F64]
    threads: int
    batch: int
    step_s: ArrayLike
    decode_s: ArrayLike = 0.0
    decode_cpu_s: ArrayLike = 0.0
    buffer_samples: int = UNBOUNDED
    drop_last: bool = False
    start_s: float = 0.0
    keys: I64 | None = None
    failures: I64 | None = None
    caches: tuple[int, ...] = ()
    steering: Steering | None = None
    shuffle_samples: int = 0
    most_batches: int = 0

    @property
    def samples(self) -> int:
        """Samples in all blocks."""
        return sum(map(len, self.blocks))

    @property
    def batch_samples(self) -> I64:
        """Samples of each batch the consumer takes."""
        sizes = batches_of(self.samples, self.batch, 1, drop_last=self.drop_last).samples
        return sizes[: self.most_batches] if self.most_batches else sizes

    @property
    def new_samples(self) -> I64:
        """Samples to be delivered for each batch after the batch before; the shuffle buffer is filled first."""
        sizes = self.batch_samples
        if not self.shuffle_samples:
            return sizes
        return np.diff(np.minimum(self.samples, self.shuffle_samples + np.cumsum(sizes)), prepend=0)

    @property
    def taken(self) -> int:
        """Samples in all batches."""
        return int(self.batch_samples.sum())


@dataclass(frozen=True)
class Requests:
    """What became of each block (rows of one job, in the order taken): seconds, bytes; nan for what did not happen.

    `source` is -1 for the store, else the number of the cache.
    """

    size_bytes: F64
    taken_s: F64
    grant_s: F64
    first_byte_s: F64
    done_s: F64
    left_s: F64
    put_wait_s: F64
    thread: I64
    source: I64


@dataclass(frozen=True)
class Streamed:
    """What one job's loader did.

    Per batch: when it was asked for and got, the wait, samples in the buffer at the time. `put_block`: the block of
    each sample in the order of delivery. `total_s`: from the job's start to the end of its last step.
    """

    ask_s: F64
    got_s: F64
    load_s: F64
    queue: I64
    step_s: F64
    batch_samples: I64
    requests: Requests
    put_block: I64
    most_buffered: int
    start_s: float
    end_s: float

    @property
    def total_s(self) -> float:
        """Seconds from the job's start to the end of its last step."""
        return self.end_s - self.start_s

    @property
    def samples(self) -> int:
        """Samples delivered in batches."""
        return int(self.batch_samples.sum())

    @property
    def samples_per_s(self) -> float:
        """Delivered samples a second."""
        return self.samples / self.total_s


@dataclass(frozen=True)
class StreamRun:
    """What all jobs of a run did, and what the store saw: most requests in service, their mean, bytes, attempts."""

    jobs: tuple[Streamed, ...]
    most_in_flight: int
    mean_in_flight: float
    bytes_requested: float
    attempts: int
    end_s: float
    cache_most_bytes: F64 = field(default_factory=lambda: np.empty(0))
