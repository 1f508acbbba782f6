"""A store tells its study by itself: ranked combinations, what each axis does, trade-offs, what failed."""

from __future__ import annotations

import sqlite3
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forerun.core.errors import StoreError, UsageError
from forerun.core.result.figures import Figure
from forerun.core.result.stats import paired_interval
from forerun.core.rng import stream
from forerun.core.study.cell import Done, Failed
from forerun.core.study.executors import Here
from forerun.core.study.expand import StudyPlan, load_study
from forerun.core.study.figures import figures
from forerun.core.study.ranking import SavedStudy, effects, frontier, ranking_of
from forerun.core.study.run import run_study
from forerun.core.study.saved import load_saved
from forerun.core.study.store import Store, is_store
from forerun.core.study.summary import cells_table, points
from forerun.core.study.wording import axis_labels, value_text

STUDY = """
base: {domain: toy, noise: 1.0}
axes:
  x: {start: 0, stop: 2, step: 1}
  policy: [plain, half]
seeds: 6
"""


def drawn_of(study: SavedStudy) -> tuple[Figure, ...]:
    return figures(study, ranking_of(study))


def saved(tmp_path: Path, text: str = STUDY) -> SavedStudy:
    (tmp_path / "s.yaml").write_text(text)
    run_study(load_study(tmp_path / "s.yaml"), tmp_path / "s.sqlite", Here())
    return load_saved(tmp_path / "s.sqlite")


def test_the_best_combination_comes_first(tmp_path: Path) -> None:
    found = saved(tmp_path)
    assert (found.done, found.failed, len(found.plan)) == (36, 0, 36)
    ranked = found.ranked()
    assert ranked[0].values == (0, "half") and ranked[-1].values == (2, "plain")
    totals = [point.means["total_s"] for point in ranked]
    assert totals == sorted(totals)
    assert "x 0, policy half has the lowest total time" in found.why()


def test_a_combination_is_compared_with_the_best_on_common_seeds(tmp_path: Path) -> None:
    found = saved(tmp_path)
    best = next(point for point in found.points if point.values == (0, "half"))
    same_but_plain = next(point for point in found.points if point.values == (0, "plain"))
    interval = found.behind(same_but_plain, best)
    with Store(tmp_path / "s.sqlite") as store:
        totals = {o.number: o.summary["total_s"] for o in store.outcomes() if isinstance(o, Done)}
    # x=0: cells 0..5 are plain, 6..11 half.
    by_hand = paired_interval([totals[n] for n in range(6)], [totals[n] for n in range(6, 12)])
    assert interval == by_hand and interval.low < 1.0 < interval.high
    alone = same_but_plain.intervals["total_s"]
    assert (interval.high - interval.low) < (alone.high - alone.low) / 3
    assert found.differs_significantly([same_but_plain], best) == [True]


def test_near_ties_do_not_differ_significantly(tmp_path: Path) -> None:
    # The policies' own noise has a spread of 70 on their difference of 1: six seeds cannot show it.
    found = saved(tmp_path, "base: {domain: toy, noise: 500.0}\naxes: {policy: [plain, half]}\nseeds: 6")
    best, other = found.ranked()
    assert found.differs_significantly([other], best) == [False]
    assert "1 of 1 others are not significantly different from it" in found.why()


def test_equal_combinations_differ_significantly_in_few_studies(tmp_path: Path) -> None:
    """Ten combinations that are the same but for their noise, five seeds: claims in at most 5 % of 400 studies (plus
    three standard errors); a correction for a best that was known before claims in about 10 %."""
    found = saved(
        tmp_path, "base: {domain: toy, noise: 0.0}\naxes: {x: {start: 1, stop: 10, step: 1}}\nseeds: 5"
    )
    claims = 0
    for study in range(400):
        draws = stream(3, "equal", study).normal(size=(10, 5))
        drawn = replace(found, draws=draws)
        order = np.argsort(draws.mean(axis=1))
        best, *others = (found.points[at] for at in order)
        claims += any(drawn.differs_significantly(others, best))
    assert claims / 400 <= 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5


def test_what_each_axis_does_by_hand(tmp_path: Path) -> None:
    found = saved(tmp_path, STUDY.replace("noise: 1.0", "noise: 0.0"))
    x, policy = effects(found)
    assert (x.axis, x.best, x.best_mean, x.worst, x.worst_mean) == ("x", "0", 1.5, "2", 3.5)
    assert (x.wins, x.settings) == (2, 2)
    assert (policy.axis, policy.best, policy.best_mean, policy.worst_mean) == ("policy", "half", 2.0, 3.0)
    assert (policy.wins, policy.settings) == (3, 3)


