"""Open files that a user names, if they are regular files.

Opening a pipe waits for a writer, and reading a device such as /dev/zero never ends. Both are rejected here, after the
file is open, so that nothing can replace it between the check and the first byte. Every rejection is an OSError whose
`strerror` says what is wrong: callers handle it as a file that cannot be read.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

#: largest file that is read, in bytes: more is a view of memory (/proc/kcore) or a mistake
MOST_BYTES: Final = 2**40


def open_regular(path: str | os.PathLike[str], *, buffering: int = -1) -> BinaryIO:
    """A regular file, open for reading bytes.

    buffering: as for `open`. Raises OSError for everything else: a name that cannot be one, a folder, a pipe, a socket,
    a device, a loop of symbolic links, a file of more than `MOST_BYTES`, one that is absent or that may not be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except ValueError as error:
        raise _rejected(path, f"is not a path: {error}") from None
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise _rejected(path, _what(stat.S_IFSOCK)) from None
        raise
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise _rejected(path, _what(status.st_mode))
    if status.st_size > MOST_BYTES:
        os.close(handle)
        raise _rejected(path, f"has {status.st_size} bytes; at most {MOST_BYTES} are read")
    return os.fdopen(handle, "rb", buffering=buffering)


def read_regular(path: str | os.PathLike[str], *, most_bytes: int | None = None) -> bytes:
    """The bytes of a regular file. Raises OSError as `open_regular` does, and for more than `most_bytes`."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if most_bytes is not None and size > most_bytes:
            raise _rejected(path, f"has {size} bytes; at most {most_bytes} are read")
        content = file.read() if most_bytes is None else file.read(most_bytes + 1)
    if most_bytes is not None and len(content) > most_bytes:
        raise _rejected(path, f"has more than {most_bytes} bytes, the most that is read")
    return content


def begins(path: str | os.PathLike[str], magic: bytes) -> bool:
    """Whether a regular file begins with some bytes; not where it cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(len(magic)) == magic
    except OSError:
        return False


def resolved_path(text: str, base: Path) -> Path:
    """The absolute path of a name in a file of `base`: `~` is a home folder, links are followed.

    Raises OSError for the home folder of a user who does not exist, a NUL character and a loop of symbolic links.
    """
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:
        raise _rejected(text, f"is not a path: {str(error).rstrip('.').lower()}") from None
    return followed(path if path.is_absolute() else base / path)


def followed(path: Path) -> Path:
    """The absolute path with all links followed. Raises OSError for a NUL character and a loop of symbolic links."""
    try:
        return path.resolve()
    except ValueError as error:
        raise _rejected(path, f"is not a path: {error}") from None
    except RuntimeError:  # a loop, before Python 3.13
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path)) from None


def unreadable(error: OSError) -> str:
    """Why a file cannot be read, as the rest of a sentence that begins with its name.

    Reasons of this module are such sentences ("is a pipe or device"), those of the system are not ("Permission denied").
    """
    why = error.strerror or str(error)
    return why if why.startswith(("is ", "has ")) else f"cannot be read: {why}"


def _what(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "is a directory; a regular file is needed"
    return "is a pipe or device; a regular file is needed"


def _rejected(path: str | os.PathLike[str], what: str) -> OSError:
    return OSError(errno.EINVAL, what, os.fspath(path))
