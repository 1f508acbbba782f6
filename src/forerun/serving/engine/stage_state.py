"""A stage in the middle of a run, as the event loop has it and observers see it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from forerun.core.rng import stream
from forerun.serving.inputs.pipeline import Law, Stage
from forerun.serving.inputs.routing import mix
from forerun.serving.llm.engine.replica import replicas_of


class StageState:
    """One stage during a run. Columns by query are as in `Visits`.

    Parameters
    ----------
    number : of the stage in the pipeline.
    stage : its replicas, batch limit, service times and batching policy.
    parents : its edges, in declared order.
    missing : by query, how many parents it waits for (None: there is only one parent).
    queries : how many the run has.
    seed : of the run, for the batching policy's own random stream.

    Attributes
    ----------
    queue : (query, entered ms), oldest first.
    serving : heap of (end ms, start order, replica, queries).
    idle : numbers of idle replicas, ascending.
    woken : (due ms, replica).
    replicas : how many there should be; above that, working ones retire as they complete.
    emitted : the batches that ended at this instant.
    entered, left : queries that have joined the queue, and that have ended here, so far.
    llm : the replicas of a language model, which take the place of queue, batching and service.
    """

    def __init__(
        self,
        number: int,
        stage: Stage,
        parents: list[Incoming],
        missing: list[int] | None,
        queries: int,
        seed: int,
    ) -> None:
        self.number = number
        self.stage = stage
        self.parents = parents
        self.policy = stage.batching.build(stream(seed, "batching", stage.name))
        self.service_ms = _service(stage)
        self.queue: deque[tuple[int, float]] = deque()
        self.serving: list[tuple[float, int, int, list[int]]] = []
        self.idle = list(range(stage.replicas))
        self.woken: deque[tuple[float, int]] = deque()
        self.replicas = stage.replicas
        self.changes = deque(stage.capacity)
        self.emitted: list[list[int]] = []
        self.missing = missing
        self.entered = self.left = 0
        self.enqueue_ms = np.full(queries, np.nan)
        self.batch_of = np.full(queries, -1, dtype=np.int64)
        self.batches: list[tuple[float, float, int, int]] = []
        self.llm = (
            replicas_of(stage.llm, stage.replicas, stage.most_replicas) if stage.llm is not None else None
        )

    @property
    def working(self) -> int:
        """Replicas that are serving or woken."""
        return len(self.serving) + len(self.woken)


class Incoming(NamedTuple):
    """An edge into a stage.

    Parameters
    ----------
    parent : number of the stage that it comes from, or SOURCE.
    taken : by query, whether it takes the edge (None: all do).
    """

    parent: int
    taken: list[bool] | None


def _service(stage: Stage) -> Callable[[int, int], float]:
    """The service time of a batch by (size, start number)."""
    service, table = stage.service, stage.service.table_ms.tolist()
    if service.law is Law.TABLE:
        return lambda size, order: table[size]
    from forerun.serving.engine.kernels.draws import drawn_ms, unit

    key = np.uint64(mix(service.key))
    if service.law is Law.MEASURED:
        return lambda size, order: float(
            service.measured_ms[size][int(unit(key, order) * len(service.measured_ms[size]))]
        )
    spread = math.sqrt(math.log1p(service.cv**2))
    return lambda size, order: float(drawn_ms(int(service.law), table[size], spread, key, order))
