"""MDS shards as MosaicML streaming reads and writes them (version 2, uncompressed), columns `data` and `key`.

A shard is: uint32 number of samples, uint32 offsets (one more than samples, absolute), a JSON configuration with sorted
keys, then each sample: uint32 sizes of its variable columns, then the columns by name.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.domains.loading.blocks.samples import unsafe
from forerun.errors import DataError
from forerun.regular import read_regular, unreadable

INDEX: Final = "index.json"
_KEYS: Final = ("key", "__key__")


def _columns_of(names: Sequence[str]) -> dict[str, Any]:
    """The description of columns, as shards and the index have it."""
    return {
        "column_encodings": ["str" if name in _KEYS else "bytes" for name in names],
        "column_names": list(names),
        "column_sizes": [None] * len(names),
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": None,
        "version": 2,
    }


def shard_bytes(rows: Sequence[Mapping[str, bytes]]) -> bytes:
    """One shard; rows of the same columns, each its bytes.

    Parameters
    ----------
    rows : samples, each the bytes of its columns; all have the same columns.

    Raises DataError for more than 4 GiB, which the offsets cannot address.
    """
    names = sorted(rows[0])
    body = []
    for row in rows:
        sizes = struct.pack(f"<{len(names)}I", *(len(row[name]) for name in names))
        body.append(sizes + b"".join(row[name] for name in names))
    config = json.dumps(_columns_of(names), sort_keys=True).encode()
    start = 4 + 4 * (len(body) + 1) + len(config)
    offsets = [start]
    for data in body:
        offsets.append(offsets[-1] + len(data))
    if offsets[-1] >= 2**32:
        raise DataError.at("MDS shard", f"{offsets[-1]} bytes do not fit a shard; write smaller ones")
    return struct.pack(f"<I{len(offsets)}I", len(body), *offsets) + config + b"".join(body)


def write_mds(folder: Path, samples: Iterable[tuple[str, bytes]], *, shard_samples: int = 1024) -> int:
    """Write shards and index.json into a new folder, columns `data` and `key`; returns how many samples.

    Parameters
    ----------
    folder : a new or empty one.
    samples : keys and bytes.
    shard_samples : samples a shard (default: 1024).
    """
    return write_rows(
        folder, ({"data": data, "key": key.encode()} for key, data in samples), shard_samples=shard_samples
    )


def write_rows(folder: Path, rows: Iterable[Mapping[str, bytes]], *, shard_samples: int = 1024) -> int:
    """The same for samples of several columns; `key` and `__key__` are text, all others bytes.

    Parameters
    ----------
    folder : a new or empty one.
    rows : the bytes of each column of a sample.
    shard_samples : samples a shard (default: 1024).
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise DataError.at(folder, "is not empty")
    shards: list[dict[str, Any]] = []
    shard: list[Mapping[str, bytes]] = []
    total = 0
    for row in rows:
        shard.append(row)
        if len(shard) == shard_samples:
            shards.append(_write_shard(folder, len(shards), shard))
            total, shard = total + len(shard), []
    if shard:
        shards.append(_write_shard(folder, len(shards), shard))
        total += len(shard)
    (folder / INDEX).write_text(json.dumps({"shards": shards, "version": 2}, sort_keys=True))
    return total


def _write_shard(folder: Path, number: int, rows: Sequence[Mapping[str, bytes]]) -> dict[str, Any]:
    data, name = shard_bytes(rows), f"shard.{number:05d}.mds"
    (folder / name).write_bytes(data)
    raw = {"basename": name, "bytes": len(data), "hashes": {}}
    return {**_columns_of(sorted(rows[0])), "raw_data": raw, "samples": len(rows), "zip_data": None}


