"""The Philly trace of Microsoft's DNN training clusters: the job log in JSON, and the derived CSV."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from forerun.cluster.readers.local_clock import LocalClock
from forerun.cluster.traces.job_logs import ABSENT, JobLog, JobReader, JobRows
from forerun.core.errors import TraceError
from forerun.core.trace.documents import JsonDocument
from forerun.core.trace.objects import optional_text
from forerun.core.trace.reader import Head
from forerun.core.trace.repair import RepairLog, shown
from forerun.core.trace.rows import TEXT, Field
from forerun.core.trace.source import Source
from forerun.core.trace.table import Trace
from forerun.core.trace.tabular import Rows

_KEYS: Final = ("jobid", "submitted_time", "attempts")
_MOST_BYTES: Final = 1 << 30


class _Attempt(NamedTuple):
    """When a job ran, and on how many GPUs; nan for what is not recorded."""

    start_s: float
    end_s: float
    gpus: float


class Philly(JobReader, tag="philly", frozen=True, kw_only=True):
    """JSON list of jobs `{status, vc, jobid, attempts, submitted_time, user}`; times are wall-clock in one place.

    attempts: `joined`, one row a job from its first start to its last end, run for the sum of its attempts; `each`,
    one row an attempt (`id#k`), resubmitted when the one before ended. timezone: where the clocks hung, for the change
    from daylight-saving time within the trace. CC-BY 4.0, Microsoft [Jeon et al., USENIX ATC'19].
    """

    attempts: Literal["joined", "each"] = "joined"
    timezone: str = "America/Los_Angeles"

    about = "Philly cluster_job_log (JSON): jobs with their attempts"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return bool({"[].attempts", "[].jobid"} & head.json_keys())

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        document = JsonDocument.read(Source(path, repairs=repairs), _MOST_BYTES)
        source = document.source
        if not isinstance(document.value, list):
            raise TraceError.at(source.name, "a list of jobs [...] is expected")
        clock, rows = LocalClock(self.timezone, repairs), JobRows()

        def add(numbered: tuple[int, Any]) -> None:
            number, job = numbered
            for run in self._runs(job, clock, f"{source.name}: job {number}"):
                rows.add(number + 1, **run)

        document.parsed(add, list(enumerate(document.value)), item="job")
        document.complaints.finish()
        return self.cleaned(source, rows.lines, rows.columns(), clock=self.timezone)

    def _runs(self, job: Any, clock: LocalClock, where: str) -> Iterator[dict[str, Any]]:
        """The runs of a job, or its only one if attempts are joined. ValueError says what is wrong."""
        if not isinstance(job, dict) or any(key not in job for key in _KEYS):
            raise ValueError(f"an object with {', '.join(_KEYS)} is expected")
        name = optional_text(job["jobid"], "jobid")
        submit_s = _instant(job["submitted_time"], clock, where, "submitted_time")
        runs = [_attempt(attempt, clock, where) for attempt in _listed(job["attempts"], "attempts")]
        user, vc, state = (optional_text(job.get(key), key) for key in ("user", "vc", "status"))
        if not runs:
            clock.repairs.note("job without attempts dropped", where)
            return
        whole = [run for run in runs if np.isfinite(run).all()]
        if len(whole) < len(runs):
            rule = "attempt without start, end or GPUs dropped"
            clock.repairs.note(rule, where, len(runs) - len(whole))
        about = {"user": user, "vc": vc, "state": state}
        if not whole:
            clock.repairs.note("job without a complete attempt dropped", where)
        elif self.attempts == "joined":
            first, last = whole[0], whole[-1]
            yield {
                **about,
                "job_id": name,
                "submit_s": submit_s,
                "start_s": first.start_s,
                "end_s": last.end_s if len(whole) == 1 else np.nan,
                "duration_s": sum(run.end_s - run.start_s for run in whole),
                "gpus": last.gpus,
            }
        else:
            for k, run in enumerate(whole):
                asked_s = submit_s if k == 0 else whole[k - 1].end_s
                run_id = name if k == 0 else f"{name}#{k + 1}"
                again = {"after": f"{name}#{k}" if k > 1 else name, "after_delay_s": 0.0} if k else {}
                yield {
                    **about,
                    "job_id": run_id,
                    "submit_s": asked_s,
                    "attempt": k + 1.0,
                    **again,
                    **run._asdict(),
                }


def _listed(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name} is {shown(value)}, a list is expected")
    return value


def _instant(value: Any, clock: LocalClock, where: str, name: str, not_before_s: float = -np.inf) -> float:
    text = optional_text(value, name)
    if text.strip() in ABSENT:
        return float("nan")
    try:
        return clock.utc_s(text.strip(), where, not_before_s)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _attempt(attempt: Any, clock: LocalClock, where: str) -> _Attempt:
    """An attempt as recorded; ValueError says what is wrong."""
    if not isinstance(attempt, dict):
        raise ValueError(f"an attempt is {shown(attempt)}, an object is expected")
    start_s = _instant(attempt.get("start_time"), clock, where, "start_time")
    after_s = start_s if np.isfinite(start_s) else -np.inf
    end_s = _instant(attempt.get("end_time"), clock, where, "end_time", after_s)
    gpus = 0
    for part in _listed(attempt.get("detail") or [], "detail"):
        if not isinstance(part, dict):
            raise ValueError(f"detail contains {shown(part)}, an object is expected")
        gpus += len(_listed(part.get("gpus") or [], "gpus"))
    return _Attempt(start_s, end_s, float(gpus) if gpus else float("nan"))


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
