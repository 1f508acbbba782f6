"""From recorded fleets to statistics and processes: the notebook's definitions, and what they were meant to
be.
"""

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

from forerun.domains.spot.fleet import Burst, Empirical, Geometric, Marks, Poisson, generate
from forerun.domains.spot.model import Membership
from forerun.errors import TraceError
from forerun.trace.repair import Complaints, RepairLog, shown
from forerun.trace.rows import parse_instant
from forerun.trace.source import Source

BIG_ADD = 10
DAY_S = 86_400.0


# --------------------------------------------------------------------------- count and termination traces


@dataclass(frozen=True, slots=True)
class CountTraces:
    """A fleet seen from outside: counts over time, and how many nodes were terminated when.

    Times in seconds from the first count; rows as in the files, terminations without repair of their dates.
    """

    count_s: tuple[float, ...]
    counts: tuple[int, ...]
    termination_s: tuple[float, ...]
    terminated: tuple[int, ...]


def read_counts(nodes: str | Path, terminations: str | Path) -> CountTraces:
    """Bamboo's pair of files, `timestamp,count` and `timestamp,number`. Raises TraceError naming file and
    line.
    """
    count_ns, counts = _stamped(Path(nodes), "count")
    ended_ns, numbers = _stamped(Path(terminations), "number")
    origin = count_ns[0]
    return CountTraces(
        tuple((t - origin) / 1e9 for t in count_ns),
        tuple(counts),
        tuple((t - origin) / 1e9 for t in ended_ns),
        tuple(numbers),
    )


def _stamped(path: Path, column: str) -> tuple[list[int], list[int]]:
    source, complaints = Source(path, repairs=RepairLog()), Complaints()
    instants: list[int] = []
    values: list[int] = []
    for number, line in source.lines():
        cells = [cell.strip() for cell in line.split(",")]
        if not line.strip() or cells == ["timestamp", column]:
            continue
        try:
            if len(cells) != 2 or not cells[1].isdigit():
                raise ValueError(f"{shown(line)} is not `timestamp,{column}`")
            instants.append(parse_instant(cells[0]))
            values.append(int(cells[1]))
        except ValueError as error:
            complaints.add(source.at(number), str(error))
    complaints.finish()
    if len(values) < 2:
        raise TraceError.at(source.name, f"holds {len(values)} rows; statistics need two at least")
    return instants, values


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
    """What the notebook's values were meant to be."""

    rows_out_of_order: int
    mean_gap_s: float
    std_gap_s: float
    gaps: int
    node_hours: float
    preempted_nodes: int
    added_nodes_net: int
    batches: dict[int, int]

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
    """Gaps between terminations (dates that fall back at midnight repaired), rates by node-hours, no
    teardown.
    """
    times, days, backward = [], 0.0, 0
    for before, now in zip((traces.termination_s[0], *traces.termination_s), traces.termination_s):
        if now < before:
            days += DAY_S
            backward += 1
        times.append(now + days)
    gaps = np.diff(times)
    counts, count_s = traces.counts, traces.count_s
    if counts[-1] == 0:
        node_s = sum(n * (b - a) for n, a, b in zip(counts, count_s, count_s[1:]))
        rises = sum(max(0, b - a) for a, b in itertools.pairwise(counts))
    else:
        node_s = sum(n * (b - a) for n, a, b in zip(counts, count_s, count_s[1:]))
        rises = sum(max(0, b - a) for a, b in itertools.pairwise(counts))
    return Corrected(
        rows_out_of_order=backward,
        mean_gap_s=float(gaps.mean()),
        std_gap_s=float(gaps.std(ddof=1)),
        gaps=len(gaps),
        node_hours=node_s / 3600,
        preempted_nodes=sum(traces.terminated),
        added_nodes_net=rises,
        batches=dict(sorted(Counter(traces.terminated).items())),
    )


# --------------------------------------------------------------------------- membership traces


