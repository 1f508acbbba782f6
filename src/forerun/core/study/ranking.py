"""A study as read back, ranked, in words and in small tables: the best combination, what each axis does, trade-offs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from forerun.core.domain import environment_of
from forerun.core.result import notebook
from forerun.core.result.numbers import format_number, span
from forerun.core.result.objective import Objective, cost_figure, pareto
from forerun.core.result.stats import Interval, chosen_best_p, path_means
from forerun.core.study.expand import StudyPlan
from forerun.core.study.replicates import Replicates, of_a_fit
from forerun.core.study.summary import Point
from forerun.core.study.wording import value_text
from forerun.core.units import split_name, titled

Draws = NDArray[np.float64]
#: two objectives, the combinations that none beats on both, by the first, and those beaten
Trade: TypeAlias = tuple[tuple[Objective, Objective], list[Point], list[Point]]
#: rows of the ranking that are shown
MOST_ROWS: Final = 40


@dataclass(frozen=True, slots=True)
class RankedSetting:
    """One setting of the environment, and the choices at it.

    values: of the given axes, in the order of `SavedStudy.given`; text: in one line. ranked: the combinations at them, best
    first. significant: whether each that can be compared with the best differs from it significantly, by number; None where
    that is not known.
    """

    values: tuple[Any, ...]
    text: str
    ranked: tuple[Point, ...]
    significant: Mapping[int, bool | None] = field(default_factory=dict)

    def having(self, objective: Objective) -> tuple[Point, ...]:
        """The combinations that have the objective, best first."""
        return tuple(point for point in self.ranked if objective.key in point.means)


@dataclass(frozen=True)
class SavedStudy:
    """A study as read from its store.

    id: of the study; version: of the forerun that ran it. points: the combinations that have an outcome, in the study's
    order. metrics: kept ones. objectives: of the domain, those that the results have. draws: of the ranking objective,
    float64[combinations, replications], NaN where there is none. reasons: of failures, with
    how often each; failures: by reason the first failed cells, in words.
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
    failures: Mapping[str, Sequence[str]]
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
    def given(self) -> tuple[int, ...]:
        """The places of the axes that vary and are no choice: as the study says, else as its domain does."""
        named, sections = self.plan.given, environment_of(self.domain)

        def is_given(path: str) -> bool:
            if named is not None:
                return path in named
            return path.removeprefix(f"{self.domain}.").replace("[", ".").partition(".")[0] in sections

        return tuple(
            at
            for at in self.plan.varied
            if len(self.plan.axes[at][1]) > 1 and is_given(self.plan.axes[at][0])
        )

    @property
    def choices(self) -> tuple[int, ...]:
        """The places of the axes that vary and are a choice."""
        return tuple(at for at in self.plan.varied if at not in self.given)

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
            groups.setdefault(tuple(point.places[at] for at in given), []).append(point)
        return [
            RankedSetting(
                tuple(points[0].values[at] for at in given),
                self.plan.in_words(points[0].values, given),
                ranked := tuple(sorted(points, key=self._rank)),
                self._significant(ranked),
            )
            for _, points in sorted(groups.items())
        ]

    def ranked(self) -> list[Point]:
        """The combinations of each setting of the given axes, best first; in the study's order without an objective."""
        return [point for setting in self.settings() for point in setting.ranked]

    def _repr_html_(self) -> str:
        ranking = ranking_of(self, notebook.MOST_ROWS)
        more = f"and {ranking.left:,} combinations more" if ranking.left else ""
        return notebook.answer(*ranking.table(), (more, ranking.why))

    def _rank(self, point: Point) -> tuple[float, ...]:
        signs = (-1.0 if objective.better == "higher" else 1.0 for objective in self.objectives)
        means = (point.means.get(objective.key) for objective in self.objectives)
        ranked = tuple(math.inf if mean is None else sign * mean for sign, mean in zip(signs, means))
        return (round(point.left_out[0], 9), *ranked)

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
        if any(not one.comparable(self.points[0]) for one in self.points):
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
        """One sentence: which combination is best, by how much, and whether the others differ from it significantly.

        Where axes are given: which choice is best at which of their settings.
        """
        return _why(self, self.settings())

    def _significant(self, ranked: Sequence[Point]) -> dict[int, bool | None]:
        """Whether each that can be compared with the best, but that, differs from it significantly, by number."""
        key = self.objective.key if self.objective else None
        having = [point for point in ranked if key in point.means]
        others = [point for point in having[1:] if point.comparable(having[0])]
        claims = self.differs_significantly(others, having[0]) if others else []
        return {point.number: claim for point, claim in zip(others, claims)}

    def _gaps(self, one: Point, other: Point) -> Draws | None:
        """The independent differences on what both met: by seed, or the means of each path's; None for fewer than two,
        and where one leaves out more of the work."""
        if self.draws is None or not one.comparable(other):
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

    best, worst: its values with the best and the worst mean, in words, and these means. wins: settings where `best` is best.
    settings: how many settings there are.
    """

    axis: str
    best: str
    best_mean: float
    worst: str
    worst_mean: float
    wins: int
    settings: int


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the ranking: a combination, or several of one setting whose objective reads the same.

    values: of the axes that vary, in words. means: of each metric, in words, of several combinations the least and the
    largest; intervals: of a single combination's. best: of their setting. behind: in words how far behind it they are, where
    no number says it; else gap and interval are of the paired difference. significant: None where that is not known.
    """

    points: tuple[Point, ...]
    values: list[str]
    means: Mapping[str, str]
    intervals: Mapping[str, Interval]
    best: Point
    behind: str = "best"
    gap: float = 0.0
    interval: Interval | None = None
    significant: bool | None = None


