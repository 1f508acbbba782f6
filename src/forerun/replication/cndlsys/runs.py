"""The published loading experiment: its run directories, its tables, and what its arithmetic got wrong.

Source: notebook `sys/plotter-librispeech.ipynb` and `sys/experiments/exp1` of the repository
VUZhuangweiKang/CloudNativeDLSys (CNDLSys, COMSNETS'24). A run directory contains the seconds that each batch was waited
for, the seconds of each step, of each read and of each decode, and the memory of the containers.

`compat` features follow the notebook's formulas; `flags` names where these mislead, with the numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from forerun.core.errors import Problem, TraceError
from forerun.core.regular import read_regular, unreadable
from forerun.core.result.stats import standard_error, student_tail
from forerun.core.trace.rows import Field
from forerun.core.trace.tabular import Rows
from forerun.loading.engine.model import batches_of
from forerun.loading.policy import F64
from forerun.replication.cndlsys.npy import read_numbers, read_records

BATCH: Final = 512
#: what we write in place of the experiment's object array of memory
OWN_MEMORY: Final = "memory.csv"
WORKERS: Final = 8
PREFETCH: Final = 2
APPROACHES: Final = ("baseline1", "baseline2", "ours")
#: an approach whose runs have no number: `baseline2/{dataset}/{place}/...`
UNNUMBERED: Final = "baseline2"


@dataclass(frozen=True)
class Series:
    """A long series, by its summary.

    Parameters
    ----------
    records : how many records it has.
    mean_s : their mean [s].
    """

    records: int
    mean_s: float


@dataclass(frozen=True)
class Recorded:
    """One run directory.

    Parameters
    ----------
    folder : the directory.
    approach : `baseline1`, `baseline2` or `ours`.
    dataset : name of the data set.
    run : name of the run; "." for `baseline2`, whose runs have none.
    place : `remote` or `local`, where the data is read from.
    sleep_s : the compute time that the loop sleeps for [s].
    threads, block : as the directory says; both 1 where it gives none.
    load_s : float64[N], waits for batches [s].
    compute_s : float64[N - 1], steps with the loop's overhead [s].
    io : reads, one record a file (unmerged) or a block (merged).
    processing : decodes, one record a sample.
    memory : polls of the bytes that each container uses.
    published : whether the experiment wrote it, and not a run of ours.
    """

    folder: Path
    approach: str
    dataset: str
    run: str
    place: str
    sleep_s: float
    threads: int
    block: int
    load_s: F64
    compute_s: F64
    io: Series
    processing: Series
    memory: tuple[Mapping[str, int], ...]
    published: bool = True

    @property
    def batch(self) -> float:
        """Samples a batch: of the experiment's own runs 512; of others, which took every sample, the mean."""
        return BATCH if self.published else self.processing.records / len(self.load_s)

    @property
    def throughput(self) -> float:
        """Samples a second, as the notebook computes them."""
        return self.batch / self.completion_s

    @property
    def merged(self) -> bool:
        """Whether blocks were really read: fewer reads than samples."""
        return self.io.records < self.processing.records

    @property
    def completion_s(self) -> float:
        """Mean wait plus mean step [s]."""
        return float(self.load_s.mean() + self.compute_s.mean())

    @property
    def steady_stall(self) -> float:
        """Waits after the workers' first batches, as a share of the whole run."""
        return float(self.load_s[WORKERS:].sum() / (self.load_s.sum() + self.compute_s.sum()))

    @property
    def memory_mib(self) -> float:
        """0.9-quantile of the containers' summed memory [MiB], over the polls that saw at least two containers."""
        sums = [sum(row.values()) for row in self.memory if len(row) >= 2]
        return float(np.quantile(sums, 0.9)) / 2**20 if sums else math.nan


