"""Where cells are simulated: in this process, in a pool of processes, or on a Ray cluster.

An executor takes a plan and the cells to do, and yields their outcomes in any order. What it yields never depends on
the executor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Protocol

from forerun.core.study.cell import Outcome, run_cell
from forerun.core.study.expand import Cell, StudyPlan


class Executor(Protocol):
    """Simulates cells somewhere."""

    def run(self, plan: StudyPlan, cells: Iterable[Cell]) -> Iterator[Outcome]:
        """The outcome of each cell, in any order.

        Cells are taken as they are needed, and asked for again after every outcome: see `Feed`.
        """


class Feed:
    """Cells where an outcome decides what is simulated next: whoever reads the outcomes puts more cells in.

    That it is empty means for now; a run ends when it is empty and no cell is under way.
    """

    def __init__(self) -> None:
        self._waiting: deque[Cell] = deque()

    def put(self, cell: Cell) -> None:
        """Have a cell simulated, after those that wait."""
        self._waiting.append(cell)

    def __iter__(self) -> Iterator[Cell]:
        return self

    def __next__(self) -> Cell:
        if not self._waiting:
            raise StopIteration
        return self._waiting.popleft()


class Here:
    """One cell after the other, in this process."""

    def run(self, plan: StudyPlan, cells: Iterable[Cell]) -> Iterator[Outcome]:
        """The outcomes, in the cells' order."""
        return (run_cell(plan, cell) for cell in cells)
