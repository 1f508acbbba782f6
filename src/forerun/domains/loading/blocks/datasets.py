"""Data sets of other libraries as blocks: Parquet, TFRecord, MDS and LitData, in a folder or a store.

Where each block lies is learnt when a data set is opened, from a few short reads of each file; a block is then one request,
as one of our own is. A block of Parquet is a row group. Records of TFRecord and samples of MDS and LitData can be read
alone, so their blocks are of any number of samples. What a file is read with is given, so nothing here opens one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from forerun.domains.loading.blocks import litdata, mds, parquet, tfrecord
from forerun.domains.loading.blocks.container import INDEX, Index
from forerun.domains.loading.blocks.shards import kind_by_head, payload_of, refuse_shards, shards_in
from forerun.errors import DataError
from forerun.regular import open_regular, unreadable

Kind = Literal["parquet", "tfrecord", "mds", "litdata"]
I64 = NDArray[np.int64]

#: bytes of a file of a data set: its name, where from, how many
ReadFile = Callable[[str, int, int], bytes]
#: samples a block where nothing else is said
BLOCK_SAMPLES: Final = 64
#: suffixes of an index of records beside a TFRecord file
_INDEX_SUFFIXES: Final = (".idx", ".index")


class Rows(Protocol):
    """How the bytes of a data set's blocks become samples."""

    def samples(
        self, block: int, count: int, data: memoryview, *, verify: bool, where: str
    ) -> Iterator[tuple[str | None, Any]]:
        """Key (None: the sample has none of its own) and sample of consecutive ones in a block.

        Parameters
        ----------
        block : its number.
        count : how many samples the bytes contain.
        data : the samples' bytes.
        verify : compare checksums, where the format has some.
        where : what messages call the file.

        Raises DataError for bytes that are damaged.
        """


@dataclass(frozen=True)
class DataSet:
    """A data set that was opened.

    Parameters
    ----------
    kind : its format.
    index : of its samples, a row each. Bytes of a sample are not known in Parquet: rows of a group have equal parts of it.
    files : of each block, the file in which it lies.
    begins : of each block, the byte of the file at which it begins.
    digest : SHA-256 of where everything lies, by which the data set is known again.
    rows : makes samples of bytes.
    """

    kind: Kind
    index: Index
    files: tuple[str, ...]
    begins: tuple[int, ...]
    digest: str
    rows: Rows

    @property
    def whole(self) -> bool:
        """Whether a block can only be read as a whole."""
        return self.kind == "parquet"

    def read(
        self,
        read: Callable[[str, int, int], bytes | memoryview],
        first: int,
        last: int,
        *,
        verify: bool,
        where: str,
    ) -> list[tuple[str, Any]]:
        """Keys and samples of a stretch of one block.

        Parameters
        ----------
        read : bytes of a file.
        first, last : number of its first sample, and of the one behind its last.
        verify : compare checksums, where the format has some.
        where : what messages call the data set.

        Raises DataError for bytes that are damaged, and whatever `read` raises.
        """
        index = self.index
        block = int(index.block[first])
        begin, end = (int(index.first[block]), int(index.first[block + 1])) if self.whole else (first, last)
        at = self.begins[block] + int(index.offset[begin])
        data = read(self.files[block], at, int(index.length[begin:end].sum()))
        place = f"{where}/{self.files[block]}"
        found = self.rows.samples(block, end - begin, memoryview(data), verify=verify, where=place)
        pairs = [
            (index.key[row] if key is None else key, each) for row, (key, each) in enumerate(found, begin)
        ]
        return pairs[first - begin : last - begin]


def open_data_set(
    names: Sequence[tuple[str, int]],
    read: ReadFile,
    where: str,
    *,
    block_samples: int = BLOCK_SAMPLES,
    window_bytes: int = 4096,
) -> DataSet | None:
    """The data set that some files are; None if they are none that is read here.

    Parameters
    ----------
    names : of the files, with their bytes.
    read : bytes of a file.
    where : what messages call the data set.
    block_samples : samples a block of TFRecord, MDS and LitData (default: 64; 0: each file is a block).
    window_bytes : of a TFRecord file without an index, read at once to find its records (default: 4096).

    Raises DataError for files that are damaged, or of a format that is not read; UsageError without a library.
    """
    sizes = dict(names)
    if mds.INDEX in sizes:
        index = read(mds.INDEX, 0, sizes[mds.INDEX])
        shards = mds.listed_shards(index)
        if shards is not None:
            return _mds(shards, sizes, read, where, block_samples)
        chunks = litdata.listed_chunks(index, f"{where}/{mds.INDEX}")
        if chunks is not None:
            return _litdata(*chunks, sizes, read, where, block_samples)
    payload = payload_of(names)
    kind = shards_in(None, names)[0]
    if not kind and payload:
        kind = kind_by_head(read(payload[0], 0, min(12, sizes[payload[0]])))
    files = [name for name in payload if sizes[name]]
    if kind == "Parquet":
        return _parquet(files, sizes, read, where)
    if kind == "TFRecord":
        files = [name for name in files if not name.endswith(_INDEX_SUFFIXES)]
        return _tfrecord(files, sizes, read, where, block_samples, window_bytes)
    refuse_shards(None, names, where)
    return None