def test_an_axis_that_does_nothing_is_not_told(tmp_path: Path) -> None:
    text = "base: {domain: toy}\naxes: {x: [1, 2], sleep_s: [0.0, 0.001]}"
    assert [effect.axis for effect in effects(saved(tmp_path, text))] == ["x"]


def test_an_axis_with_a_failed_value_is_told_over_the_rest(tmp_path: Path) -> None:
    text = STUDY.replace("noise: 1.0", "noise: 0.0, unlucky_x: 2")
    found = saved(tmp_path, text)
    assert found.failed == 12
    # No setting has all values of x; both policies ran at x = 0 and 1.
    (policy,) = effects(found)
    assert (policy.axis, policy.best_mean, policy.worst_mean, policy.settings) == ("policy", 1.5, 2.5, 2)
    assert found.reasons == {"toy: x is unlucky": 12}
    assert found.failures["toy: x is unlucky"][0] == "x 2, policy plain, seed 0 (cell 24)"


def test_trade_offs_against_brute_force(tmp_path: Path) -> None:
    found = saved(tmp_path, STUDY.replace("seeds: 6", "seeds: 2").replace("stop: 2", "stop: 7"))
    told = frontier(found, found.points)
    assert told is not None
    (one, other), unbeaten, beaten = told
    places = {p.number: (p.means[one.key], p.means[other.key]) for p in found.points}

    def is_beaten(number: int) -> bool:
        mine = places[number]
        return any(
            theirs != mine and theirs[0] <= mine[0] and theirs[1] <= mine[1] for theirs in places.values()
        )

    assert {p.number for p in beaten} == {number for number in places if is_beaten(number)}
    assert {p.number for p in unbeaten} | {p.number for p in beaten} == set(places)
    assert unbeaten and beaten


