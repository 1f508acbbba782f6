"""Plans of nodes: the fewest that do, by brute force; what no scheduler can do with fewer; and checks of plan files."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.cluster.figures import plan_figures
from forerun.cluster.plan import ClusterPlan, plan, wanted
from forerun.cluster.scenario import Scenario
from forerun.core.cli.main import run
from forerun.core.errors import CheckFailed, Infeasible, InputError
from forerun.core.planning import check_document
from forerun.core.result.plan import document

from ..conftest import cases

JOBS = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n"
TABLE = "global_batch_size,1,2,4\n32,10,15.5,22\n"
SCENARIO = """domain: cluster
trace: jobs.csv
machines: {nodes: [{count: 2, gpus: 1}]}
profile: [{tables: [net.csv]}]
policy: edf-accessctrl
slot: 1s
"""


def rows(seed: int) -> str:
    draw = random.Random(seed)
    return "".join(
        f"{number},{(begin := draw.randint(0, 100))},{draw.randint(200, 2000)},net,{begin + draw.randint(30, 200)},32,"
        f"{draw.choice([1, 1, 2, 4])},9\n"
        for number in range(10)
    )


def ten_jobs(folder: Path, seed: int, *overrides: str) -> Scenario:
    """A scenario of ten random jobs with deadlines."""
    (folder / "jobs.csv").write_text(JOBS + rows(seed))
    (folder / "net.csv").write_text(TABLE)
    (folder / "s.yaml").write_text(SCENARIO)
    loaded = forerun.load(folder / "s.yaml", overrides)
    assert isinstance(loaded, Scenario)
    return loaded


@pytest.fixture
def scenario_of(tmp_path: Path) -> Callable[..., Scenario]:
    """Makes such a scenario in a folder of the test's own."""
    return partial(ten_jobs, tmp_path)


def met_on(scenario: Scenario, nodes: int) -> int:
    """Deadlines met by the logged ends; jobs that ask for more than there is are not simulated."""
    try:
        result = forerun.simulate(
            scenario.with_(
                machines=scenario.machines.with_(nodes=(scenario.machines.nodes[0].with_(count=nodes),))
            )
        )
    except forerun.ForerunError:
        return -1
    jobs = result.tables["jobs"]
    return int((jobs["end_s"] <= jobs["deadline_s"]).sum())


@pytest.mark.parametrize(
    ("policy", "seed", "monotone"),
    [("edf-accessctrl", 3, False), ("ef-accessctrl", 13, False), ("srtf", 13, True)]
    + [("edf-accessctrl", 0, False), ("ef-accessctrl", 0, True)] * bool(cases(0)),
)
def test_the_fewest_nodes_are_those_of_brute_force(
    policy: str, seed: int, monotone: bool, scenario_of: Callable[..., Scenario]
) -> None:
    """Under policies, too, that meet fewer deadlines with more nodes: no count is skipped because of its neighbours."""
    scenario = scenario_of(seed, f"policy={policy}")
    met = [met_on(scenario, nodes) for nodes in range(1, 9)]
    assert (sorted(met) == met) == monotone
    for share in (0.2, 0.45, 0.7):
        need = wanted(share, 10)
        fewest = next((nodes for nodes, many in enumerate(met, 1) if many >= need), None)
        if fewest is None:
            with pytest.raises(Infeasible, match=rf"{policy} meets {max(met)} at most"):
                plan(scenario, share=share)
            continue
        made = plan(scenario, share=share).check()
        assert made.chosen == fewest and made.wanted == need and made.summary["deadlines_met"] >= need
        for one in made.counts:
            assert one.met is None or one.met == met[one.nodes - 1]
            assert one.bound is None or (one.reached or 0) <= one.bound
            assert one.bound is None or one.met is None or one.met <= one.bound
        assert all(many < need for many in met[: made.least - 1]), "below the bound no policy does"


def test_a_plan_says_where_more_nodes_meet_less(scenario_of: Callable[..., Scenario]) -> None:
    scenario = scenario_of(13, "policy=ef-accessctrl")
    assert [met_on(scenario, nodes) for nodes in (3, 4, 5)] == [5, 6, 4]
    made = plan(scenario, share=0.6)
    assert made.chosen == 4 and any(
        "misses the share again with more nodes: 4 on 5" in note for note in made.notes
    )


