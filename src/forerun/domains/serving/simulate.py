"""The door: a scenario becomes a result.

prepare      the scenario's names become a pipeline, arrivals and prices; all bad input is found here
tune         where replicas follow the traffic: the tuner's decisions become changes of the pipeline's replicas
run          stage by stage where that is exact, else the event loop; in compat mode the notebook's scheduler
check        the laws that every run obeys
present      tables, ledgers, timeline, figures with intervals, and why
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from forerun.domains.serving import tables
from forerun.domains.serving.account import by_branch, critical
from forerun.domains.serving.compat import CompatRun, simulate_compat
from forerun.domains.serving.events import simulate_events
from forerun.domains.serving.inputs import Inputs, prepare
from forerun.domains.serving.intervals import from_batches, from_replications, headline
from forerun.domains.serving.invariants import check_run
from forerun.domains.serving.model import Batches, Run, Visits
from forerun.domains.serving.observer import Observer
from forerun.domains.serving.policy import Batching
from forerun.domains.serving.scenario import Generated, Scenario
from forerun.domains.serving.summary import (
    headline_names,
    latency_figures,
    ledger_of,
    offered_loads,
    overload_notes,
    summarise,
    wait_shares,
)
from forerun.domains.serving.why import explain
from forerun.observers import checked_observers
from forerun.result.run import Interval, Result
from forerun.result.tables import Table
from forerun.rng import stream

if TYPE_CHECKING:
    from forerun.domains.serving.tuning.account import Control


def simulate(scenario: Scenario, *, policy: Batching | None = None, watch: Iterable[Observer] = ()) -> Result:
    """Run the scenario's trace through its pipeline.

    policy: a batching policy for every stage, instead of the scenario's. watch: look on after every instant (this takes
    the event loop). Touches no file but the scenario's inputs.
    """
    unobserved = (
        "a run of the published notebook's scheduler (`mode: compat`)" if scenario.mode == "compat" else ""
    )
    watchers = checked_observers(watch, Observer, unobserved=unobserved)
    inputs = prepare(scenario, batching=policy)
    inputs, control = _tuned(scenario, inputs)
    run, notes, extra, compat = _run(scenario, inputs, watchers)
    if len(run.finish_ms) and compat is None:
        check_run(inputs.pipeline, run, scenario.slo_ms)
    loads = offered_loads(inputs)
    summary = summarise(scenario, inputs, run, loads) | extra | (control.figures(scenario) if control else {})
    notes = [*inputs.notes, *notes, *overload_notes(inputs, loads)]
    if scenario.tie_rules == "both":
        summary |= _both_rules(scenario, inputs)
    intervals = _intervals(scenario, inputs, run, policy) if len(run.finish_ms) else {}
    recorded = {"queries": tables.queries_table(run, scenario.slo_ms)} if len(run.finish_ms) else {}
    result = Result(
        scenario,
        summary,
        recorded,
        notes=tuple(notes),
        intervals=intervals,
        headline=headline_names(summary),
    )
    if run.visits:
        result = _presented(scenario, inputs, run, compat, result, loads)
    if control is not None:
        result = control.presented(result, inputs, run)
    return result.check()


def _tuned(scenario: Scenario, inputs: Inputs) -> tuple[Inputs, Control | None]:
    """The inputs with the replicas that the scenario's tuner decides on."""
    if not scenario.tuned:
        return inputs, None
    from forerun.domains.serving.tuning.account import controlled

    return controlled(scenario, inputs)


def _run(
    scenario: Scenario, inputs: Inputs, watchers: tuple[Observer, ...]
) -> tuple[Run, list[str], dict[str, object], CompatRun | None]:
    """The run itself; notes and figures about how it was made; the notebook's stamps in compat mode."""
    if scenario.mode == "compat":
        compat, notes = _compat(scenario, inputs)
        about = {"way": "notebook scheduler", "events": compat.events, "peak_pending": compat.peak_pending}
        return _as_run(compat, scenario.slo_ms), notes, about, compat
    if inputs.pipeline.serves_models:
        from forerun.domains.serving.llm.result import run_models

        return *run_models(scenario, inputs, watchers), None
    # The kernels are compiled; they are imported only when something is simulated.
    from forerun.domains.serving.stagewise import reasons_against, simulate_stagewise

    reasons = reasons_against(inputs.pipeline) + (["watchers look on"] if watchers else [])
    notes = [f"event loop: {reason}" for reason in reasons]
    if watchers or any(stage.batching.compiled() is None for stage in inputs.pipeline.stages):
        run = simulate_events(inputs.pipeline, inputs.arrivals_ms, scenario.slo_ms, watch=watchers)
        return run, notes, {"way": "event loop"}, None
    if reasons:
        from forerun.domains.serving.instants import simulate_instants

        run = simulate_instants(inputs.pipeline, inputs.arrivals_ms, scenario.slo_ms)
        return run, notes, {"way": "compiled event loop"}, None
    run = simulate_stagewise(inputs.pipeline, inputs.arrivals_ms, scenario.slo_ms, record=scenario.record)
    return run, [], {"way": "stage by stage"}, None


def _compat(scenario: Scenario, inputs: Inputs) -> tuple[CompatRun, list[str]]:
    """The notebook sends its first query at 0 and one more per gap; a trace that begins later is moved there."""
    arrivals, options = inputs.arrivals_ms, scenario.compat
    notes = []
    if arrivals[0] != 0:
        notes.append(
            f"compat: the trace was moved by {-arrivals[0]:g} ms, the notebook's first query comes at 0"
        )
    run = simulate_compat(
        inputs.pipeline,
        np.diff(arrivals),
        len(arrivals),
        batching_delay_ms=options.batching_delay_ms,
        wake_corrected=options.wake == "corrected",
        keep_series=options.queue_series,
    )
    return run, notes


