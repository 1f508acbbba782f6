"""The tables of a run: their schemas and how they are made; the ledger of time; the timeline."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from forerun.domains.loading.engine.cells import Predicted
from forerun.domains.loading.engine.kernels.deliver import Delivery
from forerun.domains.loading.engine.laws import Explanation, payback_epochs
from forerun.domains.loading.engine.model import Batches, Streamed
from forerun.domains.loading.engine.pacing import Pacer
from forerun.domains.loading.engine.placement import Placed
from forerun.domains.loading.engine.run import Epoch
from forerun.domains.loading.policy import Cell, Probe
from forerun.result.ledger import Ledger
from forerun.result.tables import Column, Table, TableSchema
from forerun.result.timeline import Timeline

BATCHES: Final = TableSchema(
    "batches",
    (
        Column("job", "", "job, from 0"),
        Column("epoch", "", "epoch, from 0"),
        Column("batch", "", "batch of the epoch, from 0"),
        Column("ask_s", "s", "when the loop asked, from the epoch's start"),
        Column("got_s", "s", "when it had the whole batch"),
        Column("load_s", "s", "how long it waited"),
        Column("step_s", "s", "the step that followed"),
        Column("samples", "", "samples in it"),
        Column("queue", "samples", "decoded samples in the buffer when it asked"),
    ),
    "one batch that the training loop took",
)
EPOCHS: Final = TableSchema(
    "epochs",
    (
        Column("job", "", "job, from 0"),
        Column("epoch", "", "epoch, from 0"),
        Column("cache", "", "cold, warm or none"),
        Column("samples_per_s", "1/s", "delivered samples over the whole epoch"),
        Column("total_s", "s", "from the first request to the end of the last step"),
        Column("first_batch_s", "s", "wait for the first batch"),
        Column("steady_stall_share", "", "waits after the first batch over the total"),
        Column("utilisation_share", "", "steps over the total"),
        Column("store_bytes", "bytes", "read from the store"),
        Column("gets", "", "requests to the store, retries included"),
        Column("hit_share", "", "blocks that a cache had"),
        Column("peak_memory_bytes", "bytes", "blocks in hand, buffer and batch, at most"),
        Column("neighbour_share", "", "samples delivered right after a neighbour of their block"),
        Column("batch_spread", "", "distinct blocks in a batch over the most there could be, mean"),
    ),
    "one pass of one job over the data",
)
REQUESTS: Final = TableSchema(
    "requests",
    (
        Column("job", "", "job, from 0"),
        Column("block", "", "block, in the order taken"),
        Column("thread", "", "thread that took it"),
        Column("size_bytes", "bytes", "its bytes"),
        Column("taken_s", "s", "when a thread took it"),
        Column("grant_s", "s", "when the store began to serve it"),
        Column("first_byte_s", "s", "when its first byte came"),
        Column("done_s", "s", "when the thread had it whole"),
        Column("left_s", "s", "when its last sample was handed over"),
        Column("put_wait_s", "s", "waited for room in the buffer"),
        Column("source", "", "the store, or which cache"),
    ),
    "one block of the first epoch that was asked for",
)
LAWS: Final = TableSchema(
    "laws",
    (
        Column("law", "", "what would bind"),
        Column("samples_per_s", "1/s", "samples a second that it admits (nan: does not apply)"),
        Column("binds", "", "whether it is the least"),
    ),
    "closed-form bounds on the throughput",
)
CELLS: Final = TableSchema(
    "cells",
    (
        Column("block_samples", "", "samples a block"),
        Column("threads", "", "threads, or threads of each worker's pool"),
        Column("workers", "", "workers (0: a loader of threads)"),
        Column("cache_bytes", "bytes", "cache before the store, filled by an epoch before"),
        Column("placement", "", "policy that places jobs and data (empty: none)"),
        Column("local_share", "", "of a job's bytes, those that it puts on the job's node"),
        Column("total_s", "s", "predicted seconds of an epoch"),
        Column("samples_per_s", "1/s", "predicted throughput"),
        Column("held_bytes", "bytes", "blocks in hand at most, batches ahead, cache"),
        Column("cost_usd", "$", "requests, egress and stalled GPU of an epoch"),
        Column("gets", "", "requests of an epoch"),
        Column("request_usd", "$", "what these cost"),
        Column(
            "payback_epochs",
            "epochs",
            "until merging pays back, against single samples (nan: never, or no merge_s)",
        ),
        Column("hidden", "", "whether the step binds: within 2 % of what it admits"),
        Column("chosen", "", "whether the plan takes it"),
    ),
    "one configuration, predicted with mean sizes and mean latency",
)
SPLIT: Final = TableSchema(
    "split",
    (
        Column("step_s", "s", "length of a step"),
        Column("compute_s", "s", "of a batch: the step"),
        Column("preparation_s", "s", "of a batch: added by decoding and handing over"),
        Column("fetch_s", "s", "of a batch: added by the store"),
    ),
    "one length of the step, predicted with mean sizes and mean latency, without caches",
)
PROBES: Final = TableSchema(
    "probes",
    (
        Column("probe", "", "in the order asked, from 0"),
        Column("block_samples", "", "samples a block"),
        Column("threads", "", "threads"),
        Column("samples", "", "samples read"),
        Column("total_s", "s", "how long it took"),
        Column("samples_per_s", "1/s", "throughput"),
    ),
    "one probe of the tuner",
)
PACE: Final = TableSchema(
    "pace",
    (
        Column("job", "", "job, from 0"),
        Column("epoch", "", "epoch, from 0"),
        Column("batch", "", "batches of the epoch taken when the policy was asked"),
        Column("at_s", "s", "when, from the epoch's start"),
        Column("threads_before", "", "threads that could read up to then"),
        Column("threads", "", "threads that may read from then on"),
        Column("block_samples", "", "samples a block, at an epoch's end those of the next"),
        Column("waited_share", "", "of the time since the last look, what the loop waited"),
        Column("samples_per_s", "1/s", "throughput since the last look"),
        Column("request_s", "s", "mean time of a request since then (nan: none)"),
        Column("decode_s", "s", "mean time of decoding a sample since then (nan: none)"),
        Column("why", "", "what the policy says"),
    ),
    "one look of the pace policy at a running loader",
)
PLACED: Final = TableSchema(
    "placed",
    (
        Column("gang", "", "gang, from 0"),
        Column("job", "", "job of the gang"),
        Column("worker", "", "worker of the job"),
        Column("node", "", "node it ran on"),
        Column("start_s", "s", "when its job started"),
        Column("local_chunks", "", "its chunks on its node"),
        Column("chunks", "", "its chunks"),
    ),
    "one worker, in the order placed",
)

MEANINGS: Final = {
    "compute": "steps: what an epoch takes if everything else is instantaneous",
    "preparation stall": "added by decoding, assembling and handing over, with an instantaneous store",
    "fetch stall": "added by the store",
}


def time_ledger(compute_s: float, prepared_s: float, total_s: float) -> Ledger:
    """Where the wall time of an epoch went, from three runs on the same streams.

    compute_s with everything instantaneous, prepared_s with an instantaneous store, total_s as it is.
    """
    prepared = min(max(prepared_s, compute_s), total_s)
    parts = {
        "compute": compute_s,
        "preparation stall": prepared - compute_s,
        "fetch stall": total_s - prepared,
    }
    return Ledger("time of an epoch", "s", total_s, parts, MEANINGS)


STATES: Final = (
    "waiting for a slot",
    "latency",
    "transfer",
    "decoding",
    "waiting for data",
    "step",
    "building",
)


def thread_timeline(jobs: tuple[Streamed, ...]) -> Timeline:
    """Tracks of every thread and every training loop; blocks that were not finished are left out."""
    entity: list[np.ndarray] = []
    state: list[np.ndarray] = []
    begin: list[np.ndarray] = []
    end: list[np.ndarray] = []
    names: list[str] = []
    groups: list[str] = []
    for number, job in enumerate(jobs):
        requests = job.requests
        whole = np.isfinite(requests.left_s)
        group = f"job {number}"
        threads = int(requests.thread.max(initial=0)) + 1
        edges = (
            requests.taken_s, requests.grant_s, requests.first_byte_s, requests.done_s, requests.left_s
        )  # fmt: skip
        for code, (a, b) in enumerate(itertools.pairwise(edges)):
            entity.append(len(names) + requests.thread[whole])
            state.append(np.full(int(whole.sum()), code))
            begin.append(a[whole])
            end.append(b[whole])
        names += [f"job {number} thread {thread}" for thread in range(threads)]
        groups += [group] * threads
        for code, a, b in ((4, job.ask_s, job.got_s), (5, job.got_s, job.got_s + job.step_s)):
            entity.append(np.full(len(a), len(names)))
            state.append(np.full(len(a), code))
            begin.append(a)
            end.append(b)
        names.append(f"job {number} loop")
        groups.append(group)
    return _timeline(names, groups, entity, state, begin, end)


def worker_timeline(plan: Batches, delivery: Delivery) -> Timeline:
    """Tracks of every worker and of the training loop."""
    workers = int(plan.worker.max()) + 1
    names = [f"worker {number}" for number in range(workers)] + ["loop"]
    loop = np.full(len(plan), workers)
    step_end = np.append(delivery.ask_s[1:], delivery.total_s)
    return _timeline(
        names,
        ["workers"] * workers + ["loop"],
        [plan.worker, loop, loop],
        [np.full(len(plan), code) for code in (6, 4, 5)],
        [delivery.build_start_s, delivery.ask_s, delivery.got_s],
        [delivery.build_end_s, delivery.got_s, step_end],
    )


def _timeline(
    names: list[str],
    groups: list[str],
    entity: list[np.ndarray],
    state: list[np.ndarray],
    begin: list[np.ndarray],
    end: list[np.ndarray],
) -> Timeline:
    from_s, to_s = np.concatenate(begin), np.concatenate(end)
    keep = to_s > from_s
    return Timeline(
        entities=tuple(names),
        states=STATES,
        entity=np.concatenate(entity)[keep],
        state=np.concatenate(state)[keep],
        from_s=from_s[keep],
        to_s=to_s[keep],
        groups=tuple(groups),
    )


def epochs_table(epochs: Sequence[Epoch], *, cached: bool) -> Table:
    """A row an epoch. cached: whether there are caches, which are cold in the first."""
    return Table.of_rows(
        EPOCHS,
        [
            (
                e.job, e.number, ("cold" if e.number == 0 else "warm") if cached else "none", e.samples_per_s, e.total_s,
                float(e.load_s[0]), e.steady_stall, float(e.step_s.sum()) / e.total_s, e.store_bytes, e.gets,
                e.hit_share, e.peak_memory_bytes, e.neighbour_share, e.batch_spread,
            )
            for e in epochs
        ],
    )  # fmt: skip


def batches_table(epochs: Sequence[Epoch]) -> Table:
    """A row a batch of every epoch."""
    return Table.of(
        BATCHES,
        job=np.concatenate([np.full(len(e.ask_s), e.job) for e in epochs]),
        epoch=np.concatenate([np.full(len(e.ask_s), e.number) for e in epochs]),
        batch=np.concatenate([np.arange(len(e.ask_s)) for e in epochs]),
        ask_s=np.concatenate([e.ask_s for e in epochs]),
        got_s=np.concatenate([e.got_s for e in epochs]),
        load_s=np.concatenate([e.load_s for e in epochs]),
        step_s=np.concatenate([e.step_s for e in epochs]),
        samples=np.concatenate([e.samples for e in epochs]),
        queue=np.concatenate([e.queue for e in epochs]).astype(np.int64),
    )


def laws_table(law: Explanation) -> Table:
    """A row a law."""
    rows = [(name, _finite(value), name == law.bottleneck) for name, value in law.terms.items()]
    return Table.of_rows(LAWS, rows)


def requests_table(epochs: Sequence[Epoch]) -> Table:
    """A row a block that was asked for, of epochs of loaders of threads."""
    parts = []
    for epoch in epochs:
        assert epoch.streamed is not None
        requests = epoch.streamed.requests
        asked = np.flatnonzero(np.isfinite(requests.taken_s))
        source = ["store" if number < 0 else f"cache {number}" for number in requests.source[asked]]
        parts.append(
            {
                "job": np.full(len(asked), epoch.job),
                "block": asked,
                "thread": requests.thread[asked],
                "size_bytes": requests.size_bytes[asked],
                "taken_s": requests.taken_s[asked],
                "grant_s": requests.grant_s[asked],
                "first_byte_s": requests.first_byte_s[asked],
                "done_s": requests.done_s[asked],
                "left_s": requests.left_s[asked],
                "put_wait_s": requests.put_wait_s[asked],
                "source": np.array(source, object),
            }
        )
    return Table.of(REQUESTS, **{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def probes_table(probes: Sequence[Probe]) -> Table:
    """A row a probe of the tuner."""
    rows = [
        (number, p.cell.block, p.cell.threads, p.samples, p.total_s, p.samples / p.total_s)
        for number, p in enumerate(probes)
    ]
    return Table.of_rows(PROBES, rows)


def pace_table(pacers: Sequence[Pacer]) -> Table:
    """A row a look of a pace policy, of all jobs."""
    rows = [
        (
            row.job, row.epoch, row.batch, row.at_s, row.threads_before, row.threads, row.block_samples,
            row.waited_share, row.samples_per_s, row.request_s, row.decode_s, row.why,
        )
        for pacer in pacers
        for row in pacer.record
    ]  # fmt: skip
    return Table.of_rows(PACE, rows)


def placed_table(placed: Placed) -> Table:
    """A row a worker."""
    rows = [(w.gang, w.job, w.worker, w.node, w.start_s, w.local_chunks, w.chunks) for w in placed.workers]
    return Table.of_rows(PLACED, rows)


def cells_table(cells: Sequence[Predicted], chosen: Cell, merge_s: float = 0.0) -> Table:
    """Every predicted cell; pay-back is against single samples with as many threads, where the grid has them."""
    alone_s = {replace(entry.cell, block=0): entry.total_s for entry in cells if entry.cell.block == 1}
    return Table.of_rows(
        CELLS,
        [
            (
                c.cell.block, c.cell.threads, c.cell.workers, c.cell.cache_bytes, c.cell.placement, c.local_share,
                c.total_s, c.samples_per_s, c.held_bytes, c.cost_usd, c.gets, c.request_usd,
                _finite(payback_epochs(merge_s, alone_s.get(replace(c.cell, block=0), 0.0), c.total_s))
                if merge_s and c.cell.block > 1
                else math.nan,
                c.hidden, c.cell == chosen,
            )
            for c in cells
        ],
    )  # fmt: skip


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.nan
