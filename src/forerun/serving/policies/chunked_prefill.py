"""Prompts in chunks beside the decodes."""

from __future__ import annotations

from typing import ClassVar

from forerun.serving.llm.policy.scheduling import Rules, Scheduler


class ChunkedPrefill(Scheduler, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="chunked-prefill"):
    """Decodes and chunks of prompts share iterations of a budget of tokens [Sarathi-Serve: Agrawal et al., OSDI'24].

    Running requests get what they still need, in order of admission, then waiting ones, and prompts are cut at the
    budget, as vLLM's second engine does; so no long prompt stops the decodes.

    ahead: compose an iteration when the one before it begins, so that the processor need not wait for the scheduler; who
        joins the queue later waits for the iteration behind. vLLM calls it asynchronous scheduling, and since its version
        0.14 it is the default there (left out: no).
    """

    ahead: bool | None = None

    added_later: ClassVar[tuple[str, ...]] = ("ahead",)
    composing: ClassVar[str] = "ahead"

    def rules(self) -> Rules:
        """Everything together, prompts in chunks."""
        return Rules(ahead=self.ahead or False)

    def vllm_flags(self) -> tuple[str, ...]:
        """Chunks are the default; the rest is said."""
        return (
            "--async-scheduling" if self.ahead else "--no-async-scheduling",
            "--no-scheduler-reserve-full-isl",
        )
