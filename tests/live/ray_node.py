"""A node process without jobs, for tests of the engine over Ray: it notes starts, and answers what it is told.

It reports a group as started when told to start it, as gone when told to kill it, and the port of a rendezvous as progress.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import select
import signal
import socket
import sys
import time

from forerun.live import wire
from forerun.live.engines.engine import Heartbeat, Kill, Start
from forerun.live.node_messages import FromNode, Rendezvous, ToNode
from forerun.live.observation import Gone, NodeUp, Progressed, Started

BEAT_S = 0.5


def main() -> None:
    """Serve one connection after the other, until SIGTERM."""
    parser = argparse.ArgumentParser()
    for option in ("name", "slots", "socket", "folder", "address", "devices"):
        parser.add_argument(f"--{option}", required=True)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    boot, holds = secrets.token_hex(4), {}
    while True:
        with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
            connection.connect(given.socket)
            serve(connection, given, boot, holds)
        time.sleep(BEAT_S)


def serve(
    connection: socket.socket,
    given: argparse.Namespace,
    boot: str,
    holds: dict[str, tuple[int, tuple[int, ...]]],
) -> None:
    """Answer until the other end closes the connection."""

    def say(message: FromNode) -> None:
        connection.sendall(wire.encode(message))

    messages = wire.Decoder[ToNode](ToNode)
    beat_s = 0.0
    say(
        NodeUp(
            node=given.name, boot=boot, slots=int(given.slots), holds=dict(holds), stamp_s=time.monotonic()
        )
    )
    while True:
        if select.select([connection], [], [], BEAT_S)[0]:
            data = connection.recv(1 << 16)
            if not data:
                return
            for message in messages.feed(data):
                match message:
                    case Start(job=job, epoch=epoch, slots=slots):
                        holds[job] = epoch, slots[given.name]
                        say(Started(job=job, epoch=epoch, node=given.name))
                        if given.name == min(slots):
                            say(Rendezvous(job=job, epoch=epoch, address=given.address, port=1234))
                    case Kill(job=job, epoch=epoch):
                        holds.pop(job, None)
                        say(Gone(job=job, epoch=epoch, node=given.name))
                    case Rendezvous(job=job, epoch=epoch, port=port):
                        say(Progressed(job=job, epoch=epoch, step=port))
                    case _:
                        pass
        if time.monotonic() - beat_s > BEAT_S:
            beat_s = time.monotonic()
            say(Heartbeat(given.name, boot, beat_s, {job: epoch for job, (epoch, _) in holds.items()}))


if __name__ == "__main__":
    main()
