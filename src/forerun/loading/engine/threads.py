"""Runs of threads over a store: from loaders and a store to what each did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from forerun.core.errors import Infeasible
from forerun.loading.engine.conservation import check_run
from forerun.loading.engine.kernels import cache as cached
from forerun.loading.engine.kernels import stream as kernels
from forerun.loading.engine.model import (
    CacheModel,
    NodesModel,
    Reader,
    Requests,
    StoreModel,
    Streamed,
    StreamRun,
)
from forerun.loading.policy import F64, I64
from forerun.loading.scenario import CachePolicy, Sharing

#: a run that takes longer, some ten thousand years, is a slip in a rate or a time
LONGEST_S = 1e12


def open_caches(models: Sequence[CacheModel], keys: int) -> cached.Caches:
    """Empty caches for items numbered below `keys`.

    Parameters
    ----------
    models : capacity, policy and speed of each.
    keys : how many different blocks there are.
    """
    ends = np.full((len(models), 3), cached.NOBODY)
    about = np.zeros((len(models), 8))
    for c, model in enumerate(models):
        ends[c, cached.POLICY] = get_args(CachePolicy).index(model.policy)
        about[c, cached.CAPACITY_BYTES] = model.capacity_bytes
        about[c, cached.HIT_LATENCY_S] = model.latency_s
        about[c, cached.HIT_BYTES_PER_S] = model.bytes_per_s
        about[c, cached.FETCH_S] = model.fetch_s
        about[c, cached.FETCH_S_PER_BYTE] = 1 / model.fetch_bytes_per_s
    links = np.full((len(models), 3, keys), cached.NOBODY)
    size_bytes, worth = np.full((len(models), keys), -1.0), np.zeros((len(models), keys))
    return cached.Caches(links=links, size_bytes=size_bytes, worth=worth, ends=ends, about=about)


def hits_of(
    caches: cached.Caches, number: int, keys: ArrayLike, sizes_bytes: ArrayLike
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each access of a sequence is a hit in one of the caches, which keeps its state.

    Parameters
    ----------
    caches : from `open_caches`.
    number : which of them.
    keys : int64, of the items in the order of access.
    sizes_bytes : of each, or one for all.
    """
    hits = cached.cache_hits(
        caches,
        number,
        np.asarray(keys, np.int64),
        np.broadcast_to(np.asarray(sizes_bytes, np.float64), np.shape(keys)),
    )
    return np.asarray(hits, np.bool_)


@dataclass(frozen=True)
class _Arrays:
    """The two arrays of a run and where its columns lie.

    Parameters
    ----------
    f, i : float64 and int64, single numbers and then the columns.
    places : where each column begins.
    at : the same, as the kernel takes it.
    """

    f: F64
    i: I64
    places: dict[str, int]
    at: kernels.At

    def floats(self, name: str, first: int, last: int) -> F64:
        """A part of a column of `f`, as a view.

        Parameters
        ----------
        first, last : rows of the column, the last one excluded.
        """
        start = self.places[name]
        return self.f[start + first : start + last]

    def ints(self, name: str, first: int, last: int) -> I64:
        """A part of a column of `i`, as a view.

        Parameters
        ----------
        first, last : rows of the column, the last one excluded.
        """
        start = self.places[name]
        return self.i[start + first : start + last]

    def whole(self, name: str, row: int) -> int:
        """One number of a column of `i`."""
        return int(self.i[self.places[name] + row])


