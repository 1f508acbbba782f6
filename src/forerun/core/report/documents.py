"""A plan or a measurement on a page: its headline, figures, tables, notes, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.core.report.contents import flat, item_title
from forerun.core.report.drawn import Drawn
from forerun.core.report.markup import Content
from forerun.core.report.pieces import (
    MOST_OPEN,
    MOST_ROWS,
    Bullets,
    Code,
    DataTable,
    Estimate,
    Folded,
    Headline,
    Paragraph,
    Provenance,
    ScenarioText,
    Section,
    Shown,
    amount,
)
from forerun.core.report.stored import figures_of_document
from forerun.core.result.document import Rows, StoredDocument
from forerun.core.result.numbers import capital, is_number
from forerun.core.units import split_name, titled


def shown_document(item: StoredDocument, prefix: str) -> Shown:
    """What a page says of a plan or measurement.

    Parameters
    ----------
    item : the content of the file.
    prefix : of the names of its figures.
    """
    drawn = Drawn(figures_of_document(item), prefix)
    written = f"forerun {item.version}" if item.version else ""
    rows: list[tuple[str, Content]] = [("file", item.name), ("kind", item.kind)]
    rows += [("written by", written)] if written else []
    rows += [(name, Estimate(value)) for name, value in flat(item.provenance).items()]
    return Shown(
        item.kind,
        capital(item.name)
        if item.kind == "explanation"
        else item_title(item.kind, item.domain, item.name, item.scenario),
        (item.domain, item.kind, written),
        item.answer,
        bool(drawn.figures),
        (
            Section("headline", "Headline", _headline(item.facts)),
            Section("figures", "Figures", drawn),
            Section("code", "What to run", Code(item.code)),
            *(
                Section(f"table-{name}", capital(_words(name)), _table(name, rows))
                for name, rows in item.tables.items()
            ),
            Section("notes", "Notes", Bullets(item.notes)),
            Section("scenario", "Scenario", ScenarioText(item.scenario)),
            Section("provenance", "Provenance", Provenance(rows, item.scenario)),
        ),
    )


def _headline(facts: Mapping[str, Any]) -> Headline:
    """The first numbers large, everything in a table."""
    values = {name: value for name, value in flat(facts).items() if value is not None}
    named = [(split_name(name), value) for name, value in values.items()]
    rows = [(capital(label), Estimate(value), unit) for (label, unit), value in named]
    tiles = [(capital(label), value, unit, "") for (label, unit), value in named if is_number(value)]
    table = DataTable(("Quantity", "Value", "Unit"), rows, label="All values", right=(1,))
    return Headline(tiles, len(rows), table)


def _table(name: str, rows: Rows) -> Content:
    """Records as a table: what is the same in all is said below it, long tables are folded and cut.

    Parameters
    ----------
    name : of the table.
    rows : the records; a column that a record lacks shows a dash there.
    """
    flattened = [_flattened(row) for row in rows]
    columns = list(dict.fromkeys(column for row in flattened for column in row))
    same = [
        column
        for column in columns
        if len(rows) > 2 and len({repr(row.get(column)) for row in flattened}) == 1
    ]
    shown = [column for column in columns if column not in same] or columns[:1]  # rows may be all alike
    cells: list[list[Content]] = [
        [Estimate(row.get(column)) for column in shown] for row in flattened[:MOST_ROWS]
    ]
    numeric = [
        at
        for at, column in enumerate(shown)
        if at and all(isinstance(row.get(column), (int, float, type(None))) for row in flattened)
    ]
    same_values = ", ".join(
        f"{_head(column)} {amount(value)}" for column in same if (value := flattened[0].get(column)) != ""
    )
    body = (
        DataTable(list(map(_head, shown)), cells, label=_words(name), right=numeric),
        Paragraph(f"The first {MOST_ROWS} of {len(rows):,} rows." if len(rows) > MOST_ROWS else ""),
        Paragraph(f"The same in all: {same_values}." if same_values else ""),
    )
    return body if len(rows) <= MOST_OPEN else Folded(f"{len(rows):,} rows", body)


def _flattened(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A record as path -> value; lists become one text."""
    flattened: dict[str, Any] = {}
    for key, value in row.items():
        path = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping):
            flattened |= _flattened(value, path)
        else:
            flattened[path] = amount(value) if isinstance(value, (list, tuple)) else value
    return flattened


def _head(column: str) -> str:
    """The heading of a column: its name in words and its unit."""
    return titled(*split_name(column))


def _words(name: str) -> str:
    """A name with spaces for underscores."""
    return name.replace("_", " ")
