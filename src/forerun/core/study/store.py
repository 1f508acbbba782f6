"""The store of a study: one SQLite file in write-ahead mode.

A cell's outcome is there whole or not at all, whatever instant the process is killed at. One process writes; a second
is rejected with the id of the writer. Nothing in the store depends on the host, the clock or the order of completion, so an
interrupted and resumed study ends in the same tables as an uninterrupted one.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import socket
import sqlite3
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

import msgspec

from forerun.core.atomic_write import lock_file
from forerun.core.errors import ForerunError, Problem, StoreError
from forerun.core.regular import begins, followed
from forerun.core.result.reading import check_figures
from forerun.core.scenario.spec import canonical_json
from forerun.core.study.cell import Done, Failed, Outcome
from forerun.core.study.expand import StudyPlan
from forerun.core.version import VERSION

STORE_FORMAT: Final = 1

#: how an SQLite file begins
_SQLITE: Final = b"SQLite format 3"

#: the files that SQLite keeps beside a database, by the end of their name, and how each may begin
_BESIDE: Final = {
    "-wal": (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83"),
    "-journal": (b"\xd9\xd5\x05\xf9",),
    "-shm": ((3007000).to_bytes(4, sys.byteorder),),
}

#: what the file that claims a store is called, after the store's own name
LOCK_SUFFIX: Final = ".forerun-lock"

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS cells (
    number INTEGER PRIMARY KEY, state TEXT NOT NULL CHECK (state IN ('done', 'failed')),
    summary TEXT NOT NULL, parts TEXT NOT NULL, why TEXT NOT NULL, reason TEXT NOT NULL
) STRICT;
"""


