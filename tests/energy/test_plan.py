"""Plans against brute force, recorded tables and the law of the paths; signals against grids and enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import forerun
from forerun.core.errors import CheckFailed, Infeasible, UnknownName, UsageError
from forerun.core.trace.signal import Signal
from forerun.energy.inputs.resampling import resampled_mean_epochs
from forerun.energy.inputs.workload import Workload
from forerun.energy.plan.job import JobPlan
from forerun.energy.plan.points import certified_frontier, knee, verify
from forerun.energy.plan.signals import amount, best_pieces, best_start
from forerun.energy.policy.rules import Rules
from forerun.energy.policy.selectors import least_cost, least_energy, least_time, max_slowdown

from ..conftest import cases

JOB = "{dataset: d, network: n, optimizer: adam, target_metric: 0.9, max_epochs: 60, default_batch_size: 16}"


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., Any]:
    """Scenarios over a user's own small CSVs: three sizes, two limits unless given."""

    def make(
        paths: dict[int, list[int | None]],
        power: dict[tuple[int, float], tuple[float, float]],
        extra: str = "",
        second: dict[tuple[int, float], tuple[float, float]] | None = None,
    ) -> Any:
        head = "dataset,network,batch_size,optimizer"
        train = [f"{head},learning_rate,run,target_metric,target_epoch"]
        for size, runs in paths.items():
            train += [f"d,n,{size},adam,1e-3,{i},0.9,{e or 'nan'}" for i, e in enumerate(runs, 1)]
        (tmp_path / "train.csv").write_text("\n".join(train) + "\n")
        files = {"gpu_a": power, **({"gpu_b": second} if second else {})}
        for name, rows in files.items():
            lines = [f"{head},power_limit,time_per_epoch,average_power"]
            lines += [f"d,n,{size},adam,{limit},{s},{w}" for (size, limit), (s, w) in rows.items()]
            (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
        listed = ", ".join(f"{name}: {name}.csv" for name in files)
        text = f"domain: energy\njob: {JOB}\ntrace: {{train: train.csv, power: {{{listed}}}}}\n{extra}"
        return forerun.loads(text, base=tmp_path)

    return make


PATHS: dict[int, list[int | None]] = {8: [20, 24, 22], 16: [20, 22, 21], 32: [40, 46, 43]}
POWER = {
    (size, limit): (seconds * slow, limit * share)
    for size, seconds in ((8, 30.0), (16, 18.0), (32, 12.0))
    for limit, slow, share in ((250.0, 1.0, 0.9), (125.0, 1.4, 0.95))
}


def test_recorded_configurations(golden: Any, public: Any) -> None:
    for dataset, entry in golden("v100_configurations.json").items():
        workload = public("v100", dataset, Rules())
        points = {(p.batch_size, p.limit_w): p for p in workload.expected(0.5)}
        assert workload.recurrences() == entry["num_recurrence"]
        assert workload.max_power_w == entry["max_power_w"]
        assert len(points) == len(entry["table"])
        for row in entry["table"]:
            point = points[row["bs"], row["pl"]]
            assert point.reach == pytest.approx(row["reached"] / row["runs"])
            if row["reached"] == row["runs"]:
                assert point.time_s == pytest.approx(row["tta_s"], rel=1e-12)
                assert point.energy_j == pytest.approx(row["eta_j"], rel=1e-12)


def test_recorded_frontiers_and_optima(golden: Any, data: Path) -> None:
    for dataset, entry in golden("v100_configurations.json").items():
        job = {name: value for name, value in entry["job"].items() if name != "default_bs"}
        text = (
            f"domain: energy\njob: {{{', '.join(f'{k}: {v}' for k, v in job.items())}, "
            f"default_batch_size: {entry['job']['default_bs']}}}\n"
            f"trace: {{train: summary_train.csv, power: {{v100: summary_power_v100.csv}}}}\n"
        )
        found = forerun.plan(forerun.loads(text, base=data))
        assert found.default is not None, dataset
        assert [(p.batch_size, p.limit_w) for p in found.frontier] == [
            (p["bs"], p["pl"]) for p in entry["pareto"]
        ]
        by_eta = dict(found.by_eta)
        for eta, best in entry["optimum_by_eta"].items():
            point = by_eta[float(eta)]
            assert (point.batch_size, point.limit_w) == (best["bs"], best["pl"])
        assert found.default.energy_j == pytest.approx(entry["default"]["eta_j"], rel=1e-12)


@pytest.mark.parametrize("name", ["max_time_s", "max_energy_j", "max_slowdown", "power_cap_w"])
def test_bounds_hold_and_the_best_within_them_is_chosen(small: Any, name: str) -> None:
    free = forerun.plan(small(PATHS, POWER))
    figure = {"max_time_s": "time_s", "max_energy_j": "energy_j", "power_cap_w": "power_w"}.get(
        name, "time_s"
    )
    values = sorted(point.value(figure) for point in free.points)
    assert free.default is not None
    for middle in values[1:-1]:
        limit = middle / free.default.time_s if name == "max_slowdown" else middle
        if name == "max_slowdown" and limit < 1:
            continue
        bounded = forerun.plan(small(PATHS, POWER, f"goal: {{{name}: {limit!r}}}\n"))
        inside = [point for point in bounded.points if point.value(figure) <= middle * (1 + 1e-12)]
        assert bounded.chosen.cost_j == min(point.cost_j for point in inside)


def test_what_cannot_be_had_says_which_bound_binds(small: Any) -> None:
    with pytest.raises(
        Infeasible, match=r"goal.max_time_s: no configuration keeps time_s <= 1; the least is"
    ):
        forerun.plan(small(PATHS, POWER, "goal: {max_time_s: 1}\n"))
    fast = min(p.time_s for p in forerun.plan(small(PATHS, POWER)).points)
    least = min(p.energy_j for p in forerun.plan(small(PATHS, POWER)).points)
    with pytest.raises(Infeasible, match="not max_time_s and max_energy_j together"):
        forerun.plan(small(PATHS, POWER, f"goal: {{max_time_s: {fast}, max_energy_j: {least}}}\n"))
    with pytest.raises(Infeasible, match="no carbon signal"):
        forerun.plan(small(PATHS, POWER, "goal: {minimise: gco2}\n"))


def test_a_bound_that_the_data_do_not_carry_is_said(small: Any) -> None:
    free = forerun.plan(small(PATHS, POWER))
    tight = forerun.plan(small(PATHS, POWER, f"goal: {{max_time_s: {free.chosen.time_s * 1.0001}}}\n"))
    assert any("only with probability" in note for note in tight.notes)
    loose = forerun.plan(small(PATHS, POWER, f"goal: {{max_time_s: {free.chosen.time_s * 3}}}\n"))
    assert not any("only with probability" in note for note in loose.notes)


def test_random_traces_against_brute_force(small: Any) -> None:
    """Small worlds: the plan is the cheapest of all allowed points, its certificate checks, its frontier is exact."""
    rng = np.random.default_rng(11)
    for _ in range(cases(20, 50)):
        paths: dict[int, list[int | None]] = {
            size: [
                None if rng.random() < 0.1 else int(rng.integers(1, 70))
                for _ in range(int(rng.integers(1, 5)))
            ]
            for size in (8, 16, 32, 64)
        }
        power = {
            (size, limit): (float(rng.integers(5, 40)), float(rng.integers(60, 260)))
            for size in paths
            for limit in (100.0, 150.0, 250.0)
            if rng.random() < 0.8 or (size, limit) == (8, 100.0)
        }
        scenario = small(paths, power, "trials: 0\n")
        for _ in range(10):
            eta = float(rng.choice([0, 0.3, 0.5, 1]))
            limit = float(rng.integers(200, 3000))
            bounded = scenario.with_(eta=eta, goal=scenario.goal.with_(max_time_s=limit))
            _against_brute_force(bounded, paths, power, eta, limit)


def _against_brute_force(scenario: Any, paths: Any, power: Any, eta: float, limit: float) -> None:
    every = []
    top = max(p for _, p in power)
    for (size, cap), (seconds, watts) in power.items():
        reached = [e for e in paths[size] if e is not None and e <= 60]
        if not reached:
            continue
        epochs = sum(reached) / len(reached) + (len(paths[size]) - len(reached)) / len(reached) * 60
        time = epochs * seconds
        energy = time * watts
        certain = len(reached) == len(paths[size])
        every.append((eta * energy + (1 - eta) * top * time, time, energy, certain, size, cap))
    inside = [point for point in every if point[1] <= limit * (1 + 1e-12)]
    if not inside:
        with pytest.raises(Infeasible):
            forerun.plan(scenario)
        return
    preferred = [point for point in inside if point[3]] or inside
    found = forerun.plan(scenario)
    verify(found.certificate)
    assert found.chosen.cost_j == pytest.approx(min(preferred)[0], rel=1e-9)
    certain = [point for point in every if point[3]] or every
    front = {
        (a[4], a[5])
        for a in certain
        if not any(
            (b[1] <= a[1] * (1 - 1e-12) and b[2] <= a[2] * (1 + 1e-12))
            or (b[1] <= a[1] * (1 + 1e-12) and b[2] <= a[2] * (1 - 1e-12))
            for b in certain
        )
    }
    assert {(p.batch_size, p.limit_w) for p in found.frontier} == front


def test_a_forged_certificate_is_refused(small: Any) -> None:
    found = forerun.plan(small(PATHS, POWER, "goal: {max_time_s: 900}\n"))
    good = found.certificate
    worst = max(range(len(good.points)), key=lambda at: good.points[at].cost_j)
    slow = max(range(len(good.points)), key=lambda at: good.points[at].time_s)
    for forged in (
        replace(good, chosen=worst),
        replace(good, chosen=slow),
        replace(good, frontier=(*good.frontier, *list(good.dominated_by)[:1])),
        replace(good, dominated_by={good.frontier[0]: good.frontier[-1]}),
    ):
        with pytest.raises(CheckFailed):
            verify(forged)


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), min_size=1, max_size=25))
@settings(max_examples=cases(30, 150))
def test_frontier_agrees_with_all_pairs(raw: list[tuple[int, int]]) -> None:
    from forerun.energy.plan.points import Point

    points = [Point("g", i, 1.0, 1.0, float(t), float(e), 0.0, 1.0) for i, (t, e) in enumerate(raw)]
    frontier, dominated = certified_frontier(points, range(len(points)))
    plain = {
        i
        for i, (t, e) in enumerate(raw)
        if not any(t2 <= t and e2 <= e and (t2, e2) != (t, e) for t2, e2 in raw)
    }
    assert set(frontier) == plain
    assert set(dominated) == set(range(len(raw))) - plain
    assert knee(points, frontier) in plain


