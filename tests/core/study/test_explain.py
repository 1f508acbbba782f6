"""Explanations: the largest causes, and the first value of each what_if that turns the answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import forerun
from forerun.core.cli.main import run as command_line
from forerun.core.domain import domain_names, get_domain
from forerun.core.result.ledger import Ledger
from forerun.core.result.numbers import format_number
from forerun.core.result.objective import Objective
from forerun.core.study.cell import Done, Failed, Outcome
from forerun.core.study.expand import Cell, StudyPlan
from forerun.core.study.explain import (
    HALVINGS,
    Answer,
    Change,
    WhatIf,
    dominant_causes,
    explain,
    explain_with,
)

from ...conftest import cases


def test_the_first_value_that_turns_the_answer(tmp_path: Path) -> None:
    saved = forerun.load_result(forerun.simulate(forerun.loads("domain: toy")).save(tmp_path / "run"))
    found = explain(saved)
    assert found.answer is not None and found.answer.holds
    assert found.causes == (("time", "y", 2 / 3), ("time", "x", 1 / 3))
    turned = {turn.what_if.path: (turn.value, turn.tried) for turn in found.turns}
    # y = -1 is no scenario: it counts as tried, turns nothing and stops nothing. Any more than 3 in all turns it, so
    # each number is halved towards the present one four times: x from 1.5, y from 2.5 by way of 2.25, 2.12, 2.06.
    assert turned == {"x": (1.03, 5), "y": (2.03, 6), "sleep_s": (None, 2)}
    assert [turn.what_if.path for turn in found.turns] == ["y", "x", "sleep_s"]
    assert found.smallest is found.turns[0] and found.turns[0].change == pytest.approx(0.015)


class Told:
    """An executor that asks a function of path and value, and keeps `waiting` cells before it answers the last."""

    def __init__(self, figure: Callable[[str, Any], Any], waiting: int = 1) -> None:
        self.figure, self.waiting = figure, waiting
        self.seen: list[Any] = []

    def run(self, plan: StudyPlan, cells: Iterable[Cell]) -> Iterator[Outcome]:
        under_way: list[Cell] = []
        while True:
            under_way += islice(cells, self.waiting - len(under_way))
            if not under_way:
                return
            cell = under_way.pop()
            ((path, value),) = cell.overrides
            self.seen.append(value)
            figure = self.figure(path, value)
            yield (
                Failed(cell.number, "no") if figure is None else Done(cell.number, {"yes": figure, "x": 2.0})
            )


PLAN = StudyPlan("run", {}, Path(), (), (0,), ())
RUN: Any = SimpleNamespace(summary={"yes": False, "x": 1.0}, why="", ledgers=())


def yes(summary: Any) -> Answer:
    return Answer("Yes?", summary["yes"])


def walked(what_if: WhatIf, turns: Callable[[Any], bool]) -> tuple[Any, list[Any]]:
    """The value at which a what_if turns, and all that were simulated."""
    one = Told(lambda path, value: None if value == "impossible" else turns(value))
    turn = explain_with(RUN, yes, [what_if], PLAN, executor=one).turns[0]
    assert turn.tried == len(one.seen)
    assert turn.refused == tuple((value, "no") for value in one.seen if value == "impossible")
    return turn.value, one.seen


def test_a_change_tells_what_it_moves() -> None:
    one = Told(lambda path, value: None if value == "impossible" else True)
    found = explain_with(
        RUN, yes, [], PLAN, executor=one,
        changes=[Change("a", 1, "a"), Change("b", "impossible", "b")], objectives=[Objective("x", "lower", "x")],
    )  # fmt: skip
    assert found.effects[0].figures == {"x": (1.0, 2.0)} and found.effects[0].moved == ("x",)
    assert found.effects[1].refused == "no" and not found.effects[1].moved


def test_what_is_found_does_not_depend_on_how_many_are_simulated_at_once() -> None:
    """Outcomes that overtake each other; and what is still to come is told, down to nothing."""
    what_ifs = [WhatIf(f"n{step}", 1.0, tuple(1.0 + step * k for k in range(1, 9))) for step in (1, 2, 3)]
    what_ifs += [WhatIf("none", 1, ()), WhatIf("word", "a", ("b", "c"))]

    def turned(path: str, value: Any) -> bool:
        return isinstance(value, float) and value > 2.4 * int(path[1:])

    found, told = [], []
    for waiting in (1, 2, 7):
        told.append(seen := [])  # type: ignore[var-annotated]
        found.append(
            explain_with(
                RUN,
                yes,
                what_ifs,
                PLAN,
                executor=Told(turned, waiting),
                progress=seen.append,
                changes=[Change("n1", 9.0, "nine")],
            )
        )
    assert found[0] == found[1] == found[2]
    assert {turn.what_if.path: turn.tried for turn in found[0].turns}["none"] == 0
    for seen in told:
        assert seen[0].done == 0 and seen[0].most == 3 * (8 + HALVINGS) + 2 + 1
        assert [one.done for one in seen] == list(range(len(seen)))
        assert all(one.most >= two.most for one, two in pairwise(seen)) and seen[-1].most == seen[-1].done


def test_a_pool_of_processes_finds_the_same(tmp_path: Path) -> None:
    fresh = forerun.simulate(forerun.loads("domain: toy\nunlucky_x: 1.5"))
    found = [forerun.explain(fresh, workers=workers) for workers in (1, 2)]
    kept = forerun.explain(forerun.load_result(fresh.save(tmp_path / "run")))
    assert found[0] == found[1]
    assert [(turn.value, turn.tried) for turn in kept.turns] == [
        (turn.value, turn.tried) for turn in found[0].turns
    ]
    refused = {turn.what_if.path: [value for value, _ in turn.refused] for turn in found[0].turns}
    assert refused == {"x": [1.5], "y": [-1.0], "sleep_s": []}


def test_a_number_is_halved_towards_what_does_not_turn() -> None:
    assert walked(WhatIf("n", 1, (2, 4, 16)), lambda n: n >= 9) == (9, [2, 4, 16, 10, 7, 8, 9])
    assert walked(WhatIf("n", 10, (8, 4)), lambda n: n <= 5) == (5, [8, 4, 6, 5])
    # Only values on the turning side of the present one bound it: 2 says nothing of those above 8.
    assert walked(WhatIf("n", 8, (2, 16)), lambda n: n >= 12) == (12, [2, 16, 12, 10, 11])
    assert walked(WhatIf("n", 0.3, (0.6, 1.0)), lambda x: x > 0.7) == (
        0.725,
        [0.6, 1.0, 0.8, 0.7, 0.75, 0.725],
    )
    # Not monotone: what is told was simulated and turns the answer.
    assert walked(WhatIf("n", 1, (9,)), lambda n: n in (9, 5, 4)) == (4, [9, 5, 3, 4])
    assert walked(WhatIf("p", "a", ("impossible", "c", "d")), lambda p: p == "d") == (
        "d",
        ["impossible", "c", "d"],
    )


#: small enough to be simulated often
SMALL = {
    "cluster": ["trace.generate.jobs=30"],
    "energy": ["trials=1", "recurrences=20"],
    "loading": ["dataset.samples=400", "run.epochs=1", "grid={blocks: [1, 4], threads: [1]}"],
    "serving": ["trace.queries=1000"],
    "spot": ["trials=100"],
}


@pytest.mark.parametrize("domain", [name for name in domain_names() if name != "toy"])
def test_every_domain_has_a_question_and_what_if_parameters(domain: str, tmp_path: Path) -> None:
    """On a small demonstration: every parameter makes another scenario, and a reported change does change the answer."""
    from forerun.core.catalog import demo

    explainer, path = get_domain(domain).explainer, demo(domain).scenario
    assert explainer is not None
    small = SMALL.get(domain, [])
    scenario = forerun.load(path, small)
    saved = forerun.load_result(forerun.simulate(scenario).save(tmp_path / "run"))
    given, offered = explainer.answer(saved.summary), explainer.what_ifs(scenario, saved)
    assert given.question.endswith("?") and len(offered) >= 3
    for what_if in offered:
        assert what_if.values and what_if.present not in what_if.values and what_if.meaning
        assert forerun.load(path, [*small, f"{what_if.path}={json.dumps(what_if.values[0])}"]) != scenario
    seen: dict[Any, Any] = {}

    def figure(path_in: str, value: Any) -> Any:
        seen[value] = forerun.simulate(forerun.load(path, [*small, f"{path_in}={json.dumps(value)}"]))
        return explainer.answer(seen[value].summary).holds

    given_run: Any = SimpleNamespace(summary={"yes": given.holds}, why="", ledgers=())
    turn = explain_with(given_run, yes, [offered[0]], PLAN, executor=Told(figure)).turns[0]
    turned = {
        value for value, result in seen.items() if explainer.answer(result.summary).holds != given.holds
    }
    assert turn.value in turned if turned else turn.value is None
    assert 0 < len(seen) == turn.tried
    # What is left out to save time is not reported.
    lean = forerun.simulate(explainer.bare(scenario)).summary
    keys = [one.key for one in get_domain(domain).objectives]
    assert explainer.answer(lean) == given and all(lean.get(key) == saved.summary.get(key) for key in keys)


def test_what_each_accident_of_a_published_simulator_does(tmp_path: Path) -> None:
    """One row for each switch that touches the policy, put right alone; others are not told."""
    from forerun.core.catalog import demo
    from forerun.replication.elasticflow.known_bugs import SWITCHES

    changes = get_domain("cluster").explainer.changes
    scenario = forerun.load(demo("cluster").scenario, ["mode=compat", "policy=edf"])
    named = [
        change
        for change in changes(scenario, None)  # type: ignore[arg-type]
        if change.path != "slot_s"
    ]
    assert {change.path.removeprefix("compat.") for change in named} == {
        name for name, switch in SWITCHES.items() if "edf" in switch.touches
    }
    assert {change.value for change in named} == {"corrected"}
    mixed = scenario.with_(compat={"edf_overhead": "corrected"})
    values = {change.path: change.value for change in changes(mixed, None)}  # type: ignore[arg-type]
    assert values["compat.edf_overhead"] == "compat" and values["compat.max_gpus_rule"] == "corrected"


def test_a_change_is_compared_with_the_run_that_has_what_is_given() -> None:
    """Both sides have it; where that run cannot be simulated, no effect is claimed."""

    class Sum:
        """Counts the values of a cell; `impossible` cannot be simulated."""

        def run(self, plan: StudyPlan, cells: Iterable[Cell]) -> Iterator[Outcome]:
            for cell in cells:
                values = [value for _, value in cell.overrides]
                if "impossible" in values:
                    yield Failed(cell.number, "no")
                else:
                    yield Done(cell.number, {"yes": True, "x": float(sum(values))})

    changes = [
        Change("a", 10, "alone"),
        Change("a", 10, "beside b", (("b", 100),)),
        Change("c", 20, "beside b", (("b", 100),)),
        Change("a", 10, "beside what cannot be", (("b", "impossible"),)),
    ]
    told: list[Any] = []
    found = explain_with(
        RUN, None, [], PLAN, executor=Sum(), changes=changes, objectives=[Objective("x", "lower", "x")],
        progress=told.append,
    )  # fmt: skip
    assert [dict(effect.figures) for effect in found.effects] == [
        {"x": (1.0, 10.0)},
        {"x": (100.0, 110.0)},
        {"x": (100.0, 120.0)},
        {},
    ]
    assert found.effects[3].refused == "no"
    assert told[0].most == told[-1].done == 6  # two runs to compare with, four changes


@pytest.mark.parametrize("mode", ["compat", "corrected"])
def test_promises_are_one_row_and_their_switches_are_each_alone(mode: str) -> None:
    """Seven switches end ElasticFlow's promises with them; none of their rows shows what the end of promises does."""
    from forerun.core.catalog import demo
    from forerun.replication.elasticflow.schedules.plan_ahead import NEEDED

    asked = ["policy=ef-accessctrl", f"mode={mode}", f"trace.generate.jobs={cases(35, 50)}"]
    path = demo("cluster").scenario
    found = forerun.explain(forerun.simulate(forerun.load(path, asked))).effects
    effects = {effect.change.path.removeprefix("compat."): effect for effect in found}
    moved = [tuple(effect.figures.items()) for effect in effects.values() if effect.moved]
    assert len(moved) == len(set(moved)) >= 5
    if mode == "compat":
        assert not any(effect.change.given for effect in effects.values())
        return
    off = {"compat": {"promises_kept": "compat"}}
    for name in NEEDED - {"promises_kept"}:
        assert effects[name].change.given == (("compat.promises_kept", "compat"),)
    assert not effects["late_test"].moved and not effects["rank_cache"].moved
    assert effects["promises_kept"].moved and "late_test" in effects["promises_kept"].change.meaning
    without = forerun.simulate(forerun.load(path, asked).with_(**off)).summary
    for name, (before, _) in effects["grid_anchor"].figures.items():
        assert before == without[name]


