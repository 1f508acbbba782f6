"""Job logs of clusters: one table shape for all formats, and the dirt they share.

A row is one run of a job: when it was submitted, started and ended, and the GPUs it held. Every rule that
drops or changes a row is counted; nothing is guessed silently. Times are seconds from the first submission,
on the file's own clock; `origin` in the provenance says where that lies.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forerun.core.errors import TraceError, UsageError
from forerun.core.registry import member_name
from forerun.core.trace.reader import TraceReader
from forerun.core.trace.repair import Complaints, RepairLog
from forerun.core.trace.rows import TEXT, Array, Field, parse_instant, read_rows
from forerun.core.trace.source import Source
from forerun.core.trace.table import Trace
from forerun.core.trace.tabular import Rows, TableReader

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
#: what some logs have besides; a trace has those of these columns in which a value is recorded
MORE_JOB_FIELDS: Final = (
    Field(name="requested_s", unit="s", meaning="time limit that the job asked for; nan: none, or unlimited"),
    Field(
        name="eligible_s",
        unit="s",
        meaning="when it could start at the earliest, same clock; nan: not recorded",
    ),
    Field(name="account", kind="text", meaning="account or group that the job is charged to"),
    Field(name="qos", kind="text", meaning="quality of service, or number of the queue"),
    Field(name="reservation", kind="text", meaning="reservation that it asked for"),
    Field(name="priority", meaning="priority as the log states it; larger goes first; nan: not recorded"),
    Field(name="nice", meaning="what its user takes off its priority; nan: not recorded"),
    Field(name="nodes", unit="nodes", meaning="nodes allocated, else asked for; nan: not recorded"),
    Field(name="asked_nodes", unit="nodes", meaning="nodes that it asked for at least; nan: not recorded"),
    Field(name="gpu_type", kind="text", meaning="type of the GPUs that it asks for; empty: any"),
    Field(name="exclusive", meaning="1: it takes its nodes whole; nan: not recorded"),
    Field(name="cpus", unit="CPUs", meaning="CPUs that it asked for, else had; nan: not recorded"),
    Field(name="billing", meaning="what a second of it is charged to its account; nan: not recorded"),
    Field(name="memory_bytes", unit="B", meaning="memory that it asked for, else had; nan: not recorded"),
    Field(
        name="asked_gpus",
        unit="GPUs",
        meaning="GPUs that it asks for, if it has more; nan: as many as it has",
    ),
    Field(name="node_list", kind="text", meaning="names of the nodes that it had, as n[1-3]"),
    Field(name="array", kind="text", meaning="its array, as 4%2, if so many of its tasks may run at once"),
    Field(name="after", kind="text", meaning="job before it after whose end it comes; empty: none"),
    Field(name="after_delay_s", unit="s", meaning="how long after that end it comes"),
    Field(
        name="attempt", meaning="which run of its job it is, from 1: it does again what the one before lost"
    ),
)
#: states, as Slurm writes them, of runs that are put back into the queue
_PUT_BACK: Final = ("NODE_FAIL", "BOOT_FAIL", "REQUEUE", "PREEMPTED", "SPECIAL_EXIT")
#: who comes so soon after the end of a run with his number comes because of it
_AT_ONCE_S: Final = 60.0
#: states of jobs that have not ended, in capitals; empty: the log does not say
RUNNING: Final = ("RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "CONFIGURING", "RESIZING", "")
PENDING: Final = ("PENDING", "REQUEUED", "")
#: a job that still runs so long after its time limit is one that the log has lost
LOST_S: Final = 86_400.0

_ALL_FIELDS: Final = (*JOB_FIELDS, *MORE_JOB_FIELDS)

_PLAIN: Final = re.compile(r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}\n)*+")


class JobRows:
    """Runs as read one by one, before cleaning: for logs that are no tables, whose rows need a rule each.

    Each has a line number and values by the names of `JOB_FIELDS` and `MORE_JOB_FIELDS`; what is not recorded is left
    out, nan or empty.
    """

    def __init__(self) -> None:
        self.lines = array("q")
        self._texts: dict[str, list[str]] = {}
        self._numbers: dict[str, array[float]] = {}
        for field in _ALL_FIELDS:
            if field.kind == "text":
                self._texts[field.name] = []
            else:
                self._numbers[field.name] = array("d")

    def add(self, line: int, **values: Any) -> None:
        """Add one run."""
        self.lines.append(line)
        for name, numbers in self._numbers.items():
            numbers.append(values.get(name, nan))
        for name, texts in self._texts.items():
            text = values.get(name, "")
            texts.append(text if name == "job_id" else sys.intern(text))  # an id hardly ever comes again

    def columns(self) -> dict[str, Any]:
        """The runs column by column."""
        numbers = {name: np.array(values, np.float64) for name, values in self._numbers.items()}
        return {**numbers, **self._texts}


@dataclass(frozen=True, slots=True)
class Gathered:
    """The runs of a log as it states them, before any rule drops or changes one.

    Parameters
    ----------
    source : the file, read to its end, which counts repairs and names lines in messages.
    lines : the line of the file that each row stands in.
    columns : by the names of `JOB_FIELDS` and `MORE_JOB_FIELDS`; one that is missing is empty.
    stated : what the file says of its machine, for people (default: nothing).
    whole : whether `gpus` are whole nodes, of which nothing else is known (default: no).
    """

    source: Source
    lines: ArrayLike
    columns: Mapping[str, Iterable[Any]]
    stated: tuple[str, ...] = ()
    whole: bool = False


class JobReader(TraceReader, frozen=True, kw_only=True):
    """A job log of any layout: `gather` finds its runs, and `cleaned` applies the rules that all logs share.

    clock: what its times count from, for the provenance. same_id: what becomes of a run with an id seen before: `drop`
    it, or `suffix`, name it `id#2`. unfinished: whether jobs that still run or wait stay, with how long they have run, and
    no end (default: no). cancelled: whether jobs that left the queue before they ran stay, without a start; their end is
    when they left (default: no). recorded: the log's durations count time worked, and are taken where they differ from
    end less start.
    """

    unfinished: bool = False
    cancelled: bool = False

    makes = "jobs"
    clock: ClassVar[str] = ""
    same_id: ClassVar[Literal["drop", "suffix"]] = "drop"
    recorded: ClassVar[bool] = False

    def keeps_cpu_jobs(self) -> bool:
        """Whether runs without GPUs stay: as the option `cpu_jobs` says, in formats that have it."""
        return bool(getattr(self, "cpu_jobs", False))

    def gather(self, path: Path, repairs: RepairLog) -> Gathered:
        """The runs of the file, those that never started or still run among them.

        Raises TraceError with every problem of the file. A reader that has no such step overrides `read`.
        """
        raise UsageError.at(str(path), f"the format {member_name(type(self))} has no queued or running jobs")

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        gathered = self.gather(path, repairs)
        return self.cleaned(gathered.source, gathered.lines, gathered.columns)

    def cleaned(
        self, source: Source, lines: ArrayLike, columns: Mapping[str, Iterable[Any]], **facts: object
    ) -> Trace:
        """The runs as a clean trace of kind `jobs`, sorted by submission.

        Dropped and counted: runs without submission, GPUs, start or end, of no or negative length or of more than ten
        years (a missing end read as a sentinel), and with an id seen before. Without times the duration stands alone.

        Parameters
        ----------
        source : the file, which counts repairs and names lines in messages.
        lines : the line of the file that each row stands in.
        columns : by the names of `JOB_FIELDS` and `MORE_JOB_FIELDS`; one that is missing is empty.
        facts : what was learned about the file, for the provenance.
        """
        rows = Rows(source, Complaints(), lines, {})
        for field in JOB_FIELDS:
            rows[field.name] = _typed(field, columns.get(field.name), len(rows))
        more = [field for field in MORE_JOB_FIELDS if field.name in columns]
        for field in more:
            rows[field.name] = _typed(field, columns[field.name], len(rows))
        for field in more:
            if not _has_value(field, rows[field.name]):
                del rows.columns[field.name]
        more = [field for field in more if field.name in rows]
        rows.drop(np.isnan(rows["submit_s"]), "job without submission time dropped")
        rows.drop(np.isnan(rows["gpus"]), "job with unknown GPUs dropped")
        if not self.keeps_cpu_jobs():
            rows.drop(rows["gpus"] == 0, "job without GPUs dropped")
        if self.cancelled:
            _settle_cancelled(rows)
        apart = _apart(rows)
        if self.unfinished:
            _settle_unfinished(rows)
        _settle_duration(rows, recorded=self.recorded)
        rows.drop(np.isnan(rows["duration_s"]), "job that never ran or has no end dropped")
        rows.drop(rows["duration_s"] < 0, "job that ends before it starts dropped")
        rows.drop(rows["duration_s"] == 0, "job of zero seconds dropped")
        rows.drop(rows["duration_s"] > LONGEST_S, "job longer than ten years dropped")
        early = rows["start_s"] < rows["submit_s"]
        rows.note(early, "start before submission, submission moved to the start")
        rows["submit_s"] = np.where(early, rows["start_s"], rows["submit_s"])
        settle_ids(rows, self.same_id)
        more += [field for field in MORE_JOB_FIELDS if field.name in rows.columns and field not in more]
        if not len(rows):
            raise TraceError.at(source.name, "no usable job is left; " + "; ".join(source.repairs.lines()))
        origin_s = float(rows["submit_s"].min())
        for name in ("submit_s", "start_s", "end_s"):
            rows[name] = rows[name] - origin_s
        if "eligible_s" in rows:
            rows["eligible_s"] = rows["eligible_s"] - origin_s
        rows.facts.update(origin_s=origin_s, clock=self.clock)
        if apart:
            rows.facts["apart"] = apart
        rows.facts.update(facts)
        return rows.trace(self, (*JOB_FIELDS, *more), time="submit_s", order="free")


def _typed(field: Field, values: Iterable[Any] | None, count: int) -> Array:
    if field.kind == "text":
        return np.array([""] * count if values is None else list(values), TEXT)
    return np.full(count, np.nan) if values is None else np.array(list(values), np.float64)


def _has_value(field: Field, values: Array) -> bool:
    return bool((values != "").any() if field.kind == "text" else (~np.isnan(values)).any())


def left_unstarted(state: Iterable[str], start_s: Array, end_s: Array) -> Array:
    """bool[jobs]: those whose state says that they left the queue before they ran, whatever start the log has for them."""
    gone = np.array([text.startswith(("CANCEL", "DEADLINE", "BOOT_FAIL")) for text in state], np.bool_)
    unstarted: Array = gone & ~(end_s > start_s)
    return unstarted


def _settle_cancelled(rows: Rows) -> None:
    """Jobs that were in the queue and left it before they ran have no start, and a duration of a second."""
    came_s = rows["submit_s"]
    if "eligible_s" in rows and np.isfinite(rows["eligible_s"]).any():
        came_s = np.maximum(came_s, rows["eligible_s"])
    left = left_unstarted(rows["state"].tolist(), rows["start_s"], rows["end_s"]) & (rows["end_s"] > came_s)
    rows.note(left, "job cancelled while pending: it leaves the queue when it did; not scored")
    rows["start_s"] = np.where(left, np.nan, rows["start_s"])
    rows["duration_s"] = np.where(left, 1.0, rows["duration_s"])


def _apart(rows: Rows) -> dict[str, int]:
    """Jobs that cannot be simulated, as how long they run is not known, by why."""
    pending = left_unstarted(rows["state"].tolist(), rows["start_s"], rows["end_s"])
    pending &= ~(rows["duration_s"] > 0)
    open_ended = ~pending & np.isnan(rows["end_s"]) & np.isnan(rows["duration_s"])
    counts = {"cancelled while pending": int(pending.sum()), "not ended": int(open_ended.sum())}
    return {why: count for why, count in counts.items() if count}


def _settle_unfinished(rows: Rows) -> None:
    """Jobs that still run have a duration until the log's end, those that still wait of a second."""

    def those(states: Sequence[str], started: bool) -> Array:
        state = np.strings.upper(rows["state"])
        said = np.isin(state, states) & ((state != "") | np.isnan(rows["duration_s"]))
        some: Array = said & np.isnan(rows["end_s"]) & (np.isfinite(rows["start_s"]) == started)
        return some

    so_far_s = np.where(those(RUNNING, True), rows["start_s"] + rows["duration_s"], np.nan)
    instants = (rows["submit_s"], rows["start_s"], rows["end_s"], so_far_s)
    last_s = max((float(np.nanmax(one)) for one in instants if not np.isnan(one).all()), default=0.0)
    if "requested_s" in rows:
        lost = those(RUNNING, True) & (last_s - rows["start_s"] > rows["requested_s"] + LOST_S)
        rows.drop(lost, "job that still runs a day after its time limit dropped")
    if "eligible_s" in rows and np.isfinite(rows["eligible_s"]).any():
        held = those(PENDING, False) & np.isnan(rows["eligible_s"])
        rows.drop(held, "job that cannot start yet at the log's end (held, or after others) dropped")
    runs, waits = those(RUNNING, True), those(PENDING, False)
    rows.note(
        runs,
        "job that still runs: it has its GPUs for as long as it asked, until the log's end at least; not scored",
    )
    rows.note(waits, "job that still waits at the log's end: it will run for as long as it asked; not scored")
    so_far_s = np.where(runs, np.maximum(last_s - rows["start_s"], 1.0), rows["duration_s"])
    rows["duration_s"] = np.where(waits, 1.0, so_far_s)
    rows["state"] = np.where(runs, "RUNNING", np.where(waits, "PENDING", rows["state"]))


