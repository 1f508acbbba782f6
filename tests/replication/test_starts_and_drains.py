"""First starts and GPUs that are given up late cost what a table says; plans hold it, and without it nothing changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forerun.cluster.engine.allocator import AllocatorRules, Terms
from forerun.cluster.engine.kernels import allocator as ak
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import run_rules
from forerun.cluster.inputs.arrays import F64, Jobs
from forerun.cluster.inputs.costs import CostTable, cost_table, plain
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policies.gavel_maxmin import GavelMaxMin
from forerun.cluster.policies.las import Las
from forerun.cluster.policies.priority import Fifo, Srtf
from forerun.cluster.policy import Policy
from forerun.cluster.testing import Scene
from forerun.core.registry import member_name
from forerun.replication.elasticflow.planning.promises import PromisingRules
from forerun.replication.elasticflow.schedules.gandiva import Gandiva
from forerun.replication.elasticflow.schedules.plan_ahead import (
    AdmittingEdf,
    EarliestDeadlineFirst,
    ElasticScaling,
    PublishedElasticFlow,
)
from forerun.replication.elasticflow.schedules.themis import Themis
from forerun.replication.elasticflow.schedules.tiresias import Tiresias

from ..cluster.conftest import lawful, play, rules_of
from ..conftest import cases
from .test_admitted_in_time import drawn_world
from .test_irregular_clusters import hostile_world
from .test_rigid_laws import PROFILE

#: random settings in a run of the suite; FORERUN_CASES asks for more
WORLDS = cases(12, 1500)

ELASTIC = [PublishedElasticFlow(), ElasticScaling(), EarliestDeadlineFirst(), AdmittingEdf()]
OTHERS = [Tiresias(), Gandiva(), Themis(), Las(), Fifo(), Srtf(), GavelMaxMin()]


def member_of(policy: Policy) -> str:
    return member_name(type(policy))


def table(jobs: Jobs, **seconds: float) -> CostTable:
    """Costs of all models: growing, shrinking and moving for nothing, and what is given."""
    return cost_table({"*": {"1->2": 0.0, "2->1": 0.0, **seconds}}, jobs, plain(0, 0, 0), "here")


def run_of(policy: Policy, made: Setting) -> Record:
    record = Record(made)
    record.seeks_remedies = False
    run_rules(rules_of(policy, made, record))
    return record


@pytest.mark.parametrize("policy", [*ELASTIC, *OTHERS], ids=member_of)
def test_none_of_either_changes_nothing(policy: Policy) -> None:
    for number in range(8):
        made = drawn_world(np.random.default_rng([41, number]))
        some = {"1->2": 9.5, "2->1": 4.0, "migrate": 3.0}
        one = run_of(policy, replace(made, costs=table(made.jobs, **some)))
        other = run_of(policy, replace(made, costs=table(made.jobs, **some, start=0.0, drain=0.0)))
        for mine, its in zip(one.changes(), other.changes(), strict=True):
            np.testing.assert_array_equal(mine, its)
        np.testing.assert_array_equal(one.end_s, other.end_s)


@pytest.mark.parametrize("policy", [*ELASTIC, *OTHERS], ids=member_of)
def test_a_job_alone_ends_later_by_its_start(policy: Policy) -> None:
    for seconds in (7.0, 480.0):
        made = drawn_world(np.random.default_rng(0))
        jobs = Jobs.of(
            [0], [1], [2000], iterations=[int(2000 * PROFILE.rate_at()[0, 1])], kind=[0],
            model=[PROFILE.kinds[0][0]], batch=[PROFILE.kinds[0][1]], deadline_s=[40_000],
        )  # fmt: skip
        # within a slot Gandiva and Themis forgive what a start still owes at its end
        made = replace(made, jobs=jobs, slot_s=600 if isinstance(policy, Gandiva | Themis) else 1)
        free = run_of(policy, replace(made, costs=table(jobs)))
        late = run_of(policy, replace(made, costs=table(jobs, start=seconds)))
        assert free.end_s[0] > 0
        later_s = (
            late.overhead_s[0] if isinstance(policy, Themis) else late.end_s[0] - free.end_s[0]
        )  # it ends with a slot
        assert later_s == pytest.approx(seconds, abs=1.0)


def test_promises_hold_starts_and_drains() -> None:
    """Every law after every event; nobody admitted is late, however dear."""
    admitted = 0
    for number in range(WORLDS):
        made = hostile_world(number) if number % 2 else drawn_world(np.random.default_rng(number))
        rng = np.random.default_rng([42, number])
        names = ("1->2", "2->1", "8->16", "16->8", "migrate", "restart", "start", "drain")
        seconds = rng.uniform(0.0, float(rng.choice([5.0, 60.0, 600.0])), len(names)).tolist()
        costs = cost_table({"*": dict(zip(names, seconds, strict=True))}, made.jobs, plain(0, 0, 0), "here")
        made = replace(made, costs=costs, placement_kept=bool(number % 3))
        record, _ = lawful(PublishedElasticFlow(), Scene(number, made, Terms()))
        mine = record.admitted == 1
        assert (record.end_s[mine] >= 0).all(), f"setting {number}"
        late = np.flatnonzero(mine & (record.end_s > made.jobs.deadline_s))
        assert not len(late), f"setting {number}: jobs {late}"
        admitted += int(mine.sum())
    assert admitted > 4 * WORLDS


@pytest.mark.parametrize("what", ["start", "drain"])
def test_plans_without_them_break_promises(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The law can fail: where plans hold no starts, or no drains, admitted jobs are late."""
    between = CostTable.between

    def forgetful(self: CostTable, levels: np.ndarray) -> F64:  # type: ignore[type-arg]
        return between(
            replace(self, points=tuple({**kinds, what: ((0.0, 0.0),)} for kinds in self.points)), levels
        )

    monkeypatch.setattr(CostTable, "between", forgetful)
    late = 0
    for number in range(cases(20)):
        made = drawn_world(np.random.default_rng(number))
        record = play(PublishedElasticFlow(), replace(made, costs=table(made.jobs, **{what: 300.0})))
        late += int(((record.admitted == 1) & (record.end_s > made.jobs.deadline_s)).sum())
        if late > 1:
            return
    raise AssertionError("nobody was late")


