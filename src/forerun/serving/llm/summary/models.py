"""Figures of stages that serve language models, what a reader should know of them, and their confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from forerun.core.result.stats import Interval
from forerun.serving.engine.outcome import Requests, Run, Visits
from forerun.serving.inputs.pipeline import Bools, Floats, Pipeline, Stage
from forerun.serving.llm.engine.kernels.gaps import gap_quantile_ms
from forerun.serving.llm.inputs.model import LanguageModel
from forerun.serving.llm.summary.drafts import drafting
from forerun.serving.llm.summary.laws import time_of_requests
from forerun.serving.llm.summary.objectives import (
    TokenObjective,
    attainment_figures,
    missed,
    prefixes,
    together,
    token_objectives,
    tpot_ms,
    ttft_ms,
)
from forerun.serving.scenario import Scenario
from forerun.serving.summary.confidence import BATCHES, from_parts, headline

#: what every result with a language model says of itself
LABEL = (
    "modelled are continuous batching, {prefill}, decode, the limit of the cache{more} and preemption; "
    "times of iterations are imported, not derived; {less}the network{but} {are} not modelled"
)

#: figures of one language model that get an interval
SURE = ("ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms", "tpot_p99_ms")


def recorded(run: Run, record: str) -> Run:
    """A run without what a scenario does not ask to be recorded.

    Parameters
    ----------
    run : in full.
    record : `counts`, `latency` or `full`, as in a scenario.
    """
    if record != "full":
        run = replace(run, visits=(), batches=(), requests=())
    return replace(run, finish_ms=np.empty(0)) if record == "counts" else run


def model_notes(pipeline: Pipeline, run: Run) -> list[str]:
    """What a reader should know of each language model: what is modelled, and a queue that grows."""
    notes = []
    for stage, visits, requests in zip(pipeline.stages, run.visits, run.requests):
        if stage.llm is not None:
            llm = stage.llm
            shares, swaps, apart = llm.shared is not None, llm.host is not None, llm.decode is not None
            drafts = llm.speculation is not None
            features = (("prefix sharing", shares), ("swapping", swaps), ("speculation", drafts))
            absent = [name for name, present in features if not present]
            label = LABEL.format(
                prefill="chunked prefill" if llm.rules.prompts == "in chunks" else "whole prompts",
                more=", prefixes that prompts share" * shares
                + ", swapping" * swaps
                + ", speculative decoding" * drafts,
                less=f"{', '.join(absent)} and " if absent else "",
                but=" but for transfers from prefill to decode" * apart,
                are="are" if absent else "is",
            )
            notes += [f"{stage.name}: {label}", *_growth(stage, visits, run), *_drafting(stage, requests)]
    return notes


def model_figures(scenario: Scenario, pipeline: Pipeline, run: Run) -> dict[str, Any]:
    """Figures of the objectives, and of every language model, named after its stage where there are several.

    Parameters
    ----------
    scenario : says how many queries may miss, and the limit of the latency.
    pipeline : with the tokens of all requests.
    run : with visits and requests.
    """
    objectives = token_objectives(pipeline, run)
    allowed = scenario.allowed_misses(len(run.arrival_ms))
    summary = attainment_figures(objectives, run, scenario.latency_limit_ms, allowed)
    summary["refused"] = int(np.count_nonzero(_refused(run)))
    for s, prefix in prefixes(pipeline).items():
        mine = [one for one in objectives if one.stage == s]
        figures = stage_figures(pipeline.stages[s], run, s, scenario.latency_limit_ms, mine)
        summary |= {f"{prefix}{name}": value for name, value in figures.items()}
    return summary


def stage_figures(
    stage: Stage, run: Run, number: int, slo_ms: float, objectives: Sequence[TokenObjective]
) -> dict[str, Any]:
    """Figures of one language model over all its requests.

    Parameters
    ----------
    stage : the stage, with its limits and the tokens of its requests.
    run : with visits and requests.
    number : of the stage in the pipeline.
    slo_ms : latency of the whole query above which it is not counted as goodput (infinite: none).
    objectives : those at this stage.
    """
    llm, requests, visits = stage.llm, run.requests[number], run.visits[number]
    assert llm is not None and requests is not None
    served = ~np.isnan(requests.first_ms)
    came = int(np.count_nonzero(~np.isnan(visits.enqueue_ms)))
    good = int(np.count_nonzero(served & ~missed(objectives, run, slo_ms)))
    begin_ms, end_ms = run.horizon_ms
    return {
        **{f"{one.kind}_slo_ms": one.limit_ms for one in objectives},
        **{f"{one.kind}_attainment_wanted": one.wanted for one in objectives if one.wanted is not None},
        **_latency_figures(llm, visits, requests, served),
        "tbt_p50_ms": gap_quantile_ms(requests.gaps, 0.5),
        "tbt_p99_ms": gap_quantile_ms(requests.gaps, 0.99),
        "tbt_max_ms": float(np.nanmax(requests.longest_gap_ms, initial=0.0)),
        "goodput_rps": good * 1e3 / (end_ms - begin_ms) if end_ms > begin_ms else float("nan"),
        "goodput_share": good / came if came else float("nan"),
        "prompt_tokens": int(llm.prompt[: len(served)][served].sum()),
        "output_tokens": int(llm.output[: len(served)][served].sum()),
        "preemptions": int(requests.preemptions.sum()),
        "iterations": requests.iterations,
        **_prefix_figures(llm, requests, served),
        **_guess_figures(requests),
        **_transfer_figures(visits, requests),
        **_gateway_figures(llm, visits),
    }


def _prefix_figures(llm: LanguageModel, requests: Requests, served: Bools) -> dict[str, Any]:
    """How much of the prompts the prefix cache had; nothing without one."""
    if llm.shared is None:
        return {}
    prompt = llm.prompt[: len(served)][served]
    # A preempted request may have the same tokens twice.
    once = np.minimum(requests.hit_tokens[served], prompt)
    share = float(once.sum() / prompt.sum()) if served.any() else float("nan")
    return {"hit_tokens": int(requests.hit_tokens.sum()), "hit_share": share}


def _guess_figures(requests: Requests) -> dict[str, Any]:
    """What drafts were worth; nothing without them."""
    guesses = requests.guesses
    if guesses is None:
        return {}
    steps = int(requests.gaps.sum())
    return {
        "drafted_tokens": guesses.drafted,
        "accepted_tokens": guesses.accepted,
        "tokens_per_step": (steps + guesses.accepted) / steps if steps else float("nan"),
    }


def _drafting(stage: Stage, requests: Requests | None) -> list[str]:
    """A sentence on what drafts cost in the mean iteration that decodes, and what they bring."""
    found = drafting(stage, requests)
    if found is None:
        return []
    return [
        f"{stage.name}: speculation: a step yields {found.tokens:.3g} tokens, and with the {found.decodes:.3g} requests "
        f"that decode on average an iteration takes {found.longer:.3g} times as long as without drafts: decoding is "
        f"{'faster' if found.pays else 'slower'} than without"
    ]


def _transfer_figures(visits: Visits, requests: Requests) -> dict[str, float]:
    """How long requests are on the way to the replicas that decode, and wait there; nothing where the same ones decode."""
    if requests.transfers is None:
        return {}
    spent, sent = time_of_requests(visits, requests), ~np.isnan(requests.transfers.sent_ms)
    waits_ms = _times("decode_wait", spent.decode_wait_ms[sent], 99)
    return _times("transfer", spent.transfer_ms[sent], 99) | waits_ms


def _gateway_figures(llm: LanguageModel, visits: Visits) -> dict[str, float]:
    """How many a gateway refuses, and how long the others wait there; nothing without one."""
    if not len(llm.passed_ms):
        return {}
    waits_ms = _times("gateway_wait", (llm.passed_ms - visits.enqueue_ms)[~llm.refused], 99)
    return {"turned_away": int(np.count_nonzero(llm.refused & ~llm.too_long))} | waits_ms


def llm_batch_intervals(
    pipeline: Pipeline, run: Run, slo_ms: float, confidence: float
) -> dict[str, Interval]:
    """Batch means over consecutive parts of the trace; none where a part has no query that is served.

    Parameters
    ----------
    pipeline : with the tokens of all requests.
    run : with visits and requests.
    slo_ms : latency above which a query misses (infinite: none).
    confidence : of the interval, such as 0.95.
    """
    queries = len(run.arrival_ms)
    if queries < 2 * BATCHES:
        return {}
    part_of = np.arange(queries) * BATCHES // queries
    if any(_refused(run)[part_of == part].all() for part in range(BATCHES)):
        return {}
    parts = [llm_headline(pipeline, run, slo_ms, part_of == part) for part in range(BATCHES)]
    return from_parts(parts, llm_headline(pipeline, run, slo_ms), queries, confidence)


def llm_headline(pipeline: Pipeline, run: Run, slo_ms: float, rows: Bools | None = None) -> dict[str, float]:
    """The figures that get an interval.

    Parameters
    ----------
    pipeline : with the tokens of all requests.
    run : with visits and requests.
    slo_ms : latency above which a query misses (infinite: none).
    rows : bool[queries], of some of the queries (default: of all).
    """
    rows = np.ones(len(run.arrival_ms), dtype=np.bool_) if rows is None else rows
    shown = headline(run.latency_ms[rows & ~_refused(run)], slo_ms)
    objectives = token_objectives(pipeline, run)
    late = {"attainment": missed(together(objectives), run, slo_ms)}
    if objectives and np.isfinite(slo_ms):
        late["latency_attainment"] = run.missed(slo_ms)
    shown |= {
        name: float(1 - np.count_nonzero(misses[rows]) / np.count_nonzero(rows))
        for name, misses in late.items()
    }
    for one in objectives:
        came = np.count_nonzero(one.came & rows)
        if came:
            shown[f"{one.key}_attainment"] = float(np.count_nonzero(one.met & rows) / came)
    served = list(prefixes(pipeline))
    if len(served) == 1:
        requests, visits = run.requests[served[0]], run.visits[served[0]]
        llm = pipeline.stages[served[0]].llm
        assert llm is not None and requests is not None
        figures = _latency_figures(llm, visits, requests, rows & ~np.isnan(requests.first_ms))
        shown |= {name: figures[name] for name in SURE if not np.isnan(figures[name])}
        here = ~np.isnan(visits.enqueue_ms) & rows
        if here.any():
            good = np.count_nonzero(here & ~missed(objectives, run, slo_ms))
            shown["goodput_share"] = float(good / np.count_nonzero(here))
    return shown


def _latency_figures(llm: LanguageModel, visits: Visits, requests: Requests, rows: Bools) -> dict[str, float]:
    queue_ms = visits.start_ms - visits.enqueue_ms
    return {
        **_times("ttft", ttft_ms(visits, requests)[rows], 50, 90, 99),
        **_times("tpot", tpot_ms(llm, visits, requests)[rows], 50, 90, 99),
        **_times("llm_queue", queue_ms[rows], 50, 90, 99),
    }


def _times(name: str, values_ms: Floats, *percents: int) -> dict[str, float]:
    """Mean and percentiles of some times, NaN where there is none."""
    known_ms = values_ms[~np.isnan(values_ms)]
    figures = {f"{name}_mean_ms": float(known_ms.mean()) if len(known_ms) else float("nan")}
    for percent in percents:
        value_ms = float(np.quantile(known_ms, percent / 100)) if len(known_ms) else float("nan")
        figures[f"{name}_p{percent}_ms"] = value_ms
    return figures


def _growth(stage: Stage, visits: Visits, run: Run) -> list[str]:
    """A sentence if the queue was still growing when the last query came.

    The load is a lower bound of the work: requests that are preempted again and again are processed anew each time, so
    a stage below 1 may still fall behind.
    """
    assert stage.llm is not None
    first_ms, last_ms = float(run.arrival_ms[0]), float(run.arrival_ms[-1])
    half, end = (
        int(np.count_nonzero((visits.enqueue_ms <= at_ms) & (visits.start_ms > at_ms)))
        for at_ms in ((first_ms + last_ms) / 2, last_ms)
    )
    if end <= max(half + 10, stage.most_replicas * stage.llm.max_seqs):
        return []
    return [
        f"queue grows: {end:,} requests wait at {stage.name} when the last query comes, {half:,} did at half time; so "
        "latencies depend on how long the trace is"
    ]


def _refused(run: Run) -> Bools:
    """bool[queries]: who was refused."""
    return np.zeros(len(run.arrival_ms), dtype=np.bool_) if run.refused is None else run.refused
