"""What can be observed in a run of recurring training jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from forerun.energy.engine.simulation import Attempt


class Observer(Protocol):
    """Sees a run and changes nothing."""

    def attempt(self, attempt: Attempt) -> None:
        """Called for every attempt to train the model, in the order in which the policy learned of them."""
