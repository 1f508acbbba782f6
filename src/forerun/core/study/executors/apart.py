"""A few long pieces of work, each in a process of its own: the demonstrations, the reproductions."""

from __future__ import annotations

import functools
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from forerun.core.errors import UsageError
from forerun.core.study.executors.interrupts import blocked, end_quietly

_NEVER_UP: Final = (
    "ended before they gave anything; "
    "a script that asks for workers must do so under `if __name__ == '__main__':`"
)

A = TypeVar("A")
R = TypeVar("R")


@dataclass(frozen=True)
class Piece(Generic[A, R]):
    """A piece of work that ended: what it was asked, what it gave or raised, and how long it took."""

    item: A
    result: R | Exception
    wall_s: float


def apart(work: Callable[[A], R], items: Sequence[A], workers: int) -> Iterator[Piece[A, R]]:
    """`work(item)` of each item, as they end; begun in order. What a piece raises comes instead of its result.

    With one worker, or one item, everything happens here, in order. Processes are started afresh (spawn): what this one
    holds does not reach them. Raises UsageError if no process comes up.
    """
    timed = functools.partial(_timed, work)
    if workers <= 1 or len(items) <= 1:
        yield from map(timed, items)
        return
    context = multiprocessing.get_context("spawn")
    count = min(workers, len(items))
    with ProcessPoolExecutor(count, mp_context=context, initializer=end_quietly) as pool:
        with blocked():
            waiting = {pool.submit(timed, item): item for item in items}
        came = False
        try:
            for done in as_completed(waiting):
                try:
                    yield done.result()
                    came = True
                except BrokenProcessPool as error:
                    if not came:
                        raise UsageError.at("processes", _NEVER_UP) from error
                    yield Piece(waiting[done], error, 0.0)
                except Exception as error:
                    # The process died, or could not send what it found.
                    yield Piece(waiting[done], error, 0.0)
        finally:
            # Also on Ctrl-C: what has not begun is not begun.
            pool.shutdown(wait=False, cancel_futures=True)


def _timed(work: Callable[[A], R], item: A) -> Piece[A, R]:
    """The work on one item, its exception instead of a result, and its seconds."""
    start_s = time.perf_counter()
    try:
        result: R | Exception = work(item)
    except Exception as error:
        result = error
    return Piece(item, result, time.perf_counter() - start_s)
