"""Alibaba's jobs on guaranteed and spot GPUs, published in 2026."""

from __future__ import annotations

from forerun.cluster.traces.job_logs import ABSENT, JobLog
from forerun.core.trace.rows import Field
from forerun.core.trace.tabular import Rows


class AlibabaSpot(JobLog, tag="alibaba_spot", frozen=True, kw_only=True):
    """CSV `job_info_df.csv`: GPUs a worker times workers, submission in seconds from the first, HP or Spot jobs.

    gpu_model: keep the jobs of one GPU type, all if empty (others are counted). CC-BY 4.0 [Duan et al., ASPLOS'26].
    """

    gpu_model: str = ""

    about = "Alibaba guaranteed and spot GPU jobs 2026 (job_info_df CSV)"
    signature = ("job_name", "organization", "gpu_request", "worker_num", "job_type")
    columns = (
        Field(name="job_id", column="job_name", kind="text"),
        Field(name="vc", column="organization", kind="text", missing=ABSENT),
        Field(name="gpu_model", kind="text", missing=ABSENT),
        Field(name="cpu_request", minimum=0, missing=ABSENT, required=False),
        Field(name="gpu_request", minimum=0, missing=ABSENT),
        Field(name="worker_num", minimum=0, missing=ABSENT),
        Field(name="submit_s", column="submit_time", minimum=0, missing=ABSENT),
        Field(name="duration_s", column="duration", missing=ABSENT),
        Field(name="state", column="job_type", kind="text", missing=ABSENT),
    )
    clock = "seconds from the first submission"

    def settle(self, rows: Rows) -> None:
        if self.gpu_model:
            rows.drop(rows["gpu_model"] != self.gpu_model, "job of another GPU type dropped")
        rows["gpu_type"] = rows["gpu_model"]
        rows["gpus"] = rows["gpu_request"] * rows["worker_num"]
