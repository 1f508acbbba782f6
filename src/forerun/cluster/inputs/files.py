"""Our own file formats: cluster specification, job log, throughput tables.

Every reader reports all problems of a file at once, each with its line and field. Repairs that keep the meaning
(unsorted rows, a deadline that cannot be met) are counted in notes; nothing else is changed silently.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.cluster.inputs.arrays import (
    I64,
    NO_DEADLINE_S,
    NO_REQUEST_S,
    Cluster,
    JobLabels,
    Jobs,
    NodeGroup,
    ThroughputTable,
)
from forerun.cluster.readers.cluster_jobs import NO_DEADLINE, NOT_GIVEN, job_name, job_rows
from forerun.cluster.summary.past import Recorded
from forerun.core.errors import Problem, ProfileError, ScenarioError, TraceError, known_names
from forerun.core.regular import read_regular, unreadable
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.source import Source

#: columns of which the labels of jobs are made
LABELS: Final = (
    "submit_s", "eligible_s", "account", "qos", "nice", "site_factor", "nodes", "asked_nodes", "gpu_type",
    "exclusive", "array", "cpus", "memory_bytes", "after", "after_delay_s", "attempt", "asked_gpus", "gpus",
    "billing",
)  # fmt: skip
#: those of them that labels have as they are
_TEXTS: Final = ("account", "qos", "gpu_type", "array", "after")
_NUMBERS: Final = (
    "nice", "site_factor", "nodes", "exclusive", "cpus", "memory_bytes", "after_delay_s", "attempt", "asked_gpus",
)  # fmt: skip
_SPEC_FIELDS: Final = ("num_switch", "num_node_p_switch", "num_gpu_p_node", "num_cpu_p_node", "mem_p_node")


@dataclass(frozen=True, slots=True)
class JobTable:
    """A job log before it meets a profile, in the order of the file.

    Parameters
    ----------
    source : name of the file, or how the jobs were made.
    jobs : the jobs; their `user` is the virtual cluster where the log names no user.
    vc : virtual cluster or partition of each job (default: none).
    priority : of each job, larger goes first, nan where it has none (default: not recorded).
    line : line of the file of each job (default: as in a file with a header).
    read_as : the reader of a foreign log (default: not foreign).
    most_held : the most GPUs in use at once (default 0: not recorded).
    origin_s : instant 0 in seconds since 1970, on the clock of the log (default: the log has no calendar).
    recorded : what happened to the jobs (default: the log does not say).
    resampled : of another log that this one is drawn from, its blocks and the GPUs that its jobs ask for in the mean over
        its time (default: not drawn from another).
    """

    source: str
    jobs: Jobs
    vc: tuple[str, ...] = ()
    priority: tuple[float, ...] = ()
    line: tuple[int, ...] = ()
    read_as: str = ""
    most_held: float = 0.0
    origin_s: float | None = None
    recorded: Recorded | None = None
    resampled: tuple[int, float] | None = None

    def __len__(self) -> int:
        return len(self.jobs)

    def place(self, row: int) -> str:
        """File and line of a row of the file."""
        return f"{self.source}:{self.line[row] if self.line else row + 2}"

    def take(self, rows: Sequence[int] | I64) -> JobTable:
        """The rows of a table as a table of its own."""
        jobs = replace(self.jobs.take(rows), file_row=np.arange(len(rows)))
        vc = tuple(self.vc[row] for row in rows) if self.vc else ()
        priority = tuple(self.priority[row] for row in rows) if self.priority else ()
        line = tuple(self.line[row] for row in rows) if self.line else ()
        recorded = self.recorded and self.recorded.take(rows)
        return replace(self, jobs=jobs, vc=vc, priority=priority, line=line, recorded=recorded)


def read_cluster(path: Path, gpu_type: str = "") -> Cluster:
    """The cluster of a specification file: `.csv` with commas, `.txt` with spaces; one row of whole numbers.

    GPUs are the product of the first three; processors and memory are read and never bind.
    """
    rows = read_rows(path, ScenarioError, delimiter=" " if path.suffix == ".txt" else ",")
    if len(rows) < 2:
        raise ScenarioError.at(
            path.name, f"contains no cluster; one row under {','.join(_SPEC_FIELDS)} is expected"
        )
    header = [name.strip() for name in rows[0][1]]
    missing = [name for name in _SPEC_FIELDS[:3] if name not in header]
    if missing:
        raise ScenarioError.at(
            f"{path.name}:1", f"misses {', '.join(missing)}; the header is {','.join(_SPEC_FIELDS)}"
        )
    if len(rows) > 2:
        raise ScenarioError.at(f"{path.name}:{rows[2][0]}", "has a second cluster; one row is expected")
    line, cells = rows[1]
    problems: list[Problem] = []
    sizes = {}
    for name, cell in zip(header, cells, strict=False):
        sizes[name] = _integer(
            cell, f"{path.name}:{line}", name, problems, least=0 if name.startswith(("mem", "num_cpu")) else 1
        )
    if len(cells) < len(header):
        problems.append(Problem(f"{path.name}:{line}", f"has {len(cells)} of {len(header)} fields"))
    if problems:
        raise ScenarioError(*problems)
    return Cluster.uniform(sizes["num_switch"], sizes["num_node_p_switch"], sizes["num_gpu_p_node"], gpu_type)


def cluster_of(groups: Iterable[NodeGroup]) -> Cluster:
    """A cluster of named groups of nodes; racks count as switches."""
    listed = tuple(groups)
    racks = {group.rack or group.name for group in listed}
    return Cluster(listed, max(1, len(racks)))


def read_jobs(path: Path, notes: RepairLog | None = None) -> JobTable:
    """The jobs of a log with one of the four published headers (or ours), in the order of the file.

    Whole seconds since the collection began; deadlines absolute; `best_effort` 1 takes the deadline away. Ids made of
    digits become numbers. Columns for model, iterations, batch and deadline may be absent or empty: such jobs run rigid
    for their duration and have no deadline. Reads as the trace format `cluster_jobs` does.
    """
    notes = RepairLog() if notes is None else notes
    rows = job_rows(Source(path, repairs=notes, name=path.name))
    count, columns = len(rows), rows.columns
    nothing, unnamed = np.zeros(count, np.int64), ("",) * count
    written_s = columns.get("deadline_s", np.full(count, NO_DEADLINE))
    limit_s = columns.get("requested_s", np.full(count, NOT_GIVEN))
    users, vcs = (tuple(columns[name].tolist()) if name in columns else unnamed for name in ("user", "vc"))
    jobs = Jobs.of(
        columns["submit_s"],
        columns["gpus"],
        columns["duration_s"],
        id=tuple(map(job_name, columns["job_id"].tolist())),
        iterations=columns.get("iterations", nothing),
        model=tuple(columns["model"].tolist()) if "model" in columns else unnamed,
        batch=columns.get("batch", nothing),
        deadline_s=np.where(written_s == NO_DEADLINE, NO_DEADLINE_S, written_s),
        best_effort=columns.get("best_effort", nothing),
        user=users if any(users) else vcs,
        requested_s=np.where(limit_s == NOT_GIVEN, NO_REQUEST_S, limit_s),
        labels=labels_of(columns, vcs),
    )
    priority = tuple(columns["priority"].tolist()) if "priority" in columns else ()
    return JobTable(path.name, jobs, vcs, priority, tuple(rows.lines.tolist()))


def labels_of(columns: Mapping[str, npt.NDArray[Any]], partition: tuple[str, ...]) -> JobLabels | None:
    """The labels that the columns of a log have; None if it has none. partition: of each job, empty: not recorded."""
    names, numbers = ([name for name in known if name in columns] for known in (_TEXTS, _NUMBERS))
    if not (names or numbers or "eligible_s" in columns or any(partition)):
        return None
    given: dict[str, Any] = {name: tuple(columns[name].tolist()) for name in names}
    given |= {name: np.nan_to_num(np.asarray(columns[name], np.float64), nan=0.0) for name in numbers}
    if "billing" in columns:  # who has none in a log that has it is charged as others are
        billing, gpus = (np.asarray(columns[name], np.float64) for name in ("billing", "gpus"))
        known = np.isfinite(billing)
        given["billing"] = np.where(known, billing, gpus * (billing[known].sum() / gpus[known].sum()))
    if "asked_nodes" in columns and "nodes" in columns:  # who got more asked for GPUs, wherever they are
        given["nodes"] = np.where(columns["asked_nodes"] < columns["nodes"], 0.0, given["nodes"])
    if "eligible_s" in columns:
        eligible_s = np.asarray(columns["eligible_s"], np.float64)
        after_s = eligible_s - np.asarray(columns["submit_s"], np.float64)
        known = (after_s > 0) & (eligible_s < NOT_GIVEN)
        given["eligible_after_s"] = np.ceil(np.where(known, after_s, 0.0)).astype(np.int64)
    return JobLabels.of(len(columns["submit_s"]), partition=partition, **given)


def jobs_of(table: JobTable, profile: ThroughputTable | None, notes: RepairLog | None = None) -> Jobs:
    """The jobs of a log, sorted stably by submission, each tied to its row of the profile.

    A job that became eligible later comes then: before, no policy may start it. Raises TraceError for a model or batch that
    the profile does not know. Jobs without a model stay rigid.
    """
    notes = RepairLog() if notes is None else notes
    problems: list[Problem] = []
    kinds = {kind: row for row, kind in enumerate(profile.kinds)} if profile else {}
    jobs = table.jobs
    kind = np.full(len(jobs), -1, np.int64)
    for row, (model, batch) in enumerate(zip(jobs.model, jobs.batch.tolist(), strict=True)):
        if not model or profile is None:
            continue
        if (model, batch) in kinds:
            kind[row] = kinds[model, batch]
        else:
            problems.append(Problem(table.place(row), _unknown_kind(model, batch, kinds)))
    if problems:
        raise TraceError(*problems)
    early = np.flatnonzero(np.diff(jobs.submit_s) < 0)
    if len(early):
        notes.note("rows out of order (sorted by submission)", table.place(int(early[0]) + 1))
    if jobs.labels is not None:
        jobs = replace(jobs, submit_s=jobs.submit_s + jobs.labels.eligible_after_s)
    return replace(jobs, kind=kind).take(np.argsort(jobs.submit_s, kind="stable"))


def _unknown_kind(model: str, batch: int, kinds: Mapping[tuple[str, int], int]) -> str:
    """Why a model and batch have no throughput, with what is known."""
    models = sorted({name for name, _ in kinds})
    if model not in models:
        return f"model {model!r} has no throughput; {known_names(model, models)}"
    if not batch:
        return f"has a model, {model}, and no batch size, which its throughput depends on"
    batches = ", ".join(str(known) for name, known in sorted(kinds) if name == model)
    return f"batch_size {batch} of {model} has no throughput; measured: {batches}"


def read_profile(folder: Path, gpu_type: str) -> ThroughputTable:
    """The throughput tables of a folder, one `<model>.csv` a model: `global_batch_size,1,2,4,...`, iterations/s.

    `nan` and empty cells are counts that were not measured, 0 is a count the job cannot run on. All tables share their
    columns; a column that one lacks counts as not measured there.
    """
    files = sorted(folder.glob("*.csv"))
    if not files:
        raise ProfileError.at(folder.name, "contains no <model>.csv with throughput")
    return read_tables(files, gpu_type, folder.name)


def read_tables(files: Sequence[Path], gpu_type: str, name: str = "") -> ThroughputTable:
    """The throughput tables of some files, one a model.

    Raises ProfileError with everything that is wrong with them.

    Parameters
    ----------
    files : the tables; each is named after its model.
    gpu_type : of the GPUs measured.
    name : what to call the source (default: the GPU type).
    """
    problems: list[Problem] = []
    tables = [_throughput(path, problems) for path in files]
    if problems:
        raise ProfileError(*problems)
    levels = sorted({level for _, table in tables for cells in table.values() for level in cells})
    kinds, rates, largest = [], [], []
    for model, table in tables:
        for batch, cells in table.items():
            kinds.append((model, batch))
            rates.append([_rate(cells.get(level, "nan")) for level in levels])
            present = [level for level, cell in cells.items() if cell.lower() != "nan"]
            largest.append(min(max(present, default=0), 64))
    return ThroughputTable(
        gpu_type=gpu_type,
        kinds=tuple(kinds),
        levels=np.array(levels, np.int64),
        rate=np.array(rates, np.float64),
        largest_column=np.array(largest, np.int64),
        source=f"measured ({label})" if (label := name or gpu_type) else "measured",
    )


def _throughput(path: Path, problems: list[Problem]) -> tuple[str, dict[int, dict[int, str]]]:
    """A model's table: cells by batch and GPU count, as written. Problems are added to `problems`."""
    rows = read_rows(path, ProfileError)
    if not rows or [cell.strip() for cell in rows[0][1]][:1] != ["global_batch_size"]:
        raise ProfileError.at(
            f"{path.name}:1", "the header starts with global_batch_size, then one GPU count a column"
        )
    header = rows[0][1][1:]
    levels = [_integer(cell, f"{path.name}:1", "GPU count", problems, least=1) for cell in header]
    if levels != sorted(set(levels)):
        problems.append(Problem(f"{path.name}:1", "GPU counts are not ascending"))
    table: dict[int, dict[int, str]] = {}
    for line, cells in rows[1:]:
        where = f"{path.name}:{line}"
        batch = _integer(cells[0], where, "global_batch_size", problems, least=1)
        if len(cells) > len(header) + 1:
            problems.append(Problem(where, f"has {len(cells)} fields, the header has {len(header) + 1}"))
        values = dict(zip(levels, (cell.strip() for cell in cells[1:]), strict=False))
        for level, cell in values.items():
            if (fault := _rate_fault(cell)) is not None:
                problems.append(Problem(where, f"throughput at {level} GPUs {fault}"))
        if batch in table:
            problems.append(Problem(where, f"global_batch_size {batch} appears twice"))
        table[batch] = values
    return path.stem, table


