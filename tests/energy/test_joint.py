"""The joint policy: what it believes, and that it beats the published one on the same seeds by a paired interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from forerun.core.result.stats import mean_interval
from forerun.energy.engine.batch import Work, run_many
from forerun.energy.engine.loops import sequence
from forerun.energy.engine.simulation import Simulation
from forerun.energy.inputs.workload import Workload, join
from forerun.energy.policies.jit import Jit
from forerun.energy.policies.joint import Joint
from forerun.energy.policies.pruning_gts import PruningGts
from forerun.energy.policy import KnobSpec, Pair
from forerun.energy.policy.curve import CostCurve, CurvePrior, Shapes
from forerun.energy.policy.rules import Rules
from forerun.energy.policy.view import Floats
from forerun.energy.readers.energy_tables import PowerTrace, TrainTrace
from forerun.energy.summary.savings import of_attempts, reference
from forerun.replication.zeus.public import GPUS
from forerun.replication.zeus.published import JOBS
from forerun.replication.zeus.reproduce import DRIFTS, drift_excess

from ..conftest import cases

COMPAT = Rules.of("compat")
PUBLISHED = Pair(batch_size=PruningGts(), limit=Jit())
pytestmark = pytest.mark.usefixtures("public_data")

SEEDS = range(40_000, 40_000 + cases(3, 10))


@pytest.fixture(scope="module")
def ratios(public: Callable[..., Workload]) -> dict[tuple[str, str], tuple[Floats, Floats]]:
    """Cost over the oracle's at eta 0.5 and beta 2 on each of the 24 workloads, by seed: of this policy, and of the
    published one."""
    found = {}
    for gpu in GPUS:
        for dataset in JOBS:
            workload = public(gpu, dataset)
            mine, theirs = (cost_ratios(workload, spec, SEEDS) for spec in (Joint(), PUBLISHED))
            found[gpu, dataset] = (mine, theirs)
    return found


def cost_ratios(workload: Workload, spec: KnobSpec, seeds: range, eta: float = 0.5) -> Floats:
    """One number a seed. The compiled loops of the published policy give the attempts of the readable ones."""
    against, n = reference(workload, eta), workload.recurrences()
    work = Work(workload, spec, eta=eta, beta=2.0, rules=COMPAT, recurrences=n)
    return np.array(
        [of_attempts(log, n, against).cost_ratio for log in run_many(work, seeds, compile_above=0)]
    )


def test_it_beats_the_published_policy_on_the_same_seeds(
    ratios: dict[tuple[str, str], tuple[Floats, Floats]],
) -> None:
    """24 workloads, eta 0.5, beta 2.

    The policy's constants were chosen on seeds 1000 to 1019 of all four types, and looked at on these seeds too.
    """
    mine, theirs = ({key: float(both[at].mean()) for key, both in ratios.items()} for at in (0, 1))
    # One number a seed: the mean difference over the 24 workloads.
    differences = np.array([one - other for one, other in ratios.values()])
    assert len(ratios) == 24 and mean_interval(differences.mean(axis=0)).high < -0.015
    # 1.029 over the 60 seeds of `benchmarks/energy/joint.py`; ten seeds tell it to about 0.003.
    assert np.mean(list(mine.values())) <= 1.035
    assert sum(mine[key] < theirs[key] for key in mine) >= 22
    assert max(mine[key] / theirs[key] for key in mine) <= 1.04


def test_it_notices_that_the_job_has_changed() -> None:
    """Excess cost after a change against the published policy without window, on the same seeds."""
    shares = []
    seeds = range(900, 900 + cases(2, 4))
    for world in DRIFTS:
        excess = np.mean(drift_excess(world, Joint(detect_drift=True), COMPAT, seeds))
        published = np.mean(drift_excess(world, PUBLISHED, COMPAT, seeds))
        shares.append(float(excess / published))
    assert np.mean(shares) <= 0.6
    assert max(shares) <= 1.1


def test_without_a_change_watching_costs_little(public: Callable[..., Workload]) -> None:
    """Cost after 120 of 240 recurrences over the oracle's, on two of the worlds; `benchmarks/energy/learning.py` has all."""
    found = []
    for gpu, dataset in (("rtx6000", "librispeech"), ("v100", "squad")):
        workload = public(gpu, dataset)
        oracle = reference(workload, 0.5).oracle
        assert oracle is not None
        logs = run_many(
            Work(workload, Joint(detect_drift=True), eta=0.5, beta=2.0, rules=COMPAT, recurrences=240),
            range(900, 900 + cases(8, 16)),
        )
        late = [log.per_recurrence(log.cost_j, 240)[120:].mean() / oracle.cost_j - 1 for log in logs]
        found.append(np.mean(late))
    # Runs differ by 0.009: the mean of eight in either world is known to 0.003.
    assert np.mean(found) <= 0.01 and max(found) <= 0.013, found


