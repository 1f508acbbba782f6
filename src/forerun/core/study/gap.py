"""What separates a run from the best possible: simulated again without what a bound ignores, one thing after another.

What is left after all of them is the price of not knowing the future, and of the policy's own rules. The amounts are not
additive: in another order each change would move another amount.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from forerun.core.domain import Change, get_domain, objectives_of
from forerun.core.errors import UsageError
from forerun.core.result.bound import Bounder, Bracket
from forerun.core.result.run import Result, SavedRun, require_run
from forerun.core.scenario.spec import AnyScenario
from forerun.core.study.best import bounder_of
from forerun.core.study.cell import Done
from forerun.core.study.executors.processes import workers_of
from forerun.core.study.expand import Cell, StudyPlan
from forerun.core.study.explain import name_of, scenario_of


@dataclass(frozen=True, slots=True)
class Removal:
    """One thing taken away, besides those before it.

    Parameters
    ----------
    change : what; None for the run as it is.
    value : the figure then; None where it cannot be simulated, or is of other jobs than the bound.
    refused : why there is none; empty if there is.
    """

    change: Change | None
    value: float | None
    refused: str = ""

    @property
    def meaning(self) -> str:
        """In words."""
        return "as simulated" if self.change is None else self.change.meaning


@dataclass(frozen=True, slots=True)
class Gap:
    """From a run to the best possible.

    Parameters
    ----------
    figure : the summary figure, with its unit.
    title : in words.
    better : which way is up.
    steps : the run, then everything that a bound ignores taken away, one thing more in each.
    reached : what some schedule reaches, the steps among them; None: none is known.
    bound : what none exceeds.
    """

    figure: str
    title: str
    better: Literal["higher", "lower"]
    steps: tuple[Removal, ...]
    reached: float | None
    bound: float

    def rows(self) -> Iterator[tuple[str, float | None, float | None]]:
        """What each row is, its value, and by how much it differs from the last one that has a value."""
        before: float | None = None
        ends = ("some schedule that knows the future", self.reached), ("no scheduler exceeds", self.bound)
        for meaning, value in (*((step.meaning, step.value) for step in self.steps), *ends):
            yield meaning, value, None if before is None or value is None else value - before
            before = before if value is None else value


def gap_of(
    run: Result | SavedRun, *, workers: int = 1, progress: Callable[[str], None] = lambda _: None
) -> Gap:
    """What separates a run from the best possible, by the first objective of its domain that has a bound.

    Parameters
    ----------
    run : as `simulate` or `load_result` returns it.
    workers : number of processes (default: 1).
    progress : called with a message at each simulation and each better bound.

    Raises
    ------
    UsageError
        Nothing bounds a figure of this run.
    """
    require_run(run, "explain")
    scenario, bounder = scenario_of(run), bounder_of(run.domain)
    objective = _objective(run, bounder)
    progress("searching for the bound")
    bracket = _bracket(bounder, scenario, objective, progress)
    explainer = get_domain(run.domain).explainer
    changes = explainer.relaxations(scenario) if explainer is not None else ()
    steps = _steps(run, scenario, bounder, bracket, changes, workers, progress)
    known = [step.value for step in steps if step.value is not None]
    known += [bracket.reached] if bracket.reached is not None else []
    best = max if bracket.better == "higher" else min
    reached = best(known) if known else None
    return Gap(bracket.figure, bracket.title, bracket.better, steps, reached, bracket.bound)


def _objective(run: Result | SavedRun, bounder: Bounder[Any]) -> str:
    """The objective that is bounded and that the run has. Raises UsageError."""
    reasons = []
    for one in objectives_of(run.domain):
        if one.key in bounder.figures and run.summary.get(one.key) is not None:
            if not (why := bounder.not_about(one.key, run.summary)):
                return bounder.figures[one.key].objective
            reasons.append(f"{one.title}: {why}")
    raise UsageError.at("--bound", "; ".join(reasons) or "the run has no figure of which a bound is known")


def _bracket(
    bounder: Bounder[Any], scenario: AnyScenario, objective: str, progress: Callable[[str], None]
) -> Bracket:
    bracket = None
    for bracket in bounder.search(scenario, objective):
        progress(f"{bracket.title}: at best {bracket.bound:.6g}")
    assert bracket is not None, "a search has a bracket"
    return bracket


def _steps(
    run: Result | SavedRun,
    scenario: AnyScenario,
    bounder: Bounder[Any],
    bracket: Bracket,
    changes: Sequence[Change],
    workers: int,
    progress: Callable[[str], None],
) -> tuple[Removal, ...]:
    """The run, and runs without what a bound ignores; each has all changes before its own, too."""
    plan = StudyPlan.of(name_of(run), scenario)
    overrides = [tuple((one.path, one.value) for one in changes[: at + 1]) for at in range(len(changes))]
    cells = [Cell(at, given, plan.seeds[0]) for at, given in enumerate(overrides)]
    outcomes = {}
    for outcome in workers_of(workers).run(plan, cells):
        outcomes[outcome.number] = outcome
        progress(f"{len(outcomes)} of {len(changes)} simulations")
    steps = [Removal(None, float(run.summary[bracket.figure]))]
    for at, change in enumerate(changes):
        outcome = outcomes[at]
        if not isinstance(outcome, Done):
            steps.append(Removal(change, None, outcome.reason))
        elif why := bounder.not_about(bracket.figure, outcome.summary):
            steps.append(Removal(change, None, why))
        else:
            value = float(outcome.summary.get(bracket.figure, math.nan))
            steps.append(Removal(change, value))
    return tuple(steps)
