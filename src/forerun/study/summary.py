"""What came out of a study: the table of its cells, and each metric over the seeds with its interval."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from forerun.result.run import Interval
from forerun.result.tables import Column, Table, TableSchema
from forerun.study.cell import Done, Failed, Outcome
from forerun.study.expand import Cell, Plan
from forerun.study.statistics import mean_interval
from forerun.units import unit_of


@dataclass(frozen=True)
class Point:
    """One combination of axis values: each metric's mean over the seeds, and its interval where there are two or more."""

    values: tuple[Any, ...]
    seeds: int
    failed: int
    means: dict[str, float]
    intervals: dict[str, Interval]


def metric_names(plan: Plan, outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """The metrics of a study: those the file names, else every number in the summaries, in order of appearance."""
    seen: dict[str, None] = {}
    for outcome in outcomes:
        if isinstance(outcome, Done):
            seen |= dict.fromkeys(name for name, value in outcome.summary.items() if _is_number(value))
    named = {name for name, _ in plan.axes} | {"cell", "seed", "state", "reason"}
    return tuple(name for name in (plan.metrics or seen) if name in seen and name not in named)


def cells_table(plan: Plan, outcomes: list[Outcome]) -> Table:
    """One row a cell that has an outcome: number, axis values, seed, state, metrics, reason."""
    metrics = metric_names(plan, outcomes)
    columns = [Column("cell", meaning="number of the cell in the study")]
    columns += [Column(_axis_column(name), unit_of(name) or "", f"axis {name}") for name, _ in plan.axes]
    columns += [Column("seed"), Column("state", meaning="done or failed")]
    columns += [Column(name, unit_of(name) or "") for name in metrics]
    columns += [Column("reason", meaning="why a failed cell failed")]
    cells = _cells_by_number(plan, outcomes)
    rows = [_row(cells[outcome.number], outcome, metrics) for outcome in outcomes]
    return Table.of_rows(TableSchema("cells", tuple(columns), "one cell of the study"), rows)


def points(plan: Plan, outcomes: list[Outcome], confidence: float = 0.95) -> list[Point]:
    """Every combination of axis values with an outcome, in the study's order."""
    cells = _cells_by_number(plan, outcomes)
    metrics = metric_names(plan, outcomes)
    grouped: dict[str, list[Outcome]] = defaultdict(list)
    values: dict[str, tuple[Any, ...]] = {}
    for outcome in outcomes:
        combination = tuple(value for _, value in cells[outcome.number].overrides)
        key = json.dumps(combination, sort_keys=True)
        values[key] = combination
        grouped[key].append(outcome)
    return [_point(values[key], group, metrics, confidence) for key, group in grouped.items()]


def _point(
    values: tuple[Any, ...], group: list[Outcome], metrics: tuple[str, ...], confidence: float
) -> Point:
    done = [outcome for outcome in group if isinstance(outcome, Done)]
    means: dict[str, float] = {}
    intervals: dict[str, Interval] = {}
    for name in metrics:
        found = [float(outcome.summary[name]) for outcome in done if _is_number(outcome.summary.get(name))]
        if found:
            means[name] = float(np.mean(found))
        if len(found) > 1:
            intervals[name] = mean_interval(found, confidence)
    return Point(values, len(done), len(group) - len(done), means, intervals)


def _cells_by_number(plan: Plan, outcomes: list[Outcome]) -> dict[int, Cell]:
    wanted = {outcome.number for outcome in outcomes}
    return {cell.number: cell for cell in plan.cells() if cell.number in wanted}


def _row(cell: Cell, outcome: Outcome, metrics: tuple[str, ...]) -> list[Any]:
    axes = [
        value if _is_number(value) or isinstance(value, str) else json.dumps(value)
        for _, value in cell.overrides
    ]
    if isinstance(outcome, Failed):
        return [cell.number, *axes, cell.seed, "failed", *(float("nan") for _ in metrics), outcome.reason]
    figures = [outcome.summary.get(name) for name in metrics]
    numbers = [float(figure) if isinstance(figure, (int, float)) else float("nan") for figure in figures]
    return [cell.number, *axes, cell.seed, "done", *numbers, ""]


def _axis_column(name: str) -> str:
    return name if name not in {"cell", "seed", "state", "reason"} else f"axis {name}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
