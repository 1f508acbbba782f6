"""The tables of a run: their schemas and how they are made; the ledger of time; the timeline."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from forerun.core.result.ledger import Ledger
from forerun.core.result.tables import Column, Table, TableSchema
from forerun.core.result.timeline import Timeline
from forerun.loading.engine.cells import Predicted
from forerun.loading.engine.kernels.deliver import Delivery
from forerun.loading.engine.laws import Explanation, payback_epochs
from forerun.loading.engine.model import Batches, Streamed
from forerun.loading.engine.run import Epoch
from forerun.loading.engine.sharing import Shares
from forerun.loading.policy import F64, I64, Cell, Probe

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
        Column("peak_memory_bytes", "bytes", "blocks in memory, buffer and batch, at most"),
        Column("neighbour_share", "", "samples delivered right after a neighbour of their block"),
        Column("batch_spread", "", "distinct blocks in a batch over the most there could be, mean"),
    ),
    "one pass of one job over the data",
)
NODES: Final = TableSchema(
    "nodes",
    (
        Column("epoch", "", "epoch, from 0"),
        Column("total_s", "s", "until the last node ended"),
        Column("samples_per_s", "1/s", "of all nodes together, in that time"),
        Column("store_bytes", "bytes", "read from the store"),
        Column("local_bytes", "bytes", "read from the nodes' own caches"),
        Column("peer_bytes", "bytes", "read from other nodes' caches"),
        Column("hit_share", "", "of all bytes, those that caches had"),
        Column("law_hit_share", "", "the same by the closed form (nan: none is known)"),
    ),
    "one epoch of all nodes",
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
        Column("put_wait_s", "s", "waited for space in the buffer"),
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
        Column("total_s", "s", "predicted seconds of an epoch"),
        Column("samples_per_s", "1/s", "predicted throughput"),
        Column("held_bytes", "bytes", "blocks in memory at most, batches ahead, cache"),
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
#: cells with caches of nodes, or with a choice of the decoder
NODE_CELLS: Final = TableSchema(
    CELLS.name,
    (
        *CELLS.columns[:4],
        Column("sharing", "", "how nodes share their caches (empty: no nodes)"),
        Column("cache_policy", "", "what leaves these caches (empty: no nodes)"),
        Column("decoder", "", "cpu or gpu (empty: as the scenario has it)"),
        *CELLS.columns[4:],
        Column("hit_share", "", "of the blocks, those that some node's cache has (nan: no nodes)"),
        Column("store_bytes", "bytes", "from the store in an epoch, all nodes together (nan: no nodes)"),
        Column("peer_bytes", "bytes", "from other nodes' caches, all nodes together (nan: no nodes)"),
        Column("saved_s", "s", "less than an epoch without caches takes (nan: no nodes)"),
    ),
    CELLS.meaning,
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
MEANINGS: Final = {
    "compute": "steps: what an epoch takes if everything else is instantaneous",
    "preparation stall": "added by decoding, assembling and handing over, with an instantaneous store",
    "fetch stall": "added by the store",
}


def time_ledger(compute_s: float, prepared_s: float, total_s: float) -> Ledger:
    """Where the wall time of an epoch went, from three runs on the same streams.

    Parameters
    ----------
    compute_s : seconds with everything but steps instantaneous.
    prepared_s : seconds with an instantaneous store.
    total_s : seconds as it is.
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


#: intervals of one state: their tracks (all the same, or one each), the state's code, and when each begins and ends
Spans = tuple[int | I64, int, F64, F64]


def thread_timeline(jobs: Sequence[Streamed]) -> Timeline:
    """Tracks of every thread and every training loop; blocks that were not finished are left out.

    Parameters
    ----------
    jobs : their records, in order.
    """
    spans: list[Spans] = []
    names: list[str] = []
    groups: list[str] = []
    for number, job in enumerate(jobs):
        requests = job.requests
        whole = np.isfinite(requests.left_s)
        threads = int(requests.thread.max(initial=0)) + 1
        edges = (requests.taken_s, requests.grant_s, requests.first_byte_s, requests.done_s, requests.left_s)
        for code, (a, b) in enumerate(itertools.pairwise(edges)):
            spans.append((len(names) + requests.thread[whole], code, a[whole], b[whole]))
        loop = len(names) + threads
        spans += [(loop, 4, job.ask_s, job.got_s), (loop, 5, job.got_s, job.got_s + job.step_s)]
        names += [f"job {number} thread {thread}" for thread in range(threads)] + [f"job {number} loop"]
        groups += [f"job {number}"] * (threads + 1)
    return _timeline(names, groups, spans)


def worker_timeline(plan: Batches, delivery: Delivery) -> Timeline:
    """Tracks of every worker and of the training loop.

    Parameters
    ----------
    plan : who builds each batch.
    delivery : when each was begun, ready, asked for and taken.
    """
    workers = int(plan.worker.max()) + 1
    names = [f"worker {number}" for number in range(workers)] + ["loop"]
    step_end = np.append(delivery.ask_s[1:], delivery.total_s)
    spans: list[Spans] = [
        (plan.worker, 6, delivery.build_start_s, delivery.build_end_s),
        (workers, 4, delivery.ask_s, delivery.got_s),
        (workers, 5, delivery.got_s, step_end),
    ]
    return _timeline(names, ["workers"] * workers + ["loop"], spans)


