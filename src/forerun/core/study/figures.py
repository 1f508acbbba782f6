"""The figures of a study, as data: metrics along its axes, over two of them, and two objectives against each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from forerun.core.result.figures import Axis, Figure, ends
from forerun.core.result.numbers import capital, is_number
from forerun.core.result.objective import Objective
from forerun.core.study.ranking import SavedStudy, frontier
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


def figures(study: SavedStudy) -> tuple[Figure, ...]:
    """What a study shows: lines with bands, a heat map, combinations with intervals, a frontier; those that apply."""
    axes = [
        _AxisOf(place, label, axis_unit(path), values)
        for place, (label, (path, values)) in enumerate(zip(study.labels, study.plan.axes))
        if len(values) > 1
    ]
    if not study.points:
        return ()
    made: list[Figure | None] = []
    along = max((axis for axis in axes if axis.numeric), key=lambda axis: len(axis.values), default=None)
    for metric in study.shown:
        made.append(_lines(study, axes, along, metric) if along else _listed(study, metric))
    if len(axes) > 1 and study.shown:
        made.append(_heatmap(study, axes, study.shown[0]))
    made.append(_frontier(study))
    return tuple(figure for figure in made if figure is not None)


def _lines(study: SavedStudy, axes: Sequence[_AxisOf], along: _AxisOf, metric: str) -> Figure | None:
    """A metric along a numeric axis: one line for each setting of the others, or for each value of one of them."""
    others = [axis for axis in axes if axis.place != along.place]
    varied = _line_axes(others)
    fixed = [axis for axis in others if axis not in varied]
    chosen = _where(study, fixed)
    plotted = [point for point in chosen if metric in point.means]
    if not plotted:
        return None
    title, unit = _named(study, metric)
    intervals = [point.intervals.get(metric) for point in plotted]
    data = {
        "x": [point.values[along.place] for point in plotted],
        "y": [point.means[metric] for point in plotted],
        "line": [_setting(varied, point) for point in plotted],
        **ends(intervals),
    }
    return Figure.of(
        "line",
        f"along-{stem(metric)}",
        f"{capital(title)} along {along.label}",
        data,
        x=Axis("x", along.label, along.unit),
        y=Axis("y", title, unit),
        series="line" if varied else "",
        series_label=", ".join(axis.label for axis in varied),
        caption=_caption(study, any(intervals), fixed, chosen),
    )


def _listed(study: SavedStudy, metric: str) -> Figure | None:
    """A metric of each combination, best first; for studies without a numeric axis."""
    ranked = [point for point in study.ranked() if metric in point.means]
    plotted = ranked[:MOST_LISTED]
    if not plotted:
        return None
    title, unit = _named(study, metric)
    intervals = [point.intervals.get(metric) for point in plotted]
    left_out = (
        f" The first {MOST_LISTED} of {len(ranked):,} combinations." if len(ranked) > len(plotted) else ""
    )
    return Figure.of(
        "bar",
        f"of-{stem(metric)}",
        f"{capital(title)} of each combination",
        {
            "combination": [study.describe(point.values) for point in plotted],
            "y": [point.means[metric] for point in plotted],
            **ends(intervals),
        },
        x="combination",
        y=Axis("y", title, unit),
        caption=_caption(study, any(intervals), (), plotted) + left_out,
    )


def _heatmap(study: SavedStudy, axes: Sequence[_AxisOf], metric: str) -> Figure | None:
    """A metric over two axes: the numeric ones with most values; the others where the best combination has them."""
    first, second = sorted(axes, key=lambda axis: (not axis.numeric, -len(axis.values), axis.place))[:2]
    fixed = [axis for axis in axes if axis not in (first, second)]
    chosen = _where(study, fixed)
    plotted = [point for point in chosen if metric in point.means]
    if not plotted:
        return None
    title, unit = _named(study, metric)
    return Figure.of(
        "heatmap",
        f"over-{stem(metric)}",
        f"{capital(title)} over {first.label} and {second.label}",
        {
            "x": [_coordinate(first, point) for point in plotted],
            "y": [_coordinate(second, point) for point in plotted],
            "z": [point.means[metric] for point in plotted],
        },
        x=Axis("x", first.label, first.unit),
        y=Axis("y", second.label, second.unit),
        z=Axis("z", title, unit),
        caption=_caption(study, False, fixed, chosen),
    )


def _frontier(study: SavedStudy) -> Figure | None:
    """Two objectives against each other; the combinations that nobody beats on both stand out."""
    trade_off = frontier(study) if len(study.settings()) == 1 else None
    if trade_off is None:
        return None
    (one, other), unbeaten, beaten = trade_off
    names = ("best trade-offs", "beaten on both")
    plotted = [*beaten, *unbeaten]  # plotted in this order, so that the frontier is on top
    shown = "; ".join(study.describe(point.values) for point in unbeaten[:3])
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


def _where(study: SavedStudy, fixed: Sequence[_AxisOf]) -> list[Point]:
    """The points at which the fixed axes have the values of the best combination."""
    if not fixed:
        return list(study.points)
    best = study.ranked()[0]
    return [
        point for point in study.points if all(point.values[a.place] == best.values[a.place] for a in fixed)
    ]


def _setting(axes: Sequence[_AxisOf], point: Point) -> str:
    if len(axes) == 1:
        return value_text(point.values[axes[0].place])
    return combination_text([axis.label for axis in axes], [point.values[axis.place] for axis in axes])


def _coordinate(axis: _AxisOf, point: Point) -> Any:
    value = point.values[axis.place]
    return value if axis.numeric else value_text(value)


def _named(study: SavedStudy, metric: str) -> tuple[str, str]:
    """What a metric is called and its unit."""
    label = next((_label(one) for one in study.objectives if one.key == metric), split_name(metric)[0])
    return label, unit_of(metric) or ""


def _label(objective: Objective) -> str:
    """An objective's title without the unit, which the axis shows."""
    named = objective.title
    return named.rpartition(" in ")[0] or named if unit_of(objective.key) else named


def _caption(study: SavedStudy, banded: bool, fixed: Sequence[_AxisOf], plotted: Sequence[Point]) -> str:
    """What the means are over, what the band is, and where the axes that are not plotted stand."""
    text = f"Means over {study.over}" if study.plan.replications > 1 else "One seed"
    text += f", with the {study.confidence:.0%} interval of each mean ({study.method})." if banded else "."
    if fixed and plotted:
        setting = combination_text(
            [axis.label for axis in fixed], [plotted[0].values[axis.place] for axis in fixed]
        )
        chosen = (
            "" if any(axis.place in study.given for axis in fixed) else " where the best combination has them"
        )
        text += f" The other axes are{chosen}: {setting}."
    return text


def _side(objective: Objective, low: str, high: str) -> str:
    return high if objective.better == "higher" else low
