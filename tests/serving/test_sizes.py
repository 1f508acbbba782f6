"""Sizes beyond what can be simulated are refused with what they would cost, before anything of that size is made."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.core.cli.main import run
from forerun.core.domain import simulate
from forerun.core.errors import ForerunError, InputError
from forerun.core.planning import plan
from forerun.core.scenarios import from_data
from forerun.serving.scenario import Scenario, most_queries
from forerun.serving.scenario.limits import MOST_BYTES

BASE: dict[str, Any] = {
    "domain": "serving",
    "seed": 7,
    "trace": {"process": {"name": "gamma", "rate_rps": 100.0, "scv": 4.0}, "queries": 300},
    "stages": [{"name": "ResNet", "parents": ["source"]}, {"name": "KSVM", "parents": ["ResNet"]}],
    "configuration": {
        "ResNet": {"hardware": "V100", "max_batch": 16},
        "KSVM": {"hardware": "cpu", "max_batch": 16, "batching": {"name": "timeout", "delay_ms": 5.0}},
    },
    "slo_ms": 350.0,
    "intervals": {"replications": 2},
}
MODEL: dict[str, Any] = {
    "domain": "serving",
    "trace": {"process": {"name": "poisson", "rate_rps": 4.0}, "queries": 30},
    "stages": [{"name": "Llama", "parents": ["source"]}],
    "configuration": {
        "Llama": {
            "hardware": "H100",
            "llm": {
                "max_seqs": 8,
                "token_budget": 256,
                "kv_blocks": 120,
                "cost": {"a_ms": 6.0, "prefill_ms_per_token": 0.05, "decode_ms_per_seq": 0.1},
                "tokens": {"prompt": 300, "output": 40},
            },
        }
    },
    "prices_usd_per_h": {"H100": 4.0},
    "slo_ms": 3000.0,
    "intervals": {"replications": 0},
}


def changed(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with one value set; what is on the way is made where it is missing."""
    head, _, rest = path.partition(".")
    if not rest:
        return {**data, head: value}
    return {**data, head: changed(data.get(head, {}), rest, value)}


def on_off(**given: float) -> dict[str, Any]:
    process = {"name": "on_off", "rate_rps": 100.0, "mean_on_s": 1.0, "mean_off_s": 1.0}
    return {"process": {**process, **given}, "horizon_s": 3.0}


def refusal(data: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        found = from_data(data)
        assert isinstance(found, Scenario)
        simulate(found)
    return "\n".join(map(str, caught.value.problems))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("configuration.ResNet.replicas", 10**9, r"replicas: 1000000000 is not between 1 and 1,000,000"),
        ("configuration.ResNet.replicas", 10**30, r"configuration\.ResNet\.replicas"),
        ("configuration.ResNet.changes", [{"at_s": 1, "replicas": 10**9}], r"changes\[0\]\.replicas"),
        ("trace.queries", 10**9, r"trace\.queries: 1,000,000,000 queries .* take 4\d\d GiB of memory; at most"),
        ("trace.queries", 2**63, r"trace\.queries"),
        ("trace", {"process": {"name": "poisson", "rate_rps": 1e300}, "horizon_s": 3.0}, r"horizon_s: about 3e\+300"),
        ("trace", {"process": {"name": "poisson", "rate_rps": 100.0}, "horizon_s": 1e9}, r"horizon_s: about 1e\+11"),
        ("tuner", {"name": "utilisation", "period_s": 1e-9}, r"tuner\.period_s: 1e-09 s ask the tuner \S+ times; at most"),
        ("tuner", {"name": "utilisation", "max_replicas": 10**9}, r"max_replicas"),
        ("tuner", {"name": "rehearsal", "bin_s": 1e-9}, r"tuner\.bin_s: 1e-09 s cuts look_s, 30 s, into 3e\+10 bins"),
        ("tuner", {"name": "rehearsal", "look_s": 1e300}, r"tuner\.bin_s: 5 s cuts look_s"),
        ("tuner", {"name": "coarse", "rate": "peak", "bin_s": 1e-9}, r"tuner\.bin_s"),
        ("tuner", {"name": "inferline", "look_s": 1e300, "bin_s": 1e-300}, r"tuner\.bin_s"),
        ("sample", {"process": {"name": "poisson", "rate_rps": 1.0}, "queries": 10**9}, r"sample\.queries: 1,000,000,000"),
        ("trace", on_off(rate_rps=1e-300), r"process\.mean_on_s: 1e-300 arrivals come in a cycle"),
        ("trace", on_off(mean_on_s=1e-9), r"process\.mean_on_s: 1e-07 arrivals come in a cycle"),
        ("trace", on_off(mean_on_s=1e9), r"process\.mean_on_s: 1e\+11 arrivals come in a cycle"),
        ("trace", on_off(mean_on_s=1e300), r"process\.mean_on_s"),
    ],
)  # fmt: skip
def test_what_is_too_large_is_refused_with_its_cost(path: str, value: Any, said: str) -> None:
    assert re.search(said, refusal(changed(BASE, path, value)))


@pytest.mark.parametrize("field", ["max_seqs", "token_budget", "kv_blocks", "block_tokens"])
@pytest.mark.parametrize("value", [10**10, 2**63, 10**30])
def test_limits_of_language_models_are_bounded(field: str, value: int) -> None:
    assert field in refusal(changed(MODEL, f"configuration.Llama.llm.{field}", value))


