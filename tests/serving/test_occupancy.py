"""Costs from mean iterations of measured runs, and the rate that other settings carry with them."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.serving.occupancy import (
    KERNEL_SPREAD,
    calibrated,
    carried_rps,
    iteration_ms,
    occupied,
)

from forerun.serving.inputs.inputs import ScenarioFiles
from forerun.serving.llm.calibration.calibrate import trial_of
from forerun.serving.llm.calibration.experiment import Experiment, Load
from forerun.serving.llm.calibration.physics import Physics
from forerun.serving.llm.calibration.replay import COEFFICIENTS
from forerun.serving.llm.calibration.server import Server
from forerun.serving.llm.scenario.language_model import DrawnPrefixes, SpeculationSpec

from ..conftest import cases

SERVER = Server(max_seqs=64, token_budget=8192, kv_blocks=20_000)
CACHED = SERVER.with_(prefix_cache=DrawnPrefixes(system_prompts=20, system_tokens=160))
#: a, prompt token, decode, cached token, pair, request, hidden
COSTS = np.array([7.0, 0.025, 0.02, 4.5e-5, 1e-6, 0.0, 90.0])
PROMPT, OUTPUT = 200, 60
DRAFTED = SpeculationSpec(draft_tokens=4, acceptance=0.3, draft_ms=0.8, draft_ms_per_seq=0.01)


def load(rate_rps: float, count: int, most: int | None = None) -> Load:
    """Answers differ, so that seats are not given back all at once."""
    send_ms = np.arange(count) * (1e3 / rate_rps if most is None else 0.0)
    output = np.random.default_rng(2).integers(OUTPUT // 2, 3 * OUTPUT // 2 + 1, count)
    return Load(send_ms, np.full(count, PROMPT), output, most)


def run(server: Server, of: Load) -> Experiment:
    """What a server with known costs shows under a load."""
    trial = trial_of(server, Experiment("", of, {}), ScenarioFiles(), 0)
    return Experiment("", of, trial.figures(COSTS))


def test_the_mean_iteration_is_that_of_the_run() -> None:
    for rate in (1.0, 20.0, 45.0):
        took_ms, of = occupied(SERVER, run(SERVER, load(rate, 1500)))
        assert iteration_ms(COSTS, of) == pytest.approx(took_ms, rel=0.04)


@pytest.mark.parametrize("server", [SERVER, CACHED])
def test_the_carried_rate_is_that_of_a_replay(server: Server) -> None:
    full = run(server, load(1.0, 4000, 200)).measured["throughput_rps"]
    assert carried_rps(COSTS, server, PROMPT, OUTPUT) == pytest.approx(full, rel=0.04)


def test_the_carried_rate_with_a_draft_is_that_of_a_replay() -> None:
    server = CACHED.with_(speculation=DRAFTED)
    full = run(server, load(1.0, 4000, 200)).measured["throughput_rps"]
    assert carried_rps(COSTS, server, PROMPT, OUTPUT) == pytest.approx(full, rel=0.05)


def test_the_carried_rate_with_launches_is_that_of_a_replay() -> None:
    """Nearly all iterations with prompts are launched, some are, and none is, since their tokens are recorded."""
    rates = []
    for tokens in (0.0, 300.0, 5000.0):
        costs = np.array([*COSTS, 20.0, tokens])
        of = Experiment("", load(1.0, 4000, 200), {})
        full = trial_of(SERVER, of, ScenarioFiles(), 0).figures(costs)["throughput_rps"]
        rates.append(carried_rps(costs, SERVER, PROMPT, OUTPUT))
        assert rates[-1] == pytest.approx(full, rel=0.05)
    assert rates[0] < 0.95 * rates[1] < 0.95 * rates[2]


def test_the_mean_iteration_of_a_server_that_drafts_is_without_its_drafts() -> None:
    for rate in (1.0, 20.0, 35.0):
        server = SERVER.with_(speculation=DRAFTED)
        took_ms, of = occupied(server, run(server, load(rate, 1500)))
        assert iteration_ms(COSTS, of) == pytest.approx(took_ms, rel=0.06)


def test_what_a_change_is_worth_follows_from_the_runs_before_it() -> None:
    """Begun where prompts and decodes seem cheaper than they are, runs without a prefix cache say what one is worth."""
    start = COSTS * [1.05, 0.7, 0.8, 1.0, 1.0, 1.0, 2.0]
    size = cases(700, 1500)
    runs = [(SERVER, run(SERVER, load(rate, size))) for rate in (1.0, 15.0, 30.0, 45.0)]
    runs.append((SERVER, run(SERVER, load(1.0, 2 * size, 200))))
    found = calibrated(runs, Physics(start, KERNEL_SPREAD, "elsewhere"))
    assert max(map(abs, found.errors)) < 0.03
    worth = [
        carried_rps(costs, CACHED, PROMPT, OUTPUT) / carried_rps(costs, SERVER, PROMPT, OUTPUT)
        for costs in (COSTS, start, found.values, *found.draws(cases(14, 40)))
    ]
    assert abs(worth[2] - worth[0]) < 0.08 < abs(worth[1] - worth[0])
    low, high = np.quantile(worth[3:], [0.05, 0.95])
    assert low < worth[0] < high
    assert len(found.values) == len(COEFFICIENTS)
