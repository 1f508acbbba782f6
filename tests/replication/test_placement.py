"""Placement of jobs and data: one small world for all policies, a long stream, and fresh ones."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from forerun.core.errors import Infeasible
from forerun.replication.cndlsys.placement import POLICIES, Gang, Job, Node, local_hit_pct, place_gangs

from ..conftest import cases, shared_path

NAMES = {
    "csp": "csp",
    "ff": "first_fit",
    "bf": "best_fit",
    "wf": "worst_fit",
    "most_resident": "most_resident",
}


def golden(name: str) -> Any:
    return json.loads(shared_path("golden", "loading", name).read_text(encoding="utf-8"))


def gang(arrive_s: float, chunks: Any, jobs: Any) -> Gang:
    return Gang(arrive_s, chunks, [Job(**job) if isinstance(job, dict) else Job(*job) for job in jobs])


@pytest.mark.parametrize("short", NAMES)
def test_the_small_world(short: str) -> None:
    case = golden("placement_world.json")
    nodes = [Node(**node) for node in case["world"]["nodes"]]
    gangs = [gang(row["arrive_s"], row["chunks"], row["jobs"]) for row in case["world"]["gangs"]]
    placed = place_gangs(nodes, gangs, NAMES[short])
    rows = [[w.gang, w.job, w.worker, w.node, w.start_s, w.local_chunks, w.chunks] for w in placed]
    assert rows == case["expected"][short]["rows"]
    assert local_hit_pct(placed) == pytest.approx(case["expected"][short]["local_hit_pct"], rel=1e-9)


@pytest.mark.parametrize("short", NAMES)
def test_the_long_stream(short: str) -> None:
    """Local hits, and how long jobs wait, which says when each started."""
    case = golden("placement_trace.json")
    shape, gangs = case["nodes"], [gang(*row) for row in case["gangs"]]
    nodes = [Node(gpus=shape["gpus"], cpus=shape["cpus"], disk=shape["disk"])] * shape["count"]
    placed = place_gangs(nodes, gangs, NAMES[short])
    expected = case["expected"][short]
    assert local_hit_pct(placed) == pytest.approx(expected["local_hit_pct"], rel=1e-9)
    waits = [w.start_s - gangs[w.gang].arrive_s for w in placed if w.worker == 0]
    assert np.mean(waits) == pytest.approx(expected["mean_wait_s"], rel=1e-9)


def test_a_job_that_never_fits_is_infeasible() -> None:
    node = Node(gpus=1, cpus=4, disk=100)
    with pytest.raises(Infeasible, match="gang 0, job 0: does not fit an empty cluster"):
        place_gangs([node], [gang(0, [10], [(1, 2, 4, 5)])], "csp")
    with pytest.raises(Infeasible):
        place_gangs([node], [gang(0, [1000], [(1, 1, 4, 5)])], "first_fit")


@pytest.mark.parametrize("seed", range(cases(2, 5)))
def test_weighing_data_beats_every_baseline_on_fresh_streams(seed: int) -> None:
    """The margin of the recorded stream holds on generated ones of the same shape, where no node is ever overbooked."""
    rng = np.random.default_rng(seed)
    gangs, now = [], 0.0
    for _ in range(160):
        now += rng.exponential(420.0)
        chunks = [float(rng.integers(60, 200))] * int(rng.choice([1, 2, 4, 8]))
        jobs = [
            (int(rng.choice([1, 1, 2, 4, 8])), 1, int(rng.choice([3, 4, 6])), float(rng.lognormal(7.6, 1.0)))
            for _ in range(int(rng.integers(1, 7)))
        ]
        gangs.append(gang(now, chunks, jobs))
    placed = {name: place_gangs([Node(gpus=8, cpus=48, disk=2000)] * 24, gangs, name) for name in POLICIES}
    for rows in placed.values():
        for node in range(24):
            mine = [(w, gangs[w.gang].jobs[w.job]) for w in rows if w.node == node]
            for one, _ in mine:
                beside = [j for w, j in mine if w.start_s <= one.start_s < w.start_s + j.run_s]
                assert sum(j.gpus for j in beside) <= 8 and sum(j.cpus for j in beside) <= 48
    hits = {name: local_hit_pct(rows) for name, rows in placed.items()}
    best_baseline = max(value for name, value in hits.items() if name != "csp")
    assert hits["csp"] >= best_baseline + 7, hits
