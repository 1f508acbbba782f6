"""The journal: what was observed and what was answered, written before anything is sent.

It is one SQLite file (WAL, synchronous=FULL): what COMMIT has accepted survives a crash of the process and of the machine.
Everything that a controller knows follows from it. The table of leases follows from the answers too; its slot is a primary
key, so a second lease on a slot cannot be written at all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Self

import msgspec

from forerun.core.errors import StoreError
from forerun.live.answers import Answer, Freed, Sent
from forerun.live.engines.engine import Command, Start
from forerun.live.observation import Seen

#: of the tables below; a journal of another one is refused
VERSION: Final = 2
_TABLES: Final = """
CREATE TABLE meta (version INTEGER NOT NULL, run TEXT NOT NULL);
CREATE TABLE seen (number INTEGER PRIMARY KEY, observation TEXT NOT NULL);
CREATE TABLE answers (
  number INTEGER NOT NULL REFERENCES seen, place INTEGER NOT NULL, answer TEXT NOT NULL, PRIMARY KEY (number, place)
) WITHOUT ROWID;
CREATE TABLE life (place INTEGER PRIMARY KEY, origin TEXT NOT NULL);
CREATE TABLE leases (
  slot INTEGER PRIMARY KEY, job TEXT NOT NULL, epoch INTEGER NOT NULL, node TEXT NOT NULL, since INTEGER NOT NULL
);
"""
_SEEN: Final = msgspec.json.Decoder(Seen)
_ANSWER: Final = msgspec.json.Decoder(Answer)


class RunMeta(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a journal is of.

    Parameters
    ----------
    nodes : names of the cluster's nodes, in its order.
    clock : as `live.clock.clock_of` reads it.
    is_open : whether jobs are submitted while it runs.
    engine : for people (default: local).
    """

    nodes: tuple[str, ...]
    clock: str = "wall"
    is_open: bool = False
    engine: str = "local"


