"""The node as a process: sockets, zygotes and shims around `live.node`."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib.util
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from forerun.cluster.processes import MARK_VARIABLE, end_marked, marked
from forerun.core.atomic_write import write_bytes
from forerun.core.errors import StoreError
from forerun.live import processes
from forerun.live.folder import RunFolder
from forerun.live.node import LOOPBACK, Node, inherited, mark_of
from forerun.live.node_messages import FromShim, Order, Running, ToNode, ToShim
from forerun.live.shim import occupy, slots_of
from forerun.live.wire import Channel, connected
from forerun.live.zygote import send_order

#: seconds between two attempts to reach an engine
RETRY_S: Final = 0.2
#: seconds without an engine and without groups after which a node ends itself
ALONE_S: Final = 60.0
#: seconds without a word from an engine that is connected, after which a node connects again and says that it is there
UNANSWERED_S: Final = 5.0
#: seconds that a zygote has to end what a shim that was killed has left behind, before the node kills it and does so
ZYGOTE_S: Final = 2.0
#: seconds between two looks at the processes of shims
WATCH_S: Final = 1.0
#: seconds that a node tries to end what an earlier life of it left behind
LEFT_BEHIND_S: Final = 10.0


class _Session(msgspec.Struct, frozen=True):
    """A session of processes as a node writes it down. pid: of its leader; started: when that started (ticks)."""

    pid: int
    started: str
    mark: str


@dataclass(slots=True)
class _Shim:
    """A shim of this node.

    Parameters
    ----------
    host, order, channel : as the names say; the channel ends once nothing of the group is left.
    mark : that programs of the group carry.
    zygote : that forked it.
    pid : its process and session (0: it has not said so yet).
    killed_s : when it was first seen to be killed with everything in its session.
    """

    host: RealHost
    order: Order
    channel: Channel[FromShim]
    mark: str
    zygote: subprocess.Popen[bytes]
    pid: int = 0
    killed_s: float | None = None

    def say(self, message: ToShim) -> None:
        """Send it a message."""
        self.channel.send(message)

    def end(self) -> bool:
        """Kill it and every process of its group; whether none is left."""
        killed = processes.end_session(self.pid, self.mark)
        if self.channel.fault:
            # A zygote that is ending has not handed its orphans on yet.
            handing = self.zygote.poll() is None and processes.is_exiting(self.zygote.pid)
            if handing or not (killed and self.host.end_orphans()):
                return False
            occupy(self.order, "end", slots_of(self.order))  # it could not say so itself
            return True
        if killed:
            now_s = self.host.now_s()
            self.killed_s = self.killed_s or now_s
            if now_s - self.killed_s > ZYGOTE_S:
                self.zygote.kill()
        if self.zygote.poll() is not None:
            self.host.end_orphans()
        return False


@dataclass(slots=True)
class RealHost:
    """This machine.

    Parameters
    ----------
    folder : of the run, for the logs of zygotes.
    sessions : file that names the sessions of this life of the node.
    name : of the node.
    """

    folder: RunFolder
    sessions: Path
    name: str
    shims: dict[tuple[str, int], _Shim] = field(default_factory=dict)
    fresh: list[_Shim] = field(default_factory=list)
    _zygotes: dict[tuple[str, str, bool], tuple[subprocess.Popen[bytes], socket.socket]] = field(
        default_factory=dict
    )
    _cold: set[str] = field(default_factory=set)

    def now_s(self) -> float:
        """CLOCK_BOOTTIME."""
        return processes.boot_s()

    def begin(self, order: Order) -> _Shim:
        """Let a zygote fork a shim. Raises OSError where none can be started."""
        interpreter = order.command[0] if order.is_python else sys.executable
        if order.is_python and interpreter in self._cold:
            order, interpreter = msgspec.structs.replace(order, is_python=False), sys.executable
        if not Path(order.folder).is_dir():
            raise NotADirectoryError(20, "is no folder", order.folder)
        torch = order.is_python and imports_torch(order)
        ours, theirs = socket.socketpair()
        with theirs:
            for _ in range(2):  # the zygote may have died since the last order
                zygote = self._zygote(interpreter, order.folder, torch)
                try:
                    send_order(zygote, order, theirs)
                    break
                except OSError:
                    self._forget(interpreter, order.folder, torch)
            else:
                ours.close()
                raise ChildProcessError(10, "cannot fork ranks", interpreter)
        mark = mark_of(self.folder, order.job, order.epoch)
        process = self._zygotes[interpreter, order.folder, torch][0]
        shim = _Shim(self, order, Channel(ours, FromShim), mark, process)
        self.shims[order.job, order.epoch] = shim
        self.fresh.append(shim)
        return shim

    def running(self, shim: _Shim, pid: int) -> None:
        """Note which session a shim leads."""
        shim.pid = pid
        self.write_sessions()

    def write_sessions(self) -> None:
        """Write down the sessions that run, for the next life of this node."""
        known = [
            _Session(shim.pid, processes.started_at(shim.pid), shim.mark) for shim in self.shims.values()
        ]
        with contextlib.suppress(StoreError):  # a full disk; leases and shims end the groups in any case
            write_bytes(self.sessions, msgspec.json.encode([one for one in known if one.pid]))

    def end_earlier(self) -> None:
        """End the sessions that an earlier life of this node left behind."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            earlier = msgspec.json.decode(self.sessions.read_bytes(), type=list[_Session])
            until_s = time.monotonic() + LEFT_BEHIND_S
            for one in earlier:
                while processes.started_at(one.pid) == one.started != "" or marked(one.mark):
                    processes.end_session(one.pid, one.mark)
                    if time.monotonic() > until_s:
                        break
                    time.sleep(0.02)
        end_marked(mark_of(self.folder, f"@{self.name}"), LEFT_BEHIND_S)

    def end_orphans(self) -> bool:
        """End what zygotes and shims that were killed have left to this process; whether none is left."""
        known = {process.pid for process, _ in self._zygotes.values()}
        return processes.end_orphans(known | {shim.pid for shim in self.shims.values()})

    def not_a_zygote(self, order: Order) -> None:
        """A shim never answered: its interpreter may not have forerun, and runs programs the slow way from now on."""
        if order.is_python and order.command[0] != sys.executable:
            self._cold.add(order.command[0])

    def close(self) -> None:
        """End the zygotes."""
        for process, connection in self._zygotes.values():
            connection.close()
            process.kill()
            process.wait()
        self._zygotes.clear()

    def _zygote(self, interpreter: str, folder: str, torch: bool) -> socket.socket:
        key = interpreter, folder, torch
        known = self._zygotes.get(key)
        if known is not None and known[0].poll() is None:
            return known[1]
        self._forget(*key)
        ours, theirs = socket.socketpair()
        with theirs, (self.folder.path / f"{self.name}.log").open("ab") as log:
            process = subprocess.Popen(
                [
                    interpreter, "-m", "forerun.live.zygote",
                    "--fd", str(theirs.fileno()), "--parent", str(os.getpid()), *(["--torch"] if torch else []),
                ],
                pass_fds=[theirs.fileno()],
                cwd=folder,
                # numpy would start a thread a core, and a process with threads cannot be forked safely.
                env=inherited()
                | {"OPENBLAS_NUM_THREADS": "1", MARK_VARIABLE: mark_of(self.folder, f"@{self.name}")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )  # fmt: skip
        self._zygotes[key] = process, ours
        return ours

    def _forget(self, interpreter: str, folder: str, torch: bool) -> None:
        process, connection = self._zygotes.pop((interpreter, folder, torch), (None, None))
        if process is not None and connection is not None:
            connection.close()
            process.kill()
            process.wait()


def imports_torch(order: Order) -> bool:
    """Whether a program's own file speaks of torch; only then is it worth its import before the fork."""
    arguments = order.command[1:]
    path: str | None = str(Path(order.folder) / arguments[0])
    if arguments[0] == "-m":
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(arguments[1])
            path = spec.origin if spec is not None else None
    with contextlib.suppress(OSError, TypeError):
        return re.search(r"^\s*(import|from) torch\b", Path(str(path)).read_text("utf-8"), re.M) is not None
    return False


class NodeProcess:
    """The loop of a node: one thread that waits for the engine, the shims and the time.

    Parameters
    ----------
    node : what decides.
    host : this machine.
    address : path of the engine's socket.
    """

    def __init__(self, node: Node, host: RealHost, address: Path) -> None:
        self.node, self.host, self.address = node, host, address
        self._engine: Channel[ToNode] | None = None
        self._selector = selectors.DefaultSelector()
        self._tried_s = self._heard_s = self._answered_s = self._looked_s = self._watched_s = -1e9

    def run(self) -> None:
        """Serve until the node is asked to end, or nobody asks for it."""
        woken, wake = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, lambda number, frame: self.node.shut_down())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._selector.register(woken, selectors.EVENT_READ, lambda: os.read(woken, 4096))
        self._heard_s = self.host.now_s()
        while not (self.node.closing and not self.node.present()):
            self._leave_the_silent()
            self._connect()
            self.node.tick()
            self._send()
            for key, _ in self._selector.select(self._wait_s()):
                key.data()
            self._watch_fresh()
            self._watch_shims()
            if self._is_alone():
                break
        self._send()
        if self._engine is not None and not self._engine.fault:
            self._engine.socket.settimeout(2.0)
            self._engine.flush()
        self.host.write_sessions()
        self.host.close()

    def _wait_s(self) -> float:
        wait_s = max(0.0, self.node.next_s() - self.host.now_s())
        return min(wait_s, RETRY_S) if self._engine is None or self._engine.wants_to_write else wait_s

    def _is_alone(self) -> bool:
        """Whether nobody has asked for this node for long; its groups have ended with their leases by then."""
        if self._engine is not None:
            self._heard_s = self.host.now_s()
        return self.host.now_s() - self._heard_s > ALONE_S and not self.node.present()

    def _leave_the_silent(self) -> None:
        """Give a connection up on which heartbeats are not answered: the controller may have taken this node for gone."""
        engine, now_s = self._engine, self.host.now_s()
        if (
            now_s - self._looked_s > UNANSWERED_S / 2
        ):  # this node stood still: the answers may lie there unread
            self._answered_s = now_s
        self._looked_s = now_s
        if engine is not None and now_s - self._answered_s > UNANSWERED_S:
            self._selector.unregister(engine)
            engine.close()
            self._engine = None

    def _connect(self) -> None:
        """Reach the engine, now and then."""
        now_s = self.host.now_s()
        if self._engine is not None or now_s - self._tried_s < RETRY_S:
            return
        self._tried_s = now_s
        try:
            connection = connected(self.address)
        except OSError:
            return
        self._engine = Channel(connection, ToNode)
        self._answered_s = now_s
        self._selector.register(self._engine, selectors.EVENT_READ, self._hear_engine)
        self.node.out.clear()  # what it holds says all that matters, and its ends are reported again
        self.node.connected()

    def _hear_engine(self) -> None:
        engine = self._engine
        if engine is None:
            return
        for message in engine.receive():
            self._answered_s = self.host.now_s()
            self.node.handle(message)
        if engine.fault:
            self._selector.unregister(engine)
            engine.close()
            self._engine = None

    def _send(self) -> None:
        """Send what the node has to say; without an engine, nobody hears it."""
        for message in self.node.out:
            if self._engine is not None:
                self._engine.send(message)
        self.node.out.clear()
        if self._engine is not None:
            self._engine.flush()

    def _watch_fresh(self) -> None:
        """Listen to shims that were started since."""
        fresh, self.host.fresh = self.host.fresh, []
        for shim in fresh:
            with contextlib.suppress(KeyError):  # of a shim that was closed before it said anything
                self._selector.unregister(shim.channel.fileno())
            self._selector.register(
                shim.channel, selectors.EVENT_READ, lambda shim=shim: self._hear_shim(shim)
            )

    def _watch_shims(self) -> None:
        """Notice shims that were killed, where a zygote that stands still keeps their connections open."""
        now_s = self.host.now_s()
        if now_s - self._watched_s > WATCH_S:
            self._watched_s = now_s
            for (job, epoch), shim in list(self.host.shims.items()):
                if shim.pid and not processes.is_running(shim.pid):
                    self.node.lost(job, epoch)

    def _hear_shim(self, shim: _Shim) -> None:
        job, epoch = shim.order.job, shim.order.epoch
        for message in shim.channel.receive():
            if isinstance(message, Running):
                self.host.running(shim, message.pid)
            self.node.heard(job, epoch, message)
        if shim.channel.fault:
            self._selector.unregister(shim.channel)
            shim.channel.close()
            if not shim.pid:
                self.host.not_a_zygote(shim.order)
            self.node.lost(job, epoch)
            self.host.shims.pop((job, epoch), None)
            self.host.write_sessions()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="forerun.live.node_process", description="A node of a live run.")
    parser.add_argument("--name", required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--address", default=LOOPBACK)
    parser.add_argument("--devices", default="")
    parser.add_argument("--heartbeat", type=float, default=1.0)
    given = parser.parse_args()
    own = given.socket.parent
    with (own / f"{given.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return  # an earlier controller's node is still there, and connects by itself
        processes.adopt_orphans()
        folder = RunFolder(given.folder)
        host = RealHost(folder, own / f"{given.name}.sessions", given.name)
        host.end_earlier()
        devices = tuple(filter(None, given.devices.split(",")))
        node = Node(given.name, given.slots, folder, host, given.address, devices, given.heartbeat)
        NodeProcess(node, host, given.socket).run()


if __name__ == "__main__":
    main()
