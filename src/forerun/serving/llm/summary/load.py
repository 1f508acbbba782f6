"""A lower bound of the work that requests mean."""

from __future__ import annotations

import numpy as np

from forerun.serving.inputs.pipeline import Bools, Floats, Ints
from forerun.serving.llm.inputs.model import LanguageModel


def least_work_ms(llm: LanguageModel, came: Bools, hit_tokens: Ints) -> float:
    """A lower bound of the time on one replica that a request takes, averaged over the queries that come by.

    The work itself does not depend on how prompts are cut into chunks (the pairs of tokens that attend to each other sum
    to p^2 / 2), and iterations are at least as many as the tokens over the budget, the turns of requests over the seats,
    and the blocks they hold in each turn over the blocks there are. Where a draft proposes tokens, all are taken to be
    right, and what they cost is left out. Refused requests are no work. Tokens that the prefix cache had are none either,
    but the last of a prompt is always processed; blocks are shared then, so they limit nothing here.

    Parameters
    ----------
    llm : costs, limits and the tokens of the requests.
    came : bool[queries], who comes by.
    hit_tokens : int64[queries], tokens of each that the prefix cache had.
    """
    served = came & ~llm.refused[: len(came)]
    if not came.any() or not served.any():
        return 0.0
    p = llm.prompt[: len(came)][served].astype(np.float64)
    o = 1 + llm.least_steps[: len(came)][served].astype(np.float64)
    if llm.decode is not None:
        o = np.ones(len(p))
    cached = np.minimum(hit_tokens[: len(came)][served], p - 1)
    turns = np.ceil((p - cached) / llm.token_budget) + o - 1
    held = o * p + o * (o - 1) / 2 if llm.shared is None else np.zeros(len(p))
    return _work_ms(llm, cached, p, o, turns, held) / int(came.sum())


def least_decode_ms(llm: LanguageModel, came: Bools) -> float:
    """The same of a replica that decodes what others have prefilled."""
    assert llm.decode is not None
    served = came & ~llm.refused[: len(came)]
    p = llm.prompt[: len(came)][served].astype(np.float64)
    o = 1 + llm.decode.llm.least_steps[: len(came)][served].astype(np.float64)
    held = (o - 1) * p + o * (o - 1) / 2
    return _work_ms(llm.decode.llm, p, p, o, o - 1, held) / max(1, int(came.sum()))


def _work_ms(llm: LanguageModel, cached: Floats, p: Floats, o: Floats, turns: Floats, held: Floats) -> float:
    """A lower bound of the time that requests take on one replica.

    Parameters
    ----------
    llm : costs and limits.
    cached : float64[requests], tokens of the prompts that are there already.
    p, o : float64[requests], tokens of prompts, and steps in which the answers come at the least.
    turns : float64[requests], iterations in which each takes part, at the least.
    held : float64[requests], tokens that each has cached in these, summed.
    """
    prefill, decodes = (p - cached).sum(), (o - 1).sum()
    blocks = held.sum() / llm.block_tokens
    tokens = prefill + (decodes if llm.rules.counts_decodes else 0)
    iterations = max(tokens / llm.token_budget, turns.sum() / llm.max_seqs, blocks / llm.kv_blocks)
    if llm.cost.tabled:
        prefill_ms = llm.cost.prefill_ms
        per_token_ms = float((prefill_ms[1:] / np.arange(1, len(prefill_ms))).min())
        work_ms = max(iterations * llm.cost.least_ms, prefill * per_token_ms)
    else:
        _, of_prefill, of_decode, of_kv, of_attention = llm.cost.terms
        kv = ((o - 1) * p + (o - 1) * (o - 2) / 2).sum()
        work_ms = (
            llm.cost.beside_ms * iterations
            + of_prefill * prefill
            + of_decode * decodes
            + of_kv * kv
            + of_attention * ((p**2 - cached**2) / 2).sum()
        )
    return float(work_ms)
