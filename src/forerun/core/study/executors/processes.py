"""A pool of processes that survives what its cells do.

Cells travel in chunks that grow to about a fifth of a second, so the pool costs little. A cell that takes longer than
its limit, exhausts the memory or kills its process is recorded as failed; its process is replaced and the study goes on.
Within a chunk nobody knows which cell it was: its cells are tried again one by one, and only one that fails alone is
blamed.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from forerun.core.errors import ForerunError, UsageError
from forerun.core.study.cell import Failed, Outcome, run_cell
from forerun.core.study.executors import Executor, Here
from forerun.core.study.executors.interrupts import blocked
from forerun.core.study.expand import Cell, StudyPlan

#: seconds of work in a chunk, aimed at
CHUNK_S: Final = 0.2
MAX_CHUNK: Final = 256


@dataclass
class _Worker:
    """One process of the pool.

    process, pipe: its process, and our end of the pipe to it. todo: the cells it was sent whose outcomes did not come
    yet. since_s: when it was sent them or last answered [s of the monotonic clock]. alone: whether it was sent one cell
    only, so that a failure is that cell's. up: whether it has answered at all.
    """

    process: Any
    pipe: Connection
    todo: deque[Cell] = field(default_factory=deque)
    since_s: float = 0.0
    alone: bool = True
    up: bool = False


class Processes:
    """`workers` processes; each cell may take `limit_s` seconds (0: no limit)."""

    def __init__(self, workers: int, *, limit_s: float = 0.0) -> None:
        if workers < 1:
            raise ValueError(f"a pool has at least one worker, not {workers}")
        self.workers = workers
        self.limit_s = limit_s

    def run(self, plan: StudyPlan, cells: Iterable[Cell]) -> Iterator[Outcome]:
        """The outcomes, as they come."""
        context = multiprocessing.get_context(
            "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        )
        suspects: deque[Cell] = deque()
        source = iter(cells)
        pool = [_start(context, plan) for _ in range(self.workers)]
        pace_s = 0.0
        try:
            while True:
                for worker in pool:
                    if not worker.todo:
                        self._feed(worker, suspects, source, pace_s)
                if not any(worker.todo for worker in pool):
                    return
                for number, outcomes, took_s in self._gather(pool, plan, context, suspects):
                    yield from outcomes
                    pace_s = took_s / number if number else pace_s
        finally:
            for worker in pool:
                worker.pipe.close()
                worker.process.kill()
                worker.process.join()

    def _feed(self, worker: _Worker, suspects: deque[Cell], source: Iterator[Cell], pace_s: float) -> None:
        """Send a worker its next cells: one suspect, or as many as take about `CHUNK_S` at `pace_s` seconds a cell
        (0: not known).
        """
        if suspects:
            worker.todo.append(suspects.popleft())
        else:
            size = 1 if pace_s == 0 else max(1, min(MAX_CHUNK, int(CHUNK_S / pace_s)))
            worker.todo.extend(islice(source, size))
        if worker.todo:
            worker.alone = len(worker.todo) == 1
            worker.since_s = time.monotonic()
            worker.pipe.send(list(worker.todo))

    def _gather(
        self, pool: list[_Worker], plan: StudyPlan, context: Any, suspects: deque[Cell]
    ) -> Iterator[tuple[int, list[Outcome], float]]:
        """What the workers have to say: (cells, outcomes, seconds) of each."""
        busy = {worker.pipe: worker for worker in pool if worker.todo}
        ready = wait(list(busy), timeout=self._patience(busy.values()))
        for pipe in ready:
            worker = busy[pipe]  # type: ignore[index]
            try:
                outcomes: list[Outcome] = worker.pipe.recv()
            except (EOFError, OSError):
                yield 0, self._replace(worker, plan, context, suspects, _ending(worker.process)), 0.0
                continue
            now_s = time.monotonic()
            took_s = now_s - worker.since_s
            worker.since_s, worker.up = now_s, True
            for _ in outcomes:
                worker.todo.popleft()
            yield len(outcomes), outcomes, took_s
        for worker in busy.values():
            # Starting Python and importing the domain do not count as the cell's time.
            if (
                self.limit_s
                and worker.up
                and worker.todo
                and time.monotonic() - worker.since_s > self.limit_s
            ):
                worker.process.kill()
                reason = f"took longer than the limit of {self.limit_s:g} s"
                yield 0, self._replace(worker, plan, context, suspects, reason), 0.0

    def _patience(self, busy: Iterable[_Worker]) -> float | None:
        if not self.limit_s:
            return None
        now_s = time.monotonic()
        left_s = [worker.since_s + self.limit_s - now_s for worker in busy if worker.up]
        return max(0.01, min(left_s)) if left_s else None

    def _replace(
        self, worker: _Worker, plan: StudyPlan, context: Any, suspects: deque[Cell], reason: str
    ) -> list[Outcome]:
        """A fresh process for a worker whose process is gone; the outcome of the cell to blame, if it is known.

        Raises UsageError if the process never came up: another would not either.
        """
        if not worker.up:
            raise UsageError.at(
                "processes",
                f"cannot be started: {reason}; a script that runs a study must do so under `if __name__ == '__main__':`",
            )
        blamed: list[Outcome] = [Failed(worker.todo[0].number, reason)] if worker.alone else []
        if not worker.alone:
            suspects.extend(worker.todo)
        worker.pipe.close()
        worker.process.join()
        fresh = _start(context, plan)
        worker.process, worker.pipe, worker.todo, worker.up = fresh.process, fresh.pipe, deque(), False
        return blamed


def workers_of(number: int) -> Executor:
    """Where cells run with so many workers: in this process for one, else in processes of their own."""
    return Processes(number) if number > 1 else Here()


def _start(context: Any, plan: StudyPlan) -> _Worker:
    """A worker with a fresh process, which starts with interrupts blocked."""
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, plan), daemon=True)
    with blocked():
        process.start()
    theirs.close()
    return _Worker(process, ours)


def _work(pipe: Connection, plan: StudyPlan) -> None:
    """The life of a worker: chunks in, outcomes out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    # Nothing is forked here. Said so, numba takes no system-wide semaphore, which a killed worker would leave behind.
    multiprocessing.set_start_method("spawn", force=True)
    # Kernels that could use threads stay within this process's share of the machine.
    os.environ.setdefault("NUMBA_NUM_THREADS", "1")
    with contextlib.suppress(ForerunError):
        plan.scenario()
    # The parent may have ended: then there is nobody to report to.
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        _serve(pipe, plan)


def _serve(pipe: Connection, plan: StudyPlan) -> None:
    """Chunks of cells in, outcomes out at least every quarter of `CHUNK_S`, until the pipe is closed."""
    pipe.send([])  # ready: the domain is imported
    while True:
        chunk: list[Cell] = pipe.recv()
        ready: list[Outcome] = []
        sent_s = time.monotonic()
        for cell in chunk:
            ready.append(run_cell(plan, cell))
            if time.monotonic() - sent_s > CHUNK_S / 4:
                pipe.send(ready)
                ready, sent_s = [], time.monotonic()
        if ready:
            pipe.send(ready)


def _ending(process: Any) -> str:
    """How a process ended, in words: the signal that ended it, or its exit code."""
    process.join(5)
    code = process.exitcode
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = "; the machine may have run out of memory" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{hint}"
    return f"its process ended with exit code {code}"