@dataclass(frozen=True, slots=True)
class Ranking:
    """What a study answers, as plain data: what a page, a terminal and a notebook show of it.

    axes: headings of those that vary; metrics: headings by name. rows: the first ones, best first; left: combinations of
    the others. several: whether a row may be of more than one. settings: as of `SavedStudy.settings`.
    best_choices: head and rows of the best choice at each setting. trades: of each setting, see `frontier`; unbeaten: its
    first rows. axis_values: path, count and values in words of each axis, the paths last; seeds: in words.
    """

    axes: tuple[str, ...]
    metrics: Mapping[str, str]
    rows: tuple[Row, ...]
    left: int
    several: bool
    compared: bool
    paths: bool
    why: str
    settings: tuple[RankedSetting, ...]
    best_choices: tuple[list[str], list[list[Any]]]
    effects: tuple[AxisEffect, ...]
    trades: tuple[Trade, ...]
    unbeaten: tuple[Row, ...]
    axis_values: tuple[tuple[str, int, str], ...]
    seeds: str

    def table(self) -> tuple[list[str], list[list[Any]]]:
        """The ranking as text: its head and its rows."""
        count = ["count"] if self.several else []
        head = [*self.axes, *count, "cells" if self.paths else "seeds", *self.metrics.values()]
        rows: list[list[Any]] = []
        for row in self.rows:
            point, several = row.points[0], len(row.points) > 1
            means = [row.means.get(name, "–") if several else _estimate(point, name) for name in self.metrics]
            rows.append([*row.values, *(f"{len(row.points):,}" for _ in count), point.seeds, *means])
            if self.compared:
                gap = f"{'+' if row.gap > 0 else ''}{_with_interval(row.gap, row.interval)}"
                rows[-1].append(row.behind or (gap if row.interval else "–"))
        return head + (["against the best"] if self.compared else []), rows


