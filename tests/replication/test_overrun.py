"""Jobs that fall behind their plans under ElasticFlow: planned again, and the promises of the others hold."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.cluster.engine.allocator import Terms
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import run_rules
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.testing import Scene
from forerun.core.errors import PolicyError, ScenarioError
from forerun.core.scenario.spec import canonical_json, content_id, to_data
from forerun.replication.elasticflow.kernels import plan_state as mk
from forerun.replication.elasticflow.known_bugs import Corrections
from forerun.replication.elasticflow.planning.promises import PromisingRules
from forerun.replication.elasticflow.schedules.plan_ahead import PublishedElasticFlow

from ..cluster.conftest import lawful, play
from ..conftest import cases
from .test_admitted_in_time import drawn_world
from .test_irregular_clusters import ALL, hostile_world

#: random settings in a run of the suite; FORERUN_CASES asks for more
WORLDS = cases(16, 1500)


def lagging(made: Setting, number: int) -> Setting:
    """The setting with some jobs slower than their profile: slightly, by half, or many times."""
    rng = np.random.default_rng([21, number])
    most = float(rng.choice([1.01, 1.5, 20.0]))
    slow = rng.random(len(made.jobs)) < rng.choice([0.2, 0.6, 1.0])
    return replace(made, slowness=np.where(slow, rng.uniform(1.0, most, len(made.jobs)), 1.0))


def work_done(record: Record) -> Any:
    """Iterations that each job did at most, by the GPUs that it held and its own speed."""
    setting = record.setting
    times, rows, gpus = record.changes()
    done, since, held = (
        np.zeros(len(setting.jobs)),
        np.zeros(len(setting.jobs)),
        np.zeros(len(setting.jobs), int),
    )
    rate = setting.profile.rate_at()
    for time_s, row, count in zip(times, rows, gpus, strict=True):
        until = min(time_s, record.end_s[row]) if record.end_s[row] >= 0 else time_s
        if held[row]:
            done[row] += max(0.0, until - since[row]) * rate[setting.jobs.kind[row], held[row]]
        since[row], held[row] = time_s, count
    return done / setting.slowness


def test_no_lag_ends_a_run_and_the_promises_of_others_hold() -> None:
    """Every law after every event; all jobs end, their work done; whoever is not slower than planned ends in time."""
    punctual = late = rescued = 0
    for number in range(WORLDS):
        made = lagging(
            hostile_world(number) if number % 2 else drawn_world(np.random.default_rng(number)), number
        )
        record, _ = lawful(PublishedElasticFlow(), Scene(number, made, Terms()))
        mine = record.admitted == 1
        assert (record.end_s[mine] >= 0).all(), f"setting {number}"
        assert (work_done(record)[mine] >= made.jobs.iterations[mine] * (1 - 1e-9)).all(), f"setting {number}"
        promised = mine & made.jobs.has_deadline & (made.slowness == 1)
        missed = np.flatnonzero(promised & (record.end_s > made.jobs.deadline_s))
        assert not len(missed), f"setting {number}: jobs {missed}"
        overrun = np.array(sorted(record.overrun_rows), int)
        assert (made.slowness[overrun] > 1).all(), f"setting {number}"
        in_time = mine & made.jobs.has_deadline & (record.end_s <= made.jobs.deadline_s)
        punctual += int(promised.sum())
        late += len(overrun)
        rescued += int((in_time & (made.slowness > 1)).sum())
    assert punctual > 2 * WORLDS and late > WORLDS / 2 and rescued > WORLDS


def test_without_the_rule_a_lag_ends_runs_in_an_error() -> None:
    """The law can fail: jobs that keep their GPUs beyond their planned end leave none for the plans of others."""
    failed = 0
    for number in range(cases(20)):
        made = lagging(hostile_world(number, ALL - {"overrun"}), number)
        try:
            play(PublishedElasticFlow(), made)
        except PolicyError:
            failed += 1
        if failed > 1:
            return
    raise AssertionError("no run ended in an error")


class Disturbed(PromisingRules):
    """Every instant another speed for every job, down to none at all, and starts that take longer than planned."""

    rng: np.random.Generator

    def advance(self, now_s: int) -> None:
        """Work goes on at other speeds than before; in one of four instants a job does none."""
        rng, jobs = self.rng, len(self.slowness)
        calm = rng.random(jobs) < 0.5
        self.slowness = np.where(calm, 1.0, np.where(rng.random(jobs) < 0.5, 1e9, rng.uniform(1, 4, jobs)))
        super().advance(now_s)

    def _due_s(self, row: int) -> float:
        return super()._due_s(row) + float(self.rng.choice([0.0, 0.9, 17.0, 500.0]))


def no_late_job_waits_for_free_gpus(now_s: float, rules: PromisingRules) -> None:
    """A late job holds at least the least count that it can run on, where that many GPUs are free."""
    m, rows = rules.m, rules.runnable()
    spare = rules.setting.cluster.gpus - int(m.j[mk.GPUS, rows].sum())
    assert spare >= 0, f"t={now_s}: {-spare} GPUs too many are held"
    for row in rows[rules.late[rows] & (m.j[mk.GPUS, rows] == 0)].tolist():
        least = m.levels[int(np.argmax(m.rate[m.j[mk.KIND, row]] > 0))]
        assert least > spare, f"t={now_s}: late job {row} waits for {least} GPUs, {spare} are free"


def test_no_disturbance_raises_or_hands_out_more_gpus_than_there_are() -> None:
    late = 0
    for number in range(WORLDS // 2):
        made = hostile_world(number) if number % 2 else drawn_world(np.random.default_rng(number))
        record = Record(made)
        rules = Disturbed(made, record, Corrections(ALL))
        rules.rng = np.random.default_rng([22, number])
        run_rules(rules, [partial(no_late_job_waits_for_free_gpus, rules=rules)])
        assert (record.end_s[record.admitted == 1] >= 0).all(), f"setting {number}"
        assert (record.events()[3] >= 0).all(), f"setting {number}: more GPUs are held than there are"
        late += len(record.overrun_rows)
    assert late > WORLDS


def test_without_lag_no_job_is_ever_late() -> None:
    """Bit for bit the run of a setting without slowness, with and without the rule."""
    for number in range(cases(10)):
        made = hostile_world(number)
        runs = [
            play(PublishedElasticFlow(), setting)
            for setting in (
                made,
                replace(made, slowness=np.ones(len(made.jobs))),
                replace(made, corrected=ALL - {"overrun"}),
            )
        ]
        for other in runs[1:]:
            for mine, theirs in zip(runs[0].changes(), other.changes(), strict=True):
                assert np.array_equal(mine, theirs)
            assert np.array_equal(runs[0].end_s, other.end_s)
        assert not runs[0].overrun_rows


def test_a_job_with_slack_that_is_a_little_behind_is_no_best_effort_job() -> None:
    """Behind by less than its slack it is planned again to its deadline; only where that cannot be it is late."""
    free = drawn_world(np.random.default_rng(0))
    rate = free.profile.rate_at()[free.jobs.kind[0]].max()
    best_s = free.jobs.iterations[0] / rate
    for slack_s, slower, late in ((400, 1 + 0.9 / best_s, False), (400, 1 + 2000 / best_s, True)):
        due_s = free.jobs.submit_s[:1] + int(np.ceil(best_s)) + slack_s
        jobs = replace(free.jobs.take([0]), deadline_s=due_s, best_effort=np.array([False]))
        made = replace(free, jobs=jobs, slot_s=60, slowness=np.array([slower]))
        record = play(PublishedElasticFlow(), made)
        assert record.admitted[0] == 1 and record.end_s[0] > 0
        assert bool(record.overrun_rows) == late == bool(record.end_s[0] > due_s[0])


TEXT = """
    domain: cluster
    trace: {published: {jobs: 30, mean_gap_s: 200}}
    machines: {nodes: [{count: 4, gpus: 8}]}
    policy: ef-accessctrl
    profile:
      - analytic: balanced
        kinds: [[resnet50, 64], [resnet50, 128], [resnet50, 256], [vgg16, 64], [vgg16, 128], [vgg16, 256],
                [inception3, 64], [inception3, 128], [gpt2, 128], [gpt2, 256], [bert, 64], [bert, 128],
                [deepspeech2, 32], [deepspeech2, 64]]
