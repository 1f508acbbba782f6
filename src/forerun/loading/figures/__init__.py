"""What a run's report shows, as data."""

from __future__ import annotations

import itertools

import numpy as np

from forerun.core.result.figures import Axis, Columns, Figure, Rule, by_series
from forerun.core.result.numbers import quantity
from forerun.core.result.run import Result, SavedRun
from forerun.core.result.tables import Table
from forerun.core.scenario.spec import to_data

#: batches whose waits are shown, and blocks in the chart of threads
MOST_BATCHES = 400
MOST_BLOCKS = 60
#: parts of an epoch over which traffic on the link is averaged
LINK_PARTS = 80

_BLOCKS = Axis("block_samples", "samples a block", log=True)
_RATE = Axis("samples_per_s", "throughput", "samples/s")


def figures(run: Result | SavedRun) -> tuple[Figure, ...]:
    """The pictures that the run's tables allow, most informative first.

    Figures of a grid and of requests are there only if the run has these.

    Parameters
    ----------
    run : just made, or read from its directory.
    """
    tables, shown = run.tables, []
    cells = _of_chosen(tables["cells"]) if "cells" in tables else None
    if cells is not None:
        shown += [heat_map(cells), hide_curve(cells, tables.get("probes"))]
    shown.append(stall_split(run))
    if "split" in tables:
        shown.append(split_by_step(tables["split"]))
    if "nodes" in tables:
        shown.append(nodes(tables["nodes"]))
    shown += [
        waits(tables["batches"]),
        epochs(tables["epochs"]),
        laws(tables["laws"], float(run.summary["samples_per_s"])),
    ]
    if "requests" in tables and len(tables["requests"]):
        shared = float(to_data(run.scenario)["store"].get("shared_bytes_per_s") or 0.0)
        shown += [
            threads(tables["requests"]),
            request_times(tables["requests"]),
            link_share(tables["requests"], shared),
        ]
    if cells is not None:
        shown += [memory(cells), requests(cells)]
        if np.any(np.isfinite(cells["payback_epochs"])):
            shown.append(payback(cells))
        if np.any(cells["cost_usd"] > 0):
            shown.append(frontier(cells))
    return tuple(shown)


def _of_chosen(cells: Table) -> Table:
    """The cells with the chosen one's workers, caches and decoder: what a plane of two axes can show."""
    chosen, there = int(np.argmax(cells["chosen"])), {column.name for column in cells.schema.columns}
    others = ("workers", "cache_bytes", "sharing", "cache_policy", "decoder")
    same = [cells[name] == cells[name][chosen] for name in others if name in there]
    return cells.rows(np.all(same, axis=0))


def heat_map(cells: Table) -> Figure:
    """Predicted throughput over block size and threads.

    One colour a cell, and in the caption how many cells hide the loading, and which one the plan takes.
    """
    chosen = int(np.argmax(cells["chosen"]))
    hidden = int(np.sum(cells["hidden"]))
    names = {name: cells[name].astype(str).tolist() for name in ("block_samples", "threads")}
    return Figure.of(
        "heatmap",
        "block-threads-heat-map",
        "Predicted throughput by block size and threads",
        {**cells.columns, **names},
        x=Axis("block_samples", "samples a block"),
        y="threads",
        z=_RATE,
        order=dict.fromkeys(names["block_samples"]),
        caption=f"{hidden} of {len(cells)} configurations hide loading behind the step. The plan takes blocks of "
        f"{cells['block_samples'][chosen]} and {cells['threads'][chosen]} threads: the least memory near the best.",
    )