class Origin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the time of the run was at an instant of the machine's clocks.

    Parameters
    ----------
    now_s : seconds of the run.
    boot_id, boot_s : which start of the machine, and seconds since then.
    unix_s : seconds since 1970, for machines that have started again since.
    """

    now_s: float
    boot_id: str
    boot_s: float
    unix_s: float


class Journal:
    """The journal of a run.

    Parameters
    ----------
    path : of the file.
    read_only : whether to read it while another process writes (default: this process writes).

    Raises
    ------
    StoreError : the file cannot be opened, or is no journal of this version.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        if not path.is_file():
            raise StoreError.at(path, "no such journal")
        try:
            address = f"file:{_quoted(path)}?mode={'ro' if read_only else 'rw'}"
            self._db = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA synchronous=FULL")
            version, run = self._db.execute("SELECT version, run FROM meta").fetchone()
        except (sqlite3.Error, TypeError) as error:
            raise StoreError.at(path, f"cannot be read as a journal: {error}") from error
        if version != VERSION:
            raise StoreError.at(path, f"is of version {version}; this program reads version {VERSION}")
        self.run = msgspec.json.decode(run, type=RunMeta)
        self._open = False

    @classmethod
    def create(cls, path: Path, run: RunMeta) -> Self:
        """The journal of a new run, which is there whole or not at all. Raises StoreError if it cannot be made."""
        new = path.with_suffix(".new")
        try:
            new.unlink(missing_ok=True)
            with sqlite3.connect(new, isolation_level=None) as db:
                db.execute("PRAGMA journal_mode=WAL")
                db.execute("PRAGMA synchronous=FULL")
                db.executescript(_TABLES)
                db.execute("INSERT INTO meta VALUES (?, ?)", (VERSION, msgspec.json.encode(run).decode()))
            db.close()
            new.chmod(0o600)
            new.rename(path)
        except (sqlite3.Error, OSError) as error:
            raise StoreError.at(path, f"cannot be written: {error}") from error
        return cls(path)

    def close(self) -> None:
        """Commit, and close the file."""
        self.commit()
        self._db.close()

    def abandon(self) -> None:
        """Close the file without what was not committed, as if the process had been killed."""
        self._undo()
        self._db.close()

    # ------------------------------------------------------------------------------------------------------ reading

    def seen(self) -> Iterator[Seen]:
        """The observations, in order."""
        rows = self._db.execute("SELECT observation FROM seen ORDER BY number")
        return (_SEEN.decode(text) for (text,) in rows)

    def answers(self) -> Iterator[tuple[int, Answer]]:
        """Each answer with the number of the observation that it answers, in order."""
        return ((number, _ANSWER.decode(text)) for number, text in self.answer_texts())

    def answer_texts(self) -> Iterator[tuple[int, str]]:
        """As `answers`, as they are written."""
        return iter(self._db.execute("SELECT number, answer FROM answers ORDER BY number, place"))

    def sent(self) -> Iterator[tuple[int, float, Command]]:
        """Each command with the number of the last observation before it, and its instant in seconds of the run."""
        rows = self._db.execute(
            "SELECT number, observation, answer FROM answers JOIN seen USING (number) ORDER BY number, place"
        )
        for number, observation, text in rows:
            answer = _ANSWER.decode(text)
            if isinstance(answer, Sent):
                yield number, _SEEN.decode(observation).at_s, answer.command

    def origin(self) -> Origin | None:
        """Where the time of the run was when a controller last took it up; None: none did yet."""
        row = self._db.execute("SELECT origin FROM life ORDER BY place DESC").fetchone()
        return None if row is None else msgspec.json.decode(row[0], type=Origin)

    def leases(self) -> dict[int, tuple[str, int, str]]:
        """Job, epoch and node by slot."""
        rows = self._db.execute("SELECT slot, job, epoch, node FROM leases ORDER BY slot")
        return {slot: (job, epoch, node) for slot, job, epoch, node in rows}

    # ------------------------------------------------------------------------------------------------------ writing

    def write(self, seen: Seen, answers: Iterable[Answer], slots: dict[str, int]) -> None:
        """Add an observation and its answers to the open transaction; `commit` ends it.

        Parameters
        ----------
        seen : the observation.
        answers : to it.
        slots : number of the first slot of each node.

        Raises
        ------
        StoreError : they cannot be written; nothing since the last commit is.
        """
        # What cannot be encoded must not leave half an observation in the open transaction.
        text = msgspec.json.encode(seen).decode()
        texts = [(answer, msgspec.json.encode(answer).decode()) for answer in answers]
        try:
            if not self._open:
                self._db.execute("BEGIN IMMEDIATE")
                self._open = True
            self._db.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (seen.number, text))
            for place, (answer, written) in enumerate(texts):
                self._db.execute("INSERT INTO answers VALUES (?, ?, ?)", (seen.number, place, written))
                self._note_lease(seen.number, answer, slots)
        except sqlite3.Error as error:
            self._undo()
            raise StoreError.at(self.path, f"cannot be written: {error}") from error

    def begin(self, origin: Origin) -> None:
        """Note that a controller takes the run up. Raises StoreError."""
        try:
            self._db.execute("INSERT INTO life (origin) VALUES (?)", (msgspec.json.encode(origin).decode(),))
        except sqlite3.Error as error:
            raise StoreError.at(self.path, f"cannot be written: {error}") from error

    def commit(self) -> None:
        """Make everything written so far last. Raises StoreError; nothing since the last commit is written then."""
        if not self._open:
            return
        try:
            self._db.execute("COMMIT")
            self._open = False
        except sqlite3.Error as error:
            self._undo()
            raise StoreError.at(self.path, f"cannot be written: {error}") from error

    def _undo(self) -> None:
        self._open = False
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _note_lease(self, number: int, answer: Answer, slots: dict[str, int]) -> None:
        """Carry an answer into the table of leases."""
        if isinstance(answer, Sent) and isinstance(start := answer.command, Start):
            rows = [
                (slots[node] + slot, start.job, start.epoch, node, number)
                for node, its in start.slots.items()
                for slot in its
            ]
            # the same start may be sent once more; a lease of anybody else is an error
            known = "SELECT count(*) FROM leases WHERE slot = ? AND job = ? AND epoch = ?"
            fresh = [row for row in rows if not self._db.execute(known, row[:3]).fetchone()[0]]
            self._db.executemany("INSERT INTO leases VALUES (?, ?, ?, ?, ?)", fresh)
        elif isinstance(answer, Freed):
            ended = [(slot, answer.job, answer.epoch) for slot in answer.slots]
            self._db.executemany("DELETE FROM leases WHERE slot = ? AND job = ? AND epoch = ?", ended)


def _quoted(path: Path) -> str:
    from urllib.parse import quote

    return quote(str(path.absolute()))