class Store:
    """An open store, as a context. `writing` claims it for this process.

    Raises StoreError for a store of another study or version, one that is being written, one that is damaged, or a file
    of another program; and whenever a process that was forked meanwhile uses it, since SQLite's connections do not
    survive a fork.
    """

    def __init__(self, path: Path, plan: StudyPlan | None = None, *, writing: bool = False) -> None:
        self.path = path
        self.plan = plan
        self._process = os.getpid()
        self._cleanup = contextlib.ExitStack()
        self._claim = _Claim(path) if writing else None
        if not writing and not path.is_file():
            raise StoreError.at(path, "no such study store")
        try:
            self._opened = self._open(writing)
        except BaseException:
            self._cleanup.close()
            if self._claim is not None:
                self._claim.withdraw()
            raise

    def _open(self, writing: bool) -> sqlite3.Connection:
        """A connection to the store, after checking that the store is of this format and, if there is a plan, of
        this study.
        """
        try:
            connection = _for_writing(self.path) if writing else _for_reading(self.path, self._cleanup)
            about = dict(connection.execute("SELECT key, value FROM about"))
        except sqlite3.DatabaseError as error:
            raise _unreadable(self.path, error) from error
        if self.plan is not None:
            self._belongs(about, connection, writing)
        elif about.get("format") != str(STORE_FORMAT):
            raise self._of_another_format(about)
        return connection

    def _belongs(self, about: dict[str, str], connection: sqlite3.Connection, writing: bool) -> None:
        """Check that the store is of the plan; a new store records it.

        Raises StoreError for another format, another version of forerun or another study.
        """
        assert self.plan is not None
        view = {"objective": self.plan.objective, **_written(self.plan, "metrics", "given")}
        if not about and writing:
            entries = {"format": str(STORE_FORMAT), "study": self.plan.id, "version": VERSION}
            entries |= {**_written(self.plan, "axes", "seeds", "base", "paths"), **view}
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany("INSERT INTO about VALUES (?, ?)", entries.items())
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise StoreError.at(self.path, f"cannot be written: {error}") from error
            return
        if about.get("format") != str(STORE_FORMAT):
            raise self._of_another_format(about)
        if about.get("version") != VERSION:
            raise StoreError.at(
                self.path,
                f"was written by forerun {about.get('version')}, this is {VERSION}; start a new store",
            )
        if about.get("study") != self.plan.id:
            raise StoreError.at(
                self.path,
                f"contains another study ({about.get('study')}, this one is {self.plan.id}): its scenario, axes, seeds, "
                "input files or plugins' code differ; name another store",
            )
        if writing and any(about.get(key) != value for key, value in view.items()):
            # What a study shows is no part of what it is: the last file that was run decides.
            connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", view.items())

    def _of_another_format(self, about: Mapping[str, str]) -> ForerunError:
        return StoreError.at(
            self.path, f"has store format {about.get('format')}, this forerun reads {STORE_FORMAT}"
        )

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._process != os.getpid():
            raise StoreError.at(self.path, "was opened by another process, before a fork; open it again here")
        return self._opened

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process != os.getpid():
            return  # a copy, by a fork: connection, files and claim are the other process's to close
        self._connection.close()
        self._cleanup.close()
        if self._claim is not None:
            self._claim.release()

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Store outcomes, all or none. Raises StoreError if they cannot be written; earlier outcomes stay."""
        rows = [_row(outcome) for outcome in outcomes]
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?, ?)", rows)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise StoreError.at(
                self.path, f"cannot be written: {error}; the cells stored so far are safe"
            ) from error

    def numbers(self, state: Literal["done", "failed"]) -> Iterator[int]:
        """The numbers of the cells in a state, ascending, one by one."""
        with _reading(self.path):
            for (number,) in self._connection.execute(
                "SELECT number FROM cells WHERE state = ? ORDER BY number", (state,)
            ):
                yield number

    def outcomes(self) -> Iterator[Outcome]:
        """Every stored outcome, in the order of the cells. Raises StoreError that names a damaged cell."""
        with _reading(self.path):
            for row in self._connection.execute("SELECT * FROM cells ORDER BY number"):
                try:
                    outcome = _outcome(row)
                except (TypeError, ValueError) as error:
                    raise _damaged(self.path, f"cell {row[0]}: {error}") from error
                if isinstance(outcome, Done):
                    check_figures(outcome.summary, f"{self.path}: cell {row[0]}", "$.summary")
                yield outcome

    def about(self) -> dict[str, str]:
        """What the store says of itself: format, study, version, axes, seeds, base, metrics, objective."""
        with _reading(self.path):
            return dict(self._connection.execute("SELECT key, value FROM about ORDER BY key"))

    def stored_plan(self) -> StudyPlan:
        """The plan as the store keeps it: enough to name its cells. Raises StoreError if the store is damaged."""
        try:
            about = self.about()
            data = {name: json.loads(about[name]) for name in ("axes", "seeds", "base")}
            data |= {
                name: json.loads(about.get(name, absent))
                for name, absent in (("metrics", "[]"), ("paths", "null"), ("given", "null"))
            }
            where = {"name": self.path.stem, "folder": self.path.parent}
            return msgspec.convert({**where, **data, "objective": about.get("objective", "")}, StudyPlan)
        except (KeyError, ValueError, TypeError) as error:
            raise _damaged(self.path, f"it does not say which study it contains: {error}") from error


def _written(plan: StudyPlan, *names: str) -> dict[str, str]:
    """Some fields of a plan as the store keeps them."""
    return {name: canonical_json(getattr(plan, name)).decode() for name in names}


def is_store(path: Path) -> bool:
    """Whether a file is an SQLite database, as study stores are."""
    return begins(path, _SQLITE)


def _opened(path: Path, mode: str) -> sqlite3.Connection:
    """A connection that creates and converts nothing. mode: the parameters of SQLite's file address."""
    return sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, isolation_level=None, timeout=30)


def _for_reading(path: Path, cleanup: contextlib.ExitStack) -> sqlite3.Connection:
    """A connection to read from, also where the folder cannot be written.

    SQLite reads a database in write-ahead mode only where it can make the log's index beside it. Where it cannot, a
    database without a log is read as one that does not change, and one with a log is copied to a temporary folder.
    """
    connection = _opened(path, "mode=rw")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return connection
    except sqlite3.Error as error:
        connection.close()
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
    log = path.with_name(path.name + "-wal")
    try:
        if not (log.is_file() and log.stat().st_size):
            with path.open("rb"):
                return _opened(path, "mode=ro&immutable=1")
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="forerun-store-")))
        for source in (path, log):
            shutil.copyfile(source, folder / source.name)
    except OSError as error:
        raise StoreError.at(path, f"cannot be read: {error.strerror}") from error
    return _opened(folder / path.name, "mode=rw")


def _for_writing(path: Path) -> sqlite3.Connection:
    """A connection to write with: write-ahead mode, the tables made if they are absent."""
    _refuse_foreign(path)
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.executescript(_TABLES)
    return connection


