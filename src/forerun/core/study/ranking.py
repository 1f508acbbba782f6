"""A study as read back, ranked, in words and in small tables: the best combination, what each axis does, trade-offs."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.core.domain import environment_of, left_out
from forerun.core.result import notebook
from forerun.core.result.numbers import format_number, span
from forerun.core.result.objective import Objective, cost_figure, pareto
from forerun.core.result.stats import Interval, chosen_best_p, path_means
from forerun.core.study.cell import Failed
from forerun.core.study.expand import StudyPlan
from forerun.core.study.replicates import Replicates, of_a_fit
from forerun.core.study.summary import Point
from forerun.core.study.wording import axis_labels, axis_unit, combination_text, value_text
from forerun.core.units import split_name

Draws = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RankedSetting:
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
    plan: StudyPlan
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

    def settings(self) -> list[RankedSetting]:
        """The settings of the given axes in the study's order, each with its combinations, best first.

        Combinations that are level in the objective are ranked by the further ones. One setting, without values, where
        no axis is given.
        """
        given, groups = self.given, dict[tuple[int, ...], list[Point]]()
        for point in self.points:
            places = self.plan.places(point.number)
            groups.setdefault(tuple(places[at] for at in given), []).append(point)
        return [
            RankedSetting(tuple(points[0].values[at] for at in given), tuple(sorted(points, key=self._rank)))
            for _, points in sorted(groups.items())
        ]

    def ranked(self) -> list[Point]:
        """The combinations of each setting of the given axes, best first; in the study's order without an objective."""
        return [point for setting in self.settings() for point in setting.ranked]

    def rows(self, most: int = notebook.MOST_ROWS) -> tuple[list[str], list[list[Any]]]:
        """The ranking as a table: its head, and up to `most` rows, best first; combinations with equal figures share one."""
        return ranked_rows(self, most)

    def _repr_html_(self) -> str:
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


@dataclass(frozen=True, slots=True)
class AxisEffect:
    """What an axis does to the ranking objective, over the settings of the other axes at which all its values ran.

    best, worst: its values with the best and the worst mean, and those means. wins: settings at which `best` is best.
    settings: how many settings there are.
    """

    axis: str
    best: Any
    best_mean: float
    worst: Any
    worst_mean: float
    wins: int
    settings: int


def why(study: SavedStudy) -> str:
    """One sentence: which combination is best, by how much, and whether the others differ from it significantly.

    Where axes are given: which choice is best at which of their settings.
    """
    objective = study.objective
    if objective is None:
        return ""
    settings = [
        (setting.values, [point for point in setting.ranked if objective.key in point.means])
        for setting in study.settings()
    ]
    there = [(values, ranked) for values, ranked in settings if ranked]
    if not there:
        return ""
    if len(settings) > 1:
        return _at_settings(study, objective, there)
    ranked = there[0][1]
    best = ranked[0]
    text = f"{study.describe(best.values)} has the {_extreme(objective)} {objective.title}, "
    text += _amount(objective, best.means[objective.key])
    others = [point for point in ranked if study.comparable(point, best)]
    interval = best.intervals.get(objective.key)
    if interval is not None:
        over = study.over if study.plan.paths else f"{best.seeds} seeds"
        text += f" ({format_number(interval.low)} … {format_number(interval.high)} over {over})"
    alike = ""
    if len(others) < len(ranked):
        text += _of_those(study, objective, ranked)
        alike = " that leave out no more"
    return text + (_next(study, objective, best, others[1:], alike) if len(others) > 1 else "")


def _of_those(study: SavedStudy, objective: Objective, ranked: Sequence[Point]) -> str:
    """That the best is so among those that leave out least of the work, and which of the others has a better mean."""
    least, words = study.left_out(ranked[0])
    text = f" of those with the fewest left out ({words})" if least else " of those that leave nothing out"
    sign = -1.0 if objective.better == "higher" else 1.0
    ahead = min(ranked, key=lambda point: sign * point.means[objective.key])
    if study.comparable(ahead, ranked[0]):
        return text
    mean = _amount(objective, ahead.means[objective.key])
    return f"{text}, and {study.describe(ahead.values)} has {mean} with {study.left_out(ahead)[1]}"


