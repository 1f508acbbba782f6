"""A stable sort written out: it compiles in a fraction of the time of the library's."""

from __future__ import annotations

import numpy as np

from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.core.kernels.jit import kernel


@kernel
def rank_descending(key: F64) -> I64:
    """Positions by key, largest first; equal keys keep their order. Merging runs of doubling length."""
    count = len(key)
    order, merged = np.empty(count, np.int64), np.empty(count, np.int64)
    for i in range(count):
        order[i] = i
    width = 1
    while width < count:
        start = 0
        while start < count:
            middle, end = min(start + width, count), min(start + 2 * width, count)
            left, right = start, middle
            for at in range(start, end):
                if left < middle and (right >= end or key[order[left]] >= key[order[right]]):
                    merged[at] = order[left]
                    left += 1
                else:
                    merged[at] = order[right]
                    right += 1
            start = end
        order, merged = merged, order
        width *= 2
    return order
