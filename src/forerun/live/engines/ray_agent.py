"""What runs on a machine of a Ray cluster: the node process, and the actor that starts it and carries its messages.

The node is the same process as on one machine, and talks over a Unix socket as it does there. The agent keeps each of
its messages until the engine confirms it, and passes on each message of the engine once, in order.

A process that Ray starts outlives a raylet that is killed, for as long as it likes. So the agent looks at its parent:
once the raylet is gone, it ends the node, which ends its groups, and then itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from forerun.cluster.processes import kill_all
from forerun.core.atomic_write import write_bytes
from forerun.core.errors import StoreError, UsageError
from forerun.core.version import VERSION
from forerun.live import processes
from forerun.live.wire import Decoder, WireError, encode, is_of_this_user, listening

#: wall seconds between two looks at the raylet and the node process
WATCH_S: Final = 0.25
#: wall seconds that a node may take to end its groups, before it is killed and their shims end them
END_S: Final = 5.0
#: wall seconds without any engine after which an agent ends its node and itself, and frees its bundle
ALONE_S: Final = 60.0


class Outbox:
    """Numbered frames that are kept until they are confirmed."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._first = 1

    def put(self, frame: bytes) -> int:
        """Keep a frame; returns its number, from 1."""
        self._frames.append(frame)
        return self._first + len(self._frames) - 1

    def confirm(self, last: int) -> None:
        """Forget the frames up to this number."""
        while self._frames and self._first <= last:
            self._frames.popleft()
            self._first += 1

    def waiting(self) -> tuple[int, list[bytes]]:
        """The number of the first frame that is not confirmed, and the frames from there on."""
        return self._first, list(self._frames)


class Inbox:
    """Numbered frames, each accepted once and in order, however often it comes.

    Parameters
    ----------
    last : number of the last one accepted (default: none yet).
    """

    def __init__(self, last: int = 0) -> None:
        self.last = last

    def accept(self, first: int, frames: Sequence[bytes]) -> list[bytes]:
        """Those of the frames, numbered from `first`, that come next; none where some before them are missing."""
        known = self.last + 1 - first
        if known < 0:
            return []
        new = list(frames[known:])
        self.last += len(new)
        return new