def stream(
    readers: Sequence[Reader],
    store: StoreModel,
    *,
    latency_s: ArrayLike = 0.0,
    caches: cached.Caches | None = None,
    nodes: NodesModel | None = None,
    cuts: Sequence[float] = (),
) -> StreamRun:
    """Let loaders read from one store until each consumer has taken its last step.

    Parameters
    ----------
    latency_s : one value, or one a request in the order in which the store begins to serve (default: 0).
    caches : from `open_caches`; their content stays for a next epoch (default: none).
    nodes : each loader is a node's, with cores, a cache and a link of its own (default: all are on one machine).
    cuts : instants at which the run is stopped and resumed, which changes nothing (default: none).

    Raises Infeasible, naming the block, if a request failed once more than the store's retries, or if something takes for
    ever; CheckFailed if the record breaks a law (see `conservation`).
    """
    arrays = _lay_out(readers, store, np.atleast_1d(np.asarray(latency_s, np.float64)), nodes)
    cache_state = caches if caches is not None else open_caches((), 0)
    f, i = arrays.f, arrays.i
    kernels.begin(f, i, arrays.at)
    for until_s in (*sorted(cuts), math.inf):
        kernels.advance(f, i, arrays.at, cache_state, float(until_s))
    failed = int(i[kernels.FAILED_BLOCK])
    if failed >= 0:
        job_block = arrays.ints("job_block", 0, len(readers) + 1)
        job = int(np.searchsorted(job_block, failed, side="right")) - 1
        raise Infeasible.at(
            f"job {job}, block {failed - int(job_block[job])}, {float(f[kernels.NOW]):.6g} s",
            f"its request failed {store.retries + 1} times, {store.retries} retries are allowed",
        )
    if i[kernels.ACTIVE_JOBS] > 0 or float(f[kernels.NOW]) > LONGEST_S:
        raise Infeasible.at(
            f"after {float(f[kernels.NOW]):.6g} s",
            "something takes for ever: a rate is too small, or a time too large",
        )
    end_s = float(arrays.floats("end_s", 0, len(readers)).max())
    in_flight = f[kernels.FLIGHT_SUM] + i[kernels.IN_FLIGHT] * (end_s - f[kernels.FLIGHT_SINCE])
    run = StreamRun(
        jobs=tuple(_record(arrays, job, reader) for job, reader in enumerate(readers)),
        most_in_flight=int(i[kernels.MOST_IN_FLIGHT]),
        mean_in_flight=float(in_flight / end_s) if end_s > 0 else 0.0,
        bytes_requested=float(f[kernels.BYTES]),
        attempts=int(i[kernels.ATTEMPTS]),
        end_s=end_s,
        cache_most_bytes=cache_state.about[:, cached.MOST_BYTES].copy(),
    )
    check_run(run, readers, store, cache_state.about[:, cached.CAPACITY_BYTES])
    return run


