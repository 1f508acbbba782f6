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
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.errors import TraceError, UsageError, known_names
from forerun.trace.reader import TraceReader
from forerun.trace.repair import Complaints, RepairLog, shown
from forerun.trace.rows import TEXT, Chunk, Field, parse_instant
from forerun.trace.source import Source
from forerun.trace.table import Trace

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

#: what a column of a job log in CSV may be called, ours first; `real_*` are what a log held before it was adapted
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
    rows: JobRows,
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
    table = _Cleaning(source, repairs, rows)
    table.drop(np.isnan(table.submit_s), "job without submission time dropped")
    table.drop(np.isnan(table.gpus), "job with unknown GPUs dropped")
    if not cpu_jobs:
        table.drop(table.gpus == 0, "job without GPUs dropped")
    table.settle_duration(recorded=recorded)
    table.drop(np.isnan(table.duration_s), "job that never ran or has no end dropped")
    table.drop(table.duration_s < 0, "job that ends before it starts dropped")
    table.drop(table.duration_s == 0, "job of zero seconds dropped")
    table.drop(table.duration_s > LONGEST_S, "job longer than ten years dropped")
    table.settle_submission()
    table.settle_ids(same_id)
    return table.trace(reader, **more)


class _Cleaning:
    """The rows as arrays while rules are applied; each rule notes what it touched."""

    def __init__(self, source: Source, repairs: RepairLog, rows: JobRows) -> None:
        self._source, self._repairs = source, repairs
        self.lines = np.array(rows.lines, np.int64)
        self.submit_s, self.start_s, self.end_s, self.duration_s, self.gpus = (
            np.array(getattr(rows, name), np.float64)
            for name in ("submit_s", "start_s", "end_s", "duration_s", "gpus")
        )
        self.texts = {name: np.array(getattr(rows, name), TEXT) for name in ("job_id", "user", "vc", "state")}

    def note(self, where: NDArray[np.bool_], rule: str) -> None:
        lines = self.lines[where]
        self._repairs.note_many(rule, [self._source.at(int(line)) for line in lines[:3]], len(lines))

    def drop(self, where: NDArray[np.bool_], rule: str) -> None:
        if not where.any():
            return
        self.note(where, rule)
        kept = ~where
        for name in ("lines", "submit_s", "start_s", "end_s", "duration_s", "gpus"):
            setattr(self, name, getattr(self, name)[kept])
        self.texts = {name: values[kept] for name, values in self.texts.items()}

    def settle_duration(self, *, recorded: bool) -> None:
        """One duration a run; where the recorded one and end less start differ by over a second, that is noted.

        recorded: the recorded one counts. It leaves out what a job was suspended for, and does not change with the clock;
        a run that is longer than end less start then ends where its duration says.
        """
        measured = self.end_s - self.start_s
        known = ~np.isnan(measured)
        differs = known & ~np.isnan(self.duration_s) & (np.abs(measured - self.duration_s) > 1.0)
        if recorded:
            longer = differs & (self.duration_s > measured)
            self.note(
                longer,
                "recorded duration is longer than end less start (as where the clock was set back); "
                "it is taken, and moves the end",
            )
            self.note(
                differs & ~longer,
                "recorded duration is shorter than end less start (as where a job was suspended); it is taken",
            )
            self.end_s = np.where(longer, self.start_s + self.duration_s, self.end_s)
            differs = np.zeros_like(differs)
        self.note(differs, "recorded duration differs from end less start, which is taken")
        alone = np.isnan(self.duration_s) | differs
        self.duration_s = np.where(known & alone, measured, self.duration_s)

    def settle_submission(self) -> None:
        """Nobody starts before being submitted: such a submission is moved to the start."""
        early = self.start_s < self.submit_s
        self.note(early, "start before submission, submission moved to the start")
        self.submit_s = np.where(early, self.start_s, self.submit_s)

    def settle_ids(self, same_id: str) -> None:
        seen: dict[str, int] = {}
        again = np.zeros(len(self.lines), np.bool_)
        ids: list[str] = self.texts["job_id"].tolist()
        for at, name in enumerate(ids):
            seen[name] = seen.get(name, 0) + 1
            if seen[name] > 1:
                again[at] = True
                ids[at] = f"{name}#{seen[name]}"
        if same_id == "suffix":
            self.note(again, "job id used again, kept as a run of its own")
            self.texts["job_id"] = np.array(ids, TEXT)
        else:
            self.drop(again, "job id used again, later row dropped")

    def trace(self, reader: TraceReader, **more: object) -> Trace:
        if not len(self.lines):
            raise TraceError.at(
                self._source.name, "no usable job is left; " + "; ".join(self._repairs.lines())
            )
        origin_s = float(self.submit_s.min())
        columns: dict[str, Any] = {
            **self.texts,
            "submit_s": self.submit_s - origin_s,
            "start_s": self.start_s - origin_s,
            "end_s": self.end_s - origin_s,
            "duration_s": self.duration_s,
            "gpus": self.gpus,
        }
        rows = Chunk(self.lines, {field.name: columns[field.name] for field in JOB_FIELDS})
        return reader.table(
            self._source,
            self._repairs,
            JOB_FIELDS,
            rows,
            time="submit_s",
            order="free",
            origin_s=origin_s,
            **more,
        )


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
