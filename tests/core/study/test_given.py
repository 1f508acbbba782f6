"""Axes of the environment are no choice: the best choice is sought at each of their settings; ties are stated once."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from forerun.core.cli.main import run as command_line
from forerun.core.domain import get_domain
from forerun.core.errors import ScenarioError
from forerun.core.report import html_page
from forerun.core.study.executors import Here
from forerun.core.study.expand import load_study
from forerun.core.study.ranking import SavedStudy, best_rows, effects, frontier, ranking_of
from forerun.core.study.run import run_study
from forerun.core.study.saved import load_saved

from .test_study_page import words

#: the load is x; policy half is best at each of its values, and y makes no difference to the total
STUDY = """
base: {domain: toy, noise: 1.0}
axes:
  x: [1, 2, 3]
  policy: [plain, half]
given: [x]
seeds: 6
"""


def saved(tmp_path: Path, text: str = STUDY) -> SavedStudy:
    (tmp_path / "s.yaml").write_text(text)
    plan = load_study(tmp_path / "s.yaml")
    run_study(plan, tmp_path / "s.sqlite", Here())
    return load_saved(tmp_path / "s.sqlite")


def test_the_best_choice_is_sought_at_each_setting(tmp_path: Path) -> None:
    found = saved(tmp_path)
    assert (found.given, found.choices) == ((0,), (1,))
    settings = found.settings()
    assert [setting.values for setting in settings] == [(1,), (2,), (3,)]
    assert [setting.ranked[0].values for setting in settings] == [(1, "half"), (2, "half"), (3, "half")]
    assert "lowest total time: policy half at x 1, x 2 and x 3" in found.why()
    assert "differs significantly from every other choice at 3 of 3" in found.why()
    columns, rows = ranking_of(found).table()
    assert [row[0] for row in rows] == ["1", "1", "2", "2", "3", "3"]
    assert [row[-1] == "best" for row in rows] == [True, False] * 3 and columns[-1] == "against the best"
    assert [effect.axis for effect in effects(found)] == ["policy"]


def test_differences_are_to_the_best_of_the_same_setting(tmp_path: Path) -> None:
    found = saved(tmp_path)
    for setting in found.settings():
        best, other = setting.ranked
        interval = found.behind(other, best)
        assert interval is not None and interval.low < 1.0 < interval.high


def test_without_given_axes_everything_is_as_before(tmp_path: Path) -> None:
    found = saved(tmp_path, STUDY.replace("given: [x]\n", ""))
    assert found.given == () and len(found.settings()) == 1
    assert found.ranked()[0].values == (1, "half") and best_rows(found, found.settings()) == ([], [])
    assert "x 1, policy half has the lowest total time" in found.why()


def test_a_study_of_loads_alone_has_nothing_to_choose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = saved(tmp_path, "base: {domain: toy}\naxes: {x: [1, 2, 3]}\ngiven: [x]\nseeds: 2\n")
    assert "nothing to choose: total time is" in found.why() and "lowest" not in found.why()
    assert found.given == (0,) and best_rows(found, found.settings()) == ([], [])
    assert "against the best" not in ranking_of(found).table()[0]
    arguments = ["study", str(tmp_path / "s.yaml"), "--store", str(tmp_path / "s.sqlite")]
    assert command_line(arguments) == 0 and "against the best" not in capsys.readouterr().out
    shown = words(html_page([found]))
    assert "nothing to choose" in shown and " best " not in shown.split("Figures")[1].split("Provenance")[0]


def test_ties_are_stated_once(tmp_path: Path) -> None:
    """Twenty values of y that change nothing, at two loads: two rows a load, not twenty."""
    text = "base: {domain: toy}\naxes: {x: [1, 2], unlucky_x: {start: 10, stop: 29, step: 1}}\ngiven: [x]\nseeds: 2\n"
    found = saved(tmp_path, text)
    columns, rows = ranking_of(found).table()
    assert [row[columns.index("count")] for row in rows] == ["1", "19", "1", "19"]
    assert [row[-1] for row in rows] == ["best", "level"] * 2
    assert rows[1][1] == "11, 12, 13, 14, 15, 16, …, 29"
    assert "every choice alike at x 1 and x 2" in found.why()
    _, bests = best_rows(found, found.settings())
    assert [row[1] for row in bests] == ["10, 11, 12, 13, 14, 15, …, 29"] * 2
    assert words(html_page([found])).count(" level ") <= 4


def test_a_domain_says_which_sections_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_domain("toy"), "environment", ("x",), raising=False)
    unnamed = STUDY.replace("given: [x]\n", "")
    assert saved(tmp_path, unnamed).given == (0,)
    (tmp_path / "s.sqlite").unlink()
    assert saved(tmp_path, STUDY.replace("[x]", "[]")).given == ()


@pytest.mark.parametrize("domain", ["cluster", "energy", "loading", "serving", "spot"])
def test_given_sections_are_sections_of_the_scenario(domain: str) -> None:
    known = get_domain(domain)
    assert known.environment and set(known.environment) <= set(known.scenario_type.__struct_fields__)


def test_what_is_given_is_kept_and_is_no_part_of_the_study(tmp_path: Path) -> None:
    first = saved(tmp_path)
    again = saved(tmp_path, STUDY.replace("[x]", "[policy]"))
    assert first.id == again.id and again.given == (1,)
    # A store of before has no such entry.
    connection = sqlite3.connect(tmp_path / "s.sqlite")
    connection.execute("DELETE FROM about WHERE key = 'given'")
    connection.commit()
    connection.close()
    assert load_saved(tmp_path / "s.sqlite").given == ()


def test_an_axis_that_is_none_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(STUDY.replace("[x]", "[polcy]"))
    with pytest.raises(
        ScenarioError, match=r"s\.yaml:6.*'polcy' is no axis of the study; did you mean 'policy'"
    ):
        load_study(tmp_path / "s.yaml")


def test_trade_offs_and_figures_are_of_one_setting(tmp_path: Path) -> None:
    found = saved(tmp_path)
    for setting in found.settings():
        trade = frontier(found, setting.ranked)
        assert trade is None or {point.values[0] for point in (*trade[1], *trade[2])} == set(setting.values)


def test_the_command_and_the_page_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(tmp_path)
    arguments = ["study", str(tmp_path / "s.yaml"), "--store", str(tmp_path / "s.sqlite")]
    assert command_line(arguments) == 0
    assert "The best choice for each x" in capsys.readouterr().out
    assert command_line([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["given"] == ["x"] and data["best"] is None
    assert [one["given"] for one in data["settings"]] == [{"x": 1}, {"x": 2}, {"x": 3}]
    assert all(
        (one["best"], one["others"], one["significant"]) == ({"policy": "half"}, 1, 1)
        for one in data["settings"]
    )
    shown = words(html_page([load_saved(tmp_path / "s.sqlite")]))
    assert (
        "X is given, not chosen: the best choice at each." in shown
        and "The best choice at x 1 as a run." in shown
    )
