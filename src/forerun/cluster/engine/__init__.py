"""From a policy to its rules at work: the engine of the scenario's mode, and what can be one.

rules: the protocol of what plays in a run, in a simulation or over real jobs. run, record: a run, and what it leaves.
allocator: policies that decide through a view. priority, node_queue: whole runs. queue_arrays, queue_view: the compiled
queue before its first arrival, and on a view. kernels: compiled loops. modes: the engines.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from forerun.core.registry import Registry

if TYPE_CHECKING:
    from forerun.cluster.engine.allocator import Terms
    from forerun.cluster.engine.record import Record
    from forerun.cluster.engine.rules import AnyObservingRules, AnyRules
    from forerun.cluster.inputs.setting import Setting
    from forerun.cluster.policy import Policy
    from forerun.core.domain import Change
    from forerun.core.errors import Problem


class Engine(ABC):
    """What plays the policies of one `mode`. Packages announce others under `forerun.cluster.engine`.

    Parameters
    ----------
    switches : what a scenario says of single ones in its `compat` section.

    Attributes
    ----------
    name : the mode.
    """

    name: ClassVar[str]

    def __init__(self, switches: Mapping[str, str]) -> None:
        self.switches = switches

    @abstractmethod
    def problems(self, policy: Policy) -> list[tuple[str, str]]:
        """What stands against a policy and the switches in this mode: (path in the scenario, what is wrong)."""

    @abstractmethod
    def rules(self, policy: Policy, setting: Setting, record: Record, terms: Terms, seed: int) -> AnyRules:
        """The rules of a policy for one run, writing into a record.

        Parameters
        ----------
        policy : what the scenario names.
        setting : what is run.
        record : written: what happens.
        terms, seed : for policies that decide through a view.
        """

    def replans(self, policy: Policy) -> bool:
        """Whether rules of its own plan by the work that is left: jobs may be slower than planned (default: none do)."""
        return False

    def against_live(self, policy: Policy, rules: AnyObservingRules, setting: Setting) -> Sequence[Problem]:
        """Why the rules of a policy cannot decide over real jobs in this mode (default: they can)."""
        return ()

    def changes(self, policy: Policy) -> tuple[Change, ...]:
        """What `forerun explain` changes in the mode to show its effect (default: nothing)."""
        return ()


@functools.cache
def engines() -> Registry[Engine]:
    """The engines by mode: the files of `modes/`, and what installed packages announce."""
    return Registry(
        "mode",
        "forerun.cluster.engine.modes",
        base=Engine,  # type: ignore[type-abstract]
        group="forerun.cluster.engine",
    )


class Moded(Protocol):
    """What says how a policy is played: a scenario."""

    @property
    def mode(self) -> str:
        """The name of an engine."""

    @property
    def compat(self) -> Mapping[str, str]:
        """Its switches."""


def engine_of(scenario: Moded) -> Engine:
    """The engine of a scenario's mode. Raises UnknownName if no installed package has one."""
    return engines().get(scenario.mode, where="$.mode")(scenario.compat)
