"""The sections of a page about one run: headline, ledgers, figures, notes, scenario, provenance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from forerun.core.report.contents import Run, scenario_data
from forerun.core.report.drawing import Drawing
from forerun.core.report.marks import Legend
from forerun.core.report.markup import Content, Html, join, script_json, tag
from forerun.core.report.palette import VARIABLES
from forerun.core.report.pieces import (
    MOST_OPEN,
    MOST_ROWS,
    TILES,
    amount,
    bar,
    data_table,
    provenance_table,
    swatch,
    tile,
    titled,
)
from forerun.core.result.ledger import Ledger
from forerun.core.result.numbers import capital, figure_row
from forerun.core.result.tables import Table
from forerun.core.units import readable_unit, split_name

_SHAPES: Final = {
    "square": "M1 2h10v8h-10z",
    "circle": "M6 1.5a4.5 4.5 0 1 0 .01 0z",
    "triangle-up": "M6 1.5l5 9h-10z",
    "triangle-down": "M6 10.5l5-9h-10z",
    "diamond": "M6 .8l4.6 5.2-4.6 5.2-4.6-5.2z",
    "cross": "M4.3 1h3.4v3.3h3.3v3.4h-3.3v3.3h-3.4v-3.3h-3.3v-3.4h3.3z",
}


def headline(run: Run) -> Html:
    """The figures that matter, large, and all of them as tables.

    Large are the figures that the domain names first, else the first numbers of the summary; at most six.

    Parameters
    ----------
    run : a result or a saved run.
    """
    flat = {name: value for name, value in run.summary.items() if not _deep(value)}
    first = [name for name in run.headline if name in flat]
    numbers = [name for name, value in flat.items() if isinstance(value, (int, float)) and value is not True]
    shown = (figure_row(name, flat[name], run.intervals.get(name)) for name in (first or numbers)[:TILES])
    tiles = (tile(capital(label), unit, amount(value), interval) for label, value, unit, interval in shown)
    names = [*first, *(name for name in flat if name not in first)]
    deep = [_nested(name, value) for name, value in run.summary.items() if _deep(value)]
    title = tag("summary", f"All {len(names):,} values")
    return join(
        tag("div", tiles, class_="tiles"),
        tag(
            "details",
            title,
            tag("div", _summary_table(run, names), deep, class_="beside"),
            open=len(names) <= MOST_OPEN,
        ),
    )


def _summary_table(run: Run, names: Sequence[str]) -> Html:
    """Every value of the summary with its unit, and its interval where some values have one.

    Parameters
    ----------
    run : a result or a saved run.
    names : of the values, in order.
    """
    head = ["Quantity", "Value", "Unit", "Interval"]
    shown = (figure_row(name, run.summary[name], run.intervals.get(name)) for name in names)
    rows = [[capital(label), amount(value), unit, interval] for label, value, unit, interval in shown]
    if not any(row[3] for row in rows):
        head, rows = head[:3], [row[:3] for row in rows]
    table = data_table(head, rows, label="All values of the summary", right=(1, 3))
    methods = {f"{i.confidence:.0%}{', ' + i.method if i.method else ''}" for i in run.intervals.values()}
    note = tag("p", f"Intervals: {'; '.join(sorted(methods))}.", class_="soft under") if methods else None
    return tag("div", table, note)


def _deep(value: Any) -> bool:
    """Whether a summary entry is a table of its own rather than one figure or a short list of them."""
    if isinstance(value, (list, tuple)):
        return len(value) > 8 or any(isinstance(item, (Mapping, list, tuple)) for item in value)
    return isinstance(value, Mapping)


def _nested(name: str, value: Any) -> Html:
    """A summary entry that is itself a table (stage -> figure -> value) or a list."""
    title = capital(split_name(name)[0])
    if isinstance(value, Mapping) and value and all(isinstance(inner, Mapping) for inner in value.values()):
        columns = list(dict.fromkeys(key for inner in value.values() for key in inner))
        head = ["", *(titled(*split_name(column)) for column in columns)]
        rows = [
            [key, *(_one(inner.get(column)) for column in columns)]
            for key, inner in list(value.items())[:MOST_ROWS]
        ]
        return tag("div", tag("h4", title), data_table(head, rows, label=title, right=range(1, len(head))))
    rows = [[path, amount(leaf)] for path, leaf in _leaves(value)]
    if not rows:
        return Html("")
    cut = f" (first {MOST_ROWS} of {len(rows):,})" if len(rows) > MOST_ROWS else ""
    body = data_table(("", "Value"), rows[:MOST_ROWS], label=title, right=(1,))
    return tag("div", tag("h4", title + cut), body)


def _one(value: Any) -> str:
    """A value of a nested summary entry, however deep, in one cell."""
    return str(value) if isinstance(value, (Mapping, list, tuple)) else amount(value)


def _leaves(data: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each scalar of plain data with its path."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(data, (list, tuple)):
        for at, value in enumerate(data):
            yield from _leaves(value, f"{prefix}[{at}]")
    else:
        yield prefix, data


def ledgers(entries: Sequence[Ledger]) -> Html | None:
    """Ledgers, each as a bar of its parts and a table that explains them; None if there are none."""
    return tag("div", map(_ledger, entries), class_="ledgers") if entries else None


def _ledger(entry: Ledger) -> Html:
    """A ledger as a bar of its parts and a table that explains them."""
    shares, meanings = entry.shares(), entry.meanings or {}
    unit = readable_unit(entry.unit)
    colours = {name: VARIABLES.area_colour(number) for number, name in enumerate(entry.parts)}
    words = ", ".join(f"{name} {shares[name]:.1%}" for name in entry.parts if shares[name] >= 0.0005)
    widths = [(shares[name], colours[name], f"{name}: {shares[name]:.1%}") for name in entry.parts]
    rows: list[list[Content]] = [
        [swatch(name, colours[name]), amount(float(value)), f"{shares[name]:.1%}", meanings.get(name, "")]
        for name, value in entry.parts.items()
    ]
    rows.append([tag("strong", "whole"), tag("strong", amount(float(entry.whole))), "", ""])
    head = ["Part", f"Amount ({unit})" if unit else "Amount", "Share", "Meaning"]
    if not any(meanings.get(name) for name in entry.parts):
        head, rows = head[:3], [row[:3] for row in rows]
    return tag(
        "div",
        tag("h3", capital(entry.name)),
        bar(widths, f"{entry.name}: {words}"),
        data_table(head, rows, label=f"Parts of the ledger {entry.name}", right=(1, 2)),
        class_="ledger card",
    )


def figures(drawings: Sequence[Drawing], names: Sequence[str]) -> Html:
    """Figures side by side where they fit.

    Parameters
    ----------
    drawings : ready to be drawn.
    names : as many, unique on the page.
    """
    return tag("div", map(_figure, drawings, names), class_="figures")


def _figure(drawing: Drawing, name: str) -> Html:
    """A figure: title, legend, chart, caption, notes and its data.

    Parameters
    ----------
    drawing : one without rows gets a sentence in place of the chart.
    name : unique on the page.
    """
    about = drawing.figure
    title = tag("h3", about.title, id=f"{name}-title")
    caption = tag(
        "figcaption", about.caption, (tag("span", " ", note, class_="soft") for note in drawing.notes)
    )
    if drawing.rows:
        label = f"{about.title}. {about.caption}"
        chart = tag("div", class_="chart", id=f"{name}-chart", role="img", aria_label=label)
        payload = {
            "spec": drawing.spec,
            "columns": drawing.columns,
            "titles": drawing.titles,
            "followed": drawing.followed,
            "step": about.kind in ("step", "stacked_bar", "histogram"),
            "name": name,
        }
        data = tag("script", script_json(payload), type="application/json", class_="figure-data")
        values = join(_data(drawing), data)
    else:
        chart = tag("p", "There is nothing to draw: the run has no such data.", class_="soft empty")
        values = Html("")
    return tag(
        "figure",
        title,
        _legend(drawing.legend, about.series_label),
        chart,
        caption,
        values,
        class_="card wide" if drawing.wide else "card",
        id=name,
        aria_labelledby=f"{name}-title",
    )


def _legend(entries: Sequence[Legend], label: str) -> Html | None:
    """The legend beside a chart; None if it has no entries.

    Parameters
    ----------
    entries : of the series, in order.
    label : what the series are; empty to say nothing.
    """
    if not entries:
        return None
    name = tag("li", f"{label}:", class_="soft") if label else None
    series = (tag("li", _symbol(entry), tag("span", entry.name)) for entry in entries)
    return tag("ul", name, series, class_="legend")


def _symbol(entry: Legend) -> Html:
    """How a series looks: a piece of its line, or its mark."""
    width = 22 if entry.shape == "line" else 12
    if entry.shape == "line":
        dash = ",".join(map(str, entry.dash)) or None
        look = {"stroke": entry.colour, "stroke_width": "2.4", "stroke_dasharray": dash, "fill": "none"}
        symbol = tag("path", d="M0 6h22", **look)
    else:
        symbol = tag("path", d=_SHAPES[entry.shape], fill=entry.colour)
    return tag("svg", symbol, width=width, height=12, aria_hidden="true")


def _data(drawing: Drawing) -> Html:
    """The figure's values as a table: all, or evenly chosen ones."""
    first = ("series", "y", "x", "x2")
    if "series" not in drawing.titles and drawing.figure.kind != "gantt":
        first = ("series", "x", "x2", "y")
    named = (*first, "z", "low", "high")
    names = [name for name in named if name in drawing.titles]
    columns = [drawing.columns[name] for name in names]
    total = len(drawing.columns["x"])
    chosen: Sequence[int] = range(total)
    if total > MOST_ROWS:
        chosen = [round(at * (total - 1) / (MOST_ROWS - 1)) for at in range(MOST_ROWS)]
    rows = [[amount(values[at]) for values in columns] for at in chosen]
    right = [at for at, values in enumerate(columns) if not any(isinstance(one, str) for one in values)]
    shown = f"{total:,}" if total <= MOST_ROWS else f"{MOST_ROWS} of {total:,}"
    titles = [drawing.titles[name] for name in names]
    table = data_table(titles, rows, label=f"Data of {drawing.figure.title}", right=right)
    return tag("details", tag("summary", f"Data ({shown} rows)"), table, class_="data")


def tables(named: Mapping[str, Table]) -> Html | None:
    """The names and lengths of a run's tables, and what their columns mean; None if it has none.

    Parameters
    ----------
    named : the tables by name; each is stored as `<name>.parquet` in a run directory.
    """
    return join(_table(name, table) for name, table in named.items()) if named else None


def _table(name: str, table: Table) -> Html:
    """A table's name and number of rows, and its columns when it is opened."""
    count = f" – {len(table):,} row{'' if len(table) == 1 else 's'}"
    meaning = f". {table.schema.meaning}" if table.schema.meaning else ""
    rows = [(column.name, readable_unit(column.unit), column.meaning) for column in table.schema.columns]
    columns = data_table(("Column", "Unit", "Meaning"), rows, label=f"Columns of the table {name}")
    return tag("details", tag("summary", tag("code", f"{name}.parquet"), count, meaning), columns)


def provenance(run: Run) -> Html:
    """Run id, versions, digests of inputs, host and wall time."""
    rows = [("run id", run.id)]
    rows += [(path.replace("_", " "), amount(value)) for path, value in _leaves(run.provenance)]
    return provenance_table(rows, scenario_data(run))
