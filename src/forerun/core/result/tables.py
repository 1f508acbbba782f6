"""Tables of a result: numpy columns under a schema that names each column's unit and meaning.

A `Table` is made of whole columns (`of`), of rows (`of_rows`), of records by the names of their attributes (`of_records`),
or of parts of columns (`of_parts`). `rows` selects some rows, `records` gives them as plain data.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from forerun.core.result import notebook
from forerun.core.trace.table import Column

if TYPE_CHECKING:
    import polars

RecordT = TypeVar("RecordT")

__all__ = ["Column", "Table", "TableSchema", "spreadsheet_safe"]


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of a table, in order, and what a row is. `version` grows when their meaning changes."""

    name: str
    columns: tuple[Column, ...]
    meaning: str = ""
    version: int = 1

    def data(self) -> dict[str, Any]:
        """As plain data, for metadata."""
        columns = {column.name: {"unit": column.unit, "meaning": column.meaning} for column in self.columns}
        return {"table": self.name, "version": self.version, "meaning": self.meaning, "columns": columns}


@dataclass(frozen=True)
class Table:
    """A table: one numpy array a column, all of one length, in the schema's order.

    Text columns are arrays of objects or of numpy strings. Raises AssertionError if the columns do not fit.
    """

    schema: TableSchema
    columns: Mapping[str, np.ndarray[Any, Any]] = field(repr=False)

    def __post_init__(self) -> None:
        expected = [column.name for column in self.schema.columns]
        assert list(self.columns) == expected, (
            f"{self.schema.name}: columns {list(self.columns)}, schema has {expected}"
        )
        lengths = {len(column) for column in self.columns.values()}
        assert len(lengths) <= 1, f"{self.schema.name}: columns of lengths {sorted(lengths)}"

    @classmethod
    def of(cls, schema: TableSchema, **columns: Any) -> Table:
        """A table from columns given by name, in any order."""
        return cls(schema, {column.name: np.asarray(columns[column.name]) for column in schema.columns})

    @classmethod
    def of_rows(cls, schema: TableSchema, rows: Iterable[Sequence[Any]]) -> Table:
        """A table from rows in the schema's order."""
        gathered = list(zip(*rows)) or [()] * len(schema.columns)
        return cls(schema, {column.name: _array(values) for column, values in zip(schema.columns, gathered)})

    @classmethod
    def of_records(
        cls,
        schema: TableSchema,
        records: Iterable[RecordT],
        /,
        **columns: str | Callable[[RecordT], Any] | Sequence[Any] | np.ndarray[Any, Any],
    ) -> Table:
        """A table with a row for each record: a column's value is the record's attribute of the column's name.

        records: any objects. columns: the columns that are no such attribute, by name: another attribute (`"cell.threads"`
        goes through several), a function of a record, or the values of all rows. Raises AttributeError for a record that
        lacks an attribute, AssertionError for a column that the schema does not have.

        >>> schema = TableSchema("complex", (Column("real"), Column("size")))
        >>> Table.of_records(schema, [3 + 4j, 1j], size=abs)["size"].tolist()
        [5.0, 1.0]
        """
        records = list(records)
        named = {column.name: columns.pop(column.name, column.name) for column in schema.columns}
        assert not columns, f"{schema.name}: no columns {sorted(columns)}"
        values = {}
        for name, source in named.items():
            value = attrgetter(source) if isinstance(source, str) else source
            values[name] = _array(list(map(value, records)) if callable(value) else value)
        return cls(schema, values)

    @classmethod
    def of_parts(cls, schema: TableSchema, parts: Iterable[Mapping[str, Any]]) -> Table:
        """A table of parts, one below the other: each part has all columns, some as one value for all rows of the part.

        >>> schema = TableSchema("batches", (Column("job"), Column("size")))
        >>> parts = [{"job": "a", "size": [8, 4]}, {"job": "b", "size": [8]}]
        >>> Table.of_parts(schema, parts)["job"].tolist()
        ['a', 'a', 'b']
        """
        names = [column.name for column in schema.columns]
        filled = []
        for part in parts:
            arrays = {name: _array(part[name]) for name in names}
            rows = next((len(array) for array in arrays.values() if array.ndim), 1)
            filled.append({name: np.broadcast_to(array, rows) for name, array in arrays.items()})
        if not filled:
            return cls.of_rows(schema, ())
        return cls(schema, {name: np.concatenate([part[name] for part in filled]) for name in names})

    def rows(self, chosen: np.ndarray[Any, Any]) -> Table:
        """The rows that a mask or an array of row numbers chooses, in its order."""
        return Table(self.schema, {name: values[chosen] for name, values in self.columns.items()})

    def records(self) -> list[dict[str, Any]]:
        """Each row as plain data by column; nan, which stands for what does not exist, is None."""
        columns = [
            [None if isinstance(value, float) and math.isnan(value) else value for value in values.tolist()]
            for values in self.columns.values()
        ]
        return [dict(zip(self.columns, row)) for row in zip(*columns, strict=True)]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        return self.columns[name]

    def frame(self) -> polars.DataFrame:
        """As a Polars frame."""
        import polars

        return polars.DataFrame({name: _plain(values) for name, values in self.columns.items()})

    def write_parquet(self, path: Path) -> str:
        """Write as Parquet; returns the file's SHA-256.

        The schema (units, meanings, version) is in the file's metadata under `forerun`.
        """
        text = json.dumps(self.schema.data(), sort_keys=True, ensure_ascii=False)
        self.frame().write_parquet(path, compression="zstd", statistics=True, metadata={"forerun": text})
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def write_csv(self, path: Path) -> None:
        """Write as CSV that spreadsheets open safely: a text or a column's name that begins like a formula gets a leading
        apostrophe."""
        import polars

        frame = self.frame()
        texts = [name for name, kind in frame.schema.items() if kind == polars.String]
        safe = frame.with_columns(
            polars.col(name).map_elements(spreadsheet_safe, return_dtype=polars.String) for name in texts
        )
        safe.rename(spreadsheet_safe).write_csv(path)

    def _repr_html_(self) -> str:
        head = [f"{one.name} [{one.unit}]" if one.unit else one.name for one in self.schema.columns]
        rows = zip(*(values[: notebook.MOST_ROWS].tolist() for values in self.columns.values()))
        about = f"{self.schema.name}: {self.schema.meaning}"
        return notebook.table(about, head, rows, len(self) - notebook.MOST_ROWS)


