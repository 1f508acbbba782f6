"""Statistics of recorded fleets, the notebook's and the corrected ones; fitting; generated traces."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from forerun.core.trace.reader import read_trace
from forerun.spot.engine.membership import Membership
from forerun.spot.inputs.recorded import of_membership
from forerun.spot.scenario.batches import Burst, Geometric, Marks
from forerun.spot.scenario.processes import (
    Bathtub,
    Hourly,
    Lifetimes,
    PerNode,
    Poisson,
    Storms,
    Tick,
    generate,
)
from forerun.spot.traces import fit as fitting
from forerun.spot.traces.fit import fit, notebook_process, poisson_interval
from forerun.spot.traces.statistics import (
    as_the_notebook,
    corrected,
    fleet_statistics,
    read_counts,
    statistics_of_counts,
)

Golden = Callable[[str], Any]


def full_64(data_folder: Path) -> Any:
    base = data_folder / "bamboo/full-64"
    return read_counts(base / "full-64-node-trace.csv", base / "full-64-terminate-trace.csv")


def test_the_twelve_printed_values(golden: Golden, data_folder: Path) -> None:
    mine = as_the_notebook(full_64(data_folder))
    theirs = golden("trace_stats.json")["notebook_printed"]
    assert set(mine) == set(theirs)
    for name, value in theirs.items():
        assert mine[name] == pytest.approx(value, abs=1e-12, rel=1e-15), name


def test_the_corrected_values(golden: Golden, data_folder: Path) -> None:
    mine, theirs = corrected(full_64(data_folder)), golden("trace_stats.json")["corrected"]
    assert mine.rows_out_of_order == theirs["rows_out_of_order"]
    assert mine.mean_gap_s == 360.0
    assert mine.std_gap_s == pytest.approx(theirs["std_gap_s"], rel=1e-12)
    assert mine.cv == pytest.approx(theirs["cv"], rel=1e-12)
    assert mine.gaps == theirs["gaps"]
    assert mine.node_hours == pytest.approx(theirs["node_hours"], rel=1e-12)
    assert mine.per_node_hour == pytest.approx(theirs["preemptions_per_node_hour"], rel=1e-12)
    assert {str(size): count for size, count in mine.batches.items()} == theirs["preemption_batch_histogram"]
    assert mine.geometric_p == pytest.approx(theirs["shifted_geometric_p"], rel=1e-12)
    assert (mine.preempted_nodes, mine.added_nodes_net) == (140, 188)


def test_rounded_marks_shift_the_batches(golden: Golden, data_folder: Path) -> None:
    theirs = golden("trace_stats.json")["mark_bias"]
    process = notebook_process(full_64(data_folder))

    def mean(sizes: np.ndarray) -> float:
        return float((sizes * np.arange(1, sizes.size + 1)).sum())

    assert mean(process.removal_sizes()) == pytest.approx(theirs["generated_preempt_batch_mean"], rel=1e-9)
    # The reference counts bursts at .0588 of additions, uniform on 11 ... 31.
    assert mean(process.add_sizes()) == pytest.approx(
        theirs["generated_add_batch_mean_big_11_to_31"], rel=1e-3
    )
    geometric = notebook_process(full_64(data_folder), geometric=True)
    assert mean(geometric.removal_sizes()) == pytest.approx(theirs["true_preempt_batch_mean"], rel=1e-9)


def test_exact_poisson_interval(data_folder: Path) -> None:
    """58 events in 355 minutes: .1634 [.1241, .2112] a minute; 0 events: at most 3.69 with 95 %."""
    low, high = poisson_interval(58)
    assert (round(low / 355, 4), round(high / 355, 4)) == (0.1241, 0.2112)
    assert poisson_interval(0) == (0.0, pytest.approx(3.6889, abs=1e-4))


def test_fit_recovers_a_known_process() -> None:
    """Each model from its own fleets: the truth in the intervals of its rates, the recording in its bands."""
    for process, model in (
        (Poisson(removals_per_min=0.4, adds_per_min=0.4, start=20, cap=64), "poisson"),
        (PerNode(removal_per_node_h=0.5, return_per_node_h=2.0, start=30, cap=40), "per_node"),
        (Lifetimes(mean_life_h=2.0, mean_return_h=0.5, shape=0.6, slots=40), "lifetimes"),
    ):
        seen = fleet_statistics(generate(process, seed=5, horizon_s=12 * 3600.0), 12 * 3600.0)
        found = fit(seen, model=model, traces=80, cap=getattr(process, "cap", 40))  # type: ignore[arg-type]
        assert type(found.process) is type(process)
        for rate in found.rates:
            truth = getattr(process, rate.name)
            assert rate.low < truth < rate.high, rate
        assert found.agreement >= 0.75, found.features


def test_the_best_model_is_the_one_that_made_the_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that return one by one keep the fleet near its size; events of the whole fleet let it wander."""
    monkeypatch.setattr(fitting, "FEW_TRACES", 40)
    process = PerNode(removal_per_node_h=1.0, return_per_node_h=6.0, start=14, cap=14)
    seen = fleet_statistics(generate(process, seed=6, horizon_s=24 * 3600.0), 24 * 3600.0)
    found = fit(seen, model="best", traces=60)
    assert isinstance(found.process, PerNode | Lifetimes) and found.ok
    assert dict(found.compared)["poisson"] < found.agreement


