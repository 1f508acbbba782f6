"""Forecasts of waits: how they did on a real log, and from when on there are any."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..claims import Claim, record

PAGE: Final = "docs/wait-time.md"


def claims() -> Iterator[Claim]:
    """What the back-test measured, and constants of the code."""
    from forerun.site.wait_time.forecast import INTERVALS, LEAST_PAST

    yield Claim(PAGE, "Fewer than {} former jobs with a known start", (LEAST_PAST,))
    figures = record("cluster-wait_time")
    whole = figures["coverage"][0]
    promised = tuple(100 * share for share in INTERVALS)
    did = tuple(100 * whole[f"within {share:.0%}"] for share in INTERVALS)
    yield Claim(
        PAGE,
        "intervals of {}, {}, {} and {} % contained the start of {}, {}, {} and {} % of {} jobs, "
        "and the loss was {} of that",
        (*promised, *did, whole["answers"], figures["ratio"]),
    )


#: tables whose numbers the named test checks
TESTED: Final[dict[tuple[str, str], str]] = {}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = set()

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = {
    (PAGE, "asked about each twelfth job, it was 53, 82, 90 and 96 %, and a loss of 0.81"),
}
