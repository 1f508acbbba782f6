"""Slurm's accounting, as `sacct` prints it: parsable text or JSON."""

from __future__ import annotations

import csv
import functools
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.cluster.readers.local_clock import LocalClock
from forerun.cluster.traces.job_logs import ABSENT, RUNNING, Gathered, JobReader, JobRows
from forerun.core.errors import TraceError
from forerun.core.trace.documents import JsonDocument
from forerun.core.trace.objects import json_number, optional_text
from forerun.core.trace.reader import Head
from forerun.core.trace.repair import Complaints, RepairLog, shown
from forerun.core.trace.rows import Field, parse_instant
from forerun.core.trace.source import Source
from forerun.core.trace.table import Trace

#: the command whose output this reader wants; its last column may hold anything, so `|` in job names is harmless, and UTC
#: has no hour that a change of daylight saving time repeats or leaves out
SACCT_COMMAND: Final = (
    "TZ=UTC sacct --parsable2 -a -D -X --format=JobID,User,Partition,Submit,Start,End,State,ElapsedRaw,AllocTRES,ReqTRES,"
    "Timelimit,Account,QOS,Eligible,NNodes,NodeList,Reason,Priority,Reservation,JobName"
)
_NEEDED: Final = ("JobID", "Submit", "State")
#: where GPUs stand
_TRES_COLUMNS: Final = ("AllocTRES", "ReqTRES")
_PLAIN_TRES: Final = re.compile(
    r"(?:^|,)(cpu|mem|node|billing)=([0-9]{1,12}(?:\.[0-9]{1,6})?)([KMGTP]?)(?=,|$)"
)
#: of memory, which counts MiB where it has none
_UNITS: Final = {unit: 1024.0**power for power, unit in enumerate("KMGTP", 1)}
_TRES: Final = re.compile(r"(?:^|,)gres/([^:=,]+)(?::([^=,]+))?=([0-9]+)(?=,|$)")
#: a slice of a GPU among the types of GPUs, such as `nvidia_a100_1g.5gb`
_MIG: Final = re.compile(r"(?<![0-9A-Za-z])[0-9]g\.[0-9]+gb")
#: counts beyond all clusters: digits without end fit neither an int64 nor a float
_LONG: Final = re.compile(r"(?:^|,)gres/[^=,]+=([0-9]{10,})(?=,|$)")
#: parts of GPUs that are no type of GPU
_PARTS: Final = ("shard", "mps")
_SLICES: Final = "slices of GPUs (MIG) counted as whole GPUs"
_WHOLE: Final = "job with more GPUs than it asked for taken to have its nodes whole"
_ONLY_PARTS: Final = (
    "job with shares of a GPU only (shard, mps) dropped: how many make a GPU is not in the log"
)
_ONLY_GRES: Final = (
    "job with GPUs in ReqGRES or AllocGRES only dropped: GPUs are read from AllocTRES and ReqTRES, which have them where "
    "Slurm has AccountingStorageTRES=gres/gpu"
)
#: rows that are no run of a job, by their identifier
_NOT_A_RUN: Final = (
    (re.compile(r"[^.]+\.(?:batch|extern|interactive|TBD|[0-9]+)(?:\+[0-9]+)?"), "job step dropped"),
)
#: tasks of an array that never started, and how many of its tasks may run at once
_ARRAY: Final = re.compile(r"([0-9]+)_\[([0-9,:-]*)(?:\.{3})?(?:%([0-9]{1,9}))?\]?.*")
_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?(?::([1-9][0-9]{0,8}))?")
_PENDING_RANGE: Final = "array range that never started dropped"
#: the scheduler looks at an array first so long after its submission, at most
_FIRST_LOOK_S: Final = 3.0
#: tasks of a range of an array that wait at the log's end; that more do changes nothing
_MOST_TASKS: Final = 1000
#: reasons for which a job is not in the queue
_NOT_IN_QUEUE: Final = ("JobHeld", "Dependency", "BeginTime")
#: columns whose cells may hold anything, `|` included
_FREE: Final = ("JobName", "Comment", "AdminComment", "SystemComment", "SubmitLine", "WorkDir", "Extra")
_JOINED: Final = "bar inside a job's name or another free text, its pieces joined"
_COMPONENT: Final = re.compile(r"([0-9]+)\+[0-9]+")
#: seconds since 1970, as with SLURM_TIME_FORMAT=%s
_EPOCH: Final = re.compile(r"[0-9]{9,11}")
_PLAIN: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]")


