"""What a run of this room records: its tables, column by column."""

from __future__ import annotations

from typing import Final

from forerun.result.tables import Column, TableSchema

JOBS: Final = TableSchema(
    "jobs",
    (
        Column("job", meaning="identifier in the trace"),
        Column("user", meaning="user or virtual cluster"),
        Column("model", meaning="model, empty if the trace has none"),
        Column("batch", unit="samples", meaning="global batch"),
        Column("gpus", unit="GPUs", meaning="requested"),
        Column("submit_s", unit="s", meaning="submission"),
        Column("deadline_s", unit="s", meaning="deadline, absolute; nan: none"),
        Column("admitted", meaning="whether it was taken in"),
        Column("first_start_s", unit="s", meaning="when it first held GPUs; nan: never"),
        Column("end_s", unit="s", meaning="when it ended, as the schedule logs it; nan: never"),
        Column("met", meaning="whether it ended by its deadline (jobs without one: whether it ended)"),
        Column("met_reference", meaning="whether the schedule's own rule counts it as in time"),
        Column("wait_admission_s", unit="s", meaning="waiting before the schedule took it in"),
        Column(
            "wait_capacity_s", unit="s", meaning="waiting while jobs ranked higher held the GPUs it needs"
        ),
        Column(
            "wait_fragmentation_s", unit="s", meaning="waiting with enough free GPUs, but no admissible nodes"
        ),
        Column("wait_policy_s", unit="s", meaning="waiting with enough free GPUs, by the policy's choice"),
        Column("wait_quota_s", unit="s", meaning="waiting because its user's quota was used up"),
        Column(
            "wait_reconfiguration_s",
            unit="s",
            meaning="holding GPUs without working: restarts, rest of a slot",
        ),
        Column("running_s", unit="s", meaning="holding GPUs and working"),
        Column("gpu_s", unit="GPU-s", meaning="GPU time held"),
        Column("preemptions", meaning="times it lost all its GPUs before the end"),
        Column("refused_because", meaning="the constraint that binds, if it was refused"),
    ),
    "one row a job, in order of submission",
)

ALLOCATIONS: Final = TableSchema(
    "allocations",
    (
        Column("job", meaning="identifier in the trace"),
        Column("from_s", unit="s", meaning="start of the interval"),
        Column("to_s", unit="s", meaning="end of the interval, not included"),
        Column("gpus", unit="GPUs", meaning="held throughout"),
        Column(
            "nodes",
            meaning="node and GPUs there, as 0:8 1:4; packed afterwards where the schedule names no nodes",
        ),
        Column("gpu_numbers", meaning="which GPUs, numbered through the nodes, as 0-7 12; packed likewise"),
    ),
    "one row a stretch in which a job held the same number of GPUs",
)

EVENTS: Final = TableSchema(
    "events",
    (
        Column("time_s", unit="s", meaning="instant"),
        Column("pending", unit="jobs", meaning="waiting after it"),
        Column("running", unit="jobs", meaning="holding GPUs after it"),
        Column("free", unit="GPUs", meaning="held by nobody after it"),
        Column("efficiency", meaning="sum of throughput over one-GPU throughput of running jobs, per GPU"),
        Column("submitted", unit="jobs", meaning="submitted by then"),
        Column("admitted", unit="jobs", meaning="of those, taken in"),
    ),
    "one row a scheduling event",
)

BILL: Final = TableSchema(
    "bill",
    (
        Column("job", meaning="identifier in the trace"),
        Column("energy_j", unit="J", meaning="drawn by the GPUs it held, the building's share included"),
        Column("data_wait_gpu_s", unit="GPU-s", meaning="GPU time it held and waited for data"),
        Column("cost_usd", unit="$", meaning="rent of the GPU time it held, and electricity"),
        Column("co2e_g", unit="g", meaning="emissions of its electricity; nan: no carbon signal"),
    ),
    "one row a job, in order of submission; free GPUs are nobody's",
)
