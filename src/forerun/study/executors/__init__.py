"""Where cells are simulated: in this process, in a pool of processes, or on a Ray cluster.

An executor takes a plan and the cells to do, and yields their outcomes in any order. What it yields never depends on
the executor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from forerun.study.cell import Outcome, run_cell
from forerun.study.expand import Cell, Plan


class Executor(Protocol):
    """Simulates cells somewhere."""

    def run(self, plan: Plan, cells: Iterable[Cell]) -> Iterator[Outcome]:
        """The outcome of each cell, in any order."""


class Here:
    """One cell after the other, in this process."""

    def run(self, plan: Plan, cells: Iterable[Cell]) -> Iterator[Outcome]:
        """The outcomes, in the cells' order."""
        return (run_cell(plan, cell) for cell in cells)