def _why(study: SavedStudy, settings: Sequence[RankedSetting]) -> str:
    """The sentence that answers a study. settings: of the study."""
    objective = study.objective
    if objective is None:
        return ""
    there = [replace(one, ranked=having) for one in settings if (having := one.having(objective))]
    if not there:
        return ""
    if len(settings) > 1:
        return _at_settings(study, objective, there)
    ranked = there[0].ranked
    best = ranked[0]
    text = f"{best.text} has the {_extreme(objective)} {objective.title}, "
    text += _amount(objective, best.means[objective.key])
    alike = [point for point in ranked if point.comparable(best)]
    interval = best.intervals.get(objective.key)
    if interval is not None:
        over = study.over if study.plan.paths else f"{best.seeds} seeds"
        text += f" ({format_number(interval.low)} … {format_number(interval.high)} over {over})"
    if len(alike) < len(ranked):
        text += _of_those(objective, ranked)
    return text + (_next(study, there[0], alike) if len(alike) > 1 else "")


def _of_those(objective: Objective, ranked: Sequence[Point]) -> str:
    """That the best is so among those that leave out least of the work, and which of the others has a better mean."""
    least, words = ranked[0].left_out
    text = f" of those with the fewest left out ({words})" if least else " of those that leave nothing out"
    sign = -1.0 if objective.better == "higher" else 1.0
    ahead = min(ranked, key=lambda point: sign * point.means[objective.key])
    if ahead.comparable(ranked[0]):
        return text
    mean = _amount(objective, ahead.means[objective.key])
    return f"{text}, and {ahead.text} has {mean} with {ahead.left_out[1]}"


def _at_settings(study: SavedStudy, objective: Objective, settings: Sequence[RankedSetting]) -> str:
    """Which choice is best at which settings of the given axes; how the objective runs where nothing is a choice."""
    if not study.choices:
        ends = [setting.ranked[0] for setting in (settings[0], settings[-1])]
        trend = " and ".join(
            f"{_amount(objective, point.means[objective.key])} at {point.text}" for point in ends
        )
        return f"every axis is given, so there is nothing to choose: {objective.title} is {trend}"
    at: dict[str, list[str]] = {}
    clear, compared = 0, False
    for setting in settings:
        ranked = setting.ranked
        level = _level_with_first(objective, ranked)
        best = study.plan.in_words(ranked[0].values, study.choices)
        if len(level) == len(ranked) > 1:
            best = "every choice alike"
        elif len(level) > 1:
            best += f" (level with {len(level) - 1:,} more)"
        at.setdefault(best, []).append(setting.text)
        claims = setting.significant.values()
        compared |= any(one is not None for one in claims)
        clear += bool(claims) and all(claims)
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


def _next(study: SavedStudy, setting: RankedSetting, alike: Sequence[Point]) -> str:
    """How far the others are behind the best, and from how many it differs significantly. alike: those it compares with."""
    objective, (best, second, *_) = study.objective, alike
    assert objective is not None
    gap = abs(second.means[objective.key] - best.means[objective.key])
    name = second.text
    level = len(_level_with_first(objective, alike)) - 1
    if level:
        text = f"; so has {name}" if level == 1 else f"; so have {level:,} others"
        text += "" if gap == 0 else " to the digits shown"
        further = [f"{one.title} ({one.better})" for one in study.objectives[1:]] if gap == 0 else []
        return text + (f", ranked after it by {' and '.join(further)}" if further else "")
    significant = [setting.significant[point.number] for point in alike[1:]]
    text = f"; next is {name}, {_amount(objective, gap)} behind"
    if significant[0] is None:
        return text
    which = " that leave out no more" if len(alike) < len(setting.ranked) else ""
    unsure = sum(one is False for one in significant)
    how = f"all others{which} differ significantly from it"
    if unsure:
        how = f"{unsure:,} of {len(significant):,} others{which} are not significantly different from it"
    return f"{text}; {how} (paired, 5 % over all pairs)"