def _at_settings(
    study: SavedStudy, objective: Objective, settings: Sequence[tuple[tuple[Any, ...], Sequence[Point]]]
) -> str:
    """Which choice is best at which settings of the given axes; how the objective runs where nothing is a choice."""
    if not study.choices:
        ends = [ranked[0] for _, ranked in (settings[0], settings[-1])]
        trend = " and ".join(
            f"{_amount(objective, point.means[objective.key])} at {study.describe(point.values)}"
            for point in ends
        )
        return f"every axis is given, so there is nothing to choose: {objective.title} is {trend}"
    at: dict[str, list[str]] = {}
    clear, compared = 0, False
    for values, ranked in settings:
        level = _level_with_first(study, objective, ranked)
        best = study.describe(ranked[0].values, study.choices)
        if len(level) == len(ranked) > 1:
            best = "every choice alike"
        elif len(level) > 1:
            best += f" (level with {len(level) - 1:,} more)"
        at.setdefault(best, []).append(study.setting_text(values))
        significant = study.differs_significantly(ranked[1:], ranked[0]) if len(ranked) > 1 else []
        compared |= any(one is not None for one in significant)
        clear += bool(significant) and all(significant)
    text = f"{_extreme(objective)} {objective.title}: " + "; ".join(
        f"{best} at {_listed(places)}" for best, places in at.items()
    )
    if compared:
        text += f"; the best differs significantly from every other choice at {clear:,} of {len(settings):,} "
        text += "(paired, 5 % over all pairs at each)"
    return text


def _listed(texts: Sequence[str], most: int = 6) -> str:
    """`a, b and c`; only the first of many."""
    if len(texts) > most:
        return f"{', '.join(texts[:most])} and {len(texts) - most:,} more"
    return " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else texts[0]


def _extreme(objective: Objective) -> str:
    return "highest" if objective.better == "higher" else "lowest"


def _next(study: SavedStudy, objective: Objective, best: Point, others: Sequence[Point], alike: str) -> str:
    """How far the others are behind the best, and from how many of them it differs significantly. alike: which they are."""
    second = others[0]
    gap = abs(second.means[objective.key] - best.means[objective.key])
    name = study.describe(second.values)
    level = len(_level_with_first(study, objective, [best, *others])) - 1
    if level:
        text = f"; so has {name}" if level == 1 else f"; so have {level:,} others"
        text += "" if gap == 0 else " to the digits shown"
        further = [f"{one.title} ({one.better})" for one in study.objectives[1:]] if gap == 0 else []
        return text + (f", ranked after it by {' and '.join(further)}" if further else "")
    significant = study.differs_significantly(others, best)
    text = f"; next is {name}, {_amount(objective, gap)} behind"
    if significant[0] is None:
        return text
    unsure = sum(one is False for one in significant)
    how = f"all others{alike} differ significantly from it"
    if unsure:
        how = f"{unsure:,} of {len(others):,} others{alike} are not significantly different from it"
    return f"{text}; {how} (paired, 5 % over all pairs)"


def _level_with_first(study: SavedStudy, objective: Objective, ranked: Sequence[Point]) -> list[Point]:
    """The first points whose objective reads like the first one's."""
    if objective.key not in ranked[0].means:
        return list(ranked[:1])
    shown = format_number(ranked[0].means[objective.key])
    alike = (
        objective.key in one.means
        and format_number(one.means[objective.key]) == shown
        and study.comparable(one, ranked[0])
        for one in ranked
    )
    return [point for point, _ in itertools.takewhile(lambda pair: pair[1], zip(ranked, alike))]


def effects(study: SavedStudy) -> tuple[AxisEffect, ...]:
    """What each axis with two values or more does, the largest effect first; none without an objective.

    An axis on whose values all means are level does nothing, and is left out, and so is one that is given.
    """
    objective = study.objective
    if objective is None:
        return ()
    means = np.full(study.plan.combinations, np.nan)
    for point in study.points:
        means[point.number] = point.means.get(objective.key, np.nan)
    sizes = [len(values) for _, values in study.plan.axes]
    grid = means.reshape(sizes or [1])
    moved = []
    for at, (_, values) in enumerate(study.plan.axes):
        if at in study.given:
            continue
        table = np.moveaxis(grid, at, 0).reshape(len(values), -1)
        whole = table[:, np.isfinite(table).all(axis=0)]
        if len(values) > 1 and whole.shape[1] and np.ptp(whole.mean(axis=1)) > 0:
            moved.append(_effect(study.labels[at], values, whole, objective))
    return tuple(sorted(moved, key=lambda one: -abs(one.best_mean - one.worst_mean)))


