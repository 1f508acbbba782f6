"""The sections of a page: headline, ledgers, figures, notes, scenario, provenance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from forerun.report.contents import Run, as_yaml, scenario_data
from forerun.report.drawing import Drawing
from forerun.report.marks import Legend
from forerun.report.markup import Content, Html, join, script_json, tag
from forerun.report.palette import VARIABLES
from forerun.report.quantities import format_number, readable_unit, split_name, title_of
from forerun.result.ledger import Ledger
from forerun.result.tables import Table

#: rows of a figure's data shown below it, and of a table of names
MOST_ROWS: Final = 40
#: figures shown large at the top if the domain names none
_TILES: Final = 6
#: characters of a value and its unit above which a tile shows them smaller
_LONG: Final = 10

_SHAPES: Final = {
    "square": "M1 2h10v8h-10z",
    "circle": "M6 1.5a4.5 4.5 0 1 0 .01 0z",
    "triangle-up": "M6 1.5l5 9h-10z",
    "triangle-down": "M6 10.5l5-9h-10z",
    "diamond": "M6 .8l4.6 5.2-4.6 5.2-4.6-5.2z",
    "cross": "M4.3 1h3.4v3.3h3.3v3.4h-3.3v3.3h-3.4v-3.3h-3.3v-3.4h3.3z",
}


@dataclass(frozen=True)
class Section:
    """A part of a page with a heading and a name for links."""

    name: str
    title: str
    body: Html
    short: str = ""


def data_table(
    head: Sequence[Content],
    rows: Sequence[Sequence[Content]],
    *,
    label: str,
    right: Sequence[int] = (),
    wide: bool = False,
) -> Html:
    """A table; `right` are the columns of numbers. It scrolls sideways by itself where it is too wide."""
    numeric = set(right)
    header = tag(
        "tr",
        (tag("th", text, scope="col", class_="n" if at in numeric else None) for at, text in enumerate(head)),
    )
    body = (
        tag(
            "tr",
            (
                tag(
                    "th" if at == 0 else "td",
                    cell,
                    class_="n" if at in numeric else None,
                    scope="row" if at == 0 else None,
                )
                for at, cell in enumerate(row)
            ),
        )
        for row in rows
    )
    table = tag("table", tag("caption", label, class_="unseen"), tag("thead", header), tag("tbody", body))
    return tag(
        "div", table, class_="scroll wide" if wide else "scroll", tabindex=0, role="region", aria_label=label
    )


def headline(run: Run) -> Html:
    """The figures that matter, large, and all of them as tables."""
    flat = {name: value for name, value in run.summary.items() if not _deep(value)}
    first = [name for name in run.headline if name in flat]
    numbers = [name for name, value in flat.items() if isinstance(value, (int, float)) and value is not True]
    tiles = tag("div", (_tile(run, name, flat[name]) for name in (first or numbers)[:_TILES]), class_="tiles")
    names = [*first, *(name for name in flat if name not in first)]
    table = _figures_table(run, names)
    deep = [_nested(name, value) for name, value in run.summary.items() if _deep(value)]
    title = tag("summary", f"All {len(names):,} values")
    return join(
        (tiles, tag("details", title, tag("div", table, deep, class_="beside"), open=len(names) <= 14))
    )


def _figures_table(run: Run, names: Sequence[str]) -> Html:
    rows = [
        [_named(name)[0], _amount(run.summary[name]), _named(name)[1], _interval(run, name)] for name in names
    ]
    head = ["Quantity", "Value", "Unit", "Interval"]
    if not any(row[3] for row in rows):
        head, rows = head[:3], [row[:3] for row in rows]
    table = data_table(head, rows, label="All values of the summary", right=(1, 3))
    ways = {f"{i.confidence:.0%}{', ' + i.method if i.method else ''}" for i in run.intervals.values()}
    note = tag("p", f"Intervals: {'; '.join(sorted(ways))}.", class_="soft under") if ways else None
    return tag("div", table, note)


def _deep(value: Any) -> bool:
    """Whether a summary entry is a table of its own rather than one figure or a short list of them."""
    if isinstance(value, (list, tuple)):
        return len(value) > 8 or any(isinstance(item, (Mapping, list, tuple)) for item in value)
    return isinstance(value, Mapping)


def ledger(entry: Ledger) -> Html:
    """A ledger as a bar of its parts and a table that explains them."""
    shares = entry.shares()
    unit = readable_unit(entry.unit)
    colours = {name: VARIABLES.area_colour(number) for number, name in enumerate(entry.parts)}
    words = ", ".join(f"{name} {shares[name]:.1%}" for name in entry.parts if shares[name] >= 0.0005)
    bar = tag(
        "div",
        (
            tag(
                "span",
                style=f"width:{100 * max(shares[name], 0.0):.4f}%;background:{colours[name]}",
                title=f"{name}: {shares[name]:.1%}",
            )
            for name in entry.parts
            if shares[name] > 0
        ),
        class_="bar",
        role="img",
        aria_label=f"{entry.name}: {words}",
    )
    meanings = entry.meanings or {}
    rows: list[list[Content]] = [
        [
            tag("span", tag("i", class_="swatch", style=f"background:{colours[name]}"), name, class_="named"),
            _amount(float(amount)),
            f"{shares[name]:.1%}",
            meanings.get(name, ""),
        ]
        for name, amount in entry.parts.items()
    ]
    rows.append([tag("strong", "whole"), tag("strong", _amount(float(entry.whole))), "", ""])
    head = ["Part", f"Amount ({unit})" if unit else "Amount", "Share", "Meaning"]
    if not any(meanings.get(name) for name in entry.parts):
        head, rows = head[:3], [row[:3] for row in rows]
    return tag(
        "div",
        tag("h3", title_of(entry.name)),
        bar,
        data_table(head, rows, label=f"Parts of the ledger {entry.name}", right=(1, 2)),
        class_="ledger card",
    )


def figure(drawing: Drawing, name: str) -> Html:
    """A figure: title, legend, chart, caption, notes and its data."""
    about = drawing.figure
    payload = {
        "spec": drawing.spec,
        "columns": drawing.columns,
        "titles": drawing.titles,
        "followed": drawing.followed,
        "step": about.kind in ("step", "stacked_bar", "histogram"),
        "name": name,
    }
    empty = not drawing.rows
    chart: Html = (
        tag("p", "There is nothing to draw: the run has no such data.", class_="soft empty")
        if empty
        else tag(
            "div",
            class_="chart",
            id=f"{name}-chart",
            role="img",
            aria_label=f"{about.title}. {about.caption}",
        )
    )
    data = (
        None if empty else tag("script", script_json(payload), type="application/json", class_="figure-data")
    )
    return tag(
        "figure",
        tag("h3", about.title, id=f"{name}-title"),
        _legend(drawing.legend, about.series_label),
        chart,
        tag("figcaption", about.caption, (tag("span", " ", note, class_="soft") for note in drawing.notes)),
        None if empty else _data(drawing),
        data,
        class_="card wide" if drawing.wide else "card",
        id=name,
        aria_labelledby=f"{name}-title",
    )


def figures(drawings: Sequence[Drawing], names: Sequence[str]) -> Html:
    """Figures side by side where they fit."""
    return tag("div", (figure(drawing, name) for drawing, name in zip(drawings, names)), class_="figures")


def notes(run: Run) -> Html:
    """What a reader must know."""
    return tag("ul", (tag("li", note) for note in run.notes), class_="notes")


def scenario(run: Run) -> Html:
    """The resolved scenario, as text."""
    text = as_yaml(scenario_data(run))
    return tag("pre", tag("code", text), tabindex=0)


def tables(found: Mapping[str, Table]) -> Html:
    """What tables the run keeps, and what their columns mean."""
    return join(
        tag(
            "details",
            tag(
                "summary",
                tag("code", f"{name}.parquet"),
                f" – {len(table):,} row{'' if len(table) == 1 else 's'}",
                f". {table.schema.meaning}" if table.schema.meaning else "",
            ),
            data_table(
                ("Column", "Unit", "Meaning"),
                [
                    (column.name, readable_unit(column.unit), column.meaning)
                    for column in table.schema.columns
                ],
                label=f"Columns of the table {name}",
            ),
        )
        for name, table in found.items()
    )


def provenance(run: Run) -> Html:
    """Run id, versions, digests of inputs, host and wall time."""
    rows: list[tuple[str, str]] = [("run id", run.id)]
    rows += [(path.replace("_", " "), _amount(value)) for path, value in _leaves(run.provenance)]
    inputs = [
        (f"input {path.rpartition('.')[0]}", str(value))
        for path, value in _leaves(scenario_data(run))
        if path.endswith(".sha256") and value
    ]
    return data_table(("What", "Value"), rows + inputs, label="Provenance")


def commands(lines: Sequence[tuple[str, str]]) -> Html:
    """Commands worth running next, with why."""
    return tag(
        "dl",
        (tag("div", tag("dt", tag("code", line)), tag("dd", why)) for line, why in lines),
        class_="commands",
    )


def _tile(run: Run, name: str, value: Any) -> Html:
    label, unit = _named(name)
    interval = _interval(run, name)
    amount = _amount(value)
    long = len(amount) + len(unit) > _LONG
    return tag(
        "div",
        tag("span", label, class_="label"),
        tag(
            "span",
            amount,
            tag("small", f"\N{NO-BREAK SPACE}{unit}") if unit else None,
            class_="value long" if long else "value",
        ),
        tag("span", interval, class_="soft") if interval else None,
        class_="tile",
    )


def _named(name: str) -> tuple[str, str]:
    label, unit = split_name(name)
    return title_of(label), unit


def _amount(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_amount(item) for item in value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return format_number(value)


def _interval(run: Run, name: str) -> str:
    interval = run.intervals.get(name)
    return f"{format_number(interval.low)} … {format_number(interval.high)}" if interval else ""


def _nested(name: str, value: Any) -> Html:
    """A summary entry that is itself a table (stage -> figure -> value) or a list."""
    title = title_of(split_name(name)[0])
    if isinstance(value, Mapping) and value and all(isinstance(inner, Mapping) for inner in value.values()):
        columns = list(dict.fromkeys(key for inner in value.values() for key in inner))
        head = ["", *(" ".join(_header(column)).strip() for column in columns)]
        rows = [
            [key, *(_amount(_short(inner.get(column))) for column in columns)] for key, inner in value.items()
        ]
        body = data_table(head, rows[:MOST_ROWS], label=title, right=range(1, len(head)))
        return tag("div", tag("h4", title), body)
    rows = [[path, _amount(leaf)] for path, leaf in _leaves(value)]
    if not rows:
        return Html("")
    cut = f" (first {MOST_ROWS} of {len(rows):,})" if len(rows) > MOST_ROWS else ""
    body = data_table(("", "Value"), rows[:MOST_ROWS], label=title, right=(1,))
    return tag("div", tag("h4", title + cut), body)


def _header(name: str) -> tuple[str, str]:
    label, unit = split_name(name)
    return label, f"({unit})" if unit else ""


def _short(value: Any) -> Any:
    return "–" if value is None else value if not isinstance(value, (Mapping, list, tuple)) else str(value)


def _leaves(data: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(data, (list, tuple)):
        for at, value in enumerate(data):
            yield from _leaves(value, f"{prefix}[{at}]")
    else:
        yield prefix, data


def _legend(entries: Sequence[Legend], label: str) -> Html | None:
    if not entries:
        return None
    name = tag("li", f"{label}:", class_="soft") if label else None
    return tag(
        "ul", name, (tag("li", _swatch(entry), tag("span", entry.name)) for entry in entries), class_="legend"
    )


def _swatch(entry: Legend) -> Html:
    if entry.shape == "line":
        dash = ",".join(str(part) for part in entry.dash) or None
        shape = tag(
            "path", d="M0 6h22", stroke=entry.colour, stroke_width="2.4", stroke_dasharray=dash, fill="none"
        )
        return tag("svg", shape, width=22, height=12, aria_hidden="true")
    shape = tag("path", d=_SHAPES[entry.shape], fill=entry.colour)
    return tag("svg", shape, width=12, height=12, aria_hidden="true")


def _data(drawing: Drawing) -> Html:
    """The figure's values as a table: all, or evenly chosen ones."""
    names = [name for name in ("series", "y", "x", "x2", "z", "low", "high") if name in drawing.titles]
    if "series" not in names and drawing.figure.kind != "gantt":
        names = [name for name in ("x", "x2", "y", "z", "low", "high") if name in drawing.titles]
    total = len(drawing.columns["x"])
    chosen = (
        range(total)
        if total <= MOST_ROWS
        else [round(at * (total - 1) / (MOST_ROWS - 1)) for at in range(MOST_ROWS)]
    )
    rows = [[_cell(drawing.columns[name][at]) for name in names] for at in chosen]
    numeric = [
        at
        for at, name in enumerate(names)
        if not any(isinstance(value, str) for value in drawing.columns[name])
    ]
    shown = f"Data ({total:,} rows)" if total <= MOST_ROWS else f"Data ({MOST_ROWS} of {total:,} rows)"
    table = data_table(
        [drawing.titles[name] for name in names], rows, label=f"Data of {drawing.figure.title}", right=numeric
    )
    return tag("details", tag("summary", shown), table, class_="data")


def _cell(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value) and abs(value) < 1e15:
        return format_number(int(value) if value.is_integer() else value)
    return format_number(value)
