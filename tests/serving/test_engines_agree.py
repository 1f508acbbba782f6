"""Two engines, one result; and cutting a run at any instants changes no byte."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.replication.inferline.notebook import simulate_compat
from forerun.serving.engine.events import simulate_events
from forerun.serving.engine.stagewise import Stagewise, reasons_against, simulate_stagewise
from forerun.serving.inputs.pipeline import SOURCE, Edge, Pipeline, Service, Stage
from forerun.serving.inputs.profile import embedded_profile
from forerun.serving.policies.greedy import Greedy

from ..conftest import cases
from .conftest import NOTEBOOK, notebook_pipeline
from .random_pipelines import random_pipeline, same

SLO_MS = 20.0


@pytest.mark.parametrize("block", range(cases(2, 10)))
def test_event_loop_equals_stage_by_stage(block: int) -> None:
    """60 random graphs a block, with ties, drawn services, conditional edges, joins, all policies, capacity."""
    for seed in range(60 * block, 60 * block + 60):
        pipeline, arrivals = random_pipeline(seed)
        events = simulate_events(pipeline, arrivals, SLO_MS)
        stages = simulate_stagewise(pipeline, arrivals, SLO_MS, record="full")
        assert same(events, stages), f"pipeline {seed}"
        latency = simulate_stagewise(pipeline, arrivals, SLO_MS, slice_size=1 + seed % 50)
        assert np.array_equal(latency.finish_ms, events.finish_ms), f"pipeline {seed}"
        counts = simulate_stagewise(pipeline, arrivals, SLO_MS, record="counts")
        assert (counts.misses, latency.misses) == (events.misses, events.misses), f"pipeline {seed}"


def test_the_worlds_contain_what_they_should() -> None:
    """A comparison of engines that never meets a tie, an overtaking batch or a large stage proves little."""
    pipelines = [random_pipeline(seed) for seed in range(600)]
    ties = [simulate_stagewise(p, a, SLO_MS).tie_count for p, a in pipelines[:100]]
    assert sum(t > 0 for t in ties) > 40
    stages = [stage for pipeline, _ in pipelines for stage in pipeline.stages]
    assert sum(stage.most_replicas == 64 for stage in stages) > 20
    assert sum(len(stage.edges) >= 3 for stage in stages) > 100
    assert sum(bool(stage.capacity) for stage in stages) > 100
    assert sum(not all(edge.always for edge in pipeline.edges) for pipeline, _ in pipelines) > 100
    assert {type(stage.batching).__name__ for stage in stages} == {"Greedy", "Timeout", "Delay"}


@pytest.mark.parametrize("block", range(4))
def test_cutting_changes_no_byte(block: int) -> None:
    """200 runs with 3 to 12 cuts each, at arrivals, between them and at instants of the run itself,
    arrivals fed ahead of the cut or just in time, in all kinds of record."""
    for seed in range(1000 + 50 * block, 1050 + 50 * block):
        pipeline, arrivals = random_pipeline(seed)
        whole = simulate_stagewise(pipeline, arrivals, SLO_MS, record="full")
        rng = np.random.default_rng(seed)
        for record in ("full", "latency", "counts"):
            cut = Stagewise(pipeline, SLO_MS, record=record)
            for fed, until_ms in _cuts(rng, arrivals, whole.finish_ms):
                cut.advance(arrivals[cut.fed : fed], until_ms)
            cut.advance(arrivals[cut.fed :])
            found = cut.run(arrivals)
            assert (found.misses, found.tie_count) == (whole.misses, whole.tie_count), f"pipeline {seed}"
            if record == "full":
                assert same(found, whole), f"pipeline {seed}"
            elif record == "latency":
                assert np.array_equal(found.finish_ms, whole.finish_ms), f"pipeline {seed}"


def test_nothing_at_or_after_the_cut_has_happened() -> None:
    """Half-open: a run up to t knows every finish before t and none from t on."""
    for seed in range(cases(10, 40)):
        pipeline, arrivals = random_pipeline(seed, simple=True)
        whole = simulate_stagewise(pipeline, arrivals, SLO_MS)
        until_ms = float(np.median(whole.finish_ms))
        part = Stagewise(pipeline, SLO_MS)
        part.advance(arrivals[arrivals < until_ms], until_ms)
        finished = part.finished
        assert np.array_equal(part.finish_ms, whole.finish_ms[:finished])
        assert (part.finish_ms < until_ms).all()
        assert whole.finish_ms[finished] >= until_ms


def test_streaming_forgets_and_hands_over_the_same_bytes() -> None:
    pipeline, arrivals = random_pipeline(3, queries=3000)
    whole = simulate_stagewise(pipeline, arrivals, SLO_MS)
    stream, parts = Stagewise(pipeline, SLO_MS), []
    for first in range(0, len(arrivals), 100):
        until_ms = float(arrivals[first + 100]) if first + 100 < len(arrivals) else np.inf
        stream.advance(arrivals[first : first + 100], until_ms)
        parts.append(stream.forget())
    assert np.array_equal(np.concatenate(parts), whole.finish_ms)


def test_counting_stops_early() -> None:
    pipeline = notebook_pipeline({"ResNet": ("V100", 1, 1), "Inception": ("V100", 1, 1), "KSVM": ("cpu", 1, 1),
                                  "LogReg": ("cpu", 1, 1)})  # fmt: skip
    arrivals = np.arange(100_000) * 50.0
    stopped = simulate_stagewise(pipeline, arrivals, 350.0, record="counts", most_misses=10, slice_size=64)
    assert not stopped.complete
    assert 10 < stopped.misses <= 64 + 10
    assert simulate_stagewise(pipeline, arrivals[:5], 350.0, record="counts", most_misses=10).complete


@pytest.mark.parametrize("block", range(cases(2, 4)))
def test_default_equals_compat_without_ties(block: int) -> None:
    """50 random configurations a block of the notebook's pipeline, gamma gaps: latencies are bit-identical."""
    for seed in range(50 * block, 50 * block + 50):
        rng = np.random.default_rng(seed)
        pipeline = _random_notebook(rng)
        # Gaps below the snap would be ties to the notebook; the artifact clips at 0.047 ms too.
        gaps = np.maximum(rng.gamma(0.5, 2 * 1000 / float(rng.uniform(20, 200)), 400), 0.047)
        arrivals = np.concatenate([[0.0], np.cumsum(gaps)])
        compat = simulate_compat(pipeline, gaps, len(arrivals))
        ours = simulate_stagewise(pipeline, arrivals, SLO_MS)
        assert np.array_equal(compat.sink_ms - compat.source_ms, ours.latency_ms), f"configuration {seed}"


