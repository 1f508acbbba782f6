"""Packing files into blocks, resumable and verified, and back.

A pack is planned first: keys, sizes and order are fixed and their digest written beside the blocks. Each block is
written under a temporary name, synced and renamed; a pack that was killed finds its plan and its finished blocks and
goes on, and ends in the same bytes. The source is only read.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np

from forerun.blocks.container.container import (
    FORMAT,
    INDEX,
    MANIFEST,
    VERSION,
    Blocks,
    Index,
    block_name,
)
from forerun.blocks.container.samples import FileEntry, in_order, list_files, sample_groups, write_file
from forerun.core.errors import DataError, StoreError
from forerun.core.regular import followed, unreadable
from forerun.core.rng import stream

Order = Literal["shuffled", "sorted", "class"]

#: the plan of a pack that is not finished
JOURNAL: Final = "packing.json"
#: files that are read at a time where they lie behind a network
FETCHED_AT_A_TIME: Final = 16

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PackSpec:
    """How to pack.

    Parameters
    ----------
    block_samples : samples a block (default: 64).
    block_bytes : bytes a block instead, if above 0 (default: 0).
    order : `shuffled` (default): a seeded permutation; `sorted`: by key; `class`: by the first folder of the key,
        shuffled within.
    seed : of the permutation (default: 0).
    """

    block_samples: int = 64
    block_bytes: int = 0
    order: Order = "shuffled"
    seed: int = 0


def order_of(keys: Sequence[str], spec: PackSpec) -> list[int]:
    """The samples (numbers in sorted order of keys) as they are packed.

    Parameters
    ----------
    keys : of the samples, sorted; of one with several parts the first key.
    spec : order and seed.
    """
    if spec.order == "sorted":
        return list(range(len(keys)))
    shuffled = stream(spec.seed, "pack order").permutation(len(keys)).tolist()
    if spec.order == "shuffled":
        return [int(i) for i in shuffled]
    return sorted((int(i) for i in shuffled), key=lambda i: keys[i].split("/")[0] if "/" in keys[i] else "")


def cut(sizes: Sequence[int], spec: PackSpec) -> list[range]:
    """The stretches of the order that make each block.

    Parameters
    ----------
    sizes : bytes of each sample in the order of packing.
    spec : samples or bytes a block; a sample larger than the bytes of a block is a block of its own.
    """
    if not spec.block_bytes:
        return [
            range(a, min(a + spec.block_samples, len(sizes)))
            for a in range(0, len(sizes), spec.block_samples)
        ]
    return [range(a, b) for a, b in itertools.pairwise(edges_by_bytes(sizes, spec.block_bytes))]


def edges_by_bytes(sizes: Sequence[float], block_bytes: float) -> list[int]:
    """Where blocks begin that are cut by size, and the number of samples.

    Parameters
    ----------
    sizes : bytes of each sample in order.
    block_bytes : a block ends before the sample with which it would be larger.
    """
    edges, so_far = [0], 0.0
    for at, size in enumerate(sizes):
        if at > edges[-1] and so_far + size > block_bytes:
            edges.append(at)
            so_far = 0.0
        so_far += size
    return [*edges, len(sizes)]


def pack(
    source: Path | Sequence[FileEntry],
    target: Path,
    spec: PackSpec | None = None,
    *,
    order: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Blocks:
    """Pack the files below a directory, or entries that lie elsewhere; goes on where an earlier pack of the same plan
    stopped.

    Parts of one sample (see `sample_groups`) lie together, and count as one.

    Parameters
    ----------
    source : a directory, or entries that lie elsewhere (see `in_order`).
    target : a new folder, or one with an unfinished pack of the same plan.
    spec : samples a block, order and seed (default: those of `PackSpec`).
    order : numbers of the samples in the order to pack them, in place of the spec's order (default: none).
    progress : called with the blocks done and all blocks (default: nothing is called).

    Raises DataError for a source that cannot be packed or changed meanwhile, StoreError for a target that contains
    something else or cannot be written.
    """  # fmt: skip
    spec = spec or PackSpec()
    if spec.block_samples < 1 or spec.block_bytes < 0:
        raise DataError.at("block_samples", "a block has at least one sample; bytes a block are not negative")
    if isinstance(source, Path):
        if _inside(target, source):
            raise StoreError.at(target, f"lies inside the source {source}")
        files: Sequence[FileEntry] = list_files(source)
    else:
        files = in_order(source, target)
    groups = sample_groups([entry.key for entry in files])
    chosen = list(order) if order is not None else order_of([files[group[0]].key for group in groups], spec)
    packed = [files[number] for sample in chosen for number in groups[sample]]
    numbers = [sample for sample in chosen for _ in groups[sample]]
    parts = [len(groups[sample]) for sample in chosen]
    ends = [0, *itertools.accumulate(parts)]
    sizes = [sum(files[number].size_bytes for number in groups[sample]) for sample in chosen]
    pieces = [range(ends[piece.start], ends[piece.stop]) for piece in cut(sizes, spec)]
    plan = _digest_of(packed, numbers, pieces, spec)
    if (target / MANIFEST).exists():
        return _already(target, plan, files)
    _begin(target, plan, files)
    crcs: list[int] = []
    digests: list[str] = []
    blocks = [[packed[at] for at in piece] for piece in pieces]
    done = [_finished(target / block_name(number), entries) for number, entries in enumerate(blocks)]
    missing = _read_ahead(entries for entries, there in zip(blocks, done) if not there)
    # While the disk takes a block, the next one is read and checksums are made; there is one in transfer at most.
    with ThreadPoolExecutor(1) as writer:
        written: Future[None] | None = None
        for number, entries in enumerate(blocks):
            data = (target / block_name(number)).read_bytes() if done[number] else next(missing)
            if written is not None:
                written.result()
            if progress is not None and number:
                progress(number, len(pieces))
            if not done[number]:
                so_far = f"{number} of {len(pieces)} blocks are done"
                written = writer.submit(_write, target / block_name(number), data, so_far)
            at = 0
            for entry in entries:
                crcs.append(zlib.crc32(memoryview(data)[at : at + entry.size_bytes]))
                at += entry.size_bytes
            digests.append(hashlib.sha256(data).hexdigest())
        if written is not None:
            written.result()
    if progress is not None:
        progress(len(pieces), len(pieces))
    index = _index(packed, numbers, pieces, crcs)
    return _finish(target, index, digests, spec, plan, explicit=order is not None)


def unpack(source: Path, target: Path, *, progress: Progress | None = None) -> int:
    """Restore every sample of a container under its key; returns how many.

    Raises DataError for a container that is damaged, a key that is unsafe, or a file with other contents.

    Parameters
    ----------
    source : a container.
    target : folder of the files.
    progress : called now and then with the parts that are done and all parts.
    """
    blocks = Blocks.open(source)
    target.mkdir(parents=True, exist_ok=True)
    made: set[str] = set()
    for number, (key, data) in enumerate(blocks):
        with _explained(target / key, f"{number} of {len(blocks.index)} samples are restored"):
            write_file(target, key, data, made)
        if progress is not None and (number + 1) % 256 == 0:
            progress(number + 1, len(blocks.index))
    return len(blocks)


def _inside(path: Path, folder: Path) -> bool:
    """Whether a path lies in a folder, all links followed."""
    try:
        return followed(path).is_relative_to(followed(folder))
    except OSError as error:
        raise StoreError.at(error.filename, unreadable(error)) from None


def _digest_of(
    packed: Sequence[FileEntry], numbers: Sequence[int], pieces: Sequence[range], spec: PackSpec
) -> str:
    """The digest of a plan: equal digests mean equal blocks, as long as files of equal size have equal content.

    Parameters
    ----------
    packed : the files, in the order of packing.
    numbers : the sample that each belongs to.
    pieces : the files of each block, as ranges of `packed`.
    spec : order and seed, which are part of the plan.
    """
    digest = hashlib.sha256(f"{VERSION} {spec.order} {spec.seed} {[len(piece) for piece in pieces]}".encode())
    for entry, number in zip(packed, numbers):
        digest.update(f"{number} {entry.size_bytes} {entry.key}\n".encode())
    return digest.hexdigest()


def _already(target: Path, plan: str, files: Sequence[FileEntry]) -> Blocks:
    """The container that is complete already. Raises StoreError if it is of another plan, or a file was edited since."""
    blocks = Blocks.open(target)
    if blocks.manifest.get("plan_sha256") != plan:
        raise StoreError.at(target, "already contains blocks of other files, order or block size")
    if (target / MANIFEST).stat().st_mtime_ns < _newest(files).modified_ns:
        raise StoreError.at(
            target, f"already contains blocks of these files before {_EDITED.format(_newest(files).key)}"
        )
    return blocks


_EDITED: Final = "{!r} was edited; remove it or pack elsewhere"


def _newest(files: Sequence[FileEntry]) -> FileEntry:
    return max(files, key=lambda entry: entry.modified_ns)


def _begin(target: Path, plan: str, files: Sequence[FileEntry]) -> None:
    """Write the plan beside the blocks, or find it there.

    Raises StoreError for a folder with other contents, and where files were edited since.
    """
    journal = target / JOURNAL
    times = hashlib.sha256(repr([entry.modified_ns for entry in files]).encode()).hexdigest()
    if journal.exists():
        try:
            known = json.loads(journal.read_text())
            same, untouched = known["plan_sha256"] == plan, known["times_sha256"] == times
        except (OSError, ValueError, KeyError, TypeError):
            same = untouched = False
        if same and untouched:
            return
        why = (
            f"these files before {_EDITED.format(_newest(files).key)}"
            if same
            else ("other files, order or block size; remove it or pack elsewhere")
        )
        raise StoreError.at(target, f"contains an unfinished pack of {why}")
    # A pack killed at its very first write leaves half a journal, under the temporary name.
    left = target.is_dir() and all(path.name == JOURNAL + ".part" for path in target.iterdir())
    if target.exists() and not left:
        raise StoreError.at(target, "already contains something that is no unfinished pack")
    with _explained(target, "nothing is done yet"):
        target.mkdir(parents=True, exist_ok=True)
        _replace(journal, json.dumps({"plan_sha256": plan, "times_sha256": times}).encode())


def _finished(path: Path, entries: Sequence[FileEntry]) -> bool:
    """Whether a block was written before: it has its name only when it is whole."""
    return path.exists() and path.stat().st_size == sum(entry.size_bytes for entry in entries)


def _read_ahead(blocks: Iterable[Sequence[FileEntry]]) -> Iterator[bytes]:
    """The bytes of each block. Files that lie elsewhere are each a wait: several are asked for at a time."""
    with ThreadPoolExecutor(FETCHED_AT_A_TIME) as pool:
        asked: deque[list[Future[bytes]]] = deque()
        try:
            for entries in blocks:
                if entries[0].fetch is None:
                    yield b"".join(map(_whole, entries))
                    continue
                asked.append([pool.submit(_whole, entry) for entry in entries])
                while sum(map(len, asked)) > 2 * FETCHED_AT_A_TIME:
                    yield b"".join(future.result() for future in asked.popleft())
            while asked:
                yield b"".join(future.result() for future in asked.popleft())
        finally:
            for future in (future for block in asked for future in block):
                future.cancel()


def _whole(entry: FileEntry) -> bytes:
    try:
        data = entry.read()
    except OSError as error:
        raise DataError.at(
            entry.path, f"cannot be read: {error.strerror}; what is packed so far stays"
        ) from error
    if len(data) != entry.size_bytes:
        raise DataError.at(entry.path, f"had {entry.size_bytes} bytes when planned and has {len(data)} now")
    return data


def _write(path: Path, data: bytes, so_far: str) -> None:
    with _explained(path, so_far):
        _replace(path, data)


def _replace(path: Path, data: bytes) -> None:
    """Write under a temporary name, sync, rename: the name never shows half of it."""
    partial = path.with_name(path.name + ".part")
    try:
        partial.unlink(missing_ok=True)
        with partial.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def _explained(path: Path, so_far: str) -> Iterator[None]:
    """Turns a failed write into a StoreError that names what is already packed."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "free space and run it again" if full else "run it again when it can be"
        raise StoreError.at(path, f"cannot be written: {error.strerror}; {so_far}, {advice}") from error


