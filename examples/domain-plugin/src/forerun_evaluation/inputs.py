"""Reading a scenario's file."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import Problem, TraceError
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.source import Source
from forerun_evaluation.scenario import Scenario


@dataclass(frozen=True)
class Inputs:
    """A scenario and its evaluations: names, measured durations as float64[n], and repairs of the file as notes."""

    scenario: Scenario
    names: tuple[str, ...]
    duration_s: NDArray[np.float64]
    notes: tuple[str, ...] = ()


def prepare(scenario: Scenario) -> Inputs:
    """Read the list of evaluations. Raises TraceError with file and line for rows that cannot be used."""
    repairs = RepairLog()
    source = Source(scenario.evaluations.path, repairs=repairs)
    problems: list[Problem] = []
    rows: list[tuple[str, float]] = []
    for number, line in source.lines():
        cells = next(csv.reader([line]), [])
        if number == 1:
            if cells != ["evaluation", "duration_s"]:
                raise TraceError.at(
                    source.at(1), f"the columns are {cells}; evaluation and duration_s are expected"
                )
            continue
        name, duration_s = (cells[0], _positive(cells[1])) if len(cells) == 2 else ("", math.nan)
        if math.isnan(duration_s):
            problems.append(Problem(source.at(number), f"{line!r} is not a name and a duration above 0 s"))
        rows.append((name, duration_s))
    if problems:
        raise TraceError(*problems[:20])
    if not rows:
        raise TraceError.at(scenario.evaluations.path, "lists no evaluations")
    notes = tuple(str(repair) for repair in repairs.repairs)
    return Inputs(
        scenario, tuple(name for name, _ in rows), np.array([seconds for _, seconds in rows]), notes
    )


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if 0 < value < math.inf else math.nan
