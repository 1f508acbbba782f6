"""Forecasts of waits: from when on there are any."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..claims import Claim

PAGE: Final = "docs/wait-time.md"


def claims() -> Iterator[Claim]:
    """Constants of the code."""
    from forerun.domains.cluster.wait_time.forecast import LEAST_PAST

    yield Claim(PAGE, "Fewer than {} former jobs with a known start", (LEAST_PAST,))


#: tables whose numbers the named test checks
TESTED: Final[dict[tuple[str, str], str]] = {}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = set()

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
