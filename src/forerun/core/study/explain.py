"""Why a run has its result: where the time went, what limits it, and which small change would change the answer.

A domain's `Explainer` has a yes-or-no question, answered from the summary, and what-if parameters, each with values in order
of growing change. Each parameter is tried value by value until the answer changes; a number is then halved towards the last
value that did not change it. Nothing is assumed to be monotone: the reported value was simulated, changes the answer,
and is the smallest *tried*. A domain may also name changes whose effect is worth a table, such as each known bug of a
published simulator by itself.

Parameters do not wait for each other: each search asks for its next value when the last outcome is there, so what it
finds does not depend on how many values are simulated at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from forerun.core.domain import Answer, Change, WhatIf, code_of, get_domain, own_specs
from forerun.core.errors import Problem, ScenarioError, StoreError
from forerun.core.result import notebook
from forerun.core.result.ledger import Ledger
from forerun.core.result.numbers import format_number, is_number
from forerun.core.result.objective import Objective
from forerun.core.result.run import Result, SavedRun, require_run
from forerun.core.scenario.spec import to_data
from forerun.core.scenario.text import Document
from forerun.core.scenarios import build
from forerun.core.sources import file_of
from forerun.core.study.cell import Done, Failed, Outcome
from forerun.core.study.executors import Executor, Feed, Here
from forerun.core.study.executors.processes import Processes
from forerun.core.study.expand import Cell, StudyPlan

#: times that the gap between a value that turns the answer and one that does not is halved
HALVINGS: Final = 4


@dataclass(frozen=True)
class Turn:
    """What a what-if parameter did: the smallest value tried that changed the answer (None: none), of how many tried.

    refused: of those, the values that could not be simulated, each with the reason; they turn nothing.
    """

    what_if: WhatIf
    value: Any
    tried: int
    why: str = ""
    refused: tuple[tuple[Any, str], ...] = ()

    @property
    def change(self) -> float | None:
        """The change as a share of the present value; None where that is no number or 0, or nothing turned."""
        present = self.what_if.present
        if not (is_number(self.value) and is_number(present) and present):
            return None
        return float(abs(self.value - present) / abs(present))


@dataclass(frozen=True)
class Effect:
    """The effect of a change on figures: name -> (value without, value with). refused: why it cannot be simulated.

    The value without the change is the run's own, or that of the run with what is `given` of the change.
    """

    change: Change
    figures: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    refused: str = ""

    @property
    def moved(self) -> tuple[str, ...]:
        """The figures that it moves."""
        return tuple(name for name, (now, then) in self.figures.items() if now != then)


@dataclass(frozen=True)
class Explanation:
    """Why a run has its result.

    causes: (ledger, part, share of the whole) by size. binds: the run's own why. turns: what-if parameters, the smallest
    change first; numbers before names, those without effect last. effects: of the changes that the domain names. reasons:
    sentences on single things that went wrong, such as why jobs were refused, the most frequent first.
    """

    answer: Answer | None
    binds: str
    causes: tuple[tuple[str, str, float], ...]
    turns: tuple[Turn, ...]
    effects: tuple[Effect, ...] = ()
    reasons: tuple[str, ...] = ()

    def rows(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """The what-if parameters as a table: its head, and a row each, the smallest change first."""
        head = ("what to change", "now", "turns the answer at", "a change of", "values tried")
        return head, [
            (
                turn.what_if.meaning or turn.what_if.path,
                format_number(turn.what_if.present),
                "nothing tried turns it" if turn.value is None else format_number(turn.value),
                "" if turn.change is None else f"{turn.change:.1%}",
                turn.tried,
            )
            for turn in self.turns
        ]

    def _repr_html_(self) -> str:
        asked = f"{self.answer.question} {'Yes.' if self.answer.holds else 'No.'}" if self.answer else ""
        return notebook.answer(*self.rows(), (self.binds, *self.reasons), heading=asked)

    @property
    def smallest(self) -> Turn | None:
        """The parameter that turns the answer with the smallest change, if one does."""
        return next((turn for turn in self.turns if turn.value is not None), None)


def dominant_causes(ledgers: Sequence[Ledger], *, most: int = 5) -> tuple[tuple[str, str, float], ...]:
    """The largest parts of each ledger, as shares of its whole."""
    causes = []
    for ledger in ledgers:
        shares = sorted(ledger.shares().items(), key=lambda item: -item[1])
        causes += [(ledger.name, part, share) for part, share in shares[:most] if share > 0]
    return tuple(causes)


#: a parameter's search: yields the value to try next, is sent the outcome, and returns what it did
_Walk = Generator[Any, Outcome | None, Turn]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an explanation is. done: simulations so far. most: all that can still become necessary, those among them."""

    done: int
    most: int
    about: str = ""


