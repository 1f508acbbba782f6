"""Files of measurements: every layout that is at hand, their traps, and what is rejected with which words."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.core.errors import InputError, TraceError
from forerun.serving.llm.calibration.experiment import Experiment, Load, Steps
from forerun.serving.llm.calibration.readers import read_measurements
from forerun.serving.llm.calibration.readers.values import lengths
from forerun.serving.traces.request_rate import sent_ms

from ..conftest import shared_path


def at_hand(*parts: str) -> Path:
    return shared_path("data", "serving-llm", *parts)


def one(path: Path) -> Experiment:
    (found,) = read_measurements(path)
    assert isinstance(found, Experiment)
    return found


BENCH: dict[str, Any] = {
    "date": "20250511-230243", "backend": "openai", "model_id": "m", "num_prompts": 4, "request_rate": 2.0,
    "burstiness": 1.0, "max_concurrency": None, "duration": 3.0, "completed": 4, "total_input_tokens": 400,
    "total_output_tokens": 40, "mean_ttft_ms": 50.0, "median_ttft_ms": 48.0, "p99_ttft_ms": 80.0,
    "mean_tpot_ms": 10.0, "median_tpot_ms": 10.0, "p99_tpot_ms": 12.0,
}  # fmt: skip
DETAILED = {
    "input_lens": [100, 101, 102, 103],
    "output_lens": [3, 1, 2, 0],
    "ttfts": [0.05, 0.06, 0.07, 0.0],
    "itls": [[0.01, 0.02], [], [0.03], []],
    "errors": ["", "", "", "refused"],
}
REQUESTS = (
    "arrival_ms,prompt_tokens,output_tokens,ttft_ms,e2e_ms\n0,100,3,50,80\n500,100,1,60,60\n900,90,2,70,100\n"
)


def rate_rps(load: Load) -> float:
    """Requests a second that the client wants to send."""
    return (len(load) - 1) * 1e3 / float(load.send_ms[-1] - load.send_ms[0])


def saved(folder: Path, content: object, name: str = "result.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_the_oldest_vllm_layout_with_a_colon_in_a_key_and_metadata_among_the_figures() -> None:
    found = one(
        at_hand("formats", "vllm-bench", "vllm-2025-05.benchmark_serving.burstiness-goodput-colon.json")
    )
    assert found.measured["ttft_mean_ms"] == pytest.approx(1060.807, abs=1e-3)
    assert found.measured["tpot_p50_ms"] == pytest.approx(43.763, abs=1e-3)
    assert "e2e_mean_ms" not in found.measured
    assert len(found.load) == 200 and set(found.load.prompt.tolist()) == {8000}
    assert rate_rps(found.load) == pytest.approx(1.8)
    assert found.load.most_in_flight is None


def test_every_vllm_result_at_hand_is_read() -> None:
    files = sorted(at_hand("llmd-disaggregation").rglob("benchmark_*.json"))
    assert len(files) >= 10
    for path in files:
        found = one(path)
        assert found.measured["throughput_rps"] > 0 and found.measured["ttft_p99_ms"] > 0


def test_details_of_requests_count_before_the_figures(tmp_path: Path) -> None:
    found = one(saved(tmp_path, {**BENCH, **DETAILED, "timestamp": "1,model", "completed": 3}))
    assert found.load.prompt.tolist() == [100, 101, 102] and found.load.output.tolist() == [3, 1, 2]
    assert found.measured["ttft_mean_ms"] == pytest.approx(60.0)
    assert found.measured["e2e_mean_ms"] == pytest.approx((80 + 60 + 100) / 3)
    assert found.measured["tpot_mean_ms"] == pytest.approx((15 + 30) / 2)
    assert any("1 requests failed" in note for note in found.notes)


def test_sglang_appends_lines_and_names_the_whole_latency_otherwise(tmp_path: Path) -> None:
    older = {**BENCH, "mean_e2e_latency_ms": 1.0}
    newer = {
        **BENCH,
        "mean_e2e_latency_ms": 140.0,
        "median_e2e_latency_ms": 138.0,
        "p99_e2e_latency_ms": 170.0,
        "total_output_tokens_retokenized": 39,
        "max_concurrency": 2,
    }
    found = one(saved(tmp_path, f"{json.dumps(older)}\n{json.dumps(newer)}\n", "sglang.jsonl"))
    assert found.measured["e2e_mean_ms"] == 140.0 and found.measured["e2e_p99_ms"] == 170.0
    assert found.load.most_in_flight == 2 and found.holds_back


def test_all_requests_at_once(tmp_path: Path) -> None:
    found = one(saved(tmp_path, {**BENCH, "request_rate": "inf"}))
    assert found.load.send_ms.tolist() == [0.0] * 4


def test_the_time_per_token_of_inference_perf_is_derived_not_read() -> None:
    found = one(at_hand("kubecon-2025", "vllm", "stage_1_lifecycle_metrics.json"))
    # The tool says 4.0 ms; (546.7 - 29.8) / 61.36 tokens are 8.4 ms, which the server confirms.
    assert found.measured["tpot_mean_ms"] == pytest.approx(8.42, abs=0.01)
    assert any("its time per output token, 4 ms, is not used" in note for note in found.notes)
    assert rate_rps(found.load) == pytest.approx(31.4, rel=0.01)
    assert found.load.prompt.mean() == pytest.approx(204.1, rel=0.01)
    assert found.load.output.max() <= 70 and found.load.output.min() >= 15


def test_a_stage_past_saturation_holds_requests_back() -> None:
    found = [
        one(at_hand("kubecon-2025", "vllm", f"stage_{stage}_lifecycle_metrics.json")) for stage in range(7)
    ]
    assert not found[1].holds_back and found[6].holds_back


def test_a_summary_of_inference_perf_has_no_rate() -> None:
    with pytest.raises(TraceError, match="give the files stage_N"):
        read_measurements(at_hand("formats", "inference-perf", "2025-10.summary_lifecycle_metrics.json"))


@pytest.mark.parametrize(
    ("name", "experiments"),
    [
        ("guidellm-2025-06-12.no-metadata.official-asset.json", 1),
        ("guidellm-2025-07.no-metadata.official-asset.json", 1),
        ("guidellm-2025-09.no-metadata.rsevilla-cut.json", 1),
        ("guidellm-0.8.0.dev18.metadata-v2.mock.json", 2),
    ],
)
def test_every_layout_of_guidellm_is_read(name: str, experiments: int) -> None:
    found = read_measurements(at_hand("formats", "guidellm", name))
    assert len(found) == experiments
    for each in found:
        assert isinstance(each, Experiment)
        assert 0 < each.measured["ttft_mean_ms"] < each.measured["e2e_mean_ms"]
        assert (
            each.measured["tpot_mean_ms"] * (each.load.output.mean() - 1)
            < each.measured["e2e_mean_ms"] * 1.01
        )
        assert (each.load.prompt >= 1).all() and (each.load.output >= 1).all()


def test_requests_of_guidellm_count_from_when_they_were_sent(tmp_path: Path) -> None:
    """As GuideLLM 0.8.1 writes them: an asked rate of 3 a second is not what its ten processes sent."""
    rows = [
        {
            "request_start_time": 100.0 + at,
            "request_end_time": 101.0 + at,
            "time_to_first_token_ms": 50.0 + 10 * at,
        }
        | {"prompt_tokens": 89, "output_tokens": 40}
        for at in (0, 2, 1, 1)
    ]
    benchmark = {
        "config": {"strategy": {"type_": "poisson", "rate": 3.0}},
        "metrics": {
            "request_totals": {"successful": 4, "errored": 0, "incomplete": 0},
            "requests_per_second": {"successful": {"mean": 1.3}},
        },
        "requests": {"successful": rows},
    }
    path = tmp_path / "guidellm.json"
    path.write_text(json.dumps({"metadata": {"version": 2}, "benchmarks": [benchmark]}))
    found = one(path)
    assert found.load.send_ms.tolist() == [0.0, 1000.0, 1000.0, 2000.0] and set(
        found.load.prompt.tolist()
    ) == {89}
    assert found.measured["ttft_p50_ms"] == pytest.approx(60.0) and found.measured["e2e_mean_ms"] == 1000.0
    assert found.notes == ()
    rows[0]["time_to_first_token_ms"] = 1500.0
    path.write_text(json.dumps({"metadata": {"version": 2}, "benchmarks": [benchmark]}))
    with pytest.raises(TraceError, match="a request ends before its first token"):
        one(path)


def test_strategies_of_guidellm(tmp_path: Path) -> None:
    path = at_hand("formats", "guidellm", "guidellm-0.8.0.dev18.metadata-v2.mock.json")
    data = json.loads(path.read_text())

    def load(strategy: dict[str, Any]) -> Any:
        changed = json.loads(json.dumps(data))
        changed["benchmarks"] = changed["benchmarks"][:1]
        changed["benchmarks"][0]["config"]["strategy"] = strategy
        return one(saved(tmp_path, changed)).load

    assert load({"type_": "synchronous"}).most_in_flight == 1
    assert load({"type_": "concurrent", "streams": 7}).most_in_flight == 7
    assert load({"type_": "throughput", "max_concurrency": 9}).most_in_flight == 9
    assert rate_rps(load({"type_": "poisson", "rate": 4.0})) == pytest.approx(4.0)
    with pytest.raises(TraceError, match="strategy 'bursts' is not known"):
        load({"type_": "bursts"})


def test_requests_held_back_by_their_client_are_seen() -> None:
    low = one(at_hand("qwen3-14b-rate-sweep", "rate_2.csv.gz"))
    high = one(at_hand("qwen3-14b-rate-sweep", "w5_18.csv.gz"))
    assert low.load.most_in_flight is None and high.load.most_in_flight == 256
    assert low.measured["ttft_mean_ms"] == pytest.approx(66.87, abs=0.01)
    assert low.measured["tpot_mean_ms"] == pytest.approx(12.329, abs=0.001)
    assert low.measured["e2e_p99_ms"] == pytest.approx(1853.0, rel=1e-3)
    assert any("256 requests under way" in note for note in high.notes)


def test_lmbenchmark_has_one_experiment_a_rate() -> None:
    found = read_measurements(at_hand("lmbench", "exp-2.vllm-70b-2replicas.sharegpt.csv.gz"))
    assert len(found) == 24 and all(isinstance(each, Experiment) and len(each.load) == 252 for each in found)


def test_blis_requests_and_steps() -> None:
    run = "20260218-150304-codellama-34b-tp2-general.csv.gz"
    requests = one(at_hand("blis", "requests", run))
    assert requests.measured["ttft_mean_ms"] == pytest.approx(51.6, rel=0.02)
    (steps,) = read_measurements(at_hand("blis", "steps", run))
    assert isinstance(steps, Steps) and len(steps) > 1000
    # The scheduler's own time, 0.1 ms, is not the step's.
    assert 10 < np.median(steps.took_ms) < 30


def test_full_traces_of_blis(tmp_path: Path) -> None:
    text = (
        "request_id,input_tokens,output_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,status\n"
        "0,100,3,0,1000,51000,81000,ok\n1,90,0,0,0,0,0,error\n2,100,5,500000,500000,550000,650000,ok\n"
    )
    found = one(saved(tmp_path, text, "trace.csv"))
    assert found.load.send_ms.tolist() == [0.0, 500.0]
    assert found.measured["e2e_mean_ms"] == pytest.approx((80 + 150) / 2)


def test_own_tables(tmp_path: Path) -> None:
    found = one(saved(tmp_path, REQUESTS, "requests.csv"))
    assert found.measured["ttft_mean_ms"] == pytest.approx(60.0)
    assert found.measured["throughput_rps"] == pytest.approx(3.0)
    (steps,) = read_measurements(
        saved(tmp_path, "prefill_tokens,decodes,kv_tokens,took_ms\n0,4,900,12.5\n512,3,800,30\n", "steps.csv")
    )
    assert isinstance(steps, Steps) and steps.took_ms.tolist() == [12.5, 30.0]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (json.dumps(BENCH)[:200], "result.json:1"),
        ({}, "it is empty"),
        ({"a": 1}, "it has the keys a"),
        ({**BENCH, "mean_ttft_ms": "50"}, "mean_ttft_ms: '50' is no number"),
        ({**BENCH, "mean_ttft_ms": -1.0}, "-1 is not between 0"),
        ({key: value for key, value in BENCH.items() if key != "mean_ttft_ms"}, "mean_ttft_ms: is missing"),
        ({**BENCH, "completed": 0}, "completed: 0 is not between 1"),
        ({**BENCH, "completed": 2.5}, "2.5 is no whole number"),
        ({**BENCH, "request_rate": 0}, "request_rate: 0 is not between"),
        ({**BENCH, **DETAILED, "itls": [[]]}, "lists of different or no length"),
        ({**BENCH, **DETAILED, "itls": [[0.01], None, [], []]}, "itls[1]: None is no list of times"),
        ({**BENCH, **DETAILED, "input_lens": [0, 0, 0, 0]}, "0 prompt tokens of request 0"),
        ({**BENCH, **DETAILED, "ttfts": [0.0] * 4}, "no request was answered"),
        ({"benchmarks": []}, "contains no benchmark"),
        ({"benchmarks": [{}], "metadata": {"version": 7}}, "GuideLLM's layout 7 is not known"),
        ({"benchmarks": [{}]}, "cut short, or another version"),
        ({"benchmarks": [3]}, "cut short, or another version"),
        ("[1, 2]", "is no table that is known"),
        ("", "the file is empty"),
        ("a,b\n1,2\n", "its columns are a, b"),
        (REQUESTS.replace("100,3", "0,3"), ":2:prompt_tokens: 0 is below 1"),
        (REQUESTS.replace("50,80", "80,50"), "end before their first token"),
        (REQUESTS.splitlines()[0] + "\n", "contains no rows"),
        ("step,t_start_us,n_prefill,n_decode,prefill_tokens,kv_used_blocks\n1,0,0,1,0,3\n", "no two steps"),
    ],
)
def test_what_cannot_be_used_is_one_problem_with_its_place(tmp_path: Path, content: Any, what: str) -> None:
    with pytest.raises(InputError, match=re.escape(what)) as raised:
        read_measurements(saved(tmp_path, content))
    assert len(raised.value.problems) == 1
    assert "\n" not in str(raised.value)


def test_arrivals_have_their_rate_and_their_burstiness() -> None:
    n = 4000
    for shape in (0.5, 1.0, 50.0):
        gaps = np.diff(sent_ms(n, 20.0, shape, 1))
        assert gaps.mean() == pytest.approx(50.0)
        # The coefficient of variation of a gamma law is 1 / sqrt(shape); its estimator is within 10 % here.
        assert gaps.std() / gaps.mean() == pytest.approx(shape**-0.5, rel=0.1)
    assert np.diff(sent_ms(5, 20.0, float("inf"), 1)).tolist() == [50.0] * 4


def test_lengths_follow_the_quantiles_and_the_mean() -> None:
    table = [(0.0, 10.0), (0.5, 20.0), (0.9, 100.0), (1.0, 200.0)]
    mean = 15 * 0.5 + 60 * 0.4 + 150 * 0.1
    drawn = lengths(table, mean, 2000, 3)
    assert drawn.mean() == pytest.approx(mean, rel=0.01)
    assert np.quantile(drawn, [0.5, 0.9]) == pytest.approx([20.0, 100.0], rel=0.03)
    assert lengths((), 12.4, 3, 0).tolist() == [12, 12, 12]


def report(**changes: Any) -> dict[str, Any]:
    """A benchmark report of llm-d, version 0.2, with what is read of it."""
    length = {"units": "count", "mean": 100.0, "min": 80, "p50": 100, "max": 120}
    latency = {
        "time_to_first_token": {"units": "s", "mean": 0.05, "p50": 0.048, "p99": 0.09},
        "request_latency": {"units": "ms", "mean": 1040.0, "p90": 1300.0},
    }
    standard = {"tool": "inference-perf", "rate_qps": 4.0, "concurrency": None}
    load = {"standardized": standard | changes.pop("standardized", {})}
    requests = {"total": 50, "failures": 2, "input_length": length, "output_length": length}
    aggregate = {"requests": requests, "throughput": {"request_rate": {"mean": 3.9}}, "latency": latency}
    return {
        "version": "0.2",
        "scenario": {"load": load},
        "results": {"request_performance": {"aggregate": aggregate | changes}},
    }


@pytest.mark.parametrize("kind", ["json", "yaml"])
def test_a_report_of_llm_d_counts_with_its_units(tmp_path: Path, kind: str) -> None:
    found = one(saved(tmp_path, report(), f"report.{kind}"))
    assert found.measured["ttft_mean_ms"] == 50.0 and found.measured["ttft_p99_ms"] == 90.0
    assert found.measured["e2e_mean_ms"] == 1040.0 and found.measured["e2e_p90_ms"] == 1300.0
    assert found.measured["tpot_mean_ms"] == pytest.approx((1040 - 50) / 99)
    assert len(found.load) == 48 and rate_rps(found.load) == pytest.approx(4.0)
    assert 80 <= found.load.prompt.min() <= found.load.prompt.max() <= 120
    assert any("2 requests failed" in note for note in found.notes)


def test_a_report_of_llm_d_says_how_requests_were_sent(tmp_path: Path) -> None:
    capped = one(saved(tmp_path, report(standardized={"rate_qps": None, "concurrency": 8})))
    assert capped.load.most_in_flight == 8
    silent = one(saved(tmp_path, report(standardized={"rate_qps": None})))
    assert rate_rps(silent.load) == pytest.approx(3.9)
    assert any("no rate is stated" in note for note in silent.notes)


@pytest.mark.parametrize("name", ["br_v0_1_example.yaml", "br_v0_2_example.yaml", "br_v0_2_1_example.yaml"])
def test_every_version_of_the_report_is_read(name: str) -> None:
    found = one(at_hand("formats", "llm-d-benchmark-report", name))
    assert found.measured["ttft_mean_ms"] > 0 and found.measured["throughput_rps"] > 0
    if name == "br_v0_1_example.yaml":
        # (3.3133 - 0.8010) ms over 31.79 - 1 tokens, of 32 requests but one that was cut off.
        assert found.measured["tpot_mean_ms"] == pytest.approx(0.08160, rel=1e-3)
        assert len(found.load) == 31
    else:
        assert found.measured["ttft_p99_ms"] == pytest.approx(50.2949, abs=1e-4)
        assert len(found.load) == 500 and rate_rps(found.load) == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "0.9"}, r"'0.9' is not known; known: 0.1, 0.2, 0.2.1"),
        ({"results": {}}, r"request_performance.*is missing|is missing"),
    ],
)
@pytest.mark.parametrize("kind", ["json", "yaml"])
def test_a_report_that_cannot_be_read_says_why(
    tmp_path: Path, kind: str, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(TraceError, match=words):
        one(saved(tmp_path, report() | change, f"report.{kind}"))


def test_a_unit_that_is_no_time_and_yaml_that_is_no_report(tmp_path: Path) -> None:
    wrong = {"time_to_first_token": {"units": "tokens/s", "mean": 1.0}}
    with pytest.raises(TraceError, match=r"the unit 'tokens/s' is no time"):
        one(saved(tmp_path, report(latency=wrong)))
    with pytest.raises(TraceError, match=r"is no benchmark report of llm-d; known: "):
        one(saved(tmp_path, "a: 1\n", "other.yaml"))


def test_requests_of_blis_without_tokens_are_left_out_and_odd_counts_are_said(tmp_path: Path) -> None:
    """An answer without tokens could never end in a replay; one of three tokens that takes as long as those of two hundred
    was counted by its text."""
    lines = ["arrival_us,input_tokens,output_tokens,ttft_s,e2e_s,error"]
    for number in range(100):
        tokens = 0 if number % 50 == 0 else 3 if number % 10 == 0 else 200
        lines.append(f"{number * 100000},500,{tokens},0.03,2.0,0")
    found = one(saved(tmp_path, "\n".join(lines) + "\n", "run.csv"))
    assert len(found.load) == 98 and found.load.output.min() == 3
    assert any("2 requests failed or have no tokens" in note for note in found.notes)
    assert any(
        "8% of the answers have less than half of the usual 200 tokens" in note for note in found.notes
    )
    honest = one(saved(tmp_path, REQUESTS, "requests.csv"))
    assert not any("usual" in note for note in honest.notes)


def test_infinity_is_a_rate_and_no_latency(tmp_path: Path) -> None:
    """SGLang writes what Python's json writes for a rate without limit."""
    line = {**BENCH, "request_rate": float("inf"), "max_concurrency": 2}
    found = one(saved(tmp_path, json.dumps(line) + "\n", "bench.jsonl"))
    assert found.load.send_ms.tolist() == [0.0] * 4 and found.load.most_in_flight == 2
    assert any("all at once" in note for note in found.notes)
    unlimited = one(saved(tmp_path, json.dumps({**line, "max_concurrency": float("inf")})))
    assert unlimited.load.most_in_flight is None
    with pytest.raises(TraceError, match="mean_ttft_ms: nan is not between"):
        one(saved(tmp_path, json.dumps({**line, "mean_ttft_ms": float("nan")})))


