"""The event loop: at every instant, the four phases of every stage that has something to do.

    0 changes of the number of replicas   1 completions, in start order   2 arrivals   3 starts

The readable engine. It runs policies without a compiled form, it shows the run to observers, and it is the reference that
the stage-by-stage kernels are tested against. Instants come from a heap, arrivals from outside by a pointer. Stages act
in topological order, so what one emits reaches the next at once; first all of them complete, because clients may send in
the instant in which they see an answer.
"""

from __future__ import annotations

import heapq
import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from forerun.core.errors import PolicyError
from forerun.serving.engine.clients import Arrivals, Sender
from forerun.serving.engine.outcome import Batches, Requests, Run, Visits
from forerun.serving.engine.stage_state import Incoming, StageState
from forerun.serving.inputs.clients import Clients, Sent
from forerun.serving.inputs.pipeline import SOURCE, Floats, Pipeline
from forerun.serving.inputs.routing import incoming_edges, refused_queries, visited_stages
from forerun.serving.llm.engine.record import requests_of
from forerun.serving.llm.engine.replica import Replicas
from forerun.serving.observer import Observer
from forerun.serving.policy.batching import QueueView, Start, Wait, Wake


def simulate_events(
    pipeline: Pipeline, arrivals_ms: Floats, slo_ms: float, *, observers: Sequence[Observer] = ()
) -> Run:
    """Simulate a whole trace, instant by instant.

    Parameters
    ----------
    pipeline : stages with any batching policies, language models among them.
    arrivals_ms : float64[queries], ascending.
    slo_ms : latency above which a query misses.
    observers : called after each instant (default: none).

    Raises PolicyError for a batching policy that decides what is impossible, or that leaves queries in a queue for ever.
    """
    finish_ms = arrivals_ms.copy()
    stages, ties = _play(pipeline, Arrivals(arrivals_ms), finish_ms, observers)
    visits, batches, requests = zip(*map(_records, stages))
    run = Run(arrivals_ms, finish_ms, 0, ties, visits, batches)
    if pipeline.serves_models:
        run = replace(run, requests=requests, refused=refused_queries(pipeline, len(arrivals_ms)))
    return replace(run, misses=int(np.count_nonzero(run.missed(slo_ms))))


def sent_by_clients(pipeline: Pipeline, clients: Clients) -> Sent:
    """What clients send who see the answers of a pipeline.

    Parameters
    ----------
    pipeline : stages with any batching policies, language models among them.
    clients : what they send, query by query.
    """
    queries = len(clients)
    stages = np.sum(visited_stages(pipeline, queries), axis=0)
    sender = Sender(clients, stages.tolist(), refused_queries(pipeline, queries).tolist())
    _play(pipeline, sender, np.full(queries, np.nan), ())
    return sender.sent


def _play(
    pipeline: Pipeline, source: Arrivals | Sender, finish_ms: Floats, observers: Sequence[Observer]
) -> tuple[list[StageState], int]:
    """Every instant of a run; returns the stages at its end, and at how many stage-instants several things happen.

    Parameters
    ----------
    pipeline, observers : as of `simulate_events`.
    source : of the queries.
    finish_ms : float64[queries], written: when each ends.
    """
    stages = _stages(pipeline, len(finish_ms))
    children = _children(pipeline)
    alarms = [(at, s.number) for s in stages for at, _ in s.stage.capacity]
    heapq.heapify(alarms)
    ties = 0
    now_ms = 0.0
    while source.next_ms < math.inf or alarms:
        now_ms = min(source.next_ms, alarms[0][0] if alarms else math.inf)
        due = 0
        while alarms and alarms[0][0] == now_ms:
            due |= 1 << heapq.heappop(alarms)[1]
        completions = [0] * len(stages)
        for state in stages:
            if due >> state.number & 1:
                _change(state, now_ms)
                completions[state.number] = _complete(state, now_ms, finish_ms)
                source.left(state.emitted, now_ms)
                due |= children[state.number] if state.emitted else 0
        sent = [[query] for query in source.take(now_ms)]
        due |= children[SOURCE] if sent else 0
        while due:
            number = (due & -due).bit_length() - 1
            state = stages[number]
            arriving = _arrive(state, now_ms, stages, sent, finish_ms)
            ties += completions[number] + arriving > 1
            for at_ms in _start(state, now_ms):
                heapq.heappush(alarms, (at_ms, number))
            due &= due - 1
        for state in stages:
            state.emitted = []
        for observer in observers:
            observer.instant(now_ms, stages)
    for state in stages:
        if state.queue:
            raise _impossible(state, now_ms, f"leaves {len(state.queue)} queries in the queue for ever")
    return stages, ties


def _change(state: StageState, now_ms: float) -> None:
    """Phase 0. Up: retirements are cancelled before idle replicas come, with the lowest free numbers. Down: idle ones
    go first, the highest number first."""
    while state.changes and state.changes[0][0] <= now_ms:
        state.replicas = state.changes.popleft()[1]
        if isinstance(state.llm, Replicas):
            state.llm.resize(state.replicas)
            continue
        needed = max(0, state.replicas - state.working)
        del state.idle[needed:]
        used = {replica for _, _, replica, _ in state.serving} | {replica for _, replica in state.woken}
        number = 0
        while len(state.idle) < needed:
            if number not in used and number not in state.idle:
                insort(state.idle, number)
            number += 1


