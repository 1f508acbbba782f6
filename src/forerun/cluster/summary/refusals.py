"""Why jobs were refused, by the constraint that binds, the most frequent first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

#: how a reason begins, as the schedules write it into `refused_because`, and the constraint in words
BOUNDS: Final = (
    (re.compile(r"own speed:"), "its own speed"),
    (re.compile(r"capacity in \["), "capacity until its deadline"),
    (
        re.compile(r"job .+, admitted before, is predicted late"),
        "a job admitted before that is late in any case",
    ),
    (re.compile(r"it would make job .+ late"), "a job admitted before that it would make late"),
    (re.compile(r"with it in one batch, job .+ would be late"), "jobs that came in the same batch"),
)
OTHER: Final = "other reasons"


@dataclass(frozen=True)
class Refused:
    """Jobs refused for one constraint.

    Parameters
    ----------
    bound : the constraint in words.
    jobs : how many.
    example, reason : the first of them, and its reason in full.
    """

    bound: str
    jobs: int
    example: str
    reason: str


def bound_of(reason: str) -> str:
    """The constraint that a reason names."""
    return next((bound for begins, bound in BOUNDS if begins.match(reason)), OTHER)


def refusals(jobs: Iterable[tuple[Any, str]]) -> tuple[Refused, ...]:
    """The refused among jobs given as (name, reason or empty), by constraint; the most frequent first."""
    by_bound: dict[str, list[tuple[Any, str]]] = {}
    for name, reason in jobs:
        if reason:
            by_bound.setdefault(bound_of(reason), []).append((name, reason))
    by_number = sorted(by_bound.items(), key=lambda item: -len(item[1]))
    return tuple(Refused(bound, len(those), str(those[0][0]), those[0][1]) for bound, those in by_number)


def because(refused: Iterable[Refused]) -> str:
    """The constraints in a few words: `15 for capacity until its deadline, 2 for its own speed`."""
    return ", ".join(f"{one.jobs} for {one.bound}" for one in refused)


def sentences(refused: Iterable[Refused]) -> tuple[str, ...]:
    """A sentence for each constraint, with the first job refused for it."""
    return tuple(
        f"refused for {one.bound}: {one.jobs} job{'s' * (one.jobs > 1)}, such as job {one.example} ({one.reason})"
        for one in refused
    )
