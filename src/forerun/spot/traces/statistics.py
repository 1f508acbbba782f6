"""What recorded fleets look like: by the notebook's definitions, and by what they were meant to be."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import numpy as np

from forerun.core.errors import TraceError
from forerun.core.trace.repair import RepairLog, shown
from forerun.core.trace.rows import parse_instant
from forerun.core.trace.source import Source
from forerun.core.units import whole_number
from forerun.spot.engine.membership import Membership

BIG_ADD = 10
DAY_S = 86_400.0


# --------------------------------------------------------------------------- count and termination traces


@dataclass(frozen=True, slots=True)
class CountTraces:
    """A fleet seen from outside: counts over time, and how many nodes were terminated when.

    Times are in seconds from the first count; rows as in the files, terminations without repair of their dates.

    Parameters
    ----------
    count_s, counts : when there were how many nodes.
    termination_s, terminated : when how many were terminated; times may fall back where a date was not carried on.
    """

    count_s: tuple[float, ...]
    counts: tuple[int, ...]
    termination_s: tuple[float, ...]
    terminated: tuple[int, ...]

    @property
    def seen_lost(self) -> int:
        """Nodes by which the count fell, without the operator's teardown: fewer than terminated, if some were swapped."""
        falls = [n - m for n, m in itertools.pairwise(self.counts) if m < n]
        return sum(falls) - (falls[-1] if self.counts[-1] == 0 else 0)


def read_counts(nodes: str | Path, terminations: str | Path, repairs: RepairLog | None = None) -> CountTraces:
    """Bamboo's pair of files.

    Parameters
    ----------
    nodes : the file of counts, `timestamp,count`.
    terminations : the file of terminations, `timestamp,number`.
    repairs : a log to count them in (default: a fresh one).

    Raises TraceError naming file and line.
    """
    log = repairs if repairs is not None else RepairLog()
    count_ns, counts = _stamped(Path(nodes), "count", log)
    ended_ns, numbers = _stamped(Path(terminations), "number", log)
    origin = count_ns[0]
    return CountTraces(
        tuple((t - origin) / 1e9 for t in count_ns),
        tuple(counts),
        tuple((t - origin) / 1e9 for t in ended_ns),
        tuple(numbers),
    )


def _stamped(path: Path, column: str, repairs: RepairLog) -> tuple[list[int], list[int]]:
    """Instants in nanoseconds and numbers of a file of two columns. Raises TraceError naming every bad line."""

    def row(line: str) -> tuple[int, int] | None:
        cells = [cell.strip() for cell in line.split(",")]
        if cells == ["timestamp", column]:
            return None
        value = whole_number(cells[1]) if len(cells) == 2 else None
        if value is None:
            raise ValueError(f"{shown(line)} is not `timestamp,{column}`")
        return parse_instant(cells[0]), value

    source = Source(path, repairs=repairs)
    rows = [row for _, row in source.parsed(row)]
    if len(rows) < 2:
        raise TraceError.at(source.name, f"has {len(rows)} rows; statistics need two at least")
    return [instant for instant, _ in rows], [value for _, value in rows]


def as_the_notebook(traces: CountTraces) -> dict[str, float]:
    """The twelve values that the notebook prints, by its definitions."""
    steps = np.diff(traces.counts)
    gaps = np.diff(traces.count_s)
    rises = [int(step) for step in steps if step > 0]
    small = [rise for rise in rises if rise <= BIG_ADD]
    minutes = (traces.count_s[-1] - traces.count_s[0]) / 60
    return {
        "mttp_s": float(gaps.mean()),
        "ttp_std_s": float(gaps.std(ddof=1)),
        "preemptions_per_min": sum(traces.terminated) / minutes,
        "additions_per_min": sum(rises) / minutes,
        "chance_preempt_this_minute": len(traces.terminated) / minutes,
        "chance_add_this_minute": len(rises) / minutes,
        "probability_big_add": (len(rises) - len(small)) / len(rises),
        "probability_regular_add": len(small) / len(rises),
        "regular_add_mean": fmean(small),
        "regular_add_std": stdev(small),
        "preempt_count_mean": fmean(traces.terminated),
        "preempt_count_std": stdev(traces.terminated),
    }


