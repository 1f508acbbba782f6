"""Files that appear whole or not at all: written beside their place, then moved there.

Whatever goes wrong, an interrupt too, leaves neither half a file nor the one beside. Modes are those that the user's
umask gives any new file.
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

from forerun.errors import ForerunError, StoreError
from forerun.regular import open_regular

_OF_THE_SYSTEM: Final = re.compile(r"([^:]+) \(os error \d+\)")


def beside(path: Path) -> Path:
    """A hidden name in the folder of `path` that nothing has; short, however long the name of `path` is."""
    return path.with_name(f".forerun-{secrets.token_hex(6)}{path.suffix}")


def lock_file(file: int) -> None:
    """Lock an open file until it is closed or the process ends. Raises OSError if another process holds the lock."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


#: what says that a folder beside a target is of this program
_SIGN: Final = b"forerun: files of a conversion that is under way\n"


@contextlib.contextmanager
def working_folder(target: Path) -> Iterator[Path]:
    """An empty folder beside `target`, of this process alone, gone at the end; every process finds the same one.

    What a killed process left in it is removed first. Raises StoreError if a process that lives works in it, or if the
    folder is of another program, and OSError where it cannot be made.
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
    """Raise StoreError if a folder holds files of these names that were not written by this program.

    They were if the file `marker` in that folder has `sign` among its first bytes.
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
    """Why the system refused to write, such as a full disk; None for any other failure.

    Polars has errors of its own for it, which only their text tells from others.
    """
    if isinstance(failure, OSError):
        return failure.strerror or str(failure)
    said = _OF_THE_SYSTEM.search(str(failure)) if type(failure).__module__.startswith("polars") else None
    return said[1] if said else None


def whole_file(path: Path, write: Callable[[Path], None], *, error: type[ForerunError] = StoreError) -> Path:
    """Have `write` fill a file beside `path`, in a folder that is made if absent, then move it there.

    Raises `error` if it cannot be written, and whatever `write` raises.
    """
    building = beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(building)
        building.replace(path)
    except Exception as failure:
        why = system_reason(failure)
        if why is None:
            raise
        raise error.at(path, f"cannot be written: {why}") from failure
    finally:
        with contextlib.suppress(OSError):
            building.unlink()
    return path


def whole_text(path: Path, text: str, *, error: type[ForerunError] = StoreError) -> Path:
    """Write a text as UTF-8, as `whole_file` does.

    Names from broken file systems may hold lone surrogates, which are no UTF-8: they become question marks.
    """
    return whole_bytes(path, text.encode("utf-8", "replace"), error=error)


def whole_bytes(path: Path, content: bytes, *, error: type[ForerunError] = StoreError) -> Path:
    """Write bytes, as `whole_file` does."""

    def fill(file: Path) -> None:
        file.write_bytes(content)

    return whole_file(path, fill, error=error)
