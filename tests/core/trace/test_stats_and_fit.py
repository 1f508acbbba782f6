"""Statistics of arrivals by hand-made examples and published figures; fits that find what was put in."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from forerun.core.errors import TraceError
from forerun.core.trace.fit import fit_all, fit_gamma, fit_on_off, fit_poisson, judge, ks_distance
from forerun.core.trace.processes.gamma import Gamma
from forerun.core.trace.processes.on_off import OnOff
from forerun.core.trace.processes.poisson import Poisson
from forerun.core.trace.reader import read_trace
from forerun.core.trace.stats import arrival_stats, counts_in_windows, trace_stats

from ...conftest import cases


def test_statistics_of_a_stream_worked_by_hand():
    """Gaps 0, 100, 0, 0, 300 ms: mean 80, variance (3*80^2 + 20^2 + 220^2)/5 = 13,600."""
    stats = arrival_stats([1000, 1000, 1100, 1100, 1100, 1400])
    assert (stats.count, stats.first_s, stats.span_s) == (6, 1.0, 0.4)
    assert stats.rate_rps == pytest.approx(5 / 0.4)
    assert stats.gap_mean_ms == 80
    assert stats.gap_scv == pytest.approx(13_600 / 80**2)
    assert (stats.zero_gaps, stats.tied) == (3, 5)
    assert (stats.gap_p50_ms, stats.gap_max_ms) == (0, 300)


def test_windows_count_from_the_first_arrival_and_leave_the_partial_one_out():
    """Counts 3, 1, 1 in windows of 1 s; peak to mean 3/(5/3); sample variance 4/3 over mean 5/3."""
    instants = np.array([500.0, 600.0, 700.0, 1500.0, 2500.0, 3600.0])
    assert counts_in_windows(instants, 1.0).tolist() == [3, 1, 1]
    (window,) = arrival_stats(np.r_[instants, 13_000.0], windows_s=(1.0,)).windows
    assert window.windows == 12
    assert window.peak_to_mean == pytest.approx(3 / 0.5)


@pytest.mark.parametrize("instants", [[5.0], [5.0, 5.0]])
def test_a_stream_without_time_has_no_rate(instants):
    stats = arrival_stats(instants)
    assert stats.rate_rps is None
    assert stats.gap_cv is None
    assert stats.windows == ()


def test_no_arrivals_are_an_error():
    with pytest.raises(TraceError, match="there are none"):
        arrival_stats([])


@pytest.mark.parametrize("name", ["code", "conv"])
def test_published_traces_have_the_figures_of_the_golden_file(shared, name):
    folder = shared("golden", "serving", "readers")
    expected = json.loads((folder / "expected.json").read_text())[f"AzureLLMInferenceTrace_{name}.csv.gz"]
    stats = trace_stats(read_trace(folder / f"AzureLLMInferenceTrace_{name}.csv.gz"))
    assert stats.count == expected["rows"]
    assert stats.span_s == expected["span_s"]
    assert stats.rate_rps == pytest.approx(expected["rate_rps"], rel=1e-12)
    assert stats.gap_cv == pytest.approx(expected["gap_cv"], rel=1e-12)


def test_duplicates_are_rows_equal_in_every_column(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,prompt_tokens\n1,5\n1,5\n1,6\n2,5\n")
    stats = trace_stats(read_trace(path))
    assert (stats.duplicates, stats.tied, stats.zero_gaps) == (1, 3, 2)


def test_a_poisson_fit_finds_the_rate():
    process, _ = fit_poisson(Poisson(rate_rps=80).arrivals_ms(1, n=40_001))
    assert abs(process.rate_rps - 80) < 4 * 80 / math.sqrt(40_000)


def test_a_gamma_fit_finds_rate_and_scv():
    process, _ = fit_gamma(Gamma(rate_rps=80, scv=3).arrivals_ms(1, n=40_001))
    assert abs(process.rate_rps - 80) < 4 * 80 * math.sqrt(3 / 40_000)
    assert abs(process.squared_cv - 3) < 4 * math.sqrt((2 * 9 + 2 * 27) / 40_000)


def test_an_on_off_fit_finds_levels_and_times():
    """Sojourns are exponential, so with about 130 of each their mean is known to 9 %.

    The levels are known to 1 % from their counts, and biased by bins that a switch cuts in two: a bin of 80
    ms in a sojourn of 8 s that gets half of another 200 rps is off by 5 %.
    """
    true = OnOff(rate_rps=200, off_rate_rps=20, mean_on_s=4, mean_off_s=8)
    process, note = fit_on_off(true.arrivals_ms(5, horizon_s=1600))
    assert process.rate_rps == pytest.approx(200, rel=0.05)
    assert process.off_rate_rps == pytest.approx(20, rel=0.08)
    assert process.mean_on_s == pytest.approx(4, rel=4 / math.sqrt(1600 / 12))
    assert process.mean_off_s == pytest.approx(8, rel=4 / math.sqrt(1600 / 12))
    assert "expectation maximisation" in note


def test_the_right_family_agrees_and_the_wrong_one_does_not():
    """On average over traces: bands hold 95 %, so 80 % leaves a margin for features that move together."""
    true = OnOff(rate_rps=200, off_rate_rps=10, mean_on_s=1, mean_off_s=2)
    fits = [fit_all(true.arrivals_ms(seed, n=4000), traces=24) for seed in range(cases(2, 4))]
    agreement = {
        family: np.mean([fit.agreement for found in fits for fit in found if isinstance(fit.process, family)])
        for family in (OnOff, Poisson)
    }
    assert agreement[OnOff] >= 0.7
    assert agreement[Poisson] <= 0.4
    assert all(isinstance(found[0].process, OnOff) for found in fits)
    smooth = Poisson(rate_rps=100)
    judged = [judge(smooth, smooth.arrivals_ms(100 + s, n=3000), traces=24).agreement for s in range(6)]
    assert np.mean(judged) >= 0.8
    assert fits[0][0].data()["process"]["name"] == "on_off"


def test_kolmogorov_smirnov_distance_by_hand():
    assert ks_distance([1, 2, 3], [1, 2, 3]) == 0
    assert ks_distance([1, 2], [3, 4]) == 1
    assert ks_distance([1, 2, 3, 4], [3, 4, 5, 6]) == 0.5


@pytest.mark.parametrize(
    ("fitted", "instants", "what"),
    [
        (fit_poisson, np.arange(10.0), "10 are too few"),
        (fit_poisson, np.zeros(100), "all are at one instant"),
        (fit_all, np.arange(10.0), "^arrivals: 10 are too few to fit a process; at least 50 are needed$"),
        (fit_gamma, np.arange(100.0), "all gaps are equal"),
        (fit_on_off, np.arange(1000.0), "the two estimated levels are equal"),
    ],
)
def test_what_cannot_be_fitted_is_said(fitted, instants, what):
    with pytest.raises(TraceError, match=what):
        fitted(instants)
