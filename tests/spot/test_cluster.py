"""Reserved clusters: the kernel against a slow reference, closed forms, laws of conservation, and mistakes in files."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.core.errors import Infeasible, ScenarioError
from forerun.spot.domain import Spot
from forerun.spot.engine.closed_forms import effective_share
from forerun.spot.engine.estimates import Estimate
from forerun.spot.engine.job import Checkpoints, Continuation, Tier, TrainingJob
from forerun.spot.policies.immediate import Immediate
from forerun.spot.policies.lazy import Lazy
from forerun.spot.reserved import cluster_kernel as kernel
from forerun.spot.reserved.cluster import ClusterTrials, logged_trial, run_cluster
from forerun.spot.reserved.scenario import (
    Cluster,
    Constant,
    Exponential,
    Failures,
    Hawkes,
    LogNormal,
    Maintenance,
    ModulatedPoisson,
)

from ..conftest import cases
from .cluster_reference import Reference
from .formulas import machine_repair_idle

WORLDS = cases(40)


def random_world(rng: random.Random) -> tuple[TrainingJob, Cluster, Any, tuple[float, ...], int]:
    """A small job and cluster with a few failures a day of every kind."""
    depth, pipelines = rng.randint(1, 4), rng.randint(1, 3)
    fewest = rng.randint(1, pipelines)
    write: Any = rng.choice(["async", "sync"])
    checkpoint = rng.choice(
        [
            Checkpoints(write=write),
            Checkpoints(rule="every_steps", steps=rng.randint(1, 9), write=write),
            Checkpoints(rule="every_seconds", period_s=rng.uniform(100, 3000), write=write),
        ]
    )
    job = TrainingJob(
        depth=depth,
        max_pipelines=pipelines,
        min_pipelines=fewest,
        step_s={depth * n: rng.uniform(60.0, 300.0) / n**0.8 for n in range(1, pipelines + 1)},
        reconfig_s=0.0,
        prep_s=0.0,
        write_s=rng.choice([0.0, 77.7, 333.3]),
        stall_s=rng.choice([0.0, 11.1]),
        horizon_s=rng.uniform(20_000, 200_000),
        checkpoint=checkpoint,
        initial_saved=rng.choice([-1, 4]),
    )
    gpus_per_node = rng.choice([1, 8])
    classes = []
    for i in range(rng.randint(0, 4)):
        takes: Any = rng.choice(["process", "gpu", "node", "group"])
        repair = rng.choice(
            [Constant(mean_s=4321.0), Exponential(mean_s=9000.0), LogNormal(median_s=3000.0, mean_s=20_000.0)]
        )
        noticed: dict[str, float] = {"detection_s": rng.choice([0.0, 0.0, 601.3])}
        if takes != "group" and rng.random() < 0.3:
            noticed = {"check_s": rng.uniform(1000, 20_000)}
        arrivals: Any = rng.choice(
            [
                None,
                None,
                None,
                Hawkes(branching=0.6, decay_s=2500.0),
                ModulatedPoisson(storm_factor=9.0, mean_calm_s=30_000.0, mean_storm_s=5_000.0),
            ]
        )
        classes.append(
            Failures(
                name=f"class{i}",
                takes=takes,
                job_mtbf_s=rng.uniform(5_000, 60_000),
                gap_shape=rng.choice([1.0, 1.0, 0.5, 2.0]) if arrivals is None else 1.0,
                arrivals=arrivals,
                repair=None if takes == "process" else repair,
                group_nodes=rng.randint(1, depth * pipelines) if takes == "group" else 0,
                **noticed,
            )
        )
    if rng.random() < 0.5:
        fast = Tier(
            name="memory",
            every_s=rng.uniform(50, 900),
            survives=rng.choice(["process", "node"]),  # type: ignore[arg-type]
            stall_s=rng.choice([0.0, 1.7]),
            write_s=rng.choice([0.0, 23.1, 1234.5]),
            load_s=rng.choice([0.0, 10.3]),
        )
        slow = Tier(
            name="disk",
            every_s=fast.every_s + rng.uniform(60, 3000),
            survives="node",
            stall_s=3.3,
            load_s=31.0,
        )
        job = replace(job, tiers=rng.choice([(fast,), (fast, slow)]))
    maintenance = Maintenance(every_s=rng.uniform(9_000, 60_000), lasts_s=rng.uniform(500, 5_000))
    cluster = Cluster(
        gpus=depth * pipelines * gpus_per_node,
        gpus_per_node=gpus_per_node,
        spares=rng.randint(0, depth * pipelines),
        failures=tuple(classes),
        lemon_share=rng.choice([0.0, 0.2, 0.5]),
        lemon_factor=rng.choice([1.0, 6.0]),
        maintenance=rng.choice([None, maintenance]),
    )
    parts_s = rng.choice([(0.0, 0.0, 0.0, 0.0), (61.7, 33.1, 0.0, 120.9)])
    return job, cluster, rng.choice([Immediate(), Lazy()]), parts_s, rng.choice([-1, rng.randint(5, 900)])


def random_continuation(rng: random.Random) -> Continuation | None:
    """Now and then replicas go on after a failure."""
    if rng.random() < 0.6:
        return None
    return Continuation(
        pause_s=rng.choice([0.0, 17.3, 400.1]),
        tolerates=rng.randint(1, 2),
        rejoin_s=rng.choice([None, 0.0, 33.3, 2000.2]),
    )


def test_the_kernel_is_the_slow_reference() -> None:
    """Every column of every world, and each class; ledgers of wall time and of every node's time sum to the whole."""
    interrupted = 0
    for case in range(WORLDS):
        job, cluster, growth, parts_s, goal = random_world(random.Random(case))
        goal = max(goal, job.initial_saved + 2) if goal > 0 else -1
        going_on = random_continuation(random.Random(case + 10**6))
        growth = Lazy() if going_on else growth
        out, by_class, log = logged_trial(
            job, cluster, growth, parts_s, seed=case, goal_steps=goal, going_on=going_on
        )
        row = dict(zip(kernel.COLUMNS, out.tolist(), strict=True))
        reference = Reference(job, cluster, isinstance(growth, Lazy), parts_s, goal, log, going_on)
        reference.run()
        context = f"world {case}"
        for line in kernel.WALL_LINES:
            assert row[f"{line}_s"] == pytest.approx(reference.wall.get(line, 0.0), rel=1e-9, abs=1e-4), (
                context,
                line,
            )
        for line in kernel.NODE_LINES:
            assert row[f"{line}_node_s"] == pytest.approx(
                reference.node.get(line, 0.0), rel=1e-9, abs=1e-3
            ), (
                context,
                line,
            )
        for name in ("steps_completed", "steps_durable", "end_s"):
            assert row[name] == pytest.approx(getattr(reference, name), rel=1e-12), (context, name)
        for name, count in reference.counts.items():
            assert row[name] == count, (context, name)
        assert row["finished"] == reference.done, context
        assert by_class == pytest.approx(np.array(reference.by_class), rel=1e-9, abs=1e-4), context
        assert sum(row[f"{line}_s"] for line in kernel.WALL_LINES) == pytest.approx(row["end_s"], rel=1e-9)
        whole = cluster.nodes * row["end_s"]
        assert sum(row[f"{line}_node_s"] for line in kernel.NODE_LINES) == pytest.approx(whole, rel=1e-9)
        interrupted += row["interruptions"] > 0
    assert interrupted > WORLDS / 2


