"""Queueing theory, asserted at two million queries: the kernels against closed forms and exact chains."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from forerun.core.rng import stream
from forerun.serving.engine.outcome import Run
from forerun.serving.engine.stagewise import simulate_stagewise
from forerun.serving.inputs.pipeline import SOURCE, Edge, Law, Pipeline, Service, Stage
from forerun.serving.policies.greedy import Greedy

from .conftest import golden, read_json

QUERIES = 2_000_000


def station(
    table_ms: list[float] | np.ndarray,
    replicas: int,
    most: int,
    law: Law = Law.TABLE,
    key: int = 1,
    cv: float = 0.0,
) -> Stage:
    """A stage fed from outside."""
    return Stage(
        "m", (Edge(SOURCE),), most, replicas, Service(np.array(table_ms), law, cv=cv, key=key), Greedy()
    )


def poisson(rate_per_ms: float, queries: int = QUERIES, seed: int = 0) -> np.ndarray:
    """Arrivals of a Poisson process."""
    return np.cumsum(stream(seed, "oracle arrivals").exponential(1 / rate_per_ms, queries))


def waits(run: Run, stage: int = 0) -> np.ndarray:
    """Time in queue of each visit."""
    return run.visits[stage].start_ms - run.visits[stage].enqueue_ms


def _cases(name: str) -> list[Any]:
    try:
        return [case for case in read_json(golden("oracles.json")) if case["name"].startswith(name)]
    except pytest.skip.Exception:
        return []


@pytest.mark.parametrize("case", _cases("M/D"), ids=lambda case: f"{case['name']} {case['lam_per_ms']}")
def test_deterministic_service(case: Any) -> None:
    """M/D/1 by Pollaczek and Khinchine; M/D(1,B)/1 by its chain: mean wait within 1 %, batch shares within 0.005."""
    stage = station(case["service_ms"], case["replicas"], case["batch"])
    run = simulate_stagewise(Pipeline((stage,)), poisson(case["lam_per_ms"]), 1.0, record="full")
    assert waits(run).mean() == pytest.approx(case["mean_wait_ms"], rel=0.01)
    if "share_of_batches_by_size" in case:
        shares = np.bincount(run.batches[0].size, minlength=case["batch"] + 1) / len(run.batches[0].size)
        assert np.abs(shares - case["share_of_batches_by_size"]).max() < 0.005


@pytest.mark.parametrize("case", _cases("M/M"), ids=lambda case: f"{case['name']} {case['lam_per_ms']}")
def test_exponential_service(case: Any) -> None:
    """M/M/c by Erlang C; M/M(1,b)/1 by its root: mean wait within 2 %, shares of waiting and idling within 0.005."""
    most = case["batch"]
    stage = station([0.0, *[1 / case["mu_per_ms"]] * most], case["replicas"], most, Law.EXPONENTIAL, key=99)
    run = simulate_stagewise(Pipeline((stage,)), poisson(case["lam_per_ms"]), 1.0, record="full")
    assert waits(run).mean() == pytest.approx(case["mean_wait_ms"], rel=0.02)
    if "p_wait" in case:
        assert (waits(run) > 0).mean() == pytest.approx(case["p_wait"], abs=0.005)
    if "p_idle" in case:
        busy = (run.batches[0].end_ms - run.batches[0].start_ms).sum() / run.finish_ms.max()
        assert 1 - busy == pytest.approx(case["p_idle"], abs=0.005)


def test_the_deterministic_bulk_chain_solved_here() -> None:
    """The same chain, solved in the test: X' = max(X, 1) - n + Poisson(rate s[n]), n = min(max(X, 1), B)."""
    rate, table = 0.12, [0.0, 9.0, 12.0, 14.0]
    most, states = 3, 300
    step = np.zeros((states, states))
    for x in range(states):
        n = min(max(x, 1), most)
        left, mean = max(x, 1) - n, rate * table[n]
        for k in range(states - left):
            step[x, left + k] = math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1))
    share = np.linalg.matrix_power(step / step.sum(axis=1, keepdims=True), 4096)[0]
    sizes = np.minimum(np.maximum(np.arange(states), 1), most)
    service = np.array(table)[sizes]
    rest = np.maximum(np.arange(states), 1) - sizes
    waiting = (share * (rest * service + rate * service**2 / 2)).sum()
    cycle = (share * (service + (np.arange(states) == 0) / rate)).sum()
    run = simulate_stagewise(Pipeline((station(table, 1, most),)), poisson(rate), 1.0, record="full")
    assert waits(run).mean() == pytest.approx(waiting / cycle / rate, rel=0.01)
    ours = np.bincount(run.batches[0].size, minlength=most + 1) / len(run.batches[0].size)
    assert np.abs(ours - np.bincount(sizes, weights=share, minlength=most + 1)).max() < 0.005


