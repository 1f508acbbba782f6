"""Synthetic groups of submissions: lengths, gaps, overlaps, bursts and ties, when no group trace is at hand.

Lengths are log-normal around the default configuration's mean time to the target, gaps exponential with a mean that
gives the wanted load. The published group trace is not obtainable; reports call these groups synthetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from forerun.domains.energy.inputs.workload import Submission
from forerun.rng import stream

Regime = Literal["sequential", "overlapping", "burst"]
REGIMES: Final[tuple[Regime, ...]] = ("sequential", "overlapping", "burst")
LENGTH_LOG_SD: Final = 0.4
RATIO_LOG_SD: Final = 0.3


def group_rows(
    n: int,
    mean_s: float,
    *,
    seed: int,
    load: float = 0.5,
    burst: int = 1,
    tie_grid_s: float = 0.0,
    overlap: bool = True,
    ratio_log_sd: float = RATIO_LOG_SD,
    zero_length_share: float = 0.0,
    purpose: str = "group",
) -> list[Submission]:
    """A synthetic group, sorted by start.

    n: number of submissions. mean_s: mean length [s]. seed: of the draws. load: mean number that run at once (default 0.5).
    burst: submissions that start at one instant (default 1). tie_grid_s: rounds starts and ends to a grid, so that they tie
    [s] (default 0: no grid). overlap: off makes each wait for the one before (default on). ratio_log_sd: spread of the
    runtime ratios, which are log-normal with mean 1 over the group (default 0.3). zero_length_share: submissions that
    take no time (default 0). purpose: names the random stream.
    """
    rng = stream(seed, "energy group", purpose)
    lengths = mean_s * np.exp(rng.normal(-(LENGTH_LOG_SD**2) / 2, LENGTH_LOG_SD, n))
    lengths[rng.random(n) < zero_length_share] = 0.0
    gaps = rng.exponential(burst * mean_s / load, math.ceil(n / burst))
    starts = np.repeat(np.cumsum(gaps) - gaps[0], burst)[:n]
    if not overlap:
        # Each begins after the one before has ended, plus its own share of idle time.
        idle = np.diff(starts, prepend=starts[0])
        ends = np.cumsum(lengths + idle)
        starts = ends - lengths
    ends = starts + lengths
    if tie_grid_s:
        starts = np.round(starts / tie_grid_s) * tie_grid_s
        ends = np.maximum(starts, np.round(ends / tie_grid_s) * tie_grid_s)
    ratios = np.exp(rng.normal(0.0, ratio_log_sd, n))
    ratios /= ratios.mean()
    return [Submission(*row) for row in zip(starts.tolist(), ends.tolist(), ratios.tolist())]


def regime(name: Regime, n: int, mean_s: float, seed: int) -> list[Submission]:
    """One of the three regimes: no overlap, about two at a time, bursts of eight."""
    match name:
        case "sequential":
            return group_rows(n, mean_s, seed=seed, load=0.5, overlap=False, purpose=name)
        case "overlapping":
            return group_rows(n, mean_s, seed=seed, load=2.0, purpose=name)
        case "burst":
            return group_rows(n, mean_s, seed=seed, load=2.0, burst=8, purpose=name)


def group_sizes(
    groups: int, seed: int, *, smallest: int = 10, largest: int = 1000, shape: float = 1.2
) -> list[int]:
    """Sizes of many groups: a power law cut at both ends, as recurring cluster jobs are distributed."""
    u = stream(seed, "energy group sizes").random(groups)
    low, high = smallest**-shape, largest**-shape
    return [int(size) for size in (low - u * (low - high)) ** (-1 / shape)]


def by_mean_runtime(group_means_s: Sequence[float], workload_means_s: dict[str, float]) -> list[str]:
    """A workload for each group: groups are split into equal shares by mean runtime and matched in order."""
    names = sorted(workload_means_s, key=workload_means_s.__getitem__)
    rank = np.argsort(np.argsort(group_means_s, kind="stable"), kind="stable")
    return [names[int(place * len(names) / len(group_means_s))] for place in rank]


@dataclass(frozen=True)
class GroupShape:
    """What a group looks like: mean length and gap [s], spread of log length, share of submissions that overlap."""

    mean_s: float
    length_log_sd: float
    mean_gap_s: float
    overlap_share: float

    @property
    def load(self) -> float:
        """Mean number running at once."""
        return self.mean_s / self.mean_gap_s if self.mean_gap_s else math.inf


def fitted(rows: Sequence[Submission]) -> GroupShape:
    """The shape of a group of at least two submissions, sorted by start."""
    starts = np.array([row.start_s for row in rows])
    ends = np.array([row.end_s for row in rows])
    lengths = ends - starts
    positive = lengths[lengths > 0]
    running_until = np.maximum.accumulate(ends)[:-1]
    return GroupShape(
        mean_s=float(lengths.mean()),
        length_log_sd=float(np.log(positive).std()) if len(positive) > 1 else 0.0,
        mean_gap_s=float(np.diff(starts).mean()),
        overlap_share=float((starts[1:] < running_until).mean()),
    )
