"""What a run's report shows, as data."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from forerun.result.figures import Axis, Figure, Rule
from forerun.result.numbers import quantity
from forerun.result.run import Result, SavedRun
from forerun.result.tables import Table
from forerun.scenario.spec import to_data

#: batches whose waits are shown, and blocks in the chart of threads
MOST_BATCHES = 400
MOST_BLOCKS = 60
#: parts of an epoch over which traffic on the link is averaged
LINK_PARTS = 80


def figures(run: Result | SavedRun) -> tuple[Figure, ...]:
    """The pictures that the run's tables allow, most telling first."""
    shown = []
    if "cells" in run.tables:
        shown.append(heat_map(_of_chosen(run.tables["cells"])))
        shown.append(hide_curve(_of_chosen(run.tables["cells"]), run.tables.get("probes")))
    shown.append(stall_split(run))
    if "split" in run.tables:
        shown.append(split_by_step(run.tables["split"]))
    if "pace" in run.tables:
        shown.extend(pace(run.tables["pace"], run.tables["epochs"], run.tables["laws"]))
    shown.append(waits(run.tables["batches"]))
    shown.append(epochs(run.tables["epochs"]))
    shown.append(laws(run.tables["laws"], float(run.summary["samples_per_s"])))
    if "requests" in run.tables and len(run.tables["requests"]):
        shown.append(threads(run.tables["requests"]))
        shown.append(request_times(run.tables["requests"]))
        shared = float(to_data(run.scenario)["store"].get("shared_bytes_per_s") or 0.0)
        shown.append(link_share(run.tables["requests"], shared))
    if "cells" in run.tables:
        cells = _of_chosen(run.tables["cells"])
        shown.append(memory(cells))
        shown.append(requests(cells))
        if np.any(np.isfinite(cells["payback_epochs"])):
            shown.append(payback(cells))
        if np.any(cells["cost_usd"] > 0):
            shown.append(frontier(cells))
    return tuple(shown)


def _of_chosen(cells: Table) -> Table:
    """The cells with the chosen one's workers, cache and placement: what a plane of two axes can show."""
    chosen = int(np.argmax(cells["chosen"]))
    same = (cells["workers"] == cells["workers"][chosen]) & (
        cells["cache_bytes"] == cells["cache_bytes"][chosen]
    )
    same &= cells["placement"] == cells["placement"][chosen]
    return Table.of(
        cells.schema, **{column.name: cells[column.name][same] for column in cells.schema.columns}
    )


def heat_map(cells: Table) -> Figure:
    """Predicted throughput over block size and threads."""
    chosen = int(np.argmax(cells["chosen"]))
    hidden = int(np.sum(cells["hidden"]))
    return Figure(
        id="block-threads-heat-map",
        title="Predicted throughput by block size and threads",
        kind="heatmap",
        x=Axis("block_samples", "samples a block"),
        y=Axis("threads", "threads"),
        z=Axis("samples_per_s", "throughput", "samples/s"),
        data={
            "block_samples": cells["block_samples"].astype(str).tolist(),
            "threads": cells["threads"].astype(str).tolist(),
            "samples_per_s": cells["samples_per_s"].tolist(),
        },
        order=tuple(dict.fromkeys(cells["block_samples"].astype(str).tolist())),
        caption=f"{hidden} of {len(cells)} configurations hide loading behind the step. The plan takes blocks of "
        f"{cells['block_samples'][chosen]} and {cells['threads'][chosen]} threads: the fewest bytes in hand near the best.",
    )


def hide_curve(cells: Table, probes: Table | None) -> Figure:
    """Fewest threads that hide loading at each block size, what holds as much memory as the plan, probes and plan."""
    blocks, threads = cells["block_samples"], cells["threads"]
    chosen = int(np.argmax(cells["chosen"]))
    columns: dict[str, list[Any]] = {"block_samples": [], "threads": [], "what": []}

    def add(what: str, xs: Iterable[float], ys: Iterable[float]) -> None:
        for x, y in zip(xs, ys):
            columns["block_samples"].append(float(x))
            columns["threads"].append(float(y))
            columns["what"].append(what)

    sizes = sorted(set(blocks[cells["hidden"]].tolist()))
    least = [threads[(blocks == size) & cells["hidden"]].min() for size in sizes]
    add("fewest that hide loading", sizes, least)
    in_hand = int(blocks[chosen]) * int(threads[chosen])
    within = [size for size in sorted(set(blocks.tolist())) if 1 <= in_hand / size <= threads.max()]
    add("as much memory as the plan", within, [in_hand / size for size in within])
    if probes is not None:
        add("probes, as asked", probes["block_samples"], probes["threads"])
    add("the plan", [blocks[chosen]], [threads[chosen]])
    verdict = "No block size and number of threads on offer hides loading."
    if sizes:
        at_least = np.array([least[sizes.index(b)] if b in sizes else np.inf for b in blocks.tolist()])
        above = threads >= at_least
        still = int(np.count_nonzero(above & ~cells["hidden"]))
        verdict = f"Of the {int(above.sum())} cells at or above the first marks " + (
            f"{still} do not hide loading." if still else "every one hides loading."
        )
    return Figure(
        id="hide-curve",
        title="Threads that hide loading, by block size",
        kind="points",
        x=Axis("block_samples", "samples a block", log=True),
        y=Axis("threads", "threads", log=True),
        data=columns,
        series="what",
        order=tuple(dict.fromkeys(columns["what"])),
        caption=f"{verdict} Marks of one memory lie on a straight line: threads times samples a block.",
    )