@dataclass(frozen=True, slots=True)
class Tres:
    """What a list of resources says.

    Parameters
    ----------
    gpus : how many; 0 if there are none.
    type : of them; empty: not said, or of several.
    slices : whether parts of a GPU (MIG) are among them.
    parts : whether there are shares of a GPU, which count no whole one.
    cpus, nodes, memory_bytes, billing : nan: not said.
    """

    gpus: float
    type: str
    slices: bool
    parts: bool
    cpus: float
    nodes: float
    memory_bytes: float
    billing: float

    @classmethod
    def of(cls, listed: Sequence[tuple[str, str, float]], others: Mapping[str, float]) -> Tres:
        """From GPUs (name, type, count), the untyped total of which counts, else the sum of types; and others in MiB."""
        gpus = [(kind, count) for name, kind, count in listed if name == "gpu"]
        total = sum(count for kind, count in gpus if not kind) or sum(count for _, count in gpus)
        slices = any(count and _MIG.search(kind) for kind, count in gpus)
        types = {kind for kind, count in gpus if kind and count}
        parts = any(count and name in _PARTS for name, _, count in listed)
        cpus, nodes, mib, billing = (
            others.get(name, float("nan")) for name in ("cpu", "node", "mem", "billing")
        )
        one = types.pop() if len(types) == 1 else ""
        return cls(float(total), one, slices, parts, cpus, nodes, mib * _UNITS["M"], billing)


@functools.lru_cache(maxsize=1 << 14)
def tres_of(text: str) -> Tres:
    """What a list such as `cpu=8,mem=64G,gres/gpu=4,gres/gpu:a100=4` says."""
    others = {
        name: float(count) * (_UNITS[unit or "M"] / _UNITS["M"] if name == "mem" else 1)
        for name, count, unit in _PLAIN_TRES.findall(text)
    }
    return Tres.of([(name, kind, int(count)) for name, kind, count in _TRES.findall(text)], others)


class _Slurm(JobReader, frozen=True, kw_only=True):
    """What both outputs of `sacct` share. A requeued job (same id twice) keeps each run, one after the end of the other."""

    cpu_jobs: bool = False

    same_id = "suffix"
    recorded = True

    def shape(self, tres: Sequence[Tres], sharing: str, where: str, repairs: RepairLog) -> dict[str, Any]:
        """What a job asks for besides its GPUs: their type, nodes, whether it takes these whole, CPUs and memory.

        A type that was allocated and not asked for binds no job. Who has more GPUs than asked for has whole nodes.

        Parameters
        ----------
        tres : allocated, then asked for.
        sharing : `OverSubscribe` of the job; empty: the log does not say.
        """
        allocated, asked = tres
        more = 0 < asked.gpus < allocated.gpus
        if more and not sharing:
            repairs.note(_WHOLE, where)
        exclusive = sharing.upper() == "EXCLUSIVE" if sharing else more
        return {
            "gpu_type": asked.type if asked.gpus else allocated.type,
            "exclusive": float(exclusive) if sharing or exclusive else float("nan"),
            "asked_nodes": asked.nodes,
            "asked_gpus": asked.gpus if more else float("nan"),
            "billing": allocated.billing if np.isfinite(allocated.billing) else asked.billing,
            **{
                name: one if np.isfinite(one := getattr(asked, name)) else getattr(allocated, name)
                for name in ("cpus", "memory_bytes")
            },
        }

    def gpus(self, tres: Sequence[Tres], where: str, repairs: RepairLog, *, only_gres: bool = False) -> float:
        """The GPUs of the first list that has any; nan where the job is dropped, counted.

        Parameters
        ----------
        tres : allocated, then asked for.
        only_gres : GPUs stand in columns that are not read.
        """
        for one in tres:
            if one.gpus:
                if one.slices:
                    repairs.note(_SLICES, where)
                return one.gpus
        for rule, there in ((_ONLY_PARTS, any(one.parts for one in tres)), (_ONLY_GRES, only_gres)):
            if there and not self.cpu_jobs:
                repairs.note(rule, where)
                return float("nan")
        return 0.0


