"""Bounds against what is known otherwise: integer programs, every policy of the product, and certificates changed at random.

A few cases each; `FORERUN_CASES=1000` runs a campaign.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.cluster.bound import checker
from forerun.cluster.bound.checker import Job
from forerun.cluster.bound.mixed import apart, searches
from forerun.cluster.bound.search import DeadlineSearch
from forerun.cluster.bound.world import World, world_of
from forerun.cluster.inputs.prepare import prepare
from forerun.cluster.policy import schedulers
from forerun.core.errors import ForerunError
from forerun.core.planning import bounds

from ..conftest import cases

CASES = cases(0)


def in_slots(jobs: list[Job], gpus: int) -> int:
    """The most deadlines met by schedules in unit slots, by scipy's integer program."""
    optimize = pytest.importorskip("scipy.optimize")
    cells = [
        (row, n, speed / job.unit, t)
        for row, job in enumerate(jobs)
        for n, speed in job.speed
        for t in range(job.release, job.deadline or 0)
    ]
    count, rows = len(jobs), []
    low, high = [], []
    for row, job in enumerate(jobs):  # done where it counts
        rows.append(
            [-float(job.work) if at == row else 0.0 for at in range(count)]
            + [rate if cell == row else 0.0 for cell, _, rate, _ in cells]
        )
        low.append(0.0)
        high.append(np.inf)
        for t in range(job.release, job.deadline or 0):  # one count at a time
            rows.append([0.0] * count + [float(cell == row and at == t) for cell, _, _, at in cells])
            low.append(-np.inf)
            high.append(1.0)
    for t in sorted({t for *_, t in cells}):
        rows.append([0.0] * count + [float(n) if at == t else 0.0 for _, n, _, at in cells])
        low.append(-np.inf)
        high.append(float(gpus))
    done = optimize.milp(
        [-1.0] * count + [0.0] * len(cells),
        constraints=optimize.LinearConstraint(np.array(rows), low, high),
        integrality=np.ones(count + len(cells)),
        bounds=optimize.Bounds(0, 1),
    )
    assert done.success
    return round(-done.fun)


def due_world(draw: random.Random) -> tuple[list[Job], int]:
    """Jobs with deadlines that compete, on tables that may be concave, bumpy or superlinear."""
    gpus = draw.randint(2, 8)
    counts = [n for n in (1, 2, 3, 4, 8) if n <= gpus]
    jobs = []
    for number in range(draw.randint(2, 6)):
        levels = sorted(draw.sample(counts, draw.randint(1, len(counts))))
        bend = draw.choice([0.3, 0.7, 1.0, 1.3])
        speed = tuple((n, round(100 * n**bend * draw.uniform(0.9, 1.1))) for n in levels)
        release, length = draw.randint(0, 5), draw.randint(1, 6)
        work = round(max(rate for _, rate in speed) * length * draw.uniform(0.3, 1.05))
        jobs.append(Job(str(number), release, release + length, work, 1, speed))
    return jobs, gpus


@pytest.mark.parametrize("seed", range(CASES or 4))
def test_the_bound_is_not_below_the_optimum_in_slots(seed: int) -> None:
    jobs, gpus = due_world(random.Random(seed))
    search = DeadlineSearch(World(tuple(jobs), gpus))
    for _ in search.run():
        pass
    assert in_slots(jobs, gpus) <= search.bound and search.met <= search.bound


# -------------------------------------------------------------------------------------------------------- several types


def in_slots_of_types(pools: list[World]) -> int:
    """The most deadlines met by schedules in unit slots, each job on one type and count a slot, by an integer program."""
    optimize = pytest.importorskip("scipy.optimize")
    jobs = pools[0].jobs
    cells = [
        (row, at, n, speed / job.unit, t)
        for at, pool in enumerate(pools)
        for row, job in enumerate(pool.jobs)
        for n, speed in job.speed
        for t in range(job.release, job.deadline or 0)
    ]
    rows, low, high = [], list[float](), list[float]()

    def add(met: list[float], taken: list[float], least: float, most: float) -> None:
        rows.append(met + taken)
        low.append(least)
        high.append(most)

    none = [0.0] * len(jobs)
    for row, job in enumerate(jobs):
        work = [-float(job.work) if other == row else 0.0 for other in range(len(jobs))]
        add(work, [rate if cell == row else 0.0 for cell, _, _, rate, _ in cells], 0.0, np.inf)
        for t in range(job.release, job.deadline or 0):
            add(none, [float(cell == row and when == t) for cell, *_, when in cells], -np.inf, 1.0)
    for at, pool in enumerate(pools):
        for t in {when for *_, when in cells}:
            used = [float(n) if own == at and when == t else 0.0 for _, own, n, _, when in cells]
            add(none, used, -np.inf, float(pool.gpus))
    done = optimize.milp(
        [-1.0] * len(jobs) + [0.0] * len(cells),
        constraints=optimize.LinearConstraint(np.array(rows), low, high),
        integrality=np.ones(len(jobs) + len(cells)),
        bounds=optimize.Bounds(0, 1),
    )
    assert done.success
    return round(-done.fun)


