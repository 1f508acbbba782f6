"""Where the spot room's reference values and public traces lie, and how its tests read them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forerun.spot.engine.job import Checkpoints, TrainingJob
from forerun.spot.engine.membership import Membership

from ..conftest import shared_path


def shared_folder(part: str) -> Path:
    """The folder ``part`` of the shared files; the test is skipped where they are absent."""
    return shared_path(*part.split("/"))


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Any]:
    """Reads one file of reference values of the spot domain."""
    return lambda name: json.loads((shared_folder("golden/spot") / name).read_text())


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The public traces of the spot domain."""
    return shared_folder("data/spot")


@pytest.fixture(scope="session")
def fleet_of(golden: Callable[[str], Any]) -> Callable[[str], Membership]:
    """The membership trace that a reference case names."""

    def read(trace: str) -> Membership:
        folder, _, name = trace.rpartition("data:")
        path = (
            shared_folder("data/spot") / name
            if trace.startswith("data:")
            else shared_folder("golden/spot") / trace
        )
        assert folder == ""
        with path.open(newline="") as file:
            rows = [(int(t_ms) / 1000, verb == "add", node) for t_ms, verb, node in csv.reader(file)]
        return Membership.from_rows(rows)

    return read


@pytest.fixture(scope="session")
def job_of() -> Callable[[dict[str, Any]], TrainingJob]:
    """The job that a reference case describes."""
    return _job_of


def _job_of(config: dict[str, Any]) -> TrainingJob:
    return TrainingJob(
        depth=config["depth"],
        max_pipelines=config["max_pipelines"],
        step_s={int(size): seconds for size, seconds in config["step_s"].items()},
        reconfig_s=config["reconfig_s"],
        prep_s=config["prep_s"],
        write_s=config["write_s"],
        stall_s=config["stall_s"],
        checkpoint=Checkpoints(**config["snapshot"]),
        horizon_s=config["horizon_s"],
        reconfig_rule=config["reconfig_rule"],
        warm_start=config["warm_start"],
        initial_saved=config["initial_saved"],
    )


@pytest.fixture(scope="session")
def rounded() -> TrainingJob:
    """The notebook's rounded profile."""
    return TrainingJob(
        depth=16,
        max_pipelines=4,
        step_s={16: 18.0, 32: 11.0, 48: 9.0, 64: 8.0},
        reconfig_s=88.0,
        prep_s=180.0,
        write_s=89.0,
        stall_s=0.0,
        horizon_s=21_300.0,
    )
