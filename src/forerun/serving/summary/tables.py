"""What a run records: its tables and its timeline. Time in milliseconds, on the timeline in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.core.result.tables import Column, Table, TableSchema
from forerun.core.result.timeline import Timeline
from forerun.serving.engine.outcome import Batches, Outcome, Run
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.pipeline import Floats, stretches
from forerun.serving.summary.latency_split import Account

if TYPE_CHECKING:
    from forerun.serving.engine.outcome import TunerDecisions
    from forerun.serving.policy.handover import Handover

_QUERY: Final = Column("query", "", "number of the query, in order of arrival")
_STAGE: Final = Column("stage", "", "name of the stage")
_REPLICA: Final = Column("replica", "", "number of the replica within its stage")
_START: Final = Column("start_ms", "ms", "when the batch starts")
_END: Final = Column("end_ms", "ms", "when the batch ends")

QUERIES: Final = TableSchema(
    "queries",
    (
        Column("query", "", "number of the query, in order of arrival"),
        Column("arrival_ms", "ms", "instant of arrival"),
        Column("finish_ms", "ms", "when its last stage ends"),
        Column("latency_ms", "ms", "finish minus arrival"),
        Column("missed", "", "latency above the SLO"),
    ),
    "one query",
)
VISITS: Final = TableSchema(
    "visits",
    (
        _QUERY,
        _STAGE,
        Column("enqueue_ms", "ms", "when its last taken parent ends: it joins the queue"),
        _START,
        _END,
        Column("batch", "", "queries in its batch"),
        _REPLICA,
    ),
    "one query at one stage",
)
BATCHES: Final = TableSchema(
    "batches",
    (_STAGE, _REPLICA, _START, _END, Column("size", "", "queries in the batch")),
    "one batch, in start order within its stage",
)
STAGES: Final = TableSchema(
    "stages",
    (
        _STAGE,
        Column("hardware", "", "what its replicas run on"),
        Column("max_batch", "", "largest batch, or most requests that a language model runs at once"),
        Column("replicas", "", "replicas at the start"),
        Column(
            "load",
            "",
            "queries offered over the most its replicas can carry, for language models a lower bound; 1 or more is overload",
        ),
        Column("utilisation", "", "share of replica time spent serving"),
        Column("mean_batch", "", "queries per batch, or per iteration of a language model"),
        Column("queue_mean", "queries", "queue length, averaged over time"),
        Column("queue_max", "queries", "longest queue"),
        Column("wait_mean_ms", "ms", "time in the queue, averaged over visits"),
        Column("service_mean_ms", "ms", "time in service, averaged over visits"),
        Column("wait_share", "", "share of all latency that is spent on the critical path in this queue"),
        Column("visits", "", "queries that came by"),
    ),
    "one stage",
)
REPLICAS: Final = TableSchema(
    "replicas",
    (
        _STAGE,
        Column("from_ms", "ms", "from this instant"),
        Column("to_ms", "ms", "to this instant"),
        Column("count", "", "replicas there are"),
        Column("paid", "", "replicas paid for: more than there are while some come up"),
        Column("cost_usd", "usd", "the price of those paid for over that time"),
    ),
    "one stretch of time with a constant number of replicas",
)
DECISIONS: Final = TableSchema(
    "decisions",
    (
        Column("at_ms", "ms", "when the tuner decided"),
        Column("action", "", "up, down, or both where stages differ"),
        _STAGE,
        Column("before", "", "replicas paid for until then"),
        Column("after", "", "replicas paid for from then on"),
        Column("active_ms", "ms", "when more of them are active; fewer are at once"),
        Column("rate_rps", "rps", "the rate that the tuner decided for, NaN if none"),
        Column("why", "", "in the tuner's words"),
    ),
    "one stage that a decision changed",
)
ENVELOPES: Final = TableSchema(
    "envelopes",
    (
        Column("window_ms", "ms", "length of a window that begins at an arrival"),
        Column("sample", "queries", "most arrivals in such a window of the sample"),
        Column("run", "queries", "most arrivals in such a window of the run"),
    ),
    "one window length",
)

#: queries grouped by how slow they are: name, from this quantile of the latency, to this one
BANDS: Final = (
    ("fastest 50 %", 0.0, 0.5),
    ("next 40 %", 0.5, 0.9),
    ("next 9 %", 0.9, 0.99),
    ("slowest 1 %", 0.99, 1.0),
)

SPLITS: Final = TableSchema(
    "splits",
    (
        Column("band", "", "queries grouped by latency"),
        _STAGE,
        Column("kind", "", "queue wait, batch wait or service"),
        Column("mean_ms", "ms", "its part of the critical path, averaged over the band's queries"),
    ),
    "one part of the latency of one band of queries; a band's parts sum to its mean latency",
)


def queries_table(run: Run, slo_ms: float) -> Table:
    """One row a query."""
    latency = run.latency_ms
    return Table.of(
        QUERIES,
        query=np.arange(len(latency)),
        arrival_ms=run.arrival_ms,
        finish_ms=run.finish_ms,
        latency_ms=latency,
        missed=run.missed(slo_ms),
    )


def visits_table(inputs: Inputs, run: Run) -> Table:
    """One row a visit, stage by stage."""
    parts = []
    for stage, visits in zip(inputs.pipeline.names, run.visits):
        came = np.flatnonzero(visits.batch > 0)
        columns = {name: values[came] for name, values in vars(visits).items()}
        parts.append({"query": came, "stage": stage, **columns})
    return Table.of_parts(VISITS, parts)


def batches_table(inputs: Inputs, run: Run) -> Table:
    """One row a batch, stage by stage."""
    stages = zip(inputs.pipeline.stages, run.batches)
    return Table.of_parts(
        BATCHES, [{"stage": stage.name, **vars(batches)} for stage, batches in stages if not stage.llm]
    )


def stages_table(
    inputs: Inputs, run: Run, loads: Mapping[str, float], wait_share: Mapping[str, float]
) -> Table:
    """One row a stage.

    Parameters
    ----------
    loads : by stage, queries offered over the most that its replicas can carry.
    wait_share : by stage, the share of all latency that queries wait there, on their critical path.
    """
    begin_ms, end_ms = run.horizon_ms
    rows = []
    for stage, hardware, visits, batches in zip(
        inputs.pipeline.stages, inputs.hardware, run.visits, run.batches
    ):
        came = visits.batch > 0
        wait = visits.start_ms[came] - visits.enqueue_ms[came]
        served = float((batches.end_ms - batches.start_ms).sum())
        constant = stretches(begin_ms, end_ms, (stage.replicas, stage.capacity))
        offered = sum((to - at) * count for at, to, (count,) in constant)
        if stage.llm is not None and stage.llm.decode is not None:
            offered += (end_ms - begin_ms) * stage.llm.decode.replicas
        rows.append(
            (
                stage.name,
                hardware,
                stage.llm.max_seqs if stage.llm else stage.max_batch,
                stage.replicas,
                loads[stage.name],
                served / offered if offered else 0.0,
                _mean(batches.size),
                float(wait.sum()) / (end_ms - begin_ms) if end_ms > begin_ms else 0.0,
                longest_queue(visits.enqueue_ms[came], visits.start_ms[came]),
                _mean(wait),
                _mean(visits.end_ms[came] - visits.start_ms[came]),
                wait_share[stage.name],
                int(came.sum()),
            )
        )
    return Table.of_rows(STAGES, rows)


def replicas_table(outcome: Outcome) -> Table:
    """One row a stretch with constant numbers of replicas, from the first arrival to the last finish."""
    inputs, run = outcome.inputs, outcome.run
    begin_ms, end_ms = run.horizon_ms
    rows = []
    for s, (stage, price) in enumerate(zip(inputs.pipeline.stages, inputs.prices_usd_per_h)):
        present, paid_for = (stage.replicas, stage.capacity), (stage.replicas, outcome.paid(s))
        for at, to, (count, paid) in stretches(begin_ms, end_ms, present, paid_for):
            rows.append((stage.name, at, to, count, paid, paid * price * (to - at) / 3.6e6))
        if stage.llm is not None and stage.llm.decode is not None:
            count = stage.llm.decode.replicas
            cost_usd = inputs.decode_usd_per_h[s] * (end_ms - begin_ms) / 3.6e6
            rows.append((f"{stage.name} (decode)", begin_ms, end_ms, count, count, cost_usd))
    return Table.of_rows(REPLICAS, rows)


def decisions_table(inputs: Inputs, schedule: TunerDecisions) -> Table:
    """One row a stage that a tuner's decision changed."""
    rows = [
        (
            d.at_ms,
            d.action,
            name,
            before,
            after,
            d.active_ms if after > before else d.at_ms,
            d.rate_rps,
            d.why,
        )
        for d in schedule.decisions
        for name, before, after in zip(inputs.pipeline.names, d.before, d.after)
        if before != after
    ]
    return Table.of_rows(DECISIONS, rows)