def hide_curve(cells: Table, probes: Table | None) -> Figure:
    """Fewest threads that hide loading at each block size, what takes as much memory as the plan, probes and plan.

    Parameters
    ----------
    cells : of one plane of the grid.
    probes : of the tuner, None if there was none.
    """
    blocks, threads = cells["block_samples"], cells["threads"]
    chosen = int(np.argmax(cells["chosen"]))
    sizes = np.unique(blocks[cells["hidden"]])
    least = [threads[(blocks == size) & cells["hidden"]].min() for size in sizes]
    in_memory = int(blocks[chosen]) * int(threads[chosen])
    as_much = in_memory / np.unique(blocks)
    within = (as_much >= 1) & (as_much <= threads.max())
    curves: dict[str, Columns] = {
        "fewest that hide loading": {"block_samples": sizes, "threads": least},
        "as much memory as the plan": {
            "block_samples": np.unique(blocks)[within],
            "threads": as_much[within],
        },
    }
    if probes is not None:
        curves["probes, as asked"] = probes.columns
    curves["the plan"] = {"block_samples": [blocks[chosen]], "threads": [threads[chosen]]}
    verdict = "No block size and number of threads on offer hides loading."
    if len(sizes):
        at_least = dict(zip(sizes.tolist(), least))
        above = threads >= np.array([at_least.get(block, np.inf) for block in blocks.tolist()])
        still = int(np.count_nonzero(above & ~cells["hidden"]))
        verdict = f"Of the {int(above.sum())} cells at or above the first marks " + (
            f"{still} do not hide loading." if still else "every one hides loading."
        )
    columns = by_series("what", curves)
    return Figure.of(
        "points",
        "hide-curve",
        "Threads that hide loading, by block size",
        columns,
        x=_BLOCKS,
        y=Axis("threads", "threads", log=True),
        series="what",
        order=dict.fromkeys(columns["what"]),
        caption=f"{verdict} Marks of one memory lie on a straight line: threads times samples a block.",
    )


def stall_split(run: Result | SavedRun) -> Figure:
    """An epoch's time by what it was spent on.

    Parameters
    ----------
    run : its first ledger is that of an epoch's time.
    """
    ledger = run.ledgers[0]
    shares = ledger.shares()
    return Figure.of(
        "stacked_bar",
        "stall-split",
        "Where an epoch's time goes",
        {
            "epoch": ["first"] * len(ledger.parts),
            "seconds": list(ledger.parts.values()),
            "part": list(ledger.parts),
        },
        x="epoch",
        y=Axis("seconds", "time", "s"),
        series="part",
        series_label="spent on",
        caption=f"{shares['compute']:.0%} steps, {shares['preparation stall']:.0%} waiting for preparation, "
        f"{shares['fetch stall']:.0%} for the store: differences of runs with the store, then all else, instantaneous.",
    )


def split_by_step(split: Table) -> Figure:
    """A batch's time by what it is spent on, for shorter and longer steps.

    Parameters
    ----------
    split : a row a length of the step, from a quarter of the scenario's to four times it.
    """
    parts = {"compute": "compute_s", "preparation stall": "preparation_s", "fetch stall": "fetch_s"}
    steps = [f"{value:.3g}" for value in split["step_s"].tolist()]
    stalled_s = split["preparation_s"] + split["fetch_s"]
    hidden = [step for step, stall_s in zip(steps, stalled_s) if stall_s < 0.02 * float(step)]
    if hidden and hidden == steps[-len(hidden) :]:
        verdict = f"Loading is hidden from steps of {hidden[0]} s on."
    elif hidden:
        verdict = f"Loading is hidden from steps of {', '.join(hidden)} s."
    else:
        verdict = "None of these steps hides loading."
    return Figure.of(
        "stacked_bar",
        "stall-by-step",
        "Where a batch's time goes, by length of the step",
        by_series("part", {part: {"step": steps, "seconds": split[name]} for part, name in parts.items()}),
        x=Axis("step", "step (s)"),
        y=Axis("seconds", "time of a batch", "s"),
        series="part",
        series_label="spent on",
        order=parts,
        caption=f"{verdict} Predicted with mean sizes and mean latency, without caches.",
    )


def nodes(table: Table) -> Figure:
    """Where the bytes of each epoch came from, of all nodes.

    Parameters
    ----------
    table : a row an epoch of all nodes.
    """
    sources = {"the store": "store_bytes", "other nodes": "peer_bytes", "own cache": "local_bytes"}
    numbers = [f"{number}" for number in table["epoch"].tolist()]
    last, law = float(table["hit_share"][-1]), float(table["law_hit_share"][-1])
    by_law = f"; by the closed form {law:.1%}" if np.isfinite(law) else ""
    return Figure.of(
        "stacked_bar",
        "nodes",
        "Where each epoch's bytes come from",
        by_series(
            "source", {source: {"epoch": numbers, "bytes": table[name]} for source, name in sources.items()}
        ),
        x="epoch",
        y=Axis("bytes", "read by all nodes", "bytes"),
        series="source",
        series_label="read from",
        order=sources,
        caption=f"In the last epoch caches had {last:.1%} of the bytes{by_law}.",
    )


