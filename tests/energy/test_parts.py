"""The parts of the simulator against their recorded vectors and against plainer twins."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.energy.inputs.workload import compensated_mean
from forerun.energy.policy.bandit import (
    GaussianThompson,
    pooled_log_variance,
    precision_of,
    uncensored,
)
from forerun.energy.policy.explorer import Explorer
from forerun.energy.policy.failures import ObservedOutOfOrder
from forerun.energy.policy.view import Job
from forerun.replication.zeus import kernels

from ..conftest import cases
from .conftest import FAILURES


def test_facts_of_the_public_trace(golden: Any, train: Any, powers: Any, public: Any) -> None:
    facts = golden("facts.json")
    assert len(train) == facts["train_rows"]
    assert int((train.target_epoch == 0).sum()) == facts["never_reached"]
    for gpu, power in powers.items():
        fact = facts["gpus"][gpu]
        assert len(power) == fact["power_rows"]
        assert sorted(set(power.limit_w.tolist())) == fact["power_limits_w"]
        over = power.power_w / power.limit_w
        assert int((over > 1).sum()) == fact["rows_with_power_above_limit"]
        if (over > 1).any():
            assert over.max() == pytest.approx(fact["worst_power_over_limit"], rel=1e-15)
        trained = set(zip(train.workload, train.batch_size.tolist()))
        measured = set(zip(power.workload, power.batch_size.tolist()))
        only = sorted("/".join((*key, str(size))) for key, size in measured - trained)
        assert only == sorted(fact["power_only_keys"])
        for dataset, sizes in fact["batch_sizes_joined"].items():
            workload = public(gpu, dataset)
            assert workload.sizes.tolist() == sizes
            assert sorted(workload.limits_w.tolist()) == fact["limits_per_dataset"][dataset]
            assert workload.job.default_batch_size == fact["default_batch_size"][dataset]
        assert _steps(power) == (
            fact["limit_steps"],
            fact["steps_where_time_rises_with_limit"],
            fact["steps_where_power_falls_with_limit"],
        )
    for dataset, entry in facts["target_epochs"].items():
        workload = public("v100", dataset)
        for size, epochs in entry["by_batch_size"].items():
            at = workload.size_index(int(size))
            if at >= 0:
                assert workload.paths_of(at).tolist() == [epoch or 0 for epoch in epochs]


def _steps(power: Any) -> tuple[int, int, int]:
    points: dict[Any, list[tuple[float, float, float]]] = {}
    for row in range(len(power)):
        key = power.workload[row], int(power.batch_size[row])
        points.setdefault(key, []).append((power.limit_w[row], power.epoch_s[row], power.power_w[row]))
    steps = [(a, b) for limits in points.values() for a, b in zip(sorted(limits), sorted(limits)[1:])]
    return len(steps), sum(b[1] > a[1] for a, b in steps), sum(b[2] < a[2] for a, b in steps)


def test_every_number_is_the_nearest_double(data: Any, train: Any, powers: Any) -> None:
    """Our reader against Python's `float` on each cell of the public files."""
    for gpu, power in powers.items():
        lines = (data / f"summary_power_{gpu}.csv").read_text().splitlines()
        names = lines[0].split(",")
        cells = [dict(zip(names, line.split(","))) for line in lines[1:]]
        assert [float(row["time_per_epoch"]) for row in cells] == power.epoch_s.tolist()
        assert [float(row["average_power"]) for row in cells] == power.power_w.tolist()


def test_floor_division(golden: Any) -> None:
    for a, b, expected in golden("arithmetic.json")["floor_division"]:
        assert a // b == expected
        assert kernels.floor_quotient(a, b) == expected


@given(st.floats(1e-3, 1e12), st.floats(1e-3, 1e6))
@settings(max_examples=cases(60, 300))
def test_compiled_floor_division_is_pythons(a: float, b: float) -> None:
    assert kernels.floor_quotient(a, b) == a // b


def test_compensated_mean(golden: Any) -> None:
    for value, copies, expected in golden("arithmetic.json")["compensated_mean"]:
        assert compensated_mean([value] * copies) == expected


def test_sums_and_variances_in_pairwise_order(golden: Any) -> None:
    for case in golden("arithmetic.json")["sums"]:
        x = np.array(case["x"])
        assert kernels.pairwise_sum(x, len(x)) == case["sum"] == float(np.sum(x))
        assert kernels.variance(x, len(x), np.empty(len(x))) == case["variance"] == float(np.var(x))


def test_draws(golden: Any) -> None:
    for log in golden("arithmetic.json")["draws"]:
        plain, compiled = np.random.default_rng(log["seed"]), np.random.default_rng(log["seed"])
        for kind, given_, *rest in log["log"]:
            if kind == "integers":
                assert int(plain.integers(given_)) == rest[0]
                assert (_one_integer(compiled, given_) if given_ > 1 else 0) == rest[0]
            elif kind == "permutation":
                assert plain.choice(given_, given_, replace=False).tolist() == rest[0]
                order = np.empty(given_, np.int64)
                kernels.permutation(compiled, given_, order)
                assert order.tolist() == rest[0]
            else:
                assert plain.normal(given_, rest[0]).tolist() == rest[1]
                assert [float(compiled.normal(m, s)) for m, s in zip(given_, rest[0])] == rest[1]
        assert plain.bit_generator.state == compiled.bit_generator.state


def _one_integer(rng: np.random.Generator, below: int) -> int:
    return int(rng.integers(0, below))


