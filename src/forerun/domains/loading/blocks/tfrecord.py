"""TFRecord shards, as TensorFlow writes them: records one after another, each between its length and its checksum.

A record is: uint64 length, uint32 masked CRC-32C of the length, the data, uint32 masked CRC-32C of the data; numbers are
little-endian. The data is mostly a `tf.train.Example`, a message of protocol buffers with the features of a sample by
name, which is read here without TensorFlow: three levels of messages and three kinds of lists. Checksums need the package
google-crc32c (`pip install 'forerun[tfrecord]'`). Sources: the TFRecord page of tensorflow.org, the encoding page of
protobuf.dev, example.proto and feature.proto of TensorFlow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from forerun.domains.loading.blocks.optional import optional_module
from forerun.errors import DataError

#: bytes of a record beside its data: before and after
BEFORE, AFTER = 12, 4
#: a longer record is taken for a length that is damaged
MOST_RECORD_BYTES: Final = 2**31

#: what compressed files begin with: gzip, zlib
_COMPRESSED: Final = (b"\x1f\x8b", b"\x78\x01", b"\x78\x9c", b"\x78\xda")

#: bytes of a file: where from, how many
Read = Callable[[int, int], bytes]


def checksum(data: bytes | memoryview, where: object) -> int:
    """The masked CRC-32C of some bytes.

    Parameters
    ----------
    data : any.
    where : what is read, for the message where the library is absent.

    Raises UsageError without google-crc32c.
    """
    crc = int(optional_module("google_crc32c", "tfrecord", where).value(bytes(data)))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record_edges(read: Read, size_bytes: int, where: object, *, window_bytes: int) -> list[int]:
    """Where each record of a file begins, and the end of the file.

    Parameters
    ----------
    read : bytes of the file.
    size_bytes : of the file.
    where : what messages call it.
    window_bytes : read at once; what lies between the heads of two records that are further apart is not read.

    Raises DataError for a file that is cut short, or whose lengths are damaged.
    """
    edges, begin, window = [0], 0, b""
    while (at := edges[-1]) < size_bytes:
        if at + BEFORE > begin + len(window):
            begin, window = at, read(at, min(max(window_bytes, BEFORE), size_bytes - at))
        head = window[at - begin : at - begin + BEFORE]
        if len(head) < BEFORE:
            raise DataError.at(
                where, f"is a TFRecord that ends within the head of record {len(edges) - 1}: it is cut short"
            )
        length = int.from_bytes(head[:8], "little")
        if checksum(head[:8], where) != int.from_bytes(head[8:], "little") or length > MOST_RECORD_BYTES:
            if at == 0 and head.startswith(_COMPRESSED):
                raise DataError.at(
                    where, "is a compressed TFRecord file, which cannot be read in parts; decompress it"
                )
            raise DataError.at(
                where,
                f"is a TFRecord whose record {len(edges) - 1}, at byte {at}, has a length that fails its checksum",
            )
        end = at + BEFORE + length + AFTER
        if end > size_bytes:
            raise DataError.at(
                where, f"is a TFRecord that ends within record {len(edges) - 1}: it is cut short"
            )
        edges.append(end)
    return edges


def indexed_edges(text: str, size_bytes: int, where: object) -> list[int]:
    """The same from an index, as DALI's and the package tfrecord's `tfrecord2idx` write it: a line a record.

    Parameters
    ----------
    text : lines of where a record begins and how many bytes it has, head and checksum included.
    size_bytes : of the file of records.
    where : what messages call the index.

    Raises DataError for lines that do not cover the file from its beginning to its end.
    """
    edges = [0]
    for number, line in enumerate(text.splitlines(), start=1):
        found = re.fullmatch(r"\s*(\d{1,18})\s+(\d{1,18})\s*", line)
        if found is None or int(found[1]) != edges[-1] or int(found[2]) < BEFORE + AFTER:
            raise DataError.at(where, f"line {number} is not where record {number - 1} lies: {line[:60]!r}")
        edges.append(int(found[1]) + int(found[2]))
    if edges[-1] != size_bytes:
        raise DataError.at(where, f"covers {edges[-1]} of {size_bytes} bytes: it is of another file")
    return edges


@dataclass(frozen=True)
class Records:
    """How the bytes of a TFRecord become samples.

    Parameters
    ----------
    examples : records are `tf.train.Example`; else each is its bytes.
    """

    examples: bool

    def samples(
        self, block: int, count: int, data: memoryview, *, verify: bool, where: str
    ) -> Iterator[tuple[str | None, Any]]:
        """The samples in consecutive records, without keys.

        Parameters
        ----------
        block : not needed here.
        count : records that the bytes must contain.
        data : the records' bytes.
        verify : compare the checksums of the data.
        where : what messages call the file.

        Raises DataError for a record that is damaged.
        """
        at = 0
        for number in range(count):
            length = int.from_bytes(data[at : at + 8], "little")
            end = at + BEFORE + length
            record = data[at + BEFORE : end]
            sound = end + AFTER <= len(data)
            if not sound or (
                verify and checksum(record, where) != int.from_bytes(data[end : end + 4], "little")
            ):
                raise DataError.at(where, f"TFRecord {number} of {count} fails its checksum")
            at = end + AFTER
            try:
                yield None, example(record) if self.examples else record
            except ValueError as error:
                raise DataError.at(
                    where, f"TFRecord {number} of {count} is no tf.train.Example: {error}"
                ) from error


def is_example(record: bytes | memoryview) -> bool:
    """Whether a record is a `tf.train.Example` with a feature at least."""
    try:
        return bool(example(memoryview(record)))
    except ValueError:
        return False


def example(record: memoryview) -> dict[str, Any]:
    """The features of a `tf.train.Example` by name, in the order of their names.

    Bytes are views of the record, one alone or a list; numbers are arrays, int64 or float32.

    Parameters
    ----------
    record : its bytes.

    Raises ValueError for bytes that are no such message.
    """
    features: dict[str, Any] = {}
    for content in _messages(record, 1, "the example"):
        for entry in _messages(content, 1, "the features"):
            name, feature = b"", memoryview(b"")
            for field, value in _fields(entry):
                if field == 1 and isinstance(value, memoryview):
                    name = bytes(value)
                elif field == 2 and isinstance(value, memoryview):
                    feature = value
            features[name.decode("utf-8")] = _feature(feature)
    return dict(sorted(features.items()))


def _feature(message: memoryview) -> Any:
    """The values of a feature; an empty list for one that has no kind."""
    kinds = list(_fields(message))
    if not kinds:
        return []
    kind, content = kinds[-1]  # the last one counts, as in every message
    if kind not in (1, 2, 3) or not isinstance(content, memoryview):
        raise ValueError(f"a feature has a field {kind}")
    values = [value for field, value in _fields(content) if field == 1]
    if kind == 1:
        if not all(isinstance(value, memoryview) for value in values):
            raise ValueError("a list of bytes contains a number")
        return values[0] if len(values) == 1 else values
    if kind == 2:
        # Packed floats are one field of bytes; others come one by one, as four bytes each.
        packed = b"".join(value for value in values if isinstance(value, memoryview))
        if len(packed) % 4:
            raise ValueError("floats end within a number")
        return np.frombuffer(packed, "<f4")
    numbers: list[int] = []
    for value in values:
        numbers += list(_varints(value)) if isinstance(value, memoryview) else [value]
    return np.array(numbers, np.uint64).view(np.int64)


def _messages(data: memoryview, wanted: int, what: str) -> Iterator[memoryview]:
    """The messages in a field of a message; other fields are passed over, as protocol buffers have it."""
    for field, value in _fields(data):
        if field == wanted:
            if not isinstance(value, memoryview):
                raise ValueError(f"{what} is a number")
            yield value


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Number and value of each field: an integer, or bytes; numbers of fixed size come as their bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        field, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield field, value
            continue
        if wire == 2:
            length, at = _varint(data, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"a field has the wire type {wire}")
        if not field or at + length > len(data):
            raise ValueError("a field is longer than its message")
        yield field, data[at : at + length]
        at += length


def _varints(data: memoryview) -> Iterator[int]:
    """Packed integers."""
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """An integer of seven bits a byte, and where the next byte is."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise ValueError("an integer does not end")
