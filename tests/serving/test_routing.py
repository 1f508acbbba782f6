"""Drawn routing against reference draws, in numpy, in the kernels and through a run."""

from __future__ import annotations

import numpy as np

from forerun.serving.engine.kernels.draws import takes
from forerun.serving.engine.stagewise import simulate_stagewise
from forerun.serving.inputs.pipeline import Edge, Pipeline, Service, Stage
from forerun.serving.inputs.routing import draws, edge_key, mix, taken_edges, visited_stages
from forerun.serving.policies.greedy import Greedy

from .conftest import golden, read_json


def test_reference_draws() -> None:
    for case in read_json(golden("default", "routing.json"))["cases"]:
        taken = draws(case["seed"], case["edge"], 10_000) < case["share"]
        assert "".join("01"[int(t)] for t in taken[:64]) == case["first_64"]
        assert int(taken.sum()) == case["taken_of_10000"]


def test_kernels_draw_the_same() -> None:
    key = np.uint64(edge_key(12345, 3))
    ours = [takes(2, 0.3, key, query, False) for query in range(200)]
    assert ours == (draws(12345, 3, 200) < 0.3).tolist()
    assert takes(0, 0.0, key, 1, False) and takes(1, 0.0, key, 1, True) and not takes(1, 1.0, key, 1, False)


def test_mix_is_the_published_function() -> None:
    """First outputs of SplitMix64 seeded with 1234567 [Vigna's reference code prints these]."""
    golden_ratio, state = 0x9E3779B97F4A7C15, 1234567
    outputs = [mix((state + i * golden_ratio) % 2**64) for i in range(3)]
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_draws_depend_on_nothing_but_seed_edge_and_query() -> None:
    service = Service(np.array([0.0, 3.0]))

    def pipeline(replicas: int) -> Pipeline:
        stages = (
            Stage("a", (Edge(-1, share=0.4, number=2),), 1, replicas, service, Greedy()),
            Stage("b", (Edge(0, share=0.5, number=0), Edge(-1)), 1, replicas, service, Greedy()),
        )
        return Pipeline(stages, seed=77)

    arrivals = np.arange(500.0)
    for replicas in (1, 4):
        run = simulate_stagewise(pipeline(replicas), arrivals, 10.0, record="full")
        for visits, came in zip(run.visits, visited_stages(pipeline(replicas), 500)):
            assert np.array_equal(visits.batch > 0, came)
    first, second, _ = taken_edges(pipeline(1), 500)
    assert not (second & ~first).any()  # an edge is taken only by those who come by its parent
