"""A scenario's run: every epoch of every job, the differential runs behind the stall split, laws, cells, placement."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forerun.domains.loading import tables
from forerun.domains.loading.cells import (
    Predicted,
    cost_parts,
    predict_cells,
    simulated_probes,
    split_by_step,
)
from forerun.domains.loading.delivering import delivered_steps, delivery, planned_batches
from forerun.domains.loading.kernels.cache import Caches
from forerun.domains.loading.laws import Explanation, explain, payback_epochs
from forerun.domains.loading.model import F64, Cell, Reader, Streamed, StreamRun
from forerun.domains.loading.pacing import Pacer
from forerun.domains.loading.placement import Placed, place_gangs
from forerun.domains.loading.scenario import RandomSeconds, Scenario
from forerun.domains.loading.streaming import hits_of, open_caches, stream
from forerun.domains.loading.tuning import Tuned, tune
from forerun.domains.loading.world import Drawn, draw, neighbours, through_buffer
from forerun.errors import ProfileError
from forerun.result.ledger import Ledger
from forerun.result.run import Interval, Result
from forerun.result.stats import standard_error, student_quantile
from forerun.result.tables import Table
from forerun.rng import stream as random_stream

#: stretches of batches that an interval is taken over
_STRETCHES = 10


def run_scenario(
    scenario: Scenario, *, watch: Sequence[Any] = (), draw: Callable[[Scenario], Drawn] = draw
) -> Result:
    """The result of a scenario (see `simulate`); `draw` may break the ties of what is drawn another way."""
    given, tuned = scenario, None
    if scenario.tuner is not None and scenario.grid is not None:
        drawn = draw(scenario)
        tuned = tune(
            scenario.tuner, simulated_probes(drawn), scenario.grid.cells, drawn.load(),
            memory_bytes=scenario.goal.memory_bytes or math.inf, rng=random_stream(scenario.seed, "tuner"),
        )  # fmt: skip
        scenario = with_cell(scenario, tuned.cell.block, tuned.cell.threads)
    drawn = draw(scenario)
    return _Report(given, drawn, outcome_of(drawn, watch), tuned).result()


def outcome_of(drawn: Drawn, watch: Sequence[Any] = ()) -> Outcome:
    """All epochs of a drawn scenario, by the loader that it names."""
    return _threads(drawn, watch) if drawn.scenario.loader.mode == "threads" else _workers(drawn, watch)


def with_cell(scenario: Scenario, block: int, threads: int) -> Scenario:
    """The scenario at another configuration."""
    return scenario.with_(
        layout=scenario.layout.with_(block_samples=block), loader=scenario.loader.with_(threads=threads)
    )


@dataclass(frozen=True)
class Epoch:
    """One epoch of one job, however it was loaded."""

    job: int
    number: int
    ask_s: F64
    got_s: F64
    step_s: F64
    samples: F64
    queue: F64
    total_s: float
    store_bytes: float
    gets: int
    hit_share: float
    peak_memory_bytes: float
    neighbour_share: float
    batch_spread: float
    streamed: Streamed | None = None
    block_samples: int = 1
    warmup_steps: int = 1

    @property
    def load_s(self) -> F64:
        """Wait for each batch."""
        return self.got_s - self.ask_s

    @property
    def samples_per_s(self) -> float:
        """Delivered samples a second."""
        return float(self.samples.sum()) / self.total_s if self.total_s else math.inf

    @property
    def steady_stall(self) -> float:
        """Waits after the first batches, which are start-up, over the total."""
        return float(self.load_s[self.warmup_steps :].sum()) / self.total_s if self.total_s else 0.0


@dataclass(frozen=True)
class Outcome:
    """All epochs, the totals of the first epoch's differential runs, and what is drawn of it."""

    epochs: tuple[Epoch, ...]
    compute_s: float
    prepared_s: float
    timeline: Any
    most_in_flight: int = 0
    mean_in_flight: float = 0.0
    pacers: tuple[Pacer, ...] = ()


