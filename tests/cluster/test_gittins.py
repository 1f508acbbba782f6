"""Gittins' index against brute force and theory; the policies on generated jobs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.cluster.engine.allocator import AllocatorRules, Terms
from forerun.cluster.engine.kernels.gittins import gittins_index
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import run_rules
from forerun.cluster.inputs.arrays import NO_DEADLINE_S, Cluster, Jobs
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policies.gittins import Gittins, GittinsOracle, Sample
from forerun.cluster.policies.las import Las

from ..conftest import cases


def by_brute_force(sample: list[float], attained: float, least: float) -> float:
    """Every extra service that ends at a size of the sample, or the least one, by the definition."""
    beyond = [size for size in sample if size > attained]
    best = 0.0
    for size in beyond:
        more = max(size - attained, least)
        chance = sum(x <= attained + more for x in beyond) / len(beyond)
        expected = sum(min(x - attained, more) for x in beyond) / len(beyond)
        best = max(best, chance / expected)
    return best


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(1, 50).map(float), min_size=1, max_size=12),
    st.lists(st.integers(0, 60).map(float), min_size=1, max_size=5),
    st.sampled_from([1.0, 5.0, 20.0]),
)
def test_the_index_is_the_definitions(sample: list[float], attained: list[float], least: float) -> None:
    found = gittins_index(np.sort(np.array(sample)), np.array(attained), np.full(len(attained), least))
    assert found.tolist() == pytest.approx([by_brute_force(sample, a, least) for a in attained])


def test_equal_sizes_become_more_urgent_and_heavy_tails_less() -> None:
    """Deterministic sizes: 1 / (x - a), rising. Decreasing hazard: the index falls with service, as in LAS. Without
    memory it is flat, the rate."""
    ages, least = np.array([0.0, 10.0, 50.0, 90.0]), np.full(4, 5.0)
    assert gittins_index(np.full(20, 100.0), ages, least).tolist() == pytest.approx([0.01, 1 / 90, 0.02, 0.1])
    grid = (np.arange(20_000) + 0.5) / 20_000
    pareto = np.sort(10.0 * ((1 - grid) ** (-1 / 1.5) - 1))
    assert (np.diff(gittins_index(pareto, ages, least)) < 0).all()
    exponential = np.sort(-100.0 * np.log1p(-grid))
    assert gittins_index(exponential, ages, least) == pytest.approx(np.full(4, 0.01), rel=0.02)


def test_beyond_everything_seen_the_index_is_zero() -> None:
    assert gittins_index(np.array([1.0, 2.0]), np.array([2.0, 5.0]), np.ones(2)).tolist() == [0.0, 0.0]


def test_a_large_sample_is_thinned_to_its_quantiles() -> None:
    sample = Sample(100)
    for size in range(10_000):
        sample.add(float(size))
    assert len(sample) == 10_000 and len(sample.values) == 100
    assert np.median(sample.values) == pytest.approx(5000, rel=0.06)


def one_gpu(count: int, seed: int) -> Setting:
    """Many short jobs and few long ones on one GPU, load about .8."""
    rng = np.random.default_rng(seed)
    duration = np.where(
        rng.random(count) < 0.9, rng.integers(50, 150, count), rng.integers(5000, 9000, count)
    )
    submit = np.cumsum(rng.exponential(duration.mean() / 0.8, count)).astype(np.int64)
    jobs = Jobs(
        file_row=np.arange(count),
        id=tuple(range(count)),
        submit_s=submit,
        deadline_s=np.full(count, NO_DEADLINE_S),
        iterations=np.ones(count, np.int64),
        kind=np.full(count, -1),
        model=("",) * count,
        batch=np.zeros(count, np.int64),
        gpus=np.ones(count, np.int64),
        duration_s=duration.astype(np.int64),
        best_effort=np.ones(count, np.bool_),
        user=("",) * count,
        written_deadline_s=np.full(count, NO_DEADLINE_S),
    )
    return Setting(jobs, Cluster.uniform(1, 1, 1), None, 60)


def decide(recipe: Any, made: Setting) -> Record:
    record = Record(made)
    run_rules(AllocatorRules(made, record, recipe, recipe.build(np.random.default_rng(0)), Terms()))
    return record


def mean_completion_s(recipe: Any, made: Setting) -> float:
    record = decide(recipe, made)
    assert len(record.completed) == len(made.jobs)
    return float((record.end_s - made.jobs.submit_s).mean())


@pytest.mark.parametrize("seed", [1, 2][: cases(1, 2)])
def test_two_kinds_of_jobs_are_distinguished(seed: int) -> None:
    """Short and long jobs: once a job has outlived the short ones it gives way until it nears the end of the long
    ones. Time-sharing the long ones, as LAS does, only delays them: both variants do better."""
    made = one_gpu(200, seed)
    learned = mean_completion_s(Gittins(quantum_s=50.0), made)
    knowing = mean_completion_s(GittinsOracle(quantum_s=50.0), made)
    sharing = mean_completion_s(Las(round_s=50.0), made)
    assert learned < sharing and knowing < sharing
    assert knowing < 1.1 * learned


def test_the_learning_variant_sees_no_size_before_its_job_ends() -> None:
    """Lengthen the last job: nothing that happens before its shorter form would end may change."""
    made = one_gpu(60, 5)
    jobs = made.jobs
    longer = jobs.duration_s.copy()
    longer[-1] *= 10
    before = decide(Gittins(quantum_s=50.0), made)
    after = decide(Gittins(quantum_s=50.0), replace(made, jobs=replace(jobs, duration_s=longer)))
    early = before.end_s < before.end_s[-1]
    assert early.sum() > 40
    assert before.end_s[early].tolist() == after.end_s[early].tolist()


def test_the_sample_holds_finished_work_exactly() -> None:
    made = one_gpu(40, 7)
    scheduler = Gittins(quantum_s=50.0).build(np.random.default_rng(0))
    record = Record(made)
    run_rules(AllocatorRules(made, record, Gittins(quantum_s=50.0), scheduler, Terms()))
    learned = sorted(scheduler._sample._sizes)  # type: ignore[attr-defined]
    works = made.jobs.duration_s.astype(float).tolist()
    assert all(min(abs(size - work) for work in works) < 1e-6 for size in learned)
    assert len(learned) >= 10 and not any(math.isnan(size) for size in learned)