def _level_with_first(objective: Objective, ranked: Sequence[Point]) -> list[Point]:
    """The first points whose objective reads like the first one's."""
    if objective.key not in ranked[0].means:
        return list(ranked[:1])
    shown = format_number(ranked[0].means[objective.key])

    def is_level(one: Point) -> bool:
        return (
            objective.key in one.means
            and format_number(one.means[objective.key]) == shown
            and one.comparable(ranked[0])
        )

    return list(itertools.takewhile(is_level, ranked))


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
            moved.append(_effect(study.plan.labels[at], values, whole, objective))
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
        axis,
        value_text(values[best]),
        float(means[best]),
        value_text(values[worst]),
        float(means[worst]),
        wins,
        table.shape[1],
    )


def frontier(study: SavedStudy, among: Sequence[Point]) -> Trade | None:
    """Two objectives that differ between combinations, the combinations nobody beats on both, and those beaten.

    None where there are not two such objectives. The unbeaten ones come in the order of the first objective.
    """
    pair = [objective for objective in study.objectives if study.differs(objective.key)][:2]
    if len(pair) < 2:
        return None
    one, other = pair
    both = [point for point in among if one.key in point.means and other.key in point.means]
    signs = [-1.0 if objective.better == "higher" else 1.0 for objective in pair]

    def costs(point: Point) -> tuple[float, float]:
        return signs[0] * point.means[one.key], signs[1] * point.means[other.key]

    unbeaten = pareto(both, costs)
    front = set(map(id, unbeaten))
    return (one, other), unbeaten, sorted((p for p in both if id(p) not in front), key=costs)


def values_text(values: Sequence[Any], most: int = 12) -> str:
    """The values of an axis in one line; the middle is left out where they are many."""
    texts = [value_text(value) for value in values]
    if len(texts) > most:
        texts = [*texts[: most - 2], "…", texts[-1]]
    return ", ".join(texts)


def _amount(objective: Objective, value: float) -> str:
    return f"{format_number(value)} {split_name(objective.key)[1]}".strip()


def ranking_of(study: SavedStudy, most: int = MOST_ROWS) -> Ranking:
    """What a study answers, with the first `most` rows."""
    objective, settings = study.objective, study.settings()
    compared = objective is not None and study.plan.independent > 1
    compared = compared and any(len(setting.ranked) > 1 for setting in settings)
    rows: list[Row] = []
    several, left = False, 0
    for setting in settings:
        groups = _level_groups(study, setting.ranked)
        shown = groups[: most - len(rows)]
        several |= any(len(group) > 1 for group in groups)
        left += sum(map(len, groups[len(shown) :]))
        best = setting.ranked[0]
        rows += [_row(study, group, best, setting.significant if compared else None) for group in shown]
    trades = [trade for setting in settings if (trade := frontier(study, setting.ranked)) is not None]
    unbeaten = [point for trade in trades for point in trade[1]]
    axes = (*study.plan.axes, *([study.plan.paths] if study.plan.paths else []))
    return Ranking(
        axes=tuple(_title(study.plan.axes[at][0], study.plan.labels[at]) for at in study.plan.varied),
        metrics={name: _title(name) for name in study.shown},
        rows=tuple(rows),
        left=left,
        several=several,
        compared=compared,
        paths=study.plan.paths is not None,
        why=_why(study, settings),
        settings=tuple(settings),
        best_choices=best_rows(study, settings),
        effects=effects(study),
        trades=tuple(trades),
        unbeaten=tuple(_row(study, [point], point, None) for point in unbeaten[:most]),
        axis_values=tuple((path, len(values), values_text(values)) for path, values in axes),
        seeds=values_text(study.plan.seeds),
    )


def _level_groups(study: SavedStudy, ranked: Sequence[Point]) -> list[list[Point]]:
    """The combinations of one setting in groups that share a row, so that ties are stated once.

    Of those whose objective reads the same, the first stands alone (the further objectives put it first), and the others
    follow together.
    """
    objective = study.objective
    if objective is None:
        return [[point] for point in ranked]
    groups: list[list[Point]] = []
    rest = [point for point in ranked if objective.key in point.means]
    while rest:
        level = _level_with_first(objective, rest)
        groups += [level[:1], level[1:]] if level[1:] else [level]
        rest = rest[len(level) :]
    return groups + [[point] for point in ranked if objective.key not in point.means]


