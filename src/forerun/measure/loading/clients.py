"""Readers of stores: local files, and HTTP with ranges, retries and a clear end.

A request that fails is repeated after a growing pause; when that does not help, the error names what was read and what
was answered. A server that answers 200 to a range, or sends fewer bytes than it promised, is not believed.
"""

from __future__ import annotations

import http.client
import os
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from forerun.errors import StoreError, UsageError

RETRIES: Final = 5
BACKOFF_S: Final = 0.05
TIMEOUT_S: Final = 20.0
MAX_READ_BYTES: Final = 2**30


class Client(Protocol):
    """Reads bytes by name; safe to use from many threads."""

    def read(self, name: str, first: int, length: int, what: str) -> bytes:
        """`length` bytes of `name` from `first`; `what` is for messages (block, sample)."""

    def read_whole(self, name: str) -> bytes:
        """All bytes of `name`."""


@dataclass(frozen=True)
class LocalFiles:
    """Files below a folder."""

    folder: Path

    def read(self, name: str, first: int, length: int, what: str) -> bytes:
        """See `Client`. Raises StoreError for a file that is absent, unreadable or short."""
        path = self.folder / name
        try:
            with path.open("rb", buffering=0) as file:
                if first:
                    file.seek(first)
                data = file.read(length)
        except OSError as error:
            raise StoreError.at(path, f"{what} cannot be read: {error.strerror}") from error
        if len(data) != length:
            raise StoreError.at(path, f"{what}: {len(data)} bytes came, {length} are wanted")
        return data

    def read_whole(self, name: str) -> bytes:
        """See `Client`."""
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            raise StoreError.at(self.folder / name, f"cannot be read: {error.strerror}") from error

    def drop_cache(self) -> bool:
        """Ask the kernel to forget the files' pages; whether it could be asked for all of them."""
        if not hasattr(os, "posix_fadvise"):
            return False
        for path in self.folder.rglob("*"):
            if path.is_file():
                handle = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(handle)
                    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(handle)
        return True


@dataclass
class HttpFiles:
    """Files behind a URL; one kept connection a thread. `retried` counts attempts that failed."""

    url: str
    token: str = ""
    retries: int = RETRIES
    backoff_s: float = BACKOFF_S
    timeout_s: float = TIMEOUT_S
    retried: int = 0
    _local: threading.local = field(default_factory=threading.local)

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError.at(self.url, "is not an http or https URL")
        self._parts = parts

    def read(self, name: str, first: int, length: int, what: str) -> bytes:
        """See `Client`. Raises StoreError when retries did not help."""
        if not length:
            return b""
        return self._asked(name, {"Range": f"bytes={first}-{first + length - 1}"}, 206, length, what)

    def read_whole(self, name: str) -> bytes:
        """See `Client`."""
        return self._asked(name, {}, 200, None, "the file")

    def _asked(self, name: str, headers: dict[str, str], wanted: int, length: int | None, what: str) -> bytes:
        headers = {**headers, **({"Authorization": f"Bearer {self.token}"} if self.token else {})}
        path = f"{self._parts.path.rstrip('/')}/{urllib.parse.quote(name)}"
        said = ""
        for attempt in range(self.retries + 1):
            if attempt:
                self.retried += 1
                time.sleep(self.backoff_s * 2 ** (attempt - 1))
            try:
                status, data = self._attempt(path, headers)
            except (OSError, http.client.HTTPException) as error:
                self._close()
                said = f"{type(error).__name__}: {error}"
                continue
            if status == wanted and (length is None or len(data) == length):
                return data
            if status == 200 and wanted == 206:
                raise StoreError.at(
                    f"{self.url}/{name}", f"{what}: the server answers 200 to a range; it must know ranges"
                )
            if status in (401, 403, 404, 405, 416):
                raise StoreError.at(f"{self.url}/{name}", f"{what}: the server answers {status}")
            said = f"status {status}, {len(data)} bytes" + (f" of {length}" if length is not None else "")
        raise StoreError.at(
            f"{self.url}/{name}", f"{what} was asked for {self.retries + 1} times; last: {said}"
        )

    def _attempt(self, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            kind = (
                http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
            )
            connection = kind(self._parts.hostname or "", self._parts.port, timeout=self.timeout_s)
            self._local.connection = connection
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        data = response.read(MAX_READ_BYTES)
        if response.length:
            # A bounded read does not complain of a body that ends early.
            raise http.client.IncompleteRead(data, response.length)
        if response.will_close:
            self._close()
        return response.status, data

    def _close(self) -> None:
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
        self._local.connection = None
