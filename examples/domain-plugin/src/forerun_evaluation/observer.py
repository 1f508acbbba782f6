"""What can be observed in a run."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Sees a run and changes nothing."""

    def started(self, evaluation: str, gpu: int, now_s: float) -> None:
        """Called whenever an evaluation starts on a GPU."""
