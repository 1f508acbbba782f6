"""Liveput: exact survival, and look-ahead by dynamic programming against enumeration."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import pytest

from forerun.spot.policies.parcae.liveput import Moves, Shapes, expected_missing, survival


def test_reference_fractions(golden: Callable[[str], Any]) -> None:
    for row in golden("liveput_survival.json"):
        exact = survival(row["nodes"], row["replicas"], row["stages"], row["removed"], row["keep"])
        assert exact == Fraction(row["numerator"], row["denominator"])


@pytest.mark.parametrize("nodes, replicas, stages", [(7, 2, 3), (6, 3, 2), (8, 2, 4), (5, 1, 4)])
def test_survival_is_a_count_of_sets(nodes: int, replicas: int, stages: int) -> None:
    for removed in range(nodes + 1):
        sets = list(combinations(range(nodes), removed))
        kept, missing = [], 0
        for gone in sets:
            left = [
                replicas - sum(1 for i in gone if i < replicas * stages and i % stages == s)
                for s in range(stages)
            ]
            kept.append(min(left))
            missing += left.count(0)
        for keep in range(replicas + 1):
            assert survival(nodes, replicas, stages, removed, keep) == Fraction(
                sum(k >= keep for k in kept), len(sets)
            )
        assert expected_missing(nodes, replicas, stages, removed) == Fraction(missing, len(sets))


def test_look_ahead_equals_enumeration() -> None:
    rng = random.Random(3)
    for _ in range(12):
        shapes = Shapes(
            samples_per_s={(d, p): rng.uniform(5, 40) * d**0.8 for d in (1, 2, 3) for p in (2, 3)},
            moves=Moves(repartition_s=rng.uniform(0, 50), copy_s=rng.uniform(0, 20)),
        )
        forecast = [(rng.randint(4, 9), rng.randint(0, 2)) for _ in range(4)]
        path, value = shapes.look_ahead((2, 2), forecast)
        plans = product(*(shapes.fitting(nodes) for nodes, _ in forecast))
        best = max(plan_value(shapes, plan, (2, 2), forecast) for plan in plans)
        assert value == pytest.approx(best, rel=1e-12)
        assert plan_value(shapes, path, (2, 2), forecast) == pytest.approx(value, rel=1e-12)


def plan_value(shapes: Shapes, plan: Any, before: tuple[int, int], forecast: Any) -> float:
    """Expected samples of a sequence of strategies under a forecast of (nodes, removed) for each interval."""
    total = 0.0
    for strategy, (nodes, removed) in zip(plan, forecast, strict=True):
        total += shapes.usable(before, strategy) * shapes.liveput(strategy, nodes, removed)
        before = strategy
    return total


def test_liveput_prefers_spares_before_a_storm(golden: Callable[[str], Any]) -> None:
    """With 32 nodes of which many vanish, fewer training nodes and more spares make more samples; calm, all
    train.
    """
    measured = golden("peer_profiles.json")["parcae"]["strategies_DxP"]
    shapes = Shapes(
        samples_per_s={
            (int(name.split("x")[0]), int(name.split("x")[1])): row["samples_per_s"]
            for name, row in measured.items()
        }
    )
    calm = max(shapes.fitting(32), key=lambda s: shapes.liveput(s, 32, 0))
    storm = max(shapes.fitting(32), key=lambda s: shapes.liveput(s, 32, 6))
    assert calm == max(shapes.fitting(32), key=shapes.rate)
    assert storm[0] * storm[1] < calm[0] * calm[1]
    assert shapes.liveput(storm, 32, 6) > shapes.liveput(calm, 32, 6)
