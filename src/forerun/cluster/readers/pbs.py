"""The accounting log of PBS Professional, OpenPBS and Torque."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.cluster.readers.sacct import time_limit_s
from forerun.cluster.traces.job_logs import Gathered, JobReader, JobRows
from forerun.core.trace.reader import Head
from forerun.core.trace.repair import RepairLog, shown
from forerun.core.trace.source import Source

_LINE: Final = re.compile(r"([0-9]{2}/[0-9]{2}/[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2});([A-Za-z]+);([^;]*);(.*)")
_VALUE: Final = re.compile(r'([A-Za-z_][\w.]*)=("[^"]*"|\S*)')
_COUNT: Final = re.compile(r"[0-9]{1,12}")
_NUMBERS: Final = (
    *("ctime", "qtime", "etime", "start", "end"),
    *("Resource_List.ngpus", "Resource_List.nodect"),
)
#: records that stand for the end of a run, and for the end of a job
_ENDS: Final = ("E", "R")
_GONE: Final = ("D", "A")
#: clocks of sites differ from UTC by multiples of it
_ZONE_S: Final = 900


class Pbs(JobReader, tag="pbs", frozen=True, kw_only=True):
    """Lines `MM/DD/YYYY HH:MM:SS;TYPE;JOB;key=value ...`, a record each, as in `server_priv/accounting`: files of several
    days one after the other.

    Instants of jobs are seconds since 1970. Read are the records of jobs that are queued (Q), start (S), end (E), run again
    (R), and are deleted or aborted (D, A). A job that was run again is one job for each of its runs; one that was deleted
    while it waited has what its record Q says. GPUs are `ngpus` of the request, or `gpus` of Torque's nodes.
    """

    cpu_jobs: bool = False

    about = "PBS or Torque accounting log (server_priv/accounting)"
    clock = "UTC"
    same_id = "suffix"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        lines = [line for line in head.lines if line.strip()]
        return bool(lines) and all(_LINE.match(line) for line in lines)

    def gather(self, path: Path, repairs: RepairLog) -> Gathered:
        source, rows = Source(path, repairs=repairs), JobRows()
        # of jobs that have not ended: the line and the values of their last record
        queued, started = dict[str, tuple[int, dict[str, str]]](), dict[str, tuple[int, dict[str, str]]]()
        deleted, ahead_s, last_s = set[str](), 0.0, -np.inf

        def waited(job: str) -> tuple[int, dict[str, str]]:
            """A job that has not started; its record Q says when it came by the clock of the site."""
            line, values = queued.pop(job)
            came = f"{float(values['came']) - ahead_s:.0f}"
            return line, {"qtime": came, "etime": came, **values}

        for line, (stamp_s, kind, job, values) in source.parsed(_record):
            if mark := values.get({"S": "start", "E": "end"}.get(kind, "")):
                ahead_s = _ZONE_S * round((stamp_s - float(mark)) / _ZONE_S)
            now_s = stamp_s - ahead_s
            last_s = max(last_s, now_s)
            if "[]" in job:  # an array, whose jobs have records of their own
                continue
            if kind == "Q":
                queued[job] = line, {"came": f"{stamp_s:.0f}", **values}
            elif kind == "S":
                queued.pop(job, None)
                started[job] = line, values
            elif kind in _ENDS:
                values = started.pop(job, (0, {}))[1] | {"end": f"{now_s:.0f}"} | values
                queued.pop(job, None)
                gone = job in deleted or "start" not in values
                state = "REQUEUED" if kind == "R" else "CANCELLED" if gone else ""
                rows.add(line, **_run(job, values, state))
            else:
                deleted.add(job)
                if job in queued:
                    _, values = waited(job)
                    rows.add(line, **_run(job, values | {"end": f"{now_s:.0f}"}, "CANCELLED"))
        for job, (line, values) in started.items():
            run = _run(job, values, "RUNNING")
            so_far_s = max(last_s - run["start_s"], 1.0) if self.unfinished else np.nan
            rows.add(line, **run, duration_s=so_far_s)
        for job in list(queued):
            line, values = waited(job)
            rows.add(line, **_run(job, values, "PENDING"))
        return Gathered(source, rows.lines, rows.columns())


def _record(line: str) -> tuple[float, str, str, dict[str, str]] | None:
    """When a record was written, its type, its job, and its values; nothing: it is of another type."""
    match = _LINE.fullmatch(line.rstrip())
    if match is None:
        raise ValueError(f"{shown(line)} is not a record: time;type;job;values")
    if match[2] not in ("Q", "S", *_ENDS, *_GONE):
        return None
    try:
        stamp = datetime.strptime(match[1] + " +0000", "%m/%d/%Y %H:%M:%S %z")
    except ValueError:
        raise ValueError(f"{match[1]} is not on the calendar") from None
    values = {name: value.strip('"') for name, value in _VALUE.findall(match[4])}
    for name in _NUMBERS:
        if not _COUNT.fullmatch(values.get(name) or "0"):
            raise ValueError(f"{name}: {shown(values[name])} is not a number")
    _walltime_s(values)
    return stamp.timestamp(), match[2], match[3], values


def _run(job: str, values: Mapping[str, str], state: str) -> dict[str, Any]:
    """A run of a job. state: empty: as its exit status says."""
    names = list(
        dict.fromkeys(part.partition("/")[0] for part in values.get("exec_host", "").split("+") if part)
    )
    project = values.get("project", "")
    exits = values.get("Exit_status", "0")
    return {
        "job_id": job.partition(".")[0],
        "user": values.get("user", ""),
        "vc": values.get("queue", ""),
        "account": values.get("account")
        or ("" if project.startswith("_pbs_") else project)
        or values.get("group", ""),
        "submit_s": _instant(values, "ctime" if "ctime" in values else "qtime"),
        "eligible_s": _instant(values, "etime"),
        "start_s": _instant(values, "start"),
        "end_s": _instant(values, "end"),
        "requested_s": _walltime_s(values),
        "gpus": _gpus(values),
        "nodes": float(len(names)) if names else _number(values, "Resource_List.nodect"),
        "node_list": ",".join(names),
        "exclusive": 1.0 if "excl" in values.get("Resource_List.place", "") else np.nan,
        "state": state or ("COMPLETED" if exits == "0" else "FAILED"),
    }


def _gpus(values: Mapping[str, str]) -> float:
    """GPUs that a job asks for; nan where its record has no request."""
    if "Resource_List.ngpus" in values:
        return _number(values, "Resource_List.ngpus")
    if not any(name.startswith("Resource_List.") for name in values):
        return float("nan")
    total = 0
    chunks = values.get("Resource_List.select") or values.get("Resource_List.nodes", "")
    for chunk in chunks.split("+"):
        first, *parts = chunk.split(":")
        each = [part.partition("=")[2] for part in parts if part.startswith(("ngpus=", "gpus="))]
        count = int(first) if _COUNT.fullmatch(first) else 1
        total += count * sum(int(one) for one in each if _COUNT.fullmatch(one))
    return float(total)


def _walltime_s(values: Mapping[str, str]) -> float:
    """The time that a job asks for: `hh:mm:ss`, or seconds; nan: none."""
    text = values.get("Resource_List.walltime", "")
    if not text:
        return float("nan")
    return float(text) if _COUNT.fullmatch(text) else time_limit_s(text)


def _instant(values: Mapping[str, str], name: str) -> float:
    return _number(values, name) or float("nan")


def _number(values: Mapping[str, str], name: str) -> float:
    return float(values[name]) if values.get(name) else float("nan")
