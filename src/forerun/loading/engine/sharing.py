"""Closed forms of caches on several nodes: the shares of an epoch's bytes that caches have, and the cache that is enough.

N nodes take parts of one epoch's random order, C bytes of cache on each, D bytes of data. What first came stays
(`pinned`, CoorDL's MinIO): caches once full have the share of the data that fits them, whatever the order. LRU forgets
during an epoch what the epoch needs later. With x = C / D and q = (1 - 1/N)^e, the share of the data that a node has not
read in e epochs:

* partitioned, or one node: y = min(1, N x); pinned y, LRU y + (1 - y) ln(1 - y);
* replicated, pinned: min(1, x); LRU: no closed form, None;
* each its own, pinned: min(x, 1 - q), for a node fills its cache from its own parts only;
* each its own, LRU: a block at the share u of an epoch is there if it came since the cache last turned over. The blocks
  that a node has read since then are the share x of all, so 1 - x = (1 - u/N) times the chance that a block did not come
  in earlier epochs since then: it is there with probability 1 - (1 - x) / (1 - u/N), no less than 0, and no more than
  1 - q. The mean over u is the closed form; for N = 1 it is x + (1 - x) ln(1 - x), for many nodes it goes to x.

Derived here for blocks of one size and many of them; `tests/loading/test_nodes.py` compares them with slow simulations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from forerun.loading.scenario import Nodes


@dataclass(frozen=True)
class Shares:
    """Of the bytes that an epoch reads, on all nodes together.

    Parameters
    ----------
    local : from the node's own cache.
    peers : from other nodes' caches.
    """

    local: float
    peers: float

    @property
    def store(self) -> float:
        """From the store."""
        return max(0.0, 1.0 - self.local - self.peers)


def hit_shares(nodes: Nodes, data_bytes: float, epoch: float = math.inf) -> Shares | None:
    """What caches have of an epoch's bytes, in the mean; None where no closed form is known (LRU, replicated).

    Parameters
    ----------
    nodes : how many, with what caches.
    data_bytes : of the data set.
    epoch : from 0, when all caches are empty (default: long after).
    """
    count, x = nodes.count, nodes.cache_bytes / data_bytes
    if epoch < 1:
        return Shares(0.0, 0.0)
    if nodes.sharing == "replicated" and count > 1:
        return Shares(min(1.0, x), 0.0) if nodes.policy == "pinned" or x >= 1 else None
    if nodes.sharing == "partitioned" or count == 1:
        whole = min(1.0, count * x)
        if nodes.policy == "lru":
            whole += _times_log(1 - whole, 1 - whole)
        return Shares(whole / count, whole * (1 - 1 / count))
    unread = (1 - 1 / count) ** epoch
    if nodes.policy == "pinned":
        return Shares(min(1.0, x, 1 - unread), 0.0)
    x = min(1.0, x)
    most = min(1.0, count * x)
    first = min(most, max(0.0, count * (1 - (1 - x) / unread))) if unread else float(x >= 1)
    after = _times_log(count * (1 - x), 1 - most / count) - _times_log(count * (1 - x), 1 - first / count)
    return Shares(first * (1 - unread) + (most - first) + after, 0.0)


def _times_log(factor: float, value: float) -> float:
    """factor * ln(value), 0 where the factor is 0."""
    return factor * math.log(value) if factor > 0 else 0.0
