"""A belief about cost over batch size: a smooth curve with noise, learned from completed and stopped attempts.

Log cost over log2 batch size is a Gaussian process: an unknown level, a smooth shape, and a small deviation of its
own at each size. Noise in log cost is pooled over all sizes. A stopped attempt says only that it would have cost
more; it enters as the normal observation that has the same effect on the belief so far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from forerun.domains.energy.model import Floats


@dataclass(frozen=True, kw_only=True)
class CurvePrior:
    """How costs differ between sizes before any is seen; standard deviations are of log cost.

    `level_sd` of the common level, `shape_sd` of the smooth shape with correlation length `length_octaves`,
    `own_sd` of each size's deviation; `noise_sd` of one run, worth `noise_weight` observations.
    """

    level_sd: float = 1.0
    shape_sd: float = 0.6
    length_octaves: float = 4.0
    own_sd: float = 0.05
    noise_sd: float = 0.05
    noise_weight: float = 3.0

    def covariance(self, sizes: Floats) -> Floats:
        """Covariance of log cost between sizes, float64[S, S]."""
        octaves = np.log2(sizes)
        apart = (octaves[:, None] - octaves[None, :]) / self.length_octaves
        smooth: Floats = self.shape_sd**2 * np.exp(-(apart**2) / 2) + self.level_sd**2
        return smooth + self.own_sd**2 * np.eye(len(sizes))


class CostCurve:
    """The belief. `completed`, `stopped` hold the log costs seen at each size, the stopped as lower limits.

    `expected` float64[S] is a log-cost curve known beforehand, up to its level (another GPU type's, say).
    """

    def __init__(self, sizes: tuple[int, ...], prior: CurvePrior, expected: Floats | None = None) -> None:
        self._prior = prior
        self._covariance = prior.covariance(np.array(sizes, dtype=np.float64))
        self._expected = np.zeros(len(sizes)) if expected is None else expected - expected.mean()
        self.completed: list[list[float]] = [[] for _ in sizes]
        self.stopped: list[list[float]] = [[] for _ in sizes]
        self._level = math.nan
        self._posterior: tuple[Floats, Floats] | None = None

    def add(self, size: int, log_cost: float, *, completed: bool) -> None:
        """One attempt at the size of this index."""
        if math.isnan(self._level):
            self._level = log_cost - float(self._expected[size])
        (self.completed if completed else self.stopped)[size].append(log_cost)
        self._posterior = None

    def forget(self, kept: list[tuple[int, float, bool]]) -> None:
        """Start again from these observations: (index, log cost, completed)."""
        for store in (self.completed, self.stopped):
            for values in store:
                values.clear()
        self._level, self._posterior = math.nan, None
        for size, log_cost, completed in kept:
            self.add(size, log_cost, completed=completed)

    def noise_variance(self) -> float:
        """Variance of one run's log cost, pooled over sizes and shrunk to its prior."""
        squares, freedom = self._prior.noise_weight * self._prior.noise_sd**2, self._prior.noise_weight
        for values in self.completed:
            if len(values) > 1:
                centred = np.array(values) - np.mean(values)
                squares += float(centred @ centred)
                freedom += len(values) - 1
        return squares / freedom

    def posterior(self) -> tuple[Floats, Floats]:
        """Mean float64[S] and covariance float64[S, S] of log cost; the level is nan before anything was seen."""
        if self._posterior is None:
            noise = self.noise_variance()
            counts = np.array([len(values) for values in self.completed], dtype=np.float64)
            sums = np.array([math.fsum(values) for values in self.completed])
            found = self._given(counts / noise, sums / noise)
            if any(self.stopped):
                precision, weighted = self._from_stopped(*found, noise)
                found = self._given(counts / noise + precision, sums / noise + weighted)
            self._posterior = found
        return self._posterior

    def _given(self, precision: Floats, weighted: Floats) -> tuple[Floats, Floats]:
        """Condition on one summary a size: total precision of what was seen, and precision-weighted log costs."""
        seen = np.flatnonzero(precision)
        start = self._level + self._expected
        if not len(seen):
            return start, self._covariance
        away = weighted[seen] / precision[seen] - start[seen]
        inner = self._covariance[np.ix_(seen, seen)] + np.diag(1 / precision[seen])
        across = self._covariance[:, seen]
        weights = np.linalg.solve(inner, across.T).T
        return start + weights @ away, self._covariance - weights @ across.T

    def _from_stopped(self, mean: Floats, covariance: Floats, noise: float) -> tuple[Floats, Floats]:
        """Stopped attempts as normal observations with the same first two moments (assumed-density filtering).

        A log cost known to exceed c has, against its prediction N(m, s^2) with z = (c - m) / s, hazard h and
        w = h (h - z), the effect of an observation m + s h / w with noise s^2 / w less the belief's own variance:
        none at all where c lies far below the prediction, an exact one far above.
        """
        precision, weighted = np.zeros(len(mean)), np.zeros(len(mean))
        for size, values in enumerate(self.stopped):
            own = float(covariance[size, size])
            s = math.sqrt(own + noise)
            for value in values:
                z = (value - float(mean[size])) / s
                h = hazard(z)
                w = min(h * (h - z), 1 - 1e-9)
                if w < 1e-6:
                    continue
                each = 1 / max(s * s / w - own, noise)
                precision[size] += each
                weighted[size] += each * (float(mean[size]) + s * h / w)
        return precision, weighted


def hazard(z: float) -> float:
    """Density over survival of the standard normal: the mean of what lies beyond z."""
    if z > 20:  # the survival underflows; the asymptotic form is exact to 1e-5 there
        return z + 1 / z
    survival = 0.5 * math.erfc(z / math.sqrt(2))
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi) / survival
