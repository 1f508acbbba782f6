"""Sizes of batches: how many nodes vanish, or come, at one instant."""

from __future__ import annotations

import math
from typing import Annotated, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from forerun.core.scenario.numbers import NotNegative, Share
from forerun.core.scenario.spec import NamedSpec, Spec

LARGEST_BATCH = 512


class Marks(NamedSpec, frozen=True, kw_only=True, tag="marks"):
    """Batch sizes as the 2021 notebook draws them: a normal, rounded, made positive, with 0 counted as 1.

    It does not keep the mean it is given: a mean of 2.41 and deviation of 2.09 give a mean of 2.76.
    """

    mean: float = 0.0
    std: NotNegative = 1.0

    def probabilities(self) -> NDArray[np.float64]:
        """float64[k]: probability of a batch of 1 ... k nodes."""
        top = min(LARGEST_BATCH, math.ceil(abs(self.mean) + 9 * self.std) + 1)
        masses = [self._mass(size) + (self._mass(-size) if size else 0.0) for size in range(top + 1)]
        masses[1] += masses[0]
        return np.array(masses[1:])

    def _mass(self, rounded: int) -> float:
        """Probability that the normal is rounded to a number."""
        if self.std == 0:
            return float(round(self.mean) == rounded)
        low, high = (rounded - 0.5 - self.mean) / self.std, (rounded + 0.5 - self.mean) / self.std
        return 0.5 * (math.erfc(-high / math.sqrt(2)) - math.erfc(-low / math.sqrt(2)))


class Geometric(NamedSpec, frozen=True, kw_only=True, tag="geometric"):
    """Batch sizes 1, 2, ... with P(n) = p (1 - p)^(n - 1): the shape that fits the measured removals."""

    p: Annotated[float, msgspec.Meta(gt=0, le=1)]

    def probabilities(self) -> NDArray[np.float64]:
        """float64[k]: probability of a batch of 1 ... k nodes."""
        if self.p == 1.0:
            return np.array([1.0])
        top = min(LARGEST_BATCH, math.ceil(math.log(1e-12) / math.log(1 - self.p)))
        return np.asarray(self.p * (1 - self.p) ** np.arange(top), dtype=np.float64)


class Empirical(NamedSpec, frozen=True, kw_only=True, tag="empirical"):
    """Batch sizes as counted: `counts[i]` batches of i + 1 nodes."""

    counts: tuple[NotNegative, ...]

    def problems(self) -> list[tuple[str, str]]:
        """Something was counted."""
        return [] if sum(self.counts) > 0 else [("counts", "must be finite, not negative, and not all zero")]

    def probabilities(self) -> NDArray[np.float64]:
        """float64[k]: probability of a batch of 1 ... k nodes."""
        counts = np.asarray(self.counts, dtype=np.float64)
        return np.asarray(counts / counts.sum(), dtype=np.float64)

    def resampled(self, random: np.random.Generator) -> Empirical:
        """Shares that are as plausible given the counts: a Bayesian bootstrap."""
        counts = np.asarray(self.counts, dtype=np.float64)
        weights = np.where(counts > 0, random.gamma(np.maximum(counts, 1e-9)), 0.0)
        return Empirical(counts=tuple(weights.tolist()))


BatchSizes: TypeAlias = Marks | Geometric | Empirical


class Burst(Spec, frozen=True, kw_only=True):
    """Now and then a batch is large.

    probability: of a large batch (default 0). low, high: its size is uniform between them (default 11 to 31 nodes).
    """

    probability: Share = 0.0
    low: int = 11
    high: int = 31

    def problems(self) -> list[tuple[str, str]]:
        """A range that is one."""
        if 1 <= self.low <= self.high <= LARGEST_BATCH:
            return []
        what = f"1 <= low <= high <= {LARGEST_BATCH} is needed, not {self.low} and {self.high}"
        return [("low", what)]


def with_burst(sizes: NDArray[np.float64], burst: Burst) -> NDArray[np.float64]:
    """float64[k]: batch sizes of which some are bursts."""
    mixed = np.zeros(max(sizes.size, burst.high if burst.probability else 0))
    mixed[: sizes.size] = sizes * (1.0 - burst.probability)
    if burst.probability:
        mixed[burst.low - 1 : burst.high] += burst.probability / (burst.high - burst.low + 1)
    return mixed