def _threads(drawn: Drawn, watch: Sequence[Any]) -> Outcome:
    scenario = drawn.scenario
    models, of_job = drawn.cache_models()
    blocks = len(drawn.block_edges()) - 1
    caches = open_caches(models, blocks)
    _prewarm(drawn, caches, of_job)
    epochs: list[Epoch] = []
    first: StreamRun | None = None
    pacers = [drawn.pacer(job) for job in range(scenario.jobs)]
    now, elapsed_s = drawn, 0.0
    for number in range(scenario.run.epochs):
        readers = [
            now.reader(number, job, caches=of_job[job], pacer=pacers[job]) for job in range(scenario.jobs)
        ]
        store = now.store(since_s=elapsed_s)
        run = stream(readers, store, latency_s=now.latencies(number), caches=caches)
        first = first or run
        elapsed_s += run.end_s
        for job, (streamed, reader) in enumerate(zip(run.jobs, readers)):
            epochs.append(_epoch(now, job, number, streamed, reader, pacers[job]))
        for observer in watch:
            observer.epoch(number, run)
        if pacers[0] is not None and pacers[0].block_samples != now.scenario.layout.block_samples:
            now = now.at_block(pacers[0].block_samples)
            # Blocks of another size are other objects: no cache has one of them.
            caches = open_caches(models, len(now.block_edges()) - 1)
    assert first is not None
    # An instantaneous store does not fail either; sizes, order, steps, decoding and threads are the same.
    undisturbed = [
        replace(
            drawn.reader(0, job, pacer=pacer),
            failures=None,
            steering=pacer.replay(0) if pacer is not None else None,
        )
        for job, pacer in enumerate(pacers)
    ]
    prepared = stream(undisturbed, drawn.store(instantaneous=True)).jobs[0]
    return Outcome(
        tuple(epochs),
        float(first.jobs[0].step_s.sum()),
        prepared.total_s,
        tables.thread_timeline(first.jobs),
        first.most_in_flight,
        first.mean_in_flight,
        tuple(pacer for pacer in pacers if pacer is not None),
    )


def _prewarm(drawn: Drawn, caches: Caches, of_job: list[tuple[int, ...]]) -> None:
    """Put a share of the blocks into each cache before the first epoch."""
    edges = np.array(drawn.block_edges())
    sizes = np.add.reduceat(drawn.sizes, edges[:-1])
    for layer, cache in enumerate(drawn.scenario.caches):
        for number in {numbers[layer] for numbers in of_job}:
            order = random_stream(drawn.scenario.seed, "prewarm", number).permutation(len(sizes))
            taken = order[: round(cache.prewarm_share * len(sizes))]
            if len(taken):
                hits_of(caches, number, taken, sizes[taken])


def _epoch(
    drawn: Drawn, job: int, number: int, streamed: Streamed, reader: Reader, pacer: Pacer | None
) -> Epoch:
    requests = streamed.requests
    asked = np.isfinite(requests.taken_s)
    from_store = asked & (requests.source < 0)
    rng = random_stream(drawn.scenario.seed, "shuffle buffer", number, job)
    delivered = through_buffer(streamed.put_block, reader.shuffle_samples, rng)
    share, spread = neighbours(delivered, streamed.batch_samples, len(reader.blocks))
    failed = int(reader.failures[from_store].sum()) if reader.failures is not None else 0
    at_once = reader.threads if pacer is None else pacer.most_used(number)
    held = float(requests.size_bytes.max()) * at_once
    memory = held + (streamed.most_buffered + reader.shuffle_samples + reader.batch) * drawn.decoded_bytes
    return Epoch(
        job=job,
        number=number,
        ask_s=streamed.ask_s - streamed.start_s,
        got_s=streamed.got_s - streamed.start_s,
        step_s=np.asarray(streamed.step_s),
        samples=streamed.batch_samples.astype(np.float64),
        queue=streamed.queue.astype(np.float64),
        total_s=streamed.total_s,
        store_bytes=float(requests.size_bytes[from_store].sum()),
        gets=int(from_store.sum()) + failed,
        hit_share=1 - float(from_store.sum()) / max(1, int(asked.sum())),
        peak_memory_bytes=memory,
        neighbour_share=share,
        batch_spread=spread,
        streamed=streamed,
        block_samples=drawn.block_samples,
        warmup_steps=drawn.scenario.run.warmup_steps,
    )


