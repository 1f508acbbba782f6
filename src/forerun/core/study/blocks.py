"""Intervals for two runs on one recorded log: a block bootstrap over stretches of the log.

Where the seed changes nothing, the difference of two variants is exact for the log they ran on, and says nothing of the next
log. What varies from log to log is which units (jobs, queries) come, and neighbours in time share a queue: so whole
blocks of time are drawn with replacement [Künsch, The Annals of Statistics 17, 1989], days where the log has enough of them.
Units are not simulated anew: each keeps what happened to it. Where waits come from congestion that is rarer than the log is
long, no interval from that log is wide enough, however it is made: most logs do not contain it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.core.domain import Units
from forerun.core.result.stats import Interval, student_quantile, student_tail
from forerun.core.rng import stream

DAY_S = 86_400.0
#: blocks are days where there are so many; else the log is cut into `SHORT_LOG_BLOCKS` equal ones
LEAST_DAYS = 10
SHORT_LOG_BLOCKS = 20
#: fewer blocks, or fewer units, give no interval
LEAST_BLOCKS = 8
LEAST_UNITS = 100
RESAMPLES = 1000
#: of quantiles of more units than this, fewer resamples are drawn
MANY_UNITS = 200_000
FEW_RESAMPLES = 200

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BlockDifference:
    """The interval of a difference over blocks of a log, the p value of no difference, and the blocks.

    correlation: of the differences of neighbouring blocks; intervals are too narrow where it is well above 0.
    """

    interval: Interval
    p: float
    blocks: int
    block_s: float
    correlation: float

    @property
    def correlated(self) -> bool:
        """Whether neighbouring blocks are more alike than chance explains."""
        return self.correlation > 2 / math.sqrt(self.blocks)


def block_difference(one: Units, other: Units, figure: str, difference: float) -> BlockDifference | None:
    """The interval about the exact difference of a figure of two runs on one log, over blocks of that log.

    The standard error is that of the figure over logs made of whole blocks drawn with replacement, the interval Student's
    with a degree of freedom less than blocks. Blocks are doubled while neighbours are correlated and twenty remain. None
    where the log is too short: fewer than LEAST_BLOCKS blocks or LEAST_UNITS units.
    """
    first_s = float(min(one.at_s.min(initial=math.inf), other.at_s.min(initial=math.inf)))
    last_s = float(max(one.at_s.max(initial=-math.inf), other.at_s.max(initial=-math.inf)))
    span_s = last_s - first_s
    if min(len(one.at_s), len(other.at_s)) < LEAST_UNITS or not span_s > 0:
        return None
    block_s = DAY_S if span_s >= LEAST_DAYS * DAY_S else span_s / SHORT_LOG_BLOCKS
    while True:
        blocks = max(1, math.ceil(span_s / block_s - 1e-9))
        of_one, of_other = (
            np.minimum(((units.at_s - first_s) // block_s).astype(np.int64), blocks - 1)
            for units in (one, other)
        )
        parts = _influence(one, of_one, figure, blocks) - _influence(other, of_other, figure, blocks)
        correlation = _lag_one(parts)
        if correlation <= 2 / math.sqrt(blocks) or blocks < 2 * SHORT_LOG_BLOCKS:
            break
        block_s *= 2
    if blocks < LEAST_BLOCKS:
        return None
    rng = stream(0, "block bootstrap", figure)
    many = figure in one.quantiles and max(len(one.at_s), len(other.at_s)) > MANY_UNITS
    resamples = FEW_RESAMPLES if many else RESAMPLES
    weights = rng.multinomial(blocks, np.full(blocks, 1 / blocks), size=resamples).astype(np.float64)
    drawn = _resampled(one, of_one, figure, weights) - _resampled(other, of_other, figure, weights)
    drawn = drawn[np.isfinite(drawn)]
    if len(drawn) < resamples / 2:
        return None
    # Blocks drawn with replacement vary by (B - 1) / B of what blocks do.
    error = float(drawn.std()) * math.sqrt(blocks / (blocks - 1))
    half = student_quantile(0.975, blocks - 1) * error
    p = 2 * student_tail(abs(difference) / error, blocks - 1) if error > 0 else float(difference == 0)
    method = f"block bootstrap over {blocks} blocks of {one.name}"
    return BlockDifference(
        Interval(difference - half, difference + half, 0.95, method), p, blocks, block_s, correlation
    )


def _sums(values: Floats, block: NDArray[np.int64], blocks: int) -> tuple[Floats, Floats]:
    """The sum of the values in each block, and how many there are."""
    there = np.isfinite(values)
    sums = np.bincount(block[there], values[there], blocks).astype(np.float64)
    return sums, np.bincount(block[there], minlength=blocks).astype(np.float64)


def _resampled(units: Units, block: NDArray[np.int64], figure: str, weights: Floats) -> Floats:
    """float64[resamples]: the figure where each block counts as often as the weights say."""
    blocks = weights.shape[1]
    if figure in units.totals:
        return weights @ _sums(units.totals[figure], block, blocks)[0]
    if figure in units.means:
        sums, counts = _sums(units.means[figure], block, blocks)
        with np.errstate(invalid="ignore", divide="ignore"):
            means: Floats = (weights @ sums) / (weights @ counts)
        return means
    values, share = units.quantiles[figure]
    order = np.argsort(values)
    order = order[np.isfinite(values[order])]
    ordered = block[order]
    quantiles = np.full(len(weights), np.nan)
    for row, weight in enumerate(weights):
        reached = np.cumsum(weight[ordered])
        if len(reached) and reached[-1] > 0:
            quantiles[row] = values[order[np.searchsorted(reached, share * reached[-1])]]
    return quantiles


def _influence(units: Units, block: NDArray[np.int64], figure: str, blocks: int) -> Floats:
    """float64[blocks]: how much each block moves the figure, up to a factor for quantiles."""
    if figure in units.totals:
        return _sums(units.totals[figure], block, blocks)[0]
    values = units.means[figure] if figure in units.means else units.quantiles[figure][0]
    if figure in units.quantiles:
        share = units.quantiles[figure][1]
        there = np.isfinite(values)
        at = np.quantile(values[there], share) if there.any() else 0.0
        values = np.where(there, (values > at).astype(np.float64), np.nan)
    sums, counts = _sums(values, block, blocks)
    total = counts.sum()
    mean = sums.sum() / total if total else 0.0
    influence: Floats = (sums - mean * counts) / max(total, 1.0)
    return influence


def _lag_one(values: Floats) -> float:
    """The correlation of neighbours."""
    gaps = values - values.mean()
    spread = float((gaps**2).sum())
    return float((gaps[1:] * gaps[:-1]).sum()) / spread if spread > 0 else 0.0