class Sacct(_Slurm, tag="sacct", frozen=True, kw_only=True):
    """Output of `sacct --parsable2`: a header line, then `|`-separated rows (or by tabs or commas); the command is
    `SACCT_COMMAND`.

    Job steps are dropped, and array ranges still pending where jobs that wait are; the components of a heterogeneous job
    (`123+0`, `123+1`) are one job, `Unknown` times count as missing, a requeued job (same id twice, with -D) keeps each run,
    `CANCELLED by uid` becomes CANCELLED. Times without a zone are those of one clock: timezone names its place, such as
    `Europe/Berlin` (default: as written, which the hours that daylight saving time repeats or leaves out make wrong).

    A run takes its elapsed time, which leaves out what it was suspended for and does not change with the clock. GPUs are
    those allocated, else those asked for; a MIG slice counts as a GPU. A time limit is a request and no deadline;
    `UNLIMITED` and `Partition_Limit`, whose seconds the log does not have, are none. Jobs without GPUs are dropped and
    counted unless cpu_jobs, those with shares of a GPU only under a rule of their own.
    """

    about = f"Slurm accounting, text: {SACCT_COMMAND}"
    clock = "as written, no zone"

    timezone: str = ""

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return bool(head.lines) and {"JobID", "Submit"} <= set(re.split(r"[|\t,\s]+", head.lines[0].strip()))

    def gather(self, path: Path, repairs: RepairLog) -> Gathered:
        source, complaints, rows = Source(path, repairs=repairs), Complaints(), JobRows()
        clock = LocalClock(self.timezone, repairs) if self.timezone else None
        if clock is not None:
            clock.place()
        names: list[str] = []
        delimiter = "|"
        free, short = -1, (0, "")
        arrays: dict[str, str] = {}
        for number, line in source.lines():
            if short[0]:
                complaints.add(source.at(short[0]), short[1])
                short = (0, "")
            if not line.strip():
                repairs.note("blank line dropped", source.at(number))
            elif not names:
                delimiter = next((mark for mark in "|\t," if mark in line), "|")
                names = _header(line, delimiter, source, number, cpu_jobs=self.cpu_jobs)
                free = _free_column(names)
            else:
                cells = next(csv.reader([line])) if delimiter == "," else line.split(delimiter)
                if free >= 0 and len(cells) > len(names):
                    after = len(names) - free - 1
                    cells[free : len(cells) - after] = [delimiter.join(cells[free : len(cells) - after])]
                    if after:  # in the last column it is harmless
                        repairs.note(_JOINED, source.at(number))
                if len(cells) == len(names):
                    row = {name: cell.strip() for name, cell in zip(names, cells, strict=True)}
                    self._add(rows, _Row(row, number, source, complaints, clock, arrays))
                else:
                    short = (number, f"has {len(cells)} fields, the header has {len(names)}")
        if short[0]:
            fewer = " (is the file cut short?)" if len(cells) < len(names) else ""
            complaints.add(source.at(short[0]), short[1] + fewer)
        complaints.finish()
        if not rows.lines and not len(repairs):
            raise TraceError.at(source.name, "contains no rows of data")
        lines, columns = _whole_jobs(np.array(rows.lines, np.int64), rows.columns(), source)
        _as_their_arrays(columns)
        if arrays:
            columns["array"] = [arrays.get(name.partition("_")[0], "") for name in columns["job_id"]]
        return Gathered(source, *_settled_arrays(lines, columns))

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        gathered = self.gather(path, repairs)
        clock = self.timezone or self.clock
        return self.cleaned(gathered.source, gathered.lines, gathered.columns, clock=clock)

    def _add(self, rows: JobRows, row: _Row) -> None:
        """Add the run of a row, unless it is to be dropped or has a fault."""
        job_id, repairs, where = row.cells["JobID"], row.source.repairs, row.source.at(row.line)
        if not job_id:
            row.complain("JobID", "is empty")
            return
        for pattern, rule in _NOT_A_RUN:
            if pattern.fullmatch(job_id):
                repairs.note(rule, where)
                return
        for name in _TRES_COLUMNS:
            if long := _LONG.search(row.text(name)):
                row.complain(name, f"a count of {len(long[1])} digits is no count of GPUs")
                return
        tasks, array, most = [job_id], "", ""
        if match := _ARRAY.fullmatch(job_id):
            array, _, most = match.groups("")
            tasks = [f"{array}_{task}" for task in _tasks(match[2])]
        if array and most:
            row.arrays[array] = f"{array}%{most}"
        if array and not self.unfinished:
            repairs.note(_PENDING_RANGE, where)
            return
        tres = [tres_of(row.text(name)) for name in _TRES_COLUMNS]
        old = "gpu" in row.text("ReqGRES") + row.text("AllocGRES")
        gpus = self.gpus(tres, where, repairs, only_gres=old)
        if np.isnan(gpus):
            return
        submit_s = row.instant("Submit")
        start_s = row.instant("Start", submit_s)
        end_s = row.instant("End", start_s)
        elapsed_s = float("nan")
        state = row.text("State").split(" by ")[0]
        if not np.isnan(end_s) or state in RUNNING:
            elapsed_s = row.number("ElapsedRaw", _elapsed_s)
            if np.isnan(elapsed_s):
                elapsed_s = row.number("Elapsed", _elapsed_s)
        eligible_s = row.instant("Eligible", submit_s)
        if "Reason" in row.cells and "Eligible" not in row.cells:
            eligible_s = submit_s
        if np.isnan(start_s) and row.text("Reason").startswith(_NOT_IN_QUEUE):
            eligible_s = float("nan")
        shape = self.shape(tres, row.text("OverSubscribe"), where, repairs)
        if np.isnan(shape["cpus"]):
            columns = (row.number(name, _count) for name in ("ReqCPUS", "NCPUS"))
            shape["cpus"] = next(filter(np.isfinite, columns), np.nan)
        for name in tasks:
            rows.add(
                row.line,
                job_id=name,
                user=row.text("User"),
                vc=row.text("Partition"),
                submit_s=submit_s,
                start_s=start_s,
                end_s=end_s,
                duration_s=elapsed_s,
                gpus=gpus,
                nodes=row.number("NNodes", _count),
                **shape,
                state=state,
                requested_s=row.number("Timelimit", time_limit_s),
                eligible_s=eligible_s,
                node_list=row.text("NodeList") if np.isfinite(start_s) else "",
                account=row.text("Account"),
                qos=row.text("QOS"),
                reservation=row.text("Reservation"),
                priority=row.number("Priority", _priority),
            )


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the text format, and where it stands.

    Parameters
    ----------
    cells : by column, stripped of blanks.
    line : its line in the file.
    source, complaints : for messages, and for what is wrong with a cell.
    clock : of the place whose times have no zone; None: as written.
    arrays : arrays of which only so many tasks may run at once, as `4%2`, by their number; those of this row are added.
    """

    cells: Mapping[str, str]
    line: int
    source: Source
    complaints: Complaints
    clock: LocalClock | None
    arrays: dict[str, str]

    def text(self, name: str) -> str:
        """A cell; empty if the log has no such column."""
        return self.cells.get(name, "")

    def number(self, name: str, parse: Callable[[str], float]) -> float:
        """A cell as a number; nan if it is absent, and after a complaint if it is none."""
        text = self.text(name)
        if text in ABSENT:
            return float("nan")
        try:
            return parse(text)
        except ValueError as error:
            self.complain(name, str(error))
            return float("nan")

    def instant(self, name: str, not_before_s: float = -np.inf) -> float:
        """A cell as seconds since 1970; nan if it is absent, and after a complaint if it is no time.

        Parameters
        ----------
        name : its column.
        not_before_s : an earlier instant of the run, which decides between two passes of an hour.
        """
        text, clock = self.text(name), self.clock
        if clock is None or not _PLAIN.fullmatch(text):
            return self.number(name, _instant_s)
        after_s = not_before_s if not_before_s > -np.inf else -np.inf
        return self.number(name, lambda cell: clock.utc_s(cell, self.source.at(self.line), after_s))

    def complain(self, name: str, what: str) -> None:
        """Say what is wrong with a cell."""
        self.complaints.add(self.source.at(self.line, name), what)


def _header(line: str, delimiter: str, source: Source, number: int, *, cpu_jobs: bool) -> list[str]:
    names = [name.strip() for name in line.split(delimiter)]
    if len(names) == 1:
        what = f"looks like sacct with padded columns, which cut what is long; print the log with: {SACCT_COMMAND}"
        raise TraceError.at(source.at(number), what)
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise TraceError.at(
            source.at(number), f"misses the columns {', '.join(missing)}; print the log with: {SACCT_COMMAND}"
        )
    if not cpu_jobs and not set(names) & set(_TRES_COLUMNS):
        raise TraceError.at(
            source.at(number),
            f"misses the columns AllocTRES and ReqTRES, in which GPUs are counted; print the log with: {SACCT_COMMAND}",
        )
    if len(set(names)) < len(names):
        raise TraceError.at(source.at(number), "names a column twice")
    return names


@functools.lru_cache(maxsize=1 << 12)
def _day_s(text: str) -> int:
    return parse_instant(f"{text} 00:00:00") // 10**9


def _instant_s(text: str) -> float:
    """A time as Slurm writes it, or seconds since 1970."""
    if _PLAIN.fullmatch(text):
        return float(_day_s(text[:10]) + int(text[11:13]) * 3600 + int(text[14:16]) * 60 + int(text[17:]))
    return float(text) if _EPOCH.fullmatch(text) else parse_instant(text) / 1e9


def _priority(text: str) -> float:
    """`Priority`."""
    if not re.fullmatch(r"[0-9]{1,10}", text):
        raise ValueError(f"{shown(text)} is not a priority")
    return float(text)


def _tasks(listed: str) -> list[str]:
    """The tasks that a list such as `3-9,12,20-30:5` names, the first thousand of them."""
    tasks: list[str] = []
    for item in listed.split(","):
        if match := _RANGE.fullmatch(item):
            first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
            tasks += map(str, range(first, min(last, first + _MOST_TASKS * step) + 1, step))
    return tasks[:_MOST_TASKS]


def _as_their_arrays(columns: Mapping[str, Any]) -> None:
    """Tasks without nodes yet take theirs whole if others of their array do, as all tasks ask for the same."""
    array = np.array([name.partition("_")[0] if "_" in name else "" for name in columns["job_id"]])
    exclusive = columns["exclusive"]
    theirs = (array != "") & np.isin(array, array[exclusive == 1.0])
    exclusive[theirs & np.isnan(exclusive)] = 1.0


def _free_column(names: Sequence[str]) -> int:
    """The only column whose cells may hold `|`; -1 if there is none, or more than one."""
    free = [at for at, name in enumerate(names) if name in _FREE]
    return free[0] if len(free) == 1 else -1


def _whole_jobs(
    lines: NDArray[np.int64], columns: dict[str, Any], source: Source
) -> tuple[NDArray[np.int64], dict[str, Any]]:
    """Heterogeneous jobs, of which a log has a row for each component, as one job each: it has all their GPUs."""
    first: dict[tuple[str, float], int] = {}
    into = np.arange(len(lines))
    for at, name in enumerate(columns["job_id"]):
        if "+" in name and (match := _COMPONENT.fullmatch(name)):
            into[at] = first.setdefault((match[1], float(columns["submit_s"][at])), at)
    joined = into != np.arange(len(lines))
    if not first:
        return lines, columns
    source.repairs.note_many(
        "component of a heterogeneous job joined with its first",
        [source.at(int(lines[at])) for at in np.flatnonzero(joined)[:3]],
        int(joined.sum()),
    )
    for name in ("gpus", "nodes", "asked_nodes", "cpus", "memory_bytes", "billing"):
        parts = columns[name]
        columns[name] = np.bincount(into, np.nan_to_num(parts), len(lines))
        columns[name][np.isnan(parts) & ~joined] = np.nan
    columns["job_id"] = [
        match[1] if "+" in name and (match := _COMPONENT.fullmatch(name)) else name
        for name in columns["job_id"]
    ]
    return _taken(lines, columns, np.flatnonzero(~joined))


def _settled_arrays(
    lines: NDArray[np.int64], columns: dict[str, Any]
) -> tuple[NDArray[np.int64], dict[str, Any]]:
    """Tasks of an array by their numbers, as Slurm starts them, whatever the order of the log.

    Slurm writes when it first looks at an array as the instant at which it is eligible: that is its submission. Where only
    so many tasks run at once, it writes when others let a task go on: such tasks are eligible together.
    """
    places: dict[str, list[int]] = {}
    task: list[int] = []
    for at, name in enumerate(columns["job_id"]):
        array, _, number = name.partition("_")
        task.append(int(number) if number.isdecimal() else -1)
        if task[-1] >= 0:
            places.setdefault(array, []).append(at)
    submit_s, eligible_s, order = columns["submit_s"], columns["eligible_s"], np.arange(len(lines))
    soon = (np.array(task) >= 0) & (np.abs(eligible_s - submit_s) <= _FIRST_LOOK_S)
    columns["eligible_s"] = np.where(soon, submit_s, eligible_s)
    limited = {name.partition("%")[0] for name in columns.get("array", ()) if name}
    for array, mine in places.items():
        if array in limited and np.isfinite(known_s := columns["eligible_s"][mine]).any():
            columns["eligible_s"][mine] = np.nanmin(known_s)
        order[mine] = sorted(mine, key=lambda at: task[at])
    return _taken(lines, columns, order)


def _taken(
    lines: NDArray[np.int64], columns: Mapping[str, Any], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], dict[str, Any]]:
    """Some rows, in an order."""
    return lines[rows], {
        name: values[rows] if isinstance(values, np.ndarray) else [values[at] for at in rows.tolist()]
        for name, values in columns.items()
    }


def _count(text: str) -> float:
    """`NNodes` and the like."""
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError(f"{shown(text)} is not a whole number")
    return float(text)


def _elapsed_s(text: str) -> float:
    """`ElapsedRaw` or `Elapsed`."""
    return float(text) if re.fullmatch(r"[0-9]{1,12}", text) else hours_minutes(text)


def hours_minutes(text: str) -> float:
    """Seconds of Slurm's `[days-]hh:mm:ss[.us]`, `mm:ss[.us]`; ValueError if it is something else."""
    match = re.fullmatch(
        r"(?:([0-9]{1,5})-)?(?:([0-9]{1,5}):)?([0-9]{1,5}):([0-9]{1,2}(?:\.[0-9]{1,6})?)", text
    )
    if match is None:
        raise ValueError(f"{shown(text)} is not a duration like 1-02:03:04")
    days, hours, minutes, seconds = match.groups()
    return timedelta(
        days=int(days or 0), hours=int(hours or 0), minutes=int(minutes), seconds=float(seconds)
    ).total_seconds()