def known_curve(source: Workload) -> tuple[tuple[int, float], ...]:
    """The least cost of each size that always reaches."""
    best: dict[int, float] = {}
    for point in source.expected(0.5):
        if point.reach == 1:
            best[point.batch_size] = min(best.get(point.batch_size, math.inf), point.cost_j)
    return tuple(best.items())


def test_a_curve_known_from_another_gpu_helps(
    public: Callable[..., Workload], ratios: dict[tuple[str, str], tuple[Floats, Floats]]
) -> None:
    """The cost curve of v100 as prior for the 18 workloads of the other GPU types."""
    curves = {dataset: known_curve(public("v100", dataset)) for dataset in JOBS}
    others = [key for key in ratios if key[0] != "v100"]
    warm = [
        cost_ratios(public(*key), Joint(known_curve=curves[key[1]]), range(cases(1, 3))).mean()
        for key in others
    ]
    assert len(others) == 18 and np.mean(warm) <= 1.02
    assert np.mean(warm) < np.mean([ratios[key][0] for key in others]) - 0.002


# --- the belief -----------------------------------------------------------------------------------------------------


def test_the_belief_is_the_normal_posterior() -> None:
    """Three sizes, two observed: mean and covariance by conditioning the joint normal on log mean costs directly."""
    prior = CurvePrior(
        level_sd=0.8, shape_sd=0.5, length_octaves=2.0, own_sd=0.1, noise_sd=0.2, noise_weight=1e12
    )
    sizes = (8, 16, 64)
    curve = CostCurve(sizes, prior)
    seen = [(0, 1.0), (0, 1.4), (2, 2.0)]
    for at, value in seen:
        curve.add(at, value, completed=True)
    mean, covariance = curve.posterior()
    k = prior.covariance(np.array(sizes, dtype=float))
    rows = np.array([at for at, _ in seen])
    inner = k[np.ix_(rows, rows)] + 0.04 * np.eye(3)
    level = seen[0][1]
    first = math.log((math.exp(1.0) + math.exp(1.4)) / 2)
    expected = level + k[:, rows] @ np.linalg.solve(inner, np.array([first, first, 2.0]) - level)
    assert mean == pytest.approx(expected)
    assert covariance == pytest.approx(k - k[:, rows] @ np.linalg.solve(inner, k[rows, :]))


def test_what_epochs_cost_turns_the_belief() -> None:
    """An epoch that gets cheaper with the batch, on a GPU that waits, makes larger batches promising, and only then."""
    sizes = (64, 128, 256, 512)
    below = {}
    for name, epoch, waiting in (("waits", math.log(0.55), 0.8), ("computes", 0.0, 0.0)):
        curve = CostCurve(sizes, CurvePrior(shape_sd=0.15, own_sd=0.02), Shapes.trade_offs(sizes))
        curve.add(0, 5.0, completed=True)
        curve.add_epoch(0, 1.0, waiting)
        curve.add_epoch(1, 1.0 + epoch, waiting)
        mean, _ = curve.posterior()
        below[name] = float(mean[0] - mean[2])
    assert below["waits"] > 0.3 > 0.05 > below["computes"]


