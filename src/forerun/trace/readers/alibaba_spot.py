"""Alibaba's jobs on guaranteed and spot GPUs, published in 2026."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final

from forerun.trace.jobs import ABSENT, JobRows, job_trace
from forerun.trace.reader import Head, TraceReader
from forerun.trace.repair import Complaints, RepairLog
from forerun.trace.rows import Field, read_rows
from forerun.trace.source import Source
from forerun.trace.table import Trace

_READ: Final = (
    Field(name="job_name", kind="text"),
    Field(name="organization", kind="text", missing=ABSENT),
    Field(name="gpu_model", kind="text", missing=ABSENT),
    Field(name="cpu_request", minimum=0, missing=ABSENT, required=False),
    Field(name="gpu_request", minimum=0, missing=ABSENT),
    Field(name="worker_num", minimum=0, missing=ABSENT),
    Field(name="submit_time", minimum=0, missing=ABSENT),
    Field(name="duration", missing=ABSENT),
    Field(name="job_type", kind="text", missing=ABSENT),
)


class AlibabaSpot(TraceReader, tag="alibaba_spot", frozen=True, kw_only=True):
    """CSV `job_info_df.csv`: GPUs a worker times workers, submission in seconds from the first, HP or Spot jobs.

    gpu_model: keep the jobs of one GPU type, all if empty (others are counted). CC-BY 4.0 [Duan et al., ASPLOS'26].
    """

    gpu_model: str = ""

    about: ClassVar[str] = "Alibaba guaranteed and spot GPU jobs 2026 (job_info_df CSV)"
    makes: ClassVar[str] = "jobs"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return head.has_columns("job_name", "organization", "gpu_request", "worker_num", "job_type")

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source, complaints, rows = Source(path, repairs=repairs), Complaints(), JobRows()
        for chunk in read_rows(source, _READ, complaints=complaints):
            columns, lines = chunk.columns, chunk.lines
            if self.gpu_model:
                other = columns["gpu_model"] != self.gpu_model
                first = [source.at(int(line)) for line in lines[other][:3]]
                repairs.note_many("job of another GPU type dropped", first, int(other.sum()))
                columns = {name: values[~other] for name, values in columns.items()}
                lines = lines[~other]
            rows.extend(
                lines.tolist(),
                job_id=columns["job_name"].tolist(),
                vc=columns["organization"].tolist(),
                submit_s=columns["submit_time"].tolist(),
                duration_s=columns["duration"].tolist(),
                gpus=(columns["gpu_request"] * columns["worker_num"]).tolist(),
                state=columns["job_type"].tolist(),
            )
        complaints.finish()
        return job_trace(self, source, repairs, rows, clock="seconds from the first submission")
