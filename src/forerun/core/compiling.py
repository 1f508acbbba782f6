"""Who wants to know when a kernel begins to be compiled: what is not cached takes up to minutes.

Apart from the kernels, because whoever only watches should not have to import numba.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_watching: list[Callable[[], object]] = []


@contextmanager
def watched(begins: Callable[[], object]) -> Iterator[None]:
    """While this lasts, a function is called whenever a kernel begins to be compiled in this process.

    Parameters
    ----------
    begins : must not raise.
    """
    _watching.append(begins)
    try:
        yield
    finally:
        _watching.remove(begins)


def begins() -> None:
    """Call those who watch; `forerun.core.kernels` does, for each kernel that no cache has."""
    for one in tuple(_watching):
        one()
