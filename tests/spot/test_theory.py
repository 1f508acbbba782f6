"""Closed forms against their reference values, and the simulator against the closed forms."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.spot.engine import closed_forms, trials
from forerun.spot.engine.job import Checkpoints, TrainingJob
from forerun.spot.policy import growth_rules
from forerun.spot.scenario.processes import PerNode

from ..conftest import cases
from . import formulas

Golden = Callable[[str], Any]


def test_reference_values(golden: Golden) -> None:
    forms = golden("closed_forms.json")
    for row in forms["async_back_to_back"]:
        lam = row["loss_events_per_h"] / 3600
        args = (row["step_s"], row["stall_s"], row["write_s"], row["reconfig_s"])
        assert closed_forms.useful_back_to_back(lam, *args) == pytest.approx(row["useful"], rel=1e-12)
        assert formulas.reconfig_share(lam, row["reconfig_s"]) == pytest.approx(row["reconfig"], rel=1e-12)
    for row in forms["async_every_steps"]:
        args = (row["step_s"], row["every_steps"], row["stall_s"], row["write_s"], row["reconfig_s"])
        useful = closed_forms.useful_every_steps(1 / row["mtbf_s"], *args)
        assert useful == pytest.approx(row["useful"], rel=1e-12)
    for row in forms["sync_interval"]:
        wall = formulas.sync_wall_per_work(
            row["mtbf_s"], row["interval_s"], row["write_s"], row["reconfig_s"]
        )
        assert 1 / wall == pytest.approx(row["useful"], rel=1e-12)
    for row in forms["sync_optimum"]:
        M, delta = row["mtbf_min"], row["write_min"]
        assert closed_forms.young(M, delta) == pytest.approx(row["young_min"], rel=1e-12)
        assert closed_forms.daly(M, delta) == pytest.approx(row["daly_min"], rel=1e-12)
        assert closed_forms.sync_best(M, delta) == pytest.approx(row["exact_argmin_min"], rel=1e-6)
    for row in forms["machine_repair"]:
        idle = formulas.machine_repair_idle(
            row["fail_per_node_h"], row["return_per_slot_h"], row["slots"], row["depth"]
        )
        assert idle == pytest.approx(row["idle_fraction"], rel=1e-9)


def test_best_interval_is_the_exhaustive_one(golden: Golden) -> None:
    for row in golden("closed_forms.json")["async_interval_optimum"]:
        lam = 1 / row["mtbf_s"]
        args = (row["step_s"], row["stall_s"], row["write_s"], row["reconfig_s"])
        best = closed_forms.best_interval(lam, *args)
        assert best.steps == row["best_every_steps"]
        assert best.useful == pytest.approx(row["useful_best"], rel=1e-12)
        assert best.useful_back_to_back == pytest.approx(row["useful_back_to_back"], rel=1e-12)
        assert best.young_s == pytest.approx(row["young_s"], rel=1e-12)
        assert best.daly_s == pytest.approx(row["daly_s"], rel=1e-12)
        s, d, C, R = args
        tried = [closed_forms.useful_every_steps(lam, s, n, d, C, R) for n in range(math.ceil(C / s), 4000)]
        assert best.useful == pytest.approx(max(tried), rel=1e-12)


def test_best_interval_of_random_settings_is_the_exhaustive_one() -> None:
    """Hits every two minutes to every four days: no number of steps is better."""
    rng = random.Random(1)
    for _ in range(cases(40)):
        s, d, C, R = rng.uniform(1, 60), rng.uniform(0.1, 60), rng.uniform(0, 300), rng.uniform(0, 300)
        M = 10 ** rng.uniform(2, 5.5)
        best = closed_forms.best_interval(1 / M, s, d, C, R)
        least, most = math.ceil(C / s - 1e-9) or 1, int(4 * closed_forms.sync_best(M, d) / s) + 10
        tried = [closed_forms.useful_every_steps(1 / M, s, n, d, C, R) for n in range(least, least + most)]
        assert best.useful == max(tried), (s, d, C, R, M)


def hit_at(lam_per_h: float, job: TrainingJob, back_per_h: float = 5.0) -> tuple[TrainingJob, PerNode]:
    """A fleet of one pipeline with spares always at hand, whose 16 nodes are hit lam times an hour in all."""
    one = replace(job, depth=16, max_pipelines=1, prep_s=0.0)
    return one, PerNode(removal_per_node_h=lam_per_h / 16, return_per_node_h=back_per_h, start=48, cap=48)


@pytest.mark.parametrize("lam_per_h, s, d", [(10, 11.0, 0.0), (4, 18.0, 8.91), (2, 11.0, 0.0)])
def test_back_to_back_share_of_useful_time(
    lam_per_h: float, s: float, d: float, rounded: TrainingJob
) -> None:
    """At least 40 000 hits: within three standard errors and half a percent of the renewal formula."""
    job = replace(rounded, step_s={16: s}, stall_s=d, horizon_s=3.6e6, checkpoint=Checkpoints())
    job, process = hit_at(lam_per_h, job)
    count = math.ceil(45_000 / (lam_per_h * 1000)) * 4
    done = trials.run(job, process, growth_rules().get("immediate")(), trials=count, seed=21)
    assert done.columns["reconfigs"].sum() + done.columns["reconfig_restarts"].sum() > 40_000
    theory = closed_forms.useful_back_to_back(lam_per_h / 3600, s, d, 89.0, 88.0)
    share = done.share("useful")
    assert abs(share.mean - theory) < max(3 * share.half95 / 1.96, 1e-5)
    assert abs(share.mean / theory - 1) < 0.005
    pauses = done.share("reconfig")
    assert abs(pauses.mean - formulas.reconfig_share(lam_per_h / 3600, 88.0)) < 3 * pauses.half95 / 1.96


def test_every_steps_share_of_useful_time(rounded: TrainingJob) -> None:
    job = replace(
        rounded,
        step_s={16: 11.0},
        stall_s=8.91,
        horizon_s=3.6e6,
        checkpoint=Checkpoints(rule="every_steps", steps=20),
    )
    job, process = hit_at(6.0, job)
    done = trials.run(job, process, growth_rules().get("immediate")(), trials=40, seed=22)
    theory = closed_forms.useful_every_steps(6 / 3600, 11.0, 20, 8.91, 89.0, 88.0)
    share = done.share("useful")
    assert abs(share.mean - theory) < 3 * share.half95 / 1.96
    assert abs(share.mean / theory - 1) < 0.005


def test_synchronous_share_of_useful_time(golden: Golden, rounded: TrainingJob) -> None:
    """Writes that block: the exact synchronous form at every reference setting whose interval is whole steps."""
    for M_s, tau_s, write_s in ((86_400, 7_000, 300), (21_600, 3_400, 300), (900, 550, 300)):
        job = replace(
            rounded,
            step_s={16: 50.0},
            write_s=float(write_s),
            checkpoint=Checkpoints(rule="every_steps", steps=tau_s // 50, write="sync"),
        )
        job, process = hit_at(3600 / M_s, replace(job, horizon_s=100.0 * M_s), 3600 / M_s)
        done = trials.run(job, process, growth_rules().get("immediate")(), trials=500, seed=24)
        assert done.columns["reconfigs"].sum() + done.columns["reconfig_restarts"].sum() > 40_000
        theory = 1 / formulas.sync_wall_per_work(M_s, tau_s, write_s, 88.0)
        share = done.share("useful")
        # A run begins trained and not with a pause: worth half a cycle of a hundred.
        assert abs(share.mean - theory) < 3 * share.half95 / 1.96 + 1e-3 * theory, M_s
        assert abs(share.mean / theory - 1) < 0.005, M_s


def test_a_rare_hit_loses_half_a_cycle_and_the_write(rounded: TrainingJob) -> None:
    """138.5 s with the rounded profile, and with a stall what the formula says."""
    assert formulas.lost_per_hit_s(11.0, 0.0, 89.0) == 138.5
    for stall_s in (0.0, 8.91):
        job = replace(rounded, step_s={16: 11.0}, stall_s=stall_s, horizon_s=3.6e6)
        job, process = hit_at(0.02, job, back_per_h=0.02)
        done = trials.run(job, process, growth_rules().get("immediate")(), trials=2200, seed=25)
        hits, lost_s = done.columns["rollbacks"].sum(), done.columns["lost_s"].sum()
        error_s = (99.0 + stall_s) / math.sqrt(12 * hits)
        assert hits > 40_000
        assert abs(lost_s / hits - formulas.lost_per_hit_s(11.0, stall_s, 89.0)) < 3 * error_s


def test_nodes_without_limit_are_poisson(rounded: TrainingJob) -> None:
    """Machine repair with more and more slots, in closed form; and simulated with a thousand."""
    for slots in (10_000, 1_000_000):
        nu = 12 / slots
        near = formulas.machine_repair_idle(0.6, nu / (1 - nu / 0.6), slots, 16)
        assert near == pytest.approx(formulas.unlimited_idle(12.0, 0.6, 16), rel=30 / slots)
    process = PerNode(removal_per_node_h=0.6, return_per_node_h=12.0 / 980, start=20, cap=1000)
    job = replace(rounded, prep_s=0.0, horizon_s=3.6e5)
    idle = trials.run(job, process, growth_rules().get("lazy")(), trials=300, seed=5).share("idle")
    assert abs(idle.mean - formulas.unlimited_idle(12.0, 0.6, 16)) < 3 * idle.half95 / 1.96 + 0.004


def test_intervals_cover_the_truth(rounded: TrainingJob) -> None:
    """Of 500 estimates with 95 % intervals, 92 to 98 % hold the closed form: three standard deviations of their number."""
    count = cases(500, 1000)
    job = replace(rounded, step_s={16: 11.0}, horizon_s=1.2e5)
    job, process = hit_at(10.0, job)
    theory = closed_forms.useful_back_to_back(10 / 3600, 11.0, 0.0, 89.0, 88.0)
    done = trials.run(job, process, growth_rules().get("immediate")(), trials=count * 10, seed=23)
    shares = (done.columns["useful_s"] / done.columns["end_s"]).reshape(count, 10)
    half = 2.2622 * shares.std(axis=1, ddof=1) / math.sqrt(10)  # Student's t with 9 degrees of freedom
    covered = int((np.abs(shares.mean(axis=1) - theory) <= half).sum())
    assert abs(covered - 0.95 * count) <= 3 * math.sqrt(count * 0.95 * 0.05)


def test_pipelines_of_repaired_machines_idle_as_the_binomial_says(rounded: TrainingJob) -> None:
    process = PerNode(removal_per_node_h=0.6, return_per_node_h=1.0, start=32, cap=32)
    done = trials.run(
        replace(rounded, prep_s=0.0, horizon_s=3.6e5),
        process,
        growth_rules().get("lazy")(),
        trials=400,
        seed=3,
    )
    idle = done.share("idle")
    assert abs(idle.mean - formulas.machine_repair_idle(0.6, 1.0, 32, 16)) < 4 * idle.half95 / 1.96


@given(
    lam=st.floats(0.0, 50.0),
    interval=st.floats(0.01, 5.0),
    write=st.floats(0.0, 2.0),
    restart=st.floats(0.0, 2.0),
)
def test_effective_share_is_that_of_steps_of_one_interval(
    lam: float, interval: float, write: float, restart: float
) -> None:
    steps = closed_forms.useful_every_steps(lam, interval, 1, write, 0.0, restart)
    assert closed_forms.effective_share(lam, interval, write, restart) == pytest.approx(
        steps, rel=1e-9, abs=1e-300
    )


def test_effective_share_at_rates_beyond_floats() -> None:
    assert closed_forms.effective_share(1e6, 60.0, 1.0, 5.0) == 0.0
    assert closed_forms.effective_share(1e-12, 60.0, 5.0, 5.0) == pytest.approx(60 / 65, rel=1e-9)


def test_a_fleet_of_a_hundred_thousand_nodes_needs_no_table_of_their_square() -> None:
    """One row of rates for nodes that fail on their own: 12,500 nodes squared would be 1.2 GB."""
    fleet = trials.fleet_numbers(
        PerNode(removal_per_node_h=1e-4, return_per_node_h=0.04, start=100_000, cap=100_000)
    )
    assert fleet.hit_rate_per_s.shape == (1, 100_001)
    assert fleet.hit_rate_per_s[0, 50_000] == pytest.approx(50_000 * 1e-4 / 3600)
