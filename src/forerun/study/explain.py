"""Why a run came out as it did: where the time went, what binds, and what little change would turn the answer.

A room says what its question is (`answer`: a yes or no read off the summary) and which parameters a user can turn
(`levers`: for each, values in order of growing change). Each lever is walked until the answer turns, and a number is
then halved towards the last value that did not turn it. Nothing is assumed to be monotone: the value told was simulated
and turns the answer, and is the smallest *tried*. A room may also name changes whose effect is worth a table
(`changes`), such as each accident of a published simulator by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from forerun.errors import ForerunError
from forerun.result.ledger import Ledger
from forerun.study.objective import Objective
from forerun.study.summary import is_number

#: times that the gap between a value that turns the answer and one that does not is halved
HALVINGS: Final = 4


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
    """What a lever did: the smallest value tried that turned the answer (None: none did), and how many were tried."""

    lever: Lever
    value: Any
    tried: int
    why: str = ""

    @property
    def change(self) -> float | None:
        """The change as a share of the present value; None where that is no number or 0, or nothing turned."""
        present = self.lever.present
        if not (is_number(self.value) and is_number(present) and present):
            return None
        return float(abs(self.value - present) / abs(present))


@dataclass(frozen=True)
class Change:
    """One value of a scenario changed to see what it does. meaning: in words."""

    path: str
    value: Any
    meaning: str


@dataclass(frozen=True)
class Effect:
    """What a change does to figures: name -> (value now, value changed). refused: why it could not be simulated."""

    change: Change
    figures: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    refused: str = ""

    @property
    def moved(self) -> tuple[str, ...]:
        """The figures that it moves."""
        return tuple(name for name, (now, then) in self.figures.items() if now != then)


@dataclass(frozen=True)
class Explanation:
    """Why a run came out as it did.

    causes: (ledger, part, share of the whole) by size. binds: the run's own why. turns: levers, the smallest change
    first; numbers before names, those that turn nothing last. effects: of the changes that the room names.
    """

    answer: Answer | None
    binds: str
    causes: tuple[tuple[str, str, float], ...]
    turns: tuple[Turn, ...]
    effects: tuple[Effect, ...] = ()

    @property
    def smallest(self) -> Turn | None:
        """The lever that turns the answer with the smallest change, if one does."""
        return next((turn for turn in self.turns if turn.value is not None), None)


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
    changes: Sequence[Change] = (),
    objectives: Sequence[Objective] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Explanation:
    """Explain a run (a Result or a SavedRun).

    simulate_with(path, value) simulates the run's scenario with one value changed; a change that is refused as input
    counts as tried and turns nothing. objectives: the figures in which effects of `changes` are told.
    """
    given = answer(run.summary) if answer is not None else None
    turns = []
    if given is not None and answer is not None:
        for lever in levers:
            progress(lever.meaning or lever.path)
            turns.append(_walk(lever, given.holds, answer, simulate_with))
    turns.sort(key=_smallness)
    effects = []
    for change in changes:
        progress(change.meaning)
        effects.append(_effect(change, run.summary, [one.key for one in objectives], simulate_with))
    return Explanation(given, run.why, dominant_causes(run.ledgers), tuple(turns), tuple(effects))


def _smallness(turn: Turn) -> tuple[bool, bool, float]:
    change = turn.change
    return turn.value is None, change is None, turn.tried if change is None else change


def _walk(
    lever: Lever,
    holds: bool,
    answer: Callable[[Mapping[str, Any]], Answer],
    simulate_with: Callable[[str, Any], Any],
) -> Turn:
    tried: list[Any] = []

    def turned(value: Any) -> Any:
        """The result, if this value turns the answer."""
        tried.append(value)
        try:
            result = simulate_with(lever.path, value)
        except ForerunError:
            return None
        return result if answer(result.summary).holds != holds else None

    for value in lever.values:
        result = turned(value)
        if result is not None:
            break
    else:
        return Turn(lever, None, len(tried))
    least = [one for one in (lever.present, *tried[:-1]) if is_number(one)]
    for _ in range(HALVINGS if is_number(value) and least else 0):
        same_side = [one for one in least if (one - lever.present) * (value - lever.present) >= 0]
        middle = _between(max(same_side, key=lambda one: abs(one - lever.present)), value)
        if middle is None:
            break
        closer = turned(middle)
        if closer is None:
            least.append(middle)
        else:
            value, result = middle, closer
    return Turn(lever, value, len(tried), result.why)


def _between(still: float, turning: float) -> float | int | None:
    """A value half way, whole between whole numbers and else in three digits; None where there is none between."""
    middle: float | int
    if isinstance(still, int) and isinstance(turning, int):
        middle = (still + turning) // 2
    else:
        middle = float(f"{(still + turning) / 2:.3g}")
    low, high = min(still, turning), max(still, turning)
    return middle if low < middle < high else None


def _effect(
    change: Change, given: Mapping[str, Any], keys: Sequence[str], simulate_with: Callable[[str, Any], Any]
) -> Effect:
    try:
        found = simulate_with(change.path, change.value).summary
    except ForerunError as error:
        return Effect(change, refused=" ".join(str(error).split()))
    both = {key: (given.get(key), found.get(key)) for key in keys}
    return Effect(
        change,
        {
            key: (float(now), float(then))
            for key, (now, then) in both.items()
            if is_number(now) and is_number(then) and now is not None and then is not None
        },
    )
