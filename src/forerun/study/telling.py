"""A study in words and in small tables: the best combination, what each axis does, the best trade-offs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.result.run import format_number
from forerun.study.objective import Objective
from forerun.study.summary import Point
from forerun.study.wording import axis_labels, value_text
from forerun.units import split_name

if TYPE_CHECKING:
    from forerun.study.saved import SavedStudy


@dataclass(frozen=True, slots=True)
class Effect:
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
    """One sentence: which combination is best, by how much, and whether the next is told apart from it."""
    objective = study.objective
    ranked = [point for point in study.ranked() if objective and objective.key in point.means]
    if objective is None or not ranked:
        return ""
    best = ranked[0]
    extreme = "highest" if objective.better == "higher" else "lowest"
    text = f"{study.told(best.values)} has the {extreme} {objective.title}, "
    text += _amount(objective, best.means[objective.key])
    interval = best.intervals.get(objective.key)
    if interval is not None:
        over = study.over if study.plan.paths else f"{best.seeds} seeds"
        text += f" ({format_number(interval.low)} … {format_number(interval.high)} over {over})"
    return text + (_next(study, objective, best, ranked[1:]) if len(ranked) > 1 else "")


def _next(study: SavedStudy, objective: Objective, best: Point, others: Sequence[Point]) -> str:
    second = others[0]
    gap = abs(second.means[objective.key] - best.means[objective.key])
    name = study.told(second.values)
    if gap == 0:
        level = sum(point.means[objective.key] == best.means[objective.key] for point in others)
        text = f"; so has {name}" if level == 1 else f"; so have {level:,} others"
        further = [f"{one.title} ({one.better})" for one in study.objectives[1:]]
        return text + (f", ranked after it by {' and '.join(further)}" if further else "")
    apart = study.told_apart(others, best)
    text = f"; next is {name}, {_amount(objective, gap)} behind"
    if apart[0] is None:
        return text
    unsure = sum(one is False for one in apart)
    if not unsure:
        return text + "; every other is told apart from it (paired, 5 % over all pairs)"
    return (
        text
        + f"; {unsure:,} of {len(others):,} others are not told apart from it (paired, 5 % over all pairs)"
    )


def effects(study: SavedStudy) -> tuple[Effect, ...]:
    """What each axis with two values or more does, the largest effect first; none without an objective.

    An axis on whose values all means are level does nothing, and is left out.
    """
    objective = study.objective
    if objective is None:
        return ()
    means = np.full(study.plan.combinations, np.nan)
    for point in study.points:
        means[point.number] = point.means.get(objective.key, np.nan)
    sizes = [len(values) for _, values in study.plan.axes]
    grid = means.reshape(sizes or [1])
    found = []
    for at, (_, values) in enumerate(study.plan.axes):
        table = np.moveaxis(grid, at, 0).reshape(len(values), -1)
        whole = table[:, np.isfinite(table).all(axis=0)]
        if len(values) > 1 and whole.shape[1] and np.ptp(whole.mean(axis=1)) > 0:
            found.append(_effect(study.labels[at], values, whole, objective))
    return tuple(sorted(found, key=lambda one: -abs(one.best_mean - one.worst_mean)))


def _effect(axis: str, values: Sequence[Any], table: Any, objective: Objective) -> Effect:
    sign = -1.0 if objective.better == "higher" else 1.0
    means = table.mean(axis=1)
    best, worst = int(np.argmin(sign * means)), int(np.argmax(sign * means))
    wins = int((sign * table[best] <= (sign * table).min(axis=0)).sum())
    return Effect(
        axis, values[best], float(means[best]), values[worst], float(means[worst]), wins, table.shape[1]
    )


def frontier(study: SavedStudy) -> tuple[tuple[Objective, Objective], list[Point], list[Point]] | None:
    """Two objectives that differ between combinations, the combinations nobody beats on both, and those beaten.

    None where there are not two such objectives. The unbeaten ones come in the order of the first objective.
    """
    pair = [objective for objective in study.objectives if study.differs(objective.key)][:2]
    if len(pair) < 2:
        return None
    one, other = pair
    both = [point for point in study.points if one.key in point.means and other.key in point.means]
    signs = [-1.0 if objective.better == "higher" else 1.0 for objective in pair]
    order = sorted(both, key=lambda p: (signs[0] * p.means[one.key], signs[1] * p.means[other.key]))
    unbeaten: list[Point] = []
    beaten: list[Point] = []
    lowest: tuple[float, float] | None = None
    for point in order:
        place = signs[0] * point.means[one.key], signs[1] * point.means[other.key]
        if lowest is None or place[1] < lowest[1] or place == lowest:
            unbeaten.append(point)
            lowest = place
        else:
            beaten.append(point)
    return (one, other), unbeaten, beaten


def failures_by_reason(study: SavedStudy) -> list[tuple[str, int, list[str]]]:
    """Each reason with how many cells it took and the first of them, in words."""
    cells: dict[str, list[str]] = defaultdict(list)
    for failed in study.failures:
        cell = study.plan.cell(failed.number)
        named = study.told([value for _, value in cell.overrides])
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


def ranked_rows(study: SavedStudy, most: int) -> tuple[list[str], list[list[Any]]]:
    """The ranking as a table: its head, and a row for each of the first `most` combinations, best first."""
    ranked = study.ranked()
    behind = study.objective is not None and study.plan.independent > 1 and len(ranked) > 1
    columns = [_titled(study.labels[at], split_name(study.plan.axes[at][0])[1]) for at in study.varied]
    columns.append("cells" if study.plan.paths else "seeds")
    columns += [_titled(*split_name(name)) for name in study.shown] + (["against the best"] if behind else [])
    rows = []
    for point in ranked[:most]:
        row = [
            *(value_text(point.values[at]) for at in study.varied),
            point.seeds,
            *(_estimate(point, name) for name in study.shown),
        ]
        rows.append(row + ([_behind(study, point, ranked[0])] if behind else []))
    return columns, rows


def _estimate(point: Point, metric: str) -> str:
    """`312 ± 4`."""
    value, interval = point.means.get(metric), point.intervals.get(metric)
    if value is None:
        return "–"
    half = (interval.high - interval.low) / 2 if interval else 0.0
    return f"{format_number(value)}{_plus_minus(half)}" if half else format_number(value)


def _behind(study: SavedStudy, point: Point, best: Point) -> str:
    """The mean difference to the best on common seeds, and half its interval."""
    if point is best:
        return "best"
    interval = study.behind(point, best)
    if interval is None:
        return "–"
    middle, half = (interval.low + interval.high) / 2, (interval.high - interval.low) / 2
    return f"{'+' if middle > 0 else ''}{format_number(middle)}{_plus_minus(half)}"


def _plus_minus(half: float) -> str:
    """Half an interval to two digits, not to be broken from what stands before it."""
    return f"\u00a0±\u00a0{format_number(float(f'{half:.2g}'))}"


def _titled(label: str, unit: str) -> str:
    return f"{label} ({unit})" if unit else label
