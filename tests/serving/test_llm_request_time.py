"""The time of a request outside of iterations: both engines, and that it shifts what happens and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forerun.serving.engine.events import simulate_events
from forerun.serving.inputs.pipeline import Pipeline
from forerun.serving.llm.engine.pipeline import MixedRun, simulate_mixed
from forerun.serving.summary.invariants import check_run

from ..conftest import cases
from .random_llm_pipelines import equal, llm_pipeline, mixed_pipeline, prefix_pipeline

SLO_MS = 20.0
WORLDS = [llm_pipeline, prefix_pipeline, mixed_pipeline]


def delayed(pipeline: Pipeline, request_ms: float) -> Pipeline:
    stages = tuple(
        stage
        if stage.llm is None
        else replace(stage, llm=replace(stage.llm, cost=replace(stage.llm.cost, request_ms=request_ms)))
        for stage in pipeline.stages
    )
    return replace(pipeline, stages=stages)


@pytest.mark.parametrize("world", WORLDS)
def test_compiled_equals_plain(world: object) -> None:
    for seed in range(cases(6, 30)):
        pipeline, arrivals = world(seed)  # type: ignore[operator]
        slow = delayed(pipeline, (0.0, 1.0, 7.0, 3.3)[seed % 4])
        run = simulate_mixed(slow, arrivals, SLO_MS)
        assert equal(simulate_events(slow, arrivals, SLO_MS), run), f"pipeline {seed}"
        check_run(slow, run, SLO_MS)


def test_cutting_changes_no_byte() -> None:
    for seed in range(cases(3, 10)):
        pipeline, arrivals = mixed_pipeline(seed)
        slow = delayed(pipeline, 3.3)
        cut = MixedRun(slow, len(arrivals), SLO_MS)
        for at_ms in (float(arrivals[20]), float(arrivals[20]) + 2.0, float(arrivals[-1])):
            cut.advance(arrivals[cut.fed : np.searchsorted(arrivals, at_ms)], at_ms)
        cut.advance(arrivals[cut.fed :])
        assert equal(cut.run(), simulate_mixed(slow, arrivals, SLO_MS)), f"pipeline {seed}"


@pytest.mark.parametrize("world", [llm_pipeline, prefix_pipeline])
def test_a_constant_time_shifts_requests_and_changes_nothing_else(world: object) -> None:
    """On a clock that adds exactly, everything that a replica does happens so much later; refusals happen at once."""
    for seed in range(cases(12, 60)):
        pipeline, arrivals = world(seed)  # type: ignore[operator]
        if not (arrivals == np.round(arrivals)).all():
            continue
        early, late = (
            simulate_mixed(pipeline, arrivals, SLO_MS),
            simulate_mixed(delayed(pipeline, 8.0), arrivals, SLO_MS),
        )
        (one,), (other,) = early.requests, late.requests
        assert one is not None and other is not None
        np.testing.assert_array_equal(one.first_ms + 8.0, other.first_ms)
        served = ~np.isnan(one.first_ms)
        np.testing.assert_array_equal(early.finish_ms[served] + 8.0, late.finish_ms[served])
        np.testing.assert_array_equal(early.finish_ms[~served], late.finish_ms[~served])
        np.testing.assert_array_equal(one.gaps, other.gaps)
        assert one.iterations == other.iterations
