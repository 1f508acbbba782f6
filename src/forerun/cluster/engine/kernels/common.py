"""Random bits that belong to a counter."""

from __future__ import annotations

from typing import Final

import numpy as np

from forerun.core.kernels.jit import kernel

#: the step of a counter of random numbers (splitmix64)
GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)


@kernel
def mixed(counter: np.uint64) -> np.uint64:
    """The random 64 bits that belong to a counter (the finaliser of splitmix64)."""
    z = (counter ^ (counter >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
