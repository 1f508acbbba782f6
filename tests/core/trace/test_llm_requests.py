"""Requests to language models in JSON Lines: what the times and the prefix numbers mean, and when a reader asks."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.core.domain import simulate
from forerun.core.errors import ForerunError, TraceError
from forerun.core.scenarios import from_data
from forerun.core.trace.reader import read_trace
from forerun.core.trace.stats import trace_stats

BEGUN_S = 1.562
BAILIAN = {"chat_id": 0, "parent_chat_id": -1, "type": "text", "turn": 1}


def lines(
    *, block: int = 16, scale: float = 1.0, offset: float = 0.0, keys: dict[str, Any] | None = None
) -> str:
    """60 requests, about 2 a second, with one number for every `block` tokens; times are seconds times `scale`."""
    rng = np.random.default_rng(7)
    times = (BEGUN_S + np.cumsum(rng.exponential(0.5, 60)).round(3)).tolist()
    rows = []
    for number, (at, tokens) in enumerate(zip(times, rng.integers(400, 2000, 60).tolist(), strict=True)):
        time = at * scale + offset if scale == 1 else round(at * scale + offset)
        own = range(100 * number + 9, 100 * number + 9 + math.ceil(tokens / block) - 9)
        blocks = [*range(9), *own][: math.ceil(tokens / block)]
        row = {"timestamp": time, "input_length": tokens, "output_length": 40, "hash_ids": blocks}
        rows.append(json.dumps({**(keys or {}), **row}))
    return "\n".join(rows) + "\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "calls.jsonl"
    path.write_text(text)
    return path


def test_conversations_are_in_seconds(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, lines(keys=BAILIAN)), strict=True)
    assert trace.provenance.format == "qwen_bailian"
    assert trace.time == "arrival_s"
    assert trace_stats(trace).rate_rps == pytest.approx(2, rel=0.3)
    assert trace.provenance.options["assumed"] == "times in seconds, 16 tokens a number of hash_ids"


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        (lines(), "is not a whole number; 2,[0-9]{3} requests a second would arrive"),
        (lines(scale=1.001), "^(?!.*whole number).*requests a second would arrive if they are milliseconds"),
        (lines(scale=60.0, offset=1.76e9), "looks like seconds since 1970"),
        (lines(scale=1e3, keys={"workload": "chat"}), "lines have 'workload', unlike Mooncake's"),
    ],
    ids=["seconds with parts", "whole seconds", "seconds since 1970", "a key of another format"],
)
def test_a_file_that_may_be_in_seconds_makes_the_reader_ask(tmp_path: Path, text: str, asked: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(TraceError, match=asked) as caught:
        read_trace(path)
    assert "seconds or milliseconds?" in str(caught.value)
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        answered = read_trace(path, "mooncake", options={"time_unit": unit})
        first = json.loads(text.splitlines()[0])["timestamp"]
        assert trace_stats(answered).first_s == pytest.approx(first * scale)


def test_whole_milliseconds_are_read_and_the_reader_says_so(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, lines(block=512, scale=1e3)))
    assert trace.provenance.options["assumed"] == "times in milliseconds"
    assert trace_stats(trace).rate_rps == pytest.approx(2, rel=0.3)


@pytest.mark.parametrize(
    ("format", "header", "row"),
    [
        ("vidur", "arrived_at,num_prefill_tokens,num_decode_tokens", "{},10,10"),
        ("csv", "arrival_s,prompt_tokens,output_tokens", "{},10,10"),
    ],
)
def test_milliseconds_since_1970_are_not_read_as_seconds(
    tmp_path: Path, format: str, header: str, row: str
) -> None:
    path = tmp_path / "calls.csv"
    path.write_text(f"{header}\n{row.format(1_760_000_000_000)}\n")
    with pytest.raises(TraceError, match=r"1760000000000 is above 1e\+11 s: is it in another unit\?"):
        read_trace(path, format)
    path.write_text(f"{header}\n{row.format(1_760_000_000)}\n")
    assert len(read_trace(path, format)) == 1


def served(path: Path, id_tokens: int) -> Any:
    cost = {"a_ms": 8.0, "prefill_ms_per_token": 0.06, "decode_ms_per_seq": 0.15}
    llm = {
        "max_seqs": 64,
        "token_budget": 2048,
        "kv_blocks": 8000,
        "cost": cost,
        "ttft_slo_ms": 500,
        "tpot_slo_ms": 40,
    }
    data = {
        "domain": "serving",
        "seed": 1,
        "trace": {"file": str(path)},
        "stages": [{"name": "Chat", "parents": ["source"]}],
        "configuration": {
            "Chat": {"hardware": "H100", "replicas": 1, "llm": llm | {"prefix_cache": {"id_tokens": id_tokens}}}
        },
        "prices_usd_per_h": {"H100": 4.0},
        "intervals": {"replications": 0},
    }  # fmt: skip
    return simulate(from_data(data))


def test_conversations_in_seconds_meet_their_objectives(tmp_path: Path) -> None:
    result = served(written(tmp_path, lines(keys=BAILIAN)), 16)
    assert result.summary["attainment"] == 1
    assert (
        "calls.jsonl is read as qwen_bailian: times in seconds, 16 tokens a number of hash_ids"
        in result.notes
    )


@pytest.mark.parametrize(
    ("id_tokens", "fault"), [(512, "60 requests have too many"), (8 * 16, "have too many")]
)
def test_too_many_numbers_are_an_error_as_too_few_are(tmp_path: Path, id_tokens: int, fault: str) -> None:
    path = written(tmp_path, lines(scale=1e3))
    with pytest.raises(ForerunError, match=fault) as caught:
        served(path, id_tokens)
    assert "id_tokens: 16 fits them all" in str(caught.value)
    assert served(path, 16).summary["hit_share"] > 0


@pytest.mark.parametrize("block", [16, 48, 512])
def test_the_advised_size_is_one_that_fits(tmp_path: Path, block: int) -> None:
    path = written(tmp_path, lines(block=block, scale=1e3))
    with pytest.raises(ForerunError, match="fits them all") as caught:
        served(path, 1600)
    advised = int(str(caught.value).partition("id_tokens: ")[2].split()[0])
    for row in map(json.loads, path.read_text().splitlines()):
        assert len(row["hash_ids"]) == math.ceil(row["input_length"] / advised)