def _tfrecord(
    files: Sequence[str],
    sizes: dict[str, int],
    read: ReadFile,
    where: str,
    block_samples: int,
    window_bytes: int,
) -> DataSet:
    edges = []
    for name in files:
        place = f"{where}/{name}"
        beside = next((name + suffix for suffix in _INDEX_SUFFIXES if name + suffix in sizes), None)
        if beside is not None:
            text = read(beside, 0, sizes[beside]).decode("ascii", "replace")
            edges.append(tfrecord.indexed_edges(text, sizes[name], f"{where}/{beside}"))
            continue

        def of_file(first: int, length: int, name: str = name) -> bytes:
            return read(name, first, length)

        edges.append(tfrecord.record_edges(of_file, sizes[name], place, window_bytes=window_bytes))
    index, at, begins = _indexed(files, edges, where, block_samples)
    start, end = begins[0], begins[0] + int(index.length[0])
    record = read(files[at[0]], start, end - start)
    examples = tfrecord.is_example(record[tfrecord.BEFORE : -tfrecord.AFTER])
    return _made("tfrecord", index, files, at, begins, sizes, tfrecord.Records(examples))


def _mds(
    shards: Sequence[Any], sizes: dict[str, int], read: ReadFile, where: str, block_samples: int
) -> DataSet:
    names, edges, columns = [], [], []
    for shard in shards:
        name = mds.shard_name(shard, where, lambda name: name in sizes)
        if name not in sizes:
            raise DataError.at(f"{where}/{name}", "is absent, and the index names it")
        place = f"{where}/{name}"
        head = read(name, 0, min(4, sizes[name]))
        count = int.from_bytes(head, "little")
        # Offsets, and the configuration behind them: both in one request but for the longest of configurations.
        head = read(name, 0, min(sizes[name], 4 + 4 * (count + 1) + 8192))
        if len(head) >= 8 + 4 * count and (first := int.from_bytes(head[4:8], "little")) > len(head):
            head = read(name, 0, min(first, sizes[name]))
        offsets, config = mds.shard_head(head, sizes[name], place)
        names.append(name)
        edges.append(offsets)
        columns.append(config)
    index, at, begins = _indexed(names, edges, where, block_samples)
    return _made(
        "mds", index, names, at, begins, sizes, mds.TypedColumns(tuple(columns[file] for file in at))
    )


def _litdata(
    names: Sequence[str],
    items: litdata.Items,
    sizes: dict[str, int],
    read: ReadFile,
    where: str,
    block_samples: int,
) -> DataSet:
    edges = []
    for name in names:
        place = f"{where}/{name}"
        if name not in sizes:
            raise DataError.at(place, "is absent, and the index names it")
        count = int.from_bytes(read(name, 0, min(4, sizes[name])), "little")
        head = read(name, 0, min(sizes[name], 4 + 4 * (count + 1)))
        edges.append(litdata.chunk_edges(head, sizes[name], place))
    index, at, begins = _indexed(names, edges, where, block_samples)
    return _made("litdata", index, names, at, begins, sizes, items)


