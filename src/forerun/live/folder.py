"""The folder of a live run: everything that it writes, and that a replay reads.

lock                   locked by the controller
scenario.yaml          the scenario, with its input files under inputs/
decider.json           which program decides in the place of its policy, if one does; it is given anew to each controller
jobs.json              what each job of the trace runs
journal.db             observations and decisions (`live.journal`); written last: with it, a run has begun
nonce                  random bytes; a node that can read them sees this folder
nodes.sock             on which nodes of the local engine talk to the controller
control.sock           on which commands of users arrive
occupancy.jsonl        who was on which slot when, as written beside the ranks themselves
jobs/NAME/             checkpoints/, logs/EPOCH-RANK.log
result/                at the end: an ordinary saved run
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from forerun.core.atomic_write import lock_file, write_bytes
from forerun.core.errors import StoreError

if TYPE_CHECKING:
    from forerun.cluster.decider import Decider

#: nobody else may look into jobs, or talk to the controller
OWNER_ONLY: Final = 0o700
#: what a run that has not begun may have left
_BEGINNINGS: Final = {"lock", "jobs", "nonce", "inputs", "scenario.yaml", "jobs.json", "decider.json"}


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The paths of a live run's folder.

    Parameters
    ----------
    path : of the folder.
    decider : the program that decides in the place of the scenario's policy (default: none).
    """

    path: Path
    decider: Decider | None = None

    @classmethod
    def create(cls, path: Path, decider: Decider | None = None) -> RunFolder:
        """Make the folder of a new run, for its owner only. Raises StoreError if it has anything else in it.

        What a run left that could not begin, as on a full disk, is written again.
        """
        folder = cls(path.absolute(), decider)
        try:
            folder.path.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
            names = {
                one.name
                for one in folder.path.iterdir()
                if not one.name.startswith((".forerun-", "journal.new"))
            }
            if names - _BEGINNINGS or (names and "lock" not in names):
                raise StoreError.at(path, "exists and is not empty; name another folder")
            folder.path.chmod(OWNER_ONLY)
            folder.lock.touch()
            folder.jobs.mkdir(mode=OWNER_ONLY, exist_ok=True)
            write_bytes(folder.nonce, secrets.token_bytes(32))
        except OSError as error:
            raise StoreError.at(path, f"cannot be written: {error.strerror or error}") from error
        return folder

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only controller of a run. Raises StoreError if another process is.

        What one that was killed had half written is removed; nodes that it left may still write their `.sessions`.
        """
        handle = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                lock_file(handle)
            except OSError:
                raise StoreError.at(self.path, "another controller serves this run") from None
            for left in self.path.glob(".forerun-*"):
                if left.is_dir():
                    shutil.rmtree(left, ignore_errors=True)
                elif left.suffix != ".sessions":
                    left.unlink(missing_ok=True)
            yield
        finally:
            os.close(handle)

    @property
    def lock(self) -> Path:
        """Locked by the controller."""
        return self.path / "lock"

    @property
    def scenario(self) -> Path:
        """The scenario."""
        return self.path / "scenario.yaml"

    @property
    def kept_decider(self) -> Path:
        """The program that decides, as plain data."""
        return self.path / "decider.json"

    @property
    def inputs(self) -> Path:
        """Copies of the files that the scenario names."""
        return self.path / "inputs"

    @property
    def specs(self) -> Path:
        """What each job of the trace runs."""
        return self.path / "jobs.json"

    @property
    def journal(self) -> Path:
        """Observations and decisions."""
        return self.path / "journal.db"

    @property
    def nonce(self) -> Path:
        """Random bytes."""
        return self.path / "nonce"

    @property
    def nodes_socket(self) -> Path:
        """On which nodes of the local engine talk to the controller."""
        return self.path / "nodes.sock"

    @property
    def occupancy(self) -> Path:
        """Who was on which slot when."""
        return self.path / "occupancy.jsonl"

    @property
    def result(self) -> Path:
        """The run, saved."""
        return self.path / "result"

    @property
    def jobs(self) -> Path:
        """The folders of the jobs."""
        return self.path / "jobs"

    def job(self, name: str) -> Path:
        """The folder of a job."""
        return self.jobs / name

    def checkpoints(self, name: str) -> Path:
        """The folder of a job's checkpoints."""
        return self.job(name) / "checkpoints"

    def log(self, name: str, epoch: int, rank: int) -> Path:
        """What a rank wrote."""
        return self.job(name) / "logs" / f"{epoch}-{rank}.log"