def explain(
    run: Result | SavedRun,
    *,
    workers: int = 1,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Explanation:
    """Explain a run: its dominant causes, the binding constraint, and the smallest change that would change the answer.

    run: as `simulate` or `load_result` returns it.
    workers: number of processes (default: 1, this one); the result does not depend on it.
    progress: called before the first simulation, with the maximum number of simulations, and after each.

    If the domain has no explainer, the explanation has only the causes and the constraint.

    >>> result = forerun.simulate(forerun.load(forerun.demo("energy").scenario, ["trials=0", "policy=default"]))
    >>> explanation = forerun.explain(result)
    >>> explanation.answer.question, explanation.answer.holds
    ('Is energy saved against the default configuration without training longer?', False)
    """
    require_run(run, "explain")
    explainer, scenario = get_domain(run.domain).explainer, scenario_of(run)
    bare = scenario if explainer is None else explainer.bare(scenario)
    plan = StudyPlan(name_of(run), to_data(bare), Path.cwd(), (), (scenario.seed,), (), own=own_specs(bare))
    if explainer is None:
        return explain_with(run, None, (), plan)
    executor: Executor = Processes(workers) if workers > 1 else Here()
    return explain_with(
        run,
        explainer.answer,
        explainer.what_ifs(scenario, run),
        plan,
        changes=explainer.changes(scenario, run),
        objectives=get_domain(run.domain).objectives,
        reasons=explainer.reasons(run),
        executor=executor,
        progress=progress,
    )


def name_of(run: Result | SavedRun) -> str:
    """Where a run's scenario is, for messages."""
    return str(run.folder / "scenario.json") if isinstance(run, SavedRun) else f"run {run.id}"


def scenario_of(run: Result | SavedRun) -> Any:
    """A run's scenario in the types of its domain.

    Raises ScenarioError if it is none any more (a file that changed), StoreError if other code than now decided it.
    """
    if isinstance(run, Result):
        return run.scenario
    code = run.provenance.get("code", {})
    try:
        scenario = build(Document(name_of(run), dict(run.scenario)), base=Path.cwd())
    except ScenarioError as error:
        gone = [name for name in code if file_of(name.partition(":")[0]) is None]
        if not gone:
            raise
        named = ", ".join(f"{name} of {code[name]['distribution'] or 'no package'}" for name in gone)
        what = f"was made with {named}, which is not installed here"
        raise StoreError(Problem(str(run.folder), what), *error.problems) from error
    decided = {name: known["source"] for name, known in code.items()}
    if changed := sorted(set(decided.items()) ^ set(code_of(scenario).items())):
        what = f"was decided by another version of {changed[0][0]} than is installed now; simulate it again"
        raise StoreError.at(run.folder, what)
    return scenario


def explain_with(
    run: Any,
    answer: Callable[[Mapping[str, Any]], Answer] | None,
    what_ifs: Sequence[WhatIf],
    plan: StudyPlan,
    *,
    changes: Sequence[Change] = (),
    objectives: Sequence[Objective] = (),
    reasons: Sequence[str] = (),
    executor: Executor | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Explanation:
    """Explain a run (a Result or a SavedRun) of a plan's scenario.

    A value that cannot be simulated counts as tried and turns nothing. objectives: the figures in which effects of
    `changes` are shown. reasons: the domain's sentences on single things that went wrong. executor: where values are
    simulated (default: here, one after another); the explanation does not depend on it. progress: called before the first
    simulation and after each.
    """
    given = answer(run.summary) if answer is not None else None
    walks: list[_Walk] = []
    if given is not None and answer is not None:
        walks = [_walk(what_if, given.holds, answer) for what_if in what_ifs]
    walkers = _Walkers(plan.seeds[0], what_ifs, walks, changes)
    progress(Progress(0, walkers.most))
    for outcome in (executor or Here()).run(plan, walkers.feed):
        about = walkers.take(outcome)
        progress(Progress(walkers.done, walkers.most, about))
    turns = [turn for turn in walkers.turns if turn is not None]
    turns.sort(key=_smallness)
    keys = [one.key for one in objectives]
    effects = [
        _effect(change, walkers.baselines[change.given] if change.given else run.summary, keys, outcome)
        for change, outcome in zip(changes, walkers.changed)
    ]
    causes = dominant_causes(run.ledgers)
    return Explanation(given, run.why, causes, tuple(turns), tuple(effects), tuple(reasons))


class _Walkers:
    """The searches under way, and the changes; what each asks for is a cell, whose number says who asked."""

    def __init__(
        self, seed: int, what_ifs: Sequence[WhatIf], walks: Sequence[_Walk], changes: Sequence[Change]
    ) -> None:
        self.feed = Feed()
        self.done = 0
        self.turns: list[Turn | None] = [None] * len(walks)
        self.changed: list[Outcome] = [Failed(-1, "not simulated")] * len(changes)
        #: what is given of changes, and the run with it
        self.baselines: dict[tuple[tuple[str, Any], ...], Outcome] = {
            change.given: Failed(-1, "not simulated") for change in changes if change.given
        }
        self._seed, self._what_ifs, self._walks, self._changes = seed, what_ifs, walks, changes
        # By the number of a cell: what takes its outcome, and returns in words who that was.
        self._asked: list[Callable[[Outcome], str]] = []
        self._tried = [0] * len(walks)
        for at in range(len(walks)):
            self._advance(at, None)
        for given in self.baselines:
            self._ask(given, partial(self._take_baseline, given))
        for at, change in enumerate(changes):
            self._ask((*change.given, (change.path, change.value)), partial(self._take_change, at))

    @property
    def most(self) -> int:
        """Simulations so far, under way and possible, of all walks and changes."""
        return (
            len(self.baselines)
            + len(self._changes)
            + sum(
                tried if turn is not None else _most(what_if)
                for what_if, tried, turn in zip(self._what_ifs, self._tried, self.turns)
            )
        )

    def take(self, outcome: Outcome) -> str:
        """Let whoever asked for an outcome go on; returns in words who that was."""
        self.done += 1
        return self._asked[outcome.number](outcome)

    def _take_baseline(self, given: tuple[tuple[str, Any], ...], outcome: Outcome) -> str:
        self.baselines[given] = outcome
        return ", ".join(path for path, _ in given)

    def _take_change(self, at: int, outcome: Outcome) -> str:
        self.changed[at] = outcome
        return self._changes[at].meaning

    def _take_step(self, at: int, outcome: Outcome) -> str:
        self._advance(at, outcome)
        return self._what_ifs[at].meaning or self._what_ifs[at].path

    def _advance(self, at: int, outcome: Outcome | None) -> None:
        """One step of a walk; a walk that has not begun takes None."""
        try:
            value = self._walks[at].send(outcome)
        except StopIteration as end:
            self.turns[at] = end.value
            return
        self._tried[at] += 1
        self._ask(((self._what_ifs[at].path, value),), partial(self._take_step, at))

    def _ask(self, overrides: tuple[tuple[str, Any], ...], taker: Callable[[Outcome], str]) -> None:
        self.feed.put(Cell(len(self._asked), overrides, self._seed))
        self._asked.append(taker)


def _most(what_if: WhatIf) -> int:
    """The most values that a parameter's search tries."""
    return len(what_if.values) + (HALVINGS if any(map(is_number, what_if.values)) else 0)


def _smallness(turn: Turn) -> tuple[bool, bool, float]:
    change = turn.change
    return turn.value is None, change is None, turn.tried if change is None else change


def _walk(what_if: WhatIf, holds: bool, answer: Callable[[Mapping[str, Any]], Answer]) -> _Walk:
    tried: list[Any] = []
    refused: list[tuple[Any, str]] = []

    def turned(value: Any, outcome: Outcome | None) -> Done | None:
        """The outcome, if this value turns the answer."""
        assert outcome is not None, "a value that was asked for has an outcome"
        tried.append(value)
        if isinstance(outcome, Failed):
            refused.append((value, " ".join(outcome.reason.split())))
            return None
        return outcome if answer(outcome.summary).holds != holds else None

    for value in what_if.values:
        result = turned(value, (yield value))
        if result is not None:
            break
    else:
        return Turn(what_if, None, len(tried), refused=tuple(refused))
    least = [one for one in (what_if.present, *tried[:-1]) if is_number(one)]
    for _ in range(HALVINGS if is_number(value) and least else 0):
        same_side = [one for one in least if (one - what_if.present) * (value - what_if.present) >= 0]
        middle = _between(max(same_side, key=lambda one: abs(one - what_if.present)), value)
        if middle is None:
            break
        closer = turned(middle, (yield middle))
        if closer is None:
            least.append(middle)
        else:
            value, result = middle, closer
    return Turn(what_if, value, len(tried), result.why, tuple(refused))


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
    change: Change, without: Mapping[str, Any] | Outcome, keys: Sequence[str], outcome: Outcome
) -> Effect:
    """What a change does. without: the run's summary, or the outcome of the run with what is given."""
    for one in (without, outcome):
        if isinstance(one, Failed):
            return Effect(change, refused=" ".join(one.reason.split()))
    assert isinstance(outcome, Done)
    before = without.summary if isinstance(without, Done) else without
    assert isinstance(before, Mapping)
    both = {key: (before.get(key), outcome.summary.get(key)) for key in keys}
    return Effect(
        change,
        {
            key: (float(now), float(then))
            for key, (now, then) in both.items()
            if is_number(now) and is_number(then) and now is not None and then is not None
        },
    )