def test_a_store_that_is_not_finished_is_told_as_far_as_it_is(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    with Store(tmp_path / "s.sqlite", plan, writing=True) as store:
        store.add([Done(0, {"total_s": 3.0}), Failed(1, "no luck"), Done(7, {"total_s": 1.0, "late": 2.0})])
        found = load_saved(tmp_path / "s.sqlite")  # while it is being written
    assert (found.done, found.failed) == (2, 1)
    assert [(p.number, p.seeds, p.failed) for p in found.points] == [(0, 1, 1), (1, 1, 0)]
    assert found.metrics == ("total_s", "late")
    empty = tmp_path / "empty.sqlite"
    with Store(empty, plan, writing=True):
        pass
    assert load_saved(empty).points == () and drawn_of(load_saved(empty)) == ()


def plan_of(tmp_path: Path, text: str = STUDY) -> StudyPlan:
    (tmp_path / "s.yaml").write_text(text)
    return load_study(tmp_path / "s.yaml")


def test_the_file_and_the_user_choose_what_ranks(tmp_path: Path) -> None:
    found = saved(tmp_path, STUDY + "objective: cost_usd:higher\nmetrics: [total_s]\n")
    assert found.ranked()[0].means["cost_usd"] == 18 and found.shown == ("total_s",)
    again = load_saved(tmp_path / "s.sqlite", "total_s")
    assert again.objective is not None and again.objective.better == "lower"
    with pytest.raises(UsageError, match="no metric 'cost'; did you mean 'cost_usd'"):
        load_saved(tmp_path / "s.sqlite", "cost")
    # What is shown is no part of what the study is: another choice goes on with the same store.
    run_study(plan_of(tmp_path, STUDY), tmp_path / "s.sqlite", Here())
    assert load_saved(tmp_path / "s.sqlite").plan.metrics == ()


def test_what_is_no_store_is_left_as_it_is(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.sqlite"
    connection = sqlite3.connect(theirs)
    connection.execute("CREATE TABLE mine (x)")
    connection.commit()
    connection.close()
    before = theirs.read_bytes()
    with pytest.raises(StoreError, match="no study store"):
        load_saved(theirs)
    assert theirs.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["theirs.sqlite"]
    assert is_store(theirs) and not is_store(tmp_path) and not is_store(tmp_path / "absent")


def test_cells_are_found_by_number(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, STUDY + "\n")
    assert all(plan.cell(cell.number) == cell for cell in plan.cells())
    bare = plan_of(tmp_path, "base: {domain: toy}\nseeds: [5, 3]")
    assert [bare.cell(n).seed for n in (0, 1)] == [5, 3] and bare.combinations == 1


def test_the_table_of_cells_holds_what_the_outcomes_say(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "base: {domain: toy}\naxes: {y: [1, 2.5], policy: [plain, half]}\nseeds: [4, 9]")
    outcomes = [
        Done(1, {"a": 1.0, "seed": 3}),
        Failed(2, "=gone"),
        Done(7, {"a": 2, "b": None, "c": True, "d": 4.5}),
    ]
    table = cells_table(plan, iter(outcomes))
    rows = {name: table[name].tolist() for name in table.columns}
    assert rows["cell"] == [1, 2, 7] and rows["seed"] == [9, 4, 9]
    assert rows["y"] == [1.0, 1.0, 2.5] and rows["policy"] == ["plain", "half", "half"]
    assert rows["state"] == ["done", "failed", "done"] and rows["reason"] == ["", "=gone", ""]
    np.testing.assert_array_equal(table["a"], [1.0, np.nan, 2.0])
    np.testing.assert_array_equal(table["d"], [np.nan, np.nan, 4.5])
    assert list(rows) == ["cell", "y", "policy", "seed", "state", "a", "d", "reason"]


def test_memory_does_not_grow_with_the_seeds_of_a_combination(tmp_path: Path) -> None:
    """Outcomes pass one combination at a time: twenty times the cells, hardly more memory at the peak."""
    peaks = []
    for seeds in (200, 4000):
        plan = plan_of(tmp_path, f"base: {{domain: toy}}\naxes: {{x: [1, 2, 3, 4, 5]}}\nseeds: {seeds // 5}")
        outcomes = (Done(n, {f"m{k}": float(k) for k in range(20)}) for n in range(len(plan)))
        tracemalloc.start()
        found = points(plan, outcomes)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(found) == 5
    cell_bytes = 1500  # of one outcome with twenty metrics
    assert peaks[1] - peaks[0] < 1.5 * cell_bytes * (4000 / 5)


def test_names_of_axes_and_values() -> None:
    assert axis_labels(["a.b.rate_rps", "a.c.rate_rps"]) == ("b rate", "c rate")
    assert axis_labels(["stages[0].replicas", "stages[1].replicas"]) == ("0 replicas", "1 replicas")
    assert axis_labels(["slo_ms", "slo_s"]) == ("slo_ms", "slo_s")
    assert value_text({"name": "timeout", "delay": "5ms"}) == "timeout (delay=5ms)"
    assert [value_text(v) for v in (0.1 + 0.2, 5, True, None, [1, 2.5], {"a": 1})] == [
        "0.3", "5", "yes", "none", "1, 2.5", '{"a":1}',
    ]  # fmt: skip


def test_figures_of_a_study(tmp_path: Path) -> None:
    drawn = {figure.id: figure for figure in drawn_of(saved(tmp_path))}
    assert list(drawn) == ["along-total", "along-cost", "over-total", "frontier"]
    lines = drawn["along-total"]
    assert lines.kind == "line" and set(lines.data["line"]) == {"plain", "half"} and len(lines.data["x"]) == 6
    assert all(
        low <= y <= high for low, y, high in zip(lines.data["low"], lines.data["y"], lines.data["high"])
    )
    assert drawn["over-total"].kind == "heatmap" and drawn["frontier"].y.label == "cost"
    (tmp_path / "named").mkdir()
    text = STUDY.replace("x: {start: 0, stop: 2, step: 1}", "misfortune: [error, bug]")
    listed = drawn_of(saved(tmp_path / "named", text))
    assert listed[0].kind == "bar" and len(listed[0].data["combination"]) == 4


def test_many_axes_are_cut_at_the_best(tmp_path: Path) -> None:
    axes = "{x: [0, 1, 2], y: [1, 2, 3, 4], policy: [plain, half], noise: [0, 1, 2, 3, 4]}"
    text = f"base: {{domain: toy}}\naxes: {axes}\nseeds: 2"
    drawn = {figure.id: figure for figure in drawn_of(saved(tmp_path, text))}
    lines = drawn["along-total"]
    # The longest numeric axis along x, lines by policy, x and y where the best has them.
    assert (
        lines.x.label == "noise"
        and set(lines.data["line"]) == {"plain", "half"}
        and len(lines.data["x"]) == 10
    )
    assert "The other axes are where the best combination has them: x 0, y 1" in lines.caption
