"""`mode: compat` of serving: the comparison notebook of InferLine as an engine, with the tables that it records."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from forerun.core.result.tables import Column, Table, TableSchema
from forerun.replication.inferline.notebook import CompatRun, simulate_compat
from forerun.serving.engine import Engine
from forerun.serving.engine.outcome import Batches, Outcome, Run, Visits
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.observer import Observer


class NotebookEngine(Engine):
    """The notebook's scheduler, query by query, known bugs included.

    The scenario setting `mode: compat` chooses it. Its runs need not obey the laws that `summary.invariants` checks
    (`lawful` is off), and observers cannot watch them.
    """

    name = "compat"
    not_observable = "a run of the published notebook's scheduler (`mode: compat`)"
    lawful = False
    #: spellings that the notebook uses beside those of its own profile
    aliases = MappingProxyType({"TPX": "TXP", "none": "cpu", "logreg": "LogReg"})

    def run(self, inputs: Inputs, observers: Sequence[Observer]) -> Outcome:
        """Run the notebook's scheduler on a scenario's pipeline and arrivals.

        The notebook sends its first query at 0 and one more after each gap. A trace that begins later is moved there,
        and a note says so. Options come from the scenario's `compat` section.

        Parameters
        ----------
        inputs : pipeline, arrivals [ms] and scenario.
        observers : not called; this engine cannot be observed.

        Raises
        ------
        ScenarioError : the pipeline uses something that the notebook does not know.
        EmptyTake : the notebook stops with an assertion here.
        """
        scenario, arrivals = inputs.scenario, inputs.arrivals_ms
        options, notes = scenario.compat, []
        if arrivals[0] != 0:
            notes.append(
                f"compat: the trace was moved by {-arrivals[0]:g} ms, the notebook's first query comes at 0"
            )
        compat = simulate_compat(
            inputs.pipeline,
            np.diff(arrivals),
            len(arrivals),
            batching_delay_ms=options.batching_delay_ms,
            wake_corrected=options.wake == "corrected",
            keep_series=options.queue_series,
        )
        tables = {"lineage": lineage_table(inputs, compat)}
        if compat.queue_series:
            tables["queue_series"] = queue_series_table(inputs, compat)
        return Outcome(
            inputs,
            run_of(compat, scenario.slo_ms),
            inputs,
            notes=tuple(notes),
            figures={
                "way": "notebook scheduler",
                "events": compat.events,
                "peak_pending": compat.peak_pending,
            },
            tables=tables,
        )


def run_of(compat: CompatRun, slo_ms: float) -> Run:
    """The notebook's stamps as visits and batches.

    Parameters
    ----------
    compat : what the notebook's scheduler computed.
    slo_ms : latency above which a query is a miss [ms].
    """
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


def lineage_table(inputs: Inputs, run: CompatRun) -> Table:
    """The notebook's lineage: one row a query, four stamps a model.

    Parameters
    ----------
    inputs : names of the stages.
    run : what the notebook's scheduler computed.
    """
    columns = [
        Column("id", "", "number of the query"),
        Column("source", "ms", "sent"),
        Column("sink", "ms", "completed"),
    ]
    data: dict[str, Any] = {"id": np.arange(len(run.source_ms)), "source": run.source_ms, "sink": run.sink_ms}
    for name, visits in zip(inputs.pipeline.names, run.visits):
        stamps = (
            ("enqueue_time", "ms", visits.enqueue_ms),
            ("dequeue_time", "ms", visits.dequeue_ms),
            ("batchsize", "", visits.batch),
            ("service_time", "ms", visits.service_ms),
        )
        for stamp, unit, values in stamps:
            columns.append(Column(f"{name}_{stamp}", unit, "as the notebook stamps it"))
            data[f"{name}_{stamp}"] = values
    columns.append(Column("sink_rank", "", "place in completion order"))
    data["sink_rank"] = run.sink_rank
    return Table.of(TableSchema("lineage", tuple(columns), "one query, as the notebook records it"), **data)


def queue_series_table(inputs: Inputs, run: CompatRun) -> Table:
    """The notebook's queue series: queue length before each arrival and each take.

    Parameters
    ----------
    inputs : names of the stages.
    run : made with `keep_series`; without, it has no series and there is no table to make.
    """
    schema = TableSchema(
        "queue_series",
        (
            Column("stage", "", "name of the stage"),
            Column("at_ms", "ms", "instant"),
            Column("queued", "queries", "queue length before it"),
        ),
        "one query's arrival, or one take",
    )
    stages = np.repeat(np.array(inputs.pipeline.names, dtype=object), [len(s) for s in run.queue_series])
    series = np.concatenate(run.queue_series)
    return Table.of(schema, stage=stages, at_ms=series[:, 0], queued=series[:, 1].astype(np.int64))
