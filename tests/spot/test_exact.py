"""The exact simulator against the reference cases, worked examples, and the laws that hold on every path."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest

from forerun.spot.engine.history import Replay
from forerun.spot.engine.job import Checkpoints, TrainingJob
from forerun.spot.engine.membership import Membership
from forerun.spot.engine.outlook import Observed
from forerun.spot.engine.replay import replay
from forerun.spot.engine.state import RunState
from forerun.spot.policy import growth_rules

from ..conftest import ABSENT, SHARED, cases
from .reference import Reference

_CASES = SHARED / "golden/spot/exact_cases.json"
CASES = json.loads(_CASES.read_text()) if _CASES.exists() else []


def run(fleet: Membership, job: TrainingJob, growth: str = "immediate", **options: Any) -> Replay:
    return replay(fleet, job, growth_rules().get(growth)(), Observed(), **options)


def close(mine: float, theirs: float) -> bool:
    return abs(mine - theirs) <= max(1e-6, 1e-9 * abs(theirs))


@pytest.mark.skipif(not CASES, reason=ABSENT)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_reference_case(
    case: dict[str, Any], fleet_of: Callable[..., Membership], job_of: Callable[..., TrainingJob]
) -> None:
    config, expected = case["config"], case["result"]
    checked = run(fleet_of(case["trace"]), job_of(config), config["growth"], after_event=RunState.check)
    assert checked.steps_completed == expected["steps_completed"]
    assert checked.steps_durable == expected["steps_durable"]
    for line, seconds in expected["wall_s"].items():
        assert close(checked.wall_s[line], seconds), line
    for line, seconds in expected["node_s"].items():
        assert close(checked.node_s[line], seconds), line
    renamed = {"snapshots": "checkpoints", "prepping": "provisioning"}
    counts = {
        re.sub("|".join(renamed), lambda word: renamed[word[0]], name): n
        for name, n in expected["counts"].items()
    }
    assert asdict(checked.counts) == counts
    assert checked.final_state == expected["final"]["state"]
    assert [checked.final_active, checked.final_standby, checked.final_provisioning] == [
        expected["final"][pool] for pool in ("active", "standby", "prepping")
    ]
    assert close(checked.wall_s["slowdown"], 0.0)


# --------------------------------------------------------------------- by hand


def fleet(*rows: tuple[float, str, int | range]) -> Membership:
    """``(200, "remove", 31)`` or ``(0, "add", range(32))``."""
    return Membership.from_rows(
        (float(t_s), verb == "add", f"node{node}")
        for t_s, verb, nodes in rows
        for node in ([nodes] if isinstance(nodes, int) else nodes)
    )


START = (0, "add", range(32))
BY_HAND = [
    ("nothing happens", [START], 300, (297, 0, 0, 0, 3), 27),
    ("one of 32 lost", [START, (200, "remove", 31)], 600, (416, 90, 88, 0, 6), 27),
    ("idle", [(0, "add", range(16)), (200, "remove", 3), (260, "add", 16)], 900, (468, 92, 88, 240, 12), 26),
    ("just enough standby", [START, (10, "add", 32), (300, "remove", 0)], 700, (517, 91, 88, 0, 4), 47),
    ("growth costs a rollback", [START, (10, "add", range(32, 48))], 600, (326, 179, 88, 0, 7), 36),
    (
        "two losses",
        [(0, "add", range(48)), (200, "remove", 1), (250, "remove", 2)],
        700,
        (451, 101, 138, 0, 10),
        43,
    ),
    ("loss at a step's end", [START, (110, "remove", 0)], 400, (209, 99, 88, 0, 4), 12),
    ("loss before anything is durable", [START, (50, "remove", 0)], 400, (252, 50, 88, 0, 10), 14),
    ("empty start", [(10, "add", range(16))], 600, (306, 0, 88, 190, 16), 17),
]


@pytest.mark.parametrize("name, rows, horizon_s, wall, steps", BY_HAND, ids=[row[0] for row in BY_HAND])
def test_worked_example(
    name: str, rows: Any, horizon_s: float, wall: Any, steps: int, rounded: TrainingJob
) -> None:
    done = run(fleet(*rows), replace(rounded, horizon_s=float(horizon_s)), after_event=RunState.check)
    assert tuple(done.wall_s[line] for line in ("useful", "lost", "reconfig", "idle", "inflight")) == wall
    assert done.steps_completed == steps


@pytest.mark.parametrize("growth, lost_s", [("immediate", 179), ("drain", 44), ("lazy", 0)])
def test_what_growth_throws_away(growth: str, lost_s: float, rounded: TrainingJob) -> None:
    """16 nodes ready at 190 s: taken up at once, at the next durable checkpoint, or not."""
    done = run(fleet(START, (10, "add", range(32, 48))), replace(rounded, horizon_s=600.0), growth)
    steps = {"immediate": 36, "drain": 44, "lazy": 54}
    assert done.steps_completed == steps[growth]
    if growth != "drain":
        assert done.wall_s["lost"] == lost_s


# --------------------------------------------------------------------- laws on random worlds


def world_of(seed: int) -> tuple[list[tuple[float, bool, str]], TrainingJob, str, random.Random]:
    """A small fleet's history on a grid of whole seconds (so that ties happen), a job on it, a growth rule."""
    rng = random.Random(seed)
    depth = rng.choice([1, 2, 3])
    pipelines = rng.choice([1, 2, 3])
    write = rng.choice(["async", "async", "sync"])
    rule = rng.choice(
        [
            Checkpoints(write=write),
            Checkpoints(rule="every_steps", steps=rng.randint(1, 5), write=write),
            Checkpoints(rule="every_seconds", period_s=float(rng.randint(1, 40)), write=write),
        ]
    )
    job = TrainingJob(
        depth=depth,
        max_pipelines=pipelines,
        step_s={depth * n: rng.choice([7.0, 5.0, 3.5, 2.0, 0.7]) for n in range(1, pipelines + 1)},
        reconfig_s=rng.choice([0.0, 4.0, 11.0]),
        prep_s=rng.choice([0.0, 6.0, 30.0]),
        write_s=rng.choice([0.0, 3.0, 9.0, 20.0]),
        stall_s=rng.choice([0.0, 0.0, 2.0, 1.5]),
        checkpoint=rule,
        horizon_s=float(rng.randint(50, 400)),
        reconfig_rule=rng.choice(["restart", "restart", "extend"]),
        warm_start=rng.random() < 0.8,
        initial_saved=rng.choice([-1, -1, 0, 5]),
    )
    rows = [(0.0, True, f"n{i}") for i in range(rng.randint(0, depth * pipelines + 2))]
    alive, fresh, t_s = [name for _, _, name in rows], len(rows), 0.0
    for _ in range(rng.randint(0, 25)):
        t_s += rng.choice([0.0, 1.0, 7.0, 14.0, 40.0])
        if t_s == 0.0:
            continue
        if alive and rng.random() < 0.5:
            rows.append((t_s, False, alive.pop(rng.randrange(len(alive)))))
        else:
            name, fresh = f"n{fresh}", fresh + 1
            rows.append((t_s, True, name))
            alive.append(name)
    born = {name: t_s for t_s, is_add, name in rows if is_add}
    lives = {name for t_s, is_add, name in rows if not is_add and born[name] == t_s}
    growth = rng.choice(["immediate", "lazy", "lazy2", "drain", "hazard", "hazard_drain"])
    return [row for row in rows if row[2] not in lives], job, growth, rng