@pytest.mark.parametrize("seed", range(CASES or 4))
def test_the_bound_for_several_types_is_not_below_the_optimum_in_slots(seed: int) -> None:
    draw = random.Random(seed)
    jobs, gpus = due_world(draw)
    pools = [World(tuple(jobs), gpus)]
    for _ in range(draw.randint(1, 2)):
        size, slower = draw.randint(1, 6), draw.choice([2, 5])
        some = (
            job._replace(unit=slower, speed=tuple((n, speed) for n, speed in job.speed if n <= size))
            for job in jobs
        )
        pools.append(World(tuple(some), size))
    *_, (_, bound) = searches(DeadlineSearch, pools)
    assert in_slots_of_types(pools) <= bound
    known = apart(pools)
    assert known.met == sum(one.met(pool) for one, pool in zip(known.schedules, pools)) <= bound
    assert len({row for one in known.schedules for row in one.pieces}) == known.met, "every job on one type"


# ------------------------------------------------------------------------------------------------------------ scenarios


def drawn_scenario(folder: Path, draw: random.Random) -> Path:
    """A log of a few dozen jobs of two models, whose tables are drawn, too."""
    lines = ["job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration"]
    now = 0
    tables = {name: draw.uniform(0.4, 1.1) for name in ("one", "two")}
    for number in range(draw.randint(5, 25 if CASES else 12)):
        now += draw.randint(0, 900)
        model = draw.choice(list(tables))
        asked, duration = draw.choice([1, 2, 4]), draw.randint(60, 5000)
        iterations = max(1, round(duration * 5 * asked ** tables[model]))
        due = now + round(duration * draw.uniform(0.5, 3))
        lines.append(f"{number},{now},{iterations},{model},{due},64,{asked},{duration}")
    (folder / "jobs.csv").write_text("\n".join(lines) + "\n")
    for name, bend in tables.items():
        rates = [5 * n**bend * draw.uniform(0.95, 1.05) for n in (1, 2, 4, 8)]
        (folder / f"{name}.csv").write_text(f"global_batch_size,1,2,4,8\n64,{','.join(map(str, rates))}\n")
    path = folder / "s.yaml"
    nodes = draw.choice(["{count: 1, gpus: 4}", "{count: 2, gpus: 4}", "{count: 2, gpus: 8}"])
    path.write_text(
        f"domain: cluster\ntrace: jobs.csv\nmachines: {{nodes: [{nodes}]}}\n"
        f"profile: [{{tables: [one.csv, two.csv]}}]\nslot: {draw.choice([10, 60])}s\npolicy: fifo\n"
    )
    return path


def several_types(path: Path) -> Path:
    """The scenario with slower GPUs of a second type."""
    text = path.read_text()
    for name in ("one", "two"):
        header, rates = (path.parent / f"{name}.csv").read_text().split()
        half = ",".join(str(float(rate) / 2) for rate in rates.split(",")[1:])
        (path.parent / "slow").mkdir(exist_ok=True)
        (path.parent / "slow" / f"{name}.csv").write_text(f"{header}\n64,{half}\n")
    text = text.replace("}]}", ", gpu_type: fast}, {count: 1, gpus: 4, gpu_type: slow}]}")
    text = text.replace(
        "profile: [{", "profile: [{gpu_type: slow, tables: [slow/one.csv, slow/two.csv]}, {gpu_type: fast, "
    )
    other = path.with_name("types.yaml")
    other.write_text(text)
    return other


def runs(path: Path) -> Iterator[tuple[str, Any]]:
    """What every policy that can be run makes of a scenario, in both modes, and where changes are free and slots short.

    By turns in one of the three, where FORERUN_CASES asks for no campaign.
    """
    free = ["mode=corrected", "slot_s=1", "costs.models={'*': {1->2: 0, 2->1: 0}}"]
    ways = (["mode=compat"], ["mode=corrected"], free)
    for number, policy in enumerate(schedulers().names()):
        for given in ways if CASES else ways[number % 3 :][:1]:
            try:
                yield (
                    " ".join([policy, *given]),
                    forerun.simulate(forerun.load(path, [f"policy={policy}", *given])),
                )
            except ForerunError:
                continue  # a policy that needs other data, or cannot place a job


