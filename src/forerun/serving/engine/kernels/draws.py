"""Draws that depend on a key and a number alone, never on the state of a run."""

from __future__ import annotations

import math

import numpy as np

from forerun.core.kernels.jit import kernel
from forerun.serving.engine.kernels.layout import StageArrays

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


@kernel
def mix(x: np.uint64) -> np.uint64:
    """The SplitMix64 finaliser: 64 well-stirred bits of x."""
    z = x + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


@kernel
def unit(key: np.uint64, number: int) -> float:
    """The draw `number` of stream `key`, uniform in [0, 1), a multiple of 2^-53."""
    return float(mix(key + np.uint64(number)) >> np.uint64(11)) * 2.0**-53


@kernel
def takes(kind: int, share: float, key: np.uint64, query: int, recorded: bool) -> bool:
    """Whether a query takes an edge: kind 0 always, 1 as recorded, 2 with probability `share`."""
    if kind == 0:
        return True
    return recorded if kind == 1 else unit(key, query) < share


@kernel
def drawn_ms(law: int, base_ms: float, spread: float, key: np.uint64, number: int) -> float:
    """The service time of the batch that starts as number `number` at its stage, around `base_ms`.

    law 1: exponential; law 2: log-normal with sigma `spread` (Box and Muller's transform of two draws).
    """
    if law == 1:
        return base_ms * -math.log1p(-unit(key, number))
    radius = math.sqrt(-2.0 * math.log1p(-unit(key, 2 * number)))
    normal = radius * math.cos(2.0 * math.pi * unit(key, 2 * number + 1))
    return base_ms * math.exp(spread * normal - 0.5 * spread * spread)


@kernel(inline=True)
def batch_ms(stage: StageArrays, fixed: bool, size: np.uint64, number: np.uint64) -> float:
    """The service time of a batch of `size`, the `number`-th to start at a stage. fixed: the stage's table says it."""
    taken_ms = stage.service_ms[size]
    if not fixed:
        facts, draw = stage.facts, int(np.int64(number))
        key = np.uint64(facts.key)
        if facts.law == 3:
            first, stop = stage.measured_at[size], stage.measured_at[size + np.uint64(1)]
            taken_ms = stage.measured_ms[first + np.int64(unit(key, draw) * (stop - first))]
        else:
            taken_ms = drawn_ms(facts.law, taken_ms, facts.spread, key, draw)
    return taken_ms  # type: ignore[no-any-return]
