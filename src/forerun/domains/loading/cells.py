"""Every configuration of a grid, predicted; and what an epoch of it costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from forerun.domains.loading.delivering import delivery, planned_batches
from forerun.domains.loading.kernels.cache import CAPACITY_BYTES
from forerun.domains.loading.laws import get_usd_per_epoch, terms
from forerun.domains.loading.model import Cell, Probe, Reader
from forerun.domains.loading.placement import place_gangs
from forerun.domains.loading.policy import Ask, placements
from forerun.domains.loading.scenario import Cache, RandomSeconds, Scenario, mean_seconds
from forerun.domains.loading.streaming import hits_of, open_caches, stream
from forerun.domains.loading.tuning import Evaluate
from forerun.domains.loading.world import Drawn, times_of
from forerun.rng import stream as random_stream

#: an epoch longer than this is predicted by its beginning
MOST_SAMPLES = 12_800
#: what the stall split is predicted for: shares of the scenario's step, and samples of a run
STEP_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
SPLIT_SAMPLES = 3200


@dataclass(frozen=True)
class Predicted:
    """A cell: seconds of an epoch, samples/s, bytes held in blocks, dollars, and whether the step hides loading.

    gets: requests of an epoch; request_usd: the part of the dollars that these are. local_share: of the job's bytes, what
    its placement has on its node.
    """

    cell: Cell
    total_s: float
    samples_per_s: float
    held_bytes: float
    cost_usd: float
    hidden: bool
    gets: int = 0
    request_usd: float = 0.0
    local_share: float = 0.0


def predict_cells(drawn: Drawn, cells: Iterable[Cell]) -> tuple[Predicted, ...]:
    """Each cell by the event model, or by the recursion where it has workers; mean sizes, mean latency, mean step."""
    wanted = tuple(cells)
    local = {name: _local_share(drawn.scenario, name) for name in {cell.placement for cell in wanted}}
    return tuple(_predict(drawn, cell, local[cell.placement]) for cell in wanted)


def _local_share(scenario: Scenario, placement: str) -> float:
    """Of the bytes of the cluster's jobs, what a placement policy puts on their own nodes; nothing without one."""
    if not placement or scenario.cluster is None:
        return 0.0
    cluster = scenario.cluster
    return place_gangs(cluster.nodes, cluster.gangs, placements().get(placement)()).local_bytes_pct / 100


