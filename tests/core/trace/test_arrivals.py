"""Arrival processes: laws of their gaps and counts, streams, and the goldens of the legacy generator.

Tolerances are four standard errors of the estimator under the law being tested (about 1 in 16,000 by
chance); they come from the law, never from what a seed gives.
"""

from __future__ import annotations

import gzip
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.core.errors import ScenarioError, TraceError
from forerun.core.scenario.spec import Input, to_data
from forerun.core.trace.arrivals import described_processes, processes
from forerun.core.trace.generate import generate, process_from, seconds
from forerun.core.trace.processes.gamma import Gamma
from forerun.core.trace.processes.on_off import OnOff
from forerun.core.trace.processes.poisson import Poisson
from forerun.core.trace.stats import counts_in_windows
from forerun.replication.inferline.legacy_gamma import LegacyGamma
from forerun.serving.traces.phases import Phase, Phases
from forerun.serving.traces.recorded import Bootstrap, Scale

N = 200_000
SIGMAS = 4.0


def gaps_of(process, seed=11, n=N):
    return np.diff(process.arrivals_ms(seed, n=n + 1))


def scv_error(scv: float, n: int) -> float:
    """Standard error of the sample scv of n independent gamma gaps.

    By the delta method on mean and variance: with mean 1, c = scv and gamma third and fourth central moments
    2c^2 and 3c^2 + 6c^3, the variance of s^2/m^2 is (2c^2 + 6c^3 - 8c^3 + 4c^3)/n = (2c^2 + 2c^3)/n.
    """
    return math.sqrt((2 * scv**2 + 2 * scv**3) / n)


def test_poisson_gaps_have_mean_one_over_rate_and_scv_one():
    gaps = gaps_of(Poisson(rate_rps=50))
    assert abs(gaps.mean() - 20.0) < SIGMAS * 20.0 / math.sqrt(N)
    assert abs(gaps.var() / gaps.mean() ** 2 - 1) < SIGMAS * scv_error(1, N)


def test_poisson_counts_have_dispersion_one():
    """The index of dispersion of m Poisson windows has standard error sqrt(2/m) about."""
    counts = counts_in_windows(Poisson(rate_rps=50).arrivals_ms(3, horizon_s=4000), 1.0)
    error = math.sqrt(2 / len(counts) * (1 + 1 / (2 * 50)))
    assert abs(counts.var(ddof=1) / counts.mean() - 1) < SIGMAS * error


@pytest.mark.parametrize("scv", [0.1, 0.5, 1.0, 4.0])
def test_gamma_gaps_have_the_mean_and_scv_asked_for(scv):
    gaps = gaps_of(Gamma(rate_rps=100, scv=scv))
    assert abs(gaps.mean() - 10.0) < SIGMAS * 10.0 * math.sqrt(scv / N)
    assert abs(gaps.var() / gaps.mean() ** 2 - scv) < SIGMAS * scv_error(scv, N)


def test_gamma_gaps_are_uncorrelated():
    gaps = gaps_of(Gamma(rate_rps=100, cv=2))
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < SIGMAS / math.sqrt(N)


def test_cv_is_the_root_of_scv():
    one, other = Gamma(rate_rps=10, cv=2), Gamma(rate_rps=10, scv=4)
    assert one.squared_cv == other.squared_cv == 4
    assert one.arrivals_ms(5, n=1000).tolist() == other.arrivals_ms(5, n=1000).tolist()


def mean_rate_rps(process):
    """Arrivals per second in the long run."""
    on, off = process.mean_on_s, process.mean_off_s
    return (process.rate_rps * on + process.off_rate_rps * off) / (on + off)


