"""Readers of stores: local files, and HTTP with ranges, retries and a clear end.

A request that fails is repeated after a growing pause; when that does not help, the error names what was read and what
was answered. A server that answers 200 to a range, sends fewer bytes than it promised, or other bytes than were asked for,
is not believed. No connection is used by two processes: a forked worker opens its own.
"""

from __future__ import annotations

import ctypes
import html
import http.client
import mmap
import os
import re
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from io import FileIO
from pathlib import Path
from typing import ClassVar, Final, Protocol

import numpy as np

from forerun.blocks.reader.objects import (
    OBJECT_SCHEMES,
    PATIENCE_S,
    TIMEOUT_S,
    FsspecFiles,
    ObjectFiles,
    Repeating,
    Unsatisfying,
)
from forerun.blocks.reader.processes import PerProcess
from forerun.core.errors import StoreError, UsageError

MAX_READ_BYTES: Final = 2**30


class Client(Protocol):
    """Reads bytes by name; safe to use from many threads, and from processes that are started afresh.

    Attributes
    ----------
    forks : whether a process that was forked from one that has used the client can use it too.
    """

    @property
    def forks(self) -> bool:
        """See the class."""

    def read(self, name: str, first: int, length: int, what: str) -> bytes:
        """`length` bytes of `name` from `first`; `what` is for messages (block, sample).

        Parameters
        ----------
        name : of a file below the store's root.
        first, length : bytes.
        what : what is read, for messages, such as a block and a sample.

        Raises StoreError if that many bytes cannot be had.
        """

    def read_whole(self, name: str) -> bytes:
        """All bytes of `name`."""

    def names(self) -> Iterator[tuple[str, int]]:
        """Every name below, with its size in bytes. Raises StoreError where that is unknown."""


@dataclass
class Wrapping:
    """A client with its own `read`, which leaves all else to another one, `client`."""

    client: Client

    @property
    def forks(self) -> bool:
        """See `Client`."""
        return self.client.forks

    def read_whole(self, name: str) -> bytes:
        """See `Client`."""
        return self.client.read_whole(name)

    def names(self) -> Iterator[tuple[str, int]]:
        """See `Client`."""
        return self.client.names()


def open_client(
    url: str,
    token: str = "",
    *,
    retries: int | None = None,
    timeout_s: float = TIMEOUT_S,
    patience_s: float = PATIENCE_S,
) -> Client:
    """Who reads a URL: http and https by ourselves, object stores through obstore, the rest through fsspec.

    Raises UsageError for a URL that nobody here opens.

    Parameters
    ----------
    url : of a folder, or of a prefix of an object store.
    token : bearer token of an HTTP store (default: none).
    retries, timeout_s, patience_s : see `Repeating`.
    """
    scheme = url.partition("://")[0].lower()
    if scheme in ("http", "https"):
        return HttpFiles(url, retries=retries, timeout_s=timeout_s, patience_s=patience_s, token=token)
    kind = ObjectFiles if scheme in OBJECT_SCHEMES else FsspecFiles
    return kind(url, retries=retries, timeout_s=timeout_s, patience_s=patience_s)


@dataclass(frozen=True)
class LocalFiles:
    """Files below a folder.

    Parameters
    ----------
    folder : below which the names are.
    """

    folder: Path
    forks: ClassVar[bool] = True

    def read(self, name: str, first: int, length: int, what: str) -> bytes:
        """See `Client`. Raises StoreError for a file that is absent, unreadable or short."""
        with self._opened(name, first, what) as file:
            data = file.read(length)
            while len(data) < length and (more := file.read(length - len(data))):
                data += more  # the kernel gives 2 GiB at a time at most, a network file system less
        if len(data) != length:
            raise StoreError.at(self.folder / name, f"{what}: received {len(data)} of {length} bytes")
        return data

    def read_into(self, name: str, first: int, target: memoryview, what: str) -> None:
        """Fill memory with the bytes of `name` from `first` on.

        Parameters
        ----------
        name, first, what : see `Client`.
        target : bytes, as many as are read.

        Raises StoreError as `read` does.
        """
        done = 0
        with self._opened(name, first, what) as file:
            while done < len(target) and (more := file.readinto(target[done:])):
                done += more
        if done != len(target):
            raise StoreError.at(self.folder / name, f"{what}: received {done} of {len(target)} bytes")

    @contextmanager
    def _opened(self, name: str, first: int, what: str) -> Iterator[FileIO]:
        """A file at one of its bytes. Raises StoreError for one that cannot be opened, and where reading it fails."""
        try:
            with FileIO(f"{self.folder}/{name}") as file:
                if first:
                    file.seek(first)
                yield file
        except OSError as error:
            raise StoreError.at(self.folder / name, f"{what} cannot be read: {error.strerror}") from error

    def read_whole(self, name: str) -> bytes:
        """See `Client`."""
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            raise StoreError.at(self.folder / name, f"cannot be read: {error.strerror}") from error

    def names(self) -> Iterator[tuple[str, int]]:
        """See `Client`."""
        for path in sorted(self.folder.rglob("*")):
            if path.is_file():
                yield path.relative_to(self.folder).as_posix(), path.stat().st_size

    def drop_cache(self) -> float | None:
        """Have the kernel forget the files' pages; the share of them that stayed, None where that cannot be asked.

        Needs no privileges: pages that another process maps, or that are being written, may stay.
        """
        if not hasattr(os, "posix_fadvise"):
            return None
        stayed = pages = 0
        for path in self.folder.rglob("*"):
            if not path.is_file():
                continue
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                in_memory, whole = _resident(handle)
            except OSError:
                return None
            finally:
                os.close(handle)
            stayed, pages = stayed + in_memory, pages + whole
        return stayed / pages if pages else 0.0