def read_run(
    folder: Path, *, long_series: Mapping[tuple[str, str, float], tuple[Series, Series]] | None = None
) -> Recorded:
    """One run directory `.../{approach}/{dataset}/{run}/{place}/sim_compute_time=X[-block_size=Y]`.

    Runs of `baseline2` have no folder of their number.

    Parameters
    ----------
    folder : the directory.
    long_series : counts and means of the reads and decodes, by (approach, run, sleep), where the series are absent
        (default: none).

    Raises
    ------
    TraceError : a file is missing or wrong; the message names file and problem.
    """
    if not folder.is_dir():
        raise TraceError.at(folder, "no such run directory")
    sleep_s, named_block = _setting(folder)
    approach, dataset, run, place = _place_of(folder)
    threads, block = _configured(folder / "opt_config", named_block)
    load, compute = _present(folder / "data_load_time.npy"), _present(folder / "compute_time.npy")
    if len(compute) != len(load) - 1:
        raise TraceError.at(
            folder / "compute_time.npy",
            f"{len(compute)} steps for {len(load)} batches; one less than batches is expected",
        )
    if np.any(load < 0) or np.any(compute < 0):
        raise TraceError.at(folder, "a wait or a step is negative")
    known = (long_series or {}).get((approach, run, sleep_s))
    io = _series(folder / "io_time.npy", known and known[0])
    processing = _series(folder / "processing_time.npy", known and known[1])
    if io.records > processing.records:
        raise TraceError.at(folder, f"{io.records} reads for {processing.records} samples")
    rows = _memory(folder)
    return Recorded(
        folder, approach, dataset, run, place, sleep_s, threads, block, load, compute, io, processing, rows,
        published=not (folder / OWN_MEMORY).exists(),
    )  # fmt: skip


def _place_of(folder: Path) -> tuple[str, str, str, str]:
    """Approach, dataset, run and place, from the folders above."""
    above = folder.parts[:-1]
    if len(above) >= 3 and above[-3] == UNNUMBERED:
        return UNNUMBERED, above[-2], ".", above[-1]
    if len(above) < 4:
        return "", "", "", ""
    approach, dataset, run, place = above[-4:]
    return approach, dataset, run, place


def _memory(folder: Path) -> tuple[Mapping[str, int], ...]:
    """Polls of the memory: the experiment's object array, or the table of numbers that we write in its place."""
    records, table = folder / "memory.npy", folder / OWN_MEMORY
    if records.exists():
        return tuple(read_records(records))
    if not table.exists():
        return ()
    head, *lines = _bytes(table).decode("utf-8", "replace").splitlines() or [""]
    names, rows = head.split(","), []
    for number, line in enumerate(lines, start=2):
        values = line.split(",")
        if len(values) != len(names) or not all(re.fullmatch(r"[0-9]{1,18}", value) for value in values):
            raise TraceError.at(
                f"{table}:{number}", f"{line[:40]!r} is not {len(names)} whole numbers of bytes"
            )
        rows.append(dict(zip(names, map(int, values))))
    return tuple(rows)


def _bytes(path: Path) -> bytes:
    """The content of a file. Raises TraceError where it cannot be read."""
    try:
        return read_regular(path)
    except OSError as error:
        raise TraceError.at(path, unreadable(error)) from error


def _setting(folder: Path) -> tuple[float, int]:
    """Compute time [s] and samples a block, from the name of a run directory. Raises TraceError for other names."""
    match = re.fullmatch(r"sim_compute_time=(\d+(?:\.\d+)?)(?:-block_size=(\d+))?", folder.name)
    if match is None:
        raise TraceError.at(folder, "is not named sim_compute_time=SECONDS[-block_size=SAMPLES]")
    return float(match[1]), int(match[2] or 1)


def _configured(path: Path, named_block: int) -> tuple[int, int]:
    """Threads and samples a block from `opt_config`; one thread and the block of the directory's name without that file."""
    if not path.exists():
        return 1, named_block
    raw = _bytes(path)
    match = re.fullmatch(rb"(?:\xef\xbb\xbf)?(\d{1,6}),(\d{1,6})\r?\n?", raw)
    if match is None or not int(match[1]) or not int(match[2]):
        raise TraceError.at(
            path, f"is {raw[:40]!r}; one line `threads,block` of two whole numbers is expected"
        )
    return int(match[1]), int(match[2])


