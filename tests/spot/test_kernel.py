"""The Monte Carlo kernel against the event loop, the reference levels, and itself at other thread counts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forerun.core.rng import stream
from forerun.spot.engine import trials
from forerun.spot.engine.estimates import Estimate, quantile
from forerun.spot.engine.history import Replay
from forerun.spot.engine.job import Checkpoints, TrainingJob
from forerun.spot.engine.membership import Instant, Membership
from forerun.spot.engine.replay import replay
from forerun.spot.engine.state import RunState
from forerun.spot.inputs import outlook_of
from forerun.spot.policy import growth_rules
from forerun.spot.scenario.batches import Burst, Empirical, Geometric, Marks
from forerun.spot.scenario.processes import PerNode, Poisson, generate

from ..conftest import cases

RULES = ("immediate", "lazy", "lazy2", "drain", "hazard", "hazard_drain")


def level(p_per_min: float, **changes: Any) -> Poisson:
    """The notebook's process: equal rates both ways, marks from N(0, 1), now and then 11 to 31 nodes."""
    return Poisson(
        removals_per_min=p_per_min, adds_per_min=p_per_min, add_burst=Burst(probability=0.058), **changes
    )


def rule(name: str) -> Any:
    return growth_rules().get(name)()


# --------------------------------------------------------------------- the reference implementation, path by path


class NamedFleet:
    """Turns the kernel's log of categories into named nodes, choosing names as the simulation goes."""

    def __init__(self, job: TrainingJob, process: Poisson, growth: str, log: np.ndarray, seed: int) -> None:
        self.instants: list[Instant] = [Instant(0.0, (), tuple(range(process.start)))]
        self.born = process.start
        self.random = random.Random(seed)
        fleet = Membership(self.instants, ())  # type: ignore[arg-type]
        self.world = RunState(job, fleet, rule(growth), outlook_of(process))
        self.log = log

    def run(self, goal_steps: int | None) -> Replay:
        job, world = self.world.job_spec, self.world
        for t_s in np.unique(self.log[:, 0]):
            assert world.advance(float(t_s), goal_steps, after_event=RunState.check) is None
            self.instants.append(self.named(float(t_s), self.log[self.log[:, 0] == t_s]))
            world.next_change_s = min(world.next_change_s, float(t_s))
        finished_s = world.advance(job.horizon_s, goal_steps, after_event=RunState.check)
        return world.finish(job.horizon_s if finished_s is None else finished_s, finished_s)

    def named(self, t_s: float, rows: np.ndarray) -> Instant:
        removed: list[int] = []
        added = 0
        for _, code, value in rows:
            if code == 3:
                added += int(value)
                continue
            state = ("active", "standby", "prepping")[int(code)]
            fitting = [
                rank
                for rank, node in self.world.nodes.items()
                if node.state == state
                and rank not in removed
                and (state != "prepping" or node.ready_s == pytest.approx(value, abs=1e-9))
            ]
            removed.append(self.random.choice(sorted(fitting)))
        self.born += added
        return Instant(t_s, tuple(removed), tuple(range(self.born - added, self.born)))


@st.composite
def random_cases(draw: st.DrawFn) -> tuple[TrainingJob, Poisson, str, int | None, int]:
    rng = random.Random(draw(st.integers(0, 2**32)))
    depth, pipelines = rng.choice([1, 2, 3, 4]), rng.choice([1, 2, 3, 4])
    write: Any = rng.choice(["async", "async", "sync"])
    job = TrainingJob(
        depth=depth,
        max_pipelines=pipelines,
        step_s={depth * n: rng.uniform(5.0, 20.0) / n**0.7 for n in range(1, pipelines + 1)},
        reconfig_s=rng.choice([0.0, 20.0, 88.0]),
        prep_s=rng.choice([0.0, 45.0, 180.0]),
        write_s=rng.choice([0.0, 15.0, 89.0]),
        stall_s=rng.choice([0.0, 3.0, 8.91]),
        checkpoint=rng.choice(
            [
                Checkpoints(write=write),
                Checkpoints(rule="every_steps", steps=rng.randint(1, 9), write=write),
                Checkpoints(rule="every_seconds", period_s=rng.uniform(1, 200), write=write),
            ]
        ),
        horizon_s=rng.uniform(500.0, 6000.0),
        reconfig_rule=rng.choice(["restart", "restart", "extend"]),  # type: ignore[arg-type]
        initial_saved=rng.choice([-1, 0]),
    )
    cap = depth * pipelines + rng.randint(0, 4)
    process = Poisson(
        removals_per_min=rng.uniform(0.0, 1.5),
        adds_per_min=rng.uniform(0.0, 1.5),
        removal_batch=rng.choice([Marks(), Geometric(p=0.5), Empirical(counts=(3, 2, 1))]),
        add_burst=Burst(probability=0.1, low=2, high=6),
        start=rng.randint(0, cap),
        cap=cap,
    )
    goal_steps = rng.choice([None, rng.randint(2, 20), rng.randint(2, 300)])
    return job, process, rng.choice(RULES), goal_steps, rng.randrange(2**31)