def test_several_gpus_are_planned_over(small: Any) -> None:
    cheaper = {key: (s * 0.5, w * 0.5) for key, (s, w) in POWER.items()}
    found = forerun.plan(small(PATHS, POWER, second=cheaper, extra="gpu: gpu_a\n"))
    assert {point.gpu for point in found.points} == {"gpu_a"}
    both = forerun.plan(small(PATHS, POWER, second=cheaper, extra="gpu: gpu_a\ngoal: {all_gpus: true}\n"))
    assert {point.gpu for point in both.points} == {"gpu_a", "gpu_b"}
    assert both.chosen.gpu == "gpu_b"
    assert both.default is not None and both.default.gpu == "gpu_a"


# --- how sure -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("paths", [5, 10])
def test_intervals_of_a_mean_cover_the_truth(paths: int, make_toy: Callable[..., Workload]) -> None:
    """Jobs with log-normal epochs: the 95 % interval of a plan covers the mean as often, within three standard errors."""
    rng = np.random.default_rng(paths)
    toy = make_toy({8: [50] * paths}, {8: {200.0: (1.0, 100.0)}}, default=8, max_epochs=1000)
    inside, jobs = 0, cases(300, 1000)
    for _ in range(jobs):
        sd = rng.uniform(0.05, 0.3)
        epochs = np.exp(rng.normal(4.0, sd, paths))
        draws = resampled_mean_epochs(replace(toy, epochs=epochs), 0, rng, 2000) * epochs.mean()
        low, high = np.quantile(draws, [0.025, 0.975])
        inside += low <= math.exp(4.0 + sd**2 / 2) <= high
    assert abs(inside / jobs - 0.95) <= 3 * (0.95 * 0.05 / jobs) ** 0.5


