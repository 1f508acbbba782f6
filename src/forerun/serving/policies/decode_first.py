"""Decodes before prompts, never both."""

from __future__ import annotations

from forerun.serving.llm.policy.scheduling import Rules, Scheduler


class DecodeFirst(Scheduler, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="decode-first"):
    """Prompts are admitted, whole, when all running answers have ended [so named by Agrawal et al., OSDI'24].

    Batching of whole requests, as in FasterTransformer: the time between tokens is least, the time to first token longest.
    """

    def rules(self) -> Rules:
        """Decodes first, whole prompts only where there is none."""
        return Rules(tokens="decodes first", prompts="whole")
