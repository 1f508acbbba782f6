"""Throughput between levels, holes, the analytic model and its fit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.cluster.inputs.arrays import ThroughputTable
from forerun.cluster.inputs.step_model import StepModel
from forerun.cluster.inputs.throughput import (
    PRESETS,
    analytic,
    curve,
    filled,
    leave_one_out,
)
from forerun.core.errors import ProfileError, UnknownName
from forerun.replication.pollux.fit import fit_step_model

from .conftest import profile, shared_or_skip

LEVELS = (1, 2, 4, 8, 16, 32, 64)


def test_measured_points_are_kept_and_a_power_law_is_exact_between_them() -> None:
    rates = [3.0 * level**0.8 for level in LEVELS]
    drawn = curve(LEVELS, rates)
    for level, rate in zip(LEVELS, rates):
        assert drawn.at(level) == pytest.approx(rate)
    assert drawn.at(12) == pytest.approx(3.0 * 12**0.8)
    assert drawn.error == pytest.approx(0.0, abs=1e-12)


@given(st.lists(st.floats(0.01, 100.0), min_size=2, max_size=7), st.floats(0, 1))
def test_between_two_levels_throughput_stays_between_theirs(rates: list[float], where: float) -> None:
    gpus = LEVELS[: len(rates)]
    drawn = curve(gpus, rates)
    for low, high, at, after in zip(gpus, gpus[1:], rates, rates[1:]):
        value = drawn.at(round(low + where * (high - low)))
        assert min(at, after) * (1 - 1e-9) <= value <= max(at, after) * (1 + 1e-9)


def test_outside_the_measured_range_is_refused_unless_asked_for() -> None:
    drawn = curve((2, 4, 8), (1.0, 1.9, 3.0))
    assert drawn.valid == (2, 8)
    for gpus in (1, 16):
        with pytest.raises(ProfileError, match="outside the measured range, 2 to 8"):
            drawn.at(gpus)
    assert 3.0 <= drawn.at(16, extrapolate=True) <= 6.0
    assert 0.5 <= drawn.at(1, extrapolate=True) <= 1.0


def test_a_hole_is_bridged_and_a_zero_never() -> None:
    hole = curve((1, 2, 4, 8), (1.0, math.nan, 3.0, 5.0))
    assert 1.0 < hole.at(2) < 3.0
    zero = curve((1, 2, 4, 8, 16), (1.0, 1.9, 0.0, 5.0, 8.0))
    assert zero.at(4) == 0.0
    for gpus in (3, 6):
        with pytest.raises(ProfileError, match="next to a count on which the job cannot run"):
            zero.at(gpus)
    assert 5.0 <= zero.at(12) <= 8.0


@pytest.mark.parametrize(
    ("gpus", "rate", "said"),
    [
        ((1, 2), (1.0, -1.0), "2 GPUs: throughput is -1"),
        ((1, 2), (1.0, math.inf), "2 GPUs: throughput is inf"),
        ((2, 1), (1.0, 1.0), "must rise"),
        ((0, 1), (1.0, 1.0), "must rise"),
        ((1, 2), (math.nan, 0.0), "nothing is measured"),
    ],
)
def test_impossible_tables_are_refused(gpus: tuple[int, ...], rate: tuple[float, ...], said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        curve(gpus, rate)


def test_leaving_one_level_out_tells_the_error() -> None:
    gpus, rates = np.array([1.0, 2, 4, 8]), np.array([1.0, 2, 4, 4])
    errors = leave_one_out(gpus, rates)
    assert len(errors) == 2 and errors[1] > errors[0] > 0
    assert math.isnan(curve((1, 2), (1.0, 2.0)).error)


def test_public_tables_interpolate_within_their_stated_error() -> None:
    shared_or_skip()
    table = profile("A100")
    wide = filled(table, [3, 12, 24, 48])
    assert wide.levels.tolist() == [1, 2, 3, 4, 8, 12, 16, 24, 32, 48, 64]
    measured = np.isin(wide.levels, table.levels)
    assert np.array_equal(wide.rate[:, measured][~np.isnan(table.rate)], table.rate[~np.isnan(table.rate)])
    row = wide.kind_of("resnet50", 128)
    assert wide.rate[row, 1] < wide.rate[row, 2] < wide.rate[row, 3]
    assert any("resnet50 batch 128" in note and "at most" in note for note in wide.notes)
    deepspeech = wide.kind_of("deepspeech2", 32)
    assert np.isnan(wide.rate[deepspeech, wide.levels > 32]).all()


def test_extrapolated_cells_are_marked() -> None:
    small = ThroughputTable(
        "x", (("m", 256),), np.array([1, 2, 4]), np.array([[1.0, 1.9, 3.5]]), np.array([4])
    )
    assert np.isnan(filled(small, [8]).rate[0, -1])
    marked = filled(small, [8], extrapolate=True)
    assert 3.5 < marked.rate[0, -1] <= 7.0
    assert "extrapolated, not measured, at 8 GPUs" in marked.notes[-1]


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_scale_as_they_are_called(preset: str) -> None:
    made = analytic((("m", 256), ("small", 8)), preset)
    assert "invented" in made.source
    speedup = made.rate[0] / made.rate[0, 0]
    at_16 = float(speedup[4])
    limits = {"compute_bound": (10, 16), "balanced": (3, 10), "network_bound": (0.5, 3)}
    low, high = limits[preset]
    assert low < at_16 <= high
    assert made.rate[1, 4:].tolist() == [0.0, 0.0, 0.0]
    assert made.largest_column.tolist() == [64, 8]


def test_an_unknown_preset_is_named() -> None:
    with pytest.raises(UnknownName, match="balanced"):
        analytic((("m", 8),), "balancd")


def test_what_points_cannot_tell_is_pinned() -> None:
    """One node only: the exchange across nodes counts as 1.1 times that within one, as the paper has it."""
    truth = StepModel(0.03, 0.002, 0.5, 0.1, 0.02, 0.0005, 1.8)
    rows = [(1, g, b, truth.step_s(1, g, b), 0.03 + 0.002 * b) for g in (1, 2, 4) for b in (16.0, 32.0)]
    model = fit_step_model(np.array(rows)).model
    assert model.alpha_n == pytest.approx(1.1 * model.alpha_r)
    assert model.beta_n == pytest.approx(1.1 * model.beta_r)
    assert model.alpha_r == pytest.approx(0.02, rel=0.1)