def test_recorded_starts_count_before_a_stated_rate(tmp_path: Path) -> None:
    starts = {"start_times": [100.5, 100.25, 100.0, 99.0]}
    found = one(saved(tmp_path, {**BENCH, **DETAILED, **starts, "request_rate": 7.0}))
    assert found.load.send_ms.tolist() == [0.0, 250.0, 500.0] and found.load.prompt.tolist() == [
        102,
        101,
        100,
    ]
    assert not any("does not say when" in note for note in found.notes)
    # A client without a rate wanted to send all at once; what is recorded is what its own limit let through.
    held = one(saved(tmp_path, {**BENCH, **DETAILED, **starts, "request_rate": "inf", "max_concurrency": 1}))
    assert held.load.send_ms.tolist() == [0.0] * 3 and held.load.most_in_flight == 1
    assert "all at once, as far as the limit allows" in held.notes
    with pytest.raises(TraceError, match=r"start_times\[1\]: 'soon' is no number"):
        one(saved(tmp_path, {**BENCH, **DETAILED, "start_times": [0, "soon", 1, 2]}))
    with pytest.raises(TraceError, match="start_times: lists 2 for 4 requests; cut short"):
        one(saved(tmp_path, {**BENCH, **DETAILED, "start_times": [0, 1]}))