def test_the_chosen_point_is_best_with_the_stated_probability(small: Any) -> None:
    """Two sizes with equal laws and equal epochs: each is the best in half of the draws."""
    paths: dict[int, list[int | None]] = {16: [18, 20, 22, 24], 32: [18, 20, 22, 24]}
    power = {(16, 200.0): (10.0, 150.0), (32, 200.0): (10.0, 150.0)}
    found = forerun.plan(small(paths, power))
    assert abs(found.confidence.best - 0.5) < 0.05
    assert found.confidence.keeps == {}


def _slowdown(small: Any, paths: dict[int, list[int | None]], slower: dict[int, float], bound: float) -> Any:
    """The plan of least energy when each size takes 10 s an epoch times its factor, and the default the most power."""
    power = {(size, 200.0): (10.0 * by, 190.0 if size == 16 else 100.0) for size, by in slower.items()}
    return forerun.plan(small(paths, power, f"goal: {{minimise: energy, max_slowdown: {bound}}}\n"))


@pytest.mark.parametrize("runs", [1, 2, 5])
@given(bound=st.floats(1.0, 3.0), seed=st.integers(0, 2**32))
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_default_is_certain_to_be_no_slower_than_itself(
    small: Any, runs: int, bound: float, seed: int
) -> None:
    epochs: list[int | None] = np.random.default_rng(seed).integers(1, 50, runs).tolist()
    found = _slowdown(small, {16: epochs}, {16: 1.0}, bound)
    assert found.confidence.keeps == {f"max_slowdown {bound:g}": 1.0}


