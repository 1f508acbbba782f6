"""The tables of a result, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.inputs.arrays import F64, I64, JobLabels
from forerun.cluster.summary.causes import CAUSES
from forerun.cluster.summary.spans import Stretches
from forerun.cluster.summary.waits import Waits
from forerun.core.result.tables import Column, Table, TableSchema

#: jobs that run shorter count as so long in slowdowns
SHORT_S: Final = 10.0

JOBS: Final = TableSchema(
    "jobs",
    (
        Column("job", "", "identifier in the trace"),
        Column("user", "", "user or virtual cluster"),
        Column("account", "", "account; empty: not recorded"),
        Column("partition", "", "partition, queue or virtual cluster; empty: not recorded"),
        Column("qos", "", "quality of service; empty: not recorded"),
        Column("model", "", "model, empty if the trace has none"),
        Column("batch", "samples", "global batch"),
        Column("gpus", "GPUs", "requested"),
        Column("gpu_type", "", "of the GPUs that it first ran on; empty: not known"),
        Column("submit_s", "s", "submission; of a job after the end of another, when it came"),
        Column("submitted", "", "the same by the calendar of the log; empty: it has none"),
        Column("deadline_s", "s", "deadline, absolute; nan: none"),
        Column("admitted", "", "whether it was taken in"),
        Column("first_start_s", "s", "when it first held GPUs; nan: never"),
        Column("end_s", "s", "when it ended, as the schedule logs it; nan: never"),
        Column("wait_s", "s", "from submission to first start; nan: it never started"),
        Column(
            "slowdown",
            "",
            "end less submission over the time it ran, taken as 10 s at least; nan: it never ended",
        ),
        Column("met", "", "whether it ended by its deadline (jobs without one: whether it ended)"),
        Column("met_reference", "", "whether the schedule's own rule counts it as in time"),
        Column("wait_admission_s", "s", "waiting before the schedule took it in"),
        *(Column(f"wait_{cause}_s", "s", f"waiting: {meaning}") for cause, (_, meaning) in CAUSES.items()),
        Column("wait_reconfiguration_s", "s", "holding GPUs without working: restarts, rest of a slot"),
        Column("running_s", "s", "holding GPUs and working"),
        Column("gpu_s", "GPU-s", "GPU time held"),
        Column("preemptions", "", "times it lost all its GPUs before the end"),
        Column(
            "attempt", "", "which run of a job that was put back into the queue in the log this is, from 1"
        ),
        Column("lost_gpu_s", "GPU-s", "GPU time of work that a failure or preemption undid"),
        Column("refused_because", "", "the constraint that binds, if it was refused"),
    ),
    "one row a job, in order of submission",
)

ALLOCATIONS: Final = TableSchema(
    "allocations",
    (
        Column("job", "", "identifier in the trace"),
        Column("from_s", "s", "start of the interval"),
        Column("to_s", "s", "end of the interval, not included"),
        Column("gpus", "GPUs", "held throughout"),
        Column(
            "nodes",
            "",
            "node and GPUs there, as 0:8 1:4; packed afterwards where the schedule names no nodes",
        ),
        Column("gpu_numbers", "", "which GPUs, numbered through the nodes, as 0-7 12; packed likewise"),
    ),
    "one row a stretch in which a job held the same number of GPUs",
)

EVENTS: Final = TableSchema(
    "events",
    (
        Column("time_s", "s", "instant"),
        Column("pending", "jobs", "waiting after it"),
        Column("running", "jobs", "holding GPUs after it"),
        Column("free", "GPUs", "held by nobody after it"),
        Column("efficiency", "", "sum of throughput over one-GPU throughput of running jobs, per GPU"),
        Column("submitted", "jobs", "submitted by then"),
        Column("admitted", "jobs", "of those, taken in"),
    ),
    "one row a scheduling event",
)

BILL: Final = TableSchema(
    "bill",
    (
        Column("job", "", "identifier in the trace"),
        Column("energy_j", "J", "drawn by the GPUs it held, the building's share included"),
        Column("data_wait_gpu_s", "GPU-s", "GPU time it held and waited for data"),
        Column("cost_usd", "$", "rent of the GPU time it held, and electricity"),
        Column("co2e_g", "g", "emissions of its electricity; nan: no carbon signal"),
    ),
    "one row a job, in order of submission; free GPUs are nobody's",
)


def jobs_table(record: Record, stretches: Stretches, waits: Waits, submitted: Sequence[str]) -> Table:
    """One row a job, in order of submission. submitted: by the calendar of the log.

    Whether a job met its deadline goes by its logged end; `met_reference` is the schedule's own rule, which known bugs
    may bend.
    """
    jobs = record.setting.jobs
    has_deadline, labels = jobs.has_deadline, jobs.labels or JobLabels.of(len(jobs))
    ended = record.end_s >= 0
    first_s = np.where(record.first_start_s >= 0, record.first_start_s, np.nan)
    submitted_s = came_or_submitted_s(record)
    jct_s = np.where(ended, record.end_s, np.nan) - submitted_s
    return Table.of(
        JOBS,
        job=np.array([str(name) for name in jobs.id], dtype=object),
        user=np.array(jobs.user, dtype=object),
        **{name: np.array(getattr(labels, name), dtype=object) for name in ("account", "partition", "qos")},
        model=np.array(jobs.model, dtype=object),
        batch=jobs.batch,
        gpus=jobs.gpus,
        gpu_type=np.array(_gpu_types(record), dtype=object),
        submit_s=submitted_s,
        submitted=np.array(submitted, dtype=object),
        deadline_s=np.where(has_deadline, jobs.deadline_s.astype(np.float64), np.nan),
        admitted=record.admitted != 0,
        first_start_s=first_s,
        end_s=np.where(ended, record.end_s, np.nan),
        wait_s=np.where(jobs.censored, np.nan, first_s - submitted_s),
        slowdown=np.maximum(jct_s / np.maximum(waits.running, SHORT_S), 1.0),
        met=ended & (~has_deadline | (record.end_s <= jobs.deadline_s)),
        met_reference=record.met_reference,
        **{f"wait_{cause}_s": waited_s for cause, waited_s in waits.by_cause().items()},
        running_s=waits.running,
        gpu_s=stretches.gpu_s(len(jobs)),
        preemptions=record.preempts,
        attempt=np.maximum(labels.attempt, 1),
        lost_gpu_s=waits.lost_gpu_s,
        refused_because=np.array([record.refusals.get(row, "") for row in range(len(jobs))], dtype=object),
    )


def came_or_submitted_s(record: Record) -> I64 | F64:
    """When each job came; its submission in the log, if it did not."""
    came_s = record.came_s
    return (
        came_s
        if np.isfinite(came_s).all()
        else np.where(np.isfinite(came_s), came_s, record.setting.jobs.submit_s)
    )


def _gpu_types(record: Record) -> list[str]:
    """The GPU type that each job first ran on, as far as it is known."""
    cluster, count = record.setting.cluster, len(record.setting.jobs)
    types = cluster.node_types()
    if len(set(types)) == 1 or not record.has_seats:
        return [types[0] if len(set(types)) == 1 else ""] * count
    begin, first, _ = record.seats(np.arange(count), record.first_start_s)
    known = begin[1:] > begin[:-1]
    nodes = np.searchsorted(np.cumsum(cluster.node_gpus()), first[begin[:-1][known]], "right")
    found = np.full(count, "", dtype=object)
    found[known] = np.array(types, dtype=object)[nodes]
    return list(found)


def allocations_table(
    record: Record, stretches: Stretches, places: list[list[tuple[int, int]]] | None
) -> Table:
    """One row a stretch of constant allocation."""
    jobs = record.setting.jobs
    names = [str(name) for name in jobs.id]
    node = np.repeat(np.arange(record.setting.cluster.nodes), record.setting.cluster.node_gpus())
    texts = [""] * len(stretches.row) if places is None else [nodes_text(runs, node) for runs in places]
    numbers = [""] * len(texts) if places is None else [_numbers_text(runs) for runs in places]
    return Table.of(
        ALLOCATIONS,
        job=np.array([names[row] for row in stretches.row], dtype=object),
        from_s=stretches.from_s,
        to_s=stretches.to_s,
        gpus=stretches.gpus,
        nodes=np.array(texts, dtype=object),
        gpu_numbers=np.array(numbers, dtype=object),
    )


def _numbers_text(runs: list[tuple[int, int]]) -> str:
    return " ".join(str(first) if count == 1 else f"{first}-{first + count - 1}" for first, count in runs)


def nodes_text(runs: list[tuple[int, int]], node: I64) -> str:
    """The nodes of some GPUs, as `0:8 1:4`. runs: of GPUs, (first, count). node: int64[GPUs], the node of each."""
    count: dict[int, int] = {}
    for first, length in runs:
        for number in node[first : first + length].tolist():
            count[number] = count.get(number, 0) + 1
    return " ".join(f"{number}:{held}" for number, held in count.items())


def events_table(record: Record) -> Table:
    """One row a scheduling event."""
    times, pending, running, free, efficiency = record.events()
    submit = np.sort(record.came_s)
    taken = np.sort(record.came_s[record.admitted != 0])
    return Table.of(
        EVENTS,
        time_s=times,
        pending=pending,
        running=running,
        free=free,
        efficiency=efficiency,
        submitted=np.searchsorted(submit, times, side="right"),
        admitted=np.searchsorted(taken, times, side="right"),
    )
