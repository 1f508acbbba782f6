"""One cell of a study: simulated, or failed with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forerun.errors import ForerunError
from forerun.study.blocks import Units
from forerun.study.expand import Cell, Plan


@dataclass(frozen=True, slots=True)
class Done:
    """A cell that was simulated: its summary figures, the parts of each ledger by "ledger (unit)", and why.

    notes: what a reader of the result must know; units: what its figures are made of, where the plan wants them and the
    domain has them. A store keeps neither.
    """

    number: int
    summary: Mapping[str, Any]
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    why: str = ""
    notes: tuple[str, ...] = field(default=(), compare=False)
    units: Units | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """A cell that could not be simulated, with the reason in one or more lines."""

    number: int
    reason: str


Outcome = Done | Failed


def run_cell(plan: Plan, cell: Cell) -> Outcome:
    """Simulate one cell; whatever goes wrong in it is its outcome, never an exception."""
    try:
        return simulate_cell(plan, cell)
    except ForerunError as error:
        return Failed(cell.number, str(error))
    except MemoryError:
        return Failed(cell.number, "ran out of memory")
    except Exception as error:  # a room or a plugin may fail in any way; one bad cell never sinks the study
        return Failed(cell.number, f"{type(error).__name__}: {error}")


def simulate_cell(plan: Plan, cell: Cell) -> Done:
    """Simulate one cell. Raises whatever the room raises."""
    # The rooms stand above this module; the scenario names its own.
    import importlib

    rooms = importlib.import_module("forerun.domains")
    scenario = plan.scenario(cell)
    # A study has its own seeds: a room that would run more of them for an interval says how to leave them out.
    bare = getattr(rooms.room(scenario.domain), "without_intervals", None)
    result = rooms.simulate(bare(scenario) if bare is not None else scenario).check()
    parts = {
        f"{entry.name} ({entry.unit})" if entry.unit else entry.name: {
            name: float(amount) for name, amount in entry.parts.items()
        }
        for entry in result.ledgers
    }
    units_of = getattr(rooms.room(scenario.domain), "units_of", None)
    units = units_of(result) if plan.units and units_of is not None and cell.seed == plan.seeds[0] else None
    return Done(cell.number, result.data()["summary"], parts, result.why, tuple(result.notes), units)
