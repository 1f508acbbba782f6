"""Every configuration of a grid, predicted; and what an epoch of it costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from forerun.core.errors import ProfileError
from forerun.core.rng import stream as random_stream
from forerun.loading.engine.laws import get_usd_per_epoch, terms
from forerun.loading.engine.model import Reader, equal_blocks
from forerun.loading.engine.setup import (
    law_setting,
    load_of,
    make_caches,
    make_nodes,
    make_reader,
    make_store,
)
from forerun.loading.engine.threads import hits_of, open_caches, stream
from forerun.loading.engine.tuning import Evaluate
from forerun.loading.engine.workers import delivery, planned_batches
from forerun.loading.inputs import Inputs
from forerun.loading.policy import Ask, Cell, Probe
from forerun.loading.scenario import Cache, Scenario

#: an epoch longer than this is predicted by its beginning
MOST_SAMPLES = 12_800
#: what the stall split is predicted for: shares of the scenario's step, and samples of a run
STEP_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
SPLIT_SAMPLES = 3200


@dataclass(frozen=True)
class Predicted:
    """A predicted cell.

    Parameters
    ----------
    total_s, samples_per_s : of an epoch.
    held_bytes : of blocks in memory, batches ahead and the cache.
    cost_usd : of an epoch.
    request_usd : the part of it that requests cost.
    hidden : whether the step hides loading.
    gets : requests of an epoch.
    nodes : what caches of several nodes do (None: there are none).
    """

    cell: Cell
    total_s: float
    samples_per_s: float
    held_bytes: float
    cost_usd: float
    hidden: bool
    gets: int = 0
    request_usd: float = 0.0
    nodes: NodesPredicted | None = None


@dataclass(frozen=True)
class NodesPredicted:
    """What caches of several nodes do in an epoch long after the first, all nodes together.

    Parameters
    ----------
    store_bytes, peer_bytes : that come from the store, and from other nodes.
    hit_share : of the blocks, those that some cache has.
    saved_s : seconds that the epoch is shorter than without caches.
    """

    store_bytes: float
    peer_bytes: float
    hit_share: float
    saved_s: float


def predict_cells(inputs: Inputs, cells: Iterable[Cell]) -> tuple[Predicted, ...]:
    """Predict each cell, with mean sizes, mean latency and mean step.

    Loaders of threads are simulated event by event, loaders of workers by the recursion.

    Parameters
    ----------
    inputs : what the cells have in common.
    cells : to be predicted, in any order; the answer is in theirs.

    Raises Infeasible for a cell that would take for ever.
    """
    asked = tuple(cells)
    as_given = {cell.decoder: _decoded_by(inputs, cell.decoder) for cell in asked}
    if inputs.scenario.nodes is not None:
        bare: dict[Cell, float] = {}
        return tuple(_of_nodes(as_given[cell.decoder], cell, bare) for cell in asked)
    return tuple(_predict(as_given[cell.decoder], cell) for cell in asked)


def _decoded_by(inputs: Inputs, decoder: str) -> Inputs:
    """The inputs where samples are decoded on the `cpu`; as they are for `gpu`, or where nothing is chosen."""
    if decoder != "cpu" or inputs.scenario.gpu_decode is None:
        return inputs
    return inputs.of(inputs.scenario.with_(gpu_decode=None, grid=None))


def _of_nodes(inputs: Inputs, cell: Cell, bare: dict[Cell, float]) -> Predicted:
    """One cell of several nodes: an epoch long after the first, beside the same without caches.

    Parameters
    ----------
    cell : with the caches of the nodes.
    bare : seconds of epochs without caches, by the cell without them; more are added.
    """
    without = replace(cell, cache_bytes=0.0, sharing="none", cache_policy="pinned")
    if without not in bare:
        bare[without] = _nodes_epoch(inputs, without)[0]
    total_s, store, peers, hits = _nodes_epoch(inputs, cell)
    load, scenario = load_of(inputs), inputs.scenario
    rate, whole = load.samples / total_s, float(inputs.sizes.sum())
    gets = round((1 - hits) * -(-scenario.dataset.samples // cell.block))
    return Predicted(
        cell,
        total_s,
        rate,
        cell.block * cell.threads * load.sample_bytes + cell.cache_bytes,
        scenario.readers * epoch_cost_usd(inputs, cell.block, total_s, 1 - hits),
        rate >= 0.98 * terms(law_setting(inputs))["compute"],
        gets,
        gets / 1000 * scenario.store.price.per_1k_get_usd,
        nodes=NodesPredicted(store * whole, peers * whole, hits, bare[without] - total_s),
    )


def _nodes_epoch(inputs: Inputs, cell: Cell) -> tuple[float, float, float, float]:
    """Seconds of an epoch of nodes whose caches are as full as they get; of its bytes, the shares of the store and of other
    nodes; and the share of blocks that are hits. Long epochs are predicted by shorter ones with smaller caches.

    Blocks in the cache of a node are a random choice of all, in random order of their last use: an order that is read once
    leaves them so.

    Parameters
    ----------
    cell : with the caches of the nodes.
    """
    scenario, load = inputs.scenario, load_of(inputs)
    assert scenario.nodes is not None
    count, all_samples = scenario.nodes.count, scenario.dataset.samples
    enough = count * max(MOST_SAMPLES // count, 8 * cell.block * cell.threads, 4 * load.batch)
    samples = min(all_samples, enough)
    cut = scenario.with_(
        dataset=scenario.dataset.with_(samples=samples, sample_bytes=load.sample_bytes),
        layout=scenario.layout.with_(block_samples=cell.block, block_bytes=0.0),
        loader=scenario.loader.with_(threads=cell.threads),
        nodes=scenario.nodes.with_(
            cache_bytes=cell.cache_bytes * samples / all_samples, sharing=cell.sharing, policy=cell.cache_policy
        ),
        store=scenario.store.with_(
            latency_s=inputs.mean_s(scenario.store.latency_s), errors=None, changes=()
        ),
        step=scenario.step.with_(step_s=inputs.mean_s(scenario.step.step_s)),
        grid=None,
    )  # fmt: skip
    other = inputs.of(cut, np.full(samples, load.sample_bytes))
    models, of_job = make_caches(other)
    edges = np.array(other.block_edges())
    sizes = np.diff(edges) * load.sample_bytes
    caches = open_caches(models, len(sizes))
    rng = random_stream(scenario.seed, "full caches")
    whole = rng.permutation(len(sizes))
    for number in range(count):
        if cell.sharing == "partitioned":
            keys = other.order(0, number)
        else:
            keys = whole if cell.sharing == "replicated" else rng.permutation(len(sizes))
        hits_of(caches, number, keys, sizes[keys])
    readers = [make_reader(other, 1, number, caches=of_job[number]) for number in range(count)]
    # Nodes that meet the same latencies would read together and decode together, which only means do.
    latency_s = inputs.random_latencies(len(sizes) + 1, rng)
    run = stream(
        readers, make_store(other), latency_s=other.latencies(1) if latency_s is None else latency_s,
        caches=caches, nodes=make_nodes(other),
    )  # fmt: skip
    total = store = peers = hits = asked = 0.0
    for number, job in enumerate(run.jobs):
        size, source = job.requests.size_bytes, job.requests.source
        known = np.isfinite(job.requests.taken_s)
        asked += float(known.sum())
        hits += float((source[known] >= 0).sum())
        total += float(size[known].sum())
        store += float(size[known & (source < 0)].sum())
        peers += float(size[known & (source >= 0) & (source != number)].sum())
    return run.end_s * all_samples / samples, store / total, peers / total, hits / asked


def _predict(inputs: Inputs, cell: Cell) -> Predicted:
    """One cell, as `predict_cells` gives it."""
    load, scenario = load_of(inputs), inputs.scenario
    missed = 1.0
    if cell.workers:
        total_s = _by_workers(inputs, cell)
        ahead = scenario.loader.prefetch * load.batch * inputs.decoded_bytes
        in_memory = cell.workers * (cell.block * load.sample_bytes + ahead)
    else:
        enough = max(MOST_SAMPLES, 8 * cell.block * cell.threads)
        # The beginning contains whole batches, so that start-up weighs no more than it must.
        samples = load.samples if load.samples <= enough else enough // load.batch * load.batch
        begun_s, missed = (
            _cached(inputs, cell, samples) if cell.cache_bytes else (run_cell(inputs, cell, samples)[0], 1.0)
        )
        total_s = begun_s * load.samples / samples
        in_memory = cell.block * cell.threads * load.sample_bytes + cell.cache_bytes
    rate, gets = load.samples / total_s, round(missed * -(-load.samples // cell.block))
    return Predicted(
        cell,
        total_s,
        rate,
        in_memory,
        epoch_cost_usd(inputs, cell.block, total_s, missed),
        rate >= 0.98 * terms(law_setting(inputs))["compute"],
        gets,
        gets / 1000 * scenario.store.price.per_1k_get_usd,
    )


def _by_workers(inputs: Inputs, cell: Cell) -> float:
    """Seconds of an epoch by the recursion; workers start as the scenario's first does."""
    scenario = inputs.scenario
    start = (scenario.loader.start_s[0],) * cell.workers if scenario.loader.start_s else ()
    other = scenario.with_(
        layout=scenario.layout.with_(block_samples=cell.block, block_bytes=0.0),
        loader=scenario.loader.with_(workers=cell.workers, threads=cell.threads, start_s=start),
    )
    plan = planned_batches(scenario, cell.workers)
    return float(delivery(inputs.of(other), plan, 0, store=True, decode=True).total_s)


