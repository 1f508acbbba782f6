"""Run the cells of a study that are not done yet, and store every outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forerun.core.study.cell import Outcome
from forerun.core.study.executors import Executor
from forerun.core.study.expand import Cell, StudyPlan
from forerun.core.study.store import Store

#: outcomes are stored at most this many seconds after they arrive
KEEP_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a study is: cells done and failed (also those of earlier runs), of how many."""

    done: int
    failed: int
    total: int


def run_study(
    plan: StudyPlan,
    store_path: Path,
    executor: Executor,
    *,
    retry: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Do the cells that are not done, keeping outcomes as they come; killed at any instant, it goes on from there.

    `retry` does failed cells again. Raises StoreError if the store cannot be used.
    """
    with Store(store_path, plan, writing=True) as store:
        skip = bytearray(len(plan))  # one byte per cell
        done = _mark(skip, store.numbers("done"))
        skipped = done if retry else _mark(skip, store.numbers("failed"))
        state = Progress(done, skipped - done, len(plan))
        progress(state)
        todo: Iterator[Cell] = (cell for cell in plan.cells() if not skip[cell.number])
        batch: list[Outcome] = []
        kept_s = time.monotonic()
        try:
            for outcome in executor.run(plan, todo):
                batch.append(outcome)
                if time.monotonic() - kept_s > KEEP_S:
                    state = _keep(store, batch, state)
                    progress(state)
                    kept_s = time.monotonic()
        finally:
            # Also on Ctrl-C: store what was simulated.
            state = _keep(store, batch, state)
            progress(state)
    return state


def _mark(cells: bytearray, numbers: Iterable[int]) -> int:
    """Mark some cells; returns how many are marked."""
    for number in numbers:
        cells[number] = 1
    return cells.count(1)


def _keep(store: Store, batch: list[Outcome], state: Progress) -> Progress:
    from forerun.core.study.cell import Done

    if not batch:
        return state
    store.add(batch)
    good = sum(isinstance(outcome, Done) for outcome in batch)
    state = Progress(state.done + good, state.failed + len(batch) - good, state.total)
    batch.clear()
    return state
