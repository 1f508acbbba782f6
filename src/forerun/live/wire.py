"""Messages between the processes of a run: frames of JSON over Unix sockets.

A frame is its length, four bytes with the highest first, and that many bytes of JSON; at most 1 MiB. What is no frame of
a known message ends the connection, after everything that came before it was delivered.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from forerun.core.errors import ForerunError, StoreError, worded

#: bytes of JSON in a frame, at most
MAX_BYTES: Final = 1 << 20

_HEAD: Final = 4
#: pid, user and group of the other end of a Unix socket
_PEER: Final = struct.Struct("3i")

T = TypeVar("T")

_encoder: Final = msgspec.json.Encoder()


class WireError(ForerunError):
    """What came over a connection is no message."""


def encode(message: msgspec.Struct | msgspec.Raw) -> bytes:
    """A message as a frame. Raises WireError if it is longer than a frame may be."""
    body = _encoder.encode(message)
    if len(body) > MAX_BYTES:
        raise WireError.at(
            type(message).__name__, f"is {len(body)} bytes long; a message has at most {MAX_BYTES}"
        )
    return len(body).to_bytes(_HEAD, "big") + body


class Decoder(Generic[T]):
    """Bytes in, messages out, wherever the bytes are cut.

    Parameters
    ----------
    kinds : the type, or union of types, that the messages have.
    """

    def __init__(self, kinds: Any) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kinds)
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[T]:
        """The messages that `data` completes. Raises WireError at the first bytes that are none."""
        pending = self._pending
        pending += data
        while len(pending) >= _HEAD:
            size = int.from_bytes(pending[:_HEAD], "big")
            if size > MAX_BYTES:
                raise WireError.at("message", f"announces {size} bytes; a message has at most {MAX_BYTES}")
            if len(pending) < _HEAD + size:
                return
            body = bytes(pending[_HEAD : _HEAD + size])
            del pending[: _HEAD + size]
            try:
                message = self._decoder.decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise WireError.at("message", f"is none that is known here: {worded(error)}") from None
            yield message


class Channel(Generic[T]):
    """A connected socket, never waited for: what cannot be sent at once is kept until `flush`.

    Parameters
    ----------
    connection : the socket; the channel owns it.
    kinds : what the other end sends.

    Attributes
    ----------
    fault : why the connection is of no use any more; empty while it is open.
    """

    def __init__(self, connection: socket.socket, kinds: Any) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.fault = ""
        self._decoder: Decoder[T] = Decoder(kinds)
        self._unsent = bytearray()

    def fileno(self) -> int:
        """Of the socket, for a selector."""
        return self.socket.fileno()

    @property
    def wants_to_write(self) -> bool:
        """Whether something waits until the socket takes it."""
        return bool(self._unsent) and not self.fault

    def receive(self) -> list[T]:
        """The messages that have come; sets `fault` at the end of the connection, or at what is no message."""
        messages: list[T] = []
        while not self.fault:
            try:
                data = self.socket.recv(1 << 16)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self.fault = error.strerror or str(error)
                break
            if not data:
                self.fault = "closed by the other end"
                break
            try:
                messages.extend(self._decoder.feed(data))
            except WireError as error:
                self.fault = str(error)
        return messages

    def send(self, message: msgspec.Struct) -> None:
        """Send a message, at once or later; nothing happens on a connection that has a fault."""
        if not self.fault:
            self._unsent += encode(message)
            self.flush()

    def flush(self) -> None:
        """Send what the socket takes now of what waits."""
        while self.wants_to_write:
            try:
                sent = self.socket.send(self._unsent)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self.fault = error.strerror or str(error)
                return
            del self._unsent[:sent]

    def close(self) -> None:
        """Close the socket."""
        self.fault = self.fault or "closed"
        with contextlib.suppress(OSError):
            self.socket.close()


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """A path under which a socket can be bound or reached, however long its folder's is: 108 bytes are the limit."""
    if sys.platform != "linux":
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def connected(path: Path) -> socket.socket:
    """A connection to a Unix socket. Raises OSError if nobody listens there."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        with _address(path) as address:
            connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def listening(path: Path) -> socket.socket:
    """A Unix socket for this user only, in place of one that an earlier process left. Raises StoreError."""
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        path.unlink(missing_ok=True)
        with _address(path) as address:
            listener.bind(address)
        listener.listen()
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise StoreError.at(path, f"cannot be made a socket: {error.strerror or error}") from error
    finally:
        os.umask(before)
    return listener


def is_of_this_user(connection: socket.socket) -> bool:
    """Whether the process at the other end of a Unix socket belongs to this user."""
    _, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return bool(user == os.getuid())
