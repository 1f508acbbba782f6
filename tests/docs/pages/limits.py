"""Pages with few numbers: limits that are constants of the code, settings of examples, lists that the program prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..claims import Claim


def claims() -> Iterator[Claim]:
    """Limits that are constants of the code, and what the files on the pages say."""
    from forerun.core.data.archive import MOST_EXPANSION, MOST_MEMBERS
    from forerun.core.report import thin
    from forerun.core.report.compose import MOST_RUNS
    from forerun.core.report.drawing import readable_scale
    from forerun.core.result.timeline import MAX_SLICES
    from forerun.core.scenario.text import MAX_DEPTH

    page = "docs/reports.md"
    yield Claim(page, "| line, step, cdf | at most about {} points |", (thin.MOST_POINTS,))
    yield Claim(page, "| points | at most {} |", (thin.MOST_MARKS,))
    yield Claim(page, "| bar, stacked bar | the {} largest |", (thin.MOST_CATEGORIES,))
    yield Claim(page, "| histogram | at most {} bins |", (thin.MOST_BINS,))
    yield Claim(page, "| heat map | at most {} × {} cells |", tuple(thin.MOST_CELLS))
    yield Claim(page, "| gantt | {} tracks, about {} intervals |", (thin.MOST_TRACKS, thin.MOST_INTERVALS))
    unit, factor = readable_scale("s", 250_000)
    yield Claim(
        page, f"{{}} s are drawn as {{}} {unit}, and the axis says {unit}", (250_000, 250_000 / factor)
    )
    yield Claim(page, "Above {} slices each track keeps its longest ones", (MAX_SLICES,))
    yield Claim(
        "docs/development/malformed-inputs.md",
        "more than {} members, and what unpacks to more than {} times its size are refused",
        (MOST_MEMBERS, MOST_EXPANSION),
    )
    yield Claim("docs/scenarios.md", "nesting beyond {} levels", (MAX_DEPTH,))
    yield Claim(page, "follows one another, at most {} on a page", (MOST_RUNS,))


#: what the named test checks
TESTED: Final[dict[tuple[str, str], str]] = {
    (
        "docs/development/malformed-inputs.md",
        "| defect |",
    ): "tests/core/malformed/test_malformed_inputs_page.py::test_the_page_lists_the_outcome_of_every_input",
    ("docs/reproducing.md", "| id |"): "tests/docs/test_figures.py::test_the_list_of_results_is_the_programs",
    (
        "docs/reports.md",
        "at 3:1 or more against the background",
    ): "tests/core/report/test_drawing.py::test_colours_stand_out",
}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = set()

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
