"""One cell of a study: simulated, or failed with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forerun.core.domain import Units, get_domain, simulate
from forerun.core.errors import ForerunError
from forerun.core.result.tables import Table
from forerun.core.study.expand import Cell, StudyPlan


@dataclass(frozen=True, slots=True)
class Done:
    """A cell that was simulated: its summary figures, the parts of each ledger by "ledger (unit)", and why.

    notes: what a reader of the result must know; units: what its figures are made of, where the plan wants them and the
    domain has them; tables: those of the result that the plan wants. A store keeps none of these.
    """

    number: int
    summary: Mapping[str, Any]
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    why: str = ""
    notes: tuple[str, ...] = field(default=(), compare=False)
    units: Units | None = field(default=None, compare=False, repr=False)
    tables: Mapping[str, Table] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """A cell that could not be simulated, with the reason in one or more lines."""

    number: int
    reason: str


Outcome = Done | Failed


def run_cell(plan: StudyPlan, cell: Cell) -> Outcome:
    """Simulate one cell; whatever goes wrong in it is its outcome, never an exception."""
    try:
        return simulate_cell(plan, cell)
    except ForerunError as error:
        return Failed(cell.number, str(error))
    except MemoryError:
        return Failed(cell.number, "ran out of memory")
    except Exception as error:  # a domain or a plugin may fail in any way; one bad cell never sinks the study
        return Failed(cell.number, f"{type(error).__name__}: {error}")


def simulate_cell(plan: StudyPlan, cell: Cell) -> Done:
    """Simulate one cell. Raises whatever the domain raises."""
    scenario = plan.scenario(cell)
    domain = get_domain(scenario.domain)
    # A study has its own seeds: replications for a run's own intervals would only cost time.
    scenario = domain.without_intervals(scenario)
    if cell.seed != plan.seeds[0] and not plan.paths:
        scenario = domain.resampled(scenario)
    result = simulate(scenario)
    parts = {
        f"{entry.name} ({entry.unit})" if entry.unit else entry.name: {
            name: float(amount) for name, amount in entry.parts.items()
        }
        for entry in result.ledgers
    }
    units = domain.units(result) if plan.units and cell.seed == plan.seeds[0] else None
    tables = {name: result.tables[name] for name in plan.tables}
    return Done(cell.number, result.data()["summary"], parts, result.why, tuple(result.notes), units, tables)
