"""`forerun plan` and `forerun check` as a user meets them: answers, refusals, exit codes."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.core.cli.main import run
from forerun.core.errors import CheckFailed, ForerunError, Infeasible, ScenarioError, StoreError, UsageError
from forerun.core.planning import check_document, plan
from forerun.core.result.plan import PLAN_FORMAT, Plan, document, write_document
from forerun.core.result.reading import read_document
from forerun.serving.plan import check_certificate
from forerun.serving.scenario.traces import Listed

from ..conftest import ROOT
from ..docs.test_documents import BLOCK

MINE = """
# My two stages, my measurements, my prices, my objective.
domain: serving
seed: 3
trace:
  process: {name: poisson, rate_rps: 40rps}
  queries: 1500
profiles: [mine.csv]
stages:
  - {name: detect, parents: [source]}
  - {name: describe, parents: [detect]}
edges:
  - {parent: detect, stage: describe, share: 0.5}
configuration:
  detect: {hardware: L4, max_batch: 1, replicas: 1}
  describe: {hardware: L4, max_batch: 1, replicas: 1}
prices_usd_per_h: {L4: 0.8, A10: 1.3}
slo: 120ms
"""

PROFILE = """model,hardware,batch,p99_ms,throughput_qps
detect,L4,1,22,50
detect,L4,4,50,90
detect,A10,1,12,95
detect,A10,4,26,170
describe,L4,1,40,28
describe,L4,4,95,48
describe,A10,1,24,45
describe,A10,4,60,80
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.csv").write_text(PROFILE)
    path = tmp_path / "mine.yaml"
    path.write_text(MINE)
    return path


