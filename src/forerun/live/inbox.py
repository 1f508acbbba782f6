"""What other threads want of a session: it is done between two steps, in the session's own thread."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from concurrent.futures import TimeoutError as NoAnswer
from dataclasses import dataclass, field
from typing import Final

from forerun.live.service import Reply, Request

#: wall seconds that a request waits for the session
ANSWER_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of a user, and where its answer goes."""

    request: Request
    future: Future[Reply] = field(default_factory=Future)

    def answer(self, answer: Reply) -> None:
        """Answer it; the client may have gone."""
        with contextlib.suppress(InvalidStateError):
            self.future.set_result(answer)


class Inbox:
    """Requests from other threads, in order; once it is closed, all are cancelled.

    Attributes
    ----------
    wake : is called after each request, so that whoever takes them need not look all the time.
    """

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Asked] = queue.SimpleQueue()
        self._is_closed = False
        self.wake: Callable[[], None] = lambda: None

    def ask(self, request: Request) -> Future[Reply]:
        """Hand a request over; its answer comes once what it changes is in the journal."""
        asked = Asked(request)
        self._waiting.put(asked)
        self.wake()
        if self._is_closed:
            self._cancel_all()
        return asked.future

    def answer(self, request: Request) -> Reply:
        """The answer to a request, as soon as there is one."""
        try:
            return self.ask(request).result(ANSWER_S)
        except CancelledError:
            return Reply(problems=("the controller has ended",))
        except NoAnswer:
            return Reply(problems=(f"the controller did not answer within {ANSWER_S:.0f} s",))

    def close(self) -> None:
        """Nobody takes requests any more."""
        self._is_closed = True
        self._cancel_all()

    def _cancel_all(self) -> None:
        for asked in self.take():
            asked.future.cancel()

    def take(self) -> list[Asked]:
        """All requests that wait."""
        taken: list[Asked] = []
        with contextlib.suppress(queue.Empty):
            while True:
                taken.append(self._waiting.get_nowait())
        return taken
