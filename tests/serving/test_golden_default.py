"""The default mode against independent implementations: every column exactly, both ways, however it is cut."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.serving.engine.events import simulate_events
from forerun.serving.engine.stagewise import simulate_stagewise
from forerun.serving.summary.invariants import check_run

from .conftest import differences, golden, golden_pipeline, read_json
from .random_pipelines import same

NAMES = [
    "d01_zero_gaps", "d02_clock", "d03_chain_integer", "d04_conditional_join", "d05_timeout", "d06_delay",
    "d07_capacity", "d08_fork7",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_column_is_exact(name: str) -> None:
    data = read_json(golden("default", f"{name}.json.gz"))
    pipeline, arrivals = golden_pipeline(data), np.array(data["arrival_ms"])
    events = simulate_events(pipeline, arrivals, 50.0)
    whole = simulate_stagewise(pipeline, arrivals, 50.0, record="full")
    assert differences(data, events) == []
    assert differences(data, whole) == []
    assert same(events, whole)
    check_run(pipeline, whole, 50.0)
    assert same(whole, simulate_stagewise(pipeline, arrivals, 50.0, record="full", slice_size=7))


@pytest.mark.parametrize("name", NAMES)
def test_figures_of_the_latency(name: str) -> None:
    data = read_json(golden("default", f"{name}.json.gz"))
    run = simulate_stagewise(golden_pipeline(data), np.array(data["arrival_ms"]), 50.0)
    latency = run.latency_ms
    assert np.quantile(latency, [0.5, 0.99]).tolist() == [data["latency"]["p50"], data["latency"]["p99"]]
    assert latency.max() == data["latency"]["max"]
    assert latency.mean() == pytest.approx(data["latency"]["mean"], rel=1e-13)
