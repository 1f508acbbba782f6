"""Alibaba PAI, July and August 2020: jobs and their tasks, in tables without headers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from forerun.cluster.traces.job_logs import ABSENT, JobReader
from forerun.core.errors import TraceError
from forerun.core.trace.reader import Head
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.rows import Field, header_of
from forerun.core.trace.source import Source
from forerun.core.trace.table import Trace
from forerun.core.trace.tabular import Rows

_JOB: Final = (
    Field(name="job_id", column="job_name", kind="text"),
    Field(name="inst_id", kind="text", missing=ABSENT),
    Field(name="user", kind="text", missing=ABSENT),
    Field(name="state", column="status", kind="text", missing=ABSENT),
    Field(name="submit_s", column="start_time", missing=ABSENT),
    Field(name="end_s", column="end_time", missing=ABSENT),
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
        tasks = _rows(path, _TASK_TABLE, _TASK, repairs)
        names = list(zip(tasks["job_name"].tolist(), tasks["task_name"].tolist()))
        first = dict(zip(reversed(names), reversed(range(len(names)))))
        again = np.array([first[name] != row for row, name in enumerate(names)], np.bool_)
        tasks.drop(again, "task listed twice, later one dropped")
        uncounted = np.isnan(tasks["inst_num"])
        tasks.note(uncounted, "task without a number of instances counted as one")
        gpus = np.where(uncounted, 1.0, tasks["inst_num"]) * np.nan_to_num(tasks["plan_gpu"] / 100.0)
        number: dict[str, int] = {}
        job = [number.setdefault(name, len(number)) for name in tasks["job_name"].tolist()]
        start_s = np.full(len(number), np.nan)
        np.fmin.at(start_s, job, tasks["start_time"])
        rows = _rows(path, _JOB_TABLE, _JOB, repairs)
        rows["job"] = np.array([number.get(name, -1) for name in rows["job_id"].tolist()], np.int64)
        rows.drop(rows["job"] < 0, "job without tasks dropped")
        rows["gpus"] = np.bincount(job, gpus, len(number))[rows["job"]]
        started_s = start_s[rows["job"]]
        rows["start_s"] = np.where(np.isnan(started_s), rows["submit_s"], started_s)
        return self.cleaned(rows.source, rows.lines, rows.columns)


def _rows(folder: Path, name: str, fields: Sequence[Field], repairs: RepairLog) -> Rows:
    """The rows of a table; the published ones come without a header.

    Parameters
    ----------
    folder : of all tables.
    name : of the file, which may be compressed as `NAME.gz`.
    fields : its columns, in order; a first line that begins with the first of their names is a header.
    repairs : where repairs are counted.

    Raises TraceError if the file is absent.
    """
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            source = Source(path, repairs=repairs)
            header = header_of(source)[1][0] == fields[0].header
            return Rows.read(source, fields, header=header)
    raise TraceError.at(str(folder), f"contains no {name}")