@settings(max_examples=cases(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(random_cases())
def test_every_path_agrees_with_the_exact_simulator(
    case: tuple[TrainingJob, Poisson, str, int | None, int],
) -> None:
    """The same history, once as counts in closed form and once over named nodes step by step."""
    from forerun.spot.engine import kernels

    job, process, growth, goal_steps, seed = case
    log, out = np.empty((20_000, 3)), np.empty(len(kernels.COLUMNS))
    numbers = trials.job_numbers(job, rule(growth), goal_steps or -1)
    rows = kernels.run_one_logged(numbers, trials.fleet_numbers(process), np.uint64(seed), 0, out, log)
    fast = dict(zip(kernels.COLUMNS, out.tolist(), strict=True))
    slow = NamedFleet(job, process, growth, log[:rows], seed).run(goal_steps)
    for line in ("useful", "stall", "lost", "reconfig", "idle", "inflight"):
        assert fast[f"{line}_s"] == pytest.approx(slow.wall_s[line], abs=2e-6), line
        if line != "idle":
            assert fast[f"{line}_node_s"] == pytest.approx(slow.node_s[line], abs=2e-4), line
    assert fast["standby_node_s"] == pytest.approx(slow.node_s["standby"], abs=1e-5)
    assert fast["prepping_node_s"] == pytest.approx(slow.node_s["prepping"], abs=1e-5)
    assert fast["end_s"] == pytest.approx(slow.end_s, abs=1e-6)
    assert fast["finished"] == (slow.finished_s is not None)
    assert fast["steps_completed"] == slow.steps_completed
    assert fast["steps_durable"] == slow.steps_durable
    for count in ("reconfigs", "reconfig_restarts", "rollbacks"):
        assert fast[count] == getattr(slow.counts, count), count


@pytest.mark.parametrize("checkpoint", [Checkpoints(), Checkpoints(rule="every_steps", steps=20)])
@pytest.mark.parametrize("goal_steps", [3, 10, 100])
def test_a_finished_trial_has_all_its_steps(
    rounded: TrainingJob, goal_steps: int, checkpoint: Checkpoints
) -> None:
    step_s = {nodes: s + 1 / 3 for nodes, s in rounded.step_s.items()}
    job = replace(rounded, step_s=step_s, stall_s=8.91, checkpoint=checkpoint)
    done = trials.run(
        replace(job, horizon_s=1e6),
        level(0.25),
        rule("immediate"),
        trials=400,
        seed=goal_steps,
        goal_steps=goal_steps,
    ).columns
    assert done["finished"].all()
    assert done["steps_completed"].tolist() == [goal_steps] * 400
    assert done["inflight_s"].max() < 1e-6


@settings(max_examples=cases(60), deadline=None)
@given(
    st.integers(0, 2**31),
    st.floats(1, 20),
    st.integers(1, 12),
    st.integers(0, 8),
    st.floats(0, 9),
    st.floats(0, 99),
)
def test_closed_form_of_a_segment_agrees_with_a_step_loop(
    seed: int, s: float, first: int, extra: int, d: float, hidden: float
) -> None:
    """Steps executed and durable at random instants, against walking every step and checkpoint."""
    from forerun.spot.engine import kernels

    rng = random.Random(seed)
    n = max(1, int(np.ceil(hidden / s))) + extra
    until = rng.uniform(0, 40 * s)
    t, steps, stall, next_checkpoint, blocked_to = 0.0, 0, 0.0, first, 0.0
    durable: tuple[float, float] = (0.0, 0.0)
    while t + s <= until:
        t, steps = t + s, steps + 1
        if steps == next_checkpoint:
            stall += min(d, until - t)
            blocked_to = t + d
            if t + d + hidden <= until:
                durable = (steps, t + d)
            next_checkpoint += n
            t = blocked_to
    executed, stalled = kernels.executed_by(until, s, first, n, d)
    assert (executed, stalled) == (steps, pytest.approx(stall, abs=1e-9))
    assert kernels.durable_by(until, s, first, n, d, hidden)[:2] == (
        durable[0],
        pytest.approx(durable[1], abs=1e-9),
    )
    if steps:
        assert (
            kernels.step_end(steps, s, first, n, d)
            <= until + 1e-9
            < kernels.step_end(steps + 1, s, first, n, d) + 2e-9
        )


# --------------------------------------------------------------------- reproducible


def test_trials_do_not_depend_on_threads_or_on_how_they_are_cut(rounded: TrainingJob) -> None:
    import numba

    whole = trials.run(rounded, level(0.25), rule("hazard"), trials=64, seed=5)
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        one = trials.run(rounded, level(0.25), rule("hazard"), trials=64, seed=5)
        tail = trials.run(rounded, level(0.25), rule("hazard"), trials=24, seed=5, first_trial=40)
    finally:
        numba.set_num_threads(before)
    for name, values in whole.columns.items():
        assert values.tobytes() == one.columns[name].tobytes(), name
        assert values[40:].tobytes() == tail.columns[name].tobytes(), name


def test_policies_meet_the_same_fleet(rounded: TrainingJob) -> None:
    """The history of removals and additions does not depend on the job or its rule."""
    one = trials.run(rounded, level(0.5), rule("immediate"), trials=50, seed=1)
    other = trials.run(replace(rounded, stall_s=8.91), level(0.5), rule("lazy"), trials=50, seed=1)
    assert one.columns["removals"].tolist() == other.columns["removals"].tolist()
    assert one.alive_node_s == pytest.approx(other.alive_node_s, rel=1e-9)


def test_on_demand_nodes_keep_the_job_running(rounded: TrainingJob) -> None:
    """16 nodes that never vanish are one pipeline that is never idle and, without spot nodes, never
    disrupted.
    """
    alone = Poisson(removals_per_min=1.0, adds_per_min=0.0, start=0, cap=64)
    steady = trials.run(rounded, alone, rule("immediate"), trials=20, on_demand=16)
    assert steady.columns["steps_completed"].tolist() == [1183.0] * 20
    mixed = trials.run(rounded, level(1.0), rule("immediate"), trials=200, on_demand=16)
    assert mixed.columns["idle_s"].max() == 0.0
    assert mixed.cost_usd(0.0, 3.0)[0] == pytest.approx(16 * 3.0 * 21_300 / 3600)


# --------------------------------------------------------------------- the reference levels

WITHIN = 2.6


def z(mine: Estimate, theirs: dict[str, float], key: str = "mean") -> float:
    error = np.hypot(mine.half95, theirs["half95"]) / 1.96
    return abs(mine.mean - theirs[key]) / max(float(error), 1e-12)


def test_reference_levels(golden: Callable[[str], Any], rounded: TrainingJob) -> None:
    for row in golden("monte_carlo.json")["levels"]:
        done = trials.run(
            rounded, level(row["p_per_min"]), rule("immediate"), trials=cases(5000, 20_000), seed=3
        )
        for line in ("useful", "lost", "reconfig", "idle", "inflight"):
            assert z(done.share(line), row[line]) < WITHIN, (row["p_per_min"], line)
        assert z(done.steps, row["steps"]) < WITHIN
        assert z(Estimate.of(done.alive_node_s / done.horizon_s), row["mean_alive"]) < WITHIN
        assert z(Estimate.of(done.active_node_s / done.horizon_s), row["mean_active"]) < WITHIN
        plans = Estimate.of(done.columns["reconfigs"] + done.columns["reconfig_restarts"])
        assert z(plans, row["reconfig_starts_and_restarts"]) < WITHIN


def fitted() -> Poisson:
    return Poisson(
        removals_per_min=58 / 355,
        adds_per_min=51 / 355,
        removal_batch=Marks(mean=2.413793103448276, std=2.086165648825032),
        add_batch=Marks(mean=2.5416666666666665, std=1.9456261184790364),
        add_burst=Burst(probability=3 / 51),
    )


def test_reference_fitted_process(golden: Callable[[str], Any], rounded: TrainingJob) -> None:
    theirs = golden("monte_carlo.json")["fitted"]
    done = trials.run(rounded, fitted(), rule("immediate"), trials=20_000, seed=3)
    for line in ("useful", "lost", "reconfig", "idle"):
        assert z(done.share(line), theirs[line]) < WITHIN, line
    assert done.steps.mean == pytest.approx(theirs["steps_mean"], abs=2.6 * done.steps.half95)


def test_reference_growth_rules(golden: Callable[[str], Any], rounded: TrainingJob) -> None:
    """Six rules at seven levels, with and without stall; two rules by turns at each where FORERUN_CASES is not set."""
    for at, row in enumerate(golden("monte_carlo.json")["growth_rules"]["rows"]):
        job = replace(rounded, stall_s=row["stall_s"])
        for name in RULES if cases(0) else (RULES[at % 6], RULES[(at + 3) % 6]):
            done = trials.run(job, level(row["p_per_min"]), rule(name), trials=cases(5000, 20_000), seed=4)
            assert z(done.steps, row[name], "steps_mean") < WITHIN, (row["p_per_min"], row["stall_s"], name)


def test_draining_with_a_stall_agrees_with_the_exact_simulator(rounded: TrainingJob) -> None:
    """With a stall of 8.91 s, at 0.5 events a minute: the kernel meets durable instants as the exact simulator does."""
    job, process = replace(rounded, stall_s=8.91), level(0.5)
    kernel = trials.run(job, process, rule("drain"), trials=cases(5000, 20_000), seed=8).steps
    exact = [
        replay(
            generate(process, seed=8, horizon_s=job.horizon_s, trial=i),
            job,
            rule("drain"),
            outlook_of(process),
        )
        for i in range(cases(40, 150))
    ]
    slow = Estimate.of(np.array([float(done.steps_completed) for done in exact]))
    assert abs(kernel.mean - slow.mean) < 3 * np.hypot(kernel.half95, slow.half95) / 1.96


def test_reference_time_to_finish(golden: Callable[[str], Any], rounded: TrainingJob) -> None:
    for row in golden("monte_carlo.json")["time_to_finish"]:
        done = trials.run(
            replace(rounded, horizon_s=1e7),
            level(row["p_per_min"]),
            rule("immediate"),
            trials=cases(2500, 10_000),
            seed=2,
            goal_steps=row["target_steps"],
        )
        hours = done.finish_s / 3600
        assert z(Estimate.of(hours), {"mean": row["mean_h"], "half95": row["mean_half95_h"]}) < WITHIN
        cost = Estimate.of(done.cost_usd(row["usd_per_node_h"], 0.0))
        assert z(cost, {"mean": row["cost_mean_usd"], "half95": row["cost_half95_usd"]}) < WITHIN
        for name, share in (("p5", 0.05), ("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            mine, (low, high) = quantile(hours, share), row[f"{name}_ci95_h"]
            half = np.hypot(mine.high - mine.low, high - low) / 2 / 1.96
            assert abs(mine.value - row[f"{name}_h"]) < 3.0 * half, (row["p_per_min"], name)


def test_kernel_and_exact_simulator_agree_in_the_mean(rounded: TrainingJob) -> None:
    """Exact runs and many more trials of the same process at two levels, six quantities."""
    for p in (0.1, 0.5):
        process, job = level(p), replace(rounded, stall_s=8.91)
        kernel = trials.run(job, process, rule("immediate"), trials=cases(6000, 100_000), seed=11)
        runs = [
            replay(
                generate(process, seed=12, horizon_s=job.horizon_s, trial=i),
                job,
                rule("immediate"),
                outlook_of(process),
            )
            for i in range(cases(60, 3000))
        ]
        for line in ("useful", "stall", "lost", "reconfig", "idle"):
            slow = Estimate.of(np.array([run.wall_s[line] for run in runs]) / job.horizon_s)
            fast = kernel.share(line)
            assert abs(fast.mean - slow.mean) <= 3 * np.hypot(fast.half95, slow.half95) / 1.96 + 1e-12, (
                p,
                line,
            )
        slow = Estimate.of(np.array([run.alive_node_s for run in runs]))
        fast = Estimate.of(kernel.alive_node_s)
        assert abs(fast.mean - slow.mean) <= 3 * np.hypot(fast.half95, slow.half95) / 1.96


# --------------------------------------------------------------------- theory


def test_machine_repair_is_binomial(golden: Callable[[str], Any], rounded: TrainingJob) -> None:
    """Slots that fail and return on their own: alive ~ Bin(N, nu / (mu + nu)), idle when fewer than one
    pipeline.
    """
    for row in golden("closed_forms.json")["machine_repair"]:
        mu, nu, slots = (row[name] for name in ("fail_per_node_h", "return_per_slot_h", "slots"))
        process = PerNode(removal_per_node_h=mu, return_per_node_h=nu, start=slots, cap=slots)
        job = replace(rounded, prep_s=0.0, horizon_s=3.6e6)
        done = trials.run(job, process, rule("immediate"), trials=40, seed=6)
        alive = Estimate.of(done.alive_node_s / job.horizon_s)
        assert abs(alive.mean - slots * nu / (mu + nu)) < 3 * alive.half95 / 1.96 + 0.01
        idle = done.share("idle")
        assert abs(idle.mean - row["idle_fraction"]) < 3 * idle.half95 / 1.96 + 2e-5


@pytest.mark.parametrize("share", [0.05, 0.5, 0.99])
def test_quantile_intervals_cover(share: float) -> None:
    """Order statistics enclose the quantile of an exponential distribution at least as often as 95 % claims."""
    truth, hits, repeats = -np.log(1 - share), 0, 1000
    for repeat in range(repeats):
        interval = quantile(stream(8, "quantile", repeat).exponential(size=1000), share)
        hits += interval.low <= truth <= interval.high
    assert hits / repeats >= 0.95 - 3 * (0.95 * 0.05 / repeats) ** 0.5
