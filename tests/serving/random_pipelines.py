"""Random pipelines and traces for the serving domain's tests, drawn from a seed alone."""

from __future__ import annotations

import numpy as np

from forerun.serving.engine.outcome import Run
from forerun.serving.inputs.pipeline import SOURCE, Edge, Law, Pipeline, Service, Stage
from forerun.serving.policies.delay import Delay
from forerun.serving.policies.greedy import Greedy
from forerun.serving.policies.timeout import Timeout
from forerun.serving.policy.batching import Batching

Rng = np.random.Generator


def random_pipeline(seed: int, *, queries: int = 150, simple: bool = False) -> tuple[Pipeline, np.ndarray]:
    """A pipeline and its arrivals. Half of all pipelines run on an integer clock, where most instants tie.

    simple: greedy batching, tables for services and no change of replicas.
    """
    rng = np.random.default_rng(seed)
    whole = bool(rng.integers(2))
    stages = int(rng.integers(1, 8))
    routed = not simple and bool(rng.integers(2))
    drawn = [_stage(rng, s, whole, routed, simple, queries) for s in range(stages)]
    return Pipeline(tuple(drawn), seed=int(rng.integers(2**40))), _arrivals(rng, queries, whole)


def same(left: Run, right: Run) -> bool:
    """Whether two results agree in every column, bit for bit."""
    pairs = zip(left.visits + left.batches, right.visits + right.batches)
    return (
        np.array_equal(left.finish_ms, right.finish_ms)
        and (left.misses, left.tie_count) == (right.misses, right.tie_count)
        and len(left.visits) == len(right.visits)
        and all(
            np.array_equal(getattr(a, name), getattr(b, name), equal_nan=True)
            for a, b in pairs
            for name in vars(a)
        )
    )


def _stage(rng: Rng, number: int, whole: bool, routed: bool, simple: bool, queries: int) -> Stage:
    most = int(rng.integers(1, 9))
    replicas = 64 if rng.random() < 0.03 else int(rng.integers(1, 5))
    parents = rng.permutation(np.arange(SOURCE, number))[: int(rng.integers(1, min(number + 1, 4) + 1))]
    return Stage(
        f"s{number}",
        tuple(_edge(rng, int(parent), number * 8 + i, routed, queries) for i, parent in enumerate(parents)),
        most,
        replicas,
        _service(rng, most, whole, simple, number),
        _batching(rng, simple),
        () if simple or rng.random() < 0.7 else _capacity(rng, queries, whole),
    )


def _edge(rng: Rng, parent: int, number: int, routed: bool, queries: int) -> Edge:
    way = rng.integers(4) if routed else 0
    if way == 2:
        return Edge(parent, share=float(rng.choice([0.0, 1.0, rng.random()])), number=number)
    if way == 3:
        return Edge(parent, recorded=rng.random(queries) < rng.random())
    return Edge(parent)


def _service(rng: Rng, most: int, whole: bool, simple: bool, number: int) -> Service:
    steps = rng.integers(0, 4, most) if whole else rng.exponential(2.0, most)
    rising = np.cumsum(steps) if rng.random() < 0.8 else steps.astype(float)  # a table need not rise
    table = np.concatenate([[0.0], rising + (rng.integers(1, 9) if whole else rng.exponential(8.0) + 0.1)])
    way = 0 if simple else rng.integers(8)
    key = int(rng.integers(2**60))
    if way == 5:
        return Service(table, Law.EXPONENTIAL, key=key)
    if way == 6:
        return Service(table, Law.LOGNORMAL, cv=float(rng.random() + 0.1), key=key)
    if way == 7:
        measured = tuple(ms * np.round(rng.random(int(rng.integers(1, 6))) + 1.0, 0) for ms in table)
        return Service(table, Law.MEASURED, measured_ms=measured, key=key)
    return Service(table)


def _batching(rng: Rng, simple: bool) -> Batching:
    way = 0 if simple else rng.integers(5)
    delay_ms = float(rng.integers(1, 12))
    if way == 3:
        return Timeout(delay_ms=delay_ms)
    return Delay(delay_ms=delay_ms) if way == 4 else Greedy()


def _capacity(rng: Rng, queries: int, whole: bool) -> tuple[tuple[float, int], ...]:
    count = int(rng.integers(1, 6))
    at = np.unique(rng.integers(0, 6 * queries, count) if whole else rng.random(count) * 6 * queries)
    return tuple((float(ms), int(rng.integers(1, 6))) for ms in at)


def _arrivals(rng: Rng, queries: int, whole: bool) -> np.ndarray:
    if whole:
        return np.cumsum(rng.integers(0, int(rng.integers(2, 9)), queries)).astype(np.float64)
    gaps = rng.gamma(0.3, float(rng.choice([2.0, 10.0, 40.0])), queries)
    gaps[rng.random(queries) < 0.1] = 0.0
    return np.cumsum(gaps)