def test_a_plan_of_ones_own_is_proved_kept_and_checked(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = mine.with_name("plan.json")
    assert run(["plan", str(mine), "-o", str(kept)]) == 0
    shown = capsys.readouterr().out
    assert "detect" in shown and "why:" in shown and f"forerun check {kept}" in shown
    assert run(["check", str(kept)]) == 0
    assert "the certificate holds" in capsys.readouterr().out
    found = json.loads(kept.read_text())
    assert found["format"] == PLAN_FORMAT and found["plan"]["summary"]["proved_cheapest"]
    alone = mine.with_name("certificate.json")
    alone.write_text(json.dumps(found["plan"]["certificate"]))
    assert run(["check", str(alone), "--scenario", str(mine)]) == 0
    assert run(["check", str(alone)]) == 2


@pytest.mark.parametrize(
    ("batches", "rate_rps", "said"),
    [
        ("1", 5, "0 misses of 15 allowed, and nothing is cheaper with at most 60 replicas a stage"),
        ("1", 60, "and one refuted part leaves nothing cheaper with at most 60 replicas a stage"),
        ("1,4", 100, " refuted parts leave nothing cheaper with at most 60 replicas a stage"),
    ],
)
def test_none_one_and_several_refuted_parts_are_each_a_sentence(
    mine: Path, batches: str, rate_rps: int, said: str
) -> None:
    rows = [
        row
        for row in PROFILE.splitlines()[1:]
        if row.startswith("detect,L4") and row.split(",")[2] in batches
    ]
    mine.with_name("mine.csv").write_text("\n".join([PROFILE.splitlines()[0], *rows]) + "\n")
    data = forerun.load(mine, [f"trace.process.rate={rate_rps}rps"])
    found = plan(
        data.with_(stages=data.stages[:1], edges=(), configuration={"detect": data.configuration["detect"]})
    )
    assert said in check_certificate(found.certificate, found.scenario)


def alterations(found: dict[str, Any]) -> dict[str, Any]:
    """Plan files in each of which one thing was altered."""
    altered = {}
    for name, where, value in (
        ("cost", ("plan", "summary", "cost_usd_per_h"), 0.1),
        ("configuration", ("plan", "configuration", "detect"), ["L4", 1, 1]),
        ("certificate's cost", ("plan", "certificate", "cost"), 0.1),
        ("certificate's objective", ("plan", "certificate", "slo_ms"), 500.0),
        ("certificate's prices", ("plan", "certificate", "costs", "L4"), 9.0),
        ("an option left out", ("plan", "certificate", "stages", 0, "options"), {"A10": [1, 4]}),
        ("the scenario", ("scenario", "slo_ms"), 60.0),
        ("the seed", ("scenario", "seed"), 4),
        ("the certificate", ("plan", "certificate"), {"schema": "x"}),
    ):
        copied = json.loads(json.dumps(found))
        inner = copied
        for step in where[:-1]:
            inner = inner[step]
        inner[where[-1]] = value
        altered[name] = copied
    return altered


def test_altered_plans_do_not_hold(mine: Path) -> None:
    scenario = forerun.load(mine)
    made = plan(scenario)
    assert isinstance(made, Plan)
    made.check()
    found = json.loads(json.dumps(document(made, scenario, "", {})))
    assert "holds" in check_document(found)
    for altered in alterations(found).values():
        with pytest.raises((CheckFailed, Infeasible)):
            check_document(altered)
    for part, said in (
        ({"cost": None}, "certificate: malformed: at $.cost: expected float, got null"),
        ({"refuted": [{"stages": {"detect": ["A10", 1]}, "misses_at_least": 3}]},
            "certificate: malformed: at $.refuted[0].stages[...]: expected array of length 3, got 2"),
    ):  # fmt: skip
        damaged = json.loads(json.dumps(found))["plan"]["certificate"] | part
        with pytest.raises(CheckFailed) as refused:
            check_document(damaged, scenario=scenario)
        assert str(refused.value) == said
    kept = mine.with_name("bad.json")
    kept.write_text(json.dumps(alterations(found)["cost"]))
    assert run(["check", str(kept)]) == 4


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "not json", '{"format": "forerun.plan/1"}', '{"schema": "forerun.serving.certificate/1"}',
             '{"format": "forerun.plan/1", "plan": 3, "options": 4, "scenario": 5, "objective": 6}', "\x00", "[" * 100000]
)  # fmt: skip
def test_what_is_no_plan_is_refused_by_name(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    assert run(["check", str(path)]) == 2
    assert str(path) in capsys.readouterr().err
    assert run(["check", str(tmp_path / "absent.json")]) == 2


def test_infeasible_names_the_stage_and_the_constraint(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", str(mine), "--set", "slo_ms=20"]) == 3
    told = capsys.readouterr().err
    assert "stage detect" in told and "slo_ms 20 binds" in told and "no waiting" in told
    assert (
        run(
            [
                "plan",
                str(mine),
                "--set",
                "slo_ms=45",
                "--set",
                "trace.process.rate_rps=200",
                "--max-replicas",
                "1",
            ]
        )
        == 3
    )
    told = capsys.readouterr().err
    assert "stage detect" in told and "max_replicas 1" in told and "best plan keeps" in told


def test_the_plan_keeps_the_objective_when_simulated(mine: Path) -> None:
    scenario = forerun.load(mine)
    made = plan(scenario)
    result = forerun.simulate(made.scenario_planned())  # type: ignore[attr-defined]
    assert result.summary["slo_met"] and result.summary["misses"] == made.summary["misses"]
    assert result.summary["cost_usd_per_h"] == pytest.approx(made.summary["cost_usd_per_h"])


def test_the_pipeline_of_ones_own_that_the_page_shows(tmp_path: Path) -> None:
    """Its costs, its plan and the next step of its frontier, as the page has them."""
    for kind, text in BLOCK.findall((ROOT / "docs" / "serving" / "reference.md").read_text()):
        if named := re.match(r"# file: (mine\.\S+)\n", text):
            (tmp_path / named[1]).write_text(text.partition("\n")[2] if kind == "csv" else text)
    made = plan(forerun.load(tmp_path / "mine.yaml"), frontier=True)
    assert made.data()["configuration"] == {"detector": ["gpu-big", 16, 1], "classifier": ["gpu-small", 8, 1]}
    costs = dict(zip(made.tables["methods"]["method"], made.tables["methods"]["cost_usd_per_h"]))
    wanted = {"exact": 3.3, "greedy": 3.6, "as it is now": 5.7}
    assert {name: round(float(costs[name]), 9) for name in wanted} == wanted
    assert any("the next step is at 234.4 ms" in note for note in made.notes)


def test_methods_beside_each_other(mine: Path) -> None:
    scenario = forerun.load(mine)
    table = plan(scenario, max_replicas=8).tables["methods"]
    assert table["method"].tolist() == ["exact", "greedy", "sweep", "brute", "as it is now"]
    exact, brute = table["cost_usd_per_h"][0], table["cost_usd_per_h"][3]
    assert (
        exact == brute == min(cost for cost, kept in zip(table["cost_usd_per_h"], table["feasible"]) if kept)
    )
    for method in ("greedy", "sweep", "brute"):
        made = plan(scenario, method=method, max_replicas=8)
        assert made.summary["cost_usd_per_h"] >= exact and not made.summary["proved_cheapest"]
        made.check()


def test_resamples_of_one_recorded_trace_have_no_interval(mine: Path) -> None:
    """Sixty resamples say how often a plan holds on that trace drawn again, with any certainty, and little of others."""
    arrivals_s = np.cumsum(np.random.default_rng(2).exponential(0.05, 400)).tolist()
    lines = "\n".join(["arrival_s", *map(str, arrivals_s)])
    (mine.parent / "log.csv").write_text(lines)
    for trace in ("{file: log.csv}", "{process: {name: bootstrap, trace: log.csv}, queries: 400}"):
        made = plan(forerun.load(mine, [f"trace={trace}"]), confidence=0.9, traces=10)
        assert made.summary["fresh_traces"] == 60 and "fresh_kept_low_share" not in made.summary
        assert "interval" not in made.why and any(
            "resamples of the one recorded trace" in one for one in made.notes
        )


def test_throughput_and_chance_and_frontier(mine: Path) -> None:
    scenario = forerun.load(mine)
    most = plan(scenario, "throughput", budget_usd_per_h=6.0)
    assert most.summary["cost_usd_per_h"] <= 6.0 and most.summary["rate_rps"] >= 40
    assert most.summary["bottleneck_first_rate_rps"] <= most.summary["rate_rps"] * (1 + 1e-9)
    most.check()
    sure = plan(scenario, confidence=0.9, traces=10)
    assert sure.summary["traces_failing"] <= 1 and sure.summary["fresh_traces"] == 60
    sure.check()
    low, high = sure.summary["fresh_kept_low_share"], sure.summary["fresh_kept_high_share"]
    assert f"interval {low:.0%} to {high:.0%}" in sure.why
    made = plan(scenario, frontier=True)
    pictures = {figure.id: figure for figure in made.figures()}  # type: ignore[attr-defined]
    assert set(pictures) == {"plan-methods", "plan-cost-by-objective", "plan-cost-by-load"}
    assert all(figure.caption for figure in pictures.values())
    assert len(pictures["plan-cost-by-load"].data["rate_rps"]) == 14
    points = made.tables["frontier"]
    costs = points["cost_usd_per_h"][points["varied"] == "objective"]
    known = [cost for cost in costs if math.isfinite(cost)]
    assert known == sorted(known, reverse=True) and len(known) >= 5
    # What is said of the next step is so: just before it the plan costs as much, at it less.
    assert made.notes[0].startswith("10 ms more of objective save ")
    looser = plan(scenario.with_(slo_ms=scenario.slo_ms + 10))
    saved = made.summary["cost_usd_per_h"] - looser.summary["cost_usd_per_h"]
    assert made.summary["slo_10ms_more_saves_usd_per_h"] == pytest.approx(saved)
    step = re.search(r"the next step is at ([\d.]+) ms: [\d.]+ ms more save ([\d.]+)", made.notes[0])
    assert step is not None
    there = plan(scenario.with_(slo_ms=float(step[1]) + 0.1))
    before = plan(scenario.with_(slo_ms=float(step[1]) - 0.011 * scenario.slo_ms))
    assert there.summary["cost_usd_per_h"] == pytest.approx(made.summary["cost_usd_per_h"] - float(step[2]))
    assert before.summary["cost_usd_per_h"] >= made.summary["cost_usd_per_h"]


def test_recorded_traces_are_resampled_in_blocks(mine: Path) -> None:
    times = tuple(25.0 * i + (i % 7) for i in range(300))
    recorded = forerun.load(mine).with_(trace=Listed(arrivals_ms=times))
    made = plan(recorded, confidence=0.5, traces=4)
    assert made.summary["traces"] == 4 and made.summary["cost_usd_per_h"] > 0


@pytest.mark.parametrize(
    "options, says",
    [
        ({"objective": "speed"}, "speed"),
        ({"objective": "throughput"}, "budget"),
        ({"budget_usd_per_h": 3.0}, "throughput"),
        ({"method": "magic"}, "magic"),
        ({"confidence": 0.9}, "belong together"),
        ({"confidence": 1.5, "traces": 3}, "^confidence: 1.5 is no share of traces below 1, such as 0.9$"),
        ({"confidence": -1.0}, "^confidence: -1 is no share of traces below 1, such as 0.9$"),
        ({"confidence": 0.9, "traces": -3}, "^traces: -3 were asked for; 1 or more are needed$"),
        ({"max_replicas": 0}, "at least one"),
        ({"colour": "red"}, "no such option"),
        ({"method": "greedy", "confidence": 0.9, "traces": 3}, "one trace"),
    ],
)
def test_options_that_make_no_sense_are_refused(mine: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        plan(forerun.load(mine), **options)


@pytest.mark.parametrize(
    "change, says",
    [
        ("mode=compat edges=[]", "mode default"),
        ('configuration.detect.batching={"name": "timeout", "delay_ms": 5}', "greedy batching"),
        ('configuration.detect.changes=[{"at_s": 1, "replicas": 2}]', "changes"),
        ('service={"law": "exponential"}', "not drawn"),
        ("tuner=coarse", "plan with tuner: fixed"),
    ],
)
def test_scenarios_that_cannot_be_planned_are_refused(mine: Path, change: str, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        plan(forerun.load(mine, change.split(" ") if "mode" in change else [change]))


def test_a_certificate_for_another_scenario_does_not_hold(mine: Path) -> None:
    scenario = forerun.load(mine)
    proof = plan(scenario).data()["certificate"]
    assert "holds" in check_certificate(proof, scenario)
    for change in ("slo_ms=110", "seed=9", "attainment=0.95", "prices_usd_per_h.L4=0.7", "edges.0.share=0.4"):
        with pytest.raises(CheckFailed):
            check_certificate(proof, forerun.load(mine, [change]))


def test_plan_files_appear_whole_or_not_at_all(tmp_path: Path) -> None:
    target = write_document({"format": PLAN_FORMAT}, tmp_path / "a" / "plan.json")
    assert read_document(target) == {"format": PLAN_FORMAT}
    assert [path.name for path in target.parent.iterdir()] == ["plan.json"]
    with pytest.raises(StoreError):
        write_document({}, tmp_path / "a" / "plan.json" / "b")
    with pytest.raises(ForerunError):
        read_document(tmp_path)
