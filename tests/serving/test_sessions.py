"""Sessions: conversations, jobs of agents, recorded ones; what their prompts contain, and that each of them ends."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.core.domain import simulate
from forerun.core.errors import ForerunError
from forerun.core.scenarios import from_data
from forerun.core.trace.reader import read_trace
from forerun.serving.inputs.prepare import prepare

from .test_clients import LOOP

Data = dict[str, Any]

TURNS: Data = {"turns": 4.0, "pause_s": 1.0, "pause_cv": 1.0, "system_tokens": 40}
STEPS: Data = {
    "system_tokens": 32,
    "steps": [
        {"name": "answer", "after": ["search", "code"], "prompt": 10, "output": 30, "tool_s": 0.5},
        {"name": "plan", "prompt": 100, "output": 20},
        {"name": "search", "after": ["plan"], "prompt": 15, "output": 10, "tool_s": 2.0, "tool_cv": 1.0},
        {"name": "code", "after": ["plan"], "prompt": 50, "output": 25, "context": "fresh"},
    ],
}


def scenario(sessions: Data | None, trace: Data | None = None, **llm: Any) -> Any:
    chat = LOOP["configuration"]["Chat"]
    own = {name: value for name, value in (chat["llm"] | llm).items() if value is not None}
    replicas = own.pop("replicas", 1)
    data = LOOP | {"configuration": {"Chat": chat | {"llm": own, "replicas": replicas}}}
    data |= {} if sessions is None else {"sessions": sessions}
    return from_data(data | ({} if trace is None else {"trace": trace}))


def test_conversations_grow_and_wait() -> None:
    """A turn is all that came before with what the user adds; it comes a pause after the answer; the cache has what it
    continues."""
    result = simulate(
        scenario(
            TURNS,
            {"clients": 5, "queries": 60, "think_s": 1.0},
            prefix_cache={"history": True},
            kv_blocks=9000,
        )
    )
    turns, requests, sessions = (result.tables[name] for name in ("turns", "requests", "sessions"))
    assert result.summary["sessions"] == 60 == result.summary["sessions_complete"]
    assert sessions["queries"].sum() == len(turns["query"]) == result.summary["queries"]
    assert 2.5 < result.summary["queries"] / 60 < 6
    of = [np.flatnonzero(turns["session"] == session) for session in range(60)]
    for rows in of:
        assert turns["turn"][rows].tolist() == list(range(len(rows)))
        assert requests["prompt_tokens"][rows].tolist() == [40 + 300 + 330 * k for k in range(len(rows))]
        for before, after in pairwise(rows):
            assert requests["enqueue_ms"][after] > requests["end_ms"][before]
    longer = np.array([rows[0] for rows in of if len(rows) > 1])
    begin, end = (
        requests["enqueue_ms"][longer],
        [requests["end_ms"][of[s][-1]] for s in turns["session"][longer]],
    )
    assert np.allclose(sessions["time_ms"][turns["session"][longer]], end - begin)
    # All whole blocks of what a turn continues are there; no iteration processes the last token of an answer.
    continued = sum((369 + 330 * (k - 1)) // 16 * 16 for rows in of for k in range(1, len(rows)))
    assert continued <= result.summary["hit_tokens"] <= continued + 60 * 32
    without = simulate(scenario(TURNS, {"clients": 5, "queries": 60, "think_s": 1.0}, kv_blocks=9000))
    assert without.summary["ttft_p90_ms"] > result.summary["ttft_p90_ms"]


def test_what_prompts_of_an_agent_contain() -> None:
    """Answers of the steps that one follows, the context of the first of them or none, and its own tokens; blocks are those
    of the context that it continues."""
    trace = {"process": {"name": "poisson", "rate_rps": 2.0}, "queries": 3}
    made = scenario(STEPS, trace, tokens=None, prefix_cache={"history": True}, block_tokens=8)
    llm = prepare(made).pipeline.stages[0].llm
    assert llm is not None and llm.shared is not None
    plan, search = 32 + 100, 32 + 100 + 20 + 15
    code, answer = 32 + 20 + 50, search + 10 + 25 + 10
    assert llm.prompt.tolist() == [plan, search, code, answer] * 3
    chains = [llm.shared.chains[begin:end].tolist() for begin, end in pairwise(llm.shared.start.tolist())]
    assert all(chain[:4] == [0, 1, 2, 3] and len(set(chain)) == len(chain) for chain in chains)
    assert chains[1][: (plan + 20) // 8] == chains[0][: (plan + 20) // 8]
    assert chains[3][: (search + 10) // 8] == chains[1][: (search + 10) // 8]
    assert set(chains[2][4:]).isdisjoint({one for k in (0, 1, 3) for one in chains[k]})
    assert set(chains[0][4:]).isdisjoint({one for chain in chains[4:] for one in chain})


def test_jobs_fork_and_join() -> None:
    trace = {"process": {"name": "poisson", "rate_rps": 2.0}, "queries": 40}
    result = simulate(scenario(STEPS, trace, tokens=None))
    turns, requests = result.tables["turns"], result.tables["requests"]
    for session in range(40):
        rows = np.flatnonzero(turns["session"] == session)
        by_prompt = {int(requests["prompt_tokens"][row]): row for row in rows}
        plan, search, code, answer = (by_prompt[tokens] for tokens in (132, 167, 102, 212))
        end_ms, begin_ms = requests["end_ms"], requests["enqueue_ms"]
        assert begin_ms[code] == end_ms[plan] and begin_ms[search] > end_ms[plan]
        assert begin_ms[answer] == pytest.approx(max(end_ms[search], end_ms[code]) + 500.0)
    assert result.summary["session_p50_ms"] > 500 + 1000 and result.summary["sessions_complete"] == 40


@pytest.mark.parametrize("patience_s", [0.25, 0.4, 5.0])
def test_every_session_ends_in_one_way(patience_s: float) -> None:
    """Who waits too long gives up, what never fits is refused, and nothing else is left unsent."""
    result = simulate(
        scenario(TURNS | {"patience_s": patience_s}, {"clients": 9, "queries": 50}, kv_blocks=100)
    )
    sessions, figures = result.tables["sessions"], result.summary
    ways = {way: sessions["ended"] == way for way in ("complete", "abandoned", "refused")}
    assert sum(way.sum() for way in ways.values()) == 50 == figures["sessions"]
    assert (sessions["unsent"][ways["complete"]] == 0).all() and (
        sessions["unsent"][ways["abandoned"]] > 0
    ).all()
    assert figures["sessions_refused"] == figures["refused"]
    requests, turns = result.tables["requests"], result.tables["turns"]
    last = {int(s): int(q) for q, s in zip(turns["query"], turns["session"])}
    gave_up = [requests["e2e_ms"][last[s]] for s in np.flatnonzero(ways["abandoned"])]
    assert (np.array(gave_up) > patience_s * 1e3).all()
    assert (figures["sessions_abandoned"] > 0) == (patience_s < 1)


@pytest.mark.parametrize(("warm_up", "timed"), [(None, True), (30, False)])
def test_sessions_without_times_say_why(warm_up: int | None, timed: bool) -> None:
    """Every session has a query in the warm-up: none is counted whole, so figures have no value, and a note says it."""
    trace = {"clients": 12, "queries": 12}
    made = scenario(TURNS | {"turns": 9.0}, trace).with_(warm_up=warm_up)
    result = simulate(made)
    notes = [note for note in result.notes if note.startswith("sessions have no times")]
    assert np.isfinite(result.summary["session_p50_ms"]) == timed and len(notes) == (not timed)
    if not timed:
        begun, whole = map(int, re.findall(r"(\d+) have one there, and (\d+) have none", notes[0])[0])
        assert whole == len(result.tables["sessions"]) and begun + whole == 12


def lines(path: Path, records: list[Data]) -> str:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return str(path)


def chats(tmp_path: Path, **changes: Any) -> str:
    columns = ("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "hash_ids")
    rows = [
        (7, -1, 0.0, 64, 40, [1, 2, 3, 4]),
        (8, -1, 0.1, 20, 5, [9, 10]),
        (9, 7, 0.2, 96, 9, [1, 2, 3, 4, 5, 6]),
        (10, 8, 9.0, 30, 9, [9, 10]),
    ]
    records = [dict(zip(columns, row)) for row in rows]
    return lines(tmp_path / "chat.jsonl", [record | changes for record in records[:1]] + records[1:])


def test_recorded_conversations(tmp_path: Path) -> None:
    """A turn comes when it came, but not before the answer to the one before."""
    trace = {"file": {"path": chats(tmp_path)}}
    result = simulate(scenario({"follow": "recorded"}, trace, tokens=None, prefix_cache={"id_tokens": 16}))
    requests, sessions = result.tables["requests"], result.tables["sessions"]
    assert sessions["queries"].tolist() == [2, 2]
    assert requests["enqueue_ms"].tolist() == [0.0, 100.0, requests["end_ms"][0], 9000.0]
    assert requests["end_ms"][0] > 200.0
    alone = simulate(scenario(None, trace, tokens=None, prefix_cache={"id_tokens": 16}))
    assert alone.tables["requests"]["enqueue_ms"].tolist() == [0.0, 100.0, 200.0, 9000.0]
    assert "sessions" not in alone.tables


def test_recorded_pauses(tmp_path: Path) -> None:
    """Lines of one session of a Mooncake trace follow each other, a delay after the answer."""
    record = {"timestamp": 0, "input_length": 600, "output_length": 30, "hash_ids": [0, 1]}
    more = [record | {"session_id": s, "delay": 250} for s in ("a", "b", "a")]
    trace = {"file": {"path": lines(tmp_path / "m.jsonl", more)}}
    result = simulate(scenario({"follow": "recorded"}, trace, tokens=None))
    requests = result.tables["requests"]
    assert result.tables["sessions"]["queries"].tolist() == [2, 1]
    assert requests["enqueue_ms"][2] == pytest.approx(requests["end_ms"][0] + 250)


def span(name: str, begin_s: float, end_s: float, tokens: int = 50, **more: str) -> Data:
    attributes = {"gen_ai.usage.input_tokens": tokens, "gen_ai.usage.output_tokens": 8} | more
    kinds = {int: "intValue", str: "stringValue"}
    return {
        "traceId": "t", "spanId": name,
        "startTimeUnixNano": str(int(begin_s * 1e9)), "endTimeUnixNano": str(int(end_s * 1e9)),
        "attributes": [{"key": key, "value": {kinds[type(value)]: value}} for key, value in attributes.items()],
    }  # fmt: skip


def exported(*spans: Data) -> Data:
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


@pytest.mark.parametrize("whole", [False, True])
def test_spans_tell_forks_and_joins(whole: bool, tmp_path: Path) -> None:
    """Requests follow those that had ended when they began; an agent's own span is the sum of others."""
    agent = span("agent", 0.5, 9.0, 999) | {}
    agent["attributes"].append({"key": "gen_ai.operation.name", "value": {"stringValue": "invoke_agent"}})
    parts = [span("a", 1, 2), agent, span("c", 2.6, 3.5, 140), span("b", 2.5, 3, 130), span("d", 4, 5, 180)]
    other = span("x", 4.5, 6, **{"gen_ai.conversation.id": "talk"})
    path = tmp_path / "spans.json"
    if whole:
        path.write_text(json.dumps(exported(*parts, other), indent=1))
    else:
        lines(path, [exported(*parts[:2]), exported(*parts[2:], other)])
    read = read_trace(path)
    assert read.provenance.format == "otel_genai"
    assert read["id"].tolist() == ["a", "b", "c", "d", "x"]
    assert read["after"].tolist() == ["", "a", "a", "b c", ""]
    assert read["pause_s"].tolist() == pytest.approx([0, 0.5, 0.6, 0.5, 0])
    assert read["arrival_s"].tolist() == pytest.approx([0, 1.5, 1.6, 3.0, 3.5])
    result = simulate(scenario({"follow": "recorded"}, {"file": {"path": str(path)}}, tokens=None))
    requests = result.tables["requests"]
    at = {int(tokens): row for row, tokens in enumerate(requests["prompt_tokens"])}
    joined = max(requests["end_ms"][at[130]], requests["end_ms"][at[140]])
    assert requests["enqueue_ms"][at[180]] == pytest.approx(joined + 500)
    assert result.summary["sessions"] == 2


