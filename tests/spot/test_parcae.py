"""Parcae's shapes on a fleet's history: by hand, and the laws that hold on every path."""

from __future__ import annotations

import math
from typing import Any

from forerun.spot.engine.history import Replay
from forerun.spot.engine.job import TrainingJob
from forerun.spot.engine.membership import Membership
from forerun.spot.engine.outlook import Observed
from forerun.spot.policies.immediate import Immediate
from forerun.spot.policies.parcae import Parcae
from forerun.spot.policy import Setting

from ..conftest import cases
from .test_exact import close, world_of

SMALL = TrainingJob(
    depth=2,
    max_pipelines=2,
    step_s={2: 10.0, 4: 6.0},
    reconfig_s=88.0,
    prep_s=0.0,
    write_s=89.0,
    stall_s=0.0,
    horizon_s=300.0,
)
FOUR = [(0.0, True, f"n{i}") for i in range(4)]


def run(
    rows: Any, job: TrainingJob = SMALL, policy: Parcae | None = None, goal_steps: int | None = None
) -> Replay:
    setting = Setting(
        fleet=Membership.from_rows(rows),
        job=job,
        growth=Immediate(),
        outlook=Observed(),
        goal_steps=goal_steps,
    )
    return (policy or Parcae()).replay(setting)


def seconds(done: Replay) -> dict[str, float]:
    return {line: round(spent, 9) for line, spent in done.wall_s.items() if spent}


def test_a_loss_is_booked_when_it_happens() -> None:
    """16 steps of 6 s, 4 s of the next lost, 6.6 s to regroup, 19 steps of 10 s."""
    done = run([*FOUR, (100.0, False, "n3")])
    assert seconds(done) == {"useful": 286.0, "lost": 4.0, "reconfig": 6.6, "inflight": 3.4}
    assert [(s.state, s.world_size, s.start_s, s.end_s) for s in done.spells] == [
        ("training", 4, 0.0, 100.0),
        ("reconfiguring", 2, 100.0, 106.6),
        ("training", 2, 106.6, 300.0),
    ]
    assert done.steps_completed == 35 and done.counts.rollbacks == 1


def test_a_planned_change_waits_for_the_running_step() -> None:
    """A node is back at 150 s; the interval of 180 s takes it up when the step that ends at 186.6 s is done."""
    done = run([*FOUR, (100.0, False, "n3"), (150.0, True, "n4")])
    assert [(s.state, round(s.start_s, 9), s.cause) for s in done.spells[2:]] == [
        ("training", 106.6, "loss"),
        ("reconfiguring", 186.6, "plan"),
        ("training", 198.2, "plan"),
    ]
    assert seconds(done)["lost"] == 4.0


def test_a_stage_without_nodes_is_copied_to_a_spare() -> None:
    """Both nodes of stage 1 vanish: restart, regroup and one copy, on the two nodes left."""
    done = run([*FOUR, (60.0, False, "n1"), (60.0, False, "n3")])
    assert seconds(done)["reconfig"] == 0.24 + 6.6 + 5.0
    assert done.final_active == 2 and done.wall_s["idle"] == 0
    gone = run([*FOUR, *((60.0, False, f"n{i}") for i in range(1, 4))])
    assert seconds(gone) == {"useful": 60.0, "idle": 240.0}
    assert gone.node_s["standby"] == 240.0 and gone.counts.idle_spells == 1


def test_the_goal_is_reached_at_the_end_of_a_step() -> None:
    done = run(FOUR, goal_steps=7)
    assert done.finished_s == done.end_s == 42.0


def test_laws_hold_on_random_worlds() -> None:
    for seed in range(cases(60)):
        rows, job, _, rng = world_of(seed)
        policy = Parcae(interval_s=rng.choice([7.0, 30.0, 60.0]), regroup_s=rng.choice([0.0, 2.0, 6.6]))
        done = run(rows, job, policy)
        assert close(math.fsum(done.wall_s.values()), job.horizon_s), seed
        useful = math.fsum(
            s.steps_retained * job.step_s[s.world_size] for s in done.spells if s.state == "training"
        )
        assert close(done.wall_s["useful"], useful), seed
        assert done.steps_completed == sum(s.steps_retained for s in done.spells), seed
        lives = Membership.from_rows(rows).instants
        alive: dict[int, float] = {}
        node_s = 0.0
        for instant in lives:
            if instant.t_s < job.horizon_s:
                node_s += math.fsum(instant.t_s - alive.pop(node) for node in instant.removed)
                alive |= dict.fromkeys(instant.added, instant.t_s)
        node_s += math.fsum(job.horizon_s - since_s for since_s in alive.values())
        assert close(done.alive_node_s, node_s), seed
        assert close(node_s, math.fsum(spell.end_s - spell.start_s for spell in done.node_spells)), seed
        ends = [spell.end_s for spell in done.spells]
        assert [spell.start_s for spell in done.spells] == [0.0, *ends][: len(ends)], seed
        assert done.final_active + done.final_standby + done.final_provisioning == len(alive), seed
        assert all(s.world_size % job.depth == 0 for s in done.spells), seed
