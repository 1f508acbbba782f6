"""What happened in the queue of a real machine: one record, read from SWF, `sacct`, PBS or our CSV.

Unlike a trace of jobs it has those that still wait or run, who was cancelled while waiting, and since when it is complete.
Times are seconds from the first submission in the log; `origin_s` says when that was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from forerun.cluster.inputs.arrays import NEVER_S, NO_REQUEST_S, Jobs
from forerun.cluster.inputs.files import JobTable, labels_of
from forerun.cluster.readers.local_clock import LocalClock
from forerun.cluster.summary.past import Past, Recorded, Selection, complete
from forerun.cluster.summary.spans import Spans
from forerun.cluster.traces.job_logs import LONGEST_S, Gathered, JobReader, left_unstarted, settle_ids
from forerun.core.errors import TraceError, UsageError
from forerun.core.trace.reader import reader_for, sniff
from forerun.core.trace.repair import Complaints, Repair, RepairLog
from forerun.core.trace.rows import TEXT
from forerun.core.trace.tabular import Rows

F64: TypeAlias = NDArray[np.float64]
I64: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

#: what jobs hold: GPUs (or the processors that a log counts instead), or whole nodes
Unit: TypeAlias = Literal["GPUs", "nodes"]

#: columns of numbers and ids, and of names, with what the readers of logs call them
_COLUMNS: Final = (
    *("job_id", "submit_s", "eligible_s", "start_s", "end_s"),
    *("gpus", "nodes", "exclusive", "requested_s"),
)
_NAMES: Final = {
    "user": "user",
    "account": "account",
    "partition": "vc",
    "qos": "qos",
    "state": "state",
    "gpu_type": "gpu_type",
    "on_nodes": "node_list",
    "array": "array",
}
#: further columns of numbers, by which jobs are ranked and charged
_MORE: Final = ("asked_nodes", "cpus", "memory_bytes", "asked_gpus", "billing", "nice", "priority")
#: jobs hold GPUs if those with some hold so much of all nodes' time, and so much of theirs shares nodes
_GPU_SHARE: Final = 0.5
_SHARED: Final = 0.01


@dataclass(frozen=True, slots=True)
class Names:
    """A column of names.

    Parameters
    ----------
    codes : int64[jobs], positions in `names`; -1: not recorded.
    names : those that occur, sorted.
    """

    codes: I64
    names: tuple[str, ...]

    @classmethod
    def of(cls, texts: Sequence[str]) -> Names:
        """From texts, of which an empty one is not recorded."""
        names = tuple(sorted({text for text in texts if text}))
        code = {name: at for at, name in enumerate(names)} | {"": -1}
        return cls(np.fromiter((code[text] for text in texts), np.int64, len(texts)), names)

    @property
    def known(self) -> bool:
        """Whether any is recorded."""
        return bool(self.names)

    @property
    def texts(self) -> tuple[str, ...]:
        """Of each job; empty: not recorded."""
        names = (*self.names, "")
        return tuple(names[code] for code in self.codes.tolist())

    def beside(self, other: Names) -> Names:
        """These and others after them."""
        texts, theirs = ([*one.names, ""] for one in (self, other))
        return Names.of([*(texts[code] for code in self.codes), *(theirs[code] for code in other.codes)])

    def __getitem__(self, rows: Any) -> Names:
        """Those of some jobs, with the same codes."""
        return Names(self.codes[rows], self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Jobs in order of submission, ties as the log has them. Times in seconds from `origin_s`; columns are read-only.

    Parameters
    ----------
    job_id : texts[jobs], each once.
    submit_s : float64[jobs], submission.
    eligible_s : float64[jobs], when it could start at the earliest: the submission where the log does not say; nan: it
        cannot start yet.
    start_s : float64[jobs]; nan: it did not start, or has not started yet.
    end_s : float64[jobs]; nan: it still runs or waits. Of a job that did not start: when it left the queue.
    gpus : int64[jobs], what it holds or asks for, in `unit`.
    nodes : int64[jobs], on how many nodes; 0: not recorded.
    exclusive : bool[jobs], whether it has its nodes whole.
    requested_s : float64[jobs], its time limit; nan: none, or the log does not say.
    user, account, partition, qos, state : names[jobs].
    gpu_type : names[jobs], that it asks for.
    on_nodes : names[jobs], the nodes that it had, as the log lists them.
    array : names[jobs], its array, as 4%2, if so many of its tasks may run at once.
    origin_s : the first submission in seconds since 1970, on the log's clock.
    clock : what the log's times count from, such as `UTC`.
    selection : which jobs the log has: all that were submitted, started or ended in its period.
    complete_from_s : from when on every job that held a GPU or node is in the log.
    complete_until_s : until when.
    unit : what jobs hold: GPUs where they share nodes, else whole nodes.
    whole : whether all that was there is in it, as in a queue as it stands, so that nothing is inferred anew (default: no).
    evidence : a line for selection and completeness each, for people.
    source : the file's name; sha256 : digest of its content.
    repairs : what was changed or dropped when it was read.
    more : float64[jobs], further columns of the log, by the names of its readers (default: there are none).
    """

    job_id: NDArray[Any]
    submit_s: F64
    eligible_s: F64
    start_s: F64
    end_s: F64
    gpus: I64
    nodes: I64
    exclusive: Mask
    requested_s: F64
    user: Names
    account: Names
    partition: Names
    qos: Names
    state: Names
    gpu_type: Names
    on_nodes: Names
    array: Names
    origin_s: float
    clock: str
    selection: Selection
    complete_from_s: float
    complete_until_s: float
    unit: Unit = "nodes"
    whole: bool = False
    evidence: tuple[str, ...] = ()
    source: str = ""
    sha256: str = ""
    repairs: tuple[Repair, ...] = ()
    more: Mapping[str, F64] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [getattr(self, name).codes for name in _NAMES]
        for column in (*(getattr(self, name) for name in _COLUMNS), *names):
            column.flags.writeable = False

    def __len__(self) -> int:
        return len(self.submit_s)

    @property
    def started(self) -> Mask:
        """bool[jobs]: those that have started."""
        return np.isfinite(self.start_s)

    @property
    def run_s(self) -> F64:
        """float64[jobs], how long each ran; nan: it did not start, or still runs."""
        return self.end_s - self.start_s

    @property
    def wait_s(self) -> F64:
        """float64[jobs], from submission to start; nan: it did not start."""
        return self.start_s - self.submit_s

    def request_s(self, unlimited_s: float = 0.0, longest_s: float = 1.0) -> F64:
        """float64[jobs], what each asks for, at least a second.

        Parameters
        ----------
        unlimited_s : for those without a limit (default 0: as long as the longest of its partition, else of all).
        longest_s : of a job beside these (default: there is none).
        """
        by_partition_s = np.full(len(self.partition.names) + 1, -np.inf)  # the last: of jobs without one
        np.fmax.at(by_partition_s, self.partition.codes, self.requested_s)
        longest_s = max(float(by_partition_s.max()), longest_s)
        longest = np.where(np.isfinite(by_partition_s), by_partition_s, longest_s)[self.partition.codes]
        return np.maximum(np.where(np.isnan(self.requested_s), unlimited_s or longest, self.requested_s), 1.0)

    @property
    def last_s(self) -> float:
        """The last instant that the log speaks of."""
        columns = (self.submit_s, self.start_s, self.end_s)
        return float(max((np.nanmax(one) for one in columns if not np.isnan(one).all()), default=0.0))

    def running_at(self, at_s: float) -> Mask:
        """bool[jobs]: those that run at an instant; one that ends then does not."""
        return (self.start_s <= at_s) & ~(self.end_s <= at_s)

    def waiting_at(self, at_s: float) -> Mask:
        """bool[jobs]: those that have been submitted and neither started nor left the queue at an instant."""
        return (self.submit_s <= at_s) & ~(self.start_s <= at_s) & ~(self.end_s <= at_s)

    def busy(self) -> tuple[F64, I64]:
        """What is in use over time: the instants of change, ascending, and how many units from each on."""
        return Spans(self.start_s, self.end_s, self.gpus).levels()

    def of(self, rows: Mask | I64 | slice) -> History:
        """The history of some jobs, on the same clock."""
        more = {name: column[rows] for name, column in self.more.items()}
        return replace(self, more=more, **{name: getattr(self, name)[rows] for name in (*_COLUMNS, *_NAMES)})

    def beside(self, other: History) -> History:
        """These jobs and those of another history on the same clock, by submission; all else as of this one."""
        both: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in _COLUMNS
        }
        both |= {name: getattr(self, name).beside(getattr(other, name)) for name in _NAMES}
        both["more"] = {}  # no question asks for them
        return replace(self, **both).of(np.argsort(both["submit_s"], kind="stable"))

    def as_of(self, at_s: float) -> History:
        """What was known at an instant: the jobs `until` it; completeness as it showed then, unless it is known."""
        cut = self.until(at_s)
        return cut if self.whole or not len(cut) else _complete(cut, at_s)

    def until(self, at_s: float) -> History:
        """The jobs submitted until an instant, without what happened to them later.

        The state of a job that had not ended is not known. Selection and completeness stay as they are, but nothing is known
        after the instant.
        """
        cut = self.of(slice(int(np.searchsorted(self.submit_s, at_s, side="right"))))
        later = ~(cut.end_s <= at_s)
        return replace(
            cut,
            start_s=np.where(cut.start_s <= at_s, cut.start_s, np.nan),
            end_s=np.where(later, np.nan, cut.end_s),
            eligible_s=np.where(cut.eligible_s <= at_s, cut.eligible_s, np.nan),
            state=Names(np.where(later, -1, cut.state.codes), cut.state.names),
            complete_until_s=min(self.complete_until_s, at_s),
        )

    def table(self) -> JobTable:
        """The jobs as a simulation takes them; those that still run do so until the log's end."""
        started, ended = self.started, np.isfinite(self.end_s)
        until_s = np.where(ended, self.end_s, self.last_s)
        duration_s = np.where(started, np.maximum(np.rint(until_s - self.start_s), 1.0), 1.0)
        names = {name: getattr(self, name).texts for name in ("account", "qos", "gpu_type", "array")}
        columns: dict[str, NDArray[Any]] = {name: np.array(texts, TEXT) for name, texts in names.items()}
        columns |= {
            name: getattr(self, name) for name in ("submit_s", "eligible_s", "gpus", "nodes", "exclusive")
        }
        columns |= self.more
        asks = ~np.isnan(self.requested_s)
        requested_s = np.where(asks, np.ceil(np.where(asks, self.requested_s, 0.0)), NO_REQUEST_S)
        jobs = Jobs.of(
            np.floor(self.submit_s).astype(np.int64),
            self.gpus,
            duration_s.astype(np.int64),
            id=tuple(self.job_id.tolist()),
            user=self.user.texts if self.user.known else self.partition.texts,
            requested_s=requested_s.astype(np.int64),
            labels=labels_of(columns, self.partition.texts),
            leaves_s=np.where(~started & ended, np.ceil(np.nan_to_num(self.end_s)), NEVER_S).astype(np.int64),
        )
        lists = self.on_nodes.texts if self.on_nodes.known else None
        past = Past(self.start_s, self.end_s, self.state.texts, ~ended, lists)
        recorded = Recorded(past, self.complete_from_s, {}, self.clock)
        return JobTable(self.source, jobs, self.partition.texts, origin_s=self.origin_s, recorded=recorded)


