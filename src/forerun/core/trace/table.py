"""What the outside world did, as a sorted, immutable table.

A `Trace` is a set of equally long, read-only columns with units, sorted by one of them, with a record of
where it came from and a digest of its content. Rows that tie keep the order they were given in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forerun.core.errors import TraceError
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.rows import TEXT, Field

if TYPE_CHECKING:
    import polars

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a trace.

    Parameters
    ----------
    name : with the unit as suffix.
    unit : of its values (default: empty: a pure number or a text).
    meaning : what a value means in the world, for people; the digest does not depend on it (default: empty).
    """

    name: str
    unit: str = ""
    meaning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a trace came from.

    Parameters
    ----------
    format : reader or generator.
    source : file name as given, or empty.
    sha256 : digest of that file.
    options : what the reader or generator was asked for.
    repairs : what was mended, as in `RepairLog.rows`.
    """

    format: str
    source: str = ""
    sha256: str = ""
    options: Mapping[str, object] = field(default_factory=dict)
    repairs: tuple[Mapping[str, object], ...] = ()

    def data(self) -> dict[str, object]:
        """As plain data, for files."""
        return {
            "format": self.format,
            "source": self.source,
            "sha256": self.sha256,
            "options": dict(self.options),
            "repairs": [dict(repair) for repair in self.repairs],
        }


class Trace:
    """A sorted immutable table of what happened.

    Columns are read-only float64, int64, bool or string arrays of one length; a text that is not recorded is empty, a
    number nan.

    Parameters
    ----------
    kind : what a row is, such as `requests`, `jobs`, `membership`.
    schema : its columns, in order.
    columns : values by the names of the schema; they are copied.
    time : the column it is sorted by, ascending.
    provenance : where it came from, which the digest does not depend on.

    Raises TraceError if the columns do not fit the schema, are not of one length, hold a time that is not finite, or
    are not sorted.
    """

    def __init__(
        self,
        kind: str,
        schema: Sequence[Column],
        columns: Mapping[str, ArrayLike],
        *,
        time: str,
        provenance: Provenance,
    ) -> None:
        self.kind = kind
        self.schema = tuple(schema)
        self.time = time
        self.provenance = provenance
        #: line number of each row in its file, where a reader knows it
        self.lines: NDArray[np.int64] | None = None
        self._columns = {column.name: _frozen(columns, column.name, kind) for column in self.schema}
        if unknown := sorted(set(columns) - set(self._columns)):
            raise TraceError.at(kind, f"has columns without a schema: {', '.join(unknown)}")
        self._check()

    def _check(self) -> None:
        lengths = {name: len(values) for name, values in self._columns.items()}
        if len(set(lengths.values())) > 1:
            raise TraceError.at(self.kind, f"columns differ in length: {lengths}")
        if self.time not in self._columns:
            raise TraceError.at(self.kind, f"is to be sorted by {self.time}, which is no column")
        instants = self._columns[self.time]
        if not np.isfinite(instants).all():
            raise TraceError.at(
                self.kind, f"{self.time} of row {int(np.argmin(np.isfinite(instants)))} is not finite"
            )
        if len(instants) > 1 and (back := np.flatnonzero(instants[1:] < instants[:-1])).size:
            row = int(back[0]) + 1
            raise TraceError.at(
                self.kind,
                f"{self.time} of row {row} is {instants[row]}, before the previous row's {instants[row - 1]}",
            )

    def __len__(self) -> int:
        return len(self._columns[self.time])

    def __getitem__(self, name: str) -> Array:
        return self._columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<Trace of {len(self)} {self.kind} by {self.time}: {', '.join(self._columns)}>"

    @property
    def columns(self) -> Mapping[str, Array]:
        """The arrays by name, in schema order."""
        return MappingProxyType(self._columns)

    @property
    def instants(self) -> Array:
        """The column the trace is sorted by."""
        return self._columns[self.time]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of kind, schema (names and units) and values, without the provenance."""
        total = hashlib.sha256()
        head = {"kind": self.kind, "time": self.time, "columns": [[c.name, c.unit] for c in self.schema]}
        total.update(json.dumps(head, sort_keys=True).encode())
        for values in self._columns.values():
            total.update(_value_bytes(values))
        return total.hexdigest()

    def where(self, keep: ArrayLike) -> Trace:
        """The rows for which the boolean array `keep` is true."""
        mask = np.asarray(keep, dtype=bool)
        columns = {name: values[mask] for name, values in self._columns.items()}
        return Trace(self.kind, self.schema, columns, time=self.time, provenance=self.provenance)

    def to_polars(self) -> polars.DataFrame:
        """The table as a Polars frame."""
        import polars

        return polars.DataFrame({name: _listed(values) for name, values in self._columns.items()})


def schema_of(fields: Iterable[Field]) -> tuple[Column, ...]:
    """The columns that fields of a public format become."""
    return tuple(Column(field.name, field.unit, field.meaning) for field in fields)


def sort_rows(
    columns: Mapping[str, Array], time: str, where: Callable[[int], str] | None, repairs: RepairLog
) -> dict[str, Array]:
    """Columns sorted by `time`, ties in file order; rows out of order are counted as repairs.

    A row is out of order if its time is before the largest one above it.

    Parameters
    ----------
    columns : arrays of one length, by name.
    time : the column to sort by.
    where : from a row's index to its `file:line`; None if the order in the file carries no meaning (then nothing is noted).
    repairs : where rows out of order are counted.
    """
    instants = columns[time]
    if not bool((instants[1:] < instants[:-1]).any()):
        return dict(columns)
    if where is not None:
        late = np.flatnonzero(instants < np.maximum.accumulate(instants))
        repairs.note_many("row out of order, sorted", [where(i) for i in late[:3].tolist()], len(late))
    order = np.argsort(instants, kind="stable")
    return {name: values[order] for name, values in columns.items()}


def _frozen(columns: Mapping[str, ArrayLike], name: str, kind: str) -> Array:
    if name not in columns:
        raise TraceError.at(kind, f"column {name} is missing")
    given = columns[name]
    values = np.asarray(given)
    if values.dtype.kind == "U" and not isinstance(given, np.ndarray):
        values = np.array(given, dtype=object)  # NumPy would quietly turn numbers among texts into texts
    if values.ndim != 1:
        raise TraceError.at(kind, f"column {name} is not one-dimensional")
    match values.dtype.kind:
        case "f":
            values = values.astype(np.float64)
            values[np.isnan(values)] = np.nan  # one missing value, whose sign a text file would lose
        case "i" | "u":
            values = values.astype(np.int64)
        case "b" | "T":
            values = values.copy()
        case "U" | "O":
            values = _texts(values, name, kind)
        case other:
            raise TraceError.at(kind, f"column {name} contains values of kind {other!r}")
    values.flags.writeable = False
    return values


def _texts(values: Array, name: str, kind: str) -> Array:
    try:
        return np.array(["" if text is None else text for text in values.tolist()], TEXT)
    except ValueError:
        raise TraceError.at(kind, f"column {name} mixes texts with other values") from None


def _value_bytes(values: Array) -> bytes:
    if values.dtype.kind == "T":
        return json.dumps(values.tolist(), ensure_ascii=False).encode("utf-8", "surrogatepass")
    return values.astype(values.dtype.newbyteorder("<")).tobytes()


def _listed(values: Array) -> Any:
    return values.tolist() if values.dtype.kind == "T" else values