def waits(batches: Table) -> Figure:
    """Waits for the batches of the first epoch.

    Parameters
    ----------
    batches : of all epochs; the first 400 of the first job's first epoch are drawn.
    """
    batches = batches.rows(np.flatnonzero((batches["epoch"] == 0) & (batches["job"] == 0))[:MOST_BATCHES])
    load_s = batches["load_s"]
    longest = int(np.argmax(load_s))
    return Figure.of(
        "line",
        "waits",
        "Waiting for each batch",
        batches,
        x="batch",
        y=Axis("load_s", "wait", "s"),
        caption=f"Waits of the first epoch; the longest, {quantity(load_s[longest], 's', load_s[longest])}, is that of "
        f"batch {batches['batch'][longest]}.",
    )


def epochs(table: Table) -> Figure:
    """Throughput of cold and warm epochs.

    Parameters
    ----------
    table : a row an epoch of each job.
    """
    jobs = [f"job {job}" for job in table["job"]]
    return Figure.of(
        "bar",
        "epochs",
        "Throughput by epoch",
        {
            "epoch": [f"{number} ({cache})" for number, cache in zip(table["epoch"], table["cache"])],
            "samples_per_s": table["samples_per_s"],
            "job": jobs,
        },
        x="epoch",
        y=_RATE,
        series="job" if len(set(jobs)) > 1 else "",
        caption="Each epoch of each job, with the state of its cache.",
    )


def laws(table: Table, measured: float) -> Figure:
    """The closed-form bounds beside what the run gave.

    Parameters
    ----------
    table : of all laws; those that do not apply are left out.
    measured : samples a second of the run.
    """
    caches = "with full" if "peers" in table["law"] else "without"
    table = table.rows(np.isfinite(table["samples_per_s"]))
    least = int(np.argmin(table["samples_per_s"]))
    of_least = measured / float(table["samples_per_s"][least])
    return Figure.of(
        "points",
        "laws",
        "Upper bounds on the throughput",
        table,
        x="law",
        y=Axis("samples_per_s", "bound", "samples/s", log=True),
        rules=[Rule(measured, "this run", axis="y")],
        caption=f"Bounds {caches} caches; the line is the simulated run, at {of_least:.3g} times the least of them, "
        f"{table['law'][least]}.",
    )


def threads(requests: Table) -> Figure:
    """What the threads did with the first blocks.

    Parameters
    ----------
    requests : of the first epoch; the first 60 blocks of the first job are drawn, one bar a state.
    """
    rows = np.flatnonzero((requests["job"] == 0) & np.isfinite(requests["left_s"]))[:MOST_BLOCKS]
    requests = requests.rows(rows)
    edges = ("taken_s", "grant_s", "first_byte_s", "done_s", "left_s")
    states = ("waiting for a slot", "latency", "transfer", "decoding")
    names = [f"thread {number}" for number in requests["thread"]]
    spans: dict[str, Columns] = {
        state: {"thread": names, "from_s": requests[a], "to_s": requests[b]}
        for state, (a, b) in zip(states, itertools.pairwise(edges))
    }
    return Figure.of(
        "gantt",
        "threads",
        "What the threads do",
        by_series("state", spans),
        x=Axis("from_s", "time", "s"),
        x2="to_s",
        y="thread",
        series="state",
        series_label="state",
        order=states,
        caption=f"The first {len(rows)} blocks of the first epoch. Threads that read together and then decode together "
        "are in lock-step.",
    )


def request_times(requests: Table) -> Figure:
    """Distribution of request times.

    Parameters
    ----------
    requests : of the first epoch, from when a thread took the block to its last byte.
    """
    shares = np.linspace(0, 1, 201)
    served = requests["done_s"] - requests["taken_s"]
    return Figure.of(
        "cdf",
        "request-times",
        "Time of a request",
        {"request_s": np.quantile(served[np.isfinite(served)], shares), "share": shares},
        x=Axis("request_s", "from asking to the last byte", "s"),
        y=Axis("share", "share of requests"),
        caption=f"Median {quantity(np.nanmedian(served), 's', float(np.nanmax(served)))} over {len(served)} requests, "
        "caches included.",
    )


