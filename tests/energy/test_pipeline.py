"""Pipelines: recorded frontiers, the order of passes against a slow reference implementation, bounds, plans, bad input."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.core.cli.main import run
from forerun.core.errors import CheckFailed, Infeasible, ScenarioError, TraceError
from forerun.energy.explain import EnergyExplainer
from forerun.energy.figures import figures
from forerun.energy.figures.plans import plan_figures
from forerun.energy.inputs.pipeline import KINDS, Choices, Pipeline
from forerun.energy.plan.frontier import Program, best_within, enumerated, frontier
from forerun.energy.plan.pipeline import PipelinePlan
from forerun.energy.readers.energy_tables import read_pipeline
from forerun.replication.zeus.pipelines import synthetic


def recorded(world: dict[str, Any]) -> Pipeline:
    choices = []
    for stage in range(len(world["imbalance"])):
        of = {}
        for kind in KINDS:
            rows = [r for r in world["profile"] if (r["stage"], r["instruction"]) == (stage, kind)]
            rows.sort(key=lambda row: -row["frequency"])
            columns = [[row[name] for row in rows] for name in ("frequency", "time_s", "energy_j")]
            of[kind] = Choices(*(np.array(column, dtype=float) for column in columns))
        choices.append(of)
    return Pipeline(tuple(choices), world["microbatches"], world["blocked_power_w"])


def test_recorded_frontiers(golden: Callable[[str], Any]) -> None:
    for world in golden("pipeline.json.gz")["worlds"]:
        pipeline = recorded(world)
        highest = pipeline.run(pipeline.all_highest)
        assert highest.makespan_s == pytest.approx(world["all_max"]["makespan_s"], rel=1e-12)
        assert highest.energy_j == pytest.approx(world["all_max"]["energy_j"], rel=1e-12)
        found = frontier(pipeline)
        assert len(found) == len(world["frontier"])
        for mine, theirs in zip(found, world["frontier"]):
            assert mine.makespan_s == pytest.approx(theirs["makespan_s"], rel=1e-12)
            assert mine.energy_j == pytest.approx(theirs["energy_j"], rel=1e-12)
            # Their plan, run by us, takes what they say.
            at = [
                pipeline.of(place).frequency_mhz.tolist().index(clock)
                for place, (_, clock) in enumerate(step for stage in theirs["plan"] for step in stage)
            ]
            assert pipeline.run(at).energy_j == pytest.approx(theirs["energy_j"], rel=1e-12)


def test_at_size_the_bound_is_near_and_every_stated_plan_runs_as_stated(golden: Callable[[str], Any]) -> None:
    pipeline = recorded(golden("pipeline.json.gz")["large"])
    highest = pipeline.run(pipeline.all_highest)
    assert (round(highest.makespan_s, 3), round(highest.energy_j, 1)) == (2.358, 2226.2)
    found = frontier(pipeline)
    assert found[0].makespan_s == pytest.approx(highest.makespan_s, rel=1e-9)
    assert found[0].energy_j <= 0.85 * highest.energy_j
    for point in found:
        done = pipeline.run(point.frequencies)
        assert done.makespan_s == pytest.approx(point.makespan_s, rel=1e-9)
        assert done.energy_j == pytest.approx(point.energy_j, rel=1e-9)
        assert point.at_least_j * (1 - 1e-9) <= point.energy_j <= 1.005 * point.at_least_j
    # Waiting draws power: the slowest plan is not the cheapest.
    slowest = pipeline.run([len(pipeline.of(place).time_s) - 1 for place in range(len(pipeline.operations))])
    assert slowest.energy_j > found[-1].energy_j


def test_the_drawn_up_profile_is_the_recorded_one(golden: Callable[[str], Any]) -> None:
    theirs = recorded(golden("pipeline.json.gz")["large"])
    mine = synthetic((1.0, 1.05, 1.05, 1.25), 8, tuple(range(600, 1411, 30)))
    for one, other in zip(mine.choices, theirs.choices):
        for kind in KINDS:
            assert one[kind].time_s == pytest.approx(other[kind].time_s, rel=1e-12)
            assert one[kind].energy_j == pytest.approx(other[kind].energy_j, rel=1e-12)


def test_the_drawn_up_profile_is_planned_near_its_bound() -> None:
    """Four stages and eight microbatches: close to the bound, and a good part below all-highest frequencies."""
    pipeline = synthetic((1.0, 1.05, 1.05, 1.25), 8, tuple(range(600, 1411, 30)))
    found, highest = frontier(pipeline), pipeline.run(pipeline.all_highest)
    assert max(point.energy_j / point.at_least_j for point in found) - 1 < 0.003
    assert found[0].makespan_s == pytest.approx(highest.makespan_s, rel=1e-9)
    assert round(1 - found[0].energy_j / highest.energy_j, 3) == 0.166


def drawn(rng: np.random.Generator, stages: int, frequencies: int) -> Pipeline:
    """Any stages at all: energies need not fall with time, nor be convex."""
    choices = tuple(
        {
            kind: Choices(
                np.arange(frequencies, 0, -1.0),
                np.sort(rng.uniform(0.5, 2.0, frequencies)),
                rng.uniform(50.0, 200.0, frequencies),
            )
            for kind in KINDS
        }
        for _ in range(stages)
    )
    return Pipeline(choices, 2 if stages == 2 else 1 + stages % 3, float(rng.uniform(0, 60)))


def slow_twin(pipeline: Pipeline, at: tuple[int, ...]) -> tuple[float, float]:
    """Time and energy by letting every stage start its next pass as soon as it may, tick by tick of events."""
    ahead = [
        [place for place, op in enumerate(pipeline.operations) if op.stage == stage]
        for stage in range(pipeline.stages)
    ]
    ended: dict[tuple[int, str, int], float] = {}
    free = [0.0] * pipeline.stages
    while any(ahead):
        for stage, queue in enumerate(ahead):
            if not queue:
                continue
            op = pipeline.operations[queue[0]]
            beside = stage - 1 if op.kind == "forward" else stage + 1
            needed = (beside, op.kind, op.microbatch)
            if 0 <= beside < pipeline.stages and needed not in ended:
                continue
            begun = max(free[stage], ended.get(needed, 0.0))
            free[stage] = begun + float(pipeline.of(queue[0]).time_s[at[queue[0]]])
            ended[stage, op.kind, op.microbatch] = free[stage]
            queue.pop(0)
    makespan = max(free)
    joules = sum(float(pipeline.of(place).energy_j[at[place]]) for place in range(len(at)))
    busy = sum(float(pipeline.of(place).time_s[at[place]]) for place in range(len(at)))
    return makespan, joules + pipeline.blocked_power_w * (pipeline.stages * makespan - busy)


def test_random_pipelines_against_a_slow_reference_and_enumeration() -> None:
    rng = np.random.default_rng(5)
    for number in range(30):
        pipeline = drawn(rng, 1 + number % 3, 3 if number % 3 < 2 else 2)
        exact = enumerated(pipeline)
        for point in exact[:: max(1, len(exact) // 5)]:
            makespan, energy = slow_twin(pipeline, point.frequencies)
            assert point.makespan_s == pytest.approx(makespan, rel=1e-12)
            assert point.energy_j == pytest.approx(energy, rel=1e-12)
        program = Program(pipeline)
        assert program.least_s == pytest.approx(exact[0].makespan_s)
        for point in exact:
            rounded = program.within(point.makespan_s * (1 + 1e-9))
            assert rounded.makespan_s <= point.makespan_s * (1 + 1e-8)
            assert rounded.at_least_j <= point.energy_j * (1 + 1e-6)
            assert rounded.energy_j >= point.energy_j * (1 - 1e-9)
        assert best_within(pipeline, exact[0].makespan_s).energy_j == exact[0].energy_j


def test_the_order_of_passes() -> None:
    """Stage s runs min(S - s, M) forwards first, then backward and forward by turns."""
    pipeline = synthetic((1.0, 1.0, 1.0), 4, (1410,))
    text = [
        "".join(f"{op.kind[0]}{op.microbatch}" for op in pipeline.operations if op.stage == s)
        for s in range(3)
    ]
    assert text == ["f0f1f2b0f3b1b2b3", "f0f1b0f2b1f3b2b3", "f0b0f1b1f2b2f3b3"]
    short = synthetic((1.0, 1.0, 1.0), 1, (1410,))
    assert [op.kind for op in short.operations] == ["forward", "backward"] * 3


# --- from files -----------------------------------------------------------------------------------------------------

HEAD = "stage,instruction,frequency,time_s,energy_j\n"
ROWS = "".join(
    f"{stage},{kind},{clock},{base * slower * (0.4 + 840 / clock):.4f},{base * 20 * (clock / 1400) ** 2 + base:.4f}\n"
    for stage, slower in ((0, 1.0), (1, 1.4))
    for kind, base in (("forward", 1.0), ("backward", 2.0))
    for clock in (1400, 1100, 800)
)


@pytest.fixture
def scenario(tmp_path: Path) -> Callable[..., Any]:
    def make(rows: str = ROWS, extra: str = "", microbatches: int = 2) -> Any:
        (tmp_path / "pipe.csv").write_text(HEAD + rows)
        text = f"domain: energy\npipeline: {{file: pipe.csv, microbatches: {microbatches}, blocked_power_w: 2}}\n"
        (tmp_path / "pipe.yaml").write_text(text + extra)
        return forerun.load(tmp_path / "pipe.yaml")

    return make


def test_goals(scenario: Callable[..., Any]) -> None:
    free = forerun.plan(scenario(extra="goal: {minimise: energy}\n"))
    same = forerun.plan(scenario(extra="goal: {minimise: energy, max_slowdown: 1}\n"))
    assert same.chosen.makespan_s <= same.highest.makespan_s * (1 + 1e-9)
    assert free.chosen == free.frontier[-1] and same.chosen == free.frontier[0]
    assert free.chosen.energy_j < same.chosen.energy_j < same.highest.energy_j
    fast = forerun.plan(scenario(extra=f"goal: {{minimise: time, max_energy_j: {same.chosen.energy_j}}}\n"))
    assert fast.chosen.makespan_s == same.chosen.makespan_s
    middle = (same.chosen.makespan_s + free.chosen.makespan_s) / 2
    bounded = forerun.plan(scenario(extra=f"goal: {{minimise: energy, max_time_s: {middle}}}\n"))
    inside = [point for point in free.frontier if point.makespan_s <= middle]
    assert bounded.chosen == inside[-1]
    tastes = [forerun.plan(scenario(extra=f"eta: {eta}\n")).chosen.makespan_s for eta in (0, 0.5, 1)]
    assert tastes == sorted(tastes) and tastes[0] < tastes[2]
    with pytest.raises(Infeasible, match=r"goal.max_time_s: no plan keeps makespan_s <= 1; the least is"):
        forerun.plan(scenario(extra="goal: {max_time_s: 1}\n"))
    with pytest.raises(Infeasible, match="every plan tried draws at least"):
        forerun.plan(scenario(extra=f"goal: {{max_slowdown: 1, max_energy_j: {free.chosen.energy_j}}}\n"))


def test_a_result_with_ledgers_timeline_and_figures(scenario: Callable[..., Any], tmp_path: Path) -> None:
    given = scenario(extra="goal: {minimise: energy, max_slowdown: 1}\n")
    result = forerun.simulate(given).check()
    energy, time = result.ledgers
    assert energy.whole == pytest.approx(result.summary["energy_j"])
    assert time.whole == pytest.approx(2 * result.summary["makespan_s"])
    assert energy.parts["blocked"] == pytest.approx(2.0 * time.parts["blocked"])
    assert result.tables["stages"]["energy_j"].sum() == pytest.approx(energy.whole)
    drawn_ids = [figure.id for figure in figures(result)]
    assert drawn_ids == ["energy-passes-highest", "energy-passes-chosen", "energy-pipeline-frontier"]
    assert [what_if.path for what_if in EnergyExplainer().what_ifs(given, result)] == ["goal.max_slowdown"]
    folder = result.save(tmp_path / "run")
    again = forerun.load(folder / "scenario.json")
    assert forerun.simulate(again).summary == result.summary


def test_the_command_line(
    scenario: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario(extra="goal: {minimise: energy, max_slowdown: 1.1}\n")
    kept = tmp_path / "plan.json"

    def code(*arguments: str) -> int:
        return run(arguments)

    assert code("plan", str(tmp_path / "pipe.yaml"), "-o", str(kept)) == 0
    assert "slower passes save" in capsys.readouterr().out
    assert code("check", str(kept)) == 0
    document = json.loads(kept.read_text())
    assert [figure.id for figure in plan_figures(document["plan"], document["scenario"])] == [
        "plan-passes",
        "plan-pipeline-frontier",
    ]
    forged = json.loads(kept.read_text())
    forged["plan"]["summary"]["energy_j"] *= 0.9
    kept.write_text(json.dumps(forged))
    assert code("check", str(kept)) == 4


def test_a_forged_plan_is_refused(scenario: Callable[..., Any]) -> None:
    found = forerun.plan(scenario(extra="goal: {minimise: energy}\n"))
    from dataclasses import replace

    cheaper = replace(found.frontier[0], energy_j=0.5 * found.frontier[0].energy_j)
    slow = replace(found.frontier[0], makespan_s=2 * found.frontier[-1].makespan_s)
    for forged in (cheaper, slow):
        with pytest.raises(CheckFailed):
            PipelinePlan(
                found.scenario, found.pipeline, (forged, *found.frontier[1:]), found.chosen, found.highest
            ).check()


BAD_ROWS = {
    "0,forward,1400,1,1\n": "stage 0 has no backward pass",
    "1,forward,1400,1,1\n1,backward,1400,1,1\n": "stage 0 has no forward pass",
    "0,sideways,1400,1,1\n": r"pipe.csv:2:instruction: 'sideways' is neither forward nor backward",
    "0,forward,0,1,1\n0,backward,1400,1,1\n": r"pipe.csv:2:frequency: 0 is not above 0",
    "0,forward,1400,-1,1\n0,backward,1400,1,1\n": r"pipe.csv:2:time_s: -1 is not above 0",
    "0,forward,1400,1,nan\n0,backward,1400,1,1\n": r"pipe.csv:2:energy_j",
    "-1,forward,1400,1,1\n": r"pipe.csv:2:stage",
    "0,forward,1400,1,1\n0,forward,1400,1,2\n0,backward,1400,1,1\n": r"pipe.csv:3:frequency: conflicts .* line 2",
}


@pytest.mark.parametrize("rows", BAD_ROWS)
def test_bad_profiles_name_the_row(scenario: Callable[..., Any], rows: str) -> None:
    with pytest.raises(TraceError, match=BAD_ROWS[rows]) as caught:
        forerun.plan(scenario(rows))
    assert caught.value.exit_code == 2


def test_identical_rows_are_dropped_and_said(scenario: Callable[..., Any], tmp_path: Path) -> None:
    found = forerun.plan(scenario(ROWS + ROWS.splitlines()[0] + "\n"))
    assert any("duplicate row, dropped" in note for note in found.notes)
    assert len(read_pipeline(tmp_path / "pipe.csv")) == 12


BAD_SCENARIOS = {
    "goal: {minimise: usd}\n": "'usd' is not known of a pipeline",
    "goal: {deadline: 3h}\n": "deadline_s.*is not known of a pipeline",
    "eta: 1.5\n": r"eta.*not between 0 and 1",
    "job: {dataset: d, network: n, optimizer: o, target_metric: 1, max_epochs: 2}\n": "planned without job and trace",
}


@pytest.mark.parametrize("extra", BAD_SCENARIOS)
def test_what_a_pipeline_does_not_know(scenario: Callable[..., Any], extra: str) -> None:
    with pytest.raises(ScenarioError, match=BAD_SCENARIOS[extra]):
        scenario(extra=extra)


def test_a_job_or_a_pipeline_is_needed(scenario: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="the key 'job' is missing") as caught:
        forerun.loads("domain: energy\n")
    assert "the key 'trace' is missing" in str(caught.value)
    with pytest.raises(ScenarioError, match=r"microbatches.*0 is not between 1 and 10,000"):
        scenario(microbatches=0)
    from forerun.energy.inputs import read_job

    with pytest.raises(ScenarioError, match="has a pipeline"):
        read_job(scenario())
    assert math.isfinite(forerun.plan(scenario()).chosen.energy_j)
