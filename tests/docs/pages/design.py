"""Decisions, and how sure intervals are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..claims import Claim, record


def claims() -> Iterator[Claim]:
    from forerun.core.study.compare import FIRST_SEEDS

    page, found = "docs/development/statistics.md", record("statistics-intervals")
    shares = found["held_percent"]
    looked = {
        (law, start): [share for name, share in shares[law][f"from {start}"].items() if name != "fixed"]
        for law in shares
        for start in (5, FIRST_SEEDS)
    }
    early, usual, skewed = (
        looked["normal", 5],
        looked["normal", FIRST_SEEDS],
        looked["exponential", FIRST_SEEDS],
    )
    yield Claim(
        page,
        "Counted over {} normal truths at three precisions: beginning at {} seeds, {} to {} % of intervals hold the "
        "truth; beginning at {}, {} to {} %",
        (found["truths"], 5, min(early), max(early), FIRST_SEEDS, min(usual), max(usual)),
    )
    yield Claim(page, "So comparisons begin at {}.", (FIRST_SEEDS,))
    yield Claim(
        page,
        "as an exponential distribution reach {} to {} % only (a fixed sample of {} has the same trouble, {} %)",
        (
            min(skewed),
            max(skewed),
            FIRST_SEEDS,
            shares["exponential"][f"from {FIRST_SEEDS}"]["fixed"],
        ),
    )

    yield from _best_of_several(page)
    yield from _one_log(page)
    yield from _resampled(page)
    yield from _few_runs(page)


def _resampled(page: str) -> Iterator[Claim]:
    from forerun.core.result.stats import RESAMPLE_FARTHER
    from forerun.core.study.replicates import LEAST_BLOCKS, LEAST_LOAD

    found = record("statistics-resample")
    methods, width = found["percent"], "median width over the difference"
    ours, kinds = methods["ours"], found["ours by kind"]
    yield Claim(page, "the end far from 0 is {} times as far on that scale", (RESAMPLE_FARTHER,))
    yield Claim(
        page,
        "where the log has fewer than {} blocks or asks for less than {} % of the GPUs",
        (LEAST_BLOCKS, 100 * LEAST_LOAD),
    )
    yield Claim(
        page,
        "of {} logs with {} seeds each, {} % are answered. Of these, {} % contain the true difference; Student's t over the "
        "same seeds contains it in {} %, the bootstrap's percentile interval in {} % and its basic interval in {} %",
        (
            found["logs"],
            found["seeds"],
            ours["answered"],
            ours["held"],
            *(methods[name]["held"] for name in ("Student's t over the seeds", "percentile", "basic")),
        ),
    )
    calm = next(kind[width] for name, kind in kinds.items() if "load 0.7," in name)
    yield Claim(
        page, "in the median {} times the difference, and {} times at a load of .7", (ours[width], calm)
    )
    loads = [float(name.split()[1].rstrip(",")) for name in kinds]
    yield Claim(page, "which have loads of {} to {} and lognormal", (min(loads), max(loads)))
    held = [kind["held"] for kind in kinds.values()]
    yield Claim(page, "By kind of log, {} to {} % contain it", (min(held), max(held)))


def _few_runs(page: str) -> Iterator[Claim]:
    from forerun.core.study.replicates import LEAST_RUNS

    found = record("energy-intervals")
    ours, student = (
        [100 * found[f"{name}, {seeds} seeds"] for seeds in (10, 40)]
        for name in ("compare", "Student's t over seeds")
    )
    yield Claim(page, "with fewer than {} trainings of a size there is none", (LEAST_RUNS,))
    yield Claim(
        page,
        "Of {} synthetic jobs with 4, 5 or 8 recorded trainings of each of two sizes, {} % of the intervals contain the "
        "true difference with 10 seeds and {} % with 40; Student's t over seeds contains it in {} and {} %",
        (found["compared worlds"], *ours, *student),
    )


def _one_log(page: str) -> Iterator[Claim]:
    found = record("statistics-blocks")
    steady, congested = found["percent"]["steady"], found["percent"]["congested"]

    def held(figure: str) -> tuple[float, float]:
        return steady[figure]["held"], congested[figure]["held"]

    yield Claim(page, "Of {} logs of {} days each, 95 % intervals hold", (found["logs"], found["days"]))
    yield Claim(
        page,
        "mean completion time {} and {} %, its 99th percentile {} and {} %, share of deadlines met {} and {} %",
        (*held("jct_mean_s"), *held("jct_p99_s"), *held("deadline_ratio")),
    )


def _best_of_several(page: str) -> Iterator[Claim]:
    found = record("statistics-best")
    shares, power = found["false_percent"], found["power_percent"]["ahead by 2"]["10 combinations"]

    def span(combinations: int, key: str, laws: tuple[str, ...]) -> tuple[float, float]:
        cells = [cell[key] for law in laws for cell in shares[law][f"{combinations} combinations"].values()]
        return min(cells), max(cells)

    normal = ("normal", "common")
    yield Claim(
        page,
        "it reports a difference in {} to {} % of the studies with 10 combinations and in {} to {} % of those with 30",
        (*span(10, "false after Holm", normal), *span(30, "false after Holm", normal)),
    )
    symmetric = (*normal, "unequal", "exponential")
    yield Claim(
        page,
        "{} to {} % of the studies with 2 equal combinations, {} to {} % with 10 and {} to {} % with 30 (5 to 50 seeds, "
        "common or separate, equal or unequal spread, normal or exponential; {} studies each",
        (
            *span(2, "false", symmetric), *span(10, "false", symmetric), *span(30, "false", symmetric),
            found["studies"],
        ),
    )  # fmt: skip
    yield Claim(
        page,
        "ahead of 9 others differs significantly from {} % of them with 5 seeds, {} % with 10 and {} % with 20",
        tuple(power[f"{seeds} seeds"] for seeds in (5, 10, 20)),
    )
    skewed = shares["skewed"]["2 combinations"]
    yield Claim(
        page,
        "of 2 equal combinations, {} % are called different with 5 seeds and {} % with 50",
        (skewed["5 seeds"]["false"], skewed["50 seeds"]["false"]),
    )


#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {
    (
        "docs/development/statistics.md",
        "Over 1,000 truths with a twentieth of the cells missing the two-level interval covers 93 to 97 %, where t over all "
        "cells as if "
        "they were independent covers less than 80 %",
    ): "tests/core/study/test_paths.py::test_two_level_intervals_of_studies_cover",
    (
        "docs/development/statistics.md",
        "over 1,000 synthetic truths each, and ask for 95 %",
    ): "tests/core/test_stats.py::test_mean_intervals_cover",
    (
        "docs/development/statistics.md",
        "agree with scipy to 1e-12",
    ): "tests/core/test_stats.py::test_student_distribution_agrees_with_scipy",
}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = set()

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
