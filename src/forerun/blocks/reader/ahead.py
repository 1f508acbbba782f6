"""Work done ahead by threads and handed over in order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Items 0, 1, 2 ... made by threads, ahead of whoever iterates, and handed over in that order.

    An item is begun where what is being made and what waits, this one included, is at most `most`; one is always
    begun. An item that cannot be made raises what its making raised, after all items before it were handed over. The
    threads end with the iteration, however it ends; one that waits for a store is left to itself.

    Parameters
    ----------
    make : the item of a number; called in many threads at once.
    sizes : of each item, in the unit of `most`.
    threads : that make items (0: the iterating thread makes each when it is asked for).
    most : that may be made and wait at a time.
    helps : the iterating thread makes an item, too, where it would wait for one: sleeping and waking costs more than reading
        a block from memory. Not for stores with latency, where it would wait for a later item while an earlier one is
        ready (default: no).
    """

    def __init__(
        self, make: Callable[[int], T], sizes: Sequence[int], threads: int, most: int, *, helps: bool = False
    ) -> None:
        self._make, self._sizes, self._threads, self._most = make, sizes, threads, most
        self._helps = helps
        self._space = threading.Condition(threading.Lock())
        # One queue for whatever was made, in whatever order: its waiting costs a third of a condition's, once a block.
        self._arrived: queue.SimpleQueue[tuple[int, T | BaseException]] = queue.SimpleQueue()
        self._early: dict[int, T | BaseException] = {}
        self._begun = self._held = 0
        self._stopped = False

    def __iter__(self) -> Iterator[T]:
        """The items, once."""
        if not self._threads:
            yield from map(self._make, range(len(self._sizes)))
            return
        for number in range(min(self._threads, len(self._sizes))):
            threading.Thread(target=self._work, name=f"block reader {number}", daemon=True).start()
        try:
            for number in range(len(self._sizes)):
                yield self._next(number)
        finally:
            with self._space:
                self._stopped = True
                self._space.notify_all()
            self._early.clear()
            while not self._arrived.empty():
                self._arrived.get()

    def _next(self, number: int) -> T:
        """Wait for an item, and raise what its making raised."""
        while number not in self._early:
            own = self._begin(waits=False) if self._helps and self._arrived.empty() else None
            if own is None:
                arrived, item = self._arrived.get()
                self._early[arrived] = item
                continue
            try:
                self._early[own] = self._make(own)
            except Exception as error:  # its turn comes; an interrupt's is now
                self._early[own] = error
        made = self._early.pop(number)
        with self._space:
            self._held -= self._sizes[number]
            self._space.notify()
        if isinstance(made, BaseException):
            raise made
        return made

    def _work(self) -> None:
        """A thread: begin items while there is space for them."""
        while (number := self._begin()) is not None:
            try:
                made: T | BaseException = self._make(number)
            except BaseException as error:  # handed over, and raised where the items are taken
                made = error
            if self._stopped:
                return
            self._arrived.put((number, made))
            del made  # what waits for its turn is not kept by who made it

    def _begin(self, *, waits: bool = True) -> int | None:
        """The number of the next item, once there is space for it; None if there is none, or the iteration ended.

        Parameters
        ----------
        waits : for space (default); else None as well where there is no space now.
        """
        with self._space:
            while not self._stopped and self._begun < len(self._sizes):
                size = self._sizes[self._begun]
                if not self._held or self._held + size <= self._most:
                    number = self._begun
                    self._begun, self._held = number + 1, self._held + size
                    self._space.notify()  # there may be space for another thread's item, too
                    return number
                if not waits:
                    return None
                self._space.wait()
            self._space.notify()  # nothing is left: the others end as well
            return None