def _effect(axis: str, values: Sequence[Any], table: Any, objective: Objective) -> AxisEffect:
    """The effect of one axis.

    table: float64[values of the axis, settings of the others], the objective's means.
    """
    sign = -1.0 if objective.better == "higher" else 1.0
    means = table.mean(axis=1)
    best, worst = int(np.argmin(sign * means)), int(np.argmax(sign * means))
    wins = int((sign * table[best] <= (sign * table).min(axis=0)).sum())
    return AxisEffect(
        axis, values[best], float(means[best]), values[worst], float(means[worst]), wins, table.shape[1]
    )


def frontier(
    study: SavedStudy, points: Sequence[Point] | None = None
) -> tuple[tuple[Objective, Objective], list[Point], list[Point]] | None:
    """Two objectives that differ between combinations, the combinations nobody beats on both, and those beaten.

    points: the combinations among which (default: all). None where there are not two such objectives. The unbeaten ones
    come in the order of the first objective.
    """
    pair = [objective for objective in study.objectives if study.differs(objective.key)][:2]
    if len(pair) < 2:
        return None
    one, other = pair
    among = study.points if points is None else points
    both = [point for point in among if one.key in point.means and other.key in point.means]
    signs = [-1.0 if objective.better == "higher" else 1.0 for objective in pair]

    def costs(point: Point) -> tuple[float, float]:
        return signs[0] * point.means[one.key], signs[1] * point.means[other.key]

    unbeaten = pareto(both, costs)
    front = set(map(id, unbeaten))
    return (one, other), unbeaten, sorted((p for p in both if id(p) not in front), key=costs)


def failures_by_reason(study: SavedStudy) -> list[tuple[str, int, list[str]]]:
    """Each reason with how many cells it took and the first of them, in words."""
    cells: dict[str, list[str]] = defaultdict(list)
    for failed in study.failures:
        cell = study.plan.cell(failed.number)
        named = study.describe([value for _, value in cell.overrides])
        if study.plan.paths:
            named += f", {axis_labels([study.plan.paths[0]])[0]} {value_text(cell.overrides[-1][1])}"
        cells[" ".join(failed.reason.split())].append(f"{named}, seed {cell.seed} (cell {failed.number})")
    return [(reason, count, cells[reason][:5]) for reason, count in study.reasons.items()]


def values_text(values: Sequence[Any], most: int = 12) -> str:
    """The values of an axis in one line; the middle is left out where they are many."""
    texts = [value_text(value) for value in values]
    if len(texts) > most:
        texts = [*texts[: most - 2], "…", texts[-1]]
    return ", ".join(texts)


def _amount(objective: Objective, value: float) -> str:
    return f"{format_number(value)} {split_name(objective.key)[1]}".strip()


def level_groups(study: SavedStudy) -> list[list[Point]]:
    """The ranking in groups of combinations that share a row, so that ties are stated once.

    Of the combinations of one setting whose objective reads the same, the first stands alone (the further objectives
    put it first), and the others follow together.
    """
    objective = study.objective
    if objective is None:
        return [[point] for point in study.ranked()]
    groups: list[list[Point]] = []
    for setting in study.settings():
        rest = [point for point in setting.ranked if objective.key in point.means]
        while rest:
            level = _level_with_first(study, objective, rest)
            groups += [level[:1], level[1:]] if level[1:] else [level]
            rest = rest[len(level) :]
        groups += [[point] for point in setting.ranked if objective.key not in point.means]
    return groups


def group_values(study: SavedStudy, group: Sequence[Point]) -> list[str]:
    """The axis values of combinations that share a row, a text for each axis that varies."""
    places = [study.plan.places(point.number) for point in group]
    return [
        values_text([study.plan.axes[at][1][place] for place in sorted({each[at] for each in places})], 8)
        for at in study.varied
    ]


