"""What a run of the room gives back: figures, tables, ledgers, timeline, and the same bytes again."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import forerun
from forerun.core.domain import simulate
from forerun.core.result.run import load_result
from forerun.replication.inferline import planner
from forerun.replication.inferline.reproduce import REPRODUCTIONS
from forerun.replication.reproduction import Reproduction, silent
from forerun.serving.engine.stagewise import simulate_stagewise
from forerun.serving.figures import figures
from forerun.serving.inputs.pipeline import SOURCE, Edge, Pipeline, Service, Stage
from forerun.serving.inputs.prepare import prepare
from forerun.serving.policies.greedy import Greedy
from forerun.serving.policies.timeout import Timeout
from forerun.serving.summary.confidence import from_batches, from_replications
from forerun.serving.summary.latency_split import batch_wait_ms, by_branch, critical
from forerun.serving.summary.tables import longest_queue
from forerun.serving.summary.totals import capacity_rps

from ..conftest import cases
from .conftest import ROOT, golden, read_json
from .random_pipelines import random_pipeline
from .test_policies import Alternating
from .test_scenario import GOOD, load

FORK = """
domain: serving
seed: 3
trace: {process: {name: gamma, rate: 60rps, scv: 4.0}, queries: 3000}
stages:
  - {name: ResNet, parents: [source]}
  - {name: Inception, parents: [source]}
  - {name: KSVM, parents: [ResNet]}
  - {name: LogReg, parents: [Inception, KSVM]}
configuration:
  ResNet: {hardware: V100, max_batch: 16, replicas: 2}
  Inception: {hardware: TXP, max_batch: 8, batching: {name: timeout, delay: 20ms}}
  KSVM: {hardware: cpu, max_batch: 8, changes: [{at: 10s, replicas: 2}, {at: 20s, replicas: 1}]}
  LogReg: {hardware: cpu, max_batch: 4}
