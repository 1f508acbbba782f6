"""Requested times through the readers, into the jobs of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from forerun.cluster.inputs.arrays import NO_REQUEST_S, Jobs
from forerun.cluster.inputs.files import read_jobs
from forerun.cluster.inputs.jobs import table_of_file, with_requests
from forerun.cluster.readers.sacct import time_limit_s
from forerun.core.errors import TraceError, UsageError
from forerun.core.trace.reader import read_trace
from forerun.core.trace.repair import RepairLog

#: a job waits 5 s, runs 60 s on 4 processors; 90 in column 6, 8 processors and 100 s requested, group 7
SWF_LINE = "1 0 5 60 4 90 -1 8 100 -1 1 3 7 -1 -1 -1 -1 -1\n"
SWF_NONE = "2 9 5 60 4 -1 -1 8 -1 -1 1 3 -1 -1 -1 -1 -1 -1\n"


@pytest.mark.parametrize(
    ("columns", "requested_s", "gpus"),
    [([], 100, 4), (["requested_s=6"], 90, 4), (["requested_s=6", "gpus=8"], 90, 8)],
)
def test_swf_takes_the_columns_of_the_standard_or_those_named(
    tmp_path: Path, columns: list[str], requested_s: int, gpus: int
) -> None:
    path = tmp_path / "log.swf"
    path.write_text(SWF_LINE + SWF_NONE)
    trace = read_trace(path, "swf", options={"columns": columns})
    assert trace["requested_s"].tolist()[0] == requested_s
    assert trace["gpus"].tolist()[0] == gpus
    assert np.isnan(trace["requested_s"][1]), "-1 is not known"
    assert trace["account"].tolist() == ["7", ""]
    jobs = table_of_file(path, "swf", RepairLog(), {"columns": columns}).jobs
    assert jobs.requested_s.tolist() == [requested_s, NO_REQUEST_S]
    assert jobs.request_s.tolist() == [requested_s, np.inf]


@pytest.mark.parametrize("columns", [["request=6"], ["requested_s=0"], ["requested_s=19"], ["requested_s"]])
def test_columns_that_swf_does_not_have_are_errors(tmp_path: Path, columns: list[str]) -> None:
    (tmp_path / "log.swf").write_text(SWF_LINE)
    with pytest.raises(UsageError, match="columns"):
        read_trace(tmp_path / "log.swf", "swf", options={"columns": columns})


def test_a_log_without_requests_has_no_such_column(tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_text(SWF_NONE)
    assert not {"requested_s", "account", "qos", "eligible_s"} & {
        column.name for column in read_trace(tmp_path / "log.swf", "swf").schema
    }


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3-00:00:00", 259_200), ("1-02", 93_600), ("1-02:03", 93_780), ("02:00:00", 7200), ("30:00", 1800),
        ("45", 2700), ("UNLIMITED", np.nan), ("Partition_Limit", np.nan), ("00:00:00", np.nan),
    ],
)  # fmt: skip
def test_slurm_time_limits(text: str, seconds: float) -> None:
    assert time_limit_s(text) == pytest.approx(seconds, nan_ok=True)


@pytest.mark.parametrize("text", ["soon", "1-", "-5", "1:2:3:4", "2 h"])
def test_what_is_no_time_limit_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="time limit"):
        time_limit_s(text)


def test_slurm_text(tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text(
        "JobID|User|Partition|Submit|Start|End|State|ElapsedRaw|AllocTRES|Timelimit|Account|QOS|Eligible|JobName\n"
        "1|ann|gpu|2024-05-01T00:00:00|2024-05-01T00:10:00|2024-05-01T01:10:00|COMPLETED|3600|gres/gpu=4|3-00:00:00|"
        "lab|high|2024-05-01T00:05:00|a|b\n"
        "2|bob|gpu|2024-05-01T00:00:10|2024-05-01T00:10:00|2024-05-01T01:10:00|COMPLETED|3600|gres/gpu=4|UNLIMITED|"
        "lab|high|Unknown|c\n"
    )
    trace = read_trace(path)
    assert trace["requested_s"][0] == 259_200
    assert trace["eligible_s"][0] == 300
    assert np.isnan(trace["requested_s"][1])
    assert np.isnan(trace["eligible_s"][1])
    assert trace["account"].tolist() == ["lab", "lab"]
    assert trace["qos"].tolist() == ["high", "high"]


def test_our_own_csv(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,gpus,duration_s,requested_s\n1,0,4,60,100\n2,5,4,60,\n")
    assert read_jobs(path).jobs.requested_s.tolist() == [100, NO_REQUEST_S]
    assert read_trace(path)["requested_s"].tolist() == pytest.approx([100, np.nan], nan_ok=True)
    path.write_text("job_id,submit_s,gpus,duration_s,requested_s\n1,0,4,60,-3\n")
    with pytest.raises(TraceError, match="requested_s"):
        read_jobs(path)


def test_requests_are_made_up_only_where_there_are_none() -> None:
    jobs = Jobs.of(np.arange(500), 1, 100, requested_s=[7] + [NO_REQUEST_S] * 499)
    made = with_requests(jobs, 3.0, seed=4).requested_s
    assert made[0] == 7
    assert made[1:].min() >= 100
    assert made[1:].max() <= 300
    # the mean of 499 draws from [100, 300] lies within five standard errors of 200
    assert abs(made[1:].mean() - 200) < 5 * 200 / np.sqrt(12 * 499)
