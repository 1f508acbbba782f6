"""The tutorial's first question."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..claims import Claim


def claims() -> Iterator[Claim]:
    """What the demonstration's scenario says."""
    import forerun
    from forerun.core.catalog import demo

    asked = forerun.load(demo("serving").scenario)
    promise = (100 * asked.attainment, asked.slo_ms)
    yield Claim(
        "docs/tutorial.md",
        "bursty traffic of {} queries a second. The table says whether {} % of the queries stay within {} ms",
        (asked.trace.process.rate_rps, *promise),
    )


#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = set()

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
