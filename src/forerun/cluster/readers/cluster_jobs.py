"""Jobs of a training cluster with models, deadlines and iterations: the ElasticFlow traces and their kin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from forerun.core.errors import TraceError, known_names
from forerun.core.trace.reader import Head
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.rows import LARGEST_INT, Chunk, Field
from forerun.core.trace.source import Source
from forerun.core.trace.tabular import Rows, TableReader
from forerun.core.units import whole_number

#: the deadline of a row that has none: no instant is so late
NO_DEADLINE: Final = LARGEST_INT
#: a time that a row leaves empty
NOT_GIVEN: Final = LARGEST_INT
#: the rule of a deadline that nobody can meet
UNMEETABLE: Final = "deadline before submission (cannot be met)"

#: columns that mean nothing where they are empty
_BLANKS: Final = ("requested_s", "eligible_s")

COLUMNS: Final = (
    Field(name="job_id", kind="text", meaning="identifier"),
    Field(name="submit_s", kind="int", unit="s", minimum=0, meaning="submission, seconds since the collection began"),
    Field(name="iterations", kind="int", minimum=1, blank=0, meaning="steps of the global batch; 0: not given"),
    Field(name="model", kind="text", missing=("",), meaning="model trained; empty: none"),
    Field(name="deadline_s", kind="int", unit="s", blank=NO_DEADLINE,
          meaning="absolute deadline as written, nan: none; not meant where best_effort is 1"),
    Field(name="batch", kind="int", minimum=1, blank=0, meaning="global batch; 0: not given"),
    Field(name="gpus", kind="int", unit="GPUs", minimum=1, meaning="GPUs requested"),
    Field(name="duration_s", kind="int", unit="s", minimum=0, meaning="duration on the requested GPUs"),
    Field(name="best_effort", kind="int", minimum=0, maximum=1, meaning="1: no deadline"),
    Field(name="user", kind="text", missing=("",), meaning="who submitted it"),
    Field(name="vc", kind="text", missing=("",), meaning="virtual cluster"),
    Field(name="requested_s", kind="int", unit="s", minimum=1, blank=NOT_GIVEN,
          meaning="time limit that the job asked for; nan: none, or unlimited"),
    Field(name="eligible_s", kind="int", unit="s", minimum=0, blank=NOT_GIVEN,
          meaning="when it could start at the earliest; nan: not recorded"),
    Field(name="account", kind="text", missing=("",), meaning="account or group that it is charged to"),
    Field(name="qos", kind="text", missing=("",), meaning="quality of service"),
    Field(name="reservation", kind="text", missing=("",), meaning="reservation that it asked for"),
    Field(name="priority", missing=("",), meaning="priority, larger goes first; nan: not recorded"),
    Field(name="nice", missing=("",), meaning="what its user takes off its priority; nan: not recorded"),
    Field(name="site_factor", missing=("",), meaning="what its site adds to its priority; nan: not recorded"),
    Field(name="real_duration_s", kind="int", unit="s", minimum=0, blank=0,
          meaning="duration in the original log; 0: not given"),
    Field(name="real_iterations", kind="int", minimum=0, blank=0, meaning="iterations in the original log; 0: not given"),
)  # fmt: skip
#: accepted names of each column, forerun's own first; `real_*` are the values before a log was adapted
SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "job_id": ("job_id",),
    "submit_s": ("submit_s", "submit_time", "submission_time"),
    "iterations": ("iterations", "iteration", "num_iteration", "num_iterations"),
    "model": ("model", "model_name"),
    "deadline_s": ("deadline_s", "ddl", "deadline"),
    "batch": ("batch", "batch_size"),
    "gpus": ("gpus", "num_gpu", "num_gpus"),
    "duration_s": ("duration_s", "duration"),
    "best_effort": ("best_effort",),
    "user": ("user",),
    "vc": ("vc", "partition"),
    "requested_s": ("requested_s", "requested_time"),
    "eligible_s": ("eligible_s",),
    "account": ("account",),
    "qos": ("qos",),
    "reservation": ("reservation",),
    "priority": ("priority",),
    "nice": ("nice",),
    "site_factor": ("site_factor",),
    "real_duration_s": ("real_duration",),
    "real_iterations": ("real_iteration",),
}
#: without these a job log says nothing
NEEDED: Final = ("job_id", "submit_s", "gpus", "duration_s")


class ClusterJobs(TableReader, tag="cluster_jobs", frozen=True, kw_only=True):
    """CSV in one of four headers: native (`submit_time,iteration,...`), Microsoft's (`submission_time,num_iteration,
    ...`), that of a Philly virtual cluster (with `real_*` columns), or the raw one (id, submission, duration, GPUs); each
    column under any of the names that it has in one of them, or ours.

    Whole seconds; deadlines absolute. Needed are id, submission, GPUs and duration; cells for the deadline, the model, its
    iterations and batch, the requested time, user and virtual cluster may be empty. A deadline before the submission is kept
    and counted: nobody can meet it. Jobs of zero seconds are dropped and counted. MIT and Apache-2.0 [Gu et al., ASPLOS'23].
    """

    about = "cluster jobs with models and deadlines (CSV, four headers)"
    makes = "jobs"
    time = "submit_s"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return all(set(SPELLINGS[name]) & set(head.names) for name in NEEDED)

    def fields_of(self, source: Source) -> Sequence[Field]:
        return _fields_of(source)

    def settle(self, rows: Rows) -> None:
        _settle(rows)
        if "deadline_s" in rows and (none := rows["deadline_s"] == NO_DEADLINE).any():
            rows["deadline_s"] = np.where(none, np.nan, rows["deadline_s"])
        for name in _BLANKS:
            if name in rows and (none := rows[name] == NOT_GIVEN).any():
                rows[name] = np.where(none, np.nan, rows[name])


def job_rows(source: Source) -> tuple[Sequence[Field], Chunk]:
    """The columns that a job log has, under our names, and its rows in the order of the file.

    What a readable job log is, for every command. An empty deadline is NO_DEADLINE, empty numbers that a job without a
    model does not need are 0, empty texts are empty. Raises TraceError with every problem of the file.
    """
    fields = _fields_of(source)
    rows = Rows.read(source, fields)
    _settle(rows)
    return fields, Chunk(rows.lines, rows.columns)


def job_name(text: str) -> int | str:
    """An identifier made of digits as a number."""
    number = whole_number(text, 4096)
    return text if number is None else number


def _settle(rows: Rows) -> None:
    """Reject an identifier that occurs twice, count deadlines that cannot be met, drop jobs of zero seconds."""
    rows.refuse_duplicates("job_id", [job_name(text) for text in rows["job_id"].tolist()])
    if "deadline_s" in rows:
        effort = rows["best_effort"] == 1 if "best_effort" in rows else np.zeros(len(rows), np.bool_)
        rows.note((rows["deadline_s"] < rows["submit_s"]) & ~effort, UNMEETABLE, rows.headers["deadline_s"])
    rows.drop(rows["duration_s"] == 0, "job of zero seconds dropped", rows.headers["duration_s"])
    if not len(rows):
        raise TraceError.at(rows.source.name, "no usable job is left; all take zero seconds")


def _fields_of(source: Source) -> Sequence[Field]:
    """The columns of this file, under our names. Raises TraceError where it has one twice, or lacks one."""
    header = next(Source(source.path, repairs=RepairLog(), name=source.name).lines())[1]
    present = [name.strip().strip('"') for name in header.split(",")]
    fields: list[Field] = []
    for field in COLUMNS:
        matches = [name for name in present if name in SPELLINGS[field.name]]
        if len(matches) > 1:
            raise TraceError.at(source.at(1), f"has both {' and '.join(matches)}; one of them is expected")
        fields += [replace(field, column=name) for name in matches]
    lacking = [name for name in NEEDED if not set(SPELLINGS[name]) & set(present)]
    if lacking:
        missing = "; ".join(" or ".join(SPELLINGS[name]) for name in lacking)
        many = "s" * (len(lacking) > 1)
        what = f"misses the column{many} {missing}; {known_names(lacking[0], present)}"
        raise TraceError.at(source.at(1), what)
    return fields
