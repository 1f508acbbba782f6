"""Language models in the serving room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..claims import Claim, record


def claims() -> Iterator[Claim]:
    found = record("serving-llm")
    hour = found["hour_s"]
    yield Claim(
        "docs/rooms/serving-llm.md",
        "{} s on one replica, {} s on four; {} s and {} s with every iteration recorded. Over the plain twin: {} times",
        (
            hour["1 replica, requests"],
            hour["4 replicas, requests"],
            hour["1 replica, requests and iterations"],
            hour["4 replicas, requests and iterations"],
            found["over_plain"],
        ),
    )


#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {
    (
        "docs/rooms/serving-llm.md",
        "| |",
    ): "tests/serving/test_llm_medians.py::test_points_left_out_are_told_from_their_neighbours",
}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = {
    ("docs/rooms/serving-llm.md", "| key |"),
}

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
