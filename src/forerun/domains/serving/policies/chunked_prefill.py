"""Prompts in chunks beside the decodes."""

from __future__ import annotations

from forerun.domains.serving.policy.scheduling import Rules, Scheduler


class ChunkedPrefill(Scheduler, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="chunked-prefill"):
    """Running requests get what they still need, in order of admission, then waiting ones; prompts are cut at the budget.

    Sarathi-Serve [Agrawal et al., OSDI'24], as the first version of vLLM's second engine has it: an iteration mixes decodes
    with chunks of prompts up to a budget of tokens, so no long prompt stops the decodes.
    """

    def rules(self) -> Rules:
        """Everything together, prompts in chunks."""
        return Rules()
