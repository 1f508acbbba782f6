"""Conversion of samples between files, blocks and WebDataset tar."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, get_args

from forerun.blocks.container.container import MANIFEST, Blocks
from forerun.blocks.container.pack import PackSpec, pack, unpack
from forerun.blocks.container.samples import (
    check_keys,
    files_below,
    list_files,
    member_stem,
    sample_groups,
    write_file,
)
from forerun.blocks.container.shards import refuse_shards
from forerun.blocks.container.tar import read_tar, tar_members, write_tar
from forerun.core.atomic_write import lock_file
from forerun.core.errors import DataError, StoreError, UsageError, known_names
from forerun.core.regular import read_regular, unreadable

Kind = Literal["files", "blocks", "tar"]
KINDS: tuple[Kind, ...] = get_args(Kind)

#: first bytes of the file that marks a working folder as this program's own
_SIGN: Final = b"forerun: files of a conversion that is under way\n"


def kind_of(path: Path) -> Kind:
    """What kind of data a path is: a file or a folder of `*.tar` is tar, a folder with a manifest is blocks, else files.

    Raises DataError for a file of a format that is recognised and not read.

    Parameters
    ----------
    path : a file or a folder.
    """
    if path.is_file():
        refuse_shards(path.parent, [(path.name, path.stat().st_size)], path.parent, alone=True)
        return "tar"
    if path.is_dir() and any(path.glob("*.tar")):
        return "tar"
    return "blocks" if (path / MANIFEST).exists() else "files"


def samples_of(path: Path, kind: Kind | None = None) -> Iterator[tuple[str, bytes]]:
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
        case "blocks":
            yield from Blocks.open(path)
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
    keys = [key.casefold() for shard in shards for key, _ in tar_members(shard)] if len(shards) > 1 else []
    return len(set(keys)) < len(keys)


@contextmanager
def working_folder(target: Path) -> Iterator[Path]:
    """An empty temporary folder next to `target`, used by one process at a time and removed at the end.

    Its name depends on `target` alone, so what a killed process left in it is removed first. Raises StoreError if another
    process is using it or if the folder belongs to another program, OSError if it cannot be created.
    """
    name = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:12]
    folder = target.with_name(f".forerun-converting-{name}")
    claim = folder / "claim"
    folder.mkdir(parents=True, exist_ok=True)
    names = [path.name for path in folder.iterdir()]
    if folder.is_symlink() or (names and "claim" not in names):
        raise StoreError.at(folder, "exists and is not of this program; remove it or name another target")
    file = os.open(claim, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
    try:
        if os.read(file, len(_SIGN) + 1) not in (_SIGN, b"") or not os.path.samestat(
            os.fstat(file), claim.stat()
        ):
            raise StoreError.at(folder, "exists and is not of this program; remove it or name another target")
        try:
            lock_file(file)
        except OSError as error:
            raise StoreError.at(target, "is being converted into by another process") from error
        os.pwrite(file, _SIGN, 0)
        try:
            shutil.rmtree(folder / "files", ignore_errors=True)
            (folder / "files").mkdir()
            yield folder / "files"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(file)


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
    if kind == to:
        raise UsageError.at(str(source), f"contains {kind} already")
    if to == "blocks":
        return _packed_anew(source, target, spec) if kind == "tar" else len(pack(source, target, spec))
    if to == "files":
        return unpack(source, target) if kind == "blocks" else restore(source, target)
    with _whole_or_nothing(target) as partial:
        keys = (
            Blocks.open(source).index.key if kind == "blocks" else [entry.key for entry in list_files(source)]
        )
        _tar_shards(partial, _parts_together(source, kind), (spec or PackSpec()).block_samples)
        return len(sample_groups(keys))


def _packed_anew(source: Path, target: Path, spec: PackSpec | None) -> int:
    """Blocks of the samples in shards, through files in a folder beside the target."""
    with _beside(target) as files:
        restore(source, files)
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
    keys = (key for shard in sorted(folder.glob("*.tar")) for key, _ in tar_members(shard))
    names = ((key, key.rpartition("/")[2]) for key in keys)
    return [key for key, name in names if "." not in name or name.startswith(".")]


def _parts_together(source: Path, kind: Kind) -> Iterator[tuple[str, bytes]]:
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


def restore(source: Path, target: Path) -> int:
    """Write the samples of tar shards as files. Raises StoreError where one cannot be written.

    Parameters
    ----------
    source : a tar, or a folder of them.
    target : folder of the files, which may be there already: a file that is whole is not written again.

    Returns how many samples there are.
    """
    keys = [key for key, _ in samples_of(source, "tar")]
    check_keys(keys, source)
    made: set[str] = set()
    for count, (key, data) in enumerate(samples_of(source, "tar")):
        try:
            target.mkdir(parents=True, exist_ok=True)
            write_file(target, key, data, made)
        except OSError as error:
            done = f"{count} of {len(keys)} files are restored"
            raise StoreError.at(target / key, f"cannot be written: {error.strerror}; {done}") from error
    return len(sample_groups(keys))


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
