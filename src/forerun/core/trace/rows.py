"""Delimited text as typed columns, every value checked.

A reader declares the columns of its format as `Field`s; `read_rows` streams chunks of typed arrays and gathers problems as
`file:line:field: problem`. Numbers are parsed to the nearest double and must be finite, plain decimal numbers within the
field's range; nothing is coerced. Every fault quotes the text.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import TraceError, known_names, suggestion
from forerun.core.trace.repair import Complaints, RepairLog, shown
from forerun.core.trace.source import MOST_ROWS, Source, document_of

Kind: TypeAlias = Literal["float", "int", "text", "datetime"]
Array: TypeAlias = NDArray[Any]

_PLAIN_INSTANTS = re.compile(
    r"(?:(?:19|20|21)[0-9]{2}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9}+)?+\n)*+"
)
LARGEST_INT = 2**53
#: texts as an array; one that is not recorded is empty
TEXT = np.dtypes.StringDType(coerce=False)

# Possessive quantifiers: a hostile text of a million digits is rejected in linear time.
_DECIMALS = re.compile(r"(?:[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+\n)*+")
_INTEGERS = re.compile(r"(?:[+-]?+[0-9]{1,18}+\n)*+")
_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:?[0-9]{2})?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One column of a public format: its name in the file and in forerun, its unit, and its allowed values.

    Parameters
    ----------
    name : ours, with the unit as suffix.
    kind : `float`, `int` (whole, at most 2^53), `text`, or `datetime` (int64 nanoseconds since 1970 on the file's
        clock, or UTC if the file gives a zone).
    unit, meaning : of a value, for the schema of the trace (default: none).
    column : its header in the file (default: the same as the name).
    spellings : other headers that it has in some files, for `spelled` (default: none).
    required : the column must be there (default: yes).
    missing : texts that stand for "no value": NaN in a float column, an empty text in a text one; not allowed elsewhere
        (default: none).
    blank : what an empty cell of an `int` column stands for (default: None: it must not be empty).
    minimum, maximum : inclusive (default: any finite value).
    choices : the texts that may stand there (default: any).
    whole_decimals : an `int` may be written `12.0` (default: no).
    longest : characters of a text (default: 4096).
    """

    name: str
    kind: Kind = "float"
    unit: str = ""
    meaning: str = ""
    column: str = ""
    spellings: tuple[str, ...] = ()
    required: bool = True
    missing: tuple[str, ...] = ()
    blank: int | None = None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    whole_decimals: bool = False
    longest: int = 4096

    def __post_init__(self) -> None:
        assert not (self.missing and self.kind in ("int", "datetime")), (
            "no array value stands for a missing one"
        )

    @property
    def header(self) -> str:
        """The column's name in the file."""
        return self.column or self.name

    @property
    def headers(self) -> tuple[str, ...]:
        """All names that it has in files, the usual one first."""
        return (self.header, *self.spellings)


def parse_column(field: Field, texts: Sequence[str]) -> tuple[Array, list[tuple[int, str]]]:
    """Texts as an array of the field's kind, and the errors: (index, message). Bad places contain a
    filler.
    """
    cells = [text.strip() for text in texts]
    match field.kind:
        case "text":
            return _text_column(field, cells)
        case "datetime":
            return _datetime_column(cells)
        case "int":
            return _int_column(field, cells)
        case "float":
            return _float_column(field, cells)


def _text_column(field: Field, cells: list[str]) -> tuple[Array, list[tuple[int, str]]]:
    faults = []
    values = list(cells)
    for i, cell in enumerate(cells):
        if cell in field.missing:
            values[i] = ""
        elif not cell:
            faults.append((i, "is empty"))
        elif len(cell) > field.longest:
            faults.append((i, f"is longer than {field.longest} characters: {shown(cell)}"))
        elif field.choices and cell not in field.choices:
            faults.append((i, f"{shown(cell)} is not one of {', '.join(field.choices)}"))
    return np.array(values, dtype=TEXT), faults


def _float_column(field: Field, cells: list[str]) -> tuple[Array, list[tuple[int, str]]]:
    absent = [i for i, cell in enumerate(cells) if cell in field.missing] if field.missing else []
    for i in absent:
        cells[i] = "0"
    faults: list[tuple[int, str]] = []
    if not _DECIMALS.fullmatch("\n".join(cells) + "\n"):
        for i, cell in enumerate(cells):
            if not _DECIMALS.fullmatch(cell + "\n"):
                faults.append((i, _not_a_number(cell)))
                cells[i] = "0"
    values = np.fromiter(map(float, cells), dtype=np.float64, count=len(cells))
    bad = {i for i, _ in faults} | set(absent)
    low = -np.inf if field.minimum is None else field.minimum
    high = np.inf if field.maximum is None else field.maximum
    for i in np.flatnonzero(~np.isfinite(values) | (values < low) | (values > high)).tolist():
        if i not in bad:
            faults.append(
                (i, out_of_range(field, float(values[i])) or f"{shown(cells[i])} is too large a number")
            )
    values[absent] = np.nan
    return values, faults


