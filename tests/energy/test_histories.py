"""Recorded histories of the public reference simulator, replayed bit for bit by both loops."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from forerun.energy.engine import batch
from forerun.energy.inputs.workload import Submission, Workload
from forerun.energy.policies.gts import Gts
from forerun.energy.policies.jit import Jit
from forerun.energy.policies.joint import Joint
from forerun.energy.policies.pruning_gts import PruningGts
from forerun.energy.policy import Pair
from forerun.energy.policy.rules import Rules
from forerun.energy.policy.sampler import ExploreThenSample
from forerun.energy.scenario import Drift
from forerun.replication.zeus.compiled import CompiledZeus

from .conftest import FAILURES, started

HISTORIES = [
    "s01_librispeech_v100_default",
    "s02_cifar100_v100",
    "s03_imagenet_a40_eta1",
    "s04_squad_p100_eta0",
    "s05_movielens_rtx6000_irregular_grid",
    "s06_sentiment_a40_5pl",
    "s07_cifar100_v100_beta_inf",
    "a01_sequential_cifar100_v100",
    "a02_overlap_librispeech_v100",
    "a03_burst_same_start_squad_a40",
    "a04_overlap_retries_cifar100_v100_beta1.2",
    "a05_tied_end_times_cifar100_rtx6000",
    "a06_sentiment_a40_eta1",
    "t01_never_ran_in_TS_sequential",
    "t02_never_ran_in_TS_group_zero_cost",
    "t03_never_ran_group_overlap",
    "t04_two_max_powers",
    "t05_pl_tie",
    "t06_zero_variance",
    "t07_nan_and_max_epochs",
    "t08_floordiv_edge",
    "t09_duplicate_power_rows",
]
ERRORS = [
    "e01_default_not_in_range",
    "e02_default_none",
    "e03_default_never_converges",
    "e04_window1_asserts",
    "e05_unknown_dataset",
    "e06_target_absent_in_trace",
]


@pytest.mark.parametrize("name", HISTORIES)
def test_the_readable_loop_replays_the_recording(name: str, recorded: Any, play: Any) -> None:
    case, workload, spec = recorded(name)
    run, simulation = play(case["config"], workload, spec)
    history, seen = case["result"]["history"], started(run)
    assert [line.outcome.batch_size for line in seen] == history["bs"]
    assert [line.outcome.limit_w for line in seen] == history["pl"]
    assert [line.outcome.reached for line in seen] == history["reached"]
    assert [line.outcome.energy_j * line.ratio for line in seen] == history["energy_j"]
    assert [line.outcome.time_s * line.ratio for line in seen] == history["time_s"]
    assert len(run.attempts) - len(seen) == case["result"]["never_ran"]
    offered = case["result"].get("batch_size_range")
    assert offered is None or workload.sizes.tolist() == offered
    _same_beliefs(case["result"]["final_state"], simulation)


def _same_beliefs(final: dict[str, Any], simulation: Any) -> None:
    sampler = simulation.policy.batch_size
    assert isinstance(sampler, ExploreThenSample)
    assert [[size, reward] for size, reward in sampler.history] == final["bso_history"]
    explorer = sampler.explorer
    assert (list(explorer.sizes), explorer.default) == (
        final["pruning"]["batch_sizes"],
        final["pruning"]["default"],
    )
    assert explorer.expecting == final["pruning"]["expecting"]
    limits = simulation.policy.limit
    assert {str(size): limit for size, limit in limits.best.items()} == final["plo"]["best_pl"]
    for size, measured in limits.measured.items():
        assert len(measured.limits_w) == final["plo"]["observe_count"][str(size)]
        cost = min(measured.epoch_cost_j(simulation.eta))
        assert cost == pytest.approx(final["plo"]["best_cost"][str(size)], rel=1e-12)
    if not final.get("mab"):
        assert sampler.bandit is None
        return
    sampler.refresh()
    assert sampler.bandit is not None and sampler.bandit.arms == final["mab"]["arms"]
    for mine, theirs in (
        (sampler.bandit.mean, "mean"),
        (sampler.bandit.precision, "prec"),
        (sampler.bandit.reward_precision, "reward_prec"),
        (sampler.bandit.observations, "nobs"),
    ):
        expected = {int(size): float(value) for size, value in final["mab"][theirs].items()}
        assert mine.keys() == expected.keys()
        for size, value in expected.items():
            assert mine[size] == pytest.approx(value, rel=1e-9, nan_ok=True), (theirs, size)


@pytest.mark.parametrize("name", HISTORIES)
def test_the_compiled_loop_replays_the_recording(name: str, recorded: Any) -> None:
    case, workload, spec = recorded(name)
    config, history = case["config"], case["result"]["history"]
    rows = [
        Submission(row["start_time"], row["end_time"], row["runtime_ratio"])
        for row in config.get("group") or ()
    ]
    (log,) = batch.run_many(
        batch.Work(
            workload,
            spec,
            eta=config["eta"],
            beta=float(config["beta"]),
            rules=Rules.of("compat"),
            recurrences=config.get("num_recurrence") or workload.recurrences(),
            rows=rows,
        ),
        [config["seed"]],
        compile_above=0,
    )
    ran = log.ended != batch.ENDINGS.index("never_ran")
    ratio = np.array([row.runtime_ratio for row in rows])[log.recurrence] if rows else np.ones(len(log))
    assert workload.sizes[log.size][ran].tolist() == history["bs"]
    assert log.limit_w[ran].tolist() == history["pl"]
    assert (log.ended == 0)[ran].tolist() == history["reached"]
    assert (log.energy_j * ratio)[ran].tolist() == history["energy_j"]
    assert (log.time_s * ratio)[ran].tolist() == history["time_s"]


def test_compat_runs_take_the_compiled_loops(recorded: Any) -> None:
    """The entry point is installed; runs that the loops do not know are left to the readable ones."""
    _, workload, spec = recorded("s02_cifar100_v100")
    compat, corrected = Rules.of("compat"), Rules.of("corrected")
    work = batch.Work(workload, spec, eta=0.5, beta=2.0, rules=compat, recurrences=10)
    assert batch.compiled_loops().get("compat") is CompiledZeus
    assert CompiledZeus.runs(work)
    drift = (Drift(from_recurrence=3, exponent=0.1, pivot=64),)
    for other in (replace(work, rules=corrected), replace(work, spec=Joint()), replace(work, drift=drift)):
        assert not CompiledZeus.runs(other)


@pytest.mark.parametrize("name", ERRORS)
def test_what_the_reference_cannot_do_is_a_named_error(
    name: str, recorded: Any, play: Any, golden: Any
) -> None:
    kind = golden(f"{name}.json")["result"]["error"]["kind"]
    with pytest.raises(FAILURES) as caught:
        case, workload, spec = recorded(name)
        play(case["config"], workload, spec)
    assert caught.value.kind == kind  # type: ignore[attr-defined]
    assert caught.value.exit_code in (2, 3)


def test_customary_recurrences(recorded: Any) -> None:
    for name in ("s01_librispeech_v100_default", "s02_cifar100_v100", "s06_sentiment_a40_5pl"):
        case, workload, _ = recorded(name)
        assert workload.recurrences() == case["config"]["num_recurrence_resolved"]


def test_coverage_of_a_group_with_retries(recorded: Any, play: Any) -> None:
    """The recording counts how often each branch ran; ours must have gone the same ways."""
    case, workload, spec = recorded("a04_overlap_retries_cifar100_v100_beta1.2")
    run, _ = play(case["config"], workload, spec)
    stages = Counter("retry" if line.attempt else "submit" for line in run.attempts)
    coverage = case["result"]["coverage"]
    assert stages["submit"] == coverage["concurrent_submit"] + coverage["solo_submit"]
    assert stages["retry"] == coverage["concurrent_retry"] + coverage["solo_retry"]


def test_a_bound_of_zero_times_infinity_stops_at_once(recorded: Any, play: Any) -> None:
    """The reference accepts beta 0 in library calls; its bound is then not a number and nothing reaches."""
    case, workload, spec = recorded("s02_cifar100_v100")
    with pytest.raises(FAILURES) as caught:
        play({**case["config"], "beta": 0.0}, workload, spec)
    assert caught.value.kind == "default_did_not_reach"  # type: ignore[attr-defined]
    assert math.isnan(0.0 * math.inf)


@pytest.mark.parametrize("policy", ["pruning-gts", "window", "gts"])
def test_long_runs_agree_whatever_sums_the_compiled_loop_keeps(
    make_toy: Callable[..., Workload], policy: str
) -> None:
    """Hundreds of rewards an arm, where the compiled loop fits from running sums: readable loop and numpy decide.

    Costs that vary little, costs that never vary, and two sizes that cost the same to the last bit, so that samples
    tie and only exact sums tell them apart.
    """
    spec = Pair(
        batch_size=Gts(learn_precision=True)
        if policy == "gts"
        else PruningGts(window=200 if policy == "window" else 0),
        limit=Jit(),
    )
    worlds = (
        {8: [20, 21, 23], 16: [20, 21, 22, 24], 32: [21, 22]},
        {8: [20], 16: [20], 32: [20, 21]},
        {8: [7], 16: [7], 32: [8]},
    )
    for number, paths in enumerate(worlds):
        power = {size: {250.0: (0.1 * (10 + number), 201.7), 125.0: (1.3, 119.3)} for size in paths}
        workload = make_toy(paths, power, default=16, rules=Rules.of("compat"))
        for rows in ([], [Submission(100.0 * i, 100.0 * i + 120.0 * (i % 3 == 0), 1.0) for i in range(700)]):
            if rows and policy != "pruning-gts":
                continue
            chosen = Pair(batch_size=PruningGts(concurrency=True), limit=Jit()) if rows else spec
            pair_of = [
                batch.run_many(
                    batch.Work(
                        workload,
                        chosen,
                        eta=0.5,
                        beta=2.0,
                        rules=Rules.of("compat"),
                        recurrences=700,
                        rows=rows,
                    ),
                    [3],
                    compile_above=above,
                )[0]
                for above in (0, 10**9)
            ]
            compiled, readable = pair_of
            assert np.bincount(compiled.size).max() > 300
            for name in ("recurrence", "size", "limit_w", "epochs", "energy_j", "time_s", "cost_j", "ended"):
                assert (getattr(compiled, name) == getattr(readable, name)).all(), (number, name)