def dispersion_limit(process):
    """Variance over mean of the arrivals in a long window, in the limit (Fischer and Meier-Hellstern, 1993).

    1 + 2 (a - b)^2 p q / ((p + q)^2 (a q + b p)), a and b the rates while on and off, p and q those of leaving on and off.
    """
    a, b, p, q = process.rate_rps, process.off_rate_rps, 1 / process.mean_on_s, 1 / process.mean_off_s
    return 1 + 2 * (a - b) ** 2 * p * q / ((p + q) ** 2 * (a * q + b * p))


@pytest.mark.parametrize(
    "process",
    [
        OnOff(rate_rps=100, mean_on_s=0.5, mean_off_s=1.5),
        OnOff(rate_rps=100, mean_on_s=1.0, mean_off_s=0.5, off_rate_rps=20),
    ],
)
def test_on_off_has_the_long_run_rate_and_dispersion_of_an_mmpp(process):
    """Counts in windows of 100 s, many times the switching: mean rate*T, variance about I*mean.

    The finite-window index is I - (I - 1)(1 - exp(-(p+q)T))/((p+q)T) (Fischer and Meier-Hellstern, 1993).
    """
    window_s, m = 100.0, 400
    counts = counts_in_windows(process.arrivals_ms(2, horizon_s=window_s * (m + 1)), window_s)
    mean = mean_rate_rps(process) * window_s
    limit, switching = dispersion_limit(process), 1 / process.mean_on_s + 1 / process.mean_off_s
    index = limit - (limit - 1) * (1 - math.exp(-switching * window_s)) / (switching * window_s)
    assert abs(counts.mean() - mean) < SIGMAS * math.sqrt(index * mean / len(counts))
    assert abs(counts.var(ddof=1) / counts.mean() - index) < SIGMAS * index * math.sqrt(2 / len(counts))


