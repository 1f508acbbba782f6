"""Readers of object stores (s3, gs, az) through obstore, and of whatever fsspec opens.

Both libraries are optional (`pip install 'forerun[stores]'`) and are asked for one attempt at a time: repeating, waiting
and naming what failed is done here, the same for every store. After a fork, fsspec's file systems are opened anew;
obstore's threads are gone for good, and a process that was forked is refused before it waits for them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from random import SystemRandom
from typing import Any, ClassVar, Final

from forerun.blocks.reader.processes import PerProcess
from forerun.core.errors import StoreError, UsageError

#: of every reader of a store: the first pause and the longest, the longest wait for an answer, and for a good one
BACKOFF_S: Final = 0.05
LONGEST_BACKOFF_S: Final = 10.0
TIMEOUT_S: Final = 20.0
PATIENCE_S: Final = 180.0
#: attempts after the first at a store that has never answered: it may not exist
UNKNOWN_RETRIES: Final = 5
#: what obstore opens; everything else with a scheme is fsspec's
OBJECT_SCHEMES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")
#: where clouds' machines are given credentials: asked where the environment has none
_KEYS_OF_MACHINES: Final = ("169.254.169.254", "metadata.google.internal")
#: what names credentials in the environment
_KEYS: Final = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "s3a": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
#: the process that called obstore first, 0 before; its threads are not copied by a fork, and a call would wait for ever
_calling_process = 0


class Unsatisfying(Exception):
    """An answer that is not what was asked for, in words; asking again may help.

    Parameters
    ----------
    why : in words.
    after_s : how long the store asks to wait (default: it does not say).
    """

    def __init__(self, why: str, after_s: float = 0.0) -> None:
        super().__init__(why)
        self.after_s = after_s


@dataclass
class Repeating:
    """A reader of a store that makes one attempt after another, with growing pauses.

    Parameters
    ----------
    url : of the store.
    retries : attempts after the first (default: as many as `patience_s` allows; few at a store that has never answered).
    backoff_s, timeout_s : the first pause, which doubles up to 10 s and varies by half, and the longest wait for an answer.
    patience_s : how long a request is repeated where `retries` says no number.
    retried : how many attempts were repeated.
    answered : whether the store has answered anything.
    """

    url: str
    retries: int | None = None
    backoff_s: float = BACKOFF_S
    timeout_s: float = TIMEOUT_S
    patience_s: float = PATIENCE_S
    retried: int = 0
    answered: bool = False
    _lock: PerProcess[threading.Lock] = field(default_factory=lambda: PerProcess(threading.Lock))

    def __post_init__(self) -> None:
        """Open what this process needs; what it opens is in attributes that begin with `_`."""

    def __getstate__(self) -> dict[str, Any]:
        """What another process opens the same with; connections stay here."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=PerProcess(threading.Lock))
        self.__post_init__()

    def repeated(self, name: str, what: str, length: int | None, attempt: Callable[[], bytes]) -> bytes:
        """The bytes of the first attempt that gives as many as requested.

        Parameters
        ----------
        name, what : for messages.
        length : bytes requested (None: any).
        attempt : gives bytes, or raises what its library raises.

        Raises StoreError at once where asking again does not help, else after the last attempt.
        """
        begun, number, after_s = time.monotonic(), 0, 0.0
        while True:
            number += 1
            try:
                data = attempt()
            except StoreError:
                raise
            except Unsatisfying as error:
                self.answered, last, after_s = True, str(error), error.after_s
            except Exception as error:  # each library has a tree of its own
                if isinstance(error, _HOPELESS) or type(error).__name__ in _HOPELESS_NAMES:
                    raise StoreError.at(f"{self.url}/{name}", f"{what}: {_first_line(error)}") from error
                last, after_s = f"{type(error).__name__}: {_first_line(error)}", 0.0
            else:
                self.answered = True
                if length is None or len(data) == length:
                    return data
                last, after_s = f"{len(data)} bytes of {length}", 0.0
            # Workers that were refused together must not come back together.
            pause_s = min(self.backoff_s * 2 ** min(number - 1, 30), LONGEST_BACKOFF_S)
            pause_s = max(pause_s * _ANY.uniform(0.5, 1.0), after_s)
            spent_s = time.monotonic() - begun
            retries = self.retries if self.answered or self.retries is not None else UNKNOWN_RETRIES
            late = self.retries is None and spent_s + pause_s > self.patience_s
            if late or (retries is not None and number > retries):
                within = f" in {spent_s:.0f} s" if late else ""
                if late and after_s > self.patience_s:
                    last += f", and asks to wait {after_s:.0f} s"
                raise StoreError.at(
                    f"{self.url}/{name}", f"{what} was asked for {number} times{within}; last: {last}"
                )
            time.sleep(pause_s)
            with self._lock.get():
                self.retried += 1


#: of nobody's seed: pauses change no result
_ANY: Final = SystemRandom()
#: errors where asking again does not help: Python's own, and obstore's by name, for it need not be installed
_HOPELESS: Final = (FileNotFoundError, PermissionError)
_HOPELESS_NAMES: Final = frozenset(
    {"NotFoundError", "PermissionDeniedError", "UnauthenticatedError", "InvalidPathError", "UnknownConfigurationKeyError"}
)  # fmt: skip


def _library(name: str, url: str) -> Any:
    """A library that is an extra. Raises UsageError, with how to install it, where it is absent."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError.at(
            url, f"is read through {name}, which is not installed: pip install 'forerun[stores]'"
        ) from error


def _first_line(error: Exception) -> str:
    """The message of a library's error, without the dump that may follow."""
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:300]


