"""Jobs of a training cluster with models, deadlines and iterations: the ElasticFlow traces and their kin."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from forerun.errors import TraceError
from forerun.trace.jobs import NEEDED, SPELLINGS, spelt
from forerun.trace.reader import Head, TraceReader, refuse_duplicates
from forerun.trace.repair import RepairLog
from forerun.trace.rows import Chunk, Field, gathered, read_rows
from forerun.trace.source import Source
from forerun.trace.table import Trace

#: our name, kind, unit, meaning
_COLUMNS: Final = (
    ("job_id", "text", "", "identifier"),
    ("submit_s", "int", "s", "submission, seconds since the collection began"),
    ("iterations", "int", "", "steps of the global batch"),
    ("model", "text", "", "model trained"),
    ("deadline_s", "int", "s", "absolute deadline as written; none where best_effort is 1"),
    ("batch", "int", "", "global batch"),
    ("gpus", "int", "GPUs", "GPUs requested"),
    ("duration_s", "int", "s", "duration on the requested GPUs"),
    ("best_effort", "int", "", "1: no deadline"),
    ("user", "text", "", "who submitted it"),
    ("vc", "text", "", "virtual cluster"),
    ("real_duration_s", "int", "s", "duration in the original log"),
    ("real_iterations", "int", "", "iterations in the original log"),
)
#: a model trains iterations of a batch
_ALL_OR_NONE: Final = ("iterations", "model", "batch")


class ClusterJobs(TraceReader, tag="cluster_jobs", frozen=True, kw_only=True):
    """CSV in one of four headers: native (`submit_time,iteration,...`), Microsoft's (`submission_time,num_iteration,
    ...`), that of a Philly virtual cluster (with `real_*` columns), or the raw one (id, submission, duration, GPUs); each
    column under any of the names that it has in one of them, or ours.

    Whole seconds; deadlines absolute. A deadline before the submission is kept and counted: nobody can meet it.
    MIT and Apache-2.0 [Gu et al., ASPLOS'23].
    """

    about: ClassVar[str] = "cluster jobs with models and deadlines (CSV, four headers)"
    makes: ClassVar[str] = "jobs"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return all(set(SPELLINGS[name]) & set(head.names) for name in NEEDED)

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source = Source(path, repairs=repairs)
        fields = _fields_of(source)
        rows = gathered(read_rows(source, fields))
        refuse_duplicates(rows.columns["job_id"].tolist(), rows.lines.tolist(), source, "job_id")
        rows = self._with_deadlines(source, rows, repairs)
        return self.table(source, repairs, fields, rows, time="submit_s")

    def _with_deadlines(self, source: Source, rows: Chunk, repairs: RepairLog) -> Chunk:
        columns: dict[str, Any] = dict(rows.columns)
        if "deadline_s" in columns:
            effort = columns.get("best_effort", np.zeros(len(rows), np.int64)) == 1
            hopeless = (columns["deadline_s"] < columns["submit_s"]) & ~effort
            first = [source.at(int(line), "ddl") for line in rows.lines[hopeless][:3]]
            repairs.note_many("deadline before submission kept; it cannot be met", first, int(hopeless.sum()))
        empty = columns["duration_s"] == 0
        first = [source.at(int(line), "duration") for line in rows.lines[empty][:3]]
        repairs.note_many("job of zero seconds dropped", first, int(empty.sum()))
        if empty.all():
            raise TraceError.at(source.name, "no usable job is left")
        return Chunk(rows.lines[~empty], {name: values[~empty] for name, values in columns.items()})


def _fields_of(source: Source) -> list[Field]:
    """The columns of this file, under our names."""
    line = next(Source(source.path, repairs=RepairLog()).lines())[1]
    present = [name.strip().strip('"') for name in line.split(",")]
    try:
        found = spelt(present)
    except ValueError as error:
        raise TraceError.at(source.at(1), str(error)) from None
    lacking = [" or ".join(SPELLINGS[name]) for name in _ALL_OR_NONE if name not in found]
    if 0 < len(lacking) < len(_ALL_OR_NONE):
        raise TraceError.at(source.at(1), f"misses the columns {'; '.join(lacking)}")
    return [
        _field(name, kind, unit, meaning, found[name])
        for name, kind, unit, meaning in _COLUMNS
        if name in found
    ]


def _field(name: str, kind: str, unit: str, meaning: str, header: str) -> Field:
    if kind == "text":
        return Field(name=name, kind="text", meaning=meaning, column=header)
    least = 1 if name in ("gpus", "batch", "iterations") else None if name == "deadline_s" else 0
    most = 1 if name == "best_effort" else None
    return Field(
        name=name, kind="int", unit=unit, meaning=meaning, column=header, minimum=least, maximum=most
    )
