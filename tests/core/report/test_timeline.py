"""Timelines as Chrome trace JSON: what Perfetto needs, thinned without shrinking, the same bytes each time."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.core.errors import CheckFailed
from forerun.core.result.timeline import Timeline

HOSTILE = '<script>alert("1")</script>\u2028'


def timeline(tracks: int = 5, each: int = 40, seed: int = 1) -> Timeline:
    generator = np.random.Generator(np.random.Philox(seed))
    edges = np.sort(generator.random((tracks, each + 1)), axis=1) * 100 / 3
    size = tracks * each
    order = generator.permutation(size)
    return Timeline(
        entities=(HOSTILE, *(f"gpu {k}" for k in range(1, tracks))),
        states=("run", "wait"),
        entity=np.repeat(np.arange(tracks), each)[order],
        state=generator.integers(0, 2, size),
        from_s=edges[:, :-1].ravel()[order],
        to_s=edges[:, 1:].ravel()[order],
        causes=("placed", "preempted"),
        cause=generator.integers(-1, 2, size),
        label=np.array([f"job {k}" for k in range(size)], dtype=object)[order],
        groups=tuple(f"node {k // 2}" for k in range(tracks)),
    )


def read(path: Path) -> dict[str, Any]:
    raw = path.read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    return found


def slices(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def test_fields_are_those_of_the_trace_event_format(tmp_path: Path) -> None:
    timeline().write_chrome_trace(tmp_path / "t.json")
    trace = read(tmp_path / "t.json")
    assert set(trace) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert trace["displayTimeUnit"] == "ms"
    assert len(slices(trace)) == 200
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str)
        assert type(event["pid"]) is int and type(event["tid"]) is int
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] >= 0
            assert event["args"]["state"] in ("run", "wait")
        else:
            assert event["ph"] == "M"
    causes = {event["args"].get("cause") for event in slices(trace)}
    assert causes == {None, "placed", "preempted"}


def test_tracks_are_named_and_grouped(tmp_path: Path) -> None:
    timeline().write_chrome_trace(tmp_path / "t.json")
    about = [event for event in read(tmp_path / "t.json")["traceEvents"] if event["ph"] == "M"]
    processes = {event["pid"]: event["args"]["name"] for event in about if event["name"] == "process_name"}
    threads = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in about
        if event["name"] == "thread_name"
    }
    assert sorted(processes.values()) == ["node 0", "node 1", "node 2"]
    assert list(threads.values()) == [HOSTILE, "gpu 1", "gpu 2", "gpu 3", "gpu 4"]
    assert [processes[pid] for pid, _ in threads] == ["node 0", "node 0", "node 1", "node 1", "node 2"]


@given(st.integers(0, 2**32 - 1))
def test_slices_of_a_track_are_in_order_and_never_overlap(seed: int) -> None:
    # Perfetto nests slices by their ends: touching neighbours must not overlap by a rounding error.
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        timeline(seed=seed).write_chrome_trace(path)
        tracks = defaultdict(list)
        for event in slices(read(path)):
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for ends in tracks.values():
        for (_, end), (start, _) in itertools.pairwise(ends):
            assert end <= start + 1e-6


def test_thinning_keeps_the_span_and_the_longest(tmp_path: Path) -> None:
    whole = timeline(tracks=7, each=3_000)
    left_out = whole.write_chrome_trace(tmp_path / "t.json.gz", max_slices=2_000)
    trace = read(tmp_path / "t.json.gz")
    kept = slices(trace)
    assert len(kept) + left_out == len(whole)
    assert len(kept) <= 2_000 + 2 * 7
    assert trace["otherData"] == {"intervals_left_out": left_out}
    for code in range(7):
        mine = [event for event in kept if event["tid"] == code + 1]
        rows = whole.entity == code
        assert min(event["ts"] for event in mine) == pytest.approx(whole.from_s[rows].min() * 1e6, abs=1e-3)
        assert max(event["ts"] + event["dur"] for event in mine) == pytest.approx(
            whole.to_s[rows].max() * 1e6, abs=2e-3
        )
        longest = (whole.to_s[rows] - whole.from_s[rows]).max() * 1e6
        assert max(event["dur"] for event in mine) == pytest.approx(longest, abs=2e-3)


def test_gzip_is_the_same_bytes_whenever_and_wherever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    timeline().write_chrome_trace(tmp_path / "one.json.gz")
    monkeypatch.setattr(time, "time", lambda: 1e9)
    timeline().write_chrome_trace(tmp_path / "two.json.gz")
    timeline().write_chrome_trace(tmp_path / "plain.json")
    one = (tmp_path / "one.json.gz").read_bytes()
    assert one == (tmp_path / "two.json.gz").read_bytes()
    assert gzip.decompress(one) == (tmp_path / "plain.json").read_bytes()


def test_unsound_timelines_are_refused() -> None:
    codes = np.zeros(2, dtype=np.int64)
    for start, end, words in (
        ([0.0, 5.0], [6.0, 7.0], "overlap"),
        ([0.0, 5.0], [1.0, 4.0], "before it begins"),
    ):
        with pytest.raises(CheckFailed, match=words):
            Timeline(("a",), ("run",), codes, codes, np.array(start), np.array(end)).check()
    timeline().check()


def test_an_empty_timeline_is_a_trace(tmp_path: Path) -> None:
    none = np.empty(0, dtype=np.int64)
    Timeline(("a",), ("run",), none, none, np.empty(0), np.empty(0)).write_chrome_trace(tmp_path / "t.json")
    assert slices(read(tmp_path / "t.json")) == []
