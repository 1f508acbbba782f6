"""A policy over observed jobs decides as in its simulation, and never ends a job that still works."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from forerun.domains.cluster.engine.allocator import AllocatorRules, Terms
from forerun.domains.cluster.engine.kernels import allocator as ak
from forerun.domains.cluster.engine.kernels import plan_state as mk
from forerun.domains.cluster.engine.online import Decision, Online
from forerun.domains.cluster.engine.plan_ahead import PlanAheadRules
from forerun.domains.cluster.engine.promises import PromisingRules
from forerun.domains.cluster.engine.record import Record
from forerun.domains.cluster.engine.rules import AnyObservingRules, Progress
from forerun.domains.cluster.engine.run import rules_for, run_rules
from forerun.domains.cluster.inputs.costs import cost_table, plain
from forerun.domains.cluster.inputs.setting import F64, I64, Setting
from forerun.domains.cluster.policies.chronus import Chronus, ChronusRules
from forerun.domains.cluster.policies.elasticflow import (
    AdmittingEdf,
    EarliestDeadlineFirst,
    ElasticFlow,
    ElasticScaling,
)
from forerun.domains.cluster.policies.gandiva import Gandiva, GandivaRules
from forerun.domains.cluster.policies.las import Las
from forerun.domains.cluster.policies.pollux import Pollux
from forerun.domains.cluster.policies.priority import EdfRigid, Fifo, FifoBackfill, Sjf, Srtf
from forerun.domains.cluster.policies.themis import Themis, ThemisSlots
from forerun.domains.cluster.policies.tiresias import Tiresias, TiresiasRules
from forerun.domains.cluster.policy import Policy, PriorityPolicy
from forerun.errors import ScenarioError
from forerun.registry import member_name

from .test_admitted_in_time import drawn_world
from .test_irregular_clusters import hostile_world

#: random settings in a run of the suite; FORERUN_CASES asks for more
WORLDS = max(40, int(os.environ.get("FORERUN_CASES", "0")))


@dataclass
class VirtualJobs:
    """Jobs that work as their profile says, or slower, on a clock of their own.

    slow: float64[jobs], how many times as long a job takes as its profile says.
    """

    online: Online
    slow: F64
    left: F64 = field(init=False)
    owed_s: F64 = field(init=False)
    ended_s: F64 = field(init=False)
    rate: F64 = field(init=False)
    now_s: float = 0.0
    slots: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    moved: int = 0
    kept: int = 0

    def __post_init__(self) -> None:
        count = len(self.slow)
        self.left = self.online.work.copy()
        self.owed_s, self.rate = np.zeros(count), np.zeros(count)
        self.ended_s = np.full(count, np.nan)

    def play(self) -> None:
        """Until the policy expects nothing and nobody works."""
        for _ in range(200_000):
            expected_s = self.online.expected_s()
            ends_s = np.where(
                self.rate > 0,
                self.now_s + self.owed_s + self.left / np.where(self.rate > 0, self.rate, 1.0),
                np.inf,
            )
            row = int(np.argmin(ends_s))
            if expected_s is None and math.isinf(ends_s[row]):
                return
            if expected_s is None or ends_s[row] < expected_s - 1e-9:
                self.go_to(float(ends_s[row]))
                self.left[row], self.rate[row], self.ended_s[row] = 0.0, 0.0, ends_s[row]
                self.online.ended(row, float(ends_s[row]))
                continue
            self.go_to(float(expected_s))
            for row in np.flatnonzero(ends_s <= expected_s + 1e-9).tolist():
                self.left[row], self.rate[row] = 0.0, 0.0
                self.ended_s[row] = min(ends_s[row], expected_s)
            decision = self.online.decide(
                expected_s, Progress(self.left.copy(), self.owed_s.copy(), self.ended_s.copy())
            )
            gpus = np.zeros(len(self.left), np.int64)
            for row, count in decision.gpus.items():
                assert np.isnan(self.ended_s[row])
                gpus[row] = count
            assert gpus.sum() <= self.online.setting.cluster.gpus
            self.check_slots(decision)
            rate, self.owed_s = model(self.online.rules, gpus, float(expected_s))
            self.rate = rate / self.slow
        raise AssertionError("the run does not end")

    def check_slots(self, decision: Decision) -> None:
        """Each job has as many GPUs as its count says, none given twice, and the same ones while the count stays."""
        given = [gpu for slots in decision.slots.values() for gpu in slots]
        assert len(set(given)) == len(given)
        assert all(0 <= gpu < self.online.setting.cluster.gpus for gpu in given)
        assert {row: len(slots) for row, slots in decision.slots.items()} == dict(decision.gpus)
        same = [row for row, slots in self.slots.items() if len(decision.slots.get(row, ())) == len(slots)]
        self.moved += sum(self.slots[row] != decision.slots[row] for row in same)
        self.kept += sum(self.slots[row] == decision.slots[row] for row in same)
        self.slots = decision.slots

    def go_to(self, to_s: float) -> None:
        paid_s = np.minimum(self.owed_s, to_s - self.now_s)
        self.owed_s = self.owed_s - paid_s
        self.left = np.maximum(self.left - self.rate * (to_s - self.now_s - paid_s), 0.0)
        self.now_s = to_s


def drawn(number: int) -> Setting:
    """A world of two kinds of job and equal nodes."""
    return drawn_world(np.random.default_rng([3, number]))


def member_of(policy: Policy) -> str:
    """The name of a policy in scenarios."""
    return member_name(type(policy))


def model(rules: AnyObservingRules, gpus: I64, now_s: float) -> tuple[F64, F64]:
    """Work a second, and seconds until they work, of jobs on GPUs just decided, as the rules' simulation has them."""
    if isinstance(rules, AllocatorRules):
        f = rules.state.f
        return np.where(gpus > 0, f[ak.SPEED], 0.0), np.where(
            gpus > 0, np.maximum(f[ak.SINCE] - now_s, 0.0), 0.0
        )
    if isinstance(rules, ChronusRules):
        owed_s = np.zeros(len(gpus))
        for job in rules.running:
            assert rules.seen is not None
            needed_s = job.duration_s + job.resumes * job.restart_s
            owed_s[job.row] = max(needed_s - job.done_s - rules.seen.left[job.row], 0.0)
        return (gpus > 0).astype(float), owed_s
    if isinstance(rules, ThemisSlots):
        return np.where(gpus > 0, rules.jobs.rate, 0.0), np.zeros(len(gpus))
    if isinstance(rules, TiresiasRules | GandivaRules):
        return (gpus > 0).astype(float), np.where(gpus > 0, rules.owed_s, 0.0)
    assert isinstance(rules, PlanAheadRules)
    jobs = rules.setting.jobs
    rate = np.where(gpus > 0, rules.setting.profile.rate_at()[jobs.kind, gpus], 0.0)
    pause_s = rules.pause_s if isinstance(rules, PromisingRules) else rules.m.j[mk.CHARGED].astype(float)
    return rate, np.where(gpus > 0, pause_s, 0.0)


