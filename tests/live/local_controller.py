"""A controller of the local engine as a process, for tests that break something in it or kill it.

python -m tests.live.local_controller FOLDER FAULT SEED

It serves the run of a folder until it is stopped. The faults that only the process itself can bring about are named here.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import sqlite3
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from forerun.live.clock import clock_of
from forerun.live.engines.engine import Heartbeat
from forerun.live.engines.local import LocalEngine
from forerun.live.folder import RunFolder
from forerun.live.inbox import Inbox
from forerun.live.journal import Journal
from forerun.live.node_messages import ToNode
from forerun.live.observation import Observation
from forerun.live.run_files import controller_of
from forerun.live.service import Service
from forerun.live.session import Session

#: wall seconds that a fault lasts
LASTS_S = 8.0


class Disturbed(LocalEngine):
    """An engine whose connections are cut, slow, or deliver everything twice, for a while.

    Parameters
    ----------
    how : cut, delay or duplicate.
    draw : when, and by how much.
    """

    def __init__(self, folder: RunFolder, nodes: Mapping[str, int], how: str, draw: random.Random) -> None:
        self._how, self._draw = how, draw
        self._from_s = time.monotonic() + draw.uniform(2.0, 8.0)
        self._late_in: deque[tuple[float, Observation | Heartbeat]] = deque()
        self._late_out: deque[tuple[float, str, ToNode]] = deque()
        self._cut_s = 0.0
        super().__init__(folder, nodes)

    @property
    def _is_on(self) -> bool:
        return self._from_s <= time.monotonic() < self._from_s + LASTS_S

    def poll(self, timeout_s: float) -> Sequence[Observation | Heartbeat]:
        now_s = time.monotonic()
        if self._how == "cut" and self._is_on and now_s - self._cut_s > 1.0:
            self._cut_s = now_s
            for channel, _ in self._channels.values():
                channel.socket.shutdown(self._draw.choice([socket.SHUT_RDWR, socket.SHUT_WR]))
        while self._late_out and self._late_out[0][0] <= now_s:
            _, name, message = self._late_out.popleft()
            super()._give(name, message)
        waits = bool(self._late_in or self._late_out)
        seen = list(super().poll(min(timeout_s, 0.1) if waits else timeout_s))
        if self._how == "duplicate" and self._is_on:
            seen = [one for one in seen for _ in range(2)]
        if self._how == "delay" and (self._is_on or self._late_in):
            self._late_in.extend((now_s + self._delay_s(), one) for one in seen)
            seen = []
        while self._late_in and self._late_in[0][0] <= now_s:
            seen.append(self._late_in.popleft()[1])
        return seen

    def _give(self, name: str, message: ToNode) -> None:
        if self._how == "delay" and (self._is_on or self._late_out):
            self._late_out.append((time.monotonic() + self._delay_s(), name, message))
            return
        super()._give(name, message)
        if self._how == "duplicate" and self._is_on:
            super()._give(name, message)

    def _delay_s(self) -> float:
        return self._draw.uniform(0.1, 4.0) if self._is_on else 0.0


def dies(call: Callable[..., Any], countdown: list[int], *, before: bool) -> Callable[..., Any]:
    """A call that kills this process at the end of a countdown, before it does anything or after."""

    def either(*given: Any, **named: Any) -> Any:
        countdown[0] -= 1
        if before and countdown[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        result = call(*given, **named)
        if countdown[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return either


def fill_disk(session: Session, draw: random.Random) -> None:
    """Let the journal have no space left, for a while."""
    begin_s = time.monotonic() + draw.uniform(2.0, 8.0)
    database: sqlite3.Connection = session.journal._db
    step, full = session.step, [False]

    def either() -> None:
        is_full = begin_s <= time.monotonic() < begin_s + LASTS_S
        if is_full != full[0]:
            full[0] = is_full
            (pages,) = database.execute("PRAGMA page_count").fetchone()
            database.execute(f"PRAGMA max_page_count = {pages if is_full else 1 << 30}")
        step()

    session.step = either  # type: ignore[method-assign]


def main() -> None:
    """Serve until stopped."""
    folder, fault, seed = RunFolder(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
    draw = random.Random(seed)
    if fault == "calendar":
        calendar, off_s = time.time, draw.choice([-1, 1]) * 86400.0
        time.time = lambda: calendar() + off_s
    run = Journal(folder.journal, read_only=True).run
    nodes = {name: node.slots for name, node in controller_of(folder, run).nodes.items()}
    with folder.locked():
        how = fault if fault in ("cut", "delay", "duplicate") else ""
        engine = Disturbed(folder, nodes, how, draw) if how else LocalEngine(folder, nodes)
        inbox = Inbox()
        session = Session(folder, engine, clock_of(run.clock), inbox)
        countdown = [draw.randint(5, 40)]
        if fault in ("before-write", "after-write"):
            session.journal.commit = dies(session.journal.commit, countdown, before=fault == "before-write")  # type: ignore[method-assign]
        if fault in ("before-send", "after-send"):
            countdown[0] = draw.randint(1, 6)
            engine.send = dies(engine.send, countdown, before=fault == "before-send")  # type: ignore[method-assign]
        if fault == "full":
            fill_disk(session, draw)
        with Service(folder.path, inbox.answer):
            session.run()
            inbox.close()
        session.close()
        engine.close()


if __name__ == "__main__":
    main()
