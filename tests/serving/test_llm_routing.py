"""How requests choose a replica: laws of lots, weights and scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from forerun.core.domain import simulate
from forerun.core.errors import ForerunError
from forerun.serving.inputs.pipeline import SOURCE, Edge, Pipeline
from forerun.serving.llm.engine.pipeline import simulate_mixed
from forerun.serving.llm.inputs.model import Cost, LanguageModel
from forerun.serving.llm.scenario.language_model import Routing, Scored, Weighted

from .random_llm_pipelines import llm_stage
from .test_sessions import scenario


def served(
    routing: Routing, n: int, rate_per_ms: float, replicas: int, **more: Any
) -> tuple[np.ndarray, np.ndarray]:
    """(replica, time in ms) of each request: one seat a replica, answers of 20 iterations of 1 ms on average, geometric."""
    rng = np.random.default_rng(5)
    llm = LanguageModel(
        1, 8, 10**6, 16, Cost((1.0, 0.0, 0.0, 0.0, 0.0)), np.ones(n, dtype=np.int64), rng.geometric(0.05, n),
        routing=routing, keys=rng.integers(2**32, size=n),
    )  # fmt: skip
    arrivals = np.cumsum(rng.exponential(1 / rate_per_ms, n))
    run = simulate_mixed(
        Pipeline((llm_stage("llm", (Edge(SOURCE),), llm, replicas),)), arrivals, np.inf, keep=False
    )
    return run.visits[0].replica, run.latency_ms


def test_a_lot_splits_the_stream() -> None:
    """By lot, each of R replicas is a queue of its own (M/M/1); where the fewest are, requests wait less."""
    n, load = 60_000, 0.6
    for replicas in (1, 3):
        replica, time_ms = served("random", n, replicas * load / 20, replicas)
        share = np.bincount(replica, minlength=replicas) / n
        assert np.abs(share - 1 / replicas).max() < 5 / np.sqrt(n)
        assert time_ms.mean() == pytest.approx(20 / (1 - load), rel=0.05)
    _, fewest_ms = served("least-requests", n, 3 * load / 20, 3)
    assert fewest_ms.mean() < 0.6 * time_ms.mean()


def test_weights_are_shares() -> None:
    """They begin again where there are more replicas; a replica of weight 0 gets nothing."""
    n = 40_000
    replica, _ = served(Weighted(weights=(3.0, 1.0, 0.0)), n, 0.01, 5)
    assert np.bincount(replica, minlength=5) / n == pytest.approx([3 / 8, 1 / 8, 0, 3 / 8, 1 / 8], abs=0.015)


def test_scores_see_queues_as_old_as_the_view() -> None:
    """With fresh views nearly as good as the fewest, with old ones worse."""
    n, load = 30_000, 3 * 0.8 / 20
    queue = Scored(prefix=0.0, queue=1.0, cache=0.0, refresh_ms=0.0)
    (_, fresh_ms), (_, stale_ms), (_, fewest_ms) = (
        served(routing, n, load, 3) for routing in (queue, queue.with_(refresh_ms=500.0), "least-requests")
    )
    assert fewest_ms.mean() <= fresh_ms.mean() < 0.7 * stale_ms.mean()


def test_scores_keep_conversations_where_their_prefix_is() -> None:
    trace = {"clients": 12, "queries": 80, "think_s": 0.5}
    talk = {"turns": 5.0, "pause_s": 0.3}
    shown = {
        name: simulate(
            scenario(talk, trace, kv_blocks=6000, balance=balance, prefix_cache={"history": True}, replicas=3)
        )
        for name, balance in (("scores", {"queue": 1.0}), ("lots", "random"))
    }
    hits = {name: result.summary["hit_share"] for name, result in shown.items()}
    assert hits["scores"] > 1.3 * hits["lots"]


@pytest.mark.parametrize(
    ("balance", "message"),
    [
        ({"weights": []}, "balance.weights: the first must be above 0"),
        ({"weights": [0.0, 1.0]}, "balance.weights: the first must be above 0"),
        ({"weights": [1.0, -1.0]}, r"balance.weights\[1\]: -1.0 is not between 0"),
        ({"weights": [1e308, 1.0]}, r"balance.weights\[0\]: 1e\+308 is not between 0"),
        ({"prefix": 1.0, "refresh_ms": -5.0}, "balance.refresh_ms: -5.0 is negative"),
        ("fewest", "balance"),
    ],
)
def test_bad_routings(balance: Any, message: str) -> None:
    with pytest.raises(ForerunError, match=message) as caught:
        scenario(None, balance=balance)
    assert len(caught.value.problems) == 1