"""


def test_a_scenario_asks_what_slower_jobs_do() -> None:
    """The draw comes from the seed; the result says who fell behind and whether the others' promises held."""
    asked = ["slowdown.most=3", "slowdown.share=0.5"]
    scenario = forerun.loads(TEXT, asked)
    result = forerun.simulate(scenario)
    assert result.summary == forerun.simulate(scenario).summary
    assert 0 < result.summary["overrun_jobs"] < 20
    note = next(note for note in result.notes if "slower than their throughput says" in note)
    assert f"{result.summary['overrun_jobs']} admitted jobs fell so far behind" in note
    calm = forerun.simulate(forerun.loads(TEXT))
    assert calm.summary["deadlines_met"] > result.summary["deadlines_met"]
    assert "overrun_jobs" not in calm.summary and not any("slower than" in note for note in calm.notes)
    even = forerun.simulate(forerun.loads(TEXT, ["slowdown.most=1"]))
    assert {**even.summary, "overrun_jobs": 0} == {**calm.summary, "overrun_jobs": 0}


@pytest.mark.parametrize("other", ["policy=edf", "policy=srtf", "mode=compat", "compat.overrun=compat"])
def test_slower_jobs_are_refused_where_a_policy_ends_jobs_by_its_plan(other: str) -> None:
    with pytest.raises(ScenarioError, match=r"slowdown.*ef-accessctrl in mode: corrected"):
        forerun.loads(TEXT, ["slowdown.most=3", other])


@pytest.mark.parametrize("wrong", ["slowdown.most=0.5", "slowdown.share=2", "slowdown.least=4"])
def test_impossible_slowdowns_are_refused(wrong: str) -> None:
    with pytest.raises(ScenarioError, match="slowdown"):
        forerun.loads(TEXT, ["slowdown.most=3", wrong])


def test_runs_without_slowdown_keep_their_id() -> None:
    """A field that was added later does not count while it is not used."""
    scenario = forerun.loads(TEXT)
    before = to_data(scenario)
    for spec, data in (
        (scenario, before),
        (scenario.trace, before["trace"]),
        (scenario.machines, before["machines"]),
        (scenario.costs, before["costs"]),
    ):
        for name in spec.added_later:
            assert not data.pop(name)
    digest = hashlib.sha256(b"1\0" + canonical_json(before)).hexdigest()[:16]
    assert content_id(scenario, "1") == digest
    assert content_id(forerun.loads(TEXT, ["slowdown.most=2"]), "1") != digest
