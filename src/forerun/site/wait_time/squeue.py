"""A snapshot of a Slurm queue, as `squeue` prints it, on top of a log of what came before.

    squeue -a -r -o "%i|%u|%P|%D|%b|%l|%T|%V|%S|%M"

The columns are known by their headers, so more of them and another order do no harm. Jobs that neither run nor wait
(completing, suspended) hold their nodes like running ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np

from forerun.cluster.readers.sacct import time_limit_s
from forerun.core.errors import Problem, TraceError
from forerun.core.regular import read_regular, unreadable
from forerun.core.trace.repair import shown
from forerun.core.trace.rows import TEXT, parse_instant
from forerun.site.history import History, Names, Unit

#: the command whose output is read
COMMAND: Final = 'squeue -a -r -o "%i|%u|%P|%D|%b|%l|%T|%V|%S|%M"'
#: our name of each column, by its header in squeue
HEADERS: Final[Mapping[str, str]] = {
    "JOBID": "job_id",
    "USER": "user",
    "PARTITION": "partition",
    "NODES": "nodes",
    "TIME_LIMIT": "requested_s",
    "STATE": "state",
    "SUBMIT_TIME": "submit_s",
    "START_TIME": "start_s",
    "TIME": "elapsed_s",
}
#: GPUs of each node, where jobs share nodes
_TRES: Final = "TRES_PER_NODE"
_GPUS: Final = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::[A-Za-z][^:,=()]*)?(?:[:=]([0-9]{1,6}))?(?=[(,]|$)")
_MOST_BYTES: Final = 256 * 1024 * 1024
_MOST_PROBLEMS: Final = 20


@dataclass(frozen=True, slots=True)
class Entry:
    """A job in the queue. Times in seconds since 1970, UTC.

    Parameters
    ----------
    job_id, user, partition : as printed.
    nodes, gpus : that it holds or asks for; no GPUs: none, or not known.
    requested_s : its time limit; nan: none.
    submit_s, start_s : instants; start nan: it waits.
    elapsed_s : how long it has run.
    """

    job_id: str
    user: str
    partition: str
    nodes: int
    gpus: int
    requested_s: float
    submit_s: float
    start_s: float
    elapsed_s: float


def is_snapshot(path: Path) -> bool:
    """Whether a file is the output of `squeue` with the columns above."""
    try:
        with path.open("rb") as file:
            first = file.readline(4096)
    except OSError:
        return False
    names = first.decode("utf-8", "replace").strip().split("|")
    return "JOBID" in names and len(names) > 1


def read_snapshot(path: Path, place: ZoneInfo) -> tuple[Entry, ...]:
    """The jobs in a snapshot.

    Parameters
    ----------
    path : the file.
    place : whose clock its times are on.

    Raises TraceError with up to twenty problems.
    """
    try:
        text = read_regular(path, most_bytes=_MOST_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise TraceError.at(path, unreadable(error)) from None
    lines = [line.strip() for line in text.splitlines()]
    header = lines[0].split("|") if lines else []
    missing = [name for name in HEADERS if name not in header]
    if missing:
        raise TraceError.at(f"{path}:1", f"misses the column {', '.join(missing)}; print it with {COMMAND}")
    entries: list[Entry] = []
    problems: list[Problem] = []
    for number, line in enumerate(lines[1:], 2):
        if not line:
            continue
        cells = line.split("|")
        where = f"{path}:{number}"
        if len(cells) != len(header):
            problems.append(Problem(where, f"has {len(cells)} columns, the header {len(header)}"))
        else:
            try:
                entries.append(
                    _entry({HEADERS.get(name, name): cell for name, cell in zip(header, cells)}, place)
                )
            except ValueError as error:
                problems.append(Problem(where, str(error)))
    if problems:
        raise TraceError(*problems[:_MOST_PROBLEMS])
    if not entries:
        raise TraceError.at(path, "no job is in the queue")
    return tuple(entries)


def _entry(cells: Mapping[str, str], place: ZoneInfo) -> Entry:
    """One line. Raises ValueError that says what is wrong."""
    nodes = cells["nodes"]
    if not (nodes.isdecimal() and 0 < len(nodes) < 10 and int(nodes) > 0):
        raise ValueError(f"NODES: {shown(nodes)} is no number of nodes")
    waits = cells["state"] in ("PENDING", "PD", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")
    start_s = np.nan if waits else _instant_s("START_TIME", cells["start_s"], place)
    submit_s = _instant_s("SUBMIT_TIME", cells["submit_s"], place)
    try:
        requested_s = time_limit_s(cells["requested_s"])
        elapsed_s = 0.0 if waits else np.nan_to_num(time_limit_s(cells["elapsed_s"]))
    except ValueError as error:
        raise ValueError(f"TIME_LIMIT or TIME: {error}") from None
    if start_s < submit_s:  # of a requeued job squeue shows the last submission
        submit_s = start_s
    return Entry(
        cells["job_id"],
        cells["user"],
        cells["partition"],
        int(nodes),
        int(nodes) * sum(int(found[1] or 1) for found in _GPUS.finditer(cells.get(_TRES, ""))),
        requested_s,
        submit_s,
        start_s,
        float(elapsed_s),
    )


def _instant_s(header: str, text: str, place: ZoneInfo) -> float:
    try:
        local_s = parse_instant(text) / 1e9
    except ValueError as error:
        raise ValueError(f"{header}: {error}") from None
    return _utc_s(local_s, place)


def _utc_s(local_s: float, place: ZoneInfo) -> float:
    offset = (datetime(1970, 1, 1) + timedelta(seconds=local_s)).replace(tzinfo=place).utcoffset()
    return local_s - (offset.total_seconds() if offset is not None else 0.0)


def taken_at_s(entries: tuple[Entry, ...]) -> float:
    """When a snapshot was taken, in seconds since 1970: the last submission, or the last a running job says of its time."""
    return max(
        max(one.submit_s, one.start_s + one.elapsed_s if one.start_s == one.start_s else 0.0)
        for one in entries
    )


def with_snapshot(log: History | None, entries: tuple[Entry, ...], at_s: float, source: str) -> History:
    """The history as of a snapshot: jobs of the log that had ended by then, and those of the snapshot.

    What became of jobs that run or wait at the end of the log and are not in the snapshot is not known; they are left out.
    Where GPUs count, so are those of the snapshot without any.

    Parameters
    ----------
    log : of what came before, or None.
    entries : the snapshot.
    at_s : when it was taken, in seconds since 1970.
    source : its name.

    Raises TraceError for a snapshot without GPUs on top of a log that counts them.
    """
    unit: Unit = log.unit if log is not None else "GPUs" if any(one.gpus for one in entries) else "nodes"
    if unit == "GPUs" and not (entries := tuple(one for one in entries if one.gpus)):
        raise TraceError.at(source, f"has no GPUs of jobs, which the log counts; print it with {COMMAND}")
    origin_s = log.origin_s if log is not None else min(one.submit_s for one in entries)
    none = Names.of([""] * len(entries))
    submit_s = np.array([one.submit_s for one in entries]) - origin_s
    now = History(
        job_id=np.array([one.job_id for one in entries], TEXT),
        submit_s=submit_s,
        eligible_s=submit_s.copy(),
        start_s=np.array([one.start_s for one in entries]) - origin_s,
        end_s=np.full(len(entries), np.nan),
        gpus=np.array([one.nodes if unit == "nodes" else one.gpus for one in entries], np.int64),
        nodes=np.array([one.nodes for one in entries], np.int64),
        exclusive=np.zeros(len(entries), np.bool_),
        requested_s=np.array([one.requested_s for one in entries]),
        user=Names.of([one.user for one in entries]),
        account=none,
        partition=Names.of([one.partition for one in entries]),
        qos=none,
        state=none,
        gpu_type=none,
        on_nodes=none,
        array=none,
        origin_s=origin_s,
        clock="UTC",
        selection="submit",
        complete_from_s=at_s - origin_s,
        complete_until_s=at_s - origin_s,
        whole=True,
        unit=unit,
        source=source,
    )
    if log is None:
        return now.of(np.argsort(now.submit_s, kind="stable"))
    past = log.as_of(at_s - origin_s)
    past = past.of(np.isfinite(past.end_s) & ~np.isin(past.job_id, now.job_id))
    return replace(past, complete_until_s=at_s - origin_s, whole=True, source=source).beside(now)
