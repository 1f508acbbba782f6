"""One cell of a study: simulated, or failed with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forerun.errors import ForerunError
from forerun.study.expand import Cell, Plan


@dataclass(frozen=True, slots=True)
class Done:
    """A cell that was simulated: its summary figures, ledger parts ("ledger: part" in the ledger's unit) and why."""

    number: int
    summary: Mapping[str, Any]
    parts: Mapping[str, float] = field(default_factory=dict)
    why: str = ""


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

    scenario = plan.scenario(cell)
    result = importlib.import_module("forerun.domains").simulate(scenario).check()
    parts = {
        f"{led.name}: {part}": float(amount) for led in result.ledgers for part, amount in led.parts.items()
    }
    return Done(cell.number, result.data()["summary"], parts, result.why)
