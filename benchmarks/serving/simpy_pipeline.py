"""A baseline: the pipeline as SimPy processes, one a replica, one for the source."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any

import numpy as np
import simpy


class Station:
    """A queue and its replicas; the lowest-numbered idle replica is woken."""

    def __init__(self, env: simpy.Environment, most: int, replicas: int, service_ms: list[float]) -> None:
        self.env, self.most, self.service_ms = env, most, service_ms
        self.queue: deque[int] = deque()
        self.sleeping: dict[int, simpy.Event] = {}
        self.children: list[Any] = []
        for number in range(replicas):
            env.process(self.replica(number))

    def put(self, query: int) -> None:
        """A query joins the queue."""
        self.queue.append(query)
        self.wake()

    def wake(self) -> None:
        """Wake one idle replica, unless one has been woken at this instant already."""
        if self.sleeping and not any(event.triggered for event in self.sleeping.values()):
            self.sleeping[min(self.sleeping)].succeed()

    def replica(self, number: int) -> Generator[simpy.Event, None, None]:
        """Take what is queued, serve it, pass it on, for ever."""
        while True:
            if not self.queue:
                self.sleeping[number] = self.env.event()
                yield self.sleeping[number]
                del self.sleeping[number]
            batch = [self.queue.popleft() for _ in range(min(self.most, len(self.queue)))]
            if self.queue:
                self.wake()
            yield self.env.timeout(self.service_ms[len(batch)])
            for child in self.children:
                for query in batch:
                    child.put(query)


class Join:
    """A query leaves when all branches are done with it."""

    def __init__(self, env: simpy.Environment, branches: int, queries: int) -> None:
        self.env = env
        self.missing = [branches] * queries
        self.finish_ms = [0.0] * queries

    def put(self, query: int) -> None:
        """One branch is done."""
        self.missing[query] -= 1
        if not self.missing[query]:
            self.finish_ms[query] = self.env.now


def simulate_simpy(
    stages: list[tuple[str, int, int, int, list[float]]], arrivals_ms: list[float]
) -> np.ndarray:
    """Latencies by id. stages as for the port."""
    env = simpy.Environment()
    stations = [Station(env, most, replicas, table) for _, _, most, replicas, table in stages]
    parents = [parent for _, parent, *_ in stages]
    last = [station for number, station in enumerate(stations) if number not in parents]
    join = Join(env, len(last), len(arrivals_ms))
    for station, parent in zip(stations, parents):
        if parent >= 0:
            stations[parent].children.append(station)
    for station in last:
        station.children.append(join)
    first = [station for station, parent in zip(stations, parents) if parent < 0]

    def source() -> Generator[simpy.Event, None, None]:
        for query, at_ms in enumerate(arrivals_ms):
            # SimPy adds delays to the clock; ask for the one that brings it to this instant.
            yield env.timeout(at_ms - env.now)
            for station in first:
                station.put(query)

    env.process(source())
    env.run()
    return np.array(join.finish_ms) - np.array(arrivals_ms)
