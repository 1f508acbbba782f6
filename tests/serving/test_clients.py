"""Clients who wait for answers: two engines, the trace that comes out of them, conservation, and queueing theory."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from forerun.core.domain import simulate
from forerun.core.errors import ForerunError
from forerun.core.scenarios import from_data
from forerun.serving.engine.events import sent_by_clients, simulate_events
from forerun.serving.figures import figures
from forerun.serving.inputs.clients import UNLIMITED, Clients, Sent
from forerun.serving.inputs.pipeline import Pipeline
from forerun.serving.llm.engine.kernels.endings import ABANDONED, COMPLETE, REFUSED
from forerun.serving.llm.engine.pipeline import simulate_mixed
from forerun.serving.llm.engine.stage import LanguageStage
from forerun.serving.llm.inputs.model import Cost, LanguageModel

from ..conftest import cases
from .random_llm_pipelines import (
    apart_pipeline,
    changing_pipeline,
    crowded_pipeline,
    equal,
    llm_pipeline,
    mixed_pipeline,
    prefix_pipeline,
    speculative_pipeline,
)

Data = dict[str, Any]


def drawn_clients(seed: int, planned_ms: np.ndarray) -> Clients:
    """Sessions of one to six requests, each of which follows some before it or none; half on an integer clock, as the
    requests are; clients or planned sessions; any limits."""
    rng = np.random.default_rng(70_000 + seed)
    n = len(planned_ms)
    whole = bool((planned_ms == np.round(planned_ms)).all())
    session = np.cumsum(rng.random(n) < rng.choice([1.0, 0.6, 0.3])) - 1
    session -= session[0]
    links = [
        (before, one)
        for one in range(n)
        for before in range(max(0, one - 4), one)
        if session[before] == session[one] and rng.random() < 0.6
    ]
    before = np.array([link[0] for link in links], dtype=np.int64)
    order = np.argsort(before, kind="stable")
    sessions = int(session[-1]) + 1

    def times(size: int, mean: float) -> np.ndarray:
        drawn = rng.exponential(mean, size) * (rng.random(size) < 0.7)
        return np.round(drawn) if whole else drawn

    clients = int(rng.choice([0, 1, 3, 20]))
    return Clients(
        planned_ms if not clients or rng.random() < 0.3 else np.zeros(n),
        session,
        np.concatenate([[0], np.cumsum(np.bincount(before, minlength=n))]),
        np.array([link[1] for link in links], dtype=np.int64)[order],
        times(n, 30.0),
        np.sort(times(clients, 50.0)),
        times(sessions, 20.0),
        np.where(rng.random(sessions) < 0.3, times(sessions, 80.0), np.inf),
        int(rng.choice([1, 2, 7, UNLIMITED])),
        int(rng.choice([1, 3, UNLIMITED, UNLIMITED])),
        int(rng.choice([0, 2, UNLIMITED])),
    )


#: crowded worlds in which one of these showed: swapped out, a decode came back with more drafts than a chunk may have; what
#: one that ran had just stored was not seen by who waited for it; who had passed a gateway joined behind who came then
ONCE_DIFFERENT = (66, 133, 273, 572)


@pytest.mark.parametrize("world", [llm_pipeline, prefix_pipeline, changing_pipeline, crowded_pipeline])
def test_compiled_equals_plain_and_the_trace_that_comes_out(world: Any) -> None:
    """The kernel sends what the event loop sends; and the same requests, arriving then, are served alike."""
    for seed in (*range(cases(25, 150)), *ONCE_DIFFERENT):
        pipeline, arrivals = world(seed)
        clients = drawn_clients(seed, arrivals)
        (stage,) = pipeline.stages
        server = LanguageStage(stage.llm, stage.replicas, keep=False, capacity=stage.capacity)
        sent, plain = server.run_closed(clients), sent_by_clients(pipeline, clients)
        for name in ("sent_ms", "late_ms", "passed_ms", "order", "ended"):
            column = getattr(sent, name)
            assert np.array_equal(column, getattr(plain, name), equal_nan=column.dtype.kind == "f"), (
                seed,
                name,
            )
        rows, arrival_ms = behind(pipeline, sent).rows(sent.order), sent.sent_ms[sent.order]
        again = simulate_mixed(rows, arrival_ms, 20.0)
        assert equal(simulate_events(rows, arrival_ms, 20.0), again), seed
        visits, _, requests = server.record(len(clients))
        assert np.array_equal(visits.end_ms[sent.order], again.visits[0].end_ms), seed
        assert again.requests[0] is not None
        assert np.array_equal(requests.first_ms[sent.order], again.requests[0].first_ms, equal_nan=True), seed
        conserved(clients, sent, again.finish_ms)


def behind(pipeline: Pipeline, sent: Sent) -> Pipeline:
    """The pipeline with what its gateway has let pass."""
    (stage,) = pipeline.stages
    assert stage.llm is not None
    return replace(pipeline, stages=(replace(stage, llm=replace(stage.llm, passed_ms=sent.passed_ms)),))


def conserved(clients: Clients, sent: Sent, finish_ms: np.ndarray) -> None:
    """Every session ends in one way, sends what that way says, and no more is under way than may be."""
    arrival_ms = sent.sent_ms[sent.order]
    assert len(np.unique(sent.order)) == len(sent.order) and (np.diff(arrival_ms) >= 0).all()
    whole = ~np.isnan(sent.sent_ms)
    assert set(np.flatnonzero(whole)) == set(sent.order)
    assert (sent.sent_ms[whole] >= clients.planned_ms[whole]).all()
    refused = np.isnan(sent.passed_ms) & whole
    for s in range(clients.sessions):
        mine = clients.session == s
        match sent.ended[s]:
            case 1:
                assert whole[mine].all() and not refused[mine].any()
            case 2:
                assert not whole[mine].all() and not refused[mine].any()
            case 3:
                assert np.count_nonzero(refused & mine) == 1
            case _:
                raise AssertionError(f"session {s} does not end")
    end_ms = np.full(len(clients), np.nan)
    end_ms[sent.order] = finish_ms
    for before in range(len(clients)):
        for one in clients.followers[clients.begin[before] : clients.begin[before + 1]]:
            if whole[one]:
                assert sent.sent_ms[one] >= end_ms[before] + clients.pause_ms[one]
    served = ~refused[sent.order]
    change = np.concatenate([np.ones(served.sum()), -np.ones(served.sum())])
    at_ms = np.concatenate([arrival_ms[served], finish_ms[served]])
    assert np.cumsum(change[np.lexsort((change, at_ms))]).max(initial=0) <= clients.most
    passed_ms = sent.passed_ms[sent.order][served]
    assert (passed_ms >= arrival_ms[served]).all() and (np.diff(passed_ms) >= 0).all()
    inside_ms = np.concatenate([passed_ms, finish_ms[served]])
    assert np.cumsum(change[np.lexsort((change, inside_ms))]).max(initial=0) <= clients.gate
    waits = passed_ms > arrival_ms[served]
    line_ms = np.concatenate([arrival_ms[served][waits], passed_ms[waits]])
    order = np.lexsort((np.repeat([1, 0], waits.sum()), line_ms))
    assert np.cumsum(np.repeat([1, -1], waits.sum())[order]).max(initial=0) <= clients.queue


def test_sessions_are_chosen_whole() -> None:
    """Those chosen have the requests of the originals, with what follows what, moved to another instant."""
    for seed in range(cases(25)):
        rng = np.random.default_rng(71_000 + seed)
        load = drawn_clients(seed, np.sort(rng.uniform(0, 1e3, 40)))
        chosen = rng.integers(load.sessions, size=rng.integers(1, 9))
        at_ms = rng.uniform(0, 1e3, len(chosen))
        rows, other = load.sessions_at(chosen, at_ms)
        assert other.sessions == len(chosen) and len(rows) == len(other)
        for s, (session, begin_ms) in enumerate(zip(chosen.tolist(), at_ms.tolist())):
            mine = np.flatnonzero(other.session == s)
            assert rows[mine].tolist() == np.flatnonzero(load.session == session).tolist()
            shift_ms = begin_ms - load.begin_ms[session]
            assert np.allclose(other.planned_ms[mine], load.planned_ms[rows[mine]] + shift_ms)
            assert other.begin_ms[s] == pytest.approx(begin_ms)
            for one in mine.tolist():
                behind = other.followers[other.begin[one] : other.begin[one + 1]]
                own = load.followers[load.begin[rows[one]] : load.begin[rows[one] + 1]]
                assert set(behind) <= set(mine) and rows[behind].tolist() == own.tolist()
                assert other.pause_ms[one] == load.pause_ms[rows[one]]


def test_replicas_change_in_slices_as_they_do_when_known_before() -> None:
    """What a tuner decides between slices has the clients send what they send where it is known from the start."""
    for seed in range(cases(15)):
        pipeline, arrivals = changing_pipeline(seed)
        (stage,) = pipeline.stages
        clients = replace(drawn_clients(seed, arrivals), gate=UNLIMITED)
        most = max(stage.replicas, *(count for _, count in stage.capacity), 1)
        known = LanguageStage(stage.llm, stage.replicas, keep=False, capacity=stage.capacity)
        sliced = LanguageStage(stage.llm, stage.replicas, keep=False, most=most)
        whole = known.run_closed(clients)
        sliced.open_to(clients)
        for at_ms, count in stage.capacity:
            sliced.advance(at_ms)
            before = sliced.sent_by(clients)
            assert (before.sent_ms[before.order] < at_ms).all()
            sliced.reschedule([(at_ms, count)])
        sliced.advance(math.inf)
        again = sliced.sent_by(clients)
        for name in ("sent_ms", "order", "ended"):
            assert np.array_equal(getattr(whole, name), getattr(again, name), equal_nan=name == "sent_ms"), (
                seed
            )


@pytest.mark.parametrize("tuner", ["attainment", "utilisation"])
def test_a_tuner_follows_clients(tuner: str) -> None:
    """It adds replicas under more clients than one carries, and as many as there are change nothing."""
    busy = LOOP | {"trace": LOOP["trace"] | {"clients": 60, "queries": 600}}
    fixed = simulate(from_data(busy))
    kept = simulate(from_data(busy | {"tuner": {"name": tuner, "period_s": 1.0, "max_replicas": 1}}))
    assert kept.summary["ttft_p99_ms"] == fixed.summary["ttft_p99_ms"] and not kept.summary["decisions"]
    result = simulate(from_data(busy | {"tuner": {"name": tuner, "period_s": 1.0, "max_replicas": 8}}))
    assert result.summary["ttft_p50_ms"] < fixed.summary["ttft_p50_ms"]
    assert result.summary["makespan_ms"] < fixed.summary["makespan_ms"]
    assert result.summary["decisions_up"] > 0
    shown = {figure.id for figure in figures(result)}
    assert {"load-over-time", "replicas-over-time"} <= shown and "misses-over-time" not in shown


def test_the_worlds_contain_what_they_should() -> None:
    ended, late = np.zeros(4, dtype=int), 0
    for seed in range(60):
        pipeline, arrivals = llm_pipeline(seed)
        sent = sent_by_clients(pipeline, drawn_clients(seed, arrivals))
        ended += np.bincount(sent.ended, minlength=4)
        late += bool((sent.late_ms > 0).any())
    assert ended[COMPLETE] > 600 and ended[ABANDONED] > 20 and ended[REFUSED] > 100 and late > 20


@pytest.mark.parametrize("world", [mixed_pipeline, apart_pipeline, speculative_pipeline])
def test_any_pipeline_has_clients(world: Any) -> None:
    """The event loop serves what comes out as the compiled stages do, with what is drawn for each request."""
    for seed in range(cases(12, 60)):
        pipeline, arrivals = world(seed)
        if any(edge.share is not None for stage in pipeline.stages for edge in stage.edges):
            continue
        clients = replace(drawn_clients(seed, arrivals), gate=UNLIMITED)
        sent = sent_by_clients(pipeline, clients)
        rows, arrival_ms = pipeline.rows(sent.order), sent.sent_ms[sent.order]
        run = simulate_mixed(rows, arrival_ms, 20.0)
        assert np.array_equal(simulate_events(rows, arrival_ms, 20.0).finish_ms, run.finish_ms)
        conserved(clients, sent, run.finish_ms)


def test_an_open_load_is_sent_as_planned() -> None:
    """Where nothing waits for answers, clients send every request when it is planned."""
    for seed in range(cases(10)):
        pipeline, arrivals = llm_pipeline(seed)
        sent = sent_by_clients(pipeline, Clients.single(arrivals))
        assert np.array_equal(sent.sent_ms, arrivals) and not sent.late_ms.any()


def test_a_limit_of_one_sends_one_after_the_other() -> None:
    """Clients without thinking are a limit of requests under way."""
    for seed in range(cases(10)):
        pipeline, _ = llm_pipeline(seed)
        n = len(pipeline.stages[0].llm.prompt)
        for most in (1, 3, 1000):
            at_once = Clients.single(np.zeros(n), most=most)
            loop = Clients.single(np.zeros(n), joins_ms=np.zeros(min(most, n)))
            limited, closed = (sent_by_clients(pipeline, clients) for clients in (at_once, loop))
            assert np.array_equal(limited.sent_ms, closed.sent_ms)


@pytest.mark.parametrize(("clients", "think_ms"), [(1, 100.0), (4, 150.0), (4, 1000.0), (12, 400.0)])
def test_machine_repair(clients: int, think_ms: float) -> None:
    """Answers of a geometric number of tokens on one seat are exponential service: throughput, requests under way and times
    of N clients who think are those of the machine-repair model (M/M/1//N)."""
    n, mean_ms, rng = 30_000, 100.0, np.random.default_rng(clients)
    output = rng.geometric(1 / mean_ms, n)
    llm = LanguageModel(1, 8, 10**6, 16, Cost((1.0, 0.0, 0.0, 0.0, 0.0)), np.ones(n, dtype=np.int64), output)
    stage = LanguageStage(llm, 1, keep=False)
    load = Clients.single(np.zeros(n), joins_ms=np.zeros(clients), think_ms=rng.exponential(think_ms, n))
    sent = stage.run_closed(load)
    visits, _, _ = stage.record(n)
    weights = [math.perm(clients, k) * (mean_ms / think_ms) ** k for k in range(clients + 1)]
    p = np.array(weights) / sum(weights)
    throughput = (1 - p[0]) / mean_ms
    shown = n / (visits.end_ms.max() - 0.0)
    assert shown == pytest.approx(throughput, rel=0.04)
    mean_at_once = float(p @ np.arange(clients + 1))
    latency_ms = (visits.end_ms - sent.sent_ms)[n // 20 :]
    assert latency_ms.mean() == pytest.approx(mean_at_once / throughput, rel=0.04)
    # Little's law around the loop, exactly: who does not wait thinks.
    assert latency_ms.mean() + think_ms == pytest.approx(clients / throughput, rel=0.03)


LOOP: Data = {
    "domain": "serving",
    "trace": {"clients": 6, "queries": 150, "think_s": 0.2, "think_cv": 1.0, "ramp_up_s": 0.5},
    "stages": [{"name": "Chat", "parents": ["source"]}],
    "configuration": {
        "Chat": {
            "hardware": "H100",
            "llm": {
                "max_seqs": 8, "token_budget": 512, "kv_blocks": 800,
                "cost": {"a_ms": 6.0, "prefill_ms_per_token": 0.05, "decode_ms_per_seq": 0.1},
                "tokens": {"prompt": 300, "output": 30}, "ttft_slo_ms": 500.0,
            },
        }
    },
    "prices_usd_per_h": {"H100": 4.0},
    "intervals": {"replications": 0},
}  # fmt: skip


def test_a_closed_loop_in_a_scenario() -> None:
    result = simulate(from_data(LOOP))
    queries = result.tables["queries"]
    assert result.summary["queries"] == 150 and (np.diff(queries["arrival_ms"]) >= 0).all()
    assert queries["arrival_ms"][0] == 0.0
    begin, end = queries["arrival_ms"].min(), queries["finish_ms"].max()
    assert result.summary["under_way_mean"] == pytest.approx(queries["latency_ms"].sum() / (end - begin))
    assert result.summary["under_way_mean"] < 6
    behind = simulate(from_data(LOOP | {"max_concurrency": 2}))
    assert behind.summary["sent_late_max_ms"] > 0 and any("2 are under way" in note for note in behind.notes)


@pytest.mark.parametrize("change", [{}, {"warm_up": 4}, {"max_concurrency": 2}])
def test_clients_who_all_begin_at_once_have_a_rate(change: Data) -> None:
    """Queries over the time until the last answer, which replicas are busy for at least as long as their work takes."""
    at_once = {"clients": 12, "queries": 12}
    summary = simulate(from_data(LOOP | {"trace": at_once} | change)).summary
    hours = summary["cost_usd"] / summary["cost_usd_per_h"]
    assert summary["rate_rps"] == pytest.approx(summary["queries"] / hours / 3600)
    assert 0.3 < summary["busiest_load"] < 1


def test_queries_that_warm_up_are_not_counted() -> None:
    whole, rest = simulate(from_data(LOOP)), simulate(from_data(LOOP | {"warm_up": 50}))
    assert rest.summary["queries"] == 100
    for name in ("arrival_ms", "latency_ms"):
        assert np.array_equal(rest.tables["queries"][name], whole.tables["queries"][name][50:])
    ttft = whole.tables["requests"]["ttft_ms"][50:]
    assert rest.summary["ttft_p99_ms"] == pytest.approx(np.quantile(ttft, 0.99))


@pytest.mark.parametrize("world", [llm_pipeline, apart_pipeline, speculative_pipeline])
def test_times_between_tokens_count_no_query_that_warms_up(world: Any) -> None:
    """As the plain replicas have them request by request; all tokens behind the first of the others, and no others."""
    for seed in range(cases(10)):
        pipeline, arrivals = world(seed)
        (stage,) = pipeline.stages
        first, pool = len(arrivals) // 3, stage.llm.decode
        pool = pool and replace(pool, llm=replace(pool.llm, warm_up=first))
        llm = replace(stage.llm, warm_up=first, decode=pool)
        pipeline = replace(pipeline, stages=(replace(stage, llm=llm),))
        plain, run = simulate_events(pipeline, arrivals, 20.0), simulate_mixed(pipeline, arrivals, 20.0)
        assert equal(plain, run), seed
        requests, counted = run.requests[0], ~llm.refused[first:]
        right = 0 if requests.guesses is None else requests.guesses.accepted
        assert requests.gaps.sum() + right == (llm.output[first:][counted] - 1).sum()


def gated(**gateway: int) -> Data:
    """The configuration of the loop behind a gateway."""
    placed = LOOP["configuration"]["Chat"]
    return {"Chat": placed | {"llm": placed["llm"] | {"gateway": gateway}}}


GATED = gated(per_replica=2, queue=3)


def test_a_gateway_holds_back_and_refuses() -> None:
    """What waits there counts in the time to first token; no more wait than may, and the rest is refused."""
    open_ = LOOP | {"trace": {"process": {"name": "poisson", "rate_rps": 12.0}, "queries": 300}}
    free, gated = simulate(from_data(open_)), simulate(from_data(open_ | {"configuration": GATED}))
    assert gated.summary["turned_away"] == gated.summary["refused"] > 20
    assert gated.summary["gateway_wait_mean_ms"] > 20 and "turned_away" not in free.summary
    assert "refused because they never pass the full gateway of Chat" in gated.why
    assert "configuration.Chat.replicas=" in gated.next_steps[0]
    requests = gated.tables["requests"]
    served = ~requests["refused"]
    assert np.array_equal(requests["enqueue_ms"], free.tables["requests"]["enqueue_ms"])
    assert requests["queue_ms"][served].mean() > gated.summary["gateway_wait_mean_ms"]
    closed = simulate(from_data(LOOP | {"configuration": GATED}))
    assert closed.summary["turned_away"] > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trace": {"clients": 0, "queries": 9}}, "trace.clients: 0 is not between 1 and 1,000,000"),
        ({"trace": {"clients": 10**9, "queries": 9}}, "trace.clients: 1000000000 is not between"),
        ({"trace": {"clients": 1, "queries": 9, "think_s": -1.0}}, "trace.think_s: -1.0 is negative"),
        ({"trace": {"clients": 1, "queries": 0}}, "trace.queries: 0 is below 1"),
        (
            {"tuner": {"name": "ongoing", "max_replicas": 3}, "configuration": gated(per_replica=2)},
            "stands before the only stage",
        ),
        (
            {
                "tuner": {"name": "ongoing", "max_replicas": 3},
                "stages": [*LOOP["stages"], {"name": "B", "parents": ["Chat"]}],
                "configuration": LOOP["configuration"] | {"B": LOOP["configuration"]["Chat"]},
            },
            "tuners know of one language model alone",
        ),
        ({"max_concurrency": 0}, "max_concurrency: 0 is below 1"),
        (
            {"trace": {"clients": 1, "queries": 9, "think_s": 1e15}},
            "trace: instants near 9e.18 ms cannot tell a service of",
        ),
        (
            {"trace": {"clients": 2, "queries": 9, "ramp_up_s": 1e305}},
            "trace: instants near .* ms cannot tell a service of",
        ),
        ({"warm_up": 150}, "150 queries are left out of 150"),
        (
            {
                "stages": [*LOOP["stages"], {"name": "B", "parents": ["Chat"]}],
                "configuration": GATED | {"B": GATED["Chat"]},
            },
            "stands before the only stage",
        ),
    ],
)
def test_bad_clients(changes: Data, message: str) -> None:
    with pytest.raises(ForerunError, match=message) as caught:
        simulate(from_data(LOOP | changes))
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"max_concurrency": 10**30},
        {"configuration": gated(per_replica=2**62, queue=2**70)},
    ],
)  # fmt: skip
def test_limits_beyond_every_number_of_requests_limit_nothing(changes: Data) -> None:
    tables = [simulate(from_data(LOOP | more)).tables["queries"] for more in ({}, changes)]
    assert all(np.array_equal(tables[0][name], tables[1][name]) for name in ("arrival_ms", "latency_ms"))


