"""Invariants of every stage with a language model, and a split of its requests' time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from forerun.serving.engine.outcome import Requests, Run, Visits
from forerun.serving.inputs.pipeline import Bools, Floats
from forerun.serving.llm.inputs.model import LanguageModel


def broken_laws(llm: LanguageModel, replicas: int, run: Run, number: int) -> list[str]:
    """The laws that a run breaks at a stage with a language model, in words.

    Parameters
    ----------
    llm : the limits of the stage, and the tokens of its requests.
    replicas : how many it has.
    run : with visits and requests; laws of iterations are checked where these are recorded.
    number : of the stage in the pipeline.
    """
    visits, requests = run.visits[number], run.requests[number]
    if requests is None:
        return ["the requests of its language model are not recorded"]
    came = ~np.isnan(visits.enqueue_ms)
    served = came & ~llm.refused[: len(came)]
    tokens = int((llm.output[: len(came)] - 1)[llm.warm_up :][served[llm.warm_up :]].sum())
    drafted, accepted = (0, 0) if requests.guesses is None else vars(requests.guesses).values()
    segment_tokens = llm.prefixes.segment_blocks * llm.block_tokens
    laws: dict[str, bool | np.bool_ | Bools] = {
        "requests are lost, or refused ones are served": np.array_equal(served, visits.batch > 0),
        "a request starts before it comes": visits.start_ms[served] >= visits.enqueue_ms[served],
        "a first token comes before the work on it began": requests.first_ms[served]
        > visits.start_ms[served],
        "a request ends before its first token": visits.end_ms[served] >= requests.first_ms[served],
        # Tokens that come together have no time between them.
        "tokens are lost or made up": int(requests.gaps.sum()) + accepted == tokens,
        "drafts are right more often than they propose": 0 <= accepted <= drafted,
        "a request finds tokens in the cache that no prompt begins with": requests.hit_tokens[served]
        <= llm.whole_segments[: len(came)][served] * segment_tokens
        + (llm.prompt + llm.output)[: len(came)][served] * requests.preemptions[served],
        "a request stalls that was not preempted": requests.stalled_ms[served & (requests.preemptions == 0)]
        == 0,
    }
    sent = requests.transfers
    if llm.decode is not None and sent is not None:
        on, least_ms = served & (llm.output[: len(came)] > 1), llm.decode.send_ms_per_token * llm.prompt
        least_ms = requests.first_ms + least_ms[: len(came)] + llm.decode.latency_ms
        laws |= {
            "requests are lost between the pools": np.array_equal(~np.isnan(sent.sent_ms), on),
            "a transfer is shorter than its tokens take": sent.sent_ms[on] >= least_ms[on] * (1 - 1e-12),
            "a request decodes before it is there": sent.start_ms[on] >= sent.sent_ms[on],
        }
    each = requests.recorded
    if each is not None:
        prompts = llm.prompt[: len(came)][served]
        processed = each.prefill + each.decodes
        budgeted = processed if llm.rules.counts_decodes else each.prefill
        decoders = 0 if llm.decode is None else llm.decode.replicas
        seats, budget = (np.full(len(processed), most) for most in (llm.max_seqs, llm.token_budget))
        if llm.decode is not None:
            decodes = each.replica >= replicas
            seats[decodes], budget[decodes] = llm.decode.llm.max_seqs, llm.decode.llm.token_budget
            laws["a replica decodes that prefills"] = each.decodes[~decodes] == 0
        mine = [each.replica == replica for replica in range(replicas + decoders)]
        waits_ms = [each.start_ms[rows][1:] - each.end_ms[rows][:-1] for rows in mine]
        laws |= {
            "an iteration processes nothing, or more than the budget": (processed >= 1)
            & (budgeted <= budget),
            "more requests run than there are seats": each.running <= seats,
            "the cache is fuller than it can be": each.free_blocks >= 0,
            "a replica works on two iterations at once": np.concatenate(waits_ms) >= 0,
            "prompt tokens are neither processed nor cached": each.prefill.sum() + requests.hit_tokens.sum()
            >= prompts.sum(),
        }
    return [law for law, is_met in laws.items() if not np.all(is_met)]


class Spent(NamedTuple):
    """Where requests spend their time at a stage, float64[queries] each, NaN where nobody came.

    Parameters
    ----------
    queue_ms : waiting for the first iteration.
    prefill_ms : up to the first token.
    transfer_ms : on the way to the replica that decodes, and in front of the link; 0 where the same one does.
    decode_wait_ms : waiting for the first iteration there.
    decode_ms : up to the last token.
    stalled_ms : back in the queue after preemptions.
    """

    queue_ms: Floats
    prefill_ms: Floats
    transfer_ms: Floats
    decode_wait_ms: Floats
    decode_ms: Floats
    stalled_ms: Floats


def time_of_requests(visits: Visits, requests: Requests) -> Spent:
    """Where requests spend their time. A refused request spends none.

    Parameters
    ----------
    visits, requests : of one stage.
    """
    refused = ~np.isnan(visits.enqueue_ms) & np.isnan(requests.first_ms)
    first_ms = np.where(refused, visits.enqueue_ms, requests.first_ms)
    stalled_ms = np.where(refused, 0.0, requests.stalled_ms)
    before_ms = np.where(refused, 0.0, requests.stalled_first_ms)
    transfer_ms = decode_wait_ms = np.zeros(len(first_ms))
    if requests.transfers is not None:
        sent_ms, start_ms = requests.transfers.sent_ms, requests.transfers.start_ms
        transfer_ms = np.where(np.isnan(sent_ms), 0.0, sent_ms - first_ms)
        decode_wait_ms = np.where(np.isnan(sent_ms), 0.0, start_ms - sent_ms)
    decoding_ms = visits.end_ms - first_ms - transfer_ms - decode_wait_ms
    return Spent(
        visits.start_ms - visits.enqueue_ms,
        first_ms - visits.start_ms - before_ms,
        transfer_ms,
        decode_wait_ms,
        decoding_ms - (stalled_ms - before_ms),
        stalled_ms,
    )