def read_parquet(path: Path, sha256: object) -> Table:
    """A table written by `Table.write_parquet`.

    sha256: of the file as it was written. A damaged file can end the process that decodes it, so its digest is compared
    first. Raises StoreError if the file is no such table.
    """
    import polars

    from forerun.core.errors import StoreError, worded
    from forerun.core.regular import read_regular, unreadable

    try:
        content = read_regular(path)
    except OSError as error:
        raise StoreError.at(path, unreadable(error)) from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise StoreError.at(path, "is damaged: it is not the table that was saved, by its SHA-256")
    try:
        metadata = polars.read_parquet_metadata(io.BytesIO(content))
        described = json.loads(metadata["forerun"])
        frame = polars.read_parquet(io.BytesIO(content))
        # The file's order is the table's; in the metadata names are sorted.
        columns = tuple(
            Column(
                name, unit=described["columns"][name]["unit"], meaning=described["columns"][name]["meaning"]
            )
            for name in frame.columns
        )
        schema = TableSchema(described["table"], columns, described["meaning"], described["version"])
    except (KeyError, TypeError, ValueError, polars.exceptions.PolarsError) as error:
        raise StoreError.at(path, f"is not a table of a forerun run: {worded(error)}") from error
    return Table(schema, {column.name: frame[column.name].to_numpy() for column in columns})


def spreadsheet_safe(text: str) -> str:
    """The text, with an apostrophe before what a spreadsheet would run as a formula."""
    return "'" + text if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _array(values: Any) -> np.ndarray[Any, Any]:
    """Values, or one of them, as an array; text and None as objects."""
    if isinstance(values, np.ndarray):
        return values
    some = [values] if isinstance(values, str) or not isinstance(values, Sequence) else values
    text = any(isinstance(value, str) or value is None for value in some)
    return np.array(values, dtype=object) if text else np.asarray(values)


def _plain(values: np.ndarray[Any, Any]) -> Any:
    return values.tolist() if values.dtype.kind in "OUT" else values
