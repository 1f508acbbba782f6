"""From inputs to an outcome: the engine of the scenario's mode, and what can be one.

Two engines run the default mode. `stagewise` is compiled and takes one stage after the other; `events` is a plain loop over
instants, which runs anything (policies without a compiled form, observers) and is what the compiled one is tested against.
Where both apply they agree bit for bit.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from forerun.core.registry import Registry

if TYPE_CHECKING:
    from forerun.serving.engine.outcome import Outcome
    from forerun.serving.inputs.inputs import Inputs
    from forerun.serving.observer import Observer
    from forerun.serving.scenario import Scenario


class Engine(ABC):
    """What simulates the scenarios of one `mode`. Packages announce others under `forerun.serving.engine`.

    Parameters
    ----------
    name : the mode.
    not_observable : the kind of run this is, in words, if observers cannot see it.
    lawful : whether its runs obey the laws that `summary.invariants` checks.
    aliases : other spellings of models and hardware that it accepts.
    """

    name: ClassVar[str]
    not_observable: ClassVar[str] = ""
    lawful: ClassVar[bool] = True
    aliases: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def run(self, inputs: Inputs, observers: Sequence[Observer]) -> Outcome:
        """Simulate. Touches no file and no clock; every random number comes from the seed of the inputs.

        Parameters
        ----------
        inputs : the scenario's files read, its names resolved, its arrivals made.
        observers : called while it runs; empty where `not_observable` says that they cannot see it.
        """


@functools.cache
def engines() -> Registry[Engine]:
    """The engines by mode: the files of `modes/`, and what installed packages announce."""
    return Registry(
        "mode",
        "forerun.serving.engine.modes",
        base=Engine,  # type: ignore[type-abstract]
        group="forerun.serving.engine",
    )


def engine_of(scenario: Scenario) -> type[Engine]:
    """The engine of a scenario's mode. Raises UnknownName if no installed package has one."""
    return engines().get(scenario.mode, where="$.mode")


def run(inputs: Inputs, observers: Sequence[Observer] = ()) -> Outcome:
    """Simulate a scenario's inputs with the engine of its mode.

    Parameters
    ----------
    inputs : from `prepare`, or the same with another seed.
    observers : objects that see the run and cannot change it (default: none). In the default mode they make the event
        loop run, which is the slower engine.

    Raises UnknownName if no installed package has the mode.
    """
    return engine_of(inputs.scenario)().run(inputs, observers)
