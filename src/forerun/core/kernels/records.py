"""Arrays of records: scalars that belong together, which kernels read and write by name and hand on as one pointer.

Used by serving's engines and the reserved clusters of spot.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

#: rows of such a type
Rows: TypeAlias = NDArray[np.void]


def record_type(integers: str, reals: str = "") -> np.dtype[np.void]:
    """A record of int64 and of float64 fields, named between blanks."""
    return np.dtype([(name, "i8") for name in integers.split()] + [(name, "f8") for name in reals.split()])


def records(shape: int | tuple[int, ...], kind: np.dtype[np.void]) -> Rows:
    """Records that are all zero, whose fields plain Python too reads by name."""
    return np.zeros(shape, kind).view(np.recarray)
