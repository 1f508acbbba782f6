"""Where the loading domain's vectors lie, and how they name things."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ..conftest import shared_path
from ..docs.claims import NUMBER, ROOT, agrees, table_rows


def golden_path(name: str) -> Path:
    """A file of vectors; the test is skipped where it is absent."""
    return shared_path("golden", "loading", name)


def read_golden(name: str) -> Any:
    """The content of a JSON file of vectors, or the rows of a CSV file."""
    path = golden_path(name)
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def on_the_page(head: str, label: str) -> list[str]:
    """The numbers in a row of a table of `shown.md`, behind the row's name."""
    page = (ROOT / "tests" / "loading" / "shown.md").read_text(encoding="utf-8")
    (row,) = (row for row in table_rows(page) if row.head == head and row.cells[0] == label)
    return NUMBER.findall(" ".join(row.cells[1:]))


def shown_on_the_page(head: str, label: str, values: Sequence[float]) -> bool:
    """Whether that row shows these values."""
    shown = on_the_page(head, label)
    return len(shown) == len(values) and all(map(agrees, shown, values))


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Any]:
    """`read_golden`."""
    return read_golden


@pytest.fixture(scope="session")
def published() -> Path:
    """The folder of the published raw data."""
    return shared_path("data", "loading")


@pytest.fixture(scope="session")
def unlimited() -> Callable[[float | None], float]:
    """Vectors write null for no limit."""
    return lambda value: math.inf if value is None else float(value)
