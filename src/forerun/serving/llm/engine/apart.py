"""A stage whose replicas prefill while others decode, as a stream: two pools, one behind the other.

A request is prefilled by the first pool, which emits its first token. Then its blocks are sent to the second pool, where it
waits for a seat and blocks, and decodes. Nothing flows back, so the first pool runs ahead by itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from forerun.serving.engine.outcome import Batches, Requests, Visits
from forerun.serving.inputs.pipeline import Bools, Floats, Ints
from forerun.serving.llm.engine.record import together
from forerun.serving.llm.engine.stage import Changes, Departures, LanguageStage, instants_twice
from forerun.serving.llm.inputs.model import LanguageModel


class Prefilled(NamedTuple):
    """Requests with their first token, on the way to the second pool, in the order they are sent by each replica.

    Parameters
    ----------
    query : int64[n], their numbers.
    first_ms : float64[n], when their first token came.
    sent_ms : float64[n], when they are there.
    replica : int64[n], which sends them.
    """

    query: Ints
    first_ms: Floats
    sent_ms: Floats
    replica: Ints

    def only(self, rows: Bools | Ints) -> Prefilled:
        """Some of them."""
        return Prefilled._make(column[rows] for column in self)


class ApartStage:
    """One stage under way; methods as those of `LanguageStage`."""

    def __init__(self, llm: LanguageModel, replicas: int, *, keep: bool) -> None:
        """Begin at instant 0 with nothing fed.

        Parameters
        ----------
        llm : the first pool, with the second one as `llm.decode`.
        replicas : of the first pool, for the whole run.
        keep : iterations are recorded one by one.
        """
        assert llm.decode is not None
        self._replicas = replicas
        self._first = LanguageStage(llm, replicas, keep=keep)
        self._second = LanguageStage(llm.decode.llm, llm.decode.replicas, keep=keep)
        none = np.empty(0, dtype=np.int64)
        self._under_way = Prefilled(none, np.empty(0), np.empty(0), none)

    @property
    def ties(self) -> int:
        """Instants at which two iterations end with which somebody leaves, two groups enter, or both."""
        ends_ms = [stage.departures().ends_ms for stage in (self._first, self._second)]
        return instants_twice([self._first.group_ms, *ends_ms])

    def feed(self, query: Ints, enter_ms: Floats, begins: Bools) -> None:
        """More requests, for the first pool."""
        self._first.feed(query, enter_ms, begins)

    def advance(self, until_ms: float) -> None:
        """Handle every instant before `until_ms`; whatever enters before it has been fed."""
        self._first.advance(until_ms)
        sent = Prefilled._make(map(np.concatenate, zip(self._under_way, self._first.sent())))
        there = sent.sent_ms < until_ms
        self._under_way = sent.only(~there)
        sent = sent.only(there)
        # Transfers that end together do so in the order their first tokens came, then by replica.
        sent = sent.only(np.lexsort((sent.replica, sent.first_ms, sent.sent_ms)))
        self._second.feed(sent.query, sent.sent_ms, np.ones(len(sent.query), dtype=np.bool_), sent.first_ms)
        self._second.advance(until_ms)

    @property
    def ongoing(self) -> int:
        """Requests that wait or run, in both pools and in between."""
        return self._first.ongoing + len(self._under_way.query) + self._second.ongoing

    @property
    def working(self) -> int:
        """Replicas in an iteration, of both pools."""
        return self._first.working + self._second.working

    def reschedule(self, capacity: Changes) -> None:
        """The replicas of pools do not change."""
        assert not capacity, "the scenario has refused changes"

    def left(self) -> tuple[Ints, Floats, Ints]:
        """(query, instant, iteration) of the requests that have left since the last call, in order. Iterations of the second
        pool have negative numbers."""
        first, second = self._first.newly_left(), self._second.newly_left()
        second = second._replace(iteration=-1 - second.iteration, replica=second.replica + self._replicas)
        left = Departures._make(map(np.concatenate, zip(first, second))).in_order()
        return left.query, left.end_ms, left.iteration

    def record(self, queries: int) -> tuple[Visits, Batches, Requests]:
        """What happened, by query and by iteration, once everything has been handled."""
        first, second = self._first.record(queries), self._second.record(queries)
        return together(first, second, self._replicas)