# --------------------------------------------------------------------- closed forms


def simple_job(nodes: int, interval_s: float, write_s: float, restart_s: float, days: float) -> TrainingJob:
    return TrainingJob(
        depth=nodes,
        max_pipelines=1,
        min_pipelines=1,
        step_s={nodes: interval_s / 60},
        reconfig_s=restart_s,
        prep_s=0.0,
        write_s=write_s,
        stall_s=0.0,
        horizon_s=days * 86_400,
        checkpoint=Checkpoints(rule="every_steps", steps=60, write="sync"),
    )


def run_simple(job: TrainingJob, cluster: Cluster, trials: int = 60, seed: int = 7) -> ClusterTrials:
    return run_cluster(job, cluster, Immediate(), (0.0, 0.0, 0.0, job.reconfig_s), trials=trials, seed=seed)


def near(found: Estimate, theory: float, edge: float) -> bool:
    """Within five standard errors and what the ends of a run add."""
    return abs(found.mean - theory) <= 5 * found.half95 / 1.96 + edge


@pytest.mark.parametrize("takes", ["process", "gpu"])
@pytest.mark.parametrize("detection_s", [0.0, 900.0])
@pytest.mark.parametrize("interval_s, write_s", [(1200.0, 0.0), (3600.0, 300.0)])
def test_effective_time_is_the_closed_form(
    takes: Any, detection_s: float, interval_s: float, write_s: float
) -> None:
    """Poisson failures, constant costs, spares enough; a detection of D divides the share by 1 + lambda D."""
    repair = None if takes == "process" else Exponential(mean_s=7200.0)
    failures = Failures(name="one", takes=takes, job_mtbf_s=10_000.0, repair=repair, detection_s=detection_s)
    # Spares fail as well and are not missed.
    cluster = Cluster(gpus=256, spares=32, failures=(failures,))
    job = simple_job(32, interval_s, write_s, 480.0, days=54)
    theory = effective_share(1e-4, interval_s, write_s, 480.0) / (1 + 1e-4 * detection_s)
    assert near(run_simple(job, cluster).ettr, theory, edge=interval_s / job.horizon_s)


