"""Each known bug of the published simulator in both modes: compat keeps it, corrected fixes it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from forerun.core.errors import ForerunError, TraceError
from forerun.energy.engine.loops import group, sequence
from forerun.energy.engine.simulation import Simulation
from forerun.energy.inputs.workload import Submission, Workload, join
from forerun.energy.policies.default import Default
from forerun.energy.policies.fixed import Fixed
from forerun.energy.policies.gts import Gts
from forerun.energy.policies.jit import Jit
from forerun.energy.policies.pruning_gts import PruningGts
from forerun.energy.policy import KnobSpec, Pair
from forerun.energy.policy.failures import (
    AllPruned,
    BestNotProfiled,
    DefaultDidNotReach,
    Livelock,
    TargetNotInTrace,
    TriesExhausted,
    WindowTooSmall,
)
from forerun.energy.policy.rules import Rules
from forerun.energy.policy.view import AttemptOutcome, Job

from ..conftest import cases

COMPAT, CORRECTED = Rules.of("compat"), Rules.of("corrected")

EPOCHS = {
    16: {200.0: (14.0, 150.0), 100.0: (20.0, 80.0)},
    32: {200.0: (7.0, 160.0), 100.0: (10.0, 85.0)},
    64: {200.0: (4.0, 170.0), 100.0: (6.0, 90.0)},
}
PUBLISHED = Pair(batch_size=PruningGts(concurrency=True), limit=Jit())


def simulation(
    workload: Workload,
    rules: Rules,
    spec: KnobSpec = PUBLISHED,
    *,
    beta: float = 2.0,
    eta: float = 0.5,
    seed: int = 1,
) -> Simulation:
    return Simulation(workload, spec, eta=eta, beta=beta, rules=rules, seed=seed)


def overlapping(n: int, every_s: float = 10.0, length_s: float = 35.0) -> list[Submission]:
    return [Submission(i * every_s, i * every_s + length_s) for i in range(n)]


def outcome(size: int, cost: float, ended: str = "reached") -> AttemptOutcome:
    return AttemptOutcome(size, 200.0, 3, cost, 1.0, cost, cost, math.inf, ended)  # type: ignore[arg-type]


def test_b1_an_attempt_that_never_ran_is_no_bargain(recorded: Any, play: Any) -> None:
    case, workload, spec = recorded("t02_never_ran_in_TS_group_zero_cost")
    _run, at = play(case["config"], workload, spec)
    assert [o.observed_j for o in at.finished if o.ended_by == "never_ran"] == [0.0]
    rows = [Submission(r["start_time"], r["end_time"], r["runtime_ratio"]) for r in case["config"]["group"]]
    never = 0
    for seed in range(40):
        at = simulation(workload, CORRECTED, spec, beta=1.5, seed=seed)
        with contextlib.suppress(AllPruned):
            group(at, rows)
        never += sum(o.ended_by == "never_ran" for o in at.finished)
        assert all(o.observed_j > 0 for o in at.finished)
        assert all(o.observed_j == o.bound_j for o in at.finished if o.ended_by == "never_ran")
    strict = simulation(workload, CORRECTED, Fixed(batch_size=16, limit_w=200.0))
    world = workload.epoch_j[0]
    assert strict._cap(0.1 * float(world), float(world)) == 0


def test_b1_in_sequence_the_penalty_is_the_bound_not_a_hundred(make_toy: Callable[..., Workload]) -> None:
    # One lucky run of 64 makes the bound so low that an epoch of 16 does not fit.
    workload = make_toy(
        {16: [1], 32: [1]}, {16: {200.0: (100.0, 150.0)}, 32: {200.0: (1.0, 150.0)}}, default=32
    )
    for rules, expected in ((COMPAT, 100.0 * 2.0 * 175.0), (CORRECTED, 2.0 * 175.0)):
        at = simulation(workload, rules)
        sequence(at, 4)
        never = [o for o in at.finished if o.ended_by == "never_ran"]
        assert never and never[0].observed_j == pytest.approx(expected)
        assert (never[0].energy_j, never[0].cost_j) == (0.0, 0.0)


def test_b2_retries_end(make_toy: Callable[..., Workload]) -> None:
    """The default never reaches and something always runs: compat retries it for ever."""
    workload = make_toy({16: [3] * 4, 32: [None] * 4, 64: [4] * 4}, EPOCHS, default=32)
    rows = [Submission(0.0, 40.0), Submission(10.0, 50.0)]
    with pytest.raises(Livelock, match="retried under a bound"):
        group(simulation(workload, COMPAT), rows)
    run = group(simulation(workload, CORRECTED), rows)
    assert sum(line.outcome.reached for line in run.attempts) == 2
    assert {line.outcome.batch_size for line in run.attempts if line.outcome.reached} <= {16, 64}


def test_b2_a_hopeless_submission_ends_by_name(make_toy: Callable[..., Workload]) -> None:
    workload = make_toy({16: [None], 32: [None]}, {s: EPOCHS[s] for s in (16, 32)}, default=32)
    at = simulation(workload, CORRECTED, Default())
    with pytest.raises(TriesExhausted, match="20 attempts failed"):
        group(at, [Submission(0.0, 10.0)])
    assert len(at.finished) == 20


def test_b3_concurrent_submissions_leave_pruned_sizes(make_toy: Callable[..., Workload]) -> None:
    """16 is lucky once in four, then fails its second walk. Compat repeats it beside others; corrected does not.

    Ten submissions alone finish the exploration; sixty that overlap follow.
    """
    workload = make_toy({16: [4, 40, 40, 40], 32: [9] * 4, 64: [14] * 4}, EPOCHS, default=32)
    rows = [Submission(100.0 * i, 100.0 * i + 20.0) for i in range(10)]
    rows += [Submission(1000.0 + row.start_s, 1000.0 + row.end_s) for row in overlapping(60)]
    at_pruned = {COMPAT: [], CORRECTED: []}
    for rules, counts in at_pruned.items():
        for seed in range(40):
            at = simulation(workload, rules, seed=seed)
            with contextlib.suppress(Livelock, AllPruned):
                run = group(at, rows)
                arms = at.policy.batch_size.bandit.arms  # type: ignore[attr-defined]
                late = [line for line in run.attempts if line.start_s >= 1000.0]
                counts.append(sum(line.outcome.batch_size not in arms for line in late))
    assert len(at_pruned[CORRECTED]) > 20
    assert max(at_pruned[COMPAT]) >= 60
    assert max(at_pruned[CORRECTED]) == 0


def test_b4_a_bound_of_exactly_ten_epochs_allows_ten(make_toy: Callable[..., Workload]) -> None:
    workload = make_toy({32: [3]}, {32: EPOCHS[32]}, default=32)
    for rules, expected in ((COMPAT, 9), (CORRECTED, 10)):
        at = simulation(workload, rules)
        assert at._cap(1.0, 0.1) == expected
        assert at.history.known_bugs["B4"] == 1
        assert at._cap(7.0, 2.0) == 3
        assert at.history.known_bugs["B4"] == 1


def test_b5_one_lucky_run_does_not_set_the_bound(make_toy: Callable[..., Workload]) -> None:
    workload = make_toy({16: [3], 32: [3]}, {s: EPOCHS[s] for s in (16, 32)}, default=32)
    at = simulation(workload, CORRECTED, Default())
    assert at.bound_j == math.inf
    at.learn(outcome(32, 100.0))
    assert at.bound_j == 2.0 * 100.0
    at.learn(outcome(16, 500.0))
    at.learn(outcome(16, 200.0, "bound"))
    at.learn(outcome(32, 300.0))
    assert at.bound_j == 2.0 * 200.0
    assert at.standing[16].mean_j == 700.0
    compat = simulation(workload, COMPAT)
    compat.least_j = 100.0
    assert compat.bound_j == 200.0


def test_b6_one_price_of_time(recorded: Any) -> None:
    _case, compat, _ = recorded("t04_two_max_powers")
    assert compat.max_power_w != compat.top_limit_w.max()
    assert any(code == "B6" for code, _ in compat.notes)


def test_b6_the_scenario_may_name_the_price(make_traces: Any) -> None:
    key = {"dataset": "toy", "network": "net", "optimizer": "adam", "batch_size": 8}
    train, power = make_traces(
        [{**key, "target_metric": 0.9, "target_epoch": 3}],
        [{**key, "power_limit": 200.0, "time_per_epoch": 1.0, "average_power": 150.0}],
    )
    job = Job(dataset="toy", network="net", optimizer="adam", target_metric=0.9, max_epochs=9)
    workload = join(train, power, job, CORRECTED, max_power_w=300.0)
    assert workload.max_power_w == 300.0
    assert workload.top_limit_w.tolist() == [300.0]


def test_b7_the_profiling_epoch_is_charged(make_toy: Callable[..., Workload]) -> None:
    """The split epoch of 16 costs far more than its best limit's: under a tight bound compat runs it anyway."""
    epochs = {16: {200.0: (10.0, 100.0), 100.0: (200.0, 100.0)}, 32: {200.0: (10.0, 110.0)}}
    workload = make_toy({16: [5], 32: [5]}, epochs, default=32)
    for rules, ended in ((COMPAT, "reached"), (CORRECTED, "never_ran")):
        at = simulation(workload, rules, beta=2.0)
        sequence(at, 3)
        second = at.finished[1]
        assert (second.batch_size, second.ended_by) == (16, ended)
        if rules is CORRECTED:
            assert 16 not in at.policy.limit.best  # type: ignore[attr-defined]
            assert all(o.cost_j <= o.bound_j * (1 + 1e-9) for o in at.finished)
        else:
            assert second.cost_j > second.bound_j
            assert at.history.known_bugs["B7"] == 1


