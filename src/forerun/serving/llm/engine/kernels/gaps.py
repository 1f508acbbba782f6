"""Times between tokens, too many to keep, as a histogram: each octave cut into equal cells.

(Holds constants of a kernel, so it belongs to the digest that names the compiled code's folder: forerun.core.kernels.)
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

#: cells of an octave; the first octave ends at 2^-19 ms. A quantile read from them is within 0.1 %
PER_OCTAVE: Final = 512
LEAST_MS: Final = 2.0**-20
FIRST_EXPONENT: Final = -19
CELLS: Final = PER_OCTAVE * 48


def gap_cells(gaps_ms: NDArray[np.float64]) -> NDArray[np.int64]:
    """int64[cells]: how many of the times fall into each."""
    mantissa, exponent = np.frexp(np.maximum(gaps_ms, LEAST_MS))
    within = ((mantissa - 0.5) * (2 * PER_OCTAVE)).astype(np.int64)
    cells = np.minimum((exponent.astype(np.int64) - FIRST_EXPONENT) * PER_OCTAVE + within, CELLS - 1)
    return np.bincount(cells, minlength=CELLS).astype(np.int64)


def gap_quantile_ms(gaps: NDArray[np.int64], share: float) -> float:
    """The time that `share` of the times counted do not exceed, within 0.1 %; NaN if there is none."""
    total = int(gaps.sum())
    if total == 0:
        return float("nan")
    cell = int(np.searchsorted(np.cumsum(gaps), share * (total - 1) + 1))
    octave, within = divmod(cell, PER_OCTAVE)
    return float(np.ldexp(0.5 + (within + 0.5) / (2 * PER_OCTAVE), octave + FIRST_EXPONENT))