@pytest.mark.parametrize("survives, takes", [("process", "process"), ("node", "process"), ("node", "gpu")])
def test_a_tier_that_survives_is_the_closed_form_of_its_own_interval(survives: Any, takes: Any) -> None:
    """The job's own checkpoints are rare and free; rollback, stall and load are the tier's."""
    repair = None if takes == "process" else Exponential(mean_s=7200.0)
    failures = Failures(name="one", takes=takes, job_mtbf_s=10_000.0, repair=repair)
    cluster = Cluster(gpus=256, spares=32, failures=(failures,))
    tier = Tier(name="fast", every_s=600.0, survives=survives, stall_s=30.0, load_s=50.0)
    job = simple_job(32, 36_000.0, 0.0, 480.0, days=54)
    job = replace(
        job, step_s={32: 10.0}, checkpoint=Checkpoints(rule="every_steps", steps=3600), tiers=(tier,)
    )
    done = run_cluster(job, cluster, Immediate(), (100.0, 0.0, 0.0, 380.0), trials=60, seed=2)
    theory = effective_share(1e-4, 600.0, 30.0, 150.0)
    assert near(done.ettr, theory, edge=600.0 / job.horizon_s + 10_000 / job.horizon_s * 0.1)
    # Where the failure destroys the tier's copies, they are stalls for nothing.
    if survives == "process":
        destroyed = cluster.with_(failures=(failures.with_(takes="gpu", repair=Constant(mean_s=60.0)),))
        assert run_cluster(job, destroyed, Immediate(), (100.0, 0.0, 0.0, 380.0), trials=20).ettr.mean < 0.3


@pytest.mark.parametrize("pause_s", [0.0, 60.0, 900.0])
def test_replicas_that_go_on_lose_the_running_step_and_the_pause(pause_s: float) -> None:
    """Each step is a checkpoint without cost, and the pause a restart: the closed form with these."""
    failures = Failures(name="one", takes="process", job_mtbf_s=5_000.0)
    cluster = Cluster(gpus=256, failures=(failures,))
    job = replace(
        simple_job(32, 36_000.0, 0.0, 480.0, days=54),
        depth=8,
        max_pipelines=4,
        step_s=dict.fromkeys((8, 16, 24, 32), 300.0),
        checkpoint=Checkpoints(rule="every_steps", steps=100_000),
    )
    done = run_cluster(
        job,
        cluster,
        Lazy(),
        (0.0, 480.0, 0.0, 0.0),
        trials=60,
        seed=4,
        going_on=Continuation(pause_s=pause_s),
    )
    assert near(done.ettr, effective_share(1 / 5_000, 300.0, 0.0, pause_s), edge=300.0 / job.horizon_s)