slo: 350ms
"""


@pytest.mark.parametrize("seed", range(cases(15, 60)))
def test_latency_splits_exactly(seed: int) -> None:
    """Per query, the parts summed in any order are the latency to the last bit; none is negative beyond rounding."""
    pipeline, arrivals = random_pipeline(seed)
    run = simulate_stagewise(pipeline, arrivals, 20.0, record="full")
    for account in (by_branch(pipeline, run), critical(pipeline, run)):
        for order in (slice(None), slice(None, None, -1)):
            assert np.array_equal(account.parts_ms[order].sum(axis=0), run.latency_ms)
        assert account.parts_ms.min() > -1e-9


def test_branches_share_alike_and_the_faster_waits() -> None:
    """Two branches of 30 and 10 ms: half of the 30 ms is the slow service, half the fast one with its wait."""
    slow, fast = Service(np.array([0.0, 30.0])), Service(np.array([0.0, 10.0]))
    stages = (
        Stage("slow", (Edge(SOURCE),), 1, 1, slow, Greedy()),
        Stage("fast", (Edge(SOURCE),), 1, 1, fast, Greedy()),
    )
    pipeline = Pipeline(stages)
    run = simulate_stagewise(pipeline, np.array([100.0]), 20.0, record="full")
    branch = by_branch(pipeline, run)
    parts = dict(zip(branch.names, branch.parts_ms[:, 0].tolist()))
    assert parts["slow", "service"] == 15.0
    assert parts["fast", "service"] == 5.0
    assert parts["", "join wait"] == 10.0
    path = critical(pipeline, run)
    assert dict(zip(path.names, path.parts_ms[:, 0].tolist()))["slow", "service"] == 30.0


def test_batch_wait_is_time_beside_an_idle_replica() -> None:
    """Patience of 5 ms: the first query waits it out beside an idle replica; one that comes later only the rest."""
    stage = Stage(
        "m", (Edge(SOURCE),), 4, 1, Service(np.array([0.0, 10.0, 10.0, 10.0, 10.0])), Timeout(delay_ms=5.0)
    )
    run = simulate_stagewise(Pipeline((stage,)), np.array([0.0, 3.0, 7.0]), 20.0, record="full")
    # 0 and 3 start at 5, end at 15; 7 would start at 12, waits in the queue until 15 and then starts at once.
    assert run.visits[0].start_ms.tolist() == [5.0, 5.0, 15.0]
    assert batch_wait_ms(stage, run, 0).tolist() == [5.0, 2.0, 0.0]


def test_tables_ledgers_and_timeline_agree() -> None:
    result = simulate(load(FORK)).check()
    queries, visits, batches = result.table("queries"), result.table("visits"), result.table("batches")
    assert result.summary["queries"] == len(queries) == 3000
    assert len(visits) == 4 * 3000 == batches["size"].sum()
    assert result.summary["misses"] == queries["missed"].sum()
    assert result.summary["latency_p99_ms"] == np.quantile(queries["latency_ms"], 0.99)
    assert result.timeline is not None and len(result.timeline) == len(batches)
    assert len(result.timeline.entities) == len(set(zip(batches["stage"], batches["replica"])))
    for ledger in result.ledgers:
        assert ledger.whole == pytest.approx(queries["latency_ms"].mean())
    splits = result.table("splits")
    slowest = np.sort(queries["latency_ms"])[-30:]
    assert splits["mean_ms"][splits["band"] == "slowest 1 %"].sum() == pytest.approx(slowest.mean())
    paid = result.table("replicas")
    span_h = (queries["finish_ms"].max() - queries["arrival_ms"][0]) / 3.6e6
    assert paid["cost_usd"].sum() == pytest.approx(result.summary["cost_usd"])
    assert result.summary["cost_usd_per_h"] == pytest.approx(paid["cost_usd"].sum() / span_h)
    assert paid["count"][paid["stage"] == "KSVM"].tolist() == [1, 2, 1]
    share = result.table("stages")
    assert (share["utilisation"] > 0).all() and (share["utilisation"] <= 1).all()
    assert "latency of the slowest 1 %" in result.why


def test_queue_statistics_by_brute_force() -> None:
    come, gone = np.array([0.0, 0.0, 1.0, 5.0]), np.array([0.0, 2.0, 2.0, 5.0])
    assert longest_queue(come, gone) == 2  # both at 0 before one starts; two more wait at 1


def test_records_differ_in_what_they_keep_only() -> None:
    full = simulate(load(FORK))
    for kind, tables in (("latency", {"queries"}), ("counts", set())):
        found = simulate(load(FORK, f"record={kind}"))
        assert set(found.tables) == tables
        assert found.summary["misses"] == full.summary["misses"]
        assert found.summary["tie_count"] == full.summary["tie_count"]


def test_the_same_bytes_again_from_its_own_folder(tmp_path: Path) -> None:
    result = simulate(load(FORK))
    first = result.save(tmp_path / "first")
    again = simulate(forerun.load(first / "scenario.json"))
    second = again.save(tmp_path / "second")
    assert result.id == again.id
    for path in sorted(first.iterdir()):
        if path.name != "provenance.json":
            assert path.read_bytes() == (second / path.name).read_bytes(), path.name
    assert [f.id for f in figures(load_result(first))] == [f.id for f in figures(result)]


def test_figures_are_drawn_from_what_was_recorded() -> None:
    found = {figure.id: figure for figure in figures(simulate(load(FORK)))}
    assert set(found) == {"latency-cdf", "where-the-time-went", "queue-over-time", "batch-sizes"}
    assert found["latency-cdf"].rules[0].value == 350.0
    sizes = found["batch-sizes"]
    stage = np.array(sizes.data["stage"]) == "KSVM"
    assert np.array(sizes.data["share"])[stage].sum() == pytest.approx(1.0)
    queue = np.array(found["queue-over-time"].data["queued"])
    visits = simulate(load(FORK)).table("visits")
    assert queue.max() == max(
        longest_queue(visits["enqueue_ms"][visits["stage"] == s], visits["start_ms"][visits["stage"] == s])
        for s in set(visits["stage"].tolist())
    )
    assert [f.id for f in figures(simulate(load(FORK, "record=counts")))] == []


def test_overload_is_named() -> None:
    result = simulate(load(GOOD, "trace.process.rate_rps=400"))
    assert "ResNet" in result.summary["overloaded_stages"]
    assert any(note.startswith("overload: ResNet is offered") and "an hour" in note for note in result.notes)


def test_what_a_stage_carries_is_that_of_its_best_batch_size() -> None:
    for stage in prepare(load(FORK)).pipeline.stages:
        each = [size * 1e3 / stage.service.table_ms[size] for size in range(1, stage.max_batch + 1)]
        assert capacity_rps(stage) == pytest.approx(stage.most_replicas * max(each), rel=1e-12)
        assert len(each) > 1


def test_the_event_loop_says_why_it_was_taken() -> None:
    plain = simulate(load(FORK))
    foreign = simulate(load(FORK), policy=Alternating())
    assert plain.summary["way"] == "stage by stage"
    assert foreign.summary["way"] == "event loop"
    assert any("Alternating has no compiled form" in note for note in foreign.notes)


def test_compat_gives_lineage_and_events() -> None:
    text = GOOD.replace(", batching: {name: timeout, delay_ms: 5ms}", "")
    result = simulate(load(text, "mode=compat", "compat.queue_series=true"))
    lineage = result.table("lineage")
    assert lineage.schema.columns[3].name == "ResNet_enqueue_time"
    assert result.summary["events"] > 200
    assert len(result.table("queue_series")) > 400
    ours = simulate(load(text, "tie_rules=both"))
    assert ours.summary["latency_p99_notebook_ties_ms"] == pytest.approx(
        ours.summary["latency_p99_own_ties_ms"], abs=1e-6
    )


def test_intervals_say_how_they_were_found() -> None:
    result = simulate(load(FORK))
    interval = result.intervals["latency_p99_ms"]
    assert interval.low < result.summary["latency_p99_ms"] < interval.high
    assert "20 runs on fresh arrivals" in interval.method
    listed = ", ".join(str(10.0 * i) for i in range(200))
    replayed = simulate(load(GOOD, f"trace={{arrivals_ms: [{listed}]}}"))
    assert "batch means" in replayed.intervals["latency_mean_ms"].method
    assert simulate(load(FORK, "intervals.replications=0")).intervals == {}


def test_prediction_intervals_cover() -> None:
    """Of fresh normal values, 95 % fall into the interval of 20 others, give or take three standard errors."""
    rng = np.random.default_rng(4)
    inside, values = 0, cases(100, 400)
    for _ in range(values):
        runs = [{"latency_p50_ms": float(value)} for value in rng.normal(100, 5, 20)]
        interval = from_replications(runs, 1000, 0.95)["latency_p50_ms"]
        inside += interval.low <= rng.normal(100, 5) <= interval.high
    assert abs(inside / values - 0.95) < 3 * np.sqrt(0.95 * 0.05 / values)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_few_queries_that_all_are_in_time_leave_room(share: float) -> None:
    """Runs without spread show no more than the queries of one can: the exact binomial bound."""
    over_runs = from_replications([{"attainment": share}] * 20, 3, 0.95)["attainment"]
    ends = (0.025 ** (1 / 3), 1.0) if share else (0.0, 1 - 0.025 ** (1 / 3))
    assert (over_runs.low, over_runs.high) == pytest.approx(ends)
    over_parts = from_batches(np.full(40, 10.0), 20.0 if share else 5.0, 0.95)["attainment"]
    assert over_parts.high - over_parts.low == pytest.approx(1 - 0.025 ** (1 / 40))
    few = simulate(load(GOOD, "trace={arrivals_ms: [0, 1000, 2000]}", "attainment=0.99"))
    assert "so few queries show no more than 29 %" in few.why


def test_batch_means_cover_the_mean() -> None:
    rng = np.random.default_rng(5)
    hits, runs = 0, cases(200, 400)
    for _ in range(runs):
        interval = from_batches(rng.exponential(10.0, 2000), 20.0, 0.95)["latency_mean_ms"]
        hits += interval.low <= 10.0 <= interval.high
    assert abs(hits / runs - 0.95) < 3 * np.sqrt(0.95 * 0.05 / runs)


@pytest.mark.parametrize("entry", REPRODUCTIONS, ids=lambda entry: entry.id)
def test_reproductions_hold(entry: Reproduction, monkeypatch: pytest.MonkeyPatch) -> None:
    # The greedy planner is compared with the optimum at four objectives.
    monkeypatch.setattr(planner, "_SLOS", planner._SLOS[: cases(1, 4)])
    found = (entry.quick or entry.run)(silent)
    assert found.rows and not found.failed
    assert any(row.ok for row in found.rows) or all(row.note for row in found.rows), (
        "what is not judged says why"
    )
    if entry.id == "inferline-planner":
        # The artifact's eight settings: on the same traces others found the same sweep's cost and optimum.
        known = read_json(golden("planner", "artifact_slo500.json"))
        costs = [
            (case["published_cost"], case["optimum_cost_max"]) for case in known if case["gamma_seed"] < 2000
        ]
        assert [(row.compat, row.corrected) for row in found.rows[:8]] == [
            pytest.approx(both) for both in costs
        ]
    if entry.id == "inferline-driver1":
        # As the room's page has it.
        rows = {row.name: row for row in found.rows}
        slip = rows["run: p99 latency ms"]
        assert rows["run: queries"].compat == 50_001
        assert [round(float(p99), 1) for p99 in (slip.compat, slip.corrected)] == [137.4, 574.9]  # type: ignore[arg-type]


def test_bytes_do_not_depend_on_the_hash_seed() -> None:
    """Acceptance 24: the demo's summary here and in a process with another hash seed, byte for byte."""
    code = (
        "import forerun, json, hashlib; from pathlib import Path;"
        "r = forerun.simulate(forerun.load(Path(forerun.__file__).parent / 'serving/demo.yaml'));"
        "h = hashlib.sha256(json.dumps(r.data(), sort_keys=True).encode());"
        "[h.update(t[c.name].tobytes()) for t in r.tables.values() for c in t.schema.columns"
        " if t[c.name].dtype.kind != 'O'];"
        "print(h.hexdigest())"
    )
    seed = "0" if os.environ.get("PYTHONHASHSEED") == "4711" else "4711"
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(forerun.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    with contextlib.redirect_stdout(io.StringIO()) as mine:
        exec(code, {})
    assert mine.getvalue() == other.stdout != ""


def test_branches_in_threads_change_nothing() -> None:
    """Kernels release the lock; runs side by side do not meet."""
    from concurrent.futures import ThreadPoolExecutor

    inputs = prepare(load(FORK))
    alone = simulate_stagewise(inputs.pipeline, inputs.arrivals_ms, 350.0).finish_ms
    with ThreadPoolExecutor(4) as pool:
        runs = pool.map(lambda _: simulate_stagewise(inputs.pipeline, inputs.arrivals_ms, 350.0), range(8))
    assert all(np.array_equal(run.finish_ms, alone) for run in runs)


def test_kernels_stay_within_their_arrays() -> None:
    """Run as plain Python, where an index out of bounds is an error: some pipelines, all kinds of record, cut to pieces."""
    code = (
        "from tests.serving.random_pipelines import random_pipeline, same;"
        "from forerun.serving.engine.stagewise import simulate_stagewise as run;"
        f"pipelines = [random_pipeline(seed, queries=40) for seed in range({cases(5, 30)})];"
        "[(run(p, a, 20.0, record=r, slice_size=9)) for p, a in pipelines for r in ('full', 'latency', 'counts')]"
    )
    env = {
        **os.environ,
        "NUMBA_DISABLE_JIT": "1",
        "PYTHONPATH": f"{Path(forerun.__file__).parents[1]}:{ROOT}",
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
