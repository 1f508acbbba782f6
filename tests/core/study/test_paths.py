"""Studies whose world is a sample too: paths met by every combination, intervals of two levels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from forerun.core.cli.main import run as command_line
from forerun.core.errors import ScenarioError, StoreError
from forerun.core.report import html_page
from forerun.core.result.stats import mean_interval, path_means, two_level_interval
from forerun.core.rng import stream
from forerun.core.study.cell import Done
from forerun.core.study.executors import Here
from forerun.core.study.executors.processes import Processes
from forerun.core.study.expand import StudyPlan, load_study
from forerun.core.study.run import run_study
from forerun.core.study.saved import load_saved
from forerun.core.study.store import Store
from forerun.core.study.summary import cells_table, points

STUDY = """
base: {domain: toy, noise: 0.5, path_noise: 3.0}
axes:
  path: [1, 2, 3, 4, 5, 6]
  policy: [plain, half]
  x: [1, 2]
seeds: 4
paths: path
"""


def plan_of(tmp_path: Path, text: str = STUDY, name: str = "study.yaml") -> StudyPlan:
    (tmp_path / name).write_text(text)
    return load_study(tmp_path / name)


def test_paths_are_no_axis_but_met_by_every_combination(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    assert [name for name, _ in plan.axes] == ["policy", "x"] and plan.paths == ("path", (1, 2, 3, 4, 5, 6))
    assert (len(plan), plan.combinations, plan.replications, plan.independent) == (96, 4, 24, 6)
    cells = list(plan.cells())
    assert all(plan.cell(cell.number) == cell for cell in cells)
    first = [(dict(cell.overrides), cell.seed) for cell in cells[:24]]
    assert {values["path"] for values, _ in first} == {1, 2, 3, 4, 5, 6}
    assert {(values["policy"], values["x"]) for values, _ in first} == {("plain", 1)}


def test_a_study_of_paths_tells_two_level_intervals_however_it_was_run(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    pages = []
    for name, executor in (("here", Here()), ("pool", Processes(2))):
        (tmp_path / name).mkdir()
        run_study(plan, tmp_path / name / "s.sqlite", executor)
        pages.append(html_page([load_saved(tmp_path / name / "s.sqlite")]))
    assert pages[0] == pages[1]
    found = load_saved(tmp_path / "here" / "s.sqlite")
    assert found.over == "6 paths × 4 seeds" and "two of" not in found.why()
    with Store(tmp_path / "here" / "s.sqlite", plan) as store:
        outcomes = list(store.outcomes())
        table = cells_table(plan, outcomes)
    assert table["path"].tolist()[:5] == [1, 1, 1, 1, 2] and table["seed"].tolist()[:5] == [0, 1, 2, 3, 0]
    totals = np.array([one.summary["total_s"] for one in outcomes if isinstance(one, Done)]).reshape(4, 6, 4)
    for point in found.points:
        assert point.intervals["total_s"] == two_level_interval(totals[point.number])
        # As if every cell were independent, the interval is far too narrow: the path dominates.
        naive = mean_interval(totals[point.number].ravel())
        told = point.intervals["total_s"]
        assert told.high - told.low > 1.5 * (naive.high - naive.low)
    best, other = found.ranked()[:2]
    behind = found.behind(other, best)
    by_hand = mean_interval((totals[other.number] - totals[best.number]).mean(axis=1))
    assert behind is not None and (behind.low, behind.high) == (by_hand.low, by_hand.high)
    assert "over 6 paths" in behind.method
    for text in ("6 paths × 4 seeds", "averaged over", "Student&#x27;s t over the paths&#x27; means"):
        assert text in pages[0], text


@pytest.mark.parametrize(("of_paths", "of_seeds"), [(1.0, 1.0), (3.0, 0.3), (0.0, 1.0)])
def test_two_level_intervals_of_studies_cover(of_paths: float, of_seeds: float) -> None:
    """A study of 1,000 combinations, each with a truth of 0: 93 to 97 % of its intervals hold it.

    Paths and seeds vary in different proportions; a twentieth of the cells is missing. Where paths vary, Student's t
    over all cells as if they were independent holds far less.
    """
    truths, paths, seeds = 1000, 8, 5
    rng = stream(21, "paths", of_paths)
    values = of_paths * rng.normal(size=(truths, paths, 1)) + of_seeds * rng.normal(
        size=(truths, paths, seeds)
    )
    there = rng.random(values.shape) > 0.05
    plan = StudyPlan(
        "s",
        {},
        Path(),
        (("x", tuple(range(truths))),),
        tuple(range(seeds)),
        (),
        paths=("p", tuple(range(paths))),
    )
    outcomes = [
        Done(number, {"y": float(value)})
        for number, (value, kept) in enumerate(zip(values.ravel(), there.ravel()))
        if kept
    ]
    found = points(plan, outcomes)
    assert len(found) == truths
    held = sum(point.intervals["y"].low <= 0 <= point.intervals["y"].high for point in found)
    assert 930 <= held <= 970
    naive = [mean_interval(values[at][there[at]]) for at in range(truths)]
    held_naively = sum(one.low <= 0 <= one.high for one in naive)
    assert held_naively < 0.8 * truths if of_paths else 930 <= held_naively <= 970


def test_path_means_leave_out_what_is_not_there() -> None:
    nan = float("nan")
    assert path_means([[1.0, nan], [nan, nan], [3.0, 5.0]]).tolist() == [1.0, 4.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (STUDY.replace("paths: path", "paths: pth"), r"'pth' is no axis of the study; did you mean 'path'"),
        (STUDY.replace("[1, 2, 3, 4, 5, 6]", "[1]"), "the paths are one"),
        (STUDY.replace("[1, 2, 3, 4, 5, 6]", "[]"), "has no values"),
    ],
)
def test_malformed_paths(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        plan_of(tmp_path, text)


def test_a_store_without_these_paths_is_another_study(tmp_path: Path) -> None:
    run_study(plan_of(tmp_path), tmp_path / "s.sqlite", Here())
    flat = plan_of(tmp_path, STUDY.replace("paths: path", ""), "flat.yaml")
    assert len(flat) == len(plan_of(tmp_path))
    with pytest.raises(StoreError, match="contains another study"):
        run_study(flat, tmp_path / "s.sqlite", Here())


def test_the_verb_tells_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    Path("study.yaml").write_text(STUDY)
    assert command_line(["study", "study.yaml"]) == 0
    shown = capsys.readouterr().out
    assert "interval over 6 paths × 4 seeds (Student's t over the paths' means)" in shown


def test_a_file_that_an_axis_names_is_part_of_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two recorded fleets as paths: one of them changes, and the store is of another study."""
    for name, end in (("one", 30000), ("two", 50000)):
        (tmp_path / f"{name}.csv").write_text(f"0,add,node0\n{end},remove,node0\n")
    (tmp_path / "study.yaml").write_text(
        "base:\n  domain: spot\n  fleet: {name: trace, file: one.csv}\n  horizon: 100s\n"
        "  job: {depth: 1, max_pipelines: 1, step_s: {1: 10}, samples_per_step: 1}\n"
        "axes: {fleet.file: [one.csv, two.csv], growth: [immediate, lazy]}\npaths: fleet.file\nmetrics: [steps_completed]\n"
    )
    monkeypatch.chdir(tmp_path)
    plan = load_study(tmp_path / "study.yaml")
    state = run_study(plan, tmp_path / "s.sqlite", Here())
    assert (state.done, state.failed) == (4, 0)
    steps = [point.means["steps_completed"] for point in load_saved(tmp_path / "s.sqlite").points]
    assert steps == [4.0, 4.0]  # three steps on one fleet, five on the other
    (tmp_path / "two.csv").write_text("0,add,node0\n70000,remove,node0\n")
    with pytest.raises(StoreError, match="contains another study"):
        run_study(load_study(tmp_path / "study.yaml"), tmp_path / "s.sqlite", Here())
