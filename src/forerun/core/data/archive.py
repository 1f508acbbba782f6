"""One file of an archive from the network, known by its size and digest; nothing else of the archive is kept."""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from pathlib import Path
from typing import Final

from forerun.core.errors import DataError
from forerun.core.regular import open_regular, unreadable

#: limits of an archive: its members, bytes unpacked, and bytes unpacked over bytes of the archive
MOST_MEMBERS: Final = 100_000
MOST_BYTES: Final = 4 << 30
MOST_EXPANSION: Final = 400


def content_of(archive: Path, *, size: int, sha256: str) -> bytes | None:
    """The content of the file of a tar archive that has this size and digest; None if there is none.

    Names in the archive are not used, so that a name, a link or a device in it cannot lead anywhere.

    Raises
    ------
    DataError : it is no tar archive, is damaged, or has too many members or bytes.
    """
    try:
        with open_regular(archive):
            most = min(MOST_BYTES, max(64 << 20, MOST_EXPANSION * archive.stat().st_size))
        if not tarfile.is_tarfile(archive):
            raise DataError.at(archive.name, "is no tar archive")
        with tarfile.open(archive, "r:*") as tar:
            for number, member in enumerate(tar):
                if number == MOST_MEMBERS:
                    raise DataError.at(archive.name, f"has more than {MOST_MEMBERS} members")
                if member.offset_data + member.size > most:
                    raise DataError.at(archive.name, f"unpacks to more than {most} bytes; taken for a bomb")
                file = tar.extractfile(member) if member.isreg() and member.size == size else None
                if file is not None and hashlib.sha256(content := file.read()).hexdigest() == sha256:
                    return content
    except (tarfile.TarError, zlib.error, EOFError, RuntimeError) as error:
        raise DataError.at(archive.name, f"is damaged or not readable: {error}") from None
    except OSError as error:
        raise DataError.at(archive.name, unreadable(error)) from None
    return None
