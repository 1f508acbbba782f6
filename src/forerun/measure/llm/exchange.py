"""One request to a server over a connection of its own: HTTP/1.1, and an answer that is streamed token by token.

Nothing is ever sent twice: a request that fails is counted as failed, with its reason in words.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import math
import os
import re
import ssl
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from forerun.errors import UsageError

#: longest line of an answer, longest head, and how much of an answer that is no stream is read
MOST_LINE_BYTES: Final = 1 << 20
MOST_HEAD_LINES: Final = 200
MOST_PLAIN_BYTES: Final = 1 << 20
PIECE_BYTES: Final = 1 << 16
#: characters of a server's own words that are repeated
MOST_WORDS: Final = 200
#: an answer may have twice as many pieces as tokens were asked for, and so many more, before it is cut off
SLACK_PIECES: Final = 64

T = TypeVar("T")


class Failure(Exception):
    """Why a request has no whole answer, in words.

    Parameters
    ----------
    why : what happened.
    status : of an answer that is an error (default 0: there was none).
    reached : whether the server took the connection (default: it did).
    """

    def __init__(self, why: str, *, status: int = 0, reached: bool = True) -> None:
        super().__init__(why)
        self.why, self.status, self.reached = why, status, reached


@dataclass(frozen=True)
class Address:
    """Where a server listens.

    Parameters
    ----------
    host, port : of the server.
    path : before `/v1`, without a slash at its end.
    secure : TLS is spoken.
    """

    host: str
    port: int
    path: str
    secure: bool

    @classmethod
    def of(cls, url: str, *, remote: bool) -> Address:
        """From a URL such as `http://127.0.0.1:8000`, with or without `/v1` at its end.

        Parameters
        ----------
        url : http or https, without user, query and fragment.
        remote : hosts other than this machine are allowed.

        Raises UsageError for any other URL.
        """
        if not url.isascii() or not url.isprintable() or " " in url:
            raise UsageError.at("URL", f"{url!r} is no URL")
        try:
            parts = urllib.parse.urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError as error:
            raise UsageError.at(f"URL {url}", str(error)) from None
        if parts.scheme not in ("http", "https") or not host:
            raise UsageError.at(f"URL {url}", "give the URL of a server, such as http://127.0.0.1:8000")
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            what = "has a user, a query or a fragment; a token is given by --token-file or --token-env"
            raise UsageError.at("URL", what)
        if not remote and not _is_here(host):
            raise UsageError.at(
                f"URL {url}", f"{host} is not this machine: say --remote to load a server elsewhere"
            )
        secure = parts.scheme == "https"
        path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
        return cls(host, port or (443 if secure else 80), path, secure)

    @property
    def here(self) -> bool:
        """Whether it is this machine, by its name alone."""
        return _is_here(self.host)

    @property
    def name(self) -> str:
        """Host and port, as HTTP and people write them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def post(address: Address, path: str, content: Mapping[str, Any], token: str) -> bytes:
    """A request as bytes.

    Parameters
    ----------
    address : of the server.
    path : such as `/v1/completions`.
    content : sent as JSON.
    token : bearer token; empty for none.
    """
    body = json.dumps(content, separators=(",", ":")).encode()
    head = _head("POST", address, path, token)
    head += [
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Accept: text/event-stream",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


def _head(method: str, address: Address, path: str, token: str) -> list[str]:
    lines = [f"{method} {address.path}{path} HTTP/1.1", f"Host: {address.name}", "Connection: close"]
    return [*lines, *([f"Authorization: Bearer {token}"] if token else [])]


class Usage(msgspec.Struct, frozen=True):
    """What a server counted.

    prompt_tokens, completion_tokens: of a request and its answer.
    prompt_tokens_details: of these, what its prefix cache had, if it says so.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: dict[str, Any] | None = None

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that the server's prefix cache had; 0 where it does not say."""
        found = (self.prompt_tokens_details or {}).get("cached_tokens")
        return found if isinstance(found, int) else 0


class _Delta(msgspec.Struct, frozen=True):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None


class _Choice(msgspec.Struct, frozen=True):
    text: Any = None
    delta: _Delta | None = None
    finish_reason: str | None = None

    @property
    def emits(self) -> bool:
        """Whether there is text of a token in it; the first piece of a chat has only a role."""
        delta = self.delta
        return bool(self.text or (delta and (delta.content or delta.reasoning_content or delta.reasoning)))


class _Piece(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []
    usage: Usage | None = None
    error: Any = None


_PIECES: Final = msgspec.json.Decoder(_Piece)


@dataclass
class Seen:
    """What came of one request, as far as it went. Instants are of the event loop's clock.

    Parameters
    ----------
    sent_s : when it was written (NaN: never).
    token_s : when each piece with text came.
    usage : what the server counted, if it said so.
    finished : the server said that the answer is whole.
    """

    sent_s: float = math.nan
    token_s: list[float] = field(default_factory=list)
    usage: Usage | None = None
    finished: bool = False


class Connection:
    """A connection for one request. `open` it, `ask` once, `close` it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wait_s: float) -> None:
        self._reader, self._writer, self._wait_s = reader, writer, wait_s
        self._clock = asyncio.get_running_loop().time
        self._due_s = self._clock() + wait_s

    @classmethod
    async def open(cls, address: Address, wait_s: float) -> Connection:
        """Connect.

        Parameters
        ----------
        address : of the server.
        wait_s : how long the connection, the answer's head and each further token may take.

        Raises Failure.
        """
        tls = ssl.create_default_context() if address.secure else None
        opening = asyncio.open_connection(address.host, address.port, limit=MOST_LINE_BYTES, ssl=tls)
        try:
            async with asyncio.timeout(wait_s):
                reader, writer = await opening
        except TimeoutError:
            raise Failure(f"no connection within {wait_s:g} s", reached=False) from None
        except OSError as error:
            raise Failure(f"no connection: {_reason(error)}", reached=False) from None
        return cls(reader, writer, wait_s)

    def close(self) -> None:
        """Hang up."""
        self._writer.close()

    async def ask(self, request: bytes, most_tokens: int, seen: Seen) -> None:
        """Send a request and follow its answer to the end.

        Parameters
        ----------
        request : made by `post`.
        most_tokens : that were asked for; an answer with many more pieces is cut off.
        seen : filled as things happen, so that it has what came before a failure.

        Raises Failure for everything but a whole answer.
        """
        seen.sent_s = self._clock()
        status, head = await self._in_words(self._send(request))
        kind = head.get("content-type", "nothing")
        if status != 200:
            said = await self._in_words(self._plain(head))
            raise Failure(f"answers {status}{_quoted(_message(said))}", status=status)
        if "text/event-stream" not in kind:
            raise Failure(f"answers {kind}, not a stream of events")
        try:
            await self._in_words(self._follow(head, most_tokens, seen))
        except Failure:
            # What comes behind the end of an answer, or does not come, changes nothing.
            if not seen.finished:
                raise
        if not seen.token_s:
            raise Failure("ended without a token")
        if not seen.finished:
            raise Failure(f"ended after {len(seen.token_s)} pieces without saying that it is whole")

    async def get(self, address: Address, path: str, token: str) -> bytes:
        """The body of what is at a path.

        Parameters
        ----------
        address : of the server.
        path : such as `/v1/models`.
        token : bearer token; empty for none.

        Raises Failure.
        """
        request = "\r\n".join([*_head("GET", address, path, token), "", ""]).encode()
        status, head = await self._in_words(self._send(request))
        body = await self._in_words(self._plain(head))
        if status != 200:
            raise Failure(f"answers {status}{_quoted(_message(body))}", status=status)
        return body

    async def _in_words(self, what: Awaitable[T]) -> T:
        """The same, with every way to fail in words."""
        try:
            return await what
        except TimeoutError:
            raise Failure(f"stalled: nothing came for {self._wait_s:g} s") from None
        except asyncio.IncompleteReadError:
            raise Failure("closed the connection before its answer was whole") from None
        except OSError as error:
            raise Failure(f"connection lost: {_reason(error)}") from None
        except (ValueError, asyncio.LimitOverrunError) as error:
            raise Failure(f"answers what is no HTTP: {_short(str(error))}") from None

    async def _send(self, request: bytes) -> tuple[int, dict[str, str]]:
        """Send, and read status and headers."""
        self._due_s = self._clock() + self._wait_s
        async with asyncio.timeout_at(self._due_s):
            self._writer.write(request)
            await self._writer.drain()
            while True:
                version, _, rest = (await self._line()).partition(" ")
                code = rest[:3]
                if not version.startswith("HTTP/1.") or not code.isdecimal():
                    raise ValueError(f"begins with {_short(f'{version} {rest}')!r}")
                head = await self._headers()
                if int(code) >= 200:
                    return int(code), head

    async def _line(self) -> str:
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise asyncio.IncompleteReadError(line, None)
        return line.rstrip(b"\r\n").decode("latin-1")

    async def _headers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for _ in range(MOST_HEAD_LINES):
            line = await self._line()
            if not line:
                return found
            name, _, value = line.partition(":")
            found[name.strip().lower()] = value.strip().lower()
        raise ValueError(f"has more than {MOST_HEAD_LINES} headers")

    async def _plain(self, head: Mapping[str, str]) -> bytes:
        """A body that is no stream, as far as it is read."""
        body = b""
        async for piece in self._body(head):
            body += piece
            if len(body) > MOST_PLAIN_BYTES:
                break
        return body

    async def _body(self, head: Mapping[str, str]) -> AsyncIterator[bytes]:
        """A body in pieces as they come, each before the time is up."""
        if "chunked" in head.get("transfer-encoding", ""):
            while size := int((await self._timely(self._line())).partition(";")[0].strip(), 16):
                if size < 0:
                    raise ValueError("has a chunk of negative size")
                while size:
                    piece = await self._timely(self._reader.read(min(size, PIECE_BYTES)))
                    if not piece:
                        raise asyncio.IncompleteReadError(b"", size)
                    size -= len(piece)
                    yield piece
                if await self._timely(self._line()):
                    raise ValueError("has a chunk that is longer than it says")
            return
        left = int(head["content-length"]) if "content-length" in head else None
        while left is None or left > 0:
            piece = await self._timely(
                self._reader.read(PIECE_BYTES if left is None else min(left, PIECE_BYTES))
            )
            if not piece:
                if left is not None:
                    raise asyncio.IncompleteReadError(b"", left)
                return
            left = None if left is None else left - len(piece)
            yield piece

    async def _timely(self, what: Awaitable[T]) -> T:
        async with asyncio.timeout_at(self._due_s):
            return await what

    async def _follow(self, head: Mapping[str, str], most_tokens: int, seen: Seen) -> None:
        """Read events to the end of the answer. Only an event gives more time: lines that merely keep a connection alive do
        not."""
        rest = b""
        async for piece in self._body(head):
            now_s = self._clock()
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > MOST_LINE_BYTES:
                raise Failure("sends a line without end")
            for line in lines:
                if not line.startswith(b"data:"):
                    continue
                self._due_s = now_s + self._wait_s
                data = line[5:].strip()
                if data == b"[DONE]":
                    seen.finished = True
                    return
                _take(data, now_s, seen)
            if len(seen.token_s) > 2 * most_tokens + SLACK_PIECES:
                raise Failure(f"does not end: {len(seen.token_s)} pieces came of {most_tokens} tokens")


def _take(data: bytes, now_s: float, seen: Seen) -> None:
    """One event."""
    try:
        piece = _PIECES.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Failure(f"sends what is no completion ({_short(str(error))})") from None
    if piece.error is not None:
        raise Failure(f"fails while it answers{_quoted(_worded(piece.error))}")
    if piece.usage is not None:
        seen.usage = piece.usage
    if any(choice.emits for choice in piece.choices):
        seen.token_s.append(now_s)
    if any(choice.finish_reason for choice in piece.choices):
        seen.finished = True


def _message(body: bytes) -> str:
    """What a server says of an error: the message in its JSON, else the beginning of its text."""
    text = body.decode("utf-8", "replace")
    try:
        return _worded(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _worded(error: Any) -> str:
    """The message in what describes an error."""
    for key in ("error", "message", "detail"):
        if isinstance(error, dict) and error.get(key):
            return _worded(error[key])
    return error if isinstance(error, str) else json.dumps(error)


def _quoted(said: str) -> str:
    return f": {_short(said)}" if said.strip() else ""


def _short(text: str) -> str:
    """One line of at most some characters."""
    line = " ".join(text.split())
    return line if len(line) <= MOST_WORDS else f"{line[:MOST_WORDS]}..."


def _reason(error: OSError) -> str:
    """Why the system fails; asyncio puts attempts at several addresses together into one text."""
    number = re.search(r"\[Errno (\d+)\]", str(error))
    if number and not isinstance(error, ssl.SSLError):
        return os.strerror(int(number[1]))
    return _short(error.strerror or str(error))
