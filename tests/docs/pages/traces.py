"""Traces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..claims import Claim


def claims() -> Iterator[Claim]:
    """Limits that are constants of the code."""
    yield from ()


#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {
    (
        "docs/traces.md",
        "N gaps give N + 1 queries, the first at 0",
    ): "tests/trace/test_readers.py::test_gaps_make_one_query_more_or_as_many",
    (
        "docs/traces.md",
        "stamps to 100 ns are read as whole numbers",
    ): "tests/trace/test_readers.py::test_stamps_keep_their_seventh_digit",
    (
        "docs/traces.md",
        "columns of 0 and 1 for recorded routing",
    ): "tests/trace/test_readers.py::test_recorded_routing_is_zero_or_one",
    (
        "docs/traces.md",
        "clipped below, first query at 0",
    ): "tests/trace/test_arrivals.py::test_legacy_gamma_takes_the_runs_seed_if_it_has_none",
}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = {
    ("docs/traces.md", "Azure LLM inference 2023, 2024"),
}

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
