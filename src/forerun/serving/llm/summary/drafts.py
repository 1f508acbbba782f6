"""What drafts of speculative decoding bring to a run, and what they cost it."""

from __future__ import annotations

from typing import NamedTuple

from forerun.serving.engine.outcome import Requests
from forerun.serving.inputs.pipeline import Stage


class Drafting(NamedTuple):
    """A stage's steps with drafts beside those without.

    Parameters
    ----------
    tokens : of a step, on average.
    longer : what the mean iteration that decodes takes, over what it would take without drafts.
    decodes : requests in it.
    """

    tokens: float
    longer: float
    decodes: float

    @property
    def pays(self) -> bool:
        """Whether a request has its tokens sooner than without drafts, if as many others decode beside it."""
        return self.tokens > self.longer


def drafting(stage: Stage, requests: Requests | None) -> Drafting | None:
    """What drafts do at a stage; None without them, and where no iteration that decodes is recorded.

    Parameters
    ----------
    stage : that serves a language model, or not.
    requests : what happened there.
    """
    if stage.llm is None or requests is None or requests.guesses is None or requests.recorded is None:
        return None
    llm = stage.llm if stage.llm.decode is None else stage.llm.decode.llm
    own, each, steps = llm.speculation, requests.recorded, int(requests.gaps.sum())
    rows = each.decodes > 0
    if own is None or not steps or not rows.any():
        return None
    prefill, decodes, kv = (float(column[rows].mean()) for column in (each.prefill, each.decodes, each.kv))
    drafted = requests.guesses.drafted / int(rows.sum())
    pairs = drafted * (kv / decodes + 1 + own.draft_tokens / 2)
    plain_ms = llm.cost.iteration_ms(prefill, decodes, kv, 0.0)
    drafted_ms = llm.cost.iteration_ms(prefill + drafted, decodes, kv, pairs)
    drafted_ms += own.extra_ms(own.draft_tokens, drafted)
    return Drafting(1 + requests.guesses.accepted / steps, drafted_ms / plain_ms, decodes)
