"""Studies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..claims import Claim


def claims() -> Iterator[Claim]:
    from forerun.core.study import explain

    yield Claim("docs/studies.md", "a number is then halved {} times towards", (explain.HALVINGS,))


#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {
    (
        "docs/studies.md",
        "Two batching policies at 90 queries/s: the paired interval is 7 to 8 times as narrow",
    ): "tests/core/study/test_docs_figure.py::test_common_seeds_cut_the_interval",
    (
        "docs/studies.md",
        "with at most 5 % chance of any false claim",
    ): "tests/core/study/test_saved.py::test_equal_combinations_differ_significantly_in_few_studies",
    (
        "docs/studies.md",
        "for batch limits 8 and 16 of the same pipeline at 60 queries/s the paired interval was only 1 to 6 per cent",
    ): "tests/core/study/test_docs_figure.py::test_common_seeds_are_worth_little_where_variants_part_ways",
}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = {
    ("docs/studies.md", "| domain |"),
}

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
