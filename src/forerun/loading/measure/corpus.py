"""What is measured: a container of blocks, local or behind a URL, read in pieces of any size up to its blocks.

A plain directory is measured through a bounded part of it, packed into a temporary container; single samples are then
read as the files they are. Plain files behind a URL or on a network file system are measured as they are, one file a
request: a container made here would not be read from there. A corpus can also be made: files of lognormal sizes.
"""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import numpy as np

from forerun.blocks.container.container import (
    INDEX,
    MANIFEST,
    Blocks,
    Index,
    block_name,
    checked_index,
    parse_manifest,
)
from forerun.blocks.container.convert import kind_of
from forerun.blocks.container.corpus import write_files
from forerun.blocks.container.pack import PackSpec, pack
from forerun.blocks.container.samples import FileEntry, list_files, sample_groups
from forerun.blocks.container.shards import payload_of, refuse_shards
from forerun.blocks.reader.clients import Client, LocalFiles, Wrapping, open_client
from forerun.core.errors import DataError, StoreError
from forerun.core.rng import stream
from forerun.loading.measure.runner import Piece

#: of a plain directory, at most this many files and bytes are packed for measuring
MOST_FILES: Final = 4096
MOST_BYTES: Final = 512 * 1024**2
PACK_SAMPLES: Final = 256
#: of plain files behind a URL, at most this many names are asked for
MOST_LISTED: Final = 100_000


@dataclass(frozen=True)
class Corpus:
    """A client, and the index of what it reads.

    Parameters
    ----------
    name : as the user gave it.
    client : reads blocks.
    index : of the samples in them.
    files : reads single samples where they are files of their own (default: none are).
    checked : whether the index knows the samples' checksums; it does not of files that were only listed (default: yes).
    system : the network file system of a folder that is read file by file (default: empty: it lies on none).
    passed_over : files of a folder or a URL that are no samples.
    """

    name: str
    client: Client
    index: Index
    files: Client | None = None
    checked: bool = True
    system: str = ""
    passed_over: tuple[str, ...] = ()

    @property
    def samples(self) -> int:
        """Samples there are; parts of one count once."""
        return self.index.samples

    @property
    def mean_bytes(self) -> float:
        """Mean size of a sample."""
        return float(self.index.length.sum()) / self.samples

    @property
    def largest_piece(self) -> int:
        """Samples of the largest block: no request can be for more."""
        return int(np.diff(self.index.first_sample).max())

    def pieces(self, block: int, samples: int, start: int = 0) -> list[Piece]:
        """`samples` samples in pieces of `block`, from the `start`-th piece on, wrapping round.

        Pieces do not cross the edges of blocks.

        Parameters
        ----------
        block : samples a piece.
        samples : in all.
        start : the number of the first piece, so that repeats read other data (default: 0).
        """
        edges = self.index.first_sample.tolist()
        every = [
            range(at, min(at + block, last))
            for first, last in itertools.pairwise(edges)
            for at in range(first, last, block)
            if at + block <= last or last - first < block
        ]
        pieces: list[Piece] = []
        read = 0
        while read < samples:
            chosen = every[(start + len(pieces)) % len(every)]
            chosen = chosen[: samples - read]
            pieces.append(self.piece(chosen))
            read += len(chosen)
        return pieces

    def piece(self, samples: range) -> Piece:
        """Consecutive samples of one block; a single one as its own file, where there are files.

        Parameters
        ----------
        samples : their numbers, in one block.
        """
        starts = self.index.starts[samples.start : samples.stop + 1].tolist()
        first = starts[0]
        sizes = self.index.length[first : starts[-1]].tolist()
        crc32 = tuple(self.index.crc32[first : starts[-1]].tolist()) if self.checked else ()
        keys = self.index.key[first : starts[-1]]
        each = tuple(tuple(sizes[a - first : b - first]) for a, b in itertools.pairwise(starts))
        lengths = tuple(map(sum, each))
        parts = each if len(sizes) > len(each) else ()
        if len(samples) == 1 and self.files is not None:
            what = "files of its own" if parts else "a file of its own"
            return Piece(keys[0], 0, lengths, what, crc32, keys, parts)
        block = int(self.index.block[first])
        what = f"block {block}, sample {keys[0]!r}"
        return Piece(block_name(block), int(self.index.offset[first]), lengths, what, crc32, keys, parts)

    def client_for(self, block: int) -> Client:
        """Who reads pieces of this size.

        Parameters
        ----------
        block : samples a piece.
        """
        return self.files if block == 1 and self.files is not None else self.client


