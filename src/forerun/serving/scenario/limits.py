"""How large a run may be: the memory that it takes is estimated and rejected above a fixed limit.

The limits are the same on every machine, so that the same scenario is rejected everywhere. Bytes were measured on the
demo pipeline (resident memory at 20,000 and at 500,000 queries in full, at 4,000,000 otherwise).
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import numpy as np

from forerun.core.errors import Problem, ScenarioError, UsageError

if TYPE_CHECKING:
    from forerun.serving.inputs.pipeline import Floats
    from forerun.serving.llm.inputs.model import LanguageModel

#: memory that a run may take, by estimate
MOST_BYTES: Final = 8 * 2**30
#: of an iteration where everything is recorded
ITERATION_BYTES: Final = 128
#: of a segment of a prompt in the prefix cache of a replica
SEGMENT_BYTES: Final = 24
#: of a query of a trace that is planned for
TRACE_BYTES: Final = 16
#: iterations of language models, at the least that the requests can mean
MOST_ITERATIONS: Final = 1_000_000_000
#: instants at which a tuner is asked
MOST_DECISIONS: Final = 10_000_000


def may_miss(wanted: float, requests: int) -> int:
    """floor((1 - wanted) * requests) in exact decimals: of 20,000 requests 0.99 leaves 200."""
    return math.floor((1 - Decimal(repr(wanted))) * requests)


def check_language_model(llm: LanguageModel, replicas: int, where: str, *, full: bool) -> None:
    """Reject requests that need more iterations than are simulated, or what does not fit in memory.

    Parameters
    ----------
    llm : whose requests are counted, refused ones left out.
    replicas : each with a prefix cache of its own.
    where : path of the language model in the scenario, for messages.
    full : whether iterations are recorded one by one.

    Raises ScenarioError.
    """
    taken = SEGMENT_BYTES * llm.prefixes.count * replicas
    if taken > MOST_BYTES:
        what = (
            f"{llm.prefixes.count:,} different segments on {replicas} replicas take {gib(taken)} of memory; at most "
            f"{gib(MOST_BYTES)} are used"
        )
        raise ScenarioError.at(f"{where}.prefix_cache", what)
    served = ~llm.refused
    prompt, steps = (tokens[served].astype(np.float64) for tokens in (llm.prompt, llm.least_steps))
    if llm.decode is None:
        least = _least_iterations(llm, prompt, steps)
    else:
        least = _least_iterations(llm, prompt, np.zeros(len(prompt)))
        least += _least_iterations(llm.decode.llm, np.zeros(len(prompt)), steps)
    most = min(MOST_ITERATIONS, MOST_BYTES // ITERATION_BYTES) if full else MOST_ITERATIONS
    if least > most:
        takes = f" and {gib(least * ITERATION_BYTES)} of memory" if full else ""
        what = f"{served.sum():,} requests need at least {least:.3g} iterations{takes}; at most {most:,} are simulated"
        raise ScenarioError.at(where, what)


def _least_iterations(llm: LanguageModel, prefills: Floats, decodes: Floats) -> float:
    """Iterations that requests mean at the least.

    Parameters
    ----------
    llm : whose limits count.
    prefills, decodes : float64[requests], tokens that each has processed.
    """
    turns = float((np.ceil(prefills / llm.token_budget) + decodes).sum())
    tokens = float((prefills + (decodes if llm.rules.counts_decodes else 0)).sum())
    return max(tokens / llm.token_budget, turns / llm.max_seqs)


def check_decisions(last_ms: float, period_s: float) -> None:
    """Reject a period at which a tuner is asked without end.

    Parameters
    ----------
    last_ms : instant of the last arrival, up to which it is asked.
    period_s : seconds between two questions.

    Raises ScenarioError.
    """
    asked = last_ms / (period_s * 1e3)
    if asked > MOST_DECISIONS:
        what = f"{period_s:g} s ask the tuner {asked:.3g} times; at most {MOST_DECISIONS:,} are simulated"
        raise ScenarioError(Problem("$.tuner.period_s", what))


def check_traces(traces: int, queries: int) -> None:
    """Reject plans on more traces than fit in memory: 8 bytes a query each, and its outcome.

    Parameters
    ----------
    traces : how many, with those that the plan is only tried on.
    queries : of each trace.

    Raises UsageError.
    """
    if not fits(traces, queries):
        takes = TRACE_BYTES * traces * queries
        what = f"{traces:,} traces of {queries:,} queries take {gib(takes)} of memory; at most {gib(MOST_BYTES)} are used"
        raise UsageError.at("traces", what)


def fits(traces: int, queries: int) -> bool:
    """Whether so many traces fit in memory; parameters as those of `check_traces`."""
    return TRACE_BYTES * traces * queries <= MOST_BYTES


def gib(size_bytes: float) -> str:
    """A size in words."""
    return f"{size_bytes / 2**30:.3g} GiB"
