"""Ties: which figures hang on the order of what happens at one instant."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import forerun
from forerun.core.cli.main import run as command_line
from forerun.core.domain import domain_names, get_domain, simulate
from forerun.core.study.ties import Orders, Ties, Untied, tie_sensitivity
from forerun.serving.explain import permuted

#: two queries at one instant: together they take 12 ms, one after the other 10 and 20 ms
EQUAL_QUERIES = """
domain: serving
trace: {arrivals_ms: [ARRIVALS]}
stages: [{name: a, parents: [source]}]
configuration: {a: {hardware: V100, max_batch: 2}}
service: {tables_ms: {a: [10, 12]}}
slo_ms: 15
prices_usd_per_h: {V100: 1}
intervals: {replications: 0}
"""


def equal_queries(arrivals: str) -> Any:
    return forerun.loads(EQUAL_QUERIES.replace("ARRIVALS", arrivals))


def orders(scenario: Any) -> Orders | Untied:
    """The other orders of a scenario's events, as its domain makes them."""
    explainer = get_domain(scenario.domain).explainer
    assert explainer is not None
    return explainer.orders(scenario)


def tried(scenario: Any, number: int = 10) -> Ties:
    """The tie sensitivity of a scenario."""
    found = orders(scenario)
    assert isinstance(found, Orders) and found.what
    return tie_sensitivity(forerun.simulate(scenario).summary, found, orders=number)


def test_twins_that_come_apart_by_hand() -> None:
    found = tried(equal_queries("5, 5"), 1)
    moved = {one.figure: (one.given, one.low, one.high) for one in found.moved}
    assert moved["latency_mean_ms"] == pytest.approx((12, 12, 15), abs=1e-4)
    assert moved["latency_max_ms"] == pytest.approx((12, 12, 20), abs=1e-4)
    assert moved["misses"] == (0, 0, 1) and "queries" not in moved


def test_an_arrival_at_the_instant_of_a_completion() -> None:
    """A query comes when the first of two ends: before it, both that wait go together; after it, one went alone."""
    found = tried(equal_queries("0, 3, 10"), 30)
    highest = {one.figure: (one.given, one.high) for one in found.moved}
    # Completions come first at one instant, but starts last: 3 and 10 go together, 3 waits 7 + 12 ms.
    given, high = highest["latency_mean_ms"]
    assert given == pytest.approx((10 + 19 + 12) / 3, abs=1e-4)
    # A hair late, 3 goes alone (17 ms) and 10 waits for it (20 ms).
    assert high == pytest.approx((10 + 17 + 20) / 3, abs=1e-4)


def test_without_ties_nothing_moves() -> None:
    found = tried(equal_queries("0, 3.3, 31.7, 50.1"))
    assert found.moved == () and found.figures > 5


def test_orders_are_the_same_each_time_and_differ_from_each_other() -> None:
    scenario = equal_queries("1, 1, 1, 1, 2, 2, 2")
    arrivals = [permuted(scenario, number).trace.arrivals_ms for number in (1, 1, 2)]  # type: ignore[union-attr]
    assert arrivals[0] == arrivals[1] != arrivals[2]
    assert all(len(one) == 7 and list(one) == sorted(one) for one in arrivals)


def test_what_moves_is_ranked_by_its_share() -> None:
    def result(number: int) -> Any:
        return SimpleNamespace(summary={"a": 10.0 + number, "b": 100.0 - number, "c": 1.0, "met": True})

    given = {**result(0).summary, "asked_for_once": 3.0}
    found = tie_sensitivity(given, Orders("rows", result), orders=3)
    assert (found.what, found.orders, found.figures) == ("rows", 3, 3)
    assert [(one.figure, one.low, one.high, one.share) for one in found.moved] == [
        ("a", 10.0, 12.0, 0.2), ("b", 98.0, 100.0, 0.02),
    ]  # fmt: skip


#: two jobs at once on one GPU, 100 and 300 s: the short one first they end at 100 and 400, else at 300 and 400 s
JOBS = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n"
CLUSTER = """
domain: cluster
trace: {file: jobs.csv}
machines: {nodes: [{count: 1, gpus: 1}]}
policy: fifo
"""


def test_jobs_of_one_second_change_places(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS + "a,5,1,,,1,1,100\nb,5,1,,,1,1,300\nc,9000,1,,,1,1,100\n")
    (tmp_path / "run.yaml").write_text(CLUSTER)
    found = tried(forerun.load(tmp_path / "run.yaml"), 4)
    moved = {one.figure: (one.given, one.low, one.high) for one in found.moved}
    assert moved["jct_mean_s"] == pytest.approx((200, 200, (300 + 400 + 100) / 3))
    assert "makespan_s" not in moved and "1 jobs follow another" in found.what
    (tmp_path / "jobs.csv").write_text(JOBS + "a,5,1,,,1,1,100\nb,6,1,,,1,1,300\n")
    assert isinstance(orders(forerun.load(tmp_path / "run.yaml")), Untied)


