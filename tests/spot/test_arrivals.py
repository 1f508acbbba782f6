"""When failures come: each law against closed forms, a slow reference and its own likelihood, and recognised in logs."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, linalg, stats

from forerun.spot.engine.job import TrainingJob
from forerun.spot.policies.immediate import Immediate
from forerun.spot.reserved.cluster import logged_trial
from forerun.spot.reserved.scenario import Arrivals, Cluster, Failures, Hawkes, ModulatedPoisson
from forerun.spot.traces import law_kernel
from forerun.spot.traces.laws import fit_laws, residual_p, supported

from ..conftest import cases

RATE_PER_S = 1 / 3600
HORIZON_S = 200 * 3600.0
TRIALS = cases(500)

HAWKES = Hawkes(branching=0.6, decay_s=7200.0)
STORMS = ModulatedPoisson(storm_factor=12.0, mean_calm_s=40 * 3600.0, mean_storm_s=8 * 3600.0)
LAWS = [HAWKES, Hawkes(branching=0.9, decay_s=1800.0), STORMS]


def failure_times(
    arrivals: Arrivals | None, trial: int, horizon_s: float = HORIZON_S, gap_shape: float = 1.0, seed: int = 3
) -> Any:
    """The failures of a class, one an hour in the mean, from the kernel's log."""
    job = TrainingJob(
        depth=4,
        max_pipelines=1,
        step_s={4: horizon_s},
        reconfig_s=0.0,
        prep_s=0.0,
        write_s=0.0,
        stall_s=0.0,
        horizon_s=horizon_s,
    )
    failures = Failures(
        name="one", takes="process", job_mtbf_s=1 / RATE_PER_S, gap_shape=gap_shape, arrivals=arrivals
    )
    cluster = Cluster(gpus=32, failures=(failures,))
    _, _, log = logged_trial(job, cluster, Immediate(), (0.0,) * 4, seed=seed, trial=trial)
    return log[log[:, 1] == 0][:, 0]


def dispersion(law: Arrivals, window_s: float) -> float:
    """Variance over mean of the counts in a window: both laws have an exponential covariance of their rates."""
    if isinstance(law, Hawkes):
        n, decay = law.branching, 1 / law.decay_s
        relax, height = decay * (1 - n), n * decay * (2 - n) / (2 * (1 - n))
    else:
        calm, storm = law.rates_per_s(RATE_PER_S)
        relax = 1 / law.mean_calm_s + 1 / law.mean_storm_s
        height = (storm - calm) ** 2 * law.storm_share * (1 - law.storm_share) / RATE_PER_S
    return 1 + 2 * height / relax * (1 + math.expm1(-relax * window_s) / (relax * window_s))


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_counts_have_the_mean_and_the_dispersion_of_the_closed_form(law: Arrivals) -> None:
    """From time 0 on, in windows shorter and longer than the memory; within five standard errors."""
    histories = [failure_times(law, trial) for trial in range(TRIALS)]
    for window_s in (3600.0, 10 * 3600.0, HORIZON_S):
        counts = np.array([np.count_nonzero(times <= window_s) for times in histories], float)
        mean, variance = RATE_PER_S * window_s, RATE_PER_S * window_s * dispersion(law, window_s)
        assert abs(counts.mean() - mean) <= 5 * math.sqrt(variance / TRIALS), window_s
        squares = (counts - counts.mean()) ** 2
        error = math.sqrt(squares.var() / TRIALS)
        assert abs(counts.var(ddof=1) - variance) <= 5 * error, window_s


def test_a_long_window_disperses_by_the_branching_alone() -> None:
    """The law of large windows: 1 / (1 - n)^2."""
    for branching in (0.3, 0.6, 0.9):
        law = Hawkes(branching=branching, decay_s=60.0)
        assert dispersion(law, 1e12) == pytest.approx(1 / (1 - branching) ** 2, rel=1e-6)


