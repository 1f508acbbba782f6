"""Which block size, threads, workers and cache: every cell of a grid predicted, the one of least memory near the best taken.

The plan has the prediction, the bottleneck, the cost and when merging pays back, and all cells, so that a small checker
can verify that no cell near the best needs less memory, and that no better one fits the memory.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from forerun.core.errors import CheckFailed, Infeasible, UsageError, known_names
from forerun.core.result.plan import Planner, ShownPlan
from forerun.core.result.tables import Table
from forerun.loading.engine.cells import Predicted, best_of, predict_cells
from forerun.loading.engine.laws import Explanation, explain, payback_epochs, verdict
from forerun.loading.engine.setup import law_setting
from forerun.loading.inputs import Inputs, prepare
from forerun.loading.policy import Cell
from forerun.loading.scenario import Goal, Grid, Scenario
from forerun.loading.summary import of_nodes
from forerun.loading.summary.tables import cells_table

#: a grid where the scenario names none: the published system's 60 cells, and single samples
DEFAULT_GRID = Grid(blocks=(1, *range(20, 301, 20)), threads=(1, 2, 4, 8))

#: the same for loaders of workers: as many as torch's users try
DEFAULT_WORKERS = Grid(blocks=(1, 4, 16, 64), threads=(1,), workers=(1, 2, 4, 8, 16))
DEFAULT_POOLS = DEFAULT_WORKERS.with_(threads=(1, 2, 4))

OBJECTIVES = ("time", "cost")

#: where nothing limits the samples that wait, at least so many, and two batches
LEAST_WAITING = 256

#: offsets in shards of MDS and LitData have 32 bits
LARGEST_SHARD: Final = 2**32

#: columns of a terminal: code to paste fits into them
TERMINAL: Final = 79

#: what a plan says of its cell
_OF_CELL = (
    "block_samples", "threads", "workers", "cache_bytes", "total_s", "samples_per_s", "held_bytes", "cost_usd", "hidden",
)  # fmt: skip


#: and of one with caches of nodes, or with a choice of the decoder
_OF_NODES = ("sharing", "cache_policy", "decoder", "hit_share", "store_bytes", "peer_bytes", "saved_s")


def _shown(row: Mapping[str, Any]) -> list[str]:
    """What a plan says of a cell that has these values."""
    return [*_OF_CELL, *(name for name in _OF_NODES if row.get(name) not in (None, ""))]


@dataclass(frozen=True, repr=False)
class Plan(ShownPlan):
    """The chosen cell among all predicted ones, and why.

    Parameters
    ----------
    scenario : what was planned.
    cells : all that were predicted.
    chosen : the best that fits the memory.
    law : what binds there, by the laws of a loader of threads.
    payback : epochs after which merging has paid for itself (0: nothing was merged; infinite: it never does).
    notes : what a reader should know besides.
    settings : see `settings_of`.
    """

    scenario: Scenario
    cells: tuple[Predicted, ...]
    chosen: Predicted
    law: Explanation
    payback: float
    notes: tuple[str, ...]
    settings: Mapping[str, Mapping[str, int]]

    @property
    def summary(self) -> dict[str, Any]:
        """The plan in figures."""
        (chosen,) = cells_table([self.chosen], self.chosen.cell).records()
        return {
            **{name: chosen[name] for name in _shown(chosen)},
            "bottleneck": self.bottleneck,
            "payback_epochs": self.payback if math.isfinite(self.payback) else None,
            "cells": len(self.cells),
        }

    @property
    def bottleneck(self) -> str:
        """What binds in the chosen cell: the least law of a loader of threads, else the step or the workers.

        `thread`, `slots`, `link`, `iops`, `cpu` or `compute`, as in the table of laws; `workers` where worker processes
        do not keep up.
        """
        if not self.chosen.cell.workers:
            return self.law.bottleneck
        return "compute" if self.chosen.hidden else "workers"

    @property
    def why(self) -> str:
        """One sentence."""
        cell = self.chosen.cell
        merged, threads = cell.merged, cell.many
        if cell.workers:
            workers = "1 worker" if cell.workers == 1 else f"{cell.workers} workers"
            threads = (
                f"{workers} with {threads} each" if self.scenario.loader.mode == "pooled_workers" else workers
            )
        threads += f" and a cache of {cell.cache_bytes:.4g} bytes" if cell.cache_bytes else ""
        if cell.sharing and cell.cache_bytes:
            threads += f" a node ({cell.cache_policy}, sharing {cell.sharing})"
        threads += f", decoded on the {cell.decoder.upper()}," if cell.decoder else ""
        margin = self.scenario.goal.margin_share
        if (cell.workers or cell.cache_bytes) and not (cell.sharing or cell.decoder):
            says = "loading is hidden" if self.chosen.hidden else "loading is not hidden"
        else:
            says = verdict(self.law, self.chosen.hidden)
        return f"{merged} and {threads} hold the fewest bytes within {margin:.0%} of the best; {says}"

    @property
    def tables(self) -> dict[str, Table]:
        """Every cell."""
        return {"cells": cells_table(self.cells, self.chosen.cell, self.scenario.layout.merge_s)}

    @property
    def code(self) -> str:
        """The lines that load as planned, and what other libraries call it."""
        calls = (
            f"#   {name}(..., {', '.join(f'{key}={number}' for key, number in given.items())})"
            for name, given in self.settings.items()
        )
        return "\n".join(
            (code_of(self.scenario, self.chosen.cell), "", "# or in a library of your own:", *calls)
        )

    def data(self) -> dict[str, Any]:
        """Plain data.

        Plain data, as a plan file has it: the summary, the sentence, the notes, other libraries' settings, and a row a cell.
        """
        rows = [
            {name: row[name] for name in _shown(row) if name != "samples_per_s"}
            for row in self.tables["cells"].records()
        ]
        return {
            "domain": "loading",
            "summary": self.summary,
            "why": self.why,
            "notes": list(self.notes),
            "settings": {name: dict(given) for name, given in self.settings.items()},
            "code": self.code,
            "cells": rows,
        }

    def check(self) -> Plan:
        """Verify the choice against all cells. Raises CheckFailed if one was better, or as good with less memory.

        The check repeats the rule without the search: of the cells that fit the memory none is better than the margin
        allows, and none within the margin takes fewer bytes.
        """
        goal = self.scenario.goal
        fitting = [c for c in self.cells if not goal.memory_bytes or c.held_bytes <= goal.memory_bytes]
        best = min(value(goal, c) for c in fitting)
        if self.chosen not in fitting or value(goal, self.chosen) > best * (1 + goal.margin_share):
            raise CheckFailed.at(
                "plan", f"{self.chosen.cell} is not within {goal.margin_share:.0%} of the best"
            )
        smaller = [
            c.cell
            for c in fitting
            if value(goal, c) <= best * (1 + goal.margin_share) and c.held_bytes < self.chosen.held_bytes
        ]
        if smaller:
            raise CheckFailed.at(
                "plan", f"{smaller[0]} is as good as {self.chosen.cell} and takes less memory"
            )
        return self


def code_of(scenario: Scenario, cell: Cell) -> str:
    """Lines to paste into a training program, and what they leave out, as comments.

    FILES and BLOCKS stand for the user's folders or URLs, CACHE for a folder on the node, RANK for the number of the node.

    Parameters
    ----------
    scenario : that was planned.
    cell : the chosen configuration.
    """
    batch, loader = scenario.run.batch, scenario.loader
    inside = cell.threads if loader.mode != "workers" else 0
    waiting = loader.buffer_samples or max(LEAST_WAITING, 2 * batch)
    given = [f"threads={inside}", f"buffer_samples={waiting}"] if inside else ["threads=0"]
    # Pools and shuffle buffers take whole blocks; else batches are shared, and their order is of no number of workers.
    mixing = scenario.dataset.shuffle_buffer_samples
    shared = loader.mode != "pooled_workers" and not (mixing and cell.workers)
    given += [f"batch_samples={batch}"] if shared else []
    given += [f"shuffle_samples={mixing}"] if mixing else []
    given += ["shuffle=False"] if scenario.dataset.shuffle == "none" else []
    given.append(f"seed={scenario.seed}")
    loading = ["dataset", f"batch_size={batch}"]
    loading += [f"num_workers={cell.workers}", f"prefetch_factor={loader.prefetch}"] if cell.workers else []
    loading += ["drop_last=True"] if scenario.run.drop_last else []
    left_out, imported = [], "BlockDataset"
    if scenario.nodes is not None:
        given += ["rank=RANK", f"world={scenario.nodes.count}"]
        kept = cell.cache_policy == "pinned" and cell.sharing == "none"
    else:
        kept = not scenario.caches or scenario.caches[0].policy == "pinned"
    if cell.cache_bytes and kept:
        imported = "BlockCache, BlockDataset"
        given.append(f'cache=BlockCache("CACHE", {cell.cache_bytes:.10g})')
    elif cell.cache_bytes:
        left_out.append(f"# the plan counts on a cache of {cell.cache_bytes:.4g} bytes, not in this code")
    return "\n".join((
        f"# once: forerun pack FILES BLOCKS --block-samples {cell.block}",
        *left_out,
        "from torch.utils.data import DataLoader",
        "",
        f"from forerun.blocks.reader import {imported}",
        "",
        _call("dataset = BlockDataset", ['"BLOCKS"', *given]),
        _call("batches = DataLoader", loading),
        f"for epoch in range({scenario.run.epochs}):",
        "    dataset.set_epoch(epoch)",
        "    for keys, samples in batches:",
        "        ...  # a training step",
    ))  # fmt: skip


def settings_of(inputs: Inputs, cell: Cell) -> dict[str, dict[str, int]]:
    """What other libraries call a configuration: arguments by the callable that takes them.

    A worker of torch reads and decodes one thing after another, as a thread does, so there are as many workers as threads,
    and together they make as many samples ahead as wait in the buffer. MDS and LitData cut shards by bytes: the limit is
    that of half a sample more than a block has, so that shards have as many samples in the mean. A tar ends by its samples;
    its limit in bytes is above the largest block's. What the configuration leaves open is absent, as shards of one sample.

    Parameters
    ----------
    inputs : whose samples are written and read.
    cell : the configuration.
    """
    loader, workers = inputs.scenario.loader, cell.workers or cell.threads
    torch = {"num_workers": workers}
    if cell.workers:
        torch["prefetch_factor"] = loader.prefetch
    elif loader.buffer_samples:
        torch["prefetch_factor"] = -(-loader.buffer_samples // (inputs.scenario.run.batch * workers))
    settings = {"torch.utils.data.DataLoader": torch}
    if cell.block == 1:
        return settings
    limit = int(float(f"{(cell.block + 0.5) * inputs.mean_bytes:.4g}"))
    if limit < LARGEST_SHARD:
        settings |= {"streaming.MDSWriter": {"size_limit": limit}, "litdata.optimize": {"chunk_bytes": limit}}
    largest = np.add.reduceat(inputs.sizes, np.arange(0, len(inputs.sizes), cell.block)).max()
    settings["webdataset.ShardWriter"] = {
        "maxcount": cell.block, "maxsize": int(float(f"{1.001 * float(largest) + 1:.4g}"))
    }  # fmt: skip
    return settings


def _call(begin: str, arguments: Sequence[str]) -> str:
    """A call as code, on several lines where it is wider than a terminal."""
    line = f"{begin}({', '.join(arguments)})"
    if len(line) <= TERMINAL:
        return line
    inside = textwrap.fill(
        f"{', '.join(arguments)},", TERMINAL, initial_indent="    ", subsequent_indent="    "
    )
    return f"{begin}(\n{inside}\n)"


def value(goal: Goal, entry: Predicted) -> float:
    """What the goal minimises, of a cell.

    Parameters
    ----------
    goal : its `minimise` is `time`, seconds of an epoch, or `cost`, dollars of an epoch.
    entry : a predicted cell.
    """
    return entry.cost_usd if goal.minimise == "cost" else entry.total_s


def plan(scenario: Scenario, objective: str = "") -> Plan:
    """The configuration of least memory near the best by `objective` (`time` or `cost`; the scenario's goal if not given).

    Raises Infeasible if no cell fits the memory, UsageError for an objective that is none.

    Parameters
    ----------
    scenario : its grid is searched, or a default one for its kind of loader.
    objective : replaces the goal of the scenario.
    """
    if objective and objective not in OBJECTIVES:
        raise UsageError.at("objective", f"no objective {objective!r}; {known_names(objective, OBJECTIVES)}")
    if objective:
        scenario = scenario.with_(goal=scenario.goal.with_(minimise=objective))
    inputs = prepare(scenario)
    least = inputs.mean_bytes
    memory = scenario.goal.memory_bytes
    if memory and least > memory:
        raise Infeasible.at("goal.memory_bytes", f"{memory:g} bytes do not hold one sample of {least:.0f}")
    default = {"threads": DEFAULT_GRID, "workers": DEFAULT_WORKERS, "pooled_workers": DEFAULT_POOLS}
    offered = (scenario.grid or default[scenario.loader.mode]).cells_of(scenario.nodes)
    usable = [cell for cell in offered if cell.block <= scenario.dataset.samples]
    merging = scenario.dataset.shuffle != "global"
    cells = predict_cells(inputs, [cell for cell in usable if merging or cell.block == 1])
    fitting = [entry for entry in cells if not memory or entry.held_bytes <= memory]
    if not fitting:
        raise Infeasible.at(
            "goal.memory_bytes", f"no configuration of the grid takes at most {memory:g} bytes"
        )
    cell = best_of(scenario, cells)
    chosen = next(entry for entry in cells if entry.cell == cell)
    settled = inputs.of(as_planned(scenario, cell))
    setting = replace(law_setting(settled), block_samples=cell.block, threads=cell.threads)
    law = explain(setting, samples=scenario.dataset.samples, memory_budget_bytes=memory or math.inf)
    one = predict_cells(inputs, [replace(cell, block=1)])[0]
    payback = payback_epochs(scenario.layout.merge_s, one.total_s, chosen.total_s) if cell.block > 1 else 0.0
    notes = [*law.cautions, *_present(scenario, inputs, chosen)]
    if scenario.nodes is not None:
        notes.append(of_nodes(settled))
    settings = settings_of(inputs, cell)
    return Plan(scenario, cells, chosen, law, payback, tuple(notes), settings).check()


def _present(scenario: Scenario, inputs: Inputs, chosen: Predicted) -> list[str]:
    """The loader that the scenario has now, beside the plan; nothing where a cell is more than blocks and threads."""
    loader, plain = scenario.loader, replace(chosen.cell, block=0, threads=0, workers=0)
    workers = 0 if loader.mode == "threads" else loader.workers
    now = Cell(inputs.block_samples, 1 if loader.mode == "workers" else loader.threads, workers)
    if plain != Cell(0, 0) or now == chosen.cell:
        return []
    (present,) = predict_cells(inputs, [now])
    who = f"{workers} workers" if workers else now.many
    return [
        f"the present loader, {now.merged} and {who}: {present.samples_per_s:.4g} samples/s; "
        f"the plan's {chosen.samples_per_s:.4g}"
    ]


def as_planned(scenario: Scenario, cell: Cell) -> Scenario:
    """The scenario with a cell's decoder and its caches of nodes; blocks and threads as they are."""
    if cell.decoder == "cpu" and scenario.gpu_decode is not None:
        scenario = scenario.with_(gpu_decode=None, grid=None)
    if scenario.nodes is None:
        return scenario
    nodes = scenario.nodes.with_(cache_bytes=cell.cache_bytes, sharing=cell.sharing, policy=cell.cache_policy)
    return scenario.with_(nodes=nodes)


class LoadingPlanner(Planner[Scenario]):
    """The planner of the loading domain."""

    options = ()

    def plan(self, scenario: Scenario, objective: str = "", **options: Any) -> Any:
        """See `plan`."""
        return plan(scenario, objective, **options)
