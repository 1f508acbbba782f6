"""Gandiva against the reference's runs, and its laws."""

from __future__ import annotations

from typing import Any

import pytest

from forerun.domains.cluster.policies.gandiva import Gandiva

from .conftest import assert_equals_reference, in_file_order, play, runs, small_worlds, world


@pytest.mark.parametrize("reference", [r for r in runs() if r["schedule"] == "gandiva"], ids=lambda r: r["run"])
def test_every_reference_run_is_reproduced_job_by_job(reference: dict[str, Any]) -> None:
    made = world(reference["trace"], reference["cluster"], reference["slot_s"], reference["gpu_type"])
    record = play(Gandiva(), made)
    assert_equals_reference(record, reference)


@pytest.mark.parametrize("small", small_worlds(), ids=lambda w: w["trace"])
def test_every_small_world_is_reproduced(small: dict[str, Any]) -> None:
    made = world(
        small["trace"],
        (small["switches"], small["nodes_per_switch"], small["gpus_per_node"]),
        small["slot_s"],
        small["gpu_type"],
    )
    expected = small["runs"]["gandiva"]
    record = play(Gandiva(), made)
    assert (record.accepted, record.declined_count) == (expected["accepted"], expected["declined"])
    assert len(record.events()[0]) == expected["events"]
    ends = in_file_order(made, record.end_s)
    assert {row: ends[int(row)] for row in expected["end"]} == expected["end"]
