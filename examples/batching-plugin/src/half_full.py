"""A batching policy in twelve lines, found by forerun through an entry point."""

from forerun.serving.policy.batching import Batching, Start, Wait


class HalfFull(Batching, tag="half-full", frozen=True, kw_only=True):
    """A batch starts when it is half full, or when its oldest query has waited `patience_ms`."""

    patience_ms: float = 20.0

    def build(self, rng):
        return self

    def decide(self, view):
        until_ms = view.oldest_ms + self.patience_ms
        ready = 2 * view.queued >= view.max_batch or view.now_ms >= until_ms
        return Start() if view.queued and ready else Wait(until_ms)
