"""Invariants of every stage with a language model, and a split of its requests' time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from forerun.domains.serving.engine.outcome import Requests, Run, Visits
from forerun.domains.serving.inputs.llm.model import LanguageModel
from forerun.domains.serving.inputs.pipeline import Floats


def broken_laws(llm: LanguageModel, replicas: int, run: Run, number: int) -> list[str]:
    """The laws that a run breaks at a stage with a language model."""
    visits, requests = run.visits[number], run.requests[number]
    if requests is None:
        return ["the requests of its language model are not recorded"]
    came = ~np.isnan(visits.enqueue_ms)
    served = came & ~llm.refused[: len(came)]
    tokens = int((llm.output[: len(came)][served] - 1).sum())
    laws = {
        "requests are lost, or refused ones are served": np.array_equal(served, visits.batch > 0),
        "a request starts before it comes": bool(
            (visits.start_ms[served] >= visits.enqueue_ms[served]).all()
        ),
        "a first token comes before the work on it began": bool(
            (requests.first_ms[served] > visits.start_ms[served]).all()
        ),
        "a request ends before its first token": bool(
            (visits.end_ms[served] >= requests.first_ms[served]).all()
        ),
        "tokens are lost or made up": int(requests.gaps.sum()) == tokens,
        "a request stalls that was not preempted": bool(
            (requests.stalled_ms[served & (requests.preemptions == 0)] == 0).all()
        ),
    }
    kept = requests.kept
    if kept is not None:
        processed = kept.prefill + kept.decodes
        laws |= {
            "an iteration processes nothing, or more than the budget": bool(
                ((processed >= 1) & (processed <= llm.token_budget)).all()
            ),
            "more requests run than there are seats": bool((kept.running <= llm.max_seqs).all()),
            "the cache holds more than it can": bool((kept.free_blocks >= 0).all()),
            "a replica works on two iterations at once": _one_at_a_time(
                lambda replica: kept.replica == replica, kept.start_ms, kept.end_ms, replicas
            ),
            "prompt tokens are not processed": int(kept.prefill.sum())
            >= int(llm.prompt[: len(came)][served].sum()),
        }
    return [law for law, holds in laws.items() if not holds]


def time_of_requests(visits: Visits, requests: Requests) -> tuple[Floats, Floats, Floats, Floats]:
    """float64[queries] each, NaN where nobody came: waiting for the first iteration, prefilling up to the first
    token, decoding up to the last, and back in the queue after preemptions. A refused request spends no time.
    """
    refused = ~np.isnan(visits.enqueue_ms) & np.isnan(requests.first_ms)
    first_ms = np.where(refused, visits.enqueue_ms, requests.first_ms)
    stalled_ms = np.where(refused, 0.0, requests.stalled_ms)
    before_ms = np.where(refused, 0.0, requests.stalled_first_ms)
    return (
        visits.start_ms - visits.enqueue_ms,
        first_ms - visits.start_ms - before_ms,
        visits.end_ms - first_ms - (stalled_ms - before_ms),
        stalled_ms,
    )


def _one_at_a_time(
    mine: Callable[[int], np.ndarray], start_ms: Floats, end_ms: Floats, replicas: int
) -> bool:
    return all(bool((start_ms[rows][1:] >= end_ms[rows][:-1]).all()) for rows in map(mine, range(replicas)))
