"""Pipelines with language models, stage by stage: each stage turns what enters into what leaves, in slices of time.

Stages without a language model are run by the compiled kernels, one at a time; joins between stages are put together
here. The law: cutting a run at any instants, or feeding its arrivals in any chunks, changes no byte.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from forerun.serving.engine.outcome import Batches, Run, Visits
from forerun.serving.engine.stagewise import Stagewise
from forerun.serving.inputs.pipeline import SOURCE, Bools, Edge, Floats, Ints, Pipeline, Stage
from forerun.serving.inputs.routing import incoming_edges, refused_queries
from forerun.serving.llm.engine.apart import ApartStage
from forerun.serving.llm.engine.stage import Changes, LanguageStage, instants_twice
from forerun.serving.policy.tuning import ModelView


class Stream(NamedTuple):
    """Queries in order.

    Parameters
    ----------
    query : int64[n], their numbers.
    at_ms : float64[n], when each leaves its stage, or arrives.
    group : int64[n], which of them belong together: equal numbers one after the other.
    """

    query: Ints
    at_ms: Floats
    group: Ints


class MixedRun:
    """A run of a pipeline with language models under way; the number of queries to come is known."""

    def __init__(
        self,
        pipeline: Pipeline,
        queries: int,
        slo_ms: float,
        *,
        keep: bool = True,
        most_replicas: int = 0,
    ) -> None:
        """Begin at instant 0 with nothing fed.

        Parameters
        ----------
        pipeline : stages, of which some serve language models.
        queries : how many will arrive in all, which the drawn edges and the results are made for.
        slo_ms : latency above which a query misses.
        keep : the iterations of language models are recorded one by one (default: yes).
        most_replicas : what `reschedule` may give a stage (default: 0: it is not called).
        """
        self.pipeline = pipeline
        self.queries = queries
        self._slo_ms = slo_ms
        self._servers: list[_BatchStage | ApartStage | LanguageStage] = [
            _BatchStage(stage, slo_ms, most_replicas)
            if stage.llm is None
            else ApartStage(stage.llm, stage.replicas, keep=keep)
            if stage.llm.decode is not None
            else LanguageStage(
                stage.llm, stage.replicas, keep=keep, capacity=stage.capacity, most=most_replicas
            )
            for stage in pipeline.stages
        ]
        self._joins = [
            _Join([takes for _, takes in incoming]) for incoming in incoming_edges(pipeline, queries)
        ]
        self._parents = {edge.parent for stage in pipeline.stages for edge in stage.edges}
        self._arrivals = np.empty(0)
        self._passed = 0

    @property
    def ongoing(self) -> tuple[int, ...]:
        """By stage, queries queued or in service."""
        return tuple(server.ongoing for server in self._servers)

    @property
    def working(self) -> tuple[int, ...]:
        """By stage, replicas at work."""
        return tuple(server.working for server in self._servers)

    @property
    def seated(self) -> tuple[int | None, ...]:
        """By stage, the most requests that ran at once on a replica of a language model that does all by itself."""
        return tuple(one.seated if isinstance(one, LanguageStage) else None for one in self._servers)

    def seen(self, since_ms: float) -> tuple[ModelView | None, ...]:
        """By stage, what a tuner may know of its language model.

        Parameters
        ----------
        since_ms : from when on tokens count.
        """
        return tuple(
            server.seen(since_ms) if isinstance(server, LanguageStage) else None for server in self._servers
        )

    def reschedule(self, capacity: Sequence[Changes]) -> None:
        """Replace the changes of replicas that have not been handled yet.

        Parameters
        ----------
        capacity : by stage (instant ms, replicas from then on), ascending, none before the instant last advanced to.
        """
        for server, later in zip(self._servers, capacity):
            server.reschedule(later)

    @property
    def fed(self) -> int:
        """Queries fed so far."""
        return len(self._arrivals)

    def advance(self, arrivals_ms: Floats, until_ms: float = math.inf) -> None:
        """Feed more arrivals and handle every instant before `until_ms`.

        Parameters
        ----------
        arrivals_ms : float64[n], ascending; with them all that arrive before `until_ms` have been fed.
        until_ms : end of the slice of time, itself excluded (default: the end of the run).
        """
        self._arrivals = np.concatenate([self._arrivals, arrivals_ms])
        due = int(np.searchsorted(self._arrivals, until_ms, side="left"))
        new = np.arange(self._passed, due)
        streams = {SOURCE: Stream(new, self._arrivals[self._passed : due], new)}
        self._passed = due
        for number, (stage, server, join) in enumerate(zip(self.pipeline.stages, self._servers, self._joins)):
            server.feed(*join.entries([streams[edge.parent] for edge in stage.edges]))
            server.advance(until_ms)
            if number in self._parents:
                streams[number] = Stream(*server.left())

    def run(self, *, ties: bool = True) -> Run:
        """The result, once everything has been handled.

        Parameters
        ----------
        ties : count them; else there are none (default: yes).
        """
        arrival_ms = self._arrivals
        visits, batches, requests = zip(*(server.record(self.queries) for server in self._servers))
        finish_ms = arrival_ms.copy()
        for came in visits:
            finish_ms = np.fmax(finish_ms, came.end_ms)
        refused = refused_queries(self.pipeline, self.queries)
        tied = sum(
            server.ties if isinstance(server, LanguageStage | ApartStage) else join.ties(own)
            for server, join, own in zip(self._servers, self._joins, batches if ties else ())
        )
        misses = int(np.count_nonzero((finish_ms - arrival_ms > self._slo_ms) | refused))
        return Run(arrival_ms, finish_ms, misses, tied, visits, batches, requests=requests, refused=refused)


def simulate_mixed(pipeline: Pipeline, arrivals_ms: Floats, slo_ms: float, *, keep: bool = True) -> Run:
    """Simulate a whole trace through a pipeline with language models.

    Parameters
    ----------
    arrivals_ms : float64[queries], ascending.
    slo_ms : latency above which a query misses.
    keep : record iterations one by one (default: yes).
    """
    run = MixedRun(pipeline, len(arrivals_ms), slo_ms, keep=keep)
    run.advance(arrivals_ms)
    return run.run()


class _BatchStage:
    """A stage without a language model, by itself; methods as those of `LanguageStage`. Positions are places in the order
    of entry.

    Parameters
    ----------
    stage : its edges are replaced by one from outside, because joins are put together before it.
    slo_ms : latency above which a query misses; the misses of one stage alone are not read.
    most_replicas : what `reschedule` may give it; 0: it is not called.
    """

    def __init__(self, stage: Stage, slo_ms: float, most_replicas: int) -> None:
        alone = Pipeline((replace(stage, edges=(Edge(SOURCE),)),))
        self._run = Stagewise(alone, slo_ms, record="full", most_replicas=most_replicas)
        self._query = np.empty(0, dtype=np.int64)
        self._enter_ms = np.empty(0)
        self._fed = 0
        self._taken = 0
        self._waiting: Ints = np.empty(0, dtype=np.int64)

    def feed(self, query: Ints, enter_ms: Floats, begins: Bools) -> None:
        self._query = np.concatenate([self._query, query])
        self._enter_ms = np.concatenate([self._enter_ms, enter_ms])

    def advance(self, until_ms: float) -> None:
        self._until_ms = until_ms
        self._run.advance(self._enter_ms[self._fed :], until_ms)
        self._fed = len(self._enter_ms)

    @property
    def ongoing(self) -> int:
        return self._run.ongoing[0]

    @property
    def working(self) -> int:
        return self._run.working[0]

    def reschedule(self, capacity: Changes) -> None:
        self._run.reschedule([capacity])

    def left(self) -> tuple[Ints, Floats, Ints]:
        (batches,) = self._run.run(self._enter_ms).batches
        first = np.concatenate([[0], np.cumsum(batches.size)])
        open_ = np.concatenate([self._waiting, np.arange(self._taken, len(batches.size))])
        self._taken = len(batches.size)
        ended = batches.end_ms[open_] < self._until_ms
        self._waiting = open_[~ended]
        done = open_[ended]
        done = done[np.lexsort((done, batches.end_ms[done]))]
        sizes = batches.size[done]
        # the positions of each batch, one batch behind the other
        position = np.repeat(first[done] - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
        position += np.arange(len(position))
        return self._query[position], np.repeat(batches.end_ms[done], sizes), np.repeat(done, sizes)

    def record(self, queries: int) -> tuple[Visits, Batches, None]:
        run = self._run.run(self._enter_ms)
        (own,), (batches,) = run.visits, run.batches
        enqueue_ms, start_ms, end_ms = (np.full(queries, np.nan) for _ in range(3))
        enqueue_ms[self._query], start_ms[self._query] = own.enqueue_ms, own.start_ms
        end_ms[self._query] = own.end_ms
        batch, replica = np.zeros(queries, dtype=np.int32), np.full(queries, -1, dtype=np.int32)
        batch[self._query], replica[self._query] = own.batch, own.replica
        return Visits(enqueue_ms, start_ms, end_ms, batch, replica), batches, None


class _Join:
    """Puts together what enters a stage: a query enters with the last of its taken parents."""

    def __init__(self, taken: list[Bools]) -> None:
        self._taken = taken
        self._always = [bool(column.all()) for column in taken]
        self._missing: Ints = np.stack(taken).sum(axis=0, dtype=np.int64)
        self._group_ms: list[Floats] = []

    def entries(self, parents: list[Stream]) -> tuple[Ints, Floats, Bools]:
        """(query, instant, whether a new group begins), ordered by instant, place of the parent, order there."""
        streams = [
            parent if always else Stream._make(column[taken[parent.query]] for column in parent)
            for parent, taken, always in zip(parents, self._taken, self._always)
        ]
        query = np.concatenate([stream.query for stream in streams])
        at_ms = np.concatenate([stream.at_ms for stream in streams])
        group = np.concatenate([stream.group for stream in streams])
        edge = np.repeat(np.arange(len(streams)), [len(stream.query) for stream in streams])
        if len(streams) > 1:
            order = np.argsort(at_ms, kind="stable")
            query, at_ms, group, edge = query[order], at_ms[order], group[order], edge[order]
            np.subtract.at(self._missing, query, 1)
            # a query's last parent is where it stands last; it enters if no other is awaited
            last = np.zeros(len(query), dtype=bool)
            last[len(query) - 1 - np.unique(query[::-1], return_index=True)[1]] = True
            enters = last & (self._missing[query] == 0)
            query, at_ms, group, edge = query[enters], at_ms[enters], group[enters], edge[enters]
        begins = np.ones(len(query), dtype=bool)
        begins[1:] = (np.diff(at_ms) > 0) | (np.diff(group) != 0) | (np.diff(edge) != 0)
        self._group_ms.append(at_ms[begins])
        return query, at_ms, begins

    def ties(self, batches: Batches) -> int:
        """Instants at which two batches end, two groups enter, or both."""
        return instants_twice([*self._group_ms, batches.end_ms])
