"""JSON formats as declarations: a schema, recognition, and how a document becomes columns.

The sibling of `tabular` for formats that are one JSON document. Reading, messages that name the line of a wrong value,
and provenance are shared.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np

from forerun.core.errors import Problem, TraceError
from forerun.core.trace.objects import JsonFault, parse_json
from forerun.core.trace.reader import TraceReader
from forerun.core.trace.repair import Complaints, RepairLog
from forerun.core.trace.rows import TEXT, Field
from forerun.core.trace.source import Source
from forerun.core.trace.table import Trace, schema_of

T = TypeVar("T")
Place: TypeAlias = tuple[str | int, ...]

_BETWEEN_TOKENS = re.compile(r"[\s,:]*+")
_DECODER = json.JSONDecoder()


class JsonDocument:
    """A JSON file while it becomes a trace. A place in it is a sequence of keys and indices.

    Parameters
    ----------
    source : the file, which counts repairs and names lines in messages.
    text : the document.
    line : the line of the file that it begins in (default: 1).
    part : which part of the file it is, for messages (default: the whole).
    infinite : numbers may be NaN and Infinity (default: they are errors).

    Attributes
    ----------
    value : what it contains.
    complaints : problems gathered so far.
    facts : what was learned about the file, for the provenance of the trace.

    Raises TraceError with the line of what is not JSON.
    """

    def __init__(
        self, source: Source, text: str, *, line: int = 1, part: str = "", infinite: bool = False
    ) -> None:
        self.source = source
        self.complaints = Complaints()
        self.facts: dict[str, object] = {}
        self._text = text
        self._line = line
        self._part = part
        try:
            self.value = parse_json(text, infinite=infinite)
        except JsonFault as fault:
            where = source.at(line - 1 + fault.line) if fault.line else source.name
            raise TraceError.at(where, str(fault)) from None

    @property
    def name(self) -> str:
        """Of the file, for messages."""
        return self.source.name

    @classmethod
    def read(cls, source: Source, most_bytes: int = 256 << 20, *, infinite: bool = False) -> JsonDocument:
        """The document that a file is. Raises TraceError with the line of what is not JSON."""
        return cls(source, source.read(most_bytes), infinite=infinite)

    def note(self, rule: str, *place: str | int, count: int = 1) -> None:
        """Count a repair, without its line: to look for that takes long, and there may be many."""
        self.source.repairs.note(rule, f"{self.source.name}:{self._part}{written(place)}", count)

    def at(self, *place: str | int, item: str = "") -> str:
        """Where a value stands: `file:line:key[index]`, or `file:line: item 3` for an item of the outermost list.

        The line is that of the innermost value around it if the value is missing.
        """
        line = self._line + self._text.count("\n", 0, _position(self._text, place))
        if item:
            return f"{self.source.at(line)}: {item} {place[-1]}"
        return self.source.at(line, self._part + written(place))

    def error(self, what: str, *place: str | int) -> TraceError:
        """The error that ends the reading because of one value."""
        return TraceError(Problem(self.at(*place), what))

    def parsed(
        self, parse: Callable[[Any], T], values: Sequence[Any], *place: str | int, item: str = ""
    ) -> list[T]:
        """`parse` of every value of the list at a place, without those that it rejects.

        Parameters
        ----------
        parse : makes something of a value; its ValueError becomes a complaint about that value.
        values : the list.
        place : where it is in the document.
        item : what its elements are called in messages (default: by their place).
        """
        made = []
        for index, value in enumerate(values):
            try:
                made.append(parse(value))
            except ValueError as error:
                self.complaints.add(self.at(*place, index, item=item), str(error))
        return made


def written(place: Place) -> str:
    """A place as messages write it: `data[3]`, `metadata.gap_seconds`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).removeprefix(".")


def _position(text: str, place: Place) -> int:
    """Where the value at a place begins in a JSON text, or the innermost one around it that is there.

    Values before it are skipped by the decoder, so this takes as long as reading the text once more.
    """
    at = _skipped(text, 0)
    for step in place:
        child = next((start for key, start in _parts(text, at) if key == step), None)
        if child is None:
            break
        at = child
    return at


def _parts(text: str, at: int) -> Iterator[tuple[str | int, int]]:
    """The key or index of each part of the list or object that begins at `at`, and where the part begins."""
    opening = text[at]
    if opening not in "[{":
        return
    at = _skipped(text, at + 1)
    for index in itertools.count():
        if text[at] in "]}":
            return
        key: str | int = index
        if opening == "{":
            key, at = _DECODER.raw_decode(text, at)
            at = _skipped(text, at)
        yield key, at
        at = _skipped(text, _DECODER.raw_decode(text, at)[1])


def _skipped(text: str, at: int) -> int:
    """The beginning of the next value."""
    match = _BETWEEN_TOKENS.match(text, at)
    return match.end() if match else at


class JsonReader(TraceReader, frozen=True, kw_only=True):
    """A public format that is one JSON document; a subclass declares it by these class attributes, and by `columns`.

    schema: columns of the trace. time: the one that it is sorted by (default: the first). most_bytes: largest file read.
    """

    schema: ClassVar[tuple[Field, ...]] = ()
    time: ClassVar[str] = ""
    most_bytes: ClassVar[int] = 256 << 20

    def columns(self, document: JsonDocument) -> Mapping[str, Any]:
        """The columns of the trace by name, arrays or lists of one length, sorted by time.

        Raises TraceError: for a problem that ends the reading with `document.error`, for those gathered in
        `document.complaints` by their `finish`, which this method calls when it has seen every value.
        """
        raise AssertionError(f"{type(self).__name__} does not say what its columns are")

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        document = JsonDocument.read(Source(path, repairs=repairs), self.most_bytes)
        return self.trace(document.source, self.columns(document), document.facts)

    def trace(self, source: Source, columns: Mapping[str, Any], facts: Mapping[str, object]) -> Trace:
        """The trace of some columns.

        Parameters
        ----------
        source : the file, read to its end.
        columns : arrays or lists of one length, by the names of the schema, sorted by time.
        facts : what was learned about the file, for the provenance.
        """
        table = {
            field.name: np.array(columns[field.name], TEXT if field.kind == "text" else None)
            for field in self.schema
        }
        made = self.provenance(source, **facts)
        time = self.time or self.schema[0].name
        return Trace(self.makes, schema_of(self.schema), table, time=time, provenance=made)
