"""Spaces to plan over: the reference ones, and small random ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forerun.serving.inputs.pipeline import SOURCE, Edge, Pipeline, Service, Stage
from forerun.serving.inputs.profile import embedded_profile
from forerun.serving.inputs.routing import taken_edges
from forerun.serving.plan.space import Offer, Space, Traffic
from forerun.serving.policies.greedy import Greedy

#: the four image models, in the order of the notebook's wiring
NOTEBOOK = {"ResNet": SOURCE, "Inception": SOURCE, "KSVM": 0, "LogReg": 1}


def arrivals_of(gaps: np.ndarray) -> np.ndarray:
    """0, then the running sums of the gaps."""
    return np.concatenate([[0.0], np.cumsum(gaps)])


def gamma_gaps(seed: int, n: int, rate: float, scv: float) -> np.ndarray:
    """As the reference traces are made."""
    return np.maximum(np.random.RandomState(seed).gamma(1 / scv, scv * 1000 / rate, size=n), 0.047)


def profiled(model: str, prices: Mapping[str, float], kind: str = "mean") -> tuple[Offer, ...]:
    """A model on all its hardware, at the batches measured."""
    profile, found = embedded_profile(), []
    for hardware in profile.hardware_of(model):
        rows = profile.rows(model, hardware)
        sizes = tuple(row.batch for row in rows)
        table = profile.table_ms(model, hardware, kind, sizes[-1])
        qps = {row.batch: row.throughput_qps for row in rows}
        p99 = {row.batch: row.p99_ms for row in rows}
        found.append(Offer(hardware, float(prices[hardware]), sizes, table, qps, p99))
    return tuple(found)


def notebook_space(
    arrivals: np.ndarray,
    prices: Mapping[str, float],
    slo_ms: float,
    allowed: int,
    max_replicas: int = 60,
) -> Space:
    """The four image models."""
    return Space(
        tuple(NOTEBOOK),
        tuple((parent,) for parent in NOTEBOOK.values()),
        tuple(profiled(name, prices) for name in NOTEBOOK),
        Traffic(arrivals, (None,) * 4),
        float(slo_ms),
        allowed,
        max_replicas,
    )


def graph_space(case: Mapping[str, Any]) -> tuple[Space, Pipeline]:
    """A reference case on another graph."""
    arrivals = arrivals_of(gamma_gaps(case["gamma_seed"], case["n_deltas"], case["lam"], case["cv2"]))
    numbers = {stage["stage"]: at for at, stage in enumerate(case["stages"])} | {"source": SOURCE}
    routes = {tuple(route["edge"]): route for route in case["routing"]}
    stages = []
    for stage in case["stages"]:
        edges = []
        for parent in stage["parents"]:
            route = routes.get((parent, stage["stage"]))
            share, number = (route["share"], route["number"]) if route else (None, 0)
            edges.append(Edge(numbers[parent], share=share, number=number))
        stages.append(bare_stage(stage["stage"], tuple(edges)))
    seed = case["routing"][0]["seed"] if routes else 0
    template = Pipeline(tuple(stages), seed=seed)
    offers = [profiled(stage["model"], case["costs"]) for stage in case["stages"]]
    return space_on(
        template, offers, arrivals, case["slo_ms"], case["allowed_misses"], case["max_replicas"]
    ), template


def space_on(
    template: Pipeline,
    offers: Sequence[tuple[Offer, ...]],
    arrivals: np.ndarray,
    slo_ms: float,
    allowed: int,
    max_replicas: int,
) -> Space:
    """The space over a pipeline's graph."""
    routed = not all(edge.always for edge in template.edges)
    taken = taken_edges(template, len(arrivals)) if routed else [None] * len(template.edges)
    return Space(
        template.names,
        tuple(tuple(edge.parent for edge in stage.edges) for stage in template.stages),
        tuple(offers),
        Traffic(arrivals, tuple(taken)),
        float(slo_ms),
        allowed,
        max_replicas,
    )


def bare_stage(name: str, edges: tuple[Edge, ...]) -> Stage:
    """A stage whose choice is open."""
    return Stage(name, edges, 1, 1, Service(np.array([0.0, 1.0])), Greedy())


