"""Where the loading room's vectors lie, and how they name things."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(os.environ.get("FORERUN_SHARED", Path(__file__).resolve().parents[3] / "shared"))


def golden_path(name: str) -> Path:
    """A file of vectors, from `FORERUN_GOLDEN_LOADING` if set; the test is skipped where it is absent."""
    folder = Path(os.environ.get("FORERUN_GOLDEN_LOADING", SHARED / "golden" / "loading"))
    if not (folder / name).exists():
        pytest.skip(f"no {name} here: set FORERUN_SHARED or FORERUN_GOLDEN_LOADING")
    return folder / name


def read_golden(name: str) -> Any:
    """The content of a JSON file of vectors, or the rows of a CSV file."""
    path = golden_path(name)
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Any]:
    """`read_golden`."""
    return read_golden


@pytest.fixture(scope="session")
def published() -> Path:
    """The folder of the published raw data."""
    folder = SHARED / "data" / "loading"
    if not folder.exists():
        pytest.skip("the published data are not here: set FORERUN_SHARED")
    return folder


@pytest.fixture(scope="session")
def unlimited() -> Callable[[float | None], float]:
    """Vectors write null for no limit."""
    return lambda value: math.inf if value is None else float(value)
