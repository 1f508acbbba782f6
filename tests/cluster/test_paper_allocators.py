"""The algorithms of papers as allocators on the view: worlds worked out by hand, slow references, laws, refusals.

The main world has two GPUs and six rigid jobs; no two of the policies answer alike:

    job  submit  work(s)  GPUs  deadline
    a       0      300      2      415      in the way of all others
    b      10      100      1      200
    c      20      100      1      150
    d      30      100      2      210      fits before a only
    e      40      100      1      100      too slow even alone
    f      50       30      1      115
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.cluster.engine.allocator import AllocatorRules, Terms
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.rules import Progress
from forerun.cluster.engine.run import run_rules
from forerun.cluster.inputs.arrays import NO_DEADLINE_S, Cluster, Jobs
from forerun.cluster.inputs.costs import cost_table, plain
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policies.edf_admission import EdfAdmission, planned_ends
from forerun.cluster.policies.edf_elastic import EdfElastic
from forerun.cluster.policies.elasticflow import ElasticFlow
from forerun.cluster.policies.finish_time_fairness import FinishTimeFairness
from forerun.cluster.policies.las_queues import LasQueues
from forerun.cluster.policies.time_slices import TimeSlices
from forerun.cluster.policy import Allocation, Allocator, OracleAllocator, OracleView, Usable, View
from forerun.cluster.testing import Scene, drawn_world
from forerun.cluster.testing import play as play_scene
from forerun.core.errors import PolicyError
from forerun.core.registry import member_name
from forerun.live.online import Online

from ..conftest import cases
from ..replication import test_promise_campaign as promise_campaign
from .conftest import engine_for, setting
from .test_allocators import PROFILE, cluster_of, play

TWO = Cluster.uniform(1, 1, 2)
#: no job of the main world is refused
NONE: dict[int, str] = {}


def jobs(rows: list[tuple[int, int, int, int]]) -> Jobs:
    submit, work, gpus, deadline = zip(*rows, strict=True)
    return Jobs.of(submit, gpus, work, id=tuple("abcdefgh"[: len(rows)]), deadline_s=np.array(deadline))


WORLD = Setting(
    jobs(
        [
            (0, 300, 2, 415),
            (10, 100, 1, 200),
            (20, 100, 1, 150),
            (30, 100, 2, 210),
            (40, 100, 1, 100),
            (50, 30, 1, 115),
        ]
    ),
    TWO,
    None,
    60,
)
REFUSED = {
    3: "capacity in [30, 210] s: planned with the others it would end 10 s late",
    4: "own speed: alone at its best count it would end 40 s after its deadline",
    5: "it would make job a late",
}


@pytest.mark.parametrize(
    ("policy", "ends", "refused"),
    [
        # e and c, then f, run before b (30 of 100 s done) and d, which needs both GPUs; a, of 10 s, comes last
        (EdfElastic(), (600, 210, 150, 310, 140, 80), NONE),
        # b and c end at 110 and 120, and a goes on; f would set b back to 140 and a to 430
        (EdfAdmission(), (410, 110, 120, -1, -1, -1), REFUSED),
        # a falls after 50 s, d at 200; e and f are in the first queue still; then a, which fell before d
        (LasQueues(queue_limits_gpu_s=(100.0,), promote_after=50.0), (550, 150, 150, 600, 300, 230), NONE),
        # turns: a | b c | d | e f, b from 210 | a | b c, e from 310 | d a, each when the one before it ends
        (TimeSlices(), (570, 310, 340, 390, 350, 210), NONE),
        # at 100 s the two worst off are f (.889) and b (.777), at 130 c (.77), at 200 e, at 300 d before a
        (FinishTimeFairness(lease_s=100.0), (600, 200, 230, 400, 300, 130), NONE),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, Allocator) else "",
)
def test_outcomes_worked_out_by_hand(policy: Any, ends: tuple[int, ...], refused: dict[int, str]) -> None:
    record = play(policy, WORLD)
    assert tuple(np.round(record.end_s).astype(int).tolist()) == ends
    assert record.refusals == refused
    assert [row for row in range(6) if record.admitted[row] == 0] == list(refused)


@pytest.mark.parametrize(
    ("promote_after", "ends"), [(2.0, (150, 300)), (8.0, (120, 300)), (100.0, (110, 300))]
)
def test_whoever_waits_long_enough_is_promoted(promote_after: float, ends: tuple[int, int]) -> None:
    """One GPU, a limit of 10 s: the second job is in the first queue again at 40, 70, 100 and 130 s, at 100 s, or never."""
    world = Setting(Jobs.of([0, 5], [1, 1], [100, 200]), cluster_of(1, 1), None, 60)
    record = play(LasQueues(queue_limits_gpu_s=(10.0,), promote_after=promote_after), world)
    assert tuple(np.round(record.end_s, 1).tolist()) == ends


def test_leases_are_kept_and_end() -> None:
    """A newcomer waits for the end of the lease, not of the job, which then gives way to it for as long as it takes."""
    world = Setting(Jobs.of([0, 10], [2, 1], [1000, 50]), TWO, None, 60)
    assert play(FinishTimeFairness(lease_s=400.0), world).end_s.tolist() == [1050.0, 450.0]


@pytest.mark.parametrize("limits", [(0.0,), (5.0, 5.0), (7.0, 3.0)])
def test_limits_of_queues_rise(limits: tuple[float, ...]) -> None:
    (problem,) = LasQueues(queue_limits_gpu_s=limits).problems()
    assert problem[0] == "queue_limits_gpu_s" and "must rise from above 0" in problem[1]
    assert not LasQueues(queue_limits_gpu_s=()).problems(), "one queue is first come, first served"


# -- references and laws ---------------------------------------------------------------------------------------------


def worlds(count: int, **changes: Any) -> list[Scene]:
    """Random settings where GPUs are all alike but for their type, and all jobs are there at the start."""
    found = []
    for number in range(count):
        scene = drawn_world(number)
        made = replace(scene.setting.jobs, submit_s=np.zeros(len(scene.setting.jobs), np.int64))
        terms = replace(scene.terms, placement="anywhere")
        found.append(
            replace(scene, setting=replace(scene.setting, jobs=made), terms=replace(terms, **changes))
        )
    return found


class Watched(OracleAllocator, tag="watched", frozen=True, kw_only=True):
    """EDF that also notes its plan at the first instant."""

    def build(self, rng: np.random.Generator) -> Any:
        return WatchedScheduler()


class WatchedScheduler:
    plan: Any = None

    def allocate(self, view: OracleView) -> Allocation:
        order = np.argsort(view.deadline_s, kind="stable")
        if WatchedScheduler.plan is None:
            WatchedScheduler.plan = planned_ends(view, order)
        return view.take_fastest(order)


def test_the_plan_of_admission_is_what_happens() -> None:
    """The planner against the simulator: types, quotas, elastic beside rigid jobs, and costs of changes."""
    paused = 0
    for scene in worlds(60):
        WatchedScheduler.plan = None
        record, _ = play_scene(Watched(), scene)
        if scene.terms.quota is not None and scene.terms.quota[-1]:
            continue  # what is lent is not planned
        np.testing.assert_allclose(WatchedScheduler.plan, record.end_s, atol=1e-6, err_msg=str(scene))
        paused += scene.terms.grow_s > 0
    assert paused > 10


@pytest.mark.parametrize(
    ("policy", "least"), [(EdfAdmission(), 50), (ElasticFlow(), 30)], ids=["edf-admission", "elasticflow"]
)
def test_every_admitted_job_ends_by_its_deadline(policy: Allocator, least: int) -> None:
    """Whenever jobs come, whatever changes cost, with GPUs of two types and hard quotas."""
    refused = admitted = 0
    for number in range(80):
        scene = drawn_world(number)
        lent = scene.terms.quota is not None and bool(scene.terms.quota[-1])
        scene = replace(scene, terms=replace(scene.terms, placement="anywhere"))
        if lent:
            scene = replace(scene, terms=replace(scene.terms, quota=None))
        record, _ = play_scene(policy, scene)
        made = scene.setting.jobs
        mine = (record.admitted == 1) & made.has_deadline
        assert (record.end_s[mine] <= made.deadline_s[mine] + 1e-6).all(), str(scene)
        refused, admitted = refused + len(record.refusals), admitted + int(mine.sum())
        early = made.deadline_s - made.submit_s
        assert all(early[row] >= 0 or "own speed" in why for row, why in record.refusals.items())
    assert refused > least and admitted > 100


def test_elasticflow_keeps_its_promises_where_all_changes_cost_much() -> None:
    """Throughput of any shape, jobs of a second, deadlines from too tight to loose."""
    promised = 0
    for number in range(cases(24)):
        made = promise_campaign.drawn_world(number)
        if made.costs is not None and made.costs.longest_drain_s:
            made = replace(made, costs=None)  # waiting for what others give up is not planned
        record, _ = play_scene(ElasticFlow(), Scene(number, made, Terms()))
        mine = (record.admitted == 1) & made.jobs.has_deadline
        late = np.flatnonzero(mine & ~(record.end_s <= made.jobs.deadline_s + 1e-6))
        assert not len(late) and (record.end_s[record.admitted == 1] >= 0).all(), (number, late)
        promised += int(mine.sum())
    assert promised > 200


def test_elasticflow_promises_as_much_as_the_published_schedule_corrected() -> None:
    """Which admits 178 of these 195 jobs; EDF with admission has fewer than a hundred of them in time."""
    made = setting("195job.csv", "n16g8", 240)
    met = [int(np.count_nonzero(play(policy, made).end_s >= 0)) for policy in (ElasticFlow(), EdfAdmission())]
    assert met == [178, 90]


def slowly_taken(view: View, order: list[int]) -> list[tuple[int, int]]:
    """`take_fastest` on nodes that do not matter, by trying all counts of all types: (type, GPUs) by position."""
    free, given = view.type_total.tolist(), [(0, 0)] * view.count
    for at in order:
        kind, asked = int(view.kind[at]), int(view.gpus[at])
        best = (0.0, 0, 0, (0, 0))
        for number, count in ((t, n) for t in range(len(free)) for n in range(1, free[t] + 1)):
            speed = float(count == asked)
            if kind >= 0:
                speed = float(view.rate[number, kind, count]) if count < view.rate.shape[2] else 0.0
            own = bool(view.held[at]) and (number, count) == (view.gpu_type[at], view.held[at])
            best = max(best, (speed, own, -count, (-number, count)))
        if best[0]:
            number, count = -best[3][0], best[3][1]
            given[at] = (number, count)
            free[number] -= count
    return given


class Compared(Allocator, tag="compared", frozen=True, kw_only=True):
    """Takes GPUs as a slow reference does, and says where both differ."""

    def build(self, rng: np.random.Generator) -> Any:
        return self

    def allocate(self, view: View) -> Allocation:
        order = np.argsort(view.deadline_s, kind="stable")
        answer = view.take_fastest(order)
        types = view.gpu_type if answer.gpu_type is None else answer.gpu_type
        rigid = (view.kind < 0).all() and len(view.type_total) > 1
        for at, (number, gpus) in enumerate(slowly_taken(view, order.tolist()) if not rigid else ()):
            assert gpus == answer.gpus[at] and (not gpus or number == types[at]), (
                f"job {view.job[at]} at {view.now_s}"
            )
        return answer


def test_taking_the_fastest_agrees_with_trying_all_counts() -> None:
    for number in range(60):
        scene = drawn_world(number)
        play_scene(Compared(), replace(scene, terms=replace(scene.terms, placement="anywhere", quota=None)))


@pytest.mark.parametrize("policy", [EdfElastic(), EdfAdmission()])
def test_without_deadlines_jobs_run_in_order_of_submission(policy: Allocator) -> None:
    """Nobody is refused, and admission changes nothing."""
    made = replace(WORLD.jobs, deadline_s=np.full(6, NO_DEADLINE_S), best_effort=np.ones(6, np.bool_))
    record = play(policy, replace(WORLD, jobs=made))
    assert record.end_s.tolist() == [300.0, 400.0, 400.0, 500.0, 600.0, 530.0]


# -- what the view says ----------------------------------------------------------------------------------------------


class Curious(Allocator, tag="curious", frozen=True, kw_only=True):
    """Notes what the view says of the first job at each instant."""

    def build(self, rng: np.random.Generator) -> Any:
        return CuriousScheduler()


class CuriousScheduler:
    def __init__(self) -> None:
        SEEN.clear()

    def allocate(self, view: View) -> Allocation:
        costs = [view.change_s(0, *change) for change in ((-1, 2), (0, 2), (2, 2), (1, 4), (4, 1))]
        SEEN.append(
            (view.slot_s, view.ids[0], int(view.starts[0]), float(view.owed_s[0]), costs, view.usable(0))
        )
        return Allocation(np.where(view.held == 0, 1, 2))


SEEN: list[tuple[Any, ...]] = []


def test_the_view_says_what_papers_need() -> None:
    """The slot, costs by model and size, how often and how long jobs changed, and the counts on which they run."""
    made = Jobs.of(
        [0, 7], [1, 1], [900, 400], kind=[0, 0], model=["a", "a"], iterations=[900, 900], id=("x", "y")
    )
    prices = {"*": {"1->2": 3.0, "2->4": 5.0, "4->2": 4.0, "migrate": 6.0, "restart": 8.0, "start": 2.0}}
    costs = cost_table(prices, made, plain(0, 0, 0), "here")
    setting = Setting(made, cluster_of(1, 4), PROFILE, 45, costs=costs)
    record = Record(setting)
    policy = Curious()
    run_rules(AllocatorRules(setting, record, policy, policy.build(np.random.default_rng(0)), Terms()))
    assert SEEN[0][:4] == (45.0, "x", 0, 0.0) and SEEN[1][:4] == (45.0, "x", 1, 0.0)
    assert SEEN[0][4] == [2.0, 8.0, 6.0, 5.0, 4.0]
    speed = PROFILE.rate_at()[0] / PROFILE.rate_at()[0, 1]
    known = sorted((float(-speed[gpus]), gpus) for gpus in (1, 2, 4))
    assert SEEN[0][5] == tuple(Usable(0, gpus, -rate) for rate, gpus in known)


class Refusing(Allocator, tag="refusing", frozen=True, kw_only=True):
    """Gives the first job its GPUs until `until_s`, and refuses a job then."""

    number: int
    until_s: float

    def build(self, rng: np.random.Generator) -> Any:
        return self

    def allocate(self, view: View) -> Allocation:
        refused = {self.number: "no"} if view.now_s >= self.until_s else {}
        return Allocation(view.gpus * ((view.job == 0) & (view.now_s <= self.until_s)), refused=refused)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (Refusing(number=0, until_s=0.0), "t=0 s, job a: was refused, but has GPUs"),
        (Refusing(number=0, until_s=5.0), "t=10 s, job a: was refused, but has GPUs or had some"),
        (
            Refusing(number=5, until_s=0.0),
            "t=0 s: refuses job number 5, which is neither waiting nor running",
        ),
    ],
)
def test_only_who_never_ran_can_be_refused(policy: Any, says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        play(policy, WORLD)


def test_refusals_are_in_the_result(tmp_path: Any) -> None:
    """In the table of jobs, the figures, the sentence and the notes; waits of the refused sum to nothing."""
    (tmp_path / "jobs.csv").write_text(
        "job_id,submission_time,duration,num_gpu,deadline\na,0,300,2,415\nb,10,100,1,200\nc,20,100,1,150\n"
        "d,30,100,2,210\ne,40,100,1,100\nf,50,30,1,115\n"
    )
    (tmp_path / "cluster.yaml").write_text(
        "domain: cluster\ntrace: jobs.csv\nmachines: {nodes: [{count: 1, gpus: 2}]}\n"
        "profile: [{analytic: rigid}]\npolicy: " + member_name(EdfAdmission) + "\n"
    )
    found = forerun.simulate(forerun.load(tmp_path / "cluster.yaml")).check()
    assert found.summary["refused_jobs"] == 3 and found.summary["finished_jobs"] == 3
    assert found.tables["jobs"]["refused_because"].tolist()[3:] == list(REFUSED.values())
    assert found.tables["jobs"]["admitted"].tolist() == [True] * 3 + [False] * 3
    assert "3 jobs were refused (1 for capacity until its deadline, 1 for its own speed" in found.why


def test_refusals_reach_real_jobs() -> None:
    """`Online` decides as the simulation does, and names who is refused, and why."""
    world = replace(WORLD, jobs=WORLD.jobs.take(range(5)))
    online = Online(engine_for(world), EdfAdmission(), world, Terms(), 0)
    left, held = online.work.copy(), np.zeros(5)
    seen_s, decisions = 0.0, {}
    while (now_s := online.expected_s()) is not None and now_s <= 40:
        left -= (held > 0) * (now_s - seen_s)
        decision = online.decide(now_s, Progress(left.copy(), np.zeros(5), np.full(5, np.nan)))
        held[:] = 0
        held[list(decision.gpus)] = 1
        decisions[now_s], seen_s = decision, now_s
    assert {row: why for one in decisions.values() for row, why in (one.refused or {}).items()} == {
        row: REFUSED[row] for row in (3, 4)
    }
    assert [one.admitted for one in decisions.values()] == [(0,), (1,), (2,), (), ()]