def _refuse_foreign(path: Path) -> None:
    """Raise StoreError where the store, or a file that SQLite would keep beside it, belongs to another program.

    SQLite converts a database to write-ahead mode when asked to, and replaces what has the names of its logs.
    """
    if path.exists() and not path.is_file():
        raise StoreError.at(path, "is not a file; name another store")
    if path.exists() and path.stat().st_size == 1:
        # SQLite treats a file of one byte as an empty database and overwrites it; it rejects longer files itself.
        raise StoreError.at(path, "is no study store: it has one byte; name another store")
    for suffix, beginnings in _BESIDE.items():
        beside = path.resolve().with_name(path.resolve().name + suffix)
        if beside.is_symlink():
            raise StoreError.at(beside, "is a link, and a study would write there; name another store")
        if beside.exists():
            head = _head(beside)
            if head.strip(b"\0") and not any(one.startswith(head) for one in beginnings):
                raise StoreError.at(beside, "belongs to another program; name another store")
    if begins(path, _SQLITE):
        with contextlib.closing(_opened(path, "mode=ro")) as connection:
            tables = {
                name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            }
        if not tables <= {"about", "cells"}:
            raise StoreError.at(path, "is a database of another program; name another store")


def _head(path: Path) -> bytes:
    """The first four bytes of a file; empty if it is none."""
    try:
        with path.open("rb") as file:
            return file.read(4)
    except OSError:
        return b""


def salvage(path: Path, target: Path) -> int:
    """Copy every readable cell of a damaged store into a new one; returns how many.

    What stands in its write-ahead log counts too, as far as it is sound. Raises StoreError if nothing can be read, not
    even what the study was.
    """
    if target.exists():
        raise StoreError.at(target, "exists already; name a new store")
    with tempfile.TemporaryDirectory() as folder:
        try:
            source, about = _salvageable(path, Path(folder))
            paths = json.loads(about.get("paths", "null"))
            axes = [*json.loads(about["axes"]), *([paths] if paths else [])]
            total = math.prod(len(values) for _, values in axes) * len(json.loads(about["seeds"]))
        except (sqlite3.DatabaseError, OSError, KeyError, ValueError) as error:
            raise StoreError.at(path, f"nothing can be read: {error}") from error
        copy = sqlite3.connect(target, isolation_level=None)
        copy.executescript(_TABLES)
        copy.execute("BEGIN")
        copy.executemany("INSERT INTO about VALUES (?, ?)", about.items())
        salvaged = 0
        for row in filter(_sound, _readable(source, total)):
            copy.execute("INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?, ?)", row)
            salvaged += 1
        copy.execute("COMMIT")
        copy.close()
        source.close()
    return salvaged


def _salvageable(path: Path, folder: Path) -> tuple[sqlite3.Connection, dict[str, str]]:
    """A copy of a damaged store to read from, and what it says of itself: with its write-ahead log, else without."""
    log = path.with_name(path.name + "-wal")
    for name, logged in (("logged.sqlite", True), ("plain.sqlite", False)):
        copy = _padded(path, folder / name)
        if logged and log.is_file():
            shutil.copyfile(log, folder / f"{name}-wal")
        source = sqlite3.connect(copy)
        try:
            return source, dict(source.execute("SELECT key, value FROM about"))
        except sqlite3.DatabaseError:
            source.close()
            if not logged:
                raise
    raise AssertionError("the loop returns or raises")


def _padded(path: Path, copy: Path) -> Path:
    """A copy padded to the length in its header: SQLite rejects a shorter file, but skips empty pages."""
    content = path.read_bytes()
    if len(content) >= 100 and content.startswith(_SQLITE):
        page = int.from_bytes(content[16:18], "big")
        pages = int.from_bytes(content[28:32], "big")
        content = content.ljust((65536 if page == 1 else page) * min(pages, 1 << 22), b"\0")
    copy.write_bytes(content)
    return copy


def _readable(source: sqlite3.Connection, total: int) -> Iterator[tuple[Any, ...]]:
    """Rows in order; where a page cannot be read, the cells are asked for one by one."""
    reached = -1
    try:
        for row in source.execute("SELECT * FROM cells ORDER BY number"):
            reached = row[0]
            yield row
    except sqlite3.DatabaseError:
        for number in range(reached + 1, total):
            with contextlib.suppress(sqlite3.DatabaseError):
                yield from source.execute("SELECT * FROM cells WHERE number = ?", (number,))


