"""What can be observed in a run of a serving pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from forerun.serving.engine.stage_state import StageState


class Observer(Protocol):
    """Sees a run and changes nothing."""

    def instant(self, now_ms: float, stages: Sequence[StageState]) -> None:
        """Called after everything that happens at an instant has happened.

        Parameters
        ----------
        now_ms : the instant, in milliseconds.
        stages : the engine's own state, in topological order: to be read, not to be changed or kept.
        """