@pytest.mark.parametrize("runs", [1, 5])
@pytest.mark.parametrize("slower", [1.10, 1.12])
def test_limits_of_one_size_differ_by_what_was_measured(small: Any, runs: int, slower: float) -> None:
    """Epochs do not depend on the limit: a limit 1.10 times slower keeps a bound of 1.11, whatever the paths."""
    power = {(16, 200.0): (10.0, 190.0), (16, 100.0): (10.0 * slower, 90.0)}
    paths: dict[int, list[int | None]] = {16: [18, 25, 20, 31, 22][:runs]}
    found = forerun.plan(small(paths, power, "goal: {minimise: energy, max_slowdown: 1.11}\n"))
    assert found.chosen.limit_w == (100.0 if slower < 1.11 else 200.0)
    assert found.confidence.keeps == {"max_slowdown 1.11": 1.0}


def test_the_probability_of_a_slowdown_converges_with_more_runs(small: Any) -> None:
    """Two sizes of equal laws, the other 1.1 times slower an epoch: a bound of 1.3 holds the more surely the more runs."""
    rng = np.random.default_rng(5)
    sure = []
    for runs in (2, 8, 60):
        drawn = np.round(np.exp(rng.normal(3.6, 0.2, (2, runs)))).astype(int)
        drawn[1] = drawn[0]  # the expectation keeps the bound whatever was drawn
        paths: dict[int, list[int | None]] = {16: drawn[0].tolist(), 32: drawn[1].tolist()}
        found = _slowdown(small, paths, {16: 1.0, 32: 1.1}, 1.3)
        assert found.chosen.batch_size == 32
        sure.append(found.confidence.keeps["max_slowdown 1.3"])
    assert sure == sorted(sure) and sure[0] < 0.95 and sure[-1] > 0.999


# --- signals ------------------------------------------------------------------------------------------------------


def test_recorded_signals(golden: Any) -> None:
    for case in golden("signals.json")["cases"]:
        signal = Signal(*zip(*case["signal"]), unit="g/kWh")
        best: Any = None
        for at, (name, seconds, watts) in enumerate(case["configurations"]):
            assert amount(signal, 0.0, seconds, watts) == pytest.approx(case["now"][at], rel=1e-12)
            slot = best_start(signal, seconds, watts, deadline_s=case["deadline_s"])
            if slot is not None and (best is None or slot.amount < best[0]):
                best = slot.amount, slot.start_s, name
        if case["best"] is None:
            assert best is None
        else:
            assert best[0] == pytest.approx(case["best"]["amount"], rel=1e-12)
            assert (best[1], best[2]) == (case["best"]["start_s"], case["best"]["configuration"])


