"""Jobs of a training cluster with models, deadlines and iterations: the ElasticFlow traces and their kin."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from forerun.errors import TraceError
from forerun.trace.jobs import NEEDED, SPELLINGS, spelt
from forerun.trace.reader import Head, TraceReader, refuse_duplicates
from forerun.trace.repair import RepairLog
from forerun.trace.rows import LARGEST_INT, TEXT, Chunk, Field, gathered, read_rows
from forerun.trace.source import Source
from forerun.trace.table import Trace
from forerun.units import whole_number

#: the deadline of a row that has none: no instant is so late
NO_DEADLINE: Final = LARGEST_INT
#: the rule of a deadline that nobody can meet
UNMEETABLE: Final = "deadline before submission (cannot be met)"

#: texts that a row may leave empty
_TEXTS: Final = frozenset(("model", "user", "vc"))

#: our name, kind, unit, meaning; what an empty cell stands for, where it may be empty
_COLUMNS: Final = (
    ("job_id", "text", "", "identifier", None),
    ("submit_s", "int", "s", "submission, seconds since the collection began", None),
    ("iterations", "int", "", "steps of the global batch; 0: not given", 0),
    ("model", "text", "", "model trained; empty: none", ""),
    ("deadline_s", "int", "s", "absolute deadline as written, nan: none; not meant where best_effort is 1", NO_DEADLINE),
    ("batch", "int", "", "global batch; 0: not given", 0),
    ("gpus", "int", "GPUs", "GPUs requested", None),
    ("duration_s", "int", "s", "duration on the requested GPUs", None),
    ("best_effort", "int", "", "1: no deadline", None),
    ("user", "text", "", "who submitted it", ""),
    ("vc", "text", "", "virtual cluster", ""),
    ("real_duration_s", "int", "s", "duration in the original log; 0: not given", 0),
    ("real_iterations", "int", "", "iterations in the original log; 0: not given", 0),
)  # fmt: skip


class ClusterJobs(TraceReader, tag="cluster_jobs", frozen=True, kw_only=True):
    """CSV in one of four headers: native (`submit_time,iteration,...`), Microsoft's (`submission_time,num_iteration,
    ...`), that of a Philly virtual cluster (with `real_*` columns), or the raw one (id, submission, duration, GPUs); each
    column under any of the names that it has in one of them, or ours.

    Whole seconds; deadlines absolute. Needed are id, submission, GPUs and duration; cells for the deadline, the model, its
    iterations and batch, user and virtual cluster may be empty. A deadline before the submission is kept and counted:
    nobody can meet it. Jobs of zero seconds are dropped and counted. MIT and Apache-2.0 [Gu et al., ASPLOS'23].
    """

    about: ClassVar[str] = "cluster jobs with models and deadlines (CSV, four headers)"
    makes: ClassVar[str] = "jobs"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return all(set(SPELLINGS[name]) & set(head.names) for name in NEEDED)

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source = Source(path, repairs=repairs)
        fields, rows = job_rows(source)
        columns: dict[str, Any] = dict(rows.columns)
        if "deadline_s" in columns and (none := columns["deadline_s"] == NO_DEADLINE).any():
            columns["deadline_s"] = np.where(none, np.nan, columns["deadline_s"])
        for name in _TEXTS & columns.keys():
            columns[name] = np.array([text or None for text in columns[name].tolist()], TEXT)
        return self.table(source, repairs, fields, Chunk(rows.lines, columns), time="submit_s")


def job_rows(source: Source) -> tuple[list[Field], Chunk]:
    """The columns that a job log has, under our names, and its rows in the order of the file.

    What a readable job log is, for every command. An empty deadline is NO_DEADLINE, empty numbers that a job without a
    model does not need are 0. Raises TraceError with every problem of the file.
    """
    fields = _fields_of(source)
    rows = gathered(read_rows(source, fields))
    names = [job_name(text) for text in rows.columns["job_id"].tolist()]
    refuse_duplicates(names, rows.lines.tolist(), source, "job_id")
    columns: dict[str, Any] = {
        name: np.array([text or "" for text in values.tolist()], TEXT) if name in _TEXTS else values
        for name, values in rows.columns.items()
    }
    headers = {field.name: field.header for field in fields}
    if "deadline_s" in columns:
        effort = columns.get("best_effort", np.zeros(len(rows), np.int64)) == 1
        hopeless = (columns["deadline_s"] < columns["submit_s"]) & ~effort
        _note(source, rows.lines[hopeless], headers["deadline_s"], UNMEETABLE)
    empty = columns["duration_s"] == 0
    _note(source, rows.lines[empty], headers["duration_s"], "job of zero seconds dropped")
    if empty.all():
        raise TraceError.at(source.name, "no usable job is left; all take zero seconds")
    return fields, Chunk(rows.lines[~empty], {name: values[~empty] for name, values in columns.items()})


def job_name(text: str) -> int | str:
    """An identifier made of digits as a number."""
    number = whole_number(text, 4096)
    return text if number is None else number


def _note(source: Source, lines: NDArray[np.int64], header: str, rule: str) -> None:
    source.repairs.note_many(rule, [source.at(int(line), header) for line in lines[:3]], len(lines))


def _fields_of(source: Source) -> list[Field]:
    """The columns of this file, under our names."""
    line = next(Source(source.path, repairs=RepairLog(), name=source.name).lines())[1]
    present = [name.strip().strip('"') for name in line.split(",")]
    try:
        found = spelt(present)
    except ValueError as error:
        raise TraceError.at(source.at(1), str(error)) from None
    return [
        _field(name, kind, unit, meaning, found[name], blank)
        for name, kind, unit, meaning, blank in _COLUMNS
        if name in found
    ]


def _field(name: str, kind: str, unit: str, meaning: str, header: str, blank: Any) -> Field:
    if kind == "text":
        return Field(
            name=name, kind="text", meaning=meaning, column=header, missing=() if blank is None else (blank,)
        )
    least = 1 if name in ("gpus", "batch", "iterations") else None if name == "deadline_s" else 0
    most = 1 if name == "best_effort" else None
    return Field(
        name=name, kind="int", unit=unit, meaning=meaning, column=header, minimum=least, maximum=most, blank=blank,
    )  # fmt: skip