def _cached(inputs: Inputs, cell: Cell, samples: int) -> tuple[float, float]:
    """Seconds of an epoch with a warm cache, and the share of blocks that still come from the store.

    The cache is reduced in the same ratio as the epoch.

    Parameters
    ----------
    cell : with a cache.
    samples : of the epoch that is simulated.
    """
    scenario, load = inputs.scenario, load_of(inputs)
    cache = scenario.caches[0] if scenario.caches else Cache(capacity_bytes=1.0, policy="pinned")
    cut = scenario.with_(
        dataset=scenario.dataset.with_(samples=samples, sample_bytes=load.sample_bytes),
        layout=scenario.layout.with_(block_samples=cell.block, block_bytes=0.0),
        loader=scenario.loader.with_(threads=cell.threads),
        caches=(cache.with_(capacity_bytes=cell.cache_bytes * samples / load.samples),),
        store=scenario.store.with_(
            latency_s=inputs.mean_s(scenario.store.latency_s), errors=None, changes=()
        ),
        step=scenario.step.with_(step_s=load.step_s / inputs.step_factor, overhead_s=0.0),
    )
    other = inputs.of(cut, np.full(samples, load.sample_bytes))
    models, of_job = make_caches(other)
    caches = open_caches(models, len(other.block_edges()) - 1)
    for epoch in range(2):
        readers = [make_reader(other, epoch, job, caches=of_job[job]) for job in range(cut.jobs)]
        run = stream(readers, make_store(other), latency_s=other.latencies(epoch), caches=caches)
    job = run.jobs[0]
    asked = np.isfinite(job.requests.taken_s)
    return job.total_s, float((job.requests.source[asked] < 0).mean())


