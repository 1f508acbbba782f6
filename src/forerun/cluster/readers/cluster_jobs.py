"""Jobs of a training cluster with models, deadlines and iterations: the ElasticFlow traces and their kin."""

from __future__ import annotations

from typing import Final

import numpy as np

from forerun.core.errors import TraceError
from forerun.core.trace.reader import Head
from forerun.core.trace.rows import LARGEST_INT, Field, fit, spelled
from forerun.core.trace.source import Source
from forerun.core.trace.tabular import Rows, TableReader
from forerun.core.units import whole_number

#: the deadline of a row that has none: no instant is so late
NO_DEADLINE: Final = LARGEST_INT
#: a time that a row leaves empty
NOT_GIVEN: Final = NO_DEADLINE
#: the rule of a deadline that nobody can meet
UNMEETABLE: Final = "deadline before submission (cannot be met)"

#: columns that mean nothing where they are empty
_BLANKS: Final = ("deadline_s", "requested_s", "eligible_s")

#: forerun's own names first; `real_*` are the values before a log was adapted
COLUMNS: Final = (
    Field(name="job_id", kind="text", meaning="identifier"),
    Field(name="submit_s", kind="int", unit="s", minimum=0, spellings=("submit_time", "submission_time"),
          meaning="submission, seconds since the collection began"),
    Field(name="iterations", kind="int", minimum=1, blank=0, required=False,
          spellings=("iteration", "num_iteration", "num_iterations"),
          meaning="steps of the global batch; 0: not given"),
    Field(name="model", kind="text", missing=("",), required=False, spellings=("model_name",),
          meaning="model trained; empty: none"),
    Field(name="deadline_s", kind="int", unit="s", blank=NO_DEADLINE, required=False, spellings=("ddl", "deadline"),
          meaning="absolute deadline as written, nan: none; not meant where best_effort is 1"),
    Field(name="batch", kind="int", minimum=1, blank=0, required=False, spellings=("batch_size",),
          meaning="global batch; 0: not given"),
    Field(name="gpus", kind="int", unit="GPUs", minimum=1, spellings=("num_gpu", "num_gpus"), meaning="GPUs requested"),
    Field(name="duration_s", kind="int", unit="s", minimum=0, spellings=("duration",),
          meaning="duration on the requested GPUs"),
    Field(name="best_effort", kind="int", minimum=0, maximum=1, required=False, meaning="1: no deadline"),
    Field(name="user", kind="text", missing=("",), required=False, meaning="who submitted it"),
    Field(name="vc", kind="text", missing=("",), required=False, spellings=("partition",), meaning="virtual cluster"),
    Field(name="requested_s", kind="int", unit="s", minimum=1, blank=NOT_GIVEN, required=False,
          spellings=("requested_time",), meaning="time limit that the job asked for; nan: none, or unlimited"),
    Field(name="eligible_s", kind="int", unit="s", minimum=0, blank=NOT_GIVEN, required=False,
          meaning="when it could start at the earliest; nan: not recorded"),
    Field(name="account", kind="text", missing=("",), required=False,
          meaning="account or group that it is charged to"),
    Field(name="qos", kind="text", missing=("",), required=False, meaning="quality of service"),
    Field(name="reservation", kind="text", missing=("",), required=False, meaning="reservation that it asked for"),
    Field(name="priority", missing=("",), required=False, meaning="priority, larger goes first; nan: not recorded"),
    Field(name="nice", missing=("",), required=False,
          meaning="what its user takes off its priority; nan: not recorded"),
    Field(name="site_factor", missing=("",), required=False,
          meaning="what its site adds to its priority; nan: not recorded"),
    Field(name="nodes", kind="int", unit="nodes", minimum=0, blank=0, required=False,
          meaning="nodes that it takes, with as many GPUs on each; 0: as few as can be"),
    Field(name="gpu_type", kind="text", missing=("",), required=False, meaning="type of its GPUs; empty: any"),
    Field(name="exclusive", kind="int", minimum=0, maximum=1, blank=0, required=False,
          meaning="1: it takes its nodes whole"),
    Field(name="after", kind="text", missing=("",), required=False,
          meaning="job before it after whose end it comes, in place of submit_s; empty: none"),
    Field(name="after_delay_s", kind="int", unit="s", minimum=0, blank=0, required=False,
          meaning="how long after that end it comes"),
    Field(name="attempt", kind="int", minimum=1, blank=1, required=False,
          meaning="which run of its job it is: from 2 on, it does again what the run before it lost"),
    Field(name="real_duration_s", column="real_duration", kind="int", unit="s", minimum=0, blank=0, required=False,
          meaning="duration in the original log; 0: not given"),
    Field(name="real_iterations", column="real_iteration", kind="int", minimum=0, blank=0, required=False,
          meaning="iterations in the original log; 0: not given"),
)  # fmt: skip


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
    columns = COLUMNS
    time = "submit_s"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return fit(COLUMNS, head.names)

    def settle(self, rows: Rows) -> None:
        _settle(rows)
        for name in _BLANKS:
            if name in rows and (none := rows[name] == NOT_GIVEN).any():
                rows[name] = np.where(none, np.nan, rows[name])


def job_rows(source: Source) -> Rows:
    """The rows of a job log in the order of the file, its columns under our names.

    What a readable job log is, for every command. An empty deadline is NO_DEADLINE, empty numbers that a job without a
    model does not need are 0, empty texts are empty. Raises TraceError with every problem of the file.
    """
    rows = Rows.read(source, spelled(source, COLUMNS))
    _settle(rows)
    return rows


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
