"""The prefix cache: what is found in it, what that saves, what is evicted, and what a scenario may say of it."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from forerun.core.domain import Orders, Untied, get_domain, simulate
from forerun.core.errors import ForerunError
from forerun.core.scenarios import from_data
from forerun.serving.engine.outcome import Run
from forerun.serving.inputs.pipeline import SOURCE, Edge, Pipeline
from forerun.serving.llm.engine.pipeline import simulate_mixed
from forerun.serving.llm.engine.replica import Replica, Replicas
from forerun.serving.llm.inputs.model import Cost, LanguageModel, Prefixes
from forerun.serving.llm.scenario.language_model import Named

from ..conftest import cases
from .random_llm_pipelines import equal, llm_stage, prefix_pipeline
from .test_llm_scenario import scenario, scenario_data

SLO_MS = 20.0
COST = Cost((6.0, 0.25, 0.125, 0.0, 0.0))


def alone(llm: LanguageModel, gap_ms: float = 1e6) -> Run:
    """Requests one after the other, each when the one before it has long ended."""
    arrivals = np.arange(len(llm.prompt)) * gap_ms
    return simulate_mixed(Pipeline((llm_stage("llm", (Edge(SOURCE),), llm, 1),)), arrivals, SLO_MS)


def drawn(seed: int, queries: int = 60) -> tuple[list[list[int]], LanguageModel]:
    """Prompts that branch, in segments of two blocks, and a cache that stores every one of them by itself."""
    rng = np.random.default_rng(seed)
    segments = [rng.integers(0, 3, rng.integers(0, 12)).tolist() for _ in range(queries)]
    prompt = np.array([8 * len(own) for own in segments]) + rng.integers(0, 8, queries)
    prompt = np.maximum(prompt, 1)
    output = rng.integers(1, 9, queries)
    blocks = int((-(-(prompt + output) // 4)).max() * rng.choice([1, 2, 8, 1000]))
    return segments, LanguageModel(
        4, 10_000, blocks, 4, COST, prompt, output, shared=Prefixes.of(segments, 2)
    )


def hit_tokens(run: Run) -> Any:
    (requests,) = run.requests
    assert requests is not None
    return requests.hit_tokens


@pytest.mark.parametrize("seed", range(cases(6, 20)))
def test_hits_of_requests_one_by_one_are_those_of_an_lru_cache(seed: int) -> None:
    """A reference that knows blocks by all the tokens up to their end: the least recently used ones go first."""
    segments, llm = drawn(seed)
    cache: OrderedDict[tuple[Any, int], None] = OrderedDict()
    expected, named = [], 0
    for number, (own, prompt, output) in enumerate(zip(segments, llm.prompt.tolist(), llm.output.tolist())):
        shared = min(len(own), prompt // 8) * 2
        keys = [
            tuple(own[: block // 2 + 1]) + (block,) if block < shared else (-1, number, block)
            for block in range((prompt + output - 1) // 4)
        ]
        hits: list[tuple[Any, int]] = []
        while len(hits) < (prompt - 1) // 4:
            found = [one for one in cache if one[0] == keys[len(hits)]]
            if not found:
                break
            hits.append(min(found, key=lambda one: one[1]))
        expected.append(4 * len(hits))
        for one in hits:
            del cache[one]
        while -(-(prompt + output - 1) // 4) + len(cache) > llm.kv_blocks:
            cache.popitem(last=False)
        blocks = hits + [(key, named + place) for place, key in enumerate(keys[len(hits) :])]
        named += len(keys)
        cache |= dict.fromkeys(reversed(blocks))
    assert hit_tokens(alone(llm)).tolist() == expected
    assert sum(expected) > 0


def test_a_hit_saves_what_its_tokens_cost() -> None:
    _, llm = drawn(5)
    run = alone(replace(llm, kv_blocks=100_000))
    (requests,), (visits,) = run.requests, run.visits
    assert requests is not None
    taken_ms = 6.0 + 0.25 * (llm.prompt - requests.hit_tokens)
    assert np.allclose(requests.first_ms - visits.enqueue_ms, taken_ms, rtol=0, atol=1e-6)


def test_hits_never_raise_a_time_to_first_token_with_one_seat() -> None:
    """In order of arrival and one by one, less work cannot make anybody wait longer."""
    shortened = 0
    for seed in range(cases(12, 60)):
        pipeline, arrivals = prefix_pipeline(seed)
        (stage,) = pipeline.stages
        assert stage.llm is not None
        with_cache, without = (
            simulate_mixed(
                Pipeline((replace(stage, replicas=1, llm=replace(stage.llm, max_seqs=1, shared=shared)),)),
                arrivals,
                SLO_MS,
            ).requests[0]
            for shared in (stage.llm.shared, None)
        )
        assert with_cache is not None and without is not None
        served = ~np.isnan(without.first_ms)
        assert (with_cache.first_ms[served] <= without.first_ms[served] + 1e-6).all()
        shortened += int((with_cache.first_ms[served] < without.first_ms[served] - 1e-6).sum())
    assert shortened > 100


def test_blocks_are_conserved_at_every_iteration() -> None:
    """Blocks that somebody has and that nobody has are all there are, and each knows by how many it is used."""
    checked = 0

    def check(replica: Replica) -> None:
        nonlocal checked
        checked += 1
        cache, owned = replica.cache, [block for request in replica.running for block in request.blocks]
        assert len(set(owned)) + cache.free == replica.llm.kv_blocks and cache.blank >= 0
        assert all(block.users == owned.count(block) for block in owned)
        keyed = [block for blocks in cache.keyed.values() for block in blocks]
        assert set(cache.idle) == {block for block in keyed if block.users == 0} == set(keyed) - set(owned)
        assert all(block.key == key for key, blocks in cache.keyed.items() for block in blocks)

    for seed in range(cases(8, 40)):
        pipeline, arrivals = prefix_pipeline(seed)
        (stage,) = pipeline.stages
        assert stage.llm is not None
        replicas, waiting, ends = (
            Replicas(stage.llm, stage.replicas),
            list(enumerate(arrivals.tolist())),
            set(),
        )
        while waiting or ends:
            now_ms = min([*ends, *(at_ms for _, at_ms in waiting[:1])])
            ends.discard(now_ms)
            replicas.end(now_ms)
            while waiting and waiting[0][1] == now_ms:
                replicas.enter(waiting.pop(0)[0], now_ms)
            ends |= set(replicas.begin(now_ms))
            for replica in replicas.replicas:
                check(replica)
    assert checked > 4_000


def test_no_common_beginnings_change_nothing() -> None:
    for seed in range(cases(8, 40)):
        pipeline, arrivals = prefix_pipeline(seed)
        (stage,) = pipeline.stages
        assert stage.llm is not None
        own = [[query] * 20 for query in range(len(arrivals))]
        roomy = replace(stage.llm, kv_blocks=100_000, routing="least-requests")
        runs = [
            simulate_mixed(Pipeline((replace(stage, llm=replace(roomy, shared=shared)),)), arrivals, SLO_MS)
            for shared in (Prefixes.of(own), None)
        ]
        assert not hit_tokens(runs[0]).any()
        assert np.array_equal(runs[0].finish_ms, runs[1].finish_ms)


def test_an_empty_list_of_beginnings_is_no_cache_where_nobody_is_preempted() -> None:
    """Who is preempted may find its own blocks again."""
    for seed in range(20):
        pipeline, arrivals = prefix_pipeline(seed)
        (stage,) = pipeline.stages
        assert stage.llm is not None
        runs = [
            simulate_mixed(
                Pipeline((replace(stage, llm=replace(stage.llm, shared=shared, kv_blocks=100_000)),)),
                arrivals,
                SLO_MS,
            )
            for shared in (Prefixes.of([[]] * len(arrivals), 3), None)
        ]
        assert equal(*runs)


def test_each_routing_answers_differently() -> None:
    """Two replicas, prompts of two kinds in a row: who is sent where, and what is found there."""
    kinds = [0, 0, 1, 1, 0, 0, 1, 0]
    prompt, output = np.full(8, 9), np.full(8, 2)
    llm = LanguageModel(
        2, 64, 100, 4, COST, prompt, output, shared=Prefixes.of([[kind] for kind in kinds], 2)
    )
    arrivals = np.array([0.0, 100.0, 200.0, 300.0, 400.0, 401.0, 402.0, 403.0])
    sent, found = {}, {}
    for routing in get_args(Named)[:4]:
        stage = llm_stage("llm", (Edge(SOURCE),), replace(llm, routing=routing), 2)
        run = simulate_mixed(Pipeline((stage,)), arrivals, SLO_MS)
        sent[routing], found[routing] = run.visits[0].replica.tolist(), int(hit_tokens(run).sum())
    assert sent == {
        "round-robin": [0, 1, 0, 1, 0, 1, 0, 1],
        "least-requests": [0, 0, 0, 0, 0, 1, 0, 1],
        "longest-prefix": [0, 0, 0, 0, 0, 0, 1, 1],
        "prefix-affinity": [0, 0, 1, 1, 0, 0, 1, 0],
    }
    assert found == {"round-robin": 32, "least-requests": 40, "longest-prefix": 32, "prefix-affinity": 48}


def recorded(path: Path, rows: list[dict[str, Any]], **llm: Any) -> Any:
    """The result of a trace in Mooncake's format."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return simulate(trace_scenario(path, **llm))