def test_logs_of_gateways_by_their_own_names(tmp_path: Path) -> None:
    path = tmp_path / "gateway.csv"
    path.write_text(
        "timestamp,input_tokens,completion\n2026-11-28T09:00:01.5Z,120,30\n2026-11-28T09:00:00Z,20,10\n"
    )
    names = ["arrival_time=timestamp", "prompt_tokens=input_tokens", "output_tokens=completion"]
    read = read_trace(path, options={"names": names})
    assert read["arrival_s"].tolist() == [0.0, 1.5] and read["prompt_tokens"].tolist() == [20, 120]
    for wrong, message in (
        (
            None,
            "none of arrival_s, arrival_ms, arrival_time; one of them is needed; or say what it calls them",
        ),
        (["arrival_time=timestmp"], "has no 'timestmp'; did you mean 'timestamp'"),
        (["arrival=timestamp"], "no column 'arrival'"),
    ):
        with pytest.raises(ForerunError, match=message):
            read_trace(path, options={} if wrong is None else {"names": wrong})


def test_following_is_read_from_csv(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(
        "arrival_s,prompt_tokens,output_tokens,id,after,pause_s\n0,9,9,a,,0\n0,9,9,b,a,0.5\n1,9,9,c,a b,0\n"
    )
    result = simulate(scenario({"follow": "recorded"}, {"file": {"path": str(path)}}, tokens=None))
    requests = result.tables["requests"]
    assert requests["enqueue_ms"][1] == requests["end_ms"][0] + 500
    assert requests["enqueue_ms"][2] == requests["end_ms"][1] and result.summary["sessions"] == 1


@pytest.mark.parametrize(
    ("sessions", "changes", "message"),
    [
        (
            {"follow": "recorded"},
            {"parent_chat_id": 55},
            "1 requests follow one that is not in the trace, first '7'",
        ),
        ({"follow": "recorded"}, {"parent_chat_id": 9}, "2 requests follow each other in a cycle"),
        ({"follow": "recorded"}, {"parent_chat_id": 7}, "2 requests follow each other in a cycle"),
        ({"turns": 3.0}, {}, "prefix_cache: of sessions with turns or steps is {history: true}"),
    ],
)
def test_bad_recorded_sessions(sessions: Data, changes: Data, message: str, tmp_path: Path) -> None:
    trace = {"file": {"path": chats(tmp_path, **changes)}}
    with pytest.raises(ForerunError, match=message) as caught:
        simulate(scenario(sessions, trace, tokens=None, prefix_cache={"id_tokens": 16}))
    assert len(caught.value.problems) == 1
    if "not in the trace" in message:
        begun = scenario(sessions | {"missing": "begin"}, trace, tokens=None, prefix_cache={"id_tokens": 16})
        assert simulate(begun).summary["sessions"] == 2


def test_a_trace_may_say_when_conversations_begin(tmp_path: Path) -> None:
    """Its tokens are not those of turns."""
    path = tmp_path / "r.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,9,9\n5,9,9\n")
    trace, of = {"file": {"path": str(path)}}, {"turns": 3, "turns_law": "constant"}
    result = simulate(scenario(of, trace))
    assert result.summary["queries"] == 6 and result.summary["sessions"] == 2
    with pytest.raises(ForerunError, match="the trace has no tokens: say tokens"):
        simulate(scenario(of, trace, tokens=None))


