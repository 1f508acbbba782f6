"""Atomic writes: a file is written under a temporary name in the same folder, then moved to its final name.

An error or an interrupt leaves neither a partial file nor the temporary one. File modes follow the user's umask, as for
any new file.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from forerun.core.errors import ForerunError, StoreError
from forerun.core.regular import open_regular

#: the first line of YAML files of ours, by which commands know that they may replace one
WRITTEN: Final = "# written by forerun\n"

_SYSTEM_ERROR: Final = re.compile(r"([^:]+) \(os error \d+\)")


def beside(path: Path) -> Path:
    """An unused hidden name in the folder of `path`; short, however long the name of `path` is."""
    return path.with_name(f".forerun-{secrets.token_hex(6)}{path.suffix}")


def lock_file(file: int) -> None:
    """Lock an open file until it is closed or the process ends. Raises OSError if another process has the lock."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def refuse_foreign(folder: Path, names: Iterable[str], *, marker: str, sign: bytes) -> None:
    """Raise StoreError if a folder contains files with these names that another program wrote.

    The files are this program's own if the file `marker` in that folder has `sign` among its first 64 KiB.
    """
    present = [name for name in names if os.path.lexists(folder / name)]
    if not present:
        return
    try:
        with open_regular(folder / marker) as file:
            ours = sign in file.read(1 << 16)
    except OSError:
        ours = False
    if not ours:
        raise StoreError.at(folder / present[0], "exists and is not of this program; name another folder")


def system_reason(failure: Exception) -> str | None:
    """Why the operating system failed to write, such as a full disk; None for any other failure.

    Polars wraps such errors in its own exceptions, which can be recognized only by their text.
    """
    if isinstance(failure, OSError):
        return failure.strerror or str(failure)
    matched = _SYSTEM_ERROR.search(str(failure)) if type(failure).__module__.startswith("polars") else None
    return matched[1] if matched else None


def write_file(
    path: Path, write: Callable[[Path], object], *, error: type[ForerunError] = StoreError
) -> Path:
    """Call `write` with a temporary path next to `path`, then move the file to `path`. Creates the folder if absent.

    Raises `error` if it cannot be written, and whatever `write` raises.
    """
    temporary = beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        temporary.replace(path)
    except Exception as failure:
        why = system_reason(failure)
        if why is None:
            raise
        raise error.at(path, f"cannot be written: {why}") from failure
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return path


def write_text(path: Path, text: str, *, error: type[ForerunError] = StoreError) -> Path:
    """Write a text as UTF-8, as `write_file` does.

    Lone surrogates, as in file names that are not valid UTF-8, become question marks.
    """
    return write_bytes(path, text.encode("utf-8", "replace"), error=error)


def write_bytes(path: Path, content: bytes, *, error: type[ForerunError] = StoreError) -> Path:
    """Write bytes, as `write_file` does."""

    def fill(file: Path) -> None:
        file.write_bytes(content)

    return write_file(path, fill, error=error)
