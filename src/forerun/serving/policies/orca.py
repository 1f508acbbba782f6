"""Iteration-level scheduling with memory reserved for whole answers."""

from __future__ import annotations

from typing import Literal

from forerun.serving.llm.policy.scheduling import Rules, Scheduler


class Orca(Scheduler, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="orca"):
    """Whole prompts join the decodes; blocks for the answer are reserved at admission [Orca: Yu et al., OSDI'22].

    So nobody is preempted. Kwon et al. [SOSP'23, section 6] name the two ways to reserve: `longest` is their Orca
    (Max), `own` their Orca (Oracle).

    reserve: blocks for the longest answer of all requests (default), or for each request's own.
    """

    reserve: Literal["longest", "own"] = "longest"

    def rules(self) -> Rules:
        """Whole prompts together with decodes, blocks reserved."""
        return Rules(
            prompts="whole", reserved="longest answer" if self.reserve == "longest" else "own answer"
        )
