"""A baseline: the notebook's way of scheduling, written plainly from its rules.

One sorted list of pending events with linear insertion; a closeness test for each event of a round; a record (a dict) per
query that every stage copies and stamps; queues that are cut by slicing. Gives the notebook's results.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Record = dict[str, Any]
Receive = Callable[[list[Record]], None]


class ListScheduler:
    """Pending events as (time, call), earliest first, of equals the last scheduled first."""

    def __init__(self, close: Callable[[float, float], bool]) -> None:
        self.pending: list[tuple[float, Callable[[], None]]] = []
        self.now_ms = 0.0
        self.events = 0
        self.close = close

    def schedule(self, after_ms: float, call: Callable[[], None]) -> None:
        """Insert before the first event that is not earlier."""
        at_ms = self.now_ms + after_ms
        place = 0
        while place < len(self.pending) and self.pending[place][0] < at_ms:
            place += 1
        self.pending.insert(place, (at_ms, call))

    def run(self) -> None:
        """Round after round: all events close to a round's first one see its time."""
        while self.pending:
            self.now_ms = self.pending[0][0]
            while self.pending and self.close(self.pending[0][0], self.now_ms):
                _, call = self.pending.pop(0)
                self.events += 1
                call()


def numpy_closeness(left: float, right: float) -> bool:
    """The test as the notebook makes it, through numpy."""
    return bool(np.isclose(left, right, rtol=0.0, atol=1e-8))


def cheap_closeness(left: float, right: float) -> bool:
    """The same test in plain arithmetic."""
    return abs(left - right) <= 1e-8


class Model:
    """A queue and its replicas."""

    def __init__(
        self, clock: ListScheduler, name: str, most: int, replicas: int, service_ms: list[float]
    ) -> None:
        self.clock, self.name, self.most, self.service_ms = clock, name, most, service_ms
        self.busy = [False] * replicas
        self.queue: list[Record] = []
        self.children: list[Receive] = []

    def arrive(self, records: list[Record]) -> None:
        """A list of queries joins the queue; idle replicas are woken, one a batch."""
        for record in records:
            record[f"{self.name}_enqueue_time"] = self.clock.now_ms
        self.queue = self.queue + records
        wanted = math.ceil(len(self.queue) / self.most)
        for replica, busy in enumerate(self.busy):
            if wanted == 0:
                break
            if not busy:
                self.busy[replica] = True
                self.clock.schedule(0.0, lambda replica=replica: self.take(replica))
                wanted -= 1

    def take(self, replica: int) -> None:
        """A replica takes the oldest queries."""
        batch, self.queue = self.queue[: self.most], self.queue[self.most :]
        for record in batch:
            record[f"{self.name}_dequeue_time"] = self.clock.now_ms
            record[f"{self.name}_batchsize"] = len(batch)
        self.clock.schedule(self.service_ms[len(batch)], lambda: self.give_back(replica, batch))

    def give_back(self, replica: int, batch: list[Record]) -> None:
        """A batch ends; its queries move on."""
        for record in batch:
            record[f"{self.name}_service_time"] = self.clock.now_ms
        for child in self.children:
            self.clock.schedule(0.0, lambda child=child: child(batch))
        if self.queue:
            self.clock.schedule(0.0, lambda: self.take(replica))
        else:
            self.busy[replica] = False


class Join:
    """Puts the parts of a query together."""

    def __init__(self, clock: ListScheduler, parents: int, then: Receive) -> None:
        self.clock, self.parents, self.then = clock, parents, then
        self.parts: dict[int, list[Record]] = {}

    def arrive(self, records: list[Record]) -> None:
        """One part of each query."""
        whole = []
        for record in records:
            parts = self.parts.setdefault(record["id"], [])
            parts.append(record)
            if len(parts) == self.parents:
                whole.append({key: value for part in parts for key, value in part.items()})
        if whole:
            self.clock.schedule(0.0, lambda: self.then(whole))


def simulate_port(
    stages: list[tuple[str, int, int, int, list[float]]],
    gaps_ms: list[float],
    close: Callable[[float, float], bool] = numpy_closeness,
) -> tuple[np.ndarray, int]:
    """Latencies by id, and events run. stages: (name, parent or -1, largest batch, replicas, service by size)."""
    clock = ListScheduler(close)
    models = [Model(clock, name, most, replicas, table) for name, _, most, replicas, table in stages]
    done: list[Record] = []

    def sink(records: list[Record]) -> None:
        for record in records:
            record["sink"] = clock.now_ms
            done.append(record)

    last = [m for number, m in enumerate(models) if all(parent != number for _, parent, *_ in stages)]
    join = Join(clock, len(last), sink)
    for number, (_, parent, *_) in enumerate(stages):
        if parent >= 0:
            models[parent].children.append(models[number].arrive)
    for model in last:
        model.children.append(join.arrive)
    first = [models[number] for number, (_, parent, *_) in enumerate(stages) if parent < 0]

    def send(query: int) -> None:
        for model in first:
            record: Record = {"id": query, "source": clock.now_ms}
            clock.schedule(0.0, lambda model=model, record=record: model.arrive([record]))
        if query < len(gaps_ms):
            clock.schedule(gaps_ms[query], lambda: send(query + 1))

    clock.schedule(0.0, lambda: send(0))
    clock.run()
    latency = np.empty(len(done))
    for record in done:
        latency[record["id"]] = record["sink"] - record["source"]
    return latency, clock.events
