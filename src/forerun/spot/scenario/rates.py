"""Rates that are not known: what a recording had stretch by stretch, and the rates of a trial that it leaves possible.

A recording is cut into stretches as long as the forecast. The rate of a stretch is gamma distributed around a mean, counts
are Poisson, and both the mean and the shape are drawn from their posterior given the counts, with the uniform shrinkage
prior of Christiansen and Morris (1997). So few stretches, or stretches that differ, give trials that differ.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.core.rng import stream
from forerun.core.scenario.numbers import NotNegative, Whole
from forerun.core.scenario.spec import Spec

Floats = NDArray[np.float64]

SHRINKAGES: Final = np.linspace(0.005, 0.995, 60)
"""Uniform a priori: 1 / (1 + shape), by how much one expected event would move the rate of a stretch."""
MEANS: Final = np.exp(np.linspace(-4.0, 4.0, 161))
"""Over the rate of all stretches together; uniform in the logarithm a priori."""
MOST: Final = 100.0
"""A trial's rate, over the rate of all stretches together, at most and (inverted) at least."""

TRIALS: Final = 8192
"""Trials whose draws are remembered: candidates of a plan, and assumptions moved, meet the same ones again."""


class Stretches(Spec, frozen=True, kw_only=True):
    """What a recording had in stretches as long as the forecast; each trial draws rates of its own from it.

    removals, adds: in each stretch, of what the process counts: events (`poisson`), or nodes (`per_node`, `lifetimes`).
    removal_h, add_h: the hours of each stretch in which these could come: with a node there, and with one missing
    (`poisson`), or hours of nodes there, and of nodes missing.
    """

    removals: tuple[Whole, ...]
    adds: tuple[Whole, ...]
    removal_h: tuple[NotNegative, ...]
    add_h: tuple[NotNegative, ...]

    def problems(self) -> list[tuple[str, str]]:
        """Counts and hours belong together, and there is something to draw from."""
        problems = []
        for counts, hours in (("removals", "removal_h"), ("adds", "add_h")):
            seen, in_h = getattr(self, counts), getattr(self, hours)
            if len(seen) != len(in_h):
                problems.append((hours, f"has {len(in_h)} stretches, and {counts} has {len(seen)}"))
            elif not sum(seen):
                problems.append((counts, "has none in all stretches: the rate would be that of nothing"))
            elif any(n and not h for n, h in zip(seen, in_h, strict=True)):
                problems.append((hours, f"is 0 in a stretch with {counts}"))
        return problems

    def factors(self, seed: int, trial: int) -> tuple[float, float]:
        """The rates of removals and of additions in a trial, over those of all stretches together."""
        return _factors(self, seed, trial)


class _Posterior:
    """What counts say of the rate of another stretch.

    Parameters
    ----------
    counts : float64[stretches].
    hours : float64[stretches], above 0, in which they came.
    """

    def __init__(self, counts: Floats, hours: Floats) -> None:
        shapes = ((1.0 - SHRINKAGES) / SHRINKAGES)[:, None]
        # Each stretch adds the log likelihood of a negative binomial count, up to what does not depend on shape and mean.
        logs = np.zeros((SHRINKAGES.size, MEANS.size))
        expected_h = hours / hours.sum() * counts.sum()
        for count, expected in zip(counts.tolist(), expected_h.tolist(), strict=True):
            mean = MEANS * expected
            rising = np.array([math.lgamma(count + k) - math.lgamma(k) for k in shapes[:, 0]])[:, None]
            logs += rising + shapes * np.log(shapes) + count * np.log(mean)
            logs -= (shapes + count) * np.log(shapes + mean)
        weights = np.exp(logs - logs.max())
        self._below = np.cumsum(weights / weights.sum())
        self._shapes = shapes[:, 0]

    def factor(self, random: np.random.Generator) -> float:
        """The rate of another stretch, over the rate of all together."""
        place = int(np.searchsorted(self._below, random.random() * self._below[-1]))
        shape, mean = self._shapes[place // MEANS.size], MEANS[place % MEANS.size]
        drawn = float(random.gamma(shape) / shape * mean)
        return min(MOST, max(1.0 / MOST, drawn))


@lru_cache(maxsize=TRIALS)
def _factors(seen: Stretches, seed: int, trial: int) -> tuple[float, float]:
    random = stream(seed, "rates of a trial", trial)
    return (
        _posterior(seen.removals, seen.removal_h).factor(random),
        _posterior(seen.adds, seen.add_h).factor(random),
    )


@lru_cache(maxsize=64)
def _posterior(counts: tuple[int, ...], hours: tuple[float, ...]) -> _Posterior:
    """The posterior of stretches in which something could come."""
    seen = np.array([pair for pair in zip(counts, hours, strict=True) if pair[1] > 0], dtype=np.float64)
    return _Posterior(seen[:, 0], seen[:, 1])
