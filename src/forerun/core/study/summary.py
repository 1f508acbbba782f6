"""The results of a study: the table of its cells, and each metric over the seeds with its interval.

Outcomes are read once, in the order of the cells, and discarded: memory grows with the combinations (points) or
with the numbers of a table, never with the outcomes themselves.
"""

from __future__ import annotations

import itertools
import json
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.core.domain import left_out, objectives_of
from forerun.core.result.numbers import is_number
from forerun.core.result.objective import Objective
from forerun.core.result.stats import Interval, path_means, two_level_interval
from forerun.core.result.tables import Column, Table, TableSchema
from forerun.core.study.cell import Done, Outcome
from forerun.core.study.expand import StudyPlan
from forerun.core.study.replicates import INDEPENDENT, Replicates
from forerun.core.units import unit_of

#: columns of the table of cells that are no metric
_OWN = ("cell", "seed", "state", "reason")


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of axis values: each metric's mean over its cells, and its interval where there are two or more.

    Where the study has paths, means are over the paths' means, and intervals of two levels. number: of the combination
    in the study's order; places: of its values among those of each axis; text: its values in one line. seeds: how many of
    its cells were simulated. replicates: how these belong together. left_out: how much of the work its objective is not
    about, and in words (see `Domain.left_out`).
    """

    values: tuple[Any, ...]
    seeds: int
    failed: int
    means: dict[str, float]
    intervals: dict[str, Interval]
    number: int = 0
    replicates: Replicates = INDEPENDENT
    places: tuple[int, ...] = ()
    text: str = ""
    left_out: tuple[float, str] = (0.0, "")

    def comparable(self, other: Point) -> bool:
        """Whether the objective of two combinations is about equally much work."""
        return math.isclose(self.left_out[0], other.left_out[0], abs_tol=1e-9)


def points(
    plan: StudyPlan, outcomes: Iterable[Outcome], *, metrics: Sequence[str] = (), objective: str = ""
) -> list[Point]:
    """Every combination of axis values with an outcome, in the study's order.

    outcomes: in the order of the cells. metrics: which to keep; those the study names, else every number in the
    summaries, if none are given. objective: the metric that ranks them.
    """
    names = tuple(metrics) or plan.metrics
    known = {objective.key: objective for objective in objectives_of(str(plan.base.get("domain", "")))}
    return [
        _point(plan, number, list(group), names, known, objective)
        for number, group in by_combination(plan, outcomes)
    ]


def by_combination(plan: StudyPlan, outcomes: Iterable[Outcome]) -> Iterator[tuple[int, Iterator[Outcome]]]:
    """The outcomes of each combination: its cells follow one another."""
    return itertools.groupby(outcomes, lambda outcome: outcome.number // plan.replications)


def cells_table(plan: StudyPlan, outcomes: Iterable[Outcome]) -> Table:
    """One row a cell that has an outcome: number, axis values, seed, state, metrics, reason."""
    numbers, states, reasons = array("q"), array("b"), []
    metrics: dict[str, array[float]] = {}
    for row, outcome in enumerate(outcomes):
        numbers.append(outcome.number)
        done = isinstance(outcome, Done)
        states.append(done)
        if isinstance(outcome, Done):
            for name in figures_of(plan, outcome):
                # A metric that first appears here was absent from the rows before.
                column = metrics.setdefault(name, array("d"))
                column.extend([float("nan")] * (row - len(column)))
                column.append(float(outcome.summary[name]))
        reasons.append("" if isinstance(outcome, Done) else outcome.reason)
    for column in metrics.values():
        column.extend([float("nan")] * (len(numbers) - len(column)))
    named = [name for name in (plan.metrics or metrics) if name in metrics]
    cells = np.array(numbers, dtype=np.int64)
    columns: dict[str, NDArray[Any]] = {
        "cell": cells,
        **_axis_columns(plan, cells),
        "seed": np.array(plan.seeds)[cells % len(plan.seeds)],
        "state": np.where(np.array(states, dtype=bool), "done", "failed").astype(object),
        **{name: np.array(metrics[name]) for name in named},
        "reason": np.array(reasons, dtype=object),
    }
    return Table(TableSchema("cells", _schema(plan, named), "one cell of the study"), columns)


def figures_of(plan: StudyPlan, outcome: Done) -> Iterator[str]:
    """The names of a cell's metrics: its numbers, but for those that an axis or a column of our own is called."""
    apart = {name for name, _ in plan.axes}.union(_OWN)
    return (name for name, value in outcome.summary.items() if is_number(value) and name not in apart)


