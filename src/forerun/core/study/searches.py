"""Searches by simulation: each asks for its next run when the outcome of the last one is there.

Searches do not wait for each other, and what one returns does not depend on how many runs are simulated at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from forerun.core.study.cell import Outcome
from forerun.core.study.executors import Executor, Feed
from forerun.core.study.expand import Cell, StudyPlan

R = TypeVar("R")

#: changes to a scenario, each a path and its value
Overrides: TypeAlias = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Searching(Generic[R]):
    """A search.

    Parameters
    ----------
    steps : yields the changes to simulate next, is sent what `run_searches` makes of the outcome, returns what it found.
    most : how many runs it can ask for.
    about : what it looks for, in words.
    """

    steps: Generator[Overrides, Any, R]
    most: int
    about: str


@dataclass(frozen=True, slots=True)
class Reached:
    """How far searches are.

    Parameters
    ----------
    done : simulations so far.
    most : all that can still become necessary, those among them.
    about : what the last one was for, in words.
    """

    done: int
    most: int
    about: str = ""


def once(overrides: Overrides) -> Generator[Overrides, Any, Any]:
    """The steps of a search that is one run: it returns what it is sent."""
    return (yield overrides)


def run_searches(
    plan: StudyPlan,
    searches: Sequence[Searching[R]],
    executor: Executor,
    progress: Callable[[Reached], None],
    *,
    answer: Callable[[Outcome], Any] = lambda outcome: outcome,
) -> list[R]:
    """What each search returns.

    Parameters
    ----------
    plan : a study of the scenario that they change.
    executor : where the runs are simulated.
    progress : called before the first run and after each.
    answer : what a search is sent of an outcome (default: the outcome).
    """
    feed, found = Feed(), dict[int, R]()
    asked: list[int] = []  # by the number of a cell, which search it is of

    def advance(at: int, sent: Any) -> None:
        try:
            changes = searches[at].steps.send(sent)
        except StopIteration as end:
            found[at] = end.value
            return
        feed.put(Cell(len(asked), changes, plan.seeds[0]))
        asked.append(at)

    def most() -> int:
        runs = [asked.count(at) for at in range(len(searches))]
        return sum(
            count if at in found else max(search.most, count)
            for at, (search, count) in enumerate(zip(searches, runs))
        )

    for at in range(len(searches)):
        advance(at, None)
    progress(Reached(0, most()))
    for done, outcome in enumerate(executor.run(plan, feed), 1):
        at = asked[outcome.number]
        advance(at, answer(outcome))
        progress(Reached(done, most(), searches[at].about))
    return [found[at] for at in range(len(searches))]
