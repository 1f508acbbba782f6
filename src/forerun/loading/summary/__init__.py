"""From what happened in a run to its result: figures, tables, ledgers, an interval, and why."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from forerun.core.result.ledger import Ledger
from forerun.core.result.run import Result
from forerun.core.result.stats import Interval, standard_error, student_quantile
from forerun.core.result.tables import Table
from forerun.core.result.timeline import Timeline
from forerun.loading.engine.cells import best_of, cost_parts, predict_cells
from forerun.loading.engine.laws import Explanation, explain, payback_epochs, verdict
from forerun.loading.engine.run import Outcome
from forerun.loading.engine.setup import cache_that_frees_link, law_setting, make_reader, make_store
from forerun.loading.engine.sharing import hit_shares
from forerun.loading.engine.threads import stream
from forerun.loading.inputs import Inputs
from forerun.loading.policy import Cell
from forerun.loading.scenario import RandomSeconds
from forerun.loading.summary import tables

#: stretches of batches that an interval is taken over
_STRETCHES = 10
#: figures that head the summary
HEADLINE = (
    "samples_per_s", "total_s", "stall_share", "first_batch_s", "law_samples_per_s", "peak_memory_bytes"
)  # fmt: skip


def summarize(outcome: Outcome) -> Result:
    """The result of a run.

    Simulates the first epoch once more where the cause of a shortfall is to be named, and two cells for the pay-back
    of merging.

    Parameters
    ----------
    outcome : of `run`.
    """
    return _Summary(outcome).result()


class _Summary:
    """The parts of the result, each from what happened."""

    def __init__(self, outcome: Outcome) -> None:
        self.inputs, self.scenario = outcome.inputs, outcome.inputs.scenario
        self.given, self.cells, self.split = outcome.given, outcome.cells, outcome.split
        self.tuned, self.simulated = outcome.tuned, outcome.simulated
        self.epochs, self.first = outcome.epochs, outcome.epochs[0]
        self.law: Explanation = explain(law_setting(self.inputs), samples=self.inputs.taken)

    def result(self) -> Result:
        """All parts together."""
        summary = self.summary()
        present = [name for name in ("cost_usd", "payback_epochs") if name in summary]
        return Result(
            scenario=self.given,
            summary=summary,
            tables=self.tables(),
            ledgers=self.ledgers(),
            timeline=self.timeline(),
            why=self.why(),
            notes=self.notes(),
            intervals=self.intervals(),
            headline=(*HEADLINE, *present),
            next_steps=self.next_steps(),
        )

    def summary(self) -> dict[str, Any]:
        """The figures by name. Those of throughput, waits and hits are means over the epochs of all jobs; counts and
        bytes are sums.
        """
        epochs, last = self.epochs, self.epochs[-1]
        threads, compute = self.simulated.threads, self.law.terms["compute"]

        def mean(name: str) -> float:
            return float(np.mean([getattr(epoch, name) for epoch in epochs]))

        figures: dict[str, Any] = {
            "samples_per_s": mean("samples_per_s"),
            "total_s": mean("total_s"),
            "stall_share": mean("stall_share"),
            "steady_stall_share": mean("steady_stall"),
            "load_mean_s": float(np.mean(self.first.load_s)),
            "first_batch_s": self.first.first_batch_s,
            "utilisation_share": mean("utilisation_share"),
            "hidden": self.hidden,
            "bottleneck": self.law.bottleneck,
            "law_samples_per_s": self.law.samples_per_s,
            "compute_samples_per_s": compute if math.isfinite(compute) else None,
            "headroom": self.law.headroom if math.isfinite(self.law.headroom) else None,
            "block_samples": self.inputs.block_samples,
            "threads": self.scenario.loader.threads,
            "peak_memory_bytes": max(epoch.peak_memory_bytes for epoch in epochs),
            "store_bytes": float(np.sum([epoch.store_bytes for epoch in epochs])),
            "gets": int(sum(epoch.gets for epoch in epochs)),
            "hit_share": mean("hit_share"),
            "cold_samples_per_s": self.first.samples_per_s,
            "warm_samples_per_s": last.samples_per_s,
            "neighbour_share": self.first.neighbour_share,
            "batch_spread": self.first.batch_spread,
            "most_in_flight": threads.most_in_flight if threads else 0,
            "mean_in_flight": threads.mean_in_flight if threads else 0.0,
        }
        parts = self.costs()
        if any(parts.values()):
            figures["cost_usd"] = sum(parts.values())
        if self.scenario.layout.merge_s and self.scenario.loader.mode == "threads":
            figures["payback_epochs"] = self.payback()
        return {**figures, **self.of_tuner(), **self.of_nodes()}

    @property
    def hidden(self) -> bool:
        """Whether the last epoch hardly waits after the first batches."""
        return bool(self.epochs[-1].steady_stall < 0.01)

    def of_nodes(self) -> dict[str, Any]:
        """What the nodes' caches had in the last epoch, and what they read from each other in all."""
        if self.scenario.nodes is None:
            return {}
        rows = self.nodes_table().records()
        return {
            "nodes_samples_per_s": rows[-1]["samples_per_s"],
            "nodes_hit_share": rows[-1]["hit_share"],
            "law_hit_share": rows[-1]["law_hit_share"],
            "peer_bytes": math.fsum(row["peer_bytes"] for row in rows),
        }

    def nodes_table(self) -> Table:
        """Every epoch of all nodes, beside the closed form."""
        nodes, whole = self.scenario.nodes, float(self.inputs.sizes.sum())
        assert nodes is not None
        laws = [hit_shares(nodes, whole, epoch) for epoch in range(self.scenario.run.epochs)]
        return tables.nodes_table(self.epochs, laws)

    def of_tuner(self) -> dict[str, Any]:
        """What the tuner's search took, and how far its choice is from the best cell of the grid."""
        if self.tuned is None:
            return {}
        figures: dict[str, Any] = {"probes": len(self.tuned.probes), "probe_samples": self.tuned.samples_read}
        if self.cells:
            figures["regret_share"] = self.tuned.regret({entry.cell: entry.total_s for entry in self.cells})
        return figures

    def payback(self) -> float | None:
        """Epochs until merging (to the layout's blocks, else to the best cell) pays back, against single samples."""
        threads, block = self.scenario.loader.threads, self.inputs.block_samples
        merged = Cell(block, threads)
        if block == 1 and self.cells:
            merged = best_of(self.scenario, self.cells)
        one, mine = (entry.total_s for entry in predict_cells(self.inputs, [Cell(1, threads), merged]))
        epochs = payback_epochs(self.scenario.layout.merge_s, one, mine)
        return epochs if math.isfinite(epochs) else None

    def costs(self) -> dict[str, float]:
        """Dollars of all epochs by what they are paid for."""
        total: dict[str, float] = {}
        for epoch in self.epochs:
            parts = cost_parts(self.inputs, epoch.block_samples, epoch.total_s, epoch.store_bytes, epoch.gets)
            total = {name: total.get(name, 0.0) + value for name, value in parts.items()}
        return total

    def ledgers(self) -> tuple[Ledger, ...]:
        """The time of the first epoch, and the dollars of all epochs where there are prices."""
        simulated, parts = self.simulated, self.costs()
        time = tables.time_ledger(simulated.compute_s, simulated.prepared_s, self.first.total_s)
        if not any(parts.values()):
            return (time,)
        return time, Ledger("cost", "$", math.fsum(parts.values()), parts)

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

    def timeline(self) -> Timeline:
        """What threads or workers and the loop did in the first epoch."""
        simulated = self.simulated
        if simulated.threads is not None:
            return tables.thread_timeline(simulated.threads.jobs)
        assert simulated.batches is not None and simulated.delivered is not None
        return tables.worker_timeline(simulated.batches, simulated.delivered)

    def tables(self) -> dict[str, Table]:
        """The tables by name; those of a grid and a tuner only where there is one."""
        made = {
            "epochs": tables.epochs_table(
                self.epochs, cached=bool(self.scenario.caches or self.scenario.nodes)
            ),
            "batches": tables.batches_table(self.epochs),
            "laws": tables.laws_table(self.law),
        }
        if self.scenario.nodes is not None:
            made["nodes"] = self.nodes_table()
        if self.simulated.threads is not None:
            made["requests"] = tables.requests_table(epoch for epoch in self.epochs if epoch.number == 0)
        if self.split:
            made["split"] = Table.of_rows(tables.SPLIT, self.split)
        if self.cells:
            chosen = best_of(self.scenario, self.cells)
            made["cells"] = tables.cells_table(self.cells, chosen, self.scenario.layout.merge_s)
        if self.tuned is not None:
            made["probes"] = tables.probes_table(self.tuned.probes)
        return made

    def why(self) -> str:
        """One sentence: what binds, and what would help; for workers, whether they keep up with the step."""
        text = verdict(self.law, self.hidden)
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
        if self.scenario.nodes is not None:
            return f"{text}; {of_nodes(self.inputs)}"
        if self.scenario.caches:
            return f"{text} (without the caches, which had {self.first.hit_share:.0%} of the first epoch's blocks)"
        if math.isfinite(bound) and self.first.samples_per_s < 0.9 * bound:
            share = 1 - self.first.samples_per_s / bound
            if self.law.bottleneck == "compute":
                text = f"by the laws the step binds at {bound:.4g} samples/s"
            return f"{text}; the run is {share:.0%} below that bound: {self._short_of_bound()}"
        return text

    def _short_of_bound(self) -> str:
        """Why an epoch falls well below the laws: lock-step, if random latencies of the same mean are quicker."""
        otherwise = "start-up, or few blocks"
        latency_s = self.scenario.store.latency_s
        if isinstance(latency_s, RandomSeconds) or not latency_s:
            return otherwise
        sigma = 0.2
        scattered = RandomSeconds(mean_s=latency_s, sigma=sigma)
        store = self.scenario.store.with_(latency_s=scattered)
        other = self.inputs.of(self.scenario.with_(store=store))
        readers = [make_reader(other, 0, job) for job in range(self.scenario.jobs)]
        run = stream(readers, make_store(other), latency_s=other.latencies(0)).jobs[0]
        if run.samples_per_s < 1.02 * self.first.samples_per_s:
            return otherwise
        return (
            f"threads in lock-step, all reading and then all decoding; latencies that scatter (sigma {sigma:g}) around "
            f"the same mean give {run.samples_per_s:.4g} samples/s"
        )

    def notes(self) -> tuple[str, ...]:
        """What a reader must know: assumptions of the laws that do not hold, and what was left out."""
        notes = list(self.law.cautions)
        if self.scenario.store.changes:
            notes.append("laws, cells and the split by step are those of the store as it is at the start")
        if self.scenario.loader.threads > len(self.inputs.block_edges()) - 1:
            notes.append("more threads than blocks: some never read")
        if self.tuned is not None:
            cell = self.tuned.cell
            notes.append(
                f"the tuner chose blocks of {cell.block} and {cell.threads} threads "
                f"after {len(self.tuned.probes)} probes"
            )
        return tuple(notes)

    def next_steps(self) -> tuple[str, ...]:
        """Commands to run next: the block size or the threads that the laws ask for, and a plan."""
        hiding, steps = self.law.hiding, []
        if self.law.bottleneck == "thread" and hiding.blocks_of is not None:
            block = min(max(1, math.ceil(1.2 * hiding.blocks_of)), self.scenario.dataset.samples)
            setting = f"layout.block_samples={block}"
            if self.scenario.layout.block_bytes:
                setting = f"layout.block_bytes={math.ceil(block * self.inputs.mean_bytes)}"
            steps.append(f"forerun simulate {{scenario}} --set {setting}")
        elif self.law.bottleneck == "thread":
            steps.append(f"forerun simulate {{scenario}} --set loader.threads={hiding.least_threads + 1}")
        return (*steps, "forerun plan {scenario}")


def of_nodes(inputs: Inputs) -> str:
    """What the nodes' caches have once they are as full as they get, and when the store's link stops binding, in words.

    Parameters
    ----------
    inputs : of several nodes.
    """
    nodes = inputs.scenario.nodes
    assert nodes is not None
    shares, free = hit_shares(nodes, float(inputs.sizes.sum())), cache_that_frees_link(inputs)
    have = (
        "no closed form says what the caches have"
        if shares is None
        else f"full caches have {1 - shares.store:.1%} of the bytes"
    )
    if free is None:
        return f"{have}; the store's link binds with caches of any size"
    if free == 0:
        return f"{have}; the store's link would not bind without them either"
    return f"{have}; the store's link stops binding with {free:.4g} bytes of cache a node"
