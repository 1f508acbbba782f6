"""Conversion of samples between files, blocks, WebDataset tar and MDS; of Parquet and TFRecord into these."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final, Literal, get_args

from forerun.atomic_write import working_folder
from forerun.domains.loading.blocks.container import MANIFEST, Blocks
from forerun.domains.loading.blocks.datasets import local_data_set, reading
from forerun.domains.loading.blocks.mds import INDEX as MDS_INDEX
from forerun.domains.loading.blocks.mds import read_mds, write_mds, write_rows
from forerun.domains.loading.blocks.pack import PackSpec, pack, unpack
from forerun.domains.loading.blocks.parts import parts_of
from forerun.domains.loading.blocks.samples import (
    check_keys,
    files_below,
    list_files,
    member_stem,
    part_name,
    sample_groups,
    write_file,
)
from forerun.domains.loading.blocks.shards import refuse_shards, shards_in
from forerun.domains.loading.blocks.tar import read_tar, tar_keys, write_tar
from forerun.errors import DataError, StoreError, UsageError, known_names
from forerun.regular import read_regular, unreadable

Kind = Literal["files", "blocks", "tar", "mds"]
KINDS: tuple[Kind, ...] = get_args(Kind)
#: what is read and not written
Source = Literal["files", "blocks", "tar", "mds", "parquet", "tfrecord", "litdata"]


def kind_of(path: Path) -> Source:
    """What kind of data a path is. A folder with a manifest is blocks, with an index of shards MDS; a folder of shards of
    Parquet or TFRecord is these, else files.

    Raises DataError for a file of a format that is recognised and not read.

    Folders are judged by the names in them, and a few first bytes; an index of MDS shards is read.

    Parameters
    ----------
    path : a file or a folder.
    """
    if path.is_file():
        kind = shards_in(path.parent, [(path.name, path.stat().st_size)])[0]
        if kind in _READ:
            return _READ[kind]
        refuse_shards(path.parent, [(path.name, path.stat().st_size)], path.parent, alone=True)
        return "tar"
    if path.is_dir() and any(path.glob("*.tar")):
        return "tar"
    if (path / MANIFEST).exists():
        return "blocks"
    if (path / MDS_INDEX).exists() and (any(path.glob("*.mds")) or _lists_shards(path / MDS_INDEX)):
        return "mds"
    names = [
        (Path(base, name).relative_to(path).as_posix(), 0)
        for base, _, files in os.walk(path)
        for name in sorted(files)
    ]
    kind, key = shards_in(path, names)
    if kind == "LitData" and key != MDS_INDEX:
        return "files"  # refused when they are listed
    return _READ.get(kind, "files")


_READ: Final[dict[str, Source]] = {"Parquet": "parquet", "TFRecord": "tfrecord", "LitData": "litdata"}


def _lists_shards(index: Path) -> bool:
    """Whether a file is an index of MDS shards, be they compressed or none: such a folder is no folder of files."""
    try:
        listed = json.loads(read_regular(index))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(listed, dict) and isinstance(listed.get("shards"), list) and "version" in listed


def samples_of(path: Path, kind: Source | None = None) -> Iterator[tuple[str, bytes]]:
    """Keys and bytes of the samples of a path, in its order.

    Parameters
    ----------
    path : of shards, a container, or a folder of files.
    kind : of its data (default: as `kind_of` says).

    Raises DataError for what cannot be read.
    """
    match kind or kind_of(path):
        case "tar":
            shards = shards_of(path)
            apart = keys_repeat(shards)
            for shard in shards:
                for key, data in read_tar(shard):
                    yield f"{shard.stem}/{key}" if apart else key, data
        case "mds":
            yield from read_mds(path)
        case "blocks":
            yield from Blocks.open(path)
        case "parquet" | "tfrecord" | "litdata":
            yield from _of_data_set(path)
        case "files":
            for entry in list_files(path):
                try:
                    data = read_regular(entry.path)
                except OSError as error:
                    raise DataError.at(entry.path, unreadable(error)) from error
                yield entry.key, data


def shards_of(path: Path) -> list[Path]:
    """The tar shards that a path is."""
    return [path] if path.is_file() else sorted(path.glob("*.tar"))


def keys_repeat(shards: Sequence[Path]) -> bool:
    """Whether several shards have members of one name, as shards that are numbered each from 0 do.

    Their keys are then kept apart by the name of the shard.
    """
    keys = [key.casefold() for shard in shards for key in tar_keys(shard)] if len(shards) > 1 else []
    return len(set(keys)) < len(keys)


def _of_data_set(path: Path) -> Iterator[tuple[str, bytes]]:
    """The parts of the samples of a data set of another library."""
    found, folder = local_data_set(path), path.parent if path.is_file() else path
    if found is None:
        raise DataError.at(path, "contains no samples")
    read = reading(folder)
    for first, last in pairwise(found.index.first_sample.tolist()):
        for key, sample in found.read(read, first, last, verify=True, where=str(folder)):
            yield from parts_of(key, sample, str(folder))


def convert(source: Path, target: Path, to: Kind, *, spec: PackSpec | None = None) -> int:
    """Write the samples of `source` as `to`; returns how many samples (see `sample_groups`: parts of one count once).

    Blocks are packed from files; those of shards lie beside the target meanwhile, and a killed conversion goes on where
    it stopped. Shards are written beside the target and take its name when all of them are there. Raises UsageError for a
    conversion that is none, DataError for bad samples, StoreError for a target that is not empty or cannot be written.

    Parameters
    ----------
    source : of any kind.
    target : a new folder.
    to : the kind to write.
    spec : samples a block or a shard, order and seed (default: those of `PackSpec`).
    """
    kind = kind_of(source)
    if to not in KINDS:
        raise UsageError.at("--to", f"no kind {to!r}; {known_names(to, KINDS)}")
    if to == "blocks" and kind not in ("blocks", "files"):
        return _packed_anew(source, target, kind, spec)
    if to == "blocks" and kind == "files":
        return len(pack(source, target, spec))
    if kind == to:
        raise UsageError.at(str(source), f"contains {kind} already")
    if to == "files":
        return unpack(source, target) if kind == "blocks" else restore(source, target, kind)
    spec = spec or PackSpec()
    with _whole_or_nothing(target) as partial:
        groups, keys = _groups(source, kind)
        if (
            to == "mds"
            and len(groups) < len(keys)
            and len({_part_names(keys, group) for group in groups}) == 1
        ):
            rows = _rows(_parts_together(source, kind))
            return write_rows(partial, rows, shard_samples=spec.block_samples)
        if to == "mds":
            # No parts, or other parts from sample to sample: one set of columns fits all only a row a part.
            write_mds(partial, samples_of(source, kind), shard_samples=spec.block_samples)
        else:
            _tar_shards(partial, _parts_together(source, kind), spec.block_samples)
        return len(groups)


def _groups(source: Path, kind: Source) -> tuple[list[list[int]], list[str]]:
    """The samples of a source, as numbers of its keys in order, and the keys."""
    if kind == "files":
        keys = [entry.key for entry in list_files(source)]
    elif kind == "blocks":
        keys = list(Blocks.open(source).index.key)
    else:
        keys = [key for key, _ in samples_of(source, kind)]
    return sample_groups(keys), keys


def _part_names(keys: Sequence[str], group: Sequence[int]) -> tuple[str, ...]:
    return tuple(sorted(part_name(keys[number]) for number in group))


def _rows(parts: Iterator[tuple[str, bytes]]) -> Iterator[dict[str, bytes]]:
    """Members that follow each other with one stem, as a row: a column a part, and the stem."""
    for stem, members in groupby(parts, key=lambda part: member_stem(part[0])):
        yield {part_name(key): data for key, data in members} | {"__key__": stem.encode()}


def _packed_anew(source: Path, target: Path, kind: Source, spec: PackSpec | None) -> int:
    """Blocks of the samples in shards, through files in a folder beside the target."""
    with _beside(target) as files:
        restore(source, files, kind)
        # When the shards were written, not when their samples were restored.
        written = max(
            each.stat().st_mtime_ns for each in (source, *(source.rglob("*") if source.is_dir() else ()))
        )
        entries = [replace(entry, modified_ns=written) for entry in files_below(files)]
        return len(pack(entries, target, spec))


@contextmanager
def _whole_or_nothing(target: Path) -> Iterator[Path]:
    """A new folder beside the target that becomes it at the end, and is gone if that is not reached."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreError.at(target, "is not empty; name a new folder")
    with _beside(target) as partial:
        yield partial
        if target.exists():
            target.rmdir()
        partial.rename(target)


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """An empty folder beside the target; StoreError where it cannot be written."""
    try:
        with working_folder(target) as files:
            yield files
    except OSError as error:
        raise StoreError.at(target, f"cannot be written: {error.strerror}; nothing is left of it") from error


