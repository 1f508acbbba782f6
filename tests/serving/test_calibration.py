"""Fits: replays against the plain engine, coefficients that are known, and what data cannot say."""

from __future__ import annotations

import copy
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from forerun.core.cli.main import run as command_line
from forerun.core.domain import simulate
from forerun.core.errors import InputError, ScenarioError
from forerun.core.scenario.spec import Input, to_data
from forerun.serving.inputs.clients import Clients
from forerun.serving.inputs.inputs import ScenarioFiles
from forerun.serving.llm.calibration.calibrate import (
    Compared,
    calibrate,
    comparison,
    composed_otherwise,
    interval_errors,
    misses_of,
    refused,
    trial_of,
)
from forerun.serving.llm.calibration.experiment import Experiment, Load, Steps
from forerun.serving.llm.calibration.fitting import PRECISION, Trial, fit
from forerun.serving.llm.calibration.knee import growth, interval
from forerun.serving.llm.calibration.physics import SPREAD, Physics, from_hardware, from_measurements
from forerun.serving.llm.calibration.readers import read_measurements
from forerun.serving.llm.calibration.replay import COEFFICIENTS, replay
from forerun.serving.llm.calibration.server import Server
from forerun.serving.llm.calibration.steps import SAID, fit_steps
from forerun.serving.llm.engine.replica import Replicas
from forerun.serving.llm.engine.stage import LanguageStage
from forerun.serving.llm.inputs.architecture import read_architecture
from forerun.serving.llm.inputs.model import Cost, LanguageModel
from forerun.serving.llm.scenario.language_model import Coefficients, FitRecord, ModelMemory
from forerun.serving.policies.prefill_first import PrefillFirst
from forerun.serving.policies.vllm import Vllm032

from ..conftest import cases
from .test_llm_memory import LLAMA, LLAMA_70B
from .test_llm_memory import saved as config
from .test_llm_scenario import scenario, scenario_data

TRUE = np.array([9.0, 0.045, 0.03, 3e-5, 6e-7, 4.0, 120.0])
SERVER = Server(max_seqs=64, token_budget=2048, kv_blocks=4000)


