"""A server of a language model for tests: OpenAI's interface over HTTP, iterations of a fixed length, a log of what it did.

Requests share iterations: each emits a token to every request that runs, up to a number of seats. A word is a token, and
every prompt has some more. Answers can be held back until so many requests wait, so that a test of who sends when needs
no clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Writer = asyncio.StreamWriter


@dataclass
class Served:
    """One request: what was asked, and when what happened, on the machine's monotonic clock."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    received_s: float
    written_s: list[float] = field(default_factory=list)
    iterations: list[int] = field(default_factory=list)
    closed_s: float = float("inf")

    @property
    def text(self) -> str:
        """Its prompt."""
        return str(self.body["messages"][0]["content"] if "messages" in self.body else self.body["prompt"])

    @property
    def prompt_tokens(self) -> int:
        """As the server counts them."""
        prompt = self.body.get("prompt")
        return len(prompt) if isinstance(prompt, list) else len(self.text.split())


@dataclass
class LawfulServer:
    """How it behaves.

    step_s: of an iteration. seats: requests that share one. base: tokens that a prompt has besides its words.
    models: that it serves. counts: it says how many tokens there were. strict: it rejects fields that it does not know.
    most_tokens: of any answer. pieces: tokens that come in one piece. gate: answers begin when so many requests have come.
    cached: tokens that its prefix cache claims to have had. misbehave: called with each request and its writer before it is
    answered; true: it has done with it.
    """

    step_s: float = 0.001
    seats: int = 4
    base: int = 0
    models: tuple[str, ...] = ("tiny",)
    counts: bool = True
    strict: bool = False
    most_tokens: int = 10**9
    pieces: int = 1
    gate: int = 0
    cached: int = 0
    misbehave: Callable[[Served, Writer], bool] | None = None
    log: list[Served] = field(default_factory=list)
    most_at_once: int = 0
    url: str = ""

    @contextmanager
    def running(self) -> Iterator[LawfulServer]:
        """Serve on a free port of this machine, in a thread."""
        ready = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._main(ready)), daemon=True)
        thread.start()
        assert ready.wait(60)
        try:
            yield self
        finally:
            with contextlib.suppress(RuntimeError):  # it went away before
                self._loop.call_soon_threadsafe(self.leave)
            thread.join(60)

    def leave(self) -> None:
        """Close the socket and all connections, from the server's own thread."""
        self._done.set()

    @property
    def loaded(self) -> list[Served]:
        """The requests behind the trials, which ask for eight tokens with a short prompt first."""
        return [one for one in self.log if one.body.get("max_tokens") != 8]

    async def _main(self, ready: threading.Event) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        self._waiting: list[tuple[Served, asyncio.Queue[int]]] = []
        self._came = asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        engine = asyncio.create_task(self._iterate())
        ready.set()
        await self._done.wait()
        engine.cancel()
        server.close()

    async def _iterate(self) -> None:
        """Iterations without end while there is work."""
        number, running = 0, []
        while True:
            while self._waiting and len(running) < self.seats:
                running.append(self._waiting.pop(0))
            if not running or (self.gate and len(self.loaded) < self.gate and running[0][0] in self.loaded):
                self._came.clear()
                await self._came.wait()
                continue
            await asyncio.sleep(self.step_s)
            self.most_at_once = max(self.most_at_once, len(running))
            for served, queue in running:
                served.iterations.append(number)
                queue.put_nowait(number)
            number += 1
            running = [one for one in running if len(one[0].iterations) < self._tokens(one[0])]

    def _tokens(self, served: Served) -> int:
        return min(int(served.body["max_tokens"]), self.most_tokens)

    async def _serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        served = None
        try:
            served = await self._request(reader)
            if served is not None:
                await self._answer(served, writer)
            if served is None or not served.path.endswith("models"):
                await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            if served is not None:
                served.closed_s = time.monotonic()
            writer.close()

    async def _request(self, reader: asyncio.StreamReader) -> Served | None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        return Served(head[0].split()[1], json.loads(body or b"{}"), headers, time.monotonic())

    async def _answer(self, served: Served, writer: Writer) -> None:
        if served.path.endswith("/v1/models"):
            _plain(writer, 200, {"data": [{"id": name} for name in self.models]})
            return
        self.log.append(served)
        if served.body["model"] not in self.models:
            _plain(writer, 404, {"error": {"message": f"the model {served.body['model']} does not exist"}})
            return
        if self.strict and "ignore_eos" in served.body:
            _plain(writer, 422, {"detail": "Unexpected fields in the request: {'ignore_eos'}"})
            return
        self._came.set()
        if self.misbehave is not None and self.misbehave(served, writer):
            await writer.drain()
            return
        queue: asyncio.Queue[int] = asyncio.Queue()
        self._waiting.append((served, queue))
        self._came.set()
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        chat, tokens = "messages" in served.body, self._tokens(served)
        if chat:
            event(writer, {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        for token in range(1, tokens + 1):
            await queue.get()
            if token % self.pieces and token < tokens:
                continue
            ends = "length" if token == tokens else None
            word = {"delta": {"content": "word "}} if chat else {"text": "word "}
            # Before it is written: the client cannot have it earlier.
            served.written_s.append(time.monotonic())
            event(writer, {"choices": [{"index": 0, "finish_reason": ends, **word}]})
            await writer.drain()
        if self.counts:
            usage = {"prompt_tokens": self.base + served.prompt_tokens, "completion_tokens": tokens}
            cached = {"prompt_tokens_details": {"cached_tokens": self.cached}} if self.cached else {}
            event(writer, {"choices": [], "usage": usage | cached})
        chunk(writer, b"data: [DONE]\n\n")
        chunk(writer, b"")
        await writer.drain()


def event(writer: Writer, content: dict[str, Any]) -> None:
    """One event of a stream."""
    chunk(writer, b"data: " + json.dumps(content).encode() + b"\n\n")


def chunk(writer: Writer, data: bytes) -> None:
    """One chunk of a body; an empty one is the last."""
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _plain(writer: Writer, status: int, content: dict[str, Any]) -> None:
    body = json.dumps(content).encode()
    head = f"HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
