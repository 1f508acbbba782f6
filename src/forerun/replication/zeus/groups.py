"""Synthetic groups of submissions: lengths, gaps, overlaps, bursts and ties, when no group trace is available.

Lengths are log-normal around the default configuration's mean time to the target, gaps exponential with a mean that
gives the required load. The published group trace is not obtainable; reports call these groups synthetic.
"""

from __future__ import annotations

import math
from typing import Final, Literal

import numpy as np

from forerun.core.rng import stream
from forerun.energy.inputs.workload import Submission

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

    Parameters
    ----------
    n : number of submissions.
    mean_s : mean length [s].
    seed : of the draws.
    load : mean number that run at once (default: 0.5).
    burst : submissions that start at one instant (default: 1).
    tie_grid_s : rounds starts and ends to a grid, so that they tie [s] (default: 0, no grid).
    overlap : off makes each wait for the one before (default: on).
    ratio_log_sd : spread of the runtime ratios, which are log-normal with mean 1 over the group (default: 0.3).
    zero_length_share : share of submissions that take no time (default: 0).
    purpose : names the random stream (default: "group").
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
    """One of the three regimes: no overlap, about two at a time, bursts of eight.

    Parameters
    ----------
    name : `sequential`, `overlapping` or `burst`; it also names the random stream.
    n : number of submissions.
    mean_s : mean length [s].
    seed : of the draws.
    """
    match name:
        case "sequential":
            return group_rows(n, mean_s, seed=seed, load=0.5, overlap=False, purpose=name)
        case "overlapping":
            return group_rows(n, mean_s, seed=seed, load=2.0, purpose=name)
        case "burst":
            return group_rows(n, mean_s, seed=seed, load=2.0, burst=8, purpose=name)
