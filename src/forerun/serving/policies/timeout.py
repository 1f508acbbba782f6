"""Wait for a full batch, but not for ever."""

from __future__ import annotations

import numpy as np

from forerun.core.scenario.numbers import NotNegative
from forerun.serving.policy.batching import Batching, Decision, QueueView, Start, Wait


class Timeout(Batching, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="timeout"):
    """A batch starts when it is full or when its oldest query has waited `delay_ms`.

    Clipper's delayed batching [Crankshaw et al., NSDI'17, section 4.3.2]; the `max_queue_delay` of Triton's dynamic
    batcher. A delay of 0 is greedy.
    """

    delay_ms: NotNegative

    def build(self, rng: np.random.Generator) -> _Timeout:
        """The policy; it draws nothing."""
        return _Timeout(self.delay_ms)

    def compiled(self) -> tuple[str, float]:
        """Holding for `delay_ms`."""
        return "hold", self.delay_ms


class _Timeout:
    def __init__(self, delay_ms: float) -> None:
        self._delay_ms = delay_ms

    def decide(self, view: QueueView) -> Decision:
        if not view.queued:
            return Wait()
        over_ms = view.oldest_ms + self._delay_ms
        return Start() if view.queued >= view.max_batch or view.now_ms >= over_ms else Wait(over_ms)
