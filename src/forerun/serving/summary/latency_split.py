"""Exact splits of each query's latency: where its time went.

*Queue wait* is time in a queue while every replica works; *batch wait* the last stretch of the wait during which one
stood idle, because the batching policy delayed the batch; *service* the batch; *join wait* the time one branch is done
before the others are. A stage that runs a language model has instead of service *prefill*, up to the first token,
*decode*, up to the last, and *preempted*, back in the queue in between; where other replicas decode, *transfer* to them and
*decode wait* there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forerun.serving.engine.outcome import Run
from forerun.serving.inputs.pipeline import SOURCE, Bools, Floats, Pipeline, Stage
from forerun.serving.inputs.routing import incoming_edges
from forerun.serving.llm.summary.laws import time_of_requests

QUEUE, BATCH, SERVICE, JOIN = "queue wait", "batch wait", "service", "join wait"
PREFILL, DECODE, PREEMPTED = "prefill", "decode", "preempted"
TRANSFER, DECODE_WAIT = "transfer", "decode wait"


@dataclass(frozen=True)
class Account:
    """A split of every query's latency.

    Parameters
    ----------
    names : (stage or empty, kind) of each part.
    parts_ms : float64[parts, queries]; the sum of a column is the query's latency to the last bit, in whatever order
        it is summed.
    """

    names: tuple[tuple[str, str], ...]
    parts_ms: Floats


def by_branch(pipeline: Pipeline, run: Run) -> Account:
    """The split in which all of a query's branches count.

    Branches share a query's time equally where they meet, so a branch that waits for another shows as join wait.
    """
    taken = incoming_edges(pipeline, len(run.arrival_ms))
    visited = [np.logical_or.reduce([column for _, column in columns]) for columns in taken]
    weight = _last_weights(taken, visited)
    join_ms = np.zeros(len(run.arrival_ms))
    for s, here in enumerate(visited):
        join_ms[here] += weight[s][here] * (run.finish_ms - run.visits[s].end_ms)[here]
    rows: dict[tuple[str, str], Floats] = {}
    for s in reversed(range(len(pipeline.stages))):
        parents = np.sum([column for _, column in taken[s]], axis=0)
        for parent, column in taken[s]:
            share = np.where(column, weight[s] / np.maximum(parents, 1), 0.0)
            join_ms[column] += (share * (run.visits[s].enqueue_ms - run.left_ms(parent)))[column]
            if parent != SOURCE:
                weight[parent] += share
        for kind, spent_ms in _spent(pipeline.stages[s], run, s):
            rows[pipeline.stages[s].name, kind] = np.where(visited[s], weight[s] * spent_ms, 0.0)
    return _exact(pipeline, {**rows, ("", JOIN): join_ms}, run)


def critical(pipeline: Pipeline, run: Run) -> Account:
    """The split in which only the critical path counts.

    That is what the query had to wait for: from its end back along the parent that finished last.
    """
    taken = incoming_edges(pipeline, len(run.arrival_ms))
    queries = len(run.arrival_ms)
    current = np.full(queries, SOURCE)
    for s, columns in enumerate(taken):
        here = np.logical_or.reduce([column for _, column in columns])
        current[here & (run.visits[s].end_ms == run.finish_ms)] = s
    rows: dict[tuple[str, str], Floats] = {}
    for s in reversed(range(len(pipeline.stages))):
        on = current == s
        for kind, spent_ms in _spent(pipeline.stages[s], run, s):
            rows[pipeline.stages[s].name, kind] = np.where(on, spent_ms, 0.0)
        for parent, column in taken[s]:
            current[on & column & (run.left_ms(parent) == run.visits[s].enqueue_ms)] = parent
    return _exact(pipeline, rows, run)


def batch_wait_ms(stage: Stage, run: Run, number: int) -> Floats:
    """float64[queries]: how long each query at a stage has waited since a replica last became idle, up to its start.

    Parameters
    ----------
    stage : with its changes of replicas; 0 for a language model, and for greedy batching, which never waits so.
    run : with visits and batches.
    number : of the stage in the pipeline.
    """
    visits, batches = run.visits[number], run.batches[number]
    if stage.llm is not None or stage.batching.compiled() == ("hold", 0.0):
        return np.zeros(len(visits.enqueue_ms))
    # Replicas idle over time: completions and changes of their number free them, starts take them.
    changes = [(0.0, stage.replicas), *stage.capacity]
    steps = np.diff([0, *(count for _, count in changes)])
    at_ms = np.concatenate([batches.end_ms, [-np.inf, *(at for at, _ in stage.capacity)], batches.start_ms])
    by = np.concatenate([np.ones(len(batches.end_ms)), steps, -np.ones(len(batches.start_ms))])
    phase = np.repeat([0, 1], [len(batches.end_ms) + len(changes), len(batches.start_ms)])
    order = np.lexsort((phase, at_ms))
    idle = np.cumsum(by[order])
    before = np.concatenate([[0.0], idle[:-1]])
    opened = at_ms[order][(before <= 0) & (idle > 0)]
    since_ms = opened[np.searchsorted(opened, batches.start_ms, side="right") - 1]
    since_of = dict(zip(zip(batches.start_ms.tolist(), batches.replica.tolist()), since_ms.tolist()))
    keys = zip(visits.start_ms.tolist(), visits.replica.tolist())
    since = np.array([since_of.get(key, np.nan) for key in keys])
    delay_ms: Floats = np.maximum(0.0, visits.start_ms - np.maximum(visits.enqueue_ms, since))
    return delay_ms


def _spent(stage: Stage, run: Run, number: int) -> Iterator[tuple[str, Floats]]:
    visits = run.visits[number]
    requests = run.requests[number] if run.requests else None
    if requests is not None:
        spent = time_of_requests(visits, requests)
        yield QUEUE, spent.queue_ms
        yield PREFILL, spent.prefill_ms
        yield DECODE, spent.decode_ms
        yield PREEMPTED, spent.stalled_ms
        if requests.transfers is not None:
            yield TRANSFER, spent.transfer_ms
            yield DECODE_WAIT, spent.decode_wait_ms
        return
    delay_ms = batch_wait_ms(stage, run, number)
    yield QUEUE, (visits.start_ms - visits.enqueue_ms) - delay_ms
    yield BATCH, delay_ms
    yield SERVICE, visits.end_ms - visits.start_ms


def _last_weights(taken: list[list[tuple[int, Bools]]], visited: list[Bools]) -> list[Floats]:
    """Per stage and query: 1 over the number of branches the query ends in, where this stage ends one."""
    goes_on = [np.zeros(len(column), dtype=np.bool_) for column in visited]
    for columns in taken:
        for parent, column in columns:
            if parent != SOURCE:
                goes_on[parent] |= column
    ends = [here & ~on for here, on in zip(visited, goes_on)]
    count = np.maximum(np.sum(ends, axis=0), 1)
    return [np.where(end, 1.0 / count, 0.0) for end in ends]


def _exact(pipeline: Pipeline, rows: dict[tuple[str, str], Floats], run: Run) -> Account:
    """Parts in stage order, on the grid of the latency's last bit: there every sum of them is exact, in any order.

    What rounding to the grid leaves over goes to each query's largest part.
    """
    kinds = (QUEUE, BATCH, SERVICE, PREFILL, TRANSFER, DECODE_WAIT, DECODE, PREEMPTED)
    names = [(stage.name, kind) for stage in pipeline.stages for kind in kinds if (stage.name, kind) in rows]
    names += [name for name in rows if name not in names]
    latency = run.latency_ms
    grid = np.spacing(latency)
    parts = np.round(np.stack([rows[name] for name in names]) / grid) * grid
    largest, everyone = np.argmax(parts, axis=0), np.arange(len(latency))
    parts[largest, everyone] += latency - parts.sum(axis=0)
    return Account(tuple(names), parts)
