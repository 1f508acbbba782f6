"""Why a run came out as it did: where the time went, what binds, and what little change would turn the answer.

A room says what its question is (`answer`: a yes or no read off the summary) and which parameters a user can turn
(`levers`: for each, values in order of growing change). Each lever is walked until the answer turns; nothing is
assumed to be monotone, so the first value that turns it is the smallest *tried*, and what was tried is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forerun.errors import ForerunError
from forerun.result.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Answer:
    """A run's answer to its room's question: in words, and whether it is a yes."""

    question: str
    holds: bool


@dataclass(frozen=True)
class Lever:
    """A parameter to turn: its path in the scenario, and values in order of growing change (not the present one).

    meaning: in words, such as "one more replica of ResNet".
    """

    path: str
    present: Any
    values: Sequence[Any]
    meaning: str = ""


@dataclass(frozen=True)
class Turn:
    """What a lever did: the first value that turned the answer (None: none of those tried), and how many were tried."""

    lever: Lever
    value: Any
    tried: int
    why: str = ""


@dataclass(frozen=True)
class Explanation:
    """Why a run came out as it did.

    causes: (ledger, part, share of the whole) by size. binds: the run's own why. turns: levers, those that turned the
    answer first.
    """

    answer: Answer | None
    binds: str
    causes: tuple[tuple[str, str, float], ...]
    turns: tuple[Turn, ...]


def dominant_causes(ledgers: Sequence[Ledger], *, most: int = 5) -> tuple[tuple[str, str, float], ...]:
    """The largest parts of each ledger, as shares of its whole."""
    found = []
    for ledger in ledgers:
        shares = sorted(ledger.shares().items(), key=lambda item: -item[1])
        found += [(ledger.name, part, share) for part, share in shares[:most] if share > 0]
    return tuple(found)


def explain(
    run: Any,
    answer: Callable[[Mapping[str, Any]], Answer] | None,
    levers: Sequence[Lever],
    simulate_with: Callable[[str, Any], Any],
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> Explanation:
    """Explain a run (a Result or a SavedRun).

    simulate_with(path, value) simulates the run's scenario with one value changed; a change that is refused as input
    counts as tried and turns nothing.
    """
    given = answer(run.summary) if answer is not None else None
    turns = []
    if given is not None and answer is not None:
        for lever in levers:
            progress(lever.meaning or lever.path)
            turns.append(_walk(lever, given.holds, answer, simulate_with))
    turns.sort(key=lambda turn: (turn.value is None, turn.tried))
    return Explanation(given, run.why, dominant_causes(run.ledgers), tuple(turns))


def _walk(
    lever: Lever,
    holds: bool,
    answer: Callable[[Mapping[str, Any]], Answer],
    simulate_with: Callable[[str, Any], Any],
) -> Turn:
    for tried, value in enumerate(lever.values, start=1):
        try:
            result = simulate_with(lever.path, value)
        except ForerunError:
            continue
        if answer(result.summary).holds != holds:
            return Turn(lever, value, tried, result.why)
    return Turn(lever, None, len(lever.values))