def test_a_switch_that_would_begin_promises_shows_its_own_effect() -> None:
    """All but one of the eight corrected: correcting it begins promises, which both sides then leave out."""
    from forerun.core.catalog import demo

    changes = get_domain("cluster").explainer.changes
    scenario = forerun.load(demo("cluster").scenario, ["policy=ef-accessctrl"]).with_(
        compat={"late_test": "compat"}
    )
    named = {change.path: change for change in changes(scenario, None)}  # type: ignore[arg-type]
    assert named["compat.late_test"].value == "corrected"
    assert named["compat.late_test"].given == (("compat.promises_kept", "compat"),)
    assert not named["compat.grid_anchor"].given and not named["compat.promises_kept"].given
    assert "promises end" not in named["compat.promises_kept"].meaning


def test_the_slot_is_shown_to_move_what_is_admitted_up_and_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under contention ElasticFlow admits other jobs with each slot; the run says so, and `explain` by how much."""
    from forerun.core.catalog import demo

    jobs, nodes = (120, 2) if cases(0, 1) else (40, 1)
    settings = [
        f"trace.generate.jobs={jobs}",
        f"machines.nodes[0].count={nodes}",
        "slot_s=120",
        "policy=ef-accessctrl",
    ]
    path = demo("cluster").scenario
    result = forerun.simulate(forerun.load(path, settings))
    assert any("with slot_s at 120; other slots" in note for note in result.notes)
    saved = result.save(tmp_path / "run")
    assert command_line(["explain", str(saved)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    ratios = [result.summary["deadline_ratio"]]
    for slot in (240, 60, 10, 1):
        assert f"slot_s={slot}" in shown
        changed = forerun.simulate(forerun.load(path, [*settings, f"slot_s={slot}"]))
        ratios.append(changed.summary["deadline_ratio"])
    least, most = (format_number(each) for each in (min(ratios), max(ratios)))
    assert f"slot_s moves up and down: deadline_ratio ({least} to {most})" in shown
    explainer, scenario = get_domain("cluster").explainer, forerun.load(path, settings)
    (tried,) = (each for each in explainer.what_ifs(scenario, result) if each.path == "slot_s")
    assert {240, 60, 10, 1} <= set(tried.values)


def test_what_turns_the_answer_really_turns_it(tmp_path: Path) -> None:
    saved = forerun.load_result(forerun.simulate(forerun.loads("domain: toy")).save(tmp_path / "run"))
    for turn in explain(saved).turns:
        if turn.value is not None:
            changed = forerun.simulate(forerun.loads("domain: toy", [f"{turn.what_if.path}={turn.value}"]))
            assert changed.summary["total_s"] > 3


def test_the_verb(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    forerun.simulate(forerun.loads("domain: toy")).save(tmp_path / "run")
    assert command_line(["explain", str(tmp_path / "run")]) == 0
    shown, told = capsys.readouterr()
    assert "at most 19 simulations" in told
    assert "y=-1 cannot be simulated" in shown
    assert "Is the total at most 3 s? Yes." in shown and "--set y=2.03" in shown
    assert "the smallest change tried that turns the answer: y from 2 to 2.03" in shown


def test_causes_are_shares_largest_first() -> None:
    ledger = Ledger("t", "s", 10, {"a": 1, "b": 6, "c": 3, "d": 0})
    assert dominant_causes([ledger], most=2) == (("t", "b", 0.6), ("t", "c", 0.3))
    assert dominant_causes([ledger])[-1] == ("t", "a", 0.1)