def slow_hawkes(law: Hawkes, rng: np.random.Generator) -> list[float]:
    """By its clusters: immigrants, each with children, and theirs, at exponential delays; it begins long before time 0."""
    start_s = -60 * law.decay_s / (1 - law.branching)
    waiting = list(
        rng.uniform(start_s, HORIZON_S, rng.poisson(RATE_PER_S * (1 - law.branching) * (HORIZON_S - start_s)))
    )
    times = []
    while waiting:
        at = waiting.pop()
        if at < HORIZON_S:
            times.append(at)
            waiting += [
                at + delay for delay in rng.exponential(law.decay_s, rng.poisson(law.branching)).tolist()
            ]
    return sorted(at for at in times if at >= 0)


def slow_storms(law: ModulatedPoisson, rng: np.random.Generator) -> list[float]:
    """State by state, each with a Poisson number of failures anywhere in it."""
    rates, means = law.rates_per_s(RATE_PER_S), (law.mean_calm_s, law.mean_storm_s)
    at, state, times = 0.0, int(rng.random() < law.storm_share), []
    while at < HORIZON_S:
        length = rng.exponential(means[state])
        times += [at + x for x in rng.uniform(0, length, rng.poisson(rates[state] * length)).tolist()]
        at, state = at + length, 1 - state
    return sorted(x for x in times if x < HORIZON_S)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_histories_are_those_of_a_slow_reference(law: Arrivals) -> None:
    """Counts, the first failure and the time from the first to the fifth, one of each a history: the same distributions."""
    rng = np.random.default_rng(5)
    slow = [
        slow_hawkes(law, rng) if isinstance(law, Hawkes) else slow_storms(law, rng) for _ in range(TRIALS)
    ]
    fast = [failure_times(law, trial) for trial in range(TRIALS)]
    for figure in (
        lambda times: np.count_nonzero(np.asarray(times) < HORIZON_S / 10),
        lambda times: times[0] if len(times) else HORIZON_S,
        lambda times: times[4] - times[0] if len(times) > 4 else HORIZON_S,
    ):
        p = stats.ks_2samp([figure(times) for times in slow], [figure(times) for times in fast]).pvalue
        assert p > 1e-4


# --------------------------------------------------------------------- likelihoods


def test_likelihoods_are_those_of_plain_formulas() -> None:
    rng = np.random.default_rng(2)
    times, horizon = np.sort(rng.uniform(0, 50.0, 30)), 50.0
    gaps, out = np.diff(times), np.empty(29)

    shape, scale = 0.7, 1.3
    law = stats.weibull_min(shape, scale=scale)
    plain = (
        law.logsf(times[0]) - math.log(law.mean()) + law.logpdf(gaps).sum() + law.logsf(horizon - times[-1])
    )
    assert law_kernel.weibull(times, horizon, scale, shape, law.mean(), out) == pytest.approx(plain)
    assert out == pytest.approx(-law.logsf(gaps))

    base, jump, decay, excited = 0.3, 0.4, 0.8, 0.25

    def rate(t: float) -> float:
        past = times[times < t]
        return float(base + excited * math.exp(-decay * t) + jump * np.exp(-decay * (t - past)).sum())

    edges = [0.0, *times, horizon]
    areas = [integrate.quad(rate, a, b)[0] for a, b in itertools.pairwise(edges)]
    plain = sum(math.log(rate(t)) for t in times) - math.fsum(areas)
    assert law_kernel.hawkes(times, horizon, base, jump, decay, excited, out) == pytest.approx(
        plain, rel=1e-6
    )
    assert out == pytest.approx(areas[1:-1], rel=1e-6)

    calm, storm, leave_calm, leave_storm = 0.2, 2.0, 0.1, 0.4
    rates = np.diag([calm, storm])
    change = np.array([[-leave_calm, leave_calm], [leave_storm, -leave_storm]]) - rates
    state = np.array([leave_storm, leave_calm]) / (leave_calm + leave_storm)
    survivals = []
    for gap in np.diff(edges):
        state = state / state.sum() if survivals else state
        after = state @ linalg.expm(change * gap)
        survivals.append(after.sum())
        state = after @ rates
    # The product of the conditional densities is the likelihood.
    state = np.array([leave_storm, leave_calm]) / (leave_calm + leave_storm)
    for gap in np.diff(edges)[:-1]:
        state = state @ linalg.expm(change * gap) @ rates
    plain = math.log((state @ linalg.expm(change * (horizon - times[-1]))).sum())
    likelihood = law_kernel.modulated(times, horizon, calm, storm, leave_calm, leave_storm, out)
    assert likelihood == pytest.approx(plain)
    assert out == pytest.approx(-np.log(survivals[1:-1]))


