"""Objects that must not cross a fork: connections, locks and event loops that another process still uses."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """A value that every process makes for itself, at its first use; what a fork copied is dropped.

    Parameters
    ----------
    make : gives the value; called again in each process that asks for it.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._owned: tuple[int, T] | None = None

    def get(self) -> T:
        """This process's value.

        It is made at the first call in a process, and again in one that was forked since.
        """
        owned = self._owned  # one attribute: another thread sees the whole of it
        if owned is None or owned[0] != os.getpid():
            owned = self._owned = (os.getpid(), self._make())
        return owned[1]
