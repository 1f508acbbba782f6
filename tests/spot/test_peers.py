"""Bamboo's, Oobleck's and Varuna's published simulators, reproduced; and Bamboo's with its defects mended."""

from __future__ import annotations

import csv
import itertools
import math
import random
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forerun.replication.bamboo.ring import HOUR_MS, NO_BUGS, HourlyFleet, KnownBugs, PublishedJob, run_ring
from forerun.replication.oobleck.simulator import Checkpoints, ElasticJob, hours, run_elastic
from forerun.spot.engine.job import TrainingJob
from forerun.spot.engine.membership import Instant, Membership
from forerun.spot.engine.outlook import Observed
from forerun.spot.engine.replay import replay
from forerun.spot.engine.state import RunState
from forerun.spot.policies.bamboo import Bamboo
from forerun.spot.policies.immediate import Immediate
from forerun.spot.policies.torchft import TorchFT
from forerun.spot.policy import Setting

from ..conftest import cases
from .test_exact import close, world_of

Golden = Callable[[str], Any]


def ring_job(profiles: Any, model: str) -> PublishedJob:
    bamboo = profiles["bamboo"]
    steps = bamboo["step_ms_by_pipelines"][model]
    return PublishedJob(
        stages=steps["stages"],
        step_ms={int(n): ms for n, ms in steps.items() if n.isdigit()},
        samples_per_step=bamboo["samples_per_step"][model],
        capacity=bamboo["capacity"][model],
        local_ms=bamboo["local_rendezvous_ms"][model],
    )


def rows_of(path: Path) -> list[tuple[int, bool, str]]:
    with path.open(newline="") as file:
        return [(int(t_ms), verb == "add", node) for t_ms, verb, node in csv.reader(file)]


def test_bamboo_as_published(golden: Golden, data_folder: Path) -> None:
    """15 generated runs and four trace runs, every printed figure."""
    profiles = golden("peer_profiles.json")
    for case in golden("bamboo_runs.json"):
        job = ring_job(profiles, case["model"])
        if case["kind"] == "generated":
            fleet = HourlyFleet(remove=[case["p"]] * 24, seed=case["seed"], start_hour=case["start_hour"])
            done = run_ring(job, fleet, goal_steps=profiles["bamboo"]["steps_per_run"][case["model"]])
        else:
            trace = rows_of(data_folder / f"bamboo/traces/{case['trace']}-trace.csv")
            done = run_ring(job, trace, stop_ms=12 * HOUR_MS)
        figures = done.summary(0.91)
        for name, value in figures.items():
            assert value == pytest.approx(case[name], rel=1e-9), (case, name)
        assert hours(done.end_ms) == pytest.approx(case["sim_hours"], rel=1e-12)
        assert done.versions == case["rendezvous_version"]


def test_nodes_alive_at_the_stop_have_lived_until_then() -> None:
    """60 drawn traces whose lifetimes follow from their rows alone: from the addition to the removal or the stop."""
    early = 0
    for seed in range(60):
        rng, rows, lives_ms = random.Random(seed), [], []
        stop_ms = rng.randrange(1 * HOUR_MS, 6 * HOUR_MS)
        for at in range(rng.randrange(4, 40)):
            born_ms = rng.choice((0, rng.randrange(0, 5 * HOUR_MS)))
            gone_ms = born_ms + rng.randrange(60_000, 8 * HOUR_MS)
            rows += [(born_ms, True, f"node{at}"), (gone_ms, False, f"node{at}")]
            if born_ms <= stop_ms:
                lives_ms.append(min(gone_ms, stop_ms) - born_ms)
        rows.append((7 * HOUR_MS, True, "later"))  # so that the run ends at the stop, not for want of events
        done = run_ring(SMALL, sorted(rows), stop_ms=stop_ms)
        assert sorted(done.lifetimes_ms) == sorted(lives_ms), seed
        lives_h = [life_ms / HOUR_MS for life_ms in lives_ms]
        figures = done.summary(0.91)
        assert figures["lifetime_mean"] == pytest.approx(statistics.mean(lives_h), rel=1e-12)
        assert figures["lifetime_median"] == pytest.approx(statistics.median(lives_h), rel=1e-12)
        assert figures["lifetime_stdev"] == pytest.approx(statistics.stdev(lives_h), rel=1e-9)
        early += done.end_ms < stop_ms
    assert early == 60  # no step ends at the stop: the clock is what is compared


