"""Prefill and decode on replicas of their own: both engines agree, the closed form of two queues, blocks until the transfer
ends, what scenarios say and what they pay."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.core.domain import get_domain, simulate
from forerun.serving.engine.events import simulate_events
from forerun.serving.engine.outcome import Run, Transfers
from forerun.serving.inputs.pipeline import SOURCE, Edge, Pipeline
from forerun.serving.inputs.prepare import prepare
from forerun.serving.llm.engine.pipeline import MixedRun, simulate_mixed
from forerun.serving.llm.engine.replica import ApartReplicas
from forerun.serving.llm.inputs.model import Cost, DecodePool, LanguageModel
from forerun.serving.summary.invariants import check_run

from ..conftest import cases
from .random_llm_pipelines import apart_pipeline, equal, llm_stage, mixed_pipeline
from .test_llm_memory import LLAMA
from .test_llm_scenario import problems, scenario, scenario_data

SLO_MS = 20.0
#: drawn worlds of each law in a run of the suite; set FORERUN_CASES for more
CASES = cases(30)


def transfers(run: Run, stage: int = 0) -> Transfers:
    requests = run.requests[stage]
    assert requests is not None and requests.transfers is not None
    return requests.transfers


def test_engines_agree() -> None:
    seen = {"sent": 0, "preempted": 0, "waited for the link": 0, "refused": 0}
    for seed in range(CASES):
        pipeline, arrivals = apart_pipeline(seed)
        run = simulate_mixed(pipeline, arrivals, SLO_MS)
        assert equal(simulate_events(pipeline, arrivals, SLO_MS), run), f"pipeline {seed}"
        check_run(pipeline, run, SLO_MS)
        llm, requests, sent = pipeline.stages[0].llm, run.requests[0], transfers(run)
        assert llm is not None and llm.decode is not None and requests is not None
        alone_ms = requests.first_ms + llm.decode.send_ms_per_token * llm.prompt + llm.decode.latency_ms
        seen["sent"] += bool((sent.replica >= 0).any())
        seen["preempted"] += bool(requests.preemptions.any())
        seen["waited for the link"] += bool((sent.sent_ms > alone_ms + 1e-6).any())
        seen["refused"] += bool(run.refused is not None and run.refused.any())
    assert min(seen.values()) > CASES / 10, f"worlds are too tame: {seen}"


def test_cutting_changes_no_byte() -> None:
    for seed in range(CASES // 2):
        pipeline, arrivals = apart_pipeline(2000 + seed)
        whole = simulate_mixed(pipeline, arrivals, SLO_MS)
        rng = np.random.default_rng(seed)
        sent_ms = transfers(whole).sent_ms
        instants = np.concatenate([arrivals, whole.batches[0].end_ms, sent_ms[~np.isnan(sent_ms)]])
        cut, fed = MixedRun(pipeline, len(arrivals), SLO_MS), 0
        for until_ms in np.sort(rng.choice(instants, 8) + rng.choice([0.0, 0.25], 8)).tolist():
            due = int(np.searchsorted(arrivals, until_ms, side="left"))
            fed = max(fed, min(len(arrivals), due + int(rng.integers(0, 4))))
            cut.advance(arrivals[cut.fed : fed], until_ms)
        cut.advance(arrivals[cut.fed :])
        assert equal(cut.run(), whole), f"pipeline {seed}"


def test_among_other_stages() -> None:
    """A graph in which one of the stages decodes elsewhere."""
    for seed in range(CASES // 3):
        pipeline, arrivals = mixed_pipeline(seed)
        stages = [
            stage
            if stage.llm is None
            else replace(stage, llm=replace(stage.llm, decode=DecodePool(2, stage.llm, 0.0, 2.0)))
            for stage in pipeline.stages
        ]
        pipeline = replace(pipeline, stages=tuple(stages))
        run = simulate_mixed(pipeline, arrivals, SLO_MS)
        assert equal(simulate_events(pipeline, arrivals, SLO_MS), run), f"pipeline {seed}"
        check_run(pipeline, run, SLO_MS)


def two_queues(queries: int, latency_ms: float = 0.0, per_token_ms: float = 0.0) -> LanguageModel:
    """One seat a pool: prompts of 10 tokens take 3 ms, answers of 4 tokens three times 2 ms."""
    prompt, output = np.full(queries, 10), np.full(queries, 4)
    llm = LanguageModel(1, 64, 8, 16, Cost((1.0, 0.2, 1.0, 0.0, 0.0)), prompt, output)
    return replace(llm, decode=DecodePool(1, llm, per_token_ms, latency_ms))


@pytest.mark.parametrize("latency_ms", [0.0, 5.0])
def test_two_pools_of_one_replica_are_two_queues(latency_ms: float) -> None:
    """In closed form: the n-th ends at the longest path through both, max over i <= j <= n of its arrival and services."""
    arrivals = np.cumsum(np.random.default_rng(2).exponential(7.0, 300))
    run = simulate_mixed(
        Pipeline((llm_stage("llm", (Edge(SOURCE),), two_queues(300, latency_ms), 1),)), arrivals, SLO_MS
    )
    prefill_ms, decode_ms, number = 3.0, 6.0, np.arange(300)
    first_ms = np.maximum.accumulate(arrivals - number * prefill_ms) + (number + 1) * prefill_ms
    there_ms = first_ms + latency_ms
    end_ms = np.maximum.accumulate(there_ms - number * decode_ms) + (number + 1) * decode_ms
    requests = run.requests[0]
    assert requests is not None
    assert np.allclose(requests.first_ms, first_ms, rtol=0, atol=1e-6)
    assert np.allclose(transfers(run).sent_ms, there_ms, rtol=0, atol=1e-6)
    assert np.allclose(run.finish_ms, end_ms, rtol=0, atol=1e-6)
    assert (end_ms - there_ms > decode_ms + 1e-6).any(), "somebody waits in the second queue"


def test_the_first_queue_waits_as_in_theory() -> None:
    """Poisson arrivals and constant work: mean wait rho s / (2 (1 - rho)) before the prefill, whatever comes behind."""
    queries, rho = 100_000, 0.6
    arrivals = np.cumsum(np.random.default_rng(1).exponential(3.0 / rho, queries))
    llm = two_queues(queries)
    assert llm.decode is not None
    llm = replace(llm, decode=replace(llm.decode, replicas=4))
    run = simulate_mixed(Pipeline((llm_stage("llm", (Edge(SOURCE),), llm, 1),)), arrivals, SLO_MS, keep=False)
    wait_ms = float((run.visits[0].start_ms - run.visits[0].enqueue_ms).mean())
    assert wait_ms == pytest.approx(rho * 3.0 / (2 * (1 - rho)), rel=0.03)


def test_a_link_sends_one_after_another() -> None:
    """Four prompts of one iteration: 10 tokens at 2 ms each on the link, 5 ms more until each is there."""
    llm = replace(two_queues(4, 5.0, 2.0), max_seqs=4)
    run = simulate_mixed(Pipeline((llm_stage("llm", (Edge(SOURCE),), llm, 1),)), np.zeros(4), SLO_MS)
    assert run.requests[0] is not None
    assert run.requests[0].first_ms.tolist() == [9.0] * 4
    assert transfers(run).sent_ms.tolist() == [34.0, 54.0, 74.0, 94.0]
    assert run.finish_ms.tolist() == [40.0, 60.0, 80.0, 100.0]
    two = simulate_mixed(Pipeline((llm_stage("llm", (Edge(SOURCE),), llm, 2),)), np.zeros(4), SLO_MS)
    assert sorted(transfers(two).sent_ms.tolist()) == [30.0, 30.0, 50.0, 50.0]


def test_blocks_are_held_until_the_transfer_ends() -> None:
    """A cache for one prompt: the second is prefilled when the first is there, which takes 25 ms."""
    llm = replace(two_queues(2, 5.0, 2.0), max_seqs=4, kv_blocks=1)
    assert llm.decode is not None
    llm = replace(llm, decode=replace(llm.decode, llm=replace(llm.decode.llm, kv_blocks=8)))
    stage = llm_stage("llm", (Edge(SOURCE),), llm, 1)
    run = simulate_mixed(Pipeline((stage,)), np.zeros(2), SLO_MS)
    assert equal(run, simulate_events(Pipeline((stage,)), np.zeros(2), SLO_MS))
    assert run.requests[0] is not None
    assert run.requests[0].first_ms.tolist() == [3.0, 31.0]
    assert transfers(run).sent_ms.tolist() == [28.0, 56.0]


def test_blocks_are_conserved_in_both_pools() -> None:
    checked = 0
    for seed in range(CASES // 3):
        pipeline, arrivals = apart_pipeline(4000 + seed)
        (stage,) = pipeline.stages
        assert stage.llm is not None
        pools = ApartReplicas(stage.llm, stage.replicas)
        waiting, alarms = list(enumerate(arrivals.tolist())), set()
        while waiting or alarms:
            now_ms = min([*alarms, *(at_ms for _, at_ms in waiting[:1])])
            alarms.discard(now_ms)
            pools.end(now_ms)
            while waiting and waiting[0][1] == now_ms:
                pools.enter(waiting.pop(0)[0], now_ms)
            alarms |= set(pools.begin(now_ms))
            for replica in [*pools.first.replicas, *pools.second.replicas]:
                checked += 1
                owned = {block for request in [*replica.running, *replica.held] for block in request.blocks}
                assert replica.cache.free + len(owned) == replica.llm.kv_blocks and replica.cache.blank >= 0
        done = [*pools.first.requests.values()]
        assert all(one.emitted == 1 for one in done)
        assert {one.query for one in done if one.output > 1} == set(pools.second.requests)
        assert all(one.emitted == one.output for one in pools.second.requests.values())
    assert checked > 100 * CASES


def apart(**decode: Any) -> dict[str, Any]:
    return {
        "kv_token_bytes": "128KiB",
        "decode": {"replicas": 3, "bandwidth": "25GB/s", "latency": "4ms", **decode},
    }


def test_a_scenario_pays_for_both_pools() -> None:
    together = simulate(scenario()).check()
    data = scenario_data(**apart(hardware="A100"))
    data["prices_usd_per_h"]["A100"] = 1.5
    result = simulate(scenario(data)).check()
    # KSVM's cpu, two H100 that prefill, three A100 that decode
    assert result.summary["cost_usd_per_h"] == pytest.approx(together.summary["cost_usd_per_h"] + 3 * 1.5)
    hours = (result.summary["makespan_ms"] - result.tables["queries"]["arrival_ms"][0]) / 3.6e6
    replicas = result.tables["replicas"]
    assert replicas["cost_usd"].sum() == pytest.approx(result.summary["cost_usd_per_h"] * hours)
    assert replicas["count"][replicas["stage"] == "Llama (decode)"].tolist() == [3]
    # One prompt alone: 300 tokens of 128 KiB at 25 GB/s, and the latency.
    least_ms = 300 * 131_072 / 25e9 * 1e3 + 4.0
    sent = result.tables["transfers"]
    assert (sent["sent_ms"] - sent["first_token_ms"]).min() == pytest.approx(least_ms)
    assert result.summary["transfer_mean_ms"] >= least_ms - 1e-9
    assert set(sent["to_replica"].tolist()) == {2, 3, 4}
    assert {"Llama: transfer", "Llama: decode", "Llama: prefill"} <= set(result.ledgers[0].parts)
    assert result.tables["stages"]["load"][1] <= result.tables["stages"]["utilisation"][1] * 3
    assert any("but for transfers from prefill to decode are not modelled" in note for note in result.notes)
    get_domain("serving").figures(result)


def test_sizes_follow_from_the_models_configuration(tmp_path: Path) -> None:
    """A token of Llama 2 7B is 2 x 32 layers x 32 heads x 128 x 2 bytes; the other pool has a card of its own."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    data = scenario_data(**apart() | {"kv_token_bytes": 0})
    llm = data["configuration"]["Llama"]["llm"]
    del llm["kv_blocks"]
    llm["memory"] = {"model": {"path": str(path)}, "gpu": "H100-80GB"}
    llm["decode"]["memory"] = llm["memory"] | {"gpu": "A100-80GB", "memory_share": 0.5}
    found = prepare(scenario(data)).pipeline.stages[1].llm
    assert found is not None and found.decode is not None
    assert found.decode.send_ms_per_token == pytest.approx(2 * 32 * 32 * 128 * 2 / 25e9 * 1e3)
    assert 0 < found.decode.llm.kv_blocks < found.kv_blocks


