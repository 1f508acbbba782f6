"""Means, ratios and quantiles over independent trials, each with a 95 % confidence interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.core.result.stats import (
    Interval,
    normal_quantile,
    proportion_interval,
    standard_error,
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over independent trials with its 95 % interval (normal approximation).

    Parameters
    ----------
    mean : over the trials.
    half95 : half-width of the interval.
    trials : how many.
    """

    mean: float
    half95: float
    trials: int

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Estimate:
        """The estimate from one value a trial."""
        half = normal_quantile(0.975) * standard_error(values)
        return cls(float(values.mean()), half, int(values.size))

    @classmethod
    def pooled(cls, parts: Sequence[Estimate]) -> Estimate:
        """The estimate of all trials together, from those of parts of them; that of the only part as it is."""
        if len(parts) == 1:
            return parts[0]
        count = sum(part.trials for part in parts)
        z = normal_quantile(0.975)
        mean = math.fsum(part.mean * part.trials for part in parts) / count
        within = math.fsum(
            (part.half95 / z) ** 2 * part.trials * (part.trials - 1) for part in parts if part.trials > 1
        )
        between = math.fsum(part.trials * (part.mean - mean) ** 2 for part in parts)
        return cls(mean, z * math.sqrt((within + between) / (count - 1) / count), count)

    @property
    def interval(self) -> Interval:
        """The 95 % interval as results show it."""
        return Interval(
            self.mean - self.half95, self.mean + self.half95, method=f"normal, {self.trials} trials"
        )

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.half95:.2g}"


def ratio_estimate(above: Any, below: Any) -> Estimate:
    """A ratio of means, with its interval by linearisation.

    Parameters
    ----------
    above, below : float64[trials], whose means are divided.
    """
    ratio = float(above.mean() / below.mean())
    rest = (above - ratio * below) / below.mean()
    return Estimate(ratio, Estimate.of(rest).half95, int(above.size))


def finish_figures(
    hours: NDArray[np.float64], chances: Mapping[str, int], count: int
) -> tuple[dict[str, float | None], dict[str, Interval]]:
    """Quantiles of the time to the goal, and shares of trials, with their intervals.

    Parameters
    ----------
    hours : float64[trials], infinite where a trial did not get there.
    chances : how many of `count` trials did something, by the name of the share.
    """
    figures: dict[str, float | None] = {}
    intervals: dict[str, Interval] = {}
    for share in (0.05, 0.5, 0.95, 0.99):
        at, name = quantile(hours, share), f"finish_p{round(share * 100)}_h"
        figures[name] = at.value if math.isfinite(at.value) else None
        if math.isfinite(at.high) and hours.size > 1:
            intervals[name] = at.interval
    for name, number in chances.items():
        figures[name] = number / count
        intervals[name] = proportion_interval(number, count, over="over the trials")
    return figures, intervals


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile of the trials, with the 95 % interval that order statistics give.

    Parameters
    ----------
    value : of the quantile.
    low, high : ends of the interval. Infinite where trials are censored.
    """

    value: float
    low: float
    high: float

    @property
    def interval(self) -> Interval:
        """The 95 % interval as results show it."""
        return Interval(self.low, self.high, method="order statistics")


def quantile(values: NDArray[np.float64], share: float) -> Quantile:
    """A quantile and its distribution-free 95 % interval: the two order statistics that enclose it.

    Their ranks are those of the normal approximation to the binomial count of values below the quantile, rounded outwards.
    An end of the interval may be infinite.

    Parameters
    ----------
    values : float64[trials], infinite where a trial is censored.
    share : which quantile, such as 0.95.
    """
    ordered, n = np.sort(values), values.size
    half = normal_quantile(0.975) * math.sqrt(n * share * (1 - share))
    low, high = max(0, math.floor(n * share - half) - 1), min(n - 1, math.ceil(n * share + half))
    at = (
        float(np.quantile(ordered, share))
        if np.isfinite(ordered[-1])
        else float(ordered[math.ceil(n * share) - 1])
    )
    return Quantile(at, float(ordered[low]), float(ordered[high]))