def test_what_binds_is_named(scenario_of: Callable[..., Scenario], tmp_path: Path) -> None:
    scenario = scenario_of(0)
    with pytest.raises(
        Infeasible, match=r"edf-accessctrl meets 1 at most, on 1 node, tried on 1;.* no bound forbids"
    ):
        plan(scenario, share=0.2, most_nodes=1)
    with pytest.raises(
        Infeasible, match=r"90 % of 10 deadlines are 9; on 1 node no scheduler meets more than \d"
    ):
        plan(scenario, share=0.9, most_nodes=1)
    (tmp_path / "jobs.csv").write_text(JOBS + "a,0,2000,net,10,32,1,9\nb,0,20,net,10,32,1,9\n")
    with pytest.raises(Infeasible, match="no scheduler meets more than 1"):
        plan(scenario)


def test_money_and_gpu_time(scenario_of: Callable[..., Scenario]) -> None:
    free = plan(scenario_of(0), share=0.2)
    assert "cost_usd" not in free.summary and "cost_usd" not in free.tables["counts"].columns
    made = plan(scenario_of(0, "bill={idle_w: 0, busy_w: 1, gpu_usd_per_h: 3.0}"), share=0.2)
    assert made.chosen == free.chosen
    assert made.summary["cost_usd"] == pytest.approx(3.0 * made.summary["cluster_gpu_h"])
    run_of = forerun.simulate(scenario_of(0, f"machines.nodes[0].count={made.chosen}"))
    assert made.summary["cluster_gpu_h"] == pytest.approx(made.chosen * run_of.summary["horizon_s"] / 3600)


def test_one_of_several_groups(scenario_of: Callable[..., Scenario]) -> None:
    two = "machines.nodes=[{name: old, count: 1, gpus: 1}, {name: new, count: 1, gpus: 2}]"
    with pytest.raises(InputError, match="the published schedules know one kind of node"):
        plan(scenario_of(1, two), share=0.3, group="new")
    scenario = scenario_of(1, two, "policy=srtf")
    with pytest.raises(
        forerun.ForerunError, match="several groups of nodes; name the one to plan; known: old, new"
    ):
        plan(scenario)
    made = plan(scenario, share=0.3, group="new")
    assert made.summary["gpus"] == 1 + 2 * made.chosen and "of new (" in made.why


def test_jobs_too_large_for_few_nodes_count_all_the_same(scenario_of: Callable[..., Scenario]) -> None:
    scenario = scenario_of(0, "policy=fifo")
    made = plan(scenario, share=0.2)
    assert made.least == 4 and "on fewer than 4 not all jobs can run" in made.why
    assert "asks for 4 GPUs" in made.why and made.counts[0].bound is None
    assert "not all jobs can run" in ClusterPlan.check(made).why
    dropped = plan(scenario.with_(trace=scenario.trace.with_(larger="drop")), share=0.2)
    assert dropped.deadlines == 10 and dropped.chosen <= made.chosen


# ---------------------------------------------------------------------------------------------------------- plan files


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> str:
    scenario = ten_jobs(tmp_path_factory.mktemp("planned"), 13, "policy=ef-accessctrl")
    made = plan(scenario, share=0.6)
    assert made.certificate and made.least < made.chosen
    return json.dumps(document(made, scenario, "", {"share": 0.6}))


@pytest.fixture
def saved(planned: str) -> dict[str, Any]:
    """A plan's content, to be changed."""
    content: dict[str, Any] = json.loads(planned)
    return content


def test_a_plan_file_is_verified_without_planning_again(saved: dict[str, Any]) -> None:
    says = check_document(saved)
    assert (
        "simulated again, 6 of 10 deadlines are met on 4 nodes" in says
        and "verified in exact arithmetic" in says
    )
    (drawn,) = plan_figures(saved["plan"])
    curves: dict[str, dict[int, int]] = {}
    for by, nodes, deadlines in zip(drawn.data["by"], drawn.data["nodes"], drawn.data["deadlines"]):
        curves.setdefault(by, {})[int(nodes)] = int(deadlines)
    assert curves["the policy"][4] == 6 and set(curves["wanted"].values()) == {6}
    above = curves["no scheduler more"]
    assert above.keys() == curves["some schedule"].keys() >= curves["the policy"].keys()
    assert all(met <= above[nodes] for nodes, met in (curves["some schedule"] | curves["the policy"]).items())
    del saved["plan"]["certificate"]
    assert "bounded again" in check_document(saved), "without a certificate the bound is searched again"


def _later(plan: dict[str, Any]) -> None:
    plan["summary"]["least_nodes_by_bound"] += 1


def _fewer(plan: dict[str, Any]) -> None:
    plan["summary"]["nodes"] -= 1


def _met(plan: dict[str, Any]) -> None:
    next(row for row in plan["counts"] if row["nodes"] == 3)["met"] += 1


def _cheaper(plan: dict[str, Any]) -> None:
    next(row for row in plan["counts"] if row["nodes"] == 4)["cluster_gpu_h"] /= 2