def _lay_out(
    readers: Sequence[Reader], store: StoreModel, latency_s: F64, nodes: NodesModel | None
) -> _Arrays:
    """The loaders and the store in the two arrays that the kernel works on.

    The columns are described in `kernels.stream`.

    Parameters
    ----------
    latency_s : one value, or one a request in the order of serving.
    nodes : that share their caches (None: one machine).
    """
    counts = [len(reader.blocks) for reader in readers]
    block_samples = [len(block) for reader in readers for block in reader.blocks]
    steps = [np.atleast_1d(np.asarray(reader.step_s, np.float64)) for reader in readers]
    batches = [reader.new_samples for reader in readers]
    threads, jobs, blocks = sum(reader.threads for reader in readers), len(readers), len(block_samples)
    samples, taken = sum(block_samples), sum(len(sizes) for sizes in batches)
    decode_s = _per_sample([(reader.decode_s, reader.samples) for reader in readers])
    cpu_s = _per_sample([(reader.decode_cpu_s, reader.samples) for reader in readers])
    layers = max((len(reader.caches) for reader in readers), default=0)
    job_cache = np.full((jobs, layers), -1, np.int64)
    for job, reader in enumerate(readers):
        job_cache[job, : len(reader.caches)] = reader.caches
    heap_size = threads + jobs + 1
    # What is shared: the store's link, then cores, then links between nodes.
    machines = jobs if nodes else 1
    between = [nodes.bytes_per_s] * jobs if nodes else []
    share_all = np.array([store.shared_bytes_per_s, *[store.cores] * machines, *between])
    share_one = np.array([store.conn_bytes_per_s, *[1.0] * machines, *[math.inf] * len(between)])
    shares = len(share_all)
    on_gpu = any(reader.gpu_s is not None for reader in readers)
    gpu_s = [
        np.zeros(len(taken)) if reader.gpu_s is None else reader.gpu_s[: len(taken)]
        for reader, taken in zip(readers, batches)
    ]
    per_block = np.full(blocks, np.nan)
    floats: dict[str, ArrayLike] = {
        "block_bytes": _block_bytes(readers, block_samples),
        "decode_s": decode_s, "cpu_s": cpu_s, "start_s": [reader.start_s for reader in readers],
        "step_s": np.concatenate(steps), "latency_s": latency_s,
        "change_s": [at_s for at_s, _ in store.changes], "change_factor": [1.0, *(times for _, times in store.changes)],
        "gpu_s": np.concatenate(gpu_s) if on_gpu else np.empty(0), "trained_s": np.zeros(jobs),
        "share_one": share_one, "share_all": share_all, "share_marked": np.zeros(shares), "share_since": np.zeros(shares),
        "share_next": np.zeros(shares), "python_free": np.zeros(shares),
        "event_s": np.zeros(heap_size), "share_mark": np.zeros(shares * heap_size),
        "wait_since_s": np.zeros(threads), "ask_s": np.full(taken, np.nan), "got_s": np.full(taken, np.nan),
        "taken_s": per_block, "grant_s": per_block, "first_byte_s": per_block, "done_s": per_block,
        "left_s": per_block, "put_wait_s": np.zeros(blocks), "end_s": np.full(jobs, np.nan),
    }  # fmt: skip
    zeros = {
        "thread_job": threads, "event_order": heap_size, "event_who": heap_size,
        "share_order": shares * heap_size, "share_who": shares * heap_size, "share_planned": shares, "sharing": shares,
        "slot_queue": threads, "put_queue": threads, "put_head": jobs,
        "put_queued": jobs, "block": threads, "sample": threads, "failed": threads, "next_block": jobs,
        "buffered": jobs, "collected": jobs, "waiting": jobs, "batch": jobs, "delivered": jobs, "most_buffered": jobs,
        "queue": taken,
    }  # fmt: skip
    ints: dict[str, ArrayLike] = {
        "block_at": _offsets(block_samples),
        "block_key": np.concatenate([np.arange(n) if r.keys is None else r.keys for r, n in zip(readers, counts)]),
        "block_failures": np.concatenate(
            [np.zeros(n) if r.failures is None else r.failures for r, n in zip(readers, counts)]
        ),
        "job_block": _offsets(counts), "job_thread": _offsets([reader.threads for reader in readers]),
        "job_step": _offsets([len(step) for step in steps]), "job_batch": _offsets([len(b) for b in batches]),
        "batch_samples": np.concatenate(batches), "buffer": [reader.buffer_samples for reader in readers],
        "job_cache": job_cache.ravel(), "owner": nodes.owner if nodes else np.empty(0),
        "job_cores": 1 + np.arange(jobs) * (machines > 1),
        "job_net": 1 + machines + np.arange(jobs) if nodes else np.full(jobs, kernels.NEITHER),
        **{name: np.zeros(n, np.int64) for name, n in zeros.items()},
        "by_thread": np.full(blocks, -1), "source": np.full(blocks, -1), "put_block": np.full(samples, -1),
    }  # fmt: skip
    given_f = np.zeros(kernels.F_FIXED)
    given_f[: kernels.PEER_S + 1] = (
        store.requests_per_s, store.burst, store.client_s, store.client_s_per_byte, store.timeout_s, store.backoff_s,
        nodes.latency_s if nodes else 0.0,
    )  # fmt: skip
    given_i = np.zeros(kernels.I_FIXED, np.int64)
    together = get_args(Sharing).index(nodes.sharing) if nodes else kernels.APART
    given_i[: kernels.ON_GPU + 1] = (
        store.slots, store.retries, store.one_core_python, jobs, threads, layers, shares, together, on_gpu
    )  # fmt: skip
    given_i[kernels.CHANGES] = len(store.changes)
    f, f_at = _packed(given_f, floats)
    i, i_at = _packed(given_i, ints)
    many = {"decode_many": len(decode_s) > 1, "cpu_many": len(cpu_s) > 1, "latency_many": len(latency_s) > 1}
    places = f_at | i_at
    return _Arrays(f, i, places, _where(places | many | {"heap_size": heap_size}))