def test_a_replica_that_rejoins_is_missing_while_it_copies() -> None:
    """A failure of one of four replicas: a pause, three of them for the time of the copy, and four again.

    Without repairs in the way, what is lost against an undisturbed run is the running step, which runs to its commit, a
    pause, and a quarter of the speed until the end of the step in which the copy is done.
    """
    failures = Failures(name="one", takes="process", job_mtbf_s=400_000.0)
    cluster = Cluster(gpus=256, failures=(failures,))
    job = replace(
        simple_job(32, 36_000.0, 0.0, 480.0, days=200),
        depth=8,
        max_pipelines=4,
        step_s={8: 400.0, 16: 200.0, 24: 400 / 3, 32: 100.0},
        checkpoint=Checkpoints(rule="every_steps", steps=10_000_000),
    )
    for rejoin_s in (0.0, 5000.0, 50_000.0):
        done = run_cluster(
            job,
            cluster,
            Lazy(),
            (0.0, 480.0, 0.0, 0.0),
            trials=60,
            seed=4,
            going_on=Continuation(pause_s=60.0, rejoin_s=rejoin_s),
        )
        # The whole running step; a copy that ends in a step waits for half of one of three replicas, if it takes time.
        slow_s = rejoin_s + (400 / 6 if rejoin_s else 0.0)
        per_failure_s = 100.0 + 60.0 + slow_s / 4
        # Failures that come while one copies its state leave fewer: of second order, bounded by their share.
        second = (slow_s / 400_000) ** 2
        assert near(done.ettr, 1 / (1 + per_failure_s / 400_000) - second / 4, edge=second / 2 + 3e-5), (
            rejoin_s
        )


def test_a_scenario_whose_replicas_go_on(tmp_path: Path) -> None:
    changes = ("job.depth=4", "job.max_pipelines=2", "job.step_s={4: 20, 8: 10}", "goal={steps: 0}")
    restart = forerun.simulate(scenario(tmp_path, *changes)).summary
    going_on = forerun.simulate(scenario(tmp_path, *changes, "policy={name: oobleck, pause: 30s}")).summary
    assert going_on["lost_share"] < restart["lost_share"] / 2
    assert going_on["restart_share"] < restart["restart_share"]


def test_waiting_is_the_machine_repair_model() -> None:
    """The job waits while fewer than its nodes are up, of nodes that fail and are repaired on their own (M/M/s spares)."""
    for spares in (0, 2, 5):
        failures = Failures(name="one", node_mtbf_s=400_000.0, repair=Exponential(mean_s=20_000.0))
        cluster = Cluster(gpus=160, spares=spares, failures=(failures,))
        done = run_simple(simple_job(20, 600.0, 0.0, 100.0, days=400), cluster, trials=30)
        waiting = Estimate.of(done.columns["waiting_s"] / done.columns["end_s"])
        theory = machine_repair_idle(1 / 400_000, 1 / 20_000, 20 + spares, 20)
        assert near(waiting, theory, edge=2e-4), spares
        down = Estimate.of(done.columns["repair_node_s"] / done.columns["end_s"] / cluster.nodes)
        assert near(down, 20_000 / 420_000, edge=2e-4)


@pytest.mark.parametrize("shape", [0.4, 0.7, 1.0, 3.0, 200.0])
def test_gaps_have_their_mean_and_spread(shape: float) -> None:
    """As many failures as the rate says from time 0 on, whatever the shape; their gaps vary as Weibull's do."""
    failures = Failures(name="one", takes="process", job_mtbf_s=5000.0, gap_shape=shape)
    cluster = Cluster(gpus=32, failures=(failures,))
    job = simple_job(4, 600.0, 0.0, 0.0, days=20)
    counts, gaps = [], []
    for trial in range(60):
        _, _, log = logged_trial(job, cluster, Immediate(), (0.0,) * 4, seed=1, trial=trial)
        times = log[log[:, 1] == 0][:, 0]
        counts.append(times.size)
        gaps.append(np.diff(times))
    assert near(Estimate.of(np.array(counts, float)), job.horizon_s / 5000.0, edge=0.0)
    all_gaps = np.concatenate(gaps)
    # Gaps inside a window are biased short by at most a gap at its end: small against 345 of them.
    cv = math.sqrt(math.gamma(1 + 2 / shape) / math.gamma(1 + 1 / shape) ** 2 - 1)
    assert all_gaps.std() / all_gaps.mean() == pytest.approx(cv, rel=0.12)


