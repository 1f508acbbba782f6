"""Classes of jobs that wait and run alike: by requested time, and by nodes."""

from __future__ import annotations

from typing import Final

import numpy as np

from forerun.site.history import F64, I64

_HOUR_S: Final = 3600.0
#: the longest request of each class, and one class beyond; in hours
REQUESTS_H: Final = (1, 3, 6, 12, 24)


def request_class(requested_s: F64) -> I64:
    """int64[jobs], from 0; what is not known belongs to the last class."""
    return np.searchsorted(_HOUR_S * np.array(REQUESTS_H, np.float64), requested_s, side="left").astype(
        np.int64
    )


def size_class(nodes: I64) -> I64:
    """int64[jobs]: each has twice the nodes of the one before."""
    return np.frexp(np.asarray(nodes, np.float64))[1].astype(np.int64)


def class_of(nodes: I64, requested_s: F64) -> I64:
    """int64[jobs], both at once."""
    return size_class(nodes) * (len(REQUESTS_H) + 1) + request_class(requested_s)


def class_name(gpus: int, requested_s: float, unit: str) -> str:
    """In words, such as `128 to 255 nodes, 3 to 6 h`. unit: of what it asks for."""
    low = 1 << (int(gpus).bit_length() - 1)
    size = f"{low} to {2 * low - 1} {unit}" if low > 1 else f"1 {unit.removesuffix('s')}"
    at = int(request_class(np.array([requested_s]))[0])
    if at == 0:
        return f"{size}, up to {REQUESTS_H[0]} h"
    if at == len(REQUESTS_H):
        return f"{size}, over {REQUESTS_H[-1]} h"
    return f"{size}, {REQUESTS_H[at - 1]} to {REQUESTS_H[at]} h"
