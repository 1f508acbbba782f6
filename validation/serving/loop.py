"""A pipeline for real: one process a replica, one queue a stage, the simulator's own batching policies, real time.

One loop in this process owns the queues, sends queries at absolute instants, asks the policies, hands batches to idle
replicas through pipes and takes their answers. The order within an instant is the simulator's: completions, arrivals,
takes that are due, starts. It returns the simulator's tables.
"""

from __future__ import annotations

import math
import select
import time
from collections import deque
from dataclasses import dataclass

import numpy as np

from forerun.core.errors import StoreError
from forerun.core.rng import stream
from forerun.serving.engine.outcome import Batches, Run, Visits
from forerun.serving.inputs.pipeline import SOURCE, Floats, Stage
from forerun.serving.inputs.routing import incoming_edges
from forerun.serving.measure.testbed import PATIENCE_S, Replica, Testbed, undisturbed
from forerun.serving.policy.batching import QueueView, Start, Wait, Wake


@dataclass(frozen=True)
class Observed:
    """A run for real: the simulator's tables, instants in ms from the first query's; arrivals are when they were sent.

    Parameters
    ----------
    run : what happened.
    lag_ms : float64[queries], sent later than due.
    served : by stage float64[batches, 2]: batch size, and ms from handing over to the answer.
    """

    run: Run
    lag_ms: Floats
    served: tuple[Floats, ...]


def run(testbed: Testbed, due_ms: Floats) -> Observed:
    """Send a query at each instant (ascending, the first is the clock's zero) and serve them all.

    Raises StoreError if a replica dies.
    """
    with undisturbed():
        return Loop(testbed, due_ms).run()


class Station:
    """One stage's queue and replicas during a run; instants in s of the run's clock.

    Parameters
    ----------
    stage : its batch limit, batching policy and times.
    replicas : their processes.
    rng : the batching policy's own random stream.
    paced : whether replicas sleep as long as the table says, not compute.

    Attributes
    ----------
    idle : numbers of idle replicas, ascending.
    queue : (query, entered s), oldest first.
    woken : (due s, replica).
    alarm_s : when the policy is asked again, if nothing happens before.
    batches : (start s, end s, size, replica) of those that ended.
    served : (size, ms from handing over to the answer) of the same.
    """

    def __init__(
        self, stage: Stage, replicas: list[Replica], rng: np.random.Generator, *, paced: bool
    ) -> None:
        self.stage, self.replicas, self.paced = stage, replicas, paced
        self.policy = stage.batching.build(rng)
        self.idle = list(range(len(replicas)))
        self.queue: deque[tuple[int, float]] = deque()
        self.woken: deque[tuple[float, int]] = deque()
        self.alarm_s = math.inf
        self.batches: list[tuple[float, float, int, int]] = []
        self.served: list[tuple[float, float]] = []


