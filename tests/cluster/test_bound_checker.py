"""The checker of certified bounds: what it proves is true, and what it cannot check it refuses."""

from __future__ import annotations

import ast
import io
import json
import random
import subprocess
import sys
import tokenize
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.cluster.bound import checker
from forerun.cluster.bound.checker import Job, Prices, proves
from forerun.core.cli.main import run

from ..conftest import cases, shared_path
from .conftest import DATA

JOBS = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n"
LOG = JOBS + "a,0,100,net,10,32,1,10\nb,0,100,net,10,32,1,10\n7,5,30,net,8,32,1,3\n"
TABLE = "global_batch_size,1,2,4\n32,10,15.5,\n64,5,nan,0\n"
SCENARIO = """domain: cluster
trace: jobs.csv
machines: {nodes: [{count: 1, gpus: 2}]}
profile: [{tables: [net.csv]}]
policy: ef-accessctrl
"""


# --------------------------------------------------------------------------------- what it proves, against schedules


class Played:
    """A random schedule in unit slots: every slot some jobs, each on one of its counts, while GPUs are left."""

    def __init__(self, jobs: list[Job], gpus: int, draw: random.Random) -> None:
        left = {job.id: Fraction(job.work) for job in jobs}
        self.end: dict[str, Fraction] = {}
        order, now = draw.sample(jobs, len(jobs)), 0
        while len(self.end) < len(jobs):
            free = gpus
            for job in order if draw.random() < 0.8 else draw.sample(order, len(order)):
                counts = [one for one in job.speed if one[0] <= free]
                if job.id in self.end or job.release > now or not counts:
                    continue
                count, speed = max(counts) if draw.random() < 0.7 else draw.choice(counts)
                free -= count
                needs = left[job.id] * job.unit / speed
                left[job.id] -= Fraction(speed, job.unit)
                if needs <= 1:
                    self.end[job.id] = now + needs
            now += 1


def drawn_world(draw: random.Random) -> tuple[list[Job], int]:
    gpus = draw.randint(1, 8)
    counts = [count for count in (1, 2, 3, 4, 8) if count <= gpus]
    jobs = []
    for number in range(draw.randint(2, 6)):
        speed = tuple(
            (n, draw.randint(50, 600)) for n in sorted(draw.sample(counts, draw.randint(1, len(counts))))
        )
        release = draw.randint(0, 10)
        jobs.append(
            Job(
                str(number),
                release,
                release + draw.randint(1, 9),
                draw.randint(20, 3000),
                draw.choice([1, 7]),
                speed,
            )
        )
    return jobs, gpus


def drawn_prices(jobs: list[Job], gpus: int, draw: random.Random, worth: float) -> tuple[Prices, list[int]]:
    """Prices like those that a program for these jobs would give, or worse.

    worth: of a whole job, about.
    """
    edges = sorted(draw.sample(range(60), draw.randint(2, 8)))
    denominator = 10**9
    scale = worth * denominator / 40 / gpus * draw.choice([0.1, 1, 4])
    price = (0, *(int(draw.random() * scale) for _ in edges[1:]), 0)
    return Prices(gpus, denominator, tuple(edges), price), [
        int(draw.random() * 2 * worth * denominator / job.work) for job in jobs
    ]