def _as_run(compat: CompatRun, slo_ms: float) -> Run:
    """The notebook's stamps as visits and batches."""
    latency = compat.sink_ms - compat.source_ms
    visits = tuple(
        Visits(v.enqueue_ms, v.dequeue_ms, v.service_ms, v.batch.astype(np.int32), v.replica.astype(np.int32))
        for v in compat.visits
    )
    return Run(
        compat.source_ms,
        compat.sink_ms,
        misses=int(np.count_nonzero(latency > slo_ms)),
        tie_count=0,
        visits=visits,
        batches=tuple(_batches(v) for v in visits),
    )


def _batches(visits: Visits) -> Batches:
    """The batches that visits belong to: those of one replica that start together."""
    order = np.lexsort((visits.replica, visits.start_ms))
    rows = order[
        np.concatenate(
            [[True], (np.diff(visits.start_ms[order]) > 0) | (np.diff(visits.replica[order]) != 0)]
        )
    ]
    return Batches(visits.start_ms[rows], visits.end_ms[rows], visits.batch[rows], visits.replica[rows])


def _both_rules(scenario: Scenario, inputs: Inputs) -> dict[str, float]:
    """P99 under this mode's rule for what happens at one instant, and under the notebook's."""
    from forerun.domains.serving.stagewise import simulate_stagewise

    own = simulate_stagewise(inputs.pipeline, inputs.arrivals_ms, scenario.slo_ms)
    notebook = _as_run(_compat(scenario, inputs)[0], scenario.slo_ms)
    return {
        "latency_p99_own_ties_ms": latency_figures(own.latency_ms)["latency_p99_ms"],
        "latency_p99_notebook_ties_ms": latency_figures(notebook.latency_ms)["latency_p99_ms"],
        "tie_count": own.tie_count,
    }


def _intervals(scenario: Scenario, inputs: Inputs, run: Run, policy: Batching | None) -> dict[str, Interval]:
    """Runs on fresh arrivals where a process makes them; batch means where a trace is replayed, and in compat mode."""
    wanted = scenario.intervals
    if wanted.replications == 0:
        return {}
    if inputs.pipeline.serves_models:
        from forerun.domains.serving.llm.result import llm_intervals

        others = (
            prepare(scenario, batching=policy, seed=_fresh_seed(scenario.seed, number))
            for number in range(wanted.replications - 1)
        )
        return llm_intervals(scenario, inputs, run, others)
    if isinstance(scenario.trace, Generated) and scenario.mode == "default":
        from forerun.domains.serving.stagewise import reasons_against, simulate_stagewise

        first = prepare(scenario, batching=policy, seed=_fresh_seed(scenario.seed, 0))
        if not reasons_against(first.pipeline) and not _same_arrivals(first, inputs):
            runs = [headline(run.latency_ms, scenario.slo_ms)]
            for number in range(wanted.replications - 1):
                fresh = prepare(scenario, batching=policy, seed=_fresh_seed(scenario.seed, number))
                fresh, _ = _tuned(scenario, fresh)
                again = simulate_stagewise(fresh.pipeline, fresh.arrivals_ms, scenario.slo_ms)
                runs.append(headline(again.latency_ms, scenario.slo_ms))
            return from_replications(runs, wanted.confidence)
    return from_batches(run.latency_ms, scenario.slo_ms, wanted.confidence)


def _fresh_seed(seed: int, number: int) -> int:
    return int(stream(seed, "replication", number).integers(2**32))


def _same_arrivals(left: Inputs, right: Inputs) -> bool:
    """Whether a process ignores the seed, so that another run would be the same run."""
    return np.array_equal(left.arrivals_ms, right.arrivals_ms)


def _presented(
    scenario: Scenario,
    inputs: Inputs,
    run: Run,
    compat: CompatRun | None,
    result: Result,
    loads: dict[str, float],
) -> Result:
    """The result with all that a full record tells."""
    path = critical(inputs.pipeline, run)
    why, steps = explain(scenario, inputs, run, path, loads)
    recorded: dict[str, Table] = {
        **result.tables,
        "visits": tables.visits_table(inputs, run),
        **({"batches": tables.batches_table(inputs, run)} if any(_batching(inputs)) else {}),
        "stages": tables.stages_table(inputs, run, loads, wait_shares(path, run)),
        "replicas": tables.replicas_table(inputs, run),
        "splits": tables.splits_table(path, run),
    }
    if inputs.pipeline.serves_models:
        from forerun.domains.serving.llm.tables import llm_tables

        recorded |= llm_tables(inputs.pipeline, run)
    if compat is not None:
        recorded["lineage"] = tables.lineage_table(inputs, compat)
        if compat.queue_series:
            recorded["queue_series"] = tables.queue_series_table(inputs, compat)
    ledgers = (
        ledger_of(by_branch(inputs.pipeline, run), run, "latency of a query, its branches sharing alike"),
        ledger_of(path, run, "latency of a query, along its critical path"),
    )
    return _with(
        result,
        tables=recorded,
        ledgers=ledgers,
        timeline=tables.timeline(inputs, run),
        why=why,
        next_steps=steps,
    )


def _batching(inputs: Inputs) -> list[bool]:
    """Per stage whether it forms batches."""
    return [stage.llm is None for stage in inputs.pipeline.stages]


def _with(result: Result, **changes: object) -> Result:
    from dataclasses import replace

    return replace(result, **changes)  # type: ignore[arg-type]
