"""A policy over observed jobs decides as in its simulation, and never ends a job that still works."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from forerun.cluster.engine.allocator import PLACEMENTS, AllocatorRules, Terms
from forerun.cluster.engine.kernels import allocator as ak
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.rules import AnyObservingRules, Progress
from forerun.cluster.engine.run import run_rules
from forerun.cluster.inputs.arrays import F64, I64
from forerun.cluster.inputs.costs import cost_table, plain
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policies.gavel_maxmin import GavelMaxMin
from forerun.cluster.policies.las import Las
from forerun.cluster.policies.priority import EdfRigid, Fifo, FifoBackfill, Sjf, Srtf
from forerun.cluster.policy import Policy, PriorityPolicy
from forerun.core.errors import ScenarioError
from forerun.core.registry import member_name
from forerun.live.online import Decision, Online
from forerun.replication.chronus.schedule import Chronus, ChronusRules
from forerun.replication.elasticflow.kernels import plan_state as mk
from forerun.replication.elasticflow.planning.plan_ahead import PlanAheadRules
from forerun.replication.elasticflow.planning.promises import PromisingRules
from forerun.replication.elasticflow.schedules.gandiva import Gandiva, GandivaRules
from forerun.replication.elasticflow.schedules.plan_ahead import (
    AdmittingEdf,
    EarliestDeadlineFirst,
    ElasticScaling,
    PublishedElasticFlow,
)
from forerun.replication.elasticflow.schedules.themis import Themis, ThemisSlots
from forerun.replication.elasticflow.schedules.tiresias import Tiresias, TiresiasRules
from forerun.replication.pollux.schedule import Pollux

from ..cluster.conftest import engine_for, rules_of
from ..conftest import cases
from ..replication.test_admitted_in_time import drawn_world
from ..replication.test_irregular_clusters import hostile_world

#: random settings in a run of the suite; FORERUN_CASES asks for more
WORLDS = cases(2)


@dataclass(order=True)
class Event:
    """Something that happens to the run: a submission of a row, a cancellation, a node down, up or new, or the end of a job
    whose GPUs were taken away just before."""

    at_s: float
    what: str
    number: int


@dataclass
class VirtualJobs:
    """Jobs that work as their profile says, or slower, on a clock of their own.

    Parameters
    ----------
    online : the policy.
    slow : float64[jobs], how many times as long a job takes as its profile says.
    whole : the setting whose jobs `events` submit.
    events : what happens from outside, in order.
    late_s : how long after they were expected decisions are asked for, every third time.
    """

    online: Online
    slow: F64
    whole: Setting | None = None
    events: list[Event] = field(default_factory=list)
    left: F64 = field(init=False)
    owed_s: F64 = field(init=False)
    ended_s: F64 = field(init=False)
    rate: F64 = field(init=False)
    now_s: float = 0.0
    slots: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)
    decisions: list[Decision] = field(default_factory=list)
    moved: int = 0
    unforced: int = 0  # moves of jobs of whose former GPUs no other job has one
    kept: int = 0
    late_s: float = 0.0

    def __post_init__(self) -> None:
        count = len(self.slow)
        self.left = np.zeros(count)
        self.left[: self.online.jobs] = self.online.work
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
            next_s = math.inf if expected_s is None else expected_s
            if self.late_s and expected_s is not None and len(self.decisions) % 3 == 2:
                next_s = self.online.rules.instant(next_s + self.late_s)
            if self.events and self.events[0].at_s <= min(next_s, ends_s[row]):
                self.go_to(max(self.events[0].at_s, self.now_s))
                self.happens(self.events.pop(0))
                continue
            if math.isinf(min(next_s, ends_s[row])):
                return
            if ends_s[row] < next_s - 1e-9:
                self.go_to(float(ends_s[row]))
                self.left[row], self.rate[row], self.ended_s[row] = 0.0, 0.0, ends_s[row]
                self.online.ended(row, float(ends_s[row]))
                continue
            self.go_to(max(float(next_s), self.now_s))
            for row in np.flatnonzero(ends_s <= next_s + 1e-9).tolist():
                self.left[row], self.rate[row] = 0.0, 0.0
                self.ended_s[row] = min(ends_s[row], next_s)
            self.carry_out(float(next_s))
        raise AssertionError("the run does not end")

    def carry_out(self, now_s: float) -> None:
        known = self.online.jobs
        decision = self.online.decide(
            now_s, Progress(self.left[:known].copy(), self.owed_s[:known].copy(), self.ended_s[:known].copy())
        )
        gpus = np.zeros(len(self.left), np.int64)
        for row, count in decision.gpus.items():
            assert np.isnan(self.ended_s[row]) and row not in self.cancelled
            gpus[row] = count
        self.check_slots(decision)
        self.decisions.append(decision)
        rate, owed_s = model(self.online.rules, gpus[:known], now_s)
        self.rate[:known], self.owed_s[:known] = rate / self.slow[:known], owed_s

    def happens(self, event: Event) -> None:
        """Tell the policy, and stop who has lost the ground under it."""
        online, at_s, number = self.online, self.now_s, event.number
        if event.what == "submit":
            assert self.whole is not None
            row = online.submit(self.whole.jobs.take([number]), at_s)
            assert row == number
            self.left[row] = online.work[row]
            return
        if event.what == "cancel":
            online.cancel(number, at_s)
            if np.isnan(self.ended_s[number]):
                self.cancelled.add(number)
                self.rate[number] = 0.0
            return
        if event.what == "finish":
            known = np.flatnonzero((online.record.admitted == 1) & (online.record.end_s < 0)).tolist()
            came = [row for row in known if online.setting.jobs.submit_s[row] <= at_s]
            waiting = [row for row in came if not self.rate[row] and np.isnan(self.ended_s[row])]
            for row in [row for row in waiting if row not in self.cancelled][:1]:
                self.left[row], self.ended_s[row] = 0.0, at_s
                online.ended(row, at_s)
            return
        if event.what == "up":
            online.node_up(number, at_s)
        else:
            assert event.what == "down"
            online.node_down(number, at_s)
            for row, slots in list(self.slots.items()):
                if number in online.seats.node_of(np.array(slots)).tolist():
                    self.rate[row] = 0.0
                    del self.slots[row]

    def check_slots(self, decision: Decision) -> None:
        """Each job has as many GPUs as its count says, none given twice, and the same ones while the count stays."""
        given = [gpu for slots in decision.slots.values() for gpu in slots]
        assert len(set(given)) == len(given)
        seats = self.online.seats
        assert all(0 <= gpu < self.online.setting.cluster.gpus for gpu in given)
        assert seats.up[seats.node_of(np.array(given, int))].all()
        assert {row: len(slots) for row, slots in decision.slots.items()} == dict(decision.gpus)
        same = [row for row, slots in self.slots.items() if len(decision.slots.get(row, ())) == len(slots)]
        changed = [row for row in same if self.slots[row] != decision.slots[row]]
        self.moved += len(changed)
        had_by = {slot: row for row, slots in decision.slots.items() for slot in slots}
        self.unforced += sum(all(had_by.get(slot, row) == row for slot in self.slots[row]) for row in changed)
        self.kept += sum(self.slots[row] == decision.slots[row] for row in same)
        self.slots = dict(decision.slots)

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
        f = rules.state.f[:, : len(gpus)]
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
        pause_s = rules.state.pause_s[: len(gpus)]
        return np.where(gpus > 0, rules.jobs.rate[: len(gpus)], 0.0), np.where(gpus > 0, pause_s, 0.0)
    if isinstance(rules, TiresiasRules | GandivaRules):
        return (gpus > 0).astype(float), np.where(gpus > 0, rules.owed_s[: len(gpus)], 0.0)
    assert isinstance(rules, PlanAheadRules)
    jobs = rules.setting.jobs
    rate = np.where(gpus > 0, rules.setting.profile.rate_at()[jobs.kind[: len(gpus)], gpus], 0.0)
    pause_s = rules.pause_s if isinstance(rules, PromisingRules) else rules.m.j[mk.CHARGED].astype(float)
    return rate, np.where(gpus > 0, pause_s[: len(gpus)], 0.0)


def prepared(policy: Policy, made: Setting) -> Setting:
    """A setting in which a policy's simulation counts as real jobs do: rigid priorities count durations, not iterations."""
    if isinstance(policy, PriorityPolicy):
        made = replace(made, profile=None)
    return replace(made, placement_kept=True)


