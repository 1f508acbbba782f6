"""The plain replicas' requests and iterations, as the arrays of a run."""

from __future__ import annotations

import numpy as np

from forerun.domains.serving.engine.kernels.gaps import gap_cells
from forerun.domains.serving.engine.llm.replica import Replicas
from forerun.domains.serving.engine.outcome import Batches, Iterations, Requests, Visits
from forerun.domains.serving.inputs.pipeline import Floats


def requests_of(replicas: Replicas, enqueue_ms: Floats) -> tuple[Visits, Batches, Requests]:
    """The visits, iterations and requests of one stage. enqueue_ms: float64[queries], NaN where nobody came."""
    queries = len(enqueue_ms)
    start_ms, end_ms = enqueue_ms.copy(), enqueue_ms.copy()
    first_ms, gap_ms, stalled_ms, stalled_first_ms = (np.full(queries, np.nan) for _ in range(4))
    preemptions = np.zeros(queries, dtype=np.int64)
    batch, replica = np.zeros(queries, dtype=np.int32), np.full(queries, -1, dtype=np.int32)
    gaps: list[float] = []
    for query, request in replicas.requests.items():
        start_ms[query], end_ms[query] = request.start_ms, request.last_ms
        first_ms[query], gap_ms[query] = request.first_ms, request.longest_gap_ms
        stalled_ms[query], stalled_first_ms[query] = request.stalled_ms, request.stalled_first_ms
        preemptions[query] = request.preemptions
        batch[query], replica[query] = 1, request.replica
        gaps += request.gaps_ms
    kept = _iterations(replicas)
    return (
        Visits(enqueue_ms, start_ms, end_ms, batch, replica),
        Batches(kept.start_ms, kept.end_ms, kept.running.astype(np.int32), kept.replica.astype(np.int32)),
        Requests(
            first_ms,
            gap_ms,
            preemptions,
            stalled_ms,
            stalled_first_ms,
            gap_cells(np.array(gaps)),
            len(replicas.iterations),
            kept,
        ),
    )


def _iterations(replicas: Replicas) -> Iterations:
    known = replicas.iterations
    rows = [(i.replica, i.prefill, i.decodes, i.kv, i.running, i.free_blocks) for i in known]
    replica, prefill, decodes, kv, running, free = np.array(rows, dtype=np.int64).reshape(-1, 6).T
    start_ms, end_ms = np.array([(i.start_ms, i.end_ms) for i in known], dtype=np.float64).reshape(-1, 2).T
    return Iterations(start_ms, end_ms, replica, prefill, decodes, kv, running, free)
