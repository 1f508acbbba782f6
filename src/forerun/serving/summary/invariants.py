"""Invariants of every run, checked after it: conservation of queries, first in first out, service times, limits."""

from __future__ import annotations

import numpy as np

from forerun.core.errors import CheckFailed, Problem
from forerun.serving.engine.outcome import Run
from forerun.serving.inputs.pipeline import Bools, Floats, Law, Pipeline, Stage
from forerun.serving.inputs.routing import incoming_edges
from forerun.serving.llm.summary.laws import broken_laws


def check_run(pipeline: Pipeline, run: Run, slo_ms: float) -> None:
    """Reject a run that breaks a law.

    Queries are conserved at every stage; starts are first in, first out; 1 <= batch <= B; at most R at work; no
    replica idles while a greedy queue is not empty; end = start + s[n] exactly; nothing ends before it can; misses
    are those of the latencies.

    Parameters
    ----------
    pipeline : with the changes of replicas that the run had.
    run : with latencies; the laws of stages are checked where visits are recorded.
    slo_ms : latency above which a query misses.

    Raises CheckFailed naming stage and law.
    """
    latency = run.latency_ms
    broken: list[tuple[str, str]] = []
    if np.isnan(run.finish_ms).any() or (latency < 0).any():
        broken.append(("pipeline", "a query ends before it arrives, or never"))
    if run.misses != np.count_nonzero(run.missed(slo_ms)):
        broken.append(("pipeline", f"{run.misses} misses were counted, the latencies hold another number"))
    if run.visits:
        broken += [
            (stage.name, law) for s, stage in enumerate(pipeline.stages) for law in _broken(stage, run, s)
        ]
        broken += _flow(pipeline, run)
    if broken:
        raise CheckFailed(
            *(Problem(f"stage {name!r}" if name != "pipeline" else name, law) for name, law in broken)
        )


def _broken(stage: Stage, run: Run, number: int) -> list[str]:
    """The laws that one stage breaks."""
    if stage.llm is not None:
        return broken_laws(stage.llm, stage.most_replicas, run, number)
    visits, batches = run.visits[number], run.batches[number]
    came = visits.batch > 0
    size = np.clip(batches.size, 0, stage.max_batch)
    laws: dict[str, bool | np.bool_ | Bools] = {
        "visits and batches hold different numbers of queries": came.sum() == batches.size.sum(),
        "a batch is empty or above the limit": (batches.size >= 1) & (batches.size == size),
        "a query starts before it comes": visits.start_ms[came] >= visits.enqueue_ms[came],
        "starts are not first in, first out": _in_order(visits.enqueue_ms[came], visits.start_ms[came]),
        "starts go back in time": np.diff(batches.start_ms) >= 0,
        "more replicas work than there are": _most_at_once(stage, run, number),
    }
    if stage.service.law is Law.TABLE:
        exact_ms = batches.start_ms + stage.service.table_ms[size]
        laws["a batch does not end at start + s[n]"] = exact_ms == batches.end_ms
    if stage.batching.compiled() == ("hold", 0.0):
        freed = np.concatenate([batches.end_ms, [at for at, _ in stage.capacity]])
        waited = came & (visits.start_ms > visits.enqueue_ms)
        laws["a replica idles while the queue is not empty"] = np.isin(visits.start_ms[waited], freed)
    return [law for law, is_met in laws.items() if not np.all(is_met)]


def _in_order(enqueue_ms: Floats, start_ms: Floats) -> Bools:
    """bool[visits - 1]: those who come later start no earlier."""
    return np.asarray(np.diff(start_ms[np.lexsort((start_ms, enqueue_ms))]) >= 0)


def _most_at_once(stage: Stage, run: Run, number: int) -> Bools:
    """bool[batches]: at its start, those at work are at most the largest number of replicas up to then."""
    batches = run.batches[number]
    begun = np.arange(1, len(batches.start_ms) + 1)
    ended = np.searchsorted(np.sort(batches.end_ms), batches.start_ms, side="right")
    counts = np.array([stage.replicas, *(count for _, count in stage.capacity)])
    since = np.searchsorted(np.array([at for at, _ in stage.capacity]), batches.start_ms, side="right")
    # Batches that begin together are counted up one by one, so the last of them sees all.
    return np.asarray(begun - ended <= np.maximum.accumulate(counts)[since])


def _flow(pipeline: Pipeline, run: Run) -> list[tuple[str, str]]:
    """Every query enters a stage when its last taken parent ends, and ends with its last stage."""
    broken = []
    finish = run.arrival_ms.copy()
    for stage, incoming, visits in zip(pipeline.stages, incoming_edges(pipeline, len(finish)), run.visits):
        entered = np.full(len(finish), -np.inf)
        for parent, taken in incoming:
            entered[taken] = np.maximum(entered[taken], run.left_ms(parent)[taken])
        came = ~np.isnan(visits.enqueue_ms)
        enqueued = np.where(came, visits.enqueue_ms, -np.inf)
        if not np.array_equal(enqueued, entered):
            broken.append((stage.name, "a query comes at another instant than its last taken parent ends"))
        finish[came] = np.maximum(finish[came], visits.end_ms[came])
    if not np.array_equal(finish, run.finish_ms):
        broken.append(("pipeline", "a query ends at another instant than its last stage"))
    return broken
