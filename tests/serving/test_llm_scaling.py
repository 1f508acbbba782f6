"""Replicas of language models that come and go: both engines agree, nobody is lost, tuners see what they need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from forerun.core.domain import get_domain, simulate
from forerun.core.errors import ForerunError, PolicyError
from forerun.core.result.run import Result
from forerun.core.rng import stream
from forerun.serving.engine.events import simulate_events
from forerun.serving.engine.outcome import _until_released
from forerun.serving.engine.tuning import handover_of, run_sliced
from forerun.serving.inputs.pipeline import SOURCE, Edge, Pipeline
from forerun.serving.inputs.prepare import prepare
from forerun.serving.llm.engine.pipeline import MixedRun, simulate_mixed
from forerun.serving.llm.inputs.model import Cost, LanguageModel
from forerun.serving.policies.attainment import Attainment
from forerun.serving.policy.tuning import FleetView, Keep, Scale, Tuning
from forerun.serving.summary.invariants import check_run

from ..conftest import cases
from .random_llm_pipelines import changing_pipeline, equal, llm_stage
from .test_llm_scenario import problems, scenario, scenario_data

SLO_MS = 20.0
#: drawn worlds of each law in a run of the suite; set FORERUN_CASES for more
CASES = cases(30)


def test_engines_agree_while_replicas_come_and_go() -> None:
    seen = {"none": 0, "drained": 0}
    for seed in range(CASES):
        pipeline, arrivals = changing_pipeline(seed)
        run = simulate_mixed(pipeline, arrivals, SLO_MS)
        assert equal(simulate_events(pipeline, arrivals, SLO_MS), run), f"pipeline {seed}"
        check_run(pipeline, run, SLO_MS)
        (stage,), (batches,) = pipeline.stages, run.batches
        seen["none"] += any(count == 0 for _, count in stage.capacity)
        changes = [(0.0, stage.replicas), *stage.capacity]
        there = np.array([count for _, count in changes])[
            np.searchsorted([at for at, _ in changes], batches.start_ms, side="right") - 1
        ]
        seen["drained"] += bool((batches.replica >= there).any())
    assert min(seen.values()) > CASES / 10, f"worlds are too tame: {seen}"


def test_cutting_changes_no_byte() -> None:
    for seed in range(CASES // 2):
        pipeline, arrivals = changing_pipeline(2000 + seed)
        whole = simulate_mixed(pipeline, arrivals, SLO_MS)
        rng = np.random.default_rng(seed)
        changes = [at_ms for at_ms, _ in pipeline.stages[0].capacity]
        instants = np.concatenate([arrivals, whole.batches[0].end_ms, changes])
        cut = MixedRun(pipeline, len(arrivals), SLO_MS)
        for until_ms in np.sort(rng.choice(instants, 8) + rng.choice([0.0, 0.25], 8)).tolist():
            due = int(np.searchsorted(arrivals, until_ms, side="left"))
            cut.advance(arrivals[cut.fed : due], until_ms)
        cut.advance(arrivals[cut.fed :])
        assert equal(cut.run(), whole), f"pipeline {seed}"


def test_requests_wait_for_the_first_replica() -> None:
    """None until 50 ms; then those that came first are served first, by the one that comes."""
    one = np.ones(4, dtype=np.int64)
    llm = LanguageModel(1, 8, 8, 4, Cost((5.0, 0.0, 0.0, 0.0, 0.0)), one, one)
    stage = replace(llm_stage("llm", (Edge(SOURCE),), llm, 0), capacity=((50.0, 1),))
    run = simulate_mixed(Pipeline((stage,)), np.array([0.0, 10.0, 10.0, 52.0]), SLO_MS)
    assert run.finish_ms.tolist() == [55.0, 60.0, 65.0, 70.0]
    assert (run.visits[0].start_ms - run.visits[0].enqueue_ms).tolist() == [50.0, 45.0, 50.0, 13.0]


def test_a_replica_that_goes_finishes_what_it_has() -> None:
    """Two requests in turn on two replicas, a third and a fourth when the second replica takes no more."""
    prompt, output = np.ones(4, dtype=np.int64), np.array([2, 4, 2, 2])
    llm = LanguageModel(4, 8, 8, 4, Cost((5.0, 0.0, 0.0, 0.0, 0.0)), prompt, output)
    stage = replace(llm_stage("llm", (Edge(SOURCE),), llm, 2), capacity=((3.0, 1),))
    run = simulate_mixed(Pipeline((stage,)), np.array([0.0, 0.0, 4.0, 11.0]), SLO_MS)
    assert run.visits[0].replica.tolist() == [0, 1, 0, 0]
    assert run.finish_ms.tolist() == [10.0, 20.0, 15.0, 25.0]


def tuned(tuner: dict[str, Any], arrivals_s: Any, **llm: Any) -> Result:
    """A language model behind a classifier, under a tuner."""
    data = scenario_data(**llm)
    data["trace"] = {"arrivals_ms": (np.asarray(arrivals_s) * 1e3).tolist()}
    data["configuration"]["Llama"]["replicas"] = 1
    data["configuration"]["KSVM"] |= {"replicas": 8}
    data["tuner"] = tuner
    data["intervals"] = {"replications": 0}
    return simulate(scenario(data)).check()


def burst(rate_rps: float, from_s: float, to_s: float) -> np.ndarray:
    return np.arange(from_s, to_s, 1 / rate_rps)


ATTAINMENT = {"name": "attainment", "activation": "10s", "look": "20s", "calm": "30s"}


def counts(result: Result, stage: str = "Llama") -> list[int]:
    """Replicas paid for, one decision after the other."""
    decisions = result.tables["decisions"]
    return decisions["after"][decisions["stage"] == stage].tolist()


def test_late_tokens_bring_replicas_and_calm_takes_them() -> None:
    arrivals_s = np.concatenate([burst(1, 0, 60), burst(30, 60, 180), burst(1, 180, 900)])
    result = tuned(ATTAINMENT, arrivals_s, ttft_slo_ms=300.0)
    changes = counts(result)
    assert max(changes) >= 3 and changes[-1] == 1
    up = result.tables["decisions"]["action"] == "up"
    first_s = float(result.tables["decisions"]["at_ms"][up][0]) / 1e3
    assert 60 < first_s < 90 and set(result.tables["decisions"]["why"][~up].tolist()) == {"calm"}
    fixed = tuned({"name": "fixed"}, arrivals_s, ttft_slo_ms=300.0)
    assert result.summary["ttft_attainment"] > fixed.summary["ttft_attainment"]
    get_domain("serving").figures(result)


def test_a_full_cache_brings_replicas() -> None:
    arrivals_s = np.concatenate([burst(8, 0, 120), [400.0]])
    result = tuned(ATTAINMENT, arrivals_s, kv_blocks=60)
    assert set(result.tables["decisions"]["why"].tolist()) & {"the cache is full", "requests wait"}
    assert max(counts(result)) > 1


def test_scaling_to_zero_pays_less_and_starts_cold() -> None:
    """Requests a quarter of an hour apart: each finds no replica, and waits for one to be asked for and to start."""
    arrivals_s = np.array([1.0, 900.0, 1800.0, 2700.0])
    stopping = {**ATTAINMENT, "min_replicas": 0, "idle": "60s"}
    result, fixed = tuned(stopping, arrivals_s), tuned({"name": "fixed"}, arrivals_s)
    assert counts(result) == [0, 1, 0, 1, 0, 1]
    ttft_ms = result.tables["requests"]["ttft_ms"]
    warm_ms = fixed.tables["requests"]["ttft_ms"]
    cold_ms = ttft_ms - warm_ms
    assert cold_ms[0] == 0 and ((cold_ms[1:] >= 10_000) & (cold_ms[1:] <= 11_000)).all()
    paid = result.tables["replicas"]
    mine = paid["stage"] == "Llama"
    assert 0 in paid["count"][mine].tolist()
    spent, whole = (one.summary["cost_usd"] for one in (result, fixed))
    assert spent < 0.5 * whole


def test_a_request_behind_the_last_look_is_served() -> None:
    """The last one comes when nobody is there and nobody would be asked any more."""
    result = tuned({**ATTAINMENT, "min_replicas": 0, "idle": "5s"}, [1.0, 100.25])
    assert counts(result) == [0, 1]
    assert result.tables["requests"]["ttft_ms"][1] > 10_000


@pytest.mark.parametrize("name", ["ongoing", "utilisation"])
def test_tuners_that_see_queues_see_those_of_language_models(name: str) -> None:
    arrivals_s = np.concatenate([burst(40, 0, 120), [400.0]])
    given = {"name": name, "activation": "5s"}
    if name == "ongoing":
        given |= {"target": 4, "up_delay": "2s"}
    result = tuned(given, arrivals_s)
    assert max(counts(result)) > 1


@pytest.mark.parametrize(
    "tuner",
    [ATTAINMENT, {**ATTAINMENT, "min_replicas": 0, "idle": "5s"}, {"name": "ongoing", "up_delay": "2s"}],
)
def test_the_run_that_is_asked_is_the_run_that_is_shown(tuner: dict[str, Any]) -> None:
    """Asking between slices, and running once with what was decided, in both engines."""
    data = scenario_data(ttft_slo_ms=200.0)
    data |= {
        "tuner": tuner,
        "trace": {"process": {"name": "gamma", "rate_rps": 40.0, "scv": 8.0}, "queries": cases(700, 2000)},
    }
    inputs = prepare(scenario(data))
    handover, spec = handover_of(inputs), inputs.scenario.tuner
    policy = spec.build(handover, stream(0, "tuner"))
    schedule, run = run_sliced(spec, policy, handover, inputs.arrivals_ms, SLO_MS, record="full")
    pipeline = schedule.applied(inputs.pipeline)
    assert schedule.decisions
    assert equal(run, simulate_mixed(pipeline, inputs.arrivals_ms, SLO_MS))
    assert equal(run, simulate_events(pipeline, inputs.arrivals_ms, SLO_MS))
    check_run(pipeline, run, SLO_MS)


class _Stubborn(Attainment, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="stubborn"):
    """Takes all replicas and gives none."""

    def build(self, handover: Any, rng: Any) -> Any:
        return self

    def decide(self, view: FleetView) -> Tuning:
        down = (view.replicas[0], 0)
        return Scale(down) if view.replicas != down else Keep()


def test_a_tuner_that_never_brings_a_replica_is_named() -> None:
    data = scenario_data()
    data |= {"trace": {"arrivals_ms": [0.0, 5000.0, 9000.0]}}
    with pytest.raises(PolicyError, match="leaves requests without a replica for ever"):
        simulate(scenario(data), policy=_Stubborn())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tuner": {"name": "attainment", "min_replicas": 0}}, "is 0, but idle_s does not say after how long"),
        ({"tuner": {"name": "attainment", "min_replicas": 9, "max_replicas": 3}}, "9 is above max_replicas, 3"),
        ({"tuner": {"name": "attainment", "kv_share": 1.5}}, "kv_share"),
        ({"tuner": "inferline"}, "'inferline' counts what a replica carries, which is not known of a language model"),
    ],
)  # fmt: skip
def test_tuners_that_cannot_be(change: dict[str, Any], said: str) -> None:
    found = problems(lambda data, placed: data.update(change))
    assert any(said in one for one in found), found


def test_pools_are_not_tuned() -> None:
    def change(data: dict[str, Any], placed: dict[str, Any]) -> None:
        placed["llm"]["decode"] = {"replicas": 1}
        data["tuner"] = "attainment"

    assert any("does not change replicas that prefill while others decode" in one for one in problems(change))


def test_attainment_needs_a_language_model() -> None:
    data = scenario_data()
    data["stages"].pop()
    del data["configuration"]["Llama"]
    data["tuner"] = "attainment"
    with pytest.raises(ForerunError, match="looks at language models, and no stage serves one"):
        simulate(scenario(data))


def test_a_replica_that_goes_is_paid_for_until_it_has_finished() -> None:
    """Its requests end after it was taken away, and another one is back before it is idle."""
    prompt, output = np.full(6, 10), np.full(6, 50)
    llm = LanguageModel(4, 512, 1000, 16, Cost((10.0, 0.0, 0.0, 0.0, 0.0)), prompt, output)
    stage = replace(
        llm_stage("llm", (Edge(SOURCE),), llm, 2), capacity=((100.0, 1), (300.0, 2), (350.0, 1), (2000.0, 2))
    )
    run = simulate_mixed(Pipeline((stage,)), np.array([0.0, 0.0, 50.0, 50.0, 120.0, 130.0]), np.inf)
    mine = run.visits[0].end_ms[run.visits[0].replica == 1]
    assert mine.max() == 550.0
    assert _until_released(2, stage.capacity, run.visits[0]) == ((300.0, 2), (550.0, 1), (2000.0, 2))
    alone = replace(run.visits[0], replica=np.zeros(6, dtype=np.int32))
    assert _until_released(2, stage.capacity, alone) == stage.capacity
