"""Explanations: the largest causes, and the first value of each lever that turns the answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import forerun
from forerun.cli.main import run as command_line
from forerun.domains import room_part, rooms
from forerun.domains.explaining import explain_run
from forerun.errors import UsageError
from forerun.result.ledger import Ledger
from forerun.study.explain import Answer, Change, Lever, dominant_causes, explain
from forerun.study.objective import Objective


def test_the_first_value_that_turns_the_answer(tmp_path: Path) -> None:
    saved = forerun.load_result(forerun.simulate(forerun.loads("domain: toy")).save(tmp_path / "run"))
    found = explain_run(saved)
    assert found.answer is not None and found.answer.holds
    assert found.causes == (("time", "y", 2 / 3), ("time", "x", 1 / 3))
    turned = {turn.lever.path: (turn.value, turn.tried) for turn in found.turns}
    # y = -1 is no scenario: it counts as tried, turns nothing and stops nothing. Any more than 3 in all turns it, so
    # each number is halved towards the present one four times: x from 1.5, y from 2.5 by way of 2.25, 2.12, 2.06.
    assert turned == {"x": (1.03, 5), "y": (2.03, 6), "sleep_s": (None, 2)}
    assert [turn.lever.path for turn in found.turns] == ["y", "x", "sleep_s"]
    assert found.smallest is found.turns[0] and found.turns[0].change == pytest.approx(0.015)


def walked(lever: Lever, turns: Callable[[Any], bool]) -> tuple[Any, list[Any]]:
    """The value at which a lever turns, and all that were simulated."""
    seen: list[Any] = []

    def simulate_with(path: str, value: Any) -> Any:
        seen.append(value)
        if value == "impossible":
            raise UsageError.at(path, "no")
        return SimpleNamespace(summary={"yes": turns(value), "x": 2.0}, why="")

    run = SimpleNamespace(summary={"yes": False, "x": 1.0}, why="", ledgers=())
    found = explain(
        run, lambda summary: Answer("Yes?", summary["yes"]), [lever], simulate_with,
        changes=[Change("a", 1, "a"), Change("b", "impossible", "b")], objectives=[Objective("x", "lower", "x")],
    )  # fmt: skip
    assert found.effects[0].figures == {"x": (1.0, 2.0)} and found.effects[0].moved == ("x",)
    assert found.effects[1].refused == "b: no" and not found.effects[1].moved
    return found.turns[0].value, seen[:-2]


def test_a_number_is_halved_towards_what_does_not_turn() -> None:
    assert walked(Lever("n", 1, (2, 4, 16)), lambda n: n >= 9) == (9, [2, 4, 16, 10, 7, 8, 9])
    assert walked(Lever("n", 10, (8, 4)), lambda n: n <= 5) == (5, [8, 4, 6, 5])
    # Only values on the turning side of the present one bound it: 2 says nothing of those above 8.
    assert walked(Lever("n", 8, (2, 16)), lambda n: n >= 12) == (12, [2, 16, 12, 10, 11])
    assert walked(Lever("n", 0.3, (0.6, 1.0)), lambda x: x > 0.7) == (
        0.725,
        [0.6, 1.0, 0.8, 0.7, 0.75, 0.725],
    )
    # Not monotone: what is told was simulated and turns the answer.
    assert walked(Lever("n", 1, (9,)), lambda n: n in (9, 5, 4)) == (4, [9, 5, 3, 4])
    assert walked(Lever("p", "a", ("impossible", "c", "d")), lambda p: p == "d") == (
        "d",
        ["impossible", "c", "d"],
    )


#: small enough to be simulated often
SMALL = {
    "cluster": ["trace.generate.jobs=50"],
    "energy": ["trials=1", "recurrences=20"],
    "loading": ["dataset.samples=400", "run.epochs=1", "grid={blocks: [1, 4], threads: [1]}"],
    "serving": ["trace.queries=1000"],
    "spot": ["trials=100"],
}


@pytest.mark.parametrize("room", [name for name in rooms() if name != "toy"])
def test_every_room_has_a_question_and_levers_that_name_something(room: str, tmp_path: Path) -> None:
    """On a small demonstration: every lever makes another scenario, and what a lever turns is turned."""
    from forerun.domains.demos import demo

    part, path = room_part(room, "levers"), demo(room).scenario
    assert part is not None, f"{room} has no module levers with answer and levers"
    small = SMALL.get(room, [])
    scenario = forerun.load(path, small)
    saved = forerun.load_result(forerun.simulate(scenario).save(tmp_path / "run"))
    given, offered = part.answer(saved.summary), part.levers(scenario, saved)
    assert given.question.endswith("?") and len(offered) >= 3
    for lever in offered:
        assert lever.values and lever.present not in lever.values and lever.meaning
        assert forerun.load(path, [*small, f"{lever.path}={json.dumps(lever.values[0])}"]) != scenario
    seen: dict[Any, Any] = {}

    def simulate_with(path_in: str, value: Any) -> Any:
        seen[value] = forerun.simulate(forerun.load(path, [*small, f"{path_in}={json.dumps(value)}"]))
        return seen[value]

    turn = explain(saved, part.answer, [offered[0]], simulate_with).turns[0]
    turned = {value for value, result in seen.items() if part.answer(result.summary).holds != given.holds}
    assert turn.value in turned if turned else turn.value is None
    assert 0 < len(seen) <= turn.tried


def test_what_each_accident_of_a_published_simulator_does(tmp_path: Path) -> None:
    """One row for each switch that touches the policy, put right alone; others are not told."""
    from forerun.domains.cluster.levers import changes
    from forerun.domains.cluster.switches import SWITCHES
    from forerun.domains.demos import demo

    scenario = forerun.load(demo("cluster").scenario, ["mode=compat", "policy=edf"])
    named = changes(scenario, None)  # type: ignore[arg-type]
    assert {change.path.removeprefix("compat.") for change in named} == {
        name for name, switch in SWITCHES.items() if "edf" in switch.touches
    }
    assert {change.value for change in named} == {"corrected"}
    mixed = scenario.with_(compat={"edf_overhead": "corrected"})
    values = {change.path: change.value for change in changes(mixed, None)}  # type: ignore[arg-type]
    assert values["compat.edf_overhead"] == "compat" and values["compat.max_gpus_rule"] == "corrected"


def test_what_turns_the_answer_really_turns_it(tmp_path: Path) -> None:
    saved = forerun.load_result(forerun.simulate(forerun.loads("domain: toy")).save(tmp_path / "run"))
    for turn in explain_run(saved).turns:
        if turn.value is not None:
            changed = forerun.simulate(forerun.loads("domain: toy", [f"{turn.lever.path}={turn.value}"]))
            assert changed.summary["total_s"] > 3


def test_the_verb(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    forerun.simulate(forerun.loads("domain: toy")).save(tmp_path / "run")
    assert command_line(["explain", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "Is the total at most 3 s? Yes." in shown and "--set y=2.03" in shown
    assert "the smallest change tried that turns the answer: y from 2 to 2.03" in shown


def test_causes_are_shares_largest_first() -> None:
    ledger = Ledger("t", "s", 10, {"a": 1, "b": 6, "c": 3, "d": 0})
    assert dominant_causes([ledger], most=2) == (("t", "b", 0.6), ("t", "c", 0.3))
    assert dominant_causes([ledger])[-1] == ("t", "a", 0.1)