def step(name: str, *after: str) -> Data:
    return {"name": name, "after": list(after), "prompt": 5, "output": 5}


@pytest.mark.parametrize(
    ("sessions", "message"),
    [
        ({"steps": [step("a"), step("b", "a"), step("c", "a")]}, "steps: b and c never join"),
        ({"steps": [step("a", "b"), step("b", "a")]}, "steps: a, b are part of a cycle"),
        ({"steps": [step("a"), step("b", "x")]}, "steps[1].after: no step named 'x'"),
        ({"steps": [step("a"), step("a")]}, "steps[1].name: 'a' stands twice"),
        ({"steps": []}, "steps: lists no step"),
        ({"steps": [step("a"), step("b", "a", "a")]}, "steps[1].after[1]: 'a' stands twice"),
        ({"turns": 2.0, "system_tokens": 10**25}, "system_tokens: 10000000000000000000000000 is not between"),
        ({"turns": 0.5}, "turns: 0.5 is not between 1 and 10,000"),
        ({"turns": 2.5, "turns_law": "constant"}, "turns: 2.5 is no whole number"),
        ({"turns": 2.0, "pause_s": -1.0}, "pause_s: -1.0 is negative"),
        ({"turns": 2.0, "patience_s": 0.0}, "patience_s: 0.0 is not above 0"),
        ({"follow": "recorded"}, "sessions.follow: needs a trace with a file"),
    ],
)
def test_bad_sessions(sessions: Data, message: str) -> None:
    with pytest.raises(ForerunError, match=re.escape(message)) as caught:
        scenario(sessions, tokens=None if "steps" in sessions else {"prompt": 9, "output": 9})
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("tokens", "message"),
    [("1e999", ":1: "), ('"x"', ":1: a span has no whole number"), ('"-4"', ":1: span 'a'")],
)
def test_bad_spans(tokens: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "spans.json"
    path.write_text(
        json.dumps(exported(span("a", 1, 2, 77))).replace('"77"', tokens).replace(" 77", f" {tokens}")
    )
    with pytest.raises(ForerunError, match=message):
        read_trace(path)


def test_names_of_spans_may_have_blanks(tmp_path: Path) -> None:
    path = tmp_path / "spans.json"
    path.write_text(json.dumps(exported(span("a b", 1, 2), span("c", 3, 4))))
    read = read_trace(path)
    assert read["after"].tolist()[1].split() == [read["id"][0]]
