"""Alibaba's GPU-sharing cluster, 2023: pods of a Kubernetes cluster."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final

import numpy as np

from forerun.trace.jobs import ABSENT, JobRows, job_trace
from forerun.trace.reader import Head, TraceReader
from forerun.trace.repair import Complaints, RepairLog
from forerun.trace.rows import Field, read_rows
from forerun.trace.source import Source
from forerun.trace.table import Trace

_READ: Final = (
    Field(name="name", kind="text"),
    Field(name="cpu_milli", minimum=0, missing=ABSENT, required=False),
    Field(name="memory_mib", minimum=0, missing=ABSENT, required=False),
    Field(name="num_gpu", minimum=0, missing=ABSENT),
    Field(name="gpu_milli", minimum=0, missing=ABSENT),
    Field(name="gpu_spec", kind="text", missing=ABSENT, required=False),
    Field(name="qos", kind="text", missing=ABSENT, required=False),
    Field(name="pod_phase", kind="text", missing=ABSENT),
    Field(name="creation_time", missing=ABSENT),
    Field(name="deletion_time", missing=ABSENT),
    Field(name="scheduled_time", missing=ABSENT),
)


class AlibabaOpenb(TraceReader, tag="alibaba_openb", frozen=True, kw_only=True):
    """CSV `openb_pod_list_*.csv`; a pod on a shared GPU holds `gpu_milli` thousandths of it (kept as a fraction).

    Pods without GPU are dropped and counted unless cpu_jobs. Seconds count from an unstated instant. CC-BY 4.0
    [Weng et al., USENIX ATC'23].
    """

    cpu_jobs: bool = False

    about: ClassVar[str] = "Alibaba GPU-sharing pods 2023 (openb_pod_list CSV)"
    makes: ClassVar[str] = "jobs"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return head.has_columns("name", "num_gpu", "gpu_milli", "creation_time", "deletion_time")

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source, complaints, rows = Source(path, repairs=repairs), Complaints(), JobRows()
        for chunk in read_rows(source, _READ, complaints=complaints):
            columns, lines = chunk.columns, chunk.lines.tolist()
            count, share = columns["num_gpu"], columns["gpu_milli"] / 1000.0
            beyond = (count > 1) & (share < 1)
            first = [source.at(lines[at], "gpu_milli") for at in np.flatnonzero(beyond)[:3]]
            repairs.note_many("share of a GPU ignored for a pod of several GPUs", first, int(beyond.sum()))
            gpus = np.where((count == 1) & (share > 0), np.minimum(share, 1.0), count)
            rows.extend(
                lines,
                job_id=columns["name"].tolist(),
                vc=columns["qos"].tolist() if "qos" in columns else [""] * len(lines),
                submit_s=columns["creation_time"].tolist(),
                start_s=columns["scheduled_time"].tolist(),
                end_s=columns["deletion_time"].tolist(),
                gpus=gpus.tolist(),
                state=columns["pod_phase"].tolist(),
            )
        complaints.finish()
        return job_trace(
            self, source, repairs, rows, cpu_jobs=self.cpu_jobs, clock="seconds from an unstated instant"
        )
