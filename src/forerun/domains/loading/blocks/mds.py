"""MDS shards as MosaicML streaming reads and writes them (version 2, uncompressed), columns `data` and `key`.

A shard is: uint32 number of samples, uint32 offsets (one more than samples, absolute), a JSON configuration with sorted
keys, then each sample: uint32 sizes of its variable columns, then the columns by name.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from forerun.domains.loading.blocks.samples import unsafe
from forerun.errors import DataError
from forerun.regular import read_regular, unreadable

INDEX: Final = "index.json"
_COLUMNS: Final[dict[str, Any]] = {
    "column_encodings": ["bytes", "str"],
    "column_names": ["data", "key"],
    "column_sizes": [None, None],
    "compression": None,
    "format": "mds",
    "hashes": [],
    "size_limit": None,
    "version": 2,
}


def shard_bytes(samples: Sequence[tuple[str, bytes]]) -> bytes:
    """One shard."""
    rows = []
    for key, data in samples:
        name = key.encode()
        rows.append(struct.pack("<2I", len(data), len(name)) + data + name)
    config = json.dumps(_COLUMNS, sort_keys=True).encode()
    start = 4 + 4 * (len(rows) + 1) + len(config)
    offsets = [start]
    for row in rows:
        offsets.append(offsets[-1] + len(row))
    if offsets[-1] >= 2**32:
        raise DataError.at("MDS shard", f"{offsets[-1]} bytes do not fit a shard; write smaller ones")
    return struct.pack(f"<I{len(offsets)}I", len(rows), *offsets) + config + b"".join(rows)


def write_mds(folder: Path, samples: Iterable[tuple[str, bytes]], *, shard_samples: int = 1024) -> int:
    """Write shards and index.json into a new folder; returns how many samples."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise DataError.at(folder, "already holds something")
    shards: list[dict[str, Any]] = []
    total, held = 0, []
    for sample in samples:
        held.append(sample)
        if len(held) == shard_samples:
            shards.append(_write_shard(folder, len(shards), held))
            total, held = total + len(held), []
    if held:
        shards.append(_write_shard(folder, len(shards), held))
        total += len(held)
    (folder / INDEX).write_text(json.dumps({"shards": shards, "version": 2}, sort_keys=True))
    return total


def _write_shard(folder: Path, number: int, samples: Sequence[tuple[str, bytes]]) -> dict[str, Any]:
    data, name = shard_bytes(samples), f"shard.{number:05d}.mds"
    (folder / name).write_bytes(data)
    raw = {"basename": name, "bytes": len(data), "hashes": {}}
    return {**_COLUMNS, "raw_data": raw, "samples": len(samples), "zip_data": None}


def read_mds(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The samples of a folder of shards in order.

    The key is the column `key`, else the sample's number; the bytes are the column `data`, else the only column of
    type bytes. Raises DataError, naming shard and place, for anything that does not hold together.
    """
    path = folder / INDEX
    try:
        index = json.loads(read_regular(path))
        shards = list(index["shards"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError.at(path, f"is no index of shards: {type(error).__name__}") from error
    number = 0
    for shard in shards:
        name = shard.get("raw_data", {}).get("basename") if isinstance(shard, dict) else None
        if not isinstance(name, str) or unsafe(name) or "/" in name:
            raise DataError.at(path, f"names the shard {name!r:.60}")
        if shard.get("compression"):
            how = str(shard["compression"])[:20]
            raise DataError.at(path, f"shard {name} is compressed by {how}; uncompressed shards are read")
        if shard.get("version") != 2 or shard.get("format") != "mds":
            raise DataError.at(path, f"shard {name} is not of format mds, version 2")
        for columns in _read_shard(folder / name):
            key, data = _sample(folder / name, columns, number)
            yield key, data
            number += 1


def _sample(path: Path, columns: dict[str, bytes], number: int) -> tuple[str, bytes]:
    data = columns.get("data")
    if data is None and len(columns) == 1:
        data = next(iter(columns.values()))
    if data is None:
        raise DataError.at(path, f"sample {number} has columns {', '.join(columns)}; `data` is wanted")
    try:
        key = columns["key"].decode() if "key" in columns else f"{number:08d}"
    except UnicodeDecodeError as error:
        raise DataError.at(path, f"the key of sample {number} is no text") from error
    if why := unsafe(key):
        raise DataError.at(path, f"key {key[:80]!r} {why}")
    return key, data


def _read_shard(path: Path) -> Iterator[dict[str, bytes]]:
    try:
        content = read_regular(path)
    except OSError as error:
        raise DataError.at(path, unreadable(error)) from error
    count = int.from_bytes(content[:4], "little")
    table = 4 + 4 * (count + 1)
    if len(content) < table:
        raise DataError.at(path, f"claims {count} samples and ends within their offsets")
    offsets = struct.unpack_from(f"<{count + 1}I", content, 4)
    if (
        offsets[0] < table
        or offsets[-1] != len(content)
        or any(b < a for a, b in itertools.pairwise(offsets))
    ):
        raise DataError.at(path, "its offsets do not ascend from the configuration to the end of the file")
    try:
        config = json.loads(content[table : offsets[0]])
        names, sizes = config["column_names"], config["column_sizes"]
        assert len(names) == len(sizes)
    except (ValueError, KeyError, TypeError, AssertionError, RecursionError) as error:
        raise DataError.at(path, "its configuration cannot be read") from error
    for number, (a, b) in enumerate(itertools.pairwise(offsets)):
        yield _columns(path, number, content[a:b], names, sizes)


def _columns(
    path: Path, number: int, row: bytes, names: Sequence[str], sizes: Sequence[int | None]
) -> dict[str, bytes]:
    variable = sum(size is None for size in sizes)
    if len(row) < 4 * variable:
        raise DataError.at(path, f"sample {number} ends within its sizes")
    given = iter(struct.unpack_from(f"<{variable}I", row))
    at, found = 4 * variable, {}
    for name, fixed in zip(names, sizes):
        length = next(given) if fixed is None else fixed
        found[str(name)] = row[at : at + length]
        at += length
    if at != len(row):
        raise DataError.at(path, f"sample {number} has {len(row)} bytes, its columns {at}")
    return found