def _resident(handle: int) -> tuple[int, int]:
    """Pages of an open file that are in memory, and all its pages.

    Parameters
    ----------
    handle : of a file that is open for reading.

    Raises OSError where the kernel cannot be asked.
    """
    size = os.fstat(handle).st_size
    if not size:
        return 0, 0
    pages = -(-size // mmap.PAGESIZE)
    seen = (ctypes.c_ubyte * pages)()
    with mmap.mmap(handle, size, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        asked = ctypes.CDLL(None, use_errno=True).mincore(
            ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(size), seen
        )
        del view
    if asked:
        raise OSError(ctypes.get_errno(), "mincore")
    return sum(value & 1 for value in seen), pages


@dataclass
class HttpFiles(Repeating):
    """Files behind a URL; one open connection a thread of a process. Retries and timeouts are those of `Repeating`.

    Parameters
    ----------
    url : of the folder.
    token : bearer token that every request has (default: none).
    """

    forks: ClassVar[bool] = True
    token: str = ""

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError.at(self.url, "is not an http or https URL")
        self._parts = parts
        self._of_thread = PerProcess(threading.local)

    def read(self, name: str, first: int, length: int, what: str) -> bytes:
        """See `Client`. Raises StoreError when retries did not help."""
        if not length:
            return b""
        return self._asked(name, what, f"{first}-{first + length - 1}", length)

    def read_whole(self, name: str) -> bytes:
        """See `Client`."""
        return self._asked(name, "the file")

    def names(self) -> Iterator[tuple[str, int]]:
        """See `Client`; asks for the listing of an object store, page by page."""
        after = ""
        while True:
            query = urllib.parse.urlencode({"list-type": 2, "start-after": after})
            page = self._asked(f"?{query}", "the listing").decode("utf-8", "replace")
            rows = re.findall(r"<Key>(.*?)</Key>.*?<Size>(\d+)</Size>", page, re.DOTALL)
            if "<ListBucketResult" not in page:
                raise StoreError.at(self.url, "does not list its files, as a bucket of S3 does")
            for key, size in rows:
                after = html.unescape(key)
                yield after, int(size)
            if not rows or "<IsTruncated>true<" not in page:
                return

    def _asked(self, name: str, what: str, span: str = "", length: int | None = None) -> bytes:
        """The bytes of a file, or of a span of it, asked for again where that may help.

        Parameters
        ----------
        name : of a file, or `?` and a query.
        what : what is read, for messages.
        span : `first-last`, numbers of bytes, the last one included (default: the whole file).
        length : bytes that the answer must have (default: any).
        """
        return self.repeated(name, what, None, lambda: self._attempt(name, what, span, length))

    def _attempt(self, name: str, what: str, span: str, length: int | None) -> bytes:
        """One answer: the whole of a file, or `length` bytes of it. Raises Unsatisfying for one to be asked for again."""
        try:
            status, data, sent, after = self._answer(name, {"Range": f"bytes={span}"} if span else {})
        except (OSError, http.client.HTTPException):
            self._close()
            raise
        good = status == (206 if span else 200) and (length is None or len(data) == length)
        if good and (not span or sent.startswith(f"bytes {span}/")):
            return data
        if status == 200 and span:
            raise StoreError.at(
                f"{self.url}/{name}", f"{what}: the server answers 200 to a range; it must know ranges"
            )
        if 300 <= status < 500 and status not in (408, 425, 429):
            raise StoreError.at(f"{self.url}/{name}", f"{what}: the server answers {status}")
        self._close()  # it is unknown which request this answers
        if good:
            raise Unsatisfying(f"status {status} with Content-Range {sent[:60]!r} for bytes {span}")
        raise Unsatisfying(
            f"status {status}, {len(data)} bytes" + (f" of {length}" if length is not None else ""),
            _seconds(after),
        )

    def _answer(self, name: str, headers: dict[str, str]) -> tuple[int, bytes, str, str]:
        """Status, body, Content-Range and Retry-After of one answer.

        Parameters
        ----------
        name : of a file, or `?` and a query.
        headers : of the request beside the token.

        Raises OSError or HTTPException for a connection that fails.
        """
        path = f"{self._parts.path.rstrip('/')}/{name if name.startswith('?') else urllib.parse.quote(name)}"
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        mine = self._of_thread.get()
        connection = getattr(mine, "connection", None)
        if connection is None:
            secure = self._parts.scheme == "https"
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            connection = kind(self._parts.hostname or "", self._parts.port, timeout=self.timeout_s)
            mine.connection = connection
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        data = response.read(MAX_READ_BYTES)
        if response.length:
            # A bounded read does not complain of a body that ends early.
            raise http.client.IncompleteRead(data, response.length)
        if response.will_close:
            self._close()
        say = response.getheader
        return response.status, data, say("Content-Range", ""), say("Retry-After", "")

    def _close(self) -> None:
        """Close this thread's connection, if it has one; the next request opens another."""
        mine = self._of_thread.get()
        connection = getattr(mine, "connection", None)
        if connection is not None:
            connection.close()
        mine.connection = None


def _seconds(after: str) -> float:
    """How long a server asks to wait by `Retry-After`, in seconds or as a date; 0 if it does not say."""
    try:
        return max(
            0.0, float(after) if after.isdigit() else parsedate_to_datetime(after).timestamp() - time.time()
        )
    except (ValueError, OverflowError):
        return 0.0
