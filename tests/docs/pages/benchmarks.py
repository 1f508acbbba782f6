"""The page that is generated from the records of benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..claims import Claim

PAGE: Final = "docs/benchmarks.md"


def claims() -> Iterator[Claim]:
    """None: a test compares the whole page with the records."""
    yield from ()


#: tables whose numbers the named test checks
TESTED: Final[dict[tuple[str, str], str]] = {
    (PAGE, f"| {head} |"): "tests/docs/test_benchmarks_page.py::test_the_page_is_made_from_the_records"
    for head in (
        "what",
        "measured",
        "command",
        "what ran",
        "record",
        "model",
        "load",
        "checked",
        "simulator",
        "predicted from",
        "servers",
        "changed",
        "cluster",
        "answers",
        "policy",
        "log",
    )
}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = set()

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