def trace_scenario(path: Path, **llm: Any) -> Any:
    data = scenario_data(**llm)
    data["trace"] = {"file": str(path)}
    if "tokens" not in llm:
        del data["configuration"]["Llama"]["llm"]["tokens"]
    return from_data(data)


ROWS = [
    {"timestamp": 60_000 * at, "input_length": 100, "output_length": 4, "hash_ids": [7, 8, 9 + at]}
    for at in range(6)
]


def test_a_recorded_trace_says_what_prompts_share(tmp_path: Path) -> None:
    result = recorded(tmp_path / "calls.jsonl", ROWS, prefix_cache={"id_tokens": 48})
    # Two replicas in turn: each processes 7 and 8 once; the third number covers no whole 48 tokens.
    assert result.summary["hit_tokens"] == 4 * 96
    assert result.summary["hit_share"] == pytest.approx(4 * 96 / 600)
    assert any("prefixes that prompts share" in note for note in result.notes)


def test_ties_are_broken_where_prefixes_can_follow_their_requests(tmp_path: Path) -> None:
    explainer = get_domain("serving").explainer
    assert explainer is not None
    path = tmp_path / "calls.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert isinstance(explainer.orders(trace_scenario(path, prefix_cache={"id_tokens": 48})), Untied)
    drawn_prompts = scenario(prefix_cache={"system_prompts": 3, "system_tokens": 200, "skew": 1.0})
    orders = explainer.orders(drawn_prompts)
    assert isinstance(orders, Orders)
    assert orders.simulate(0).summary["hit_share"] == pytest.approx(
        simulate(drawn_prompts).summary["hit_share"], abs=0.05
    )


