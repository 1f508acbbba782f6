"""A binary heap of (key, order, who) in three stretches of arrays: ties in the key leave in the order they came."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from forerun.core.kernels.jit import kernel

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


@kernel
def heap_push(
    key: F64,
    order: I64,
    who: I64,
    k: int,
    o: int,
    w: int,
    size: int,
    new_key: float,
    new_order: int,
    new_who: int,
) -> int:
    """Put an entry into the heap of `size` entries that begins at `key[k]`, `order[o]`, `who[w]`; the new size.

    new_key, new_order, new_who: of the entry; equal keys leave in the order of `new_order`.
    """
    hole = size
    while hole > 0:
        up = (hole - 1) >> 1
        if key[k + up] < new_key or (key[k + up] == new_key and order[o + up] < new_order):
            break
        key[k + hole], order[o + hole], who[w + hole] = key[k + up], order[o + up], who[w + up]
        hole = up
    key[k + hole], order[o + hole], who[w + hole] = new_key, new_order, new_who
    return size + 1


@kernel
def heap_pop(key: F64, order: I64, who: I64, k: int, o: int, w: int, size: int) -> int:
    """Drop the least entry (the first) of a heap of `size` entries; returns the new size.

    k, o, w: where the heap begins in each array. The entry is read by the caller before it is dropped.
    """
    size -= 1
    last_key, last_order, last_who = key[k + size], order[o + size], who[w + size]
    hole = 0
    while True:
        child = 2 * hole + 1
        if child >= size:
            break
        a, b = k + child, o + child
        if child + 1 < size and (key[a + 1] < key[a] or (key[a + 1] == key[a] and order[b + 1] < order[b])):
            child += 1
        if last_key < key[k + child] or (last_key == key[k + child] and last_order < order[o + child]):
            break
        key[k + hole], order[o + hole], who[w + hole] = key[k + child], order[o + child], who[w + child]
        hole = child
    key[k + hole], order[o + hole], who[w + hole] = last_key, last_order, last_who
    return size