def test_mg1_with_log_normal_service() -> None:
    """Pollaczek and Khinchine: W = rate E[S^2] / (2 (1 - rho)), E[S^2] = (1 + cv^2) E[S]^2."""
    rate, mean, cv = 0.06, 10.0, 0.8
    stage = station([0.0, mean], 1, 1, Law.LOGNORMAL, key=7, cv=cv)
    run = simulate_stagewise(Pipeline((stage,)), poisson(rate), 1.0, record="full")
    spent = run.batches[0].end_ms - run.batches[0].start_ms
    assert spent.mean() == pytest.approx(mean, rel=0.005)
    assert spent.std() / spent.mean() == pytest.approx(cv, rel=0.02)
    assert waits(run).mean() == pytest.approx(
        rate * (1 + cv**2) * mean**2 / (2 * (1 - rate * mean)), rel=0.02
    )


def test_measured_values_are_drawn_alike() -> None:
    values = np.array([2.0, 3.0, 7.0])
    service = Service(np.array([0.0, 4.0]), Law.MEASURED, measured_ms=(np.zeros(1), values), key=5)
    stage = Stage("m", (Edge(SOURCE),), 1, 1, service, Greedy())
    run = simulate_stagewise(Pipeline((stage,)), np.arange(300_000) * 10.0, 1.0)
    found, counts = np.unique(run.latency_ms.round(6), return_counts=True)
    assert found.tolist() == values.tolist()
    assert np.abs(counts / counts.sum() - 1 / 3).max() < 0.005


def test_tandem_of_mm1() -> None:
    """Burke: the second M/M/1 of a tandem behaves as if it stood alone."""
    rate = 0.06
    first, second = (
        station([0.0, 10.0], 1, 1, Law.EXPONENTIAL, 3),
        station([0.0, 8.0], 1, 1, Law.EXPONENTIAL, 4),
    )
    behind = Stage("n", (Edge(0),), 1, 1, second.service, Greedy())
    run = simulate_stagewise(Pipeline((first, behind)), poisson(rate), 1.0, record="full")
    for number, service in enumerate((10.0, 8.0)):
        load = rate * service
        assert waits(run, number).mean() == pytest.approx(load * service / (1 - load), rel=0.02)


def test_dd1_waits_for_nothing() -> None:
    run = simulate_stagewise(
        Pipeline((station([0.0, 10.0], 1, 1),)), np.arange(QUERIES) * 10.0, 1.0, record="full"
    )
    assert waits(run).max() == 0.0


@pytest.mark.parametrize("replicas", [1, 3])
def test_saturation(replicas: int) -> None:
    """Overloaded, a stage carries R B / s[B]."""
    stage = station([0.0, 5.0, 6.0, 7.0, 8.0], replicas, 4)
    run = simulate_stagewise(Pipeline((stage,)), np.arange(400_000) * 0.1, 1.0)
    assert len(run.finish_ms) / run.finish_ms.max() == pytest.approx(replicas * 4 / 8.0, rel=1e-3)


def test_littles_law() -> None:
    """Mean queue over time = rate x mean wait, counted independently at sampled instants."""
    rate = 0.5
    stage = station([0.0, 5.0, 6.0, 7.0, 8.0], 1, 4)
    run = simulate_stagewise(Pipeline((stage,)), poisson(rate * 0.8, 500_000), 1.0, record="full")
    span = run.arrival_ms[-1]
    at = np.linspace(0, span, 100_001)
    queued = np.searchsorted(run.visits[0].enqueue_ms, at) - np.searchsorted(run.visits[0].start_ms, at)
    assert queued.mean() == pytest.approx(len(run.arrival_ms) / span * waits(run).mean(), rel=0.01)
