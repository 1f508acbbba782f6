"""Slurm's accounting as sites print it: arrays, heterogeneous jobs, requeues, zones, names with `|`, files cut short."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from forerun.core.errors import TraceError, UsageError
from forerun.core.trace.reader import read_trace
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.table import Trace

HEADER = (
    "JobID|JobName|User|Account|Partition|QOS|Submit|Eligible|Start|End|State|ElapsedRaw|AllocTRES|Timelimit|NNodes|"
    "Priority|Reservation"
)
DAY = "2024-03-01"


def row(
    job: str = "1", name: str = "train", submit: str = f"{DAY}T10:00:00", start: str = f"{DAY}T10:05:00",
    end: str = f"{DAY}T11:05:00", elapsed: int = 3600, gpus: int = 4, state: str = "COMPLETED", limit: str = "1-00:00:00",
) -> str:  # fmt: skip
    return (
        f"{job}|{name}|ann|lab|gpu|normal|{submit}|{submit}|{start}|{end}|{state}|{elapsed}|"
        f"cpu=8,gres/gpu={gpus}|{limit}|1|4294|maint"
    )


def read(
    folder: Path, *rows: str, header: str = HEADER, end: str = "\n", **options: object
) -> tuple[Trace, list[str]]:
    path, log = folder / "jobs.txt", RepairLog()
    path.write_text("\n".join((header, *rows)) + end)
    trace = read_trace(path, "sacct", options=options, repairs=log)
    return trace, [repair.rule for repair in log.repairs]


def test_every_column_is_kept(tmp_path: Path) -> None:
    trace, rules = read(tmp_path, row())
    assert not rules
    assert [trace[name][0] for name in ("user", "account", "vc", "qos", "reservation")] == [
        "ann", "lab", "gpu", "normal", "maint",
    ]  # fmt: skip
    assert (trace["requested_s"][0], trace["priority"][0], trace["eligible_s"][0]) == (86_400, 4294, 0)


def test_a_bar_in_a_name_belongs_to_the_name_wherever_it_stands(tmp_path: Path) -> None:
    trace, rules = read(tmp_path, row(name="a|b||c"), row("2"))
    assert trace["gpus"].tolist() == [4, 4]
    assert rules == ["bar inside a job's name or another free text, its pieces joined"]


def test_with_two_free_texts_a_bar_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"jobs.txt:2: has 19 fields, the header has 18"):
        read(tmp_path, row(name="a|b") + "|x", header=HEADER + "|Comment")


def test_array_tasks_are_jobs_and_pending_ranges_are_not(tmp_path: Path) -> None:
    trace, rules = read(
        tmp_path, row("123_4"), row("123_[5-9%2]", state="PENDING", start="Unknown", end="Unknown")
    )
    assert trace["job_id"].tolist() == ["123_4"]
    assert rules == ["array range that never started dropped"]


def test_steps_are_dropped_those_of_heterogeneous_jobs_too(tmp_path: Path) -> None:
    steps = ("1.batch", "1.extern", "1.0", "9+0.0", "9.0+1", "123_4.batch", "1.TBD")
    trace, rules = read(tmp_path, row("1"), *map(row, steps))
    assert trace["job_id"].tolist() == ["1"]
    assert rules == ["job step dropped"]


def test_components_of_a_heterogeneous_job_are_one_gang(tmp_path: Path) -> None:
    trace, rules = read(tmp_path, row("9+0", gpus=4), row("8"), row("9+1", gpus=2), row("9+2", gpus=0))
    assert dict(zip(trace["job_id"].tolist(), trace["gpus"].tolist(), strict=True)) == {"9": 6, "8": 4}
    assert rules == ["component of a heterogeneous job joined with its first"]


def test_a_requeued_job_keeps_both_runs(tmp_path: Path) -> None:
    trace, rules = read(
        tmp_path,
        row("5", state="REQUEUED", end=f"{DAY}T10:15:00", elapsed=600),
        row("5", submit=f"{DAY}T10:15:00", start=f"{DAY}T10:20:00", end=f"{DAY}T11:20:00", state="CANCELLED by 1002"),
    )  # fmt: skip
    assert trace["job_id"].tolist() == ["5", "5#2"]
    assert trace["duration_s"].tolist() == [600, 3600]
    assert trace["state"].tolist() == ["REQUEUED", "CANCELLED"]
    assert rules == ["run of a requeued job: it comes after the end of the one before"]
    assert trace["after"].tolist() == ["", "5"]
    assert trace["after_delay_s"].tolist()[1] == 0
    assert trace["attempt"].tolist() == [1, 2]


def test_a_number_that_is_used_again_months_later_is_another_job(tmp_path: Path) -> None:
    trace, rules = read(tmp_path, row("5"), row("5", submit="2025-01-01T00:00:00", start="2025-01-01T00:20:00",
                                                end="2025-01-01T01:20:00"))  # fmt: skip
    assert trace["job_id"].tolist() == ["5", "5#2"]
    assert "after" not in trace
    assert rules == ["job id used again, kept as a run of its own"]


@pytest.mark.parametrize(
    ("limit", "seconds"), [("3-00:00:00", 259_200), ("UNLIMITED", np.nan), ("Partition_Limit", np.nan)]
)
def test_time_limits(tmp_path: Path, limit: str, seconds: float) -> None:
    trace, _ = read(tmp_path, row(limit=limit), row("2"))
    assert trace["requested_s"][0] == pytest.approx(seconds, nan_ok=True)


def test_a_file_cut_in_mid_line_says_so(tmp_path: Path) -> None:
    whole = row("2")
    for end in range(len(whole) - len("|4294|maint"), 0, -7):
        with pytest.raises(TraceError, match=r"jobs.txt:3: has \d+ fields?.*is the file cut short\?"):
            read(tmp_path, row(), whole[:end], end="")
    with pytest.raises(TraceError) as told:
        read(tmp_path, whole[:40], row())
    assert "cut short" not in str(told.value)


def test_stamps_of_a_place_pass_the_change_of_clocks(tmp_path: Path) -> None:
    """In Berlin 02:30 came twice on 27 October 2024; a job of 45 minutes from the first one ends in the second."""
    night = "2024-10-27"
    repeated = row(
        submit=f"{night}T01:00:00", start=f"{night}T02:30:00", end=f"{night}T02:15:00", elapsed=2700
    )
    later = row("2", submit=f"{night}T05:00:00", start=f"{night}T05:00:00", end=f"{night}T06:00:00")
    trace, rules = read(tmp_path, repeated, later, timezone="Europe/Berlin")
    assert trace["start_s"].tolist() == [5400, 5 * 3600]
    assert trace["end_s"].tolist() == [5400 + 2700, 6 * 3600]
    assert rules == [
        "wall-clock time in the hour repeated in autumn, first pass taken unless it ends too early"
    ]
    assert trace.provenance.options["clock"] == "Europe/Berlin"
    naive, rules = read(tmp_path, repeated, later)
    assert naive["submit_s"].tolist() == [0, 4 * 3600]
    assert any("clock was set back" in rule for rule in rules)


def test_stamps_may_be_seconds_or_have_a_zone(tmp_path: Path) -> None:
    trace, _ = read(
        tmp_path,
        row(submit="1709287200", start="1709287500", end="1709291100"),
        row("2", submit=f"{DAY}T12:00:00+02:00", start=f"{DAY}T12:05:00+02:00", end=f"{DAY}T13:05:00+02:00"),
        timezone="Europe/Berlin",
    )
    assert trace["submit_s"].tolist() == [0, 0]
    assert trace["end_s"].tolist() == [3900, 3900]


def test_a_place_that_nobody_knows_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no time zone 'Mars/Olympus'"):
        read(tmp_path, row(), timezone="Mars/Olympus")
