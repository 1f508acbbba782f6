"""The planner against brute force, its certificate, and its answers where nothing fits."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.core.cli.main import run
from forerun.core.errors import CheckFailed, Infeasible, ScenarioError
from forerun.core.scenario.spec import to_data
from forerun.core.scenarios import loads
from forerun.spot.figures import plan_figures
from forerun.spot.plan import conclude, plan
from forerun.spot.plan.race import candidates, meet
from forerun.spot.plan.result import SpotPlan

from ..conftest import cases

BASE = """
domain: spot
seed: 1
horizon: 24h
fleet: {name: poisson, removals_per_min: 0.2, adds_per_min: 0.2, add_burst: {probability: 0.058}}
job:
  depth: 16
  max_pipelines: 4
  step_s: {16: 18, 32: 11, 48: 9, 64: 8}
  samples_per_step: 288
  reconfig: 88s
  prep: 3min
  write: 89s
  stall: 8.91s
prices: {spot_usd_per_h: 0.91, on_demand_usd_per_h: 3.06}
goal: {steps: 900, deadline: 9h, certainty: 0.9}
choices: {growth: [immediate, hazard, lazy], on_demand_nodes: [0, 16], trials: 600}
"""


def scenario(more: str = "", text: str = BASE) -> Any:
    return loads(text + more)


def best_by_brute_force(setting: Any, objective: str) -> SpotPlan:
    """Every candidate through every trial: a race in which nobody can drop out."""
    runners = [meet(one, setting, setting.choices.trials, 0) for one in candidates(setting)]
    return conclude(setting, runners, objective)


def test_the_race_finds_what_brute_force_finds() -> None:
    """Random small instances: the same choice at the same value."""
    rng = random.Random(4)
    for _ in range(cases(4, 500)):
        text = (
            BASE.replace("removals_per_min: 0.2", f"removals_per_min: {rng.uniform(0.02, 0.4):.3f}")
            .replace("stall: 8.91s", f"stall: {rng.choice([0, 3, 8.91])}s")
            .replace("deadline: 9h", f"deadline: {rng.uniform(5, 14):.2f}h")
            .replace("[immediate, hazard, lazy]", "[immediate, hazard]")
            .replace("seed: 1", f"seed: {rng.randrange(1000)}")
        )
        setting = scenario(text=text)
        objective = rng.choice(["cost", "time"])
        try:
            brute = best_by_brute_force(setting, objective)
        except Infeasible:
            with pytest.raises(Infeasible):
                plan(setting, objective)
            continue
        found = plan(setting, objective)
        assert found.check().chosen.candidate == brute.chosen.candidate


def test_a_plan_says_what_and_how_sure() -> None:
    found = plan(scenario()).check()
    assert found.objective == "cost" and found.summary["done_share"] >= 0.9
    assert found.runner_up is not None and found.difference is not None
    assert ("cannot be distinguished" in found.why) is not found.significant
    costs = [float(runner.cost_usd.mean()) for runner in found.front]
    times = [found.data()["candidates"][0]["finish_h"]]
    assert costs == sorted(costs) and times[0] > 0
    table = found.tables["candidates"]
    assert table["verdict"][0] == "chosen" and len(table) == found.summary["candidates"]


def test_a_forged_certificate_is_found_out() -> None:
    found = plan(scenario("", BASE.replace("trials: 600", "trials: 200")))
    forged = replace(found, chosen=replace(found.chosen, cost_usd=found.chosen.cost_usd * 0.9))
    with pytest.raises(CheckFailed, match="differ when simulated again"):
        forged.check()
    assert found.runner_up is not None
    with pytest.raises(CheckFailed, match="better"):
        replace(found, chosen=found.runner_up).check()


def test_infeasible_names_the_nearest_relaxation() -> None:
    with pytest.raises(Infeasible) as caught:
        plan(scenario("", BASE.replace("deadline: 9h", "deadline: 2.2h")))
    assert caught.value.exit_code == 3
    assert "a deadline of" in str(caught.value)
    with pytest.raises(Infeasible, match="the cheapest"):
        plan(scenario("", BASE.replace("deadline: 9h, ", "budget_usd: 1, ")))


def test_the_bounds_that_an_infeasible_plan_names_are_kept() -> None:
    """A hundredth less of either is infeasible again; of both bounds the one that cannot be kept is named."""
    text = BASE.replace("trials: 600", "trials: 200")

    def refused(bounds: str) -> str:
        with pytest.raises(Infeasible) as caught:
            plan(scenario("", text.replace("deadline: 9h", bounds)))
        return str(caught.value)

    told = refused("deadline: 2.2h")
    kept_h = float(told.partition("a deadline of ")[2].partition(" h")[0])
    assert plan(scenario("", text.replace("deadline: 9h", f"deadline: {kept_h}h"))).check()
    assert "goal.deadline_s" in refused(f"deadline: {kept_h - 0.01:.2f}h")
    told = refused("deadline: 20h, budget_usd: 1")
    assert "goal.budget_usd" in told and "done by 20.00 h" in told
    kept_usd = float(told.partition("costs at most")[2].partition(", costs ")[2].partition(",")[0])
    assert plan(scenario("", text.replace("deadline: 9h", f"deadline: 20h, budget_usd: {kept_usd}"))).check()
    assert "goal.budget_usd" in refused(f"deadline: 20h, budget_usd: {kept_usd - 0.01:.2f}")


def test_other_intervals_stand_beside_the_chosen_one() -> None:
    """Rare losses and a long stall: the closed form's interval is the best there is, ten steps and back to back cost
    something, and the picture marks them; without a stall there is nothing to choose.
    """
    text = BASE.replace("removals_per_min: 0.2", "removals_per_min: 0.02").replace(
        "adds_per_min: 0.2", "adds_per_min: 0"
    )
    text = text.replace("stall: 8.91s", "stall: 20s").replace(", lazy]", "]")
    found = plan(scenario(text=text))
    rows = {name: row for row in found.intervals for name in row.choice.split(", ")}
    assert {"chosen", "closed form", "Young", "Daly", "every 10 steps", "back to back"} <= set(rows)
    assert min(row.costs.mean for row in found.intervals) == 0.0
    closed = rows["closed form"].costs
    assert closed.mean < 0.01 < rows["every 10 steps"].costs.mean - rows["every 10 steps"].costs.half95
    assert rows["back to back"].costs.mean > closed.mean
    assert rows["closed form"].closed_form == max(
        row.closed_form for row in found.intervals if not math.isnan(row.closed_form)
    )
    pictures = {figure.id: figure for figure in plan_figures(found.data(), to_data(found.scenario))}
    marked = " ".join(rule.label for rule in pictures["plan-intervals"].rules)
    assert all(name in marked for name in rows if name)
    assert "plan-candidates" in pictures and pictures["plan-candidates"].low
    assert "gives up" in " ".join(found.notes)
    free = plan(scenario(text=text.replace("stall: 20s", "stall: 0s")))
    assert free.intervals == () and "intervals" not in free.tables


def test_scenarios_that_cannot_be_planned() -> None:
    with pytest.raises(ScenarioError, match="steps"):
        plan(scenario("", BASE.replace("goal: {steps: 900, deadline: 9h, certainty: 0.9}", "")), "cost")
    with pytest.raises(ScenarioError, match="objective"):
        plan(scenario(), "speed")
    with pytest.raises(ScenarioError, match="restart"):
        plan(scenario("policy: parcae\n"))


def test_certain_losses_call_for_on_demand() -> None:
    """With so many removals that spot alone never finishes, the plan buys nodes that stay."""
    text = BASE.replace("removals_per_min: 0.2", "removals_per_min: 3").replace(
        "certainty: 0.9", "certainty: 0.95"
    )
    found = plan(scenario(text=text.replace("deadline: 9h", "deadline: 20h")))
    assert found.chosen.candidate.on_demand_nodes == 16
    assert np.isfinite(found.chosen.finish_s).mean() >= 0.95


def test_kept_plans_are_checked_again_and_shortcuts_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also with candidates that never finish; what would help an impossible deadline is said with its price."""
    file, kept = tmp_path / "spot.yaml", tmp_path / "plan.json"
    file.write_text(
        BASE.replace("removals_per_min: 0.2", "removals_per_min: 2").replace("trials: 600", "trials: 100")
    )
    assert run(["plan", str(file), "-o", str(kept), "-q"]) == 0
    assert any(row["finish_h"] is None for row in json.loads(kept.read_text())["plan"]["candidates"])
    assert run(["check", str(kept)]) == 0
    capsys.readouterr()
    assert run(["plan", str(file), "--set", "choices.on_demand_nodes=[0]", "-q"]) == 3
    assert "on-demand nodes (choices.on_demand_nodes) it would be done" in capsys.readouterr().err
    assert run(["simulate", str(file), "--trials", "50", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["trials"] == 50
