"""Slurm's accounting database: the job table, exported as CSV."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from forerun.cluster.traces.job_logs import ABSENT, JobLog
from forerun.core.trace.rows import TEXT, Field
from forerun.core.trace.tabular import Rows

#: states of a job by their number in the database
_STATES: Final = (
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
    "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
)  # fmt: skip
_NEVER: Final = ("", "NULL", "0")


class SlurmDb(JobLog, tag="slurmdb", frozen=True, kw_only=True):
    """CSV of the table `CLUSTER_job_table`: times in seconds since 1970, limits in minutes, resources by number.

    gpu_tres: the number of GPUs in the table `tres_table` (default: 1001, the first resource of most sites, which is noted).
    """

    gpu_tres: int = 1001
    cpu_jobs: bool = False

    about = "Slurm accounting database, job table (CSV, seconds since 1970)"
    signature = ("id_job", "time_submit", "time_start", "time_end", "tres_alloc")
    columns = (
        Field(name="job_id", column="id_job", kind="text"),
        Field(name="user", column="id_user", kind="text", missing=ABSENT, required=False),
        Field(name="vc", column="partition", kind="text", missing=ABSENT, required=False),
        Field(name="account", kind="text", missing=ABSENT, required=False),
        Field(name="qos", column="id_qos", kind="text", missing=ABSENT, required=False),
        Field(name="submit_s", column="time_submit", missing=_NEVER, minimum=0),
        Field(name="eligible_s", column="time_eligible", missing=_NEVER, minimum=0, required=False),
        Field(name="start_s", column="time_start", missing=_NEVER, minimum=0),
        Field(name="end_s", column="time_end", missing=_NEVER, minimum=0),
        Field(name="limit", column="timelimit", missing=("", "NULL", "0"), required=False),
        Field(name="nodes", column="nodes_alloc", missing=ABSENT, minimum=0, required=False),
        Field(name="state", kind="int", minimum=0),
        Field(name="tres_alloc", kind="text", missing=ABSENT),
    )
    clock = "UTC"
    same_id = "suffix"

    def settle(self, rows: Rows) -> None:
        held = re.compile(rf"(?:^|,){self.gpu_tres}=([0-9]{{1,9}})(?=,|$)")
        counts = [held.search(text) for text in rows["tres_alloc"].tolist()]
        rows["gpus"] = np.array([float(count[1]) if count else 0.0 for count in counts])
        rows.note(rows["gpus"] > 0, f"resource {self.gpu_tres} taken as GPUs", "tres_alloc")
        if "limit" in rows:
            rows["requested_s"] = np.where(rows["limit"] < 2**31, 60.0 * rows["limit"], np.nan)
        # The lowest byte is the state; flags stand above it.
        codes = [code & 0xFF for code in rows["state"].tolist()]
        rows["state"] = np.array([_STATES[code] if code < len(_STATES) else "" for code in codes], TEXT)