def read_mds(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The samples of a folder of shards in order; of samples with several columns, a row a column.

    The key is the column `key` or `__key__`, else the sample's number. A sample with one other column is that column's
    bytes under the key. One with several gives each under the key and the column's name: `00000007.label.txt`; numbers
    and text are written as text, `jpeg` as `.jpg`. Raises DataError, naming shard and place, for anything that does not
    hold together, compressed shards that are not unpacked, and encodings that are not read.

    Parameters
    ----------
    folder : with index.json, and the shards that it names.
    """
    path = folder / INDEX
    try:
        shards = listed_shards(read_regular(path))
    except OSError as error:
        raise DataError.at(path, f"is no index of shards: {type(error).__name__}") from error
    if shards is None:
        raise DataError.at(path, "is no index of shards")
    number = 0
    for shard in shards:
        name = shard_name(shard, path, lambda name: (folder / name).exists())
        for columns, encodings in _read_shard(folder / name):
            yield from _parts(folder / name, columns, encodings, number)
            number += 1


def listed_shards(data: bytes) -> list[Any] | None:
    """The shards that an index names; None for JSON that is no such index.

    Parameters
    ----------
    data : of index.json.
    """
    try:
        index = json.loads(data)
    except (ValueError, RecursionError):
        return None
    shards = index.get("shards") if isinstance(index, dict) and "version" in index else None
    return shards if isinstance(shards, list) else None


def shard_name(shard: Any, where: object, exists: Callable[[str], bool]) -> str:
    """The file of a shard.

    Parameters
    ----------
    shard : as the index describes it.
    where : what messages call the index.
    exists : whether there is a file of a name.

    Raises DataError for a name that is none, compressed shards that are not unpacked, and other formats.
    """
    name = _name(shard, "raw_data")
    if not name or unsafe(name) or "/" in name:
        raise DataError.at(where, f"names the shard {name!r:.60}")
    if shard.get("compression") and not exists(name):
        how = str(shard["compression"]).partition(":")[0][:20]
        packed = _name(shard, "zip_data") or f"{name}.{how}"
        raise DataError.at(
            where,
            f"shard {name} is compressed by {how}; unpack every shard beside itself, the index may stay, with "
            f"{_TOOLS.get(how, how)} -dc < {packed[:80]} > {name}",
        )
    if shard.get("version") != 2 or shard.get("format") != "mds":
        raise DataError.at(where, f"shard {name} is not of format mds, version 2")
    return name


_TOOLS: Final = {"gz": "gzip", "br": "brotli", "bz2": "bzip2", "snappy": "snzip"}


def _name(shard: Any, part: str) -> str:
    about = shard.get(part) if isinstance(shard, dict) else None
    name = about.get("basename") if isinstance(about, dict) else None
    return name if isinstance(name, str) else ""


def _parts(
    path: Path, columns: dict[str, bytes], encodings: dict[str, str], number: int
) -> Iterator[tuple[str, bytes]]:
    """The parts of a sample, with their keys.

    Parameters
    ----------
    path : of the shard, for messages.
    columns : its bytes by column; a column that is a key is taken out.
    encodings : of each column.
    number : of the sample in the data set, its key where it has none.

    Raises DataError for a key that is no text or unsafe, and for a sample without content.
    """
    try:
        named = next((columns.pop(name) for name in _KEYS if name in columns), None)
        key = f"{number:08d}" if named is None else named.decode()
    except UnicodeDecodeError as error:
        raise DataError.at(path, f"the key of sample {number} is no text") from error
    if not columns:
        raise DataError.at(path, f"sample {number} has no column but its key")
    for column, data in columns.items():
        suffix, content = _content(path, column, encodings[column], data, number)
        name = key
        if len(columns) > 1:
            ending = "" if not suffix or column.rpartition(".")[2] == suffix else f".{suffix}"
            name = f"{key}.{column}{ending}"
        if why := unsafe(name):
            raise DataError.at(path, f"key {name[:80]!r} {why}")
        yield name, content


#: numbers as streaming stores them: its own name of the encoding, and numpy's
_NUMBERS: Final = {
    "int": "<i8",
    **{f"{kind}{bits}": f"<{kind[0]}{bits // 8}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
}
_SUFFIXES: Final = {"bytes": "", "jpeg": "jpg", "png": "png", "json": "json", "str": "txt"}


def _content(path: Path, column: str, encoding: str, data: bytes, number: int) -> tuple[str, bytes]:
    """A column's suffix, and its bytes: as they are, numbers as text."""
    if encoding in _SUFFIXES:
        return _SUFFIXES[encoding], data
    if encoding in ("str_int", "str_float", "str_decimal"):
        return "txt", data
    return "txt", str(_number(path, column, encoding, data, number)).encode()


def _number(where: object, column: str, encoding: str, data: bytes | memoryview, number: int) -> Any:
    """A number of a column. Raises DataError for an encoding that is none of those that are read."""
    if encoding not in _NUMBERS:
        read = ", ".join((*_SUFFIXES, *_NUMBERS))
        pickled = "; pickles are not read, they can run code" if encoding == "pkl" else ""
        raise DataError.at(
            where,
            f"column {column[:40]!r} has the encoding {encoding[:40]!r}; write it as one of {read}{pickled}",
        )
    kind = np.dtype(_NUMBERS[encoding])
    if len(data) != kind.itemsize:
        raise DataError.at(
            where, f"sample {number} has {len(data)} bytes in {column[:40]!r}, {encoding} has {kind.itemsize}"
        )
    return np.frombuffer(data, kind)[0].item()


@dataclass(frozen=True)
class Columns:
    """The columns of a shard.

    Parameters
    ----------
    names : sorted, as their bytes follow each other.
    sizes : bytes of each, None where they vary.
    encodings : of each.
    """

    names: tuple[str, ...]
    sizes: tuple[int | None, ...]
    encodings: tuple[str, ...]


def shard_head(head: bytes, size_bytes: int, path: object) -> tuple[tuple[int, ...], Columns]:
    """Where the samples of a shard begin, with the end of the last, and its columns.

    Parameters
    ----------
    head : the shard's first bytes, up to its first sample at least.
    size_bytes : of the shard.
    path : named in messages.

    Raises DataError for a shard that does not hold together.
    """
    count = int.from_bytes(head[:4], "little")
    table = 4 + 4 * (count + 1)
    if len(head) < table:
        raise DataError.at(path, f"claims {count} samples and ends within their offsets")
    offsets = struct.unpack_from(f"<{count + 1}I", head, 4)
    if offsets[0] < table or offsets[-1] != size_bytes or any(b < a for a, b in itertools.pairwise(offsets)):
        raise DataError.at(path, "its offsets do not ascend from the configuration to the end of the file")
    try:
        config = json.loads(head[table : offsets[0]])
        names, sizes = [str(name) for name in config["column_names"]], config["column_sizes"]
        encodings = tuple(map(str, config["column_encodings"]))
        assert len(names) == len(sizes) == len(encodings) == len(set(names))
        assert all(size is None or (type(size) is int and size >= 0) for size in sizes)
    except (ValueError, KeyError, TypeError, AssertionError, RecursionError) as error:
        raise DataError.at(path, "its configuration cannot be read") from error
    return offsets, Columns(tuple(names), tuple(sizes), encodings)


def _read_shard(path: Path) -> Iterator[tuple[dict[str, bytes], dict[str, str]]]:
    """The columns of each sample of a shard, and their encodings. Raises DataError for a shard that does not hold
    together.
    """
    try:
        content = read_regular(path)
    except OSError as error:
        raise DataError.at(path, unreadable(error)) from error
    offsets, columns = shard_head(content, len(content), path)
    kinds = dict(zip(columns.names, columns.encodings))
    for number, (a, b) in enumerate(itertools.pairwise(offsets)):
        yield _columns(path, number, content[a:b], columns.names, columns.sizes), kinds


@dataclass(frozen=True)
class TypedColumns:
    """How the bytes of MDS shards become samples of values.

    Parameters
    ----------
    columns : of each block, those of its shard.
    """

    columns: tuple[Columns, ...]

    def samples(
        self, block: int, count: int, data: memoryview, *, verify: bool, where: str
    ) -> Iterator[tuple[str | None, Any]]:
        """Keys, where a column has them, and samples: a dictionary of the columns, or the value of the only one.

        Bytes and pictures are views; numbers, text and JSON are what they say. The format has no checksums of samples.

        Parameters
        ----------
        block : its number.
        count : samples that the bytes must contain.
        data : the samples' bytes.
        verify : not possible here.
        where : what messages call the shard.

        Raises DataError for bytes that are no such samples, and encodings that are not read.
        """
        columns, at = self.columns[block], 0
        variable = sum(size is None for size in columns.sizes)
        for number in range(count):
            if len(data) - at < 4 * variable:
                raise DataError.at(where, f"sample {number} of {count} ends within its sizes")
            given = iter(struct.unpack_from(f"<{variable}I", data, at))
            at += 4 * variable
            values: dict[str, Any] = {}
            for name, size, encoding in zip(columns.names, columns.sizes, columns.encodings):
                length = next(given) if size is None else size
                content = data[at : at + length]
                at += length
                if len(content) != length:
                    raise DataError.at(where, f"sample {number} of {count} ends within {name[:40]!r}")
                values[name] = _value(where, name, encoding, content, number)
            key = next((values.pop(name) for name in _KEYS if len(values) > 1 and name in values), None)
            if key is not None and not isinstance(key, str):
                raise DataError.at(where, f"the key of sample {number} is no text")
            yield key, next(iter(values.values())) if len(values) == 1 else values
        if at != len(data):
            raise DataError.at(where, f"{count} samples have {at} bytes, not {len(data)}")


def _value(where: str, column: str, encoding: str, data: memoryview, number: int) -> Any:
    """A column's value."""
    if encoding in ("bytes", "jpeg", "png"):
        return data
    try:
        if encoding == "json":
            return json.loads(bytes(data))
        if encoding in ("str", "str_int", "str_float", "str_decimal"):
            return _OF_TEXT[encoding](bytes(data).decode())
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise DataError.at(
            where, f"sample {number} is no {encoding} in {column[:40]!r}: {type(error).__name__}"
        ) from error
    return _number(where, column, encoding, data, number)


_OF_TEXT: Final[Mapping[str, Callable[[str], Any]]] = {
    "str": str, "str_int": int, "str_float": float, "str_decimal": Decimal,
}  # fmt: skip


def _columns(
    path: Path, number: int, row: bytes, names: Sequence[str], sizes: Sequence[int | None]
) -> dict[str, bytes]:
    """A sample's columns.

    Parameters
    ----------
    path, number : of the shard, and of the sample in it, for messages.
    row : the sample's bytes.
    names : of the columns.
    sizes : of each, None where it varies: such sizes precede the columns.
    """
    variable = sum(size is None for size in sizes)
    if len(row) < 4 * variable:
        raise DataError.at(path, f"sample {number} ends within its sizes")
    given = iter(struct.unpack_from(f"<{variable}I", row))
    at, columns = 4 * variable, {}
    for name, fixed in zip(names, sizes):
        length = next(given) if fixed is None else fixed
        columns[str(name)] = row[at : at + length]
        at += length
    if at != len(row):
        raise DataError.at(path, f"sample {number} has {len(row)} bytes, its columns {at}")
    return columns