def test_a_mixture_is_its_parts_weighed_by_their_fit() -> None:
    """Two known shapes, far apart: the mean is that of the shape that explains what was seen."""
    sizes = (8, 16, 32)
    rising, falling = np.array([0.0, 1.0, 2.0]), np.array([0.0, -1.0, -2.0])
    nothing = np.zeros((2, 3))
    both = CostCurve(sizes, CurvePrior(shape_sd=0.1), Shapes(np.array([rising, falling]), nothing, nothing))
    one = CostCurve(sizes, CurvePrior(shape_sd=0.1), Shapes.known(falling))
    for curve in (both, one):
        curve.add(0, 3.0, completed=True)
    spread = both.posterior()[1][2, 2]
    assert both.posterior()[0][2] == pytest.approx(3.0) and spread > 3.0
    for curve in (both, one):
        curve.add(1, 2.0, completed=True)
    assert both.posterior()[0] == pytest.approx(one.posterior()[0], abs=1e-6)


def test_only_likely_limits_are_profiled_at_a_new_size(make_toy: Callable[..., Workload]) -> None:
    """Six limits, the fourth clearly the best at the default, the third at the others: they profile the three around."""
    limits = (300.0, 250.0, 200.0, 150.0, 100.0, 50.0)
    seconds = {16: (100, 100, 100, 80, 200, 400)} | dict.fromkeys((8, 32, 64), (100, 100, 60, 80, 200, 400))
    power = {size: {w: (float(s), w - 10) for w, s in zip(limits, times)} for size, times in seconds.items()}
    workload = make_toy({size: [5, 5] for size in power}, power, default=16)
    run = sequence(Simulation(workload, Joint(), eta=0.5, beta=2.0, rules=COMPAT, seed=2), 40)
    profiles: dict[int, list[tuple[float, ...]]] = {}
    for line in run.attempts:
        if line.outcome.measured is not None:
            profiles.setdefault(line.outcome.batch_size, []).append(line.outcome.measured.limits_w)
    assert profiles.pop(16) == [limits]
    assert profiles and all(
        found[0][1:3] == (200.0, 150.0) or found[0][:2] == (200.0, 150.0) for found in profiles.values()
    )
    assert all(len(found) == 1 and len(found[0]) < 6 for found in profiles.values())
    best = {line.outcome.batch_size: line.outcome.limit_w for line in run.attempts}
    assert {best[size] for size in profiles} == {200.0}


@pytest.mark.parametrize(
    ("gpu", "dataset", "target", "default", "eta"),
    [
        ("v100", "imagenet", 0.5, 192, 0.5),  # runs of 7, 6, 6, 31 and 31 epochs at one size
        ("a40", "imagenet", 0.6, 128, 0.5),
        ("a40", "cifar100", 0.35, 1024, 1.0),  # the best limit of the best size is not near the default's
    ],
)
def test_it_is_not_behind_where_few_runs_take_very_long(
    gpu: str,
    dataset: str,
    target: float,
    default: int,
    eta: float,
    train: TrainTrace,
    powers: dict[str, PowerTrace],
) -> None:
    """Mean cost against the published policy's over the same seeds; the best size is searched beyond a bad neighbour."""
    job = JOBS[dataset].with_(target_metric=target, default_batch_size=default)
    workload = join(train, powers[gpu], job, COMPAT)
    mine, theirs = (
        cost_ratios(workload, spec, range(cases(8, 20)), eta).mean() for spec in (Joint(), PUBLISHED)
    )
    assert mine <= 1.03 * theirs


def test_a_size_with_a_heavy_tail_is_dear_and_leaves_others_precise() -> None:
    """Two sizes: constant costs of 7, and costs whose logarithms have the lower mean but which are dearer on average."""
    curve = CostCurve((8, 16), CurvePrior(shape_sd=1.0, own_sd=0.3))
    for _ in range(10):
        curve.add(0, math.log(7), completed=True)
    for cost in (2, 3, 3, 31, 2, 3, 2, 31, 3, 2):
        curve.add(1, math.log(cost), completed=True)
    mean, _ = curve.posterior()
    assert mean[0] < mean[1] == pytest.approx(math.log(8.2), abs=0.2)
    assert curve.noise_variance(0) < 0.005 < 0.5 < curve.noise_variance(1)


