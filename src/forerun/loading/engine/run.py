"""A run: every epoch of every job, and the simulations beside it that its summary reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from forerun.blocks.shuffling import neighbours, through_buffer
from forerun.core.rng import stream as random_stream
from forerun.loading.engine.cells import Predicted, predict_cells, simulated_probes, split_by_step
from forerun.loading.engine.kernels.cache import Caches
from forerun.loading.engine.kernels.deliver import Delivery
from forerun.loading.engine.model import Batches, NodesModel, Reader, Streamed, StreamRun
from forerun.loading.engine.setup import (
    load_of,
    make_caches,
    make_nodes,
    make_reader,
    make_store,
)
from forerun.loading.engine.threads import hits_of, open_caches, stream
from forerun.loading.engine.tuning import Tuned, tune
from forerun.loading.engine.workers import delivered_steps, delivery, planned_batches
from forerun.loading.inputs import Inputs
from forerun.loading.observer import Observer
from forerun.loading.policy import F64, I64
from forerun.loading.scenario import Scenario


@dataclass(frozen=True)
class Epoch:
    """One epoch of one job, however it was loaded.

    Parameters
    ----------
    job, number : which job and epoch, from 0.
    ask_s, got_s, step_s : float64[batches], when the loop asked for each batch and had it, from the epoch's start,
        and the step that followed.
    samples, queue : in each batch; decoded samples in the buffer when it was asked for.
    total_s : seconds of the epoch.
    store_bytes, gets : read from the store; requests to it, retries included.
    peak_memory_bytes : of blocks in memory, buffer and batch, at most.
    block_samples : samples a block.
    warmup_steps : batches at the beginning whose waits are start-up.
    hit_share : blocks that a cache had (default: 0).
    neighbour_share, batch_spread : see `neighbours` (defaults 0 and 1).
    streamed : what a loader of threads recorded (default: None: a loader of workers).
    """

    job: int
    number: int
    ask_s: F64
    got_s: F64
    step_s: F64
    samples: F64
    queue: I64
    total_s: float
    store_bytes: float
    gets: int
    peak_memory_bytes: float
    block_samples: int
    warmup_steps: int
    hit_share: float = 0.0
    neighbour_share: float = 0.0
    batch_spread: float = 1.0
    streamed: Streamed | None = None

    @property
    def load_s(self) -> F64:
        """Wait for each batch."""
        return self.got_s - self.ask_s

    @property
    def first_batch_s(self) -> float:
        """Wait for the first batch."""
        return float(self.load_s[0])

    @property
    def stall_share(self) -> float:
        """Waits over the total."""
        return float(self.load_s.sum() / self.total_s)

    @property
    def utilisation_share(self) -> float:
        """Steps over the total."""
        return float(self.step_s.sum() / self.total_s)

    @property
    def samples_per_s(self) -> float:
        """Delivered samples a second."""
        return float(self.samples.sum()) / self.total_s if self.total_s else math.inf

    @property
    def steady_stall(self) -> float:
        """Waits after the first batches, which are start-up, over the total."""
        return float(self.load_s[self.warmup_steps :].sum()) / self.total_s if self.total_s else 0.0


@dataclass(frozen=True)
class Epochs:
    """All epochs, and the seconds of the first one's differential runs.

    Parameters
    ----------
    compute_s : if everything but steps is instantaneous.
    prepared_s : if only the store is.
    threads : the first epoch of loaders of threads.
    batches, delivered : the first epoch of a loader of workers.
    """

    epochs: tuple[Epoch, ...]
    compute_s: float
    prepared_s: float
    threads: StreamRun | None = None
    batches: Batches | None = None
    delivered: Delivery | None = None


@dataclass(frozen=True)
class Outcome:
    """What happened in a run.

    Parameters
    ----------
    given : the scenario as it was given.
    inputs : of what ran, which is the tuner's choice if there is a tuner.
    cells : the grid's, predicted.
    split : time of a batch by length of the step (see `split_by_step`).
    """

    given: Scenario
    inputs: Inputs
    simulated: Epochs
    tuned: Tuned | None
    cells: tuple[Predicted, ...]
    split: tuple[tuple[float, float, float, float], ...]

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """All epochs of all jobs."""
        return self.simulated.epochs


def run(inputs: Inputs, observers: Sequence[Observer] = ()) -> Outcome:
    """Simulate what the inputs describe.

    Raises Infeasible if a request fails more often than it may be repeated.

    Parameters
    ----------
    inputs : from `prepare`.
    observers : called after every epoch (default: none).
    """
    given, tuned = inputs.scenario, None
    if given.tuner is not None and given.grid is not None:
        tuned = tune(
            given.tuner, simulated_probes(inputs), given.grid.cells, load_of(inputs),
            memory_bytes=given.goal.memory_bytes or math.inf, rng=random_stream(given.seed, "tuner"),
        )  # fmt: skip
        inputs = replace(inputs, scenario=with_cell(given, tuned.cell.block, tuned.cell.threads))
    scenario = inputs.scenario
    simulated = run_epochs(inputs, observers)
    cells: tuple[Predicted, ...] = ()
    if scenario.grid is not None:
        cells = predict_cells(inputs, scenario.grid.cells_of(scenario.nodes))
    alone = scenario.loader.mode == "threads" and scenario.nodes is None
    steps = alone and load_of(inputs).step_s > 0
    return Outcome(
        given=given,
        inputs=inputs,
        simulated=simulated,
        tuned=tuned,
        cells=cells,
        split=tuple(split_by_step(inputs)) if steps else (),
    )


def with_cell(scenario: Scenario, block: int, threads: int) -> Scenario:
    """The scenario at another configuration.

    Parameters
    ----------
    block : samples a block.
    threads : of the loader.
    """
    return scenario.with_(
        layout=scenario.layout.with_(block_samples=block), loader=scenario.loader.with_(threads=threads)
    )


def run_epochs(inputs: Inputs, observers: Sequence[Observer] = ()) -> Epochs:
    """All epochs, by the kind of loader that the scenario names.

    Parameters
    ----------
    inputs : of one configuration; a tuner and a grid are not looked at.
    observers : called after every epoch.
    """
    if inputs.scenario.loader.mode == "threads":
        return _by_threads(inputs, observers)
    return _by_workers(inputs, observers)


def _by_threads(inputs: Inputs, observers: Sequence[Observer]) -> Epochs:
    """Epochs of loaders of threads, all jobs of an epoch together; caches keep their content from epoch to epoch."""
    scenario = inputs.scenario
    jobs, nodes = range(scenario.readers), make_nodes(inputs)
    models, of_job = make_caches(inputs)
    caches = open_caches(models, len(inputs.block_edges()) - 1)
    _prewarm(inputs, caches, of_job)
    epochs: list[Epoch] = []
    first: StreamRun | None = None
    elapsed_s = 0.0
    for number in range(scenario.run.epochs):
        readers = [make_reader(inputs, number, job, caches=of_job[job]) for job in jobs]
        store = make_store(inputs, since_s=elapsed_s)
        streamed = stream(readers, store, latency_s=inputs.latencies(number), caches=caches, nodes=nodes)
        first = first or streamed
        elapsed_s += streamed.end_s
        epochs += [_epoch(inputs, job, number, streamed.jobs[job], readers[job]) for job in jobs]
        for observer in observers:
            observer.epoch(number, streamed)
    assert first is not None
    # An instantaneous store does not fail either; sizes, order, steps, decoding and threads are the same.
    undisturbed = [replace(make_reader(inputs, 0, job), failures=None) for job in jobs]
    free = None if nodes is None else NodesModel("none", nodes.owner)
    prepared = stream(undisturbed, make_store(inputs, instantaneous=True), nodes=free).jobs[0]
    return Epochs(
        epochs=tuple(epochs),
        compute_s=float(first.jobs[0].step_s.sum()),
        prepared_s=prepared.total_s,
        threads=first,
    )


def _prewarm(inputs: Inputs, caches: Caches, of_job: list[tuple[int, ...]]) -> None:
    """Put a share of the blocks into each cache before the first epoch."""
    edges = np.array(inputs.block_edges())
    sizes = np.add.reduceat(inputs.sizes, edges[:-1])
    for layer, cache in enumerate(inputs.scenario.caches):
        for number in {numbers[layer] for numbers in of_job}:
            order = random_stream(inputs.scenario.seed, "prewarm", number).permutation(len(sizes))
            taken = order[: round(cache.prewarm_share * len(sizes))]
            if len(taken):
                hits_of(caches, number, taken, sizes[taken])


def _epoch(inputs: Inputs, job: int, number: int, streamed: Streamed, reader: Reader) -> Epoch:
    """What one job's epoch was, of its record.

    Parameters
    ----------
    inputs : sizes and times.
    job, number : which job and epoch, from 0.
    streamed : what the engine recorded.
    reader : what it was asked to do.
    """
    requests = streamed.requests
    asked = np.isfinite(requests.taken_s)
    from_store = asked & (requests.source < 0)
    rng = random_stream(inputs.scenario.seed, "shuffle buffer", number, job)
    delivered = through_buffer(streamed.put_block, reader.shuffle_samples, rng)
    share, spread = neighbours(delivered, streamed.batch_samples, len(reader.blocks))
    failed = int(reader.failures[from_store].sum()) if reader.failures is not None else 0
    decoded_samples = streamed.most_buffered + reader.shuffle_samples + reader.batch
    memory = float(requests.size_bytes.max()) * reader.threads + decoded_samples * inputs.decoded_bytes
    return Epoch(
        job=job,
        number=number,
        ask_s=streamed.ask_s - streamed.start_s,
        got_s=streamed.got_s - streamed.start_s,
        step_s=np.asarray(streamed.step_s),
        samples=streamed.batch_samples.astype(np.float64),
        queue=streamed.queue,
        total_s=streamed.total_s,
        store_bytes=float(requests.size_bytes[from_store].sum()),
        gets=int(from_store.sum()) + failed,
        hit_share=1 - float(from_store.sum()) / max(1, int(asked.sum())),
        peak_memory_bytes=memory,
        neighbour_share=share,
        batch_spread=spread,
        streamed=streamed,
        block_samples=inputs.block_samples,
        warmup_steps=inputs.scenario.run.warmup_steps,
    )


def _by_workers(inputs: Inputs, observers: Sequence[Observer]) -> Epochs:
    """Epochs of a loader of worker processes, by the recursion."""
    scenario = inputs.scenario
    loader, batches = scenario.loader, planned_batches(scenario, scenario.loader.workers)
    samples = int(batches.samples.sum())
    epochs: list[Epoch] = []
    first: Delivery | None = None
    for number in range(scenario.run.epochs):
        delivered = delivery(inputs, batches, number, store=True, decode=True)
        first = first or delivered
        epochs.append(
            Epoch(
                job=0,
                number=number,
                ask_s=delivered.ask_s,
                got_s=delivered.got_s,
                step_s=np.broadcast_to(delivered_steps(inputs, number), len(batches)),
                samples=batches.samples.astype(np.float64),
                queue=np.zeros(len(batches), np.int64),
                total_s=delivered.total_s,
                store_bytes=float(inputs.mean_bytes * batches.samples.sum()),
                gets=-(-samples // inputs.block_samples),
                peak_memory_bytes=loader.workers
                * loader.prefetch
                * scenario.run.batch
                * inputs.decoded_bytes,
                block_samples=inputs.block_samples,
                warmup_steps=scenario.run.warmup_steps,
            )
        )
        for observer in observers:
            observer.epoch(number, delivered)
    prepared = delivery(inputs, batches, 0, store=False, decode=True)
    return Epochs(
        epochs=tuple(epochs),
        compute_s=float(epochs[0].step_s.sum()),
        prepared_s=prepared.total_s,
        batches=batches,
        delivered=first,
    )