def test_iterations_without_end_are_refused_with_their_cost() -> None:
    tokens = {"prompt": 5, "output": 10_000_000}
    data = changed(MODEL, "configuration.Llama.llm.tokens", tokens)
    data = changed(changed(data, "configuration.Llama.llm.kv_blocks", 10**6), "trace.queries", 3000)
    said = refusal(data)
    assert re.search(r"llm: 3,000 requests need at least \S+ iterations and \S+ GiB of memory; at most", said)
    assert "GiB" not in refusal({**data, "record": "counts"})


def test_a_look_back_shorter_than_the_last_bit_of_time_counts_what_is_seen_now() -> None:
    found = from_data(changed(BASE, "tuner", {"name": "ongoing", "look_s": 1e-300}))
    assert isinstance(found, Scenario)
    assert simulate(found).check().summary["queries"] == 300


def test_replicas_and_seats_together_are_bounded() -> None:
    data = changed(MODEL, "configuration.Llama.llm.max_seqs", 100_000)
    said = refusal(changed(data, "configuration.Llama.replicas", 100_000))
    assert re.search(r"configuration: replicas and seats would take \d+ GiB of memory; at most 8 GiB", said)


def test_compat_plays_fewer_queries() -> None:
    data = changed({**BASE, "mode": "compat"}, "trace.queries", 6_000_000)
    data["configuration"] = {
        name: {k: v for k, v in placed.items() if k != "batching"}
        for name, placed in BASE["configuration"].items()
    }
    said = refusal({**data, "record": "latency"})
    assert "mode compat plays at most 5,000,000" in said


@pytest.mark.parametrize("record", ["full", "latency", "counts"])
def test_less_record_allows_more_queries(record: str) -> None:
    found = from_data({**BASE, "record": record})
    assert isinstance(found, Scenario)
    most = most_queries(found)
    assert (most < 20_000_000) == (record == "full")
    assert not from_data(changed({**BASE, "record": record}, "trace.queries", most)).problems()
    assert "trace.queries" in refusal(changed({**BASE, "record": record}, "trace.queries", most + 1))


def test_a_process_that_does_not_say_its_rate_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    import forerun.serving.scenario as sizes

    monkeypatch.setattr(sizes, "MOST_BYTES", 2**20)
    phases = {
        "name": "phases",
        "phases": [{"process": {"name": "poisson", "rate_rps": 1e4}, "duration_s": 1e6}],
    }
    said = refusal(changed(BASE, "trace", {"process": phases, "horizon_s": 1e5}))
    assert re.search(r"trace\.horizon_s: more than [\d,]+ queries .* take more than", said)


def test_a_recorded_trace_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import forerun.serving.scenario as sizes

    path = tmp_path / "calls.csv"
    path.write_text("arrival_s\n" + "".join(f"{number}\n" for number in range(5000)))
    data = changed(BASE, "trace", {"file": str(path)})
    monkeypatch.setattr(sizes, "MOST_BYTES", 2**20)
    assert re.search(r"calls\.csv: 5,000 queries recorded in 'full' take .*record: counts", refusal(data))


def test_plans_refuse_what_they_cannot_search() -> None:
    data = {
        **BASE,
        "configuration": {n: {"hardware": p["hardware"]} for n, p in BASE["configuration"].items()},
    }
    found: Any = from_data(data)
    for options, said in (
        (
            {"max_replicas": 10**9},
            "max_replicas: is 1000000000; a stage has at least one, and at most 10,000",
        ),
        ({"confidence": 0.9, "traces": 10**9}, "traces: 1,000,000,000 were asked for"),
        ({"confidence": 0.9, "traces": 99_999}, None),
    ):
        large: Any = found if said else found.with_(trace=found.trace.with_(queries=10**6))
        with pytest.raises(ForerunError, match=said or r"100,059 traces of 1,000,000 queries take .* GiB"):
            plan(large, **options)


def test_the_command_line_names_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "big.yaml"
    path.write_text(
        "domain: serving\ntrace: {process: {name: poisson, rate_rps: 10}, queries: 100}\n"
        "stages: [{name: KSVM, parents: [source]}]\n"
        "configuration:\n  KSVM:\n    hardware: cpu\n    replicas: 1e9\nslo_ms: 100ms\n"
    )
    assert run(("simulate", str(path))) == 2
    assert re.search(r"big\.yaml:7: .*replicas", capsys.readouterr().err)


EXTREME = (0, -1, 1e-300, 1e-9, 1e300, 10**9, 2**63, 10**30, math.inf, math.nan)


@pytest.mark.parametrize("base", [BASE, MODEL], ids=["stages", "model"])
def test_extreme_numbers_are_simulated_or_refused(base: dict[str, Any]) -> None:
    """Every number of a scenario, set to extreme values: a result, or problems by name."""
    simulated = refused = 0
    for path in _numbers(base):
        for value in EXTREME:
            try:
                found = from_data(_put(base, path, value))
                assert isinstance(found, Scenario)
                simulate(found).check()
                simulated += 1
            except ForerunError as error:
                assert all(problem.what for problem in error.problems)
                refused += 1
    assert simulated > 20 and refused > 20
    assert MOST_BYTES == 8 * 2**30


def _numbers(data: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(data, dict | list):
        items = data.items() if isinstance(data, dict) else enumerate(data)
        return [path for key, value in items for path in _numbers(value, (*at, key))]
    return [at] if isinstance(data, int | float | np.number) else []


def _put(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copied = dict(data) if isinstance(data, dict) else list(data)
    copied[path[0]] = _put(data[path[0]], path[1:], value)
    return copied