def read_history(
    path: str | Path,
    format: str = "",
    *,
    columns: Sequence[str] = (),
    unit: Unit | None = None,
    zone: str = "UTC",
) -> History:
    """The history in a job log: the Standard Workload Format, `sacct --parsable2` or `--json`, PBS's accounting, or our CSV.

    Parameters
    ----------
    path : the file, which may be compressed with gzip or xz.
    format : `swf`, `sacct`, `sacct_json`, `pbs` or `job_history` (default: recognised from the content).
    columns : where the log deviates from its format, such as `requested_s=6` in SWF or `nodes=hosts` in a CSV.
    unit : what jobs hold (default: GPUs where the log shows that they share nodes, else nodes).
    zone : IANA name of the place of times that are written without a zone (default: UTC).

    Raises TraceError with up to twenty problems of the file, UsageError for a zone, a format or a column that is none.
    """
    if not Path(path).exists():
        raise TraceError.at(path, "no such file")
    repairs = RepairLog()
    LocalClock(zone, repairs).place()
    gathered = _reader(path, format, columns, zone).gather(Path(path), repairs)
    unit = unit or ("nodes" if gathered.whole else _unit_of(gathered.columns))
    rows = _cleaned(gathered, unit)
    repairs.finish()
    origin_s = float(rows["submit_s"].min())
    for name in ("submit_s", "eligible_s", "start_s", "end_s"):
        rows[name] = rows[name] - origin_s
    rows.sort("submit_s", noted=False)
    table: dict[str, Any] = {name: rows[name] for name in _COLUMNS}
    table |= {name: Names.of(rows[column].tolist()) for name, column in _NAMES.items()}
    table["gpus"] = table["gpus"].astype(np.int64)
    table["nodes"] = np.nan_to_num(table["nodes"]).astype(np.int64)
    table["exclusive"] = table["exclusive"] == 1.0
    table["more"] = {name: rows[name] for name in _MORE if name in rows}
    log = History(
        **table,
        origin_s=origin_s,
        clock=zone,
        selection="submit",
        complete_from_s=0.0,
        complete_until_s=0.0,
        unit=unit,
        source=Path(path).name,
        sha256=gathered.source.sha256,
        repairs=repairs.repairs,
        evidence=gathered.stated,
    )
    return _complete(log)


