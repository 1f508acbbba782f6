"""What can be observed in one history of a job on preemptible nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from forerun.spot.engine.history import NodeSpell, Spell


class Observer(Protocol):
    """Sees a run and changes nothing. An observer has either method, or both."""

    def spell(self, spell: Spell) -> None:
        """Called for every interval of time in which the job is in one state, in order."""

    def node_spell(self, spell: NodeSpell) -> None:
        """Called for every interval of time in which a node is in one state."""


@runtime_checkable
class JobObserver(Protocol):
    """An observer of the job's states."""

    def spell(self, spell: Spell) -> None:
        """See `Observer.spell`."""


@runtime_checkable
class NodeObserver(Protocol):
    """An observer of the nodes' states."""

    def node_spell(self, spell: NodeSpell) -> None:
        """See `Observer.node_spell`."""