@given(st.lists(st.integers(1, 500), min_size=1, max_size=8), st.floats(0.1, 5.0), st.floats(0.0, 4.0))
@settings(max_examples=cases(16, 80))
def test_the_best_start_agrees_with_a_dense_grid(values: list[int], hours: float, slack: float) -> None:
    signal = Signal(3600.0 * np.arange(len(values)), values, unit="g/kWh")
    seconds, deadline = 3600 * hours, 3600 * (hours + slack)
    slot = best_start(signal, seconds, 200.0, deadline_s=deadline)
    assert slot is not None
    grid = np.linspace(0, deadline - seconds, 500)
    dense = 200.0 * signal.integral(grid, grid + seconds) / 3.6e6
    assert slot.amount <= dense.min() * (1 + 1e-9)
    assert slot.amount <= amount(signal, 0.0, seconds, 200.0) * (1 + 1e-12)
    assert slot.amount == pytest.approx(amount(signal, slot.start_s, seconds, 200.0))
    assert 0 <= slot.start_s <= deadline - seconds + 1e-9


def test_a_constant_signal_does_not_care_when() -> None:
    signal = Signal.constant(250.0, unit="g/kWh")
    slot = best_start(signal, 5000.0, 300.0, deadline_s=90_000.0)
    assert slot is not None and slot.start_s == 0.0
    assert amount(signal, 0.0, 5000.0, 300.0) == pytest.approx(
        amount(signal, 777.0, 5000.0, 300.0), rel=1e-12
    )


def test_splitting_a_run_by_hours_conserves_grams() -> None:
    signal = Signal(3600.0 * np.arange(48), 200 + 100 * np.sin(np.arange(48)), unit="g/kWh", end_s=172_800.0)
    whole = amount(signal, 500.0, 50_000.0, 230.0)
    cuts = [500.0, *(3600.0 * hour for hour in range(1, 14)), 50_500.0]
    parts = math.fsum(amount(signal, a, b - a, 230.0) for a, b in itertools.pairwise(cuts))
    assert parts == pytest.approx(whole, rel=1e-9)


def test_pausing_agrees_with_enumeration() -> None:
    """Eight hours, whole hours of work: within 2 % of the best of all subsets, bound below, work conserved."""
    rng = np.random.default_rng(2)
    for _ in range(cases(15, 60)):
        hours = 8
        values = rng.integers(50, 500, hours).astype(float)
        signal = Signal(np.arange(hours) * 3600.0, values, unit="g/kWh", end_s=hours * 3600.0)
        need, extra_j = int(rng.integers(1, 6)), float(rng.choice([0, 2e5, 1e6]))
        overhead_h = int(rng.choice([0, 1]))
        exact = _least_by_enumeration(values, need, overhead_h, extra_j)
        found = best_pieces(
            signal,
            need * 3600.0,
            200.0,
            deadline_s=hours * 3600.0,
            checkpoint_s=3600.0 * overhead_h,
            checkpoint_j=extra_j,
        )
        assert found is not None
        assert found.amount <= exact * 1.02
        at_least = 200.0 * 3600.0 * sum(sorted(values)[:need]) / 3.6e6
        assert at_least <= min(found.amount, exact) * (1 + 1e-9)
        again = sum(amount(signal, a, b - a, 200.0) for a, b in found.stretches)
        again += sum(extra_j / 3.6e6 * signal.at(a) for a, _ in found.stretches[1:])
        assert found.amount == pytest.approx(again, rel=1e-9)
        worked = sum(b - a for a, b in found.stretches) - 3600.0 * overhead_h * (len(found.stretches) - 1)
        assert worked == pytest.approx(need * 3600.0)


def _least_by_enumeration(values: Any, need: int, overhead_h: int, extra_j: float) -> float:
    best, n = math.inf, len(values)
    for mask in range(1, 1 << n):
        used = [hour for hour in range(n) if mask >> hour & 1]
        starts = [hour for hour in used if hour - 1 not in used]
        long_enough = all(first + overhead_h in used for first in starts[1:])
        if not long_enough or len(used) - overhead_h * (len(starts) - 1) != need:
            continue
        paid = sum(values[hour] for hour in used) * 0.2 + sum(
            extra_j / 3.6e6 * values[first] for first in starts[1:]
        )
        best = min(best, paid)
    return best