def test_tokens_come_as_late_as_transfers_are() -> None:
    """The first token does not wait for the transfer, the time between tokens has it."""
    quick, slow = (simulate(scenario(scenario_data(**apart(latency=ms)))) for ms in ("0ms", "200ms"))
    assert slow.summary["ttft_mean_ms"] == pytest.approx(quick.summary["ttft_mean_ms"], rel=0.05)
    later_ms = slow.summary["tpot_mean_ms"] - quick.summary["tpot_mean_ms"]
    assert later_ms == pytest.approx(200 / 39, rel=0.1)
    assert slow.summary["tbt_max_ms"] >= 200


def test_what_ifs_and_the_next_step_know_the_pool() -> None:
    explainer = get_domain("serving").explainer
    assert explainer is not None
    data = scenario_data(**apart(replicas=1, max_seqs=2), tpot_slo_ms=8.0)
    result = simulate(scenario(data))
    assert "decode wait" in result.why and "decode.replicas=2" in result.next_steps[0]
    found = {one.path for one in explainer.what_ifs(scenario(data), result)}
    assert "configuration.Llama.llm.decode.replicas" in found


@pytest.mark.parametrize(
    ("llm", "said"),
    [
        (apart(bandwidth="-1GB/s"), "bandwidth"),
        (apart(bandwidth="0GB/s"), "bandwidth"),
        (apart(latency="-1ms"), "latency"),
        (apart(replicas=0), "replicas"),
        (apart(hardware="B300"), "llm.decode.hardware: no price of 'B300'"),
        (apart() | {"kv_token_bytes": 0}, "kv_token_bytes: is needed to time what decode moves"),
        (apart(kv_blocks=5), "decoding replicas' cache stores 80 tokens, the smallest of the 300 requests needs 340"),
        (apart() | {"kv_blocks": 5}, "the prefilling replicas' cache stores 80 tokens"),
        (apart(kv_blocks=5, memory={"model": {"path": "config.json"}, "gpu": "H100-80GB"}), "or memory, which they follow"),
        (apart(routing="fewest"), "unknown key 'routing'"),
    ],
)  # fmt: skip
def test_pools_that_cannot_be(llm: dict[str, Any], said: str) -> None:
    found = problems(lambda data, placed: placed["llm"].update(llm))
    assert any(said in one for one in found), found


def test_requests_that_only_one_pool_can_store_are_refused() -> None:
    pairs = [[100, 20] if i % 3 else [300, 200] for i in range(300)]
    pools = (
        (
            "decoding replicas' cache stores 320",
            {"kv_blocks": 40, "decode": {"replicas": 1, "kv_blocks": 20}},
        ),
        (
            "prefilling replicas' cache stores 192",
            {"kv_blocks": 12, "decode": {"replicas": 1, "kv_blocks": 40}},
        ),
    )
    for lack, pool in pools:
        result = simulate(scenario(scenario_data(**pool, tokens={"pairs": pairs}))).check()
        assert result.tables["requests"]["refused"].tolist() == [i % 3 == 0 for i in range(300)]
        (note,) = (note for note in result.notes if "are refused" in note)
        assert lack in note and note.count("cache stores") == 1