def test_fit_says_where_a_process_does_not_stand_in(data_folder: Path) -> None:
    """The p3 fleet loses two nodes at a time in the mean, which nodes that fail on their own do not."""
    seen = fleet_statistics(of_membership(read_trace(data_folder / "bamboo/traces/p3-trace.csv")))
    found = fit(seen, model="per_node", traces=60)
    by_name = {feature.name: feature for feature in found.features}
    assert by_name["removals per hour"].ok and by_name["mean nodes"].ok
    assert not by_name["nodes per removal"].ok and not found.ok


def test_a_figure_that_the_recording_does_not_have_is_not_judged() -> None:
    """Two removals have one gap, and one gap no variation."""
    rows = (
        (0.0, True, "a"),
        (0.0, True, "b"),
        (600.0, False, "a"),
        (1000.0, True, "c"),
        (5000.0, False, "b"),
    )
    found = fit(fleet_statistics(Membership.from_rows(rows), 5400.0), model="poisson", traces=40)
    assert [one.name for one in found.features] == [
        "removals per hour",
        "nodes per removal",
        "mean nodes",
        "spread of nodes",
    ]
    assert found.ok
    with warnings.catch_warnings():  # with fewer still, no fleet drawn has it either
        warnings.simplefilter("error")
        found = fit(fleet_statistics(Membership.from_rows(rows[:4]), 1500.0), model="poisson", traces=3)
    assert [one.name for one in found.features] == [
        "removals per hour",
        "nodes per removal",
        "mean nodes",
        "spread of nodes",
    ]


def test_what_the_recordings_say_by_themselves(data_folder: Path) -> None:
    """Batches of the measured fleet are geometric and not the notebook's normals; those of the p3 fleet too."""
    answers = {test.question: test.ok for test in fitting.tests(statistics_of_counts(full_64(data_folder)))}
    assert answers["sizes of removals are geometric"]
    assert not answers["sizes of removals are the notebook's rounded normals"]


def test_tests_reject_what_is_false_and_keep_what_is_true() -> None:
    """Of 20 exponential recordings at most five are refused; clearly other ones always are."""
    truth = Poisson(
        removals_per_min=0.5, adds_per_min=0.5, removal_batch=Geometric(p=0.4), cap=4000, start=2000
    )
    refused = {"gaps": 0, "geometric": 0}
    for seed in range(20):
        seen = fleet_statistics(generate(truth, seed=seed, horizon_s=4 * 3600.0), 4 * 3600.0)
        gaps, geometric, *_ = fitting.tests(seen, seed)
        refused["gaps"] += not gaps.ok
        refused["geometric"] += not geometric.ok
    assert max(refused.values()) <= 5, refused
    old = fleet_statistics(
        generate(Lifetimes(mean_life_h=2, mean_return_h=1, shape=4, slots=60), seed=1, horizon_s=36_000.0),
        36_000.0,
    )
    lives = fitting.tests(old)[-1]
    assert "lives" in lives.question and not lives.ok


def test_survival_by_hand() -> None:
    """Lives 1 and 3 h over, one cut off at 2 h: S(1) = 2/3, S(2.5) = 2/3, S(3) = 0."""
    seen = fleet_statistics(
        Membership.from_rows(
            [
                (0.0, True, "a"),
                (0.0, True, "b"),
                (3600.0, False, "a"),
                (3600.0, True, "c"),
                (10_800.0, False, "b"),
            ]
        )
    )
    assert seen.ages_h == (2.0,)
    assert fitting.survival(seen, [0.5, 1.0, 2.5, 3.0]) == pytest.approx([1.0, 2 / 3, 2 / 3, 0.0])


