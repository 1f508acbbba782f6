"""The figures of a study, as data: metrics along its axes, over two of them, and two objectives against each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from forerun.core.result.figures import Axis, Figure
from forerun.core.result.numbers import capital, is_number
from forerun.core.result.objective import Objective
from forerun.core.result.stats import Interval
from forerun.core.study.ranking import Ranking, SavedStudy, Trade
from forerun.core.study.summary import Point
from forerun.core.study.wording import axis_unit, combination_text, value_text
from forerun.core.units import split_name, stem, unit_of

#: maximum number of lines in one figure
MOST_LINES: Final = 8
#: combinations listed down the side
MOST_LISTED: Final = 24


@dataclass(frozen=True)
class _AxisOf:
    """An axis of the study: its place, label, unit and values."""

    place: int
    label: str
    unit: str
    values: tuple[Any, ...]

    @property
    def numeric(self) -> bool:
        """Whether all values are numbers."""
        return all(map(is_number, self.values))

    def text(self, point: Point) -> str:
        """A combination's value, in words."""
        return value_text(point.values[self.place])

    def coordinate(self, point: Point) -> Any:
        """A combination's value, a number where all are."""
        return point.values[self.place] if self.numeric else self.text(point)


@dataclass(frozen=True)
class _Metric:
    """A metric: its key, its name in the figures' ids, what it is called and its unit."""

    key: str
    stem: str
    title: str
    unit: str

    def means(self, points: Sequence[Point]) -> list[float]:
        """The points' means."""
        return [point.means[self.key] for point in points]

    def intervals(self, points: Sequence[Point]) -> list[Interval | None]:
        """Those of the points' means."""
        return [point.intervals.get(self.key) for point in points]

    def banded(self, points: Sequence[Point]) -> bool:
        """Whether some point has an interval."""
        return any(self.key in point.intervals for point in points)


def figures(study: SavedStudy, ranking: Ranking) -> tuple[Figure, ...]:
    """What a study shows: lines with bands, a heat map, combinations with intervals, a frontier; those that apply.

    Parameters
    ----------
    study : finished or not.
    ranking : of it.
    """
    plan, settings = study.plan, ranking.settings
    axes = [
        _AxisOf(place, label, axis_unit(path), values)
        for place, (label, (path, values)) in enumerate(zip(plan.labels, plan.axes))
        if len(values) > 1
    ]
    if not settings:
        return ()
    ranked = [point for setting in settings for point in setting.ranked]
    titles = {one.key: _label(one) for one in study.objectives}
    metrics = [
        _Metric(name, stem(name), titles.get(name) or split_name(name)[0], unit_of(name) or "")
        for name in study.shown
    ]
    along = max((axis for axis in axes if axis.numeric), key=lambda axis: len(axis.values), default=None)
    made = [
        _lines(study, axes, along, metric, ranked[0]) if along else _listed(study, metric, ranked)
        for metric in metrics
    ]
    if len(axes) > 1 and metrics:
        made.append(_heatmap(study, axes, metrics[0], ranked[0]))
    if len(settings) == 1:
        made += map(_frontier, ranking.trades)
    return tuple(figure for figure in made if figure is not None)


def _lines(
    study: SavedStudy, axes: Sequence[_AxisOf], along: _AxisOf, metric: _Metric, best: Point
) -> Figure | None:
    """A metric along a numeric axis: one line for each setting of the others, or for each value of one of them."""
    others = [axis for axis in axes if axis.place != along.place]
    varied = _line_axes(others)
    fixed = [axis for axis in others if axis not in varied]
    chosen = _where(study, fixed, best)
    plotted = [point for point in chosen if metric.key in point.means]
    if not plotted:
        return None
    return Figure.of(
        "line",
        f"along-{metric.stem}",
        f"{capital(metric.title)} along {along.label}",
        {
            "x": [point.values[along.place] for point in plotted],
            "line": [
                varied[0].text(point) if len(varied) == 1 else _setting(varied, point) for point in plotted
            ],
            "y": metric.means(plotted),
        },
        intervals=metric.intervals(plotted),
        x=Axis("x", along.label, along.unit),
        y=Axis("y", metric.title, metric.unit),
        series="line" if varied else "",
        series_label=", ".join(axis.label for axis in varied),
        caption=_caption(study, metric.banded(plotted), fixed, chosen),
    )