def test_a_loss_at_the_instant_of_a_step(tmp_path: Path) -> None:
    """A node goes when the third step ends: a hair earlier that step is lost, by hand 2 instead of 3."""
    (tmp_path / "fleet.csv").write_text("0,add,node0\n30000,remove,node0\n60000,add,node0\n")
    (tmp_path / "run.yaml").write_text(
        "domain: spot\nfleet: {name: trace, file: fleet.csv}\nhorizon: 35s\n"
        "job: {depth: 1, max_pipelines: 1, step_s: {1: 10}, samples_per_step: 1}\n"
    )
    found = tried(forerun.load(tmp_path / "run.yaml"), 12)
    moved = {one.figure: (one.given, one.low, one.high) for one in found.moved}
    assert moved["steps_completed"] == (3, 2, 3)


def test_submissions_of_one_instant_change_places() -> None:
    from forerun.energy.explain import permuted as rows_in
    from forerun.energy.inputs.workload import Submission

    rows = (Submission(0.0, 9.0, 1.0), Submission(10.0, 30.0, 1.5), Submission(10.0, 20.0, 0.5))
    ratios = set()
    for number in range(12):
        moved = rows_in(rows, 3, number)
        starts = [row.start_s for row in moved]
        assert starts == sorted(starts) and starts == pytest.approx([0, 10, 10], abs=2e-6)
        assert sorted(row.end_s - row.start_s for row in moved) == pytest.approx([9, 10, 20])
        assert rows_in(rows, 3, number) == moved
        ratios.add(tuple(row.runtime_ratio for row in moved))
    assert ratios == {(1.0, 1.5, 0.5), (1.0, 0.5, 1.5)}
    assert [row.runtime_ratio for row in rows_in(rows, 3, 0)] == [1.0, 0.5, 1.5], "the first is the opposite"


LOCKSTEP = """
domain: loading
dataset: {samples: 400, sample_bytes: 100000}
store: {latency_s: 10ms, slots: 3}
cpu: {decode_s: 2ms}
loader: {threads: 4, buffer_samples: 8}
step: {step_s: 5ms}
run: {batch: 16, epochs: 1}
"""


def test_threads_that_go_in_step() -> None:
    """Four threads on three slots, all alike: what a hair breaks is told, and the work done is not touched."""
    scenario = forerun.loads(LOCKSTEP)
    found = tried(scenario, 3)
    assert {"samples", "gets"}.isdisjoint(one.figure for one in found.moved) and found.figures > 5
    assert isinstance(orders(forerun.loads(LOCKSTEP.replace("threads: 4", "mode: workers"))), Untied)


@pytest.mark.parametrize("domain", domain_names())
def test_every_domain_says_how_its_instants_could_have_come_otherwise(domain: str, tmp_path: Path) -> None:
    """On its demonstration: other orders with a sentence of what changes, or a sentence of why there are none."""
    from forerun.core.catalog import demo

    found = orders(forerun.load(demo(domain).scenario))
    assert isinstance(found, (Orders, Untied))
    assert len(found.what if isinstance(found, Orders) else found.why) > 20


def test_recorded_edges_hold_the_arrivals_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arrival_ms,a>b\n1,1\n2,0\n")
    (tmp_path / "run.yaml").write_text(
        EQUAL_QUERIES.replace("{arrivals_ms: [ARRIVALS]}", "{file: t.csv}")
        .replace("parents: [source]}]", "parents: [source]}, {name: b, parents: [a]}]")
        .replace("max_batch: 2}}", "max_batch: 2}, b: {hardware: V100, max_batch: 1}}")
        .replace("[10, 12]}", "[10, 12], b: [1]}")
        + "edges: [{parent: a, stage: b, recorded: true}]\n"
    )
    found = orders(forerun.load(tmp_path / "run.yaml"))  # type: ignore[arg-type]
    assert isinstance(found, Untied) and "recorded beside the arrivals" in found.why


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(equal_queries("5, 5")).save(tmp_path / "run")
    assert command_line(["explain", str(tmp_path / "run"), "--ties", "3"]) == 0
    shown = capsys.readouterr().out
    assert "figures move under 3 other orders" in shown and "latency_mean_ms" in shown
    assert "orders tried: arrivals come before or after" in shown
    forerun.simulate(forerun.loads("domain: toy")).save(tmp_path / "toy")
    assert command_line(["explain", str(tmp_path / "toy"), "--ties", "3"]) == 0
    assert "does not say how events at one instant are ordered" in capsys.readouterr().out
