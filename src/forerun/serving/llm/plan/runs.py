"""Runs of cells: as far as needed to know that a cell misses, or whole with its figures."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from forerun.serving.engine.modes.default import arrived
from forerun.serving.engine.outcome import Run
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.pipeline import Floats
from forerun.serving.inputs.routing import visited_stages
from forerun.serving.llm.calibration.knee import interval
from forerun.serving.llm.engine.pipeline import MixedRun
from forerun.serving.llm.plan.space import output_tokens
from forerun.serving.llm.summary.fitted import slower
from forerun.serving.llm.summary.objectives import (
    WORDS,
    TokenObjective,
    least_limit,
    missed,
    together,
    token_objectives,
    tpot_ms,
    ttft_ms,
)
from forerun.serving.scenario import SOURCE_NAME
from forerun.serving.scenario.limits import may_miss
from forerun.serving.summary.clients import counted
from forerun.serving.summary.totals import offered_loads, sent_rate_rps

#: the share of the trace after which a run is looked at first, and the least between two looks
LOOK: Final = 1 / 32


class Margin(NamedTuple):
    """How far requests are from one limit.

    Parameters
    ----------
    words : what is limited.
    error : the figure of a fit whose error is nearest to its own.
    share : of the requests that must keep it.
    limit_ms : the limit.
    value_ms : what it would have to be at the least for that share to keep it.
    """

    words: str
    error: str
    share: float
    limit_ms: float
    value_ms: float


@dataclass(frozen=True)
class Figures:
    """What a whole run of a cell says.

    Parameters
    ----------
    met : all objectives are kept.
    attainment : share of queries that meet the limits that count together.
    misses : queries that do not.
    shares : share of the requests that meet each limit, by the objective's key; with `latency` where that is limited.
    lacking : by the same keys, how much of the required share is missing (0: kept).
    goodput_share : share of queries that meet every limit.
    ttft_p50_ms, ttft_p99_ms, tpot_p99_ms : over the requests of all stages.
    margins : by the objective's key, how far the requests are from it.
    overloaded : stages to which more comes than they can carry.
    queries : that are counted.
    came_rps : how many come in a second, to each stage, and to the pipeline by the name of the source.
    tokens_per_h : tokens of the answers of the queries that come in an hour.
    tpot_spread : standard deviation over the mean of the requests' mean times between tokens.
    """

    met: bool
    attainment: float
    misses: int
    shares: dict[str, float]
    lacking: dict[str, float]
    goodput_share: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    tpot_p99_ms: float
    margins: dict[str, Margin]
    overloaded: tuple[str, ...]
    queries: int
    came_rps: dict[str, float]
    tokens_per_h: float
    tpot_spread: float

    @property
    def binds(self) -> str:
        """The objective of which most is missing, else that which fewest requests meet."""
        return min(self.shares, key=lambda name: (-self.lacking[name], self.shares[name]))


def whole(inputs: Inputs) -> Figures:
    """Run the scenario, or a cell of its space, to the end on any traffic."""
    inputs, _ = arrived(inputs)
    run = _begun(inputs)
    run.advance(inputs.arrivals_ms)
    return _figures(*counted(inputs, run.run()))


#: latencies of `Figures`
LATENCIES: Final = ("ttft_p50_ms", "ttft_p99_ms", "tpot_p99_ms")


@dataclass(frozen=True)
class Shown:
    """Figures as they are shown: those near saturation have no value.

    Parameters
    ----------
    figures : of a whole run, NaN where iterations a little longer or shorter change it by half, or it grows with the trace.
    between : by name, where a measurement of such a figure should lie, where costs were fitted.
    doubtful : by objective, where what must be within it should lie, if the limit is between.
    """

    figures: Figures
    between: Mapping[str, tuple[float, float]]
    doubtful: Mapping[str, tuple[float, float]]


def shown(inputs: Inputs, figures: Figures) -> Shown:
    """What can be said of figures; runs the inputs with other iterations, where costs were fitted.

    Parameters
    ----------
    inputs : that gave the figures.
    figures : of a whole run.
    """
    fits = [stage.llm.cost.fit for stage in inputs.pipeline.stages if stage.llm is not None]
    records = [fit for fit in fits if fit is not None]
    growing = LATENCIES[:2] if figures.overloaded else ()
    between, doubtful = {}, {}
    if records:
        record = max(records, key=lambda one: one.step_error)

        @functools.cache
        def at(factor: float) -> dict[str, float]:
            slowed = replace(inputs, pipeline=slower(inputs.pipeline, factor))
            one = figures if factor == 1 else whole(slowed)
            return {
                **{name: getattr(one, name) for name in LATENCIES},
                **{key: margin.value_ms for key, margin in one.margins.items()},
            }

        for name in LATENCIES:
            low, high, near = interval(name, at, record, growing=name in growing)
            if near:
                between[name] = (low, high)
        for key, margin in figures.margins.items():
            low, high, _ = interval(key, at, record, error=margin.error)
            if low <= margin.limit_ms < high:
                doubtful[key] = (low, high)
    unknown: dict[str, Any] = dict.fromkeys((*growing, *between), math.nan)
    return Shown(replace(figures, **unknown), between, doubtful)


def attempt(inputs: Inputs) -> tuple[Figures | None, tuple[int | None, ...]]:
    """Run a cell, on any traffic, until it is certain that it misses an objective (None), or to the end.

    Returns its figures, and by stage the most seats that were taken of a replica until then (None: it is not known).
    """
    inputs, _ = arrived(inputs)
    run, arrivals_ms = _begun(inputs), inputs.arrivals_ms
    if len(arrivals_ms) <= (inputs.scenario.warm_up or 0):
        return None, run.seated
    begin_ms, span_ms = float(arrivals_ms[0]), float(arrivals_ms[-1] - arrivals_ms[0])
    fed, share = arrivals_ms, LOOK
    while share < 1:
        run.advance(fed, begin_ms + share * span_ms)
        fed = fed[:0]
        spent = _spent(*counted(inputs, run.run(ties=False)))
        if spent >= 1:
            return None, run.seated
        # It is looked at again when as many as may miss will have, if they go on like that; it may be worse sooner.
        share = min(max(1.125 * share / spent, share + LOOK), 2 * share) if spent else 2 * share
    run.advance(fed)
    figures = _figures(*counted(inputs, run.run()))
    return figures if figures.met else None, run.seated


def _begun(inputs: Inputs) -> MixedRun:
    queries, slo_ms = len(inputs.arrivals_ms), inputs.scenario.latency_limit_ms
    return MixedRun(inputs.pipeline, queries, slo_ms, keep=False)


def _spent(inputs: Inputs, run: Run) -> float:
    """Of the requests that may miss, the share that have been answered, or refused, by now; 1 or more: too many.

    Parameters
    ----------
    run : under way; what has not ended has no first token and no end.
    """
    misses, spent = run.missed(inputs.scenario.latency_limit_ms), [0.0]
    visited = visited_stages(inputs.pipeline, len(misses))
    for one in token_objectives(inputs.pipeline, run):
        llm, requests = inputs.pipeline.stages[one.stage].llm, run.requests[one.stage]
        assert llm is not None and requests is not None
        late = one.came & ~one.met & (llm.refused | ~np.isnan(requests.first_ms))
        if one.wanted is None:
            misses |= late
        else:
            most = may_miss(one.wanted, int(np.count_nonzero(visited[one.stage])))
            spent.append(int(np.count_nonzero(late)) / (most + 1))
    spent.append(int(np.count_nonzero(misses)) / (inputs.scenario.allowed_misses(len(misses)) + 1))
    return max(spent)


def _figures(inputs: Inputs, run: Run) -> Figures:
    pipeline, scenario, queries = inputs.pipeline, inputs.scenario, len(run.arrival_ms)
    objectives, slo_ms = token_objectives(pipeline, run), scenario.latency_limit_ms
    counted = together(objectives)
    misses = int(np.count_nonzero(missed(counted, run, slo_ms)))
    enough = misses <= scenario.allowed_misses(queries)
    shares = {one.key: one.share for one in objectives}
    if scenario.slo_ms:
        shares["latency"] = 1 - run.misses / queries
    # Limits that count together lack something only where too few queries meet all of them.
    lacking = {
        one.key: 0.0 if one.kept else max(0.0, one.wanted - one.share)
        for one in objectives
        if one.wanted is not None
    }
    for name in shares.keys() - lacking.keys():
        lacking[name] = 0.0 if enough else scenario.attainment - min(shares[name], scenario.attainment)
    served = [
        (stage.llm, visits, requests)
        for stage, visits, requests in zip(pipeline.stages, run.visits, run.requests)
        if stage.llm is not None and requests is not None
    ]
    firsts = np.concatenate([ttft_ms(visits, requests) for _, visits, requests in served])
    means = np.concatenate([tpot_ms(*one) for one in served])
    rate_rps, several = sent_rate_rps(inputs, run), means[~np.isnan(means)]
    visited = zip(pipeline.names, visited_stages(pipeline, queries))
    return Figures(
        enough and all(one.kept for one in objectives),
        1 - misses / queries,
        misses,
        shares,
        lacking,
        1 - int(np.count_nonzero(missed(objectives, run, slo_ms))) / queries,
        _quantile(firsts, 0.5),
        _quantile(firsts, 0.99),
        _quantile(means, 0.99),
        _margins(inputs, objectives, run),
        tuple(name for name, load in offered_loads(inputs, run).items() if load >= 1),
        queries,
        {SOURCE_NAME: rate_rps, **{name: rate_rps * float(came.mean()) for name, came in visited}},
        output_tokens(inputs) / queries * rate_rps * 3600 or math.nan,
        float(several.std() / several.mean()) if len(several) else 0.0,
    )


def _margins(inputs: Inputs, objectives: Sequence[TokenObjective], run: Run) -> dict[str, Margin]:
    """By objective, the least limit that enough requests would keep; infinite where too many are refused."""
    found, scenario, names = {}, inputs.scenario, inputs.pipeline.names
    for one in objectives:
        share = one.wanted or scenario.attainment
        several = f" of {names[one.stage]}" if one.key != one.kind else ""
        words, value_ms = WORDS[one.kind] + several, one.least_ms(share)
        found[one.key] = Margin(words, f"{one.kind}_p99_ms", share, one.limit_ms, value_ms)
    if scenario.slo_ms:
        values = run.latency_ms if run.refused is None else np.where(run.refused, np.inf, run.latency_ms)
        value_ms = least_limit(values, scenario.attainment)
        found["latency"] = Margin("latency", "e2e_p99_ms", scenario.attainment, scenario.slo_ms, value_ms)
    return found


def _quantile(values: Floats, share: float) -> float:
    known = values[~np.isnan(values)]
    return float(np.quantile(known, share)) if len(known) else float("nan")
