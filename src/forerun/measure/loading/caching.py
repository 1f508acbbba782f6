"""A cache of requests before any client: what the simulator's caches do, with real bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from forerun.measure.loading.clients import Client, Wrapping

CachingPolicy = Literal["lru", "fifo", "pinned"]
CACHING_POLICIES: Final[tuple[str, ...]] = get_args(CachingPolicy)


@dataclass
class CachedFiles(Wrapping):
    """Keeps what was read, up to `capacity_bytes`; counts hits and misses.

    lru: the least recently used leaves; fifo: the oldest leaves; pinned: nothing leaves. An item larger than the
    cache is not stored.

    Parameters
    ----------
    client : what is cached.
    capacity_bytes : of all items together.
    policy : which item leaves (default: `lru`).
    hits, misses : reads that the cache answered, and that it did not, since the start.
    most_bytes : that it ever contained.
    """

    capacity_bytes: float
    policy: CachingPolicy = "lru"
    hits: int = 0
    misses: int = 0
    most_bytes: int = 0
    _blocks: OrderedDict[tuple[str, int, int], bytes] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __reduce__(self) -> tuple[type[CachedFiles], tuple[Client, float, CachingPolicy]]:
        """An empty cache of the same kind in the other process: content, counts and lock stay with this one."""
        return CachedFiles, (self.client, self.capacity_bytes, self.policy)

    def read(self, name: str, first: int, length: int, what: str) -> bytes:
        """See `Client`."""
        key = (name, first, length)
        with self._lock:
            data = self._blocks.get(key)
            if data is not None:
                self.hits += 1
                if self.policy == "lru":
                    self._blocks.move_to_end(key)
                return data
            self.misses += 1
        data = self.client.read(name, first, length, what)
        with self._lock:
            self._keep(key, data)
        return data

    def _keep(self, key: tuple[str, int, int], data: bytes) -> None:
        """Store what was read, after others have left, where the policy lets it in."""
        space = self.capacity_bytes - len(data)
        if key in self._blocks or space < 0 or (self.policy == "pinned" and self._bytes > space):
            return
        while self._bytes > space:
            _, left = self._blocks.popitem(last=False)
            self._bytes -= len(left)
        self._blocks[key] = data
        self._bytes += len(data)
        self.most_bytes = max(self.most_bytes, self._bytes)
