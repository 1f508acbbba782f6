"""What other threads want of a session: it is done between two steps, in the session's own thread."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from forerun.live.answers import Answer
from forerun.live.controller import Controller
from forerun.live.observation import Observation

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked:
    """An observation from a user. answers: to it, once they are in the journal."""

    what: Observation
    answers: Future[tuple[Answer, ...]] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class Look:
    """A question about the controller's state. answer: what the function returns."""

    at: Callable[[Controller], Any]
    answer: Future[Any] = field(default_factory=Future)


class Inbox:
    """Requests from other threads, in order; once it is closed, all are cancelled."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Asked | Look] = queue.SimpleQueue()
        self._is_closed = False

    def ask(self, what: Observation) -> Future[tuple[Answer, ...]]:
        """Let the session observe something; the answers come once they are in the journal."""
        asked = Asked(what)
        self._put(asked)
        return asked.answers

    def look(self, at: Callable[[Controller], T]) -> Future[T]:
        """Ask something of the controller's state; the function must not change it nor keep any of it."""
        look = Look(at)
        self._put(look)
        return look.answer

    def close(self) -> None:
        """Nobody takes requests any more."""
        self._is_closed = True
        self._cancel_all()

    def _put(self, request: Asked | Look) -> None:
        self._waiting.put(request)
        if self._is_closed:
            self._cancel_all()

    def _cancel_all(self) -> None:
        for request in self.take():
            (request.answers if isinstance(request, Asked) else request.answer).cancel()

    def take(self) -> list[Asked | Look]:
        """All requests that wait."""
        taken: list[Asked | Look] = []
        while True:
            try:
                taken.append(self._waiting.get_nowait())
            except queue.Empty:
                return taken