@pytest.mark.parametrize("kind", ["linear", "exponential"])
def test_a_ramp_is_not_all_at_once(tmp_path: Path, kind: str) -> None:
    ramp = {"ramp_up_strategy": kind, "ramp_up_start_rps": 1.0, "ramp_up_end_rps": 4.0, "request_rate": "inf"}
    found = one(saved(tmp_path, {**BENCH, **ramp, "num_prompts": 400, "completed": 400, "burstiness": 1e9}))
    gaps_ms = np.diff(found.load.send_ms)
    assert gaps_ms[0] == pytest.approx(1000, rel=0.02) and gaps_ms[-1] == pytest.approx(250)
    assert gaps_ms[199] == pytest.approx({"linear": 400, "exponential": 500}[kind], rel=0.01)
    assert any(f"a {kind} ramp from 1 to 4 requests/s" in note for note in found.notes)
    with pytest.raises(TraceError, match="'steep' is not known; known: linear, exponential"):
        one(saved(tmp_path, {**BENCH, **ramp, "ramp_up_strategy": "steep"}))


def aiperf(*, at_ms: float = 0.0, **changes: Any) -> dict[str, Any]:
    """A record of a request that takes 100 ms to the first of 11 tokens and 10 ms to each further one."""
    start_ns = 1_761_000_000_000_000_123 + int(at_ms * 1e6)
    metadata = {"request_start_ns": start_ns, "benchmark_phase": "profiling", "was_cancelled": False}
    values = {"time_to_first_token": (100.0, "ms"), "request_latency": (0.2, "s"), "input_sequence_length": (64, "tokens"),
              "output_sequence_length": (11, "tokens")}  # fmt: skip
    metrics = {name: {"value": value, "unit": unit} for name, (value, unit) in values.items()}
    record: dict[str, Any] = {"metadata": metadata, "metrics": metrics, "error": None}
    for key, value in changes.items():
        part = "metadata" if key in ("benchmark_phase", "was_cancelled", "request_start_ns") else "metrics"
        record = record | ({"error": value} if key == "error" else {part: record[part] | {key: value}})
    return record