def test_a_run_out_of_events_ends_at_its_last_event_as_published() -> None:
    """One node never makes a pipeline: its last event is the end of the rendezvous, 75 s after it was added."""
    assert run_ring(SMALL, [(0, True, "node0")], stop_ms=100_000).lifetimes_ms == [75_000]
    assert run_ring(SMALL, [(0, True, "node0")], bugs=NO_BUGS, stop_ms=100_000).lifetimes_ms == [100_000]


@pytest.mark.parametrize("p", ["0.5", "0.25"][: cases(1, 2)])
def test_bamboo_table(golden: Golden, p: str) -> None:
    """The hardest row of the published table, over all 60 seeds: means and half-widths to their four decimals.

    The next as well where FORERUN_CASES is set; `reproduce` makes the others.
    """
    profiles, row = golden("peer_profiles.json"), golden("bamboo_table.json")[p]
    job = ring_job(profiles, "BERT")
    runs = [
        run_ring(job, HourlyFleet(remove=[float(p)] * 24, seed=seed), goal_steps=22194).summary(0.91)
        for seed in range(1, row["n"] + 1)
    ]
    for name, published in row.items():
        if name != "n":
            values = [run[name] for run in runs]
            half95 = 1.96 * statistics.stdev(values) / len(runs) ** 0.5
            assert statistics.mean(values) == pytest.approx(published["mean"], abs=5.1e-5), name
            assert half95 == pytest.approx(published["half95"], abs=5.1e-5), name


def test_oobleck_and_varuna_as_published(golden: Golden, data_folder: Path) -> None:
    """72 runs: four models, six traces, Oobleck, Varuna and Varuna with free checkpoints."""
    profiles = golden("peer_profiles.json")["oobleck_artifact"]
    cases = [case for case in golden("elastic_runs.json") if case["system"] != "bamboo"]
    assert len(cases) == 72
    for case in cases:
        model = profiles[case["model"]]
        trace = rows_of(data_folder / f"oobleck/{case['trace']}.csv")
        done = run_elastic(*elastic_job(model, case["system"], trace))
        assert done.samples_per_s == pytest.approx(case["average_performance"], rel=1e-9), case
        assert done.steps == case["num_steps_complete"]
        assert done.preemptions == case["num_preemptions"]
        assert done.mean_nodes == pytest.approx(case["average_instances"], rel=1e-9)
        assert hours(done.end_ms) == pytest.approx(case["sim_hours"], rel=1e-12)


def elastic_job(model: Any, system: str, trace: Any) -> tuple[ElasticJob, Any, Checkpoints | None]:
    numbers = model["oobleck" if system == "oobleck" else "varuna"]
    by_nodes = numbers.get("pause_ms_by_nodes")
    job = ElasticJob(
        step_ms={int(n): ms for n, ms in numbers["step_ms_by_nodes"].items()},
        samples_per_step=model["samples_per_step"],
        pause_ms=numbers["pause_ms"] if system == "oobleck" else numbers["first_pause_ms"],
        pause_ms_by_nodes=by_nodes and {int(n): ms for n, ms in by_nodes.items()},
        min_nodes=model["min_nodes"],
    )
    if system == "oobleck":
        return job, trace, None
    return (
        job,
        trace,
        Checkpoints(
            every_steps=numbers["checkpoint_every_steps"],
            checkpoint_ms=numbers["checkpoint_ms"],
            free=system == "varuna_nockpt",
        ),
    )


# --------------------------------------------------------------------- mended

SMALL = PublishedJob(stages=2, step_ms={1: 10_000, 2: 6_000}, samples_per_step=8, capacity=4, local_ms=5_000)


def test_mended_ring_accounts_for_every_millisecond(golden: Golden, data_folder: Path) -> None:
    job = ring_job(golden("peer_profiles.json"), "BERT")
    for seed in range(1, 6):
        done = run_ring(job, HourlyFleet(remove=[0.5] * 24, seed=seed), bugs=NO_BUGS, goal_steps=3000)
        assert sum(done.wall_ms.values()) == done.end_ms
        assert done.wall_ms["slowdown"] > 0
    done = run_ring(
        job, rows_of(data_folder / "bamboo/traces/p3-trace.csv"), bugs=NO_BUGS, stop_ms=12 * HOUR_MS
    )
    assert min(done.wall_ms.values()) >= 0


