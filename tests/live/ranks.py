"""The shim's side of the socket, for tests: starts the ranks of a group, forwards their rendezvous, notes what they say."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from forerun.live.engines.engine import Checkpoint
from forerun.live.rank_messages import (
    ASSIGNMENT_VARIABLE,
    FD_VARIABLE,
    Assignment,
    FromRank,
    Leaving,
    Lines,
    Rendezvous,
    Saved,
    ToRank,
    from_rank,
    line,
)

#: nobody waits longer for anything, however busy the machine is
PATIENCE_S = 240.0


def _run(command: Sequence[str], folder: str, environment: dict[str, str], inherited: Any) -> None:
    """In a process that has imported what programs import: be the program."""
    os.environ.clear()
    os.environ |= environment | {FD_VARIABLE: str(inherited.detach())}
    os.chdir(folder)
    if command[0] == "-m":
        sys.argv = [*command[1:]]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [*command]
        runpy.run_path(command[0], run_name="__main__")


class Warm:
    """A rank that is forked from a process with numpy and torch: to import them is most of the work of a test."""

    _server = multiprocessing.get_context("forkserver") if sys.platform == "linux" else None

    def __init__(self, command: Sequence[str], environment: dict[str, str], fd: int) -> None:
        assert self._server is not None
        self._server.set_forkserver_preload(
            ["__main__", "forerun.live.programs.paced", "torch", "torch._dynamo"]
        )
        # Only while a process starts can it be given a descriptor.
        given = command, str(Path.cwd()), environment, _Descriptor(fd)
        self._process = self._server.Process(target=_run, args=given)
        with patch.dict(os.environ, environment):  # the server's, too, if this starts it
            self._process.start()
        self.kill = self._process.kill

    def wait(self, timeout_s: float | None = None) -> int | None:
        self._process.join(timeout_s)
        return self.poll()

    def poll(self) -> int | None:
        return self._process.exitcode

    returncode = property(poll)

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)


class _Descriptor:
    """A descriptor on its way to another process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __reduce__(self) -> tuple:
        return _itself, (DupFd(self._fd),)


def _itself(dup: Any) -> Any:
    return dup


class Group:
    """The ranks of a job under one epoch. Leaving the `with` block kills those that still run.

    folder: of the job. command: the program. world: how many ranks. other arguments: of the assignment.
    """

    def __init__(self, folder: Path, command: Sequence[str], world: int, **assignment: Any) -> None:
        self.said: list[tuple[int, FromRank]] = []
        self._ends: list[socket.socket] = []
        self._lines = [Lines() for _ in range(world)]
        self.ranks: list[Any] = []
        known = {
            "epoch": 1, "node_slots": 64, "job_slots": world, "iterations": 100,
            "secret": "secret",
        }  # fmt: skip
        for rank in range(world):
            ours, theirs = socket.socketpair()
            of_rank = Assignment(
                rank=rank, world_size=world, local_rank=rank, slots=(rank,), folder=str(folder),
                **(known | assignment),
            )  # fmt: skip
            environment = os.environ | {
                FD_VARIABLE: str(theirs.fileno()),
                ASSIGNMENT_VARIABLE: msgspec.json.encode(of_rank).decode(),
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
            }
            with theirs:
                self.ranks.append(
                    Warm(command, environment, theirs.fileno())
                    if Warm._server is not None
                    else subprocess.Popen(
                        [sys.executable, *command],
                        env=environment,
                        pass_fds=[theirs.fileno()],
                        close_fds=True,
                    )
                )
            self._ends.append(ours)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.wait()
        for end in self._ends:
            end.close()

    def tell(self, message: ToRank, ranks: Sequence[int] | None = None) -> None:
        """Send a message to some ranks (default: all)."""
        for rank in range(len(self.ranks)) if ranks is None else ranks:
            self._ends[rank].sendall(line(message))

    def until(self, seen: Callable[[Group], object]) -> Group:
        """Listen until something is so. Fails if it never is."""
        until_s = time.monotonic() + PATIENCE_S
        while not seen(self):
            assert time.monotonic() < until_s, f"not seen; said was {self.said}"
            self._listen()
        return self

    def _listen(self) -> None:
        open_ends = [end for end in self._ends if end.fileno() >= 0]
        if not open_ends:
            time.sleep(0.01)
            return
        for end in select.select(open_ends, [], [], 0.1)[0]:
            rank = self._ends.index(end)
            try:
                data = end.recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                end.close()
                continue
            for text in self._lines[rank].feed(data):
                message = from_rank(text)
                self.said.append((rank, message))
                if isinstance(message, Rendezvous):
                    self.tell(message, range(1, len(self.ranks)))

    def ended(self) -> list[int]:
        """Wait until all ranks have exited; their exit codes."""
        self.until(lambda _: all(rank.poll() is not None for rank in self.ranks))
        self.until(lambda _: all(end.fileno() < 0 for end in self._ends))
        return [rank.returncode for rank in self.ranks]

    def of(self, kind: type, rank: int | None = None) -> list[Any]:
        """The messages of a kind, of one rank or of all."""
        return [one for who, one in self.said if isinstance(one, kind) and rank in (None, who)]

    def why(self) -> set[tuple[str, int]]:
        """Why ranks left, and after how many steps."""
        return {(one.why, one.step) for one in self.of(Leaving)}

    def checkpoints(self) -> list[Checkpoint]:
        """What was saved, newest first."""
        return [Checkpoint(one.file, one.step, one.sha256) for one in reversed(self.of(Saved))]

    def signal(self, rank: int, number: signal.Signals) -> None:
        """Send a signal to a rank."""
        self.ranks[rank].send_signal(number)