def records(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_records_of_aiperf(tmp_path: Path) -> None:
    kept = [aiperf(at_ms=at) for at in (500.0, 0.0, 250.0)]
    out = [aiperf(benchmark_phase="warmup"), aiperf(error={"code": 500}), aiperf(was_cancelled=True)]
    found = one(saved(tmp_path, records(*kept, *out), "profile_export.jsonl"))
    assert found.load.send_ms == pytest.approx([0.0, 250.0, 500.0], abs=1e-9)
    assert found.load.prompt.tolist() == [64] * 3 and found.load.output.tolist() == [11] * 3
    assert found.measured["ttft_mean_ms"] == pytest.approx(100) and found.measured[
        "tpot_mean_ms"
    ] == pytest.approx(10)
    assert {
        "2 requests failed or were cut off and are left out",
        "1 requests warmed up and are left out",
    } <= set(found.notes)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"time_to_first_token": None}, "1: time_to_first_token is missing; a streamed answer has it"),
        (
            {"request_latency": {"value": 2, "unit": "min"}},
            "request_latency is in 'min'; known: ns, us, ms, s",
        ),
        ({"request_latency": {"value": 2, "unit": ["ms"]}}, "request_latency is in ["),
        (
            {"request_latency": {"value": 2, "unit": "ms"}},
            "1 requests end before their first token or have it before they are sent, the first is 0",
        ),
        ({"output_sequence_length": {"value": 0, "unit": "tokens"}}, "output_sequence_length: 0 is below 1"),
        ({"request_start_ns": 1.5}, "request_start_ns: 1.5 is no instant in whole nanoseconds"),
        ({"error": "timeout"}, "no request of the profiled phase was answered"),
    ],
)
def test_records_of_aiperf_that_cannot_be(tmp_path: Path, change: dict[str, Any], what: str) -> None:
    with pytest.raises(TraceError, match=re.escape(what)):
        one(saved(tmp_path, records(aiperf(**change)), "profile_export.jsonl"))