def _parquet(files: Sequence[str], sizes: dict[str, int], read: ReadFile, where: str) -> DataSet:
    at, groups, described, spans, rows = [], [], [], [], []
    keys: list[str] = []
    for number, name in enumerate(files):

        def of_file(first: int, length: int, name: str = name) -> bytes:
            return read(name, first, length)

        about = parquet.described(of_file, sizes[name], f"{where}/{name}")
        before = 0
        for group in range(about.num_row_groups):
            count = about.row_group(group).num_rows
            if not count:
                continue
            span = parquet.group_span(about, group)
            if not 0 <= span[0] < span[1] <= sizes[name]:
                raise DataError.at(f"{where}/{name}", f"row group {group} lies outside of the file")
            at.append(number)
            groups.append(group)
            described.append(about)
            spans.append(span)
            rows.append(count)
            keys += [f"{_stem(name)}/{row:08d}" for row in range(before, before + count)]
            before += count
    if not rows:
        raise DataError.at(where, "contains no samples")
    edges = [np.arange(count + 1) * (b - a) // count for count, (a, b) in zip(rows, spans)]
    index = Index(
        np.arange(len(keys)), np.repeat(np.arange(len(rows)), rows), np.concatenate([each[:-1] for each in edges]),
        np.concatenate([np.diff(each) for each in edges]), np.zeros(len(keys), np.int64), tuple(keys),
    )  # fmt: skip
    begins = [begin for begin, _ in spans]
    made = parquet.RowGroups(
        tuple(described), tuple(groups), tuple(begins), tuple(sizes[files[file]] for file in at)
    )
    about = json.dumps(
        [each.row_group(group).to_dict() for each, group in zip(described, groups)], default=str
    )
    return _made("parquet", index, files, at, begins, sizes, made, about)


def _indexed(
    files: Sequence[str], edges: Sequence[Sequence[int]], where: str, block_samples: int
) -> tuple[Index, list[int], list[int]]:
    """The index of files whose samples lie one behind another; of each block, the number of its file and where it begins.

    Parameters
    ----------
    files : by name.
    edges : of each, where its samples begin, and the end of the last.
    where : what messages call the data set.
    block_samples : samples a block (0: all of a file).
    """
    at: list[int] = []
    begins: list[int] = []
    rows: list[int] = []
    offsets: list[I64] = []
    lengths: list[I64] = []
    keys: list[str] = []
    for number, (name, each) in enumerate(zip(files, edges)):
        bounds = np.asarray(each, np.int64)
        count = len(bounds) - 1
        for first in range(0, count, block_samples or max(1, count)):
            block = bounds[first : first + (block_samples or count) + 1]
            at.append(number)
            begins.append(int(block[0]))
            rows.append(len(block) - 1)
            offsets.append(block[:-1] - block[0])
            lengths.append(np.diff(block))
        keys += [f"{_stem(name)}/{row:08d}" for row in range(count)]
    if not keys:
        raise DataError.at(where, "contains no samples")
    index = Index(
        np.arange(len(keys)), np.repeat(np.arange(len(rows)), rows), np.concatenate(offsets),
        np.concatenate(lengths), np.zeros(len(keys), np.int64), tuple(keys),
    )  # fmt: skip
    return index, at, begins


def _made(
    kind: Kind,
    index: Index,
    files: Sequence[str],
    at: Sequence[int],
    begins: Sequence[int],
    sizes: dict[str, int],
    rows: Rows,
    about: str = "",
) -> DataSet:
    """A data set, with its digest."""
    digest = hashlib.sha256(f"{kind}\n{about}\n".encode())
    digest.update("".join(f"{name}\n{sizes[name]}\n" for name in files).encode("utf-8", "surrogatepass"))
    for array in (index.block, index.offset, index.length, np.asarray(at), np.asarray(begins)):
        digest.update(array.astype("<i8").tobytes())
    return DataSet(
        kind, index, tuple(files[number] for number in at), tuple(begins), digest.hexdigest(), rows
    )


def _stem(name: str) -> str:
    """A file's name without what says its format."""
    folder, slash, last = name.rpartition("/")
    return folder + slash + (last.rpartition(".")[0] or last)


def local_data_set(path: Path, *, block_samples: int = BLOCK_SAMPLES) -> DataSet | None:
    """The data set in a folder, or in a file; None if it is none.

    Parameters
    ----------
    path : of the folder or the file.
    block_samples : see `open_data_set`.
    """
    folder = path.parent if path.is_file() else path
    names = (
        [(path.name, path.stat().st_size)]
        if path.is_file() and path.name != mds.INDEX
        else [(each.relative_to(folder).as_posix(), each.stat().st_size) for each in _files(folder)]
    )
    return open_data_set(names, reading(folder), str(folder), block_samples=block_samples)


def reading(folder: Path) -> ReadFile:
    """Who reads bytes of the files in a folder."""

    def read(name: str, first: int, length: int) -> bytes:
        try:
            with open_regular(folder / name) as file:
                file.seek(first)
                data = file.read(length)
        except OSError as error:
            raise DataError.at(folder / name, unreadable(error)) from error
        if len(data) != length:
            raise DataError.at(folder / name, f"has {len(data)} of {length} bytes from {first} on")
        return data

    return read


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def sample_sizes(path: Path) -> I64 | None:
    """Stored bytes of each sample of a data set; None for a file that is of none.

    Parameters
    ----------
    path : the `index.parquet` of blocks, a Parquet or TFRecord file, or the `index.json` of MDS or LitData.

    Raises DataError for one that is damaged, UsageError without a library.
    """
    if path.name == INDEX:
        index = Index.parse(reading(path.parent)(path.name, 0, path.stat().st_size), path)
        return np.add.reduceat(index.length, index.starts[:-1])
    found = local_data_set(path, block_samples=0)
    return None if found is None else found.index.length
