"""Parquet files of samples: a row is a sample, a row group is what is read at once.

Files are read through pyarrow (`pip install 'forerun[parquet]'`), which is given bytes and never a file: the end of a file,
which says where its row groups lie, and the bytes of one row group. So folders and stores are read by the same clients as
blocks, with the same retries. Source: the Parquet format, https://parquet.apache.org/docs/file-format/.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from forerun.domains.loading.blocks.optional import optional_module
from forerun.domains.loading.blocks.tfrecord import Read
from forerun.errors import DataError

MAGIC: Final = b"PAR1"
#: columns that name a row
KEYS: Final = ("__key__", "key")
#: read of a file's end at once: most descriptions are smaller
TAIL_BYTES: Final = 64 * 1024


class Spans(io.RawIOBase):
    """A file of which only some bytes are at hand.

    Parameters
    ----------
    size_bytes : of the file.
    spans : where bytes begin, and the bytes.
    """

    def __init__(self, size_bytes: int, *spans: tuple[int, bytes | memoryview]) -> None:
        self._size, self._spans, self._at = size_bytes, spans, 0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """Its place can be changed."""
        return True

    def tell(self) -> int:
        """The place."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place.

        Parameters
        ----------
        offset : bytes from there.
        whence : 0 the beginning (default), 1 the place, 2 the end.
        """
        self._at = (0, self._at, self._size)[whence] + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes. Raises OSError for bytes that are not at hand.

        Parameters
        ----------
        size : how many; all that are left if negative (default).
        """
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        for begin, data in self._spans:
            if begin <= self._at and end <= begin + len(data):
                found = bytes(data[self._at - begin : end - begin])
                self._at = end
                return found
        raise OSError(f"bytes {self._at} to {end} belong to no row group")


def described(read: Read, size_bytes: int, where: object) -> Any:
    """The description of a Parquet file, `pyarrow.parquet.FileMetaData`.

    Parameters
    ----------
    read : bytes of the file.
    size_bytes : of the file.
    where : what messages call it.

    Raises DataError for a file that is none, or damaged; UsageError without pyarrow.
    """
    parquet = optional_module("pyarrow.parquet", "parquet", where)
    if size_bytes < 12:
        raise DataError.at(where, "is too short for a Parquet file")
    begin = max(0, size_bytes - TAIL_BYTES)
    tail = read(begin, size_bytes - begin)
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if tail[-4:] != MAGIC or length > size_bytes:
        raise DataError.at(where, "does not end as a Parquet file does: it is cut short or none")
    if length > len(tail):
        begin = size_bytes - length
        tail = read(begin, length)
    try:
        return parquet.read_metadata(Spans(size_bytes, (begin, tail)))
    except Exception as error:  # Arrow's errors are of several kinds
        raise DataError.at(where, f"its description is damaged: {_line(error)}") from error


def group_span(described: Any, group: int) -> tuple[int, int]:
    """The first byte of a row group, and the byte behind its last.

    Parameters
    ----------
    described : the file.
    group : number of the row group.
    """
    about = described.row_group(group)
    columns = [about.column(number) for number in range(about.num_columns)]
    begins = [
        column.data_page_offset
        if column.dictionary_page_offset is None
        else min(column.dictionary_page_offset, column.data_page_offset)
        for column in columns
    ]
    return min(begins), max(a + column.total_compressed_size for a, column in zip(begins, columns))


@dataclass(frozen=True)
class RowGroups:
    """How the bytes of row groups become samples.

    Parameters
    ----------
    described : of each block, its file's description.
    groups : of each block, the number of the row group in its file.
    begins : of each block, the byte of the file at which it begins.
    sizes_bytes : of each block, its file's.
    """

    described: tuple[Any, ...]
    groups: tuple[int, ...]
    begins: tuple[int, ...]
    sizes_bytes: tuple[int, ...]

    def samples(
        self, block: int, count: int, data: memoryview, *, verify: bool, where: str
    ) -> Iterator[tuple[str | None, Any]]:
        """Keys, where a column has them, and samples: a dictionary of the columns, or the value of the only one.

        Binary values are views, others as pyarrow makes them of plain types of Python.

        Parameters
        ----------
        block : its number.
        count : rows that it must have.
        data : its bytes.
        verify : compare the checksums of pages, where the writer has written some.
        where : what messages call the file.

        Raises DataError for bytes that are no such row group.
        """
        parquet = optional_module("pyarrow.parquet", "parquet", where)
        source = Spans(self.sizes_bytes[block], (self.begins[block], data))
        try:
            file = parquet.ParquetFile(
                source, metadata=self.described[block], page_checksum_verification=verify, pre_buffer=False
            )
            table = file.read_row_group(self.groups[block], use_threads=False)
            columns = {name: _values(table.column(at)) for at, name in enumerate(table.column_names)}
        except Exception as error:  # Arrow's errors are of several kinds
            raise DataError.at(where, f"row group {self.groups[block]} is damaged: {_line(error)}") from error
        if table.num_rows != count:
            raise DataError.at(
                where, f"row group {self.groups[block]} has {table.num_rows} rows, not {count}"
            )
        named = next((name for name in KEYS if name in columns and len(columns) > 1), None)
        keys = columns.pop(named) if named is not None else [None] * count
        for row, key in enumerate(keys):
            if key is not None and not isinstance(key, str):
                raise DataError.at(
                    where, f"row {row} of row group {self.groups[block]} has a key that is no text"
                )
            values = {name: column[row] for name, column in columns.items()}
            yield key, next(iter(values.values())) if len(values) == 1 else values


def _values(column: Any) -> list[Any]:
    """The values of a column; binary ones without a copy."""
    kind = str(column.type)
    if kind not in ("binary", "large_binary") and not kind.startswith("fixed_size_binary"):
        values: list[Any] = column.to_pylist()
        return values
    buffers = (value.as_buffer() for value in column)
    return [None if buffer is None else memoryview(buffer) for buffer in buffers]


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