@functools.lru_cache(maxsize=1 << 12)
def time_limit_s(text: str) -> float:
    """Seconds of a Slurm time limit: `minutes`, `mm:ss`, `hh:mm:ss`, `days-hh`, `days-hh:mm`, `days-hh:mm:ss`.

    nan for a limit without a number: unlimited, or the partition's. ValueError if it is something else.
    """
    if text.lower() in ("unlimited", "infinite", "partition_limit", "not_set", "invalid", "0"):
        return float("nan")
    match = re.fullmatch(r"(?:([0-9]{1,5})-)?([0-9]{1,9})(?::([0-9]{1,5}))?(?::([0-9]{1,2}))?", text)
    if match is None:
        raise ValueError(f"{shown(text)} is not a time limit like 1-02:03:04")
    days, *rest = match.groups()
    parts = [int(part) for part in rest if part is not None]
    if days is not None or len(parts) == 3:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    else:
        hours, (minutes, seconds) = 0, (*parts, 0)[:2]
    total_s = float(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds)
    return total_s if total_s > 0 else float("nan")


class SacctJson(_Slurm, tag="sacct_json", frozen=True, kw_only=True):
    """Output of `sacct --json` (data parser of Slurm 21.08 or later): an object with `jobs`.

    Times are seconds since 1970, 0 where unknown; numbers may be wrapped as `{set, infinite, number}`; GPUs come from
    `tres.allocated`, else `tres.requested`. The rules are those of the text format.
    """

    about = "Slurm accounting, JSON: sacct -a -D -X --json"
    clock = "UTC"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        text = "".join(head.lines)
        known = (
            '"jobs"' in text or '"meta"' in text or "slurm" in text
        ) and '"subtime"' not in text  # Batsim's
        return text.lstrip().startswith("{") and known

    def gather(self, path: Path, repairs: RepairLog) -> Gathered:
        document = JsonDocument.read(Source(path, repairs=repairs), 1 << 30)
        source, rows = document.source, JobRows()
        jobs = document.value.get("jobs") if isinstance(document.value, dict) else None
        if not isinstance(jobs, list):
            what = 'an object with a list "jobs" is expected, as sacct --json prints it'
            raise TraceError.at(source.name, what)
        numbers = itertools.count()
        document.parsed(lambda job: self._add(rows, job, next(numbers), source), jobs, "jobs", item="job")
        document.complaints.finish()
        return Gathered(source, *_settled_arrays(np.array(rows.lines, np.int64), rows.columns()))

    def _add(self, rows: JobRows, job: Any, number: int, source: Source) -> None:
        """Add a job, unless it is to be dropped. ValueError says what is wrong."""
        if not isinstance(job, dict) or not isinstance(job.get("time"), dict):
            raise ValueError("an object with job_id and time is expected")
        identifier = _wrapped(job.get("job_id"), "job_id")
        if np.isnan(identifier):
            raise ValueError("has no job_id")
        name = str(int(identifier))
        array = job.get("array")
        if isinstance(array, dict):
            parent = _wrapped(array.get("job_id"), "array.job_id")
            index = _wrapped(array.get("task_id"), "array.task_id")
            if parent > 0 and np.isfinite(index):
                name = f"{int(parent)}_{int(index)}"
        times = job["time"]
        instants = [_wrapped(times.get(key), f"time.{key}") for key in ("submission", "start", "end")]
        submit_s, start_s, end_s = (value if value > 0 else float("nan") for value in instants)
        tres = job.get("tres")
        listed = tres if isinstance(tres, dict) else {}
        asked_for = [_tres(listed.get(which)) for which in ("allocated", "requested")]
        gpus = self.gpus(asked_for, f"{source.name}: job {number}", source.repairs)
        if np.isnan(gpus):
            return
        rows.add(
            number + 1,
            **self.shape(
                asked_for, _sharing(job.get("exclusive")), f"{source.name}: job {number}", source.repairs
            ),
            job_id=name,
            user=optional_text(job.get("user"), "user"),
            vc=optional_text(job.get("partition"), "partition"),
            submit_s=submit_s,
            start_s=start_s,
            end_s=end_s,
            duration_s=_wrapped(times.get("elapsed"), "time.elapsed") if end_s > 0 else float("nan"),
            gpus=gpus,
            nodes=_wrapped(job.get("allocation_nodes"), "allocation_nodes"),
            state=_state(job.get("state")),
            requested_s=60.0 * limit if (limit := _wrapped(times.get("limit"), "time.limit")) > 0 else np.nan,
            eligible_s=eligible
            if (eligible := _wrapped(times.get("eligible"), "time.eligible")) > 0
            else np.nan,
            account=optional_text(job.get("account"), "account"),
            qos=optional_text(job.get("qos"), "qos"),
        )


