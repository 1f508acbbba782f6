"""The Helios traces of SenseTime's GPU clusters."""

from __future__ import annotations

from forerun.cluster.traces.job_logs import ABSENT, JobLog
from forerun.core.trace.rows import Field
from forerun.core.trace.tabular import Rows


class Helios(JobLog, tag="helios", frozen=True, kw_only=True):
    """CSV `cluster_log.csv` with `job_id,user,vc,gpu_num,...,submit_time,start_time,end_time,duration,queue`.

    Local times without zone (the place keeps no daylight-saving time). About half of the jobs use no GPU; they are
    dropped and counted unless cpu_jobs. Read in a stream: 3.4 million rows. Acme's `trace_*.csv` has the same columns but
    `vc`, and times with their zone. CC-BY 4.0 [Hu et al., SC'21; Hu et al., NSDI'24].
    """

    cpu_jobs: bool = False

    about = "Helios cluster_log.csv, Acme trace_*.csv (jobs of SenseTime and Shanghai AI Lab clusters)"
    signature = ("job_id", "gpu_num", "cpu_num", "submit_time", "start_time", "end_time")
    columns = (
        Field(name="job_id", kind="text"),
        Field(name="user", kind="text", missing=ABSENT),
        Field(name="vc", kind="text", missing=ABSENT, required=False),
        Field(name="gpus", column="gpu_num", minimum=0, missing=ABSENT),
        Field(name="cpu_num", minimum=0, missing=ABSENT, required=False),
        Field(name="nodes", column="node_num", minimum=0, missing=ABSENT, required=False),
        Field(name="state", kind="text", missing=ABSENT),
        Field(name="submit_s", column="submit_time", kind="text", missing=ABSENT),
        Field(name="start_s", column="start_time", kind="text", missing=ABSENT),
        Field(name="end_s", column="end_time", kind="text", missing=ABSENT),
        Field(name="duration_s", column="duration", missing=ABSENT, required=False),
        Field(name="queue", missing=ABSENT, required=False),
    )
    instants = ("submit_s", "start_s", "end_s")
    clock = "local, no zone, unless the file gives one"

    def settle(self, rows: Rows) -> None:
        if not self.cpu_jobs:  # here, so that the jobs without GPUs take no memory
            rows.drop(rows["gpus"] == 0, "job without GPUs dropped")