def test_lemons_fail_more_often_and_the_mean_rate_stays() -> None:
    failures = Failures(name="one", node_mtbf_s=1e6, repair=Constant(mean_s=1.0))
    cluster = Cluster(gpus=800, failures=(failures,), lemon_share=0.1, lemon_factor=9.0)
    job = simple_job(100, 600.0, 0.0, 0.0, days=400)
    _, _, log = logged_trial(job, cluster, Immediate(), (0.0,) * 4, seed=3)
    victims = log[log[:, 1] == 0][:, 2].astype(int)
    counts = np.bincount(victims, minlength=100)
    worst = np.sort(counts)[::-1][:10].sum() / counts.sum()
    # A tenth of the nodes fails nine times as often: half of the failures.
    assert worst == pytest.approx(0.5, abs=5 * math.sqrt(0.25 / counts.sum()))
    assert counts.sum() == pytest.approx(job.horizon_s / 1e4, rel=5 / math.sqrt(job.horizon_s / 1e4))


def test_log_normal_repairs_have_their_median_and_mean() -> None:
    law = LogNormal(median_s=20_000.0, mean_s=60_000.0)
    cluster = Cluster(gpus=800, failures=(Failures(name="one", node_mtbf_s=1e6, repair=law),))
    _, _, log = logged_trial(simple_job(100, 600.0, 0.0, 0.0, days=1500), cluster, Immediate(), (0.0,) * 4)
    repairs = log[log[:, 1] == 0][:, 3]
    assert np.mean(repairs < 20_000) == pytest.approx(0.5, abs=2.5 / math.sqrt(repairs.size))
    assert repairs.mean() == pytest.approx(60_000, abs=5 * repairs.std() / math.sqrt(repairs.size))


# --------------------------------------------------------------------- streams, threads, size


def test_failures_do_not_depend_on_the_job_and_trials_not_on_their_block() -> None:
    job, cluster, growth, parts_s, _ = random_world(random.Random(11))
    other = replace(job, stall_s=5.0, write_s=10.0)
    logs = [logged_trial(one, cluster, growth, parts_s, seed=5, trial=2)[2] for one in (job, other)]
    failures = [log[log[:, 1] >= 0] for log in logs]
    assert len(failures[0]) > 5 and np.array_equal(*failures)
    whole = run_cluster(job, cluster, growth, parts_s, trials=6, seed=5)
    late = run_cluster(job, cluster, growth, parts_s, trials=2, seed=5, first_trial=4)
    for name, values in whole.columns.items():
        assert np.array_equal(values[4:], late.columns[name]), name


def test_a_hundred_thousand_nodes() -> None:
    """Arrays of the size of the cluster, not of its square."""
    failures = Failures(name="one", per_1000_node_days=6.5, repair=Exponential(mean_s=86_400.0))
    cluster = Cluster(gpus=760_000, spares=5_000, failures=(failures,))
    done = run_simple(simple_job(95_000, 60.0, 0.0, 60.0, days=2), cluster, trials=1)
    theory = effective_share(cluster.job_failures_per_s, 60.0, 0.0, 60.0)
    assert done.ettr.mean == pytest.approx(theory, abs=0.03)


# --------------------------------------------------------------------- scenarios

SCENARIO = """\
domain: spot
fleet:
  name: cluster
  gpus: 64
  spares: 2
  node_power_w: 9000
  maintenance: {every: 5d, lasts: 2h}
  failures:
  - {name: gpu, takes: gpu, node_mtbf: 20d, repair: {name: lognormal, median: 10h, mean: 20h}}
  - {name: hang, takes: process, job_mtbf: 60h, detection: 10min}
horizon: 12d
trials: 60
goal: {steps: 90000, deadline: 11d}
prices: {on_demand_usd_per_h: 20}
job:
  depth: 8
  max_pipelines: 1
  step_s: {8: 10}
  samples_per_step: 512
  snapshots: {rule: every_seconds, period: 30min}
  stall: 10s
  write: 60s
  restart: {schedule: 60s, start: 90s, communicator: 60s, load: 120s}
"""


def scenario(tmp_path: Path, *changes: str) -> Any:
    path = tmp_path / "cluster.yaml"
    path.write_text(SCENARIO)
    return forerun.load(path, list(changes))


