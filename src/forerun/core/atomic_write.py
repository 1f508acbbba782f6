"""Atomic writes: a file is written under a temporary name in the same folder, then moved to its final name.

An error or an interrupt leaves neither a partial file nor the temporary one. File modes follow the user's umask, as for
any new file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
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


#: first bytes of the file that marks a working folder as this program's own
_SIGN: Final = b"forerun: files of a conversion that is under way\n"


@contextlib.contextmanager
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
