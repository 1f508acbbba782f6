"""A belief about cost over batch size: a smooth curve with noise, learned from completed and stopped attempts.

Log cost over log2 batch size is a mixture. Each of its parts has a shape that follows from what an epoch costs and how
many are needed (`Shapes`), an unknown level, a smooth process around the shape and a small deviation of its own at each
size; parts count by how well they explain what was seen.

What is learned of a size is the mean of what its attempts cost, not of their logarithms: where few runs take very long,
they decide the mean. An attempt that was stopped costs what it used up and a retry at the cheapest size. The noise of a
size is the relative variance of these charges, shrunk to what all sizes vary: a size with a heavy tail does not make the
others look noisy. Where no attempt at a size has completed, a stopped one says only that it would have cost more; it
enters as the normal observation that has the same effect on the belief.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from forerun.energy.policy.view import Floats


@dataclass(frozen=True, kw_only=True)
class CurvePrior:
    """How costs differ between sizes before any is seen; standard deviations are of log cost.

    level_sd: of the common level (default 1). shape_sd: of the smooth process (default 0.6), whose correlation length is
    length_octaves (default 4). own_sd: of each size's deviation (default 0.05). noise_sd: of one run (default 0.05), worth
    noise_weight observations (default 3). rounding: whole epochs add this over their number to `own_sd` and `noise_sd`
    (default 0). epoch_sd: of measured log epoch costs around a shape's (default 0.05). waiting_sd: of the share of an epoch
    that a GPU waits, around a shape's (default 0.3).
    """

    level_sd: float = 1.0
    shape_sd: float = 0.6
    length_octaves: float = 4.0
    own_sd: float = 0.05
    noise_sd: float = 0.05
    noise_weight: float = 3.0
    rounding: float = 0.0
    epoch_sd: float = 0.05
    waiting_sd: float = 0.3

    def covariance(self, sizes: Floats) -> Floats:
        """Covariance of log cost between sizes where trainings take many epochs, float64[S, S]."""
        octaves = np.log2(sizes)
        apart = (octaves[:, None] - octaves[None, :]) / self.length_octaves
        smooth: Floats = self.shape_sd**2 * np.exp(-(apart**2) / 2) + self.level_sd**2
        return smooth + self.own_sd**2 * np.eye(len(sizes))


@dataclass(frozen=True)
class Shapes:
    """H curves that costs may follow, each up to its level: float64[H, S].

    `log_cost` to the target, `log_epoch` of one epoch, and `waiting`, the share of an epoch in which the GPU does not
    compute.
    """

    log_cost: Floats
    log_epoch: Floats
    waiting: Floats

    @staticmethod
    def known(log_cost: Floats) -> Shapes:
        """One curve, known beforehand."""
        nothing = np.zeros((1, len(log_cost)))
        return Shapes(log_cost[None, :], nothing, nothing)

    @staticmethod
    def trade_offs(sizes: tuple[int, ...]) -> Shapes:
        """What larger batches save and cost, for a grid of two sizes x, y.

        An epoch costs 1 + x / b: computing, and a fixed overhead a step. It takes 1 + b / y epochs: below the critical
        batch size y every sample counts, above it more are needed [McCandlish et al., An empirical model of
        large-batch training, 2018]. Either term may be absent.
        """
        octaves = np.log2(np.array(sizes, dtype=np.float64))
        grid = np.linspace(octaves[0] - 3, octaves[-1] + 3, 9)
        nothing = [np.zeros(len(sizes))]
        overhead = nothing + [np.log1p(2.0 ** (x - octaves)) for x in grid]
        more = nothing + [np.log1p(2.0 ** (octaves - y)) for y in grid]
        log_epoch = np.repeat(overhead, len(more), axis=0)
        return Shapes(log_epoch + np.tile(more, (len(overhead), 1)), log_epoch, 1 - np.exp(-log_epoch))


class CostCurve:
    """The belief about log cost at each batch size.

    sizes: ascending. prior: spreads before anything is seen. shapes: curves that costs may follow (default: flat).

    `completed`, `stopped` list the log costs seen at each size, the stopped ones as lower limits. `epochs` is the
    fewest that a training took (infinite before any).
    """

    def __init__(self, sizes: tuple[int, ...], prior: CurvePrior, shapes: Shapes | None = None) -> None:
        self._prior = prior
        self._covariance = prior.covariance(np.array(sizes, dtype=np.float64))
        self._shapes = shapes or Shapes.known(np.zeros(len(sizes)))
        self.completed: list[list[float]] = [[] for _ in sizes]
        self.stopped: list[list[float]] = [[] for _ in sizes]
        self.epochs = math.inf
        #: of completed and of stopped attempts at each size: their number, sum of costs and of squared costs, in
        #: units of the first cost
        self._sums = np.zeros((2, 3, len(sizes)))
        self._log_epoch: dict[int, float] = {}
        self._waiting: dict[int, float] = {}
        self._level = math.nan
        #: each shape through the first cost, float64[H, S], and what was measured of epochs says of it, float64[H]
        self._start = np.full(self._shapes.log_cost.shape, math.nan)
        self._fit = np.zeros(len(self._start))
        self._noise, self._own = np.zeros(len(sizes)), np.eye(len(sizes))
        self._posterior: tuple[Floats, Floats] | None = None

    def add(self, size: int, log_cost: float, *, completed: bool) -> None:
        """One attempt at the size of this index.

        log_cost: what it cost. completed: whether it reached; else the cost is a lower limit.
        """
        if math.isnan(self._level):
            self._level, shape = log_cost, self._shapes.log_cost
            self._start = log_cost + shape - shape[:, [size]]
        (self.completed if completed else self.stopped)[size].append(log_cost)
        cost = math.exp(log_cost - self._level)
        self._sums[0 if completed else 1, :, size] += (1, cost, cost * cost)
        self._posterior = None

    def add_epoch(self, size: int, log_cost: float, waiting: float) -> None:
        """What was measured of an epoch at the size of this index.

        log_cost: of the epoch. waiting: share of it that the GPU seems to wait.
        """
        self._log_epoch[size], self._waiting[size] = log_cost, waiting
        self._fit, self._posterior = self._epoch_fit(), None

    def restart(self, observations: list[tuple[int, float, bool]]) -> None:
        """Start again from these observations: (index, log cost, completed). What an epoch costs stays known."""
        for store in (self.completed, self.stopped):
            for values in store:
                values.clear()
        self._sums[:], self._start[:] = 0, math.nan
        self._level, self._posterior = math.nan, None
        for size, log_cost, completed in observations:
            self.add(size, log_cost, completed=completed)

    def noise_variance(self, size: int) -> float:
        """Variance of one run's log cost at the size of this index."""
        self.posterior()
        return float(self._noise[size])

    def _charges(self) -> tuple[Floats, Floats, Floats]:
        """Number of attempts at each size that has completed, log of what they cost on average, and noise variance."""
        prior = self._prior
        done, cut = self._sums
        counts, mean = np.zeros(done.shape[1]), np.ones(done.shape[1])
        squares = np.zeros(done.shape[1])
        known = done[0] > 0
        if known.any():
            n, total, square = done[:, known] + cut[:, known]
            retry = float((total / done[0, known]).min())
            counts[known] = n
            mean[known] = (total + retry * cut[0, known]) / n
            square = square + 2 * retry * cut[1, known] + retry**2 * cut[0, known]
            squares[known] = np.maximum(0, square / mean[known] ** 2 - n)
        freedom = np.maximum(0, counts - 1)
        weight = prior.noise_weight
        before = prior.noise_sd**2 + (prior.rounding / self.epochs) ** 2
        # Precisions are pooled, not variances: one size with a heavy tail leaves the others as precise as they are.
        each = (weight * before + squares) / (weight + freedom)
        pooled = (weight + freedom.sum()) / (weight / before + freedom @ (1 / each))
        noise: Floats = (weight * pooled + squares) / (weight + freedom)
        return counts, self._level + np.log(mean), noise

    def posterior(self) -> tuple[Floats, Floats]:
        """Mean float64[S] and covariance float64[S, S] of log cost; the level is nan before anything was seen."""
        if self._posterior is None:
            counts, log_mean, self._noise = self._charges()
            noise = self._noise
            precision = counts / noise
            weighted = np.where(counts > 0, precision * log_mean, 0.0)
            posterior = self._given(precision, weighted)
            if any(cut and not done for cut, done in zip(self.stopped, self.completed)):
                more, sums = self._from_stopped(*posterior, noise)
                posterior = self._given(precision + more, weighted + sums)
            self._posterior = posterior
        return self._posterior

    def _given(self, precision: Floats, weighted: Floats) -> tuple[Floats, Floats]:
        """Condition on one summary a size: total precision of what was seen, and precision-weighted log costs."""
        seen = np.flatnonzero(precision)
        prior = self._covariance + self._own * (self._prior.rounding / self.epochs) ** 2
        if not len(seen):
            return _mixed(self._start, prior, self._fit)
        away = weighted[seen] / precision[seen] - self._start[:, seen]
        across = prior[:, seen]
        inner = across[seen] + np.diag(1 / precision[seen])
        weights = np.linalg.solve(inner, across.T).T
        fit = self._fit - 0.5 * np.einsum("hs,hs->h", away, np.linalg.solve(inner, away.T).T)
        return _mixed(self._start + away @ weights.T, prior - weights @ across.T, fit)

    def _epoch_fit(self) -> Floats:
        """Log likelihood of each shape by what was measured of epochs, float64[H]."""
        at = list(self._log_epoch)
        away = np.array(list(self._log_epoch.values())) - self._shapes.log_epoch[:, at]
        away -= away.mean(axis=1, keepdims=True)
        waits = np.array(list(self._waiting.values())) - self._shapes.waiting[:, at]
        off = (away**2).sum(axis=1) / self._prior.epoch_sd**2
        fit: Floats = -0.5 * (off + (waits**2).sum(axis=1) / self._prior.waiting_sd**2)
        return fit

    def _from_stopped(self, mean: Floats, covariance: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """Stopped attempts at sizes that never completed as normal observations with the same first two moments.

        Assumed-density filtering: a log cost known to exceed c has, against its prediction N(m, s^2) with
        z = (c - m) / s, hazard h and w = h (h - z), the effect of an observation m + s h / w with noise s^2 / w less
        the belief's own variance: none at all where c lies far below the prediction, an exact one far above.
        """
        precision, weighted = np.zeros(len(mean)), np.zeros(len(mean))
        for size, values in enumerate(self.stopped):
            if self.completed[size]:
                continue
            own, spread = float(covariance[size, size]), float(noise[size])
            s = math.sqrt(own + spread)
            for value in values:
                z = (value - float(mean[size])) / s
                h = hazard(z)
                w = min(h * (h - z), 1 - 1e-9)
                if w < 1e-6:
                    continue
                each = 1 / max(s * s / w - own, spread)
                precision[size] += each
                weighted[size] += each * (float(mean[size]) + s * h / w)
        return precision, weighted


def _mixed(means: Floats, covariance: Floats, log_weight: Floats) -> tuple[Floats, Floats]:
    """Mean and covariance of a mixture of normals that differ in their means.

    means: float64[H, S]. covariance: float64[S, S], of all. log_weight: float64[H], up to a constant.
    """
    share = np.exp(log_weight - log_weight.max())
    share /= share.sum()
    mean = share @ means
    apart = means - mean
    return mean, covariance + (apart * share[:, None]).T @ apart


def hazard(z: float) -> float:
    """Density over survival of the standard normal: the mean of what lies beyond z."""
    if z > 20:  # the survival underflows; the asymptotic form is exact to 1e-5 there
        return z + 1 / z
    survival = 0.5 * math.erfc(z / math.sqrt(2))
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi) / survival
