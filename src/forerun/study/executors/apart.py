"""A few long pieces of work, each in a process of its own: the demonstrations, the reproductions."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

A = TypeVar("A")
R = TypeVar("R")


def apart(work: Callable[[A], R], items: Sequence[A], workers: int) -> Iterator[tuple[A, R | Exception]]:
    """Each item with `work(item)`, as they end; begun in order. What a piece raises comes instead of its result.

    With one worker, or one item, everything happens here, in order. Processes are started afresh (spawn): what this one
    holds does not reach them.
    """
    if workers <= 1 or len(items) <= 1:
        for item in items:
            try:
                yield item, work(item)
            except Exception as error:
                yield item, error
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(items)), mp_context=context) as pool:
        waiting = {pool.submit(work, item): item for item in items}
        try:
            for done in as_completed(waiting):
                try:
                    yield waiting[done], done.result()
                except Exception as error:
                    yield waiting[done], error
        finally:
            # Also on Ctrl-C: what has not begun is not begun.
            pool.shutdown(wait=False, cancel_futures=True)
