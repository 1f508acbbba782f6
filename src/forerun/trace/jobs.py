"""Job logs of clusters: one table shape for all formats, and the dirt they share.

A row is one run of a job: when it was submitted, started and ended, and the GPUs it held. Every rule that
drops or changes a row is counted; nothing is guessed silently. Times are seconds from the first submission,
on the file's own clock; `origin` in the provenance says where that lies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from forerun.errors import TraceError, UsageError, known_names
from forerun.trace.reader import TraceReader
from forerun.trace.repair import Complaints, RepairLog, shown
from forerun.trace.rows import TEXT, Chunk, Field, parse_instant, read_rows
from forerun.trace.source import Source
from forerun.trace.table import Trace
from forerun.trace.tabular import Rows, TableReader

F64 = NDArray[np.float64]

#: texts that stand for "not recorded" in the public job logs
ABSENT: Final = ("", "None", "none", "null", "NULL", "NaN", "nan", "N/A", "NA", "Unknown", "-1")

#: no job runs longer: what does is a missing end that was written as a number
LONGEST_S: Final = 10 * 365 * 86_400.0

JOB_FIELDS: Final = (
    Field(name="job_id", kind="text", meaning="identifier of the run"),
    Field(name="user", kind="text", meaning="who submitted it, as the log calls them"),
    Field(name="vc", kind="text", meaning="virtual cluster, partition, queue or organisation"),
    Field(name="submit_s", unit="s", meaning="submission, seconds from the first submission"),
    Field(name="start_s", unit="s", meaning="start, same clock; nan: not recorded"),
    Field(name="end_s", unit="s", meaning="end, same clock; nan: not recorded"),
    Field(name="duration_s", unit="s", meaning="seconds it ran"),
    Field(name="gpus", unit="GPUs", meaning="GPUs held; may be a fraction of one"),
    Field(name="state", kind="text", meaning="how it ended, in the log's words"),
)

#: accepted names of each column of a job log in CSV, forerun's own first; `real_*` are the values before a log was adapted
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
    "vc": ("vc",),
    "real_duration_s": ("real_duration",),
    "real_iterations": ("real_iteration",),
}
#: without these a job log says nothing
NEEDED: Final = ("job_id", "submit_s", "gpus", "duration_s")

_PLAIN: Final = re.compile(r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}\n)*+")
_ORDINARY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}")


def spelt(header: Sequence[str]) -> dict[str, str]:
    """The columns of a header, by our names (see `SPELLINGS`). Raises ValueError where it has one twice, or lacks one."""
    names = {}
    for name, spellings in SPELLINGS.items():
        found = [column for column in header if column in spellings]
        if len(found) > 1:
            raise ValueError(f"has both {' and '.join(found)}; one of them is wanted")
        if found:
            names[name] = found[0]
    lacking = [name for name in NEEDED if name not in names]
    if lacking:
        wanted = "; ".join(" or ".join(SPELLINGS[name]) for name in lacking)
        many = "s" * (len(lacking) > 1)
        raise ValueError(f"misses the column{many} {wanted}; {known_names(lacking[0], header)}")
    return names


@dataclass(slots=True)
class JobRows:
    """Runs as read, before cleaning: equally long columns. Times and GPUs are nan where not recorded.

    `duration_s` is what the log says the run took, nan where it says nothing.
    """

    lines: list[int] = field(default_factory=list)
    job_id: list[str] = field(default_factory=list)
    user: list[str] = field(default_factory=list)
    vc: list[str] = field(default_factory=list)
    submit_s: list[float] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    end_s: list[float] = field(default_factory=list)
    duration_s: list[float] = field(default_factory=list)
    gpus: list[float] = field(default_factory=list)
    state: list[str] = field(default_factory=list)

    def extend(self, lines: Iterable[int], **columns: Iterable[Any]) -> None:
        """Add rows, column by column; columns not named get an empty text or nan."""
        added = list(lines)
        self.lines += added
        for name in (f.name for f in JOB_FIELDS):
            blank: Any = "" if name in ("job_id", "user", "vc", "state") else np.nan
            values = list(columns.get(name, [blank] * len(added)))
            assert len(values) == len(added), name
            getattr(self, name).extend("" if value is None else value for value in values)

    def add(self, line: int, **values: Any) -> None:
        """Add one row."""
        self.extend([line], **{name: [value] for name, value in values.items()})


def job_trace(
    reader: TraceReader,
    source: Source,
    repairs: RepairLog,
    runs: JobRows,
    *,
    cpu_jobs: bool = False,
    same_id: str = "drop",
    recorded: bool = False,
    **more: object,
) -> Trace:
    """The runs as a clean trace of kind `jobs`, sorted by submission.

    Dropped and counted: runs without submission, GPUs, start or end, of no or negative length or of more than ten
    years (a missing end read as a sentinel), and with an id seen before (`same_id`: `drop`, or `suffix` to keep them
    as `id#2`). `cpu_jobs` keeps runs without GPUs. A recorded duration that differs from end less start gives way to
    it, unless the log's durations count time worked (`recorded`); without times the duration stands alone.
    """
    columns = {
        f.name: np.array(getattr(runs, f.name), TEXT if f.kind == "text" else np.float64) for f in JOB_FIELDS
    }
    rows = Rows(source, Complaints(), runs.lines, columns)
    rows.drop(np.isnan(rows["submit_s"]), "job without submission time dropped")
    rows.drop(np.isnan(rows["gpus"]), "job with unknown GPUs dropped")
    if not cpu_jobs:
        rows.drop(rows["gpus"] == 0, "job without GPUs dropped")
    _settle_duration(rows, recorded=recorded)
    rows.drop(np.isnan(rows["duration_s"]), "job that never ran or has no end dropped")
    rows.drop(rows["duration_s"] < 0, "job that ends before it starts dropped")
    rows.drop(rows["duration_s"] == 0, "job of zero seconds dropped")
    rows.drop(rows["duration_s"] > LONGEST_S, "job longer than ten years dropped")
    early = rows["start_s"] < rows["submit_s"]
    rows.note(early, "start before submission, submission moved to the start")
    rows["submit_s"] = np.where(early, rows["start_s"], rows["submit_s"])
    _settle_ids(rows, same_id)
    if not len(rows):
        raise TraceError.at(source.name, "no usable job is left; " + "; ".join(repairs.lines()))
    origin_s = float(rows["submit_s"].min())
    for name in ("submit_s", "start_s", "end_s"):
        rows[name] = rows[name] - origin_s
    more = {"origin_s": origin_s, **more}
    chunk = Chunk(rows.lines, rows.columns)
    return reader.table(source, repairs, JOB_FIELDS, chunk, time="submit_s", order="free", **more)


def _settle_duration(rows: Rows, *, recorded: bool) -> None:
    """One duration a run; where the recorded one and end less start differ by over a second, that is noted.

    recorded: the recorded one counts. It leaves out what a job was suspended for, and does not change with the clock;
    a run that is longer than end less start then ends where its duration says.
    """
    measured_s = rows["end_s"] - rows["start_s"]
    known = ~np.isnan(measured_s)
    differs = known & ~np.isnan(rows["duration_s"]) & (np.abs(measured_s - rows["duration_s"]) > 1.0)
    if recorded:
        longer = differs & (rows["duration_s"] > measured_s)
        rows.note(
            longer,
            "recorded duration is longer than end less start (as where the clock was set back); "
            "it is taken, and moves the end",
        )
        rows.note(
            differs & ~longer,
            "recorded duration is shorter than end less start (as where a job was suspended); it is taken",
        )
        rows["end_s"] = np.where(longer, rows["start_s"] + rows["duration_s"], rows["end_s"])
        differs = np.zeros_like(differs)
    rows.note(differs, "recorded duration differs from end less start, which is taken")
    alone = np.isnan(rows["duration_s"]) | differs
    rows["duration_s"] = np.where(known & alone, measured_s, rows["duration_s"])


def _settle_ids(rows: Rows, same_id: str) -> None:
    """Every id once: a later run of the same id is dropped, or becomes `id#2`."""
    seen: dict[str, int] = {}
    again = np.zeros(len(rows), np.bool_)
    ids: list[str] = rows["job_id"].tolist()
    for at, name in enumerate(ids):
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            again[at] = True
            ids[at] = f"{name}#{seen[name]}"
    if same_id == "suffix":
        rows.note(again, "job id used again, kept as a run of its own")
        rows["job_id"] = np.array(ids, TEXT)
    else:
        rows.drop(again, "job id used again, later row dropped")


class JobLog(TableReader, frozen=True, kw_only=True):
    """A job log that is a delimited table, read in chunks: logs have millions of rows.

    columns: those that make a run carry the names of `JOB_FIELDS`; `settle` is called for each chunk. instants: columns of
    written times, turned into seconds after `settle`. clock: what the times count from, for the provenance.
    """

    makes = "jobs"
    instants: ClassVar[tuple[str, ...]] = ()
    clock: ClassVar[str] = ""

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source, complaints, runs = Source(path, repairs=repairs), Complaints(), JobRows()
        headers = {field.name: field.header for field in self.columns}
        for chunk in read_rows(source, self.columns, complaints=complaints):
            rows = Rows(source, complaints, chunk.lines, chunk.columns)
            self.settle(rows)
            lines: list[int] = rows.lines.tolist()
            for name in self.instants:
                rows[name] = instants_s(rows[name].tolist(), source, lines, headers[name], complaints)
            present = [field.name for field in JOB_FIELDS if field.name in rows]
            runs.extend(lines, **{name: rows[name].tolist() for name in present})
        complaints.finish()
        return self.clean(source, repairs, runs)

    def clean(self, source: Source, repairs: RepairLog, runs: JobRows) -> Trace:
        """The trace of the runs as read, by the rules of `job_trace`."""
        return job_trace(self, source, repairs, runs, clock=self.clock)


def instants_s(
    cells: Sequence[str | None], source: Source, lines: Sequence[int], name: str, complaints: Complaints
) -> F64:
    """Written instants as seconds since 1970 on the file's clock (UTC if it gives a zone), nan where absent.

    What is neither absent nor an instant is a complaint.
    """
    absent = [cell is None or cell.strip() in ABSENT for cell in cells]
    filled = [
        "1970-01-01 00:00:00" if gone else str(cell).strip() for cell, gone in zip(cells, absent, strict=True)
    ]
    values = np.zeros(len(filled))
    try:
        if not _PLAIN.fullmatch("\n".join(filled) + "\n"):
            raise ValueError
        values[:] = np.array(filled, "datetime64[s]").astype(np.int64)
    except ValueError:
        for at, text in enumerate(filled):
            try:
                values[at] = parse_instant(text) / 1e9
            except ValueError as error:
                complaints.add(source.at(lines[at], name), str(error))
    values[absent] = np.nan
    return values


@dataclass(slots=True)
class LocalClock:
    """Wall-clock times of one place as UTC seconds, its daylight-saving changes taken into account.

    The hour that an autumn night repeats is read as its first pass, unless that would end a run before its
    start; the hour a spring night skips is read an hour later. Both are counted.
    """

    zone: str
    repairs: RepairLog
    _zone: Any = None

    def utc_s(self, text: str, where: str, not_before_s: float = -np.inf) -> float:
        """`2017-11-05 01:30:00` as UTC seconds. ValueError says what is wrong with the text."""
        if not _ORDINARY.fullmatch(text):
            raise ValueError(f"{shown(text)} is not a time like 2017-11-05 01:30:00")
        parse_instant(text)
        local = datetime.fromisoformat(text).replace(tzinfo=self._place())
        first, second = local.timestamp(), local.replace(fold=1).timestamp()
        if first == second:
            return first
        if first > second:  # a skipped hour has no UTC time; reading it with the old offset moves it on
            self.repairs.note("wall-clock time in the hour skipped in spring, moved on an hour", where)
            return first
        self.repairs.note(
            "wall-clock time in the hour repeated in autumn, first pass taken unless it ends too early", where
        )
        return second if first < not_before_s else first

    def _place(self) -> Any:
        if self._zone is None:
            from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

            try:
                self._zone = ZoneInfo(self.zone)
            except (ZoneInfoNotFoundError, ValueError):
                raise UsageError.at(
                    "timezone", f"no time zone {self.zone!r} is known here; the package tzdata has all"
                ) from None
        return self._zone


def demand(trace: Trace) -> tuple[F64, F64]:
    """GPUs in use over time, from recorded starts and ends: (instants, GPUs from that instant on)."""
    known = np.isfinite(trace["start_s"]) & np.isfinite(trace["end_s"])
    instants = np.concatenate([trace["start_s"][known], trace["end_s"][known]])
    steps = np.concatenate([trace["gpus"][known], -trace["gpus"][known]])
    at, index = np.unique(instants, return_inverse=True)
    change = np.zeros(len(at))
    np.add.at(change, index, steps)
    return at, np.cumsum(change)


def cannot_have_run_on(trace: Trace, gpus: int) -> str:
    """Why the trace cannot have run on a cluster of `gpus` GPUs; empty if it can."""
    at, used = demand(trace)
    over = used[:-1] > gpus + 1e-6
    if not over.any():
        return ""
    seconds = np.diff(at)
    share = float(seconds[over].sum() / seconds.sum())
    return (
        f"this trace cannot have run on this cluster: it held up to {used.max():g} GPUs at once, {gpus} are there, "
        f"for {100 * share:.1f} % of its time"
    )


def hours_minutes(text: str) -> timedelta:
    """Slurm's `[days-]hh:mm:ss[.us]`, `mm:ss[.us]`; ValueError if it is something else."""
    match = re.fullmatch(
        r"(?:([0-9]{1,5})-)?(?:([0-9]{1,5}):)?([0-9]{1,5}):([0-9]{1,2}(?:\.[0-9]{1,6})?)", text
    )
    if match is None:
        raise ValueError(f"{shown(text)} is not a duration like 1-02:03:04")
    days, hours, minutes, seconds = match.groups()
    return timedelta(days=int(days or 0), hours=int(hours or 0), minutes=int(minutes), seconds=float(seconds))