@pytest.mark.parametrize("policy", [PublishedElasticFlow(), Srtf(), GavelMaxMin(round_s=240)], ids=member_of)
def test_who_gets_gpus_waits_for_those_who_give_some_up(policy: Policy) -> None:
    """Where only drains take time: at each instant, exactly those who get GPUs while others, still at work, give some up."""
    waited = 0
    for number in range(WORLDS // 2):
        made = drawn_world(np.random.default_rng([43, number]))
        made = replace(made, costs=table(made.jobs, drain=11.0), placement_kept=True)
        record = Record(made)
        record.seeks_remedies = False
        rules = rules_of(policy, made, record)
        seen: list[tuple[float, F64]] = []

        def look(now_s: float, rules: object = rules, seen: list[tuple[float, F64]] = seen) -> None:
            if isinstance(rules, PromisingRules):
                seen.append((now_s, rules.pause_s.copy()))
            else:
                assert isinstance(rules, AllocatorRules)
                f, held = rules.state.f, rules.state.i[ak.HELD]
                seen.append((now_s, np.where(held > 0, np.maximum(f[ak.SINCE] - now_s, 0.0), 0.0)))

        run_rules(rules, [look])
        held = np.zeros(len(made.jobs), np.int64)
        times, rows, gpus = record.changes()
        moved = {(at_s, row) for at_s, row, _ in record.moves}
        for now_s, pause_s in seen:
            at = times == now_s
            after = held.copy()
            after[rows[at]] = gpus[at]
            ended = (record.end_s >= 0) & (record.end_s <= now_s)
            gave = ((after < held) & ~ended) | [(now_s, row) in moved for row in range(len(held))]
            got = (after > held) | [(now_s, row) in moved for row in range(len(held))]
            waits = got & gave.any()
            assert (pause_s[waits] == 11.0).all() and (pause_s[got & ~waits] == 0.0).all(), (
                f"setting {number}, t={now_s:g} s"
            )
            waited += int(waits.sum())
            held = after
    assert waited > WORLDS / 2
