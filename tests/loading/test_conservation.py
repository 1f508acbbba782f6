"""The laws that every run is checked against when it ends: each can fail, and says where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from forerun.core.errors import CheckFailed
from forerun.loading.engine.conservation import check_run
from forerun.loading.engine.model import CacheModel, Reader, StoreModel, StreamRun
from forerun.loading.engine.threads import open_caches, stream

READER = Reader([np.full(3, 1e4)] * 12, threads=3, batch=5, step_s=0.01, decode_s=0.001, buffer_samples=4)
STORE = StoreModel(1e8, 1.5e8, slots=2, requests_per_s=400.0)
CAPACITY = np.array([9e4])


@pytest.fixture(scope="module")
def run() -> StreamRun:
    caches = open_caches([CacheModel(CAPACITY[0], "fifo")], 12)
    return stream([replace(READER, caches=(0,))], STORE, latency_s=0.004, caches=caches)


def job(run: StreamRun, **changes: Any) -> StreamRun:
    return replace(run, jobs=(replace(run.jobs[0], **changes),))


def requests(run: StreamRun, **changes: Any) -> StreamRun:
    return job(run, requests=replace(run.jobs[0].requests, **changes))


SPOILT: dict[str, tuple[Callable[[StreamRun], StreamRun], str]] = {
    "a sample twice": (
        lambda run: job(run, put_block=np.append(run.jobs[0].put_block[:-1], run.jobs[0].put_block[0])),
        r"job 0: block 0 gave 4 samples and contains 3",
    ),
    "a sample lost": (lambda run: job(run, put_block=run.jobs[0].put_block[:-1]), "35 handed over, 36 are expected"),
    "a batch lost": (lambda run: job(run, batch_samples=run.jobs[0].batch_samples[:-1]), "35 samples in batches"),
    "a full buffer": (lambda run: job(run, most_buffered=5), "5 samples in a buffer of 4"),
    "served before asked": (
        lambda run: requests(run, grant_s=run.jobs[0].requests.taken_s - 0.1), "block 0 was served at"
    ),
    "whole before answered": (
        lambda run: requests(run, done_s=run.jobs[0].requests.first_byte_s - 1e-3), "block 0 was whole at"
    ),
    "a negative wait": (lambda run: job(run, load_s=run.jobs[0].load_s - 0.02), "the wait for batch .* is negative"),
    "time that is missing": (lambda run: job(run, end_s=run.jobs[0].end_s + 1e-4), "waits and steps sum to"),
    "a slot too many": (lambda run: replace(run, most_in_flight=3), "3 requests were served at a time on 2 slots"),
    "a cache too full": (
        lambda run: replace(run, cache_most_bytes=CAPACITY + 1), r"cache 0: stored 90001 of 90000 bytes"
    ),
    "bytes from nowhere": (lambda run: replace(run, bytes_requested=run.bytes_requested + 1), "store: sent"),
    "Little's law": (lambda run: replace(run, mean_in_flight=run.mean_in_flight * 1.00001), "requests were served for"),
}  # fmt: skip


@pytest.mark.parametrize("what", SPOILT)
def test_what_breaks_a_law_is_named(run: StreamRun, what: str) -> None:
    check_run(run, [READER], STORE, CAPACITY)
    spoil, message = SPOILT[what]
    with pytest.raises(CheckFailed, match=message):
        check_run(spoil(run), [READER], STORE, CAPACITY)


def test_a_run_that_ends_early_or_fails_on_the_way_keeps_them() -> None:
    """Requests in the air at the end, failures, caches, several jobs: the loop's own check lets them pass."""
    rng = np.random.default_rng(5)
    for _ in range(60):
        reader = replace(
            READER,
            most_batches=int(rng.integers(0, 6)),
            shuffle_samples=int(rng.integers(0, 40)),
            failures=rng.integers(0, 2, 12) * int(rng.integers(0, 2)),
            caches=(0,) if rng.random() < 0.5 else (),
            drop_last=bool(rng.random() < 0.5),
        )
        caches = open_caches([CacheModel(9e4, "lru", 1e-4, 1e9)], 12)
        store = replace(STORE, timeout_s=0.003, retries=1, client_s=0.002)
        found = stream(
            [reader, replace(reader, start_s=0.013)],
            store,
            latency_s=rng.exponential(0.004, 60),
            caches=caches,
        )
        assert all(each.samples == reader.taken for each in found.jobs)
