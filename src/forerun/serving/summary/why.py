"""Why a run's outcome is what it is, and what to try next: an answer to every objective that the scenario states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from forerun.core.result.stats import proportion_interval
from forerun.serving.engine.outcome import Run
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.llm.scenario.language_model import LanguageModelSpec
from forerun.serving.llm.summary.drafts import drafting
from forerun.serving.llm.summary.laws import time_of_requests
from forerun.serving.llm.summary.objectives import (
    WORDS,
    TokenObjective,
    missed,
    together,
    token_objectives,
)
from forerun.serving.scenario import Scenario
from forerun.serving.summary.latency_split import (
    DECODE,
    DECODE_WAIT,
    PREEMPTED,
    PREFILL,
    QUEUE,
    TRANSFER,
    Account,
)

#: what to change where a language model's requests spend their latency, and by which factor
_LLM_STEPS = {PREFILL: ("token_budget", 2), DECODE: ("max_seqs", 0.5), PREEMPTED: ("kv_blocks", 1.5)}

#: where more replicas that decode help, if others prefill
_DECODING = (DECODE, DECODE_WAIT, TRANSFER)

#: the kinds of cause where requests are refused: they never fit into the cache, or into an iteration, or the gateway is full
REFUSED = "fit into the cache"
UNCUT = "fit into an iteration"
FULL = "pass the full gateway"


@dataclass(frozen=True)
class Cause:
    """What the outcome hangs on.

    Parameters
    ----------
    text : in words.
    stage : where.
    kind : what happens there, as a kind of the latency's split, or why requests are refused.
    objective : the one at a stage that it is about; None: the latency.
    """

    text: str
    stage: str
    kind: str
    objective: TokenObjective | None = None


def explain(
    scenario: Scenario, inputs: Inputs, run: Run, critical: Account, loads: Mapping[str, float]
) -> tuple[str, tuple[str, ...]]:
    """The verdict with its cause, in a sentence, and what to try next.

    Parameters
    ----------
    scenario : states the objectives.
    inputs : the pipeline, and what its replicas run on.
    run : recorded in full.
    critical : the split of latencies along critical paths.
    loads : by stage, queries offered over the most that its replicas can carry.
    """
    objectives = token_objectives(inputs.pipeline, run) if run.requests else ()
    misses = int(np.count_nonzero(missed(together(objectives), run, scenario.latency_limit_ms)))
    met = misses <= scenario.allowed_misses(len(run.arrival_ms)) and all(one.kept for one in objectives)
    cause = _cause(scenario, inputs, run, critical, objectives, misses)
    carried = f"whose {_running(inputs, cause.stage, loads[cause.stage])}"
    verdict = _verdict(scenario, run, objectives, misses, met)
    return f"{verdict}; {cause.text}, {carried}", (_next_step(scenario, inputs, run, cause, met),)


def _verdict(
    scenario: Scenario, run: Run, objectives: tuple[TokenObjective, ...], misses: int, met: bool
) -> str:
    """Whether the objectives are met, with the share of queries that meets all and, where there are several, each.

    Those with a share of their own stand apart.
    """
    queries = len(run.arrival_ms)
    required = (
        f"{scenario.attainment * 100:.6g} % are required{_too_few(misses, queries, scenario.attainment)}"
    )
    if not objectives:
        within = f"{100 - 100 * misses / queries:.4g} % of the queries stay within {scenario.slo_ms:g} ms"
        return f"the SLO is {'met' if met else 'missed'}: {within}, {required}"
    counted = together(objectives)
    shares = [f"{_named(one)} within {one.limit_ms:g} ms: {100 * one.share:.4g} %" for one in counted]
    if scenario.slo_ms:
        shares = [f"latency within {scenario.slo_ms:g} ms: {100 - 100 * run.misses / queries:.4g} %", *shares]
    alone = [
        f"{100 * one.share:.4g} % keep the {_named(one)} within {one.limit_ms:g} ms, {one.wanted * 100:.6g} % are required"
        for one in objectives
        if one.wanted is not None
    ]
    if shares:
        these = "these together" if alone else "all of them"
        what = f"{100 - 100 * misses / queries:.4g} % of the queries meet {these}, {required}"
        alone = [f"{what} ({'; '.join(shares)})", *alone]
    return f"the objectives are {'met' if met else 'missed'}: {', and '.join(alone)}"


def _too_few(misses: int, queries: int, required: float) -> str:
    """That so few queries cannot show the share required, though all are in time; empty where they can."""
    shown = proportion_interval(queries - misses, queries).low
    return (
        f" (so few queries show no more than {shown * 100:.2g} %)"
        if not misses and shown < required < 1
        else ""
    )


def _named(objective: TokenObjective) -> str:
    """The objective in words, with its stage where several serve models."""
    stage = objective.key.removesuffix(objective.kind).removesuffix("_")
    return f"{WORDS[objective.kind]}{f' of {stage}' if stage else ''}"


def _cause(
    scenario: Scenario,
    inputs: Inputs,
    run: Run,
    critical: Account,
    objectives: tuple[TokenObjective, ...],
    misses: int,
) -> Cause:
    """What the objective hangs on that is missed most; among equals the one whose slow end is nearest to its limit."""
    refused = 0 if run.refused is None else int(np.count_nonzero(run.refused))
    if 2 * refused > misses:
        return _refusals(inputs, run, refused, misses)
    latency = run.latency_ms
    slow_ms = float(np.quantile(latency, 0.99))

    def strain(one: TokenObjective) -> tuple[float, float]:
        return _strain(one, scenario.attainment)

    worst = max(objectives, key=strain, default=None)
    if worst is not None and (
        not scenario.slo_ms or strain(worst) > (run.misses / len(latency), slow_ms / scenario.slo_ms)
    ):
        return _token_cause(inputs, run, worst)
    late = latency >= slow_ms
    spent = critical.parts_ms[:, late].mean(axis=1)
    largest = int(np.argmax(spent))
    stage, kind = critical.names[largest]
    share = float(spent[largest] / latency[late].mean()) if latency[late].mean() else 0.0
    return Cause(f"{share * 100:.0f} % of the latency of the slowest 1 % is {kind} at {stage}", stage, kind)


def _strain(objective: TokenObjective, attainment: float) -> tuple[float, float]:
    """How badly an objective does: the share that misses it, then its slow end over its limit.

    The slow end is the P99, or the percentile that the objective is about. What may miss an objective of its own beyond
    what the scenario's attainment allows does not count.
    """
    wanted = objective.wanted
    spared = 0.0 if wanted is None else attainment - wanted
    values_ms = objective.values_ms[~np.isnan(objective.values_ms)]
    slow_ms = float(np.quantile(values_ms, 0.99 if wanted is None else wanted)) if len(values_ms) else 0.0
    return max(0.0, 1 - objective.share - spared), slow_ms / objective.limit_ms


def _refusals(inputs: Inputs, run: Run, refused: int, misses: int) -> Cause:
    """Most misses are requests that are refused."""
    counts: dict[tuple[str, str], int] = {}
    for stage, visits in zip(inputs.pipeline.stages, run.visits):
        if (llm := stage.llm) is not None:
            kinds = {REFUSED: llm.beyond_cache, UNCUT: llm.beyond_budget, FULL: llm.refused & ~llm.too_long}
            came = ~np.isnan(visits.enqueue_ms)
            counts |= {(stage.name, kind): int(np.count_nonzero(why & came)) for kind, why in kinds.items()}
    place, kind = max(counts, key=lambda one: counts[one])
    text = f"{refused} of the {misses} misses are requests refused because they never {kind} of {place}"
    return Cause(text, place, kind)


def _token_cause(inputs: Inputs, run: Run, objective: TokenObjective) -> Cause:
    """Where the requests that do worst by an objective at a stage spend the time that it limits."""
    stage, requests = inputs.pipeline.names[objective.stage], run.requests[objective.stage]
    assert requests is not None
    values_ms = objective.values_ms
    known = ~np.isnan(values_ms)
    of = time_of_requests(run.visits[objective.stage], requests)
    later_ms, sent = of.stalled_ms - requests.stalled_first_ms, requests.transfers is not None
    handed = {TRANSFER: of.transfer_ms, DECODE_WAIT: of.decode_wait_ms} if sent else {}
    if objective.kind == "ttft":
        parts = {QUEUE: of.queue_ms, PREFILL: of.prefill_ms, PREEMPTED: requests.stalled_first_ms}
    elif objective.kind == "e2e":
        parts = {QUEUE: of.queue_ms, PREFILL: of.prefill_ms, DECODE: of.decode_ms, PREEMPTED: of.stalled_ms}
        parts |= handed
    elif objective.kind == "itl":
        # A request that was preempted behind its first token, or sent to the other pool, waits in one of its gaps, as a rule
        # the longest.
        waits = {PREEMPTED: later_ms, **handed}
        parts = {DECODE: np.maximum(values_ms - sum(waits.values()), 0.0)}
        parts |= {kind: np.minimum(values_ms, wait_ms) for kind, wait_ms in waits.items()}
    else:
        parts = {DECODE: of.decode_ms, PREEMPTED: later_ms, **handed}
    if not known.any():
        return Cause(f"no request of {stage} has a {WORDS[objective.kind]}", stage, QUEUE, objective)
    slow = known & (values_ms >= float(np.quantile(values_ms[known], 0.99)))
    spent = {kind: float(np.mean(part_ms[slow])) for kind, part_ms in parts.items()}
    kind = max(spent, key=lambda name: spent[name])
    share = spent[kind] / sum(spent.values())
    text = f"{share * 100:.0f} % of the {WORDS[objective.kind]} of the slowest 1 % is {kind} at {stage}"
    return Cause(text, stage, kind, objective)


def _running(inputs: Inputs, stage: str, load: float) -> str:
    """How many replicas of a stage run, at which share of the most that they can carry."""
    number = inputs.pipeline.names.index(stage)
    placed = inputs.pipeline.stages[number]
    counts = [placed.replicas, *(count for _, count in placed.capacity)]
    share, hardware = f"{load * 100:.0f} %", inputs.hardware[number]
    if len(set(counts)) > 1:
        return f"{min(counts)} to {max(counts)} {hardware} replicas run, when most, at {share} of their maximum throughput"
    if counts[0] == 1:
        return f"one {hardware} replica runs at {share} of its maximum throughput"
    return f"{counts[0]} {hardware} replicas run at {share} of their maximum throughput"


def _next_step(scenario: Scenario, inputs: Inputs, run: Run, cause: Cause, met: bool) -> str:
    placed = scenario.configuration[cause.stage]
    setting = f"configuration.{cause.stage}"
    objective = cause.objective
    if met and placed.replicas > 1:
        change = f"{setting}.replicas={placed.replicas - 1}"
    elif met and objective is not None:
        change = f"{setting}.llm.{objective.kind}_slo_ms={_tighter(objective.limit_ms)}"
    elif met:
        change = f"slo_ms={_tighter(scenario.slo_ms)}"
    elif placed.llm is not None and placed.llm.memory is not None and cause.kind in (REFUSED, PREEMPTED):
        # The blocks follow from the accelerators: more of them hold more.
        change = f"{setting}.llm.memory.tensor_parallel={2 * placed.llm.memory.tensor_parallel}"
    elif cause.kind == REFUSED:
        change = f"{setting}.llm.kv_blocks={_enough_blocks(inputs, run, cause.stage)}"
    elif cause.kind == UNCUT:
        change = f"{setting}.llm.{_enough_budget(inputs, cause.stage)}"
    elif cause.kind == DECODE and _drafts_in_vain(inputs, run, cause.stage):
        change = f"{setting}.llm.speculation=null"
    elif placed.llm is not None and placed.llm.decode is not None and cause.kind in _DECODING:
        decode = placed.llm.decode
        change = f"{setting}.llm.decode.replicas={decode.replicas + 1}"
        if cause.kind == TRANSFER and decode.bandwidth_bytes_per_s is not None:
            change = f"{setting}.llm.decode.bandwidth_bytes_per_s={2 * decode.bandwidth_bytes_per_s:g}"
    elif (
        placed.llm is not None
        and cause.kind in _LLM_STEPS
        and not _shared(cause)
        and not _least(cause, placed.llm)
    ):
        field, factor = _step(cause)
        now = getattr(placed.llm, field)
        change = f"{setting}.llm.{field}={int(now * factor)}"
    elif cause.kind == QUEUE or placed.llm is not None or placed.max_batch == 1:
        change = f"{setting}.replicas={placed.replicas + 1}"
    else:
        change = f"{setting}.max_batch={placed.max_batch // 2}"
    return f"forerun simulate {{scenario}} --set {change}"


def _drafts_in_vain(inputs: Inputs, run: Run, stage: str) -> bool:
    """Whether decoding at a stage would be faster without drafts."""
    number = inputs.pipeline.names.index(stage)
    found = drafting(inputs.pipeline.stages[number], run.requests[number])
    return found is not None and not found.pays


def _shared(cause: Cause) -> bool:
    """Whether tokens come slowly because requests share iterations: another replica then shortens every wait, fewer
    seats would only move it into the queue."""
    return cause.objective is not None and cause.objective.kind != "itl" and cause.kind in (PREFILL, DECODE)


def _step(cause: Cause) -> tuple[str, float]:
    """The setting that shortens what a cause is about, and by which factor. The longest time between two tokens is that of
    an iteration with a large prefill."""
    longest = cause.objective is not None and cause.objective.kind == "itl" and cause.kind == DECODE
    return ("token_budget", 0.5) if longest else _LLM_STEPS[cause.kind]


def _least(cause: Cause, llm: LanguageModelSpec) -> bool:
    """Whether what would be lowered is at its least."""
    field, factor = _step(cause)
    return int(getattr(llm, field) * factor) in (0, getattr(llm, field))


def _tighter(limit_ms: float) -> str:
    """Nine tenths of a limit: in whole ms where that is less than the limit, else in two digits."""
    tighter_ms = 0.9 * limit_ms
    return f"{tighter_ms:.0f}" if limit_ms >= 10 else f"{tighter_ms:.2g}"


def _enough_budget(inputs: Inputs, stage: str) -> str:
    """A budget for the largest request, of the replicas that have too small a one."""
    llm = inputs.pipeline.stages[inputs.pipeline.names.index(stage)].llm
    assert llm is not None
    most = int((llm.prompt + llm.output).max())
    return f"{'decode.' * (most <= llm.token_budget)}token_budget={most}"


def _enough_blocks(inputs: Inputs, run: Run, stage: str) -> int:
    """Blocks that hold the largest request that came."""
    number = inputs.pipeline.names.index(stage)
    llm = inputs.pipeline.stages[number].llm
    assert llm is not None
    came = ~np.isnan(run.visits[number].enqueue_ms)
    tokens = int(llm.most_tokens[: len(came)][came].max())
    return -(-tokens // llm.block_tokens)
