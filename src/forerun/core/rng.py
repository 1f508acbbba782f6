"""Named random streams from one seed.

`stream(seed, "arrivals")` and `stream(seed, "failures", 7)` are independent generators that depend on nothing but
their names: a new consumer of randomness changes no other, and policies compared in a study see the same arrivals.
Philox is counter-based, so a stream is fixed by its key alone, on any machine and at any worker count.
"""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, *purpose: str | int) -> np.random.Generator:
    """The random generator for one purpose.

    seed: not negative. purpose: its name and, if there are several of a kind, the entity. Raises as `stream_key`.
    """
    return np.random.Generator(np.random.Philox(key=stream_key(seed, *purpose)))


def stream_key(seed: int, *purpose: str | int) -> int:
    """The 128-bit key of a stream, for generators built inside kernels.

    Raises ValueError for a negative seed or a purpose without a name.
    """
    if seed < 0:
        raise ValueError(f"a seed is a non-negative integer, not {seed}")
    if not purpose:
        raise ValueError("a stream needs the name of its purpose")
    digest = hashlib.blake2b(digest_size=16, person=b"forerun stream")
    for part in (seed, *purpose):
        # A type tag and a length distinguish ("a", "bc") from ("ab", "c"), and 1 from "1".
        text = str(part).encode()
        digest.update(b"i" if isinstance(part, int) else b"s")
        digest.update(len(text).to_bytes(8, "little"))
        digest.update(text)
    return int.from_bytes(digest.digest(), "little")
