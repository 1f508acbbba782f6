"""A Python that has imported what training programs import, and forks a shim for each group that is to start.

Importing torch takes seconds of processor time in every rank; a fork has it at once. A zygote has one thread, as a fork
demands, and never touches a GPU. There is one an interpreter, a folder and a set of imports. It ends with its node.

    python -m forerun.live.zygote --fd 5 --parent 4711 [--torch]
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import select
import signal
import socket
import struct
import sys
from typing import Final

import msgspec

from forerun.live import job, processes, shim
from forerun.live.node_messages import Order

_LENGTH: Final = struct.Struct(">I")
#: seconds between two attempts to end what a shim has left behind
AGAIN_S: Final = 0.02


def send_order(zygote: socket.socket, order: Order, connection: socket.socket) -> None:
    """Ask a zygote for a shim.

    Parameters
    ----------
    zygote : the connection to it.
    order : what the shim runs.
    connection : the shim's end of its connection to the node.
    """
    body = msgspec.json.encode(order)
    socket.send_fds(zygote, [_LENGTH.pack(len(body))], [connection.fileno()])
    zygote.sendall(body)


def _received(zygote: socket.socket) -> tuple[Order, socket.socket] | None:
    """The next order and its connection; None at the end."""
    head, descriptors, _, _ = socket.recv_fds(zygote, _LENGTH.size, 1)
    if len(head) < _LENGTH.size:
        return None
    body = bytearray()
    size = _LENGTH.unpack(head)[0]
    while len(body) < size:
        data = zygote.recv(size - len(body))
        if not data:
            return None
        body += data
    return msgspec.json.decode(bytes(body), type=Order), socket.socket(fileno=descriptors[0])


def serve(zygote: socket.socket) -> None:
    """Fork a shim for every order, until the node closes the connection.

    The end of a shim's connection means that no process of its group is left, even where the shim itself was killed: this
    process keeps the other end until it has ended everything that such a shim left behind.
    """
    woken = processes.wake_on_children()
    shims: dict[int, socket.socket] = {}
    ended: list[socket.socket] = []
    while True:
        ready, _, _ = select.select([zygote.fileno(), woken], [], [], AGAIN_S if ended else None)
        processes.empty(woken)
        ended += _ended(shims)
        if ended and processes.end_orphans(shims):
            while ended:
                ended.pop().close()
        if zygote.fileno() not in ready:
            continue
        received = _received(zygote)
        if received is None:
            return
        order, connection = received
        pid = os.fork()
        if pid == 0:
            for other in (zygote, *shims.values(), *ended):
                other.close()
            shim.run(connection, order)
        shims[pid] = connection


def _ended(shims: dict[int, socket.socket]) -> list[socket.socket]:
    """The connections of shims that have ended, which are forgotten."""
    ended = []
    with contextlib.suppress(ChildProcessError):
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            if pid in shims:
                ended.append(shims.pop(pid))
    return ended


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="forerun.live.zygote")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--torch", action="store_true")
    given = parser.parse_args()
    processes.die_with_parent(given.parent)
    processes.adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(ImportError):
        import numpy  # noqa: F401
    if given.torch:
        with contextlib.suppress(ImportError):
            # The first optimiser imports torch._dynamo, which takes as long again as torch itself.
            import torch
            import torch._dynamo

            assert not torch.cuda.is_initialized()
    assert job.__name__ in sys.modules
    gc.collect()
    gc.freeze()  # what all share stays shared
    with socket.socket(fileno=given.fd) as zygote:
        zygote.set_inheritable(False)
        serve(zygote)


if __name__ == "__main__":
    main()
