"""The engine of one machine: a process for each node, on a Unix socket in the run's folder."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

from forerun.cluster.processes import MARK_VARIABLE, end_marked
from forerun.live.engines.engine import Command, Heartbeat
from forerun.live.engines.routes import Routes
from forerun.live.folder import RunFolder
from forerun.live.node import mark_of
from forerun.live.node_messages import FromNode, Rendezvous, Renewal, Shutdown, ToNode
from forerun.live.observation import NodeDown, NodeUp, Observation
from forerun.live.wire import Channel, is_of_this_user, listening

#: wall seconds between two starts of a node's process
REVIVE_S: Final = 2.0
#: seconds that nodes have to end their groups when the engine is closed
CLOSE_S: Final = 8.0


class LocalEngine:
    """Nodes that are processes of this machine.

    A controller that takes a run up again finds the nodes that the one before left: they connect by themselves, and say
    what they hold. A node whose process has ended is started again, as a new and empty node.

    Parameters
    ----------
    folder : of the run.
    nodes : how many slots each node has, by name.
    devices : of each node, for CUDA_VISIBLE_DEVICES by slot (default: none).
    heartbeat_s : wall seconds between two signs of life of a node (default: 1).

    Raises StoreError where the socket cannot be made.
    """

    def __init__(
        self,
        folder: RunFolder,
        nodes: Mapping[str, int],
        devices: Mapping[str, Sequence[str]] | None = None,
        heartbeat_s: float = 1.0,
    ) -> None:
        self._heartbeat_s = heartbeat_s
        self._folder, self._nodes, self._devices = folder, dict(nodes), devices or {}
        self._selector = selectors.DefaultSelector()
        self._listener = listening(folder.nodes_socket)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._wake.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, self._wakes)
        self._is_woken = False
        self._channels: dict[str, tuple[Channel[FromNode], str]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._started_s: dict[str, float] = {}
        self._seen: list[Observation | Heartbeat] = []
        self._routes = Routes()
        for name in nodes:
            self.start_node(name)

    def start_node(self, name: str) -> None:
        """Start a node's process; it ends at once if one of that name is there already."""
        self._started_s[name] = time.monotonic()
        command = [sys.executable, "-m", "forerun.live.node_process"]
        command += ["--name", name, "--slots", str(self._nodes[name])]
        command += ["--socket", str(self._folder.nodes_socket), "--folder", str(self._folder.path)]
        command += ["--devices", ",".join(self._devices.get(name, ())), "--heartbeat", str(self._heartbeat_s)]
        # A node that the controller before started is no child of this one: closing finds it by its mark.
        variables = os.environ | {MARK_VARIABLE: mark_of(self._folder, f"@{name}")}
        with (self._folder.path / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    # ---------------------------------------------------------------------------------------------------- the engine

    def poll(self, timeout_s: float) -> Sequence[Observation | Heartbeat]:
        """Everything received since the last call, in order; waits at most `timeout_s` wall seconds for the first."""
        end_s = time.monotonic() + timeout_s
        while True:
            wait_s = 0.0 if self._seen else max(0.0, end_s - time.monotonic())
            for key, _ in self._selector.select(wait_s):
                key.data()
            for channel, _ in self._channels.values():
                channel.flush()
            self._revive()
            if self._seen or self._is_woken or time.monotonic() >= end_s:
                self._is_woken = False
                seen, self._seen = self._seen, []
                return seen

    def wake(self) -> None:
        """Let a poll that waits return now, or the next one if none does; called by any thread."""
        with contextlib.suppress(OSError):  # it is full of such words, or the engine is closed
            self._wake.send(b"!")

    def _wakes(self) -> None:
        self._is_woken = bool(self._woken.recv(1 << 12))

    def send(self, command: Command) -> None:
        """Send a command to the nodes concerned, without waiting for its effect."""
        for name in self._routes.of(command, self._channels):
            self._give(name, command)

    def renew(self, beat: Heartbeat, term_s: float, groups: Mapping[str, int]) -> None:
        """Answer a heartbeat: the leases of these epochs, by job, end `term_s` after the heartbeat's stamp."""
        self._give(
            beat.node, Renewal(boot=beat.boot, stamp_s=beat.stamp_s, term_s=term_s, groups=dict(groups))
        )

    def close(self) -> None:
        """End every group and every process of the run."""
        for name in self._channels:
            self._give(name, Shutdown())
        end_s = time.monotonic() + CLOSE_S
        while self._channels and time.monotonic() < end_s:
            for key, _ in self._selector.select(0.1):
                key.data()
            for channel, _ in self._channels.values():
                channel.flush()
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, end_s - time.monotonic()))
            process.kill()
            process.wait()
        end_marked(mark_of(self._folder), CLOSE_S)
        self.leave()
        self._folder.nodes_socket.unlink(missing_ok=True)

    def leave(self) -> None:
        """Let the nodes go on alone, until another controller takes the run up or their leases end."""
        for channel, _ in self._channels.values():
            channel.close()
        for own in (self._listener, self._woken, self._wake):
            own.close()
        self._selector.close()

    # --------------------------------------------------------------------------------------------------------- nodes

    def _revive(self) -> None:
        """Start the processes of nodes that have ended."""
        for name, process in self._processes.items():
            due_s = self._started_s[name] + REVIVE_S
            if name not in self._channels and time.monotonic() > due_s and process.poll() is not None:
                self.start_node(name)

    def _give(self, name: str, message: ToNode) -> None:
        if name in self._channels:
            self._channels[name][0].send(message)

    def _accept(self) -> None:
        """Take a connection of this user's processes; others are closed."""
        connection, _ = self._listener.accept()
        if not is_of_this_user(connection):
            connection.close()
            return
        channel: Channel[FromNode] = Channel(connection, FromNode)
        self._selector.register(channel, selectors.EVENT_READ, lambda: self._hear(channel))

    def _hear(self, channel: Channel[FromNode]) -> None:
        for message in channel.receive():
            match message:
                case NodeUp(node=name, boot=boot):
                    if name not in self._nodes:
                        channel.fault = f"no node is called {name}"
                        break
                    earlier = self._channels.get(name)
                    if earlier is not None and earlier[0] is not channel:
                        self._drop(earlier[0])
                    self._channels[name] = channel, boot
                    self._seen.append(message)
                case Rendezvous():
                    pass
                case _:
                    self._seen.append(message)
            sender = next((name for name, (known, _) in self._channels.items() if known is channel), "")
            for name, onward in self._routes.onward(message, sender, self._channels):
                self._give(name, onward)
        if channel.fault:
            for name, (known, boot) in list(self._channels.items()):
                if known is channel:
                    del self._channels[name]
                    self._seen.append(NodeDown(node=name, boot=boot))
            self._drop(channel)

    def _drop(self, channel: Channel[FromNode]) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(channel)
        channel.close()