def _int_column(field: Field, cells: list[str]) -> tuple[Array, list[tuple[int, str]]]:
    faults: list[tuple[int, str]] = []
    empty: list[int] = []
    if field.blank is not None:
        empty = [i for i, cell in enumerate(cells) if not cell]
        for i in empty:
            cells[i] = str(field.blank)
    if not _INTEGERS.fullmatch("\n".join(cells) + "\n"):
        for i, cell in enumerate(cells):
            if not _INTEGERS.fullmatch(cell + "\n"):
                cells[i] = _whole(field, cell)
                if not cells[i]:
                    faults.append((i, _not_a_whole_number(cell)))
                    cells[i] = "0"
    values = np.fromiter(map(int, cells), dtype=np.int64, count=len(cells))
    bad = {i for i, _ in faults}.union(empty)
    low = -LARGEST_INT if field.minimum is None else max(field.minimum, -LARGEST_INT)
    high = LARGEST_INT if field.maximum is None else min(field.maximum, LARGEST_INT)
    for i in np.flatnonzero((values < low) | (values > high)).tolist():
        if i not in bad:
            value = int(values[i])
            beyond = f"{value} is beyond 2^53, where numbers stop being exact"
            faults.append((i, beyond if abs(value) > LARGEST_INT else out_of_range(field, value) or beyond))
    return values, faults


def _whole(field: Field, cell: str) -> str:
    """`12.0` as `12` where the field allows it, else an empty text."""
    if field.whole_decimals and len(cell) <= 32 and _DECIMALS.fullmatch(cell + "\n"):
        value = float(cell)
        if value.is_integer() and abs(value) <= LARGEST_INT:
            return str(int(value))
    return ""


def _not_a_whole_number(cell: str) -> str:
    if re.fullmatch(r"[+-]?[0-9]+", cell):
        return f"{shown(cell)} is beyond 2^53, where numbers stop being exact"
    if _DECIMALS.fullmatch(cell + "\n"):
        return f"{shown(cell)} is not a whole number"
    return _not_a_number(cell)


def _not_a_number(cell: str) -> str:
    if not cell:
        return "is empty; a number is needed"
    bare = cell.lstrip("+-").lower()
    if bare in ("nan", "inf", "infinity"):
        return f"{shown(cell)} is not a finite number"
    if re.fullmatch(r"[+-]?[0-9]{1,40},[0-9]{1,40}", cell):
        return f"{shown(cell)} is written with a decimal comma; write a point"
    return f"{shown(cell)} is not a number"


def out_of_range(field: Field, value: float) -> str:
    """What is wrong with a value that lies outside the field's range; empty if it lies inside."""
    number = f"{value:g}" if not float(value).is_integer() or abs(value) > 1e15 else str(int(value))
    if field.minimum is not None and value < field.minimum:
        return f"{number} is negative" if field.minimum == 0 else f"{number} is below {field.minimum:g}"
    if field.maximum is not None and value > field.maximum:
        other = f" {field.unit}: is it in another unit?" if field.unit else ""
        return f"{number} is above {field.maximum:g}{other}"
    return ""


def _datetime_column(cells: list[str]) -> tuple[Array, list[tuple[int, str]]]:
    if _PLAIN_INSTANTS.fullmatch("\n".join(cells) + "\n"):
        try:
            return np.array(cells, dtype="datetime64[ns]").astype(np.int64), []
        except ValueError:
            pass  # some cell is no instant of the calendar: find out which below
    values = np.zeros(len(cells), dtype=np.int64)
    faults: list[tuple[int, str]] = []
    zoned = bool(cells) and _zone_of(cells[0]) is not None
    for i, cell in enumerate(cells):
        try:
            values[i] = parse_instant(cell)
        except ValueError as error:
            faults.append((i, str(error)))
            continue
        if (_zone_of(cell) is not None) != zoned:
            faults.append((i, f"{shown(cell)}: some rows have a time zone and some have none"))
    return values, faults


def _zone_of(cell: str) -> str | None:
    match = _INSTANT.fullmatch(cell)
    return match.group(8) if match else None


