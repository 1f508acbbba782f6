"""Several runs side by side: what differs in their scenarios, their figures in one table, their curves in one chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from forerun.report.contents import Run, flat, scenario_data
from forerun.report.markup import Content, Html, join, tag
from forerun.report.palette import VARIABLES
from forerun.report.quantities import format_number, readable_unit, split_name, title_of
from forerun.report.sections import data_table
from forerun.result.figures import Figure

#: kinds whose single lines of several runs can share one chart
_SHARED: Final = frozenset({"line", "step", "cdf", "bar", "points"})
_MOST_ROWS: Final = 60


def differences(runs: Sequence[Run], names: Sequence[str]) -> Html:
    """The scenario values in which the runs differ."""
    values = [flat(scenario_data(run)) for run in runs]
    paths = list(dict.fromkeys(path for one in values for path in one))
    different = [path for path in paths if len({repr(one.get(path, "–")) for one in values}) > 1]
    if not different:
        return tag("p", "The scenarios are the same.")
    rows: list[list[Content]] = [
        [tag("code", path), *(format_number(one.get(path, "–")) for one in values)]
        for path in different[:_MOST_ROWS]
    ]
    table = data_table(("Scenario value", *names), rows, label="Where the scenarios differ")
    if len(different) <= _MOST_ROWS:
        return table
    return join((table, tag("p", f"{len(different) - _MOST_ROWS:,} more values differ.", class_="soft")))


def summaries(runs: Sequence[Run], names: Sequence[str]) -> Html:
    """The figures of every run in one table, with what the others differ by from the first."""
    keys = list(dict.fromkeys(key for run in runs for key in (*run.headline, *run.summary)))
    rows: list[list[Content]] = []
    for key in keys:
        values = [run.summary.get(key) for run in runs]
        if any(isinstance(value, (Mapping, list, tuple)) for value in values) or all(
            value is None for value in values
        ):
            continue
        label, unit = split_name(key)
        cells = [_cell(run, key, values[0], is_first=at == 0) for at, run in enumerate(runs)]
        rows.append([title_of(label), unit, *cells])
    return data_table(
        ("Quantity", "Unit", *names), rows, label="Values of all runs", right=range(2, 2 + len(runs))
    )


def ledgers(runs: Sequence[Run], names: Sequence[str]) -> Html:
    """Ledgers of the same name under each other, drawn to one scale."""
    titles = list(dict.fromkeys((entry.name, entry.unit) for run in runs for entry in run.ledgers))
    return tag("div", (_ledger(runs, names, name, unit) for name, unit in titles), class_="ledgers")


def shared_figures(
    groups: Sequence[Sequence[Figure]], names: Sequence[str]
) -> tuple[tuple[Figure, ...], list[set[int]]]:
    """Figures that overlay the runs, and for each run the places of its figures that went into one."""
    common = []
    used: list[set[int]] = [set() for _ in groups]
    for at, figure in enumerate(groups[0]):
        places = [_place(group, figure) for group in groups]
        if figure.kind not in _SHARED or figure.series or any(place is None for place in places):
            continue
        found = [group[place] for group, place in zip(groups, places) if place is not None]
        common.append(_overlaid(found, names))
        for mine, place in zip(used, places):
            mine.add(at if place is None else place)
    return tuple(common), used


def _place(group: Sequence[Figure], figure: Figure) -> int | None:
    """Where the group has the same figure: same id, kind and axes."""
    for at, other in enumerate(group):
        if (other.id, other.kind, other.x, other.y, other.series) == (
            figure.id,
            figure.kind,
            figure.x,
            figure.y,
            "",
        ):
            return at
    return None


def _overlaid(found: Sequence[Figure], names: Sequence[str]) -> Figure:
    first = found[0]
    columns = [first.x.column, first.y.column, *(name for name in (first.low, first.high) if name)]
    data: dict[str, Any] = {
        name: np.concatenate([np.asarray(figure.data[name]) for figure in found])
        for name in dict.fromkeys(columns)
    }
    data["run"] = np.repeat(
        np.array(names, dtype=object), [len(figure.data[first.x.column]) for figure in found]
    )
    rules = tuple(dict.fromkeys(rule for figure in found for rule in figure.rules))
    captions = [figure.caption for figure in found]
    same = len(set(captions)) == 1
    caption = (
        first.caption if same else " ".join(f"{name}: {text}" for name, text in zip(names, captions) if text)
    )
    return replace(
        first,
        data=data,
        series="run",
        series_label="run",
        rules=rules,
        order=(*names, *first.order),
        caption=caption,
    )


def _cell(run: Run, key: str, first: Any, *, is_first: bool) -> Content:
    """A value, its interval, and how far it is from the first run's."""
    value: Any = run.summary.get(key)
    shown = int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value
    pieces: list[Content] = [format_number(shown)]
    interval = run.intervals.get(key)
    if interval:
        span = f"{format_number(interval.low)} … {format_number(interval.high)}"
        pieces += [tag("br"), tag("span", span, class_="soft")]
    numbers = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in (value, first))
    if not is_first and numbers and first and value != first:
        change = f"{float(value) / float(first) - 1:+.1%}".replace("-", "−")
        pieces += [tag("br"), tag("span", change, class_="soft")]
    return join(pieces)


def _ledger(runs: Sequence[Run], names: Sequence[str], name: str, unit: str) -> Html:
    entries = [next((e for e in run.ledgers if (e.name, e.unit) == (name, unit)), None) for run in runs]
    parts = list(dict.fromkeys(part for entry in entries if entry for part in entry.parts))
    colour = {part: VARIABLES.area_colour(at) for at, part in enumerate(parts)}
    largest = max((float(entry.whole) for entry in entries if entry), default=0.0) or 1.0
    bars: list[Content] = []
    for run_name, entry in zip(names, entries):
        spans = [
            tag(
                "span",
                style=f"width:{100 * max(float(amount), 0.0) / largest:.4f}%;background:{colour[part]}",
                title=f"{part}: {format_number(float(amount))} {unit}",
            )
            for part, amount in (entry.parts.items() if entry else ())
            if amount > 0
        ]
        bars += [
            tag("div", run_name, class_="name"),
            tag("div", spans, class_="bar", role="img", aria_label=f"{name} of {run_name}"),
        ]
    rows: list[list[Content]] = [
        [
            tag("span", tag("i", class_="swatch", style=f"background:{colour[part]}"), part, class_="named"),
            *(_share(entry.parts.get(part), entry.whole) if entry else "–" for entry in entries),
        ]
        for part in parts
    ]
    whole = [tag("strong", format_number(float(entry.whole))) if entry else "–" for entry in entries]
    rows.append([tag("strong", f"whole ({readable_unit(unit)})"), *whole])
    table = data_table(
        ("Part", *names), rows, label=f"Ledger {name} of all runs", right=range(1, 1 + len(runs))
    )
    return tag(
        "div", tag("h3", title_of(name)), tag("div", bars, class_="pairs"), table, class_="ledger card"
    )


def _share(amount: float | None, whole: float) -> Content:
    if amount is None:
        return "–"
    share = f"{amount / whole:.1%}" if whole else "–"
    return join((format_number(float(amount)), " ", tag("span", share, class_="soft")))
