"""The history of a queue as a plain table: jobs with submission, start, end, nodes and requested time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.cluster.traces.job_logs import ABSENT, Gathered, JobReader
from forerun.core.errors import Problem, TraceError, UsageError, known_names
from forerun.core.trace.reader import Head
from forerun.core.trace.repair import Complaints, RepairLog
from forerun.core.trace.rows import Array, Field, read_rows
from forerun.core.trace.source import Source

_NONE: Final = ("", "-1", "nan")
#: accepted names of each column, forerun's own first
SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "job_id": ("job_id", "id"),
    "submit_s": ("submit_s",),
    "eligible_s": ("eligible_s",),
    "start_s": ("start_s",),
    "end_s": ("end_s",),
    "nodes": ("nodes", "cpus", "processors", "gpus"),
    "requested_s": ("requested_s",),
    "user": ("user",),
    "account": ("account",),
    "vc": ("partition", "queue"),
    "qos": ("qos",),
    "state": ("state",),
}
_NEEDED: Final = ("job_id", "submit_s", "start_s", "end_s", "nodes")


class JobHistory(JobReader, tag="job_history", frozen=True, kw_only=True):
    """CSV with a header, `#` before comments: `id,submit_s,start_s,end_s,nodes`, and, if known, `requested_s`,
    `eligible_s`, `user`, `account`, `partition` (or `queue`), `qos`, `state`.

    Times are seconds since 1970, UTC. -1 or an empty cell is a time that is not known: the job has not started, or has not
    ended. `nodes` may be named `cpus`, `processors` or `gpus`: what jobs hold, counted whole. A user 0 is not known.
    columns: ours under another header, such as `nodes=hosts`.
    """

    columns: tuple[str, ...] = ()

    about = "history of a queue (CSV with id,submit_s,start_s,end_s,nodes)"
    clock = "UTC"
    same_id = "suffix"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        rows = [line for line in head.lines if not line.startswith("#")]
        names = {cell.strip() for cell in rows[0].split(",")} if rows else set()
        return all(set(SPELLINGS[name]) & names for name in _NEEDED)

    def gather(self, path: Path, repairs: RepairLog) -> Gathered:
        source, complaints = Source(path, repairs=repairs), Complaints()
        fields = _fields(Source(path, repairs=RepairLog()), self.columns)
        parts: dict[str, list[Array]] = {}
        lines: list[Array] = []
        for chunk in read_rows(source, fields, complaints=complaints, comment="#"):
            lines.append(chunk.lines)
            for name, values in chunk.columns.items():
                parts.setdefault(name, []).append(values)
        columns: dict[str, Any] = {name: np.concatenate(values) for name, values in parts.items()}
        columns["gpus"] = columns["nodes"]
        return Gathered(source, np.concatenate(lines), columns)


def _fields(source: Source, options: tuple[str, ...]) -> list[Field]:
    """The columns that the file has. Raises UsageError for an option that names none, TraceError for a header without."""
    spellings, problems = dict(SPELLINGS), []
    for text in options:
        name, equals, header = text.partition("=")
        ours = "vc" if name == "partition" else name
        if not equals or ours not in SPELLINGS:
            problems.append(Problem(f"columns: {text}", known_names(name, SPELLINGS)))
        else:
            spellings[ours] = (header,)
    if problems:
        raise UsageError(*problems)
    number, header = next(
        ((at, line) for at, line in source.lines() if line.strip() and not line.startswith("#")), (1, "")
    )
    present = [cell.strip().strip('"') for cell in header.split(",")]
    fields = []
    for name, known in spellings.items():
        matches = [cell for cell in known if cell in present]
        if len(matches) > 1:
            raise TraceError.at(
                source.at(number), f"has both {' and '.join(matches)}; one of them is expected"
            )
        if not matches and name in _NEEDED:
            what = f"misses the column {' or '.join(known)}; {known_names(known[0], present)}"
            raise TraceError.at(source.at(number), what)
        fields += [replace(_FIELD[name], column=cell) for cell in matches]
    return fields


_FIELD: Final = {
    "job_id": Field(name="job_id", kind="text"),
    "nodes": Field(name="nodes", kind="float", missing=_NONE, minimum=0, maximum=1e9),
    "user": Field(name="user", kind="text", missing=(*ABSENT, "0")),
    **{name: Field(name=name, kind="text", missing=ABSENT) for name in ("account", "vc", "qos", "state")},
    **{
        name: Field(name=name, kind="float", missing=_NONE, minimum=0, maximum=1e12)
        for name in ("submit_s", "eligible_s", "start_s", "end_s", "requested_s")
    },
}
