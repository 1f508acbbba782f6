"""The cluster room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..claims import Claim, record


def claims() -> Iterator[Claim]:
    page, bench, took = "docs/rooms/cluster.md", record("cluster-bench"), record("cluster-figures")["wall_s"]
    srtf, edf, growth = bench["Srtf"], bench["EdfRigid"], bench["growth"]
    yield Claim(
        page,
        "SRTF {} M and EDF {} M jobs/s in the compiled queue, {} and {} times a pure-Python twin",
        (srtf["compiled_jobs_per_s"] / 1e6, edf["compiled_jobs_per_s"] / 1e6, srtf["ratio"], edf["ratio"]),
    )
    yield Claim(
        page,
        "A user's Python policy in rounds of 60 s: {} k jobs/s. A million jobs: {} MB. An event costs {} us in a trace of "
        "10,000 jobs and {} us in one of a million, with {} jobs waiting",
        (
            bench["python_policy"]["jobs_per_s"] / 1e3,
            bench["memory_mb"],
            growth[0]["event_us"],
            growth[-1]["event_us"],
            growth[-1]["most_waiting"],
        ),
    )
    sentences = {
        "as published and again corrected: {} s": ("fig8a",),
        "six schedulers in two processes: {} s": ("fig8b",),
        "Figure 9: {} s with one draw": ("fig9, one draw",),
        "one in both modes), {} s with twenty": ("fig9, twenty draws",),
        "Figure 10: {} s.": ("fig10",),
        "Figure 11: {} s with one draw, {} s with twenty": ("fig11, one draw", "fig11, twenty draws"),
    }
    for text, names in sentences.items():
        yield Claim(page, text, tuple(took[name] for name in names))


#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {
    (
        "docs/rooms/cluster.md",
        "| schedule |",
    ): "tests/docs/test_figures.py::test_switches_do_what_their_record_says",
}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = {
    ("docs/rooms/cluster.md", "| name |"),
}

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