def test_a_cost_is_energy_and_time_at_the_price_of_the_top_limit(make_toy: Callable[..., Workload]) -> None:
    workload = make_toy({16: [9], 32: [5, 6], 64: [3, 40]}, EPOCHS, default=32)
    at = simulation(workload, CORRECTED, eta=0.3)
    sequence(at, 12)
    for one in at.finished:
        cost_j = 0.3 * one.energy_j + 0.7 * workload.max_power_w * one.time_s
        assert one.cost_j == pytest.approx(cost_j, rel=1e-12), one


def test_an_attempt_that_profiled_ends_with_the_last_epoch_that_fits(
    make_toy: Callable[..., Workload],
) -> None:
    """Sizes that would take far longer than the bound: one more epoch at the limit that was kept is beyond it."""
    workload, stopped = make_toy({16: [90], 32: [5], 64: [90]}, EPOCHS, default=32), 0
    for beta in np.linspace(1.5, 4.0, 11).tolist():
        at = simulation(workload, CORRECTED, beta=beta, eta=1.0)
        sequence(at, 6)
        for one in at.finished:
            if one.measured is not None and one.ended_by == "bound":
                seconds, watts = EPOCHS[one.batch_size][one.limit_w]
                assert one.cost_j <= one.bound_j * (1 + 1e-9)
                assert one.cost_j + seconds * watts > one.bound_j * (1 - 1e-9), (beta, one)
                stopped += 1
    assert stopped > 5