def test_gaps_of_an_interrupted_poisson_process_are_hyperexponential():
    """Gap scv = 1 + 2*rate*p/(p + q)^2, p and q the rates of leaving on and off (Kuczura, 1973).

    The standard error is estimated from 50 batches of gaps, which are independent in a renewal process.
    """
    process = OnOff(rate_rps=100, mean_on_s=0.5, mean_off_s=1.5)
    p, q = 1 / 0.5, 1 / 1.5
    gaps = gaps_of(process, n=N)
    batches = gaps[: N // 50 * 50].reshape(50, -1)
    mean = 1e3 / mean_rate_rps(process)
    second = (batches**2).mean(axis=1) / mean**2
    error = second.std(ddof=1) / math.sqrt(50)
    assert abs(second.mean() - (2 + 2 * 100 * p / (p + q) ** 2)) < SIGMAS * error


def test_interrupted_starts_are_stationary():
    """The chance of an arrival in the first 10 ms is the long-run share of on-time times 1 - exp(-1), nearly."""
    process = OnOff(rate_rps=100, mean_on_s=5, mean_off_s=15)
    hits = sum(len(process.arrivals_ms(seed, horizon_s=0.01)) > 0 for seed in range(2000))
    expected = 0.25 * (1 - math.exp(-1))
    assert abs(hits / 2000 - expected) < SIGMAS * math.sqrt(expected * (1 - expected) / 2000) + 0.001


@pytest.mark.parametrize("name", ["g01_driver_bs1", "g02_notebook_run", "g03_txp_smooth", "g07_optimum"])
def test_legacy_gamma_reproduces_the_compat_traces(shared, name):
    entry = json.loads(shared("golden", "serving", "compat", f"{name}.json").read_text())
    with gzip.open(shared("golden", "serving", "compat", f"{name}.deltas.gz"), "rt") as file:
        gaps = [float(line) for line in file]
    process = LegacyGamma(rate_rps=entry["lam"], scv=entry["cv2"], gamma_seed=entry["gamma_seed"])
    assert process.arrivals_ms(0, n=len(gaps) + 1).tolist() == np.cumsum([0.0, *gaps]).tolist()


def test_legacy_gamma_takes_the_runs_seed_if_it_has_none():
    given = LegacyGamma(rate_rps=10, scv=4, gamma_seed=7).arrivals_ms(1, n=100)
    assert given.tolist() == LegacyGamma(rate_rps=10, scv=4).arrivals_ms(7, n=100).tolist()
    assert given[0] == 0
    assert np.diff(given).min() >= 0.047 - 1e-12


STEADY = [
    Poisson(rate_rps=100),
    Gamma(rate_rps=100, scv=4),
    LegacyGamma(rate_rps=100, scv=4),
    OnOff(rate_rps=100, mean_on_s=0.1, mean_off_s=0.2),
    Phases(phases=(Phase(process=Poisson(rate_rps=100), duration_s=0.5),), repeat=True),
    Phases(
        phases=(
            Phase(process=Gamma(rate_rps=50, scv=4), duration_s=0.5),
            Phase(process=Poisson(rate_rps=200), duration_s=0.3),
        ),
        interpolate=True,
        repeat=True,
    ),
]


@pytest.mark.parametrize("process", STEADY, ids=lambda process: to_data(process)["name"])
class TestEveryProcess:
    def test_more_arrivals_change_none_of_those_before(self, process):
        long = process.arrivals_ms(4, n=20_000)
        assert process.arrivals_ms(4, n=17).tolist() == long[:17].tolist()
        horizon_s = float(long[10_000]) / 1e3
        assert process.arrivals_ms(4, horizon_s=horizon_s).tolist() == long[long < horizon_s * 1e3].tolist()

    def test_arrivals_ascend_and_depend_on_the_seed_alone(self, process):
        arrivals = process.arrivals_ms(4, n=5000)
        assert len(arrivals) == 5000
        assert arrivals[0] >= 0
        assert (np.diff(arrivals) >= 0).all()
        assert arrivals.tolist() == process.arrivals_ms(4, n=5000).tolist()
        assert arrivals.tolist() != process.arrivals_ms(5, n=5000).tolist()

    def test_it_can_be_written_down_and_read_back(self, process, tmp_path):
        path = tmp_path / "process.json"
        path.write_text(json.dumps(to_data(process)))
        assert process_from(str(path)) == process

    @pytest.mark.parametrize(
        "asked", [{}, {"n": 1, "horizon_s": 1.0}, {"n": 0}, {"horizon_s": math.inf}, {"horizon_s": -1.0}]
    )
    def test_exactly_one_usable_end_is_asked_for(self, process, asked):
        with pytest.raises(ScenarioError):
            process.arrivals_ms(1, **asked)


@pytest.mark.parametrize(
    ("process", "what"),
    [
        (Gamma(rate_rps=1), "exactly one of cv and scv; none was given"),
        (Gamma(rate_rps=1, cv=1, scv=1), "exactly one of cv and scv; both were given"),
        (Gamma(rate_rps=0, cv=1), "rate_rps: 0 is not above 0"),
        (Gamma(rate_rps=1, cv=math.nan), "cv: nan is not finite"),
        (Poisson(rate_rps=math.inf), "rate_rps: inf"),
        (OnOff(rate_rps=1, mean_on_s=0, mean_off_s=1), "mean_on_s: 0"),
        (OnOff(rate_rps=1, mean_on_s=1, mean_off_s=1, off_rate_rps=-1), "off_rate_rps: -1"),
        (LegacyGamma(rate_rps=1, scv=1, clip_ms=-1), "clip_ms: -1"),
        (LegacyGamma(rate_rps=1, scv=1, gamma_seed=2**32), "gamma_seed"),
        (Phases(phases=()), "at least one phase"),
        (
            Phases(phases=(Phase(process=Gamma(rate_rps=1), duration_s=1),)),
            "phases.0.process: give exactly one",
        ),
        (
            Phases(
                phases=(Phase(process=OnOff(rate_rps=1, mean_on_s=1, mean_off_s=1), duration_s=1),),
                interpolate=True,
            ),
            "phases.0.process: only poisson and gamma",
        ),
    ],
)
def test_parameters_that_make_no_process_are_refused(process, what):
    with pytest.raises(ScenarioError, match=what):
        process.arrivals_ms(1, n=10)


def test_phases_follow_each_other_and_end():
    steps = Phases(
        phases=(
            Phase(process=Poisson(rate_rps=10), duration_s=1000),
            Phase(process=Poisson(rate_rps=40), duration_s=500),
        )
    )
    arrivals = steps.arrivals_ms(1, horizon_s=1e9)
    first, second = (arrivals < 1e6).sum(), (arrivals >= 1e6).sum()
    assert abs(first - 10_000) < SIGMAS * 100
    assert abs(second - 20_000) < SIGMAS * math.sqrt(20_000)
    assert arrivals[-1] < 1.5e6
    with pytest.raises(ScenarioError, match=r"100000 arrivals were asked for; the process ends after \d+"):
        steps.arrivals_ms(1, n=100_000)


def test_an_interpolated_rate_moves_in_a_line():
    """From 100 to 300 rps over 200 s, then 300: between s and t the mean number is 100(t - s) + (t^2 -
    s^2)/2.
    """
    ramp = Phases(
        phases=(
            Phase(process=Poisson(rate_rps=100), duration_s=200),
            Phase(process=Poisson(rate_rps=300), duration_s=100),
        ),
        interpolate=True,
    )
    arrivals = ramp.arrivals_ms(9, horizon_s=300) / 1e3
    for s, t in [(0, 50), (50, 100), (100, 200), (150, 170)]:
        expected = 100 * (t - s) + (t**2 - s**2) / 2
        assert abs(((arrivals >= s) & (arrivals < t)).sum() - expected) < SIGMAS * math.sqrt(expected)
    assert abs((arrivals >= 200).sum() - 30_000) < SIGMAS * math.sqrt(30_000)


def test_an_interpolated_burstiness_moves_in_a_line():
    """scv from 0.25 to 4 at a constant rate: gaps that start near the ends have nearly the scv of the ends."""
    ramp = Phases(
        phases=(
            Phase(process=Gamma(rate_rps=100, scv=0.25), duration_s=2000),
            Phase(process=Gamma(rate_rps=100, scv=4), duration_s=1),
        ),
        interpolate=True,
    )
    arrivals = ramp.arrivals_ms(9, horizon_s=2000)
    for share in (0.1, 0.5, 0.9):
        scv = 0.25 + share * 3.75
        near = np.diff(arrivals[(arrivals > (share - 0.05) * 2e6) & (arrivals < (share + 0.05) * 2e6)])
        assert abs(near.var() / near.mean() ** 2 - scv) < SIGMAS * scv_error(scv, len(near)) + 0.01


def test_a_constant_interpolation_is_the_process_itself_in_law():
    flat = Phases(
        phases=(Phase(process=Gamma(rate_rps=100, scv=4), duration_s=0.7),), interpolate=True, repeat=True
    )
    gaps = gaps_of(flat, n=50_000)
    assert abs(gaps.mean() - 10) < SIGMAS * 10 * math.sqrt(4 / 50_000)
    assert abs(gaps.var() / gaps.mean() ** 2 - 4) < SIGMAS * scv_error(4, 50_000)


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s\n" + "".join(f"{t}\n" for t in (5, 6, 8, 11, 15, 20)))
    return Input(path=str(path))


def test_scaling_stretches_every_gap(recorded):
    assert Scale(trace=recorded).arrivals_ms(0, n=6).tolist() == [0, 1000, 3000, 6000, 10_000, 15_000]
    assert Scale(trace=recorded, stretch=2).arrivals_ms(0, n=3).tolist() == [0, 2000, 6000]
    fast = Scale(trace=recorded, rate_rps=10).arrivals_ms(0, n=6)
    assert fast[-1] == pytest.approx(500)
    with pytest.raises(ScenarioError, match="ends after 6"):
        Scale(trace=recorded).arrivals_ms(0, n=7)
    with pytest.raises(ScenarioError, match="exactly one of stretch and rate_rps; both"):
        Scale(trace=recorded, stretch=1, rate_rps=1).arrivals_ms(0, n=1)


def test_a_trace_that_changed_is_not_replayed(recorded):
    pinned = Input(path=recorded.path, sha256="0" * 64)
    with pytest.raises(TraceError, match=r"the scenario was made with 000000000000"):
        Scale(trace=pinned).arrivals_ms(0, n=1)


def test_bootstrap_lays_blocks_of_recorded_gaps_end_to_end(recorded):
    """Gaps are 1..5 s: within a block of three each is the one before plus 1, circularly."""
    made = np.diff(Bootstrap(trace=recorded, block_gaps=3).arrivals_ms(1, n=3001), prepend=0.0) / 1e3
    blocks = made[:3000].reshape(-1, 3)
    assert {tuple(block) for block in blocks.tolist()} == {
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 5),
        (4, 5, 1),
        (5, 1, 2),
    }
    straight = np.diff(
        Bootstrap(trace=recorded, block_gaps=3, circular=False).arrivals_ms(1, n=3001), prepend=0.0
    )
    assert set(straight[::3][:1000] / 1e3) == {1, 2, 3}


