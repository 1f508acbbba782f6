"""A store over HTTP whose latency, bandwidth, slots and failures are chosen: a remote store on this machine.

It serves the files below one folder, on the loopback interface by default: GET and HEAD with keep-alive,
strict single ranges (206, 416), and a listing. Latencies and failures are of a seeded stream, in the order of
serving. Nothing outside the folder is served; with a token, nothing without it.
"""

from __future__ import annotations

import asyncio
import bisect
import heapq
import hmac
import math
import threading
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import numpy as np

from forerun.core.errors import UsageError
from forerun.core.rng import stream
from forerun.core.units import whole_number

MAX_HEAD_BYTES: Final = 16 * 1024
MAX_BODY_BYTES: Final = 1024 * 1024
CHUNK_BYTES: Final = 256 * 1024
IDLE_S: Final = 60.0
#: how long a listing of the folder is believed
LISTED_FOR_S: Final = 5.0


@dataclass(frozen=True)
class StoreSpec:
    """How the store behaves. Latency is lognormal; infinite rates and 0 slots are no limit.

    Parameters
    ----------
    latency_s : mean, from the beginning of service (default: 0).
    sigma : standard deviation of the latency's logarithm (default: 0.2).
    conn_bytes_per_s, shared_bytes_per_s : bandwidth of a connection, and of all together (default: no limit).
    slots : requests in service at a time (default: 0: no limit).
    requests_per_s : rate of requests (default: no limit).
    error_share : of the requests, those that are answered 503 (default: none).
    reset_share : those that are cut off in the middle of the body (default: none).
    stall_share, stall_s : those that stop there, and for how many seconds (defaults: none, 60).
    seed : of latencies and failures (default: 0).
    token : bearer token that requests need (default: none).
    changes : pairs of seconds after the store's start and the mean latency from then on, in ascending order (default: none).
    """

    latency_s: float = 0.0
    sigma: float = 0.2
    conn_bytes_per_s: float = math.inf
    shared_bytes_per_s: float = math.inf
    slots: int = 0
    requests_per_s: float = math.inf
    error_share: float = 0.0
    reset_share: float = 0.0
    stall_share: float = 0.0
    stall_s: float = 60.0
    seed: int = 0
    token: str = ""
    changes: tuple[tuple[float, float], ...] = ()

    def latency_at(self, since_s: float) -> float:
        """The mean latency so long after the store's start.

        Parameters
        ----------
        since_s : seconds since the store began to serve.
        """
        past = [latency_s for at_s, latency_s in self.changes if at_s <= since_s]
        return past[-1] if past else self.latency_s


@dataclass
class Counters:
    """What the store has seen.

    Parameters
    ----------
    requests : received.
    bytes : sent of files.
    in_service, most_in_service : requests at a time, now and at most.
    errors : requests that were made to fail.
    """

    requests: int = 0
    bytes: int = 0
    in_service: int = 0
    most_in_service: int = 0
    errors: int = 0


