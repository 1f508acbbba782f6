"""WebDataset tar shards: written deterministically, read without trusting them.

Members are regular files named by the samples' keys, in USTAR, with time 0, mode 0644 and no owner.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from forerun.blocks.container.samples import again, unsafe
from forerun.blocks.container.shards import unpacking
from forerun.core.errors import DataError
from forerun.core.regular import open_regular, unreadable


def write_tar(path: Path, samples: Iterable[tuple[str, bytes]]) -> int:
    """Write a shard; returns its samples.

    Parameters
    ----------
    path : of the new file.
    samples : keys and bytes, in the order of the members.

    Raises DataError for a key that USTAR cannot hold.
    """
    count = 0
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for key, data in samples:
            member = tarfile.TarInfo(key)
            member.size, member.mode = len(data), 0o644
            try:
                archive.addfile(member, io.BytesIO(data))
            except ValueError as error:
                raise DataError.at(path, f"key {key[:80]!r} does not fit a tar header: {error}") from error
            count += 1
    return count


def read_tar(path: Path) -> Iterator[tuple[str, bytes]]:
    """The samples of a shard in order.

    A leading `./` of a name is dropped, folders are passed over.

    Parameters
    ----------
    path : of a tar that is not compressed.

    Raises DataError for links, devices, unsafe or double names, members that are cut short, damaged headers, an end without
    its mark or with more behind it, and what is no plain tar.
    """
    for key, _, content in _members(path):
        yield key, content.read()


def tar_members(path: Path) -> list[tuple[str, int]]:
    """Name and bytes of a shard's members, by its headers alone. Raises DataError as `read_tar` does."""
    return [(key, size) for key, size, _ in _members(path)]


def _members(path: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Key, bytes and content of each member."""
    seen: dict[str, str] = {}
    try:
        packer, size = _packed_by(path), path.stat().st_size
    except OSError as error:
        raise DataError.at(path, unreadable(error)) from error
    if packer:
        raise DataError.at(
            path, f"is compressed by {packer}; decompress it with {unpacking(path.name, packer)}"
        )
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                if member.isdir():
                    continue
                key = re.sub(r"^(\./)+", "", member.name)  # as `tar -C dir .` writes names
                why = unsafe(key) or again(key, seen)
                if not member.isreg() or member.issparse():
                    why = "is a link, a device or a sparse file"
                elif member.offset_data + member.size > size:
                    why = f"claims {member.size} bytes, the file ends before"
                if why:
                    raise DataError.at(path, f"member {member.name[:80]!r} {why}")
                content = archive.extractfile(member)
                assert content is not None
                yield key, member.size, content
            if why := _end(path, archive.offset, size):
                raise DataError.at(path, why)
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise DataError.at(path, f"is no readable tar: {error}") from error


#: a tar ends with two blocks of zeros, and is filled with more up to a whole record
_BLOCK, _RECORD = 512, 10240


def _end(path: Path, end: int, size: int) -> str:
    """What is wrong with the end of a tar, an empty text if nothing is.

    tarfile takes a header that it cannot read for the end.

    Parameters
    ----------
    path : of the tar.
    end : the byte behind its last member.
    size : of the file.
    """
    with open_regular(path) as file:
        file.seek(end)
        mark = file.read(_BLOCK)
        rest = iter(lambda: file.read(2**20), b"")
        behind = any(part.strip(b"\0") for part in rest)
    if len(mark) < _BLOCK:
        return f"is cut short: no end mark at byte {end}"
    if mark.strip(b"\0"):
        return f"the header at byte {end} is damaged"
    if behind:
        return (
            f"the header at byte {end} is zeros, and more follows: it is damaged, or several tars were joined"
        )
    if size - end >= 2 * _BLOCK + _RECORD:
        return f"{size - end} zeros end it from byte {end} on, more than its last record: members are lost"
    return ""


_PACKERS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


def _packed_by(path: Path) -> str:
    """The compressor whose mark a file begins with, an empty text if there is none."""
    with open_regular(path) as file:
        head = file.read(8)
    return next((name for mark, name in _PACKERS.items() if head.startswith(mark)), "")