def test_b8_a_window_of_one_lives_on_pooled_variance(make_toy: Callable[..., Workload]) -> None:
    workload = make_toy({16: [3, 4], 32: [6, 7], 64: [10, 11]}, EPOCHS, default=32)
    narrow = Pair(batch_size=PruningGts(window=1), limit=Jit())
    with pytest.raises(WindowTooSmall, match="a variance needs two"):
        sequence(simulation(workload, COMPAT, narrow), 30)
    at = simulation(workload, CORRECTED, narrow)
    sequence(at, 30)
    assert at.history.known_bugs["B8"] >= 1
    assert all(math.isfinite(sd) and sd > 0 for _, _, sd, _ in at.policy.batch_size.beliefs())  # type: ignore[attr-defined]


def test_b12_power_above_the_limit_is_noted(make_toy: Callable[..., Workload]) -> None:
    for rules in (COMPAT, CORRECTED):
        workload = make_toy({32: [3]}, {32: {100.0: (10.0, 121.0)}}, default=32, rules=rules)
        assert [code for code, _ in workload.notes if code == "B12"] == ["B12"]


def test_b14_duplicates(recorded: Any, make_traces: Any) -> None:
    key = {"dataset": "toy", "network": "net", "optimizer": "adam", "batch_size": 8}
    row = {**key, "power_limit": 200.0, "time_per_epoch": 1.0, "average_power": 150.0}
    train, power = make_traces([{**key, "target_metric": 0.9, "target_epoch": 3}], [row, row])
    job = Job(dataset="toy", network="net", optimizer="adam", target_metric=0.9, max_epochs=9)
    assert join(train, power, job, COMPAT).count.tolist() == [[2]]
    assert join(train, power, job, CORRECTED).count.tolist() == [[1]]
    _, conflicting = make_traces([], [row, {**row, "time_per_epoch": 2.0}])
    with pytest.raises(TraceError, match=r"power.csv:3: conflicts with line 2.*1 s, 150 W there and 2 s"):
        join(train, conflicting, job, CORRECTED)