def _free(plan: dict[str, Any]) -> None:
    plan["certificate"]["price"] = [0 for _ in plan["certificate"]["price"]]


def _other(plan: dict[str, Any]) -> None:
    plan["certificate"]["gpus"] += 1


def _claim(plan: dict[str, Any]) -> None:
    plan["certificate"]["claim"] = "6"


def _why(plan: dict[str, Any]) -> None:
    plan["why"] = "because"


def _no_counts(plan: dict[str, Any]) -> None:
    plan["counts"] = [{"nodes": "many"}]


CHANGES = [_later, _fewer, _met, _cheaper, _free, _other, _claim, _why, _no_counts]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_plan_file_is_rejected(
    change: Callable[[dict[str, Any]], None], saved: dict[str, Any]
) -> None:
    change(saved["plan"])
    with pytest.raises(CheckFailed):
        check_document(saved)


# -------------------------------------------------------------------------------------------------------- command line


def test_the_command_plans_saves_and_checks(
    scenario_of: Callable[..., Scenario], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario_of(13)
    path, out = str(tmp_path / "s.yaml"), str(tmp_path / "plan.json")
    assert run(["plan", path, "--set", "policy=ef-accessctrl", "--share", "0.6", "-o", out]) == 0
    shown = capsys.readouterr().out
    assert "4 nodes (4 GPUs) are the fewest with which ef-accessctrl meets 60 % of the deadlines" in shown
    assert "no scheduler" in shown and "chosen" in shown
    assert run(["check", out]) == 0
    assert "verified in exact arithmetic" in capsys.readouterr().out
    assert run(["plan", path, "--share", "1", "--most-nodes", "1"]) == 3
    error = capsys.readouterr().err
    assert "no scheduler meets more than" in error and len(error.splitlines()) == 1


GOOD = "1,0,300,net,900,32,2,30\n"

BAD = {
    "a share in percent": (GOOD, TABLE, ("--share", "95"), "--share: is 95"),
    "no nodes": (GOOD, TABLE, ("--most-nodes", "-1"), "--most-nodes: is -1"),
    "a group that is not there": (GOOD, TABLE, ("--group", "b"), "no group of nodes 'b'; known: group0"),
    "another objective": (GOOD, TABLE, ("--objective", "joy"), "no objective named 'joy'; known: nodes"),
    "an option of others": (GOOD, TABLE, ("--traces", "2"), "--traces: plans of the cluster domain have no such option"),
    "no deadline": ("1,0,300,net,,32,2,30\n", TABLE, (), "no job has a deadline"),
    "no work": (GOOD + "2,0,0,net,90,32,1,0\n", TABLE, (), "jobs.csv:3:iteration: 0 is below 1"),
    "no jobs": ("", TABLE, (), "jobs.csv: contains no rows of data"),
    "a job that runs nowhere": (GOOD + "2,0,9,net,900,64,1,3\n", TABLE, (), "jobs.csv:3: batch_size 64 of net"),
    "a job larger than any cluster tried": (
        GOOD + "2,0,9,net,900,32,64,3\n", TABLE, ("--set", "policy=fifo"), "jobs.csv:3: job 2: asks for 64 GPUs",
    ),
    "a hole where a job runs": (
        GOOD, "global_batch_size,1,2,4\n32,0,nan,0\n", (), "jobs.csv:2: job 1: net with batch 32 has no throughput",
    ),
    "two GPU types": (
        GOOD, TABLE, ("--set", "machines.nodes=[{name: a, count: 1, gpus: 2, gpu_type: x}, "
        "{name: b, count: 1, gpus: 2, gpu_type: y}]", "--group", "a"), "know one kind of node",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("log", "table", "options", "says"), BAD.values(), ids=BAD)
def test_what_cannot_be_planned_is_one_line(
    log: str,
    table: str,
    options: tuple[str, ...],
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS + log)
    (tmp_path / "net.csv").write_text(table)
    (tmp_path / "s.yaml").write_text(SCENARIO)
    assert run(["plan", str(tmp_path / "s.yaml"), "-q", *options]) == 2
    printed = capsys.readouterr()
    assert says in printed.err and len(printed.err.splitlines()) == 1 and not printed.out


def test_a_deadline_before_the_submission_is_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS + GOOD + "2,50,300,net,40,32,1,30\n")
    (tmp_path / "net.csv").write_text(TABLE)
    (tmp_path / "s.yaml").write_text(SCENARIO)
    path = str(tmp_path / "s.yaml")
    assert run(["plan", path, "--share", "0.5", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert summary["deadlines"] == 2 and summary["deadlines_met"] == 1
    assert run(["plan", path, "--share", "0.6"]) == 3
    assert "no scheduler meets more than 1" in capsys.readouterr().err
