"""Which law the times of failures follow: Poisson, Weibull gaps, failures that cause others (Hawkes), or storms (MMPP).

Each law is fitted by maximum likelihood of the same data, failures from time 0 to the end of the log, by a process in its
steady state. Akaike's criterion compares them; a difference of less than `TIE` does not tell two laws apart. A law may be
the best of all and wrong: its residuals say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from forerun.core.result.stats import normal_quantile
from forerun.spot.reserved.scenario import (
    LEAST_SHAPE,
    MOST_BRANCHING,
    MOST_SHAPE,
    Arrivals,
    Hawkes,
    ModulatedPoisson,
)
from forerun.spot.traces.fit import Rate

Floats: TypeAlias = NDArray[np.float64]
LawName: TypeAlias = Literal["poisson", "weibull", "hawkes", "modulated"]

TIE: Final = 2.0
"""Laws whose criteria differ by no more count as equal."""
FEWEST: Final = 20
"""Failures below which laws with more than two parameters are not tried."""


@dataclass(frozen=True, slots=True)
class LawFit:
    """A law fitted to the times of failures.

    Parameters
    ----------
    name : of the law.
    rates : its parameters with 95 % intervals, the mean rate left out.
    log_likelihood : of the log.
    free : number of parameters, the mean rate included.
    residual_p : chance of residuals as far from exponential, if the law holds (Kolmogorov and Smirnov; too large rather than
        too small, because the parameters are fitted to the same log).
    gap_shape, arrivals : as a class of failures has them.
    """

    name: LawName
    rates: tuple[Rate, ...]
    log_likelihood: float
    free: int
    residual_p: float
    gap_shape: float = 1.0
    arrivals: Arrivals | None = None

    @property
    def aic(self) -> float:
        """Akaike's criterion: the smaller, the better."""
        return 2 * self.free - 2 * self.log_likelihood


def fit_laws(times_s: Floats, horizon_s: float) -> tuple[LawFit, ...]:
    """Every law that so many failures allow, the best first.

    Parameters
    ----------
    times_s : float64[failures], ascending without repetition, at least two.
    horizon_s : end of the log.
    """
    fits = [_poisson(times_s, horizon_s), _weibull(times_s, horizon_s)]
    if times_s.size >= FEWEST:
        fits += [_hawkes(times_s, horizon_s), _modulated(times_s, horizon_s)]
    return tuple(sorted(fits, key=lambda fit: (fit.aic, fit.free)))


def supported(fits: Sequence[LawFit]) -> tuple[LawFit, ...]:
    """The laws that the log supports: those as good as the best, the simplest first."""
    best = min(fit.aic for fit in fits)
    return tuple(sorted((fit for fit in fits if fit.aic <= best + TIE), key=lambda fit: (fit.free, fit.aic)))


def residual_p(residuals: Floats) -> float:
    """Chance of residuals as far from exponential with mean 1, by Kolmogorov's limit with Stephens' correction (1970)."""
    count = residuals.size
    if count < 2:
        return math.nan
    shares = -np.expm1(-np.sort(residuals))
    steps = np.arange(count + 1) / count
    distance = float(max((steps[1:] - shares).max(), (shares - steps[:-1]).max()))
    scaled = (math.sqrt(count) + 0.12 + 0.11 / math.sqrt(count)) * distance
    if scaled < 0.2:
        return 1.0
    terms = (2 * (-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101))
    return min(1.0, max(0.0, math.fsum(terms)))


def _poisson(times_s: Floats, horizon_s: float) -> LawFit:
    rate = times_s.size / horizon_s
    log_likelihood = times_s.size * math.log(rate) - times_s.size
    return LawFit("poisson", (), log_likelihood, 1, residual_p(np.diff(times_s) * rate))


def _weibull(times_s: Floats, horizon_s: float) -> LawFit:
    from forerun.spot.traces import law_kernel

    residuals = np.empty(times_s.size - 1)

    def likelihood(x: Floats) -> float:
        mean_s, shape = math.exp(-x[0]), math.exp(x[1])
        if not LEAST_SHAPE <= shape <= MOST_SHAPE:
            return -math.inf
        scale_s = mean_s / math.gamma(1 + 1 / shape)
        return float(law_kernel.weibull(times_s, horizon_s, scale_s, shape, mean_s, residuals))

    rate = math.log(times_s.size / horizon_s)
    x, best, errors = _highest(likelihood, [(rate, math.log(shape)) for shape in (0.5, 1.0, 2.0)])
    likelihood(x)
    shape = _positive_rate("gap_shape", "", x[1], errors[1])
    return LawFit("weibull", (shape,), best, 2, residual_p(residuals), gap_shape=round(shape.value, 6))