def test_generated_traces_are_the_reference_traces(
    golden: Golden, fleet_of: Callable[[str], Membership]
) -> None:
    """Every tick trace again from its seed, event by event."""
    names = sorted(
        {case["trace"] for case in golden("compat_cases.json")}
        & {c["trace"] for c in golden("exact_cases.json")}
    )
    made = 0
    for name in names:
        match = re.fullmatch(r"traces/(?:nb_p([\d.]+)|fit)_s(\d+)\.csv", name)
        if match is None:
            continue
        if match[1]:
            process = Tick(removals_per_min=float(match[1]), adds_per_min=float(match[1]))
        else:
            process = Tick(
                removals_per_min=0.16338,
                adds_per_min=0.14366,
                removal_batch=Marks(mean=2.4138, std=2.0862),
                add_batch=Marks(mean=2.5417, std=1.9456),
                add_burst=Burst(probability=0.0588),
            )
        assert generate(process, seed=int(match[2]), horizon_s=21_300.0) == fleet_of(name), name
        made += 1
    assert made == 15


def test_one_stream_a_purpose() -> None:
    """Changing the sizes of additions leaves the instants of all events, and the sizes of removals, alone."""
    one = generate(Poisson(removals_per_min=0.2, adds_per_min=0.2, cap=10_000), seed=4, horizon_s=1e5)
    other = generate(
        Poisson(removals_per_min=0.2, adds_per_min=0.2, add_batch=Marks(mean=9.0, std=1.0), cap=10_000),
        seed=4,
        horizon_s=1e5,
    )
    assert [i.t_s for i in one.instants] == [i.t_s for i in other.instants]
    assert fmean(len(i.added) for i in other.instants[1:]) > fmean(len(i.added) for i in one.instants[1:])


def test_weibull_lifetimes_have_the_mean_they_are_given() -> None:
    """Slots that hold a node for 2 h in the mean and are empty for 1 h: two thirds are filled, whatever the
    shape.
    """
    for shape in (0.7, 1.0, 2.0):
        process = Lifetimes(mean_life_h=2.0, mean_return_h=1.0, shape=shape, slots=200)
        seen = fleet_statistics(generate(process, seed=1, horizon_s=200 * 3600.0), 200 * 3600.0)
        assert seen.mean_nodes == pytest.approx(200 * 2 / 3, rel=0.02)
        assert seen.removals_per_node_hour == pytest.approx(0.5, rel=0.02)


def test_bathtub_lives_follow_their_distribution() -> None:
    """Lives drawn are as often below an age as the law says, and none exceeds the limit."""
    law = Bathtub(mean_return_h=0.1, slots=400)
    seen = fleet_statistics(generate(law, seed=3, horizon_s=40 * 3600.0), 40 * 3600.0)
    assert max(seen.lifetimes_h) <= 24.0 + 1e-9
    at_h = [0.5, 1.0, 4.0, 12.0, 22.0, 23.5]
    for age_h, share in zip(at_h, fitting.survival(seen, at_h), strict=True):
        assert share == pytest.approx(1 - law.gone_by(age_h), abs=0.03), age_h


def test_hourly_hazards_follow_the_hour() -> None:
    """Only the hours that remove remove, with the probability of the hour."""
    remove, add = [0.0] * 24, [0.0] * 24
    remove[2], add[5] = 0.3, 0.9
    process = Hourly(remove=tuple(remove), add=tuple(add), start=40, cap=40, start_hour=1)
    fleets = [generate(process, seed=seed, horizon_s=24 * 3600.0) for seed in range(40)]
    lost = [t_s for fleet in fleets for t_s, added, _ in fleet.rows() if not added]
    back = [t_s for fleet in fleets for t_s, added, _ in fleet.rows() if added and t_s > 0]
    assert {int(t_s // 3600) for t_s in lost} == {1} and {int(t_s // 3600) for t_s in back} == {4}
    assert len(lost) / (40 * 40) == pytest.approx(0.3, abs=0.04)
    assert len(back) / len(lost) == pytest.approx(0.9, abs=0.05)


def test_storms_bunch_removals() -> None:
    """Nodes vanish at the rates of calm and storm, so gaps vary more than those of a Poisson process."""
    process = Storms(
        calm_removals_per_min=0.05,
        storm_removals_per_min=2.0,
        adds_per_min=1.0,
        mean_calm_h=3.0,
        mean_storm_h=0.5,
    )
    seen = fleet_statistics(generate(process, seed=2, horizon_s=400 * 3600.0), 400 * 3600.0)
    expected = (0.05 * 3.0 + 2.0 * 0.5) / 3.5 * 60
    assert seen.removes / seen.duration_h == pytest.approx(expected, rel=0.15)
    assert seen.gap_cv > 1.5
