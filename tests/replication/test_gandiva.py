"""Gandiva against the reference's runs, and its laws."""

from __future__ import annotations

from typing import Any

import pytest

from forerun.replication.elasticflow.schedules.gandiva import Gandiva

from ..cluster.conftest import (
    assert_equals_reference,
    assert_equals_small_setting,
    play,
    runs,
    setting,
    small_worlds,
)


@pytest.mark.parametrize(
    "reference", [r for r in runs() if r["schedule"] == "gandiva"], ids=lambda r: r["run"]
)
def test_every_reference_run_is_reproduced_job_by_job(reference: dict[str, Any]) -> None:
    made = setting(reference["trace"], reference["cluster"], reference["slot_s"], reference["gpu_type"])
    record = play(Gandiva(), made)
    assert_equals_reference(record, reference)


@pytest.mark.parametrize("small", small_worlds(), ids=lambda w: w["trace"])
def test_every_small_setting_is_reproduced(small: dict[str, Any]) -> None:
    assert_equals_small_setting(Gandiva(), small, "gandiva")


@pytest.mark.parametrize(
    ("switch", "testbed", "figure_8a"),
    [("gandiva_strict", 46, 23), ("gandiva_util", 53, 25)],
)
def test_each_fixed_bug_has_its_known_effect(switch: str, testbed: int, figure_8a: int) -> None:
    """Accepted jobs with one switch off the published behaviour; as published 47 and 18 (the specification's table)."""
    assert play(Gandiva(), setting("195job.csv", "n16g8", 240, corrected=(switch,))).accepted == testbed
    made = setting("elasticVpollux_e.csv", "n16g4", 60, "T4", corrected=(switch,))
    assert play(Gandiva(), made).accepted == figure_8a


@pytest.mark.parametrize(
    "switch", ["gandiva_between_arrivals", "gandiva_loop_variable", "overhead_when_unchanged"]
)
def test_every_other_known_bug_matters_somewhere(switch: str) -> None:
    plain = play(Gandiva(), setting("195job.csv", "n16g8", 240))
    righted = play(Gandiva(), setting("195job.csv", "n16g8", 240, corrected=(switch,)))
    assert len(righted.completed) == 195
    assert righted.end_s.tolist() != plain.end_s.tolist()


def test_the_pending_scan_matters_where_jobs_wait() -> None:
    made = setting("elasticVpollux_e.csv", "n16g4", 60, "T4", corrected=("gandiva_pending_scan",))
    assert play(Gandiva(), made).accepted == 19
