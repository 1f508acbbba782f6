"""Alibaba's GPU-sharing cluster, 2023: pods of a Kubernetes cluster."""

from __future__ import annotations

import numpy as np

from forerun.cluster.traces.job_logs import ABSENT, JobLog
from forerun.core.trace.rows import Field
from forerun.core.trace.tabular import Rows


class AlibabaOpenb(JobLog, tag="alibaba_openb", frozen=True, kw_only=True):
    """CSV `openb_pod_list_*.csv`; a pod on a shared GPU has `gpu_milli` thousandths of it (read as a fraction).

    Pods without GPU are dropped and counted unless cpu_jobs. Seconds count from an unstated instant. CC-BY 4.0
    [Weng et al., USENIX ATC'23].
    """

    cpu_jobs: bool = False

    about = "Alibaba GPU-sharing pods 2023 (openb_pod_list CSV)"
    signature = ("name", "num_gpu", "gpu_milli", "creation_time", "deletion_time")
    columns = (
        Field(name="job_id", column="name", kind="text"),
        Field(name="cpu_milli", minimum=0, missing=ABSENT, required=False),
        Field(name="memory_mib", minimum=0, missing=ABSENT, required=False),
        Field(name="gpus", column="num_gpu", minimum=0, missing=ABSENT),
        Field(name="gpu_milli", minimum=0, missing=ABSENT),
        Field(name="gpu_spec", kind="text", missing=ABSENT, required=False),
        Field(name="vc", column="qos", kind="text", missing=ABSENT, required=False),
        Field(name="state", column="pod_phase", kind="text", missing=ABSENT),
        Field(name="submit_s", column="creation_time", missing=ABSENT),
        Field(name="end_s", column="deletion_time", missing=ABSENT),
        Field(name="start_s", column="scheduled_time", missing=ABSENT),
    )
    clock = "seconds from an unstated instant"

    def settle(self, rows: Rows) -> None:
        if "gpu_spec" in rows:
            several = np.strings.find(rows["gpu_spec"], "|") >= 0
            rows.note(several, "pod that requests one of several GPU models may use any", "gpu_spec")
            rows["gpu_type"] = np.where(several, "", rows["gpu_spec"])
        count, share = rows["gpus"], rows["gpu_milli"] / 1000.0
        rows.note((count > 1) & (share < 1), "share of a GPU ignored for a pod of several GPUs", "gpu_milli")
        rows["gpus"] = np.where((count == 1) & (share > 0), np.minimum(share, 1.0), count)