@dataclass(frozen=True, slots=True)
class Corrected:
    """What the notebook's values were meant to be.

    Swaps within a row are invisible, so additions are a lower bound.

    Parameters
    ----------
    rows_out_of_order : terminations that are dated before the row above them.
    mean_gap_s, std_gap_s, gaps : mean and standard deviation of the times between terminations, and how many there are.
    node_hours : the count summed over time.
    preempted_nodes : terminated in all.
    added_nodes_net : all rises of the count, the ramp-up included.
    batches, add_batches : how many removals, or rises of the count, of each size; the first big rise is the
        operator's ramp-up and left out.
    hours : from the first count to the last.
    removal_s : instants of the terminations, dates repaired.
    """

    rows_out_of_order: int
    mean_gap_s: float
    std_gap_s: float
    gaps: int
    node_hours: float
    preempted_nodes: int
    added_nodes_net: int
    batches: dict[int, int]
    hours: float
    add_batches: dict[int, int]
    removal_s: tuple[float, ...]

    @property
    def cv(self) -> float:
        """Coefficient of variation of the gaps."""
        return self.std_gap_s / self.mean_gap_s

    @property
    def per_node_hour(self) -> float:
        """Preemptions a node-hour."""
        return self.preempted_nodes / self.node_hours

    @property
    def geometric_p(self) -> float:
        """Maximum-likelihood p of a geometric batch size."""
        return sum(self.batches.values()) / self.preempted_nodes


def corrected(traces: CountTraces) -> Corrected:
    """Gaps between terminations (dates that fall back at midnight repaired), rates by node-hours, no teardown."""
    times, days, backward = [], 0.0, 0
    for before, now in zip((traces.termination_s[0], *traces.termination_s), traces.termination_s):
        if now < before:
            days += DAY_S
            backward += 1
        times.append(now + days)
    gaps = np.diff(times)
    counts, count_s = traces.counts, traces.count_s
    node_s = sum(n * (b - a) for n, a, b in zip(counts, count_s, count_s[1:]))
    rises = [b - a for a, b in itertools.pairwise(counts) if b > a]
    ramp = next((i for i, rise in enumerate(rises) if rise > BIG_ADD), len(rises))
    return Corrected(
        rows_out_of_order=backward,
        mean_gap_s=float(gaps.mean()),
        std_gap_s=float(gaps.std(ddof=1)),
        gaps=len(gaps),
        node_hours=node_s / 3600,
        preempted_nodes=sum(traces.terminated),
        added_nodes_net=sum(rises),
        batches=dict(sorted(Counter(traces.terminated).items())),
        hours=(count_s[-1] - count_s[0]) / 3600,
        add_batches=dict(sorted(Counter(rises[:ramp] + rises[ramp + 1 :]).items())),
        removal_s=tuple(times),
    )


# --------------------------------------------------------------------------- membership traces


@dataclass(frozen=True, slots=True)
class FleetStatistics:
    """What a membership trace looks like; means are over time.

    Lives of nodes known only by their count are not known: `lifetimes_h` and `ages_h` are empty then.

    Parameters
    ----------
    rows : of the recording.
    duration_h : how long it is.
    adds, removes : nodes that came after the first instant, and that vanished.
    removal_batches, add_batches : how many at each instant of removals, or of additions.
    max_nodes : most nodes at once.
    node_hours : nodes summed over time.
    lifetimes_h : of nodes that vanished (biased short).
    ages_h : of nodes alive at the end.
    alive_at_end : how many these are.
    removal_s : instants of removals.
    start : nodes of the first instant, if it is at 0.
    add_s : instants of additions.
    path : (instant, nodes from then on) of every change, the first at 0.
    """

    rows: int
    duration_h: float
    adds: int
    removes: int
    removal_batches: tuple[int, ...]
    add_batches: tuple[int, ...]
    max_nodes: int
    node_hours: float
    lifetimes_h: tuple[float, ...]
    ages_h: tuple[float, ...]
    alive_at_end: int
    removal_s: tuple[float, ...]
    start: int
    add_s: tuple[float, ...]
    path: tuple[tuple[float, int], ...]

    @property
    def mean_nodes(self) -> float:
        """Mean number of nodes."""
        return self.node_hours / self.duration_h if self.duration_h else 0.0

    @property
    def nodes_std(self) -> float:
        """Standard deviation of the number of nodes over time."""
        at_s = np.array([t_s for t_s, _ in self.path] + [self.duration_h * 3600.0])
        nodes, spans_s = np.array([nodes for _, nodes in self.path]), np.maximum(np.diff(at_s), 0.0)
        mean = np.average(nodes, weights=spans_s)
        return math.sqrt(np.average((nodes - mean) ** 2, weights=spans_s))

    @property
    def removals_per_node_hour(self) -> float:
        """Hazard of a node, right-censored: removals by all node-hours lived, survivors included."""
        return self.removes / self.node_hours if self.node_hours else 0.0

    @property
    def gap_cv(self) -> float:
        """Coefficient of variation of the gaps between removal instants; NaN below three of them."""
        gaps = np.diff(self.removal_s)
        return float(gaps.std(ddof=1) / gaps.mean()) if len(gaps) > 1 else math.nan

    def node_h(self, most: int, edges_s: Sequence[float]) -> tuple[float, ...]:
        """Node-hours between each two of some instants, counting `most` nodes at a time at most.

        With 1 these are the hours in which there was a node.
        """
        at_s = np.array([t_s for t_s, _ in self.path] + [max(edges_s[-1], self.path[-1][0])])
        nodes = np.minimum([nodes for _, nodes in self.path], most)
        summed = np.concatenate([[0.0], np.cumsum(nodes * np.diff(at_s))])
        return tuple((np.diff(np.interp(edges_s, at_s, summed)) / 3600.0).tolist())

    def data(self) -> dict[str, Any]:
        """As plain data."""
        sizes, lifetimes_h = self.removal_batches, self.lifetimes_h
        plain = ("rows", "duration_h", "adds", "removes")
        means = ("max_nodes", "node_hours", "mean_nodes", "removals_per_node_hour")
        return {
            **{name: getattr(self, name) for name in plain},
            "removal_instants": len(sizes),
            "removal_batch_mean": fmean(sizes) if sizes else 0.0,
            "removal_batch_max": max(sizes, default=0),
            **{name: getattr(self, name) for name in means},
            "lifetime_removed_mean_h": fmean(lifetimes_h) if lifetimes_h else None,
            "lifetime_removed_median_h": median(lifetimes_h) if lifetimes_h else None,
            "alive_at_end": self.alive_at_end,
        }