def test_b16_the_error_names_what_ran(make_toy: Callable[..., Workload]) -> None:
    workload = make_toy({16: [None], 32: [3]}, {s: EPOCHS[s] for s in (16, 32)}, default=32)
    first = {**dict.fromkeys(COMPAT.__struct_fields__, False)}
    for rules, blamed in ((Rules(**first), 32), (Rules(**{**first, "blame_what_ran": True}), 16)):
        with pytest.raises(DefaultDidNotReach, match=f"batch size {blamed} did not"):
            sequence(simulation(workload, rules, Fixed(batch_size=16)), 3)


def test_b17_sizes_without_the_target_are_left_out(make_traces: Any) -> None:
    key = {"dataset": "toy", "network": "net", "optimizer": "adam"}
    train, power = make_traces(
        [
            {**key, "batch_size": 8, "target_metric": 0.9, "target_epoch": 3},
            {**key, "batch_size": 16, "target_metric": 0.8, "target_epoch": 3},
        ],
        [
            {**key, "batch_size": size, "power_limit": 200.0, "time_per_epoch": 1.0, "average_power": 150.0}
            for size in (8, 16)
        ],
    )
    job = Job(
        dataset="toy", network="net", optimizer="adam", target_metric=0.9, max_epochs=9, default_batch_size=8
    )
    compat, corrected = join(train, power, job, COMPAT), join(train, power, job, CORRECTED)
    assert (compat.sizes.tolist(), corrected.sizes.tolist()) == ([8, 16], [8])
    with pytest.raises(TargetNotInTrace, match="batch size 16"):
        sequence(simulation(compat, COMPAT), 5)
    assert sequence(simulation(corrected, CORRECTED), 5).known_bugs["B17"] == 1


def test_b18_the_first_recurrence_may_retry(make_toy: Callable[..., Workload]) -> None:
    workload = make_toy({16: [3] * 2, 32: [None] * 2, 64: [5] * 2}, EPOCHS, default=32)
    with pytest.raises(DefaultDidNotReach):
        sequence(simulation(workload, COMPAT), 5)
    run = sequence(simulation(workload, CORRECTED), 5)
    assert sum(line.outcome.reached for line in run.attempts) == 5
    assert [line.outcome.batch_size for line in run.attempts if line.recurrence == 0] == [32, 64]


def test_b19_failed_tries_do_not_raise_the_bar(make_toy: Callable[..., Workload]) -> None:
    """32 reaches, 16 fails within recurrence 1, then 64 reaches more cheaply."""
    workload = make_toy({16: [None], 32: [6], 64: [5]}, EPOCHS, default=32)
    least = {}
    for rules in (COMPAT, COMPAT.with_(least_by_attempt=True)):
        at = simulation(workload, rules)
        sequence(at, 2)
        last = at.finished[-1]
        assert [o.batch_size for o in at.finished] == [32, 16, 64]
        least[rules.least_by_attempt] = (at.least_j, last.cost_j)
    assert least[True][0] == least[True][1]
    assert least[False][0] > least[False][1]


def test_b20_a_stopped_attempt_is_a_lower_limit(make_toy: Callable[..., Workload]) -> None:
    workload = make_toy({16: [3], 32: [3]}, {s: EPOCHS[s] for s in (16, 32)}, default=32)
    means = {}
    for rules in (COMPAT, CORRECTED):
        at = simulation(workload, rules)
        policy = at.policy.batch_size  # type: ignore[attr-defined]
        view = at.view(0, 0)
        for _ in range(4):
            size = policy.choose(view)
            policy.learn(outcome(size, 100.0 + size))
        policy.choose(view)
        for cost in (110.0, 118.0):
            policy.learn(outcome(16, cost))
        policy.learn(outcome(16, 150.0, "bound"))
        means[rules.censored_costs] = next(mean for size, mean, _, _ in policy.beliefs() if size == 16)
    assert means[False] == pytest.approx(np.mean([116.0, 116.0, 110.0, 118.0, 150.0]))
    assert means[True] > means[False]


