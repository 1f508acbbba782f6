"""From an outcome to a result: figures with confidence intervals, tables, ledgers, timeline, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from forerun.core.result.run import Result
from forerun.core.result.stats import Interval
from forerun.core.result.tables import Table
from forerun.core.rng import stream
from forerun.serving.engine import engine_of, engines
from forerun.serving.engine.outcome import Outcome, Run
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.prepare import prepare
from forerun.serving.llm.summary.fitted import FitReport, fit_report
from forerun.serving.llm.summary.models import (
    llm_batch_intervals,
    llm_headline,
    model_figures,
    model_notes,
    recorded,
)
from forerun.serving.llm.summary.objectives import prefixes
from forerun.serving.llm.summary.tables import llm_tables
from forerun.serving.scenario.traces import ClosedLoop, Generated
from forerun.serving.summary import tables
from forerun.serving.summary.clients import client_figures, counted, session_tables
from forerun.serving.summary.confidence import from_batches, from_replications, headline
from forerun.serving.summary.invariants import check_run
from forerun.serving.summary.latency_split import by_branch, critical
from forerun.serving.summary.totals import (
    headline_names,
    latency_figures,
    ledger_of,
    offered_loads,
    overload_notes,
    totals,
    wait_shares,
)
from forerun.serving.summary.tuning import tuner_figures, with_tuner
from forerun.serving.summary.why import explain
from forerun.serving.traces.recorded import Bootstrap


def summarize(outcome: Outcome) -> Result:
    """The result of a run. Raises CheckFailed if the run breaks a law that every run obeys."""
    inputs, scenario = outcome.inputs, outcome.inputs.scenario
    models = inputs.pipeline.serves_models
    run = recorded(outcome.run, scenario.record)
    finished = len(run.finish_ms) > 0
    if finished and engine_of(scenario).lawful:
        check_run(inputs.pipeline, run, scenario.latency_limit_ms)
    inputs, counting = counted(inputs, outcome.run)
    outcome, run = replace(outcome, inputs=inputs, run=counting), recorded(counting, scenario.record)
    loads = offered_loads(inputs, outcome.run)
    sent, sending = client_figures(outcome)
    summary = totals(outcome, run, loads) | dict(outcome.figures) | sent
    if models:
        summary |= model_figures(scenario, inputs.pipeline, outcome.run)
    if isinstance(process := getattr(scenario.trace, "process", None), Bootstrap):
        summary["resampled_blocks"] = len(run.arrival_ms) // process.block_gaps
    if outcome.control is not None:
        summary |= tuner_figures(scenario, outcome.control)
    if scenario.tie_rules == "both":
        summary |= _both_tie_rules(inputs)
    fitted = FitReport()
    if models:
        fitted = fit_report(inputs, outcome.run, outcome.before, prefixes(inputs.pipeline), loads)
    notes = [
        *inputs.notes,
        *outcome.notes,
        *sending,
        *(model_notes(inputs.pipeline, outcome.run) if models else ()),
    ]
    notes += fitted.notes
    summary |= {name: math.nan for name in fitted.unknown if name in summary}
    result = Result(
        scenario,
        summary,
        ({"queries": tables.queries_table(run, scenario.latency_limit_ms)} if finished else {})
        | session_tables(outcome)
        | dict(fitted.tables),
        notes=(*notes, *overload_notes(inputs, loads)),
        intervals=(_intervals(inputs, outcome.run) if finished else {}) | dict(fitted.intervals),
        headline=headline_names(summary),
    )
    if run.visits:
        result = _with_record(result, outcome, loads)
    return result if outcome.control is None else with_tuner(result, outcome)


def _with_record(result: Result, outcome: Outcome, loads: Mapping[str, float]) -> Result:
    """The result with all that follows from a record of every visit."""
    inputs, run = outcome.inputs, outcome.run
    path = critical(inputs.pipeline, run)
    why, steps = explain(inputs.scenario, inputs, run, path, loads)
    added: dict[str, Table] = {**result.tables, "visits": tables.visits_table(inputs, run)}
    if any(stage.llm is None for stage in inputs.pipeline.stages):
        added["batches"] = tables.batches_table(inputs, run)
    added["stages"] = tables.stages_table(inputs, run, loads, wait_shares(path, run))
    added["replicas"] = tables.replicas_table(outcome)
    added["splits"] = tables.splits_table(path, run)
    if inputs.pipeline.serves_models:
        added |= llm_tables(inputs.pipeline, run)
    return replace(
        result,
        tables=added | dict(outcome.tables),
        ledgers=(
            ledger_of(by_branch(inputs.pipeline, run), run, "latency of a query, its branches sharing alike"),
            ledger_of(path, run, "latency of a query, along its critical path"),
        ),
        timeline=tables.timeline(inputs, run),
        why=why,
        next_steps=steps,
    )


def _both_tie_rules(inputs: Inputs) -> dict[str, Any]:
    """P99 under the default mode's rule for what happens at one instant, and under the published notebook's."""
    from forerun.serving.engine.modes.default import simulated

    own = simulated(inputs, "latency")
    notebook = engines().get("compat")().run(inputs, ()).run
    return {
        "latency_p99_own_ties_ms": latency_figures(own.latency_ms)["latency_p99_ms"],
        "latency_p99_notebook_ties_ms": latency_figures(notebook.latency_ms)["latency_p99_ms"],
        "tie_count": own.tie_count,
    }


def _intervals(inputs: Inputs, run: Run) -> dict[str, Interval]:
    """Runs on fresh arrivals where a process makes them; batch means where a trace is replayed, and in compat mode."""
    slo_ms, confidence = inputs.scenario.latency_limit_ms, inputs.scenario.intervals.confidence
    if inputs.scenario.intervals.replications == 0:
        return {}

    def figures(of: Inputs, other: Run) -> dict[str, float]:
        if of.pipeline.serves_models:
            return llm_headline(of.pipeline, other, slo_ms)
        return headline(other.latency_ms, slo_ms)

    fresh = [figures(again, other) for again, other in _fresh_runs(inputs)]
    if fresh:
        return from_replications([figures(inputs, run), *fresh], len(run.arrival_ms), confidence)
    if inputs.pipeline.serves_models:
        return llm_batch_intervals(inputs.pipeline, run, slo_ms, confidence)
    return from_batches(run.latency_ms, slo_ms, confidence)


def _fresh_runs(inputs: Inputs) -> Iterator[tuple[Inputs, Run]]:
    """Runs on fresh arrivals; none where a process ignores the seed, where a trace is replayed, or where runs are not
    simulated stage by stage."""
    from forerun.serving.engine.modes.default import arrived, simulated
    from forerun.serving.engine.stagewise import reasons_against
    from forerun.serving.engine.tuning import controlled

    scenario = inputs.scenario
    if not isinstance(scenario.trace, Generated | ClosedLoop) or scenario.mode != "default":
        return
    for number in range(scenario.intervals.replications - 1):
        seed = int(stream(scenario.seed, "replication", number).integers(2**32))
        again = prepare(scenario, inputs.files, seed)
        if scenario.tuned:
            again, _ = controlled(again)
        again, _ = arrived(again)
        if number == 0 and (
            np.array_equal(again.arrivals_ms, inputs.arrivals_ms) or reasons_against(again.pipeline)
        ):
            return
        yield counted(again, simulated(again, "latency"))