def _present(path: Path) -> F64:
    """The numbers of a series that must be there. Raises TraceError where it is missing or empty."""
    if not path.exists():
        raise TraceError.at(path, "is missing")
    values = read_numbers(path)
    if not len(values):
        raise TraceError.at(path, "contains no values")
    return values


def _series(path: Path, known: Series | None) -> Series:
    """Count and mean of a series, from its file or else as known. Raises TraceError where there is neither."""
    if path.exists():
        values = read_numbers(path)
        return Series(len(values), float(values.mean()) if len(values) else math.nan)
    if known is None:
        raise TraceError.at(path, "is missing, and no table of its mean is beside the experiment")
    return known


def _directories(folder: Path) -> list[tuple[str, str, Path]]:
    """Dataset, place and path of every run directory below a folder, sorted by path."""
    directories = []
    for approach in APPROACHES:
        levels = "*/*/*" if approach == UNNUMBERED else "*/*/*/*"
        for path in folder.glob(f"{approach}/{levels}"):
            if path.is_dir():
                directories.append((path.relative_to(folder).parts[1], path.parent.name, path))
    return sorted(directories, key=lambda entry: entry[2])


def read_experiment(folder: Path, *, dataset: str = "", place: str = "") -> tuple[Recorded, ...]:
    """All run directories `{approach}/{dataset}/{run}/{place}/...` below a folder, sorted; of one dataset and place.

    Means of absent long series are taken from `exp1_long_series_means.csv` beside the folder.

    Parameters
    ----------
    folder : the experiment's.
    dataset, place : which, where the folder contains several (default: there is only one of each).

    Raises
    ------
    TraceError : every directory that cannot be read, or what there is to choose from.
    """
    beside = folder.parent / "exp1_long_series_means.csv"
    known = read_long_series(beside) if beside.exists() else {}
    every = _directories(folder)
    there = sorted({(data, where) for data, where, _ in every})
    matches = [(data, where) for data, where in there if dataset in ("", data) and place in ("", where)]
    if len(matches) != 1:
        there_are = ", ".join(f"{data} {where}" for data, where in there) or "no run directories"
        asked = " ".join(filter(None, (dataset, place)))
        raise TraceError.at(
            folder,
            f"contains {there_are}; {'name one dataset and place' if matches else 'no runs of ' + (asked or 'anything')}",
        )
    runs: list[Recorded] = []
    problems: list[Problem] = []
    seen: dict[tuple[str, str, float, int], Path] = {}
    for path in (path for data, where, path in every if (data, where) == matches[0]):
        try:
            run = read_run(path, long_series=known)
        except TraceError as error:
            problems.extend(error.problems)
            continue
        key = (run.approach, run.run, run.sleep_s, run.block if run.approach == UNNUMBERED else 0)
        if key in seen:
            problems.append(Problem(str(path), f"repeats the run in {seen[key]}"))
        seen[key] = path
        runs.append(run)
    if problems:
        raise TraceError(*problems)
    return tuple(runs)


_LONG_SERIES: Final = (
    Field(name="kind", kind="text"),
    Field(name="run", kind="text"),
    Field(name="sleep_s", column="sim_compute_time", minimum=0),
    Field(name="io_records", kind="int", minimum=1),
    Field(name="io_mean_s", minimum=0),
    Field(name="processing_records", kind="int", minimum=1),
    Field(name="processing_mean_s", minimum=0),
    Field(name="included", column="series_included", kind="int"),
)


def read_long_series(path: Path) -> dict[tuple[str, str, float], tuple[Series, Series]]:
    """Counts and means of the series of reads and decodes, by (approach, run, sleep).

    Parameters
    ----------
    path : a CSV with one row a run.

    Raises
    ------
    TraceError : a row is wrong.
    """
    rows = Rows.of_file(path, _LONG_SERIES, None)
    columns = [rows[field.name].tolist() for field in _LONG_SERIES[:-1]]
    return {
        (approach, run, sleep_s): (Series(reads, read_s), Series(decodes, decode_s))
        for approach, run, sleep_s, reads, read_s, decodes, decode_s in zip(*columns)
    }


