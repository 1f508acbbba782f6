"""Thinning: small enough, the same to the eye, and said aloud."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.core.report.thin import MOST_CELLS, MOST_INTERVALS, MOST_MARKS, MOST_POINTS, MOST_TRACKS, thin


def random() -> np.random.Generator:
    return np.random.Generator(np.random.Philox(11))


def text(*values: str) -> np.ndarray:
    return np.array(values, dtype=object)


@pytest.mark.parametrize("kind", ["line", "step", "cdf"])
def test_a_million_points_keep_every_extreme(kind: str) -> None:
    size = 1_000_000
    x = np.sort(random().random(size)) * 1_000
    y = random().standard_normal(size).cumsum()
    thinned, notes = thin(kind, {"x": x, "y": y})
    assert len(thinned["x"]) <= MOST_POINTS + 4
    assert (thinned["y"].min(), thinned["y"].max()) == (y.min(), y.max())
    assert (thinned["x"][0], thinned["x"][-1]) == (x[0], x[-1])
    assert np.all(np.diff(thinned["x"]) >= 0)
    assert "of 1,000,000 points" in notes[0]


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.booleans())
def test_each_span_of_each_line_keeps_its_lowest_and_highest(seed: int, lines: int, log_x: bool) -> None:
    generator = np.random.Generator(np.random.Philox(seed))
    each = 9_000
    x = np.tile(np.sort(generator.random(each)) + 0.01, lines)
    y = generator.standard_normal(each * lines)
    names = np.repeat(np.array([f"line {k}" for k in range(lines)], dtype=object), each)
    thinned, _ = thin("line", {"x": x, "y": y, "series": names}, log_x=log_x)
    assert len(thinned["x"]) <= MOST_POINTS + 4 * lines
    place = np.log if log_x else np.asarray
    spans = MOST_POINTS // (4 * lines)
    low, high = place(x).min(), place(x).max()
    for name in set(names):
        mine, kept = names == name, thinned["series"] == name
        where = np.minimum(((place(x[mine]) - low) / (high - low) * spans).astype(int), spans - 1)
        there = np.minimum(((place(thinned["x"][kept]) - low) / (high - low) * spans).astype(int), spans - 1)
        for span in np.unique(where)[:: max(1, spans // 8)]:
            assert thinned["y"][kept][there == span].max() == y[mine][where == span].max()
            assert thinned["y"][kept][there == span].min() == y[mine][where == span].min()


def test_small_figures_are_left_alone() -> None:
    columns = {"x": np.arange(100.0), "y": np.arange(100.0)}
    for kind in ("line", "points", "cdf", "step"):
        assert thin(kind, columns) == (columns, ())


def test_points_that_lie_on_each_other_are_drawn_once() -> None:
    x = np.concatenate([random().random(50_000), [40.0]])
    y = np.concatenate([random().random(50_000), [40.0]])
    thinned, notes = thin("points", {"x": x, "y": y})
    assert len(thinned["x"]) <= MOST_MARKS
    assert 40.0 in thinned["x"]
    assert "of 50,001 points" in notes[0]


def test_bars_keep_the_largest_and_say_what_is_left_out() -> None:
    names = np.array([f"job {k}" for k in range(1_000)], dtype=object)
    thinned, notes = thin("bar", {"x": names, "y": np.arange(1_000.0)})
    assert list(thinned["x"]) == [f"job {k}" for k in range(950, 1_000)]
    left_out = np.arange(950).sum() / np.arange(1_000).sum()
    assert f"{left_out:.1%}" in notes[0]


def test_stacks_in_time_keep_their_sum() -> None:
    moments, parts = 50_000, 3
    share = random().dirichlet([1, 2, 3], moments)
    columns = {
        "x": np.repeat(np.arange(moments, dtype=float), parts),
        "y": (16 * share).ravel(),
        "series": np.tile(text("a", "b", "c"), moments),
    }
    thinned, notes = thin("stacked_bar", columns)
    total = thinned["y"].reshape(-1, parts).sum(axis=1)
    assert np.allclose(total, 16.0)
    assert np.isclose(thinned["y"].mean(), columns["y"].mean(), rtol=1e-3)
    assert "50,000 moments" in notes[0]


def test_bins_join_and_keep_their_counts() -> None:
    counts = random().integers(0, 50, 1_234).astype(float)
    edges = np.linspace(0.0, 10.0, 1_235)
    thinned, notes = thin("histogram", {"x": edges[:-1], "x2": edges[1:], "y": counts})
    assert len(thinned["x"]) <= 200
    assert thinned["y"].sum() == counts.sum()
    assert (thinned["x"][0], thinned["x2"][-1]) == (0.0, 10.0)
    assert np.array_equal(thinned["x"][1:], thinned["x2"][:-1])
    assert "1,234 bins" in notes[0]


def test_cells_join_at_their_mean() -> None:
    x, y = np.meshgrid(np.arange(320.0), np.arange(160.0))
    thinned, notes = thin("heatmap", {"x": x.ravel(), "y": y.ravel(), "z": (x + y).ravel()})
    assert len(thinned["z"]) == MOST_CELLS[0] * MOST_CELLS[1]
    first = np.flatnonzero((thinned["x"] == 0) & (thinned["y"] == 0))
    assert thinned["z"][first] == [1.0]
    assert "51,200 cells" in notes[0]


def test_intervals_keep_the_span_of_each_track() -> None:
    tracks, each = 200, 1_000
    start = np.sort(random().random((tracks, each)), axis=1) * 1_000
    end = np.concatenate([start[:, 1:], np.full((tracks, 1), 1_001.0)], axis=1)
    names = np.repeat(np.array([f"gpu {k}" for k in range(tracks)], dtype=object), each)
    thinned, notes = thin("gantt", {"x": start.ravel(), "x2": end.ravel(), "y": names})
    assert len(set(thinned["y"])) == MOST_TRACKS
    assert len(thinned["x"]) <= MOST_INTERVALS + 4 * MOST_TRACKS
    for name in set(thinned["y"]):
        mine, kept = names == name, thinned["y"] == name
        assert thinned["x"][kept].min() == start.ravel()[mine].min()
        assert thinned["x2"][kept].max() == end.ravel()[mine].max()
    assert len(notes) == 2
    assert "60 of 200 tracks" in notes[0]
    assert "of 60,000 intervals" in notes[1]
