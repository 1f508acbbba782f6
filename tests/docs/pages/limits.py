"""Small pages: limits that are constants of the code, lists that the program prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..claims import Claim


def claims() -> Iterator[Claim]:
    """Limits that are constants of the code."""
    from forerun.data.archive import DEFAULT_LIMITS
    from forerun.report import thin
    from forerun.scenario.text import MAX_DEPTH

    page = "docs/reports.md"
    yield Claim(page, "| line, step, cdf | at most about {} points |", (thin.MOST_POINTS,))
    yield Claim(page, "| points | at most {} |", (thin.MOST_MARKS,))
    yield Claim(page, "| bar, stacked bar | the {} largest |", (thin.MOST_CATEGORIES,))
    yield Claim(page, "| histogram | at most {} bins |", (thin.MOST_BINS,))
    yield Claim(page, "| heat map | at most {} × {} cells |", tuple(thin.MOST_CELLS))
    yield Claim(page, "| gantt | {} tracks, about {} intervals |", (thin.MOST_TRACKS, thin.MOST_INTERVALS))
    yield Claim(
        "docs/museum.md",
        "more than {} members, and what unpacks to more than {} times its size are refused",
        (DEFAULT_LIMITS.members, DEFAULT_LIMITS.expansion),
    )
    yield Claim("docs/scenarios.md", "nesting beyond {} levels", (MAX_DEPTH,))


#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {
    (
        "docs/museum.md",
        "| defect |",
    ): "tests/museum/test_museum_page.py::test_the_page_tells_what_is_said_to_every_exhibit",
    ("docs/reproducing.md", "| id |"): "tests/docs/test_figures.py::test_the_list_of_results_is_the_programs",
    ("docs/composition.md", "| |"): "tests/docs/test_figures.py::test_the_composed_figures_come_out",
}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = {
    ("docs/composition.md", "| profile |"),
}

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
