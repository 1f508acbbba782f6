"""A load sent to a server: each request at its instant, whatever became of those before it, or a few at once."""

from __future__ import annotations

import asyncio
import contextlib
import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from forerun.domains.serving.calibration.experiment import Load
from forerun.domains.serving.inputs.pipeline import Floats
from forerun.measure.llm.exchange import Connection, Failure, Seen, Usage
from forerun.measure.llm.prompts import Prompts
from forerun.measure.llm.trial import Server
from forerun.measure.progress import Steps

#: a connection is opened so long before its request is due, so that opening it is not in what is measured
AHEAD_S: Final = 0.2
#: connections that fail in a row before no more requests are sent: the server is gone
MOST_REFUSED: Final = 20
TICK_S: Final = 1.0


@dataclass(frozen=True)
class Answered:
    """One request that was sent, or could not be. Instants in ms since the load began.

    Parameters
    ----------
    number : of the request in its load.
    sent_ms : when it was written (NaN: there was no connection).
    token_ms : float64[pieces], when each piece with text came.
    usage : what the server counted (None: it did not say).
    why : why there is no whole answer; empty: there is.
    """

    number: int
    sent_ms: float
    token_ms: Floats = field(repr=False)
    usage: Usage | None
    why: str = ""


@dataclass
class Replayed:
    """What came of a load, as far as it went.

    Parameters
    ----------
    answers : in the order they ended.
    under_way : requests that were sent and have not ended.
    stopped : why not all requests were sent; empty: all were.
    """

    answers: list[Answered] = field(default_factory=list)
    under_way: int = 0
    stopped: str = ""


def replay_load(server: Server, prompts: Prompts, load: Load, steps: Steps, into: Replayed) -> None:
    """Send a load and follow every answer to its end.

    Parameters
    ----------
    server : who is asked, and how.
    prompts : of the requests.
    load : when to send what, and how many may be under way.
    steps : called with how far it is.
    into : filled as requests end, so that it has them if this is interrupted.
    """
    asyncio.run(_Client(server, prompts, load, into).run(steps))


class _Client:
    def __init__(self, server: Server, prompts: Prompts, load: Load, into: Replayed) -> None:
        self._server, self._prompts, self._load, self._into = server, prompts, load, into
        limit = load.most_in_flight
        self._seats = asyncio.Semaphore(limit) if limit is not None else None
        self._begun_s, self._refused = math.nan, 0

    async def run(self, steps: Steps) -> None:
        """All requests, in order."""
        clock = asyncio.get_running_loop().time
        self._begun_s = clock() + AHEAD_S
        due_s = self._begun_s + (self._load.send_ms - self._load.send_ms[0]) / 1e3
        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(self._tick(steps))
            sending = []
            for number, at_s in enumerate(due_s.tolist()):
                if self._seats is not None:
                    await self._seats.acquire()
                await asyncio.sleep(at_s - AHEAD_S - clock())
                if self._refused >= MOST_REFUSED:
                    last = self._into.answers[-1].why
                    self._into.stopped = (
                        f"{MOST_REFUSED} connections in a row failed ({last}): the rest was not sent"
                    )
                    break
                sending.append(group.create_task(self._one(number, at_s)))
            await asyncio.gather(*sending)
            ticking.cancel()

    async def _one(self, number: int, at_s: float) -> None:
        """One request, from its connection to its end."""
        clock, seen, why = asyncio.get_running_loop().time, Seen(), ""
        tokens = int(self._load.output[number])
        self._into.under_way += 1
        try:
            connection = await Connection.open(self._server.address, self._server.wait_s)
            with contextlib.closing(connection):
                self._refused = 0
                request = self._server.request(
                    self._prompts.of(number, int(self._load.prompt[number])), tokens
                )
                await asyncio.sleep(at_s - clock())
                await connection.ask(request, tokens, seen)
        except Failure as failure:
            why = failure.why
            self._refused += not failure.reached
        finally:
            self._into.under_way -= 1
            if self._seats is not None:
                self._seats.release()
        sent_ms = (seen.sent_s - self._begun_s) * 1e3
        token_ms = (np.array(seen.token_s) - self._begun_s) * 1e3
        self._into.answers.append(Answered(number, sent_ms, token_ms, seen.usage, why))

    async def _tick(self, steps: Steps) -> None:
        """Say how far it is, now and then."""
        while True:
            await asyncio.sleep(TICK_S)
            ended, all_of_them = len(self._into.answers), len(self._load)
            failed = sum(bool(answer.why) for answer in self._into.answers)
            words = f"{ended} of {all_of_them} requests ended, {self._into.under_way} under way"
            steps.at(ended / all_of_them, words + (f", {failed} failed" if failed else ""))
