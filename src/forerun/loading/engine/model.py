"""Records of the engines: batches and who builds them, a loader of threads and its store, what a run recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from forerun.loading.policy import F64, I64, UNBOUNDED
from forerun.loading.scenario import CachePolicy, Partition, Sharing


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

    Parameters
    ----------
    samples : of the epoch.
    batch : samples a batch.
    workers : how many.
    partition : who builds which batch (default: `round_robin`).
    drop_last : leave out short batches (default: no).
    take_all : all batches of contiguous parts (default: no).
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


def equal_blocks(samples: int, block: int, sample_bytes: float) -> list[F64]:
    """The blocks of a `Reader` whose samples are all of one size: full ones, and the rest.

    Parameters
    ----------
    samples : in all.
    block : samples a block.
    sample_bytes : of each.
    """
    full, rest = divmod(samples, block)
    sizes = np.full(block, sample_bytes)
    return [sizes] * full + ([sizes[:rest]] if rest else [])


@dataclass(frozen=True)
class StoreModel:
    """The store as the engine of threads takes it; infinite rates, the default, and 0 slots are no limit.

    Parameters
    ----------
    conn_bytes_per_s, shared_bytes_per_s : bandwidth of a connection, and of the link that all share.
    slots : requests in service at a time.
    requests_per_s, burst : rate at which requests are accepted, and how many at once (default: 1).
    client_s, client_s_per_byte : the reader's own work after the last byte (default: 0).
    timeout_s : how long a failed attempt keeps its slot.
    backoff_s : pause before attempt i is repeated, times 2**i.
    retries : how often.
    cores : that decoding shares.
    one_core_python : serve decoding on one core, first come first served.
    changes : from an instant [s] on, latencies are this many times as long as at the start; instants ascend.
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
    """A cache before the store.

    Parameters
    ----------
    capacity_bytes : its size.
    policy : which block leaves (default: `lru`).
    latency_s, bytes_per_s : of a hit (defaults 0, and no limit).
    fetch_s, fetch_bytes_per_s : what a miss costs, for the policy `cost`.
    """

    capacity_bytes: float
    policy: CachePolicy = "lru"
    latency_s: float = 0.0
    bytes_per_s: float = math.inf
    fetch_s: float = 1.0
    fetch_bytes_per_s: float = math.inf


@dataclass(frozen=True)
class NodesModel:
    """Nodes that share their caches; the cache of each has the number of its loader.

    Parameters
    ----------
    sharing : `none` (each its own), `partitioned` or `replicated`.
    owner : int64[keys], the node that keeps each block, where caches are partitioned.
    latency_s, bytes_per_s : of reading from another node: the exchange, and the link of the node that reads.
    """

    sharing: Sharing
    owner: I64
    latency_s: float = 0.0
    bytes_per_s: float = math.inf


@dataclass(frozen=True)
class Reader:
    """One job's loader of threads.

    Parameters
    ----------
    blocks : float64 sample bytes of each block, in the order taken.
    threads : that read and decode.
    batch : samples a batch.
    step_s : one value, or one a batch.
    decode_s, decode_cpu_s : without a core, and on one; one value, or one a sample (default: 0).
    buffer_samples : size of the buffer (default: never full).
    drop_last : leave out a short last batch.
    start_s : when the job starts (default: 0).
    keys : of the blocks in the caches (default: their numbers).
    failures : failed attempts on each block (default: none).
    caches : numbers in the run's list of caches, asked in order (default: none).
    shuffle_samples : in the consumer's shuffle buffer, which is full before the first batch and empties at the end
        (default: 0).
    most_batches : the consumer stops after this many (default: 0: when the data end).
    gpu_s : float64[batches], decoding each batch on the GPU, one batch ahead of the step; all loaders of a run have it, or
        none (default: none).
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
    shuffle_samples: int = 0
    most_batches: int = 0
    gpu_s: F64 | None = None

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
    """What happened to each block of one job, in the order taken; nan for what did not happen.

    Parameters
    ----------
    size_bytes : of the block.
    taken_s : when a thread took it.
    grant_s : when the store began to serve it.
    first_byte_s, done_s : when its first and its last byte arrived.
    left_s : when its last sample was handed over.
    put_wait_s : seconds that its samples waited for space in the buffer.
    thread : that took it.
    source : -1 for the store, else the number of the cache.
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
    """What one job's loader of threads did.

    Parameters
    ----------
    ask_s, got_s, load_s : float64[batches], when each batch was asked for and delivered, and the wait.
    queue : samples in the buffer when it was asked for.
    step_s : its step.
    batch_samples : its samples.
    requests : what happened to each block.
    put_block : int64, the block of each sample in the order of delivery.
    most_buffered : samples in the buffer at most.
    start_s, end_s : from the job's start to the end of its last step.
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
    """What all jobs of an epoch did.

    Parameters
    ----------
    jobs : one record a job.
    most_in_flight, mean_in_flight : requests in service at the store.
    bytes_requested : that the store sent.
    attempts : requests, repeated ones included.
    end_s : of the last step of all.
    cache_most_bytes : float64[caches], in each cache at most.
    """

    jobs: tuple[Streamed, ...]
    most_in_flight: int
    mean_in_flight: float
    bytes_requested: float
    attempts: int
    end_s: float
    cache_most_bytes: F64 = field(default_factory=lambda: np.empty(0))
