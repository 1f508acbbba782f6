"""Alibaba PAI, July and August 2020: jobs and their tasks, in tables without headers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.errors import TraceError
from forerun.trace.jobs import ABSENT, JobReader, JobRows
from forerun.trace.reader import Head
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
    seen: set[str] = field(default_factory=set)


class AlibabaPai(JobReader, tag="alibaba_pai", frozen=True, kw_only=True):
    """A directory with `pai_job_table.csv` and `pai_task_table.csv`, with or without headers.

    A job's GPUs are the sum over its tasks of instances x `plan_gpu` (per cent of a GPU, so fractions occur and are
    kept); it starts with its first task. Seconds count from an unstated instant. CC-BY 4.0 [Weng et al., NSDI'22].
    """

    about = "Alibaba PAI GPU cluster 2020 (directory of CSV tables)"
    clock = "seconds from an unstated instant"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return head.directory and head.name.startswith(("pai", "cluster-trace-gpu-v2020"))

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        if not path.is_dir():
            raise TraceError.at(str(path), f"a directory with {_JOB_TABLE} and {_TASK_TABLE} is expected")
        complaints, rows = Complaints(), JobRows()
        tasks = _tasks(_table(path, _TASK_TABLE, repairs), complaints)
        source = _table(path, _JOB_TABLE, repairs)
        for line, job in _rows(source, _JOB, complaints):
            part = tasks.get(job["job_name"])
            if part is None:
                repairs.note("job without tasks dropped", source.at(line))
                continue
            rows.add(
                line,
                job_id=job["job_name"],
                user=job["user"],
                submit_s=job["start_time"],
                start_s=part.start_s if np.isfinite(part.start_s) else job["start_time"],
                end_s=job["end_time"],
                gpus=part.gpus,
                state=job["status"],
            )
        complaints.finish()
        return self.cleaned(source, rows.lines, rows.columns())


def _rows(
    source: Source, fields: Sequence[Field], complaints: Complaints
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and values of each row of a table; the published tables come without a header."""
    first = next(Source(source.path, repairs=RepairLog()).lines())[1]
    header = first.split(",")[0].strip() == fields[0].name
    for chunk in read_rows(source, fields, complaints=complaints, header=header):
        columns = (values.tolist() for values in chunk.columns.values())
        for line, *values in zip(chunk.lines.tolist(), *columns, strict=True):
            yield line, dict(zip(chunk.columns, values, strict=True))


def _tasks(source: Source, complaints: Complaints) -> dict[str, _Tasks]:
    """What the tasks of each job add up to, by its name."""
    jobs: dict[str, _Tasks] = {}
    for line, task in _rows(source, _TASK, complaints):
        job = jobs.setdefault(task["job_name"], _Tasks())
        name = task["task_name"] or ""
        if name in job.seen:
            source.repairs.note("task listed twice, later one dropped", source.at(line))
            continue
        job.seen.add(name)
        instances, share = task["inst_num"], task["plan_gpu"]
        if np.isnan(instances):
            source.repairs.note("task without a number of instances counted as one", source.at(line))
            instances = 1.0
        job.gpus += instances * (0.0 if np.isnan(share) else share / 100.0)
        job.start_s = float(np.fmin(job.start_s, task["start_time"]))
    return jobs


def _table(folder: Path, name: str, repairs: RepairLog) -> Source:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.exists():
            return Source(candidate, repairs=repairs)
    raise TraceError.at(str(folder), f"contains no {name}")