@dataclass(frozen=True, slots=True)
class FleetStatistics:
    """What a membership trace looks like; means are over time, lifetimes of removed nodes only (biased
    short).
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
    alive_at_end: int
    removal_s: tuple[float, ...]

    @property
    def mean_nodes(self) -> float:
        """Mean number of nodes."""
        return self.node_hours / self.duration_h if self.duration_h else 0.0

    @property
    def removals_per_node_hour(self) -> float:
        """Hazard of a node, right-censored: removals by all node-hours lived, survivors included."""
        return self.removes / self.node_hours if self.node_hours else 0.0

    @property
    def gap_cv(self) -> float:
        """Coefficient of variation of the gaps between removal instants; NaN below three of them."""
        gaps = np.diff(self.removal_s)
        return float(gaps.std(ddof=1) / gaps.mean()) if len(gaps) > 1 else math.nan

    def data(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "rows": self.rows,
            "duration_h": self.duration_h,
            "adds": self.adds,
            "removes": self.removes,
            "removal_instants": len(self.removal_batches),
            "removal_batch_mean": fmean(self.removal_batches) if self.removal_batches else 0.0,
            "removal_batch_max": max(self.removal_batches, default=0),
            "max_nodes": self.max_nodes,
            "node_hours": self.node_hours,
            "mean_nodes": self.mean_nodes,
            "removals_per_node_hour": self.removals_per_node_hour,
            "lifetime_removed_mean_h": fmean(self.lifetimes_h) if self.lifetimes_h else 0.0,
            "lifetime_removed_median_h": median(self.lifetimes_h) if self.lifetimes_h else 0.0,
            "alive_at_end": self.alive_at_end,
        }


def fleet_statistics(fleet: Membership, horizon_s: float | None = None) -> FleetStatistics:
    """Statistics of a fleet's history until its last row, or until a horizon."""
    end_s = fleet.end_s if horizon_s is None else horizon_s
    born: dict[int, float] = {}
    lives, removal_batches, add_batches, removal_s = [], [], [], []
    node_s, last_s, most = 0.0, 0.0, 0
    for instant in fleet.instants:
        node_s += len(born) * (instant.t_s - last_s)
        last_s = instant.t_s
        gone = [node for node in instant.removed if node in born]
        lives += [(instant.t_s - born.pop(node)) / 3600 for node in gone]
        born.update(dict.fromkeys(instant.added, instant.t_s))
        if gone:
            removal_batches.append(len(gone))
            removal_s.append(instant.t_s)
        if instant.added and instant.t_s > 0:
            add_batches.append(len(instant.added))
        most = max(most, len(born))
    node_s += len(born) * (end_s - last_s)
    initial = len(fleet.instants[0].added) if fleet.instants and fleet.instants[0].t_s == 0 else 0
    return FleetStatistics(
        rows=sum(len(instant.removed) + len(instant.added) for instant in fleet.instants),
        duration_h=end_s / 3600,
        adds=sum(add_batches) + initial,
        removes=len(lives),
        removal_batches=tuple(removal_batches),
        add_batches=tuple(add_batches),
        max_nodes=most,
        node_hours=node_s / 3600,
        lifetimes_h=tuple(lives),
        alive_at_end=len(born),
        removal_s=tuple(removal_s),
    )


# --------------------------------------------------------------------------- fitting


def poisson_interval(events: int, confidence: float = 0.95) -> tuple[float, float]:
    """Exact (Garwood) interval of a Poisson mean from a count, by bisection on its distribution function."""
    tail = (1 - confidence) / 2

    def at_most(k: int, mean: float) -> float:
        return math.fsum(math.exp(i * math.log(mean) - mean - math.lgamma(i + 1)) for i in range(k + 1))

    def solve(k: int, share: float) -> float:
        low, high = 1e-12, 2.0 * k + 40.0
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if at_most(k, middle) > share else (low, middle)
        return (low + high) / 2

    return (0.0 if events == 0 else solve(events - 1, 1 - tail)), solve(events, tail)