def stall_split(run: Result | SavedRun) -> Figure:
    """An epoch's time by what it was spent on."""
    ledger = run.ledgers[0]
    shares = ledger.shares()
    return Figure(
        id="stall-split",
        title="Where an epoch's time goes",
        kind="stacked_bar",
        x=Axis("epoch", "epoch"),
        y=Axis("seconds", "time", "s"),
        data={
            "epoch": ["first"] * len(ledger.parts),
            "seconds": list(ledger.parts.values()),
            "part": list(ledger.parts),
        },
        series="part",
        series_label="spent on",
        caption=f"{shares['compute']:.0%} steps, {shares['preparation stall']:.0%} waiting for preparation, "
        f"{shares['fetch stall']:.0%} for the store: differences of runs with the store, then all else, instantaneous.",
    )


def split_by_step(split: Table) -> Figure:
    """A batch's time by what it is spent on, for shorter and longer steps."""
    parts = {"compute": "compute_s", "preparation stall": "preparation_s", "fetch stall": "fetch_s"}
    steps = [f"{value:.3g}" for value in split["step_s"].tolist()]
    hidden = [
        step
        for step, *stalls in zip(steps, split["preparation_s"], split["fetch_s"])
        if sum(stalls) < 0.02 * float(step)
    ]
    if hidden and hidden == steps[-len(hidden) :]:
        verdict = f"Loading is hidden from steps of {hidden[0]} s on."
    elif hidden:
        verdict = f"Loading is hidden from steps of {', '.join(hidden)} s."
    else:
        verdict = "None of these steps hides loading."
    return Figure(
        id="stall-by-step",
        title="Where a batch's time goes, by length of the step",
        kind="stacked_bar",
        x=Axis("step", "step (s)"),
        y=Axis("seconds", "time of a batch", "s"),
        data={
            "step": steps * len(parts),
            "seconds": [float(value) for column in parts.values() for value in split[column]],
            "part": [part for part in parts for _ in steps],
        },
        series="part",
        series_label="spent on",
        order=tuple(parts),
        caption=f"{verdict} Predicted with mean sizes and mean latency, without caches.",
    )


def pace(looks: Table, epochs: Table, laws: Table) -> tuple[Figure, Figure]:
    """What the pace policy of the first job did, and how fast its loop went."""
    mine, of_job = looks["job"] == 0, epochs["job"] == 0
    begins_s = np.concatenate([[0.0], np.cumsum(epochs["total_s"][of_job])])
    now_s = (looks["at_s"] + begins_s[looks["epoch"]])[mine]
    threads, before = looks["threads"][mine], looks["threads_before"][mine]
    blocks = [size for size, _ in itertools.groupby(looks["block_samples"][mine].tolist())]
    larger = (
        f" Blocks changed between epochs: {', '.join(map(str, blocks))} samples." if len(blocks) > 1 else ""
    )
    compute = float(laws["samples_per_s"][list(laws["law"]).index("compute")])
    return (
        Figure(
            id="pace",
            title="Threads that may read",
            kind="step",
            x=Axis("at_s", "time", "s"),
            y=Axis("threads", "threads"),
            data={"at_s": [0.0, *now_s.tolist()], "threads": [int(before[0]), *threads.tolist()]},
            caption=f"Changed at {int(np.sum(threads != before))} of {len(threads)} looks of the pace policy.{larger}",
        ),
        Figure(
            id="pace-speed",
            title="Throughput between looks",
            kind="line",
            x=Axis("at_s", "time", "s"),
            y=Axis("samples_per_s", "throughput", "samples/s"),
            data={"at_s": now_s.tolist(), "samples_per_s": looks["samples_per_s"][mine].tolist()},
            rules=(Rule(compute, "the step", axis="y"),) if np.isfinite(compute) else (),
            caption="Samples a second since the look before.",
        ),
    )


