"""Delimited text as typed columns, every value checked.

A reader declares the columns of its format as `Field`s; `read_rows` streams chunks of typed arrays and
gathers problems as `file:line:field: problem`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.errors import TraceError, suggestion
from forerun.trace.cells import LARGEST_INT, TEXT, Array, Field, Kind, parse_column, parse_instant
from forerun.trace.repair import Complaints, shown
from forerun.trace.source import MOST_ROWS, Source

__all__ = [
    "LARGEST_INT",
    "TEXT",
    "Array",
    "Chunk",
    "Field",
    "Kind",
    "gathered",
    "parse_column",
    "parse_instant",
    "read_rows",
]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive good rows of a file.

    lines: int64[rows], line number of each row. columns: by our field names, float64, int64 or strings
    [rows].
    """

    lines: NDArray[np.int64]
    columns: dict[str, Array]

    def __len__(self) -> int:
        return len(self.lines)


def read_rows(
    source: Source,
    fields: Sequence[Field],
    *,
    complaints: Complaints | None = None,
    delimiter: str = ",",
    header: bool = True,
    comment: str = "",
) -> Iterator[Chunk]:
    """Delimited text as chunks of typed columns, in file order.

    With `header` the first line names the columns, in any order; columns that no field names are left out
    and noted as a repair. Without, the fields are the columns, in order. Lines starting with `comment` are
    passed over; blank lines are dropped and counted. A bad row is a complaint and missing from its chunk;
    complaints are raised at the end, or as soon as there are many, as `TraceError`.
    """
    complaints = complaints if complaints is not None else Complaints()
    layout = None if header else _Layout(list(fields), list(range(len(fields))), len(fields))
    count = 0
    for first, lines in source.blocks():
        numbers, rows = _cells(source, first, lines, delimiter, comment, complaints)
        if layout is None and rows:
            layout = _layout(source, numbers[0], rows[0], fields, delimiter)
            numbers, rows = numbers[1:], rows[1:]
        if layout is None or not rows:
            continue
        chunk = _typed(source, layout, numbers, rows, complaints)
        count += len(chunk)
        if count > MOST_ROWS:
            raise TraceError.at(source.name, f"has more than {MOST_ROWS} rows, the limit here")
        if len(chunk):
            yield chunk
    complaints.finish()
    if not count:
        raise TraceError.at(source.name, "contains no rows of data")


def gathered(chunks: Iterable[Chunk]) -> Chunk:
    """All chunks as one, in order."""
    parts = list(chunks)
    assert parts, "read_rows never ends without a row"
    names = parts[0].columns
    lines = np.concatenate([part.lines for part in parts])
    return Chunk(lines, {name: np.concatenate([part.columns[name] for part in parts]) for name in names})


@dataclass(frozen=True, slots=True)
class _Layout:
    """The position of each field in a row."""

    fields: list[Field]
    positions: list[int]
    width: int


def _layout(source: Source, line: int, header: list[str], fields: Sequence[Field], delimiter: str) -> _Layout:
    names = [name.strip() for name in header]
    headers = [field.header for field in fields]
    absent = [repr(f.header) for f in fields if f.required and f.header not in names]
    if absent:
        other = next(
            (c for c in (",", ";", "\t", "|") if c != delimiter and len(names) == 1 and c in names[0]), ""
        )
        if other:
            raise TraceError.at(
                source.at(line), f"the header is separated by {other!r}; {delimiter!r} is expected"
            )
        present_names = ", ".join(shown(name, 40) for name in names[:12]) + (
            ", ..." if len(names) > 12 else ""
        )
        near = suggestion(absent[0].strip("'"), names[:200]).strip()
        lacking = ", ".join(absent[:6]) + (f" and {len(absent) - 6} more" if len(absent) > 6 else "")
        hint = f"; {near}" if near else ""
        raise TraceError.at(source.at(line), f"the header lacks {lacking}{hint}; it has {present_names}")
    twice = sorted({name for name in names if names.count(name) > 1 and name in headers})
    if twice:
        raise TraceError.at(source.at(line, twice[0]), "the header names this column twice")
    extra = [name for name in names if name not in headers]
    if extra:
        rule = f"column not used: {', '.join(shown(name, 40) for name in extra[:8])}"
        source.repairs.note(rule + (f" and {len(extra) - 8} more" if len(extra) > 8 else ""), source.at(line))
    present = [field for field in fields if field.header in names]
    return _Layout(present, [names.index(field.header) for field in present], len(names))


def _cells(
    source: Source, first: int, lines: list[str], delimiter: str, comment: str, complaints: Complaints
) -> tuple[list[int], list[list[str]]]:
    numbers, rows = [], []
    for number, line in enumerate(lines, first):
        if not line or line.isspace():
            source.repairs.note("blank line dropped", source.at(number))
        elif comment and line.startswith(comment):
            continue
        elif '"' in line:
            try:
                rows.append(next(csv.reader([line], delimiter=delimiter, strict=True)))
                numbers.append(number)
            except csv.Error as error:
                complaints.add(source.at(number), f"the quoting is not closed or not regular: {error}")
        else:
            rows.append(line.split(delimiter))
            numbers.append(number)
    return numbers, rows


def _typed(
    source: Source, layout: _Layout, numbers: list[int], rows: list[list[str]], complaints: Complaints
) -> Chunk:
    if any(len(row) != layout.width for row in rows):
        numbers, rows = _of_width(source, layout, numbers, rows, complaints)
    lines = np.array(numbers, dtype=np.int64)
    texts = list(zip(*rows, strict=True)) or [()] * layout.width
    columns: dict[str, Array] = {}
    good = np.ones(len(rows), dtype=bool)
    faults: list[tuple[int, str, str]] = []
    for field, position in zip(layout.fields, layout.positions, strict=True):
        columns[field.name], problems = parse_column(field, texts[position])
        faults.extend((row, field.header, what) for row, what in problems)
    for row, header, what in sorted(faults, key=lambda fault: fault[0]):
        complaints.add(source.at(int(lines[row]), header), what)
        good[row] = False
    if not good.all():
        return Chunk(lines[good], {name: values[good] for name, values in columns.items()})
    return Chunk(lines, columns)


def _of_width(
    source: Source, layout: _Layout, numbers: list[int], rows: list[list[str]], complaints: Complaints
) -> tuple[list[int], list[list[str]]]:
    good = []
    for i, (number, row) in enumerate(zip(numbers, rows, strict=True)):
        if len(row) == layout.width:
            good.append(i)
        else:
            cells = "cell" if len(row) == 1 else "cells"
            tail = " (is the file cut short?)" if len(row) < layout.width and i == len(rows) - 1 else ""
            complaints.add(source.at(number), f"has {len(row)} {cells}, {layout.width} are expected{tail}")
    return [numbers[i] for i in good], [rows[i] for i in good]