def test_lmbenchmark_may_count_with_a_decimal_point_and_blis_leaves_times_of_failures_empty(
    tmp_path: Path,
) -> None:
    header = "qps,launch_s,ttft_s,generation_s,prompt_tokens,generation_tokens"
    counted = one(saved(tmp_path, f"{header}\n1,0,.1,.2,75.0,3.0\n1,1,.1,.2,75.0,3.0\n", "lm.csv"))
    assert counted.load.prompt.tolist() == [75, 75]
    header = "arrival_us,input_tokens,output_tokens,ttft_s,e2e_s,error"
    blis = one(saved(tmp_path, f"{header}\n0,10,3,.1,.3,0\n9000,0,0,,30,1\n", "blis.csv"))
    assert len(blis.load) == 1 and "1 requests failed or have no tokens and are left out" in blis.notes


def test_genai_perf_and_aiperf_summaries(tmp_path: Path) -> None:
    """What the client was asked for stands in another place in each version; metrics have units."""

    def metric(unit: str, avg: float, **more: float) -> dict[str, Any]:
        return {"unit": unit, "avg": avg} | more

    def phase(kind: str, **more: float) -> dict[str, Any]:  # as AIPerf 0.13 writes it
        return {"name": "profiling", "kind": "profiling", "type": kind, "requests": 40} | more

    result = {
        "request_throughput": metric("requests/sec", 2.5),
        "request_latency": metric("ms", 1500.0, p50=1400.0, p90=1800.0, p99=2000.0, max=2100.0),
        "time_to_first_token": metric("s", 0.1, p50=0.09, p99=0.3),
        "inter_token_latency": metric("ms", 12.0, p50=11.5),
        "input_sequence_length": metric("tokens", 500.0, min=400.0, p50=500.0, max=600.0),
        "output_sequence_length": metric("tokens", 100.0),
        "request_count": metric("requests", 40.0),
        "error_request_count": metric("requests", 2.0),
    }
    for config, most in (
        ({"loadgen": {"concurrency": 8}}, 8),
        ({"perf_analyzer": {"stimulus": {"concurrency": 4}}}, 4),
        ({"request_rate": 2.0, "concurrency": None}, None),
        ({"phases": [phase("concurrency", concurrency=4)]}, 4),
        ({"phases": [{"kind": "warmup"}, phase("poisson", rate=3.0)]}, None),
        ({"phases": [phase("gamma", rate=3.0, smoothness=4.0, concurrency=7)]}, 7),
    ):
        path = tmp_path / "profile_export_genai_perf.json"
        path.write_text(json.dumps(result | {"input_config": config}, indent=1))
        (found,) = read_measurements(path)
        assert isinstance(found, Experiment) and len(found.load) == 40 and found.load.most_in_flight == most
        assert found.measured["ttft_p99_ms"] == 300.0 and found.measured["tpot_p50_ms"] == 11.5
        assert found.measured["e2e_mean_ms"] == 1500.0 and found.measured["throughput_rps"] == 2.5
        assert found.load.prompt.min() < 420 and found.load.prompt.max() > 580
        assert set(found.load.output.tolist()) == {100} and "2 requests failed" in " ".join(found.notes)
        assert (found.load.send_ms[-1] > 0) == ("rate" in json.dumps(config))
    for wrong, message in (
        ({"request_latency": metric("parsecs", 1.0)}, "the unit 'parsecs' is no time"),
        ({"request_latency": {"unit": ["ms"], "avg": 1.0}}, r"the unit \['ms'\] is no time"),
        ({"input_config": {}}, "neither concurrency nor request_rate is stated"),
        (
            {"input_config": {"phases": [phase("fixed_schedule")]}},
            r"phases\[0\]: 'fixed_schedule': only the records say",
        ),
        (
            {"input_config": {"phases": [phase("poisson", rate=1.0, rate_ramp=2.0)]}},
            "rate_ramp: only the records say",
        ),
        ({"input_config": {"phases": [phase("poisson"), phase("poisson")]}}, "2 phases were measured"),
        ({"input_config": {"phases": [{"type": "poisson"}, 3]}}, "0 phases were measured"),
        ({"request_count": metric("requests", 0.0)}, "0 is not between 1"),
    ):
        path.write_text(json.dumps(result | {"input_config": {"concurrency": 1}} | wrong))
        with pytest.raises(TraceError, match=message):
            read_measurements(path)


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("most", [None, 1, 4])
def test_records_of_aiperf_show_a_limit_of_requests_under_way(
    most: int | None, alike: bool, tmp_path: Path
) -> None:
    """They do not state it: a client that sends as others end is never long without as many under way. Answers of one
    length end together, so that fewer are under way when the next are sent, one after the other."""
    rng = np.random.default_rng(2)
    took_ms = np.full(60, 400.0) if alike else rng.uniform(200, 900, 60)
    ends_ms, sent_ms = [0.0] * (most or 0), []
    for took in took_ms.tolist():
        gap = 38.0 if alike else rng.exponential(150.0)
        begin = gap + (sent_ms[-1] if sent_ms else 0.0) if most is None else min(ends_ms) + rng.exponential(9)
        sent_ms.append(begin)
        ends_ms = [begin + took, *sorted(ends_ms)[1:]]
    lines = []
    for begin, took in zip(sent_ms, took_ms.tolist()):
        values = {"time_to_first_token": (50.0, "ms"), "request_latency": (took, "ms")}
        values |= {"input_sequence_length": (100, "tokens"), "output_sequence_length": (20, "tokens")}
        metrics = {name: {"value": value, "unit": unit} for name, (value, unit) in values.items()}
        start_ns = 10**18 + round(begin * 1e6)
        lines.append(json.dumps({"metadata": {"request_start_ns": start_ns}, "metrics": metrics}))
    path = tmp_path / "profile_export.jsonl"
    path.write_text("\n".join(lines) + "\n")
    (found,) = read_measurements(path)
    assert isinstance(found, Experiment) and found.load.most_in_flight == most
    assert bool(found.load.send_ms.any()) == (most is None)


def test_lmbenchmark_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "lmb.csv"
    path.write_text(
        ",prompt_tokens,generation_tokens,ttft,generation_time,user_id,question_id,launch_time,finish_time\n"
        "0,512.0,75.0,0.2,1.5,1,1,1750000000.5,1750000002.2\n"
        "1,300,20,0.1,0.4,2,1,1750000001.0,1750000001.5\n"
    )
    (found,) = read_measurements(path)
    assert isinstance(found, Experiment) and found.load.send_ms.tolist() == [0.0, 500.0]
    assert found.load.output.tolist() == [75, 20] and found.measured["ttft_mean_ms"] == pytest.approx(150.0)
    assert found.measured["e2e_mean_ms"] == pytest.approx(1100.0)