def waits(batches: Table) -> Figure:
    """Waits for the batches of the first epoch."""
    mine = np.flatnonzero((batches["epoch"] == 0) & (batches["job"] == 0))[:MOST_BATCHES]
    load_s = batches["load_s"][mine]
    longest = int(np.argmax(load_s))
    return Figure(
        id="waits",
        title="Waiting for each batch",
        kind="line",
        x=Axis("batch", "batch"),
        y=Axis("load_s", "wait", "s"),
        data={"batch": batches["batch"][mine].tolist(), "load_s": load_s.tolist()},
        caption=f"Waits of the first epoch; the longest, {quantity(load_s[longest], 's', load_s[longest])}, is that of "
        f"batch {batches['batch'][mine][longest]}.",
    )


def epochs(table: Table) -> Figure:
    """Throughput of cold and warm epochs."""
    return Figure(
        id="epochs",
        title="Throughput by epoch",
        kind="bar",
        x=Axis("epoch", "epoch"),
        y=Axis("samples_per_s", "throughput", "samples/s"),
        data={
            "epoch": [f"{number} ({cache})" for number, cache in zip(table["epoch"], table["cache"])],
            "samples_per_s": table["samples_per_s"].tolist(),
            "job": [f"job {job}" for job in table["job"]],
        },
        series="job" if len(set(table["job"].tolist())) > 1 else "",
        caption="Each epoch of each job, with the state of its cache.",
    )


def laws(table: Table, measured: float) -> Figure:
    """The closed-form bounds beside what the run gave."""
    finite = np.isfinite(table["samples_per_s"])
    least = int(np.argmin(np.where(finite, table["samples_per_s"], np.inf)))
    of_least = measured / float(table["samples_per_s"][least])
    return Figure(
        id="laws",
        title="Upper bounds on the throughput",
        kind="points",
        x=Axis("law", "law"),
        y=Axis("samples_per_s", "bound", "samples/s", log=True),
        data={"law": table["law"][finite].tolist(), "samples_per_s": table["samples_per_s"][finite].tolist()},
        rules=(Rule(measured, "this run", axis="y"),),
        caption=f"Bounds without caches; the line is the simulated run, at {of_least:.3g} times the least "
        f"of them, {table['law'][least]}.",
    )


def threads(requests: Table) -> Figure:
    """What the threads did with the first blocks."""
    rows = np.flatnonzero((requests["job"] == 0) & np.isfinite(requests["left_s"]))[:MOST_BLOCKS]
    edges = ("taken_s", "grant_s", "first_byte_s", "done_s", "left_s")
    states = ("waiting for a slot", "latency", "transfer", "decoding")
    columns: dict[str, list[Any]] = {"thread": [], "from_s": [], "to_s": [], "state": []}
    for state, (a, b) in zip(states, itertools.pairwise(edges)):
        columns["thread"] += [f"thread {number}" for number in requests["thread"][rows]]
        columns["from_s"] += requests[a][rows].tolist()
        columns["to_s"] += requests[b][rows].tolist()
        columns["state"] += [state] * len(rows)
    return Figure(
        id="threads",
        title="What the threads do",
        kind="gantt",
        x=Axis("from_s", "time", "s"),
        y=Axis("thread", "thread"),
        x2="to_s",
        data=columns,
        series="state",
        series_label="state",
        order=states,
        caption=f"The first {len(rows)} blocks of the first epoch. Threads that read together and then decode together "
        "are in lock-step.",
    )


def request_times(requests: Table) -> Figure:
    """Distribution of request times."""
    shares = np.linspace(0, 1, 201)
    served = requests["done_s"] - requests["taken_s"]
    return Figure(
        id="request-times",
        title="Time of a request",
        kind="cdf",
        x=Axis("request_s", "from asking to the last byte", "s"),
        y=Axis("share", "share of requests"),
        data={
            "request_s": np.quantile(served[np.isfinite(served)], shares).tolist(),
            "share": shares.tolist(),
        },
        caption=f"Median {quantity(np.nanmedian(served), 's', float(np.nanmax(served)))} over {len(served)} requests, "
        "caches included.",
    )