def _predict(drawn: Drawn, cell: Cell, local: float) -> Predicted:
    load, scenario = drawn.load(), drawn.scenario
    missed = 1.0
    if cell.workers:
        total_s = _by_workers(drawn, cell)
        ahead = scenario.loader.prefetch * load.batch * drawn.decoded_bytes
        held = cell.workers * (cell.block * load.sample_bytes + ahead)
    else:
        wanted = max(MOST_SAMPLES, 8 * cell.block * cell.threads)
        # The beginning holds whole batches, so that start-up weighs no more than it must.
        samples = load.samples if load.samples <= wanted else wanted // load.batch * load.batch
        begun_s, missed = (
            _cached(drawn, cell, samples, local)
            if cell.cache_bytes or local
            else (run_cell(drawn, cell, samples)[0], 1.0)
        )
        total_s = begun_s * load.samples / samples
        held = cell.block * cell.threads * load.sample_bytes + cell.cache_bytes
    rate, gets = load.samples / total_s, round(missed * -(-load.samples // cell.block))
    return Predicted(
        cell,
        total_s,
        rate,
        held,
        epoch_cost_usd(drawn, cell.block, total_s, missed),
        rate >= 0.98 * terms(drawn.setting())["compute"],
        gets,
        gets / 1000 * scenario.store.price.per_1k_get_usd,
        local,
    )


def _by_workers(drawn: Drawn, cell: Cell) -> float:
    """Seconds of an epoch by the recursion; workers start as the scenario's first does."""
    scenario = drawn.scenario
    start = (scenario.loader.start_s[0],) * cell.workers if scenario.loader.start_s else ()
    other = scenario.with_(
        layout=scenario.layout.with_(block_samples=cell.block, block_bytes=0.0),
        loader=scenario.loader.with_(workers=cell.workers, threads=cell.threads, start_s=start),
    )
    plan = planned_batches(scenario, cell.workers)
    return float(delivery(Drawn(other, drawn.sizes), plan, 0, store=True, decode=True).total_s)


def _cached(drawn: Drawn, cell: Cell, samples: int, local: float) -> tuple[float, float]:
    """Seconds of an epoch with a warm cache and a share of the bytes on the job's node, and the share of blocks that still
    come from the store; the cache is cut like the epoch."""
    scenario, load = drawn.scenario, drawn.load()
    layers: tuple[Cache, ...] = ()
    if local and scenario.cluster is not None:
        layers = (
            Cache(
                capacity_bytes=local * samples * load.sample_bytes, policy="pinned", prewarm_share=local,
                latency_s=scenario.cluster.local_latency_s, read_bytes_per_s=scenario.cluster.local_bytes_per_s,
            ),
        )  # fmt: skip
    if cell.cache_bytes:
        one = scenario.caches[0] if scenario.caches else Cache(capacity_bytes=1.0, policy="pinned")
        layers = (*layers, one.with_(capacity_bytes=cell.cache_bytes * samples / load.samples))
    cut = scenario.with_(
        dataset=scenario.dataset.with_(samples=samples, sample_bytes=load.sample_bytes),
        layout=scenario.layout.with_(block_samples=cell.block, block_bytes=0.0),
        loader=scenario.loader.with_(threads=cell.threads),
        caches=layers,
        store=scenario.store.with_(latency_s=scenario.store.mean_latency_s, errors=None, changes=()),
        step=scenario.step.with_(step_s=load.step_s, overhead_s=0.0),
    )
    other = Drawn(cut, np.full(samples, load.sample_bytes))
    models, of_job = other.cache_models()
    edges = np.array(other.block_edges())
    caches = open_caches(models, len(edges) - 1)
    if local:
        # What lies on the node is there from the start, and what the cache holds comes on top of it.
        blocks = np.diff(edges) * load.sample_bytes
        held = np.flatnonzero(np.cumsum(blocks) <= local * blocks.sum() * (1 + 1e-9))
        for number in {numbers[0] for numbers in of_job}:
            hits_of(caches, number, held, blocks[held])
            caches.about[number, CAPACITY_BYTES] = blocks[held].sum()
    for epoch in range(2 if cell.cache_bytes else 1):
        readers = [other.reader(epoch, job, caches=of_job[job]) for job in range(cut.jobs)]
        run = stream(readers, other.store(), latency_s=other.latencies(epoch), caches=caches)
    job = run.jobs[0]
    asked = np.isfinite(job.requests.taken_s)
    return job.total_s, float((job.requests.source[asked] < 0).mean())


def run_cell(
    drawn: Drawn,
    cell: Cell,
    samples: int,
    rng: np.random.Generator | None = None,
    *,
    instantaneous: bool = False,
) -> tuple[float, float, float]:
    """Seconds, mean request time and stalled share of a cell; latencies are drawn where a stream is given.

    instantaneous: the store takes no time.
    """
    load, store, latency = (
        drawn.load(),
        # A cell is predicted for the store as it is at the start.
        replace(drawn.store(instantaneous=instantaneous), changes=()),
        drawn.scenario.store.latency_s,
    )
    full, rest = divmod(samples, cell.block)
    blocks = [np.full(cell.block, load.sample_bytes)] * full + (
        [np.full(rest, load.sample_bytes)] if rest else []
    )
    cpu, loading = drawn.scenario.cpu, drawn.scenario.run
    decode_s, cpu_s = mean_seconds(cpu.decode_s), mean_seconds(cpu.decode_cpu_s)
    reader = Reader(
        blocks, cell.threads, loading.batch, load.step_s, decode_s, cpu_s, load.buffer_samples,
        drop_last=loading.drop_last, shuffle_samples=drawn.scenario.dataset.shuffle_buffer_samples,
    )  # fmt: skip
    given = 0.0 if instantaneous else drawn.scenario.store.mean_latency_s
    latencies = np.array([given])
    jobs = drawn.scenario.jobs
    if rng is None and jobs > 1:
        # Equal jobs that meet the same latencies would read together and decode together: an accident of the mean.
        rng = random_stream(drawn.scenario.seed, "cells")
    if rng is not None and isinstance(latency, RandomSeconds) and not instantaneous:
        latencies = times_of(latency, (len(blocks) + 1) * jobs, rng)
    readers = [reader] * jobs
    job = stream(readers, store, latency_s=latencies).jobs[0]
    done = np.isfinite(job.requests.done_s)
    request_s = float(np.mean((job.requests.done_s - job.requests.taken_s)[done]))
    return job.total_s, request_s, float(job.load_s[1:].sum() / job.total_s)


def split_by_step(drawn: Drawn) -> list[tuple[float, float, float, float]]:
    """Step [s], and seconds of a batch: the step, what preparing adds, what the store adds; for `STEP_FACTORS` of the step.

    By two runs each of the first `SPLIT_SAMPLES` samples, the store instantaneous and as it is.
    """
    scenario, load = drawn.scenario, drawn.load()
    cell = Cell(drawn.block_samples, scenario.loader.threads)
    samples = min(
        load.samples,
        max(SPLIT_SAMPLES, 4 * cell.block * cell.threads) // load.batch * load.batch or load.batch,
    )
    batches = -(-samples // load.batch)
    found = []
    for factor in STEP_FACTORS:
        step_s = load.step_s * factor
        step = scenario.step.with_(step_s=step_s, overhead_s=0.0)
        other = Drawn(scenario.with_(step=step), drawn.sizes)
        prepared = run_cell(other, cell, samples, instantaneous=True)[0] / batches
        total = max(prepared, run_cell(other, cell, samples)[0] / batches)
        found.append((step_s, step_s, max(0.0, prepared - step_s), total - max(prepared, step_s)))
    return found


def epoch_cost_usd(drawn: Drawn, block: int, total_s: float, missed: float = 1.0) -> float:
    """Requests, egress, the share of a month that the merged copy is kept, and the GPU's stalled time.

    missed: the share of requests that no cache answers.
    """
    whole = drawn.mean_bytes * drawn.taken
    parts = cost_parts(drawn.scenario, block, total_s, whole)
    return sum(value * (missed if name in ("requests", "egress") else 1.0) for name, value in parts.items())


def cost_parts(
    scenario: Scenario, block: int, total_s: float, store_bytes: float, gets: int = 0
) -> dict[str, float]:
    """Dollars of an epoch by what they are paid for. gets: requests, where known better than one a block."""
    price, samples = scenario.store.price, scenario.dataset.samples
    batches = samples / scenario.run.batch
    if scenario.run.steps:
        batches = min(batches, scenario.run.steps)
        samples = min(samples, scenario.run.steps * scenario.run.batch)
    steps_s = batches * (mean_seconds(scenario.step.step_s) + scenario.step.overhead_s)
    requests = (
        gets / 1000 * price.per_1k_get_usd
        if gets
        else get_usd_per_epoch(samples, block, price.per_1k_get_usd)
    )
    kept = store_bytes / 1e9 * price.month_usd_per_gb * total_s / (30 * 86_400) if block > 1 else 0.0
    return {
        "requests": requests,
        "egress": store_bytes / 1e9 * price.egress_usd_per_gb,
        "merged copy": kept,
        "stalled GPU": max(0.0, total_s - steps_s) / 3600 * scenario.step.gpu_usd_per_h,
    }


def simulated_probes(drawn: Drawn) -> Evaluate:
    """Probes answered by the simulated store, latencies drawn."""
    asked = 0

    def evaluate(ask: Ask) -> Probe:
        nonlocal asked
        rng = random_stream(drawn.scenario.seed, "probe", asked)
        asked += 1
        total_s, request_s, load_share = run_cell(drawn, ask.cell, ask.samples, rng)
        return Probe(ask.cell, ask.samples, total_s, request_s, drawn.setting().decode_s, load_share)

    return evaluate