def test_circular_blocks_give_every_gap_the_same_chance(recorded):
    gaps = np.diff(Bootstrap(trace=recorded, block_gaps=2).arrivals_ms(1, n=100_001)) / 1e3
    assert abs(gaps.mean() - 3) < SIGMAS * math.sqrt(2 * 2 / 100_000)


@pytest.mark.parametrize(
    ("rows", "block", "what"),
    [
        ("5\n6\n", 5, "has 1 gaps, fewer than a block of 5"),
        ("5\n5\n5\n", 1, "all arrivals are at one instant"),
    ],
)
def test_a_trace_that_cannot_be_resampled_is_refused(tmp_path, rows, block, what):
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s\n" + rows)
    with pytest.raises(TraceError, match=what):
        Bootstrap(trace=Input(path=str(path)), block_gaps=block).arrivals_ms(0, n=5)


def test_scaling_a_single_instant_to_a_rate_is_refused(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s\n5\n5\n")
    with pytest.raises(TraceError, match="no rate to scale"):
        Scale(trace=Input(path=str(path)), rate_rps=3).arrivals_ms(0, n=2)


def test_processes_are_discovered_and_described():
    assert set(processes().names()) >= {
        "poisson",
        "gamma",
        "legacy_gamma",
        "on_off",
        "phases",
        "bootstrap",
        "scale",
    }
    rows = {row["process"]: row for row in described_processes()}
    assert rows["gamma"]["parameters"] == "rate_rps cv scv"
    assert all(row["about"] and row["source"] for row in rows.values())


def test_settings_may_carry_units():
    process = process_from("on_off", ["rate=3000/min", "mean_on=2min", "mean_off_s=30"])
    assert process == OnOff(rate_rps=50, mean_on_s=120, mean_off_s=30)
    assert seconds("10min") == 600
    assert seconds("90") == 90


def test_a_generated_trace_says_how_it_was_made():
    trace = generate(Gamma(rate_rps=10, cv=2), seed=3, n=50)
    assert trace.provenance.options["process"]["cv"] == 2
    assert trace["arrival_ms"].tolist() == Gamma(rate_rps=10, cv=2).arrivals_ms(3, n=50).tolist()


@given(st.floats(0.01, 1e5), st.floats(0.05, 20), st.integers(0, 2**64))
def test_any_gamma_process_ascends(rate, scv, seed):
    arrivals = Gamma(rate_rps=rate, scv=scv).arrivals_ms(seed, n=50)
    assert (np.diff(arrivals) >= 0).all()
    assert np.isfinite(arrivals).all()