def _reader(path: str | Path, format: str, columns: Sequence[str], zone: str) -> JobReader:
    """The reader, which keeps jobs without GPUs where that is an option of it."""
    format = format or (formats[0] if len(formats := sniff(path)) == 1 else "")
    options: dict[str, Any] = {"columns": list(columns)} if columns else {}
    if format in ("sacct", "sacct_json", "pbs"):
        options["cpu_jobs"] = True
    if format == "sacct" and zone != "UTC":  # times of the other formats are seconds since 1970
        options["timezone"] = zone
    reader = reader_for(path, format, options)
    if not isinstance(reader, JobReader):
        known = "swf, sacct, sacct_json, pbs, job_history"
        raise UsageError.at(
            str(path), f"the format {format} is no log of jobs with starts and ends; known: {known}"
        )
    return reader


def _unit_of(columns: Mapping[str, Iterable[Any]]) -> Unit:
    """What jobs hold: GPUs, if most of what is used are nodes with GPUs, and jobs share them; nodes elsewhere.

    A node has as many GPUs as any job has on one; who has fewer on each of its own shares them.
    """
    gpus, nodes, start_s, end_s = (_numbers(columns, name) for name in ("gpus", "nodes", "start_s", "end_s"))
    if not (nodes > 0).any():
        return "GPUs"
    known = (nodes > 0) & np.isfinite(end_s - start_s)
    node_s = np.where(known, nodes * (end_s - start_s), 0.0)
    some = known & (gpus > 0)
    each = np.divide(gpus, nodes, out=np.zeros(len(gpus)), where=some)
    shares = some & (each < each.max(initial=0.0))
    whole_s, theirs_s = float(node_s.sum()), float(node_s[some].sum())
    shared = theirs_s >= _GPU_SHARE * whole_s and float(node_s[shares].sum()) > _SHARED * theirs_s
    return "GPUs" if shared else "nodes"


