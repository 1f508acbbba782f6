"""The history of a queue, as it is read from a log."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from forerun.cluster.summary.past import Selection
from forerun.core.errors import TraceError, UsageError
from forerun.site.history import History, read_history

DAY_S = 86_400.0
SACCT = (
    "JobID|User|Partition|Submit|Eligible|Start|End|State|ElapsedRaw|Timelimit|NNodes|Account|QOS|JobName\n"
    "1|ann|big|2024-03-01T10:00:00|2024-03-01T10:02:00|2024-03-01T10:05:00|2024-03-01T11:05:00|"
    "COMPLETED|3600|02:00:00|4|phys|normal|a|b\n"
    "2|bob|big|2024-03-01T10:01:00|Unknown|Unknown|Unknown|PENDING|0|UNLIMITED|2|bio|high|held\n"
    "3|bob|big|2024-03-01T10:03:00|2024-03-01T10:03:00|2024-03-01T10:30:00|2024-03-01T10:30:00|"
    "CANCELLED by 7|0|30:00|2|bio|high|never\n"
    "4|ann|big|2024-03-01T10:04:00|2024-03-01T10:04:00|2024-03-01T10:05:00|Unknown|RUNNING|60|1-00:00:00|1|phys|normal|long\n"
    "1|ann|big|2024-03-01T11:06:00|2024-03-01T11:06:00|2024-03-01T11:07:00|2024-03-01T11:08:00|"
    "COMPLETED|60|02:00:00|4|phys|normal|again\n"
)


def written(tmp_path: Path, text: str, name: str = "log.txt") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def csv(rows: list[str], header: str = "id,submit_s,start_s,end_s,nodes,requested_s") -> str:
    return "\n".join(["# a note", header, *rows]) + "\n"


def rules(log: History) -> dict[str, int]:
    return {repair.rule: repair.count for repair in log.repairs}


def test_slurm(tmp_path: Path) -> None:
    log = read_history(written(tmp_path, SACCT))
    assert log.job_id.tolist() == ["1", "2", "3", "4", "1#2"]
    assert log.submit_s.tolist() == [0, 60, 180, 240, 3960]
    np.testing.assert_array_equal(log.start_s, [300, np.nan, np.nan, 300, 4020])
    np.testing.assert_array_equal(log.end_s, [3900, np.nan, 1800, np.nan, 4080])
    np.testing.assert_array_equal(log.eligible_s, [120, np.nan, 180, 240, 3960])
    np.testing.assert_array_equal(log.requested_s, [7200, np.nan, 1800, 86400, 7200])
    assert log.gpus.tolist() == log.nodes.tolist() == [4, 2, 2, 1, 4]
    assert [log.user.names[code] for code in log.user.codes] == ["ann", "bob", "bob", "ann", "ann"]
    assert log.partition.names == ("big",)
    assert log.origin_s == 1709287200
    assert rules(log)["job cancelled before it ran, no start"] == 1
    assert log.waiting_at(700).tolist() == [False, True, True, False, False]
    assert log.waiting_at(1800).tolist() == [False, True, False, False, False]
    assert log.running_at(700).tolist() == [True, False, False, True, False]
    assert log.running_at(3900).tolist() == [False, False, False, True, False]
    instants, busy = log.busy()
    assert dict(zip(instants.tolist(), busy.tolist(), strict=True)) == {300: 5, 3900: 1, 4020: 5, 4080: 1}


def test_times_of_a_place_and_places_that_are_none(tmp_path: Path) -> None:
    path = written(tmp_path, SACCT)
    assert read_history(path, zone="America/Chicago").origin_s == 1709287200 + 6 * 3600
    with pytest.raises(UsageError, match="no time zone 'Mars/Olympus'"):
        read_history(path, zone="Mars/Olympus")


def test_times_that_are_seconds_since_1970_are_on_no_place_s_clock(tmp_path: Path) -> None:
    swf = "; UnixStartTime: 893466664\n1 161 0 632 2 -1 -1 2 758 -1 1 2 1 -1 1 -1 -1 -1\n"
    ours = "id,submit_s,start_s,end_s,nodes\na,893466825,893466825,893467457,2\n"
    slurm = (
        SACCT.splitlines()[0]
        + "\n1|ann|big|893466825|893466825|893466825|893467457|COMPLETED|632|60|2|p|n|a\n"
    )
    for text in (swf, ours, slurm):
        path = written(tmp_path, text)
        assert read_history(path, zone="Europe/Stockholm").origin_s == 893466825


def test_standard_workload_format_with_its_request_elsewhere(tmp_path: Path) -> None:
    text = (
        "1 10 5 60 4 90 -1 8 100 -1 1 3 7 -1 -1 2 -1 -1\n"
        "2 11 40 0 -1 -1 -1 8 100 -1 5 3 7 -1 -1 2 -1 -1\n"
        "3 12 -1 -1 -1 80 -1 8 100 -1 -1 3 7 -1 -1 2 -1 -1\n"
    )
    log = read_history(written(tmp_path, text), columns=["requested_s=6"])
    np.testing.assert_array_equal(log.requested_s, [90, np.nan, 80])
    np.testing.assert_array_equal(log.start_s, [5, np.nan, np.nan])
    np.testing.assert_array_equal(log.end_s, [65, 41, np.nan])
    assert log.gpus.tolist() == [4, 8, 8]


def test_our_table_under_other_headers(tmp_path: Path) -> None:
    text = csv(
        ["7,100,130,190,3,60,0", "8,90,-1,,2,,ann"], "id,submit_s,start_s,end_s,hosts,requested_s,user"
    )
    with pytest.raises(TraceError, match="misses the column nodes or gpus"):
        read_history(written(tmp_path, text), "job_history")
    log = read_history(written(tmp_path, text), "job_history", columns=["nodes=hosts"])
    assert log.job_id.tolist() == ["8", "7"]
    np.testing.assert_array_equal(log.start_s, [np.nan, 40])
    assert log.gpus.tolist() == [2, 3]
    assert log.user.codes.tolist() == [0, -1], "0 is not known"
    with pytest.raises(UsageError, match="columns"):
        read_history(written(tmp_path, text), "job_history", columns=["node=hosts"])


def test_repairs_are_counted_and_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    text = csv(
        [
            "1,100,90,200,1,60",
            "2,100,300,200,1,60",
            "3,100,-1,50,1,60",
            "4,100,110,120,0,60",
            "5,1,2,9e11,1,9",
        ]
    )
    log = read_history(written(tmp_path, text))
    assert log.job_id.tolist() == ["1"]
    assert log.submit_s.tolist() == log.start_s.tolist() == [0]
    assert sorted(rules(log).values()) == [1, 1, 1, 1, 1]
    with pytest.raises(TraceError, match="no usable job is left"):
        read_history(written(tmp_path, csv(["2,100,300,200,1,60"])))
    with pytest.raises(TraceError, match=r"log.txt:4: has 3 cells, 6 are expected \(is the file cut short"):
        read_history(written(tmp_path, csv(["1,100,110,200,1,60", "2,100,30"])[:-1]))
    with pytest.raises(UsageError, match="no log of jobs"):
        read_history(written(tmp_path, "job_id,submit_time,num_gpu,duration\na,0,1,5\n"))


@pytest.mark.parametrize("selection", ["submit", "start", "end"])
def test_selection_is_inferred(tmp_path: Path, selection: Selection) -> None:
    rng = np.random.default_rng(3)
    submit = np.sort(rng.uniform(0, 120 * DAY_S, 12_000))
    start = submit + rng.exponential(2 * DAY_S, len(submit))
    end = start + rng.uniform(600, DAY_S, len(submit))
    column = {"submit": submit, "start": start, "end": end}[selection]
    inside = np.flatnonzero((column >= 40 * DAY_S) & (column < 100 * DAY_S))
    rows = [f"{at},{submit[at]:.0f},{start[at]:.0f},{end[at]:.0f},1,{DAY_S:.0f}" for at in inside]
    log = read_history(written(tmp_path, csv(rows)))
    assert log.selection == selection
    assert log.complete_from_s + log.origin_s == pytest.approx(40 * DAY_S, abs=1.5 * DAY_S)


def test_who_asks_for_no_time_may_run_as_long_as_others_of_the_partition(tmp_path: Path) -> None:
    head = "id,submit_s,start_s,end_s,nodes,requested_s,partition\n"
    asks = ((60, "short"), ("", "short"), (900, "long"), ("", "long"), ("", "new"), ("", ""))
    rows = "".join(f"{at},{at},{at},{at + 5},1,{asked},{name}\n" for at, (asked, name) in enumerate(asks))
    log = read_history(written(tmp_path, head + rows))
    assert log.request_s().tolist() == [60, 60, 900, 900, 900, 900]
    assert log.request_s(30.0).tolist() == [60, 30, 900, 30, 30, 30]
    assert log.request_s(longest_s=1000.0).tolist() == [60, 60, 900, 900, 1000, 1000]


def test_nothing_later_is_known_at_an_instant(tmp_path: Path) -> None:
    rows = [f"{at},{10 * at},{10 * at + 35},{10 * at + 95},1,100" for at in range(50)]
    log = read_history(written(tmp_path, csv(rows)))
    cut = log.as_of(250.0)
    changed = [row if at * 10 <= 250 else f"{at},{10 * at + 1},-1,-1,9,7" for at, row in enumerate(rows)]
    other = read_history(written(tmp_path, csv(changed))).as_of(250.0)
    for name in ("submit_s", "start_s", "end_s", "eligible_s", "nodes", "requested_s"):
        np.testing.assert_array_equal(getattr(cut, name), getattr(other, name))
    assert np.nanmax(cut.start_s) <= 250
    assert np.nanmax(cut.end_s) <= 250
    assert cut.waiting_at(250).sum() == 4
    assert cut.last_s <= 250


def test_compressed(tmp_path: Path) -> None:
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(csv(["1,100,110,200,1,60"]).encode()))
    assert len(read_history(path)) == 1