def _settle_duration(rows: Rows, *, recorded: bool) -> None:
    """One duration a run; where the recorded one and end less start differ by over a second, that is noted.

    Parameters
    ----------
    recorded : the recorded one counts. It leaves out what a job was suspended for, and does not change with the
        clock; a run that is longer than end less start then ends where its duration says.
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


def settle_ids(rows: Rows, same_id: str) -> None:
    """Every id once: a later run of the same id is dropped, or becomes `id#2`, which may be a restart."""
    runs: dict[str, list[int]] = {}
    ids: list[str] = rows["job_id"].tolist()
    for at, name in enumerate(ids):
        runs.setdefault(name, []).append(at)
    several = [those for those in runs.values() if len(those) > 1]
    if same_id != "suffix":
        again = np.zeros(len(rows), np.bool_)
        again[[at for those in several for at in those[1:]]] = True
        rows.drop(again, "job id used again, later row dropped")
    elif several:
        before = np.full(len(rows), -1)
        for those in several:
            those.sort(key=lambda at: (rows["submit_s"][at], np.nan_to_num(rows["start_s"][at], nan=np.inf)))
            before[those[1:]] = those[:-1]
            for number, at in enumerate(those[1:], 2):
                ids[at] += f"#{number}"
        rows["job_id"] = np.array(ids, TEXT)
        _settle_restarts(rows, before)


def _settle_restarts(rows: Rows, before: NDArray[np.int64]) -> None:
    """Runs that were put back into the queue come after the end of the run before, with the delay that the log shows.

    Parameters
    ----------
    before : the run with the same number before each; -1: none.
    """
    submit_s, end_s = rows["submit_s"], np.where(before >= 0, rows["end_s"][before], np.nan)
    put_back = np.array([text.startswith(_PUT_BACK) for text in rows["state"].tolist()], np.bool_)
    restarts = put_back[before] | (np.abs(submit_s - end_s) <= _AT_ONCE_S)
    restarts &= ~np.isnan(end_s) & ~(rows["start_s"] < end_s - _AT_ONCE_S)
    rows.note((before >= 0) & ~restarts, "job id used again, kept as a run of its own")
    rows.note(restarts, "run of a requeued job: it comes after the end of the one before")
    if not restarts.any():
        return
    rows["submit_s"] = np.where(restarts, np.maximum(submit_s, end_s), submit_s)
    came_s = rows["submit_s"]
    if "eligible_s" in rows:
        came_s = np.where(rows["eligible_s"] > came_s, rows["eligible_s"], came_s)
    attempt = np.ones(len(rows))
    for at in np.flatnonzero(restarts)[np.argsort(submit_s[restarts], kind="stable")].tolist():
        attempt[at] = attempt[before[at]] + 1
    rows["after"] = np.where(restarts, rows["job_id"][before], np.array("", TEXT))
    rows["after_delay_s"] = np.where(restarts, came_s - end_s, np.nan)
    rows["attempt"] = attempt


class JobLog(JobReader, TableReader, frozen=True, kw_only=True):
    """A job log that is a delimited table, read in chunks: logs have millions of rows.

    columns: those that make a run have the names of `JOB_FIELDS`; `settle` is called for each chunk. instants: columns of
    written times, turned into seconds after `settle`.
    """

    instants: ClassVar[tuple[str, ...]] = ()

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source, complaints = Source(path, repairs=repairs), Complaints()
        fields, chunks = self.fields_of(source), list[Rows]()
        for chunk in read_rows(source, fields, complaints=complaints):
            rows = Rows(source, complaints, chunk.lines, chunk.columns, fields)
            self.settle(rows)
            for name in self.instants:
                rows[name] = instants_s(rows, name)
            names = (field.name for field in (*JOB_FIELDS, *MORE_JOB_FIELDS))
            rows.columns = {name: rows[name] for name in names if name in rows}
            chunks.append(rows)
        lines = np.concatenate([rows.lines for rows in chunks])
        return self.cleaned(
            source,
            lines,
            {name: np.concatenate([rows[name] for rows in chunks]) for name in chunks[0].columns},
        )


def instants_s(rows: Rows, name: str) -> F64:
    """Written instants as seconds since 1970 on the file's clock (UTC if it gives a zone), nan where absent.

    What is neither absent nor an instant is a complaint.
    """
    cells = rows[name].tolist()
    absent = [cell.strip() in ABSENT for cell in cells]
    filled = [
        "1970-01-01 00:00:00" if gone else cell.strip() for cell, gone in zip(cells, absent, strict=True)
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
                rows.complaints.add(rows.at(at, rows.headers[name]), str(error))
    values[absent] = np.nan
    return values


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
