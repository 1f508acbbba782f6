"""A study's store as read back: its combinations, which is best, what each axis does, what failed.

A store contains all of this; the study file is not needed.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.domain import environment_of, find_domain, left_out, objectives_of
from forerun.errors import Problem, StoreError, UsageError, known_names
from forerun.result import notebook
from forerun.result.numbers import is_number
from forerun.result.objective import Objective, cost_figure
from forerun.result.run import Interval
from forerun.result.stats import chosen_best_p, path_means
from forerun.study.cell import Done, Failed
from forerun.study.expand import Plan
from forerun.study.replicates import Replicates, of_a_fit
from forerun.study.store import Store
from forerun.study.summary import Point, figures_of, points
from forerun.study.wording import axis_labels, axis_unit, combination_text

#: maximum number of failed cells listed one by one
MOST_FAILURES: Final = 200
#: maximum number of metrics stored for a study whose file names none
MOST_METRICS: Final = 12
#: cells looked at to learn what metrics there are
_LOOKED_AT: Final = 50

Draws = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of the environment, and the choices at it.

    values: of the given axes, in the order of `SavedStudy.given`. ranked: the combinations at them, best first.
    """

    values: tuple[Any, ...]
    ranked: tuple[Point, ...]


@dataclass(frozen=True)
class SavedStudy:
    """A study as read from its store.

    id: of the study; version: of the forerun that ran it. points: the combinations that have an outcome, in the study's
    order. metrics: kept ones. objectives: of the domain, those that the results have. draws: of the ranking objective,
    float64[combinations, replications], NaN where there is none. failures: the first failed cells; reasons: how often each.
    """

    path: Path
    id: str
    version: str
    plan: Plan
    points: tuple[Point, ...] = field(repr=False)
    metrics: tuple[str, ...]
    objectives: tuple[Objective, ...]
    draws: Draws | None = field(repr=False)
    done: int
    failed: int
    failures: tuple[Failed, ...]
    reasons: Mapping[str, int]
    confidence: float = 0.95

    @property
    def domain(self) -> str:
        """The domain of the base scenario."""
        return str(self.plan.base.get("domain", ""))

    @property
    def objective(self) -> Objective | None:
        """What the combinations are ranked by, if anything says what is better."""
        return self.objectives[0] if self.objectives else None

    @property
    def labels(self) -> tuple[str, ...]:
        """Short names of the axes."""
        return axis_labels([name for name, _ in self.plan.axes])

    @property
    def varied(self) -> tuple[int, ...]:
        """The places of the axes that have two values or more; of all axes, if none has."""
        many = tuple(at for at, (_, values) in enumerate(self.plan.axes) if len(values) > 1)
        return many or tuple(range(len(self.plan.axes)))

    @property
    def given(self) -> tuple[int, ...]:
        """The places of the axes that vary and are no choice: as the study says, else as its domain does."""
        named, sections = self.plan.given, environment_of(self.domain)

        def is_given(path: str) -> bool:
            if named is not None:
                return path in named
            return path.removeprefix(f"{self.domain}.").replace("[", ".").partition(".")[0] in sections

        return tuple(
            at for at in self.varied if len(self.plan.axes[at][1]) > 1 and is_given(self.plan.axes[at][0])
        )

    @property
    def choices(self) -> tuple[int, ...]:
        """The places of the axes that vary and are a choice."""
        return tuple(at for at in self.varied if at not in self.given)

    def describe(self, values: Sequence[Any], places: Sequence[int] | None = None) -> str:
        """A combination in one line, by the axes that vary, or those at `places`."""
        shown = self.varied if places is None else places
        units = [axis_unit(self.plan.axes[at][0]) for at in shown]
        return combination_text([self.labels[at] for at in shown], [values[at] for at in shown], units)

    def setting_text(self, values: Sequence[Any]) -> str:
        """A setting of the given axes in one line."""
        paths = [self.plan.axes[at][0] for at in self.given]
        return combination_text([self.labels[at] for at in self.given], values, list(map(axis_unit, paths)))

    @property
    def shown(self) -> tuple[str, ...]:
        """The metrics to show: what the study names, else the objectives and then what differs between combinations."""
        if self.plan.metrics:
            return tuple(name for name in self.plan.metrics if name in self.metrics)
        known = [objective.key for objective in self.objectives if objective.key in self.metrics]
        first = [name for at, name in enumerate(known) if at == 0 or self.differs(name)]
        moving = [name for name in self.metrics if name not in known and self.differs(name)]
        shown = [*first, *moving][:4] or self.metrics[:4]
        cost = cost_figure(self.metrics)
        return (*shown, *([cost] if cost and cost not in shown and self.differs(cost) else []))

    def differs(self, metric: str) -> bool:
        """Whether a metric's mean differs between combinations."""
        return len({point.means.get(metric) for point in self.points}) > 1

    def settings(self) -> list[Setting]:
        """The settings of the given axes in the study's order, each with its combinations, best first.

        Combinations that are level in the objective are ranked by the further ones. One setting, without values, where
        no axis is given.
        """
        given, groups = self.given, dict[tuple[int, ...], list[Point]]()
        for point in self.points:
            places = self.plan.places(point.number)
            groups.setdefault(tuple(places[at] for at in given), []).append(point)
        return [
            Setting(tuple(points[0].values[at] for at in given), tuple(sorted(points, key=self._rank)))
            for _, points in sorted(groups.items())
        ]

    def ranked(self) -> list[Point]:
        """The combinations of each setting of the given axes, best first; in the study's order without an objective."""
        return [point for setting in self.settings() for point in setting.ranked]

    def rows(self, most: int = notebook.MOST_ROWS) -> tuple[list[str], list[list[Any]]]:
        """The ranking as a table: its head, and up to `most` rows, best first; combinations with equal figures share one."""
        from forerun.study.ranking import ranked_rows

        return ranked_rows(self, most)

    def _repr_html_(self) -> str:
        from forerun.study.ranking import level_groups

        left = sum(map(len, level_groups(self)[notebook.MOST_ROWS :]))
        return notebook.answer(
            *self.rows(), (f"and {left:,} combinations more" if left > 0 else "", self.why())
        )

    def left_out(self, point: Point) -> tuple[float, str]:
        """How much of the work a combination's objective is not about, and in words (see `Domain.left_out`)."""
        return left_out(self.domain, self.objective.key, point.means) if self.objective else (0.0, "")

    def comparable(self, one: Point, other: Point) -> bool:
        """Whether the objective of two combinations is about equally much work."""
        return math.isclose(self.left_out(one)[0], self.left_out(other)[0], abs_tol=1e-9)

    def _rank(self, point: Point) -> tuple[float, ...]:
        signs = (-1.0 if objective.better == "higher" else 1.0 for objective in self.objectives)
        means = (point.means.get(objective.key) for objective in self.objectives)
        ranked = tuple(math.inf if mean is None else sign * mean for sign, mean in zip(signs, means))
        return (round(self.left_out(point)[0], 9), *ranked)

    def behind(self, point: Point, best: Point) -> Interval | None:
        """Interval of a combination's mean difference to another on what both met; None for fewer than two."""
        if (gaps := self._gaps(point, best)) is None:
            return None
        interval = _weaker(point, best).difference(gaps, self.objective)
        if interval is None or not self.plan.paths:
            return interval
        return replace(interval, method=f"paired Student's t over {len(gaps)} paths")

    def gap(self, point: Point, best: Point) -> float:
        """A combination's mean difference to another on what both met; 0 where there is none."""
        gaps = self._gaps(point, best)
        return 0.0 if gaps is None else float(gaps.mean())

    @property
    def over(self) -> str:
        """What a mean is over: `10 seeds`, or `4 paths x 10 seeds`."""
        seeds = len(self.plan.seeds)
        counted = f"{seeds:,} {'seed' if seeds == 1 else 'seeds'}"
        return f"{len(self.plan.paths[1]):,} paths × {counted}" if self.plan.paths else counted

    @property
    def method(self) -> str:
        """How intervals are made."""
        if any(point.replicates.blocks for point in self.points):
            return "the spread of resamples"
        return "Student's t over the paths' means" if self.plan.paths else "Student's t"

    @property
    def cautions(self) -> tuple[str, ...]:
        """What a reader must know of means and intervals, each once."""
        texts = [one.replicates.caution for one in self.points]
        texts += [of_a_fit(self.plan.base)] if self.plan.independent > 1 else []
        if any(not self.comparable(one, self.points[0]) for one in self.points):
            texts.append("combinations that leave out more of the work rank behind those that leave out less")
        return tuple(dict.fromkeys(filter(None, texts)))

    def differs_significantly(self, others: Sequence[Point], best: Point) -> list[bool | None]:
        """Whether each differs significantly from the best, at most 5 % chance of any false claim; None for too few seeds.

        The best was chosen on the same seeds, so claims count over all pairs of the combinations (`chosen_best_p`).
        """
        all_gaps = [self._gaps(point, best) for point in others]
        p_values = [
            None if gaps is None else _weaker(point, best).p(gaps) for point, gaps in zip(others, all_gaps)
        ]
        adjusted = iter(chosen_best_p([p for p in p_values if p is not None], len(others) + 1))
        return [None if p is None else next(adjusted) <= 0.05 for p in p_values]

    def why(self) -> str:
        """One sentence: which combination is best, by how much, and whether the difference to the next is significant."""
        from forerun.study.ranking import why

        return why(self)

    def _gaps(self, one: Point, other: Point) -> Draws | None:
        """The independent differences on what both met: by seed, or the means of each path's; None for fewer than two,
        and where one leaves out more of the work."""
        if self.draws is None or not self.comparable(one, other):
            return None
        gaps = self.draws[one.number] - self.draws[other.number]
        if self.plan.paths:
            gaps = path_means(gaps.reshape(len(self.plan.paths[1]), len(self.plan.seeds)))
        finite: Draws = gaps[np.isfinite(gaps)]
        return finite if len(finite) > 1 else None