@contextmanager
def open_corpus(source: str, *, token: str = "", include: str = "") -> Iterator[Corpus]:
    """The corpus at a URL of a container, in a container's folder, or made of a plain directory.

    Raises DataError or StoreError for what cannot be measured.

    Parameters
    ----------
    source : a folder, or a URL.
    token : bearer token of an HTTP store (default: none).
    include : pattern of the names of plain files that are samples (default: see `samples_among`).
    """
    if "://" in source:
        client = open_client(source, token)
        try:
            head = client.read_whole(MANIFEST)
        except StoreError as absent:
            yield _listed(source, client, absent, include)
            return
        manifest = parse_manifest(head, f"{source}/{MANIFEST}")
        yield Corpus(source, client, checked_index(manifest, client.read_whole(INDEX), f"{source}/{INDEX}"))
        return
    folder_path = Path(source)
    if (folder_path / MANIFEST).exists():
        yield Corpus(source, LocalFiles(folder_path), Blocks.open(folder_path).index)
        return
    kind = kind_of(folder_path) if folder_path.exists() else "files"
    if kind == "tar":
        raise DataError.at(
            source,
            f"contains WebDataset tar shards, which are read as a whole: run `forerun pack {source} OUT`, measure OUT",
        )
    listed = list_files(folder_path)
    chosen = set(samples_among([(entry.key, entry.size_bytes) for entry in listed], source, include))
    files = [entry for entry in listed if entry.key in chosen]
    passed_over = tuple(entry.key for entry in listed if entry.key not in chosen)
    if system := network_of(folder_path):
        yield _unpacked(source, LocalFiles(folder_path), files, system, passed_over)
        return
    with tempfile.TemporaryDirectory(prefix="forerun-measure-") as temporary:
        part = Path(temporary) / "files"
        read = count = 0
        groups = sample_groups([entry.key for entry in files])
        for entry in (files[at] for group in groups[:: max(1, len(files) // MOST_FILES)] for at in group):
            if count == MOST_FILES or read + entry.size_bytes > MOST_BYTES:
                break
            copy = part / entry.key
            try:
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(entry.path.read_bytes())
            except OSError as error:
                raise StoreError.at(
                    error.filename or entry.path, f"{error.strerror}, while a part was packed for measuring"
                ) from error
            read, count = read + entry.size_bytes, count + 1
        blocks = pack(part, Path(temporary) / "blocks", PackSpec(PACK_SAMPLES))
        yield Corpus(
            source, LocalFiles(blocks.folder), blocks.index, files_of(LocalFiles(folder_path), blocks.index),
            passed_over=passed_over,
        )  # fmt: skip


def samples_among(files: Sequence[tuple[str, int]], where: str, include: str = "") -> list[str]:
    """The names of the files that are samples, or parts of samples.

    Without a pattern, empty files are none where they are a tenth at most, nor are hidden ones, tables and texts
    (`.DS_Store`, `labels.csv`) where most files are others.

    Parameters
    ----------
    files : names and bytes.
    where : they lie, for messages.
    include : pattern such as `*.jpg`, of whole names or of their last parts (default: none).

    Raises DataError where none is left.
    """
    names = [name for name, _ in files]
    if include:
        found = [
            name
            for name in names
            if fnmatchcase(name, include) or fnmatchcase(name.rpartition("/")[2], include)
        ]
    else:
        payload = set(payload_of(files))
        others = len(payload) <= len(files) / 2
        many = sum(not size for _, size in files) > len(files) / 10
        groups = [
            group
            for group in sample_groups(names)
            if (many or any(files[at][1] for at in group))
            and (others or any(names[at] in payload for at in group))
        ]
        found = [names[at] for at in sorted(at for group in groups for at in group)]
    if not found:
        raise DataError.at(where, f"none of its {len(files)} files matches {include}")
    return found


#: file systems whose files lie elsewhere: what is packed beside them would not be read from there
NETWORK: Final = re.compile(r"nfs\d?|cifs|smb.*|9p|ceph|lustre|gpfs|beegfs|glusterfs|afs|fuse\..+|virtiofs")


def network_of(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The name of the network file system that a folder lies on.

    Empty if the folder lies on none, or if that is unknown.

    Parameters
    ----------
    folder : any.
    mounts : the kernel's table of mounts (default: of this process).
    """
    try:
        number, lines = folder.stat().st_dev, mounts.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for fields in map(str.split, lines):
        if len(fields) > 4 and fields[2] == f"{os.major(number)}:{os.minor(number)}" and "-" in fields:
            name = fields[fields.index("-") + 1]
            if NETWORK.fullmatch(name):
                return name
    return ""


def _unpacked(
    source: str, client: Client, files: Sequence[FileEntry], system: str, passed_over: tuple[str, ...]
) -> Corpus:
    """Files of a folder as they are, one a request: blocks of them would have to lie on the same storage.

    Parameters
    ----------
    files : of the folder, those that are samples.
    system : the network file system on which they lie.
    passed_over : the others.
    """
    index = _index_of([(entry.key, entry.size_bytes) for entry in files])
    return Corpus(
        source,
        client,
        index,
        files=files_of(client, index),
        checked=False,
        system=system,
        passed_over=passed_over,
    )


def _index_of(files: Sequence[tuple[str, int]]) -> Index:
    """Files (names and bytes) as they are, each sample a block.

    Offsets are 0 and checksums are unknown.

    Parameters
    ----------
    files : names and bytes.
    """
    groups = sample_groups([name for name, _ in files])
    ordered = [files[at] for group in groups for at in group]
    sample = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    sizes, none = np.array([size for _, size in ordered], np.int64), np.zeros(len(ordered), np.int64)
    return Index(sample, sample, none, sizes, none, tuple(name for name, _ in ordered))


def files_of(client: Client, index: Index) -> Client:
    """Who reads single samples: the client itself, or all the files of a sample one after another.

    Parameters
    ----------
    client : reads a file.
    index : of the samples, which have the files' names as keys.
    """
    if index.samples == len(index):
        return client
    parts = {
        index.key[a]: tuple(zip(index.key[a:b], index.length[a:b].tolist()))
        for a, b in itertools.pairwise(index.starts.tolist())
    }
    return SampleFiles(client, parts)


@dataclass
class SampleFiles(Wrapping):
    """Samples of several files, each by the name of its first: a loader reads one file after another."""

    parts: Mapping[str, tuple[tuple[str, int], ...]]

    def read(self, name: str, first: int, length: int, what: str) -> bytes:
        """See `Client`; of a sample, all there is."""
        return b"".join(self.client.read(file, 0, size, what) for file, size in self.parts[name])


def _listed(source: str, client: Client, absent: StoreError, include: str) -> Corpus:
    """The files that a URL lists, where no container's manifest can be read (`absent`: why).

    Parameters
    ----------
    source : the URL.
    client : its reader.
    absent : why there is no manifest; raised where files cannot be listed either.
    """
    try:
        names = list(itertools.islice(client.names(), MOST_LISTED))
    except StoreError as unlisted:
        raise StoreError(*dict.fromkeys((*absent.problems, *unlisted.problems))) from None
    if any(name == MANIFEST for name, _ in names):
        raise absent
    if not names:
        raise DataError.at(source, "contains no files")
    refuse_shards(None, names, source)
    chosen = set(samples_among(names, source, include))
    index = _index_of([pair for pair in names if pair[0] in chosen])
    passed_over = tuple(name for name, _ in names if name not in chosen)
    return Corpus(
        source, client, index, files=files_of(client, index), checked=False, passed_over=passed_over
    )


def make_corpus(
    folder: Path, samples: int, *, mean_bytes: float = 53_428, sigma: float = 0.55, seed: int = 0
) -> None:
    """Write files of lognormal sizes, a hundred to a folder, of bytes that do not compress.

    Parameters
    ----------
    folder : a new or empty one.
    samples : how many.
    mean_bytes, sigma : of the sizes, clipped to 20 times the mean (defaults 53,428 and 0.55).
    seed : of sizes and content (default: 0).
    """
    rng = stream(seed, "corpus")
    sizes = np.clip(
        mean_bytes * np.exp(sigma * rng.standard_normal(samples) - sigma**2 / 2), 1, 20 * mean_bytes
    )
    write_files(folder, sizes.astype(int).tolist(), rng)
