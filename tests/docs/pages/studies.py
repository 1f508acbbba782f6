"""Studies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..claims import Claim, record


def claims() -> Iterator[Claim]:
    from forerun.study import explain

    found = record("study-bench")
    one, two = found["workers_1"], found["workers_2"]
    page = "docs/studies.md"
    yield Claim(page, "a number is then halved {} times towards", (explain.HALVINGS,))
    yield Claim(page, "Measured by `benchmarks/study/bench.py` on {} cells", (found["cells"],))
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
        "The peak is {} MB at {} and {} MB at {} cells",
        tuple(each for cells, mb in peaks.items() for each in (mb, int(cells.split()[0].replace(",", "")))),
    )
    yield Claim(
        page,
        "Reading and drawing {} cells takes {} s ({} combinations)",
        (found["cells"], found["report_s"], 100),
    )


#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {
    (
        "docs/studies.md",
        "Two batching policies at 90 queries/s: the paired interval is 7 to 8 times as narrow",
    ): "tests/study/test_docs_figure.py::test_common_seeds_cut_the_interval",
    (
        "docs/studies.md",
        "with at most 5 % chance of any false claim",
    ): "tests/study/test_saved.py::test_equal_combinations_are_told_apart_in_few_studies",
    (
        "docs/studies.md",
        "for batch limits 8 and 16 of the same pipeline at 60 queries/s the paired interval was only 1 to 6 per cent",
    ): "tests/study/test_docs_figure.py::test_common_seeds_are_worth_little_where_variants_part_ways",
}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = {
    ("docs/studies.md", "| room |"),
}

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
