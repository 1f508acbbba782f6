"""What can be observed in one history of a job on preemptible nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from forerun.domains.spot.engine.history import NodeSpell, Spell


class Observer(Protocol):
    """Sees a run and changes nothing. It has either method, or both."""

    def spell(self, spell: Spell) -> None:
        """Called for every stretch of time in which the job is in one state, in order."""

    def node_spell(self, spell: NodeSpell) -> None:
        """Called for every stretch of time in which a node is in one state."""