def parse_instant(text: str) -> int:
    """`2023-11-16 18:17:03.9799600` as whole nanoseconds since 1970-01-01 00:00:00; a zone is applied if
    given.

    Up to nine decimals are exact. ValueError says what is wrong.
    """
    match = _INSTANT.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{shown(text)} is not a time like 2023-11-16 18:17:03.97996" if text else "is empty"
        )
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        base = np.datetime64(f"{year}-{month}-{day}T{hour}:{minute}:{second}", "s")
    except ValueError:
        raise ValueError(f"{shown(text)} is no instant of the calendar") from None
    if not 1900 <= int(year) < 2200:
        raise ValueError(f"{shown(text)} lies outside the years 1900 to 2199")
    offset = 0
    if zone and zone != "Z":
        digits = zone[1:].replace(":", "")
        offset = (int(digits[:2]) * 3600 + int(digits[2:]) * 60) * (1 if zone[0] == "+" else -1)
    return (int(base.astype(np.int64)) - offset) * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive good rows of a file.

    Parameters
    ----------
    lines : int64[rows], line number of each row.
    columns : by our field names, float64, int64 or strings [rows].
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

    Blank lines are dropped and counted. A bad row is a complaint and missing from its chunk; complaints are raised at
    the end, or as soon as there are many.

    Parameters
    ----------
    source : the file.
    fields : the columns to read; others in the file are left out and noted as a repair.
    complaints : where problems are gathered (default: a fresh one).
    delimiter : one character (default: a comma).
    header : whether the first line names the columns, which may then come in any order; without it the fields are the
        columns, in order (default: yes).
    comment : lines that begin with it are passed over (default: none are).

    Raises TraceError with every problem, or for a file without rows.
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


def header_of(source: Source, comment: str = "") -> tuple[int, list[str]]:
    """The names in a file's header and the line it stands in: the first that is neither blank nor a comment.

    It is read through a source of its own, so that its repairs are counted once. Raises TraceError if there is none.
    """
    for line, text in Source(source.path, repairs=RepairLog(), name=source.name).lines():
        if text.strip() and not (comment and text.startswith(comment)):
            return line, [name.replace('"', "").strip() for name in text.split(",")]
    raise TraceError.at(source.name, "contains no rows of data")


def fit(fields: Iterable[Field], names: Iterable[str]) -> bool:
    """Whether a header has every required field under one of its names."""
    there = set(names)
    return all(there.intersection(field.headers) for field in fields if field.required)


def spelled(source: Source, fields: Iterable[Field], comment: str = "") -> list[Field]:
    """The fields that a file has, each under the one of its names that stands in the header.

    Raises TraceError where two names of a field stand there, or none of a required one.
    """
    line, names = header_of(source, comment)
    there = [(field, [name for name in field.headers if name in names]) for field in fields]
    for _, matches in there:
        if len(matches) > 1:
            raise TraceError.at(source.at(line), f"has both {' and '.join(matches)}; one of them is expected")
    lacking = [field for field, matches in there if field.required and not matches]
    if lacking and (other := document_of(source.head(2))):
        raise TraceError.at(
            source.name, f"is {other}, not a table with columns such as {lacking[0].header!r}"
        )
    if lacking:
        missing = "; ".join(" or ".join(field.headers) for field in lacking)
        what = (
            f"misses the column{'s' * (len(lacking) > 1)} {missing}; {known_names(lacking[0].header, names)}"
        )
        raise TraceError.at(source.at(line), what)
    return [replace(field, column=name) for field, matches in there for name in matches]


def gathered(chunks: Iterable[Chunk]) -> Chunk:
    """All chunks as one, in order."""
    parts = list(chunks)
    assert parts, "read_rows never ends without a row"
    names = parts[0].columns
    lines = np.concatenate([part.lines for part in parts])
    return Chunk(lines, {name: np.concatenate([part.columns[name] for part in parts]) for name in names})


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the fields stand in a row.

    Parameters
    ----------
    fields : those that the file has.
    positions : of each, from 0.
    width : cells of a row; a row with another number of them is a complaint.
    """

    fields: list[Field]
    positions: list[int]
    width: int


def _layout(source: Source, line: int, header: list[str], fields: Sequence[Field], delimiter: str) -> _Layout:
    names = [name.strip() for name in header]
    headers = {field.header for field in fields}
    places = {name: place for place, name in reversed(list(enumerate(names)))}
    absent = [repr(f.header) for f in fields if f.required and f.header not in places]
    if absent and (other := document_of(source.head(2))):
        raise TraceError.at(source.name, f"is {other}, not a table with columns such as {absent[0]}")
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
    twice = sorted(name for name, times in Counter(names).items() if times > 1 and name in headers)
    if twice:
        raise TraceError.at(source.at(line, twice[0]), "the header names this column twice")
    extra = [name for name in names if name not in headers]
    if extra:
        rule = f"column not used: {', '.join(shown(name, 40) for name in extra[:8])}"
        source.repairs.note(rule + (f" and {len(extra) - 8} more" if len(extra) > 8 else ""), source.at(line))
    present = [field for field in fields if field.header in places]
    return _Layout(present, [places[field.header] for field in present], len(names))


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
