"""docs/benchmarks.md says what the records in benchmarks/results say."""

from __future__ import annotations

import importlib.util

import pytest

from .claims import ROOT

# benchmarks is a folder of scripts, not a package: this loads the file however pytest was started.
_spec = importlib.util.spec_from_file_location("benchmarks_page", ROOT / "benchmarks" / "page.py")
assert _spec and _spec.loader
benchmarks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(benchmarks)


def test_the_page_is_made_from_the_records() -> None:
    """To renew it: python -m benchmarks.page."""
    assert benchmarks.PAGE.read_text(encoding="utf-8") == benchmarks.page()


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (4794.7, 2, "4,800"),
        (0.00403, 2, "0.0040"),
        (11.44, 3, "11.4"),
        (0, 2, "0"),
        (99.9, 2, "100"),
        (-3.36, 2, "-3.4"),
    ],
)
def test_rounded_keeps_significant_digits(value: float, digits: int, text: str) -> None:
    assert benchmarks.rounded(value, digits) == text