def test_a_result_has_ratio_goodput_classes_and_what_changes_are_worth(tmp_path: Path) -> None:
    result = forerun.simulate(scenario(tmp_path))
    for ledger in result.ledgers:
        ledger.check()
    summary = result.summary
    assert summary["ettr"] == pytest.approx(summary["useful_share"], rel=1e-9)  # always on all nodes
    assert 0.5 < summary["ettr"] < 1 and 0 < summary["done_by_deadline"] < 1
    assert summary["useful_gpu_h"] == pytest.approx(
        float(result.tables["trials"]["steps_completed"].mean()) * 10 * 64 / 3600, rel=1e-9
    )
    assert summary["cost_usd"] == pytest.approx(
        20 * 10 * float(result.tables["trials"]["end_s"].mean()) / 3600
    )
    assert summary["useful_kwh"] < summary["energy_kwh"] < 9 * 10 * 24 * 12
    classes = result.tables["classes"]
    assert set(classes["failure"].tolist()) == {"gpu", "hang", "maintenance"}
    ledger = dict(zip(result.tables["ledger"]["line"], result.tables["ledger"]["wall_s"], strict=True))
    stopped = ledger["detection"] + ledger["restart"] + ledger["waiting"] + ledger["maintenance"]
    assert float(classes["stopped_s"].sum()) == pytest.approx(stopped)
    assert float(classes["lost_s"].sum()) == pytest.approx(ledger["lost"])
    worth = dict(zip(result.tables["worth"]["change"], result.tables["worth"]["ettr_change"], strict=True))
    for change in ("1 h more between failures of the job", "restart 1 min shorter", "detection 1 min sooner"):
        assert 0 < worth[change] < 0.05, change
    assert {figure.id for figure in Spot().figures(result)} >= {"ettr-by-size", "classes", "worth", "states"}
    sizes = result.tables["sizes"]
    assert np.all(np.diff(sizes["ettr"][sizes["setting"] == sizes["setting"][0]]) < 0)
    result.timeline.check()


def test_other_sizes_are_simulated_beside_the_closed_form(tmp_path: Path) -> None:
    """Where the closed form holds, at every size; at the scenario's own size, its own figure; without spares, less."""
    plain = scenario(
        tmp_path,
        "fleet.failures=[{name: hang, takes: process, node_mtbf: 40d, detection: 10min}]",
        "fleet.maintenance=null",
        "goal={steps: 0}",
        "job={write: 0s, stall: 0s}",
        "job.depth=8",
        "job.max_pipelines=1",
        "job.step_s={8: 10}",
        "job.samples_per_step=512",
        "job.snapshots={rule: every_steps, steps: 60}",
        "job.restart={schedule: 5min}",
        "trials=100",
    )
    result = forerun.simulate(plain)
    simulated = result.tables["simulated_sizes"].records()
    assert len({row["gpus"] for row in simulated}) >= 6 and len({row["setting"] for row in simulated}) == 2
    for row in simulated:
        part = 1.0 if row["setting"] == simulated[0]["setting"] else 0.25
        rate = row["gpus"] / 8 / (40 * 86_400)
        theory = effective_share(rate, part * 600, 0.0, part * 300) / (1 + rate * part * 600)
        assert abs(row["ettr"] - theory) <= 5 * (row["high"] - row["low"]) / 3.92 + 1e-3, row
    assert simulated[0]["gpus"] == 64
    assert simulated[0]["ettr"] == pytest.approx(result.summary["ettr"], rel=1e-12)
    # Repairs of a day, and nobody stands by.
    repair = "fleet.failures[0].repair={name: constant, mean: 1d}"
    spared, bare = (
        forerun.simulate(scenario(tmp_path, f"fleet.spares={spares}", repair, "goal={steps: 0}"))
        for spares in (4, 0)
    )
    some, none = (run.tables["simulated_sizes"].records()[0] for run in (spared, bare))
    assert (some["spares"], none["spares"]) == (4, 0) and none["high"] < some["low"]
    picture = next(figure for figure in Spot().figures(bare) if figure.id == "ettr-by-size")
    assert sum(name.startswith("simulated") for name in picture.order) == 2


def test_sizes_that_would_take_too_long_are_left_out(tmp_path: Path) -> None:
    often = forerun.simulate(
        scenario(tmp_path, "fleet.failures[0].node_mtbf=1d", "goal={steps: 0}", "trials=2")
    )
    sizes = often.tables["simulated_sizes"]["gpus"]
    assert len(sizes) > 0 and sizes.max() < 131_072


