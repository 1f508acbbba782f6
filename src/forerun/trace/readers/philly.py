"""The Philly trace of Microsoft's DNN training clusters: the job log in JSON, and the derived CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import numpy as np

from forerun.errors import TraceError
from forerun.trace.jobs import ABSENT, JobLog, JobRows, LocalClock, job_trace
from forerun.trace.reader import Head, TraceReader
from forerun.trace.repair import Complaints, RepairLog, shown
from forerun.trace.rows import TEXT, Field, read_json
from forerun.trace.source import Source
from forerun.trace.table import Trace
from forerun.trace.tabular import Rows

_KEYS: Final = ("jobid", "submitted_time", "attempts")
_MOST_BYTES: Final = 1 << 30


class Philly(TraceReader, tag="philly", frozen=True, kw_only=True):
    """JSON list of jobs `{status, vc, jobid, attempts, submitted_time, user}`; times are wall-clock in one place.

    attempts: `joined`, one row a job from its first start to its last end, run for the sum of its attempts; `each`,
    one row an attempt (`id#k`), resubmitted when the one before ended. timezone: where the clocks hung, for the change
    from daylight-saving time within the trace. CC-BY 4.0, Microsoft [Jeon et al., USENIX ATC'19].
    """

    attempts: Literal["joined", "each"] = "joined"
    timezone: str = "America/Los_Angeles"

    about: ClassVar[str] = "Philly cluster_job_log (JSON): jobs with their attempts"
    makes: ClassVar[str] = "jobs"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        text = "".join(head.lines)
        return text.lstrip().startswith("[") and ('"attempts"' in text or '"jobid"' in text)

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source = Source(path, repairs=repairs)
        jobs = read_json(source, limit_bytes=_MOST_BYTES)
        if not isinstance(jobs, list):
            raise TraceError.at(source.name, "a list of jobs [...] is expected")
        complaints, rows = Complaints(), JobRows()
        clock = LocalClock(self.timezone, repairs)
        for number, job in enumerate(jobs):
            self._job(f"{source.name}: job {number}", number, job, rows, clock, repairs, complaints)
        complaints.finish()
        return job_trace(self, source, repairs, rows, clock=self.timezone)

    def _job(
        self,
        where: str,
        number: int,
        job: Any,
        rows: JobRows,
        clock: LocalClock,
        repairs: RepairLog,
        complaints: Complaints,
    ) -> None:
        if not isinstance(job, dict) or any(key not in job for key in _KEYS):
            complaints.add(where, f"an object with {', '.join(_KEYS)} is expected")
            return
        try:
            name = _text(job["jobid"], "jobid")
            submit_s = _instant(job["submitted_time"], clock, where, "submitted_time")
            runs = [_attempt(attempt, clock, where) for attempt in _listed(job["attempts"], "attempts")]
            about = {key: _text(job.get(key), key) for key in ("user", "vc", "status")}
        except ValueError as error:
            complaints.add(where, str(error))
            return
        if not runs:
            repairs.note("job without attempts dropped", where)
            return
        whole = [run for run in runs if np.isfinite(run).all()]
        if len(whole) < len(runs):
            repairs.note("attempt without start, end or GPUs dropped", where, len(runs) - len(whole))
        common = {"user": about["user"], "vc": about["vc"], "state": about["status"]}
        if not whole:
            repairs.note("job without a complete attempt dropped", where)
        elif self.attempts == "joined":
            start_s, end_s = whole[0][0], whole[-1][1]
            ran_s = sum(end - start for start, end, _ in whole)
            rows.add(
                number + 1, job_id=name, submit_s=submit_s, duration_s=ran_s, gpus=whole[-1][2], **common
            )
            rows.start_s[-1] = start_s
            rows.end_s[-1] = end_s if len(whole) == 1 else np.nan
        else:
            for k, (start_s, end_s, gpus) in enumerate(whole):
                known = name if k == 0 else f"{name}#{k + 1}"
                asked_s = submit_s if k == 0 else whole[k - 1][1]
                rows.add(
                    number + 1,
                    job_id=known,
                    submit_s=asked_s,
                    start_s=start_s,
                    end_s=end_s,
                    gpus=gpus,
                    **common,
                )


def _text(value: Any, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{name} is {shown(value)}, a text is expected")
    return value


def _listed(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name} is {shown(value)}, a list is expected")
    return value


def _instant(value: Any, clock: LocalClock, where: str, name: str, not_before_s: float = -np.inf) -> float:
    text = _text(value, name)
    if text.strip() in ABSENT:
        return float("nan")
    try:
        return clock.utc_s(text.strip(), where, not_before_s)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _attempt(attempt: Any, clock: LocalClock, where: str) -> tuple[float, float, float]:
    """Start, end and GPUs of an attempt; nan for what is not recorded."""
    if not isinstance(attempt, dict):
        raise ValueError(f"an attempt is {shown(attempt)}, an object is expected")
    start_s = _instant(attempt.get("start_time"), clock, where, "start_time")
    after_s = start_s if np.isfinite(start_s) else -np.inf
    end_s = _instant(attempt.get("end_time"), clock, where, "end_time", after_s)
    gpus = 0
    for part in _listed(attempt.get("detail") or [], "detail"):
        if not isinstance(part, dict):
            raise ValueError(f"detail holds {shown(part)}, an object is expected")
        gpus += len(_listed(part.get("gpus") or [], "gpus"))
    return start_s, end_s, float(gpus) if gpus else float("nan")


class PhillyDerived(JobLog, tag="philly_csv", frozen=True, kw_only=True):
    """CSV `timestamp,duration,num_gpus,gpu_time,cluster`, rows in no order, timestamps without zone.

    Derived from the Philly job log for the AdaptDL simulator; `gpu_time` must be duration x GPUs, rows where it is not
    are counted and it is ignored. CC-BY 4.0, Microsoft.
    """

    about = "Philly, derived job list (CSV: timestamp, duration, num_gpus, gpu_time, cluster)"
    signature = ("timestamp", "duration", "num_gpus", "gpu_time")
    columns = (
        Field(name="submit_s", column="timestamp", kind="text", missing=ABSENT),
        Field(name="duration_s", column="duration", minimum=0, missing=ABSENT),
        Field(name="gpus", column="num_gpus", minimum=0, missing=ABSENT),
        Field(name="gpu_time", required=False, missing=ABSENT),
        Field(name="vc", column="cluster", kind="text", required=False, missing=ABSENT),
    )
    instants = ("submit_s",)
    clock = "as written, no zone"

    def settle(self, rows: Rows) -> None:
        rows["job_id"] = np.array([f"line{line}" for line in rows.lines.tolist()], TEXT)
        if "gpu_time" in rows:
            wrong = np.abs(rows["gpu_time"] - rows["duration_s"] * rows["gpus"]) > 1.0
            rows.note(wrong, "gpu_time is not duration x GPUs, ignored", "gpu_time")
