"""The statistics of every domain: quantiles, confidence intervals and tests, one method for each kind of quantity.

Which method belongs to which quantity, and what each assumes, is in docs/development/statistics.md. scipy is not imported
(its statistics module takes several times as long to import as the command line needs to answer); the tests compare with it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Interval:
    """A confidence interval [low, high] of a summary figure, and the method."""

    low: float
    high: float
    confidence: float = 0.95
    method: str = ""


#: degrees of freedom from which Student's t is computed from its expansion about the normal distribution
_LARGE_DEGREES = 1000.0


def normal_quantile(share: float) -> float:
    """The quantile of the standard normal distribution: z with P(Z <= z) = share. Raises ValueError unless 0 < share < 1."""
    return student_quantile(share, math.inf)


@functools.lru_cache(maxsize=1024)
def student_quantile(share: float, degrees: float) -> float:
    """The quantile of Student's t distribution: t with P(T <= t) = share, for any degrees of freedom >= 1.

    With infinite degrees of freedom it is that of the normal distribution. Bisects the tail probability down to neighbouring
    floating-point numbers. Raises ValueError unless 0 < share < 1 and degrees >= 1.
    """
    if not 0 < share < 1:
        raise ValueError(f"a share lies strictly between 0 and 1, not {share}")
    if not degrees >= 1:
        raise ValueError(f"degrees of freedom are at least 1, not {degrees}")
    if share < 0.5:
        return -student_quantile(1 - share, degrees)
    low, high = 0.0, 1.0
    while student_tail(high, degrees) > 1 - share:
        low, high = high, high * 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if student_tail(middle, degrees) > 1 - share else (low, middle)
    return high


def student_tail(t: float, degrees: float) -> float:
    """P(T > t) for Student's t, to full relative accuracy far out.

    By the continued fraction of the incomplete beta function; from a thousand degrees of freedom by Hill's expansion about
    the normal distribution [Communications of the ACM 13 (1970), algorithm 395], where the fraction loses digits.
    """
    if t <= 0:
        return 0.5 if t == 0 else 1 - student_tail(-t, degrees)
    if degrees == math.inf:
        return 0.5 * math.erfc(t / math.sqrt(2))
    if degrees >= _LARGE_DEGREES:
        a = degrees - 0.5
        b = 48 * a * a
        y = a * math.log1p(t * t / degrees)
        numerator = (((-0.4 * y - 3.3) * y - 24) * y - 85.5) / (0.8 * y * y + 100 + b)
        return 0.5 * math.erfc(((numerator + y + 3) / b + 1) * math.sqrt(y / 2))
    whole = degrees + t * t
    return 0.5 * _incomplete_beta(degrees / 2, 0.5, degrees / whole, t * t / whole)


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """The regularised incomplete beta function I_x(a, b). rest: 1 - x, which near x = 1 only the caller knows exactly."""
    if x == 0 or rest == 0:
        return 1.0 if x else 0.0
    logs = a * (math.log1p(-rest) if rest < 0.5 else math.log(x)) + b * math.log(rest)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + logs)
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1 - front * _beta_fraction(b, a, rest) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    # Lentz's evaluation of the continued fraction of the incomplete beta function.
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 500):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + numerator * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + numerator / c
            c = c if abs(c) > tiny else tiny
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """Student's interval of the mean of independent replications; needs at least two."""
    sample = np.asarray(values, dtype=float)
    count = len(sample)
    if count < 2:
        raise ValueError(f"an interval needs at least two replications, {count} given")
    mean = float(sample.mean())
    half = student_quantile(0.5 + confidence / 2, count - 1) * float(sample.std(ddof=1)) / math.sqrt(count)
    return Interval(mean - half, mean + half, confidence, f"Student's t over {count} replications")