def _hawkes(times_s: Floats, horizon_s: float) -> LawFit:
    from forerun.spot.traces import law_kernel

    residuals = np.empty(times_s.size - 1)

    def likelihood(x: Floats) -> float:
        if max(map(abs, x)) > 40:
            return -math.inf
        rate, branching, decay = math.exp(x[0]), 1 / (1 + math.exp(-x[1])), math.exp(-x[2])
        if branching > MOST_BRANCHING:
            return -math.inf
        # At time 0 the rate is its mean.
        return float(
            law_kernel.hawkes(
                times_s,
                horizon_s,
                rate * (1 - branching),
                branching * decay,
                decay,
                rate * branching,
                residuals,
            )
        )

    rate = math.log(times_s.size / horizon_s)
    starts = [(rate, at, -rate + math.log(gaps)) for at in (-1.0, 0.5) for gaps in (0.1, 1.0, 10.0, 50.0)]
    x, best, errors = _highest(likelihood, starts)
    likelihood(x)
    low, branching, high = (1 / (1 + math.exp(-x[1] - side * errors[1])) for side in (-1, 0, 1))
    decay = _positive_rate("decay", "h", x[2] - math.log(3600), errors[2])
    law = Hawkes(branching=max(1e-9, branching), decay_s=min(1e14, decay.value * 3600))
    rates = (Rate("branching", "", branching, low, high), decay)
    return LawFit("hawkes", rates, best, 3, residual_p(residuals), arrivals=law)


def _modulated(times_s: Floats, horizon_s: float) -> LawFit:
    from forerun.spot.traces import law_kernel

    residuals = np.empty(times_s.size - 1)

    def law(x: Floats) -> ModulatedPoisson:
        return ModulatedPoisson(
            storm_factor=min(1e6, 1 + math.exp(x[1])),
            mean_calm_s=min(1e14, math.exp(x[2])),
            mean_storm_s=min(1e14, math.exp(x[3])),
        )

    def likelihood(x: Floats) -> float:
        if max(map(abs, x)) > 40:
            return -math.inf
        at = law(x)
        calm, storm = at.rates_per_s(math.exp(x[0]))
        return float(
            law_kernel.modulated(
                times_s, horizon_s, calm, storm, 1 / at.mean_calm_s, 1 / at.mean_storm_s, residuals
            )
        )

    rate = math.log(times_s.size / horizon_s)
    starts = [
        (rate, math.log(factor - 1), -rate + math.log(calm), -rate + math.log(calm / part))
        for factor in (4.0, 20.0)
        for calm in (10.0, 50.0)
        for part in (1.0, 5.0, 20.0)
    ]
    x, best, errors = _highest(likelihood, starts)
    likelihood(x)
    above = _positive_rate("storm_factor", "", x[1], errors[1])
    rates = (
        Rate("storm_factor", "", 1 + above.value, 1 + above.low, 1 + above.high),
        _positive_rate("mean_calm", "h", x[2] - math.log(3600), errors[2]),
        _positive_rate("mean_storm", "h", x[3] - math.log(3600), errors[3]),
    )
    return LawFit("modulated", rates, best, 4, residual_p(residuals), arrivals=law(x))


def _positive_rate(name: str, unit: str, log_value: float, half: float) -> Rate:
    """A positive parameter whose logarithm is known to `half`, the half-width of its interval."""
    low, value, high = (math.exp(log_value + side * half) for side in (-1, 0, 1))
    return Rate(name, unit, value, low, high)


# --------------------------------------------------------------------------- maximum likelihood

SLOPE: Final = 1e-3
"""By how much a parameter is moved for the slopes of a likelihood."""
OPEN: Final = 30.0
"""Half-width of the interval of a logarithm of which the log says nothing."""


def _highest(
    likelihood: Callable[[Floats], float], starts: Sequence[tuple[float, ...]]
) -> tuple[Floats, float, Floats]:
    """The highest of the maxima that are reached from some starts: (place, log likelihood, half-widths of 95 % intervals).

    Intervals are of the observed information, in logarithms; where the log leaves a parameter open, they are `OPEN` wide.
    """
    x, best = max((_climb(likelihood, np.array(start)) for start in starts), key=lambda found: found[1])
    _, curvature = _slopes(likelihood, x)
    try:
        variances = np.diag(np.linalg.inv(-curvature))
    except np.linalg.LinAlgError:
        variances = np.full(x.size, np.nan)
    z = normal_quantile(0.975)
    halves = np.array([min(OPEN, z * math.sqrt(one)) if one > 0 else OPEN for one in variances])
    return x, best, halves


def _climb(likelihood: Callable[[Floats], float], x: Floats) -> tuple[Floats, float]:
    """A local maximum, by Newton's method with damping (Levenberg and Marquardt)."""
    best, damping = likelihood(x), 1.0
    for _ in range(200):
        slope, curvature = _slopes(likelihood, x)
        if not (np.isfinite(slope).all() and np.isfinite(curvature).all()):
            break
        gain = 0.0
        while damping < 1e12:
            step = np.linalg.solve(damping * np.eye(x.size) - curvature, slope)
            after = likelihood(x + np.clip(step, -1.0, 1.0))
            if after > best:
                x, gain, best = x + np.clip(step, -1.0, 1.0), after - best, after
                damping = max(damping / 10, 1e-9)
                break
            damping *= 10
        if gain < 1e-9:
            break
    return x, best


def _slopes(likelihood: Callable[[Floats], float], x: Floats) -> tuple[Floats, Floats]:
    """First and second derivatives, by central differences."""
    size, here = x.size, likelihood(x)
    moves = np.eye(size) * SLOPE
    up, down = (np.array([likelihood(x + side * move) for move in moves]) for side in (1, -1))
    second = np.diag((up - 2 * here + down) / SLOPE**2)
    for i in range(size):
        for j in range(i):
            mixed = sum(
                side * other * likelihood(x + side * moves[i] + other * moves[j])
                for side in (1, -1)
                for other in (1, -1)
            )
            second[i, j] = second[j, i] = mixed / (4 * SLOPE**2)
    return (up - down) / (2 * SLOPE), second