def simulated(policy: Policy, made: Setting) -> Record:
    """The run under the policy's own model of work."""
    record = Record(made)
    record.seeks_remedies = False
    run_rules(rules_of(policy, made, record))
    return record


def changes(record: Record) -> list[F64]:
    """Times, rows and GPUs of a record's changes, those of one instant by row."""
    times, rows, gpus = record.changes()
    order = np.lexsort((gpus, rows, np.round(times, 3)))
    return [times[order], rows[order], gpus[order]]


def observed(policy: Policy, made: Setting, slow: F64) -> VirtualJobs:
    """The run over jobs that are so many times slower than their profiles."""
    jobs = VirtualJobs(Online(engine_for(made), policy, made, Terms(), 0), slow)
    jobs.play()
    return jobs


ELASTIC = [PublishedElasticFlow(), EarliestDeadlineFirst(), AdmittingEdf()]
RIGID = [Tiresias(), Gandiva(), Chronus(), Themis(), Las(), Fifo(), FifoBackfill(), Sjf(), Srtf(), EdfRigid()]


@pytest.mark.parametrize("policy", [*ELASTIC, *RIGID], ids=member_of)
def test_jobs_that_work_as_profiled_are_scheduled_as_in_the_simulation(policy: Policy) -> None:
    """Every change of GPUs, every admission, and every end to the second."""
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
        np.testing.assert_allclose(got.end_s, expected.end_s, rtol=0, atol=1.0, err_msg=f"world {number}")
    assert kept > 8 * WORLDS and moved <= (kept / 50 if policy in ELASTIC else 0), (kept, moved)


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