def _row(
    study: SavedStudy, group: Sequence[Point], best: Point, claims: Mapping[int, bool | None] | None
) -> Row:
    """The row of combinations. best: of their setting. claims: significance by number; None where nothing is compared."""
    point = group[0]
    names = dict.fromkeys(name for one in group for name in one.means)
    ends = {name: [one.means[name] for one in group if name in one.means] for name in names}
    row = Row(
        tuple(group),
        _group_values(study, group),
        {name: _range(means) for name, means in ends.items()},
        point.intervals if len(group) == 1 else {},
        best,
    )
    if claims is None or point is best:
        return row
    if not point.comparable(best):
        return replace(row, behind=point.left_out[1])
    known = {claims.get(one.number) for one in group}
    row = replace(row, behind="level", significant=known.pop() if len(known) == 1 else None)
    assert study.objective is not None
    if len(_level_with_first(study.objective, [best, point])) > 1:
        return row
    return replace(row, behind="", gap=study.gap(point, best), interval=study.behind(point, best))


def _range(means: Sequence[float]) -> str:
    """The least and the largest; one of them where they read the same."""
    return " … ".join(dict.fromkeys(format_number(end) for end in (min(means), max(means))))


def _group_values(study: SavedStudy, group: Sequence[Point]) -> list[str]:
    """The axis values of combinations that share a row, a text for each axis that varies."""
    return [
        values_text(
            [study.plan.axes[at][1][place] for place in sorted({point.places[at] for point in group})], 8
        )
        for at in study.plan.varied
    ]


def best_rows(study: SavedStudy, settings: Sequence[RankedSetting]) -> tuple[list[str], list[list[Any]]]:
    """The best choice at each setting of the given axes as a table: its head and its rows; none without a choice."""
    objective = study.objective
    if objective is None or not study.given or not study.choices:
        return [], []
    shown = (*study.given, *study.choices)
    columns = [_title(study.plan.axes[at][0], study.plan.labels[at]) for at in shown]
    columns += [_title(objective.key), "next", "significant"]
    rows = []
    for setting in settings:
        ranked = setting.having(objective)
        if not ranked:
            continue
        level = _level_with_first(objective, ranked)
        texts = dict(zip(study.plan.varied, _group_values(study, level)))
        rest = ranked[len(level) :]
        known = [one for one in setting.significant.values() if one is not None]
        rows.append(
            [
                *(texts[at] for at in shown),
                _estimate(ranked[0], objective.key),
                f"{study.plan.in_words(rest[0].values, study.choices)}: {_estimate(rest[0], objective.key)}"
                if rest
                else "–",
                f"{sum(known):,} of {len(known):,}" if known else "–",
            ]
        )
    return columns, rows


def _title(name: str, label: str = "") -> str:
    """The heading of a metric or of a labelled axis: with its unit."""
    own, unit = split_name(name)
    return titled(label or own, unit)


def _estimate(point: Point, metric: str) -> str:
    """`312 ± 4`."""
    value = point.means.get(metric)
    return "–" if value is None else _with_interval(value, point.intervals.get(metric))


def _with_interval(value: float, interval: Interval | None) -> str:
    """`312 ± 4`, or where the value is not in the middle `312 (310 … 400)`; the half to two digits. No line breaks in it."""
    half = (interval.high - interval.low) / 2 if interval else 0.0
    if interval is None or not half:
        return format_number(value)
    if abs(interval.low + half - value) > 0.05 * half:
        return f"{format_number(value)}\u00a0({span(interval)})"
    return f"{format_number(value)}\u00a0±\u00a0{format_number(float(f'{half:.2g}'))}"
