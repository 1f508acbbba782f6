"""Decodes before prompts, never both."""

from __future__ import annotations

from forerun.domains.serving.policy.scheduling import Rules, Scheduler


class DecodeFirst(Scheduler, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="decode-first"):
    """An iteration decodes if an answer runs; prompts are admitted, whole, when all answers have ended.

    Batching of whole requests as in FasterTransformer, which Agrawal et al. [OSDI'24, section 3] call decode-prioritising:
    time between tokens is least, time to first token longest.
    """

    def rules(self) -> Rules:
        """Decodes first, whole prompts only where there is none."""
        return Rules(tokens="decodes first", whole_prompts=True)
