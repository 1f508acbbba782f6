"""How sure figures are whose costs were fitted: intervals from the fit's errors, and figures that are near saturation.

Costs carry what unseen loads were off by. Beside that, the same traffic is run with iterations a little longer and a little
shorter: a figure that this changes more than the fit's own errors is as unsure as that, and one that it changes by half is
near saturation, where it has no value, only an interval. So are times to the first and last token where more comes than can
be served, since they depend on how long the trace is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from forerun.core.result.stats import Interval
from forerun.core.result.tables import Column, Table, TableSchema
from forerun.serving.engine.outcome import Run
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.pipeline import Pipeline, Stage
from forerun.serving.llm.calibration.experiment import latencies
from forerun.serving.llm.calibration.knee import COVERED, STEP, interval
from forerun.serving.llm.scenario.language_model import FitRecord
from forerun.serving.summary.clients import counted
from forerun.serving.summary.totals import latency_figures

METHOD: Final = (
    "errors of unseen loads in the fit of the costs, and what iterations 5 % longer or shorter change"
)

INTERVALS: Final = TableSchema(
    "fit_intervals",
    (
        Column("stage", "", "name of the stage"),
        Column("figure", "", "name of the figure; e2e: from entering the stage to the last token"),
        Column("value", "ms", "as simulated; none where it is saturating"),
        Column("low", "ms", "where 90 % of measurements should lie at least"),
        Column("high", "ms", "and at most"),
        Column("saturating", "", "iterations 5 % longer or shorter change it by half: it has no value"),
    ),
    "one figure of a stage whose costs were fitted",
)


@dataclass(frozen=True)
class FitReport:
    """What a reader of fitted costs should know.

    Parameters
    ----------
    tables : the intervals, if a stage has fitted costs.
    notes : figures near saturation, and iterations beyond what was measured.
    intervals : of figures of the summary that are near saturation.
    unknown : names of figures that have no value for that reason; a summary need not have all of them.
    """

    tables: Mapping[str, Table] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()


def fit_report(
    inputs: Inputs, run: Run, before: Inputs, prefixes: Mapping[int, str], loads: Mapping[str, float]
) -> FitReport:
    """Intervals of the figures of all stages with fitted costs, if there are; runs the traffic again with other iterations,
    under which clients send at other times.

    Parameters
    ----------
    inputs : that were simulated, without the queries of a warm-up.
    run : what happened, without them.
    before : the inputs with these queries, before clients sent anything.
    prefixes : what the names of a stage's figures begin with in the summary, by number of the stage.
    loads : by stage, requests offered over the most that it can carry.
    """
    fitted = {
        s: stage.llm.cost.fit
        for s, stage in enumerate(inputs.pipeline.stages)
        if stage.llm is not None and stage.llm.cost.fit is not None
    }
    if not fitted:
        return FitReport()

    @functools.cache
    def again(factor: float) -> tuple[Inputs, Run]:
        return (inputs, run) if factor == 1 else rerun(before, factor)

    rows: list[tuple[object, ...]] = []
    notes: list[str] = []
    intervals: dict[str, Interval] = {}
    unknown: set[str] = set()
    for s, record in fitted.items():
        stage = inputs.pipeline.stages[s]
        notes += [f"{stage.name}: its costs, as accepted, {record.missing}"] if record.misses else []
        notes += _beyond(stage, record, run, s)
        at = functools.cache(functools.partial(_figures, again, s))
        unsure = []
        for name, value in at(1.0).items():
            growing = loads[stage.name] >= 1 and not name.startswith("tpot")
            low, high, near = interval(name, at, record, growing=growing)
            rows.append((stage.name, name, math.nan if near else value, low, high, near))
            if near:
                unsure.append(name)
                intervals[prefixes[s] + name] = Interval(low, high, COVERED, METHOD)
                unknown |= {prefixes[s] + name, prefixes[s] + name.replace("ttft", "llm_queue")}
        if unsure:
            shown = ", ".join(unsure)
            cause = f"iterations {STEP:.0%} longer or shorter change {shown} by half or more"
            if loads[stage.name] >= 1:
                cause = f"more comes than it can carry, so {shown} depend on how long the trace is"
            notes.append(f"{stage.name}: saturating: {cause}; they have no value, only an interval")
    unsurest = max(fitted.values(), key=lambda one: one.step_error)
    of_queries = _latency_intervals(again, unsurest, growing=max(loads.values()) >= 1)
    table = Table.of_rows(INTERVALS, rows)
    return FitReport(
        {INTERVALS.name: table}, tuple(notes), intervals | of_queries, frozenset(unknown | set(of_queries))
    )


def _latency_intervals(
    again: Callable[[float], tuple[Inputs, Run]], record: FitRecord, *, growing: bool
) -> dict[str, Interval]:
    """Of the latencies of whole queries, those near saturation."""

    @functools.cache
    def at(factor: float) -> dict[str, float]:
        return latency_figures(again(factor)[1].served_ms)

    found = {name: interval(name, at, record, growing=growing) for name in at(1.0)}
    return {name: Interval(low, high, COVERED, METHOD) for name, (low, high, near) in found.items() if near}


def _figures(again: Callable[[float], tuple[Inputs, Run]], number: int, factor: float) -> dict[str, float]:
    """Means and quantiles of a stage's latencies with iterations so many times as long."""
    inputs, run = again(factor)
    visits, requests, llm = run.visits[number], run.requests[number], inputs.pipeline.stages[number].llm
    assert requests is not None and llm is not None
    served = ~np.isnan(requests.first_ms)
    enter_ms = visits.enqueue_ms[served]
    output = llm.output[: len(served)][served]
    return latencies(requests.first_ms[served] - enter_ms, visits.end_ms[served] - enter_ms, output)


def rerun(before: Inputs, factor: float) -> tuple[Inputs, Run]:
    """The same traffic with iterations that take so much longer, where costs were fitted; without the queries of a warm-up.

    Parameters
    ----------
    before : the inputs with these queries, before clients sent anything.
    factor : how much longer.
    """
    from forerun.serving.engine.modes.default import arrived, simulated

    inputs, _ = arrived(replace(before, pipeline=slower(before.pipeline, factor)))
    return counted(inputs, simulated(inputs, "latency"))


def slower(pipeline: Pipeline, factor: float) -> Pipeline:
    """A pipeline with iterations that take so much longer, where costs were fitted."""
    stages = (
        stage
        if stage.llm is None or stage.llm.cost.fit is None
        else replace(stage, llm=replace(stage.llm, cost=stage.llm.cost.longer(factor)))
        for stage in pipeline.stages
    )
    return replace(pipeline, stages=tuple(stages))


def _beyond(stage: Stage, record: FitRecord, run: Run, number: int) -> list[str]:
    """A sentence if iterations were larger than any that the costs were fitted to."""
    requests = run.requests[number]
    if requests is None or requests.recorded is None:
        return []
    each = requests.recorded
    limits = (
        ("prefill tokens", each.prefill, record.prefill_tokens),
        ("decodes", each.decodes, record.decodes),
        ("tokens in the cache", each.kv, record.kv_tokens),
    )
    over = [
        f"{int(seen.max(initial=0)):,} {what} ({most:,} were measured)"
        for what, seen, most in limits
        if seen.max(initial=0) > most
    ]
    if not over:
        return []
    return [
        f"{stage.name}: beyond what its costs were fitted to ({record.experiments} experiments): iterations have up to "
        f"{', '.join(over)}"
    ]
