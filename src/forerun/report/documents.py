"""A plan or a measurement on a page: its headline, figures, tables, notes, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from forerun.report.contents import as_yaml, flat
from forerun.report.markup import Content, Html, join, tag
from forerun.report.quantities import format_number, readable_unit, split_name, title_of
from forerun.report.sections import Section, data_table
from forerun.report.stored import Rows, StoredDocument
from forerun.study.summary import is_number

#: rows of a table shown, and figures shown large
MOST_ROWS: Final = 40
_TILES: Final = 6
#: rows above which a table is folded
MOST_OPEN: Final = 14


def facts(item: StoredDocument) -> str:
    """Domain, kind and version on one line."""
    parts = [item.domain, item.kind, f"forerun {item.version}" if item.version else ""]
    return " · ".join(part for part in parts if part)


def document_sections(item: StoredDocument, drawn: Html | None) -> list[Section]:
    """The sections of a page that is about one plan or measurement; `drawn` are its figures."""
    notes = tag("ul", (tag("li", note) for note in item.notes), class_="notes")
    parts = [
        Section("headline", "Headline", _headline(item)),
        Section("figures", "Figures", drawn) if drawn is not None else None,
        *(
            Section(f"table-{name}", title_of(_words(name)), _table(name, rows))
            for name, rows in item.tables.items()
        ),
        Section("notes", "Notes", notes) if item.notes else None,
        Section("scenario", "Scenario", tag("pre", tag("code", as_yaml(item.scenario)), tabindex=0))
        if item.scenario
        else None,
        Section("provenance", "Provenance", _provenance(item)),
    ]
    return [part for part in parts if part]


def _headline(item: StoredDocument) -> Html:
    """The first numbers large, everything in a table."""
    found = {name: value for name, value in flat(item.facts).items() if value is not None}
    numbers = [name for name, value in found.items() if is_number(value)]
    tiles = tag("div", (_tile(name, found[name]) for name in numbers[:_TILES]), class_="tiles")
    rows: list[list[Content]] = []
    for name, value in found.items():
        label, unit = split_name(name)
        rows.append([title_of(label), _amount(value), readable_unit(unit)])
    table = data_table(("Quantity", "Value", "Unit"), rows, label="All values", right=(1,))
    title = tag("summary", f"All {len(rows):,} values")
    return join((tiles, tag("details", title, table, open=len(rows) <= MOST_OPEN)))


def _tile(name: str, value: Any) -> Html:
    label, unit = split_name(name)
    shown = readable_unit(unit)
    return tag(
        "div",
        tag("span", title_of(label), class_="label"),
        tag("span", _amount(value), tag("small", f" {shown}") if shown else None, class_="value"),
        class_="tile",
    )


def _table(name: str, rows: Rows) -> Html:
    """Records as a table: what is the same in all is said below it, long tables are folded and cut."""
    flattened = [_flattened(row) for row in rows]
    columns = list(dict.fromkeys(column for row in flattened for column in row))
    same = [
        column
        for column in columns
        if len(rows) > 2 and len({repr(row.get(column)) for row in flattened}) == 1
    ]
    shown = [column for column in columns if column not in same]
    cells: list[list[Content]] = [
        [_amount(row.get(column)) for column in shown] for row in flattened[:MOST_ROWS]
    ]
    numeric = [
        at
        for at, column in enumerate(shown)
        if at and all(isinstance(row.get(column), (int, float, type(None))) for row in flattened)
    ]
    table = data_table([_head(column) for column in shown], cells, label=_words(name), right=numeric)
    same_values = ", ".join(f"{_head(column)} {_amount(flattened[0].get(column))}" for column in same)
    notes = [
        f"The first {MOST_ROWS} of {len(rows):,} rows." if len(rows) > MOST_ROWS else "",
        f"The same in all: {same_values}." if same_values else "",
    ]
    body = join((table, *(tag("p", note, class_="soft under") for note in notes if note)))
    if len(rows) <= MOST_OPEN:
        return body
    return tag("details", tag("summary", f"{len(rows):,} rows"), body)


def _flattened(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A record as path -> value; lists become one text."""
    found: dict[str, Any] = {}
    for key, value in row.items():
        path = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping):
            found |= _flattened(value, path)
        else:
            found[path] = _listed(value) if isinstance(value, (list, tuple)) else value
    return found


def _listed(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_listed(inner) for inner in value)
    return _amount(value)


def _head(column: str) -> str:
    label, unit = split_name(column)
    return f"{label} ({readable_unit(unit)})" if unit else label


def _provenance(item: StoredDocument) -> Html:
    rows: list[list[Content]] = [["file", item.name], ["kind", item.kind]]
    rows += [["written by", f"forerun {item.version}"]] if item.version else []
    rows += [[name, _amount(value)] for name, value in flat(item.provenance).items()]
    rows += [
        [f"input {path.rpartition('.')[0]}", str(value)]
        for path, value in flat(item.scenario).items()
        if path.endswith(".sha256") and value
    ]
    return data_table(("What", "Value"), rows, label="Provenance")


def _amount(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return format_number(value)


def _words(name: str) -> str:
    return name.replace("_", " ")


__all__ = ["document_sections", "facts"]