def test_residuals_under_the_true_law_are_exponential_and_under_another_are_not() -> None:
    times = failure_times(HAWKES, 0, horizon_s=20 * HORIZON_S)
    out, decay = np.empty(times.size - 1), 1 / HAWKES.decay_s
    law_kernel.hawkes(times, 20 * HORIZON_S, 0.4 * RATE_PER_S, 0.6 * decay, decay, 0.6 * RATE_PER_S, out)
    assert residual_p(out) > 1e-3
    assert abs(np.corrcoef(out[1:], out[:-1])[0, 1]) < 5 / math.sqrt(out.size)
    law_kernel.hawkes(times, 20 * HORIZON_S, 0.9 * RATE_PER_S, 0.1 * decay, decay, 0.1 * RATE_PER_S, out)
    assert residual_p(out) < 1e-6
    assert residual_p(np.diff(times) * RATE_PER_S) < 1e-6

    times = failure_times(STORMS, 0, horizon_s=20 * HORIZON_S)
    out = np.empty(times.size - 1)
    rates = STORMS.rates_per_s(RATE_PER_S)
    law_kernel.modulated(times, 20 * HORIZON_S, *rates, 1 / STORMS.mean_calm_s, 1 / STORMS.mean_storm_s, out)
    assert residual_p(out) > 1e-3


def test_the_chance_of_residuals_is_that_of_the_exact_distribution() -> None:
    rng = np.random.default_rng(8)
    for scale in (1.0, 1.3):
        residuals = rng.exponential(scale, 150)
        exact = stats.kstest(residuals, "expon", method="exact").pvalue
        assert residual_p(residuals) == pytest.approx(exact, abs=0.01)


# --------------------------------------------------------------------- which law a log supports

LONG_S = 1500 * 3600.0


def test_parameters_come_back_within_their_intervals() -> None:
    """Over some logs of 1,500 failures, of each law; an interval of 95 % misses about one of twenty."""
    inside, tried, logs = 0, 0, cases(2, 5)
    true: dict[str, dict[str, float]] = {
        "weibull": {"gap_shape": 0.6},
        "hawkes": {"branching": 0.6, "decay": 2.0},
        "modulated": {"storm_factor": 12.0, "mean_calm": 40.0, "mean_storm": 8.0},
    }
    makes = {"weibull": (None, 0.6), "hawkes": (HAWKES, 1.0), "modulated": (STORMS, 1.0)}
    for name, (arrivals, shape) in makes.items():
        for trial in range(logs):
            fits = fit_laws(failure_times(arrivals, trial, LONG_S, gap_shape=shape), LONG_S)
            assert fits[0].name == name, (name, trial)
            assert fits[0].residual_p > 1e-3
            for rate in fits[0].rates:
                tried += 1
                inside += rate.low <= true[name][rate.name] <= rate.high
    # Binomial(12, .95): fewer than 9 have a chance of 2e-3, as have fewer than 25 of 30.
    assert tried == 6 * logs and inside >= (25 if logs == 5 else 9)


def test_a_poisson_log_supports_poisson_and_a_short_one_tells_nothing_apart() -> None:
    count, long_s = cases(3, 8), LONG_S if cases(3) >= 8 else LONG_S / 6
    logs = [failure_times(None, trial, long_s) for trial in range(count)]
    assert sum(supported(fit_laws(log, long_s))[0].name == "poisson" for log in logs) >= count - 2
    short = HORIZON_S / 8
    names = [
        {law.name for law in supported(fit_laws(failure_times(HAWKES, trial, short), short))}
        for trial in range(count)
    ]
    assert sum(len(one) > 1 for one in names) >= count / 2


def test_few_failures_try_no_law_of_many_parameters() -> None:
    fits = fit_laws(np.array([10.0, 30.0, 70.0]), 100.0)
    assert {fit.name for fit in fits} == {"poisson", "weibull"}