def test_a_stopped_attempt_at_a_known_size_costs_a_retry() -> None:
    """Half the attempts at 16 are stopped at 12, and are then run again at a cost of 10."""
    curve = CostCurve((8, 16), CurvePrior(shape_sd=5.0, own_sd=5.0))
    for _ in range(50):
        curve.add(0, math.log(10), completed=True)
        curve.add(1, math.log(6), completed=True)
        curve.add(1, math.log(12), completed=False)
    assert np.exp(curve.posterior()[0]) == pytest.approx([10, (6 + 12 + 10) / 2], rel=0.02)


def test_a_contradiction_walks_as_the_published_policy_would(make_toy: Callable[..., Workload]) -> None:
    """Half the default's cost at its lower neighbour, hardly less above it, and a quarter at 256, far from both."""
    power = {size: {200.0: (100.0, 150.0)} for size in (4, 8, 16, 32, 64, 128, 256)}
    epochs = {4: 40, 8: 24, 16: 46, 32: 44, 64: 44, 128: 44, 256: 12}
    workload = make_toy({size: [n, n] for size, n in epochs.items()}, power, default=16, max_epochs=1000)
    sizes = {}
    for name, spec in (("walks", Joint()), ("does not", Joint(surprise_at=1e9))):
        run = sequence(Simulation(workload, spec, eta=0.5, beta=2.5, rules=COMPAT, seed=3), 40)
        sizes[name] = [line.outcome.batch_size for line in run.attempts]
    assert sizes["walks"][-5:] == [256] * 5
    assert 256 not in sizes["does not"]


def test_a_stopped_attempt_moves_the_belief_up_and_only_up() -> None:
    prior = CurvePrior()
    curve = CostCurve((8, 16, 32), prior)
    curve.add(0, 1.0, completed=True)
    before = curve.posterior()[0][1]
    curve.add(1, 2.0, completed=False)
    assert curve.posterior()[0][1] > 1.9 > before
    low = CostCurve((8, 16, 32), prior)
    low.add(0, 1.0, completed=True)
    low.add(1, -1.0, completed=False)
    assert low.posterior()[0][1] == pytest.approx(before, abs=0.15)


def test_a_restart_begins_from_the_given_observations() -> None:
    curve = CostCurve((8, 16), CurvePrior())
    for value in (5.0, 5.1, 4.9):
        curve.add(0, value, completed=True)
    curve.restart([(1, 2.0, True)])
    fresh = CostCurve((8, 16), CurvePrior())
    fresh.add(1, 2.0, completed=True)
    assert curve.posterior()[0] == pytest.approx(fresh.posterior()[0])


def test_it_starts_at_the_default_and_steps_to_neighbours(make_toy: Callable[..., Workload]) -> None:
    power = {size: {200.0: (1000.0 / size, 150.0)} for size in (4, 8, 16, 32, 64, 128, 256)}
    workload = make_toy({size: [20, 21] for size in power}, power, default=16)
    simulation = Simulation(workload, Joint(), eta=0.5, beta=2.0, rules=COMPAT, seed=3)
    sizes = [line.outcome.batch_size for line in sequence(simulation, 30).attempts]
    assert sizes[0] == 16
    assert sizes[1] in (8, 16, 32)
    assert sizes[-1] == 256


def test_sizes_that_never_reach_are_left(make_toy: Callable[..., Workload]) -> None:
    power = {size: {200.0: (10.0, 150.0)} for size in (8, 16, 32)}
    workload = make_toy({8: [None], 16: [None], 32: [5, 6]}, power, default=8)
    run: Any = sequence(Simulation(workload, Joint(), eta=0.5, beta=2.0, rules=Rules(), seed=1), 10)
    first = [line.outcome.batch_size for line in run.attempts if line.recurrence == 0]
    assert first == [8, 16, 32]
    assert {line.outcome.batch_size for line in run.attempts if line.recurrence} == {32}
