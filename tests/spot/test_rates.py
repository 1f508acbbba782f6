"""Rates that a recording leaves open: their posterior, the trials that draw from it, and what a single run may bring."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.core.errors import ScenarioError, TraceError, UsageError
from forerun.core.scenarios import loads
from forerun.core.trace.domain_traces import Recorded
from forerun.spot.engine import trials
from forerun.spot.engine.job import TrainingJob
from forerun.spot.engine.membership import Membership
from forerun.spot.policies.immediate import Immediate
from forerun.spot.scenario.batches import Empirical
from forerun.spot.scenario.processes import Lifetimes, PerNode, Poisson, generate, of_trial
from forerun.spot.scenario.rates import Stretches
from forerun.spot.traces.fit import fit, in_stretches
from forerun.spot.traces.statistics import fleet_statistics
from forerun.spot.traces.traces import TRACES

DRAWS = 400


def even(removals: tuple[int, ...], hours: float = 1.0) -> Stretches:
    """Stretches of one length, with as many additions as removals."""
    each = (hours,) * len(removals)
    return Stretches(removals=removals, adds=removals, removal_h=each, add_h=each)


def test_many_equal_stretches_leave_what_a_count_leaves() -> None:
    """200 stretches of 30 events: one more has their rate, to within few percent; no trend, and no bias."""
    seen = even((30,) * 200)
    factors = np.array([seen.factors(7, trial) for trial in range(DRAWS)])
    assert factors.mean() == pytest.approx(1.0, abs=0.02)
    assert np.quantile(factors, [0.025, 0.975]) == pytest.approx([0.8, 1.2], abs=0.12)


@pytest.mark.parametrize("shape", [1.0, 3.0])
def test_the_next_stretch_is_in_its_range_as_often_as_said(shape: float) -> None:
    """300 worlds of nine stretches with gamma rates: what eight of them say of the ninth holds as often as it says."""
    world, ranks = np.random.default_rng(86), []
    for number in range(300):
        rates = world.gamma(shape, size=9) / shape * 20
        counts = tuple(int(n) for n in world.poisson(rates[:8]))
        factors = np.array([even(counts).factors(number, trial)[0] for trial in range(100)])
        ranks.append((factors < rates[8] / np.mean(counts)).mean())
    for level in (0.5, 0.8, 0.9):
        inside = np.mean([abs(rank - 0.5) <= level / 2 for rank in ranks])
        error = math.sqrt(level * (1 - level) / len(ranks))
        assert inside == pytest.approx(level, abs=3 * error), level


def test_stretches_that_differ_and_few_stretches_give_wide_ranges() -> None:
    """The same number of events: equal in eight stretches, bunched in two of them, and in two stretches alone."""

    def spread(*removals: int) -> float:
        low, high = np.quantile([even(removals).factors(1, t)[0] for t in range(DRAWS)], [0.1, 0.9])
        return float(high - low)

    equal = spread(*(20,) * 8)
    assert equal < 0.5
    assert spread(80, 0, 0, 0, 80, 0, 0, 0) > 4 * equal
    assert spread(80, 80) > equal


def test_stretches_without_a_chance_say_nothing() -> None:
    """Hours in which nothing could come are left out, whatever their number."""
    some = Stretches(removals=(4, 6), adds=(4, 6), removal_h=(1.0, 1.0), add_h=(1.0, 1.0))
    more = Stretches(removals=(4, 6, 0), adds=(4, 6, 0), removal_h=(1.0, 1.0, 0.0), add_h=(1.0, 1.0, 0.0))
    assert [some.factors(3, t) for t in range(20)] == [more.factors(3, t) for t in range(20)]


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ("adds: [1, 2, 3]", "has 2 stretches, and adds has 3"),
        ("removals: [0, 0]", "has none in all stretches"),
        ("removal_h: [0, 1]", "is 0 in a stretch with removals"),
    ],
)
def test_stretches_that_do_not_fit_together(changed: str, what: str) -> None:
    rows = {"removals": "[1, 2]", "adds": "[1, 2]", "removal_h": "[1, 1]", "add_h": "[1, 1]"}
    name, _, value = changed.partition(": ")
    written = ", ".join(f"{key}: {one}" for key, one in (rows | {name: value}).items())
    fleet = f"{{name: poisson, removals_per_min: 0.1, adds_per_min: 0.1, stretches: {{{written}}}}}"
    job = "{depth: 1, max_pipelines: 1, step_s: {1: 1}, samples_per_step: 1}"
    with pytest.raises(ScenarioError, match=what):
        loads(f"{{domain: spot, horizon: 1h, fleet: {fleet}, job: {job}}}")


PROCESSES = (
    Poisson(
        removals_per_min=0.2,
        adds_per_min=0.3,
        removal_batch=Empirical(counts=(5.0, 0.0, 2.0)),
        start=8,
        cap=12,
        stretches=even((3, 9, 0, 5)),
    ),
    PerNode(removal_per_node_h=1.0, return_per_node_h=3.0, start=8, cap=12, stretches=even((3, 9, 0, 5))),
)


@pytest.mark.parametrize("process", PROCESSES, ids=["poisson", "per_node"])
def test_the_kernel_draws_what_a_replayed_history_draws(process: Poisson | PerNode) -> None:
    """Trial by trial: the kernel with stretches is the kernel with the rates of `of_trial`, in any slice of trials."""
    job = TrainingJob(
        depth=2,
        max_pipelines=6,
        step_s={2 * n: 30.0 / n for n in range(1, 7)},
        reconfig_s=60.0,
        prep_s=90.0,
        write_s=40.0,
        stall_s=2.0,
        horizon_s=7200.0,
    )
    whole = trials.run(job, process, Immediate(), trials=12, seed=5)
    tail = trials.run(job, process, Immediate(), trials=4, seed=5, first_trial=8)
    for name, column in whole.columns.items():
        assert column[8:].tolist() == tail.columns[name].tolist(), name
    for trial in range(12):
        drawn = of_trial(process, 5, trial)
        assert drawn.stretches is None  # type: ignore[union-attr]
        alone = trials.run(job, drawn, Immediate(), trials=1, seed=5, first_trial=trial)  # type: ignore[arg-type]
        assert alone.columns["removals"][0] == whole.columns["removals"][trial]
    assert len({of_trial(process, 5, trial) for trial in range(12)}) == 12


def test_lifetimes_begin_with_the_nodes_that_there_are() -> None:
    law = Lifetimes(mean_life_h=4.0, mean_return_h=1.0, slots=10, start=3)
    fleet = generate(law, seed=2, horizon_s=3600.0)
    assert len(fleet.instants[0].added) == 3 and fleet.instants[0].t_s == 0.0
    assert fleet_statistics(fleet, 3600.0).adds > 3
    assert len(generate(law.with_(start=None), seed=2, horizon_s=3600.0).instants[0].added) == 10


def test_a_complete_fleet_hides_additions_and_the_fit_knows() -> None:
    """Half of the time the fleet is complete: over all of it additions are half as many as over the rest, the truth."""
    truth = Poisson(removals_per_min=0.2, adds_per_min=0.4, start=6, cap=6)
    found = []
    for seed in range(6):
        seen = fleet_statistics(generate(truth, seed=seed, horizon_s=40 * 3600.0), 40 * 3600.0)
        process = fit(seen, model="poisson", traces=1, cap=6).process
        assert isinstance(process, Poisson)
        cut = in_stretches(seen, process, 10)
        assert (sum(cut.removals), sum(cut.adds)) == (len(seen.removal_batches), len(seen.add_batches))
        assert sum(cut.adds) / sum(cut.add_h) / 60 == pytest.approx(process.adds_per_min, rel=1e-4)
        assert len(seen.add_batches) / (seen.duration_h * 60) < 0.6 * process.adds_per_min
        found.append(process)
    assert fmean(one.adds_per_min for one in found) == pytest.approx(0.4, rel=0.06)
    assert fmean(one.removals_per_min for one in found) == pytest.approx(0.2, rel=0.06)


@pytest.mark.parametrize("model", ["poisson", "per_node", "lifetimes"])
def test_what_comes_where_stretches_meet_counts(model: str) -> None:
    """One node, which leaves and comes back on the hour: where it leaves, the fleet is empty in the next stretch."""
    rows = [(3600.0 * hour, hour % 2 == 0, f"n{hour // 2}") for hour in range(8)]
    seen = fleet_statistics(Membership.from_rows(rows), 8 * 3600.0)
    process = fit(seen, model=model, traces=1).process  # type: ignore[arg-type]
    for stretches in (2, 4, 8):
        cut = in_stretches(seen, process, stretches)
        assert (sum(cut.removals), sum(cut.adds)) == (4, 3) and not cut.problems()
    assert cut.removals == (1, 0) * 4 and cut.adds == (0, 1) * 3 + (0, 0)


@pytest.mark.parametrize("model", ["best", "poisson", "per_node", "lifetimes"])
def test_nodes_that_are_replaced_at_once_have_no_rate(model: str) -> None:
    rows = [(0.0, True, "a"), (60.0, False, "a"), (60.0, True, "b"), (300.0, False, "b"), (300.0, True, "c")]
    seen = fleet_statistics(Membership.from_rows(rows), 600.0)
    with pytest.raises(TraceError, match="is complete all the time"):
        fit(seen, model=model)  # type: ignore[arg-type]
    assert fit(seen, model=model, traces=1, cap=2).rates  # type: ignore[arg-type]


def test_node_hours_between_instants_by_hand() -> None:
    """Two nodes from 0, one from 1 h, three from 2 h to the end at 4 h."""
    rows = [
        (0.0, True, "a"),
        (0.0, True, "b"),
        (3600.0, False, "a"),
        (7200.0, True, "c"),
        (7200.0, True, "d"),
    ]
    seen = fleet_statistics(Membership.from_rows(rows), 4 * 3600.0)
    edges_s = [0.0, 5400.0, 4 * 3600.0]
    assert seen.node_h(9, edges_s) == pytest.approx((2.5, 6.5))
    assert seen.node_h(2, edges_s) == pytest.approx((2.5, 4.5))
    assert seen.add_s == (7200.0,) and seen.path[-1] == (7200.0, 3)


def fitted(data_folder: Path, *settings: str) -> Any:
    """What `trace fit spot` writes for the p3 fleet."""
    file = data_folder / "bamboo/traces/p3-trace.csv"
    return TRACES.fit(Recorded(files=(file,)), ["traces=40", "model=poisson", *settings], seed=0)


def test_a_fit_goes_on_from_the_end_with_rates_that_differ(data_folder: Path) -> None:
    """The door: eight stretches, or as long as one looks ahead; at most half of the recording."""
    found = fitted(data_folder)
    fleet = found.description["fleet"]
    assert fleet["start"] == 10 and len(fleet["stretches"]["removals"]) == 8
    assert any("start with the 10 nodes of the recording's end" in note for note in found.report.notes)
    assert len(fitted(data_folder, "ahead=1h").description["fleet"]["stretches"]["adds"]) == 11
    with pytest.raises(UsageError, match="at most half of the recording"):
        fitted(data_folder, "ahead=6h")


def test_a_look_ahead_that_says_little_is_said_to(data_folder: Path) -> None:
    """Shorter stretches than a recording is cut into, or than events need, do not pass in silence."""
    (said,) = (note for note in fitted(data_folder, "ahead=1s").report.notes if "trials start" in note)
    assert "500 stretches of 0.0227 h" in said
    assert "1 s were asked for, and a recording is cut into 500 at most" in said
    assert "how rates differ is assumed more than seen" in said
    for plenty in ((), ("ahead=1h",)):
        (said,) = (note for note in fitted(data_folder, *plenty).report.notes if "trials start" in note)
        assert "asked for" not in said and "assumed" not in said


@pytest.mark.parametrize(
    ("settings", "unread"),
    [
        (["model=cluster", "ahead=1h", "cap=40"], ["cap: changes nothing with model=cluster", "ahead_s: changes nothing"]),
        (["method=notebook", "ahead=1h"], ["ahead_s: changes nothing with method=notebook"]),
        (["arrivals=hawkes"], ["arrivals: changes nothing with model=best"]),
    ],
)  # fmt: skip
def test_a_setting_that_a_fit_does_not_read_is_refused(
    data_folder: Path, settings: list[str], unread: list[str]
) -> None:
    file = data_folder / "bamboo/traces/p3-trace.csv"
    with pytest.raises(ScenarioError) as refused:
        TRACES.fit(Recorded(files=(file,)), settings, seed=0)
    assert all(words in str(refused.value) for words in unread)
    assert len(refused.value.problems) == len(unread)


def test_trials_say_what_one_run_may_bring(data_folder: Path) -> None:
    """The table of outcomes is of the trials; with rates known, as before, their range is narrower."""
    fleet = fitted(data_folder).description["fleet"]
    scenario = {
        "domain": "spot",
        "fleet": fleet,
        "job": {
            "depth": 4,
            "max_pipelines": 8,
            "step_s": {4 * n: 40 / n for n in range(1, 9)},
            "samples_per_step": 8,
        },
        "horizon": "2h",
    }

    def outcomes(stretches: object, trials: int = 300) -> tuple[Any, dict[str, Any]]:
        asked = {**scenario, "fleet": {**fleet, "stretches": stretches}, "trials": trials}
        result = forerun.simulate(loads(json.dumps(asked, default=str)))
        return result, {row["figure"]: row for row in result.tables["outcomes"].records()}

    result, open_rates = outcomes(fleet["stretches"])
    steps = np.sort(result.tables["trials"]["steps_completed"])
    row = open_rates["steps_completed"]
    assert (row["low90"], row["high90"]) == (steps[14], steps[284])
    assert row["low95"] <= row["low50"] <= row["median"] <= row["high50"] <= row["high95"]
    assert any("nine of ten trials had: steps completed" in note for note in result.notes)
    for count, enough in ((19, False), (20, True)):
        few, _ = outcomes(None, count)
        assert enough == any("nine of ten" in note for note in few.notes)
        assert enough != any("needs 20 trials or more" in note for note in few.notes)
    _, known = outcomes(None)
    for name in ("removals", "mean_nodes"):
        widths = [rows[name]["high90"] - rows[name]["low90"] for rows in (open_rates, known)]
        assert widths[0] > 1.1 * widths[1], (name, widths)
