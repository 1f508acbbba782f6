"""A cache of requests before any client: what the simulator's caches do, with real bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, TypeVar, get_args

from forerun.blocks.reader.clients import Client, Wrapping

K = TypeVar("K")
CachingPolicy = Literal["lru", "fifo", "pinned"]
CACHING_POLICIES: Final[tuple[str, ...]] = get_args(CachingPolicy)


@dataclass
class Kept(Generic[K]):
    """Bytes by key, up to `capacity_bytes`, for many threads.

    lru: the least recently used leaves; fifo: the oldest leaves; pinned: nothing leaves. What is larger than the whole is
    not stored.

    Parameters
    ----------
    capacity_bytes : of all together.
    policy : which leaves.
    most_bytes : that it ever contained.
    """

    capacity_bytes: float
    policy: CachingPolicy
    most_bytes: int = 0
    _data: OrderedDict[K, bytes] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self, key: K) -> bytes | None:
        """What is stored, if it is, which counts as a use."""
        with self._lock:
            data = self._data.get(key)
            if data is not None and self.policy == "lru":
                self._data.move_to_end(key)
            return data

    def wants(self, key: K, length: int) -> bool:
        """Whether so many bytes would be stored now; no longer if they are there.

        Parameters
        ----------
        length : bytes.
        """
        with self._lock:
            return self._has_space(key, length)

    def _has_space(self, key: K, length: int) -> bool:
        space = self.capacity_bytes - length
        return not (key in self._data or space < 0 or (self.policy == "pinned" and self._bytes > space))

    def keep(self, key: K, data: bytes) -> None:
        """Store it, after others have left, where the policy lets it in."""
        with self._lock:
            if not self._has_space(key, len(data)):
                return
            while self._bytes > self.capacity_bytes - len(data):
                _, left = self._data.popitem(last=False)
                self._bytes -= len(left)
            self._data[key] = data
            self._bytes += len(data)
            self.most_bytes = max(self.most_bytes, self._bytes)


@dataclass
class CachedFiles(Wrapping):
    """Keeps what was read, as `Kept` does; counts hits and misses.

    Parameters
    ----------
    client : what is cached.
    capacity_bytes : of all items together.
    policy : which item leaves (default: `lru`).
    hits, misses : reads that the cache answered, and that it did not, since the start.
    """

    capacity_bytes: float
    policy: CachingPolicy = "lru"
    hits: int = 0
    misses: int = 0
    _count: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._kept: Kept[tuple[str, int, int]] = Kept(self.capacity_bytes, self.policy)

    def __reduce__(self) -> tuple[type[CachedFiles], tuple[Client, float, CachingPolicy]]:
        """An empty cache of the same kind in the other process: content, counts and lock stay with this one."""
        return CachedFiles, (self.client, self.capacity_bytes, self.policy)

    @property
    def most_bytes(self) -> int:
        """That it ever contained."""
        return self._kept.most_bytes

    def read(self, name: str, first: int, length: int, what: str) -> bytes:
        """See `Client`."""
        key = (name, first, length)
        data = self._kept.look(key)
        with self._count:
            self.hits += data is not None
            self.misses += data is None
        if data is None:
            data = self.client.read(name, first, length, what)
            self._kept.keep(key, data)
        return data
