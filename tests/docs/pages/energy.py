"""The energy room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..claims import Claim, record


def claims() -> Iterator[Claim]:
    page, found = "docs/rooms/energy.md", record("energy-bench")
    race, marks = found["race"], found["marks"]
    theirs = [one["reference_ms_per_attempt"] for one in race]
    ours = [one["compiled_us_per_attempt"] for one in race]
    compiled = [one["compiled_ratio"] for one in race]
    readable = [one["readable_ratio"] for one in race]
    yield Claim(
        page,
        "CPU time an attempt: about {} ms there, {} to {} µs in the compiled loops, {} to {} times less; {} to {} times "
        "less in the readable loops",
        (
            sum(theirs) / len(theirs),
            min(ours),
            max(ours),
            min(compiled),
            max(compiled),
            min(readable),
            max(readable),
        ),
    )
    yield Claim(
        page,
        "1,000 seeds of 100 recurrences take {} s in compat mode and {} s in corrected mode on one core, {} s with `joint`",
        tuple(
            marks[f"1,000 seeds x 100 recurrences, {mode}, s"] for mode in ("compat", "corrected", "joint")
        ),
    )
    growth = [one["ratio"] for one in found["scaling"].values()]
    yield Claim(
        page,
        "Ten times the submissions of a group take {} to {} times as long",
        (min(growth), max(growth)),
    )
    pipelines = found["pipelines"]
    yield Claim(
        page,
        "at most {} times its energy at each of its times, {} times as fast",
        (pipelines["worst_energy_ratio"], pipelines["times_as_fast"]),
    )
    for row in record("energy-joint"):
        label = f"| {row['eta']:g} | {row['beta']:g} | {row['seeds']} |"
        unit = " of pruning-gts'" if row is record("energy-joint")[0] else ""
        yield Claim(
            page,
            f"{label} {{}} | {{}} | {{}} of {{}} | {{}}{unit} |",
            (row["joint"], row["pruning_gts"], row["better_on"], row["workloads"], row["worst"]),
        )


#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = {
    ("docs/rooms/energy.md", "| |"),
}

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
