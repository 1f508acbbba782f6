"""The rooms: one package a domain, all with the same doors.

Each room's package offers `Scenario`, `simulate(scenario, *, policy=None, watch=()) -> Result` and `POLICIES`, and
where it has them `plan` and more; its docstring tells its world in ten sentences. A door that a room does not need is
absent.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Iterable
from importlib.metadata import entry_points
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from forerun.errors import UnknownName
from forerun.scenario.arguments import require_scenario

if TYPE_CHECKING:
    from forerun.result.run import Result

#: entry point group of rooms that other packages bring
GROUP: Final = "forerun.rooms"


@functools.cache
def rooms() -> tuple[str, ...]:
    """The names of the rooms that stand, sorted: ours, and those that installed packages announce.

    >>> forerun.rooms()
    ('cluster', 'energy', 'loading', 'serving', 'spot')
    """
    ours = {info.name for info in pkgutil.iter_modules(__path__) if info.ispkg and _stands(info.name)}
    return tuple(sorted(ours | _announced().keys()))


def room(name: str) -> ModuleType:
    """The package of a room.

    Raises UnknownName with what is known.

    >>> forerun.room("spot").OBJECTIVES[0].key
    'samples_per_s'
    """
    if name not in rooms():
        raise UnknownName.among("room", name, rooms())
    return importlib.import_module(_announced().get(name, f"{__name__}.{name}"))


def room_part(name: str, part: str) -> ModuleType | None:
    """A module of a room (`figures`, `reproduce`, `plan`), or None if the room has no such part."""
    package = room(name)
    if not any(info.name == part for info in pkgutil.iter_modules(package.__path__)):
        return None
    return importlib.import_module(f"{package.__name__}.{part}")


@functools.cache
def _announced() -> dict[str, str]:
    return {point.name: point.value for point in entry_points(group=GROUP)}


def simulate(scenario: Any, *, policy: Any = None, watch: Iterable[Any] = ()) -> Result:
    """Run a scenario in its room and return the Result; touches no file and prints nothing.

    >>> result = forerun.simulate(forerun.load(forerun.demo("energy").scenario, ["trials=0"]))
    >>> print(f"{result.summary['energy_saved_percent']:.1f} % saved; {result.why}")
    44.1 % saved; the cheapest configuration, batch size 128 at 100 W, costs 33.3 % less than the default; ...

    scenario: as `forerun.load` gives it. policy: a recipe of the room in place of the scenario's. watch: observers, told of
    what they define (each room's `simulate` says of what). Raises PolicyError for an impossible decision, and
    ScenarioError or TraceError for what only shows when the scenario is run.
    """
    require_scenario(scenario, "simulate")
    result: Result = room(scenario.domain).simulate(scenario, policy=policy, watch=watch)
    return result


def _stands(name: str) -> bool:
    return importlib.util.find_spec(f"{__name__}.{name}.scenario") is not None
