"""The Standard Workload Format of the Parallel Workloads Archive."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final

import numpy as np

from forerun.trace.jobs import JobRows, job_trace
from forerun.trace.reader import Head, TraceReader
from forerun.trace.repair import Complaints, RepairLog, shown
from forerun.trace.source import Source
from forerun.trace.table import Trace

_COLUMNS: Final = 18
_STATES: Final = {0: "FAILED", 1: "COMPLETED", 2: "PARTIAL", 3: "PARTIAL", 4: "PARTIAL", 5: "CANCELLED"}


class Swf(TraceReader, tag="swf", frozen=True, kw_only=True):
    """Text of 18 whitespace-separated numbers a job, comments after `;`, -1 for what is not known.

    Processors are taken as GPUs: those allocated, else those requested. A job that waited -1 seconds has no start.
    [Chapin et al., JSSPP'99]
    """

    about: ClassVar[str] = "Standard Workload Format (18 columns, ; comments)"
    makes: ClassVar[str] = "jobs"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        data = [line.split() for line in head.lines if line.strip() and not line.lstrip().startswith(";")]
        if not data:
            return bool(head.lines) and head.lines[0].lstrip().startswith(";")
        return all(len(row) == _COLUMNS and _numeric(row) for row in data)

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source, complaints, rows = Source(path, repairs=repairs), Complaints(), JobRows()
        for number, line in source.lines():
            text = line.split(";", 1)[0].split()
            if text:
                self._job(number, text, source, rows, complaints)
        complaints.finish()
        return job_trace(self, source, repairs, rows, clock="seconds from the log's start")

    def _job(
        self, number: int, text: list[str], source: Source, rows: JobRows, complaints: Complaints
    ) -> None:
        if len(text) != _COLUMNS:
            complaints.add(source.at(number), f"has {len(text)} numbers; a job has {_COLUMNS}")
            return
        try:
            values = [_number(cell) for cell in text]
        except ValueError as error:
            complaints.add(source.at(number), str(error))
            return
        submit_s, wait_s, ran_s, allocated = values[1:5]
        gpus = allocated if allocated > 0 else values[7]
        start_s = submit_s + wait_s if wait_s >= 0 else np.nan
        rows.add(
            number,
            job_id=text[0],
            user=_known(text[11]),
            vc=_known(text[15]),
            submit_s=submit_s if submit_s >= 0 else np.nan,
            start_s=start_s,
            end_s=start_s + ran_s if ran_s >= 0 else np.nan,
            duration_s=ran_s if ran_s >= 0 else np.nan,
            gpus=gpus if gpus >= 0 else np.nan,
            state=_STATES.get(int(values[10]), ""),
        )


def _known(text: str) -> str:
    return "" if text == "-1" else text


def _numeric(row: list[str]) -> bool:
    try:
        return all(np.isfinite(_number(cell)) for cell in row)
    except ValueError:
        return False


def _number(cell: str) -> float:
    if (
        not cell.replace(".", "", 1).lstrip("+-").isascii()
        or not cell.lstrip("+-").replace(".", "", 1).isdigit()
    ):
        raise ValueError(f"{shown(cell)} is not a number")
    if len(cell) > 18:
        raise ValueError(f"{shown(cell)} is too long a number")
    return float(cell)
