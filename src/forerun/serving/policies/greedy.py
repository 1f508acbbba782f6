"""Start at once."""

from __future__ import annotations

import numpy as np

from forerun.serving.policy.batching import Batching, Decision, QueueView, Start, Wait


class Greedy(Batching, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="greedy"):
    """An idle replica takes whatever is queued, up to the largest batch, without waiting for more.

    The batching of InferLine's queues and of the notebook [Crankshaw et al., SoCC'20, section 3].
    """

    def build(self, rng: np.random.Generator) -> _Greedy:
        """The policy; it draws nothing."""
        return _Greedy()

    def compiled(self) -> tuple[str, float]:
        """Holding for no time."""
        return "hold", 0.0


class _Greedy:
    def decide(self, view: QueueView) -> Decision:
        return Start() if view.queued else Wait()