def envelopes_table(handover: Handover, arrivals_ms: Floats) -> Table:
    """The sample's traffic envelope beside the run's: most arrivals in any window of each length.

    Parameters
    ----------
    handover : the sample, and the lengths of windows.
    arrivals_ms : float64[queries], of the run, ascending.
    """
    from forerun.serving.policy.envelope import envelope

    return Table.of(
        ENVELOPES,
        window_ms=np.array(handover.windows_ms),
        sample=handover.sample_envelope,
        run=envelope(arrivals_ms, handover.windows_ms),
    )


def splits_table(account: Account, run: Run) -> Table:
    """Where the time of fast and of slow queries went: the mean parts of each band of queries, refused ones left out.

    Parameters
    ----------
    account : the split of every query's latency, along critical paths.
    run : the latencies by which queries are grouped.
    """
    order = np.argsort(run.latency_ms, kind="stable")
    order = order if run.refused is None else order[~run.refused[order]]
    rows = []
    for band, low, high in BANDS:
        members = order[int(low * len(order)) : max(int(high * len(order)), int(low * len(order)) + 1)]
        means = account.parts_ms[:, members].mean(axis=1)
        rows += [(band, stage, kind, mean) for (stage, kind), mean in zip(account.names, means.tolist())]
    return Table.of_rows(SPLITS, rows)