def _timeline(names: Sequence[str], groups: Sequence[str], spans: Sequence[Spans]) -> Timeline:
    """The intervals that are not empty."""
    from_s, to_s = (np.concatenate([span[end] for span in spans]) for end in (2, 3))
    entity, state = (
        np.concatenate([np.broadcast_to(span[column], len(span[2])) for span in spans]) for column in (0, 1)
    )
    keep = to_s > from_s
    return Timeline(
        tuple(names), STATES, entity[keep], state[keep], from_s[keep], to_s[keep], groups=tuple(groups)
    )


def epochs_table(epochs: Sequence[Epoch], *, cached: bool) -> Table:
    """A row an epoch.

    Parameters
    ----------
    epochs : of all jobs.
    cached : whether there are caches, which are cold in the first epoch.
    """
    return Table.of_records(
        EPOCHS,
        epochs,
        epoch="number",
        cache=lambda epoch: ("warm" if epoch.number else "cold") if cached else "none",
        steady_stall_share="steady_stall",
    )


def nodes_table(epochs: Sequence[Epoch], laws: Sequence[Shares | None]) -> Table:
    """A row an epoch of all nodes.

    Parameters
    ----------
    epochs : of all nodes.
    laws : where an epoch's bytes come from by the closed form, by its number (None: none is known).
    """
    rows = []
    for number, law in enumerate(laws):
        nodes = [epoch for epoch in epochs if epoch.number == number]
        local = peers = store = 0.0
        for epoch in nodes:
            assert epoch.streamed is not None
            requests = epoch.streamed.requests
            hit = np.isfinite(requests.taken_s) & (requests.source >= 0)
            own = requests.source == epoch.job
            local += float(requests.size_bytes[hit & own].sum())
            peers += float(requests.size_bytes[hit & ~own].sum())
            store += epoch.store_bytes
        total_s = max(epoch.total_s for epoch in nodes)
        samples = sum(float(epoch.samples.sum()) for epoch in nodes)
        hits, by_law = (local + peers) / (local + peers + store), math.nan if law is None else 1 - law.store
        rate = samples / total_s if total_s else math.inf
        rows.append((number, total_s, rate, store, local, peers, hits, by_law))
    return Table.of_rows(NODES, rows)


def batches_table(epochs: Sequence[Epoch]) -> Table:
    """A row a batch of every epoch."""
    return Table.of_parts(
        BATCHES,
        [
            {**vars(e), "epoch": e.number, "batch": np.arange(len(e.ask_s)), "load_s": e.load_s}
            for e in epochs
        ],
    )


def laws_table(law: Explanation) -> Table:
    """A row a law."""
    rows = [(name, _finite(value), name == law.bottleneck) for name, value in law.terms.items()]
    return Table.of_rows(LAWS, rows)


def requests_table(epochs: Iterable[Epoch]) -> Table:
    """A row a block that was asked for, of epochs of loaders of threads.

    Parameters
    ----------
    epochs : the first of each job.
    """
    parts = []
    for epoch in epochs:
        assert epoch.streamed is not None
        requests = vars(epoch.streamed.requests)
        asked = np.flatnonzero(np.isfinite(requests["taken_s"]))
        part = {name: values[asked] for name, values in requests.items()}
        source = ["store" if number < 0 else f"cache {number}" for number in part["source"]]
        parts.append({**part, "job": epoch.job, "block": asked, "source": source})
    return Table.of_parts(REQUESTS, parts)


def probes_table(probes: Sequence[Probe]) -> Table:
    """A row a probe of the tuner.

    Parameters
    ----------
    probes : in the order asked.
    """
    return Table.of_records(
        PROBES,
        probes,
        probe=range(len(probes)),
        block_samples="cell.block",
        threads="cell.threads",
        samples_per_s=lambda probe: probe.samples / probe.total_s,
    )


def cells_table(cells: Sequence[Predicted], chosen: Cell, merge_s: float = 0.0) -> Table:
    """Every predicted cell; pay-back is against single samples with as many threads, where the grid has them.

    Parameters
    ----------
    cells : predicted.
    chosen : the plan's.
    merge_s : seconds of merging (default: 0: no pay-back is computed).
    """
    alone_s = {replace(entry.cell, block=0): entry.total_s for entry in cells if entry.cell.block == 1}

    def payback(entry: Predicted) -> float:
        if not merge_s or entry.cell.block == 1:
            return math.nan
        return _finite(payback_epochs(merge_s, alone_s.get(replace(entry.cell, block=0), 0.0), entry.total_s))

    more = any(entry.cell.sharing or entry.cell.decoder for entry in cells)
    names = ["threads", "workers", "cache_bytes"]
    given: dict[str, Any] = {}
    if more:
        names += ["sharing", "cache_policy", "decoder"]
        for name in ("hit_share", "store_bytes", "peer_bytes", "saved_s"):
            given[name] = [getattr(entry.nodes, name) if entry.nodes else math.nan for entry in cells]
    return Table.of_records(
        NODE_CELLS if more else CELLS,
        cells,
        **{name: f"cell.{name}" for name in names},
        **given,
        block_samples="cell.block",
        payback_epochs=payback,
        chosen=lambda entry: entry.cell == chosen,
    )


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.nan
