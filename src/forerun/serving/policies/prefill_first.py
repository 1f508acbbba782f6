"""Prompts before decodes, never both."""

from __future__ import annotations

from forerun.serving.llm.policy.scheduling import Rules, Scheduler


class PrefillFirst(Scheduler, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="prefill-first"):
    """An iteration processes whole prompts if one can be admitted, else it decodes [vLLM: Kwon et al., SOSP'23].

    The scheduler of vLLM before chunked prefill: the first token comes soon, and running answers wait for prompts.
    """

    def rules(self) -> Rules:
        """Whole prompts first, decodes only where there is none."""
        return Rules(tokens="prefills first", prompts="whole")
