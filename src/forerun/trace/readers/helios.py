"""The Helios traces of SenseTime's GPU clusters."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final

from forerun.trace.jobs import ABSENT, JobRows, instants_s, job_trace
from forerun.trace.reader import Head, TraceReader
from forerun.trace.repair import Complaints, RepairLog
from forerun.trace.rows import Field, read_rows
from forerun.trace.source import Source
from forerun.trace.table import Trace

_READ: Final = (
    Field(name="job_id", kind="text"),
    Field(name="user", kind="text", missing=ABSENT),
    Field(name="vc", kind="text", missing=ABSENT),
    Field(name="gpu_num", minimum=0, missing=ABSENT),
    Field(name="cpu_num", minimum=0, missing=ABSENT, required=False),
    Field(name="node_num", minimum=0, missing=ABSENT, required=False),
    Field(name="state", kind="text", missing=ABSENT),
    Field(name="submit_time", kind="text", missing=ABSENT),
    Field(name="start_time", kind="text", missing=ABSENT),
    Field(name="end_time", kind="text", missing=ABSENT),
    Field(name="duration", missing=ABSENT, required=False),
    Field(name="queue", missing=ABSENT, required=False),
)


class Helios(TraceReader, tag="helios", frozen=True, kw_only=True):
    """CSV `cluster_log.csv` with `job_id,user,vc,gpu_num,...,submit_time,start_time,end_time,duration,queue`.

    Local times without zone (the place keeps no daylight-saving time). About half of the jobs use no GPU; they are
    dropped and counted unless cpu_jobs. Read in a stream: 3.4 million rows. CC-BY 4.0 [Hu et al., SC'21].
    """

    cpu_jobs: bool = False

    about: ClassVar[str] = "Helios cluster_log.csv (Slurm jobs of SenseTime clusters, 2020)"
    makes: ClassVar[str] = "jobs"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return head.has_columns("job_id", "vc", "gpu_num", "submit_time", "start_time", "end_time")

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source, complaints, rows = Source(path, repairs=repairs), Complaints(), JobRows()
        for chunk in read_rows(source, _READ, complaints=complaints):
            columns, lines = chunk.columns, chunk.lines
            if not self.cpu_jobs:
                idle = columns["gpu_num"] == 0
                first = [source.at(int(line)) for line in lines[idle][:3]]
                repairs.note_many("job without GPUs dropped", first, int(idle.sum()))
                columns = {name: values[~idle] for name, values in columns.items()}
                lines = lines[~idle]
            at: list[int] = lines.tolist()
            times = {
                name: instants_s(columns[name].tolist(), source, at, name, complaints).tolist()
                for name in ("submit_time", "start_time", "end_time")
            }
            rows.extend(
                at,
                job_id=columns["job_id"].tolist(),
                user=columns["user"].tolist(),
                vc=columns["vc"].tolist(),
                submit_s=times["submit_time"],
                start_s=times["start_time"],
                end_s=times["end_time"],
                duration_s=columns["duration"].tolist()
                if "duration" in columns
                else [float("nan")] * len(at),
                gpus=columns["gpu_num"].tolist(),
                state=columns["state"].tolist(),
            )
        complaints.finish()
        return job_trace(self, source, repairs, rows, cpu_jobs=self.cpu_jobs, clock="local, no zone")