def small_space(seed: int, *, queries: int = 60) -> tuple[Space, Pipeline]:
    """A random space of at most a few thousand configurations; on half of them all instants are whole and tie."""
    rng = np.random.default_rng(seed)
    whole = bool(rng.integers(2))
    count = int(rng.integers(1, 4))
    routed = bool(rng.random() < 0.4)
    stages = []
    for s in range(count):
        parents = rng.permutation(np.arange(SOURCE, s))[: int(rng.integers(1, min(s + 1, 3) + 1))]
        edges = []
        for place, parent in enumerate(parents):
            share = float(rng.random()) if routed and rng.random() < 0.6 else None
            edges.append(Edge(int(parent), share=share, number=4 * s + place))
        stages.append(bare_stage(f"s{s}", tuple(edges)))
    template = Pipeline(tuple(stages), seed=int(rng.integers(2**40)))
    prices = {name: float(rng.choice([0.0665, 0.5, 1.0, 2.1, 2.528])) for name in ("fast", "slow")}
    offers = [_offers(rng, whole, prices) for _ in range(count)]
    gap = float(rng.choice([2.0, 4.0, 8.0]))
    gaps = rng.integers(0, int(2 * gap), queries).astype(float) if whole else rng.gamma(0.5, 2 * gap, queries)
    slo_ms = float(rng.integers(10, 60)) if whole else float(rng.uniform(10, 60))
    allowed = int(rng.integers(0, 6))
    return space_on(template, offers, np.cumsum(gaps), slo_ms, allowed, int(rng.integers(1, 4))), template


def large_space(seed: int) -> Space:
    """Three stages with 48 choices each, in a chain, a fork or a join, half of them on an integer clock, at a load that
    needs several replicas."""
    rng = np.random.default_rng(1000 + seed)
    whole = bool(seed % 2)
    shapes: tuple[tuple[tuple[int, ...], ...], ...] = (
        ((SOURCE,), (0,), (1,)),
        ((SOURCE,), (0,), (0,)),
        ((SOURCE,), (SOURCE,), (0, 1)),
    )
    shape = shapes[seed % 3]
    stages = [bare_stage(f"s{s}", tuple(Edge(parent) for parent in above)) for s, above in enumerate(shape)]
    offers = []
    for _ in shape:
        found = []
        for hardware, price, pace in (("fast", 2.528, 1.0), ("slow", 1.1, 2.2)):
            base = float(rng.integers(4, 9)) if whole else float(rng.uniform(4, 9))
            steps = np.arange(5) * (1.0 if whole else float(rng.uniform(0.8, 1.5)))
            table = np.concatenate([[0.0], np.round(pace * base) + steps if whole else pace * base + steps])
            batches = (1, 2, 4)
            qps = {batch: batch * 1e3 / float(table[batch]) for batch in batches}
            p99 = {batch: float(table[batch]) for batch in batches}
            found.append(Offer(hardware, price, batches, table[:5], qps, p99))
        offers.append(tuple(found))
    queries, gap = 40, 1.0 + (seed % 4) / 2
    gaps = (
        rng.integers(0, int(2 * gap) + 1, queries).astype(float)
        if whole
        else rng.gamma(0.5, 2 * gap, queries)
    )
    return space_on(Pipeline(tuple(stages)), offers, np.cumsum(gaps), 34.0 + 3 * (seed % 5), seed % 3, 8)


def _offers(rng: np.random.Generator, whole: bool, prices: Mapping[str, float]) -> tuple[Offer, ...]:
    found = []
    for hardware in ("fast", "slow")[: int(rng.integers(1, 3))]:
        batches = ((1, 2, 4), (1, 3), (1,))[int(rng.integers(3))]
        steps = rng.integers(0, 4, batches[-1]) if whole else rng.exponential(2.0, batches[-1])
        table = np.concatenate(
            [[0.0], np.cumsum(steps) + (rng.integers(1, 9) if whole else 1.0 + rng.random())]
        )
        qps = {batch: batch * 1e3 / float(table[batch]) for batch in batches}
        p99 = {batch: float(table[batch]) for batch in batches}
        found.append(Offer(hardware, prices[hardware], batches, table, qps, p99))
    return tuple(found)
