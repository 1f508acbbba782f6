"""The container `blocks`: payloads back to back in block files, an index and a manifest beside them.

`b000000.blk`, `b000001.blk` ... hold nothing but samples, one after another. `index.parquet` has a row a sample in
block order: sample, block, offset, length, crc32, key; the parts of a sample (see `samples.sample_groups`) are adjacent rows
of one number. `manifest.json` has format, version, counts, bytes, order, seed
and SHA-256 digests of the index and of every block. A block parses to views without copies; a single sample can be
read by its range.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.blocks.container.samples import check_keys
from forerun.core.errors import DataError, Problem

FORMAT: Final = "forerun blocks"
VERSION: Final = 1
MANIFEST: Final = "manifest.json"
INDEX: Final = "index.parquet"
INDEX_COLUMNS: Final = ("sample", "block", "offset", "length", "crc32", "key")
MAX_MANIFEST_BYTES: Final = 512 * 1024**2

I64 = NDArray[np.int64]


def block_name(block: int) -> str:
    """The file name of a block.

    Parameters
    ----------
    block : its number, from 0.
    """
    return f"b{block:06d}.blk"


@dataclass(frozen=True)
class Index:
    """A row a sample, in block order. A sample of several parts has a row a part, adjacent.

    Parameters
    ----------
    sample : int64[rows], number of the sample in the source; parts of one sample share it.
    block : int64[rows], number of the block, from 0.
    offset, length : int64[rows], bytes before it in its block, and its own.
    crc32 : int64[rows], checksum of its bytes.
    key : its name, a relative path with slashes.
    """

    sample: I64
    block: I64
    offset: I64
    length: I64
    crc32: I64
    key: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.key)

    @cached_property
    def first(self) -> I64:
        """Where each block's rows begin, and the end of the last."""
        blocks = int(self.block[-1]) + 1 if len(self.block) else 0
        return np.searchsorted(self.block, np.arange(blocks + 1)).astype(np.int64)

    @cached_property
    def starts(self) -> I64:
        """The row at which each sample begins, and the number of rows."""
        new = np.flatnonzero((np.diff(self.sample) != 0) | (np.diff(self.block) != 0)) + 1
        return np.r_[0, new, len(self)].astype(np.int64) if len(self) else np.zeros(1, np.int64)

    @property
    def samples(self) -> int:
        """How many samples there are; parts of one count once."""
        return len(self.starts) - 1

    @cached_property
    def first_sample(self) -> I64:
        """Where each block's samples begin, and the end of the last."""
        return np.searchsorted(self.starts[:-1], self.first).astype(np.int64)

    @cached_property
    def edges(self) -> tuple[tuple[int, ...], ...]:
        """The offsets of each block's samples, and its length."""
        edges = []
        for a, b in zip(self.first.tolist(), self.first[1:].tolist()):
            edges.append((*self.offset[a:b].tolist(), int(self.offset[b - 1] + self.length[b - 1])))
        return tuple(edges)

    def write(self, path: Path) -> None:
        """As Parquet.

        The column `key` is text, all others are int64.

        Parameters
        ----------
        path : of the new file, compressed with zstd.
        """
        import polars

        frame = polars.DataFrame(
            {name: getattr(self, name) for name in INDEX_COLUMNS[:-1]} | {"key": list(self.key)}
        )
        frame.write_parquet(path, compression="zstd")

    @classmethod
    def parse(cls, data: bytes, where: object) -> Index:
        """From the bytes of a Parquet file.

        Parameters
        ----------
        data : of a file that `write` made.
        where : it came from, named in messages.

        Raises DataError if it is no such index, or contradicts itself.
        """
        import polars

        try:
            frame = polars.read_parquet(io.BytesIO(data))
            columns = {name: frame[name].to_numpy().astype(np.int64) for name in INDEX_COLUMNS[:-1]}
            keys = tuple(frame["key"].to_list())
        except (OSError, polars.exceptions.PolarsError, ValueError, TypeError) as error:
            raise DataError.at(where, f"is not an index of blocks: {str(error).splitlines()[0]}") from error
        index = cls(**columns, key=keys)
        index.check(where)
        return index

    def check(self, path: object) -> None:
        """Samples of a block follow each other without gaps, blocks follow each other, keys are safe.

        Parameters
        ----------
        path : named in messages.

        Raises DataError that says which row is wrong.
        """
        if not len(self):
            raise DataError.at(path, "has no rows")
        steps = np.diff(self.block)
        if self.block[0] != 0 or np.any((steps < 0) | (steps > 1)) or np.any(self.length < 0):
            raise DataError.at(path, "its blocks are not 0, 1, 2 ... in order, or a length is negative")
        expected = np.where(np.r_[True, steps == 1], 0, np.r_[0, (self.offset + self.length)[:-1]])
        wrong = np.flatnonzero(self.offset != expected)
        if len(wrong):
            row = int(wrong[0])
            raise DataError.at(path, f"row {row} begins at {self.offset[row]}, {expected[row]} is expected")
        if any(not isinstance(key, str) for key in self.key):
            raise DataError.at(path, "a key is missing")
        check_keys(self.key, path)


