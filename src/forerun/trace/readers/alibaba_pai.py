"""Alibaba PAI, July and August 2020: jobs and their tasks, in tables without headers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

import numpy as np

from forerun.errors import TraceError
from forerun.trace.jobs import ABSENT, JobRows, job_trace
from forerun.trace.reader import Head, TraceReader
from forerun.trace.repair import Complaints, RepairLog
from forerun.trace.rows import Field, read_rows
from forerun.trace.source import Source
from forerun.trace.table import Trace

_JOB: Final = (
    Field(name="job_name", kind="text"),
    Field(name="inst_id", kind="text", missing=ABSENT),
    Field(name="user", kind="text", missing=ABSENT),
    Field(name="status", kind="text", missing=ABSENT),
    Field(name="start_time", missing=ABSENT),
    Field(name="end_time", missing=ABSENT),
)
_TASK: Final = (
    Field(name="job_name", kind="text"),
    Field(name="task_name", kind="text", missing=ABSENT),
    Field(name="inst_num", minimum=0, missing=ABSENT),
    Field(name="status", kind="text", missing=ABSENT),
    Field(name="start_time", missing=ABSENT),
    Field(name="end_time", missing=ABSENT),
    Field(name="plan_cpu", minimum=0, missing=ABSENT),
    Field(name="plan_mem", minimum=0, missing=ABSENT),
    Field(name="plan_gpu", minimum=0, missing=ABSENT),
    Field(name="gpu_type", kind="text", missing=ABSENT),
)
_JOB_TABLE: Final = "pai_job_table.csv"
_TASK_TABLE: Final = "pai_task_table.csv"


@dataclass(slots=True)
class _Tasks:
    """What the tasks of a job add up to."""

    gpus: float = 0.0
    start_s: float = np.inf
    end_s: float = -np.inf
    seen: set[str] = field(default_factory=set)


class AlibabaPai(TraceReader, tag="alibaba_pai", frozen=True, kw_only=True):
    """A directory with `pai_job_table.csv` and `pai_task_table.csv`, with or without headers.

    A job's GPUs are the sum over its tasks of instances x `plan_gpu` (per cent of a GPU, so fractions occur and are
    kept); it starts with its first task. Seconds count from an unstated instant. CC-BY 4.0 [Weng et al., NSDI'22].
    """

    about: ClassVar[str] = "Alibaba PAI GPU cluster 2020 (directory of CSV tables)"
    makes: ClassVar[str] = "jobs"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return head.directory and head.name.startswith(("pai", "cluster-trace-gpu-v2020"))

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        if not path.is_dir():
            raise TraceError.at(str(path), f"a directory with {_JOB_TABLE} and {_TASK_TABLE} is expected")
        complaints = Complaints()
        tasks = self._tasks(_table(path, _TASK_TABLE, repairs), repairs, complaints)
        source = _table(path, _JOB_TABLE, repairs)
        rows = JobRows()
        for chunk in read_rows(source, _JOB, complaints=complaints, header=_has_header(source)):
            columns = chunk.columns
            for at, line in enumerate(chunk.lines.tolist()):
                name = columns["job_name"][at]
                part = tasks.get(name)
                if part is None:
                    repairs.note("job without tasks dropped", source.at(line))
                    continue
                submit_s, end_s = float(columns["start_time"][at]), float(columns["end_time"][at])
                rows.add(
                    line,
                    job_id=name,
                    user=columns["user"][at],
                    submit_s=submit_s,
                    start_s=part.start_s if np.isfinite(part.start_s) else submit_s,
                    end_s=end_s,
                    gpus=part.gpus,
                    state=columns["status"][at],
                )
        complaints.finish()
        return job_trace(self, source, repairs, rows, clock="seconds from an unstated instant")

    def _tasks(self, source: Source, repairs: RepairLog, complaints: Complaints) -> dict[str, _Tasks]:
        jobs: dict[str, _Tasks] = {}
        for chunk in read_rows(source, _TASK, complaints=complaints, header=_has_header(source)):
            columns = chunk.columns
            for at, line in enumerate(chunk.lines.tolist()):
                job = jobs.setdefault(columns["job_name"][at], _Tasks())
                name = columns["task_name"][at] or ""
                if name in job.seen:
                    repairs.note("task listed twice, later one dropped", source.at(line))
                    continue
                job.seen.add(name)
                instances, share = float(columns["inst_num"][at]), float(columns["plan_gpu"][at])
                if np.isnan(instances):
                    repairs.note("task without a number of instances counted as one", source.at(line))
                    instances = 1.0
                job.gpus += instances * (0.0 if np.isnan(share) else share / 100.0)
                job.start_s = float(np.fmin(job.start_s, columns["start_time"][at]))
                job.end_s = float(np.fmax(job.end_s, columns["end_time"][at]))
        return jobs


def _table(folder: Path, name: str, repairs: RepairLog) -> Source:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.exists():
            return Source(candidate, repairs=repairs)
    raise TraceError.at(str(folder), f"holds no {name}")


def _has_header(source: Source) -> bool:
    """Whether the first line names columns; the published tables come without."""
    first = next(Source(source.path, repairs=RepairLog()).lines())[1]
    return first.split(",")[0].strip() == "job_name"
