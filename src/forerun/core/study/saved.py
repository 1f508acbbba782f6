"""Reads a study back from its store, which contains all of it; the study file is not needed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.core.domain import find_domain, objectives_of
from forerun.core.errors import Problem, StoreError, UsageError, known_names
from forerun.core.result.numbers import is_number
from forerun.core.result.objective import Objective
from forerun.core.study.cell import Done, Failed
from forerun.core.study.expand import StudyPlan
from forerun.core.study.ranking import SavedStudy
from forerun.core.study.store import Store
from forerun.core.study.summary import figures_of, points
from forerun.core.study.wording import axis_labels, value_text

#: maximum number of failed cells named for each reason
MOST_FAILURES: Final = 5
#: maximum number of metrics stored for a study whose file names none
MOST_METRICS: Final = 12
#: cells looked at to learn what metrics there are
_LOOKED_AT: Final = 50


def load_saved(path: str | os.PathLike[str], objective: str = "") -> SavedStudy:
    """The study in a store, finished or not. objective: the metric to rank by, `metric[:higher|:lower]`; else the domain's.

    Raises StoreError if the store is absent, damaged or of another format; UsageError for an objective it has not.
    """
    place = Path(path)
    with Store(place) as store:
        plan = store.stored_plan()
        about = store.about()
        names = _names(plan, store)
        try:
            objectives = _objectives(plan, names, objective or plan.objective)
        except UsageError as error:
            if objective:
                raise
            raise StoreError.at(place, f"at objective: {error.problems[0].what}") from error
        keys = dict.fromkeys([*plan.metrics, *(one.key for one in objectives), *names])
        metrics = tuple(keys)[: max(MOST_METRICS, len(plan.metrics) + len(objectives))]
        reader = _Reader(plan, objectives[0] if objectives else None)
        counts = getattr(find_domain(str(plan.base.get("domain", ""))), "counts", ())
        kept = tuple(dict.fromkeys([*metrics, *counts])) if metrics else ()
        combinations = points(plan, reader.watched(store), metrics=kept, objective=reader.key)
    return SavedStudy(
        path=place,
        id=about.get("study", ""),
        version=about.get("version", ""),
        plan=plan,
        points=tuple(combinations),
        metrics=tuple(name for name in metrics if any(name in point.means for point in combinations)),
        objectives=objectives,
        draws=reader.draws,
        done=reader.done,
        failed=sum(reader.reasons.values()),
        failures=reader.failures,
        reasons=dict(reader.reasons.most_common()),
    )


class _Reader:
    """Reads each outcome once, and counts and stores what is needed."""

    def __init__(self, plan: StudyPlan, objective: Objective | None) -> None:
        self.plan = plan
        self.key = objective.key if objective else ""
        self.draws = np.full((plan.combinations, plan.replications), np.nan) if objective else None
        self.done = 0
        self.failures: dict[str, list[str]] = {}
        self.reasons: Counter[str] = Counter()

    def watched(self, store: Store) -> Any:
        """The store's outcomes, each looked at."""
        cells = len(self.plan)
        for outcome in store.outcomes():
            if not 0 <= outcome.number < cells:
                raise StoreError.at(store.path, f"has a cell {outcome.number}, and the study has {cells}")
            if isinstance(outcome, Failed):
                reason = " ".join(outcome.reason.split())
                self.reasons[reason] += 1
                named = self.failures.setdefault(reason, [])
                if len(named) < MOST_FAILURES:
                    named.append(self._named(outcome.number))
            else:
                self.done += 1
                value = outcome.summary.get(self.key)
                if self.draws is not None and is_number(value):
                    self.draws[divmod(outcome.number, self.plan.replications)] = value
            yield outcome

    def _named(self, number: int) -> str:
        """A cell in words."""
        plan, cell = self.plan, self.plan.cell(number)
        text = plan.in_words([value for _, value in cell.overrides])
        if plan.paths:
            text += f", {axis_labels([plan.paths[0]])[0]} {value_text(cell.overrides[-1][1])}"
        return f"{text}, seed {cell.seed} (cell {number})"


def _names(plan: StudyPlan, store: Store) -> tuple[str, ...]:
    """The metrics of the first cells that were simulated."""
    seen: dict[str, None] = {}
    looked = 0
    for outcome in store.outcomes():
        if isinstance(outcome, Done):
            seen |= dict.fromkeys(figures_of(plan, outcome))
            looked += 1
        if looked >= _LOOKED_AT:
            break
    return tuple(seen)


def _objectives(plan: StudyPlan, names: Sequence[str], asked: str) -> tuple[Objective, ...]:
    """The domain's objectives among the metrics, after the one that the user named, if any."""
    offered = tuple(one for one in objectives_of(str(plan.base.get("domain", ""))) if one.key in names)
    if not asked:
        return offered
    key, _, better = asked.partition(":")
    if key not in names or better not in ("", "higher", "lower"):
        raise UsageError(
            Problem("--objective", f"the cells have no metric {key!r}; {known_names(key, names)}")
        )
    same = next((one for one in offered if one.key == key), None)
    first = same if same and not better else Objective(key, "higher" if better == "higher" else "lower")
    return (first, *(one for one in offered if one.key != key))
