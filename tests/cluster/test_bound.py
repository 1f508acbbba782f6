"""Bounds on deadlines met: above every schedule, and near the best one."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.cluster.bound.checker import Job, proves
from forerun.cluster.bound.document import bound_figures
from forerun.cluster.bound.insertion import insert_all
from forerun.cluster.bound.program import Grid, Task, cheapest
from forerun.cluster.bound.schedule import Piece, Schedule
from forerun.cluster.bound.search import (
    DeadlineSearch,
    EndsSearch,
    MakespanSearch,
    MeanSearch,
    SlowdownSearch,
)
from forerun.cluster.bound.world import World, curve_of, world_of
from forerun.cluster.inputs.prepare import prepare
from forerun.core.cli.main import run
from forerun.core.errors import CheckFailed
from forerun.core.planning import bounds
from forerun.core.report.stored import figures_of_document, open_stored

from ..conftest import cases, shared_path
from .conftest import DATA
from .test_bound_checker import SCENARIO, TABLE, Played, drawn_world, world_job


def searched(world: World) -> DeadlineSearch:
    search = DeadlineSearch(world)
    for _ in search.run():
        pass
    return search


# ------------------------------------------------------------------------------------------------------- small worlds


def test_the_bound_of_small_worlds_is_their_linear_program_and_never_below_their_optimum() -> None:
    """opt_grid: the integer program on unit slots. lp: the linear program with every break point, by another solver run."""
    worlds = json.loads(shared_path("golden", "bounds", "worlds_deadlines_0_59.json").read_text())
    apart = 0
    for world in worlds:
        jobs = tuple(world_job(one) for one in world["jobs"])
        search = searched(World(jobs, world["G"]))
        assert world["opt_grid"] <= search.bound == math.floor(world["lp"] + 1e-6), world["seed"]
        assert search.met <= search.bound
        assert search.schedule.met(World(jobs, world["G"])) == search.met
        apart += search.met < world["opt_grid"]
    assert not apart


@pytest.mark.parametrize("seed", [16, 17, 41][: cases(1, 3)])
def test_the_prices_kept_always_prove_the_bound(seed: int) -> None:
    """Also after further steps of the search, which works on with arrays of its own."""
    draw = random.Random(seed)
    jobs = []
    for number in range(40):
        speed = tuple((n, draw.randint(50, 100) * n) for n in (1, 2, 4))
        release = draw.randint(0, 60)
        jobs.append(
            Job(str(number), release, release + draw.randint(3, 25), draw.randint(20, 3000), 1, speed)
        )
    search = DeadlineSearch(World(tuple(jobs), 4))
    for _ in search.run():
        assert proves("deadlines", jobs, *search.proof.exact(4)) == search.claim


@pytest.mark.parametrize("seed", range(20))
def test_the_cheapest_plan_is_that_of_its_linear_program(seed: int) -> None:
    """One job, alone, at random prices: the greedy choice against scipy's solver."""
    linprog = pytest.importorskip("scipy.optimize").linprog
    draw = np.random.default_rng(seed)
    jobs, _gpus = drawn_world(random.Random(seed))
    job = jobs[0]
    edges = np.unique(np.concatenate(([job.release], draw.uniform(job.release, job.release + 80, 7))))
    price = draw.choice([0.0, 0.5, 1.0, 3.0], len(edges) - 1) * draw.uniform(0.5, 1.0, len(edges) - 1)
    start, end = float(edges[0]), float(edges[-1]) - draw.uniform(0, 3)
    speeds = np.array([speed / job.unit for _, speed in job.speed])
    counts = np.array([count for count, _ in job.speed])
    work = float(draw.uniform(0.1, 0.95)) * float(speeds.max()) * (end - start)
    _, inside = Grid(edges).window(start, end)
    shape = (len(inside), len(speeds))
    done = linprog(
        (price[: len(inside), None] * counts).ravel(),
        A_ub=np.kron(np.eye(shape[0]), np.ones(shape[1])),
        b_ub=inside,
        A_eq=[np.tile(speeds, shape[0])],
        b_eq=[work],
    )
    plan = cheapest(Task(curve_of(job.speed, job.unit), work, start, end), Grid(edges), price)
    assert plan.cost == pytest.approx(done.fun, rel=1e-7, abs=1e-7)
    # What an iteration is worth proves that it cannot be cheaper.
    profit = np.maximum(0.0, (plan.worth * speeds - price[: len(inside), None] * counts).max(axis=1))
    assert plan.worth * work - float(inside @ profit) == pytest.approx(plan.cost, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("seed", range(25))
def test_what_is_inserted_is_a_schedule(seed: int) -> None:
    jobs, gpus = drawn_world(random.Random(seed))
    world = World(tuple(jobs), gpus)
    draw = np.random.default_rng(seed)
    until = {row: float(jobs[row].deadline or 0) for row in world.due()}
    made = insert_all(world, np.arange(0.0, 41.0, 4.0), draw.random(10), until, list(until))
    count = len(made.pieces)
    assert made.schedule().met(world) == count
    for count in made.repair(20, len(until), draw):
        assert made.schedule().met(world) == count
    for row in list(made.pieces):
        made.remove(row)
    assert (made.free_gpus.free == gpus).all()


BROKEN = {
    "two counts of one job at once": [Piece(0, 2, 1), Piece(1, 3, 1)],
    "before its submission": [Piece(-1, 2, 1)],
    "a count that is not legal": [Piece(0, 2, 3)],
    "no time at all": [Piece(2, 2, 1)],
}


@pytest.mark.parametrize("pieces", BROKEN.values(), ids=BROKEN)
def test_what_is_no_schedule_is_rejected(pieces: list[Piece]) -> None:
    world = World((Job("a", 0, 9, 10, 1, ((1, 5), (2, 8))), Job("b", 0, 9, 10, 1, ((1, 5), (2, 8)))), 2)
    with pytest.raises(CheckFailed):
        Schedule({0: pieces}).ends(world)


def test_a_schedule_has_no_more_gpus_than_there_are_and_ends_are_exact() -> None:
    world = World((Job("a", 0, 2, 10, 1, ((1, 3), (2, 8))), Job("b", 0, 9, 10, 1, ((1, 5), (2, 8)))), 2)
    one = {0: [Piece(0, 4, 1)], 1: [Piece(0, 4, 1)]}
    assert Schedule(one).ends(world) == {0: Fraction(10, 3), 1: Fraction(2)} and Schedule(one).met(world) == 1
    assert Schedule({0: [Piece(0, 3, 1)]}).ends(world) == {}, "a job that is not done has no end"
    with pytest.raises(CheckFailed, match="uses 3 of 2 GPUs"):
        Schedule({0: [Piece(0, 4, 1)], 1: [Piece(3, 4, 2)]}).met(world)


@pytest.mark.parametrize("seed", range(cases(3, 8)))
@pytest.mark.parametrize("kind", [MakespanSearch, SlowdownSearch])
def test_ends_are_bounded_from_both_sides(kind: Callable[[World], EndsSearch], seed: int) -> None:
    """No random schedule is below the bound, and the schedule is what it says."""
    draw = random.Random(seed)
    jobs, gpus = drawn_world(draw)
    world = World(tuple(jobs), gpus)
    search = kind(world)
    bounds = [search.bound for _ in search.run()]
    assert bounds == sorted(bounds) and search.reached is not None and search.bound <= search.reached
    assert len(search.schedule.ends(world)) == len(jobs)
    assert proves(search.objective, jobs, *search.proof.exact(gpus), search.claim) == search.claim
    begin = min(job.release for job in jobs)
    for one in (Played(jobs, gpus, draw) for _ in range(20)):
        slow = max((one.end[job.id] - job.release) / job.alone() for job in jobs)
        assert search.bound <= (slow if kind is SlowdownSearch else max(one.end.values()) - begin)


@pytest.mark.parametrize("seed", range(cases(3, 8)))
def test_completion_times_are_bounded_from_both_sides(seed: int) -> None:
    draw = random.Random(seed)
    jobs, gpus = drawn_world(draw)
    world = World(tuple(jobs), gpus)
    search = MeanSearch(world)
    for _ in search.run():
        pass
    assert search.reached is not None and search.bound <= search.reached
    assert proves("mean_completion", jobs, *search.proof.exact(gpus)) >= search.claim
    for one in (Played(jobs, gpus, draw) for _ in range(20)):
        assert search.bound * len(jobs) <= sum(one.end[job.id] - job.release for job in jobs)


def test_one_gpu_has_no_gap() -> None:
    jobs = [Job(str(at), 3 * at, None, 70 + 13 * at, 1, ((1, 10),)) for at in range(5)]
    search = MakespanSearch(World(tuple(jobs), 1))
    for _ in search.run():
        pass
    total = Fraction(sum(job.work for job in jobs), 10)
    assert float(search.bound) == pytest.approx(float(total), rel=1e-6)
    assert search.reached is not None and float(search.reached) == pytest.approx(float(total), rel=1e-4)


# ---------------------------------------------------------------------------------------------------------- scenarios


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw = random.Random(3)
    rows = [
        f"{number},{(begin := draw.randint(0, 400))},{draw.randint(200, 4000)},net,{begin + draw.randint(60, 500)},32,1,100"
        for number in range(14)
    ]
    (tmp_path / "jobs.csv").write_text(
        "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n" + "\n".join(rows) + "\n"
    )
    (tmp_path / "net.csv").write_text(TABLE)
    (tmp_path / "s.yaml").write_text(SCENARIO)
    return tmp_path


@pytest.mark.parametrize("policy", ["fifo", "srtf", "edf-accessctrl", "ef-accessctrl"])
def test_no_policy_meets_more_deadlines_than_the_bound(policy: str, folder: Path) -> None:
    """By the logged ends; the policies change nothing but every ten seconds, at no cost, so that they come near it."""
    scenario = forerun.load(folder / "s.yaml", [f"policy={policy}", "slot=10s"])
    *_, best = bounds(scenario)
    jobs = forerun.simulate(scenario).tables["jobs"]
    met = int(np.count_nonzero(jobs["end_s"] <= jobs["deadline_s"]))
    assert 0 < met <= best.bound
    assert best.reached is not None and met <= best.reached, "the schedule knows more than any policy"


@pytest.mark.parametrize("policy", ["fifo", "sjf-area", "chronus", "gandiva", "srtf", "edf-rigid"])
def test_durations_of_the_log_that_are_shorter_than_the_throughput_says_count(
    policy: str, folder: Path
) -> None:
    """Policies that keep to requests run jobs for these durations, so the bound has them, too."""
    draw = random.Random(0)
    jobs = "".join(
        f"{number},{(begin := draw.randint(0, 100))},{draw.randint(200, 2000)},net,{begin + draw.randint(30, 200)},32,"
        f"{draw.choice([1, 1, 2])},{draw.randint(2, 9)}\n"
        for number in range(12)
    )
    log = folder / "jobs.csv"
    log.write_text(log.read_text().splitlines(keepends=True)[0] + jobs)
    scenario = forerun.load(folder / "s.yaml", [f"policy={policy}"])
    *_, best = bounds(scenario)
    table = forerun.simulate(scenario).tables["jobs"]
    met = int(np.count_nonzero(table["end_s"] <= table["deadline_s"]))
    *_, planned = bounds(forerun.load(folder / "s.yaml", ["policy=ef-accessctrl"]))
    assert planned.bound < met <= best.bound, "by the throughput alone so many could not be met"
    assert best.certificate is None and any("recorded durations" in note for note in best.notes)


@pytest.mark.parametrize(
    "overrides",
    [
        ["policy=fifo", "profile=[]"],
        ["policy=fifo", "profile=[{analytic: rigid}]"],
        ["policy=ef-accessctrl", "profile=[{tables: [net.csv], levels: [3]}]", "machines.nodes[0].gpus=4"],
    ],
)
def test_jobs_that_are_more_than_files_have_a_bound_without_a_certificate(
    overrides: list[str], folder: Path
) -> None:
    if "profile=[]" in overrides or "rigid" in overrides[1]:
        text = (folder / "jobs.csv").read_text()
        (folder / "jobs.csv").write_text(re.sub(r",net,(\d+),32,", r",,\1,,", text))
    scenario = forerun.load(folder / "s.yaml", overrides)
    *_, best = bounds(scenario)
    jobs = forerun.simulate(scenario).tables["jobs"]
    assert np.count_nonzero(jobs["end_s"] <= jobs["deadline_s"]) <= best.bound
    assert best.certificate is None and any("no certificate" in note for note in best.notes)


def test_a_log_without_iterations_has_a_bound_without_a_certificate(folder: Path) -> None:
    """Its iterations are what the durations come to, which the checker does not work out."""
    text = re.sub(r"^(\d+,\d+),\d+,", r"\1,,", (folder / "jobs.csv").read_text(), flags=re.MULTILINE)
    (folder / "jobs.csv").write_text(text)
    *_, best = bounds(forerun.load(folder / "s.yaml"))
    assert best.certificate is None and best.jobs == 14 and 0 < best.bound <= 14
    assert any("does not read these files" in note for note in best.notes)


def test_simulated_and_exact_speeds_are_the_same(folder: Path) -> None:
    """The jobs that a certificate is about, and the same as the simulation has them."""
    from forerun.cluster.bound.world import _simulated

    inputs = prepare(forerun.load(folder / "s.yaml"))
    exact = world_of(inputs, 2)
    assert not exact.why_not
    speeds = [{n: Fraction(speed, job.unit) for n, speed in job.speed} for job in exact.jobs]
    again = _simulated(inputs.setting, 2, recorded=False)
    assert [{n: Fraction(speed, job.unit) for n, speed in job.speed} for job in again] == speeds
    assert [job[:4] for job in again] == [job[:4] for job in exact.jobs]


def test_more_gpus_never_lower_the_bound(folder: Path) -> None:
    scenario = forerun.load(folder / "s.yaml", ["trace.first=8"])
    found = [
        (best.reached, best.bound) for *_, best in (bounds(scenario, gpus=gpus) for gpus in (1, 2, 3, 4))
    ]
    assert [bound for _, bound in found] == sorted(bound for _, bound in found)
    assert all(reached is not None and reached <= bound for reached, bound in found)


#: the last, which takes long, where FORERUN_CASES is set
REFERENCE = [
    ("elasticVpollux_e.csv", "T4", (16, 4), 0, 181, 181),
    ("elasticflow_traces/195job.csv", "A100", (4, 8), 25, 23, 23),
    ("elasticVpollux_e.csv", "T4", (2, 4), 0, 111, 115),
][: cases(2, 3)]


@pytest.mark.parametrize(("log", "gpu_type", "nodes", "first", "least", "most"), REFERENCE)
def test_reference_bounds(
    log: str,
    gpu_type: str,
    nodes: tuple[int, int],
    first: int,
    least: int,
    most: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """least: deadlines that a schedule of the reference meets; most: what its prices prove."""
    shared_path("data", "cluster")
    tables = [str(path) for path in sorted((DATA / f"throughputs_{gpu_type}").glob("*.csv"))]
    data = {
        "domain": "cluster",
        "trace": {"file": str(DATA / log), "first": first},
        "machines": {"nodes": [{"count": nodes[0], "gpus": nodes[1]}]},
        "profile": [{"tables": tables}],
    }
    path = tmp_path / "s.json"
    path.write_text(json.dumps(data))
    certificate = tmp_path / "proof.json"
    assert run(["bound", str(path), "--certificate", str(certificate), "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["brackets"][0]
    assert least <= best["reached"] <= best["bound"] == most
    assert json.loads(certificate.read_text())["claim"] == str(most)
    assert run(["check", str(certificate), "--scenario", str(path)]) == 0


@pytest.mark.parametrize(
    ("objective", "figure", "gpus"),
    [
        ("makespan", "makespan_s", 4),
        ("slowdown", "largest_slowdown", 32),
        ("makespan", "makespan_s", 32),
        ("slowdown", "largest_slowdown", 4),
    ][: cases(2, 4)],
)
def test_reference_bounds_of_ends(objective: str, figure: str, gpus: int, tmp_path: Path) -> None:
    """The prices that are found prove what the reference's prove, or more, or hardly less."""
    shared_path("data", "cluster")
    names = {"makespan": "makespan", "slowdown": "max_slowdown"}
    known = json.loads(
        shared_path("golden", "bounds", f"6a_g{gpus}.{names[objective]}.cert.json").read_text()
    )
    tables = [str(path) for path in sorted((DATA / "throughputs_A100").glob("*.csv"))]
    data = {
        "domain": "cluster",
        "trace": {"file": str(DATA / "head25_of_195.csv")},
        "machines": {"nodes": [{"count": 1, "gpus": gpus}]},
        "profile": [{"tables": tables}],
    }
    path = tmp_path / "s.json"
    path.write_text(json.dumps(data))
    *_, best = bounds(forerun.load(path), objective)
    assert best.figure == figure and best.certificate is not None and best.reached is not None
    assert float(Fraction(best.certificate["claim"])) >= float(Fraction(known["claim"])) * (1 - 1e-6)
    assert best.bound <= best.reached < 1.05 * best.bound
    proof = tmp_path / "proof.json"
    proof.write_text(json.dumps(best.certificate))
    assert "verified in exact arithmetic" in forerun.check(proof, scenario=forerun.load(path))


def test_the_reference_bound_of_completion_times(tmp_path: Path) -> None:
    known = json.loads(shared_path("golden", "bounds", "fig6a_g32.mean.cert.json").read_text())
    shared_path("data", "cluster")
    data = {
        "domain": "cluster",
        "trace": {"file": str(DATA / "elasticflow_traces" / "195job.csv"), "first": 25},
        "machines": {"nodes": [{"count": 4, "gpus": 8}]},
        "profile": [{"tables": [str(path) for path in sorted((DATA / "throughputs_A100").glob("*.csv"))]}],
    }
    path = tmp_path / "s.json"
    path.write_text(json.dumps(data))
    *_, best = bounds(forerun.load(path), "mean")
    assert best.certificate is not None and best.reached is not None
    assert float(Fraction(best.certificate["claim"])) > 1.2 * float(known["claim"])
    assert 8_700 <= best.bound <= best.reached < 10_070, "the reference's best bound and schedule"
    proof = tmp_path / "proof.json"
    proof.write_text(json.dumps(best.certificate))
    assert "verified in exact arithmetic" in forerun.check(proof, scenario=forerun.load(path))


# -------------------------------------------------------------------------------------------------------- command line


def test_the_command_prints_both_sides(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(folder / "s.yaml")
    proof = folder / "proof.json"
    assert run(["bound", path, "--certificate", str(proof)]) == 0
    printed = capsys.readouterr().out
    assert (
        "a schedule reaches" in printed
        and "no scheduler, whatever it knows beforehand, meets more than" in printed
    )
    assert run(["check", str(proof), "--scenario", path]) == 0
    capsys.readouterr()
    assert run(["bound", path, "--gpus", "1,2", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [one["gpus"] for one in data["brackets"]] == [1, 2] and data["complete"]
    two = data["brackets"][1]
    assert two["bound"] == float(json.loads(proof.read_text())["claim"])
    assert {row["job"] for row in two["schedule"]} and all(row["gpus"] in (1, 2) for row in two["schedule"])


def test_bounds_are_saved_and_drawn(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prices are what the bound gains by a GPU-hour, and the figures show what the schedule and the prices are."""
    path, out, page = folder / "s.yaml", folder / "b.json", folder / "b.html"
    assert run(["bound", str(path), "--gpus", "1,2", "-o", str(out), "--report", str(page)]) == 0
    assert f"saved to {out}" in capsys.readouterr().out
    content = json.loads(out.read_text())
    one = content["brackets"][0]
    figures = {figure.id: figure for figure in figures_of_document(open_stored(out))}  # type: ignore[arg-type]
    assert set(figures) == {"gpu-prices", "schedule-gpus", "bounds-by-gpus"}
    used = figures["schedule-gpus"].data
    gpu_s = float(np.diff(used["time_s"]) @ np.asarray(used["used"])[:-1])
    assert gpu_s == pytest.approx(
        sum(row["gpus"] * (row["end_s"] - row["start_s"]) for row in one["schedule"])
    )
    assert max(used["used"]) <= one["gpus"] and used["used"][-1] == 0
    prices = figures["gpu-prices"].data
    assert (min(prices["time_s"]), max(prices["time_s"])) == (min(used["time_s"]), max(used["time_s"]))
    # The bound is what all GPU time costs at these prices, and what jobs are worth beyond what they pay.
    paid = sum((row["end_s"] - row["start_s"]) * row["price"] / 3600 for row in one["prices"])
    assert 0 < paid < one["bound"] + 1
    capacity = figures["bounds-by-gpus"].data
    assert list(capacity["value"]) == [
        row[side] for side in ("reached", "bound") for row in content["brackets"]
    ]
    assert "What a GPU-hour is worth" in page.read_text()
    assert run(["report", str(out), "-o", str(folder / "again.html")]) == 0
    assert (folder / "again.html").read_text() == page.read_text()
    del content["brackets"][0]["gpus"]
    out.write_text(json.dumps(content))
    capsys.readouterr()
    assert run(["report", str(out), "-o", str(folder / "again.html")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("objective", ["mean", "makespan", "slowdown"])
def test_bounds_of_times_are_drawn(objective: str, folder: Path) -> None:
    *_, best = bounds(forerun.load(folder / "s.yaml", ["trace.first=4"]), objective)
    drawn = {figure.id for figure in bound_figures([best.data()])}
    assert drawn == ({"gpu-prices", "schedule-gpus"} if objective == "mean" else {"schedule-gpus"})


def test_an_interrupt_prints_the_best_so_far(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import forerun.core.planning as planning

    def interrupted(scenario: Any, objective: str = "", *, gpus: int = 0) -> Iterator[Any]:
        found = bounds(scenario, objective, gpus=gpus)
        yield next(found)
        yield next(found)
        raise KeyboardInterrupt

    monkeypatch.setattr(planning, "bounds", interrupted)
    assert run(["bound", str(folder / "s.yaml"), "--json"]) == 130
    data = json.loads(capsys.readouterr().out)
    assert not data["complete"] and data["brackets"][0]["reached"] <= data["brackets"][0]["bound"]
    assert run(["bound", str(folder / "s.yaml"), "-q"]) == 130
    assert "interrupted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--objective", "joy"], "no objective named 'joy'"),
        (["--gpus", "0"], "no list of GPU counts"),
        (["--gpus", "8,,9"], "no list of GPU counts"),
        (["--gpus", "1", "--certificate", "x.json"], "leave --gpus out"),
        (["--set", "trace.slack=2", "--certificate", "x.json"], "deadlines are random"),
        (
            [
                "--gpus",
                "2",
                "--set",
                "machines.nodes=[{count: 1, gpus: 2, gpu_type: a}, {count: 1, gpus: 2, gpu_type: b}]",
            ],
            "several types",
        ),
    ],
)
def test_what_cannot_be_bounded_is_one_line(
    words: list[str], says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bound", str(folder / "s.yaml"), "-q", *words]) == 2
    printed = capsys.readouterr()
    assert says in printed.err and "Traceback" not in printed.err
    assert not printed.out


def test_other_domains_have_no_bounds() -> None:
    with pytest.raises(forerun.ForerunError, match="no bounds"):
        bounds(forerun.load(forerun.demo("energy").scenario))