@dataclass(frozen=True, slots=True)
class Feature:
    """A figure of the recorded fleet beside the 95 % band of fleets generated by the fitted process."""

    name: str
    recorded: float
    low: float
    high: float

    @property
    def ok(self) -> bool:
        """Whether the recorded figure lies in the band."""
        return self.low <= self.recorded <= self.high


@dataclass(frozen=True, slots=True)
class Fit:
    """A process fitted to a recorded fleet, the intervals of its rates, and how well it stands in."""

    process: Poisson
    removal_per_min: tuple[float, float]
    add_per_min: tuple[float, float]
    features: tuple[Feature, ...]

    @property
    def ok(self) -> bool:
        """Whether all features lie in their bands."""
        return all(feature.ok for feature in self.features)


def fit(fleet: Membership, *, cap: int | None = None, traces: int = 1000, seed: int = 0) -> Fit:
    """Fit Poisson events with empirical batches to a recorded fleet, and check it by generating fleets.

    The nodes of the first instant are the start, not an addition. Raises TraceError without removals or
    additions.
    """
    seen = fleet_statistics(fleet)
    if not seen.removal_batches or not seen.add_batches or seen.duration_h == 0:
        raise TraceError.at("fleet", "holds no removal or no addition to fit")
    minutes = seen.duration_h * 60
    start = len(fleet.instants[0].added) if fleet.instants[0].t_s == 0 else 0
    process = Poisson(
        removals_per_min=len(seen.removal_batches) / minutes,
        adds_per_min=len(seen.add_batches) / minutes,
        removal_batch=Empirical(counts=_histogram(seen.removal_batches)),
        add_batch=Empirical(counts=_histogram(seen.add_batches)),
        start=start,
        cap=max(cap or seen.max_nodes, seen.max_nodes),
    )
    low, high = poisson_interval(len(seen.removal_batches))
    add_low, add_high = poisson_interval(len(seen.add_batches))
    return Fit(
        process,
        (low / minutes, high / minutes),
        (add_low / minutes, add_high / minutes),
        predictive_bands(process, seen, traces, seed),
    )


def _histogram(batches: Sequence[int]) -> tuple[float, ...]:
    return tuple(float(n) for n in np.bincount(batches)[1:])


def predictive_bands(process: Poisson, seen: FleetStatistics, traces: int, seed: int) -> tuple[Feature, ...]:
    """Four figures of the recorded fleet against their 95 % bands over generated ones."""
    horizon_s = seen.duration_h * 3600
    made = [
        fleet_statistics(generate(process, seed=seed, horizon_s=horizon_s, trial=trial), horizon_s)
        for trial in range(traces)
    ]

    def figures(one: FleetStatistics) -> tuple[float, float, float, float]:
        batch = fmean(one.removal_batches) if one.removal_batches else math.nan
        return one.removes / one.duration_h, batch, one.gap_cv, one.mean_nodes

    drawn = np.array([figures(one) for one in made])
    low, high = np.nanpercentile(drawn, [2.5, 97.5], axis=0)
    names = ("removals per hour", "nodes per removal", "CV of removal gaps", "mean nodes")
    return tuple(Feature(*row) for row in zip(names, figures(seen), low.tolist(), high.tolist(), strict=True))


def notebook_process(traces: CountTraces, *, geometric: bool = False) -> Poisson:
    """The process that the notebook fits: marks from normals (or geometric batches, which keep the mean)."""
    values = as_the_notebook(traces)
    return Poisson(
        removals_per_min=values["chance_preempt_this_minute"],
        adds_per_min=values["chance_add_this_minute"],
        removal_batch=Geometric(p=1 / values["preempt_count_mean"])
        if geometric
        else Marks(mean=values["preempt_count_mean"], std=values["preempt_count_std"]),
        add_batch=Geometric(p=1 / values["regular_add_mean"])
        if geometric
        else Marks(mean=values["regular_add_mean"], std=values["regular_add_std"]),
        add_burst=Burst(probability=values["probability_big_add"]),
    )