def _schema(plan: StudyPlan, metrics: Sequence[str]) -> tuple[Column, ...]:
    """The columns of the table of cells."""
    return (
        Column("cell", meaning="number of the cell in the study"),
        *(Column(_axis_column(name), unit_of(name) or "", f"axis {name}") for name, _ in _every(plan)),
        Column("seed", meaning="seed of the cell"),
        Column("state", meaning="done or failed"),
        *(Column(name, unit_of(name) or "", "as in the summary of the run") for name in metrics),
        Column("reason", meaning="why a failed cell failed"),
    )


def _every(plan: StudyPlan) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """The axes and, last of them, the paths."""
    return (*plan.axes, *([plan.paths] if plan.paths else []))


def _axis_columns(plan: StudyPlan, cells: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """The axis values of each cell; numbers where all of an axis are numbers, else text."""
    columns: dict[str, NDArray[Any]] = {}
    rest = cells // len(plan.seeds)
    for name, values in reversed(_every(plan)):
        rest, place = np.divmod(rest, max(1, len(values)))
        if all(map(is_number, values)):
            column = np.array(values)
        else:
            texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
            column = np.array(texts, dtype=object)
        columns[_axis_column(name)] = column[place]
    return dict(reversed(columns.items()))


def _point(
    plan: StudyPlan, number: int, group: list[Outcome], metrics: Sequence[str],
    known: Mapping[str, Objective], objective: str,
) -> Point:  # fmt: skip
    """One combination: the means and intervals of its cells.

    group: the outcomes of its cells. metrics: which (none: every number of a summary). known: objectives by key, whose
    bounds intervals are cut to. objective: see `points`. With paths, means are over the paths and intervals of two levels.
    """
    done = [outcome for outcome in group if isinstance(outcome, Done)]
    names = metrics or tuple(
        dict.fromkeys(name for one in done for name, value in one.summary.items() if is_number(value))
    )
    means: dict[str, float] = {}
    intervals: dict[str, Interval] = {}
    replicates = INDEPENDENT if plan.paths else Replicates.of(one.summary for one in done)
    for name in names:
        having = [outcome for outcome in done if is_number(outcome.summary.get(name))]
        values = [float(outcome.summary[name]) for outcome in having]
        if plan.paths and values:
            table = np.full((len(plan.paths[1]), len(plan.seeds)), np.nan)
            table.flat[[outcome.number % plan.replications for outcome in having]] = values
            over_paths = path_means(table)
            means[name] = float(over_paths.mean())
            if len(over_paths) > 1:
                over = two_level_interval(table)
                intervals[name] = known[name].cut(over, len(over_paths)) if name in known else over
            continue
        if values:
            means[name] = float(np.mean(values))
        if interval := replicates.mean(values, known.get(name)):
            intervals[name] = interval
    failed = len(group) - len(done)
    chosen, apart = plan.combination(number), left_out(str(plan.base.get("domain", "")), objective, means)
    return Point(
        chosen, len(done), failed, means, intervals, number, replicates,
        plan.places(number), plan.in_words(chosen), apart if objective else (0.0, ""),
    )  # fmt: skip


def _axis_column(name: str) -> str:
    return name if name not in _OWN else f"axis {name}"
