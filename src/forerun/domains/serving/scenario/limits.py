"""How large a run may be: the memory that it takes is estimated from the scenario and rejected above a fixed limit.

The limits are the same on every machine, so that the same scenario is rejected everywhere. Bytes were measured on the
demo pipeline (resident memory at 20,000 and at 500,000 queries in full, at 4,000,000 otherwise).
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import numpy as np

from forerun.domains.serving.scenario.traces import Generated
from forerun.errors import Problem, ScenarioError, UsageError

if TYPE_CHECKING:
    from forerun.domains.serving.inputs.llm.model import LanguageModel
    from forerun.domains.serving.inputs.pipeline import Floats
    from forerun.domains.serving.scenario import Scenario

#: memory that a run may take, by estimate
MOST_BYTES: Final = 8 * 2**30
#: of a query; of each of its visits where everything is recorded; of a replica; of a seat of a language model; of an
#: iteration where everything is recorded
QUERY_BYTES: Final = 40
VISIT_BYTES: Final = 225
REPLICA_BYTES: Final = 64
SEAT_BYTES: Final = 16
ITERATION_BYTES: Final = 128
#: of a segment of a prompt in the prefix cache of a replica
SEGMENT_BYTES: Final = 24

#: queries that mode compat plays, event by event
MOST_COMPAT_QUERIES: Final = 5_000_000
#: iterations of language models, at the least that the requests can mean
MOST_ITERATIONS: Final = 1_000_000_000
#: instants at which a tuner is asked
MOST_DECISIONS: Final = 10_000_000


def _query_bytes(scenario: Scenario) -> int:
    return QUERY_BYTES + VISIT_BYTES * len(scenario.stages) * (scenario.record == "full")


def _fixed_bytes(scenario: Scenario) -> int:
    """What replicas and seats take; every stage has arrays for as many replicas as the largest."""
    placed = scenario.configuration.values()
    most = max(
        (max(one.replicas, *(change.replicas for change in one.changes), 1) for one in placed), default=1
    )
    models = [(one.replicas, one.llm) for one in placed if one.llm is not None]
    seats = sum(replicas * llm.max_seqs for replicas, llm in models)
    decoders = [(llm.decode, llm.max_seqs) for _, llm in models if llm.decode is not None]
    seats += sum(pool.replicas * (pool.max_seqs or most) for pool, most in decoders)
    most = max([most, *(pool.replicas for pool, _ in decoders)])
    return REPLICA_BYTES * len(scenario.stages) * most + SEAT_BYTES * seats


def most_queries(scenario: Scenario) -> int:
    """The most queries that a run of the scenario may have."""
    most = max(0, MOST_BYTES - _fixed_bytes(scenario)) // _query_bytes(scenario)
    return min(most, MOST_COMPAT_QUERIES) if scenario.mode == "compat" else most


def may_miss(wanted: float, requests: int) -> int:
    """floor((1 - wanted) * requests) in exact decimals: of 20,000 requests 0.99 leaves 200."""
    return math.floor((1 - Decimal(repr(wanted))) * requests)


def size_problems(scenario: Scenario) -> list[tuple[str, str]]:
    """What is too large, before any file is read and any number is drawn."""
    fixed = _fixed_bytes(scenario)
    if fixed > MOST_BYTES:
        what = f"replicas and seats would take {_gib(fixed)} of memory; at most {_gib(MOST_BYTES)} are used"
        return [("configuration", what)]
    traces = {"trace": scenario.trace, "sample": scenario.sample}
    counts = {
        f"{name}.queries": trace.queries for name, trace in traces.items() if isinstance(trace, Generated)
    }
    return [
        (name, too_many(scenario, count)) for name, count in counts.items() if count > most_queries(scenario)
    ]


def too_many(scenario: Scenario, queries: int, counted: str = "") -> str:
    """What this many queries would take, and what to do.

    Parameters
    ----------
    scenario : whose stages and record say how many bytes a query takes.
    queries : how many there would be.
    counted : how many in words, where that is not known exactly (default: it is).
    """
    most = most_queries(scenario)
    if scenario.mode == "compat" and most == MOST_COMPAT_QUERIES:
        return f"{counted or f'{queries:,}'} queries; mode compat plays at most {most:,}, event by event"
    takes = f"{counted or f'{queries:,}'} queries recorded in {scenario.record!r} take {'more than ' * bool(counted)}"
    size = _gib(_fixed_bytes(scenario) + _query_bytes(scenario) * queries)
    less = "; record: counts takes least" if scenario.record == "full" else ""
    return f"{takes}{size} of memory; at most {most:,} are simulated ({_gib(MOST_BYTES)}){less}"


def check_drawn(scenario: Scenario, trace: Generated, where: str) -> None:
    """Reject a horizon within which, at the process's own rate, far more queries arrive than can be simulated.

    Parameters
    ----------
    scenario : whose limit counts.
    trace : a process with a rate, and a horizon; a trace of so many queries passes.
    where : path of the trace in the scenario, for messages.

    Raises ScenarioError.
    """
    rate_rps = getattr(trace.process, "rate_rps", None)
    if trace.horizon_s and isinstance(rate_rps, (int, float)):
        expected = rate_rps * trace.horizon_s
        if expected > 2 * most_queries(scenario) + 1000:
            what = too_many(scenario, most_queries(scenario), f"about {expected:.3g}")
            raise ScenarioError.at(f"{where}.horizon_s", what)


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
            f"{llm.prefixes.count:,} different segments on {replicas} replicas take {_gib(taken)} of memory; at most "
            f"{_gib(MOST_BYTES)} are used"
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
        takes = f" and {_gib(least * ITERATION_BYTES)} of memory" if full else ""
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
    tokens = float((prefills + (0 if llm.rules.whole_prompts else decodes)).sum())
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
    takes = 16 * traces * queries
    if takes > MOST_BYTES:
        what = f"{traces:,} traces of {queries:,} queries take {_gib(takes)} of memory; at most {_gib(MOST_BYTES)} are used"
        raise UsageError.at("traces", what)


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / 2**30:.3g} GiB"