# --- exploration -------------------------------------------------------------------------------------------------


def walk(sizes: list[int], default: int) -> Generator[int, tuple[float, bool], list[int]]:
    """The exploration as one page of plain loops: the reference implementation of the state machine."""
    for _ in range(2):
        kept, best = [], math.inf
        start = default
        for way in (reversed([b for b in sizes if b <= start]), [b for b in sizes if b > start]):
            for size in way:
                cost, reached = yield size
                if not reached:
                    break
                kept.append(size)
                if cost < best:
                    best, default = cost, size
        if not kept:
            raise LookupError
        sizes = sorted(kept)
    return sizes


def test_recorded_explorations(golden: Any) -> None:
    for case in golden("explorer.json")["cases"]:
        explorer = Explorer(case["sizes"], case["default"])
        try:
            for size, cost, reached in case["results"]:
                assert explorer.ask() == size
                explorer.answer(size, cost, reached)
            assert explorer.ask() is None
            assert explorer.sizes == case["survivors"]
        except FAILURES as error:
            assert error.kind == case["error"]  # type: ignore[attr-defined]


@given(st.data())
@settings(max_examples=cases(30, 150))
def test_exploration_agrees_with_plain_loops(data: st.DataObject) -> None:
    sizes = sorted(data.draw(st.sets(st.integers(1, 64), min_size=1, max_size=8)))
    default = data.draw(st.sampled_from(sizes))
    explorer, reference = Explorer(sizes, default), walk(sizes, default)
    mine = explorer.ask()
    theirs = next(reference)
    while True:
        assert mine == theirs
        result = (data.draw(st.sampled_from([1.0, 2.0, 3.0])), data.draw(st.booleans()))
        assert mine is not None
        explorer.answer(mine, *result)
        try:
            theirs = reference.send(result)
        except StopIteration as done:
            assert explorer.ask() is None
            assert explorer.sizes == done.value
            return
        except LookupError:
            with pytest.raises(FAILURES):
                explorer.ask()
            return
        mine = explorer.ask()


def test_exploration_refuses_what_it_did_not_ask_for() -> None:
    explorer = Explorer([8, 16], 8)
    with pytest.raises(ObservedOutOfOrder, match="waits for nothing"):
        explorer.answer(8, 1.0, True)
    assert explorer.ask() == 8
    with pytest.raises(ObservedOutOfOrder, match="not been answered"):
        explorer.ask()
    with pytest.raises(ObservedOutOfOrder, match="waits for batch size 8"):
        explorer.answer(16, 1.0, True)
    explorer.answer(8, 1.0, True)
    with pytest.raises(ObservedOutOfOrder):
        explorer.answer(8, 1.0, True)


# --- beliefs -----------------------------------------------------------------------------------------------------


def test_normal_posterior_in_closed_form() -> None:
    """Prior N(m0, 1/k0), N rewards of precision rho: precision k0 + N rho, mean the precision-weighted average."""
    bandit = GaussianThompson(
        [1], np.random.default_rng(0), reward_precision=0.5, prior_mean=2.0, prior_precision=4.0
    )
    rewards = [1.0, 3.0, 8.0]
    bandit.fit(1, rewards, reset=False)
    assert bandit.precision[1] == pytest.approx(4.0 + 3 * 0.5)
    assert bandit.mean[1] == pytest.approx((4.0 * 2.0 + 0.5 * sum(rewards)) / 5.5)
    bandit.fit(1, rewards, reset=True)
    assert bandit.observations[1] == 3


def test_untried_arms_come_first_and_certainty_draws_its_mean() -> None:
    bandit = GaussianThompson([4, 8], np.random.default_rng(1), reward_precision=math.inf, explorations=1)
    first = bandit.choose()
    bandit.fit(first, [-5.0], reset=False)
    other = bandit.choose()
    assert other != first
    bandit.fit(other, [-7.0], reset=False)
    assert {bandit.choose() for _ in range(20)} == {first}


def test_precision_of_constant_rewards_is_infinite() -> None:
    assert precision_of([3.0, 3.0]) == math.inf
    assert precision_of([1.0, 3.0]) == 1.0


def test_pooled_variance_never_vanishes() -> None:
    assert pooled_log_variance([[5.0, 5.0], [7.0]]) > 0
    wide = pooled_log_variance([[1.0, math.e]] * 200)
    assert wide == pytest.approx(0.5, rel=0.01)


def test_stopped_costs_are_raised_to_their_conditional_mean() -> None:
    """Half of a sample of N(0, 1) logs is cut at 0: the estimate of the mean is 0 again, not the cut mean -0.4."""
    logs = np.random.default_rng(3).normal(size=4000)
    stopped = logs > 0
    cut = np.exp(np.minimum(logs, 0))
    filled = np.log(uncensored(cut.tolist(), stopped.tolist(), 1.0))
    assert abs(filled.mean()) < 3 / math.sqrt(2000)
    assert np.log(cut).mean() < -0.35
    assert (filled[stopped] > 0).all()


def test_job_text() -> None:
    job = Job(
        dataset="d", network="n", optimizer="adam", target_metric=0.5, max_epochs=9, default_batch_size=32
    )
    assert str(job) == "Job(d,n,adam,0.5,bs32~9)"
    assert str(Job(dataset="d", network="n", optimizer="adam", target_metric=0.5, max_epochs=9)).endswith(
        "0.5~9)"
    )