@pytest.mark.parametrize("seed", range(cases(20)))
def test_no_prices_prove_what_a_schedule_refutes(seed: int) -> None:
    draw = random.Random(seed)
    jobs, gpus = drawn_world(draw)
    schedules = [Played(jobs, gpus, draw) for _ in range(8)]
    met = max(sum(one.end[job.id] <= (job.deadline or 0) for job in jobs) for one in schedules)
    flow = min(sum(one.end[job.id] - job.release for job in jobs) for one in schedules)
    last = min(max(one.end.values()) for one in schedules)
    slow = min(max((one.end[job.id] - job.release) / job.alone() for job in jobs) for one in schedules)
    little = Fraction(1, 10**6)
    for _ in range(15):
        prices, worth = drawn_prices(jobs, gpus, draw, 1.0)
        assert proves("deadlines", jobs, prices, worth) >= met
        assert not proves("makespan", jobs, prices, worth, last + little)
        assert not proves("max_slowdown", jobs, prices, worth, slow + little)
        # The worth of work in money of one second each, and as instants, which both have their bound.
        for about in (float(flow) / len(jobs), 30.0):
            prices, worth = drawn_prices(jobs, gpus, draw, about)
            assert proves("mean_completion", jobs, prices, worth) <= flow
            several = [[one, one // 2, one // 5] for one in worth]
            assert proves("mean_completion", jobs, prices, several) <= flow


def test_no_prices_prove_less_than_the_optimum_of_the_small_worlds() -> None:
    worlds = json.loads(shared_path("golden", "bounds", "worlds_deadlines_0_59.json").read_text())
    draw = random.Random(5)
    for world in worlds:
        jobs = [world_job(one) for one in world["jobs"]]
        for _ in range(20):
            prices, worth = drawn_prices(jobs, world["G"], draw, draw.choice([0.3, 1.0, 3.0]))
            assert proves("deadlines", jobs, prices, worth) >= world["opt_grid"]


def world_job(one: dict[str, Any]) -> Job:
    return Job(
        one["id"], one["r"], one["d"], one["W"], 1, tuple((int(n), int(s)) for n, s in one["rates"].items())
    )


def test_prices_prove_what_can_be_seen() -> None:
    """Two jobs of 10 s on the only GPU, due at 10 s: one is met, the last ends at 20 s, completion times sum to 30 s."""
    jobs = [Job(name, 0, 10, 100, 1, ((1, 10),)) for name in "ab"]
    assert proves("deadlines", jobs, Prices(1, 100, (0, 10), (0, 0, 0)), [0, 0]) == 2
    # A deadline is worth 1, an iteration 1 / 100, and the GPU costs what it earns: 1 for the ten seconds.
    assert proves("deadlines", jobs, Prices(1, 100, (0, 10), (0, 10, 0)), [1, 1]) == 1
    # Both jobs pay 1 each, which is more than all the time until then costs.
    almost = Fraction(1999, 100)
    assert proves("makespan", jobs, Prices(1, 100, (0, almost), (0, 10, 0)), [1, 1], almost) == almost
    assert not proves("makespan", jobs, Prices(1, 100, (0, almost), (0, 10, 0)), [1, 1], Fraction(20))
    assert (
        proves("max_slowdown", jobs, Prices(1, 100, (0, almost), (0, 10, 0)), [1, 1], almost / 10)
        == almost / 10
    )
    # A second of the first ten costs as much as waiting for one: each job costs 20, whenever it ends.
    assert proves("mean_completion", jobs, Prices(1, 10, (0, 10), (0, 10, 0)), [[1], [1]]) == 30
    # A second costs less and less, as does every iteration that waits for it: no second is worth its price.
    falling = Prices(1, 100, tuple(range(21)), (0, *(200 - 10 * at for at in range(20)), 0))
    assert 28 < proves("mean_completion", jobs, falling, [20, 20]) <= 30


# --------------------------------------------------------------------------------------------------- published certificates

GOLDEN = [
    ("6a_g32.makespan", "head25_of_195.csv", "A100", 32, 0, "1"),
    ("6a_g32.max_slowdown", "head25_of_195.csv", "A100", 32, 0, "1/100"),
    ("6a_g4.makespan", "head25_of_195.csv", "A100", 4, 0, "1"),
    ("6a_g4.max_slowdown", "head25_of_195.csv", "A100", 4, 0, "1/100"),
    ("fig6a_g32", "elasticflow_traces/195job.csv", "A100", 32, 25, "-1"),
    ("fig6a_g32.mean", "elasticflow_traces/195job.csv", "A100", 32, 25, "100"),
    ("fig8a_g32", "elasticVpollux_e.csv", "T4", 32, 0, "-1"),
    ("fig8a_g64", "elasticVpollux_e.csv", "T4", 64, 0, "-1"),
    ("fig8a_g64.mean", "elasticVpollux_e.csv", "T4", 64, 0, "1000"),
]


@pytest.mark.parametrize(
    ("name", "log", "gpu_type", "gpus", "first", "more"), GOLDEN, ids=[one[0] for one in GOLDEN]
)
def test_reference_certificates_hold_and_no_bolder_claim_does(
    name: str, log: str, gpu_type: str, gpus: int, first: int, more: str
) -> None:
    """more: what the claim can be sharpened by before its prices no longer prove it."""
    content = shared_path("golden", "bounds", f"{name}.cert.json").read_bytes()
    shared_path("data", "cluster")
    trace = (DATA / log).read_bytes()
    tables = {path.stem: path.read_bytes() for path in (DATA / f"throughputs_{gpu_type}").glob("*.csv")}
    holds, says = checker.check(content, trace, tables, gpus, first)
    assert holds and f"{gpus} GPUs" in says
    data = json.loads(content)
    bolder = Fraction(data["claim"]) + Fraction(more)
    assert (
        checker.check(json.dumps({**data, "claim": str(bolder)}).encode(), trace, tables, gpus, first)[0]
        is False
    )
    if any(data["price"]):
        # Without the prices nothing is proved, nor with free GPUs at twice the worth of work.
        cheap = {**data, "price": [0] * len(data["price"])}
        assert checker.check(json.dumps(cheap).encode(), trace, tables, gpus, first)[0] is False
    with pytest.raises(ValueError, match="is about"):
        checker.check(content, trace, tables, gpus, first + 1)
    with pytest.raises(ValueError, match="is about"):
        checker.check(content, trace, tables, gpus + 1, first)
    with pytest.raises(ValueError, match="is about"):
        checker.check(content, trace, {name: tables[name] for name in list(tables)[1:]}, gpus, first)


@pytest.mark.parametrize(("gpus", "most"), [(36, 173), (40, 176), (44, 178), (48, 181), (32, 171)])
def test_one_certificate_proves_something_for_every_number_of_gpus(gpus: int, most: int) -> None:
    """The published numbers of figure 8(a), all by the prices of the certificate for 32 GPUs."""
    c = checker.certificate(shared_path("golden", "bounds", "fig8a_g32.cert.json").read_bytes())
    shared_path("data", "cluster")
    tables = {path.stem: path.read_bytes() for path in (DATA / "throughputs_T4").glob("*.csv")}
    jobs = checker.read_jobs((DATA / "elasticVpollux_e.csv").read_bytes(), tables, gpus)
    prices = Prices(gpus, c["denominator"], c["edges_s"], (0, *c["price"], 0))
    assert proves("deadlines", jobs, prices, [c["work_value"].get(job.id, 0) for job in jobs]) == most


# ------------------------------------------------------------------------------------------------ what it refuses


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.csv").write_text(LOG)
    (tmp_path / "net.csv").write_text(TABLE)
    (tmp_path / "s.yaml").write_text(SCENARIO)
    return tmp_path


def certificate(folder: Path, **changes: Any) -> dict[str, Any]:
    import hashlib

    digest = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("jobs.csv", "net.csv")
    }
    inputs = {"trace_sha256": digest["jobs.csv"], "profile_sha256": {"net": digest["net.csv"]}}
    return {
        "format": "forerun-bound/1", "objective": "deadlines", "claim": "3", "gpus": 2, "denominator": 100,
        "edges_s": ["0", "10.5"], "price": [1], "work_value": {"a": 1, "7": 2}, "inputs": inputs, **changes,
    }  # fmt: skip


def test_a_certificate_of_small_files_is_checked_by_the_command_and_by_the_file_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "c.json"
    script = [sys.executable, str(Path(checker.__file__))]
    for claim, code in (("3", 0), ("2", 4)):
        path.write_text(json.dumps(certificate(folder, claim=claim)))
        assert run(["check", str(path), "--scenario", str(folder / "s.yaml")]) == code
        alone = subprocess.run(
            [*script, path, "2", "0", folder / "jobs.csv", folder / "net.csv"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert alone.returncode == code
    printed = capsys.readouterr()
    assert "no schedule meets more than 3 deadlines (3 jobs, 2 GPUs); assumed: " in printed.out
    assert printed.err.count("\n") == 1
    alone = subprocess.run([*script, path, "2", "0"], capture_output=True, text=True, check=False)
    assert alone.returncode == 2 and alone.stderr.count("\n") == 1


def test_a_certificate_says_something_about_other_numbers_of_gpus(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, scenario = folder / "c.json", str(folder / "s.yaml")
    path.write_text(
        json.dumps(
            certificate(
                folder, gpus=1, claim="2", price=[10], edges_s=["0", "10"], work_value={"a": 1, "b": 1}
            )
        )
    )
    assert run(["check", str(path), "--scenario", scenario]) == 2
    assert "is about 1 GPUs; the scenario has 2 (--gpus N" in capsys.readouterr().err
    assert run(["check", str(path), "--scenario", scenario, "--gpus", "2,3"]) == 0
    printed = capsys.readouterr().out
    for most, gpus in ((2, 1), (3, 2), (3, 3)):
        assert f"more than {most} deadlines (3 jobs, {gpus} GPUs)" in printed
    path.write_text(
        json.dumps(
            certificate(
                folder, gpus=1, claim="1", price=[10], edges_s=["0", "10"], work_value={"a": 1, "b": 1}
            )
        )
    )
    assert run(["check", str(path), "--scenario", scenario, "--gpus", "2"]) == 4, "its own claim comes first"
    assert run(["check", scenario, "--gpus", "2"]) == 2


def test_the_checker_is_short_and_needs_nothing_but_python() -> None:
    source = Path(checker.__file__).read_text()
    tree, code = ast.parse(source), set[int]()
    nothing = (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    )
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in nothing:
            code |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            code -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
            assert {str(name).split(".")[0] for name in names} <= sys.stdlib_module_names
    assert len(code) <= 150


def raw(change: Any) -> Any:
    """A change of the certificate's text instead of one of its fields."""
    return change


REFUSED: dict[str, Any] = {
    "unknown job": {"work_value": {"nobody": 1}},
    "negative worth": {"work_value": {"a": -1}},
    "fractional worth": {"work_value": {"a": 0.5}},
    "several worths of a deadline": {"work_value": {"a": [1, 2]}},
    "no worths of a completion time": {"objective": "mean_completion", "work_value": {"a": [], "b": 1, "7": 1}},
    "true as a worth": {"work_value": {"a": True}},
    "negative price": {"price": [-1]},
    "true as a price": {"price": [True]},
    "text as a price": {"price": ["1"]},
    "float as a price": {"price": [1.0]},
    "null as a price": {"price": [None]},
    "prices as an object": {"price": {"0": 1}},
    "enormous price": {"price": [10**50]},
    "equal edges": {"edges_s": ["5", "5.0"]},
    "falling edges": {"edges_s": ["9", "5"]},
    "too many edges": {"edges_s": ["1", "2", "3"]},
    "no edges": {"edges_s": [], "price": []},
    "numbers as edges": {"edges_s": [0, 10]},
    "exponent in an edge": {"edges_s": ["0", "1e999999999"]},
    "edge over zero": {"edges_s": ["0", "1/0"]},
    "float as GPUs": {"gpus": 2.0},
    "true as GPUs": {"gpus": True},
    "other GPUs": {"gpus": 4},
    "zero denominator": {"denominator": 0},
    "number as a claim": {"claim": 3},
    "words as a claim": {"claim": "three"},
    "unknown objective": {"objective": "joy"},
    "unknown field": {"note": "x"},
    "no digests": {"inputs": {}},
    "other log": {"inputs": {"trace_sha256": "0" * 64, "profile_sha256": {}}},
    "table that is not there": None,
    "jobs that have no price in a mean": {"objective": "mean_completion", "claim": "0"},
    "only the first jobs": "first",
    "values": {"value": {"a": 2}},
    "slip": {"slip_s": "5"},
    "other format": {"format": "forerun-bound/2"},
    "truncated": raw(lambda text: text[: len(text) // 2]),
    "a field twice": raw(lambda text: text.replace('"gpus": 2', '"gpus": 3, "gpus": 2')),
    "not a number": raw(lambda text: text.replace('"price": [1]', '"price": [NaN]')),
    "deep": raw(lambda text: text.replace('"price": [1]', '"price": ' + "[" * 100_000 + "]" * 100_000)),
    "digits without end": raw(lambda text: text.replace('"price": [1]', '"price": [' + "1" * 50_000 + "]")),
    "no UTF-8": raw(lambda text: text.replace("deadlines", "deadlin\udcff")),
    "large": raw(lambda text: text + " " * (100 << 20)),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_checked_is_refused_in_one_line(
    what: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change = REFUSED[what]
    good = certificate(folder)
    if change is None:
        change = {
            "inputs": {
                **good["inputs"],
                "profile_sha256": {**good["inputs"]["profile_sha256"], "bert": "0" * 64},
            }
        }
    elif change == "first":
        change = {"inputs": {**good["inputs"], "first": 2}}
    text = change(json.dumps(good)) if callable(change) else json.dumps({**good, **change})
    path = folder / "c.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert run(["check", str(path), "--scenario", str(folder / "s.yaml")]) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1 and not printed.out and len(printed.err) < 500, printed.err


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("trace.slack=2", "deadlines are random"),
        ("profile[0].levels=[3]", "not that of tables alone"),
        ("trace.larger=drop", "leaves out jobs"),
        ("trace.format=sacct", "another format"),
    ],
)
def test_a_scenario_that_is_more_than_its_files_has_no_certificates(
    folder: Path, override: str, says: str
) -> None:
    path = folder / "c.json"
    path.write_text(json.dumps(certificate(folder)))
    scenario = forerun.load(folder / "s.yaml", [override])
    with pytest.raises(forerun.ForerunError, match=says):
        forerun.check(path, scenario=scenario)


def test_a_certificate_needs_a_scenario_of_a_domain_with_bounds(folder: Path) -> None:
    path = folder / "c.json"
    path.write_text(json.dumps(certificate(folder)))
    with pytest.raises(forerun.ForerunError, match="give the scenario"):
        forerun.check(path)
    with pytest.raises(forerun.ForerunError, match="no bounds"):
        forerun.check(path, scenario=forerun.load(forerun.demo("energy").scenario))


def test_jobs_are_read_as_a_simulation_reads_them(folder: Path) -> None:
    from forerun.cluster.inputs.prepare import prepare

    (folder / "jobs.csv").write_text(
        LOG + "late,9,5,net,3,32,1,1\nnone,0,5,net,,64,1,1\n008,2,5,net,9,64,1,0\n"
    )
    setting = prepare(forerun.load(folder / "s.yaml")).setting
    assert setting.profile is not None
    jobs = checker.read_jobs((folder / "jobs.csv").read_bytes(), {"net": TABLE.encode()}, 2)
    ours = [(one.id, one.release, one.deadline, one.work) for one in jobs]
    columns = (setting.jobs.id, setting.jobs.submit_s, setting.jobs.deadline_s, setting.jobs.iterations)
    theirs = [(str(a), int(b), int(c), int(d)) for a, b, c, d in zip(*columns)]
    assert ours == [(a, b, c if c < 1 << 60 else None, d) for a, b, c, d in theirs]
    for job, kind in zip(jobs, setting.jobs.kind.tolist()):
        known = {
            int(n): rate
            for n, rate in zip(setting.profile.levels, setting.profile.rate[kind])
            if n <= 2 and rate > 0
        }
        assert {n: speed / job.unit for n, speed in job.speed} == known