@dataclass(frozen=True)
class _Request:
    """A request as it was read: header names in lower case, the query decoded, no body."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass
class _Due:
    """When what a request waits for is due, on the loop's clock [s].

    Delays are added to the time at which the last one was due, not to the time at which a sleep ended: sleeping a
    millisecond too long, request after request, would make the store slower than it was asked to be.
    """

    at_s: float

    async def after(self, seconds: float) -> None:
        """Return that much later than what was due before; at once where that is past."""
        self.at_s += seconds
        await self.reached()

    async def reached(self) -> None:
        """Return when it is due."""
        left_s = self.at_s - asyncio.get_running_loop().time()
        if left_s > 0:
            await asyncio.sleep(left_s)


class _Answered(Exception):
    """A request that is answered with a status and no file.

    Parameters
    ----------
    status : such as `404 Not Found`.
    headers : lines of the answer, each with its end.
    """

    def __init__(self, status: str, headers: str = "") -> None:
        self.status, self.headers = status, headers


@dataclass
class LatencyStore:
    """The store, in a thread of its own: `with LatencyStore(folder, spec) as store: store.url`.

    Parameters
    ----------
    folder : whose files are served.
    spec : how the store behaves (default: at once, without limits).
    host, port : where it listens (defaults the loopback interface, a free port).
    counters : what it has seen.
    """

    folder: Path
    spec: StoreSpec = field(default_factory=StoreSpec)
    host: str = "127.0.0.1"
    port: int = 0
    counters: Counters = field(default_factory=Counters)

    def __post_init__(self) -> None:
        if not self.folder.is_dir():
            raise UsageError.at(str(self.folder), "is not a directory; a store serves one")
        self.root = self.folder.resolve()
        self._rng: np.random.Generator = stream(self.spec.seed, "latency store")
        self._link_free_s = self._bucket_s = 0.0
        self._listing: list[str] = []
        self._listed_s = -math.inf
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._failed: OSError | None = None

    @property
    def url(self) -> str:
        """Where the store answers."""
        return f"http://{self.host}:{self.port}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="latency store", daemon=True)
        self._thread.start()
        self._ready.wait(10)
        if self._failed is not None:
            raise UsageError.at(f"{self.host}:{self.port}", f"cannot be served: {self._failed.strerror}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self) -> None:
        """The thread: serve, or keep the error for the caller who waits."""
        try:
            asyncio.run(self._serve())
        except OSError as error:
            self._failed = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        """Listen, and serve until the store is stopped. The port is known once this has begun."""
        self._loop = asyncio.get_running_loop()
        self._begun_s = time.monotonic()
        self._stop = asyncio.Event()
        self._slots = asyncio.Semaphore(self.spec.slots) if self.spec.slots else None
        self._freed_s = [-math.inf] * self.spec.slots
        server = await asyncio.start_server(self._connection, self.host, self.port, limit=MAX_HEAD_BYTES)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        async with server:
            await self._stop.wait()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until the client leaves, an answer was cut off, or nothing comes for a minute."""
        try:
            while (request := await self._read(reader)) is not None:
                if not await self._answer(request, writer):
                    break
        except asyncio.CancelledError:
            return  # the store is being stopped
        except (
            OSError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
            TimeoutError,
            ValueError,
        ):
            return  # the client left, or does not speak HTTP: nobody to answer
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> _Request | None:
        """The next request; None if the client has closed the connection."""
        async with asyncio.timeout(IDLE_S):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                return None
        lines = head.decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split(" ", 2)
        parts = urllib.parse.urlsplit(target)
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:])
        }
        # A body means nothing here, but what comes after it is the next request.
        body = whole_number(headers.get("content-length", "0"))
        if body is None or body > MAX_BODY_BYTES or "transfer-encoding" in headers:
            raise ValueError("a body that is not read")
        await reader.readexactly(body)
        return _Request(
            method, urllib.parse.unquote(parts.path), dict(urllib.parse.parse_qsl(parts.query)), headers
        )

    async def _answer(self, request: _Request, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; whether the connection lives on."""
        self.counters.requests += 1
        due = _Due(asyncio.get_running_loop().time())
        await self._wait_turn(due)
        if self._slots is not None:
            await self._slots.acquire()
            due.at_s = max(due.at_s, heapq.heappop(self._freed_s))
        self.counters.in_service += 1
        self.counters.most_in_service = max(self.counters.most_in_service, self.counters.in_service)
        try:
            return await self._serve_one(request, writer, due)
        except _Answered as answered:
            head = f"HTTP/1.1 {answered.status}\r\nContent-Length: 0\r\n{answered.headers}\r\n"
            writer.write(head.encode())
            await writer.drain()
            return True
        finally:
            self.counters.in_service -= 1
            if self._slots is not None:
                heapq.heappush(self._freed_s, due.at_s)
                self._slots.release()

    async def _wait_turn(self, due: _Due) -> None:
        """One request each 1 / rate seconds.

        Parameters
        ----------
        due : moved to when this request's turn is.
        """
        if math.isinf(self.spec.requests_per_s):
            return
        due.at_s = max(due.at_s, self._bucket_s)
        self._bucket_s = due.at_s + 1 / self.spec.requests_per_s
        await due.reached()

    async def _serve_one(self, request: _Request, writer: asyncio.StreamWriter, due: _Due) -> bool:
        """Wait for the latency, then answer with a file, the listing, or an error that the spec wants.

        Parameters
        ----------
        request : as it was read.
        writer : of its connection.
        due : moved to when the answer has been sent, by the latency and the bandwidths.

        Returns whether the connection lives on. Raises _Answered for a request that gets no file.
        """
        spec = self.spec
        latency, fate = spec.latency_at(time.monotonic() - self._begun_s), self._rng.random()
        if latency:
            latency *= math.exp(spec.sigma * self._rng.standard_normal() - spec.sigma**2 / 2)
            await due.after(latency)
        if spec.token and not hmac.compare_digest(
            request.headers.get("authorization", ""), f"Bearer {spec.token}"
        ):
            raise _Answered("401 Unauthorized")
        if fate < spec.error_share:
            self.counters.errors += 1
            raise _Answered("503 Service Unavailable", "Retry-After: 0\r\n")
        if request.method not in ("GET", "HEAD"):
            raise _Answered("405 Method Not Allowed", "Allow: GET, HEAD\r\n")
        if request.path == "/":
            await self._list(request, writer)
            return True
        path = self._path(request.path)
        size = path.stat().st_size
        first, last, status = _range(request.headers.get("range"), size)
        head = f"HTTP/1.1 {status}\r\nContent-Length: {last - first}\r\nAccept-Ranges: bytes\r\n"
        if status.startswith("206"):
            head += f"Content-Range: bytes {first}-{last - 1}/{size}\r\n"
        writer.write((head + "\r\n").encode())
        if request.method == "HEAD":
            await writer.drain()
            return True
        cut = fate >= 1 - spec.reset_share
        stalled = not cut and fate >= 1 - spec.reset_share - spec.stall_share
        half = first + (last - first) // 2
        await self._send(path, first, half if cut or stalled else last, writer, due)
        if stalled:
            await due.after(spec.stall_s)
            await self._send(path, half, last, writer, due)
        self.counters.errors += cut or stalled
        return not cut

    def _path(self, name: str) -> Path:
        """The file of a name. Raises _Answered for one that is absent or outside the folder."""
        try:
            path = (self.root / name.lstrip("/")).resolve()
            if path.is_relative_to(self.root) and path.is_file():
                return path
        except (OSError, ValueError):  # a name that no file can have
            pass
        raise _Answered("404 Not Found")

    async def _send(self, path: Path, first: int, last: int, writer: asyncio.StreamWriter, due: _Due) -> None:
        """The bytes, no faster than the connection and the shared link let them through.

        A chunk is sent when the slower of connection and link would have sent it.

        Parameters
        ----------
        path : of the file.
        first, last : bytes of it, the last one excluded.
        writer : of the connection.
        due : when sending begins; moved to when it ends.
        """
        spec = self.spec
        with path.open("rb") as file:
            file.seek(first)
            at = first
            while at < last:
                data = file.read(min(CHUNK_BYTES, last - at))
                if not data:
                    return
                at += len(data)
                if not math.isinf(spec.shared_bytes_per_s):
                    self._link_free_s = max(due.at_s, self._link_free_s) + len(data) / spec.shared_bytes_per_s
                due.at_s = max(due.at_s + len(data) / spec.conn_bytes_per_s, self._link_free_s)
                await due.reached()
                writer.write(data)
                await writer.drain()
                self.counters.bytes += len(data)

    async def _list(self, request: _Request, writer: asyncio.StreamWriter) -> None:
        """Names and sizes as the listing of an object store (version 2, at most 1,000 keys)."""
        prefix, after = request.query.get("prefix", ""), request.query.get("start-after", "")
        names = await asyncio.to_thread(self._names)
        listed = [name for name in names[bisect.bisect_right(names, after) :] if name.startswith(prefix)]
        rows = "".join(
            f"<Contents><Key>{_escaped(name)}</Key><Size>{(self.root / name).stat().st_size}</Size></Contents>"
            for name in listed[:1000]
        )
        more = str(len(listed) > 1000).lower()
        body = f"<ListBucketResult><IsTruncated>{more}</IsTruncated>{rows}</ListBucketResult>".encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + (b"" if request.method == "HEAD" else body))
        await writer.drain()

    def _names(self) -> list[str]:
        """The files below the folder, looked up anew after a while only: a listing has many pages."""
        now = time.monotonic()
        if now - self._listed_s > LISTED_FOR_S:
            self._listing = sorted(
                path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file()
            )
            self._listed_s = now
        return self._listing


def _escaped(text: str) -> str:
    """Text as XML has it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _range(header: str | None, size: int) -> tuple[int, int, str]:
    """First byte, end, and status; a range that cannot be served is 416.

    Raises _Answered with 416.

    Parameters
    ----------
    header : of the request, None if it has no range.
    size : bytes of the file.
    """
    if header is None:
        return 0, size, "200 OK"
    unit, _, span = header.partition("=")
    first, dash, last = span.partition("-")
    good = unit == "bytes" and dash and "," not in span and (first or last)
    if not good or None in (whole_number(first or "0", 64), whole_number(last or "0", 64)):
        raise _Answered("416 Range Not Satisfiable", f"Content-Range: bytes */{size}\r\n")
    begin = int(first) if first else max(0, size - int(last))
    end = min(size, int(last) + 1) if first and last else size
    if begin >= size or begin >= end:
        raise _Answered("416 Range Not Satisfiable", f"Content-Range: bytes */{size}\r\n")
    return begin, end, "206 Partial Content"