@dataclass(frozen=True)
class Features:
    """One row of a published table: the notebook's own columns.

    Parameters
    ----------
    sleep_s : the compute time that the loop sleeps for [s].
    threads, block : decoding threads a worker, and samples of a block.
    io_s : time to read a sample [s].
    processing_s : mean record of the decodes less `io_s` [s], as the notebook has it.
    load_s : mean wait for a batch [s].
    compute_s : mean step [s].
    completion_s : mean wait plus mean step [s].
    memory_mib : memory of the containers [MiB].
    throughput : samples a batch, 512 of published runs, over the completion [samples/s].
    batches : batches taken.
    """

    sleep_s: float
    threads: float
    block: float
    io_s: float
    processing_s: float
    load_s: float
    compute_s: float
    completion_s: float
    memory_mib: float
    throughput: float
    batches: float


def features(run: Recorded) -> Features:
    """A run's row as the notebook computes it."""
    io = run.io.mean_s / run.block
    load, compute = float(run.load_s.mean()), float(run.compute_s.mean())
    return Features(
        sleep_s=run.sleep_s,
        threads=run.threads,
        block=run.block,
        io_s=io,
        processing_s=run.processing.mean_s - io,
        load_s=load,
        compute_s=compute,
        completion_s=load + compute,
        memory_mib=run.memory_mib,
        throughput=run.throughput,
        batches=len(run.load_s),
    )


def table(runs: Iterable[Recorded], approach: str) -> tuple[Features, ...]:
    """A published table: per sleep, the mean over runs of each column; of several rows a run the quickest counts.

    Parameters
    ----------
    runs : of any approach.
    approach : the one whose table it is.
    """
    best: dict[tuple[float, str], Features] = {}
    for run in runs:
        if run.approach == approach:
            row = features(run)
            key = (run.sleep_s, run.run)
            if key not in best or row.completion_s < best[key].completion_s:
                best[key] = row
    names = Features.__dataclass_fields__
    return tuple(
        Features(**{
            name: float(np.mean([getattr(row, name) for (at, _), row in best.items() if at == sleep]))
            for name in names
        })
        for sleep in sorted({sleep for sleep, _ in best})
    )  # fmt: skip


@dataclass(frozen=True)
class Improvement:
    """Gain of `ours` over no merging at one compute time.

    Parameters
    ----------
    sleep_s : the compute time that the loop sleeps for [s].
    percent : gain in throughput [percent of the unmerged mean].
    error_points : standard error of the difference of the two means [the same percent].
    welch_p : two-sided p of equal means (Welch's test).
    merged_runs : how many of the `runs` really read blocks.
    runs : runs of `ours`.
    """

    sleep_s: float
    percent: float
    error_points: float
    welch_p: float
    merged_runs: int
    runs: int

    @property
    def evident(self) -> bool:
        """Whether the gain is twice its standard error and every run was merged."""
        return abs(self.percent) >= 2 * self.error_points and self.merged_runs == self.runs

    @property
    def significant(self) -> bool:
        """Whether Welch's test says so, too."""
        return self.evident and self.welch_p < 0.05


def improvements(runs: Sequence[Recorded]) -> tuple[Improvement, ...]:
    """The improvement column: from the means of the runs' throughputs, with what the runs can support.

    Parameters
    ----------
    runs : of both approaches; compute times with fewer than two runs of either have no row.
    """
    gains = []
    for sleep in sorted({run.sleep_s for run in runs}):
        base = np.array([r.throughput for r in runs if (r.approach, r.sleep_s) == ("baseline1", sleep)])
        mine = [r for r in runs if (r.approach, r.sleep_s) == ("ours", sleep)]
        ours = np.array([r.throughput for r in mine])
        if len(base) < 2 or len(ours) < 2:
            continue
        error_base, error_ours = standard_error(base), standard_error(ours)
        gains.append(
            Improvement(
                sleep_s=sleep,
                percent=float(100 * (ours.mean() - base.mean()) / base.mean()),
                error_points=float(100 * math.hypot(error_ours, error_base) / base.mean()),
                welch_p=welch_p(base, ours),
                merged_runs=sum(run.merged for run in mine),
                runs=len(mine),
            )
        )
    return tuple(gains)