def run_cell(
    inputs: Inputs,
    cell: Cell,
    samples: int,
    rng: np.random.Generator | None = None,
    *,
    instantaneous: bool = False,
) -> tuple[float, float, float]:
    """A cell by the event model: seconds, mean seconds of a request, and the share of the time that the loop waits.

    Parameters
    ----------
    rng : of the latencies (default: every latency is the mean).
    instantaneous : the store takes no time (default: it takes its time).
    inputs : sizes and times, of which the means count.
    cell : block size and threads.
    samples : how many are read.
    """
    scenario, load = inputs.scenario, load_of(inputs)
    # A cell is predicted for the store as it is at the start.
    store = replace(make_store(inputs, instantaneous=instantaneous), changes=())
    blocks = equal_blocks(samples, cell.block, load.sample_bytes)
    decode_s, decode_cpu_s = inputs.mean_decode_s
    reader = Reader(
        blocks=blocks,
        threads=cell.threads,
        batch=scenario.run.batch,
        step_s=load.step_s,
        decode_s=decode_s,
        decode_cpu_s=decode_cpu_s,
        buffer_samples=load.buffer_samples,
        drop_last=scenario.run.drop_last,
        shuffle_samples=scenario.dataset.shuffle_buffer_samples,
    )
    if scenario.gpu_decode is not None:
        reader = replace(reader, gpu_s=inputs.gpu_decode_s(reader.batch_samples))
    if rng is None and scenario.jobs > 1:
        # Equal jobs that meet the same latencies would read together and decode together, which only means do.
        rng = random_stream(scenario.seed, "cells")
    latencies = np.array([0.0 if instantaneous else inputs.mean_s(scenario.store.latency_s)])
    if rng is not None and not instantaneous:
        random = inputs.random_latencies((len(blocks) + 1) * scenario.jobs, rng)
        latencies = latencies if random is None else random
    job = stream([reader] * scenario.jobs, store, latency_s=latencies).jobs[0]
    done = np.isfinite(job.requests.done_s)
    request_s = float(np.mean((job.requests.done_s - job.requests.taken_s)[done]))
    return job.total_s, request_s, float(job.load_s[1:].sum() / job.total_s)