def test_times_that_hardly_vary_are_their_mean() -> None:
    alike = [
        simulate(from_data(LOOP | {"trace": LOOP["trace"] | {"think_cv": cv}})).summary for cv in (0, 1e-160)
    ]
    assert alike[0] == alike[1]


def test_clients_wait_for_the_last_of_several_stages() -> None:
    """Who takes a drawn edge is answered later; what is sent in another order takes the edges drawn for it."""
    chat = LOOP["configuration"]["Chat"]
    data = LOOP | {
        "stages": [*LOOP["stages"], {"name": "Check", "parents": ["Chat"]}],
        "edges": [{"parent": "Chat", "stage": "Check", "share": 0.4}],
        "configuration": {"Chat": chat, "Check": chat},
    }
    result = simulate(from_data(data))
    visits = result.tables["visits"]
    assert 0.25 < (visits["stage"] == "Check").sum() / 150 < 0.55
    assert result.summary["under_way_mean"] < 6


def test_a_benchmark_states_its_rate() -> None:
    """The same gaps as the readers of its results draw; a ramp has more of its requests late."""
    of = {"name": "request-rate", "request_rate_rps": 5.0, "burstiness": 0.5}
    open_ = LOOP | {"trace": {"process": of, "queries": 400}}
    arrival_ms = simulate(from_data(open_)).tables["queries"]["arrival_ms"]
    assert arrival_ms[0] == 0 and arrival_ms[-1] == pytest.approx(399 * 200)
    gaps = np.diff(arrival_ms)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(2.0, rel=0.4)
    ramp = {
        "name": "request-rate",
        "ramp_up_strategy": "linear",
        "ramp_up_start_rps": 1.0,
        "ramp_up_end_rps": 9.0,
    }
    risen_ms = simulate(from_data(LOOP | {"trace": {"process": ramp, "queries": 400}})).tables["queries"][
        "arrival_ms"
    ]
    assert risen_ms[200] > 0.6 * risen_ms[-1]
    for wrong in (of | {"ramp_up_start_rps": 1.0}, {"name": "request-rate"}):
        with pytest.raises(ForerunError, match="give request_rate, or all of"):
            from_data(LOOP | {"trace": {"process": wrong, "queries": 9}})
    with pytest.raises(ForerunError, match="give queries"):
        simulate(from_data(LOOP | {"trace": {"process": of, "horizon_s": 9.0}}))
