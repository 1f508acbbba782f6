"""Slurm's accounting, as `sacct` prints it: parsable text or JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from forerun.errors import TraceError
from forerun.trace.jobs import ABSENT, JobRows, hours_minutes, job_trace
from forerun.trace.reader import Head, TraceReader
from forerun.trace.repair import Complaints, RepairLog, shown
from forerun.trace.rows import Field, json_number, parse_instant, read_json
from forerun.trace.source import Source
from forerun.trace.table import Trace

#: the command whose output this reader wants; its last column may hold anything, so `|` in job names is harmless, and UTC
#: has no hour that a change of daylight saving time repeats or leaves out
SACCT_COMMAND: Final = (
    "TZ=UTC sacct --parsable2 -a -X --format=JobID,User,Partition,Submit,Start,End,State,ElapsedRaw,AllocTRES,ReqTRES,"
    "Timelimit,NNodes,JobName"
)
_NEEDED: Final = ("JobID", "Submit", "State")
#: where GPUs stand
_TRES_COLUMNS: Final = ("AllocTRES", "ReqTRES")
_TRES: Final = re.compile(r"(?:^|,)gres/([^:=,]+)(?::([^=,]+))?=([0-9]+)(?=,|$)")
#: a slice of a GPU among the types of GPUs, such as `nvidia_a100_1g.5gb`
_MIG: Final = re.compile(r"(?<![0-9A-Za-z])[0-9]g\.[0-9]+gb")
#: counts beyond all clusters: digits without end fit neither an int64 nor a float
_LONG: Final = re.compile(r"(?:^|,)gres/[^=,]+=([0-9]{10,})(?=,|$)")
#: parts of GPUs that are no type of GPU
_PARTS: Final = ("shard", "mps")
_SLICES: Final = "slices of GPUs (MIG) counted as whole GPUs"
_ONLY_PARTS: Final = (
    "job with shares of a GPU only (shard, mps) dropped: how many make a GPU is not in the log"
)
_ONLY_GRES: Final = (
    "job with GPUs in ReqGRES or AllocGRES only dropped: GPUs are read from AllocTRES and ReqTRES, which have them where "
    "Slurm has AccountingStorageTRES=gres/gpu"
)
_ARRAY_RANGE: Final = re.compile(r"[0-9]+_\[.*")
_STEP: Final = re.compile(r"[^.]+\.(?:batch|extern|interactive|[0-9]+)")


class Sacct(TraceReader, tag="sacct", frozen=True, kw_only=True):
    """Output of `sacct --parsable2`: a header line, then `|`-separated rows; the command is `SACCT_COMMAND`.

    Job steps and array ranges still pending are dropped, `Unknown` times count as missing, a requeued job (same id
    twice) keeps each run, `CANCELLED by uid` becomes CANCELLED. A run takes its elapsed time, which leaves out what it was
    suspended for and does not change with the clock. GPUs are those allocated, else those asked for; a MIG slice counts
    as a GPU. A time limit is no deadline and is not read as one. Jobs without GPUs are dropped and counted unless
    cpu_jobs, those with shares of a GPU only under a rule of their own.
    """

    cpu_jobs: bool = False

    about: ClassVar[str] = f"Slurm accounting, text: {SACCT_COMMAND}"
    makes: ClassVar[str] = "jobs"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        names = head.lines[0].split("|") if head.lines else []
        return len(names) > 1 and "JobID" in names and "Submit" in names

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source, complaints, rows = Source(path, repairs=repairs), Complaints(), JobRows()
        names: list[str] = []
        for number, line in source.lines():
            if not line.strip():
                repairs.note("blank line dropped", source.at(number))
            elif not names:
                names = _header(line, source, number, cpu_jobs=self.cpu_jobs)
            else:
                self._row(number, line, names, source, rows, repairs, complaints)
        complaints.finish()
        if not rows.lines and not len(repairs):
            raise TraceError.at(source.name, "holds no rows of data")
        return job_trace(
            self, source, repairs, rows,
            cpu_jobs=self.cpu_jobs, same_id="suffix", recorded=True, clock="as written, no zone",
        )  # fmt: skip

    def _row(
        self,
        number: int,
        line: str,
        names: list[str],
        source: Source,
        rows: JobRows,
        repairs: RepairLog,
        complaints: Complaints,
    ) -> None:
        cells = line.split("|", len(names) - 1) if names[-1] == "JobName" else line.split("|")
        if len(cells) != len(names):
            complaints.add(source.at(number), f"has {len(cells)} fields, the header has {len(names)}")
            return
        row = dict(zip(names, (cell.strip() for cell in cells), strict=True))
        if not row["JobID"]:
            complaints.add(source.at(number, "JobID"), "is empty")
        elif _STEP.fullmatch(row["JobID"]):
            repairs.note("job step dropped", source.at(number))
        elif _ARRAY_RANGE.fullmatch(row["JobID"]):
            repairs.note("array range that never started dropped", source.at(number))
        else:
            for name in _TRES_COLUMNS:
                if long := _LONG.search(row.get(name, "")):
                    complaints.add(
                        source.at(number, name), f"a count of {len(long[1])} digits is no count of GPUs"
                    )
                    return
            gres = [Gres.of_text(row.get(name, "")) for name in _TRES_COLUMNS]
            old = "gpu" in row.get("ReqGRES", "") + row.get("AllocGRES", "")
            gpus = _gpus(gres, source.at(number), repairs, cpu_jobs=self.cpu_jobs, only_gres=old)
            if np.isnan(gpus):
                return
            times = {
                name: _instant(row.get(name, ""), source, number, name, complaints)
                for name in ("Submit", "Start", "End")
            }
            rows.add(
                number,
                job_id=row["JobID"],
                user=row.get("User", ""),
                vc=row.get("Partition", ""),
                submit_s=times["Submit"],
                start_s=times["Start"],
                end_s=times["End"],
                duration_s=_elapsed(row, times["End"], source, number, complaints),
                gpus=gpus,
                state=row["State"].split(" by ")[0],
            )


def _header(line: str, source: Source, number: int, *, cpu_jobs: bool) -> list[str]:
    names = [name.strip() for name in line.split("|")]
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


def _instant(text: str, source: Source, number: int, name: str, complaints: Complaints) -> float:
    if text in ABSENT:
        return float("nan")
    try:
        return parse_instant(text) / 1e9
    except ValueError as error:
        complaints.add(source.at(number, name), str(error))
        return float("nan")


def _elapsed(row: dict[str, str], end_s: float, source: Source, number: int, complaints: Complaints) -> float:
    """Seconds the job ran, from `ElapsedRaw` or `Elapsed`; nan if neither says, or if it runs still."""
    if np.isnan(end_s):
        return float("nan")
    for name in ("ElapsedRaw", "Elapsed"):
        text = row.get(name, "")
        if text in ABSENT:
            continue
        if re.fullmatch(r"[0-9]{1,12}", text):
            return float(text)
        try:
            return hours_minutes(text).total_seconds()
        except ValueError as error:
            complaints.add(source.at(number, name), str(error))
    return float("nan")


@dataclass(frozen=True, slots=True)
class Gres:
    """What a list of resources says of GPUs: how many, whether slices are among them, and whether there are shares."""

    gpus: float
    slices: bool
    parts: bool

    @classmethod
    def of(cls, listed: Sequence[tuple[str, str, float]]) -> Gres:
        """From resources (name, type, count): the untyped total of GPUs, else the sum of types."""
        gpus = [(kind, count) for name, kind, count in listed if name == "gpu"]
        total = sum(count for kind, count in gpus if not kind) or sum(count for _, count in gpus)
        slices = any(count and _MIG.search(kind) for kind, count in gpus)
        return cls(float(total), slices, any(count and name in _PARTS for name, _, count in listed))

    @classmethod
    def of_text(cls, tres: str) -> Gres:
        """From a list such as `cpu=8,gres/gpu=4,gres/gpu:a100=4`."""
        return cls.of([(name, kind, int(count)) for name, kind, count in _TRES.findall(tres)])


def _gpus(
    gres: Sequence[Gres], where: str, repairs: RepairLog, *, cpu_jobs: bool, only_gres: bool = False
) -> float:
    """The GPUs of the first list that has any; nan where a job is dropped, counted. gres: allocated, then asked for."""
    for one in gres:
        if one.gpus:
            if one.slices:
                repairs.note(_SLICES, where)
            return one.gpus
    for rule, there in ((_ONLY_PARTS, any(one.parts for one in gres)), (_ONLY_GRES, only_gres)):
        if there and not cpu_jobs:
            repairs.note(rule, where)
            return float("nan")
    return 0.0


class SacctJson(TraceReader, tag="sacct_json", frozen=True, kw_only=True):
    """Output of `sacct --json` (data parser of Slurm 21.08 or later): an object with `jobs`.

    Times are seconds since 1970, 0 where unknown; numbers may be wrapped as `{set, infinite, number}`; GPUs come from
    `tres.allocated`, else `tres.requested`. The rules are those of the text format.
    """

    cpu_jobs: bool = False

    about: ClassVar[str] = "Slurm accounting, JSON: sacct -a -X --json"
    makes: ClassVar[str] = "jobs"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        text = "".join(head.lines)
        return text.lstrip().startswith("{") and ('"jobs"' in text or '"meta"' in text or "slurm" in text)

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source, complaints, rows = Source(path, repairs=repairs), Complaints(), JobRows()
        document = read_json(source, limit_bytes=1 << 30)
        jobs = document.get("jobs") if isinstance(document, dict) else None
        if not isinstance(jobs, list):
            raise TraceError.at(
                source.name, 'an object with a list "jobs" is expected, as sacct --json prints it'
            )
        for number, job in enumerate(jobs):
            where = f"{source.name}: job {number}"
            try:
                self._job(number, job, rows, where, repairs)
            except ValueError as error:
                complaints.add(where, str(error))
        complaints.finish()
        return job_trace(
            self, source, repairs, rows, cpu_jobs=self.cpu_jobs, same_id="suffix", recorded=True, clock="UTC"
        )

    def _job(self, number: int, job: Any, rows: JobRows, where: str, repairs: RepairLog) -> None:
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
        instants = {key: _wrapped(times.get(key), f"time.{key}") for key in ("submission", "start", "end")}
        instants = {key: value if value > 0 else float("nan") for key, value in instants.items()}
        tres = job.get("tres") if isinstance(job.get("tres"), dict) else {}
        assert isinstance(tres, dict)
        gpus = _gpus(
            [_listed(tres.get(which)) for which in ("allocated", "requested")],
            where,
            repairs,
            cpu_jobs=self.cpu_jobs,
        )
        if np.isnan(gpus):
            return
        rows.add(
            number + 1,
            job_id=name,
            user=_words(job.get("user"), "user"),
            vc=_words(job.get("partition"), "partition"),
            submit_s=instants["submission"],
            start_s=instants["start"],
            end_s=instants["end"],
            duration_s=_wrapped(times.get("elapsed"), "time.elapsed")
            if instants["end"] > 0
            else float("nan"),
            gpus=gpus,
            state=_state(job.get("state")),
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


def _words(value: Any, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{name} is {shown(value)}, a text is expected")
    return value


def _state(value: Any) -> str:
    """`{"current": ["COMPLETED"]}` or `{"current": "COMPLETED"}` or `"COMPLETED"`."""
    if isinstance(value, dict):
        value = value.get("current")
    if isinstance(value, list):
        value = value[0] if value else None
    return _words(value, "state")


def _listed(listed: Any) -> Gres:
    """What a list of `{type, name, count}` says of GPUs."""
    if listed is None:
        return Gres.of(())
    if not isinstance(listed, list) or any(not isinstance(item, dict) for item in listed):
        raise ValueError("tres is no list of {type, name, count}")
    found = []
    for item in listed:
        name, _, kind = str(item.get("name")).partition(":")
        if item.get("type") == "gres" and name in ("gpu", *_PARTS):
            count = _wrapped(item.get("count"), "tres count")
            found.append((name, kind, 0.0 if np.isnan(count) else count))
    return Gres.of(found)