def _where(named: dict[str, int]) -> kernels.At:
    """As a record, with which functions compile in half the time that they take for as many numbers."""
    record = np.dtype((np.record, [(name, np.int64) for name in named]))
    return np.array(tuple(named.values()), record)[()]


def _block_bytes(readers: Sequence[Reader], block_samples: Sequence[int]) -> F64:
    sizes = [block for reader in readers for block in reader.blocks]
    return np.add.reduceat(np.concatenate(sizes), _offsets(block_samples)[:-1]).astype(np.float64)


def _packed(fixed: np.ndarray, columns: dict[str, ArrayLike]) -> tuple[np.ndarray, dict[str, int]]:
    """One array with the fixed numbers and then each column, and where each begins.

    Both have the type of `fixed`.

    Parameters
    ----------
    fixed : single numbers, which come first.
    columns : arrays or lists by name.
    """
    parts = [np.asarray(values, fixed.dtype) for values in columns.values()]
    starts = len(fixed) + np.concatenate(([0], np.cumsum([len(part) for part in parts])))
    return np.concatenate([fixed, *parts]), {name: int(at) for name, at in zip(columns, starts)}


def _offsets(counts: Sequence[int]) -> I64:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)


def _per_sample(given: Sequence[tuple[ArrayLike, int]]) -> F64:
    """One value for all samples where they are equal, else one a sample."""
    values = [np.atleast_1d(np.asarray(value, np.float64)) for value, _ in given]
    if all(len(value) == 1 and value[0] == values[0][0] for value in values):
        return values[0]
    return np.concatenate([np.broadcast_to(value, samples) for value, (_, samples) in zip(values, given)])


def _record(arrays: _Arrays, job: int, reader: Reader) -> Streamed:
    """What a job did, as views of the arrays."""

    def first_and_end(name: str) -> tuple[int, int]:
        first, end = arrays.ints(name, job, job + 2)
        return int(first), int(end)

    batches, blocks, steps = map(first_and_end, ("job_batch", "job_block", "job_step"))
    first_sample, put = arrays.whole("block_at", blocks[0]), arrays.whole("delivered", job)
    step_s = arrays.floats("step_s", *steps)
    ask, got = arrays.floats("ask_s", *batches), arrays.floats("got_s", *batches)
    times = ("taken_s", "grant_s", "first_byte_s", "done_s", "left_s", "put_wait_s")
    return Streamed(
        ask_s=ask,
        got_s=got,
        load_s=got - ask,
        queue=arrays.ints("queue", *batches),
        step_s=np.broadcast_to(step_s, len(ask)) if len(step_s) == 1 else step_s[: len(ask)],
        batch_samples=reader.batch_samples,
        requests=Requests(
            size_bytes=arrays.floats("block_bytes", *blocks),
            thread=arrays.ints("by_thread", *blocks) - arrays.whole("job_thread", job),
            source=arrays.ints("source", *blocks),
            **{name: arrays.floats(name, *blocks) for name in times},
        ),
        put_block=arrays.ints("put_block", first_sample, first_sample + put) - blocks[0],
        most_buffered=arrays.whole("most_buffered", job),
        start_s=float(arrays.floats("start_s", job, job + 1)[0]),
        end_s=float(arrays.floats("end_s", job, job + 1)[0]),
    )