def paired_interval(ones: ArrayLike, others: ArrayLike, confidence: float = 0.95) -> Interval:
    """Student's interval of the mean difference of pairs that met the same randomness."""
    one, other = np.asarray(ones, dtype=float), np.asarray(others, dtype=float)
    if one.shape != other.shape:
        raise ValueError(f"pairs need equal lengths, {one.shape} and {other.shape} given")
    interval = mean_interval(one - other, confidence)
    return Interval(interval.low, interval.high, confidence, f"paired Student's t over {len(one)} seeds")


#: of the median absolute value of resamples: values well below it are on a linear scale, those above on a logarithmic one
RESAMPLE_SCALE = 0.1
#: the same where every value is on the linear scale
_LINEAR_SCALE = 1e6
#: how much farther from 0 the far end of an interval over resamples is than their spread says: most samples with heavy tails
#: lack the largest values. This and the scale were chosen on one set of worlds and measured on another
#: (`benchmarks/statistics/resample.py`)
RESAMPLE_FARTHER = 1.2
#: resamples of which the mean is so many times the median say that what is measured is too rare for the sample
RARE = 10.0


def resample_interval(
    values: ArrayLike, blocks: int, confidence: float = 0.95, *, linear: bool = False
) -> Interval | None:
    """Interval of a mean from one sample: the spread of a figure over resamples of it. More of them do not narrow it.

    Resamples of one sample are no replications: their mean comes ever nearer to that of the sample, not to the truth.
    Figures of queues are skewed, so ends are computed on a scale that is linear near 0 and logarithmic beyond.

    blocks: of the sample, each drawn with replacement. linear: for sums over recorded runs, which are not skewed so.
    None where it would be wrong: fewer than two resamples or blocks, or a figure that is near 0 in most resamples and large
    in some.
    """
    drawn = _on_log_scale(values, blocks, linear)
    if drawn is None:
        return None
    scale, centre, error, degrees = drawn
    half, side = student_quantile(0.5 + confidence / 2, degrees) * error, math.copysign(1.0, centre)
    gaps = (-half, (1.0 if linear else RESAMPLE_FARTHER) * half)
    low, high = sorted(scale * math.sinh(max(-700.0, min(700.0, centre + side * gap))) for gap in gaps)
    of = f"{blocks} recorded runs" if linear else f"one log in {blocks} blocks"
    method = f"spread of {np.size(values)} resamples of {of}"
    return Interval(low, high, confidence, method)


def resample_p(values: ArrayLike, blocks: int, *, linear: bool = False) -> float | None:
    """Two-sided p value of no mean difference, by the same method: it is 0.05 where a 95 % interval ends at 0."""
    drawn = _on_log_scale(values, blocks, linear)
    if drawn is None:
        return None
    _, centre, error, degrees = drawn
    return 2 * student_tail(abs(centre) / error, degrees) if error > 0 else float(centre == 0)


def _on_log_scale(values: ArrayLike, blocks: int, linear: bool) -> tuple[float, float, float, int] | None:
    """The scale, and on it the centre, the error and the degrees of freedom; None where there is no interval."""
    sample = np.asarray(values, dtype=float)
    count, size = len(sample), np.abs(sample)
    if min(count, blocks) < 2 or size.mean() > RARE * np.median(size):
        return None
    scale = (_LINEAR_SCALE if linear else RESAMPLE_SCALE) * float(np.median(size)) or 1.0
    drawn = np.arcsinh(sample / scale)
    error = float(drawn.std(ddof=1)) * math.sqrt((1 + 1 / count) * blocks / (blocks - 1))
    return scale, float(drawn.mean()), error, min(count, blocks) - 1


def two_level_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """Interval of the grand mean where both a path and what happens on it vary.

    values: float64[paths, seeds], NaN where there is none. Paths are independent, seeds within a path share it: the
    path means are the independent observations, and their spread already includes the spread within, so Student's t is
    over the paths.
    """
    table = np.asarray(values, dtype=float)
    means = path_means(table)
    interval = mean_interval(means, confidence)
    most = int(np.isfinite(table).sum(axis=1).max(initial=0))
    method = f"Student's t over {len(means)} paths of {most} seeds each"
    return Interval(interval.low, interval.high, confidence, method)


