"""Wake a replica, let it take what is queued a little later."""

from __future__ import annotations

import numpy as np

from forerun.core.scenario.numbers import Positive
from forerun.serving.policy.batching import Batching, Decision, QueueView, Wait, Wake


class Delay(Batching, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="delay"):
    """An idle replica is woken per batch in the queue and takes whatever is queued `delay_ms` later.

    The `batching_delay` of the InferLine notebook, with its wake rule corrected: replicas already woken count.
    """

    delay_ms: Positive

    def build(self, rng: np.random.Generator) -> _Delay:
        """The policy; it draws nothing."""
        return _Delay(self.delay_ms)

    def compiled(self) -> tuple[str, float]:
        """Waking with `delay_ms`."""
        return "wake", self.delay_ms


class _Delay:
    def __init__(self, delay_ms: float) -> None:
        self._delay_ms = delay_ms

    def decide(self, view: QueueView) -> Decision:
        batches = -(-view.queued // view.max_batch)
        return Wake(self._delay_ms) if batches > view.woken else Wait()