EVERY = [*ELASTIC, ElasticScaling(), *RIGID, GavelMaxMin()]
#: nodes do not matter, and nothing costs anything
PLAIN = Terms()
#: worlds of the laws that run every policy several times
FEW = max(2, WORLDS // 8)


def open_setting(policy: Policy, number: int) -> Setting:
    """A setting in which a policy can take jobs that nobody knew beforehand."""
    return prepared(policy, drawn(number)) if policy in RIGID else drawn(number)


def odd_setting(policy: Policy, number: int) -> Setting:
    """Odd nodes, profiles with bumps and holes, costly changes."""
    return hostile_world(number)


def submitted(
    policy: Policy,
    made: Setting,
    capacity: int,
    *others: Event,
    slow: F64 | None = None,
    terms: Terms = PLAIN,
) -> VirtualJobs:
    """The run of a setting whose jobs are submitted one by one, each at its instant."""
    nobody = made.jobs.take([])
    none = replace(made, jobs=nobody, costs=None if made.costs is None else made.costs.of(nobody))
    online = Online(engine_for(made), policy, none, terms, 0, is_open=True, capacity=capacity)
    comings = [Event(float(at_s), "submit", row) for row, at_s in enumerate(made.jobs.submit_s.tolist())]
    events = sorted([*comings, *others], key=lambda event: event.at_s)
    jobs = VirtualJobs(online, np.ones(len(made.jobs)) if slow is None else slow, made, events)
    jobs.play()
    return jobs


def as_data(decisions: list[Decision]) -> list[tuple[object, ...]]:
    """Decisions that change anything, for comparison."""
    out, before = [], None
    for decision in decisions:
        said = (
            dict(decision.gpus),
            dict(decision.slots),
            decision.admitted,
            dict(decision.refused or {}),
            decision.late,
        )
        if said[:2] != before or decision.admitted or decision.refused:
            out.append((decision.now_s, *said))
        before = said[:2]
    return out


@pytest.mark.parametrize("policy", EVERY, ids=member_of)
def test_room_for_jobs_changes_no_decision(policy: Policy) -> None:
    """Room for 1, 2 or 4,096 jobs; and all known beforehand, where nothing may rest on that."""
    changed = 0
    for number in range(FEW):
        made = open_setting(policy, number)
        known = Online(engine_for(made), policy, made, Terms(), 0, is_open=True)
        jobs = VirtualJobs(known, np.ones(len(made.jobs)))
        jobs.play()
        expected = as_data(jobs.decisions)
        changed += len(expected)
        for capacity in (1, 2, 4096) if number % 2 == 0 else (1,):
            got = submitted(policy, made, capacity)
            assert as_data(got.decisions) == expected, f"world {number}, room for {capacity}"
            count = len(made.jobs)
            for one, other in (
                (got.online.record.end_s, known.record.end_s),
                (got.online.record.admitted, known.record.admitted),
            ):
                np.testing.assert_allclose(one[:count], other, rtol=0, atol=1e-6, err_msg=f"world {number}")
    assert changed > 10 * FEW


def disturbances(made: Setting, number: int) -> list[Event]:
    """Jobs taken back, and nodes that go down and come up, at any time."""
    rng = np.random.default_rng([8, number])
    end_s = int(made.jobs.submit_s[-1]) + 4000
    events: list[Event] = []
    for row in np.flatnonzero(rng.random(len(made.jobs)) < 0.25).tolist():
        at_s = int(made.jobs.submit_s[row]) + int(rng.integers(0, 3000))
        events.append(Event(float(at_s), "cancel", row))
    for node in range(made.cluster.nodes):
        at_s = int(rng.integers(0, end_s))
        while rng.random() < 0.6:
            down_s = at_s + int(rng.integers(1, 2000))
            events += [Event(float(at_s), "down", node), Event(float(down_s), "up", node)]
            at_s = down_s + int(rng.integers(1, end_s))
    events += [Event(float(rng.integers(0, end_s)), "finish", 0) for _ in range(int(rng.integers(0, 3)))]
    return events


@pytest.mark.parametrize(
    ("policy", "world"),
    [*((policy, open_setting) for policy in EVERY), *((policy, odd_setting) for policy in ELASTIC)],
    ids=lambda one: one.__name__ if callable(one) else member_of(one),
)
def test_jobs_taken_back_and_nodes_that_come_and_go(
    policy: Policy, world: Callable[[Policy, int], Setting]
) -> None:
    """GPUs only of nodes that are up, none for jobs taken back; all others that were admitted end when they are seen to."""
    cancelled = lost = 0
    for number in range(FEW):
        made = world(policy, number)
        rng = np.random.default_rng([9, number])
        slow = np.where(rng.random(len(made.jobs)) < 0.4, rng.uniform(0.5, 3.0, len(made.jobs)), 1.0)
        events = disturbances(made, number)
        jobs = submitted(policy, made, 1, *events, slow=slow)
        record, count = jobs.online.record, len(made.jobs)
        taken = np.array([row in jobs.cancelled for row in range(count)])
        mine = (record.admitted[:count] == 1) & ~taken
        np.testing.assert_allclose(
            record.end_s[:count][mine], jobs.ended_s[mine], rtol=0, atol=1.0, err_msg=f"world {number}"
        )
        assert (record.end_s[:count][~mine] < 0).all(), f"world {number}"
        assert (mine | taken | (record.admitted[:count] == 0)).all(), f"world {number}"
        cancelled += len(jobs.cancelled)
        lost += sum(event.what == "down" for event in events)
    assert cancelled > FEW / 2 and lost > FEW / 2


@pytest.mark.parametrize("placement", [name for name in PLACEMENTS if name != "anywhere"])
def test_placements_leave_nodes_that_are_down_alone(placement: str) -> None:
    """Policies with a view, whose scenario places jobs: as above, and the same GPUs while the count stays, unless an order
    that preempts gives them to another."""
    terms, kept = Terms(placement=placement, restart_s=3.0), 0
    for policy in (Las(), Fifo(backfill=True), GavelMaxMin()):
        for number in range(FEW if placement == "consolidated" or cases(0) else 1):
            made = open_setting(policy, number)
            jobs = submitted(policy, made, 1, *disturbances(made, number), terms=terms)
            record, count = jobs.online.record, len(made.jobs)
            mine = np.array([row not in jobs.cancelled for row in range(count)])
            np.testing.assert_allclose(record.end_s[:count][mine], jobs.ended_s[mine], rtol=0, atol=1.0)
            assert not jobs.unforced and (isinstance(policy, Las) or not jobs.moved)
            kept += jobs.kept
    assert kept > 10


def test_a_policy_that_trusts_its_own_model_is_rejected() -> None:
    """Pollux decides by a model of training, which real jobs need not follow."""
    with pytest.raises(
        ScenarioError, match="pollux decides by its own model of progress; it cannot follow real jobs"
    ):
        Online(engine_for(drawn(0)), Pollux(), drawn(0), Terms(), 0)


#: known bugs that misstate work or costs, by policy
MISSTATED = {
    "ef-accessctrl": {"overhead_when_unchanged"},
    "ef": {"overhead_when_unchanged"},
    "edf": {"edf_overhead", "overhead_when_unchanged"},
    "edf-accessctrl": {"overhead_when_unchanged"},
    "dlas-gpu": {"tiresias_overhead_in_end", "overhead_when_unchanged", "restart_forgiven"},
    "gandiva": {"gandiva_between_arrivals", "overhead_when_unchanged", "restart_forgiven"},
    "chronus": {"chronus_waiting_counts", "overhead_when_unchanged"},
    "themis": {"themis_overhead"},
}
PUBLISHED = [policy for policy in EVERY if member_of(policy) in MISSTATED]


@pytest.mark.parametrize("policy", PUBLISHED, ids=member_of)
def test_bugs_that_misstate_work_or_costs_are_rejected(policy: Policy) -> None:
    """A line each; with them corrected, and all others as published, jobs end when they are seen to."""
    wanted = MISSTATED[member_of(policy)]
    made = replace(prepared(policy, drawn(0)), corrected=frozenset(), costs=None)
    with pytest.raises(ScenarioError) as caught:
        Online(engine_for(made), policy, made, Terms(), 0)
    assert {problem.where.removeprefix("$.compat.") for problem in caught.value.problems} == wanted
    for number in range(FEW):
        made = replace(prepared(policy, drawn(number)), corrected=frozenset(wanted), costs=None, slot_s=60)
        check_ends(policy, made, number)


def test_what_cannot_be_had_live_is_said() -> None:
    """A table of costs that is ignored, promises without a rule for who falls behind, limits and quotas of a trace."""
    made = drawn(0)
    costly = replace(
        made, costs=cost_table({"*": {"1->2": 1.0, "2->1": 1.0}}, made.jobs, plain(0, 0, 0), "here")
    )
    for policy, setting, terms, is_open, said in (
        (
            PublishedElasticFlow(),
            replace(costly, corrected=made.corrected - {"cost_table"}),
            Terms(),
            False,
            "cost_table",
        ),
        (
            PublishedElasticFlow(),
            replace(made, corrected=made.corrected - {"overrun"}),
            Terms(),
            False,
            "overrun",
        ),
        (Las(), made, Terms(quota=np.array([1, 0])), True, "quota"),
    ):
        with pytest.raises(ScenarioError, match=said):
            Online(engine_for(setting), policy, setting, terms, 0, is_open=is_open)


def test_instants_that_come_late_are_made_up_for() -> None:
    """Where no decision was asked for in a long time, all policies go on, and all jobs end."""
    for policy in EVERY:
        for number in range(FEW):
            made = open_setting(policy, number)
            online = Online(engine_for(made), policy, made, Terms(), 0)
            jobs = VirtualJobs(online, np.ones(len(made.jobs)), late_s=700.0)
            jobs.play()
            mine = online.record.admitted == 1
            assert mine.any() or isinstance(policy, PublishedElasticFlow | AdmittingEdf)
            assert (online.record.end_s[mine] >= 0).all(), f"{member_of(policy)}, world {number}"