@dataclass(frozen=True)
class Blocks:
    """A container that is complete.

    Parameters
    ----------
    folder : where its files lie.
    manifest : its description, as plain data.
    index : of its samples.
    """

    folder: Path
    manifest: dict[str, Any]
    index: Index

    @classmethod
    def open(cls, folder: Path) -> Blocks:
        """Open a container.

        Parameters
        ----------
        folder : with a manifest, an index and the blocks; the index has to have the digest that the manifest names.

        Raises DataError naming the file that is absent, damaged or of another version.
        """
        manifest = read_manifest(folder / MANIFEST)
        return cls(folder, manifest, checked_index(manifest, _bytes_of(folder / INDEX), folder / INDEX))

    def __len__(self) -> int:
        """Samples."""
        return self.index.samples

    @property
    def blocks(self) -> int:
        """Blocks."""
        return len(self.index.edges)

    def block_path(self, block: int) -> Path:
        """The file of a block.

        Parameters
        ----------
        block : its number, from 0.
        """
        return self.folder / block_name(block)

    def read_block(self, block: int) -> list[memoryview]:
        """The samples of a block as views of its bytes.

        Raises DataError, naming the block, if its file is absent or has another length than the index says.
        """
        return self.parse(block, _bytes_of(self.block_path(block)))

    def parse(self, block: int, data: bytes) -> list[memoryview]:
        """The samples in a block's bytes, however they came.

        Parameters
        ----------
        block : its number.
        data : all bytes of the block, read from its file or received from a store.

        Returns views of `data`, without a copy. Raises DataError if the length is not the index's.
        """
        edges = self.index.edges[block]
        if len(data) != edges[-1]:
            raise DataError.at(
                self.block_path(block),
                f"has {len(data)} bytes, the index says {edges[-1]}: cut short or not this block",
            )
        view = memoryview(data)
        return [view[a:b] for a, b in itertools.pairwise(edges)]

    def read_sample(self, row: int) -> bytes:
        """One sample by its row in the index, read alone, its checksum verified.

        Parameters
        ----------
        row : of the index, from 0.

        Raises DataError for a file that cannot be read, and for bytes with another checksum.
        """
        block, offset, length = (
            int(getattr(self.index, name)[row]) for name in ("block", "offset", "length")
        )
        path = self.block_path(block)
        try:
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read(length)
        except OSError as error:
            raise DataError.at(path, f"cannot be read: {error.strerror}") from error
        if len(data) != length or zlib.crc32(data) != self.index.crc32[row]:
            raise DataError.at(path, f"sample {self.index.key[row]!r} at {offset} is not what the index says")
        return data

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Keys and bytes in block order, checksums verified; of samples of several parts, each part."""
        for block in range(self.blocks):
            for row, view in enumerate(self.read_block(block), start=int(self.index.first[block])):
                self.check(row, view)
                yield self.index.key[row], bytes(view)

    def check(self, row: int, view: memoryview | bytes) -> None:
        """Raise DataError, naming sample and block, if these are not the bytes of the sample in this row.

        Parameters
        ----------
        row : of the index.
        view : the bytes of the sample, or of a part of it.
        """
        if zlib.crc32(view) != self.index.crc32[row]:
            block = int(self.index.block[row])
            raise DataError.at(self.block_path(block), f"sample {self.index.key[row]!r} fails its checksum")

    def verify(self) -> None:
        """Every block has its digest and every sample its checksum. Raises DataError with all that does not."""
        problems: list[Problem] = []
        for block, digest in enumerate(self.manifest["block_sha256"]):
            try:
                data = _bytes_of(self.block_path(block))
                if hashlib.sha256(data).hexdigest() != digest:
                    self._explain(block, data)
            except DataError as error:
                problems += error.problems
        if problems:
            raise DataError(*problems[:20])

    def _explain(self, block: int, data: bytes) -> None:
        """Raise DataError for bytes that have another digest than the block: the first sample, if one is damaged."""
        if len(data) == self.index.edges[block][-1]:
            for row, view in enumerate(self.parse(block, data), start=int(self.index.first[block])):
                self.check(row, view)
        raise DataError.at(self.block_path(block), f"has {len(data)} bytes and another digest")


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError.at(path, f"cannot be read: {error.strerror}") from error


def read_manifest(path: Path) -> dict[str, Any]:
    """A manifest.

    Parameters
    ----------
    path : of a JSON file, of at most 512 MiB.

    Raises DataError if it is absent, no manifest, or of another version.
    """
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise DataError.at(path, "is too large for a manifest")
        data = path.read_bytes()
    except OSError as error:
        raise DataError.at(path, f"cannot be read: {error.strerror}; not packed to the end?") from error
    return parse_manifest(data, path)


def parse_manifest(data: bytes, path: object) -> dict[str, Any]:
    """A manifest from its bytes.

    Parameters
    ----------
    data : of a JSON file.
    path : it came from, named in messages.

    Raises DataError if it is no manifest, or of another version.
    """
    try:
        manifest = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError.at(path, "is damaged: not JSON") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError.at(path, f"is not a manifest of {FORMAT!r}")
    if manifest.get("version") != VERSION:
        raise DataError.at(path, f"is of version {manifest.get('version')!r}, this forerun reads {VERSION}")
    digests = manifest.get("block_sha256")
    numbers = ("samples", "blocks", "bytes")
    if not isinstance(digests, list) or not all(isinstance(manifest.get(name), int) for name in numbers):
        raise DataError.at(path, f"lacks one of {', '.join(numbers)}, block_sha256")
    return manifest


def checked_index(manifest: dict[str, Any], data: bytes, path: object) -> Index:
    """The index that a manifest names, from its bytes.

    Parameters
    ----------
    manifest : of the container.
    data : of the index.
    path : it came from, named in messages.

    Raises DataError if it is another one, by digest or counts.
    """
    if hashlib.sha256(data).hexdigest() != manifest.get("index_sha256"):
        raise DataError.at(path, "is not the index that the manifest names")
    index = Index.parse(data, path)
    counts = (index.samples, len(index))
    expected = (manifest["samples"], manifest.get("parts", manifest["samples"]))
    if counts != expected or len(index.edges) != len(manifest["block_sha256"]):
        raise DataError.at(
            path, f"has {index.samples} samples in {len(index.edges)} blocks, the manifest says otherwise"
        )
    return index