def link_share(requests: Table, shared_bytes_per_s: float) -> Figure:
    """Bytes a second in transfer from the store to each job, over the first epoch.

    A request counts evenly from its first to its last byte.

    Parameters
    ----------
    requests : of the first epoch.
    shared_bytes_per_s : bandwidth of the link, drawn as a line (0: no limit).
    """
    requests = requests.rows((requests["source"] == "store") & np.isfinite(requests["done_s"]))
    first, done = requests["first_byte_s"], requests["done_s"]
    rate = requests["size_bytes"] / np.maximum(done - first, 1e-9)
    edges = np.linspace(0.0, float(done.max(initial=1e-9)), LINK_PARTS + 1)
    curves: dict[str, Columns] = {}
    for number in np.unique(requests["job"]):
        mine = requests["job"] == number
        begun, ended = first[mine, None], np.maximum(done[mine, None], first[mine, None] + 1e-9)
        overlap = np.clip(np.minimum(ended, edges[1:]) - np.maximum(begun, edges[:-1]), 0.0, None)
        sent = (overlap * rate[mine, None]).sum(axis=0) / np.diff(edges)
        curves[f"job {number}"] = {"at_s": (edges[:-1] + edges[1:]) / 2, "bytes_per_s": sent}
    several = len(curves) > 1
    return Figure.of(
        "line",
        "link-share",
        "Bytes in transfer",
        by_series("job", curves or {"": {"at_s": [], "bytes_per_s": []}}),
        x=Axis("at_s", "time", "s"),
        y=Axis("bytes_per_s", "from the store", "bytes/s"),
        series="job" if several else "",
        rules=[Rule(shared_bytes_per_s, "the shared link", axis="y")] if shared_bytes_per_s else [],
        caption=f"Means over {LINK_PARTS} parts of the first epoch"
        + (", for each job." if several else "; what a cache had is not in it."),
    )


def frontier(cells: Table) -> Figure:
    """Cost against time of every configuration.

    Parameters
    ----------
    cells : of one plane of the grid, with prices.
    """
    return Figure.of(
        "points",
        "cost-time",
        "Cost and time of an epoch",
        _by_threads(cells),
        x=Axis("total_s", "time of an epoch", "s"),
        y=Axis("cost_usd", "cost of an epoch", "$"),
        series="threads",
        series_label="threads",
        caption="Requests, egress and stalled GPU time; each point is one block size.",
    )


def memory(cells: Table) -> Figure:
    """Throughput against the bytes that blocks in memory take.

    Parameters
    ----------
    cells : of one plane of the grid; the plan's is marked by a line.
    """
    chosen = int(np.argmax(cells["chosen"]))
    return Figure.of(
        "points",
        "memory",
        "Throughput and memory held in blocks",
        _by_threads(cells),
        x=Axis("held_bytes", "blocks in memory", "bytes", log=True),
        y=_RATE,
        series="threads",
        series_label="threads",
        rules=[Rule(float(cells["held_bytes"][chosen]), "the plan", axis="x")],
        caption="Threads times samples a block times the mean size. Marks on one vertical line hold the same memory.",
    )


def payback(cells: Table) -> Figure:
    """Epochs until merging has paid for itself, by block size.

    Parameters
    ----------
    cells : of one plane of the grid; those where merging never pays are left out.
    """
    return Figure.of(
        "points",
        "payback",
        "Epochs until merging pays back",
        _by_threads(cells.rows(np.isfinite(cells["payback_epochs"]))),
        x=_BLOCKS,
        y=Axis("payback_epochs", "epochs", log=True),
        series="threads",
        series_label="threads",
        rules=[Rule(1.0, "one epoch", axis="y")],
        caption="Against single samples with as many threads. Where merging saves nothing there is no mark.",
    )


def requests(cells: Table) -> Figure:
    """What an epoch's requests cost, or how many they are where they cost nothing.

    Parameters
    ----------
    cells : of one plane of the grid; threads do not change the number of requests.
    """
    priced = bool(np.any(cells["request_usd"] > 0))
    column, unit = ("request_usd", "$") if priced else ("gets", "")
    _, first = np.unique(cells["block_samples"], return_index=True)
    return Figure.of(
        "points",
        "requests",
        "Requests of an epoch by block size",
        cells.rows(np.sort(first)),
        x=_BLOCKS,
        y=Axis(column, "requests of an epoch", unit, log=True),
        caption="One request a block" + (", at the store's price of a thousand." if priced else "."),
    )


def _by_threads(cells: Table) -> Columns:
    """The columns of cells, threads in words."""
    threads = [f"{number} threads" if number > 1 else "1 thread" for number in cells["threads"]]
    return {**cells.columns, "threads": threads}