def prepared(policy: Policy, made: Setting) -> Setting:
    """A setting in which a policy's simulation counts as real jobs do.

    Rigid priorities count durations, not the profile's iterations, and Themis counts down both. Tiresias' simulation keeps
    the GPUs of a job that ended until the next slot, and Gandiva's forgives jobs that have waited what is left of a
    restart.
    """
    if isinstance(policy, PriorityPolicy | Themis):
        made = replace(made, profile=None)
    if isinstance(policy, Tiresias | Gandiva | Themis):
        free = dict.fromkeys(("1->2", "2->1", "migrate"), 0.0)
        made = replace(made, costs=cost_table({"*": free}, made.jobs, plain(0, 0, 0), "here"))
    return replace(made, slot_s=1) if isinstance(policy, Tiresias) else made


def simulated(policy: Policy, made: Setting) -> Record:
    """The run under the policy's own model of work."""
    record = Record(made)
    record.seeks_remedies = False
    run_rules(rules_for(policy, made, record, Terms(), 0))
    return record


def changes(record: Record) -> list[F64]:
    """Times, rows and GPUs of a record's changes, those of one instant by row."""
    times, rows, gpus = record.changes()
    order = np.lexsort((gpus, rows, np.round(times, 3)))
    return [times[order], rows[order], gpus[order]]


