"""Unpacking archives from the network: only regular files, only below the target, only so much."""

from __future__ import annotations

import os
import tarfile
import tempfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from forerun.core.errors import DataError
from forerun.core.regular import open_regular, unreadable

BLOCK_BYTES = 1 << 18
MOST_LEVELS = 64
#: limits of an archive: its members, bytes written, and bytes written over bytes read
MOST_MEMBERS = 100_000
MOST_BYTES = 4 << 30
MOST_EXPANSION = 400


@contextmanager
def unpacked(archive: Path, *, wanted: Collection[str] = ()) -> Iterator[tuple[Path, ...]]:
    """The files of a tar archive in a temporary folder that goes away afterwards.

    wanted: file names to unpack, without folders; all if empty. The whole archive is inspected all the
    same: one member with an absolute name, a way out of the folder, a link or a device refuses it, as do
    too many members or bytes. Raises DataError naming archive and member.
    """
    with tempfile.TemporaryDirectory(prefix="forerun-archive-") as folder:
        yield tuple(_unpack(archive, Path(folder), set(wanted)))


def _unpack(archive: Path, folder: Path, wanted: set[str]) -> Iterator[Path]:
    try:
        with open_regular(archive):
            budget = _Budget(archive)
        if not tarfile.is_tarfile(archive):
            raise DataError.at(archive.name, "is no tar archive")
        yield from _untar(archive, folder, wanted, budget)
    except (tarfile.TarError, zlib.error, EOFError, RuntimeError) as error:
        raise DataError.at(archive.name, f"is damaged or not readable: {error}") from None
    except OSError as error:
        raise DataError.at(archive.name, unreadable(error)) from None


class _Budget:
    """What an archive may still use; `spend` raises when it has used too much."""

    def __init__(self, archive: Path) -> None:
        self.name = archive.name
        self.members = 0
        self.bytes = 0
        self.most = min(MOST_BYTES, max(64 << 20, MOST_EXPANSION * archive.stat().st_size))

    def next_member(self, size: int) -> None:
        self.members += 1
        if self.members > MOST_MEMBERS:
            raise DataError.at(self.name, f"has more than {MOST_MEMBERS} members")
        if self.bytes + size > self.most:
            raise DataError.at(self.name, f"unpacks to more than {self.most} bytes; taken for a bomb")

    def spend(self, count: int) -> None:
        self.bytes += count
        if self.bytes > self.most:
            raise DataError.at(self.name, f"unpacks to more than {self.most} bytes; taken for a bomb")


def _untar(archive: Path, folder: Path, wanted: set[str], budget: _Budget) -> Iterator[Path]:
    with tarfile.open(archive, "r:*") as tar:
        for member in tar:
            budget.next_member(member.size)
            if member.islnk() or member.issym():
                raise DataError.at(
                    f"{archive.name}:{member.name}", "is a link; archives with links are refused"
                )
            if not (member.isfile() or member.isdir()):
                raise DataError.at(f"{archive.name}:{member.name}", "is neither a file nor a folder")
            target = _target(archive, member.name, folder)
            try:
                tarfile.data_filter(member, str(folder))
            except tarfile.FilterError as error:
                raise DataError.at(f"{archive.name}:{member.name}", f"is refused: {error}") from None
            if member.isdir() or (wanted and target.name not in wanted):
                budget.spend(member.size)
                continue
            content = tar.extractfile(member)
            assert content is not None, "a regular file has content"
            yield _written(content, target, f"{archive.name}:{member.name}", budget)


def _target(archive: Path, name: str, folder: Path) -> Path:
    """Where a member goes; DataError unless that is below the folder on every system."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not parts or "\0" in name:
        raise DataError.at(f"{archive.name}:{name!r}", "is no name of a file")
    if parts[0].startswith("/") or ":" in parts[0] or ".." in parts:
        raise DataError.at(f"{archive.name}:{name}", "leads out of the folder it is unpacked to")
    if len(parts) > MOST_LEVELS:
        raise DataError.at(f"{archive.name}:{name[:80]}", f"lies more than {MOST_LEVELS} folders deep")
    return folder.joinpath(*parts)


def _written(content: IO[bytes], target: Path, name: str, budget: _Budget) -> Path:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except (FileExistsError, NotADirectoryError):
        raise DataError.at(name[:200], "stands twice in the archive, or as a file and a folder") from None
    except OSError as error:
        raise DataError.at(name[:200], f"cannot be written: {error.strerror or error}") from None
    with os.fdopen(handle, "wb") as file:
        while block := content.read(BLOCK_BYTES):
            budget.spend(len(block))
            try:
                file.write(block)
            except OSError as error:
                raise DataError.at(name[:200], f"cannot be written: {error.strerror or error}") from None
    return target