class Loop:
    """A testbed under queries sent at given instants.

    Parameters
    ----------
    testbed : its replicas, running.
    due_ms : when queries are sent, ascending; the first is the clock's zero.
    """

    def __init__(self, testbed: Testbed, due_ms: Floats) -> None:
        pipeline, queries = testbed.pipeline, len(due_ms)
        self.pipeline, self.due_s = pipeline, (due_ms / 1e3).tolist()
        self.stations = [
            Station(stage, replicas, stream(pipeline.seed, "batching", stage.name), paced=not model)
            for stage, replicas, model in zip(pipeline.stages, testbed.replicas, testbed.models)
        ]
        self.edges_out: dict[int, list[tuple[int, list[bool]]]] = {
            s: [] for s in range(SOURCE, len(pipeline.stages))
        }
        self.missing: list[list[int]] = []
        visits = np.zeros(queries, dtype=np.int64)
        for s, edges in enumerate(incoming_edges(pipeline, queries)):
            for parent, takes in edges:
                self.edges_out[parent].append((s, takes.tolist()))
            parents = np.sum([takes for _, takes in edges], axis=0)
            self.missing.append(parents.tolist())
            visits += parents > 0
        self.left = visits.tolist()
        self.files = {replica.answers: replica for replica in testbed.every()}
        self.by_file = list(self.files)
        #: by file, when its replica's batch was handed over, and the queries in it
        self.under_way: dict[int, tuple[float, list[int]]] = {}
        shape = (len(pipeline.stages), queries)
        self.enter_s, self.start_s, self.end_s = (np.full(shape, np.nan) for _ in range(3))
        self.size, self.number = np.zeros(shape, dtype=np.int32), np.full(shape, -1, dtype=np.int32)
        self.sent_s, self.finish_s = np.zeros(queries), np.zeros(queries)

    def run(self) -> Observed:
        queries = len(self.due_s)
        # A little ahead, so that the first query is not late already.
        self.zero_s = time.monotonic() + 0.05 - self.due_s[0]
        sent, ended = 0, 0
        while ended < queries:
            now_s = time.monotonic() - self.zero_s
            wake_s = min(
                self.due_s[sent] if sent < queries else math.inf,
                min(station.alarm_s for station in self.stations),
            )
            patience_s = min(max(0.0, wake_s - now_s), PATIENCE_S)
            ready, _, _ = select.select(self.by_file, [], [], patience_s)
            if not ready and patience_s == PATIENCE_S and wake_s > now_s + PATIENCE_S and sent == queries:
                raise StoreError.at("run", f"no replica answered for {PATIENCE_S:g} s")
            answered = [self.files[file] for file in ready]
            for replica in answered:
                replica.answer()
            now_s = time.monotonic() - self.zero_s
            touched: set[int] = set()
            for replica in sorted(answered, key=lambda one: (one.stage, self.under_way[one.answers])):
                ended += self._complete(replica, now_s, touched)
            while sent < queries and self.due_s[sent] <= now_s:
                self.sent_s[sent] = now_s
                self.finish_s[sent] = now_s
                ended += self.left[sent] == 0
                self._enter(SOURCE, [sent], now_s, touched)
                sent += 1
            for s, station in enumerate(self.stations):
                if s in touched or station.alarm_s <= now_s:
                    self._start(station, s, now_s)
        return self._observed()

    def _complete(self, replica: Replica, now_s: float, touched: set[int]) -> int:
        """A batch has ended; how many queries have ended with it."""
        station, s = self.stations[replica.stage], replica.stage
        (began_s, queries), ended = self.under_way.pop(replica.answers), 0
        station.batches.append((began_s, now_s, len(queries), replica.number))
        station.served.append((float(len(queries)), (now_s - began_s) * 1e3))
        station.idle.append(replica.number)
        station.idle.sort()
        self.end_s[s, queries] = now_s
        self.finish_s[queries] = now_s
        for query in queries:
            self.left[query] -= 1
            ended += self.left[query] == 0
        touched.add(s)
        self._enter(s, queries, now_s, touched)
        return ended

    def _enter(self, parent: int, queries: list[int], now_s: float, touched: set[int]) -> None:
        """Queries go on along the edges they take, and join a queue when the last parent they wait for has ended.

        Parameters
        ----------
        parent : the stage that they leave, or SOURCE.
        queries : their numbers, in order.
        now_s : on the run's clock.
        touched : added to: the stages that somebody enters, whose policies are asked next.
        """
        for s, taken in self.edges_out[parent]:
            for query in queries:
                if taken[query]:
                    self.missing[s][query] -= 1
                    if not self.missing[s][query]:
                        self.stations[s].queue.append((query, now_s))
                        self.enter_s[s, query] = now_s
                        touched.add(s)

    def _start(self, station: Station, s: int, now_s: float) -> None:
        """Takes that are due, then what the batching policy decides."""
        station.alarm_s = math.inf
        while station.woken and station.woken[0][0] <= now_s:
            _, number = station.woken.popleft()
            if station.queue:
                self._begin(station, s, number, now_s)
            else:
                station.idle.append(number)
                station.idle.sort()
        while station.idle:
            oldest_ms = station.queue[0][1] * 1e3 if station.queue else math.inf
            view = QueueView(
                now_s * 1e3,
                len(station.queue),
                oldest_ms,
                station.stage.max_batch,
                len(station.idle),
                len(station.woken),
            )
            decision = station.policy.decide(view)
            if isinstance(decision, Start) and station.queue:
                self._begin(station, s, station.idle.pop(0), now_s)
            elif isinstance(decision, Wake):
                station.woken.append((now_s + decision.after_ms / 1e3, station.idle.pop(0)))
            else:
                if isinstance(decision, Wait) and decision.until_ms < math.inf:
                    station.alarm_s = max(decision.until_ms / 1e3, now_s + 1e-6)
                break
        if station.woken:
            station.alarm_s = min(station.alarm_s, station.woken[0][0])

    def _begin(self, station: Station, s: int, number: int, now_s: float) -> None:
        size = min(station.stage.max_batch, len(station.queue))
        replica = station.replicas[number]
        queries = [station.queue.popleft()[0] for _ in range(size)]
        self.under_way[replica.answers] = (now_s, queries)
        service_ms = station.stage.service.table_ms[size] if station.paced else math.nan
        replica.hand(size, now_s + self.zero_s + service_ms / 1e3)
        self.start_s[s, queries] = now_s
        self.size[s, queries] = size
        self.number[s, queries] = number

    def _observed(self) -> Observed:
        first_s = float(self.sent_s[0])

        def ms(instants_s: Floats) -> Floats:
            """Instants of the run's clock, from the first query on."""
            return (instants_s - first_s) * 1e3

        batches = []
        for station in self.stations:
            start_s, end_s, size, number = np.array(sorted(station.batches), float).reshape(-1, 4).T
            batches.append(Batches(ms(start_s), ms(end_s), size.astype(np.int32), number.astype(np.int32)))
        columns = zip(self.enter_s, self.start_s, self.end_s, self.size, self.number)
        visits = tuple(
            Visits(ms(enter_s), ms(start_s), ms(end_s), size, number)
            for enter_s, start_s, end_s, size, number in columns
        )
        run = Run(ms(self.sent_s), ms(self.finish_s), 0, 0, visits, tuple(batches))
        lag_ms = (self.sent_s - np.array(self.due_s)) * 1e3
        served = tuple(np.array(station.served).reshape(-1, 2) for station in self.stations)
        return Observed(run, lag_ms, served)