def observed(policy: Policy, made: Setting, slow: F64) -> VirtualJobs:
    """The run over jobs that are so many times slower than their profiles."""
    jobs = VirtualJobs(Online(policy, made, Terms(), 0), slow)
    jobs.play()
    return jobs


ELASTIC = [ElasticFlow(), EarliestDeadlineFirst(), AdmittingEdf()]
RIGID = [Tiresias(), Gandiva(), Chronus(), Themis(), Las(), Fifo(), FifoBackfill(), Sjf(), Srtf(), EdfRigid()]


@pytest.mark.parametrize("policy", [*ELASTIC, *RIGID], ids=member_of)
def test_jobs_that_work_as_profiled_are_scheduled_as_in_the_simulation(policy: Policy) -> None:
    """Every change of GPUs, every admission, and every end to the second (Themis: to the slot)."""
    kept = moved = 0
    for number in range(WORLDS):
        made = prepared(policy, drawn(number))
        expected = simulated(policy, made)
        run = observed(policy, made, np.ones(len(made.jobs)))
        got = run.online.record
        kept, moved = kept + run.kept, moved + run.moved
        for one, other in zip(changes(expected), changes(got), strict=True):
            np.testing.assert_allclose(other, one, rtol=0, atol=1e-6, err_msg=f"world {number}")
        np.testing.assert_array_equal(got.admitted, expected.admitted, err_msg=f"world {number}")
        apart_s = (
            made.slot_s if isinstance(policy, Themis) else 1.0
        )  # its simulation ends jobs at the end of a slot
        np.testing.assert_allclose(got.end_s, expected.end_s, rtol=0, atol=apart_s, err_msg=f"world {number}")
    assert kept > 20 * WORLDS and moved <= (kept / 50 if policy in ELASTIC else 0), (kept, moved)


def check_ends(policy: Policy, made: Setting, number: int) -> None:
    """Every admitted job ends, when it was seen to; the virtual jobs check every decision against what has ended."""
    rng = np.random.default_rng([7, number])
    slow = np.where(rng.random(len(made.jobs)) < 0.6, rng.uniform(0.5, 3.0, len(made.jobs)), 1.0)
    jobs = observed(policy, made, slow)
    record = jobs.online.record
    mine = record.admitted == 1
    np.testing.assert_allclose(
        record.end_s[mine], jobs.ended_s[mine], rtol=0, atol=1.0, err_msg=f"world {number}"
    )
    assert (record.end_s[~mine] < 0).all() and np.isnan(jobs.ended_s[~mine]).all(), f"world {number}"


@pytest.mark.parametrize("policy", [*ELASTIC, ElasticScaling(), *RIGID], ids=member_of)
def test_jobs_at_other_speeds_end_when_they_are_seen_to(policy: Policy) -> None:
    """Jobs from twice as fast to three times as slow as profiled."""
    for number in range(WORLDS):
        check_ends(policy, drawn(number), number)


@pytest.mark.parametrize("policy", ELASTIC, ids=member_of)
def test_elastic_jobs_at_other_speeds_end_in_hostile_worlds(policy: Policy) -> None:
    """Odd nodes, profiles with bumps and holes, costly changes.

    `ef` is left out: where a change costs more than the time to the next event it may move GPUs to and fro for ever, which
    a simulation reports as a standstill.
    """
    for number in range(WORLDS):
        check_ends(policy, hostile_world(number), number)


def test_a_policy_that_trusts_its_own_model_is_rejected() -> None:
    """Pollux decides by a model of training, which real jobs need not follow."""
    with pytest.raises(
        ScenarioError, match="pollux decides by its own model of progress; it cannot follow real jobs"
    ):
        Online(Pollux(), drawn(0), Terms(), 0)


def test_gandiva_as_published_is_rejected() -> None:
    """As published it acts at arrivals only, so ends would go unseen."""
    with pytest.raises(ScenarioError, match="only with gandiva_between_arrivals corrected"):
        Online(Gandiva(), replace(drawn(0), corrected=frozenset()), Terms(), 0)
