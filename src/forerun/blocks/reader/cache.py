"""A cache of blocks in a folder, which all processes of a node share: what came first stays.

The blocks are whole files in the folder; whoever reads a block from the store writes it under a lock to a temporary name
and renames it, so that a block is there whole or not at all. The sum of the files is in a ledger, written before a
block appears: it may say too much after a process was killed, never too little, and is set right when a cache is opened.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forerun.blocks.reader.clients import Client
from forerun.core.errors import StoreError, UsageError

#: names in the folder: the lock with the ledger in it, ends of what is written and of whole blocks
LEDGER: Final = "forerun-cache"
PARTIAL: Final = ".partial"
BLOCK: Final = ".block"


@dataclass(frozen=True)
class BlockCache:
    """Blocks in a folder of a node, such as one in memory (`/dev/shm/train`) or on a local disk; nothing ever leaves.

    All processes that name the same folder share it: workers, and several jobs on the same data. With a fresh order each
    epoch, a cache that keeps what came first has the share of an epoch's bytes that fits it, whatever the order; one that
    replaces blocks has less. Blocks of several containers may lie in it; to empty it, delete the folder.

    Parameters
    ----------
    folder : is made where it is missing.
    capacity_bytes : of all blocks together; a folder that has more already takes nothing.

    Raises UsageError for a capacity that is none, StoreError for a folder that cannot be written.
    """

    folder: Path | str
    capacity_bytes: float

    def __post_init__(self) -> None:
        if not self.capacity_bytes >= 0:
            raise UsageError.at(
                "BlockCache", f"capacity_bytes is {self.capacity_bytes!r}; 0 or more is required"
            )
        object.__setattr__(self, "folder", Path(self.folder).absolute())

    @property
    def _root(self) -> Path:
        return Path(self.folder)

    def open(self) -> None:
        """Make the folder where it is missing, remove what killed processes left, and count the blocks anew."""
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            with self._locked() as ledger:
                for path in self._root.glob(f"*{PARTIAL}"):
                    path.unlink(missing_ok=True)
                used = sum(path.stat().st_size for path in self._root.glob(f"*{BLOCK}"))
                _write(ledger, used)
        except OSError as error:
            raise StoreError.at(self._root, f"cannot be used as a cache: {error.strerror}") from error

    @property
    def used_bytes(self) -> int:
        """Bytes of the blocks that are in it, at most: for each process that was killed one more may count."""
        try:
            text = (self._root / LEDGER).read_bytes()
        except OSError as error:
            raise StoreError.at(self._root, f"is no cache any more: {error.strerror}") from error
        return int(text or b"0")

    def read(
        self,
        client: Client,
        container: str,
        name: str,
        size_bytes: int,
        first: int,
        length: int,
        what: str,
        sound: Callable[[bytes], bool] = lambda _whole: True,
    ) -> memoryview:
        """A stretch of a block: from the cache, else from the store, and then the whole block stays if there is space.

        Parameters
        ----------
        client : reads the store.
        container : digest by which a container is known.
        name, size_bytes : of the block.
        first, length : of the stretch, in bytes of the block.
        what : is read, for messages.
        sound : whether the bytes of a whole block are what they should be; others do not stay (default: all are).

        Raises what the client raises, StoreError for a folder that cannot be written.
        """
        path = self._path(container, name)
        kept = _stretch(path, size_bytes, first, length)
        if kept is not None:
            return memoryview(kept)
        if self.used_bytes + size_bytes > self.capacity_bytes:
            return memoryview(client.read(name, first, length, what))
        whole = client.read(name, 0, size_bytes, what)
        if sound(whole):
            self._keep(path, whole)
        return memoryview(whole)[first : first + length]

    def forget(self, container: str, name: str) -> None:
        """Remove a block that proved damaged, if it is there.

        Parameters
        ----------
        container, name : as for `read`.
        """
        path = self._path(container, name)
        with self._locked() as ledger:
            try:
                size_bytes = path.stat().st_size
                path.unlink()
            except FileNotFoundError:
                return
            _write(ledger, max(0, self.used_bytes - size_bytes))

    def _path(self, container: str, name: str) -> Path:
        return self._root / f"{container[:16]}-{name}{BLOCK}"

    def _keep(self, path: Path, data: bytes) -> None:
        """Store a whole block, if there is space and nobody has; a full disk is a full cache."""
        partial = path.with_suffix(PARTIAL)
        try:
            with self._locked() as ledger:
                used = self.used_bytes
                present = _stretch(path, len(data), 0, 0) is not None
                if present or used + len(data) > self.capacity_bytes:
                    return
                _write(ledger, used + len(data))
                try:
                    partial.write_bytes(data)
                    partial.replace(path)
                except OSError:
                    with suppress(OSError):
                        partial.unlink(missing_ok=True)
                        _write(ledger, used)
                    raise
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise StoreError.at(path, f"cannot be written: {error.strerror}") from error

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The ledger, open and locked against other threads and processes; the kernel frees it when a process dies."""
        import fcntl  # not on Windows, where the rest of the package can be imported

        ledger = os.open(self._root / LEDGER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(ledger, fcntl.LOCK_EX)
            yield ledger
        finally:
            os.close(ledger)


def _write(ledger: int, used: int) -> None:
    """Put a number into the ledger in one write, of one length, so that no reader sees a part of it.

    Parameters
    ----------
    ledger : open file.
    used : bytes.
    """
    os.pwrite(ledger, b"%020d\n" % used, 0)


def _stretch(path: Path, size_bytes: int, first: int, length: int) -> bytes | None:
    """A stretch of a block's file; None where there is none, or one of another size.

    Parameters
    ----------
    path : of the file.
    size_bytes : that it must have.
    first, length : bytes.
    """
    try:
        with path.open("rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size != size_bytes:
                return None
            data = os.pread(file.fileno(), length, first)
    except OSError:
        return None
    return data if len(data) == length else None
