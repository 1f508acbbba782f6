"""Jobs as the Batsim simulator writes them."""

from __future__ import annotations

from pathlib import Path

from forerun.cluster.traces.job_logs import ABSENT, Gathered, JobLog
from forerun.core.errors import TraceError
from forerun.core.trace.reader import Head
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.rows import Field
from forerun.core.trace.source import Source
from forerun.core.trace.table import Trace
from forerun.core.trace.tabular import Rows


class Batsim(JobLog, tag="batsim", frozen=True, kw_only=True):
    """CSV `out_jobs.csv`: what Batsim says of each job; its resources are taken as GPUs.

    A walltime below 0 is none. A workload, which has no start and end times, is recognised and refused. [Dutot et al.,
    JSSPP'16].
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

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return super().recognises(head) or '"subtime"' in "".join(head.lines)

    def gather(self, path: Path, repairs: RepairLog) -> Gathered:
        _refuse_workload(path)
        return super().gather(path, repairs)

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        _refuse_workload(path)
        return super().read(path, repairs)


def _refuse_workload(path: Path) -> None:
    source = Source(path, repairs=RepairLog())
    if "".join(source.head(1)).lstrip().startswith("{"):
        what = (
            "is a Batsim workload, without start and end times: run it in Batsim, and read the out_jobs.csv"
        )
        raise TraceError.at(source.name, what)
