"""Corrected ElasticFlow keeps its promises: whatever it admits ends by its deadline."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from forerun.cluster.inputs.arrays import NO_DEADLINE_S, Cluster, Jobs
from forerun.cluster.inputs.costs import cost_table, plain
from forerun.cluster.inputs.setting import Setting
from forerun.replication.elasticflow.known_bugs import SWITCHES
from forerun.replication.elasticflow.planning.promises import PromisingRules
from forerun.replication.elasticflow.schedules.plan_ahead import PublishedElasticFlow

from ..cluster.conftest import Switched, play, setting
from ..conftest import cases, shared_path
from .test_rigid_laws import PROFILE, RATE

ALL = frozenset(SWITCHES)


def drawn_world(rng: np.random.Generator) -> Setting:
    count = int(rng.integers(2, 30))
    submit = np.cumsum(rng.integers(0, int(rng.choice([100, 900, 3000])), count))
    gpus = rng.choice([1, 1, 2, 4, 8], count)
    duration = rng.integers(1, int(rng.choice([300, 3000, 20_000])), count)
    kind = rng.integers(0, 2, count)
    effort = rng.random(count) < 0.2
    due = submit + (rng.uniform(0.3, 3.0, count) * duration).astype(np.int64)
    jobs = Jobs(
        np.arange(count), tuple(range(count)), submit, np.where(effort, NO_DEADLINE_S, due),
        np.maximum(1, (duration * RATE[kind, gpus]).astype(np.int64)), kind,
        tuple(PROFILE.kinds[k][0] for k in kind), np.array([PROFILE.kinds[k][1] for k in kind]), gpus, duration,
        effort, ("u",) * count, due,
    )  # fmt: skip
    nodes, slot_s = int(rng.choice([1, 2, 4])), int(rng.choice([60, 240]))
    return Switched(jobs, Cluster.uniform(1, nodes, 8), PROFILE, slot_s, corrected=ALL)


#: random settings in a run of the suite; FORERUN_CASES asks for more
WORLDS = cases(60, 520)


def test_no_admitted_job_is_late_in_random_settings():
    """Not one: a plan is a promise, and holds what restarts cost. Best-effort jobs all end too."""
    rng = np.random.default_rng(1)
    admitted = refused = 0
    for number in range(WORLDS):
        made = drawn_world(rng)
        record = play(PublishedElasticFlow(), made)
        mine = record.admitted == 1
        assert (record.end_s[mine] >= 0).all(), f"setting {number}"
        late = np.flatnonzero(mine & (record.end_s > made.jobs.deadline_s))
        assert not len(late), f"setting {number}: jobs {late}"
        admitted += int(np.count_nonzero(mine & made.jobs.has_deadline))
        refused += int(np.count_nonzero(record.admitted == 0))
    assert (admitted, refused) == (4609, 1735) if WORLDS == 520 else min(admitted / 8, refused / 3) > WORLDS


def test_a_trace_cut_off_does_not_change_what_came_before():
    """Causality: until a job comes, the run is the one without it (not so as published: a lone last event is drawn)."""
    rng = np.random.default_rng(5)
    for _ in range(cases(15)):
        made = drawn_world(rng)
        cut = int(rng.integers(1, len(made.jobs)))
        until_s = -(-int(made.jobs.submit_s[cut]) // made.slot_s) * made.slot_s
        whole, part = (
            play(PublishedElasticFlow(), made),
            play(PublishedElasticFlow(), replace(made, jobs=made.jobs.take(range(cut)))),
        )
        seen = [
            [
                change
                for change in zip(*map(np.ndarray.tolist, run.changes()), strict=True)
                if change[0] < until_s
            ]
            for run in (whole, part)
        ]
        assert seen[0] == seen[1]
        judged = np.flatnonzero(made.jobs.submit_s[:cut] <= until_s - made.slot_s)
        assert whole.admitted[judged].tolist() == part.admitted[judged].tolist()


def test_promises_are_kept_where_fresh_plans_fail(monkeypatch):
    """Fresh plans of everybody are refused at random, and changes are dear: the promises made go on, and hold."""
    went_on = 0
    rng = np.random.default_rng(1)
    afresh, go_on = PromisingRules._afresh, PromisingRules._go_on

    def moody(self, rows, now_s):
        return rng.random() < 0.5 and afresh(self, rows, now_s)

    def counted(self, now_s):
        nonlocal went_on
        went_on += 1
        go_on(self, now_s)

    monkeypatch.setattr(PromisingRules, "_afresh", moody)
    monkeypatch.setattr(PromisingRules, "_go_on", counted)
    admitted = 0
    for number in range(worlds := cases(20)):
        made = drawn_world(rng)
        dear = cost_table({"*": {"1->2": 50.0, "2->1": 40.0}}, made.jobs, plain(0, 0, 0), "here")
        made = replace(made, costs=dear) if number % 2 else made
        record = play(PublishedElasticFlow(), made)
        mine = record.admitted == 1
        assert (record.end_s[mine] >= 0).all() and (record.end_s <= made.jobs.deadline_s)[mine].all()
        admitted += int(np.count_nonzero(mine & made.jobs.has_deadline))
    assert went_on > 5 * worlds and admitted > 5 * worlds


def test_without_promises_some_are_late():
    """The law can fail: with the switch off, and without a reserve, many are late."""
    rng, late = np.random.default_rng(1), 0
    for _ in range(cases(30)):
        made = replace(drawn_world(rng), corrected=ALL - {"promises_kept", "admission_overhead"})
        record = play(PublishedElasticFlow(), made)
        late += int(np.count_nonzero((record.admitted == 1) & (record.end_s > made.jobs.deadline_s)))
        if late > 5:
            return
    raise AssertionError(f"only {late} were late")


@pytest.mark.parametrize("switches", [frozenset({"admission_overhead"}), ALL], ids=["alone", "all"])
@pytest.mark.parametrize(
    "scene",
    [("195job.csv", "n16g8", 240, "A100"), ("elasticVpollux_e.csv", "n16g4", 60, "T4")],
    ids=["A100", "T4"],
)
def test_admitted_jobs_end_in_time_on_the_testbed_traces(scene, switches):
    """Every one, with the switch alone and with all."""
    made = setting(*scene, corrected=switches)
    record = play(PublishedElasticFlow(), made)
    mine = (record.admitted == 1) & made.jobs.has_deadline
    assert mine.sum() > 100
    assert (record.end_s[mine] <= made.jobs.deadline_s[mine]).all() and (record.end_s[mine] >= 0).all()


def test_slots_of_a_second_and_no_costs_leave_what_knowing_the_future_is_worth():
    """Figure 8(a): at most the deadlines that are proved to be the most of any schedule, and all of them but one."""
    proved = json.loads(shared_path("golden", "bounds", "fig8a_g64.cert.json").read_text())["claim"]
    made = setting("elasticVpollux_e.csv", "n16g4", 1, "T4", corrected=ALL)
    made = replace(
        made, costs=cost_table({"*": {"1->2": 0.0, "2->1": 0.0}}, made.jobs, plain(0, 0, 0), "here")
    )
    record = play(PublishedElasticFlow(), made)
    met = (record.end_s >= 0) & (record.end_s <= made.jobs.deadline_s) & made.jobs.has_deadline
    assert int(proved) - 1 <= met.sum() <= int(proved) == 181