def _complete(state: StageState, now_ms: float, finish_ms: Floats) -> int:
    """Phase 1: batches end, in start order; returns how many."""
    if state.llm is not None:
        ended = state.llm.end(now_ms)
        state.emitted = [queries for queries in ended if queries]
        for queries in state.emitted:
            state.left += len(queries)
            finish_ms[queries] = now_ms
        return len(state.emitted)
    while state.serving and state.serving[0][0] == now_ms:
        _, _, replica, queries = heapq.heappop(state.serving)
        if state.working < state.replicas:
            insort(state.idle, replica)
        state.emitted.append(queries)
        state.left += len(queries)
        finish_ms[queries] = now_ms
    return len(state.emitted)


def _arrive(
    state: StageState, now_ms: float, stages: list[StageState], sent: list[list[int]], finish_ms: Floats
) -> int:
    """Phase 2: queries whose last taken parent ends now join the queue; returns from how many parents' batches.

    Parameters
    ----------
    state : the stage that they enter.
    now_ms : the instant.
    stages : all stages, whose `emitted` batches end now.
    sent : queries that arrive from outside at this instant, each a batch of its own.
    finish_ms : written for requests that a language model refuses: they end as they come.
    """
    groups = 0
    for edge in state.parents:
        for batch in sent if edge.parent == SOURCE else stages[edge.parent].emitted:
            entered = state.entered
            for query in batch:
                if edge.taken is not None and not edge.taken[query]:
                    continue
                if state.missing is not None:
                    state.missing[query] -= 1
                    if state.missing[query]:
                        continue
                if state.llm is not None:
                    state.enqueue_ms[query] = now_ms
                    if not state.llm.enter(query, now_ms):
                        finish_ms[query] = now_ms
                        continue
                else:
                    state.queue.append((query, now_ms))
                state.entered += 1
            groups += state.entered > entered
    return groups


def _start(state: StageState, now_ms: float) -> list[float]:
    """Phase 3: takes that are due, then whatever the batching policy decides; returns instants to come back at."""
    if state.llm is not None:
        return state.llm.begin(now_ms)
    alarms: list[float] = []
    while state.woken and state.woken[0][0] <= now_ms:
        _, replica = state.woken.popleft()
        if state.queue:
            alarms.append(_begin(state, now_ms, replica))
        elif state.working < state.replicas:
            insort(state.idle, replica)
    while state.idle:
        oldest_ms = state.queue[0][1] if state.queue else math.inf
        view = QueueView(
            now_ms, len(state.queue), oldest_ms, state.stage.max_batch, len(state.idle), len(state.woken)
        )
        match state.policy.decide(view):
            case Start():
                if not state.queue:
                    raise _impossible(state, now_ms, "starts a batch although no query is queued")
                alarms.append(_begin(state, now_ms, state.idle.pop(0)))
            case Wait(until_ms):
                if now_ms < until_ms < math.inf:
                    alarms.append(until_ms)
                break
            case Wake(after_ms):
                if not now_ms + after_ms > now_ms:
                    raise _impossible(
                        state, now_ms, f"wakes a replica after {after_ms} ms; more than 0 is possible"
                    )
                state.woken.append((now_ms + after_ms, state.idle.pop(0)))
                alarms.append(now_ms + after_ms)
            case other:
                raise _impossible(state, now_ms, f"answered {other!r}; Start, Wait or Wake is expected")
    return alarms


def _begin(state: StageState, now_ms: float, replica: int) -> float:
    """The oldest queries start on `replica`; returns when they end."""
    size = min(state.stage.max_batch, len(state.queue))
    order = len(state.batches)
    end_ms = now_ms + state.service_ms(size, order)
    queries = []
    for _ in range(size):
        query, entered_ms = state.queue.popleft()
        queries.append(query)
        state.enqueue_ms[query] = entered_ms
        state.batch_of[query] = order
    heapq.heappush(state.serving, (end_ms, order, replica, queries))
    state.batches.append((now_ms, end_ms, size, replica))
    return end_ms


def _stages(pipeline: Pipeline, queries: int) -> list[StageState]:
    states = []
    for number, edges_in in enumerate(incoming_edges(pipeline, queries)):
        incoming = [Incoming(parent, None if takes.all() else takes.tolist()) for parent, takes in edges_in]
        missing = np.sum([takes for _, takes in edges_in], axis=0).tolist() if len(edges_in) > 1 else None
        states.append(StageState(number, pipeline.stages[number], incoming, missing, queries, pipeline.seed))
    return states


def _children(pipeline: Pipeline) -> dict[int, int]:
    """Per parent (or SOURCE) the set of its children, as bits."""
    children = dict.fromkeys(range(SOURCE, len(pipeline.stages)), 0)
    for number, stage in enumerate(pipeline.stages):
        for edge in stage.edges:
            children[edge.parent] |= 1 << number
    return children


def _impossible(state: StageState, now_ms: float, what: str) -> PolicyError:
    return PolicyError.at(f"stage {state.stage.name!r} at {now_ms} ms", f"the batching policy {what}")


def _records(state: StageState) -> tuple[Visits, Batches, Requests | None]:
    """What a stage did."""
    if state.llm is not None:
        return requests_of(state.llm, state.enqueue_ms)
    table = np.array(state.batches, dtype=np.float64).reshape(-1, 4)
    came = state.batch_of >= 0
    batch, replica = np.zeros(len(came), dtype=np.int32), np.full(len(came), -1, dtype=np.int32)
    start_ms, end_ms = np.full(len(came), np.nan), np.full(len(came), np.nan)
    start_ms[came], end_ms[came], batch[came], replica[came] = table[state.batch_of[came]].T
    return (
        Visits(state.enqueue_ms, start_ms, end_ms, batch, replica),
        Batches(table[:, 0], table[:, 1], table[:, 2].astype(np.int32), table[:, 3].astype(np.int32)),
        None,
    )
