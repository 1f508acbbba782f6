"""Delivery by loader workers: a recursion over batches, no event list.

Worker w builds its batches one after another, at most `workers * prefetch` batches are on order, the loop takes them
in a fixed order. Ready times therefore follow from earlier ones, batch by batch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.core.kernels.jit import kernel

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


class Delivery(NamedTuple):
    """Per batch taken, float64[N]: when the loop asked, when it got, how long it waited; and when its step ended.

    `build_start_s`, `build_end_s`: when its worker began it and had it ready.
    """

    ask_s: F64
    got_s: F64
    load_s: F64
    build_start_s: F64
    build_end_s: F64
    total_s: float


class Pool(NamedTuple):
    """A worker's thread pool, float64 seconds: reading k samples of a block takes `read_fixed_s + k
    * read_per_sample_s`, decoding one `decode_s` in a pool thread, assembling n `collate_fixed_s + n
    * collate_per_sample_s`."""

    threads: int
    block_samples: int
    read_fixed_s: float
    read_per_sample_s: float
    decode_s: float
    collate_fixed_s: float
    collate_per_sample_s: float


@kernel
def deliver(worker: I64, build_s: F64, step_s: F64, start_s: F64, on_order: int) -> Delivery:
    """Batch j is built by `worker[j]` in `build_s[j]`; the step after it takes `step_s[j]` (or the only one given).

    `start_s` float64[W]: when each worker is up. `on_order`: batches ordered ahead.
    """
    n = len(worker)
    ask, got, begin, end = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    free = start_s.copy()
    request = 0.0
    for j in range(n):
        w = worker[j]
        begin[j] = max(free[w], got[j - on_order] if j >= on_order else 0.0)
        end[j] = begin[j] + build_s[j]
        free[w] = end[j]
        ask[j] = request
        got[j] = max(end[j], request)
        request = got[j] + step_s[j if len(step_s) > 1 else 0]
    return Delivery(ask, got, got - ask, begin, end, request)


@kernel
def deliver_pooled(
    worker: I64, batch_samples: I64, step_s: F64, start_s: F64, on_order: int, pool: Pool
) -> Delivery:
    """As `deliver`, where a worker reads blocks and has its samples decoded by a pool of threads.

    A worker reads its next block only when nothing is decoded ahead, waits for it, hands its samples to the first
    free threads and consumes results in order; the pool works on while the worker assembles a batch.

    batch_samples: int64, samples of each batch. pool: threads and times of each worker's pool.
    """
    n, workers = len(worker), len(start_s)
    ask, got, begin, end = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    free = start_s.copy()
    unread = np.zeros(workers, np.int64)
    for j in range(n):
        unread[worker[j]] += batch_samples[j]
    thread_free = np.zeros((workers, pool.threads))
    finish = np.zeros((workers, pool.block_samples))
    ahead, cursor = np.zeros(workers, np.int64), np.zeros(workers, np.int64)
    request = 0.0
    for j in range(n):
        w = worker[j]
        t = max(free[w], got[j - on_order] if j >= on_order else 0.0)
        begin[j] = t
        for _ in range(batch_samples[j]):
            if ahead[w] == 0:
                k = min(pool.block_samples, unread[w])
                unread[w] -= k
                t += pool.read_fixed_s + pool.read_per_sample_s * k
                hand_over(thread_free[w], finish[w], k, t, pool.decode_s)
                ahead[w], cursor[w] = k, 0
            t = max(t, finish[w, cursor[w]])
            cursor[w] += 1
            ahead[w] -= 1
        end[j] = t + pool.collate_fixed_s + pool.collate_per_sample_s * batch_samples[j]
        free[w] = end[j]
        ask[j] = request
        got[j] = max(end[j], request)
        request = got[j] + step_s[j if len(step_s) > 1 else 0]
    return Delivery(ask, got, got - ask, begin, end, request)


@kernel
def hand_over(thread_free: F64, finish: F64, samples: int, now_s: float, decode_s: float) -> None:
    """Give each of a block's samples, in order, to the pool thread that is free first (ties: lowest number).

    thread_free: float64, when each thread is free; updated. finish: float64, when each sample is decoded; written.
    samples: of the block. now_s: when it was read. decode_s: seconds of a sample.
    """
    for i in range(samples):
        first = 0
        for thread in range(1, len(thread_free)):
            if thread_free[thread] < thread_free[first]:
                first = thread
        finish[i] = max(thread_free[first], now_s) + decode_s
        thread_free[first] = finish[i]
