"""A container of blocks wherever it lies, and the samples of any stretch of it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from forerun.blocks.container.container import (
    INDEX,
    MANIFEST,
    Blocks,
    Index,
    block_name,
    checked_index,
    parse_manifest,
)
from forerun.blocks.container.samples import member_stem, part_name, undecodable
from forerun.blocks.reader.buffers import Buffers
from forerun.blocks.reader.cache import BlockCache
from forerun.blocks.reader.clients import Client, LocalFiles, open_client
from forerun.blocks.reader.objects import Repeating
from forerun.core.errors import DataError, ForerunError, StoreError

#: makes something of a sample; raises whatever its library raises
Decode = Callable[[Any], Any]


@dataclass(frozen=True)
class Source:
    """A container that was opened.

    Parameters
    ----------
    name : the folder or the URL.
    client : reads its files.
    index : of its samples.
    digest : SHA-256 of the index, by which a container is known again.
    cache : of whole blocks on this node (default: none).
    """

    name: str
    client: Client
    index: Index
    digest: str
    cache: BlockCache | None = None

    @classmethod
    def open(
        cls,
        source: str | Path,
        *,
        token: str,
        retries: int | None,
        timeout_s: float,
        patience_s: float,
    ) -> Source:
        """Open the container in a folder or at a URL.

        Parameters
        ----------
        source : a folder, or a URL: http(s), s3, gs, az, or what fsspec opens.
        token : bearer token of an HTTP store; empty for none.
        retries, timeout_s, patience_s : of requests, see `Repeating`.

        Raises DataError for a manifest or an index that is damaged, StoreError for one that cannot be read, UsageError for
        a URL that nobody opens.
        """
        name = str(source)
        try:
            if "://" not in name:
                folder = Path(name).absolute()
                blocks = Blocks.open(folder)
                return cls(name, LocalFiles(folder), blocks.index, str(blocks.manifest["index_sha256"]))
            name = name.rstrip("/")
            client = open_client(name, token, retries=retries, timeout_s=timeout_s, patience_s=patience_s)
            manifest = parse_manifest(client.read_whole(MANIFEST), f"{name}/{MANIFEST}")
            index = checked_index(manifest, client.read_whole(INDEX), f"{name}/{INDEX}")
            return cls(name, client, index, str(manifest["index_sha256"]))
        except OSError as error:
            raise DataError.at(name, f"cannot be read: {error.strerror}") from error

    def cached(self, cache: BlockCache | None) -> Source:
        """The same with a cache of its blocks.

        Parameters
        ----------
        cache : is opened (None: none).
        """
        if cache is not None:
            cache.open()
        return replace(self, cache=cache)

    @property
    def local(self) -> bool:
        """Whether its files lie in a folder."""
        return isinstance(self.client, LocalFiles)

    def read(
        self,
        first: int,
        last: int,
        *,
        verify: bool,
        give: Decode | None,
        decode: Decode | None,
        buffers: Buffers | None = None,
    ) -> list[tuple[str, Any]]:
        """Keys and samples of a stretch of one block, read with one request.

        Parameters
        ----------
        first, last : number of its first sample, and of the one behind its last.
        verify : compare checksums.
        give : makes what is handed over of the view of a sample or of a part of it (None: the view itself).
        decode : makes something of a sample (None: it stays as it is).
        buffers : memory for what is read from a local file (default: new memory each time).

        Raises StoreError for bytes that cannot be had, DataError for a sample that fails its checksum or cannot be decoded,
        each named; and for a container that is another one by now.
        """
        index = self.index
        starts = index.starts[first : last + 1].tolist()
        row, end = starts[0], starts[-1]
        offsets, lengths = index.offset[row:end].tolist(), index.length[row:end].tolist()
        begin = offsets[0]
        name = block_name(int(index.block[row]))
        what = _in_words(index.key, row, end)

        def read() -> list[memoryview]:
            data = self._bytes(row, begin, offsets[-1] + lengths[-1] - begin, what, buffers, verify)
            views = [data[at - begin : at - begin + length] for at, length in zip(offsets, lengths)]
            if verify and (damaged := self._damaged(views, row)) is not None:
                key = index.key[damaged]
                raise DataError.at(f"{self.name}/{name}", f"sample {key!r} fails its checksum")
            return views

        try:
            try:
                views = read()
            except DataError:
                if self.cache is not None:
                    self.cache.forget(self.digest, name)
                views = read()  # what was damaged in the cache or on the way, the store has
        except (StoreError, DataError) as error:
            self._refuse_another(error)
            raise
        parts: list[Any] = views if give is None else list(map(give, views))
        if len(parts) == last - first:
            samples = list(zip(index.key[row:end], parts))
        else:
            samples = [self._sample(a, b, parts[a - row : b - row]) for a, b in pairwise(starts)]
        return (
            samples
            if decode is None
            else [(key, self._decoded(name, key, one, decode)) for key, one in samples]
        )

    def _damaged(self, views: Sequence[memoryview], row: int) -> int | None:
        """The first row of the index, from `row` on, whose bytes have another checksum; None if there is none."""
        sums = self.index.crc32[row : row + len(views)].tolist()
        wrong = (
            at for at, (view, crc32) in enumerate(zip(views, sums), start=row) if zlib.crc32(view) != crc32
        )
        return next(wrong, None)

    def _bytes(
        self, row: int, first: int, length: int, what: str, buffers: Buffers | None, verify: bool
    ) -> memoryview:
        """The bytes of a stretch of the block in which a row of the index is, for reading only."""
        block = int(self.index.block[row])
        name = block_name(block)
        if self.cache is None:
            return self._stored(name, first, length, what, buffers)
        rows, edges = int(self.index.first[block]), self.index.edges[block]

        def sound(data: bytes) -> bool:
            views = [memoryview(data)[a:b] for a, b in pairwise(edges)]
            return not verify or self._damaged(views, rows) is None

        return self.cache.read(self.client, self.digest, name, edges[-1], first, length, what, sound)

    def _stored(self, name: str, first: int, length: int, what: str, buffers: Buffers | None) -> memoryview:
        """The bytes of a stretch of a file where it lies, for reading only."""
        if buffers is None or not isinstance(self.client, LocalFiles):
            return memoryview(self.client.read(name, first, length, what))
        data = buffers.take(length).data
        self.client.read_into(name, first, data, what)
        return data.toreadonly()

    def _sample(self, row: int, end: int, parts: list[Any]) -> tuple[str, Any]:
        """Key and sample of some rows of the index: a single part, or a dictionary of several.

        Parameters
        ----------
        row, end : of the index.
        parts : what is handed over of each.
        """
        key = self.index.key[row]
        if end - row == 1:
            return key, parts[0]
        return member_stem(key), {part_name(each): part for each, part in zip(self.index.key[row:end], parts)}

    def _decoded(self, name: str, key: str, sample: Any, decode: Decode) -> Any:
        """What `decode` makes of a sample; a library says what it cannot read, not which sample that was."""
        try:
            decoded = decode(sample)
            if decoded is None:
                raise ValueError("`decode` returned nothing")
        except ForerunError:
            raise
        except Exception as error:
            raise undecodable(f"{self.name}/{name}", f"sample {key!r}", error) from error
        return decoded

    def _refuse_another(self, error: ForerunError) -> None:
        """Raise DataError where a read failed because the container has been packed anew since it was opened."""
        client = replace(self.client, retries=0) if isinstance(self.client, Repeating) else self.client
        try:
            now = parse_manifest(client.read_whole(MANIFEST), MANIFEST).get("index_sha256")
        except (ForerunError, OSError):
            return  # what went wrong first says more
        if now != self.digest:
            raise DataError.at(
                self.name,
                "has changed since it was opened: its manifest names another index; open it again",
            ) from error


def _in_words(keys: Sequence[str], row: int, end: int) -> str:
    """Some rows of an index in words."""
    return f"samples {keys[row]!r} to {keys[end - 1]!r}" if end - row > 1 else f"sample {keys[row]!r}"
