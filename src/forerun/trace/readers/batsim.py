"""Jobs as the Batsim simulator writes them."""

from __future__ import annotations

from forerun.trace.jobs import ABSENT, JobLog
from forerun.trace.rows import Field
from forerun.trace.tabular import Rows


class Batsim(JobLog, tag="batsim", frozen=True, kw_only=True):
    """CSV `out_jobs.csv`: what Batsim says of each job; its resources are taken as GPUs.

    A walltime below 0 is none. [Dutot et al., JSSPP'16].
    """

    about = "Batsim out_jobs.csv (CSV, seconds; resources are taken as GPUs)"
    signature = ("job_id", "submission_time", "requested_number_of_resources", "starting_time", "finish_time")
    columns = (
        Field(name="job_id", kind="text"),
        Field(name="vc", column="workload_name", kind="text", missing=ABSENT, required=False),
        Field(name="submit_s", column="submission_time"),
        Field(name="gpus", column="requested_number_of_resources", minimum=0),
        Field(name="requested_s", column="requested_time", required=False, missing=ABSENT),
        Field(name="state", column="final_state", kind="text", missing=ABSENT, required=False),
        Field(name="start_s", column="starting_time", missing=ABSENT),
        Field(name="end_s", column="finish_time", missing=ABSENT),
    )
    clock = "seconds of the simulation"
    same_id = "suffix"

    def settle(self, rows: Rows) -> None:
        rows.note(rows["gpus"] > 0, "resources taken as GPUs", "requested_number_of_resources")