def timeline(inputs: Inputs, run: Run) -> Timeline:
    """One track a replica, one interval a batch; of a language model one interval a stretch of work without a pause.

    Parameters
    ----------
    inputs : names the stages.
    run : with batches; its milliseconds become seconds.
    """
    entities: list[str] = []
    groups: list[str] = []
    codes: list[NDArray[np.int64]] = []
    # A language model's iterations are many and follow each other: it is shown while it is at work.
    shown = [
        _at_work(batches) if stage.llm else batches
        for stage, batches in zip(inputs.pipeline.stages, run.batches)
    ]
    for name, batches in zip(inputs.pipeline.names, shown):
        count = int(batches.replica.max(initial=-1)) + 1
        codes.append(batches.replica.astype(np.int64) + len(entities))
        entities += [f"{name} #{replica}" for replica in range(count)]
        groups += [name] * count
    sizes = np.concatenate([batches.size for batches in shown])
    texts = np.array([f"batch of {size}" for size in range(int(sizes.max(initial=0)) + 1)], dtype=object)
    texts[0] = "requests"
    return Timeline(
        entities=tuple(entities),
        states=("serving",),
        entity=np.concatenate(codes),
        state=np.zeros(len(sizes), dtype=np.int64),
        from_s=np.concatenate([batches.start_ms for batches in shown]) / 1e3,
        to_s=np.concatenate([batches.end_ms for batches in shown]) / 1e3,
        label=texts[sizes],
        groups=tuple(groups),
    )


def longest_queue(enqueue_ms: Floats, start_ms: Floats) -> int:
    """The longest queue, after the arrivals and before the starts of an instant.

    Parameters
    ----------
    enqueue_ms, start_ms : float64[visits], when each query joins the queue and when its batch starts.
    """
    if not len(enqueue_ms):
        return 0
    come, gone = np.sort(enqueue_ms), np.sort(start_ms)
    return int((np.searchsorted(come, come, side="right") - np.searchsorted(gone, come, side="left")).max())


def _mean(values: Any) -> float:
    return float(values.mean()) if len(values) else 0.0


def _at_work(iterations: Batches) -> Batches:
    """Stretches of iterations of one replica that follow each other without a pause, in the order they begin; the size of
    each is 0."""
    starts, ends, replicas = [], [], []
    for replica in np.unique(iterations.replica):
        rows = iterations.replica == replica
        start_ms, end_ms = iterations.start_ms[rows], iterations.end_ms[rows]
        begins = np.concatenate([[True], start_ms[1:] > end_ms[:-1]])
        starts.append(start_ms[begins])
        ends.append(end_ms[np.concatenate([begins[1:], [True]])])
        replicas.append(np.full(int(begins.sum()), replica, dtype=np.int32))
    if not starts:
        return iterations
    start_ms = np.concatenate(starts)
    order = np.lexsort((np.concatenate(replicas), start_ms))
    return Batches(
        start_ms[order],
        np.concatenate(ends)[order],
        np.zeros(len(order), dtype=np.int32),
        np.concatenate(replicas)[order],
    )
