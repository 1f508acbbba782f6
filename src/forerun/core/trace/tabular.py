"""Delimited formats as declarations: columns, recognition, and the rules that repair or reject rows.

Most public formats are a table with a header. Such a reader is a class that names its columns and, where the format
has them, derived values and rules in one method, `settle`. Reading, sorting, messages and provenance are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import TraceError
from forerun.core.trace.reader import Head, TraceReader
from forerun.core.trace.repair import Complaints, RepairLog
from forerun.core.trace.rows import Array, Field, gathered, read_rows, spelled
from forerun.core.trace.source import Source
from forerun.core.trace.table import Trace, schema_of, sort_rows

Mask = NDArray[np.bool_]


class Rows:
    """Rows of a file while the rules of its format apply.

    Parameters
    ----------
    source : the file, which counts repairs and names lines in messages.
    complaints : where rejected rows are gathered; `finish` raises them.
    lines : the line number of each row.
    columns : arrays by our names, which rules may replace.
    fields : give the columns' names in the file, for messages (default: they are the same).

    Attributes
    ----------
    headers : the columns' names in the file, by ours.
    facts : what the rules learned about the file, for the provenance of the trace.
    """

    def __init__(
        self,
        source: Source,
        complaints: Complaints,
        lines: Any,
        columns: Mapping[str, Any],
        fields: Sequence[Field] = (),
    ) -> None:
        self.source = source
        self.complaints = complaints
        self.lines: NDArray[np.int64] = np.asarray(lines, np.int64)
        self.columns: dict[str, Array] = dict(columns)
        self.headers = {field.name: field.header for field in fields}
        self.facts: dict[str, object] = {}

    @classmethod
    def read(cls, source: Source, fields: Sequence[Field], **layout: Any) -> Rows:
        """All rows of a delimited file, as `read_rows` reads them. Raises TraceError with every bad row."""
        complaints = Complaints()
        chunk = gathered(read_rows(source, fields, complaints=complaints, **layout))
        return cls(source, complaints, chunk.lines, chunk.columns, fields)

    @classmethod
    def of_file(cls, path: str | Path, fields: Sequence[Field], repairs: RepairLog | None) -> Rows:
        """All rows of a comma-separated file with a header.

        Parameters
        ----------
        path : of the file.
        fields : the columns to read.
        repairs : where repairs are counted (None: nowhere).
        """
        return cls.read(Source(path, repairs=repairs if repairs is not None else RepairLog()), fields)

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def __setitem__(self, name: str, values: Array) -> None:
        self.columns[name] = values

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def at(self, row: int, header: str = "") -> str:
        """Where a row stands: `file:line`, or `file:line:header`."""
        return self.source.at(int(self.lines[row]), header)

    def note(self, where: Mask, rule: str, header: str = "") -> None:
        """Count the rows of a mask as repairs by a rule.

        Parameters
        ----------
        where : bool[rows], those that were repaired.
        rule : what was done, in words.
        header : of the cell that was repaired, for messages (default: the whole row).
        """
        first = [self.at(row, header) for row in np.flatnonzero(where)[:3].tolist()]
        self.source.repairs.note_many(rule, first, int(where.sum()))

    def keep(self, where: Mask | Sequence[int]) -> None:
        """Keep the rows of a mask, or those at some positions."""
        self.lines = self.lines[where]
        self.columns = {name: values[where] for name, values in self.columns.items()}

    def drop(self, where: Mask, rule: str, header: str = "") -> None:
        """Drop the rows of a mask and count them as repairs by a rule."""
        if where.any():
            self.note(where, rule, header)
            self.keep(~where)

    def reject(self, where: Mask, header: str, what: str | Callable[[int], str]) -> None:
        """Complain about the rows of a mask; they stay until the complaints are raised.

        Parameters
        ----------
        where : bool[rows].
        header : of the cell that is wrong, for messages.
        what : the message, or makes it from a row's position.
        """
        for row in np.flatnonzero(where).tolist():
            self.complaints.add(self.at(row, header), what if isinstance(what, str) else what(row))

    def reject_unless_positive(self, fields: Iterable[Field]) -> None:
        """Complain about every value of some columns that is not above 0."""
        for field in fields:
            values = self[field.name]
            for row in np.flatnonzero(~(values > 0)).tolist():
                self.complaints.add(self.at(row, field.header), f"{values[row]:g} is not above 0")

    def refuse_duplicates(self, header: str, names: Sequence[object]) -> None:
        """Raise TraceError with both lines if an identifier occurs twice.

        Parameters
        ----------
        header : its column in the file, for messages.
        names : the identifier of each row.
        """
        first: dict[object, int] = {}
        for row, name in enumerate(names):
            if first.setdefault(name, row) != row:
                what = f"{name!r} was already used on line {self.lines[first[name]]}"
                raise TraceError.at(self.at(row, header), what)

    def sort(self, time: str, *, noted: bool = True) -> None:
        """Sort by a column, ties in file order.

        Parameters
        ----------
        time : the column.
        noted : rows out of order count as repairs (default: yes).
        """
        where = self.at if noted else None
        columns = sort_rows({**self.columns, " lines": self.lines}, time, where, self.source.repairs)
        self.lines = columns.pop(" lines")
        self.columns = columns

    def trace(
        self,
        reader: TraceReader,
        fields: Sequence[Field],
        *,
        time: str = "",
        order: Literal["kept", "free"] = "kept",
    ) -> Trace:
        """The trace of these rows, sorted by a column, ties in file order.

        Parameters
        ----------
        fields : columns of the trace; those that the rows do not have are left out.
        time : the column it is sorted by (default: the first).
        order : `kept` if the format promises sorted rows (others count as repairs), `free` if not.
        """
        time = time or fields[0].name
        self.sort(time, noted=order == "kept")
        present = [field for field in fields if field.name in self]
        columns = {field.name: self[field.name] for field in present}
        made = reader.provenance(self.source, **self.facts)
        trace = Trace(reader.makes, schema_of(present), columns, time=time, provenance=made)
        trace.lines = self.lines
        return trace


def changes(values: NDArray[Any]) -> Mask:
    """Which values differ from the one before; the first one does."""
    return np.append(True, values[1:] != values[:-1])


class TableReader(TraceReader, frozen=True, kw_only=True):
    """A public format that is a delimited table; a subclass declares it by these class attributes.

    columns: of the file, in order if it has no header. signature: headers whose presence shows the format (empty: it is
    never recognised). schema: columns of the trace (default: those of the file). time: the column that it is sorted by
    (default: the first of the trace). order: `kept` if the format promises sorted rows (others count as repairs), `free`
    if not. header: whether the first line names the columns. crlf_usual: whether the format's lines end in CRLF.
    """

    columns: ClassVar[tuple[Field, ...]] = ()
    signature: ClassVar[tuple[str, ...]] = ()
    schema: ClassVar[tuple[Field, ...]] = ()
    time: ClassVar[str] = ""
    order: ClassVar[Literal["kept", "free"]] = "kept"
    header: ClassVar[bool] = True
    crlf_usual: ClassVar[bool] = False

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return bool(cls.signature) and head.has_columns(*cls.signature)

    def fields_of(self, source: Source) -> Sequence[Field]:
        """The columns to read from a file, for formats with several headers (default: `columns`, each under whichever of its
        spellings stands there).

        The header is read through a source of its own, so that its repairs are counted once. Raises TraceError for a header
        that is not of the format.
        """
        return spelled(source, self.columns) if any(one.spellings for one in self.columns) else self.columns

    def settle(self, rows: Rows) -> None:
        """Apply the format's rules: compute derived columns, repair, drop or reject rows (default: there are none).

        What is rejected here is raised together with every bad row of the file. A rule that needs good rows calls
        `rows.complaints.finish()` first.
        """

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source = Source(path, repairs=repairs, crlf_usual=self.crlf_usual)
        fields = self.fields_of(source)
        rows = Rows.read(source, fields, header=self.header)
        self.settle(rows)
        rows.complaints.finish()
        return rows.trace(self, self.schema or fields, time=self.time, order=self.order)
