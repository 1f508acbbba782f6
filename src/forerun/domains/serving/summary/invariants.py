"""Invariants of every run, checked after it: conservation of queries, first in first out, service times, limits."""

from __future__ import annotations

import numpy as np

from forerun.domains.serving.engine.outcome import Run
from forerun.domains.serving.inputs.pipeline import SOURCE, Floats, Law, Pipeline, Stage
from forerun.domains.serving.inputs.routing import taken_edges
from forerun.domains.serving.summary.llm.laws import broken_laws
from forerun.errors import CheckFailed, Problem


def check_run(pipeline: Pipeline, run: Run, slo_ms: float) -> None:
    """Queries are conserved at every stage; starts are first in, first out; 1 <= batch <= B; at most R at work; no
    replica idles while a greedy queue holds something; end = start + s[n] exactly; nothing ends before it can; misses are
    those of the latencies.

    Raises CheckFailed naming stage and law.
    """
    latency = run.latency_ms
    found: list[tuple[str, str]] = []
    if np.isnan(run.finish_ms).any() or (latency < 0).any():
        found.append(("pipeline", "a query ends before it arrives, or never"))
    if run.misses != np.count_nonzero(run.missed(slo_ms)):
        found.append(("pipeline", f"{run.misses} misses were counted, the latencies hold another number"))
    if run.visits:
        found += [
            (stage.name, law) for s, stage in enumerate(pipeline.stages) for law in _broken(stage, run, s)
        ]
        found += _flow(pipeline, run)
    if found:
        raise CheckFailed(
            *(Problem(f"stage {name!r}" if name != "pipeline" else name, law) for name, law in found)
        )


def _broken(stage: Stage, run: Run, number: int) -> list[str]:
    """The laws that one stage breaks."""
    if stage.llm is not None:
        return broken_laws(stage.llm, stage.replicas, run, number)
    visits, batches = run.visits[number], run.batches[number]
    came = visits.batch > 0
    laws = {
        "visits and batches hold different numbers of queries": int(came.sum()) == int(batches.size.sum()),
        "a batch is empty or above the limit": not len(batches.size)
        or (batches.size.min() >= 1 and batches.size.max() <= stage.max_batch),
        "a query starts before it comes": bool((visits.start_ms[came] >= visits.enqueue_ms[came]).all()),
        "starts are not first in, first out": _in_order(visits.enqueue_ms[came], visits.start_ms[came]),
        "starts go back in time": bool((np.diff(batches.start_ms) >= 0).all()),
        "more replicas work than there are": _most_at_once(stage, run, number),
    }
    if stage.service.law is Law.TABLE:
        size = np.clip(batches.size, 0, stage.max_batch)
        exact = batches.start_ms + stage.service.table_ms[size] == batches.end_ms
        laws["a batch does not end at start + s[n]"] = bool(exact.all())
    if stage.batching.compiled() == ("hold", 0.0):
        freed = np.concatenate([batches.end_ms, [at for at, _ in stage.capacity]])
        waited = came & (visits.start_ms > visits.enqueue_ms)
        laws["a replica idles while the queue holds something"] = bool(
            np.isin(visits.start_ms[waited], freed).all()
        )
    return [law for law, holds in laws.items() if not holds]


def _in_order(enqueue_ms: Floats, start_ms: Floats) -> bool:
    order = np.lexsort((start_ms, enqueue_ms))
    return bool((np.diff(start_ms[order]) >= 0).all())


def _most_at_once(stage: Stage, run: Run, number: int) -> bool:
    """At every start, the batches at work are at most the largest number of replicas up to then."""
    batches = run.batches[number]
    begun = np.arange(1, len(batches.start_ms) + 1)
    ended = np.searchsorted(np.sort(batches.end_ms), batches.start_ms, side="right")
    counts = np.array([stage.replicas, *(count for _, count in stage.capacity)])
    since = np.searchsorted(np.array([at for at, _ in stage.capacity]), batches.start_ms, side="right")
    # Batches that begin together are counted up one by one, so the last of them sees all.
    return bool((begun - ended <= np.maximum.accumulate(counts)[since]).all())


def _flow(pipeline: Pipeline, run: Run) -> list[tuple[str, str]]:
    """Every query enters a stage when its last taken parent ends, and ends with its last stage."""
    found = []
    columns = iter(taken_edges(pipeline, len(run.arrival_ms)))
    finish = run.arrival_ms.copy()
    for number, stage in enumerate(pipeline.stages):
        entered = np.full(len(finish), -np.inf)
        for edge in stage.edges:
            taken = next(columns)
            ended = run.arrival_ms if edge.parent == SOURCE else run.visits[edge.parent].end_ms
            entered[taken] = np.maximum(entered[taken], ended[taken])
        came = ~np.isnan(run.visits[number].enqueue_ms)
        if not np.array_equal(came, entered > -np.inf) or not np.array_equal(
            entered[came], run.visits[number].enqueue_ms[came]
        ):
            found.append((stage.name, "a query comes at another instant than its last taken parent ends"))
        finish[came] = np.maximum(finish[came], run.visits[number].end_ms[came])
    if not np.array_equal(finish, run.finish_ms):
        found.append(("pipeline", "a query ends at another instant than its last stage"))
    return found
