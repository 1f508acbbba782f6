"""Traces."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from typing import Final

from ..claims import Claim


def claims() -> Iterator[Claim]:
    """Limits that are constants of the code."""
    from forerun.core.trace.rows import LARGEST_INT
    from forerun.core.trace.stats import WINDOWS_S
    from forerun.spot.traces.fit import fit

    page = "docs/traces.md"
    yield Claim(page, "whole numbers beyond {}^{}", (2, math.log2(LARGEST_INT)))
    yield Claim(page, "for windows of {} s to {} min", (min(WINDOWS_S), max(WINDOWS_S) / 60))
    yield Claim(page, "A file named `100_{}` has scv {}, cv {}", (4.0, 4.0, math.sqrt(4.0)))
    fleets = inspect.signature(fit).parameters["traces"].default
    yield Claim(page, "A fit is judged by {} fleets that it generates", (fleets,))


#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {
    (
        "docs/traces.md",
        "`hourly` (24 chances to vanish and to return)",
    ): "tests/spot/test_fit.py::test_hourly_hazards_follow_the_hour",
    (
        "docs/traces.md",
        "N gaps give N + 1 queries, the first at 0",
    ): "tests/core/trace/test_readers.py::test_gaps_make_one_query_more_or_as_many",
    (
        "docs/traces.md",
        "stamps to 100 ns are read as whole numbers",
    ): "tests/core/trace/test_readers.py::test_stamps_keep_their_seventh_digit",
    (
        "docs/traces.md",
        "columns of 0 and 1 for recorded routing",
    ): "tests/core/trace/test_readers.py::test_recorded_routing_is_zero_or_one",
    (
        "docs/traces.md",
        "clipped below, first query at 0",
    ): "tests/core/trace/test_arrivals.py::test_legacy_gamma_takes_the_runs_seed_if_it_has_none",
}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = {
    ("docs/traces.md", "Azure LLM inference 2023, 2024"),
    ("docs/traces.md", "variance over mean of the counts; 1 for Poisson"),
}

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