class Agent:
    """The actor of a machine. Its methods are called over Ray, by one engine after the other.

    Parameters
    ----------
    name : of the node.
    slots : how many it has.
    folder : of the run, as the engine sees it; a machine that does not see it gets one of its own.
    run : names the run on this machine.
    program : module that is the node process, and arguments that precede those of the node.
    version : of the engine's forerun; another one here is an error.
    """

    def __init__(
        self, name: str, slots: int, folder: str, run: str, program: Sequence[str], version: str
    ) -> None:
        import ray

        if version != VERSION:
            raise UsageError.at(name, f"has forerun {VERSION}; the controller has {version}")

        self._ray = ray
        self.boot = secrets.token_hex(4)
        self._raylet = os.getppid()
        self._here = private_folder(run, name)
        self._outbox, self._inbox = Outbox(), Inbox()
        self._session = ""
        self._taken_s = time.monotonic()
        #: guards all of the above
        self._changed = threading.Condition()
        _end_earlier(self._here / "pids")
        if not (Path(folder) / "nonce").is_file():
            folder = str(self._here)  # this machine does not see the run's folder
        path = self._here / "nodes.sock"
        self._listener = listening(path)
        self._listener.setblocking(True)
        command = [sys.executable, "-m", *program, "--name", name, "--slots", str(slots)]
        command += ["--socket", str(path), "--folder", folder]
        command += ["--address", ray.util.get_node_ip_address()]
        command += ["--devices", os.environ.get("CUDA_VISIBLE_DEVICES", "")]
        with (Path(folder) / f"{name}.log").open("ab") as log:
            # Jobs have no use for what Ray tells its own processes, the cluster's token above all.
            variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
            self._node = subprocess.Popen(
                command, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        known = [(pid, processes.started_at(pid)) for pid in (os.getpid(), self._node.pid)]
        write_bytes(self._here / "pids", msgspec.json.encode(known))
        self._connection: socket.socket | None = None
        threading.Thread(target=self._receive, name="receive", daemon=True).start()
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    # ------------------------------------------------------------------------------------------- called by the engine

    def take(self, session: str, confirmed: int, wait_s: float) -> tuple[str, int, list[bytes]]:
        """This life of the node, and its frames after `confirmed` with the number of the first; waits for one.

        Parameters
        ----------
        session : a new one ends what was under way with the one before.
        confirmed : number of the last frame that the engine has.
        wait_s : wall seconds to wait for a frame at most.
        """
        with self._changed:
            if session != self._session:
                if self._session and self._connection:
                    # The node connects again, and says what it holds to the engine that is new.
                    self._connection.shutdown(socket.SHUT_RDWR)
                self._session, self._inbox = session, Inbox()
                self._changed.notify_all()
            self._outbox.confirm(confirmed)
            self._taken_s = time.monotonic()

            def due() -> bool:
                return session != self._session or bool(self._outbox.waiting()[1])

            self._changed.wait_for(due, wait_s)
            first, frames = self._outbox.waiting()
            return self.boot, first, frames

    def give(self, session: str, first: int, frames: Sequence[bytes]) -> int:
        """Pass frames to the node; returns the number of the last that it has.

        Parameters
        ----------
        session : those of a former one are dropped.
        first : number of the first of the frames.
        frames : whole.
        """
        with self._changed:
            if session != self._session:
                return 0
            for frame in self._inbox.accept(first, frames):
                if self._connection:
                    with contextlib.suppress(OSError):
                        self._connection.sendall(frame)
            return self._inbox.last

    def stop(self) -> None:
        """End the groups, the node process, and then this actor's work; it can be ended now."""
        self._end()

    def pids(self) -> tuple[int, int]:
        """Of this actor and of the node process, for tests and for people."""
        return os.getpid(), self._node.pid

    # ------------------------------------------------------------------------------------------------------- threads

    def _receive(self) -> None:
        """Keep what the node says, over one connection after the other; in a thread of its own."""
        while True:
            connection, _ = self._listener.accept()
            with connection:
                if not is_of_this_user(connection):
                    continue
                with self._changed:
                    self._connection = connection
                with contextlib.suppress(OSError, WireError):
                    self._keep(connection)
                with self._changed:
                    self._connection = None

    def _keep(self, connection: socket.socket) -> None:
        """Keep the frames of a connection until its end. Raises OSError and WireError."""
        decoder: Decoder[msgspec.Raw] = Decoder(msgspec.Raw)
        while data := connection.recv(1 << 16):
            with self._changed:
                for message in decoder.feed(data):
                    self._outbox.put(encode(message))
                self._changed.notify_all()

    def _watch(self) -> None:
        """End this process with its node, with its raylet, or where no engine has asked for long."""
        alone = False
        while os.getppid() == self._raylet and self._node.poll() is None and not alone:
            time.sleep(WATCH_S)
            alone = time.monotonic() - self._taken_s > ALONE_S
        self._end()
        # What the node said at its end is still to be taken: by an engine that asks now, or within a moment.
        with self._changed:
            self._changed.wait_for(lambda: not self._outbox.waiting()[1], 2 * WATCH_S)
        if alone:
            self._ray.util.remove_placement_group(self._ray.util.get_current_placement_group())
        os._exit(1)

    def _end(self) -> None:
        """End the node process: by its own doing, or by force after `END_S`."""
        self._node.terminate()
        try:
            self._node.wait(END_S)
        except subprocess.TimeoutExpired:
            self._node.kill()
            self._node.wait()


def private_folder(run: str, name: str) -> Path:
    """A folder of the run on this machine, that nobody else can look into."""
    folder = (
        Path(tempfile.gettempdir())
        / f"forerun-live-{os.getuid()}"
        / run
        / hashlib.sha256(name.encode()).hexdigest()[:12]
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for part in (folder, folder.parent, folder.parent.parent):
        about = part.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
            raise StoreError.at(part, "is not a folder of this user")
        part.chmod(0o700)
    return folder


def _end_earlier(pids: Path) -> None:
    """Kill an agent and a node process that an earlier life left here: they may stand still, and hold the node's lock."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        earlier = msgspec.json.decode(pids.read_bytes(), type=list[tuple[int, str]])
        kill_all([pid for pid, started in earlier if started and processes.started_at(pid) == started])
