"""Studies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..claims import Claim, record


def claims() -> Iterator[Claim]:
    found = record("study-bench")
    one, two = found["workers_1"], found["workers_2"]
    page = "docs/studies.md"
    yield Claim(
        page,
        "{} ms of processor time a cell beyond the simulation on one worker and {} ms on two, all processes together "
        "(wall {} and {} ms at load {}; {} and {} times that of a plain pool that keeps nothing)",
        (
            *(each["overhead_ms"] for each in (one, two)),
            *(each["wall_ms"] for each in (one, two)),
            one["load_average"],
            *(each["over_plain_pool"] for each in (one, two)),
        ),
    )
    peaks = found["peak_mb"]
    yield Claim(
        page,
        "The peak is {} MB at 1,000 and {} MB at 10,000 cells",
        (peaks["1,000 cells"], peaks["10,000 cells"]),
    )
    yield Claim(page, "Reading and drawing 10,000 cells takes {} s (100 combinations)", (found["report_s"],))


#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = {
    ("docs/studies.md", "| room |"),
}

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
