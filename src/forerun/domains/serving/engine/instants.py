"""The compiled event loop: from a pipeline to its arrays and back."""

from __future__ import annotations

import numpy as np

from forerun.domains.serving.engine.kernels.instants import CHANGE, REPLICAS, Loop, run_instants
from forerun.domains.serving.engine.outcome import Run
from forerun.domains.serving.engine.stagewise import plan_of, record_of, recorded_batches, recorded_visits
from forerun.domains.serving.inputs.pipeline import SOURCE, Floats, Pipeline
from forerun.domains.serving.inputs.routing import taken_edges


def simulate_instants(pipeline: Pipeline, arrivals_ms: Floats, slo_ms: float) -> Run:
    """The whole trace, instant by instant, everything recorded; every batching policy must have a compiled form."""
    plan = plan_of(pipeline, slo_ms)
    stages, queries = len(pipeline.stages), len(arrivals_ms)
    columns = taken_edges(pipeline, queries) if plan.routed else []
    loop = _loop_of(pipeline, queries)
    edges = changes = 0
    for s, stage in enumerate(pipeline.stages):
        mine = columns[edges : edges + len(stage.edges)]
        loop.missing[s] = np.sum(mine, axis=0) if plan.routed else len(stage.edges)
        loop.counts[s, CHANGE], loop.counts[s, REPLICAS] = changes, stage.replicas
        loop.numbers[s, : stage.replicas] = 1
        loop.next_ms[s] = stage.capacity[0][0] if stage.capacity else np.inf
        edges += len(stage.edges)
        changes += len(stage.capacity)
    record = record_of(stages, queries, "full", routed=plan.routed)
    taken = np.stack(columns) if plan.routed else np.zeros((edges, 0), dtype=np.bool_)
    ties = run_instants(plan, loop, record, np.require(arrivals_ms, np.float64, ["C", "W"]), taken)
    visits = recorded_visits(pipeline, record, arrivals_ms)
    finish = np.fmax.reduce([arrivals_ms, *(visit.end_ms for visit in visits)])
    return Run(
        arrivals_ms,
        finish,
        misses=int(np.count_nonzero(finish - arrivals_ms > slo_ms)),
        tie_count=int(ties),
        visits=visits,
        batches=tuple(recorded_batches(record, int(loop.counts[s, 2]), s) for s in range(stages)),
    )


def _loop_of(pipeline: Pipeline, queries: int) -> Loop:
    stages = len(pipeline.stages)
    replicas = max(stage.most_replicas for stage in pipeline.stages)
    ways = [(edge.parent, s) for s, stage in enumerate(pipeline.stages) for edge in stage.edges]
    children = [[s for parent, s in ways if parent == number] for number in range(SOURCE, stages)]
    return Loop(
        order=np.zeros((stages, queries), dtype=np.int32),
        entered=np.zeros((stages, queries)),
        first=np.zeros((stages, queries), dtype=np.int32),
        missing=np.zeros((stages, queries), dtype=np.int32),
        counts=np.zeros((stages, 8), dtype=np.int64),
        ended=np.zeros((stages, 2), dtype=np.int64),
        ending=np.zeros(stages * replicas, dtype=np.int64),
        numbers=np.zeros((stages, replicas), dtype=np.uint8),
        dues_ms=np.zeros((stages, replicas)),
        dues=np.zeros((stages, replicas), dtype=np.int64),
        next_ms=np.full(stages, np.inf),
        acts=np.zeros(stages, dtype=np.bool_),
        child_at=np.cumsum([0, *(len(group) for group in children)]).astype(np.int64),
        child=np.array([s for group in children for s in group], dtype=np.int64),
        heap_ms=np.zeros(stages * replicas),
        heap=np.zeros(stages * replicas, dtype=np.int64),
    )
