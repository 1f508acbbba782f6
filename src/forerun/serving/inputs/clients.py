"""Load that depends on the answers: clients that send one request after the other, and limits of requests under way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: more requests under way than any client has
UNLIMITED = 2**62


@dataclass(frozen=True)
class Clients:
    """What is sent, request by request, where that depends on the answers.

    Requests belong to *sessions*, which are numbered in a row where clients take them. One is ready when it is planned, and
    when those that it follows have been answered and a pause has passed. Ready ones are sent in the order of these instants,
    then of their numbers, while fewer than `most` are under way. Where there are clients, each has one session at a time,
    and takes the next one in order when that has ended and it has thought; else sessions begin as planned. A request that a
    language model refuses is answered at once, and ends its session.

    Parameters
    ----------
    planned_ms : float64[requests], none is sent before.
    session : int64[requests], the session of each, from 0 without gaps; ascending where there are clients.
    begin : int64[requests + 1], where those that follow a request begin in `followers`.
    followers : int64[...], numbers of requests.
    pause_ms : float64[requests], between the last answer that a request waits for and its own readiness.
    joins_ms : float64[clients], ascending, when each client takes its first session; empty: there are none.
    think_ms : float64[sessions], from the end of a session until its client takes the next.
    patience_ms : float64[sessions], the user of a session sends nothing more after an answer that took longer.
    most : requests under way at most.
    gate : requests that a gateway lets through before one of them is answered; it passes the others on one by one, first in
        first out.
    queue : requests that wait at the gateway at most; who comes then is refused.
    """

    planned_ms: Floats = field(repr=False)
    session: Ints = field(repr=False)
    begin: Ints = field(repr=False)
    followers: Ints = field(repr=False)
    pause_ms: Floats = field(repr=False)
    joins_ms: Floats = field(repr=False)
    think_ms: Floats = field(repr=False)
    patience_ms: Floats = field(repr=False)
    most: int = UNLIMITED
    gate: int = UNLIMITED
    queue: int = UNLIMITED

    @classmethod
    def single(
        cls,
        planned_ms: Floats,
        *,
        joins_ms: Floats | None = None,
        think_ms: Floats | None = None,
        most: int = UNLIMITED,
    ) -> Clients:
        """Requests that follow none, each a session of its own; parameters as above (default: no clients)."""
        n = len(planned_ms)
        return cls(
            planned_ms,
            np.arange(n),
            np.zeros(n + 1, dtype=np.int64),
            np.empty(0, dtype=np.int64),
            np.zeros(n),
            np.empty(0) if joins_ms is None else joins_ms,
            np.zeros(n) if think_ms is None else think_ms,
            np.full(n, np.inf),
            most,
        )

    def sessions_at(self, chosen: Ints, at_ms: Floats) -> tuple[Ints, Clients]:
        """Some of the sessions, in that order and as often as each is chosen, and the number of each of their requests.

        Parameters
        ----------
        chosen : int64[n], numbers of sessions.
        at_ms : float64[n], when each is planned to begin.
        """
        order, many = np.argsort(self.session, kind="stable"), np.bincount(self.session)
        begin = np.cumsum(many) - many
        session, place = _spread(many[chosen])
        rows = order[begin[chosen][session] + place]
        # Followers are of the same session, so as far behind its first request here as there.
        rank = np.empty(len(self), dtype=np.int64)
        rank[order] = _spread(many)[1]
        followed, number = _spread(np.diff(self.begin)[rows])
        followers = self.followers[self.begin[:-1][rows][followed] + number]
        first = np.arange(len(rows)) - place
        return rows, replace(
            self,
            planned_ms=(self.planned_ms - self.begin_ms[self.session])[rows] + at_ms[session],
            session=session,
            begin=np.concatenate([[0], np.cumsum(np.bincount(followed, minlength=len(rows)))]),
            followers=first[followed] + rank[followers],
            pause_ms=self.pause_ms[rows],
            think_ms=self.think_ms[chosen],
            patience_ms=self.patience_ms[chosen],
        )

    def __len__(self) -> int:
        return len(self.planned_ms)

    @property
    def sessions(self) -> int:
        """How many there are."""
        return len(self.think_ms)

    @property
    def begin_ms(self) -> Floats:
        """float64[sessions]: when the first request of each is planned that follows none."""
        first, begin_ms = self.waits == 0, np.full(self.sessions, np.inf)
        np.minimum.at(begin_ms, self.session[first], self.planned_ms[first])
        return begin_ms

    @property
    def latest_ms(self) -> float:
        """By when all are sent if each is answered at once; all pauses and thoughts may be one client's."""
        with np.errstate(over="ignore"):
            waits_ms = self.pause_ms.sum() + self.think_ms.sum()
            return float(self.planned_ms.max() + self.joins_ms.max(initial=0.0) + waits_ms)

    @property
    def waits(self) -> Ints:
        """int64[requests]: how many others each follows."""
        return np.bincount(self.followers, minlength=len(self)).astype(np.int64)

    @property
    def first(self) -> Ints:
        """int64[sessions + 1]: the first request of each session, and behind the last, where they ascend."""
        return np.searchsorted(self.session, np.arange(self.sessions + 1)).astype(np.int64)


def _spread(many: Ints) -> tuple[Ints, Ints]:
    """For groups of so many members, the group of each member and its place there, group by group."""
    group = np.repeat(np.arange(len(many)), many)
    return group, np.arange(len(group)) - np.repeat(np.cumsum(many) - many, many)


@dataclass(frozen=True)
class Sent:
    """What clients did.

    Parameters
    ----------
    clients : who sent it.
    sent_ms : float64[requests], when each was sent; NaN where its session had ended before.
    late_ms : float64[requests], how long each was ready before.
    passed_ms : float64[requests], when each passed the gateway; NaN where it never did.
    order : int64[those sent], their numbers in the order in which they were sent.
    ended : int64[sessions], how each ended (see `kernels.endings`).
    """

    clients: Clients = field(repr=False)
    sent_ms: Floats = field(repr=False)
    late_ms: Floats = field(repr=False)
    passed_ms: Floats = field(repr=False)
    order: Ints = field(repr=False)
    ended: Ints = field(repr=False)

    @property
    def session(self) -> Ints:
        """int64[those sent], the session of each, in the order in which they were sent."""
        return self.clients.session[self.order]