def group_range(group: Sequence[Point], metric: str) -> str:
    """The least and the largest mean of combinations that share a row."""
    means = [point.means[metric] for point in group if metric in point.means]
    ends = dict.fromkeys(format_number(end) for end in (min(means), max(means))) if means else {"–": None}
    return " … ".join(ends)


def ranked_rows(study: SavedStudy, most: int) -> tuple[list[str], list[list[Any]]]:
    """The ranking as a table: its head, and up to `most` rows, best first; level combinations share one."""
    groups = level_groups(study)
    bests: dict[int, Point] = {}
    for setting in study.settings():
        bests |= {point.number: setting.ranked[0] for point in setting.ranked}
    compared = study.objective is not None and study.plan.independent > 1
    behind = compared and any(bests[group[0].number] is not group[0] for group in groups)
    level = any(len(group) > 1 for group in groups)
    columns = [_titled(study.labels[at], split_name(study.plan.axes[at][0])[1]) for at in study.varied]
    columns += ["count"] if level else []
    columns.append("cells" if study.plan.paths else "seeds")
    columns += [_titled(*split_name(name)) for name in study.shown] + (["against the best"] if behind else [])
    rows = []
    for group in groups[:most]:
        point = group[0]
        row: list[Any] = [*group_values(study, group), *([f"{len(group):,}"] if level else [])]
        alone = len(group) == 1
        row.append(point.seeds)
        row += [_estimate(point, name) if alone else group_range(group, name) for name in study.shown]
        rows.append(row + ([_behind(study, point, bests[point.number])] if behind else []))
    return columns, rows


def best_rows(study: SavedStudy) -> tuple[list[str], list[list[Any]]]:
    """The best choice at each setting of the given axes as a table: its head and its rows; none without a choice."""
    objective = study.objective
    if objective is None or not study.given or not study.choices:
        return [], []
    columns = [
        _titled(study.labels[at], split_name(study.plan.axes[at][0])[1])
        for at in (*study.given, *study.choices)
    ]
    columns += [_titled(*split_name(objective.key)), "next", "significant"]
    rows = []
    for setting in study.settings():
        ranked = [point for point in setting.ranked if objective.key in point.means]
        if not ranked:
            continue
        level = _level_with_first(study, objective, ranked)
        texts = dict(zip(study.varied, group_values(study, level)))
        rest = ranked[len(level) :]
        significant = study.differs_significantly(ranked[1:], ranked[0]) if len(ranked) > 1 else []
        known = [one for one in significant if one is not None]
        rows.append(
            [
                *map(value_text, setting.values),
                *(texts[at] for at in study.choices),
                _estimate(ranked[0], objective.key),
                f"{study.describe(rest[0].values, study.choices)}: {_estimate(rest[0], objective.key)}"
                if rest
                else "–",
                f"{sum(known):,} of {len(known):,}" if known else "–",
            ]
        )
    return columns, rows


def _estimate(point: Point, metric: str) -> str:
    """`312 ± 4`."""
    value = point.means.get(metric)
    return "–" if value is None else _with_interval(value, point.intervals.get(metric))


def _behind(study: SavedStudy, point: Point, best: Point) -> str:
    """The mean difference to the best on common seeds with its interval, or what the combination leaves out."""
    if point is best:
        return "best"
    if not study.comparable(point, best):
        return study.left_out(point)[1]
    assert study.objective is not None
    if len(_level_with_first(study, study.objective, [best, point])) > 1:
        return "level"
    interval = study.behind(point, best)
    if interval is None:
        return "–"
    gap = study.gap(point, best)
    return f"{'+' if gap > 0 else ''}{_with_interval(gap, interval)}"


def _with_interval(value: float, interval: Interval | None) -> str:
    """`312 ± 4`, or where the value is not in the middle `312 (310 … 400)`; the half to two digits. No line breaks in it."""
    half = (interval.high - interval.low) / 2 if interval else 0.0
    if interval is None or not half:
        return format_number(value)
    if abs(interval.low + half - value) > 0.05 * half:
        return f"{format_number(value)}\u00a0({span(interval)})"
    return f"{format_number(value)}\u00a0±\u00a0{format_number(float(f'{half:.2g}'))}"


def _titled(label: str, unit: str) -> str:
    return f"{label} ({unit})" if unit else label