@dataclass
class ObjectFiles(Repeating):
    """Objects below an s3, gs or az URL.

    Keys, region and endpoint come from the environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, ...) or `options`. An
    endpoint without TLS is accepted where it is named.

    Parameters
    ----------
    options : passed on to obstore, such as keys and region (default: none).
    """

    forks: ClassVar[bool] = False
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._library = _library("obstore", self.url)
        endpoint = str(
            self.options.get("endpoint")
            or os.environ.get("AWS_ENDPOINT_URL")
            or os.environ.get("AWS_ENDPOINT")
            or ""
        )
        client: dict[str, Any] = {"timeout": timedelta(seconds=self.timeout_s)}
        if endpoint.startswith("http://"):
            client["allow_http"] = True
        given = dict(self.options)
        if endpoint and self.url.startswith("s3"):
            given["endpoint"] = endpoint
        try:
            self._store = import_module("obstore.store").from_url(
                self.url, client_options=client, retry_config={"max_retries": 0}, **given
            )
        except Exception as error:  # obstore's errors share no public base with Python's
            raise UsageError.at(self.url, f"cannot be opened: {_first_line(error)}") from error

    def repeated(self, name: str, what: str, length: int | None, attempt: Callable[[], bytes]) -> bytes:
        """See `Repeating`. Raises StoreError that says so where there are no credentials."""
        try:
            return super().repeated(name, what, length, attempt)
        except StoreError as error:
            self._refuse_without_keys(error)
            raise

    def _refuse_without_keys(self, error: StoreError) -> None:
        """Raise StoreError where what failed is asking the machine for credentials: the environment has none."""
        if any(service in str(error) for service in _KEYS_OF_MACHINES):
            kind = self.url.partition("://")[0]
            raise StoreError.at(
                self.url,
                f"no credentials: set {_KEYS.get(kind, _KEYS['az'])} (this machine has none of its own to give)",
            ) from error

    @property
    def _obstore(self) -> Any:
        """The library, for a call. Raises StoreError in a process that was forked from one that has called it."""
        global _calling_process
        _calling_process = _calling_process or os.getpid()
        if _calling_process != os.getpid():
            raise StoreError.at(
                self.url,
                "was read by obstore before this process was forked, and obstore does not work after a fork; "
                "start the workers with `spawn` or `forkserver`",
            )
        return self._library

    def read(self, name: str, first: int, length: int, what: str) -> bytes:
        """See `Client`."""
        if not length:
            return b""
        return self.repeated(
            name, what, length,
            lambda: bytes(self._obstore.get_range(self._store, name, start=first, length=length)),
        )  # fmt: skip

    def read_whole(self, name: str) -> bytes:
        """See `Client`."""
        return self.repeated(
            name, "the file", None, lambda: bytes(self._obstore.get(self._store, name).bytes())
        )

    def names(self) -> Iterator[tuple[str, int]]:
        """See `Client`."""
        try:
            for page in self._obstore.list(self._store):
                yield from ((str(entry["path"]), int(entry["size"])) for entry in page)
        except StoreError:
            raise
        except Exception as error:
            unlisted = StoreError.at(self.url, f"cannot be listed: {_first_line(error)}")
            self._refuse_without_keys(unlisted)
            raise unlisted from error

    def write(self, name: str, path: Path) -> None:
        """Put a file; an object that is there is replaced. Raises StoreError."""
        try:
            self._obstore.put(self._store, name, path)
        except StoreError:
            raise
        except Exception as error:
            raise StoreError.at(f"{self.url}/{name}", f"cannot be written: {_first_line(error)}") from error


@dataclass
class FsspecFiles(Repeating):
    """Files below a URL that fsspec opens (memory, sftp, smb, hdfs, ...).

    Parameters
    ----------
    options : passed on to fsspec (default: none).
    """

    forks: ClassVar[bool] = True
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._opened = PerProcess(self._open)
        self._opened.get()

    def _open(self) -> tuple[Any, str]:
        """The file system and the path in it, without a slash at the end. Raises UsageError for a URL that cannot be
        opened.
        """
        fsspec = _library("fsspec", self.url)
        try:
            files, root = fsspec.core.url_to_fs(self.url, **self.options)
            return files, str(root).rstrip("/")
        except (ValueError, ImportError, OSError) as error:
            raise UsageError.at(self.url, f"cannot be opened: {_first_line(error)}") from error

    def read(self, name: str, first: int, length: int, what: str) -> bytes:
        """See `Client`."""
        if not length:
            return b""
        files, root = self._opened.get()
        return self.repeated(
            name,
            what,
            length,
            lambda: bytes(files.cat_file(f"{root}/{name}", start=first, end=first + length)),
        )

    def read_whole(self, name: str) -> bytes:
        """See `Client`."""
        files, root = self._opened.get()
        return self.repeated(name, "the file", None, lambda: bytes(files.cat_file(f"{root}/{name}")))

    def names(self) -> Iterator[tuple[str, int]]:
        """See `Client`."""
        files, root = self._opened.get()
        try:
            entries = files.find(root, detail=True)
        except OSError as error:
            raise StoreError.at(self.url, f"cannot be listed: {_first_line(error)}") from error
        for path, about in sorted(entries.items()):
            yield path[len(root) :].lstrip("/"), int(about["size"])

    def write(self, name: str, path: Path) -> None:
        """Put a file; one that is there is replaced. Raises StoreError."""
        files, root = self._opened.get()
        target = f"{root}/{name}"
        try:
            files.makedirs(target.rpartition("/")[0], exist_ok=True)
            files.put_file(str(path), target)
        except OSError as error:
            raise StoreError.at(f"{self.url}/{name}", f"cannot be written: {_first_line(error)}") from error