def link_share(requests: Table, shared_bytes_per_s: float) -> Figure:
    """Bytes a second on their way from the store to each job, over the first epoch."""
    of_store = (requests["source"] == "store") & np.isfinite(requests["done_s"])
    first, done = requests["first_byte_s"][of_store], requests["done_s"][of_store]
    rate = requests["size_bytes"][of_store] / np.maximum(done - first, 1e-9)
    job = requests["job"][of_store]
    edges = np.linspace(0.0, float(done.max(initial=1e-9)), LINK_PARTS + 1)
    columns: dict[str, list[Any]] = {"at_s": [], "bytes_per_s": [], "job": []}
    for number in sorted(set(job.tolist())):
        mine = job == number
        begun, ended = first[mine, None], np.maximum(done[mine, None], first[mine, None] + 1e-9)
        overlap = np.clip(np.minimum(ended, edges[1:]) - np.maximum(begun, edges[:-1]), 0.0, None)
        sent = (overlap * rate[mine, None]).sum(axis=0) / np.diff(edges)
        columns["at_s"] += ((edges[:-1] + edges[1:]) / 2).tolist()
        columns["bytes_per_s"] += sent.tolist()
        columns["job"] += [f"job {number}"] * LINK_PARTS
    return Figure(
        id="link-share",
        title="Bytes on their way",
        kind="line",
        x=Axis("at_s", "time", "s"),
        y=Axis("bytes_per_s", "from the store", "bytes/s"),
        data=columns,
        series="job" if len(set(columns["job"])) > 1 else "",
        rules=(Rule(shared_bytes_per_s, "the shared link", axis="y"),) if shared_bytes_per_s else (),
        caption=f"Means over {LINK_PARTS} parts of the first epoch"
        + (", for each job." if len(set(columns["job"])) > 1 else "; what a cache had is not in it."),
    )


def frontier(cells: Table) -> Figure:
    """Cost against time of every configuration."""
    return Figure(
        id="cost-time",
        title="Cost and time of an epoch",
        kind="points",
        x=Axis("total_s", "time of an epoch", "s"),
        y=Axis("cost_usd", "cost of an epoch", "$"),
        data={
            "total_s": cells["total_s"].tolist(),
            "cost_usd": cells["cost_usd"].tolist(),
            "threads": _threads_of(cells),
        },
        series="threads",
        series_label="threads",
        caption="Requests, egress and stalled GPU time; each point is one block size.",
    )


def memory(cells: Table) -> Figure:
    """Throughput against the bytes that blocks in hand take."""
    chosen = int(np.argmax(cells["chosen"]))
    return Figure(
        id="memory",
        title="Throughput and memory held in blocks",
        kind="points",
        x=Axis("held_bytes", "blocks in hand", "bytes", log=True),
        y=Axis("samples_per_s", "throughput", "samples/s"),
        data={
            "held_bytes": cells["held_bytes"].tolist(),
            "samples_per_s": cells["samples_per_s"].tolist(),
            "threads": _threads_of(cells),
        },
        series="threads",
        series_label="threads",
        rules=(Rule(float(cells["held_bytes"][chosen]), "the plan", axis="x"),),
        caption="Threads times samples a block times the mean size. Marks on one vertical line hold the same memory.",
    )


def payback(cells: Table) -> Figure:
    """Epochs until merging has paid for itself, by block size."""
    rows = np.flatnonzero(np.isfinite(cells["payback_epochs"]))
    return Figure(
        id="payback",
        title="Epochs until merging pays back",
        kind="points",
        x=Axis("block_samples", "samples a block", log=True),
        y=Axis("payback_epochs", "epochs", log=True),
        data={
            "block_samples": cells["block_samples"][rows].tolist(),
            "payback_epochs": cells["payback_epochs"][rows].tolist(),
            "threads": [_threads_of(cells)[row] for row in rows],
        },
        series="threads",
        series_label="threads",
        rules=(Rule(1.0, "one epoch", axis="y"),),
        caption="Against single samples with as many threads. Where merging saves nothing there is no mark.",
    )


def requests(cells: Table) -> Figure:
    """What an epoch's requests cost, or how many they are where they cost nothing."""
    priced = bool(np.any(cells["request_usd"] > 0))
    column, label, unit = (
        ("request_usd", "requests of an epoch", "$") if priced else ("gets", "requests of an epoch", "")
    )
    first = {int(block): float(value) for block, value in zip(cells["block_samples"], cells[column])}
    return Figure(
        id="requests",
        title="Requests of an epoch by block size",
        kind="points",
        x=Axis("block_samples", "samples a block", log=True),
        y=Axis(column, label, unit, log=True),
        data={"block_samples": list(first), column: list(first.values())},
        caption="One request a block" + (", at the store's price of a thousand." if priced else "."),
    )


def _threads_of(cells: Table) -> list[str]:
    return [f"{number} threads" if number > 1 else "1 thread" for number in cells["threads"]]
