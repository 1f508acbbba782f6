"""Explanations: the largest causes, and the first value of each lever that turns the answer."""

from __future__ import annotations

from pathlib import Path

import forerun
from forerun.cli.main import run as command_line
from forerun.domains.explaining import explain_run
from forerun.result.ledger import Ledger
from forerun.study.explain import dominant_causes


def test_the_first_value_that_turns_the_answer(tmp_path: Path) -> None:
    saved = forerun.load_result(forerun.simulate(forerun.loads("domain: toy")).save(tmp_path / "run"))
    found = explain_run(saved)
    assert found.answer is not None and found.answer.holds
    assert found.causes == (("time", "y", 2 / 3), ("time", "x", 1 / 3))
    turned = {turn.lever.path: (turn.value, turn.tried) for turn in found.turns}
    # y = -1 is no scenario: it counts as tried, turns nothing and stops nothing.
    assert turned == {"x": (1.5, 1), "y": (2.5, 2), "sleep_s": (None, 2)}
    assert [turn.lever.path for turn in found.turns] == ["x", "y", "sleep_s"]


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
    assert "Is the total at most 3 s? Yes." in shown and "--set x=1.5" in shown


def test_causes_are_shares_largest_first() -> None:
    ledger = Ledger("t", "s", 10, {"a": 1, "b": 6, "c": 3, "d": 0})
    assert dominant_causes([ledger], most=2) == (("t", "b", 0.6), ("t", "c", 0.3))
    assert dominant_causes([ledger])[-1] == ("t", "a", 0.1)