def path_means(values: ArrayLike) -> NDArray[np.float64]:
    """float64[paths]: the mean of each row of float64[paths, seeds] that has a value; NaN counts as none."""
    table = np.asarray(values, dtype=float)
    if table.ndim != 2:
        raise ValueError("values are a table of paths by seeds")
    there = np.isfinite(table)
    counts = there.sum(axis=1)
    sums = np.where(there, table, 0.0).sum(axis=1)
    means: NDArray[np.float64] = sums[counts > 0] / counts[counts > 0]
    return means


def proportion_interval(successes: int, trials: int, confidence: float = 0.95, over: str = "") -> Interval:
    """Wilson's score interval of a proportion [Journal of the American Statistical Association 22 (1927)]; with no success
    or nothing else the exact binomial bound [Clopper and Pearson, Biometrika 26 (1934)], as Wilson's is too narrow there.

    over: what the trials are, for the interval's method (default: "successes of trials"). Raises ValueError
    unless 0 <= successes <= trials and trials >= 1.
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"{successes} successes in {trials} trials")
    over = over or f"{successes} of {trials}"
    if successes in (0, trials):
        most = 1 - (0.5 - confidence / 2) ** (1 / trials)
        low, high = (1 - most, 1.0) if successes else (0.0, most)
        return Interval(low, high, confidence, f"exact binomial bound, {over}")
    z = normal_quantile(0.5 + confidence / 2)
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return Interval(
        max(0.0, centre - half), min(1.0, centre + half), confidence, f"Wilson's interval, {over}"
    )


def standard_error(values: ArrayLike) -> float:
    """Standard error of the mean of independent values; infinite for fewer than two."""
    sample = np.asarray(values, dtype=float)
    return float(sample.std(ddof=1)) / math.sqrt(len(sample)) if len(sample) > 1 else math.inf


def paired_p(ones: ArrayLike, others: ArrayLike) -> float:
    """Two-sided p value of Student's paired test of no difference (1 where no pair differs)."""
    differences = np.asarray(ones, dtype=float) - np.asarray(others, dtype=float)
    spread = float(differences.std(ddof=1)) if len(differences) > 1 else 0.0
    mean = float(differences.mean())
    if spread == 0:
        return 1.0 if mean == 0 else 0.0
    t = abs(mean) / (spread / math.sqrt(len(differences)))
    return 2 * student_tail(t, len(differences) - 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: comparing each to 0.05 keeps the chance of any false claim below 5 %."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


def chosen_best_p(p_values: Sequence[float], alternatives: int) -> list[float]:
    """Adjust p values of comparisons with the best of several alternatives, where the same data chose that best.

    Holm's correction assumes a reference that was fixed before. A best that is chosen is the extreme of all alternatives,
    so any of their pairs may become the comparison: each p value counts once for every pair (Bonferroni's bound over all
    pairwise comparisons, as for Tukey's). Comparing each to 0.05 keeps the chance of any false claim below 5 %, whatever
    the correlation on common seeds and however the spreads differ, as far as the p values themselves are right.

    p_values: two-sided, of each other alternative against the best. alternatives: how many there are, the best included.
    """
    pairs = alternatives * (alternatives - 1) / 2
    return [min(1.0, p * pairs) for p in p_values]


def skewness(values: ArrayLike) -> float:
    """The sample's skewness, adjusted for its size; 0 for fewer than three values or equal ones."""
    sample = np.asarray(values, dtype=float)
    n, spread = len(sample), float(sample.std())
    if n < 3 or spread == 0:
        return 0.0
    return float((((sample - sample.mean()) / spread) ** 3).mean()) * math.sqrt(n * (n - 1)) / (n - 2)