def passed_over(folder: Path) -> list[str]:
    """Members of a folder's shards that WebDataset skips: names with no extension, or with nothing before it.

    Parameters
    ----------
    folder : of shards. Their headers alone are read.
    """
    keys = (key for shard in sorted(folder.glob("*.tar")) for key in tar_keys(shard))
    names = ((key, key.rpartition("/")[2]) for key in keys)
    return [key for key, name in names if "." not in name or name.startswith(".")]


def _parts_together(source: Path, kind: Source) -> Iterator[tuple[str, bytes]]:
    """Samples with those of one stem in a row, at the place of the first: shuffled blocks part an image from its class."""
    if kind != "blocks":
        yield from samples_of(source, kind)
        return
    blocks = Blocks.open(source)
    rows: dict[str, list[int]] = {}
    for row, key in enumerate(blocks.index.key):
        rows.setdefault(member_stem(key), []).append(row)
    if all(b - a == 1 for numbers in rows.values() for a, b in pairwise(numbers)):
        yield from blocks
        return
    for numbers in rows.values():
        for row in sorted(numbers, key=lambda row: blocks.index.key[row]):
            yield blocks.index.key[row], blocks.read_sample(row)


def restore(source: Path, target: Path, kind: Source) -> int:
    """Write the samples of tar or MDS shards as files. Raises StoreError where one cannot be written.

    Parameters
    ----------
    source : shards of the kind `kind`.
    target : folder of the files, which may be there already: a file that is whole is not written again.

    Returns how many samples there are.
    """
    groups, keys = _groups(source, kind)
    check_keys(keys, source)
    made: set[str] = set()
    for count, (key, data) in enumerate(samples_of(source, kind)):
        try:
            target.mkdir(parents=True, exist_ok=True)
            write_file(target, key, data, made)
        except OSError as error:
            done = f"{count} of {len(keys)} files are restored"
            raise StoreError.at(target / key, f"cannot be written: {error.strerror}; {done}") from error
    return len(groups)


def _tar_shards(target: Path, members: Iterator[tuple[str, bytes]], shard_samples: int) -> None:
    """Shards of `shard_samples` samples; the parts of one stay in one shard."""
    number = stems = 0
    pending: list[tuple[str, bytes]] = []
    for member in members:
        if not pending or member_stem(member[0]) != member_stem(pending[-1][0]):
            if stems == shard_samples:
                write_tar(target / f"shard-{number:06d}.tar", pending)
                number, stems, pending = number + 1, 0, []
            stems += 1
        pending.append(member)
    if pending:
        write_tar(target / f"shard-{number:06d}.tar", pending)