def test_reasons_for_the_event_loop_are_named() -> None:
    from .test_policies import Alternating

    pipeline, _ = random_pipeline(0, simple=True)
    assert reasons_against(pipeline) == []
    foreign = Pipeline(
        tuple(type(stage)(**{**vars(stage), "batching": Alternating()}) for stage in pipeline.stages[:1])
    )
    assert reasons_against(foreign) == ["stage 's0': batching policy Alternating has no compiled form"]


def test_many_conditional_edges_and_stages() -> None:
    """139 edges into 70 stages, some conditional and some recorded: more of either than a machine word has bits."""
    service, arrivals = Service(np.array([0.0, 3.0, 4.0])), np.arange(60.0)
    edges = [Edge(SOURCE, recorded=np.arange(60) % 3 > 0), *(Edge(n, share=0.9, number=n) for n in range(69))]
    stages = [Stage("s0", (Edge(SOURCE, share=0.5, number=70),), 2, 1, service, Greedy())]
    stages += [Stage(f"s{n}", (edges[0], edges[n]), 2, n % 3 + 1, service, Greedy()) for n in range(1, 70)]
    pipeline = Pipeline(tuple(stages), seed=5)
    assert len(pipeline.edges) == 139 and reasons_against(pipeline) == []
    events = simulate_events(pipeline, arrivals, SLO_MS)
    assert same(simulate_stagewise(pipeline, arrivals, SLO_MS, record="full", slice_size=7), events)
    assert 0 < np.count_nonzero(np.isnan(events.visits[69].end_ms)) < 60


def test_one_compilation_serves_all() -> None:
    """Read-only, strided or sliced arrivals and recorded routing must not compile the kernels again."""
    from forerun.serving.engine.kernels.advance import advance

    pipeline, arrivals = random_pipeline(3)
    frozen = arrivals.copy()
    frozen.flags.writeable = False
    for given in (arrivals, frozen, np.repeat(arrivals, 2)[::2], arrivals.astype(np.float32)):
        simulate_stagewise(pipeline, given, SLO_MS, slice_size=40)
    for seed in range(cases(8, 30)):
        simulate_stagewise(*random_pipeline(seed), SLO_MS, slice_size=40, record="full")
    if hasattr(advance, "signatures"):  # plain Python where compilation is switched off
        assert len(advance.signatures) == 1


def _cuts(rng: np.random.Generator, arrivals: np.ndarray, instants: np.ndarray) -> list[tuple[int, float]]:
    """(arrivals fed so far, until) for ascending cuts."""
    at = np.concatenate([rng.choice(arrivals, 4), rng.choice(instants, 4), rng.choice(instants, 4) + 0.25])
    cuts, fed = [], 0
    for until_ms in np.sort(rng.choice(at, int(rng.integers(3, 13)), replace=False)).tolist():
        due = int(np.searchsorted(arrivals, until_ms, side="left"))
        fed = max(fed, min(len(arrivals), due + int(rng.integers(0, 4))))
        cuts.append((fed, until_ms))
    return cuts


def _random_notebook(rng: np.random.Generator) -> Pipeline:
    profile = embedded_profile()
    config = {}
    for model in NOTEBOOK:
        hardware = str(rng.choice(profile.hardware_of(model)))
        largest = profile.rows(model, hardware)[-1].batch
        config[model] = (hardware, int(rng.integers(1, largest + 1)), int(rng.integers(1, 6)))
    return notebook_pipeline(config, str(rng.choice(["mean", "p99", "notebook"])))