@dataclass(frozen=True)
class Flag:
    """A known bug of the published arithmetic or records.

    Parameters
    ----------
    id : F1 ... F9.
    name : a short name.
    where : the run directory or compute time.
    what : the numbers.
    """

    id: str
    name: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.id} {self.name}: {self.where}: {self.what}"


def flags(runs: Sequence[Recorded]) -> tuple[Flag, ...]:
    """Every known bug that these runs have, with its numbers.

    Parameters
    ----------
    runs : of one data set and place.
    """
    raised: list[Flag] = []
    for run in runs:
        raised.extend(_run_flags(run))
    for gain in improvements(runs):
        if not gain.evident:
            raised.append(
                Flag("F7", "no-evidence", f"compute {gain.sleep_s:g} s",
                     f"gain {gain.percent:.2f} %, standard error {gain.error_points:.2f} points, "
                     f"{gain.merged_runs} of {gain.runs} runs merged")
            )  # fmt: skip
    for sleep in sorted({run.sleep_s for run in runs}):
        configurations = sorted(
            {(r.threads, r.block) for r in runs if r.approach == "ours" and r.sleep_s == sleep}
        )
        if len(configurations) > 1:
            shown = ", ".join(f"{threads} threads × {block}" for threads, block in configurations)
            raised.append(Flag("F6", "mixed-configurations", f"compute {sleep:g} s", f"a mean over {shown}"))
    return tuple(raised)


def _run_flags(run: Recorded) -> list[Flag]:
    """The known bugs of one run: F1 to F5, F8 and F9."""
    where = "/".join(run.folder.parts[-5:])
    raised = []

    def flag(number: int, name: str, what: str) -> None:
        raised.append(Flag(f"F{number}", name, where, what))

    samples = run.processing.records
    if not run.merged:
        decode, io = run.processing.mean_s, run.io.mean_s
        flag(
            1,
            "io-subtracted-twice",
            f"a sample takes {1e3 * (io + decode):.2f} ms, not {1e3 * decode:.2f}: decoding does not contain the read",
        )
    else:
        flag(1, "io-subtracted-twice", "processing of a merged run is a wait for the pool, not work")
    if run.block > 1 and not run.merged:
        flag(
            2,
            "config-contradicts-records",
            f"opt_config says blocks of {run.block}, {run.io.records} reads of {samples} samples say unmerged",
        )
    built = len(batches_of(samples, BATCH, WORKERS, "contiguous", take_all=True))
    if run.published and (built != len(run.load_s) or samples % BATCH):
        flag(
            3,
            "partial-batches",
            f"{built} batches are built of {samples} samples, {len(run.load_s)} are taken; {BATCH}/completion overstates",
        )
    flag(4, "last-step-missing", f"{len(run.compute_s)} steps for {len(run.load_s)} batches")
    flag(
        5,
        "start-up-in-mean",
        f"the first batch ({run.load_s[0]:.2f} s) is {run.load_s[0] / len(run.load_s):.3f} s of the mean wait",
    )
    dropped = sum(len(row) < 2 for row in run.memory)
    if dropped:
        flag(8, "memory-rows-dropped", f"{dropped} of {len(run.memory)} polls saw fewer than two containers")
    if run.steady_stall < 0.01:
        flag(9, "stall-test-unreliable", f"steady stall is {100 * run.steady_stall:.2f} % of the run")
    return raised  # fmt: skip


def welch_p(one: F64, other: F64) -> float:
    """Two-sided p value of Welch's test that two independent samples, of unequal spread, have equal means."""
    var_one, var_other = one.var(ddof=1) / len(one), other.var(ddof=1) / len(other)
    if var_one + var_other == 0:
        return 1.0 if one.mean() == other.mean() else 0.0
    t = abs(float(one.mean() - other.mean())) / math.sqrt(var_one + var_other)
    degrees = float(
        (var_one + var_other) ** 2 / (var_one**2 / (len(one) - 1) + var_other**2 / (len(other) - 1))
    )
    return 2 * student_tail(t, degrees)
