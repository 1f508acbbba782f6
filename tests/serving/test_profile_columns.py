"""Profiles of one's own: which columns of times there must be, and what stands for those that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.core.errors import ProfileError
from forerun.serving.inputs.profile import read_profile


@pytest.mark.parametrize(
    ("columns", "cells", "p99_ms", "throughput_qps"),
    [
        ("p99_ms,throughput_qps", "40,160", 40, 160),
        ("mean_ms", "20", 20, 200),
        ("latency_ms", "20", 20, 200),
        ("mean_ms,p99_ms", "20,30", 30, 200),
        ("p99_ms", "40", 40, 100),
        ("throughput_qps", "160", 25, 160),
        ("mean_ms,throughput_qps", "20,160", 20, 160),
    ],
)
def test_what_is_measured_stands_for_what_is_not(
    tmp_path: Path, columns: str, cells: str, p99_ms: float, throughput_qps: float
) -> None:
    """Four queries a batch: written columns as written; throughput is batch over mean."""
    file = tmp_path / "mine.csv"
    file.write_text(f"model,hardware,batch,{columns}\nnet,T4,4,{cells}\n")
    (row,) = read_profile(file).rows("net", "T4")
    assert (row.p99_ms, row.throughput_qps) == (p99_ms, throughput_qps)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("model,hardware,batch\nnet,T4,4\n", r"mine\.csv: has no column of times.*mean_ms"),
        ("model,hardware,batch,mean_ms\nnet,T4,4,0\n", r"net on T4.*batch 4: p99_ms 0\.0 is not above 0"),
        ("model,hardware,batch,mean_ms\nnet,T4,4,-2\n", r"mine\.csv:2"),
        ("model,hardware,batch,mean_ms\nnet,T4,4,x\n", r"mine\.csv:2"),
        ("model,hardware,mean_ms\nnet,T4,4\n", r"lacks 'batch'"),
    ],
)
def test_a_profile_without_times_is_refused(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(text)
    with pytest.raises(ProfileError, match=told):
        read_profile(file)