def test_laws_hold_after_every_event() -> None:
    for seed in range(cases(500)):
        rows, job, growth, _ = world_of(seed)
        saved = [job.initial_saved]

        def check(now: RunState, saved: list[int] = saved) -> None:
            now.check()
            assert now.saved >= saved[0]
            saved[0] = now.saved

        done = run(Membership.from_rows(rows), job, growth, after_event=check)
        counts = done.counts
        assert close(math.fsum(done.wall_s.values()), job.horizon_s), seed
        assert counts.steps_executed == done.steps_completed - (job.initial_saved + 1) + counts.steps_lost, (
            seed
        )
        useful = math.fsum(
            s.steps_retained * job.step_s[s.world_size] for s in done.spells if s.state == "training"
        )
        assert close(done.wall_s["useful"], useful), seed
        assert close(math.fsum(spell.end_s - spell.start_s for spell in done.spells), job.horizon_s), seed
        assert close(done.alive_node_s, math.fsum(life.end_s - life.start_s for life in done.node_spells)), (
            seed
        )


def test_order_within_an_instant_and_names_do_not_matter() -> None:
    """Five orders of the rows and other names for the nodes, in every world: the same replay."""
    for seed in range(cases(60)):
        rows, job, growth, rng = world_of(seed)
        names = sorted({name for _, _, name in rows}, key=lambda name: int(name[1:]))
        renamed = {name: f"host-{7 * i + 3}.b" for i, name in enumerate(names)}
        shuffled = [(t_s, is_add, renamed[name]) for t_s, is_add, name in rows]
        one = run(Membership.from_rows(rows), job, growth)
        for _ in range(5):
            rng.shuffle(shuffled)
            assert run(Membership.from_rows(shuffled), job, growth) == one, seed


