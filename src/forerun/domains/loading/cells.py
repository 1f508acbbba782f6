"""Every configuration of a grid, predicted; and what an epoch of it costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from forerun.domains.loading.laws import get_usd_per_epoch, terms
from forerun.domains.loading.model import Cell, Probe
from forerun.domains.loading.policy import Ask
from forerun.domains.loading.scenario import Scenario
from forerun.domains.loading.streaming import stream
from forerun.domains.loading.tuning import Evaluate
from forerun.domains.loading.world import Drawn
from forerun.rng import stream as random_stream

#: an epoch longer than this is predicted by its beginning
MOST_SAMPLES = 12_800


@dataclass(frozen=True)
class Predicted:
    """A cell: seconds of an epoch, samples/s, bytes held in blocks, dollars, and whether the step hides loading."""

    cell: Cell
    total_s: float
    samples_per_s: float
    held_bytes: float
    cost_usd: float
    hidden: bool


def predict_cells(drawn: Drawn, cells: Iterable[Cell]) -> tuple[Predicted, ...]:
    """Each cell by the event model, with mean sizes, mean latency and mean step."""
    return tuple(_predict(drawn, cell) for cell in cells)


def _predict(drawn: Drawn, cell: Cell) -> Predicted:
    load = drawn.load()
    wanted = max(MOST_SAMPLES, 8 * cell.block * cell.threads)
    # The beginning holds whole batches, so that start-up weighs no more than it must.
    samples = load.samples if load.samples <= wanted else wanted // load.batch * load.batch
    begun_s = run_cell(drawn, cell, samples)[0]
    total_s = begun_s * load.samples / samples
    setting = replace(drawn.setting(), block_samples=cell.block, threads=cell.threads)
    rate = load.samples / total_s
    return Predicted(
        cell,
        total_s,
        rate,
        cell.block * cell.threads * load.sample_bytes,
        epoch_cost_usd(drawn, cell.block, total_s),
        rate >= 0.98 * terms(setting)["compute"],
    )


def run_cell(
    drawn: Drawn, cell: Cell, samples: int, rng: np.random.Generator | None = None
) -> tuple[float, float, float]:
    """Seconds, mean request time and stalled share of a cell; latencies are drawn where a stream is given."""
    load, store, latency = drawn.load(), drawn.store(), drawn.scenario.store.latency_s
    full, rest = divmod(samples, cell.block)
    sizes = [cell.block] * full + ([rest] if rest else [])
    blocks = [np.full(size, load.sample_bytes) for size in sizes]
    reader = replace(
        drawn.reader(0, 0), blocks=blocks, threads=cell.threads, step_s=load.step_s, keys=None, failures=None,
        start_s=0.0,
    )  # fmt: skip
    given = drawn.scenario.store.mean_latency_s
    latencies = np.array([given])
    if rng is not None and not isinstance(latency, (int, float)):
        sigma = latency.sigma
        latencies = given * np.exp(sigma * rng.standard_normal(len(sizes) + 1) - sigma**2 / 2)
    readers = [reader] * drawn.scenario.jobs
    if len(latencies) > 1:
        latencies = np.tile(latencies, drawn.scenario.jobs)
    job = stream(readers, store, latency_s=latencies).jobs[0]
    done = np.isfinite(job.requests.done_s)
    request_s = float(np.mean((job.requests.done_s - job.requests.taken_s)[done]))
    return job.total_s, request_s, float(job.load_s[1:].sum() / job.total_s)


def epoch_cost_usd(drawn: Drawn, block: int, total_s: float) -> float:
    """Requests, egress, the share of a month that the merged copy is kept, and the GPU's stalled time."""
    return sum(
        cost_parts(drawn.scenario, block, total_s, drawn.mean_bytes * drawn.scenario.dataset.samples).values()
    )


def cost_parts(
    scenario: Scenario, block: int, total_s: float, store_bytes: float, gets: int = 0
) -> dict[str, float]:
    """Dollars of an epoch by what they are paid for. gets: requests, where known better than one a block."""
    price, samples = scenario.store.price, scenario.dataset.samples
    batches = samples / scenario.run.batch
    step = scenario.step.step_s
    steps_s = batches * ((step if isinstance(step, (int, float)) else step.mean_s) + scenario.step.overhead_s)
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
        cpu = drawn.scenario.cpu
        return Probe(ask.cell, ask.samples, total_s, request_s, cpu.decode_s + cpu.decode_cpu_s, load_share)

    return evaluate
