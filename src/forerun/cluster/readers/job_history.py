"""The history of a queue as a plain table: jobs with submission, start, end, nodes and requested time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from forerun.cluster.traces.job_logs import ABSENT, Gathered, JobReader
from forerun.core.errors import Problem, TraceError, UsageError, known_names
from forerun.core.trace.reader import Head
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.rows import Field, fit, spelled
from forerun.core.trace.source import Source
from forerun.core.trace.tabular import Rows

_NONE: Final = ("", "-1", "nan")


def _number(name: str, *spellings: str, required: bool = True, maximum: float = 1e12) -> Field:
    return Field(name=name, spellings=spellings, required=required, missing=_NONE, minimum=0, maximum=maximum)


def _text(name: str, column: str = "", *spellings: str, missing: tuple[str, ...] = ABSENT) -> Field:
    return Field(name=name, kind="text", column=column, spellings=spellings, required=False, missing=missing)


#: forerun's own names first
COLUMNS: Final = (
    Field(name="job_id", kind="text", spellings=("id",)),
    _number("submit_s"),
    _number("eligible_s", required=False),
    _number("start_s"),
    _number("end_s"),
    _number("nodes", required=False, maximum=1e9),
    _number("gpus", "cpus", "processors", required=False, maximum=1e9),
    _text("gpu_type"),
    Field(name="exclusive", required=False, missing=_NONE, minimum=0, maximum=1),
    _number("requested_s", required=False),
    _text("user", missing=(*ABSENT, "0")),
    _text("account"),
    _text("vc", "partition", "queue"),
    _text("qos"),
    _text("state"),
)


#: what jobs hold, of which a log has one or both
_HELD: Final = tuple(field for field in COLUMNS if field.name in ("nodes", "gpus"))


class JobHistory(JobReader, tag="job_history", frozen=True, kw_only=True):
    """CSV with a header, `#` before comments: `id,submit_s,start_s,end_s,nodes`, and, if known, `requested_s`,
    `eligible_s`, `user`, `account`, `partition` (or `queue`), `qos`, `state`, `gpus`, `gpu_type`, `exclusive` (1: it takes
    its nodes whole).

    Times are seconds since 1970, UTC. -1 or an empty cell is a time that is not known: the job has not started, or has not
    ended. What jobs hold is counted whole: in `nodes`, or in `gpus` (or `cpus`, `processors`); with both, on so many nodes.
    A user 0 is not known.
    columns: ours under another header, such as `nodes=hosts`.
    """

    columns: tuple[str, ...] = ()

    about = "history of a queue (CSV with id,submit_s,start_s,end_s,nodes)"
    clock = "UTC"
    same_id = "suffix"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        rows = [line for line in head.lines if not line.startswith("#")]
        names = [cell.strip() for cell in rows[0].split(",")] if rows else []
        return fit(COLUMNS, names) and any(fit([replace(one, required=True)], names) for one in _HELD)

    def gather(self, path: Path, repairs: RepairLog) -> Gathered:
        source = Source(path, repairs=repairs)
        rows = Rows.read(source, spelled(source, _renamed(self.columns), "#"), comment="#")
        columns = rows.columns
        if not columns.keys() & {one.name for one in _HELD}:
            raise TraceError.at(source.name, "misses the column nodes or gpus")
        if whole := "gpus" not in columns:
            columns["gpus"] = columns.pop("nodes")  # they are all that is counted
        return Gathered(source, rows.lines, columns, whole=whole)


def _renamed(options: tuple[str, ...]) -> list[Field]:
    """The columns, those under the headers of `options` that it names. Raises UsageError for an option that names none."""
    fields, problems = {field.name: field for field in COLUMNS}, []
    for text in options:
        name, _, header = text.partition("=")
        ours = "vc" if name == "partition" else name
        if not header or ours not in fields:
            problems.append(Problem(f"columns: {text}", known_names(name, fields)))
        else:
            fields[ours] = replace(fields[ours], column=header, spellings=())
    if problems:
        raise UsageError(*problems)
    return list(fields.values())