def test_the_reference_implementation_agrees() -> None:
    """Whole tenths of a second and lists against the simulator: counts equal, seconds to rounding."""
    for seed in range(cases(200)):
        rows, job, growth, rng = world_of(seed)
        if growth.startswith("hazard"):
            growth = rng.choice(["immediate", "drain"])
        mine, reference = run(Membership.from_rows(rows), job, growth), Reference(rows, job, growth).run()
        assert asdict(mine.counts) == reference.counts, seed
        assert (mine.steps_completed, mine.steps_durable) == (reference.completed, reference.saved + 1), seed
        for line, spent in reference.wall.items():
            assert abs(mine.wall_s[line] - spent / 10) < 1e-6, (seed, line)
        for line, spent in reference.node.items():
            assert abs(mine.node_s[line] - spent / 10) < 1e-6, (seed, line)
        assert (mine.final_state, mine.final_active) == (reference.state, reference.size), seed


def test_scaling_all_times_scales_the_ledger() -> None:
    for seed in range(cases(120)):
        rows, job, growth, rng = world_of(seed)
        k = rng.choice([2.0, 0.5, 64.0])
        rule = job.checkpoint
        scaled = replace(
            job,
            step_s={size: seconds * k for size, seconds in job.step_s.items()},
            checkpoint=rule.with_(period_s=rule.period_s * k),
            **{
                name: getattr(job, name) * k
                for name in ("reconfig_s", "prep_s", "write_s", "stall_s", "horizon_s")
            },
        )
        one = replay(Membership.from_rows(rows), job, growth_rules().get(growth)(), Observed())
        other = replay(
            Membership.from_rows((t_s * k, is_add, name) for t_s, is_add, name in rows),
            scaled,
            growth_rules().get(growth)(),
            Observed(prior_s=3600.0 * k),
        )
        assert one.counts == other.counts, seed
        for line, seconds in one.wall_s.items():
            assert abs(other.wall_s[line] - seconds * k) < 1e-7, (seed, line)


def test_a_longer_run_begins_with_the_shorter() -> None:
    for seed in range(cases(120)):
        rows, job, growth, _ = world_of(seed)
        short = run(Membership.from_rows(rows), job, growth)
        long = run(Membership.from_rows(rows), replace(job, horizon_s=job.horizon_s * 2), growth)
        inside = [(s.state, s.world_size, s.start_s, min(s.end_s, job.horizon_s)) for s in long.spells]
        assert [row for row in inside if row[2] < job.horizon_s] == [
            (s.state, s.world_size, s.start_s, s.end_s) for s in short.spells
        ], seed


def test_free_recovery_loses_less_than_a_step_an_event() -> None:
    for seed in range(cases(120)):
        rows, job, _, _ = world_of(seed)
        job = replace(job, reconfig_s=0.0, prep_s=0.0, write_s=0.0, stall_s=0.0, checkpoint=Checkpoints())
        done = run(Membership.from_rows(rows), job)
        assert done.wall_s["lost"] <= (done.counts.rollbacks + 1) * max(job.step_s.values()), seed


def test_nodes_that_never_get_ready_change_only_the_bill() -> None:
    for seed in range(cases(120)):
        rows, job, _, rng = world_of(seed)
        extra, late = rng.randint(1, 5), replace(job, prep_s=1e6)
        arrivals = [(job.horizon_s / 2, True, f"n{1000 + i}") for i in range(extra)]
        one = run(Membership.from_rows(rows), late)
        other = run(Membership.from_rows(rows + arrivals), late)
        assert all(close(spent, other.wall_s[line]) for line, spent in one.wall_s.items()), seed
        assert close(other.alive_node_s - one.alive_node_s, extra * job.horizon_s / 2), seed


def test_goal_stops_the_run_at_its_first_completion(rounded: TrainingJob) -> None:
    done = run(fleet(START), rounded, goal_steps=27)
    assert done.finished_s == 297.0 == done.end_s
    assert run(fleet(START), rounded, goal_steps=10**6).finished_s is None
