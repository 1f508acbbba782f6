"""Pollux: its models exactly, its fits, its searches against brute force, and whole runs statistically."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.cluster.inputs.setting import Setting
from forerun.core.errors import ProfileError
from forerun.replication.pollux import descent, kernels
from forerun.replication.pollux.applications import Application, read_applications, smallest_rotation
from forerun.replication.pollux.fit import fit_step_model
from forerun.replication.pollux.schedule import Pollux

from ..cluster.conftest import DATA, GOLDEN, play, setting, shared_or_skip
from ..conftest import cases

MEASURED = DATA / "pollux_t4"


@cache
def golden() -> dict[str, Any]:
    shared_or_skip()
    made: dict[str, Any] = json.loads(gzip.decompress((GOLDEN / "pollux" / "goodput.json.gz").read_bytes()))
    return made


@cache
def applications() -> dict[str, Application]:
    shared_or_skip()
    return read_applications(MEASURED)


def test_applications_have_the_published_limits() -> None:
    for name, expected in golden()["apps"].items():
        app = applications()[name]
        assert (app.init_batch, app.most_batch) == (expected["init_bsz"], expected["max_bsz"])
        assert (app.least_local, app.most_local) == (expected["min_local"], expected["max_local"])
        assert app.epochs == expected["max_epochs"]
        assert app.batches.tolist() == expected["validated"]


def test_true_throughput_is_the_references() -> None:
    refused = 0
    for name, placement, local_batch, step_s, exchange_s in golden()["throughput"]:
        app = applications()[name]
        if step_s is None:
            refused += 1
            with pytest.raises(ProfileError, match="outside what was measured"):
                app.step_and_exchange_s(placement, local_batch)
        else:
            assert app.step_and_exchange_s(placement, local_batch) == pytest.approx(
                (step_s, exchange_s), rel=1e-9
            )
    assert refused == 16


@pytest.mark.parametrize("name", ["bert", "cifar10", "ncf", "imagenet", "deepspeech2", "yolov3"])
def test_fits_are_no_worse_and_decisions_equal(name: str) -> None:
    """The fit's objective within 1 % of the reference's; goodput, batch and accumulation equal at its parameters."""
    entry = next(fit for fit in golden()["fit"] if fit["app"] == name)
    seen = np.array([[n, r, b, step, step - sync] for n, r, b, step, sync in entry["profile"]])
    params = np.array(entry["params"])
    assert fit_step_model(seen).misfit <= 1.01 * descent.misfit(params, seen)
    app = applications()[name]
    assert app.gradients(app.init_batch, entry["epoch"]) == pytest.approx(
        (entry["grad_sqr"], entry["grad_var"])
    )
    alone = entry["optimize"][0][2]
    for (nodes, replicas, goodput, local, passes), (_, _, speedup) in zip(
        entry["optimize"], entry["speedup"]
    ):
        found, found_local, found_passes = kernels.best_batch(
            params, float(nodes), replicas, app.limits(), 0.0, entry["grad_sqr"], entry["grad_var"]
        )
        assert (found_local, found_passes) == (local, passes)
        assert found == pytest.approx(goodput, rel=1e-9)
        assert found / alone == pytest.approx(speedup, rel=1e-9)


def test_gradients_and_progress_are_linear_between_batches_and_least() -> None:
    app = applications()["bert"]
    low, high = app.gradients(12, 0)[0], app.gradients(24, 0)[0]
    assert app.gradients(18, 0)[0] == pytest.approx((low + high) / 2)
    assert app.progress_at(0) == 7387.0
    assert app.progress_at(1) == min(float(column) for column in app.progress[:, 1])


def test_unprofiled_placements_are_near_the_original_triangulation() -> None:
    """The original interpolates on a Delaunay triangulation of a lattice, which is not unique; ours goes along
    replicas, then nodes. Between measured scales they agree within 3 % in the median; neighbouring measurements
    themselves jump by up to 30 %, and so may the difference."""
    from scipy.interpolate import LinearNDInterpolator

    app = applications()["cifar10"]
    points = [(n, r, b) for (n, r), rows in app.averaged.items() for b in rows[:, 0]]
    values = [step for rows in app.averaged.values() for step in rows[:, 1]]
    original = LinearNDInterpolator(points, values)
    off = []
    for nodes, replicas in product((7, 9, 10, 14), (16, 20, 24, 28)):
        for local_batch in (100, 300, 700):
            theirs = float(original(nodes, replicas, local_batch))
            placement = [replicas // nodes] * nodes
            placement[0] += replicas - sum(placement)
            if not math.isnan(theirs) and smallest_rotation(placement) not in app.placements:
                off.append(abs(app.step_and_exchange_s(placement, local_batch)[0] / theirs - 1))
    assert len(off) > 30 and max(off) < 0.30 and float(np.median(off)) < 0.03


# --- searches --------------------------------------------------------------------------------------------------------


def tables(jobs: int, gpus: int, seed: int) -> tuple[Any, Any]:
    """Concave speedups: near linear for some jobs, flat for others; a little worse across nodes."""
    rng = np.random.default_rng(seed)
    power = rng.uniform(0.2, 1.0, jobs)
    within = np.arange(gpus + 1)[None, :] ** power[:, None]
    within[:, 0] = 0.0
    return within, 0.9 * within


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), jobs=st.integers(1, 3))
def test_climbing_reaches_the_best_of_all_shares(seed: int, jobs: int) -> None:
    """One node of 6 GPUs, nobody running: every split is tried by brute force. Speedups are concave, so single moves
    suffice."""
    within, across = tables(jobs, 6, seed)
    restart, caps = np.ones(jobs), np.full(jobs, 6)
    held = kernels.climb(np.zeros(jobs, np.int64), within, across, restart, 0.01, caps, 6, 6)

    def worth(split: tuple[int, ...]) -> float:
        return jobs / sum(1 / max(within[j, r], 0.01) for j, r in enumerate(split))

    best = max(worth(split) for split in product(range(7), repeat=jobs) if sum(split) <= 6)
    assert held.sum() <= 6
    assert worth(tuple(held.tolist())) == pytest.approx(best, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_placements_hold_what_nodes_have(data: Any) -> None:
    nodes = data.draw(st.integers(1, 5))
    jobs = data.draw(st.integers(1, 6))
    node_gpus = np.full(nodes, 4)
    wanted = np.array(data.draw(st.lists(st.integers(0, 10), min_size=jobs, max_size=jobs)), np.int64)
    now = np.zeros((jobs, nodes), np.int64)
    plan = kernels.place(wanted, now, node_gpus)
    again = kernels.place(plan.sum(axis=1), plan, node_gpus)
    assert np.array_equal(plan, again), "jobs that keep their count keep their nodes"
    feasible(plan, wanted, node_gpus)


def feasible(plan: Any, caps: Any, node_gpus: Any) -> None:
    assert (plan >= 0).all() and (plan.sum(axis=1) <= caps).all() and (plan.sum(axis=0) <= node_gpus).all()
    spread = (plan > 0).sum(axis=1) > 1
    assert ((plan[spread] > 0).sum(axis=0) <= 1).all()


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000))
def test_evolution_is_feasible_never_worse_and_repeats(seed: int) -> None:
    within, across = tables(5, 16, seed)
    node_gpus, caps = np.full(4, 4), np.array([1, 2, 4, 8, 16])
    now = np.zeros((5, 4), np.int64)
    now[3] = (4, 4, 0, 0)
    restart = np.full(5, 0.7)
    arguments = (now, within, across, restart, 0.01, caps, node_gpus, 20, 15)
    one, two = (kernels.evolve(*arguments, np.array([seed], np.uint64)) for _ in range(2))
    assert np.array_equal(one, two)
    feasible(one, caps, node_gpus)
    before = kernels.fitness(now, now, within, across, restart, 0.01)
    assert kernels.fitness(one, now, within, across, restart, 0.01) >= before


class Reference:
    """The search once more, plan by plan in plain Python: rows are lists, children are repaired and judged as a whole."""

    def __init__(self, counter: int) -> None:
        self.counter = counter

    def draw(self) -> float:
        mask = 2**64 - 1
        self.counter = (self.counter + 0x9E3779B97F4A7C15) & mask
        z = self.counter
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return float((z ^ (z >> 31)) >> 11) * 2.0**-53

    def below(self, count: int) -> int:
        return int(self.draw() * count)

    def evolve(
        self, now: Any, judge: Any, caps: Any, node_gpus: Any, population: int, generations: int
    ) -> Any:
        now, jobs = now.tolist(), len(now)
        plans = [[list(row) for row in now]]
        for k in range(1, population):
            plans.append(
                self.changed([list(row) for row in now], 0.5 * k / population + 1 / jobs, caps, node_gpus)
            )
        scores = [judge(plan) for plan in plans]
        for _ in range(generations):
            children = []
            for _ in range(population):
                parents = []
                for _ in range(2):
                    one, two = self.below(population), self.below(population)
                    parents.append(plans[one if scores[one] >= scores[two] else two])
                child = [list(parents[0 if self.draw() < 0.5 else 1][j]) for j in range(jobs)]
                children.append(self.changed(child, 1 / jobs, caps, node_gpus))
            everybody = [*zip(scores, plans, strict=True), *((judge(plan), plan) for plan in children)]
            everybody.sort(key=lambda one: -one[0])
            scores, plans = (list(column) for column in zip(*everybody[:population], strict=True))
        return plans[0]

    def changed(self, plan: Any, chance: float, caps: Any, node_gpus: Any) -> Any:
        jobs, nodes = len(plan), len(plan[0])
        for row in plan:
            if self.draw() < chance:
                kind, at = self.draw(), self.below(nodes)
                if kind >= 0.2:
                    row[:] = [0] * nodes
                if kind < 0.7:
                    row[at] = self.below(int(node_gpus[at]) + 1)
                else:
                    for k in range(1 + self.below(min(nodes, 16))):
                        row[(at + k) % nodes] = int(node_gpus[(at + k) % nodes])
        for j, row in enumerate(plan):
            while sum(row) > caps[j]:
                at = self.below(nodes)
                row[at] -= row[at] > 0
        spread = [sum(count > 0 for count in row) > 1 for row in plan]
        for n in range(nodes):
            start = self.below(jobs)
            here = [j % jobs for j in range(start, start + jobs) if plan[j % jobs][n] and spread[j % jobs]]
            for j in here[1:]:
                plan[j][n] = 0
            while sum(row[n] for row in plan) > node_gpus[n]:
                j = self.below(jobs)
                plan[j][n] -= plan[j][n] > 0
        return plan


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1),
    jobs=st.integers(1, 7),
    nodes=st.sampled_from([1, 2, 4, 7, 17, 18]),
    most=st.sampled_from([1, 4, 8, 15, 16, 40, 300]),
    lawful=st.booleans(),
)
def test_evolution_equals_the_reference_implementation(
    seed: int, jobs: int, nodes: int, most: int, lawful: bool
) -> None:
    """Rows are packed four, eight or sixteen bits a node, in one word or several; also from plans that break the rules."""
    rng = np.random.default_rng(seed)
    node_gpus = rng.integers(1, most + 1, nodes)
    within, across = tables(jobs, int(node_gpus.sum()), seed % 1000)
    caps = rng.integers(0 if jobs > 1 else 1, min(int(node_gpus.sum()), 40) + 1, jobs)
    now = np.zeros((jobs, nodes), np.int64)
    for n in range(nodes):
        now[int(rng.integers(jobs)), n] = rng.integers(0, node_gpus[n] + 1)
    if lawful:
        now[now.sum(axis=1) > caps] = 0
    restart, idle = rng.uniform(0.2, 1.0, jobs), 0.01
    state = np.array([seed], np.uint64)
    found = kernels.evolve(now, within, across, restart, idle, caps, node_gpus, 5, 4, state)
    reference = Reference(seed)

    def judge(plan: Any) -> float:
        return float(kernels.fitness(np.array(plan), now, within, across, restart, idle))

    assert found.tolist() == reference.evolve(now, judge, caps, node_gpus, 5, 4)
    assert int(state[0]) == reference.counter


# --- whole runs ------------------------------------------------------------------------------------------------------


def ten_jobs(seed: int = 0) -> Setting:
    made = setting("elasticVpollux_e.csv", "n16g4", 60, "T4")
    jobs = made.jobs.take(range(10))
    start_s = jobs.submit_s[0]
    return replace(
        made,
        jobs=replace(jobs, submit_s=jobs.submit_s - start_s, deadline_s=jobs.deadline_s - start_s),
        seed=seed,
    )


def test_ten_jobs_fare_as_in_the_reference() -> None:
    """One sample of the reference's random search: 10 done, 6 met, mean completion 3288.8 s. Ours within 10 %."""
    shared_or_skip()
    sample = json.loads(gzip.decompress((GOLDEN / "pollux" / "sim_head10_seed0.json.gz").read_bytes()))
    made = ten_jobs()
    record = play(Pollux(measurements=str(MEASURED)), made)
    assert len(record.completed) == sample["done"]
    assert record.accepted == sample["met"]
    assert float((record.end_s - made.jobs.submit_s).mean()) == pytest.approx(sample["mean_jct"], rel=0.1)


