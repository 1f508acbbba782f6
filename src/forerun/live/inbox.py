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
    """Requests from other threads, in order."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Asked | Look] = queue.SimpleQueue()

    def ask(self, what: Observation) -> Future[tuple[Answer, ...]]:
        """Let the session observe something; the answers come once they are in the journal."""
        asked = Asked(what)
        self._waiting.put(asked)
        return asked.answers

    def look(self, at: Callable[[Controller], T]) -> Future[T]:
        """Ask something of the controller's state; the function must not change it nor keep any of it."""
        look = Look(at)
        self._waiting.put(look)
        return look.answer

    def take(self) -> list[Asked | Look]:
        """All requests that wait."""
        taken: list[Asked | Look] = []
        while True:
            try:
                taken.append(self._waiting.get_nowait())
            except queue.Empty:
                return taken
