"""The control socket of a run: submit, cancel, drain, stop and status, from other processes of the same user.

It is a Unix socket in the run's folder, which only its owner can enter; the kernel says who connects, and others are turned
away. A request and its answer are one frame each (`live.wire`).
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from forerun.core.errors import Problem, UsageError
from forerun.live.message import Message
from forerun.live.spec import JobSpec
from forerun.live.status import JobStatus, RunStatus
from forerun.live.wire import Decoder, WireError, connected, encode, is_of_this_user, listening

SOCKET: Final = "control.sock"
#: seconds that a client waits for an answer, and the service for a request
PATIENCE_S: Final = 60.0
#: requests answered at the same time
MOST_CLIENTS: Final = 32
#: jobs of a status in one frame
_JOBS: Final = 500


class Submit(Message, frozen=True, kw_only=True):
    """Take a job in."""

    spec: JobSpec


class Cancel(Message, frozen=True, kw_only=True):
    """End a job that is waiting or running."""

    job: str


class DrainNode(Message, frozen=True, kw_only=True):
    """Move everything off a node, and start nothing more on it."""

    node: str


class Stop(Message, frozen=True, kw_only=True):
    """Save all jobs, end all processes, and leave; the run can be served again."""


class GetStatus(Message, frozen=True, kw_only=True):
    """Say what the run is doing."""


class GetDecision(Message, frozen=True, kw_only=True):
    """Say what the policy decided on a job, after some seconds at most that it has for it."""

    job: str


Request = Submit | Cancel | DrainNode | Stop | GetStatus | GetDecision


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer to a request.

    Parameters
    ----------
    said : what was done, a line.
    problems : why it was not done, a line each; empty if it was.
    status : the run's, where it was asked for.
    more : whether another frame follows, with further jobs of the status.
    """

    said: str = ""
    problems: tuple[str, ...] = ()
    status: RunStatus | None = None
    more: bool = False


class Service:
    """Answers requests on the control socket until it is closed.

    Parameters
    ----------
    folder : the run's folder.
    answer : gives the answer to a request; it is called from several threads.

    Raises
    ------
    StoreError : the socket cannot be made.
    """

    def __init__(self, folder: Path, answer: Callable[[Request], Reply]) -> None:
        self._answer = answer
        self._path = folder / SOCKET
        self._places = threading.BoundedSemaphore(MOST_CLIENTS)
        # Only one controller has the run's lock, so a socket that is there was left behind.
        self._socket = listening(self._path)
        self._socket.setblocking(True)
        self._thread = threading.Thread(target=self._accept, name="control socket", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more requests, and remove the socket."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(timeout=5.0)
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            if not self._places.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        """Answer the requests of one client, until it leaves or says what is no request."""
        try:
            with connection:
                connection.settimeout(PATIENCE_S)
                if not is_of_this_user(connection):
                    _send(connection, Reply(problems=("this run belongs to another user",)))
                    return
                decoder: Decoder[Request] = Decoder(Request)
                while data := connection.recv(1 << 16):
                    try:
                        for request in decoder.feed(data):
                            _send(connection, self._answer(request))
                    except WireError as error:
                        _send(connection, Reply(problems=(str(error),)))
                        return
        except OSError:
            pass  # the client has gone
        finally:
            self._places.release()


class Client:
    """Asks the controller of a run.

    Parameters
    ----------
    folder : the run's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def ask(self, request: Request) -> Reply:
        """The answer to a request.

        Raises
        ------
        UsageError : nobody serves this run, or the request was turned down; a line each.
        """
        try:
            with connected(self._folder / SOCKET) as connection:
                connection.settimeout(PATIENCE_S)
                with contextlib.suppress(BrokenPipeError):  # it may have said why before it was asked
                    connection.sendall(encode(request))
                answer = _one(connection)
        except (FileNotFoundError, ConnectionRefusedError):
            raise UsageError.at(
                self._folder, "no controller serves this run now; forerun live serve SCENARIO starts one"
            ) from None
        except TimeoutError:
            raise UsageError.at(
                self._folder, f"the controller did not answer within {PATIENCE_S:.0f} s"
            ) from None
        except OSError as error:
            raise UsageError.at(
                self._folder, f"the controller does not answer: {error.strerror or error}"
            ) from error
        if answer.problems:
            raise UsageError(*(Problem("", what) for what in answer.problems))
        return answer


def _one(connection: socket.socket) -> Reply:
    """The answer that comes over a connection, of all its frames. Raises OSError if it ends before."""
    decoder: Decoder[Reply] = Decoder(Reply)
    jobs: list[JobStatus] = []
    while data := connection.recv(1 << 16):
        for answer in decoder.feed(data):
            if answer.status is None:
                return answer
            jobs += answer.status.jobs
            if not answer.more:
                status = msgspec.structs.replace(answer.status, jobs=tuple(jobs))
                return msgspec.structs.replace(answer, status=status)
    raise ConnectionResetError("it has ended")


def _send(connection: socket.socket, answer: Reply) -> None:
    """Send an answer, the jobs of a large status in several frames."""
    status = answer.status
    if status is not None:
        for at in range(0, len(status.jobs) - _JOBS, _JOBS):
            part = msgspec.structs.replace(status, jobs=status.jobs[at : at + _JOBS])
            connection.sendall(encode(msgspec.structs.replace(answer, status=part, more=True)))
        left = len(status.jobs) % _JOBS or min(_JOBS, len(status.jobs))
        rest = msgspec.structs.replace(status, jobs=status.jobs[len(status.jobs) - left :])
        answer = msgspec.structs.replace(answer, status=rest)
    connection.sendall(encode(answer))