def load(seed: int, rate_rps: float, prompt: int, output: int, n: int = 250, most: int | None = None) -> Load:
    rng = np.random.default_rng(seed)
    send_ms = np.cumsum(rng.exponential(1e3 / rate_rps, n))
    tokens = (rng.integers(max(1, size // 2), 3 * size // 2 + 1, n) for size in (prompt, output))
    return Load(send_ms - send_ms[0], *tokens, most)


def model(of: Load) -> LanguageModel:
    return SERVER.language_model(of, ScenarioFiles(), 0)


def trial(of: Load, values: Any = TRUE, name: str = "made") -> Trial:
    """An experiment whose measurements are replays with known coefficients."""
    measured = replay(model(of), 1, of, Cost.of(np.asarray(values))).figures
    return Trial(Experiment(name, of, measured), model(of), 1)


def plain(of: Load, values: Any) -> tuple[list[float], list[float]]:
    """First and last tokens of a client that holds requests back, event by event with the plain replicas."""
    llm = replace(model(of), cost=Cost.of(np.asarray(values)))
    server, planned, most = Replicas(llm, 1), of.send_ms.tolist(), of.most_in_flight
    ends: list[float] = []
    alarms: list[float] = []
    now_ms, sent, under_way, send_ms = 0.0, 0, 0, []
    while sent < len(planned) or under_way:
        coming = planned[sent] if sent < len(planned) and (most is None or under_way < most) else np.inf
        now_ms = max(now_ms, min([coming, *alarms]))
        alarms = [at for at in alarms if at > now_ms]
        left = [query for group in server.end(now_ms) for query in group]
        under_way -= len(left)
        while sent < len(planned) and planned[sent] <= now_ms and (most is None or under_way < most):
            server.enter(sent, now_ms)
            send_ms.append(now_ms)
            sent, under_way = sent + 1, under_way + 1
        alarms += server.begin(now_ms)
    requests = [server.requests[query] for query in range(len(planned))]
    ends = [request.last_ms - at for request, at in zip(requests, send_ms)]
    return [request.first_ms - at for request, at in zip(requests, send_ms)], ends


@pytest.mark.parametrize("most", [None, 1, 5, 24])
def test_replays_equal_the_plain_replicas(most: int | None) -> None:
    """Also where the client holds requests back: what is sent when, and all latencies."""
    for seed in range(cases(3)):
        # More iterations than a record has space for at first.
        of = load(seed, 6.0 + 5 * (seed % 3), 400, 60, n=80, most=most)
        shown = replay(model(of), 1, of, Cost.of(TRUE)).figures
        first_ms, whole_ms = plain(of, TRUE)
        noted = replay(model(of), 1, of, Cost.of(TRUE), keep=True)
        assert noted.figures == shown and noted.iterations is not None
        assert (np.diff(noted.iterations.start_ms) > 0).all()
        assert shown["ttft_mean_ms"] == pytest.approx(np.mean(first_ms), rel=1e-9)
        assert shown["e2e_mean_ms"] == pytest.approx(np.mean(whole_ms), rel=1e-9)
        assert shown["e2e_p99_ms"] == pytest.approx(np.quantile(whole_ms, 0.99), rel=1e-9)


def test_requests_by_lot_meet_where_requests_in_turn_do_not() -> None:
    """Behind a Service of Kubernetes prompts wait for each other on one of two replicas, at evenly spaced times."""
    of = Load(np.arange(200) * 300.0, np.full(200, 8000), np.full(200, 20))
    server = Server(max_seqs=64, token_budget=8192, kv_blocks=20_000, replicas=2)
    ttft_ms = {
        balance: trial_of(server.with_(balance=balance), Experiment("", of, {}), ScenarioFiles(), 0).figures(
            np.array([7.0, 0.06, 0.02, 0.0, 0.0, 0.0, 90.0])
        )["ttft_p99_ms"]
        for balance in ("round-robin", "random")
    }
    assert ttft_ms["random"] > 1.5 * ttft_ms["round-robin"] > 1.5 * 480


@pytest.mark.parametrize("most", [1, 3, 16])
def test_a_limit_is_found_again_in_the_table(most: int, tmp_path: Path) -> None:
    """A client that sends as soon as another request ends: rounded instants must not make it look like one more."""
    of = replace(load(80, 8.0, 35, 14, n=80, most=most), send_ms=np.zeros(80))
    stage = LanguageStage(replace(model(of), cost=Cost.of(TRUE)), 2, keep=False)
    stage.run_closed(Clients.single(of.send_ms, most=most))
    visits, _, requests = stage.record(len(of))
    first_ms, whole_ms = (ms - visits.enqueue_ms for ms in (requests.first_ms, visits.end_ms))
    lines = ["arrival_ms,send_ms,prompt_tokens,output_tokens,ttft_ms,e2e_ms"]
    for at, p, o, first, whole in zip(visits.enqueue_ms, of.prompt, of.output, first_ms, whole_ms):
        lines.append(f"0,{at:.3f},{p},{o},{first:.3f},{whole:.3f}")
    path = tmp_path / "requests.csv"
    path.write_text("\n".join(lines) + "\n")
    (found,) = read_measurements(path)
    assert isinstance(found, Experiment) and found.load.most_in_flight == most


def test_overload_is_said_to_saturate() -> None:
    """Just above what the server carries, iterations a little longer make the first token wait far longer; far below not."""
    busy = Load(np.arange(600) * 15.5, np.full(600, 200), np.full(600, 20))
    light = replace(busy, send_ms=busy.send_ms * 4)
    few = msgspec.structs.replace(SERVER, max_seqs=8, token_budget=256, kv_blocks=400)
    rows, values = {}, np.array([*TRUE[:6], 0.0])
    for name, of in (("busy", busy), ("light", light)):
        llm = few.language_model(of, ScenarioFiles(), 0)
        measured = replay(llm, 2, of, Cost.of(values)).figures
        compared = comparison(Trial(Experiment(name, of, measured), llm, 2), values, "held out")
        rows[name] = {row.figure: row for row in compared}
        assert all(row.error == pytest.approx(0, abs=1e-12) for row in compared)
    assert not any(row.saturating for row in rows["light"].values())
    assert rows["busy"]["ttft_p99_ms"].saturating
    assert rows["busy"]["ttft_p99_ms"].measured > 5 * rows["light"]["ttft_p99_ms"].measured


def test_a_client_that_sends_one_at_a_time_waits_for_nobody() -> None:
    of = load(1, 1000.0, 100, 10, n=40, most=1)
    a, prefill, _, _, attention, request, hidden = TRUE.tolist()
    shown = replay(model(of), 1, of, Cost.of(TRUE)).figures
    first_ms = request + a + prefill * np.maximum(of.prompt - hidden, 0) + attention * of.prompt**2 / 2
    assert shown["ttft_mean_ms"] == pytest.approx(first_ms.mean(), rel=1e-9)


def test_coefficients_that_made_the_measurements_are_found() -> None:
    """Loads of other lengths and rates say each coefficient that matters; a load never seen is predicted."""
    loads = [load(1, 2.0, 300, 60), load(2, 8.0, 900, 40), load(3, 12.0, 200, 100), load(4, 1.0, 3000, 20)]
    start = Physics(TRUE * np.array([1.3, 0.7, 2.0, 0.6, 1.5, 0.6, 1.4]), SPREAD, "a guess")
    found = fit([trial(one) for one in loads], start)
    unseen = trial(load(9, 6.0, 600, 80))
    measured, shown = unseen.experiment.measured, unseen.figures(found.values)
    for name, limit in (("tpot_mean_ms", 0.01), ("e2e_mean_ms", 0.01), ("ttft_mean_ms", 0.03)):
        assert shown[name] == pytest.approx(measured[name], rel=limit)
    clear = [i for i, name in enumerate(COEFFICIENTS) if found.supported()[name]]
    assert {0, 1} <= set(clear)
    assert (np.abs(np.log(found.values / TRUE)) < 3 * found.spread).all()
    assert found.values[[0, 1]] == pytest.approx(TRUE[[0, 1]], rel=0.03)


def test_a_coefficient_that_data_do_not_say_stays_where_it_began() -> None:
    """One light load of one-token prompts says nothing of prefills and attention."""
    of = load(1, 2.0, 200, 60)
    of = replace(of, prompt=np.ones(len(of), dtype=np.int64))
    start = Physics(TRUE * 1.2, SPREAD, "a guess")
    found = fit([trial(of)], start)
    supported = found.supported()
    assert supported["a_ms"] and not supported["prefill_ms_per_token"] and not supported["attn_ms_per_token2"]
    assert found.values[4] == pytest.approx(start.values[4], rel=0.05)


def test_figures_near_saturation_count_little() -> None:
    """A measured TTFT far off at a load near saturation moves the coefficients little."""
    of = load(3, 20.0, 200, 100, n=400)
    true = trial(of)
    wrong = dict(true.experiment.measured)
    wrong |= {name: 1.5 * value for name, value in wrong.items() if name.startswith("ttft")}
    off = replace(true, experiment=replace(true.experiment, measured=wrong))
    light = trial(load(1, 2.0, 300, 60))
    start = Physics(TRUE.copy(), SPREAD, "the truth")
    found = fit([light, off], start, near=TRUE)
    assert found.values[0] == pytest.approx(TRUE[0], rel=0.05)


def test_a_client_that_holds_back_is_compared_by_its_rate() -> None:
    held = trial(load(3, 200.0, 300, 60, most=16))
    assert set(held.compared) == {"throughput_rps", "e2e_mean_ms", "e2e_p50_ms"}
    assert "throughput_rps" not in trial(load(3, 2.0, 300, 60)).compared
    assert set(held.compared) <= set(PRECISION)


def steps(seed: int, values: Any, n: int = 200, noise: float = 0.0) -> Steps:
    rng = np.random.default_rng(seed)
    prefill = np.where(rng.random(n) < 0.3, rng.integers(1, 2000, n), 0).astype(np.float64)
    decodes = rng.integers(1, 128, n).astype(np.float64)
    kv = decodes * rng.integers(100, 900, n)
    took_ms = np.stack([np.ones(n), prefill, decodes, kv], 1) @ np.asarray(values)
    return Steps("made", prefill, decodes, kv, took_ms * (1 + noise * rng.standard_normal(n)))


def test_steps_say_their_coefficients_exactly() -> None:
    found = fit_steps([steps(1, TRUE[:4])])
    assert found.values == pytest.approx(TRUE[:4], rel=1e-6)
    assert found.mean_error(steps(2, TRUE[:4])) < 1e-9
    assert all(found.supported().values())


def test_no_coefficient_is_negative_and_the_best_is_that_of_another_solver() -> None:
    nnls = pytest.importorskip("scipy.optimize").nnls
    for seed in range(cases(10)):
        rng = np.random.default_rng(seed)
        table = steps(
            seed,
            [5.0, 0.02, *rng.choice([0.0, -1e-3, 0.02], 1), *rng.choice([0.0, -1e-6, 2e-5], 1)],
            noise=0.02,
        )
        found = fit_steps([table])
        rows = (
            np.stack([np.ones(len(table)), table.prefill, table.decodes, table.kv], 1)
            / table.took_ms[:, None]
        )
        scale = np.abs(rows).max(axis=0)
        other, _ = nnls(rows / scale, np.ones(len(rows)))
        assert (found.values >= 0).all()
        assert found.values == pytest.approx(other / scale, rel=1e-6, abs=1e-12)
    assert len(SAID) == 4


def test_files_become_costs_that_a_scenario_runs_with(tmp_path: Path) -> None:
    """From tables of requests to a scenario: the same latencies, with intervals, and a note beyond what was measured."""
    files = []
    loads = [load(1, 2.0, 300, 60), load(2, 8.0, 500, 40), load(3, 10.0, 200, 80), load(4, 5.0, 350, 60)]
    for number, of in enumerate(loads):
        llm = replace(model(of), cost=Cost.of(TRUE))
        first_ms, whole_ms = plain(of, TRUE)
        lines = [
            f"{at!r},{p},{o},{f!r},{e!r}"
            for at, p, o, f, e in zip(of.send_ms.tolist(), of.prompt, of.output, first_ms, whole_ms)
        ]
        path = tmp_path / f"run{number}.csv"
        path.write_text("arrival_ms,prompt_tokens,output_tokens,ttft_ms,e2e_ms\n" + "\n".join(lines) + "\n")
        files.append(path)
        assert llm.kv_blocks == 4000
    found = calibrate(SERVER, files[:3], files[3:])
    held = [row for row in found.compared if row.role == "held out"]
    assert {row.experiment for row in held} == {str(files[3])}
    assert {row.figure: abs(row.error) < 0.05 for row in held if "mean" in row.figure} == dict.fromkeys(
        ("ttft_mean_ms", "tpot_mean_ms", "e2e_mean_ms"), True
    )
    assert {row.role for row in found.compared} == {"fitted", "left out", "held out"}
    # Draws scatter as the data leave the coefficients, and iterations then by no less than the error of unseen loads.
    record = found.cost.fit
    assert record is not None and record.spread is not None and found.found is not None
    *own, together = np.array(record.spread)
    assert np.array(own).T @ own == pytest.approx(found.found.covariance, rel=5e-3, abs=1e-4)
    assert (together[:5] == together[0]).all() and not together[5:].any()
    least = np.sqrt(found.found.covariance[0, 0] + together[0] ** 2)
    assert 0.5 * record.step_error / 1.645 <= least and together[0] <= record.step_error / 1.645
    data = scenario_data(cost=to_data(found.cost), max_seqs=64, token_budget=2048, kv_blocks=4000)
    data["intervals"] = {"replications": 0}
    result = simulate(scenario(data)).check()
    table = result.tables["fit_intervals"]
    assert ((table["low"] <= table["value"]) & (table["value"] <= table["high"])).all()
    assert not table["saturating"].any()
    data["trace"]["process"]["rate_rps"] = 60.0
    crowded = simulate(scenario(data))
    assert any("beyond what its costs were fitted to" in note for note in crowded.notes)
    data["configuration"]["Llama"]["replicas"] = 1
    data["configuration"]["Llama"]["llm"]["max_seqs"] = 4
    data["trace"]["process"]["rate_rps"] = 10.5
    knee = simulate(scenario(data))
    assert any("saturating" in note for note in knee.notes)
    assert knee.tables["fit_intervals"]["saturating"].any()
    for name in ("ttft_mean_ms", "llm_queue_mean_ms", "latency_p99_ms"):
        assert math.isnan(knee.summary[name])
    assert 0 < knee.intervals["ttft_mean_ms"].low < knee.intervals["ttft_mean_ms"].high
    assert 0 < knee.intervals["latency_p99_ms"].low < knee.intervals["latency_p99_ms"].high
    shown = knee.tables["fit_intervals"]
    assert (np.isnan(shown["value"]) == shown["saturating"]).all()
    # Clients who wait for answers send less to slower servers: what fills every seat is no saturation, and a warm-up counts
    # in no run.
    data["trace"] = {"clients": 8, "queries": 600}
    data |= {"warm_up": 100}
    waiting = simulate(scenario(data))
    slower_ms = {}
    for factor in (0.95, 1.05):
        other = copy.deepcopy(data)
        cost = other["configuration"]["Llama"]["llm"]["cost"]
        cost |= {name: factor * cost[name] for name in Coefficients.names[:5]}
        slower_ms[factor] = simulate(scenario(other)).summary["ttft_mean_ms"]
    shown, value = waiting.tables["fit_intervals"], waiting.summary["ttft_mean_ms"]
    at = shown["figure"].tolist().index("ttft_mean_ms")
    assert not shown["saturating"].any() and isinstance(value, float)
    wide = record.errors["ttft_mean_ms"] * growth(value, slower_ms[1.05], slower_ms[0.95])
    ends = (shown["low"][at], shown["high"][at])
    assert ends == pytest.approx((value * math.exp(-wide), value * math.exp(wide)))
    # Where a run is far from saturation every figure has its value.
    assert not any(math.isnan(result.summary[name]) for name in ("ttft_mean_ms", "latency_mean_ms"))


def test_intervals_cover_what_they_should() -> None:
    """Errors that are normal in their logarithm: half widths from ten cover 90 % of further ones; a figure that iterations
    5 % longer change by more than the step's own error is at least as unsure as that."""
    rng = np.random.default_rng(5)
    inside = []
    for _ in range(300):
        drawn = np.exp(0.1 * rng.standard_normal(11))
        rows = [Compared("x", "left out", "ttft_mean_ms", 1.0, float(one)) for one in drawn[:10]]
        errors, _ = interval_errors(rows, [], [])
        inside.append(abs(np.log(drawn[10])) <= errors["ttft_mean_ms"])
    # 300 draws: two standard errors are 3.5 points.
    assert 0.90 - 0.035 <= np.mean(inside) <= 0.98
    wild = Compared("x", "left out", "ttft_mean_ms", 1.0, 50.0, saturating=True)
    assert interval_errors([*rows, wild], [], []) == interval_errors(rows, [], [])
    # A full server counts only where no other was measured.
    full = replace(wild, saturating=False, full=True)
    assert interval_errors([*rows, full], [], []) == interval_errors(rows, [], [])
    assert interval_errors([full], [], [])[0]["ttft_mean_ms"] > math.log(50)
    record = FitRecord(
        experiments=3, prefill_tokens=1, decodes=1, kv_tokens=1, step_error=0.1, errors={"ttft_mean_ms": 0.01}
    )
    low, high, near = interval("ttft_mean_ms", figures_by(1.0), record)
    assert (low, high, near) == (
        pytest.approx(100 * math.exp(-0.01)),
        pytest.approx(100 * math.exp(0.01)),
        False,
    )
    # What grows three times as fast as iterations is three times as far off.
    low, high, near = interval("ttft_mean_ms", figures_by(3.0), record)
    assert (low, high, near) == (
        pytest.approx(100 * math.exp(-0.03)),
        pytest.approx(100 * math.exp(0.03)),
        False,
    )
    # Of 100 ms another client took 10, which may be half or twice; no client is in the time per token.
    elsewhere = msgspec.structs.replace(record, client_ms=10.0)
    _, high, _ = interval("ttft_mean_ms", figures_by(3.0), elsewhere)
    assert high == pytest.approx(100 * math.exp(0.01 * (3 + 0.1 * math.log(2) / 0.15)))
    per_token = [
        interval("tpot_mean_ms", lambda factor: {"tpot_mean_ms": factor}, one) for one in (record, elsewhere)
    ]
    assert per_token[0] == per_token[1]
    assert interval("x", lambda factor: {"x": 0.0}, record) == (0, 0, False)
    # Near saturation, and where more comes than can be served, what the fit's error changes is simulated.
    low, high, near = interval("ttft_mean_ms", figures_by(12.0), record)
    assert near and low == pytest.approx(100 * math.exp(-1.2)) and high == pytest.approx(100 * math.exp(1.2))
    assert interval("ttft_mean_ms", figures_by(1.0), record, growing=True)[2]


def figures_by(power: float) -> Any:
    """A figure that is 100 as fitted, and grows with the time of an iteration to a power."""
    return lambda factor: {
        "ttft_mean_ms": 100.0 * (1.05 if factor == 1.05 else 0.95 if factor == 0.95 else factor) ** power
    }


def test_a_search_begins_near_what_servers_of_that_hardware_measured(tmp_path: Path) -> None:
    """70 billion parameters on four H100: 15.6 ms an iteration, 28 to 77 ms for a million tokens in the cache (published
    step traces)."""
    path = config(tmp_path, **LLAMA_70B)
    memory = ModelMemory(model=Input(path=str(path)), gpu="H100-80GB", tensor_parallel=4)
    a, prefill, _, kv, _, _, hidden = from_hardware(read_architecture(path), memory).values
    assert 12.0 < a < 20.0 and 2.5e-5 < kv < 8e-5
    # 2 x 69 billion operations a token at 0.6 of 4 x 989 TFLOP/s.
    assert prefill == pytest.approx(2 * 69e9 / (0.6 * 4 * 989.4e9), rel=0.02)
    # Two operations a parameter of two bytes: as many tokens as operations fit into the time of a byte.
    assert hidden == pytest.approx(0.6 * 989.4e12 / (0.75 * 3.35e12), rel=0.03)
    light = trial(load(1, 1.0, 300, 60)).experiment
    assert from_measurements([light]).values[0] == pytest.approx(TRUE[0], rel=0.3)


def tables_of(folder: Path, values: Any) -> list[Path]:
    """Three tables of requests that a server with these costs would have measured."""
    files = []
    for number, rate_rps in enumerate((1.0, 4.0, 8.0)):
        of = load(number, rate_rps, 300, 60, 80)
        columns = zip(of.send_ms.tolist(), of.prompt.tolist(), of.output.tolist(), *plain(of, values))
        lines = ["arrival_ms,prompt_tokens,output_tokens,ttft_ms,e2e_ms"]
        files.append(folder / f"run{number}.csv")
        files[-1].write_text("\n".join([*lines, *(",".join(map(repr, row)) for row in columns)]) + "\n")
    return files


def test_a_prediction_stands_beside_what_was_held_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measured, predicted, error and interval; and the interval knows nothing of the measurement that it is for."""
    light, busy, _ = tables_of(tmp_path, TRUE)
    head, *rows = busy.read_text().splitlines()
    doubled = tmp_path / "doubled.csv"
    cells = [row.split(",") for row in rows]
    slow = [",".join([*row[:3], *(repr(2 * float(time)) for time in row[3:])]) for row in cells]
    doubled.write_text("\n".join([head, *slow]) + "\n")
    server = tmp_path / "server.yaml"
    server.write_text("{max_seqs: 64, token_budget: 2048, kv_blocks: 4000}")
    fitted = ["fit", str(server), str(light), "--hold-out", str(busy), "--hold-out", str(doubled)]
    assert command_line([*fitted, "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)["compared"]
    held = [row for row in compared if row["role"] == "held out"]
    assert all(row["low"] is None for row in compared if row["role"] == "fitted")
    beside: dict[str, dict[str, Any]] = {Path(row["experiment"]).name: {} for row in held}
    for row in held:
        beside[Path(row["experiment"]).name][row["figure"]] = row
    assert beside["run1.csv"].keys() == beside["doubled.csv"].keys() >= {"ttft_p99_ms", "tpot_mean_ms"}
    for figure, row in beside["run1.csv"].items():
        other = beside["doubled.csv"][figure]
        assert other["measured"] == pytest.approx(2 * row["measured"])
        assert [other[key] for key in ("replayed", "low", "high")] == [
            row[key] for key in ("replayed", "low", "high")
        ]
        assert row["low"] < row["replayed"] < row["high"]
    assert command_line(fitted) == 0
    shown = capsys.readouterr().out
    table = shown[shown.index("Predictions of what was held out") :].splitlines()
    assert table[1].split() == [
        "experiment",
        "figure",
        "measured",
        "predicted",
        "error",
        "90",
        "%",
        "from",
        "to",
    ]
    assert sum(line.startswith(("run1.csv", "doubled.csv")) for line in table) == len(held)
    other = tmp_path / "other"
    other.mkdir()
    doubled.rename(other / busy.name)
    assert command_line([*fitted[:-1], str(other / busy.name)]) == 0
    shown = capsys.readouterr().out
    for name, role in (("run0.csv", "fitted"), ("run1.csv", "held out"), ("other/run1.csv", "held out")):
        assert any(line.startswith(f"{name} ") and role in line for line in shown.splitlines()), name


def test_a_bound_that_spoils_a_fit_is_named_and_its_costs_are_refused(tmp_path: Path) -> None:
    """A server with 8-bit weights whose file says 16: an iteration takes less than reading 16 bits would. With the weights
    that it has, the same measurements fit."""
    memory = ModelMemory(model=Input(path=str(config(tmp_path, **LLAMA))), gpu="H100-80GB")
    server = Server(max_seqs=64, token_budget=2048, memory=memory)
    values = np.array([2.9, 0.02, 0.02, 2e-4, 1e-6, 4.0, 60.0])
    files = tables_of(tmp_path, values)[:2]
    spoilt = calibrate(server, files)
    assert spoilt.found is not None and "a_ms" in spoilt.found.bounded
    assert not spoilt.found.supported()["a_ms"]
    assert any(
        re.search(r"a_ms ends at its bound.*16 bits.*FP8.*memory.weights: 6.7", note) for note in spoilt.notes
    )
    fit_record = spoilt.cost.fit
    assert (
        fit_record is not None and fit_record.misses is not None and fit_record.misses["tpot_mean_ms"] > 0.2
    )
    data = scenario_data(cost=to_data(spoilt.cost))
    with pytest.raises(ScenarioError, match=r"miss the data that came with them.*tpot_mean_ms.*--accept-fit"):
        scenario(data)
    accepted = simulate(scenario(data | {"accept_fit": True, "intervals": {"replications": 0}}))
    assert any("its costs, as accepted, miss the data" in note for note in accepted.notes)

    stated = msgspec.structs.replace(memory, weights_bytes=6.74e9)
    found = calibrate(msgspec.structs.replace(server, memory=stated), files)
    assert found.found is not None and "a_ms" not in found.found.bounded
    assert found.cost.fit is not None and found.cost.fit.misses is None
    assert found.cost.a_ms == pytest.approx(2.9, rel=0.05)


def test_refused_costs_are_accepted_at_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = FitRecord(
        experiments=3, prefill_tokens=1, decodes=1, kv_tokens=1, step_error=0.1, misses={"tpot_mean_ms": 0.46}
    )
    data = scenario_data(cost=to_data(Coefficients(a_ms=5.0, fit=record)), tpot_slo_ms=40.0)
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(data | {"intervals": {"replications": 0}}))
    for verb in ("simulate", "plan"):
        assert command_line([verb, str(path)]) == 2
        assert "tpot_mean_ms by 46%" in capsys.readouterr().err
        assert command_line([verb, str(path), "--accept-fit"]) == 0
        assert "as accepted, miss the data" in capsys.readouterr().out


def test_costs_miss_their_data_by_medians_of_loads_that_were_served() -> None:
    def rows(*errors: float, **marks: bool) -> list[Compared]:
        return [Compared("x", "fitted", "tpot_mean_ms", 1.0, 1.0 + error, **marks) for error in errors]

    assert misses_of(rows(0.01, 0.3, -0.02), {}) == {}
    assert misses_of(rows(0.4, 0.5, -0.02), {}) == {"tpot_mean_ms": 0.4}
    # A stated error that grew with the misfit does not excuse it; a small one is not believed below three precisions.
    assert misses_of(rows(0.4, 0.5), {"tpot_mean_ms": 2.0}) == {"tpot_mean_ms": 0.45}
    assert misses_of(rows(0.04), {"tpot_mean_ms": 0.02}) == {}
    assert misses_of(rows(0.05), {"tpot_mean_ms": 0.02}) == {"tpot_mean_ms": 0.05}
    assert misses_of([*rows(0.01), *rows(0.9, 0.9, full=True), *rows(0.9, 0.9, saturating=True)], {}) == {}
    assert misses_of(rows(0.9, full=True), {}) == {"tpot_mean_ms": 0.9}


def test_a_server_may_have_another_scheduler() -> None:
    """Where whole prompts stop the answers, tokens come later and the first sooner than where both share iterations."""
    of = load(3, 14.0, 900, 60)
    whole = SERVER.with_(scheduler=PrefillFirst())
    apart = replay(whole.language_model(of, ScenarioFiles(), 0), 1, of, Cost.of(TRUE)).figures
    shared = replay(model(of), 1, of, Cost.of(TRUE)).figures
    assert apart["ttft_mean_ms"] != shared["ttft_mean_ms"] and apart["tpot_mean_ms"] > shared["tpot_mean_ms"]


def test_slow_processors_are_within_the_reach_of_a_search() -> None:
    """An engine whose decodes take a millisecond each, where only measurements say what it is."""
    slow = np.array([9.0, 1.1, 1.6, 3e-5, 2e-5, 3.0, 8.0])
    trials = [
        trial(load(n, *of), slow) for n, of in enumerate([(0.5, 60, 30), (4.0, 60, 30), (2.5, 130, 40)])
    ]
    found = fit(trials, from_measurements([one.experiment for one in trials]))
    assert found.values[2] == pytest.approx(1.6, rel=0.15)


def test_a_fit_says_whether_iterations_were_composed_otherwise() -> None:
    """Measurements of a server that does not compose ahead are explained better so, and only then; nothing is tried where
    its file says how it composes."""
    files, made = ScenarioFiles(), SERVER.with_(scheduler=Vllm032(async_scheduling=False))
    loads = [load(1, 1.0, 100, 60), load(2, 4.0, 1500, 60), load(3, 9.0, 300, 80)]
    start = from_measurements([trial(of).experiment for of in loads])
    for server, better in ((made, True), (SERVER, False)):
        trials = []
        for of in loads:
            measured = replay(server.language_model(of, files, 0), 1, of, Cost.of(TRUE)).figures
            trials.append(Trial(Experiment("made", of, measured), model(of), 1))
        found = fit(trials, start, near=TRUE)
        assert bool(composed_otherwise(SERVER, trials, found, files, 0)) is better
        assert composed_otherwise(made, trials, found, files, 0) == []


def test_too_little_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_text("prefill_tokens,decodes,kv_tokens,took_ms\n0,1,10,5\n")
    with pytest.raises(InputError, match="has 1 usable iterations; a fit needs at least 20"):
        calibrate(SERVER, [path])


def test_one_measurement_counts_once_and_requests_beyond_the_cache_are_said(tmp_path: Path) -> None:
    """A copy under another name is the same measurement, for requests and for iterations."""
    requests, copy, table = (tmp_path / name for name in ("a.csv", "b.csv", "steps.csv"))
    rows = "".join(f"{100 * i},{200 + i},20,50,300\n" for i in range(30))
    requests.write_text("arrival_ms,prompt_tokens,output_tokens,ttft_ms,e2e_ms\n" + rows)
    copy.write_text(requests.read_text())
    table.write_text("prefill_tokens,decodes,kv_tokens,took_ms\n" + "0,1,10,5\n0,2,30,6\n" * 20)
    for files, held_out in (([requests, copy], []), ([requests], [copy]), ([table, table], [])):
        with pytest.raises(InputError, match=r"is the same measurement as .*; give each once"):
            calibrate(SERVER, files, held_out)
    (found,) = read_measurements(requests)
    assert isinstance(found, Experiment)
    small = SERVER.with_(kv_blocks=15)
    notes = refused([trial_of(one, found, ScenarioFiles(), 0) for one in (SERVER, small)])
    fitting = int(((found.load.prompt + found.load.output) <= 15 * 16).sum())
    assert 0 < fitting < 30 and len(notes) == 1
    assert f"{30 - fitting} requests do not fit into the server's cache" in notes[0]
