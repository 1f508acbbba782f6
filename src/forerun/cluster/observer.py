"""What can be observed in a run of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from forerun.cluster.engine.record import Record


class Observer(Protocol):
    """Sees a run and changes nothing."""

    def instant(self, now_s: float, record: Record) -> None:
        """Called at every instant at which the policy acts, in seconds, with the record of the run up to then."""