def _sound(row: tuple[Any, ...]) -> bool:
    """Whether a row read from a damaged file is what was written: a lost overflow page leaves holes in it."""
    try:
        outcome = _outcome(row)
    except (TypeError, ValueError):
        return False
    return row[1] in ("done", "failed") and _row(outcome) == row


def _unreadable(path: Path, error: sqlite3.Error) -> StoreError:
    """The error to raise for one of SQLite's: in use, not to be opened, or damaged."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        what = "is in use"
    elif code in _NOT_DAMAGED:
        what = f"cannot be opened: {error}"
    else:
        return _damaged(path, str(error))
    return StoreError(Problem(str(path), what))


def _damaged(path: Path, what: str) -> StoreError:
    """The error to raise for a store that is not as it was written."""
    return StoreError(
        Problem(
            str(path),
            f"is damaged or no study store: {what}; `forerun study --salvage` keeps what can be read",
        )
    )


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What SQLite raises meanwhile becomes a StoreError."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _unreadable(path, error) from error


def _row(outcome: Outcome) -> tuple[int, str, str, str, str, str]:
    """An outcome as a row of the table of cells."""
    if isinstance(outcome, Done):
        summary, parts = (
            canonical_json(dict(outcome.summary)).decode(),
            canonical_json({name: dict(parts) for name, parts in outcome.parts.items()}).decode(),
        )
        return outcome.number, "done", summary, parts, outcome.why, ""
    return outcome.number, "failed", "{}", "{}", "", outcome.reason


def _outcome(row: tuple[Any, ...]) -> Outcome:
    """The outcome in a row of the table of cells. Raises ValueError or TypeError for a damaged one."""
    number, state, *texts = row
    if not isinstance(number, int) or not all(isinstance(text, str) for text in texts):
        raise TypeError("its values are not those of a cell")
    summary, parts, why, reason = texts
    if state != "done":
        return Failed(number, reason)
    return Done(number, _SUMMARY.decode(summary), _PARTS.decode(parts), why)


#: the summary of a cell, and the parts of its ledgers
_SUMMARY: Final = msgspec.json.Decoder(dict[str, Any])
_PARTS: Final = msgspec.json.Decoder(dict[str, dict[str, float]])


#: SQLite's errors that say nothing about what is in the file
_NOT_DAMAGED: Final = (
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
)  # fmt: skip


class _Claim:
    """The exclusive right to write: a lock that the system releases when the process ends, for whatever reason."""

    def __init__(self, path: Path) -> None:
        # Two names of one store have one lock.
        try:
            store = followed(path)
        except OSError as error:
            raise StoreError.at(path, f"cannot be written: {error.strerror}") from None
        self.path = store.with_name(store.name + LOCK_SUFFIX)
        self._created = not os.path.lexists(self.path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | _CAREFULLY, 0o644)
        except OSError as error:
            if self.path.is_symlink():
                raise StoreError.at(self.path, "is a link; a lock file is none, remove it") from error
            raise StoreError.at(path, f"cannot be written: {error.strerror}") from error
        if not _is_lock(self._file):
            os.close(self._file)
            raise StoreError.at(self.path, "belongs to another program; name another store")
        try:
            lock_file(self._file)
        except OSError as error:
            holder = os.pread(self._file, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(self._file)
            raise StoreError.at(
                path, f"is being written by {holder}; wait for it or name another store"
            ) from error
        if not self._named():
            os.close(self._file)
            raise StoreError.at(path, "was refused to another process just now; try again")
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        """Give the right back. The empty lock file stays: removing it would race with the next writer."""
        os.ftruncate(self._file, 0)
        os.close(self._file)

    def withdraw(self) -> None:
        """Give the right back where the store could not be used: a lock file that was made for it goes.

        Who has opened it meanwhile sees that it lost its name once it has the lock.
        """
        if self._created and self._named():
            self.path.unlink()
        self.release()

    def _named(self) -> bool:
        """Whether the lock file's name is still that of the open file."""
        try:
            return os.path.samestat(self.path.lstat(), os.fstat(self._file))
        except FileNotFoundError:
            return False


#: no link is followed, nothing is inherited by other programs, and a pipe does not keep us waiting
_CAREFULLY: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


def _is_lock(file: int) -> bool:
    """Whether an open file is empty or says what a claim writes, and has no other name."""
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        return False
    return re.fullmatch(rb"(process \d+ on [^\n]*\n)?", os.pread(file, 400, 0)) is not None
