"""A plan or a measurement on a page: its headline, figures, tables, notes, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.core.documents import Rows, StoredDocument
from forerun.core.report.contents import flat
from forerun.core.report.markup import Content, Html, join, tag
from forerun.core.report.pieces import (
    MOST_OPEN,
    MOST_ROWS,
    TILES,
    Section,
    amount,
    bullets,
    data_table,
    facts_line,
    folded,
    paragraph,
    present,
    provenance_table,
    scenario_text,
    tile,
    titled,
)
from forerun.core.result.numbers import capital, is_number
from forerun.core.units import split_name


def facts(item: StoredDocument) -> str:
    """Domain, kind and version on one line; a version that the file does not state is left out."""
    return facts_line(item.domain, item.kind, f"forerun {item.version}" if item.version else "")


def document_sections(item: StoredDocument, drawn: Html | None) -> list[Section]:
    """The sections of a page that is about one plan or measurement; those with nothing to show are left out.

    Parameters
    ----------
    item : the content of the file.
    drawn : its figures; None for none.
    """
    return present(
        Section("headline", "Headline", _headline(item)),
        Section("figures", "Figures", drawn),
        *(
            Section(f"table-{name}", capital(_words(name)), _table(name, rows))
            for name, rows in item.tables.items()
        ),
        Section("notes", "Notes", bullets(item.notes)),
        Section("scenario", "Scenario", scenario_text(item.scenario) if item.scenario else None),
        Section("provenance", "Provenance", _provenance(item)),
    )


def _headline(item: StoredDocument) -> Html:
    """The first numbers large, everything in a table."""
    values = {name: value for name, value in flat(item.facts).items() if value is not None}
    rows = {}
    for name, value in values.items():
        label, unit = split_name(name)
        rows[name] = [capital(label), amount(value), unit]
    numbers = [name for name, value in values.items() if is_number(value)]
    tiles = (tile(label, unit, text) for label, text, unit in map(rows.__getitem__, numbers[:TILES]))
    table = data_table(("Quantity", "Value", "Unit"), list(rows.values()), label="All values", right=(1,))
    title = tag("summary", f"All {len(rows):,} values")
    return join(tag("div", tiles, class_="tiles"), tag("details", title, table, open=len(rows) <= MOST_OPEN))


def _table(name: str, rows: Rows) -> Html:
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
        [amount(row.get(column)) for column in shown] for row in flattened[:MOST_ROWS]
    ]
    numeric = [
        at
        for at, column in enumerate(shown)
        if at and all(isinstance(row.get(column), (int, float, type(None))) for row in flattened)
    ]
    same_values = ", ".join(
        f"{_head(column)} {amount(value)}" for column in same if (value := flattened[0].get(column)) != ""
    )
    body = join(
        data_table(list(map(_head, shown)), cells, label=_words(name), right=numeric),
        paragraph(f"The first {MOST_ROWS} of {len(rows):,} rows." if len(rows) > MOST_ROWS else ""),
        paragraph(f"The same in all: {same_values}." if same_values else ""),
    )
    return body if len(rows) <= MOST_OPEN else folded(f"{len(rows):,} rows", body)


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


def _provenance(item: StoredDocument) -> Html:
    """File, kind, version, and whatever else the file says of where it comes from."""
    rows = [("file", item.name), ("kind", item.kind)]
    rows += [("written by", f"forerun {item.version}")] if item.version else []
    rows += [(name, amount(value)) for name, value in flat(item.provenance).items()]
    return provenance_table(rows, item.scenario)


def _words(name: str) -> str:
    """A name with spaces for underscores."""
    return name.replace("_", " ")