def _numbers(columns: Mapping[str, Iterable[Any]], name: str) -> F64:
    """A column of numbers; nan where there is none."""
    values = columns.get(name)
    rows = len(list(columns["job_id"])) if values is None else 0
    return np.full(rows, np.nan) if values is None else np.asarray(values, np.float64)


def _cleaned(gathered: Gathered, unit: Unit) -> Rows:
    """The rows that can be used, what is repaired or dropped among them counted."""
    rows = Rows(gathered.source, Complaints(), gathered.lines, {})
    columns = gathered.columns
    for name in ("submit_s", "eligible_s", "start_s", "end_s", "requested_s", "nodes", "gpus", "exclusive"):
        rows[name] = _numbers(columns, name)
    for name in _MORE:
        if np.isfinite(numbers := _numbers(columns, name)).any():
            rows[name] = numbers
    for name in ("job_id", *_NAMES.values()):
        values = columns.get(name)
        rows[name] = np.array([""] * len(rows) if values is None else list(values), TEXT)
    if unit == "nodes" and not gathered.whole:
        rows["gpus"] = rows["nodes"]
    rows.drop(np.isnan(rows["submit_s"]), "job without submission time dropped")
    rows.drop(np.isnan(rows["gpus"]), f"job with unknown {unit} dropped")
    rows.drop(rows["gpus"] <= 0, f"job without {unit} dropped")
    part = rows["gpus"] != np.ceil(rows["gpus"])
    rows.note(part, f"part of one of its {unit} counted whole")
    rows["gpus"] = np.ceil(rows["gpus"])
    gone = left_unstarted(rows["state"].tolist(), rows["start_s"], rows["end_s"])
    never = gone & np.isfinite(rows["start_s"])
    rows.note(never, "job cancelled before it ran, no start")
    rows["end_s"] = np.where(never & np.isnan(rows["end_s"]), rows["start_s"], rows["end_s"])
    rows["start_s"] = np.where(never, np.nan, rows["start_s"])
    rows.drop(rows["end_s"] < rows["start_s"], "job that ends before it starts dropped")
    rows.drop(rows["end_s"] - rows["start_s"] > LONGEST_S, "job longer than ten years dropped")
    early = rows["start_s"] < rows["submit_s"]
    rows.note(early, "start before submission, submission moved to the start")
    rows["submit_s"] = np.where(early, rows["start_s"], rows["submit_s"])
    left = rows["end_s"] < rows["submit_s"]
    rows.drop(left, "job that left the queue before it came dropped")
    late = rows["eligible_s"] > rows["start_s"]
    rows.note(late, "eligible after its start, start taken")
    recorded = bool(np.isfinite(rows["eligible_s"]).any())
    unknown = np.isnan(rows["eligible_s"]) & (np.isfinite(rows["start_s"]) | (not recorded))
    eligible_s = np.where(unknown, rows["submit_s"], np.maximum(rows["eligible_s"], rows["submit_s"]))
    rows["eligible_s"] = np.where(late, rows["start_s"], eligible_s)
    rows["requested_s"] = np.where(rows["requested_s"] > 0, rows["requested_s"], np.nan)
    settle_ids(rows, "suffix")
    if not len(rows):
        raise TraceError.at(
            rows.source.name, "; ".join(["no usable job is left", *rows.source.repairs.lines()])
        )
    return rows


def _complete(log: History, until_s: float | None = None) -> History:
    """The log with when it is complete, as it shows; until_s: until when (default: that, too)."""
    known = complete(Spans(log.start_s, log.end_s, log.gpus), log.submit_s, until_s)
    return replace(
        log,
        selection=known.selection,
        complete_from_s=known.from_s,
        complete_until_s=known.until_s,
        evidence=(*log.evidence, *known.evidence),
    )
