"""Where queries come from, instant by instant: arrivals that are known, or clients who see the answers.

The plain form of `kernels.closed`, for any pipeline.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable

import numpy as np

from forerun.serving.inputs.clients import Clients, Sent
from forerun.serving.inputs.pipeline import Floats
from forerun.serving.llm.engine.kernels.endings import ABANDONED, COMPLETE, REFUSED


class Arrivals:
    """Queries that arrive when they do.

    Parameters
    ----------
    arrivals_ms : float64[queries], ascending.
    """

    def __init__(self, arrivals_ms: Floats) -> None:
        self._arrivals = [*arrivals_ms.tolist(), math.inf]
        self._fed = 0

    @property
    def next_ms(self) -> float:
        """When the next one arrives; inf if there is none."""
        return float(self._arrivals[self._fed])

    def left(self, batches: Iterable[list[int]], now_ms: float) -> None:
        """Queries leave a stage, which changes nothing."""

    def take(self, now_ms: float) -> list[int]:
        """Those that arrive now."""
        begin = self._fed
        while self.next_ms == now_ms:
            self._fed += 1
        return list(range(begin, self._fed))


class Sender:
    """Queries that clients send.

    Parameters
    ----------
    clients : what they send.
    visits : by query, how many stages it comes by; with the last it is answered.
    refused : by query, whether a language model refuses it; such a one is answered at once.
    """

    def __init__(self, clients: Clients, visits: list[int], refused: list[bool]) -> None:
        self._of, self._visits, self._refused = clients, visits, refused
        self._session, self._waits = clients.session.tolist(), clients.waits.tolist()
        self._roots: list[list[int]] = [[] for _ in range(clients.sessions)]
        for query, session in enumerate(self._session):
            if not self._waits[query]:
                self._roots[session].append(query)
        self._unsent, self._open = np.bincount(clients.session).tolist(), [0] * clients.sessions
        self._under_way = self._taken = self._inside = 0
        self._line: deque[int] = deque()
        self._passed_ms = np.full(len(clients), np.nan)
        #: (instant, query) that is ready, or (instant, -1) for a client who takes a session
        self._ready: list[tuple[float, int]] = [(at_ms, -1) for at_ms in clients.joins_ms.tolist()]
        self._sent_ms, self._late_ms = np.full(len(clients), np.nan), np.zeros(len(clients))
        self._order: list[int] = []
        self._ended = [0] * clients.sessions
        if not len(clients.joins_ms):
            for session in range(clients.sessions):
                self._take_session(session, 0.0)

    @property
    def sent(self) -> Sent:
        """What was sent so far."""
        order, ended = (np.array(numbers, dtype=np.int64) for numbers in (self._order, self._ended))
        return Sent(self._of, self._sent_ms, self._late_ms, self._passed_ms, order, ended)

    @property
    def next_ms(self) -> float:
        """When a client does something next; inf if not before an answer."""
        may_send = self._ready and (self._ready[0][1] < 0 or self._under_way < self._of.most)
        return float(self._ready[0][0]) if may_send else math.inf

    def left(self, batches: Iterable[list[int]], now_ms: float) -> None:
        """Queries leave a stage, some of them their last."""
        for query in (query for batch in batches for query in batch):
            self._visits[query] -= 1
            if not self._visits[query]:
                self._under_way -= 1
                self._inside -= 1
                self._see(query, now_ms)

    def take(self, now_ms: float) -> list[int]:
        """Those that are sent now, as far as a gateway lets them pass, behind those that waited there."""
        passed: list[int] = []
        while self._line and self._inside < self._of.gate:
            self._pass(self._line.popleft(), now_ms, passed)
        while self.next_ms <= now_ms:
            ready_ms, query = heapq.heappop(self._ready)
            if query < 0:
                self._taken += 1
                if self._taken <= len(self._roots):
                    self._take_session(self._taken - 1, ready_ms)
                continue
            session = self._session[query]
            if self._ended[session]:
                self._close(session, now_ms)
                continue
            self._sent_ms[query], self._late_ms[query] = now_ms, now_ms - ready_ms
            self._order.append(query)
            self._unsent[session] -= 1
            waits = self._inside >= self._of.gate
            if self._refused[query] or (waits and len(self._line) >= self._of.queue):
                if self._refused[query]:
                    # It goes as far as the stage that refuses it.
                    passed.append(query)
                self._ended[session] = REFUSED
                self._close(session, now_ms)
            elif waits:
                self._under_way += 1
                self._line.append(query)
            elif not self._visits[query]:
                self._see(query, now_ms)
            else:
                self._under_way += 1
                self._pass(query, now_ms, passed)
        return passed

    def _pass(self, query: int, now_ms: float, passed: list[int]) -> None:
        self._passed_ms[query] = now_ms
        self._inside += 1
        passed.append(query)

    def _take_session(self, session: int, ready_ms: float) -> None:
        for query in self._roots[session]:
            self._make_ready(query, ready_ms)

    def _make_ready(self, query: int, ready_ms: float) -> None:
        self._open[self._session[query]] += 1
        heapq.heappush(self._ready, (max(ready_ms, float(self._of.planned_ms[query])), query))

    def _see(self, query: int, now_ms: float) -> None:
        """A client sees the answer to a query."""
        of, session = self._of, self._session[query]
        late = now_ms - self._sent_ms[query] > of.patience_ms[session]
        if late and self._unsent[session] and not self._ended[session]:
            self._ended[session] = ABANDONED
        if not self._ended[session]:
            for one in of.followers[of.begin[query] : of.begin[query + 1]].tolist():
                self._waits[one] -= 1
                if not self._waits[one]:
                    self._make_ready(one, now_ms + float(of.pause_ms[one]))
        self._close(session, now_ms)

    def _close(self, session: int, now_ms: float) -> None:
        """A query of a session is over, and with the last one the session."""
        self._open[session] -= 1
        if not self._open[session]:
            self._ended[session] = self._ended[session] or COMPLETE
            if len(self._of.joins_ms):
                heapq.heappush(self._ready, (now_ms + float(self._of.think_ms[session]), -1))