def test_system_prompts_are_drawn_from_the_seed() -> None:
    shared = scenario(prefix_cache={"system_prompts": 3, "system_tokens": 200, "skew": 1.0})
    first, again = simulate(shared), simulate(shared)
    assert 0 < first.summary["hit_share"] < 200 / 300
    assert first.summary == again.summary
    assert first.summary["ttft_mean_ms"] < simulate(scenario()).summary["ttft_mean_ms"]


@pytest.mark.parametrize(
    ("rows", "llm", "said"),
    [
        (ROWS, {"prefix_cache": {"id_tokens": 40}}, "40 tokens are no whole number of blocks of 16 tokens"),
        (ROWS, {"prefix_cache": {"id_tokens": 16}}, "request 0 in order of arrival has 3 numbers for 100 prompt tokens"),
        (ROWS, {"balance": "longest-prefix"}, "longest-prefix needs a prefix cache"),
        (ROWS, {"prefix_cache": {"id_tokens": 48}, "tokens": {"prompt": 9, "output": 9}}, "do not come from the trace"),
    ],
)  # fmt: skip
def test_prefixes_that_cannot_be(
    tmp_path: Path, rows: list[dict[str, Any]], llm: dict[str, Any], said: str
) -> None:
    with pytest.raises(ForerunError, match=said):
        recorded(tmp_path / "calls.jsonl", rows, **llm)


def test_a_trace_without_prefixes_is_named(tmp_path: Path) -> None:
    path = tmp_path / "calls.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,5,5\n1,5,5\n")
    with pytest.raises(ForerunError, match="has no column hash_ids"):
        simulate(trace_scenario(path, prefix_cache={"id_tokens": 16}))