def test_a_neighbour_takes_over_and_a_second_loss_is_fatal() -> None:
    """Four nodes, two pipelines: one loss stretches steps, the loss of the neighbour too stops training."""
    start = [(0, True, f"node{i}") for i in range(4)]
    calm = run_ring(SMALL, start, bugs=NO_BUGS, stop_ms=400_000)
    one = run_ring(SMALL, [*start, (200_000, False, "node1")], bugs=NO_BUGS, stop_ms=400_000)
    both = run_ring(
        SMALL, [*start, (200_000, False, "node1"), (201_000, False, "node0")], bugs=NO_BUGS, stop_ms=400_000
    )
    assert (calm.fatal, one.fatal, both.fatal) == (0, 0, 1)
    assert calm.steps > one.steps > both.steps
    assert one.wall_ms["slowdown"] > 0 == calm.wall_ms["slowdown"]
    assert both.wall_ms["lost"] > 0


def test_the_rings_books_hold_on_random_worlds() -> None:
    """The policy's ledgers, stretches and node states against each other and against the fleet."""
    for seed in range(cases(40)):
        rows, job, _, _ = world_of(seed)
        fleet = Membership.from_rows(rows)
        setting = Setting(fleet=fleet, job=job, growth=Immediate(), outlook=Observed())
        done = Bamboo(local_s=2.0, global_s=5.0, snapshot_s=30.0).replay(setting)
        assert close(math.fsum(done.wall_s.values()), job.horizon_s), seed
        ends = [spell.end_s for spell in done.spells]
        assert [spell.start_s for spell in done.spells] == [0.0, *ends][: len(ends)], seed
        assert done.steps_completed == sum(spell.steps_retained for spell in done.spells), seed
        for line in ("useful", "slowdown", "lost", "reconfig", "idle", "inflight"):
            spent = math.fsum(spell.parts_s.get(line, 0.0) for spell in done.spells)
            assert close(spent, done.wall_s[line]), (seed, line)
        alive: dict[int, float] = {}
        node_s = 0.0
        for instant in fleet.instants:
            if instant.t_s < job.horizon_s:
                node_s += math.fsum(instant.t_s - alive.pop(node) for node in instant.removed)
                alive |= dict.fromkeys(instant.added, instant.t_s)
        node_s += math.fsum(job.horizon_s - since_s for since_s in alive.values())
        assert close(done.alive_node_s, node_s), seed
        assert close(math.fsum(s.end_s - s.start_s for s in done.node_spells), node_s), seed
        assert done.final_active + done.final_standby + done.final_provisioning == len(alive), seed


def test_a_warm_ring_trains_from_the_start() -> None:
    rows = [(0.0, True, f"n{i}") for i in range(4)]
    job = TrainingJob(
        depth=2,
        max_pipelines=2,
        step_s={2: 10.0, 4: 6.0},
        reconfig_s=88.0,
        prep_s=60.0,
        write_s=9.0,
        stall_s=0.0,
        horizon_s=300.0,
    )
    for warm, wall in (
        (True, {"useful": 300.0}),
        (False, {"idle": 60.0, "reconfig": 30.0, "useful": 210.0}),
    ):
        setting = Setting(
            fleet=Membership.from_rows(rows),
            job=replace(job, warm_start=warm),
            growth=Immediate(),
            outlook=Observed(),
        )
        done = Bamboo().replay(setting)
        assert {line: spent for line, spent in done.wall_s.items() if spent} == wall


def test_a_run_without_steps_has_figures() -> None:
    done = run_ring(SMALL, [(0, True, "node0")], stop_ms=100_000)
    assert done.summary(0.91)["average_performance"] == 0.0
    assert run_elastic(ElasticJob(step_ms={15: 10}, samples_per_step=1, pause_ms=5), []).samples_per_s == 0.0


def test_who_comes_first_hangs_on_the_heap_only_as_published() -> None:
    """Nodes of one instant, with and without removals that are yet to come: the heap deals stages otherwise."""
    for as_published in (True, False):
        same = []
        for count, victim, coming in itertools.product((5, 6, 12), (0, 1, 4), (1, 2, 5)):
            rows = [(0, True, f"node{at}") for at in range(count)] + [(200_000, False, f"node{victim}")]
            later = [(500_000, True, f"late{at}") for at in range(coming)]
            one, other = (
                run_ring(SMALL, [*rows, *more], bugs=KnownBugs(heap_ties=as_published), stop_ms=400_000)
                for more in ([], later)
            )
            same.append(one.step_end_ms == other.step_end_ms)
        assert all(same) != as_published