@pytest.mark.parametrize("seed", range(CASES // 30 or 1))
def test_no_policy_is_better_than_the_bounds(seed: int, tmp_path: Path) -> None:
    """By the logged ends. Where all jobs end, also the makespan, the largest slowdown and the mean completion time.

    Policies that keep to requests run jobs for their recorded durations, so these have a bound of their own.
    """
    path = drawn_scenario(tmp_path, random.Random(seed))
    best_of, alone_of = {}, {}
    for policy in ("fifo", "ef-accessctrl"):
        scenario = forerun.load(path, [f"policy={policy}"])
        keeps, inputs = scenario.policy.keeps_requests, prepare(scenario)
        world = world_of(inputs, inputs.setting.cluster.gpus)
        alone_of[keeps] = np.array([float(job.alone()) for job in world.jobs])
        best_of[keeps] = {}
        for objective in ("deadlines", "makespan", "mean", "slowdown"):
            *_, best_of[keeps][objective] = bounds(scenario, objective)
            assert keeps or best_of[keeps][objective].certificate is not None
    seen = 0
    for name, result in runs(path):
        jobs, keeps = result.tables["jobs"], result.scenario.policy.keeps_requests
        best, alone_s = best_of[keeps], alone_of[keeps]
        end_s, submit_s = np.asarray(jobs["end_s"], float), np.asarray(jobs["submit_s"], float)
        assert np.count_nonzero(end_s <= jobs["deadline_s"]) <= best["deadlines"].bound, name
        if np.isfinite(end_s).all():
            small = 1 - 1e-9
            assert end_s.max() - submit_s.min() >= best["makespan"].bound * small, name
            assert (end_s - submit_s).mean() >= best["mean"].bound * small, name
            assert ((end_s - submit_s) / alone_s).max() >= best["slowdown"].bound * small, name
        seen += 1
    assert seen > (30 if CASES else 10)


@pytest.mark.parametrize("seed", range(CASES // 30 or 1))
def test_no_policy_is_better_than_the_bounds_for_several_types(seed: int, tmp_path: Path) -> None:
    path = several_types(drawn_scenario(tmp_path, random.Random(seed)))
    scenario = forerun.load(path)
    best = {}
    for objective in ("deadlines", "makespan", "mean"):
        *_, best[objective] = bounds(scenario, objective)
    assert best["deadlines"].certificate is None and best["deadlines"].reached <= best["deadlines"].bound
    seen = 0
    for name, result in runs(path):
        jobs = result.tables["jobs"]
        end_s, submit_s = np.asarray(jobs["end_s"], float), np.asarray(jobs["submit_s"], float)
        assert np.count_nonzero(end_s <= jobs["deadline_s"]) <= best["deadlines"].bound, name
        if np.isfinite(end_s).all():
            small = 1 - 1e-9
            assert end_s.max() - submit_s.min() >= best["makespan"].bound * small, name
            assert (end_s - submit_s).mean() >= best["mean"].bound * small, name
        seen += 1
    assert seen > (5 if CASES else 1)


# --------------------------------------------------------------------------------------------------------- certificates


def mutated(data: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """The certificate with a few numbers changed, fields left out or exchanged."""
    data = copy.deepcopy(data)
    for _ in range(draw.randint(1, 4)):
        what = draw.choice(["price", "work_value", "edges_s", "denominator", "gpus", "field", "first"])
        if what == "price":
            data["price"] = [round(one * draw.choice([0, 0.5, 1, 1.01, 2, 10])) for one in data["price"]]
        elif what == "work_value":
            data["work_value"] = {
                job: [round(one * draw.choice([0, 0.5, 1, 1.01, 2, 10])) for one in worth]
                if isinstance(worth, list)
                else round(worth * draw.choice([0, 0.5, 1, 1.01, 2, 10]))
                for job, worth in data["work_value"].items()
            }
        elif what == "edges_s" and len(data["edges_s"]) > 2:
            at = draw.randrange(len(data["edges_s"]) - 1)
            del data["edges_s"][at], data["price"][min(at, len(data["price"]) - 1)]
        elif what in ("denominator", "gpus"):
            data[what] = round(data[what] * draw.choice([0.1, 0.5, 2, 10]))
        elif what == "field":
            data.pop(draw.choice(sorted(data)), None)
        elif what == "first" and "inputs" in data:
            data["inputs"]["first"] = draw.randint(0, 9)
        if not {"price", "work_value", "edges_s", "denominator", "gpus"} <= data.keys():
            break
    return data


@pytest.mark.parametrize("objective", ["deadlines", "makespan", "mean", "slowdown"])
def test_no_change_of_a_certificate_proves_what_a_schedule_refutes(objective: str, tmp_path: Path) -> None:
    draw = random.Random(1)
    path = drawn_scenario(tmp_path, draw)
    overrides = ["policy=ef-accessctrl", "machines.nodes[0].gpus=4", "machines.nodes[0].count=1"]
    *_, best = bounds(forerun.load(path, overrides), objective)
    assert best.certificate is not None and best.reached is not None
    trace = (tmp_path / "jobs.csv").read_bytes()
    tables = {name: (tmp_path / f"{name}.csv").read_bytes() for name in ("one", "two")}
    good = dict(best.certificate)
    assert checker.check(json.dumps(good).encode(), trace, tables, 4, 0)[0]
    origin = min(job.release for job in checker.read_jobs(trace, tables, 4)) if objective == "makespan" else 0
    reached = best.reached * (best.jobs if objective == "mean" else 1) + origin
    false = str(int(reached) - 1) if objective == "deadlines" else f"{reached * 1.000001 + 0.001:.6f}"
    refused = 0
    for _ in range(CASES or 20):
        content = json.dumps({**mutated(good, draw), "claim": false}).encode()
        try:
            holds, _says = checker.check(content, trace, tables, 4, 0)
        except ValueError:
            refused += 1
            continue
        assert not holds
    assert refused < (CASES or 20), "some changes leave a certificate that can be read"
