"""Tuners and the calibrator on recorded surfaces and synthetic stores."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from forerun.core.errors import ProfileError
from forerun.core.rng import stream
from forerun.loading.engine.calibration import (
    StoreProfile,
    best_within,
    fit_profile,
    with_intervals,
)
from forerun.loading.engine.tuning import tune
from forerun.loading.policies.fixed_blocks import FixedBlocks
from forerun.loading.policies.no_merge import NoMerge
from forerun.loading.policies.three_probes import ThreeProbes
from forerun.loading.policy import Ask, Cell, Load, Probe, tuners
from forerun.replication.cndlsys.random_ten import RandomTen
from forerun.replication.cndlsys.statistics import early_stop

from ..conftest import cases
from .conftest import shown_on_the_page
from .reference import SyntheticStore, expected_random_regret, predicted_surface, recorded

Golden = Callable[[str], Any]
SAMPLE_BYTES = 53_428.0


def surface(golden: Golden, name: str) -> dict[Cell, dict[str, float]]:
    """A measured surface by its name in the replay table; medians where there are repeats."""
    rows = golden("own_grid_lat10_3reps.csv" if name == "lat10_median3" else "own_grid.csv")
    wanted = {
        "local": ("local disk", 0),
        "http0": ("http", 0),
        "http10_single": ("http", 10),
        "lat10_median3": ("http", 10),
    }
    cells = defaultdict(list)
    for row in rows:
        if (row["store"], float(row["latency_ms"])) == wanted[name]:
            cells[Cell(int(row["block_samples"]), int(row["threads"]))].append(row)
    return {
        cell: {key: statistics.median(float(row[key]) for row in found) for key in found[0] if key != "store"}
        for cell, found in cells.items()
    }


def probes(found: dict[Cell, dict[str, float]]) -> dict[Cell, Probe]:
    return {
        cell: Probe(
            cell,
            int(row["samples"]),
            row["total_s"],
            row["request_mean_s"],
            row["decode_mean_s"],
            row["load_share_of_total"],
        )
        for cell, row in found.items()
    }


def test_early_stop(golden: Golden) -> None:
    for case in golden("early_stop.json"):
        assert early_stop(case["sizes"], case["throughput"]) == (case["trials"], case["chosen"])


@pytest.mark.parametrize("name", ["lat10_median3", "local", "http0", "http10_single"])
def test_replay_of_measured_surfaces(golden: Golden, name: str) -> None:
    want = next(row for row in golden("tuner_replay.csv") if row["surface"] == name)
    found = surface(golden, name)
    measured = probes(found)
    truth = {cell: probe.total_s for cell, probe in measured.items()}
    best = min(truth, key=lambda cell: truth[cell])
    corners = (Cell(1, 1), Cell(64, 1), Cell(64, 8))
    load = Load(measured[best].samples, SAMPLE_BYTES, 64, found[corners[0]]["step_mean_s"], 256)
    assert str(best) == want["best_cell"] and len(truth) == int(want["cells"])

    def percent(cell: Cell) -> float:
        return 100 * (truth[cell] / truth[best] - 1)

    profile = fit_profile(*(measured[cell] for cell in corners), load)
    assert profile.latency_s == pytest.approx(float(want["fitted_latency_s"]), abs=1e-6)
    assert profile.conn_bytes_per_s == pytest.approx(float(want["fitted_conn_bytes_per_s"]), rel=1e-6)
    assert profile.shared_bytes_per_s == pytest.approx(float(want["fitted_shared_bytes_per_s"]), rel=1e-6)
    assert profile.decode_s == pytest.approx(float(want["fitted_decode_s"]), abs=1e-6)
    predicted = predicted_surface(profile, load, truth)
    errors = [100 * abs(predicted[cell] / truth[cell] - 1) for cell in truth if cell not in corners]
    assert np.mean(errors) == pytest.approx(float(want["model_heldout_mape_pct"]), abs=0.01)
    assert max(errors) == pytest.approx(float(want["model_heldout_max_pct"]), abs=0.01)
    chosen = best_within(predicted, load)
    assert str(chosen) == want["model_cell"]
    assert percent(chosen) == pytest.approx(float(want["model_regret_pct"]), abs=1e-3)

    early = tune(FixedBlocks(), recorded(measured), truth, load)
    assert len(early.probes) == int(want["early_stop_trials"])
    assert percent(early.cell) == pytest.approx(float(want["early_stop_regret_pct"]), abs=1e-3)
    plain = tune(NoMerge(), recorded(measured), truth, load)
    assert percent(plain.cell) == pytest.approx(float(want["no_merge_regret_pct"]), abs=1e-3)

    mean, p95 = expected_random_regret(truth.values(), 10)
    assert 100 * mean == pytest.approx(float(want["random10_regret_mean_pct"]), abs=1e-3)
    assert 100 * p95 == pytest.approx(float(want["random10_regret_p95_pct"]), abs=1e-3)
    draws = np.random.default_rng(1).integers(len(truth), size=(20_000, 10))
    drawn = 100 * (np.array(list(truth.values()))[draws].min(axis=1) / truth[best] - 1)
    assert drawn.mean() == pytest.approx(float(want["random10_regret_mean_pct"]), abs=0.05)

    assert len(truth) in (16, 20)
    label = {
        "lat10_median3": "10 ms, medians of 3",
        "local": "local disk",
        "http0": "loopback, 0 ms",
        "http10_single": "10 ms, single runs, one outlier",
    }[name]
    values = (
        percent(Cell(1, 1)), percent(early.cell), 100 * mean, 100 * p95, percent(chosen), float(np.mean(errors)),
    )  # fmt: skip
    assert shown_on_the_page("surface", label, values), (label, values)

    ours = tune(ThreeProbes(probe_block=64), recorded(measured), truth, load)
    assert len(ours.probes) <= 5 and percent(ours.cell) <= 4.0


CELLS = [Cell(block, threads) for block in (1, 4, 16, 64) for threads in (1, 2, 4, 8)]
STORES = {
    "near disk": StoreProfile(0.0003, 6e8, 1e9, 0.0011),
    "http at 10 ms": StoreProfile(0.0117, 6.7e8, 1.1e9, 0.0012),
    "http at 40 ms": StoreProfile(0.041, 6e8, 1e9, 0.0012),
    "thin shared link": StoreProfile(0.02, 6e7, 9e7, 0.0008),
    "slow decode": StoreProfile(0.005, 4e8, 8e8, 0.006),
}


LOAD = Load(12_800, SAMPLE_BYTES, 64, 0.1, 256)


@cache
def truth_of(name: str) -> dict[Cell, float]:
    """Seconds of each cell of a store, without noise."""
    return SyntheticStore(STORES[name]).truth(LOAD, CELLS)


@pytest.mark.parametrize("name", STORES)
def test_few_probes_and_little_regret(name: str) -> None:
    """Truth is the simulator with noise: at most four probes, at most 3 % regret, a fifth of the samples."""
    load, truth = LOAD, truth_of(name)
    store = SyntheticStore(STORES[name])
    probes, regrets, read = [], [], []
    for seed in range(count := cases(3, 20)):
        rng = stream(seed, "tuner test", name)
        ours = tune(ThreeProbes(), store.evaluator(load, rng), CELLS, load, rng=rng)
        probes.append(len(ours.probes))
        regrets.append(ours.regret(truth))
        if seed < cases(1, 20):
            theirs = tune(RandomTen(), store.evaluator(load, rng), CELLS, load, rng=rng)
            read.append(ours.samples_read / theirs.samples_read)
    assert sum(regret <= 0.03 for regret in regrets) >= count - 1, regrets
    assert max(probes) <= 4, probes
    assert max(read) <= 0.2  # although ten draws stop at the first that hides loading


def test_little_regret_on_stores_of_all_kinds() -> None:
    """Drawn stores: latency, bandwidth, decode, step, sizes, and slots that the model does not know of."""
    rng = stream(5, "stores of all kinds")

    def between(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    regrets = []
    for number in range(count := cases(5, 24)):
        conn = between(2e7, 1e9)
        profile = StoreProfile(between(1e-4, 0.1), conn, conn * between(1, 8), between(2e-4, 8e-3))
        load = Load(3200, between(5e3, 3e5), 64, between(0.01, 0.4), 256)
        store = SyntheticStore(profile, slots=(0, 0, 4)[number % 3])
        found = tune(ThreeProbes(), store.evaluator(load, rng), CELLS, load, rng=rng)
        assert len(found.probes) <= 4
        regrets.append(found.regret(store.truth(load, CELLS)))
    assert sum(regret <= 0.03 for regret in regrets) >= count - 1 and max(regrets) <= 0.1, regrets


@pytest.mark.parametrize("name", ["http at 10 ms", "http at 40 ms", "thin shared link"])
def test_one_slow_check_does_not_lead_to_the_heaviest_cell(name: str) -> None:
    """A check that takes 8 % too long once: the lightest of the best cells is chosen still, whether it was run or not."""
    load, store = LOAD, SyntheticStore(STORES[name], noise=0.0)
    evaluate, probes = store.evaluator(load, stream(1, "slow check")), []

    def slow_check(ask: Ask) -> Probe:
        probes.append(evaluate(ask))
        return replace(probes[-1], total_s=probes[-1].total_s * (1.08 if len(probes) == 4 else 1.0))

    found = tune(ThreeProbes(), slow_check, CELLS, load)
    assert len(probes) == 4 and found.cell.block * found.cell.threads <= 128
    assert found.regret(truth_of(name)) <= 0.01


def test_a_cell_that_only_just_hides_is_passed_over() -> None:
    """Blocks of 4 and 8 threads hide 40 ms if nothing is slower than believed; the smallest with slack is taken."""
    load = Load(6400, SAMPLE_BYTES, 64, 0.1, 256)
    store = SyntheticStore(STORES["http at 40 ms"], noise=0.0)
    chosen = {}
    for slack in (0.0, 0.15):
        rng = stream(0, "slack")
        found = tune(ThreeProbes(slack=slack), store.evaluator(load, rng), CELLS, load, rng=rng)
        chosen[slack] = found.cell
    assert chosen == {0.0: Cell(4, 8), 0.15: Cell(16, 4)}


def test_one_probe_where_nothing_is_to_gain() -> None:
    load = Load(6400, SAMPLE_BYTES, 64, 0.4, 256)
    store = SyntheticStore(StoreProfile(0.0001, 1e9, 1e9, 0.0005))
    rng = stream(1, "tuner test")
    ours = tune(ThreeProbes(), store.evaluator(load, rng), CELLS, load, rng=rng)
    assert (ours.cell, len(ours.probes)) == (Cell(1, 1), 1)


@pytest.mark.parametrize("name", ["no_merge", "fixed_blocks", "random_ten", "tpe_ten", "three_probes"])
def test_every_tuner_chooses_a_cell_on_offer(name: str) -> None:
    assert name in tuners().names()
    load = Load(3200, SAMPLE_BYTES, 64, 0.1, 256)
    store = SyntheticStore(STORES["http at 10 ms"])
    rng = stream(3, name)
    found = tune(tuners().get(name)(), store.evaluator(load, rng), CELLS, load, rng=rng)
    assert found.cell in CELLS
    again = tune(
        tuners().get(name)(), store.evaluator(load, stream(3, name)), CELLS, load, rng=stream(3, name)
    )
    assert again.cell == found.cell or name in ("random_ten", "tpe_ten")


def test_what_cannot_be_identified_is_said() -> None:
    load = Load(640, SAMPLE_BYTES, 64, 0.1)
    fast = [Probe(cell, 640, 1.0, 0.001, 0.001) for cell in (Cell(1, 1), Cell(64, 1), Cell(64, 8))]
    profile = fit_profile(*fast, load)
    assert profile.conn_bytes_per_s == math.inf and "not identifiable" in profile.notes[0]
    assert profile.latency_s == 0.001
    with pytest.raises(ProfileError, match="are required"):
        fit_profile(fast[1], fast[1], fast[2], load)
    with pytest.raises(ProfileError, match="single requests"):
        with_intervals((fast[0], fast[1], fast[2]), load, stream(0, "x"))


def test_bootstrap_intervals_cover(golden: Golden) -> None:
    """Intervals of latency over synthetic truths hold it about as often as they say."""
    rng = np.random.default_rng(8)
    load, latency, conn, decode = Load(256, SAMPLE_BYTES, 64, 0.1), 0.012, 6e8, 0.001
    covered = 0
    trials = cases(100, 1000)
    for _ in range(trials):
        made = []
        for cell, requests in ((Cell(1, 1), 250), (Cell(64, 1), 60), (Cell(64, 8), 60)):
            seconds = (
                latency * np.exp(0.2 * rng.standard_normal(requests) - 0.02)
                + cell.block * SAMPLE_BYTES / conn
            )
            total = cell.block * requests * decode + seconds.sum() + load.step_s
            made.append(
                Probe(cell, cell.block * requests, total, float(seconds.mean()), decode, requests_s=seconds)
            )
        profile = with_intervals((made[0], made[1], made[2]), load, rng, draws=150)
        assert profile.intervals is not None
        span = profile.intervals["latency_s"]
        covered += span.low <= latency <= span.high
    assert abs(covered / trials - 0.95) <= 3 * (0.95 * 0.05 / trials) ** 0.5