def split_by_step(inputs: Inputs) -> list[tuple[float, float, float, float]]:
    """The time of a batch for shorter and longer steps (`STEP_FACTORS` of the scenario's).

    A row: the step, and its parts in seconds: the step, what preparing adds, what the store adds. Each comes from two runs
    of the first `SPLIT_SAMPLES` samples, with an instantaneous store and with the store as it is.
    """
    scenario, load = inputs.scenario, load_of(inputs)
    cell = Cell(inputs.block_samples, scenario.loader.threads)
    samples = min(
        load.samples,
        max(SPLIT_SAMPLES, 4 * cell.block * cell.threads) // load.batch * load.batch or load.batch,
    )
    batches = -(-samples // load.batch)
    rows = []
    for factor in STEP_FACTORS:
        step_s = load.step_s * factor
        step = scenario.step.with_(step_s=step_s / inputs.step_factor, overhead_s=0.0)
        other = inputs.of(scenario.with_(step=step))
        prepared = run_cell(other, cell, samples, instantaneous=True)[0] / batches
        total = max(prepared, run_cell(other, cell, samples)[0] / batches)
        rows.append((step_s, step_s, max(0.0, prepared - step_s), total - max(prepared, step_s)))
    return rows


def epoch_cost_usd(inputs: Inputs, block: int, total_s: float, missed: float = 1.0) -> float:
    """Requests, egress, the merged copy for that share of a month, and the GPU's stalled time.

    Parameters
    ----------
    missed : the share of requests that no cache answers.
    inputs : with the prices.
    block : samples a block.
    total_s : seconds of the epoch.
    """
    whole = inputs.mean_bytes * inputs.taken
    parts = cost_parts(inputs, block, total_s, whole)
    return sum(value * (missed if name in ("requests", "egress") else 1.0) for name, value in parts.items())


def cost_parts(
    inputs: Inputs, block: int, total_s: float, store_bytes: float, gets: int = 0
) -> dict[str, float]:
    """Dollars of an epoch by what they are paid for.

    Parameters
    ----------
    block : samples a block.
    total_s : seconds of the epoch.
    store_bytes : read from the store.
    gets : requests (default: 0: one a block).
    """
    scenario = inputs.scenario
    price, samples = scenario.store.price, scenario.dataset.samples
    batches = samples / scenario.run.batch
    if scenario.run.steps:
        batches = min(batches, scenario.run.steps)
        samples = min(samples, scenario.run.steps * scenario.run.batch)
    if scenario.nodes is not None:
        batches, samples = inputs.taken / scenario.run.batch, inputs.taken
    # A step that decoding slows is not a stall.
    steps_s = batches * law_setting(inputs).step_s
    requests = (
        gets / 1000 * price.per_1k_get_usd
        if gets
        else get_usd_per_epoch(samples, block, price.per_1k_get_usd)
    )
    copy_usd = store_bytes / 1e9 * price.month_usd_per_gb * total_s / (30 * 86_400) if block > 1 else 0.0
    return {
        "requests": requests,
        "egress": store_bytes / 1e9 * price.egress_usd_per_gb,
        "merged copy": copy_usd,
        "stalled GPU": max(0.0, total_s - steps_s) / 3600 * scenario.step.gpu_usd_per_h,
    }


def simulated_probes(inputs: Inputs) -> Evaluate:
    """Probes answered by the simulated store, its latencies random.

    The answer is called with what a tuner asks for, and each probe has a random stream of its own.

    Parameters
    ----------
    inputs : the store, and the seed of the latencies.
    """
    asked = 0

    def evaluate(ask: Ask) -> Probe:
        nonlocal asked
        rng = random_stream(inputs.scenario.seed, "probe", asked)
        asked += 1
        total_s, request_s, load_share = run_cell(inputs, ask.cell, ask.samples, rng)
        return Probe(ask.cell, ask.samples, total_s, request_s, law_setting(inputs).decode_s, load_share)

    return evaluate


def best_of(scenario: Scenario, cells: Sequence[Predicted]) -> Cell:
    """The cell that a plan takes: the one of least memory near the quickest, or near the cheapest, within the memory.

    Raises ProfileError if none fits the memory.

    Parameters
    ----------
    scenario : whose goal says what is minimised, the margin and the memory.
    cells : predicted ones.
    """
    goal = scenario.goal
    fitting = [entry for entry in cells if not goal.memory_bytes or entry.held_bytes <= goal.memory_bytes]
    if not fitting:
        raise ProfileError.at("memory", f"no cell fits in {goal.memory_bytes:.3g} bytes")
    value = {entry.cell: entry.cost_usd if goal.minimise == "cost" else entry.total_s for entry in fitting}
    best = min(value.values())
    near = [entry for entry in fitting if value[entry.cell] <= best * (1 + goal.margin_share)]
    return min(near, key=lambda entry: (entry.held_bytes, value[entry.cell], entry.cell)).cell
