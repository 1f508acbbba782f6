"""Several runs side by side: what differs in their scenarios, their figures in one table, their curves in one chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from forerun.core.report.contents import Run, flat, scenario_data
from forerun.core.report.markup import Content
from forerun.core.report.palette import VARIABLES
from forerun.core.report.pieces import BREAK, Bar, DataTable, Element, Estimate, Paragraph, Swatch
from forerun.core.result.figures import Figure
from forerun.core.result.numbers import capital, format_number, is_number
from forerun.core.units import readable_unit, split_name

#: kinds whose single lines of several runs can share one chart
_SHARED: Final = frozenset({"line", "step", "cdf", "bar", "points"})
_MOST_ROWS: Final = 60


def differences(runs: Sequence[Run], names: Sequence[str]) -> Content:
    """The scenario values in which the runs differ, as a table of at most 60 rows.

    Parameters
    ----------
    runs : at least one.
    names : of the runs, for the head of the table.
    """
    values = [flat(scenario_data(run)) for run in runs]
    paths = list(dict.fromkeys(path for one in values for path in one))
    different = [path for path in paths if len({repr(one.get(path, "–")) for one in values}) > 1]
    if not different:
        return Element("p", "The scenarios are the same.")
    rows: list[list[Content]] = [
        [Element("code", path), *(Estimate(one.get(path, "–")) for one in values)]
        for path in different[:_MOST_ROWS]
    ]
    table = DataTable(("Scenario value", *names), rows, label="Where the scenarios differ")
    left = len(different) - len(rows)
    return (table, Paragraph(f"{left:,} more values differ." if left else "", "soft"))


def summaries(runs: Sequence[Run], names: Sequence[str]) -> Content:
    """The figures of every run in one table, with what the others differ by from the first.

    Entries that are tables or lists in some run, and those that no run has, are left out.

    Parameters
    ----------
    runs : of one domain.
    names : of the runs, for the head of the table.
    """
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
        rows.append([capital(label), unit, *cells])
    return DataTable(
        ("Quantity", "Unit", *names), rows, label="Values of all runs", right=range(2, 2 + len(runs))
    )


def ledgers(runs: Sequence[Run], names: Sequence[str]) -> Content:
    """Ledgers of the same name and unit under each other, drawn to one scale.

    Parameters
    ----------
    runs : of one domain.
    names : of the runs.
    """
    titles = list(dict.fromkeys((entry.name, entry.unit) for run in runs for entry in run.ledgers))
    return Element("div", [_ledger(runs, names, name, unit) for name, unit in titles], "ledgers")


def shared_figures(
    groups: Sequence[Sequence[Figure]], names: Sequence[str]
) -> tuple[tuple[Figure, ...], list[set[int]]]:
    """Figures that overlay the runs, and for each run the places of its figures that went into one.

    A figure is shared if every run has it with the same id, kind and axes, if lines of its kind can share a chart,
    and if it has no series of its own.

    Parameters
    ----------
    groups : the figures of each run.
    names : of the runs; they become the series.
    """
    common = []
    used: list[set[int]] = [set() for _ in groups]
    for figure in groups[0]:
        places = [_place(group, figure) for group in groups]
        if figure.kind not in _SHARED or figure.series or None in places:
            continue
        common.append(_overlaid([group[at] for group, at in zip(groups, places) if at is not None], names))
        for mine, place in zip(used, places):
            mine.update([] if place is None else [place])
    return tuple(common), used


def _place(group: Sequence[Figure], figure: Figure) -> int | None:
    """Where the group has the same figure: same id, kind and axes."""

    def drawn_as(one: Figure) -> tuple[object, ...]:
        return one.id, one.kind, one.x, one.y, one.series

    return next((at for at, other in enumerate(group) if drawn_as(other) == drawn_as(figure)), None)


def _overlaid(figures: Sequence[Figure], names: Sequence[str]) -> Figure:
    """One figure of the same figure of several runs, a series for each run."""
    first = figures[0]
    columns = {first.x.column, first.y.column, *filter(None, (first.low, first.high))}
    data = {name: np.concatenate([np.asarray(one.data[name]) for one in figures]) for name in columns}
    lengths = [len(one.data[first.x.column]) for one in figures]
    captions = [one.caption for one in figures]
    caption = first.caption
    if len(set(captions)) > 1:
        caption = " ".join(f"{name}: {text}" for name, text in zip(names, captions) if text)
    return replace(
        first,
        data={**data, "run": np.repeat(np.array(names, dtype=object), lengths)},
        series="run",
        series_label="run",
        rules=tuple(dict.fromkeys(rule for one in figures for rule in one.rules)),
        order=(*names, *first.order),
        caption=caption,
    )


def _cell(run: Run, key: str, first: Any, *, is_first: bool) -> Content:
    """A value, its interval, and how far it is from the first run's."""
    value: Any = run.summary.get(key)
    pieces: list[Content] = [Estimate(value, run.intervals.get(key))]
    numbers = all(map(is_number, (value, first)))
    if not is_first and numbers and first and value != first:
        change = f"{float(value) / float(first) - 1:+.1%}".replace("-", "−")
        pieces += [BREAK, Element("span", change, "soft")]
    return pieces


def _ledger(runs: Sequence[Run], names: Sequence[str], name: str, unit: str) -> Content:
    """One ledger of every run: a bar for each, all drawn to the largest whole, and a table of the parts with their
    shares.
    """
    entries = [next((e for e in run.ledgers if (e.name, e.unit) == (name, unit)), None) for run in runs]
    parts = list(dict.fromkeys(part for entry in entries if entry for part in entry.parts))
    colour = {part: VARIABLES.area_colour(at) for at, part in enumerate(parts)}
    largest = max((float(entry.whole) for entry in entries if entry), default=0.0) or 1.0
    bars: list[Content] = []
    for run_name, entry in zip(names, entries):
        widths = [
            (float(value) / largest, colour[part], f"{part}: {format_number(float(value))} {unit}")
            for part, value in (entry.parts.items() if entry else ())
        ]
        bars += [Element("div", run_name, "name"), Bar(widths, f"{name} of {run_name}")]
    rows: list[list[Content]] = [
        [
            Swatch(part, colour[part]),
            *(_share(entry.parts.get(part), entry.whole) if entry else "–" for entry in entries),
        ]
        for part in parts
    ]
    whole = [Element("strong", Estimate(float(entry.whole))) if entry else "–" for entry in entries]
    rows.append([Element("strong", f"whole ({readable_unit(unit)})"), *whole])
    table = DataTable(
        ("Part", *names), rows, label=f"Ledger {name} of all runs", right=range(1, 1 + len(runs))
    )
    return Element("div", (Element("h3", capital(name)), Element("div", bars, "pairs"), table), "ledger card")


def _share(part: float | None, whole: float) -> Content:
    """An amount and its share of the whole, as a cell; a dash if the run has no such part."""
    if part is None:
        return "–"
    share = f"{part / whole:.1%}" if whole else "–"
    return (Estimate(float(part)), " ", Element("span", share, "soft"))
