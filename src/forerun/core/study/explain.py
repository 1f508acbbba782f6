"""Why a run has its result: where the time went, what limits it, and which small change would change the answer.

A domain's `Explainer` has a yes-or-no question, answered from the summary, and what-if parameters, each with values in order
of growing change. Each parameter is tried value by value until the answer changes; a number is then halved towards the last
value that did not change it. Nothing is assumed to be monotone: the reported value was simulated, changes the answer,
and is the smallest *tried*. A domain may also name changes whose effect is worth a table, such as each known bug of a
published simulator by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from forerun.core.domain import Answer, Change, WhatIf, code_of, get_domain
from forerun.core.errors import Problem, ScenarioError, StoreError
from forerun.core.result import notebook
from forerun.core.result.ledger import Ledger
from forerun.core.result.numbers import format_number, is_number
from forerun.core.result.objective import Objective
from forerun.core.result.run import Result, SavedRun, require_run
from forerun.core.scenario.text import Document
from forerun.core.scenarios import build
from forerun.core.sources import file_of
from forerun.core.study.cell import Done, Failed, Outcome
from forerun.core.study.executors import Executor, Here
from forerun.core.study.executors.processes import workers_of
from forerun.core.study.expand import StudyPlan
from forerun.core.study.searches import Overrides, Reached, Searching, once, run_searches

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


def explain(
    run: Result | SavedRun,
    *,
    workers: int = 1,
    progress: Callable[[Reached], None] = lambda _: None,
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
    plan = StudyPlan.of(name_of(run), bare)
    if explainer is None:
        return explain_with(run, None, (), plan)
    return explain_with(
        run,
        explainer.answer,
        explainer.what_ifs(scenario, run),
        plan,
        changes=explainer.changes(scenario, run),
        objectives=get_domain(run.domain).objectives,
        reasons=explainer.reasons(run),
        executor=workers_of(workers),
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
    progress: Callable[[Reached], None] = lambda _: None,
) -> Explanation:
    """Explain a run (a Result or a SavedRun) of a plan's scenario.

    A value that cannot be simulated counts as tried and turns nothing. objectives: the figures in which effects of
    `changes` are shown. reasons: the domain's sentences on single things that went wrong. executor: where values are
    simulated (default: here, one after another); the explanation does not depend on it. progress: called before the first
    simulation and after each.
    """
    given = answer(run.summary) if answer is not None else None
    searches: list[Searching[Any]] = []
    if given is not None and answer is not None:
        searches = [
            Searching(_walk(one, given.holds, answer), _most(one), one.meaning or one.path)
            for one in what_ifs
        ]
    walks = len(searches)
    baselines = list(dict.fromkeys(change.given for change in changes if change.given))
    searches += [Searching(once(one), 1, ", ".join(path for path, _ in one)) for one in baselines]
    searches += [Searching(once((*one.given, (one.path, one.value))), 1, one.meaning) for one in changes]
    found = run_searches(plan, searches, executor or Here(), progress)
    turns = sorted(found[:walks], key=_smallness)
    before: dict[Overrides, Any] = {(): run.summary, **dict(zip(baselines, found[walks:]))}
    keys = [one.key for one in objectives]
    effects = [
        _effect(change, before[change.given], keys, outcome)
        for change, outcome in zip(changes, found[walks + len(baselines) :])
    ]
    causes = dominant_causes(run.ledgers)
    return Explanation(given, run.why, causes, tuple(turns), tuple(effects), tuple(reasons))


def _most(what_if: WhatIf) -> int:
    """The most values that a parameter's search tries."""
    return len(what_if.values) + (HALVINGS if any(map(is_number, what_if.values)) else 0)


def _smallness(turn: Turn) -> tuple[bool, bool, float]:
    change = turn.change
    return turn.value is None, change is None, turn.tried if change is None else change


def _walk(
    what_if: WhatIf, holds: bool, answer: Callable[[Mapping[str, Any]], Answer]
) -> Generator[Overrides, Outcome, Turn]:
    """The search of the value from which a parameter turns the answer."""
    tried: list[Any] = []
    refused: list[tuple[Any, str]] = []

    def turned(value: Any, outcome: Outcome) -> Done | None:
        """The outcome, if this value turns the answer."""
        tried.append(value)
        if isinstance(outcome, Failed):
            refused.append((value, " ".join(outcome.reason.split())))
            return None
        return outcome if answer(outcome.summary).holds != holds else None

    for value in what_if.values:
        result = turned(value, (yield ((what_if.path, value),)))
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
        closer = turned(middle, (yield ((what_if.path, middle),)))
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