def _rate(cell: str) -> float:
    return float(cell) if cell and cell.lower() != "nan" else math.nan


def _rate_fault(cell: str) -> str | None:
    try:
        value = _rate(cell)
    except ValueError:
        return f"is {cell!r}, a number, nan or nothing is expected"
    if value < 0 or math.isinf(value):
        return f"is {cell}, a finite number not below 0 is expected"
    return None


def _integer(cell: str, where: str, name: str, problems: list[Problem], *, least: int) -> int:
    """A cell as a whole number; what is wrong with it is added to `problems`, and a harmless number returned."""
    text = cell.strip()
    try:
        value = int(text)
    except ValueError:
        problems.append(Problem(where, f"{name} is {text!r}, {_integer_hint(text)}"))
        return max(least, 1)
    if value < least or value >= 1 << 53:
        problems.append(Problem(where, f"{name} is {value}, a whole number from {least} is expected"))
        return max(least, 1)
    return value


def _integer_hint(text: str) -> str:
    if not text:
        return "a whole number is expected (the field is empty)"
    if "," in text:
        return "a whole number is expected (decimal commas and thousands separators are not read)"
    try:
        float(text)
    except ValueError:
        return "a whole number is expected"
    return "a whole number is expected, not a fraction"


def read_rows(
    path: Path, error: type[TraceError] | type[ProfileError] | type[ScenarioError], delimiter: str = ","
) -> list[tuple[int, list[str]]]:
    """The non-empty rows of a text file with their line numbers; any of UTF-8, with mark, or UTF-16.

    Raises `error` for a file that cannot be read as such a table.
    """
    try:
        data = read_regular(path)
    except OSError as fault:
        raise error.at(str(path), unreadable(fault)) from fault
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        raise error.at(
            f"{path.name}:{line}", f"is no {encoding.upper()} text: {fault.reason} at byte {fault.start}"
        ) from fault
    if ";" in text.split("\n", 1)[0] and "," not in text.split("\n", 1)[0]:
        raise error.at(f"{path.name}:1", "separates fields by semicolons; commas are expected")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=delimiter == " ")
    try:
        return [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as fault:
        raise error.at(f"{path.name}:{reader.line_num}", f"is no table: {fault}") from None
