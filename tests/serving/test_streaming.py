"""Endless traces: summaries of a stream equal those of the whole, however it comes."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.serving.streaming import summarise_stream

from forerun.serving.engine.stagewise import Stagewise, simulate_stagewise

from .conftest import notebook_pipeline
from .random_pipelines import random_pipeline

CONFIG = {
    "ResNet": ("V100", 16, 1),
    "Inception": ("V100", 16, 1),
    "KSVM": ("cpu", 16, 1),
    "LogReg": ("cpu", 2, 1),
}


def bursty(queries: int) -> np.ndarray:
    """Gamma gaps, squared coefficient of variation 4, 100 a second."""
    return np.cumsum(np.random.default_rng(2).gamma(0.25, 40.0, queries))


def test_a_streams_figures_are_the_wholes() -> None:
    pipeline, arrivals = notebook_pipeline(CONFIG), bursty(200_000)
    whole = simulate_stagewise(pipeline, arrivals, 350.0)
    found = summarise_stream(pipeline, np.array_split(arrivals, 37), 350.0)
    assert (found.queries, found.misses, found.tie_count) == (200_000, whole.misses, whole.tie_count)
    assert found.latency_max_ms == whole.latency_ms.max()
    assert found.latency_mean_ms == pytest.approx(whole.latency_ms.mean(), rel=1e-12)
    for share in (0.01, 0.5, 0.95, 0.99, 0.999):
        assert found.quantile_ms(share) == pytest.approx(np.quantile(whole.latency_ms, share), rel=1e-3)


def test_how_a_stream_is_cut_changes_no_bit() -> None:
    for seed in range(20):
        pipeline, arrivals = random_pipeline(seed)
        pieces = np.array_split(arrivals, int(np.random.default_rng(seed).integers(1, 60)))
        once = summarise_stream(pipeline, [arrivals], 20.0)
        often = summarise_stream(pipeline, [piece for piece in pieces if len(piece)], 20.0)
        assert once.latency_mean_ms == often.latency_mean_ms
        assert np.array_equal(once.histogram, often.histogram)
        assert (once.misses, once.tie_count) == (often.misses, often.tie_count)


def test_memory_follows_open_queries_not_the_trace() -> None:
    """After a million queries the state is as large as after fifty thousand."""
    state, arrivals = Stagewise(notebook_pipeline(CONFIG), 350.0), bursty(1_000_000)
    sizes = []
    for first in range(0, len(arrivals), 5000):
        piece = arrivals[first : first + 5000]
        state.advance(piece, float(piece[-1]))
        state.forget()
        sizes.append(sum(array.nbytes for array in (*state._state, *state._record[1:])))
    assert sizes[-1] == sizes[9]


def test_a_queue_that_grows_gets_larger_arrays() -> None:
    """Overload: a hundred thousand queries open at once."""
    pipeline = notebook_pipeline({name: (hardware, 1, 1) for name, (hardware, _, _) in CONFIG.items()})
    arrivals = np.arange(100_000) * 1.0
    whole = simulate_stagewise(pipeline, arrivals, 350.0)
    assert whole.finish_ms[-1] == pytest.approx(100.0 * 100_000, rel=0.01)
    assert np.array_equal(
        whole.finish_ms, simulate_stagewise(pipeline, arrivals, 350.0, slice_size=999).finish_ms
    )