def test_b21_an_unprofiled_size_beside_others(make_toy: Callable[..., Workload]) -> None:
    workload = make_toy({16: [3] * 3, 32: [4] * 3}, {s: EPOCHS[s] for s in (16, 32)}, default=32)
    spec = Pair(batch_size=Gts(learn_precision=True), limit=Jit())
    seed = next(s for s in range(50) if _first_choice(workload, spec, s) == 16)
    with pytest.raises(BestNotProfiled, match="batch size 32"):
        group(simulation(workload, COMPAT, spec, seed=seed), overlapping(4))
    run = group(simulation(workload, CORRECTED, spec, seed=seed), overlapping(4))
    assert sum(line.outcome.reached for line in run.attempts) == 4


def _first_choice(workload: Workload, spec: Pair, seed: int) -> int:
    at = simulation(workload, COMPAT, spec, seed=seed)
    return at.policy.choose(at.view(0, 0)).batch_size


def test_b22_without_variance_learning_goes_on(recorded: Any) -> None:
    _case, workload, spec = recorded("t06_zero_variance")
    compat = simulation(workload, COMPAT, spec)
    sequence(compat, 40)
    assert {o.batch_size for o in compat.finished[6:]} == {32}
    assert all(sd == 0 for _, _, sd, _ in compat.policy.batch_size.beliefs())  # type: ignore[attr-defined]
    corrected = simulation(workload, CORRECTED, spec)
    sequence(corrected, 40)
    assert all(sd > 0 for _, _, sd, _ in corrected.policy.batch_size.beliefs())  # type: ignore[attr-defined]


def test_b23_gts_learns_without_being_told_a_precision(make_toy: Callable[..., Workload]) -> None:
    """The last 20 of 60 choices: the cheapest size in corrected mode, the first in compat mode, where no belief is one."""
    paths = {8: [30, 31, 33], 16: [10, 11, 12], 32: [26, 27, 29]}
    workload = make_toy(paths, dict.fromkeys(paths, EPOCHS[16]), default=32, max_epochs=60)
    late = {}
    for rules in (COMPAT, CORRECTED):
        at = simulation(workload, rules, Pair(batch_size=Gts(), limit=Jit()), beta=math.inf)
        sequence(at, 60)
        assert at.history.known_bugs["B23"] == 1
        late[rules.precision_learned] = [outcome.batch_size for outcome in at.finished[-20:]]
    assert set(late[False]) == {8}
    assert late[True].count(16) >= 18


def test_nothing_hangs_in_corrected_groups(make_toy: Callable[..., Workload]) -> None:
    """Random worlds, many of them hostile: every run finishes or ends with a named error after at most 20 tries."""
    rng = np.random.default_rng(5)
    ended = {"finished": 0, "named": 0}
    for trial in range(cases(50, 150)):
        paths = {
            size: [
                None if rng.random() < 0.4 else int(rng.integers(1, 60))
                for _ in range(int(rng.integers(1, 5)))
            ]
            for size in EPOCHS
        }
        workload = make_toy(paths, EPOCHS, default=int(rng.choice([16, 32, 64])), rules=CORRECTED)
        rows = sorted(
            (Submission(float(s), float(s + rng.integers(0, 60))) for s in rng.integers(0, 300, 25)),
            key=lambda row: row.start_s,
        )
        at = simulation(workload, CORRECTED, beta=float(rng.choice([1.0, 1.3, 2.0])), seed=trial)
        try:
            run = group(at, rows)
        except ForerunError as error:
            assert hasattr(error, "kind"), error
            ended["named"] += 1
        else:
            assert sum(line.outcome.reached for line in run.attempts) == len(rows)
            assert max(line.attempt for line in run.attempts) < 20
            ended["finished"] += 1
    assert min(ended.values()) > 10