@pytest.mark.parametrize(
    "change, said",
    [
        ("fleet.failures[0].node_mtbf=0s", "no rate above 0 is given"),
        ("fleet.failures[0].node_mtbf=-5s", "is negative"),
        ("fleet.failures[0].node_mtbf_s=1e308", "is not below 1,000,000,000,000,000"),
        ("fleet.failures[0].node_mtbf=1us", "changes of the fleet until the horizon"),
        ("fleet.failures[0].per_1000_node_days=3", "exactly one of"),
        ("fleet.failures[0].takes=rack", "rack"),
        ("fleet.failures[0].takes=group", "group_nodes"),
        ("fleet.failures[0].takes=process", "a process is not repaired"),
        ("fleet.failures[0].gap_shape=0", "gap_shape"),
        (
            "fleet.failures[0].arrivals={name: hawkes, branching: 1, decay: 1h}",
            "1 is above 0.95",
        ),
        ("fleet.failures[0].arrivals={name: hawkes, branching: .5, decay: 0h}", "is not above 0"),
        ("fleet.failures[0].arrivals={name: hawkes, branching: .9, decay_s: 1e12}", "changes of the fleet"),
        (
            "fleet.failures[0].arrivals={name: modulated, storm_factor: 1, mean_calm: 9d, mean_storm: 1d}",
            "not above 1",
        ),
        (
            "fleet.failures[0].arrivals={name: modulated, storm_factor: 2, mean_calm: 1us, mean_storm: 1us}",
            "changes of the fleet",
        ),
        ("fleet.failures[0].arrivals={name: weather}", "weather"),
        ("fleet.failures[0].repair={name: constant, mean: 20d}", "longer than the horizon"),
        ("fleet.failures[0].repair={name: lognormal, median: 20h, mean: 10h}", "below the median"),
        ("fleet.failures[1].check=1h", "not both"),
        ("fleet.failures[1].name=gpu", "two are named 'gpu'"),
        ("fleet.spares=9", "between 0 and the 8 nodes"),
        ("fleet.gpus=63", "not whole nodes"),
        ("fleet.gpus=72", "72 GPUs are 9 nodes"),
        ("fleet.lemon_share=1.5", "lemon_share"),
        ("fleet.maintenance={every: 1h, lasts: 2h}", "no less than"),
        ("job.reconfig=5min", "has the parts of"),
        ("growth=hazard", "immediate or lazy"),
        (
            "job.tiers=[{name: a, every: 9min, survives: node}, {name: b, every: 5min, survives: node}]",
            "not rarer than a",
        ),
        (
            "job.tiers=[{name: a, every: 5min, survives: node}, {name: b, every: 9min, survives: process}]",
            "less than a",
        ),
        ("job.tiers=[{name: a, every: 0min, survives: node}]", "is not above 0"),
        ("policy=oobleck", "max_pipelines of at least 2"),
        ("policy=torchft", "max_pipelines of at least 2"),
        ("policy={name: torchft, rejoin: -1s}", "is negative"),
        ("policy={name: varuna, every_steps: 10}", "restarts from checkpoints"),
        ("on_demand_nodes=3", "reserved cluster"),
        ("prices={spot_usd_per_h: 3}", "on_demand_usd_per_h"),
        ("choices.spares=[7]", "more than the 8 nodes"),
        ("choices.on_demand_nodes=[7]", "has spares"),
        ("choices.recovery=[oobleck]", "max_pipelines of at least 2"),
        ("choices.recovery=[bamboo]", "restarts from checkpoints"),
        ("choices.recovery=[phoenix]", "no recovery policy named 'phoenix'"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, change: str, said: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        scenario(tmp_path, change)
    assert any(said in str(problem) for problem in raised.value.problems), raised.value
    assert len(raised.value.problems) == 1


TIERS = "job.tiers=[{name: memory, every: 5min, survives: node, stall: 1s, load: 5s}]"


def test_a_plan_is_the_best_of_all_its_candidates(tmp_path: Path) -> None:
    """Intervals, spares and tiers, each simulated by itself: the cheapest that is in time with the certainty asked for."""
    from forerun.spot.plan import plan
    from forerun.spot.plan.race import candidates

    made = scenario(tmp_path, "choices={spares: [0, 2, 4], every_steps: [60, 180], trials: 300}", TIERS)
    found = plan(made, "cost").check()
    costs = {}
    for one in candidates(made):
        cluster = made.fleet.with_(spares=made.fleet.spares + one.spares)
        done = run_cluster(
            one.job.built(made.horizon_s, None),
            cluster,
            Immediate(),
            one.job.pause_parts_s,
            trials=300,
            seed=made.seed,
            goal_steps=made.goal.steps,
        )
        if np.mean(done.finish_s <= made.goal.deadline_s) >= made.goal.certainty:
            costs[one.name] = float(done.columns["end_s"].mean()) * cluster.nodes / 3600 * 20
    assert len(costs) > 3 and found.chosen.candidate.name == min(costs, key=lambda name: costs[name])
    assert found.chosen.mean_usd == pytest.approx(min(costs.values()))
    assert {bool(runner.candidate.job.tiers) for runner in found.runners} == {True, False}


def test_a_plan_compares_recovery_policies_on_the_same_failures(tmp_path: Path) -> None:
    """Each with its best candidate, and the paired difference of that to the chosen one, as simulated by itself."""
    from forerun.spot.plan import plan
    from forerun.spot.plan.race import candidates

    made = scenario(
        tmp_path,
        "job.depth=4",
        "job.max_pipelines=2",
        "job.step_s={4: 20, 8: 10}",
        "goal={steps: 0}",
        "choices={every_steps: [60, 180], spares: [0, 2], growth: [immediate], trials: 300, "
        "recovery: [{name: oobleck, pause: 30s}, {name: torchft, rejoin: 6h}]}",
    )
    found = plan(made, "throughput").check()
    means: dict[str, dict[str, Any]] = {}
    for one in candidates(made):
        done = run_cluster(
            one.job.built(made.horizon_s, None),
            made.fleet.with_(spares=made.fleet.spares + one.spares),
            Lazy() if one.growth == "lazy" else Immediate(),
            one.job.pause_parts_s,
            trials=300,
            going_on=one.recovery.continuation(),
            seed=made.seed,
        )
        rate = done.columns["steps_completed"] * one.job.samples_per_step / done.columns["end_s"]
        means.setdefault(type(one.recovery).__name__, {})[one.name] = rate
    assert set(means) == {"Restart", "Oobleck", "TorchFT"}
    best = {
        policy: max(rates.items(), key=lambda item: float(item[1].mean())) for policy, rates in means.items()
    }
    chosen = max(best.values(), key=lambda item: float(item[1].mean()))
    assert found.chosen.candidate.name == chosen[0]
    rows = found.tables["recoveries"].records()
    assert rows[0]["verdict"] == "chosen" and len(rows) == 3
    for row in rows[1:]:
        rate = next(rate for name, rate in best.values() if name == row["name"])
        gap = Estimate.of(chosen[1] - rate)
        assert (row["behind"], row["behind_half95"]) == pytest.approx((gap.mean, gap.half95))
        assert row["verdict"] == "behind" and f"behind by {gap.mean:.4g}" in " ".join(found.notes)
    assert found.data()["recoveries"] == rows


def test_a_plan_that_cannot_be_kept_names_what_can(tmp_path: Path) -> None:
    from forerun.spot.plan import plan

    with pytest.raises(Infeasible, match=r"a deadline of .* h would be met"):
        plan(scenario(tmp_path, "goal.deadline=251h", "choices={every_steps: [180], trials: 300}"), "cost")
    with pytest.raises(ScenarioError, match="needs the price of a node"):
        plan(scenario(tmp_path, "prices={}"), "cost")
    assert "reserved cluster" in Spot().not_observable(scenario(tmp_path))


def test_a_restart_in_parts_is_the_pause_that_it_sums_to(tmp_path: Path) -> None:
    """Preemptible fleets take it as well; the same pause gives the same bits."""
    demo = forerun.demo("spot").scenario
    parts = "job.restart={schedule: 10s, start: 11s, communicator: 20s, load: 47s}"
    whole = forerun.simulate(forerun.load(demo, ["job.reconfig=88s", "job.load=47s", "trials=200"]))
    split = forerun.simulate(forerun.load(demo, ["job.reconfig=0s", "job.load=0s", parts, "trials=200"]))
    assert split.summary == whole.summary and split.intervals == whole.intervals
    moved = [
        dict(
            zip(run.tables["sensitivity"]["assumption"], run.tables["sensitivity"]["elasticity"], strict=True)
        )
        for run in (whole, split)
    ]
    assert moved[0] == pytest.approx(moved[1])
