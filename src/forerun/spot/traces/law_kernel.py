"""Likelihoods of failure times under each law, and the residuals by which a law is judged.

A residual is what the law expects between two failures, given all before: under the right law they are independent and
exponential with mean 1 (time rescaling).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from forerun.core.kernels.jit import kernel


@kernel
def weibull(times_s: Any, horizon_s: Any, scale_s: Any, shape: Any, mean_s: Any, residuals: Any) -> Any:
    """Log likelihood of a stationary renewal process with Weibull gaps; writes the residuals of all gaps but the first.

    times_s: float64[failures], ascending. residuals: float64[failures - 1]. mean_s: of a gap.
    """
    # What is left at time 0 of a gap has the density survival / mean; the gap at the end is not over.
    total = -((times_s[0] / scale_s) ** shape) - np.log(mean_s)
    for i in range(1, times_s.size):
        gap = (times_s[i] - times_s[i - 1]) / scale_s
        residuals[i - 1] = gap**shape
        total += np.log(shape / scale_s) + (shape - 1.0) * np.log(gap) - residuals[i - 1]
    return total - ((horizon_s - times_s[-1]) / scale_s) ** shape


@kernel
def hawkes(
    times_s: Any, horizon_s: Any, base: Any, jump: Any, decay: Any, excited: Any, residuals: Any
) -> Any:
    """Log likelihood of a Hawkes process; the other parameters are as in `weibull`.

    base, jump, decay: rate without failures, its jump at one, and the decay of the jump, all a second. excited: rate above
    the base at time 0.
    """
    total, before = 0.0, 0.0
    for i in range(times_s.size + 1):
        now = times_s[i] if i < times_s.size else horizon_s
        left = excited * np.exp(-decay * (now - before))
        expected = base * (now - before) + (excited - left) / decay
        total -= expected
        if i < times_s.size:
            total += np.log(base + left)
            if i > 0:
                residuals[i - 1] = expected
        excited, before = left + jump, now
    return total


@kernel
def modulated(
    times_s: Any, horizon_s: Any, calm: Any, storm: Any, leave_calm: Any, leave_storm: Any, residuals: Any
) -> Any:
    """Log likelihood of a Poisson process modulated by two states, in its steady state; as in `weibull`.

    calm, storm: failures a second. leave_calm, leave_storm: changes of state a second.
    """
    # Without a failure the states' probabilities follow a matrix with eigenvalues middle +- spread.
    a, b = -(leave_calm + calm), -(leave_storm + storm)
    middle, half = (a + b) / 2.0, (a - b) / 2.0
    spread = np.sqrt(half * half + leave_calm * leave_storm)
    in_calm = leave_storm / (leave_calm + leave_storm)
    in_storm = 1.0 - in_calm
    total, before = 0.0, 0.0
    for i in range(times_s.size + 1):
        now = times_s[i] if i < times_s.size else horizon_s
        gap = now - before
        fades = np.exp(-2.0 * spread * gap)
        even, odd = (1.0 + fades) / 2.0, (1.0 - fades) / 2.0 / spread
        to_calm = in_calm * (even + odd * half) + in_storm * odd * leave_storm
        to_storm = in_calm * odd * leave_calm + in_storm * (even - odd * half)
        whole = to_calm + to_storm
        survived = np.log(whole) + (middle + spread) * gap
        total += survived
        if i < times_s.size:
            fails = (to_calm * calm + to_storm * storm) / whole
            total += np.log(fails)
            in_calm = to_calm * calm / whole / fails
            in_storm = 1.0 - in_calm
            if i > 0:
                residuals[i - 1] = -survived
        before = now
    return total