def test_the_papers_search_fares_alike_over_seeds() -> None:
    """Some seeds, a smaller search: all jobs end, mean completion within 10 % of the sample of the reference's search."""
    recipe = Pollux(measurements=str(MEASURED), search="evolution", population=16, generations=12)
    outcomes = [play(recipe, ten_jobs(seed)) for seed in range(1, 1 + cases(3, 5))]
    submit_s = ten_jobs().jobs.submit_s
    means = [float((record.end_s - submit_s).mean()) for record in outcomes]
    assert all(len(record.completed) == 10 and 5 <= record.accepted <= 7 for record in outcomes)
    assert len(set(means)) > 1, "seeds differ"
    assert np.mean(means) == pytest.approx(3288.8, rel=0.1)
    again = play(recipe, ten_jobs(1))
    assert again.end_s.tolist() == outcomes[0].end_s.tolist()


def test_both_searches_are_reproduced_with_their_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows for either search, the random one with an interval; at small size."""
    shared_or_skip()
    monkeypatch.setenv("FORERUN_DATA_DIR", str(MEASURED.parents[1]))
    from forerun.replication.elasticflow.reproduce import pollux_searches

    rows = pollux_searches(lambda _: None, seeds=2, searched=3, small=True).rows
    assert len(rows) == 4
    assert all(row.compat is not None and row.published is not None for row in rows)
    drawn = [row for row in rows if "random search" in row.name]
    assert len(drawn) == 2 and all(
        "mean of 2 seeds" in row.note and "95 % interval" in row.note for row in drawn
    )


def test_figure_8a_is_near_the_published_share() -> None:
    """Published .523 of 195 met (.5026 in its notes), mean completion 71,114 s; the search is random there. The
    standard error of a share of 195 is .036."""
    made = setting("elasticVpollux_e.csv", "n16g4", 60, "T4")
    record = play(Pollux(measurements=str(MEASURED)), made)
    assert len(record.completed) == 195
    assert record.accepted / 195 == pytest.approx(0.513, abs=2 * 0.036)
    assert float((record.end_s - made.jobs.submit_s).mean()) == pytest.approx(71_114, rel=0.2)


def test_without_measurements_jobs_are_elastic_in_gpus_only() -> None:
    made = setting("w003.csv", (1, 4, 8), 60, "A100")
    record = play(Pollux(), made)
    assert len(record.completed) == len(made.jobs)
    _, rows, gpus = record.changes()
    levels = {0, *made.profile.levels.tolist()} if made.profile else set()
    assert set(gpus.tolist()) <= levels
    assert len(set(zip(rows.tolist(), gpus.tolist()))) > 2 * len(made.jobs)


def test_measurements_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="is no folder of measurements"):
        read_applications(tmp_path / "none")
    with pytest.raises(ProfileError, match="contains no"):
        read_applications(tmp_path)
    app = tmp_path / "app"
    app.mkdir()
    (app / "placements.csv").write_text("placement,local_bsz,step_time,sync_time\n1,8,0.5,x\n")
    with pytest.raises(ProfileError, match="sync_time is 'x'"):
        read_applications(tmp_path)
    (app / "placements.csv").write_text("placement,local_bsz,step_time,sync_time\n1,8,0.5,0.9\n")
    with pytest.raises(ProfileError, match="cannot be"):
        read_applications(tmp_path)
    (app / "placements.csv").write_text("placement,local_bsz\n1,8\n")
    with pytest.raises(ProfileError, match="misses the columns step_time, sync_time"):
        read_applications(tmp_path)