def _workers(drawn: Drawn, watch: Sequence[Any]) -> Outcome:
    scenario = drawn.scenario
    plan = planned_batches(scenario, scenario.loader.workers)
    epochs = []
    first = None
    for number in range(scenario.run.epochs):
        found = delivery(drawn, plan, number, store=True, decode=True)
        first = first or found
        steps = np.broadcast_to(delivered_steps(drawn, number), len(plan))
        gets = -(-int(plan.samples.sum()) // drawn.block_samples)
        memory = scenario.loader.workers * scenario.loader.prefetch * scenario.run.batch * drawn.decoded_bytes
        epochs.append(
            Epoch(
                0, number, found.ask_s, found.got_s, steps, plan.samples.astype(np.float64),
                np.zeros(len(plan)), found.total_s, float(drawn.mean_bytes * plan.samples.sum()), gets, 0.0,
                memory, 0.0, 1.0, block_samples=drawn.block_samples, warmup_steps=scenario.run.warmup_steps,
            )
        )  # fmt: skip
        for observer in watch:
            observer.epoch(number, found)
    assert first is not None
    prepared = delivery(drawn, plan, 0, store=False, decode=True)
    steps_s = float(epochs[0].step_s.sum())
    return Outcome(tuple(epochs), steps_s, prepared.total_s, tables.worker_timeline(plan, first))


class _Report:
    """A run put into words, tables, ledgers and intervals."""

    def __init__(self, given: Scenario, drawn: Drawn, outcome: Outcome, tuned: Tuned | None) -> None:
        self.given, self.drawn, self.outcome, self.tuned = given, drawn, outcome, tuned
        self.scenario = drawn.scenario
        self.first = outcome.epochs[0]
        self.law: Explanation = explain(drawn.setting(), samples=drawn.taken)
        self.cells: tuple[Predicted, ...] = ()
        if self.scenario.grid is not None:
            self.cells = predict_cells(drawn, self.scenario.grid.cells)
        self.placed: Placed | None = None
        if self.scenario.cluster is not None:
            cluster = self.scenario.cluster
            self.placed = place_gangs(cluster.nodes, cluster.gangs, self.scenario.policy)

    def result(self) -> Result:
        headline = [
            "samples_per_s",
            "total_s",
            "stall_share",
            "first_batch_s",
            "law_samples_per_s",
            "peak_memory_bytes",
        ]
        summary = self.summary()
        headline += [name for name in ("cost_usd", "payback_epochs", "local_hit_share") if name in summary]
        return Result(
            scenario=self.given,
            summary=summary,
            tables=self.tables(),
            ledgers=self.ledgers(),
            timeline=self.outcome.timeline,
            why=self.why(),
            notes=self.notes(),
            intervals=self.intervals(),
            headline=tuple(headline),
            next_steps=self.next_steps(),
        )

    def summary(self) -> dict[str, Any]:
        epochs, last = self.outcome.epochs, self.outcome.epochs[-1]
        compute = self.law.terms["compute"]
        mean_rate = float(np.mean([epoch.samples_per_s for epoch in epochs]))
        found: dict[str, Any] = {
            "samples_per_s": mean_rate,
            "total_s": float(np.mean([epoch.total_s for epoch in epochs])),
            "stall_share": float(np.mean([epoch.load_s.sum() / epoch.total_s for epoch in epochs])),
            "steady_stall_share": float(np.mean([epoch.steady_stall for epoch in epochs])),
            "load_mean_s": float(np.mean(self.first.load_s)),
            "first_batch_s": float(self.first.load_s[0]),
            "utilisation_share": float(np.mean([epoch.step_s.sum() / epoch.total_s for epoch in epochs])),
            "hidden": bool(last.steady_stall < 0.01),
            "bottleneck": self.law.bottleneck,
            "law_samples_per_s": self.law.samples_per_s,
            "compute_samples_per_s": compute if math.isfinite(compute) else None,
            "headroom": self.law.headroom if math.isfinite(self.law.headroom) else None,
            "block_samples": self.drawn.block_samples,
            "threads": self.scenario.loader.threads,
            "peak_memory_bytes": max(epoch.peak_memory_bytes for epoch in epochs),
            "store_bytes": float(np.sum([epoch.store_bytes for epoch in epochs])),
            "gets": int(sum(epoch.gets for epoch in epochs)),
            "hit_share": float(np.mean([epoch.hit_share for epoch in epochs])),
            "cold_samples_per_s": self.first.samples_per_s,
            "warm_samples_per_s": last.samples_per_s,
            "neighbour_share": self.first.neighbour_share,
            "batch_spread": self.first.batch_spread,
            "most_in_flight": self.outcome.most_in_flight,
            "mean_in_flight": self.outcome.mean_in_flight,
        }
        parts = self.costs()
        if any(parts.values()):
            found["cost_usd"] = sum(parts.values())
        if self.scenario.layout.merge_s and self.scenario.loader.mode == "threads":
            found["payback_epochs"] = self.payback()
        if self.tuned is not None:
            found["probes"] = len(self.tuned.probes)
            found["probe_samples"] = self.tuned.samples_read
            if self.cells:
                truth = {entry.cell: entry.total_s for entry in self.cells}
                found["regret_share"] = truth[self.tuned.cell] / min(truth.values()) - 1
        if self.outcome.pacers:
            rows = self.outcome.pacers[0].record
            found["pace_looks"] = len(rows)
            found["pace_changes"] = sum(row.threads != row.threads_before for row in rows)
            found["threads_at_end"] = rows[-1].threads
            found["block_samples_at_end"] = rows[-1].block_samples
            found["merges"] = len({epoch.block_samples for epoch in self.outcome.epochs}) - 1
        if self.placed is not None:
            found["local_hit_share"] = self.placed.local_hit_pct / 100
            found["local_bytes_share"] = self.placed.local_bytes_pct / 100
            found["placement_wait_mean_s"] = self.placed.mean_wait_s
        return found

    def payback(self) -> float | None:
        """Epochs until merging (to the layout's blocks, else to the best cell) pays back, against single samples."""
        threads, block = self.scenario.loader.threads, self.drawn.block_samples
        merged = Cell(block, threads)
        if block == 1 and self.cells:
            merged = best_of(self.scenario, self.cells)
        one, mine = (entry.total_s for entry in predict_cells(self.drawn, [Cell(1, threads), merged]))
        epochs = payback_epochs(self.scenario.layout.merge_s, one, mine)
        return epochs if math.isfinite(epochs) else None

    def costs(self) -> dict[str, float]:
        """Dollars of all epochs by what they are paid for."""
        found: dict[str, float] = {}
        for epoch in self.outcome.epochs:
            parts = cost_parts(
                self.scenario,
                epoch.block_samples,
                epoch.total_s,
                epoch.store_bytes,
                epoch.gets,
            )
            found = {name: found.get(name, 0.0) + value for name, value in parts.items()}
        return found

    def ledgers(self) -> tuple[Ledger, ...]:
        found = [tables.time_ledger(self.outcome.compute_s, self.outcome.prepared_s, self.first.total_s)]
        parts = self.costs()
        if any(parts.values()):
            found.append(Ledger("cost", "$", math.fsum(parts.values()), parts))
        return tuple(found)

    def intervals(self) -> dict[str, Interval]:
        """Of the mean wait, over ten stretches of the first epoch's batches."""
        load = self.first.load_s
        stretches = [float(part.mean()) for part in np.array_split(load, min(_STRETCHES, len(load)))]
        mean, half = float(load.mean()), 0.0
        if len(stretches) == _STRETCHES:
            half = student_quantile(0.975, _STRETCHES - 1) * standard_error(stretches)
        low = max(0.0, mean - half)
        return {
            "load_mean_s": Interval(low, mean + half, method="means of ten stretches of batches, Student's t")
        }

    def tables(self) -> dict[str, Table]:
        epochs = self.outcome.epochs
        found = {
            "epochs": Table.of_rows(tables.EPOCHS, [self.epoch_row(epoch) for epoch in epochs]),
            "batches": Table.of(
                tables.BATCHES,
                job=np.concatenate([np.full(len(e.ask_s), e.job) for e in epochs]),
                epoch=np.concatenate([np.full(len(e.ask_s), e.number) for e in epochs]),
                batch=np.concatenate([np.arange(len(e.ask_s)) for e in epochs]),
                load_s=np.concatenate([e.load_s for e in epochs]),
                queue=np.concatenate([e.queue for e in epochs]).astype(np.int64),
                **{
                    name: np.concatenate([getattr(e, name) for e in epochs])
                    for name in ("ask_s", "got_s", "step_s", "samples")
                },
            ),
            "laws": Table.of_rows(
                tables.LAWS,
                [
                    (name, value if math.isfinite(value) else math.nan, name == self.law.bottleneck)
                    for name, value in self.law.terms.items()
                ],
            ),
        }
        streamed = [epoch for epoch in epochs if epoch.number == 0 and epoch.streamed is not None]
        if streamed:
            found["requests"] = _requests(streamed)
        if self.scenario.loader.mode == "threads" and self.drawn.load().step_s > 0:
            found["split"] = Table.of_rows(tables.SPLIT, split_by_step(self.drawn))
        if self.cells:
            chosen = best_of(self.scenario, self.cells)
            found["cells"] = cells_table(self.cells, chosen, self.scenario.layout.merge_s)
        if self.tuned is not None:
            found["probes"] = Table.of_rows(
                tables.PROBES,
                [
                    (i, p.cell.block, p.cell.threads, p.samples, p.total_s, p.samples / p.total_s)
                    for i, p in enumerate(self.tuned.probes)
                ],
            )
        if self.outcome.pacers:
            found["pace"] = Table.of_rows(
                tables.PACE,
                [
                    tuple(getattr(row, column.name) for column in tables.PACE.columns)
                    for pacer in self.outcome.pacers
                    for row in pacer.record
                ],
            )
        if self.placed is not None:
            found["placed"] = Table.of_rows(
                tables.PLACED,
                [
                    (w.gang, w.job, w.worker, w.node, w.start_s, w.local_chunks, w.chunks)
                    for w in self.placed.workers
                ],
            )
        return found

    def epoch_row(self, epoch: Epoch) -> tuple[Any, ...]:
        cache = "none" if not self.scenario.caches else ("cold" if epoch.number == 0 else "warm")
        return (
            epoch.job, epoch.number, cache, epoch.samples_per_s, epoch.total_s, float(epoch.load_s[0]),
            epoch.steady_stall, float(epoch.step_s.sum()) / epoch.total_s, epoch.store_bytes, epoch.gets,
            epoch.hit_share, epoch.peak_memory_bytes, epoch.neighbour_share, epoch.batch_spread,
        )  # fmt: skip

    def why(self) -> str:
        text = self.law.sentence
        bound = self.law.samples_per_s
        if self.scenario.loader.mode != "threads":
            workers = self.scenario.loader.workers
            step = float(self.first.step_s.mean())
            stalled = self.first.steady_stall
            who, time = ("1 worker", "a step") if workers == 1 else (f"{workers} workers", f"{workers} steps")
            verb = "builds" if workers == 1 else "build"
            if stalled < 0.01:
                return f"loading is hidden: {who} {verb} a batch within {time} of {step:.3g} s"
            waited = f"waits after the first batch take {stalled:.1%} of the epoch"
            return f"{who} cannot build a batch within {time} of {step:.3g} s: {waited}"
        if self.outcome.pacers:
            return f"at the start {text}; {self._pace()}"
        if self.scenario.caches:
            return f"{text} (without the caches, which had {self.first.hit_share:.0%} of the first epoch's blocks)"
        if math.isfinite(bound) and self.first.samples_per_s < 0.9 * bound:
            share = 1 - self.first.samples_per_s / bound
            if self.law.bottleneck == "compute":
                text = f"by the laws the step binds at {bound:.4g} samples/s"
            return f"{text}; the run is {share:.0%} below that bound: {self._short_of_bound()}"
        return text

    def _short_of_bound(self) -> str:
        """Why an epoch falls well below the laws: lock-step if latencies that scatter would undo it."""
        otherwise = "start-up, or few blocks"
        if not self.drawn.scenario.store.mean_latency_s or isinstance(
            self.scenario.store.latency_s, RandomSeconds
        ):
            return otherwise
        sigma = 0.2
        scattered = RandomSeconds(mean_s=self.scenario.store.mean_latency_s, sigma=sigma)
        other = Drawn(
            self.scenario.with_(store=self.scenario.store.with_(latency_s=scattered)), self.drawn.sizes
        )
        readers = [other.reader(0, job) for job in range(self.scenario.jobs)]
        run = stream(readers, other.store(), latency_s=other.latencies(0)).jobs[0]
        if run.samples_per_s < 1.02 * self.first.samples_per_s:
            return otherwise
        return (
            f"threads in lock-step, all reading and then all decoding; latencies that scatter (sigma {sigma:g}) around "
            f"the same mean give {run.samples_per_s:.4g} samples/s"
        )

    def _pace(self) -> str:
        """What the pace policy of the first job did, in words."""
        rows = self.outcome.pacers[0].record
        threads = [rows[0].threads_before]
        threads += [row.threads for row in rows if row.threads != row.threads_before]
        blocks = list(dict.fromkeys(epoch.block_samples for epoch in self.outcome.epochs))
        text = (
            f"the pace went {_course(threads)} threads"
            if len(threads) > 1
            else f"the pace stayed at {threads[0]} threads"
        )
        return text + (f" and {_course(blocks)} samples a block" if len(blocks) > 1 else "")

    def notes(self) -> tuple[str, ...]:
        found = list(self.law.cautions)
        if self.scenario.store.changes:
            found.append("laws, cells and the split by step are those of the store as it is at the start")
        if len({epoch.block_samples for epoch in self.outcome.epochs}) > 1:
            found.append(
                "the time that merging took between epochs is not in theirs; it is layout.merge_s each"
            )
        if self.scenario.loader.threads > len(self.drawn.block_edges()) - 1:
            found.append("more threads than blocks: some never read")
        if self.tuned is not None:
            found.append(
                f"the tuner chose blocks of {self.tuned.cell.block} and {self.tuned.cell.threads} threads "
                f"after {len(self.tuned.probes)} probes"
            )
        return tuple(found)

    def next_steps(self) -> tuple[str, ...]:
        hide = self.law.hiding
        found = []
        if self.law.bottleneck == "thread" and hide.blocks_of is not None:
            block = min(max(1, math.ceil(1.2 * hide.blocks_of)), self.scenario.dataset.samples)
            setting = f"layout.block_samples={block}"
            if self.scenario.layout.block_bytes:
                setting = f"layout.block_bytes={math.ceil(block * self.drawn.mean_bytes)}"
            found.append(f"forerun simulate {{scenario}} --set {setting}")
        elif self.law.bottleneck == "thread":
            found.append(f"forerun simulate {{scenario}} --set loader.threads={hide.least_threads + 1}")
        found.append("forerun plan {scenario}")
        return tuple(found)


def _requests(epochs: Sequence[Epoch]) -> Table:
    columns: dict[str, list[Any]] = {column.name: [] for column in tables.REQUESTS.columns}
    for epoch in epochs:
        assert epoch.streamed is not None
        requests = epoch.streamed.requests
        asked = np.flatnonzero(np.isfinite(requests.taken_s))
        columns["job"].append(np.full(len(asked), epoch.job))
        columns["block"].append(asked)
        columns["source"].append(
            np.array(["store" if s < 0 else f"cache {s}" for s in requests.source[asked]], object)
        )
        for name in columns:
            if name not in ("job", "block", "source"):
                columns[name].append(getattr(requests, name)[asked])
    return Table.of(tables.REQUESTS, **{name: np.concatenate(parts) for name, parts in columns.items()})


def best_of(scenario: Scenario, cells: Sequence[Predicted]) -> Cell:
    """The cell that a plan takes: the leanest near the quickest, or near the cheapest, within the memory.

    Raises ProfileError if none fits the memory.
    """
    goal = scenario.goal
    fitting = [entry for entry in cells if not goal.memory_bytes or entry.held_bytes <= goal.memory_bytes]
    if not fitting:
        raise ProfileError.at("memory", f"no cell fits in {goal.memory_bytes:.3g} bytes")
    value = {entry.cell: entry.cost_usd if goal.minimise == "cost" else entry.total_s for entry in fitting}
    best = min(value.values())
    near = [entry for entry in fitting if value[entry.cell] <= best * (1 + goal.margin_share)]
    return min(near, key=lambda entry: (entry.held_bytes, value[entry.cell], entry.cell)).cell


def cells_table(cells: Sequence[Predicted], chosen: Cell, merge_s: float = 0.0) -> Table:
    """Every predicted cell; pay-back is against single samples with as many threads, where the grid has them."""
    alone_s = {replace(entry.cell, block=0): entry.total_s for entry in cells if entry.cell.block == 1}
    return Table.of_rows(
        tables.CELLS,
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


def _course(values: Sequence[int]) -> str:
    """From the first to the last, the middle of a long way left out."""
    shown = [str(value) for value in values]
    return " to ".join(shown if len(shown) <= 6 else [*shown[:3], "...", *shown[-2:]])


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.nan
