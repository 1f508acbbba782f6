"""Memory of blocks that is used again once nobody looks at it."""

from __future__ import annotations

import weakref
from collections import deque

import numpy as np
from numpy.typing import NDArray

U8 = NDArray[np.uint8]


class Buffers:
    """Memory for one block after another.

    A block that is allocated anew costs a page fault for every 4 KiB, as much as copying it from the page cache does: the
    allocator gives the memory of large blocks back to the system, in other threads than the first at once. Here memory that
    was written before is written again, the last one returned first, while caches still have it. Whoever looks at a part of
    it (a view, an array of the view) keeps the whole from being used again, for as long as they look.
    """

    def __init__(self) -> None:
        self._free: deque[U8] = (
            deque()
        )  # appending and popping are atomic; a destructor may append in any thread

    def __reduce__(self) -> tuple[type[Buffers], tuple[()]]:
        return Buffers, ()  # another process has memory of its own

    def take(self, length: int) -> U8:
        """Memory to write to, of that many bytes; it returns by itself when the last view of it is gone.

        Parameters
        ----------
        length : bytes.
        """
        try:
            whole = self._free.pop()
        except IndexError:
            whole = None
        if whole is None or len(whole) < length:
            # Blocks differ in size: with some space left, the next one mostly fits. Pages nobody writes to are not used.
            whole = np.empty(length + length // 8, np.uint8)
        part = whole[:length]
        weakref.finalize(part, self._free.append, whole).atexit = False
        return part
