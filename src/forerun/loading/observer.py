"""What can be observed in a run that loads data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from forerun.loading.engine.kernels.deliver import Delivery
    from forerun.loading.engine.model import StreamRun


class Observer(Protocol):
    """Sees a run and changes nothing."""

    def epoch(self, number: int, run: StreamRun | Delivery) -> None:
        """Called after every epoch with its number, from 0, and its record: reads of threads, or batches of workers."""
