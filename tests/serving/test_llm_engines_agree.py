"""Language models two ways: the compiled replicas and the plain ones, alone and among other stages; cuts; laws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.serving.engine.events import simulate_events
from forerun.serving.engine.stagewise import simulate_stagewise
from forerun.serving.inputs.pipeline import SOURCE, Edge, Pipeline, Service, Stage
from forerun.serving.llm.engine.pipeline import MixedRun, simulate_mixed
from forerun.serving.llm.inputs.model import Cost, LanguageModel
from forerun.serving.llm.scenario.language_model import Routing
from forerun.serving.policies.greedy import Greedy
from forerun.serving.summary.invariants import check_run

from ..conftest import cases
from .random_llm_pipelines import (
    conversing_pipeline,
    crowded_pipeline,
    equal,
    llm_pipeline,
    llm_stage,
    mixed_pipeline,
    prefix_pipeline,
)

SLO_MS = 20.0


@pytest.mark.parametrize(
    "world", [llm_pipeline, prefix_pipeline, conversing_pipeline, crowded_pipeline, mixed_pipeline]
)
def test_compiled_equals_plain(world: object) -> None:
    """Random language models (chunks, preemption, refusals, ties), with shared prefixes, in graphs."""
    for seed in range(cases(30, 120)):
        pipeline, arrivals = world(seed)  # type: ignore[operator]
        run = simulate_mixed(pipeline, arrivals, SLO_MS)
        assert equal(simulate_events(pipeline, arrivals, SLO_MS), run), f"pipeline {seed}"
        check_run(pipeline, run, SLO_MS)


def test_the_worlds_contain_what_they_should() -> None:
    worlds = 60
    runs = [
        simulate_mixed(*world(seed), SLO_MS)
        for world in (llm_pipeline, mixed_pipeline)
        for seed in range(worlds)
    ]
    requests = [told for run in runs for told in run.requests if told is not None]
    assert sum(bool(told.preemptions.any()) for told in requests) > worlds / 2
    assert sum(bool(run.refused.any()) for run in runs) > worlds / 4
    assert sum(run.tie_count > 0 for run in runs) > worlds / 2
    assert sum((told.stalled_first_ms > 0).any() for told in requests) > worlds / 12
    stages = [stage for seed in range(worlds) for stage in mixed_pipeline(seed)[0].stages]
    assert sum(stage.llm is not None and len(stage.edges) > 1 for stage in stages) > worlds / 2
    assert sum(stage.llm is not None and stage.llm.cost.tabled for stage in stages) > worlds / 4


@settings(max_examples=cases(12, 60))
@given(
    requests=st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 40), st.integers(1, 12)), min_size=1, max_size=25
    ),
    seats=st.integers(1, 6),
    budget=st.integers(1, 50),
    blocks=st.integers(4, 30),
    block=st.sampled_from([1, 3, 8]),
    replicas=st.integers(1, 3),
    least=st.booleans(),
)
def test_engines_agree_on_random_requests(
    requests: list[tuple[int, int, int]],
    seats: int,
    budget: int,
    blocks: int,
    block: int,
    replicas: int,
    least: bool,
) -> None:
    gaps, prompt, output = np.array(requests, dtype=np.int64).T.copy()
    cost = Cost((1.0, 0.0, 1.0, 0.0, 0.0))
    routing: Routing = "least-requests" if least else "round-robin"
    llm = LanguageModel(seats, budget, blocks, block, cost, prompt, output, routing=routing)
    pipeline = Pipeline((llm_stage("llm", (Edge(SOURCE),), llm, replicas),))
    arrivals = np.cumsum(gaps) * 1.0
    run = simulate_mixed(pipeline, arrivals, SLO_MS)
    assert equal(run, simulate_events(pipeline, arrivals, SLO_MS))
    check_run(pipeline, run, SLO_MS)


@pytest.mark.parametrize("world", [llm_pipeline, prefix_pipeline, mixed_pipeline])
def test_cutting_changes_no_byte(world: object) -> None:
    """250 runs with 3 to 12 cuts at arrivals, completions, ends of iterations and between them."""
    for seed in range(cases(25, 125)):
        pipeline, arrivals = world(2000 + seed)  # type: ignore[operator]
        whole = simulate_mixed(pipeline, arrivals, SLO_MS)
        rng = np.random.default_rng(seed)
        ends = [
            told.recorded.end_ms for told in whole.requests if told is not None and told.recorded is not None
        ]
        instants = np.concatenate([whole.finish_ms, *ends])
        at = [rng.choice(arrivals, 4), rng.choice(instants, 4), rng.choice(instants, 4) + 0.25]
        cut, fed = MixedRun(pipeline, len(arrivals), SLO_MS), 0
        for until_ms in np.sort(
            rng.choice(np.concatenate(at), int(rng.integers(3, 13)), replace=False)
        ).tolist():
            due = int(np.searchsorted(arrivals, until_ms, side="left"))
            fed = max(fed, min(len(arrivals), due + int(rng.integers(0, 4))))
            cut.advance(arrivals[cut.fed : fed], until_ms)
        cut.advance(arrivals[cut.fed :])
        assert equal(cut.run(), whole), f"pipeline {seed}"


def test_one_token_requests_are_a_batching_stage() -> None:
    """A prompt of one token and an answer of one: an iteration of n requests is a batch that takes a + b n."""
    rng = np.random.default_rng(5)
    arrivals = np.cumsum(rng.gamma(0.5, 8.0, 3000))
    for most in (1, 4, 16):
        one = np.ones(len(arrivals), dtype=np.int64)
        llm = LanguageModel(most, most, 10 * most, 4, Cost((6.0, 0.7, 0.0, 0.0, 0.0)), one, one)
        served = simulate_mixed(Pipeline((llm_stage("llm", (Edge(SOURCE),), llm, 1),)), arrivals, SLO_MS)
        table = np.array([0.0, *(6.0 + 0.7 * n for n in range(1, most + 1))])
        batching = Stage("llm", (Edge(SOURCE),), most, 1, Service(table), Greedy())
        batched = simulate_stagewise(Pipeline((batching,)), arrivals, SLO_MS, record="full")
        assert np.array_equal(served.finish_ms, batched.finish_ms)
        assert np.array_equal(served.batches[0].size, batched.batches[0].size)
        assert (served.misses, served.tie_count) == (batched.misses, batched.tie_count)


def test_one_request_at_a_time_waits_as_in_theory() -> None:
    """max_seqs 1 and constant work under Poisson arrivals is M/D/1: mean wait rho s / (2 (1 - rho))."""
    queries, rho = 200_000, 0.6
    prompt, output = np.full(queries, 10), np.full(queries, 3)
    service_ms = (2.0 + 10 * 0.1) + 2 * (2.0 + 0.5)
    arrivals = np.cumsum(np.random.default_rng(1).exponential(service_ms / rho, queries))
    llm = LanguageModel(1, 64, 8, 16, Cost((2.0, 0.1, 0.5, 0.0, 0.0)), prompt, output)
    run = simulate_mixed(Pipeline((llm_stage("llm", (Edge(SOURCE),), llm, 1),)), arrivals, SLO_MS, keep=False)
    wait_ms = float((run.visits[0].start_ms - run.visits[0].enqueue_ms).mean())
    # The standard error of the mean at this load and length is about 1 %.
    assert wait_ms == pytest.approx(rho * service_ms / (2 * (1 - rho)), rel=0.03)


def test_laws_of_iterations() -> None:
    for seed in range(cases(12, 60)):
        pipeline, arrivals = llm_pipeline(500 + seed)
        llm = pipeline.stages[0].llm
        assert llm is not None
        run = simulate_mixed(pipeline, arrivals, SLO_MS)
        told = run.requests[0]
        assert told is not None and told.recorded is not None
        kept, served = told.recorded, ~run.refused
        assert (kept.prefill + kept.decodes <= llm.token_budget).all() and (
            kept.prefill + kept.decodes > 0
        ).all()
        assert (kept.running <= llm.max_seqs).all()
        assert (kept.free_blocks >= 0).all() and (kept.free_blocks < llm.kv_blocks).all()
        for replica in range(pipeline.stages[0].replicas):
            mine = kept.replica == replica
            assert (kept.start_ms[mine][1:] >= kept.end_ms[mine][:-1]).all()
        assert told.gaps.sum() == (llm.output[served] - 1).sum()
        if not told.preemptions.any():
            assert kept.prefill.sum() == llm.prompt[served].sum()
            assert kept.decodes.sum() == (llm.output[served] - 1).sum()
        else:
            assert kept.prefill.sum() > llm.prompt[served].sum()


def test_metamorphic_relations() -> None:
    """Room that is never used changes nothing; times scale; the same requests later take as long (integer clock)."""
    for seed in range(cases(8, 40)):
        pipeline, arrivals = llm_pipeline(900 + seed)
        stage = pipeline.stages[0]
        llm = stage.llm
        assert llm is not None
        run = simulate_mixed(pipeline, arrivals, SLO_MS)
        kept = run.requests[0].recorded  # type: ignore[union-attr]
        most = int(kept.running.max())  # type: ignore[union-attr]
        roomier = replace(stage, llm=replace(llm, max_seqs=llm.max_seqs + 7))
        if most < llm.max_seqs:
            assert equal(simulate_mixed(Pipeline((roomier,)), arrivals, SLO_MS), run)
        if not llm.cost.tabled:
            doubled = replace(llm.cost, terms=tuple(2 * term for term in llm.cost.terms))
            slower = replace(stage, llm=replace(llm, cost=doubled))
            again = simulate_mixed(Pipeline((slower,)), 2 * arrivals, 2 * SLO_MS)
            assert np.array_equal(again.finish_ms, 2 * run.finish_ms)
        if (arrivals == np.round(arrivals)).all() and (llm.cost.tabled or llm.cost.terms[1] == 0):
            later = simulate_mixed(pipeline, arrivals + 1024.0, SLO_MS)
            assert np.array_equal(later.latency_ms, run.latency_ms)


def test_one_compilation_serves_all() -> None:
    from forerun.serving.llm.engine.kernels.requests import run_requests

    for seed in range(8):
        simulate_mixed(*llm_pipeline(seed), SLO_MS, keep=bool(seed % 2))
        simulate_mixed(*mixed_pipeline(seed), SLO_MS)
    if hasattr(run_requests, "signatures"):  # plain Python where compilation is switched off
        assert len(run_requests.signatures) == 1
