"""The Standard Workload Format of the Parallel Workloads Archive."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.cluster.traces.job_logs import Gathered, JobReader, JobRows
from forerun.core.errors import Problem, UsageError, known_names
from forerun.core.trace.reader import Head
from forerun.core.trace.repair import RepairLog, shown
from forerun.core.trace.source import Source

_COLUMNS: Final = 18
#: columns whose place the `columns` option can change, counted from 1, and where the standard has them
STANDARD: Final[Mapping[str, int]] = {
    "gpus": 5,
    "requested_gpus": 8,
    "requested_s": 9,
    "user": 12,
    "account": 13,
    "qos": 15,
    "vc": 16,
}
#: a line of the header, such as `; MaxProcs: 128`
_HEADER: Final = re.compile(r";\s*([A-Za-z]+):([^\n]{0,400})")
#: seconds since 1970 at which a log may start
_EPOCH: Final = re.compile(r"[0-9]{9,10}")
_STATES: Final = {0: "FAILED", 1: "COMPLETED", 2: "PARTIAL", 3: "PARTIAL", 4: "PARTIAL", 5: "CANCELLED"}


class Swf(JobReader, tag="swf", frozen=True, kw_only=True):
    """Text of 18 whitespace-separated numbers a job, comments after `;`, -1 for what is not known.

    Times count from `UnixStartTime`, if the header has it. Processors are taken as GPUs: those allocated, else those
    requested. A job that waited -1 seconds has no start.
    columns: where a log deviates from the standard, such as `requested_s=6`; others are `gpus` (5 by the standard),
    `requested_gpus` (8), `user` (12), `account` (13, the group), `qos` (15, the queue) and `vc` (16, the partition).
    [Chapin et al., JSSPP'99]
    """

    columns: tuple[str, ...] = ()

    about = "Standard Workload Format (18 columns, ; comments)"
    clock = "seconds from the log's start"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        data = [line.split() for line in head.lines if line.strip() and not line.lstrip().startswith(";")]
        if not data:
            return bool(head.lines) and head.lines[0].lstrip().startswith(";")
        return all(len(row) == _COLUMNS and _numeric(row) for row in data)

    def gather(self, path: Path, repairs: RepairLog) -> Gathered:
        source, rows, places = Source(path, repairs=repairs), JobRows(), _places(self.columns)
        header: dict[str, str] = {}

        def job(line: str) -> dict[str, Any] | None:
            if not rows.lines and (said := _HEADER.match(line)):
                header.setdefault(said[1], said[2].strip())
            text = line.split(";", 1)[0].split()
            return _job(text, places) if text else None

        for number, run in source.parsed(job):
            rows.add(number, **run)
        columns = rows.columns()
        del columns["nodes"]  # processors are not nodes, of which the format knows none
        start = header.get("UnixStartTime", "")
        if _EPOCH.fullmatch(start):
            for name in ("submit_s", "start_s", "end_s"):
                columns[name] = columns[name] + float(start)
        sizes = [
            f"{key} {header[key]}" for key in ("MaxNodes", "MaxProcs") if header.get(key, "").isdecimal()
        ]
        stated = (f"the log's header says {' and '.join(sizes)}",) if sizes else ()
        return Gathered(source, rows.lines, columns, stated)


def _places(columns: tuple[str, ...]) -> dict[str, int]:
    """The column of each name, from 0. Raises UsageError for a name or number that is none."""
    places, problems = dict(STANDARD), []
    for text in columns:
        name, _, number = text.partition("=")
        if name not in STANDARD:
            problems.append(Problem(f"columns: {text}", known_names(name, STANDARD)))
        elif not (number.isascii() and number.isdigit() and 1 <= int(number[:4]) <= _COLUMNS):
            problems.append(
                Problem(f"columns: {text}", f"a column from 1 to {_COLUMNS} is expected, as {name}=6")
            )
        else:
            places[name] = int(number)
    if problems:
        raise UsageError(*problems)
    return {name: number - 1 for name, number in places.items()}


def _job(text: list[str], places: Mapping[str, int]) -> dict[str, Any]:
    """The run of a line; ValueError says what is wrong."""
    if len(text) != _COLUMNS:
        raise ValueError(f"has {len(text)} numbers; a job has {_COLUMNS}")
    values = [_number(cell) for cell in text]
    submit_s, wait_s, ran_s = (value if value >= 0 else np.nan for value in values[1:4])
    gpus, requested, requested_s = (
        values[places[name]] if values[places[name]] >= 0 else np.nan
        for name in ("gpus", "requested_gpus", "requested_s")
    )
    return {
        "job_id": text[0],
        **{name: _known(text[places[name]]) for name in ("user", "vc", "account", "qos")},
        "submit_s": submit_s,
        "start_s": submit_s + wait_s,
        "end_s": submit_s + wait_s + ran_s,
        "duration_s": ran_s,
        "gpus": gpus if gpus > 0 else requested,
        "requested_s": requested_s if requested_s > 0 else np.nan,
        "state": _STATES.get(int(values[10]), ""),
    }


def _known(text: str) -> str:
    return "" if text == "-1" else text


def _numeric(row: list[str]) -> bool:
    try:
        return all(np.isfinite(_number(cell)) for cell in row)
    except ValueError:
        return False


def _number(cell: str) -> float:
    digits = cell.lstrip("+-").replace(".", "", 1)
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{shown(cell)} is not a number")
    if len(cell) > 18:
        raise ValueError(f"{shown(cell)} is too long a number")
    return float(cell)
