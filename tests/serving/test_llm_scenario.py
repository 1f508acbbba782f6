"""A language model in a scenario: what comes out, how sure it is, and what is refused with which words."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.core.domain import get_domain, simulate
from forerun.core.errors import ForerunError, InputError, ScenarioError
from forerun.core.scenario.spec import canonical_json, content_id, to_data
from forerun.core.scenarios import from_data
from forerun.serving.inputs.pipeline import Pipeline
from forerun.serving.scenario import Scenario

from ..conftest import shared_path

LLM: dict[str, Any] = {
    "max_seqs": 8,
    "token_budget": 256,
    "kv_blocks": 120,
    "cost": {"a_ms": 6.0, "prefill_ms_per_token": 0.05, "decode_ms_per_seq": 0.1, "attn_ms_per_token2": 4e-7},
    "tokens": {"prompt": 300, "output": 40},
}


def scenario_data(**llm: Any) -> dict[str, Any]:
    """A retrieval pipeline: a batching stage in front of a language model."""
    return {
        "domain": "serving",
        "seed": 3,
        "trace": {"process": {"name": "poisson", "rate_rps": 4.0}, "queries": 300},
        "stages": [
            {"name": "KSVM", "parents": ["source"]},
            {"name": "Llama", "parents": ["KSVM"]},
        ],
        "configuration": {
            "KSVM": {"hardware": "cpu", "max_batch": 4},
            "Llama": {"hardware": "H100", "replicas": 2, "llm": {**LLM, **llm}},
        },
        "prices_usd_per_h": {"H100": 4.0},
        "slo_ms": 3000.0,
        "intervals": {"replications": 3},
    }


def scenario(data: dict[str, Any] | None = None, **llm: Any) -> Scenario:
    found = from_data(data if data is not None else scenario_data(**llm))
    assert isinstance(found, Scenario)
    return found


def test_a_retrieval_pipeline_in_one_run() -> None:
    result = simulate(scenario(ttft_slo_ms=200.0)).check()
    requests, summary = result.tables["requests"], result.summary
    assert len(requests) == 300 and set(requests["stage"].tolist()) == {"Llama"}
    assert {"queries", "visits", "batches", "stages", "llm_course"} <= set(result.tables)
    assert set(result.tables["batches"]["stage"].tolist()) == {"KSVM"}
    assert "iterations" not in result.tables
    assert summary["ttft_p99_ms"] == pytest.approx(np.quantile(requests["ttft_ms"], 0.99))
    assert summary["tpot_p50_ms"] == pytest.approx(np.quantile(requests["tpot_ms"], 0.5))
    assert summary["tbt_p50_ms"] == pytest.approx(np.median(requests["tpot_ms"]), rel=0.2)
    good = (result.tables["queries"]["latency_ms"] <= 3000) & (requests["ttft_ms"] <= 200)
    span_s = (summary["makespan_ms"] - result.tables["queries"]["arrival_ms"].min()) / 1e3
    assert summary["goodput_rps"] == pytest.approx(good.sum() / span_s)
    assert summary["output_tokens"] == 300 * 40 and summary["refused"] == 0
    assert {"ttft_p99_ms", "tpot_p99_ms"} <= set(result.headline) & set(result.intervals)
    assert any("not modelled" in note for note in result.notes)


def test_the_ledger_splits_the_latency_of_every_request() -> None:
    result = simulate(scenario(kv_blocks=40))
    assert result.summary["preemptions"] > 0
    for ledger in result.ledgers:
        ledger.check()
        assert {"Llama: prefill", "Llama: decode", "Llama: preempted", "KSVM: service"} <= set(ledger.parts)
    requests = result.tables["requests"]
    whole = requests["queue_ms"].mean() + (requests["end_ms"] - requests["start_ms"]).mean()
    mine = sum(part for name, part in result.ledgers[0].parts.items() if name.startswith("Llama"))
    assert mine == pytest.approx(whole)
    assert result.ledgers[0].parts["Llama: preempted"] == pytest.approx(requests["stalled_ms"].mean())


def test_refused_requests_are_answers_not_errors() -> None:
    data = scenario_data(
        kv_blocks=10, tokens={"pairs": [[100, 20] if i % 3 else [100, 200] for i in range(300)]}
    )
    result = simulate(scenario(data)).check()
    refused = result.tables["requests"]["refused"]
    assert refused.tolist() == [i % 3 == 0 for i in range(300)]
    assert result.summary["refused"] == 100 and result.summary["misses"] >= 100
    assert np.isnan(result.tables["requests"]["ttft_ms"][refused]).all()
    assert any("100 of 300 requests are refused" in note for note in result.notes)
    latencies = result.tables["queries"]["latency_ms"][~refused]
    assert result.summary["latency_p50_ms"] == pytest.approx(np.quantile(latencies, 0.5))
    assert result.summary["attainment"] == 1 - result.summary["misses"] / 300


def test_a_prompt_that_is_not_cut_needs_a_budget_not_a_cache() -> None:
    pairs = [[100, 20] if i % 3 == 0 else [300, 20] for i in range(300)]
    result = simulate(scenario(scenario_data(scheduler=UNCUT, token_budget=200, tokens={"pairs": pairs})))
    assert result.tables["requests"]["refused"].tolist() == [i % 3 > 0 for i in range(300)]
    assert any("they have up to 320 tokens, its token_budget is 200" in note for note in result.notes)
    assert (
        "never fit into an iteration of Llama" in result.why
        and "llm.token_budget=320" in result.next_steps[0]
    )
    more = scenario_data(scheduler=UNCUT, token_budget=320, tokens={"pairs": pairs})
    assert simulate(scenario(more)).summary["refused"] == 0


def test_a_refused_request_goes_no_further() -> None:
    data = scenario_data(
        kv_blocks=10, tokens={"pairs": [[100, 20] if i % 3 else [100, 200] for i in range(300)]}
    )
    data["stages"].append({"name": "LogReg", "parents": ["Llama"]})
    data["configuration"]["LogReg"] = {"hardware": "cpu", "max_batch": 2}
    result = simulate(scenario(data)).check()
    visits = result.tables["visits"]
    assert sorted(visits["query"][visits["stage"] == "LogReg"].tolist()) == [i for i in range(300) if i % 3]


@pytest.mark.parametrize("record", ["latency", "counts"])
def test_less_record_the_same_figures(record: str) -> None:
    whole = simulate(scenario())
    less = simulate(scenario({**scenario_data(), "record": record}))
    for name in ("misses", "ttft_p99_ms", "tbt_p99_ms", "goodput_rps", "iterations", "tie_count"):
        assert less.summary[name] == whole.summary[name]
    assert set(less.tables) == ({"queries"} if record == "latency" else set())


def test_tables_tell_the_same_story() -> None:
    result = simulate(scenario(iterations=True))
    iterations, course = result.tables["iterations"], result.tables["llm_course"]
    assert course["running"].max() == _most(iterations)
    seconds = (course["at_ms"][1] - course["at_ms"][0]) / 1e3
    assert (course["prefill_tokens_per_s"] * seconds).sum() == pytest.approx(
        iterations["prefill_tokens"].sum()
    )
    assert (course["output_tokens_per_s"] * seconds).sum() == pytest.approx(iterations["decodes"].sum())
    assert course["cache_share"].max() <= 1
    stages = result.tables["stages"]
    busy = (iterations["end_ms"] - iterations["start_ms"]).sum()
    span = result.tables["queries"]["finish_ms"].max() - result.tables["queries"]["arrival_ms"][0]
    assert stages["utilisation"][1] == pytest.approx(busy / span / 2)
    assert stages["load"][1] <= stages["utilisation"][1] * 1.05, "the load is a lower bound of the work"
    figures = get_domain("serving").figures(result)
    assert {"ttft-cdf", "tpot-cdf", "llm-requests", "llm-cache", "llm-tokens"} <= {f.id for f in figures}


def test_the_load_is_a_lower_bound_of_the_work() -> None:
    cached = {
        "prefix_cache": {"system_prompts": 3, "system_tokens": 1200, "skew": 1.0},
        "tokens": {"prompt": 2000, "output": 2},
    }
    for limits in (
        {"kv_blocks": 400, "token_budget": 4096, "max_seqs": 64},
        {"kv_blocks": 30, "token_budget": 64, "max_seqs": 8},
        {"kv_blocks": 60, "token_budget": 512, "max_seqs": 2},
        {"kv_blocks": 900, "token_budget": 4096, "max_seqs": 4, **cached},
    ):
        data = scenario_data(**limits)
        data["trace"] = {"arrivals_ms": [0.0] * 400}
        stages = simulate(scenario({**data, "intervals": {"replications": 0}})).tables["stages"]
        assert stages["utilisation"][1] > 0.9  # all at once: the replicas never pause
        data["trace"] = {"arrivals_ms": np.linspace(0, 60_000, 400).tolist()}
        result = simulate(scenario({**data, "intervals": {"replications": 0}}))
        at_work = result.tables["stages"]["utilisation"][1] * result.summary["makespan_ms"]
        assert result.tables["stages"]["load"][1] * 60_000 <= at_work * 1.01


def test_figures_of_several_models_have_names_of_their_own() -> None:
    data = scenario_data()
    data["stages"].append({"name": "Judge", "parents": ["Llama"]})
    data["configuration"]["Judge"] = {
        "hardware": "H100", "llm": {**LLM, "tokens": {"prompt": 50, "output": 1}},
    }  # fmt: skip
    result = simulate(scenario(data)).check()
    assert {"Llama_ttft_p99_ms", "Judge_ttft_p99_ms"} <= set(result.summary)
    assert np.isnan(result.summary["Judge_tpot_p50_ms"]), "one token has no time between tokens"
    assert set(result.tables["requests"]["stage"].tolist()) == {"Llama", "Judge"}
    get_domain("serving").figures(result)


def test_tokens_are_drawn_from_a_recorded_trace(tmp_path: Path) -> None:
    path = tmp_path / "calls.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,100,7\n1,200,9\n")
    result = simulate(scenario(tokens={"drawn_from": str(path)}))
    pairs = set(
        zip(result.tables["requests"]["prompt_tokens"].tolist(), result.tables["requests"]["output_tokens"])
    )
    assert pairs == {(100, 7), (200, 9)}
    again = simulate(scenario(tokens={"drawn_from": str(path)}))
    assert np.array_equal(
        again.tables["requests"]["prompt_tokens"], result.tables["requests"]["prompt_tokens"]
    )


def test_tokens_come_with_a_recorded_trace(tmp_path: Path) -> None:
    path = tmp_path / "calls.csv"
    path.write_text(
        "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{i},{i + 1},{i + 2}\n" for i in range(50))
    )
    data = scenario_data()
    del data["configuration"]["Llama"]["llm"]["tokens"]
    result = simulate(scenario({**data, "trace": {"file": str(path)}})).check()
    assert result.tables["requests"]["prompt_tokens"].tolist() == list(range(1, 51))
    assert "batch means" in result.intervals["ttft_p50_ms"].method


def test_other_orders_of_ties_keep_the_tokens() -> None:
    explainer = get_domain("serving").explainer
    assert explainer is not None
    data = scenario_data(tokens={"pairs": [[10 + i, 5] for i in range(300)]})
    orders = explainer.orders(scenario(data))
    assert orders.simulate(1).tables["requests"]["prompt_tokens"].tolist() == [10 + i for i in range(300)]


def problems(change: Any) -> list[str]:
    """What is said about a scenario that is changed for the worse."""
    data = scenario_data()
    change(data, data["configuration"]["Llama"])
    with pytest.raises(InputError) as caught:
        simulate(scenario(data))
    return [str(problem) for problem in caught.value.problems]


UNCUT = {"name": "vllm-0.32", "enable_chunked_prefill": False}


def llm(**fields: Any) -> Any:
    return lambda data, placed: placed["llm"].update(fields)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (llm(max_seqs=0), r"configuration\.Llama\.llm\.max_seqs: 0 is not between 1 and"),
        (llm(block_tokens=2.5), r"block_tokens"),
        (llm(kv_block=7), r"unknown key 'kv_block'; did you mean 'kv_blocks'"),
        (llm(balance="shortest"), r"balance"),
        (llm(cost={"a_ms": 0.0}), r"cost.*a_ms"),
        (llm(cost={"a_ms": -1.0}), r"a_ms"),
        (llm(cost={"prefill_ms_per_token": 1.0}), r"a_ms|cost"),
        (llm(cost={"a_ms": 1.0, "attn_ms_per_token2": 1e300}), r"attn_ms_per_token2: 1e\+300 is not between"),
        (llm(cost={"a_ms": 1e-5, "request_ms": 1e12}), r"instants near 1e\+12 ms cannot tell a service of 1e-05 ms"),
        (llm(decode={"replicas": 1, "bandwidth_bytes_per_s": 1e-300}, kv_token_bytes=1e6), r"instants near inf ms"),
        (llm(scheduler={"name": "priority", "shares": [1e308, 1e308]}), r"shares\[0\]: 1e\+308 is above"),
        (llm(scheduler=UNCUT, token_budget=64), r"token_budget: is 64; the smallest of the 300 requests needs 340"),
        (llm(tokens={"prompt": 0, "output": 4}), r"prompt"),
        (llm(tokens={"pairs": [[1, 2]]}), r"lists the tokens of 1 requests; 300 arrive"),
        (llm(tokens=None), r"llm\.tokens: the trace has no tokens: say tokens: \{prompt: 512"),
        (llm(kv_blocks=3), r"kv_blocks: its cache stores 48 tokens, the smallest of the 300 requests needs 340"),
        (lambda data, placed: placed.update(max_batch=4), r"max_batch.*says nothing about a stage with a language model"),
        (lambda data, placed: placed.update(batching={"name": "timeout", "delay_ms": 5.0}), r"batching.*says nothing"),
        (lambda data, placed: placed.update(changes=[{"at_s": 2, "replicas": 0}]), r"replicas: is 0 for the rest"),
        (lambda data, placed: placed.update(changes=[{"at_s": 2, "replicas": 3}] * 2), r"2 s is not after 2 s"),
        (lambda data, _: data["configuration"]["KSVM"].update(changes=[{"at_s": 2, "replicas": 0}]), r"only a stage that"),
        (lambda data, placed: data.update(mode="compat"), r"mode compat knows no language models"),
        (lambda data, placed: data.update(tie_rules="both"), r"tie rule knows no language models"),
        (lambda data, placed: data.update(tuner="coarse"), r"'coarse' counts what a replica carries, which is not known"),
        (lambda data, placed: data.update(prices_usd_per_h={}), r"no price of 'H100'"),
    ],
)  # fmt: skip
def test_bad_language_models_are_refused_by_name(change: Any, said: str) -> None:
    assert re.search(said, "\n".join(problems(change)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("arrival_s\n1\n", "has no column prompt_tokens or output_tokens, which a language model needs"),
        ("arrival_s,prompt_tokens,output_tokens\n1,5,0\n2,6,1\n", "1 requests have 0 output_tokens, the first is number 0"),
        ("arrival_s,prompt_tokens,output_tokens\n1,-5,3\n", ":2:prompt_tokens: -5 is"),
        ("arrival_s,prompt_tokens,output_tokens\n1,5.5,3\n", ":2:prompt_tokens: '5.5' is not a whole number"),
        ("arrival_s,prompt_tokens,output_tokens\n1,9007199254740993,3\n", ":2:prompt_tokens"),
    ],
)  # fmt: skip
def test_bad_tokens_are_named_with_file_and_field(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "calls.csv"
    path.write_text(text)
    found = problems(llm(tokens={"drawn_from": str(path)}))
    assert len(found) == 1 and said in found[0] and str(path) in found[0]


def test_other_kernels_refuse_language_models_by_name() -> None:
    from benchmarks.serving.streaming import summarise_stream

    from forerun.serving.inputs.prepare import prepare

    pipeline: Pipeline = prepare(scenario()).pipeline
    with pytest.raises(ForerunError, match="stage 'Llama' serves a language model"):
        summarise_stream(pipeline, [np.arange(3.0)], 100.0)


def test_what_if_parameters_change_the_limits_of_the_model() -> None:
    explainer = get_domain("serving").explainer
    assert explainer is not None
    found = explainer.what_ifs(scenario(), simulate(scenario()))
    paths = {lever.path for lever in found}
    assert {f"configuration.Llama.llm.{name}" for name in ("max_seqs", "token_budget", "kv_blocks")} <= paths
    assert "configuration.Llama.max_batch" not in paths and "configuration.KSVM.max_batch" in paths


def test_a_kept_run_is_the_same_run_again(tmp_path: Path) -> None:
    result = simulate(scenario())
    folder = result.save(tmp_path / "run")
    again = from_data(json.loads((folder / "scenario.json").read_text()))
    assert to_data(again) == to_data(result.scenario)
    other = simulate(again).save(tmp_path / "again")
    for path in sorted(folder.iterdir()):
        if path.name != "provenance.json":
            assert path.read_bytes() == (other / path.name).read_bytes(), path.name


def test_an_hour_of_conversations_obeys_the_laws() -> None:
    """The public trace of 2023: 19,366 requests of one hour on four replicas, and on one with few seats."""
    trace = shared_path("golden", "serving", "readers", "AzureLLMInferenceTrace_conv.csv.gz")
    data = scenario_data()
    data |= {"trace": {"file": str(trace)}, "stages": [{"name": "Llama", "parents": ["source"]}]}
    data["configuration"] = {"Llama": data["configuration"]["Llama"]}
    del data["configuration"]["Llama"]["llm"]["tokens"]
    for replicas, seats in ((4, 64), (1, 8)):
        data["configuration"]["Llama"] |= {"replicas": replicas}
        data["configuration"]["Llama"]["llm"] |= {
            "max_seqs": seats,
            "token_budget": 512,
            "kv_blocks": 1000,
        }
        result = simulate(scenario(data)).check()
        assert len(result.tables["requests"]) == 19_366
        assert result.summary["output_tokens"] == 4_088_665
        assert any(note.startswith("queue grows") for note in result.notes) == (replicas == 1)
    assert result.summary["overloaded_stages"] == "Llama" and result.summary["preemptions"] > 0
    assert any(note.startswith("overload: Llama") for note in result.notes)


def _most(iterations: Any) -> int:
    """Most requests that run at once, all replicas together, looked at after every begin of an iteration."""
    most = 0
    for at in np.unique(iterations["start_ms"]).tolist():
        under_way = (iterations["start_ms"] <= at) & (iterations["end_ms"] > at)
        most = max(most, int(iterations["running"][under_way].sum()))
    return most


@pytest.mark.parametrize(
    "record, said",
    [
        ({"client_ms": 1e5}, r"fit.client_ms: 100000 is more than request_ms, 8, of which it is a part"),
        ({"errors": {"ttft_mean_ms": 1e9}}, r"errors.ttft_mean_ms: 1000000000.0 is not between 0 and 50"),
        ({"step_error": 1e9}, r"step_error: 1000000000.0 is not between 0 and 50"),
    ],
)
def test_errors_of_a_fit_are_such_as_figures_have(record: dict[str, Any], said: str) -> None:
    fit = {"experiments": 1, "prefill_tokens": 9, "decodes": 9, "kv_tokens": 9, "step_error": 0.1}
    data = scenario_data()
    for given in (fit, {**fit, "client_ms": 8.0}):
        data["configuration"]["Llama"]["llm"]["cost"] = {**LLM["cost"], "request_ms": 8.0, "fit": given}
        assert scenario(data)
    data["configuration"]["Llama"]["llm"]["cost"]["fit"] = {**fit, **record}
    with pytest.raises(ScenarioError, match=said):
        scenario(data)


def test_costs_without_hidden_tokens_keep_their_ids() -> None:
    """Also behind the names of stages, which are keys of a mapping."""
    plain = scenario(scenario_data())
    data = to_data(plain)
    llm_data = data["configuration"]["Llama"]["llm"]
    for name in ("hidden_prefill_tokens", "launch_ms", "launch_tokens", "unsure"):
        assert llm_data["cost"].pop(name) is None
    assert llm_data["plan"].pop("prefix_cache") is None
    assert llm_data.pop("gateway") is None
    assert llm_data.pop("speculation") is None and llm_data["plan"].pop("speculation") is None
    assert data.pop("accept_fit") is None and llm_data["scheduler"]["name"] == "vllm-0.32"
    assert [data.pop(name) for name in ("max_concurrency", "warm_up", "sessions")] == [None] * 3
    assert content_id(plain, "1") == hashlib.sha256(b"1\0" + canonical_json(data)).hexdigest()[:16]
    hidden = scenario_data()
    hidden["configuration"]["Llama"]["llm"]["cost"] = {**LLM["cost"], "hidden_prefill_tokens": 10}
    assert content_id(scenario(hidden), "1") != content_id(plain, "1")
