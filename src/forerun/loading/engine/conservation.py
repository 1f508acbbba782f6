"""What every run of loaders over a store obeys, checked when it ends.

The checks use the record of a run alone and no code of the loop, so that a mistake of the loop cannot be hidden by
the same mistake here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from forerun.core.errors import CheckFailed
from forerun.loading.engine.model import Reader, StoreModel, Streamed, StreamRun
from forerun.loading.policy import F64

#: rounding that sums of float64 may leave, as a share
_ROUNDING = 1e-9
#: Little's law: how far the integral of requests in service may be from the sum of their times, as a share
LITTLE = 1e-6


def check_run(run: StreamRun, readers: Sequence[Reader], store: StoreModel, capacity_bytes: F64) -> None:
    """Every law of a run of the event model. Raises CheckFailed, naming the job and the law that does not hold.

    Parameters
    ----------
    capacity_bytes : of each cache, float64[caches].
    run : the record.
    readers, store : what was asked of the engine.
    """
    for number, (job, reader) in enumerate(zip(run.jobs, readers)):
        _check_delivery(f"job {number}", job, reader)
        _check_times(f"job {number}", job)
    if store.slots and run.most_in_flight > store.slots:
        raise CheckFailed.at(
            "store", f"{run.most_in_flight} requests were served at a time on {store.slots} slots"
        )
    over = np.flatnonzero(run.cache_most_bytes > capacity_bytes * (1 + _ROUNDING))
    if len(over):
        at = int(over[0])
        raise CheckFailed.at(
            f"cache {at}", f"stored {run.cache_most_bytes[at]:g} of {capacity_bytes[at]:g} bytes"
        )
    _check_bytes(run)
    _check_little(run, readers, store)


def _check_delivery(where: str, job: Streamed, reader: Reader) -> None:
    """No sample twice, every sample in a batch (the last ones perhaps not), no more in the buffer than fit."""
    counts = np.bincount(job.put_block, minlength=len(reader.blocks))
    sizes = np.fromiter(map(len, reader.blocks), np.int64, len(reader.blocks))
    if np.any(counts > sizes):
        block = int(np.argmax(counts > sizes))
        raise CheckFailed.at(where, f"block {block} gave {counts[block]} samples and contains {sizes[block]}")
    expected = int(reader.new_samples.sum())
    if not expected <= len(job.put_block) <= reader.samples or job.samples != reader.taken:
        raise CheckFailed.at(
            where,
            f"{job.samples} samples in batches, {len(job.put_block)} handed over, {reader.taken} are expected",
        )
    if job.most_buffered > reader.buffer_samples:
        raise CheckFailed.at(where, f"{job.most_buffered} samples in a buffer of {reader.buffer_samples}")


def _check_times(where: str, job: Streamed) -> None:
    """A request's instants ascend; waits and steps sum to the whole."""
    requests = job.requests
    instants = (requests.taken_s, requests.grant_s, requests.first_byte_s, requests.done_s, requests.left_s)
    for name, earlier, later in zip(("served", "answered", "whole", "handed over"), instants, instants[1:]):
        bad = np.flatnonzero(later < earlier - _ROUNDING * np.abs(earlier))
        if len(bad):
            block = int(bad[0])
            raise CheckFailed.at(
                where, f"block {block} was {name} at {later[block]!r} s, after {earlier[block]!r} s"
            )
    if np.any(job.load_s < 0):
        raise CheckFailed.at(where, f"the wait for batch {int(np.argmin(job.load_s))} is negative")
    spent = float(job.load_s.sum() + job.step_s.sum())
    if not math.isclose(spent, job.total_s, rel_tol=_ROUNDING, abs_tol=_ROUNDING * job.end_s):
        raise CheckFailed.at(where, f"waits and steps sum to {spent!r} s, the run took {job.total_s!r} s")


def _check_bytes(run: StreamRun) -> None:
    """The bytes that the store sent are those of the blocks that were read from it."""
    sent = math.fsum(
        float(job.requests.size_bytes[np.isfinite(job.requests.done_s) & (job.requests.source < 0)].sum())
        for job in run.jobs
    )
    if not math.isclose(sent, run.bytes_requested, rel_tol=_ROUNDING):
        raise CheckFailed.at("store", f"sent {run.bytes_requested!r} bytes, the blocks from it hold {sent!r}")


def _check_little(run: StreamRun, readers: Sequence[Reader], store: StoreModel) -> None:
    """Mean requests in service times the time is the sum of their times; not checked where an attempt failed."""
    if any(reader.failures is not None and np.any(reader.failures) for reader in readers):
        return
    served = unknown = 0.0
    for job in run.jobs:
        requests = job.requests
        asked = np.isfinite(requests.grant_s) & (requests.source < 0)
        work = store.client_s + store.client_s_per_byte * requests.size_bytes[asked]
        left = requests.done_s[asked] - work
        served += float(np.sum(np.where(np.isfinite(left), left, run.end_s) - requests.grant_s[asked]))
        # Who was still at the reader's own work when the run ended had left the store.
        unknown += float(work[~np.isfinite(left)].sum())
    whole = run.mean_in_flight * run.end_s
    if not math.isclose(served, whole, rel_tol=LITTLE, abs_tol=unknown + LITTLE * run.end_s):
        raise CheckFailed.at(
            "store", f"requests were served for {served!r} s together, their number sums to {whole!r}"
        )