def test_waiting_for_a_cleaner_hour(small: Any) -> None:
    extra = (
        "signals: {carbon: {steps: [[0, 400], [3600, 100], [7200, 400]]}, price: {steps: [[0, 0.2]]}}\n"
        "goal: {minimise: gco2, deadline_s: 3h}\n"
    )
    found = forerun.plan(small(PATHS, POWER, extra))
    assert found.chosen.start_s >= 3600.0 - found.chosen.time_s
    assert found.chosen.gco2 < found.chosen.gco2_now
    assert found.chosen.usd == pytest.approx(0.2 * found.chosen.energy_j / 3.6e6)


# --- selectors ----------------------------------------------------------------------------------------------------


def test_recorded_selectors(golden: Any, data: Path) -> None:
    folder = data / "power_limit_profiles"
    for name, entry in golden("selectors.json")["files"].items():
        lines = (folder / name).read_text().splitlines()
        names = lines[0].split(",")
        rows = [dict(zip(names, line.split(","))) for line in lines[1:]]
        rows = [row for row in rows if row["window_name"].rsplit("_", 1)[-1].isdigit()]
        limits = [float(row["window_name"].rsplit("_", 1)[-1]) for row in rows]
        times = [float(row["elapsed_time"]) for row in rows]
        gpus = [column for column in names if column.endswith("_energy")]
        joules = [sum(float(row[column]) for column in gpus) for row in rows]
        assert (limits, len(gpus)) == (entry["limits_w"], entry["world_size"])
        assert least_energy(limits, joules) == entry["energy"]
        assert least_time(limits, times) == entry["time"]
        for eta, chosen in entry["cost"].items():
            top = max(limits) * len(gpus)
            assert least_cost(limits, times, joules, eta=float(eta), max_power_w=top) == chosen
        for factor, chosen in entry["max_slowdown"].items():
            assert max_slowdown(limits, times, factor=float(factor)) == chosen


def test_a_slowdown_against_the_fastest_is_stricter() -> None:
    limits, times = [300.0, 200.0, 100.0], [12.0, 10.0, 12.5]
    assert max_slowdown(limits, times, factor=1.1) == 100.0
    assert max_slowdown(limits, times, factor=1.1, of="fastest") == 200.0
    with pytest.raises(UsageError, match="below 1"):
        max_slowdown(limits, times, factor=0.9)


def test_worked_line_of_the_specification(make_toy: Callable[..., Workload]) -> None:
    """Paths of 7 epochs, limits 100 W (10 s, 85 W) and 200 W (7 s, 160 W), eta 0.5, max power 200 W."""
    from forerun.energy.engine.loops import sequence
    from forerun.energy.engine.simulation import Simulation
    from forerun.energy.policies.jit import Jit
    from forerun.energy.policies.pruning_gts import PruningGts
    from forerun.energy.policy import Pair

    workload = make_toy({32: [7, 7]}, {32: {100.0: (10.0, 85.0), 200.0: (7.0, 160.0)}}, default=32)
    assert workload.measured(0).epoch_cost_j(0.5) == [1260.0, 1425.0]
    simulation = Simulation(
        workload,
        Pair(batch_size=PruningGts(), limit=Jit()),
        eta=0.5,
        beta=2.0,
        rules=Rules.of("compat"),
        seed=1,
    )
    first = sequence(simulation, 2).attempts[0].outcome
    assert (first.limit_w, first.energy_j, first.time_s, first.cost_j) == (200.0, 7705.0, 50.5, 8902.5)


def test_the_objective_may_be_named(small: Any) -> None:
    scenario = small(PATHS, POWER)
    assert forerun.plan(scenario, "time").chosen.time_s == min(
        p.time_s for p in forerun.plan(scenario).points
    )
    assert forerun.plan(scenario, "energy").why.startswith("gpu_a batch size")
    with pytest.raises(UnknownName, match="no objective named 'joules'"):
        forerun.plan(scenario, "joules")


def test_plans_are_plain_data(small: Any) -> None:
    import json

    found = forerun.plan(small(PATHS, POWER))
    assert isinstance(found, JobPlan)
    text = json.dumps(found.data(), allow_nan=False)
    assert '"why"' in text
    assert len(found.tables["points"]) == len(found.points) == 6