def _listed(study: SavedStudy, metric: _Metric, ranked: Sequence[Point]) -> Figure | None:
    """A metric of each combination, best first; for studies without a numeric axis."""
    having = [point for point in ranked if metric.key in point.means]
    plotted = having[:MOST_LISTED]
    if not plotted:
        return None
    left_out = (
        f" The first {MOST_LISTED} of {len(having):,} combinations." if len(having) > len(plotted) else ""
    )
    return Figure.of(
        "bar",
        f"of-{metric.stem}",
        f"{capital(metric.title)} of each combination",
        {"combination": [point.text for point in plotted], "y": metric.means(plotted)},
        intervals=metric.intervals(plotted),
        x="combination",
        y=Axis("y", metric.title, metric.unit),
        caption=_caption(study, metric.banded(plotted), (), plotted) + left_out,
    )


def _heatmap(study: SavedStudy, axes: Sequence[_AxisOf], metric: _Metric, best: Point) -> Figure | None:
    """A metric over two axes: the numeric ones with most values; the others where the best combination has them."""
    first, second = sorted(axes, key=lambda axis: (not axis.numeric, -len(axis.values), axis.place))[:2]
    fixed = [axis for axis in axes if axis not in (first, second)]
    chosen = _where(study, fixed, best)
    plotted = [point for point in chosen if metric.key in point.means]
    if not plotted:
        return None
    return Figure.of(
        "heatmap",
        f"over-{metric.stem}",
        f"{capital(metric.title)} over {first.label} and {second.label}",
        {
            "x": [first.coordinate(point) for point in plotted],
            "y": [second.coordinate(point) for point in plotted],
            "z": metric.means(plotted),
        },
        x=Axis("x", first.label, first.unit),
        y=Axis("y", second.label, second.unit),
        z=Axis("z", metric.title, metric.unit),
        caption=_caption(study, False, fixed, chosen),
    )


def _frontier(trade: Trade) -> Figure:
    """Two objectives against each other; the combinations that nobody beats on both stand out."""
    (one, other), unbeaten, beaten = trade
    names = ("best trade-offs", "beaten on both")
    plotted = [*beaten, *unbeaten]  # plotted in this order, so that the frontier is on top
    shown = "; ".join(point.text for point in unbeaten[:3])
    more = f"; and {len(unbeaten) - 3:,} more" if len(unbeaten) > 3 else ""
    return Figure.of(
        "points",
        "frontier",
        f"{capital(_label(one))} against {_label(other)}",
        {
            "x": [point.means[one.key] for point in plotted],
            "y": [point.means[other.key] for point in plotted],
            "group": [*([names[1]] * len(beaten)), *([names[0]] * len(unbeaten))],
        },
        x=Axis("x", _label(one), unit_of(one.key) or ""),
        y=Axis("y", _label(other), unit_of(other.key) or ""),
        series="group",
        caption=f"Better is {_side(one, 'left', 'right')} and {_side(other, 'down', 'up')}. "
        f"Nobody beats on both: {shown}{more}.",
        order=names if beaten else names[:1],
    )


def _line_axes(others: Sequence[_AxisOf]) -> list[_AxisOf]:
    """The axes whose settings become lines: all if they are few, else the one with names and the fewest values."""
    if math.prod(len(axis.values) for axis in others) <= MOST_LINES:
        return list(others)
    few = [axis for axis in others if len(axis.values) <= MOST_LINES]
    return sorted(few, key=lambda axis: (axis.numeric, len(axis.values), axis.place))[:1]


def _where(study: SavedStudy, fixed: Sequence[_AxisOf], best: Point) -> list[Point]:
    """The points at which the fixed axes have the values of the best combination."""
    places = [axis.place for axis in fixed]
    return [point for point in study.points if all(point.places[at] == best.places[at] for at in places)]


def _setting(axes: Sequence[_AxisOf], point: Point) -> str:
    return combination_text([axis.label for axis in axes], [point.values[axis.place] for axis in axes])


def _label(objective: Objective) -> str:
    """An objective's title without the unit, which the axis shows."""
    named = objective.title
    return named.rpartition(" in ")[0] or named if unit_of(objective.key) else named


def _caption(study: SavedStudy, banded: bool, fixed: Sequence[_AxisOf], plotted: Sequence[Point]) -> str:
    """What the means are over, what the band is, and where the axes that are not plotted stand."""
    text = f"Means over {study.over}" if study.plan.replications > 1 else "One seed"
    text += f", with the {study.confidence:.0%} interval of each mean ({study.method})." if banded else "."
    if fixed and plotted:
        chosen = (
            "" if any(axis.place in study.given for axis in fixed) else " where the best combination has them"
        )
        text += f" The other axes are{chosen}: {_setting(fixed, plotted[0])}."
    return text


def _side(objective: Objective, low: str, high: str) -> str:
    return high if objective.better == "higher" else low