def _weaker(one: Point, other: Point) -> Replicates:
    """How the seeds of two combinations belong together: as those of the one that says less."""
    return one.replicates if one.replicates.why_not or not other.replicates.blocks else other.replicates


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
        combinations = points(plan, reader.watched(store), metrics=kept)
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
        failures=tuple(reader.failures),
        reasons=dict(reader.reasons.most_common()),
    )


class _Reader:
    """Reads each outcome once, and counts and stores what is needed."""

    def __init__(self, plan: Plan, objective: Objective | None) -> None:
        self.plan = plan
        self.key = objective.key if objective else ""
        self.draws = np.full((plan.combinations, plan.replications), np.nan) if objective else None
        self.done = 0
        self.failures: list[Failed] = []
        self.reasons: Counter[str] = Counter()

    def watched(self, store: Store) -> Any:
        """The store's outcomes, each looked at."""
        cells = len(self.plan)
        for outcome in store.outcomes():
            if not 0 <= outcome.number < cells:
                raise StoreError.at(store.path, f"has a cell {outcome.number}, and the study has {cells}")
            if isinstance(outcome, Failed):
                self.reasons[" ".join(outcome.reason.split())] += 1
                if len(self.failures) < MOST_FAILURES:
                    self.failures.append(outcome)
            else:
                self.done += 1
                value = outcome.summary.get(self.key)
                if self.draws is not None and is_number(value):
                    self.draws[divmod(outcome.number, self.plan.replications)] = value
            yield outcome


def _names(plan: Plan, store: Store) -> tuple[str, ...]:
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


def _objectives(plan: Plan, names: Sequence[str], asked: str) -> tuple[Objective, ...]:
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
