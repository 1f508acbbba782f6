"""How the ranks of a job agree: every rank is connected to rank 0, which combines what all say and answers all the same.

Ranks use it at every step, to agree on whether to leave, and programs without torch use it to add up gradients. A stranger
who connects does not know the group's secret and is closed.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Final

_LENGTH: Final = struct.Struct(">Q")
_HELLO: Final = struct.Struct(">I32s")
_MOST_BYTES: Final = 1 << 34
#: wall seconds within which all ranks are there; the controller ends groups that hang far earlier
_PATIENCE_S: Final = 600.0
#: wall seconds that somebody who has connected may take to say who it is
_HELLO_S: Final = 5.0


class Star:
    """The connections of one rank: to rank 0, or of rank 0 to all others. A rank alone has none.

    Parameters
    ----------
    peers : sockets in the order of ranks.
    root : whether this is rank 0.
    """

    def __init__(self, peers: Sequence[socket.socket] = (), *, root: bool = True) -> None:
        self._peers, self._root = tuple(peers), root

    @classmethod
    def of_root(cls, listener: socket.socket, world_size: int, secret: str) -> Star:
        """Rank 0's: waits for all others.

        Parameters
        ----------
        listener : a bound socket that listens.
        world_size : how many ranks there are.
        secret : of the group.
        """
        peers: dict[int, socket.socket] = {}
        until_s = time.monotonic() + _PATIENCE_S
        while len(peers) < world_size - 1:
            listener.settimeout(max(0.1, until_s - time.monotonic()))
            peer, _ = listener.accept()
            peer.settimeout(_HELLO_S)
            rank = 0
            with contextlib.suppress(OSError):
                rank, proof = _HELLO.unpack(_exactly(peer, _HELLO.size))
                rank = rank if hmac.compare_digest(proof, _proof(secret, rank)) else 0
            if not 1 <= rank < world_size or rank in peers:
                peer.close()
                continue
            _prepare(peer)
            peers[rank] = peer
        return cls([peers[rank] for rank in range(1, world_size)])

    @classmethod
    def of_leaf(cls, address: str, port: int, rank: int, secret: str) -> Star:
        """Another rank's.

        Parameters
        ----------
        address, port : where rank 0 listens.
        rank : its number.
        secret : of the group.
        """
        peer = socket.create_connection((address, port), timeout=_PATIENCE_S)
        _prepare(peer)
        peer.sendall(_HELLO.pack(rank, _proof(secret, rank)))
        return cls([peer], root=False)

    def exchange(self, payload: bytes, combine: Callable[[list[bytes]], bytes]) -> bytes:
        """What rank 0 makes of the payloads of all ranks; every rank gets the same, once all have said theirs.

        Raises ConnectionError if a rank is gone.

        Parameters
        ----------
        payload : of this rank.
        combine : from the payloads in the order of ranks; called by rank 0.
        """
        try:
            if not self._root:
                _send(self._peers[0], payload)
                return _receive(self._peers[0])
            answer = combine([payload, *(_receive(peer) for peer in self._peers)])
            for peer in self._peers:
                _send(peer, answer)
        except OSError as failure:
            raise ConnectionError("another rank of the job is gone") from failure
        return answer

    def close(self) -> None:
        """Close the connections."""
        for peer in self._peers:
            peer.close()


def _proof(secret: str, rank: int) -> bytes:
    return hmac.digest(secret.encode(), b"rank %d" % rank, hashlib.sha256)


def _prepare(peer: socket.socket) -> None:
    peer.settimeout(None)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _send(peer: socket.socket, payload: bytes) -> None:
    peer.sendall(_LENGTH.pack(len(payload)) + payload)


def _receive(peer: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(peer, _LENGTH.size))
    if length > _MOST_BYTES:
        raise ConnectionError(f"a rank sent a message of {length} bytes")
    return _exactly(peer, length)


def _exactly(peer: socket.socket, length: int) -> bytes:
    data = bytearray(length)
    view, at = memoryview(data), 0
    while at < length:
        got = peer.recv_into(view[at:])
        if not got:
            raise ConnectionError("the connection was closed")
        at += got
    return bytes(data)
