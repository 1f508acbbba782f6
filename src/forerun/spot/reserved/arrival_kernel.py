"""When failures of a class come: renewal with Weibull gaps, self-exciting (Hawkes), or modulated by calm and storm (MMPP).

Each law is in its steady state at time 0, and its next failure is sampled without approximation: no time step, no
rejection by a bound that could be wrong. `mood` is what a law must remember from one failure to the next.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from forerun.core.kernels.jit import kernel
from forerun.spot.engine.kernels import exponential, uniform

RENEWAL, HAWKES, MODULATED = range(3)
LAW_NUMBERS = 4
"""Numbers of a law: RENEWAL scale in seconds and shape; HAWKES base rate, jump of the rate at a failure, decay a second, and
seconds for which it has run before time 0; MODULATED rates in calm and in storm, then rates of leaving calm and storm."""


@kernel
def normal(streams: Any, purpose: Any) -> Any:
    """A standard normal number (Box and Muller, 1958), from two uniform ones."""
    radius = np.sqrt(-2.0 * np.log(1.0 - uniform(streams, purpose)))
    return radius * np.cos(2.0 * np.pi * uniform(streams, purpose))


@kernel
def _gamma(streams: Any, purpose: Any, a: Any) -> Any:
    """A gamma number of shape a >= 1 and scale 1 (Marsaglia and Tsang, TOMS 2000)."""
    d = a - 1.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    while True:
        x = normal(streams, purpose)
        v = (1.0 + c * x) ** 3
        if v > 0.0 and np.log(1.0 - uniform(streams, purpose)) < 0.5 * x * x + d - d * v + d * np.log(v):
            return d * v


@kernel
def _renewal_gap(streams: Any, purpose: Any, scale_s: Any, shape: Any) -> Any:
    """Seconds from one failure to the next."""
    if scale_s == np.inf:
        return np.inf
    waited = exponential(streams, purpose, 1.0)
    return scale_s * (waited if shape == 1.0 else waited ** (1.0 / shape))


@kernel
def _first_renewal_gap(streams: Any, purpose: Any, scale_s: Any, shape: Any) -> Any:
    """Seconds from time 0 to the first failure of a process that has run for ever.

    Time 0 falls into a gap with a probability that grows with its length: (gap / scale)^shape of such a gap is a gamma
    number of shape 1 + 1/shape, and what is left of it is uniform.
    """
    if scale_s == np.inf or shape == 1.0:
        return _renewal_gap(streams, purpose, scale_s, shape)
    gap_s = scale_s * _gamma(streams, purpose, 1.0 + 1.0 / shape) ** (1.0 / shape)
    return gap_s * uniform(streams, purpose)


@kernel
def _hawkes_gap(streams: Any, purpose: Any, numbers: Any, mood: Any, c: Any) -> Any:
    """Seconds to the next failure at rate base + mood, where the mood decays and jumps at each failure.

    The gap is the shorter one of two: that of the base rate, and that of the decaying part, which may never end (Dassios and
    Zhao, "Exact simulation of Hawkes process with exponentially decaying intensity", ECP 2013).
    """
    base, jump, decay = numbers[c, 0], numbers[c, 1], numbers[c, 2]
    own_s = exponential(streams, purpose, base)
    spent = exponential(streams, purpose, 1.0)
    caused_s = np.inf
    # The decaying part has mood / decay failures left in the mean.
    if spent * decay < mood[c]:
        caused_s = -np.log1p(-spent * decay / mood[c]) / decay
    gap_s = min(own_s, caused_s)
    mood[c] = mood[c] * np.exp(-decay * gap_s) + jump
    return gap_s


@kernel
def _modulated_gap(streams: Any, purpose: Any, numbers: Any, mood: Any, c: Any, most_s: Any) -> Any:
    """Seconds to the next failure, from change to change of calm and storm; infinite beyond `most_s`."""
    gap_s, state = 0.0, np.int64(mood[c])
    while gap_s <= most_s:
        rate, leave = numbers[c, state], numbers[c, 2 + state]
        gap_s += exponential(streams, purpose, rate + leave)
        if uniform(streams, purpose) * (rate + leave) < rate:
            mood[c] = np.float64(state)
            return gap_s
        state = 1 - state
    return np.inf


@kernel
def gap(streams: Any, purpose: Any, law: Any, numbers: Any, mood: Any, c: Any, most_s: Any) -> Any:
    """Seconds from a failure of class `c` to its next one; changes `mood[c]`.

    law, numbers: of all classes. most_s: a longer gap may be returned as infinite.
    """
    if law[c] == HAWKES:
        return _hawkes_gap(streams, purpose, numbers, mood, c)
    if law[c] == MODULATED:
        return _modulated_gap(streams, purpose, numbers, mood, c, most_s)
    return _renewal_gap(streams, purpose, numbers[c, 0], numbers[c, 1])


@kernel
def first_gap(streams: Any, purpose: Any, law: Any, numbers: Any, mood: Any, c: Any, most_s: Any) -> Any:
    """Seconds from time 0 to the first failure of class `c`, whose process has run for ever; sets `mood[c]`.

    A Hawkes process starts before time 0 from its mean rate: the mean is then exact, and k relaxation times later every
    other moment to e^(-2 k).
    """
    if law[c] == MODULATED:
        calm, storm = numbers[c, 2], numbers[c, 3]
        mood[c] = 1.0 if uniform(streams, purpose) * (calm + storm) < calm else 0.0
        return _modulated_gap(streams, purpose, numbers, mood, c, most_s)
    if law[c] == HAWKES:
        base, jump, decay = numbers[c, 0], numbers[c, 1], numbers[c, 2]
        mood[c] = base * jump / (decay - jump)
        t = -numbers[c, 3]
        while t < 0.0:
            t += _hawkes_gap(streams, purpose, numbers, mood, c)
        return t
    return _first_renewal_gap(streams, purpose, numbers[c, 0], numbers[c, 1])