def statistics_of_counts(traces: CountTraces) -> FleetStatistics:
    """The statistics of a fleet that is known by its counts and terminations.

    The first big rise is the operator's ramp-up: the fleet starts with the nodes after it, and it is no addition. Lives
    of nodes are not known.
    """
    meant = corrected(traces)
    ramp = next((i for i, (a, b) in enumerate(itertools.pairwise(traces.counts)) if b - a > BIG_ADD), -1)
    rises = [
        (t_s, b - a)
        for i, (t_s, (a, b)) in enumerate(
            zip(traces.count_s[1:], itertools.pairwise(traces.counts), strict=True)
        )
        if b > a and i != ramp
    ]
    counts = traces.counts[:-1] if traces.counts[-1] == 0 else traces.counts
    return FleetStatistics(
        rows=len(traces.counts) + len(traces.terminated),
        duration_h=meant.hours,
        adds=sum(size for _, size in rises),
        removes=meant.preempted_nodes,
        removal_batches=traces.terminated,
        add_batches=tuple(size for _, size in rises),
        max_nodes=max(counts),
        node_hours=meant.node_hours,
        lifetimes_h=(),
        ages_h=(),
        alive_at_end=counts[-1],
        removal_s=meant.removal_s,
        start=traces.counts[ramp + 1] if ramp >= 0 else traces.counts[0],
        add_s=tuple(t_s for t_s, _ in rises),
        path=tuple(zip((t_s - traces.count_s[0] for t_s in traces.count_s), counts)),
    )


def fleet_statistics(fleet: Membership, horizon_s: float | None = None) -> FleetStatistics:
    """Statistics of a fleet's history.

    Parameters
    ----------
    horizon_s : until when (default: the last row).
    """
    end_s = fleet.end_s if horizon_s is None else horizon_s
    born: dict[int, float] = {}
    lifetimes_h, removal_batches, add_batches, removal_s, add_s = [], [], [], [], []
    path = [(0.0, 0)]
    node_s, last_s, most = 0.0, 0.0, 0
    for instant in fleet.instants:
        node_s += len(born) * (instant.t_s - last_s)
        last_s = instant.t_s
        gone = [node for node in instant.removed if node in born]
        lifetimes_h += [(instant.t_s - born.pop(node)) / 3600 for node in gone]
        born.update(dict.fromkeys(instant.added, instant.t_s))
        if gone:
            removal_batches.append(len(gone))
            removal_s.append(instant.t_s)
        if instant.added and instant.t_s > 0:
            add_batches.append(len(instant.added))
            add_s.append(instant.t_s)
        most = max(most, len(born))
        path.append((instant.t_s, len(born)))
    node_s += len(born) * (end_s - last_s)
    initial = len(fleet.instants[0].added) if fleet.instants and fleet.instants[0].t_s == 0 else 0
    return FleetStatistics(
        rows=sum(len(instant.removed) + len(instant.added) for instant in fleet.instants),
        duration_h=end_s / 3600,
        adds=sum(add_batches) + initial,
        removes=len(lifetimes_h),
        removal_batches=tuple(removal_batches),
        add_batches=tuple(add_batches),
        max_nodes=most,
        node_hours=node_s / 3600,
        lifetimes_h=tuple(lifetimes_h),
        ages_h=tuple((end_s - born_s) / 3600 for born_s in born.values()),
        alive_at_end=len(born),
        removal_s=tuple(removal_s),
        start=initial,
        add_s=tuple(add_s),
        path=tuple(path),
    )
