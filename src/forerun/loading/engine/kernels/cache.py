"""Caches of items with sizes: lru, fifo, clock, pinned and cost, as linked lists in arrays.

A cache keeps its items in a list from the next to leave (head) to the newest (tail). An item that is absent is put
in at once, after others have left to make space; an item larger than the cache is never stored. `pinned` keeps what came
first and lets nothing leave. `clock` marks an item that is hit; the hand moves marked items to the back, unmarked,
until it finds one without a mark. `cost` is GreedyDual-Size [Cao & Irani, USITS'97]: an item that comes or is hit is
worth the seconds that fetching it takes a byte, above the worth of the last that left; the least worth leaves.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.core.kernels.jit import kernel

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

#: policies, in the order in which a scenario's type names them
LRU, FIFO, CLOCK, PINNED, COST = range(5)
NOBODY: Final = -1
#: rows of `links`, columns of `ends`, columns of `about`
BEFORE, AFTER, MARKED = range(3)
HEAD, TAIL, POLICY = range(3)
(STORED_BYTES, MOST_BYTES, CAPACITY_BYTES, HIT_LATENCY_S, HIT_BYTES_PER_S,
 FETCH_S, FETCH_S_PER_BYTE, LEFT_WORTH) = range(8)  # fmt: skip


class Caches(NamedTuple):
    """Several caches over one set of keys, one a row.

    `links` int64[C, 3, keys]: neighbours in the list, and the mark; `size_bytes` float64[C, keys], -1 if absent;
    `worth` float64[C, keys], of `cost`; `ends` int64[C, 3]: head, tail, policy; `about` float64[C, 8]: bytes cached, most
    cached, capacity, latency [s] and bandwidth [bytes/s] of a hit, and what fetching costs: seconds, seconds a byte; worth
    of what left last.
    """

    links: I64
    size_bytes: F64
    worth: F64
    ends: I64
    about: F64


@kernel
def cache_detach(caches: Caches, c: int, key: int) -> None:
    """Take an item out of its list; its bytes are still counted."""
    before, after = caches.links[c, BEFORE, key], caches.links[c, AFTER, key]
    if before == NOBODY:
        caches.ends[c, HEAD] = after
    else:
        caches.links[c, AFTER, before] = after
    if after == NOBODY:
        caches.ends[c, TAIL] = before
    else:
        caches.links[c, BEFORE, after] = before


@kernel
def cache_append(caches: Caches, c: int, key: int) -> None:
    """Put an item at the back of its list."""
    tail = caches.ends[c, TAIL]
    caches.links[c, BEFORE, key] = tail
    caches.links[c, AFTER, key] = NOBODY
    if tail == NOBODY:
        caches.ends[c, HEAD] = key
    else:
        caches.links[c, AFTER, tail] = key
    caches.ends[c, TAIL] = key


@kernel
def cache_evict(caches: Caches, c: int) -> None:
    """Let the next item leave.

    The item at the head of the list leaves; under `clock` marked items move to the back first, under `cost` the item of
    least worth leaves.
    """
    leaving = caches.ends[c, HEAD]
    while caches.ends[c, POLICY] == CLOCK and caches.links[c, MARKED, leaving]:
        caches.links[c, MARKED, leaving] = 0
        cache_detach(caches, c, leaving)
        cache_append(caches, c, leaving)
        leaving = caches.ends[c, HEAD]
    if caches.ends[c, POLICY] == COST:
        after = caches.links[c, AFTER, leaving]
        while after != NOBODY:
            if caches.worth[c, after] < caches.worth[c, leaving]:
                leaving = after
            after = caches.links[c, AFTER, after]
        caches.about[c, LEFT_WORTH] = caches.worth[c, leaving]
    cache_detach(caches, c, leaving)
    caches.about[c, STORED_BYTES] -= caches.size_bytes[c, leaving]
    caches.size_bytes[c, leaving] = -1.0


@kernel
def cache_access(caches: Caches, c: int, key: int, size_bytes: float) -> bool:
    """Whether the item is in the cache; if not, it is stored now, where the policy lets it in.

    c: number of the cache. key, size_bytes: of the item. An item that is absent is put in at once, after others have
    left, unless it is larger than the cache or the cache is `pinned` and full.
    """
    policy = caches.ends[c, POLICY]
    if policy == COST:
        a_byte_s = caches.about[c, FETCH_S] / max(size_bytes, 1.0) + caches.about[c, FETCH_S_PER_BYTE]
    else:
        a_byte_s = 0.0
    if caches.size_bytes[c, key] >= 0:
        caches.worth[c, key] = caches.about[c, LEFT_WORTH] + a_byte_s
        if policy == LRU:
            cache_detach(caches, c, key)
            cache_append(caches, c, key)
        elif policy == CLOCK:
            caches.links[c, MARKED, key] = 1
        return True
    space = caches.about[c, CAPACITY_BYTES] - size_bytes
    if space < 0 or (policy == PINNED and caches.about[c, STORED_BYTES] > space):
        return False
    while caches.about[c, STORED_BYTES] > space:
        cache_evict(caches, c)
    caches.size_bytes[c, key] = size_bytes
    # What just left, if anything did, has raised what all later ones are worth.
    caches.worth[c, key] = caches.about[c, LEFT_WORTH] + a_byte_s
    caches.links[c, MARKED, key] = 0
    caches.about[c, STORED_BYTES] += size_bytes
    caches.about[c, MOST_BYTES] = max(caches.about[c, MOST_BYTES], caches.about[c, STORED_BYTES])
    cache_append(caches, c, key)
    return False


@kernel
def cache_hits(caches: Caches, c: int, keys: I64, sizes_bytes: F64) -> Bool:
    """Whether each access of a sequence is a hit; the cache keeps its state.

    c: number of the cache. keys, sizes_bytes: int64 and float64, of each access in order. The answer is boolean, one an
    access.
    """
    hits = np.zeros(len(keys), np.bool_)
    for i in range(len(keys)):
        hits[i] = cache_access(caches, c, keys[i], sizes_bytes[i])
    return hits