def test_each_defect_changes_a_run() -> None:
    """No switch is idle: each changes the outcome of some run."""
    job = PublishedJob(
        stages=3,
        step_ms={n: 30_000 // n for n in range(1, 5)},
        samples_per_step=8,
        capacity=12,
        local_ms=9_000,
    )
    for name in ("no_rollback", "steps_in_pause", "ghost_timeouts", "stale_waiting"):
        differs = False
        for seed in range(12):
            fleet = HourlyFleet(remove=[0.9] * 24, add=[0.9] * 24, seed=seed)
            one = run_ring(job, fleet, stop_ms=4 * HOUR_MS)
            other = run_ring(job, fleet, bugs=KnownBugs(**{name: False}), stop_ms=4 * HOUR_MS)
            differs = differs or one.steps != other.steps or one.versions != other.versions
        assert differs, name


# --------------------------------------------------------------------- replicas that commit steps together


def committed(
    nodes: int, step_s: dict[int, float], pause_s: float, changes: list[tuple[float, int]], goal: int
) -> tuple[float, float, float]:
    """When so many steps are committed, and the seconds lost and paused: step after step, of replicas of one node.

    changes: when a replica is lost (-1) or has its copy of the state (+1).
    """
    t, steps, lost, paused = 0.0, 0, 0.0, 0.0
    coming = [*changes]
    while steps < goal:
        begun, t, hit = t, t + step_s[nodes], False
        while coming and coming[0][0] < t:
            hit |= coming[0][1] < 0
            nodes += coming.pop(0)[1]
        if not hit:
            steps += 1
            continue
        lost += t - begun
        until = t + pause_s
        while coming and coming[0][0] < until:
            at, by = coming.pop(0)
            until = at + pause_s if by < 0 else until
            nodes += by
        paused += until - t
        t = until
    return t, lost, paused


@pytest.mark.parametrize("pause_s, rejoin_s", [(0.0, 0.0), (3.7, 20.3), (25.1, 4.9)])
def test_torchft_loses_the_step_to_its_commit_and_pauses_once(pause_s: float, rejoin_s: float) -> None:
    """Drawn sequences of losses and returns, beside a loop over steps; with checkpoints that nobody needs."""
    for case in range(cases(40)):
        rng = random.Random(case)
        nodes, losses = rng.randint(4, 8), rng.randint(1, 3)
        goal, span_s = rng.randint(15, 60), rng.uniform(20.0, 600.0)
        lost = sorted(rng.uniform(0.0, span_s) for _ in range(losses))
        came = [rng.uniform(0.0, span_s) for _ in range(rng.randint(0, losses))]
        job = TrainingJob(
            depth=1,
            max_pipelines=16,
            step_s={size: 80.0 / size for size in range(1, 17)},
            reconfig_s=500.0,
            prep_s=2.2,
            write_s=rng.choice([5.0, 90.0]),
            stall_s=0.0,
            horizon_s=1e5,
        )
        instants = [Instant(0.0, (), tuple(range(nodes)))]
        instants += [Instant(at, (k,), ()) for k, at in enumerate(lost)]
        instants += [Instant(at, (), (100 + k,)) for k, at in enumerate(came)]
        instants.sort(key=lambda instant: instant.t_s)
        policy = TorchFT(pause_s=pause_s, rejoin_s=rejoin_s)
        fleet = Membership(tuple(instants), ())
        done = policy.replay(
            Setting(fleet=fleet, job=job, growth=Immediate(), outlook=Observed(), goal_steps=goal)
        )
        changes = sorted([*((at, -1) for at in lost), *((at + rejoin_s + 2.2, 1) for at in came)])
        slow = committed(nodes, dict(job.step_s), pause_s, changes, goal)
        shown = done.finished_s, done.wall_s["lost"], done.wall_s["reconfig"]
        assert shown == pytest.approx(slow, abs=1e-6), case
        held = replace(job, prep_s=job.prep_s + rejoin_s)
        again = replay(
            fleet,
            held,
            Immediate(),
            Observed(),
            goal_steps=goal,
            continuation=policy.continuation(),
            after_event=RunState.check,
        )
        assert again.wall_s == pytest.approx(done.wall_s)