def _index(
    packed: Sequence[FileEntry], numbers: Sequence[int], pieces: Sequence[range], crcs: Sequence[int]
) -> Index:
    """The index of blocks that are all written.

    Parameters
    ----------
    packed, numbers, pieces : as for `_digest_of`.
    crcs : checksum of each file, in the order of packing.
    """
    lengths = np.array([entry.size_bytes for entry in packed], np.int64)
    block = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
    ends = np.cumsum(lengths)
    start = np.array([ends[piece.start] - lengths[piece.start] for piece in pieces], np.int64)
    return Index(
        sample=np.asarray(numbers, np.int64),
        block=block.astype(np.int64),
        offset=ends - lengths - start[block],
        length=lengths,
        crc32=np.array(crcs, np.int64),
        key=tuple(entry.key for entry in packed),
    )


def _finish(
    target: Path, index: Index, digests: list[str], spec: PackSpec, plan: str, *, explicit: bool
) -> Blocks:
    """Write the index, then the manifest, which makes the container complete, and remove the plan.

    Parameters
    ----------
    target : folder of the container.
    index : of its samples.
    digests : of each block.
    spec : how it was packed, for the manifest.
    plan : digest of the plan.
    explicit : whether the order was given, not the spec's.
    """
    partial = target / (INDEX + ".part")
    with _explained(target, f"all {len(digests)} blocks are done"):
        partial.unlink(missing_ok=True)
        index.write(partial)
        partial.replace(target / INDEX)
        manifest = {
            "format": FORMAT, "version": VERSION, "samples": index.samples, "blocks": len(digests),
            "bytes": int(index.length.sum()), "block_samples": spec.block_samples, "block_bytes": spec.block_bytes,
            "order": "explicit" if explicit else spec.order, "seed": spec.seed, "plan_sha256": plan,
            "index_sha256": hashlib.sha256((target / INDEX).read_bytes()).hexdigest(), "block_sha256": digests,
        }  # fmt: skip
        if len(index) != index.samples:
            manifest["parts"] = len(index)
        _replace(target / MANIFEST, (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode())
        (target / JOURNAL).unlink(missing_ok=True)
    return Blocks.open(target)