def _wrapped(value: Any, name: str) -> float:
    """A number, plain or as `{set, infinite, number}`; nan if it is not set."""
    if isinstance(value, dict):
        if value.get("set") is False or value.get("infinite") is True:
            return float("nan")
        value = value.get("number")
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {shown(value)}, a number is expected")
    try:
        return float(json_number(Field(name=name), value))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _state(value: Any) -> str:
    """`{"current": ["COMPLETED"]}` or `{"current": "COMPLETED"}` or `"COMPLETED"`."""
    if isinstance(value, dict):
        value = value.get("current")
    if isinstance(value, list):
        value = value[0] if value else None
    return optional_text(value, "state")


def _sharing(value: Any) -> str:
    """`exclusive` of a job, as a list of words or one, in the words of `OverSubscribe`."""
    words = value if isinstance(value, list) else [value]
    return "" if value is None else "EXCLUSIVE" if {"true", "True"} & set(map(str, words)) else "NO"


def _tres(listed: Any) -> Tres:
    """What a list of `{type, name, count}` says."""
    if listed is None:
        return Tres.of((), {})
    if not isinstance(listed, list) or any(not isinstance(item, dict) for item in listed):
        raise ValueError("tres is no list of {type, name, count}")
    counts, others = [], {}
    for item in listed:
        name, _, kind = str(item.get("name")).partition(":")
        if item.get("type") == "gres" and name in ("gpu", *_PARTS):
            count = _wrapped(item.get("count"), "tres count")
            counts.append((name, kind, 0.0 if np.isnan(count) else count))
        elif item.get("type") in ("cpu", "mem", "node", "billing"):
            others[item["type"]] = _wrapped(item.get("count"), "tres count")
    return Tres.of(counts, others)
