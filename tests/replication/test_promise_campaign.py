"""The admission promise under attack: settings drawn to break it that the laws of irregular clusters do not draw.

Rigid jobs beside elastic ones, jobs of one second, up to five kinds of job whose speeds differ by six orders of magnitude,
every slot from 1 to 240 s, dear first starts and drains, jobs that keep their GPUs, and clocks that begin late. Judged by
logged ends. A few settings; `FORERUN_CASES=1500` runs a campaign.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from forerun.cluster.inputs.arrays import F64, I64, Cluster, Jobs, ThroughputTable
from forerun.cluster.inputs.costs import CostTable, cost_table, plain
from forerun.cluster.inputs.setting import Setting
from forerun.core.errors import PolicyError
from forerun.replication.elasticflow.planning.plan_ahead import PlanAheadRules
from forerun.replication.elasticflow.planning.promises import PromisingRules
from forerun.replication.elasticflow.schedules.plan_ahead import PublishedElasticFlow

from ..cluster.conftest import Switched, play
from ..conftest import cases
from .test_irregular_clusters import ALL

WORLDS = cases(16)


def drawn_profile(rng: np.random.Generator, total: int) -> ThroughputTable:
    """Up to five kinds of job on up to nine counts, one of them at least small: any shape, holes, or one count alone."""
    kinds = int(rng.integers(1, 6))
    least = int(rng.integers(1, min(total, 4) + 1))
    levels = np.unique(np.append(rng.integers(1, total + 3, int(rng.integers(1, 9))), least)).astype(np.int64)
    rate = np.empty((kinds, len(levels)))
    for kind in range(kinds):
        rate[kind] = 10 ** rng.uniform(-3, 3) * levels ** float(rng.choice([0.1, 0.5, 0.9, 1.0, 1.3, 2.0]))
        if rng.random() < 0.5:
            rate[kind] *= rng.uniform(0.3, 1.7, len(levels))
        one = np.arange(len(levels)) == rng.integers(0, len(levels))
        shape, hole = rng.random(), float(rng.choice([np.nan, 0.0]))
        if shape < 0.3:
            rate[kind, ~one] = hole
        elif shape < 0.5:
            rate[kind, one] = hole
        if not (rate[kind, levels <= total] > 0).any():
            rate[kind, 0] = 1.0
    names = tuple(("abcde"[kind], 64) for kind in range(kinds))
    return ThroughputTable("A", names, levels, rate, np.full(kinds, levels[-1]), "drawn")


def drawn_jobs(
    rng: np.random.Generator, profile: ThroughputTable, total: int, slot_s: int, most: int
) -> Jobs:
    """Up to `most` jobs in bursts, some of one second, their deadlines from too tight to loose."""
    count = int(rng.integers(2, most))
    gaps_s = rng.integers(0, int(rng.choice([1, 30, 300, 3000])) + 1, count)
    submit_s = int(rng.choice([0, 0, 1, 3_721_440])) + np.cumsum(
        gaps_s * (rng.random(count) < rng.choice([0.1, 0.5, 1.0]))
    )
    kind = rng.integers(0, len(profile.kinds), count)
    duration_s = rng.integers(1, int(rng.choice([2, 30, 300, 3000, 20_000])), count)
    duration_s[rng.random(count) < 0.15] = 1
    best = (np.nan_to_num(profile.rate) * (profile.levels <= total)).max(axis=1)[kind]
    slack = rng.uniform(0.3, float(rng.choice([1.5, 4.0, 20.0])), count)
    return Jobs.of(
        submit_s,
        np.full(count, profile.levels[0]),
        duration_s,
        iterations=np.maximum(1, duration_s * best * rng.uniform(0.2, 1.0, count)).astype(np.int64),
        kind=kind,
        model=tuple("abcde"[at] for at in kind.tolist()),
        batch=np.full(count, 64),
        deadline_s=submit_s + (slack * duration_s).astype(np.int64) + rng.integers(0, 2 * slot_s + 1, count),
        best_effort=rng.random(count) < rng.choice([0.0, 0.2, 0.6]),
    )


def drawn_world(number: int, most: int = 40) -> Setting:
    """The `number`-th setting."""
    rng = np.random.default_rng([77, number])
    cluster = Cluster.uniform(1, int(rng.integers(1, 9)), int(rng.choice([1, 2, 3, 5, 6, 7, 8, 12, 16])))
    profile = drawn_profile(rng, cluster.gpus)
    slot_s = int(rng.choice([1, int(rng.integers(1, 241)), 60, 240]))
    jobs = drawn_jobs(rng, profile, cluster.gpus, slot_s, most)
    costs = None
    if rng.random() < 0.7:
        most_s = float(rng.choice([0.5, 5.0, 60.0, 600.0, 1800.0]))
        others = ("8->16", "16->8", "3->5", "7->5", "migrate", "restart", "start", "drain")
        changes = ("1->2", "2->1", *(change for change in others if rng.random() < 0.5))
        models = {
            name: {
                change: float(rng.uniform(0.0, most_s)) if rng.random() < 0.8 else 0.0 for change in changes
            }
            for name, _ in profile.kinds
        }
        costs = cost_table(models, jobs, plain(0, 0, 0), "here")
    return Switched(
        jobs,
        cluster,
        profile,
        slot_s,
        "A",
        corrected=ALL,
        costs=costs,
        placement_kept=bool(rng.random() < 0.4),
    )


@dataclass
class Count:
    """How many runs and jobs there were of each kind that the law is about."""

    promised: int = 0
    refused: int = 0
    rigid: int = 0
    of_a_second: int = 0
    spread: int = 0
    late: int = 0
    unfinished: int = 0
    failed: int = 0

    def add(self, made: Setting) -> None:
        """Run a setting under corrected ElasticFlow."""
        jobs = made.jobs
        try:
            record = play(PublishedElasticFlow(), made)
        except PolicyError:
            self.failed += 1
            return
        mine = record.admitted == 1
        promised = mine & jobs.has_deadline
        counts = (
            np.count_nonzero(np.nan_to_num(made.profile.rate) > 0, axis=1) if made.profile else np.zeros(0)
        )
        self.promised += int(promised.sum())
        self.refused += int(np.count_nonzero(record.admitted == 0))
        self.rigid += int(np.count_nonzero(promised & (counts[jobs.kind] == 1)))
        self.of_a_second += int(np.count_nonzero(promised & (jobs.duration_s == 1)))
        self.spread += record.spread_gpu_s > 0
        self.late += int(np.count_nonzero(promised & (record.end_s > jobs.deadline_s)))
        self.unfinished += int(np.count_nonzero(mine & (record.end_s < 0)))


def test_no_admitted_job_is_late_and_no_run_ends_in_an_error() -> None:
    seen = Count()
    for number in range(WORLDS):
        seen.add(drawn_world(number))
        assert (seen.late, seen.unfinished, seen.failed) == (0, 0, 0), f"setting {number}"
    print(seen)
    assert min(seen.promised, seen.refused) > 5 * WORLDS
    assert min(seen.rigid, seen.of_a_second) > WORLDS and seen.spread > WORLDS / 10


def test_nor_where_plans_that_are_made_afresh_often_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two in three are rejected at random: promises made before go on, and newcomers are planned beside them."""
    rng, seen, afresh = np.random.default_rng(5), Count(), PromisingRules._afresh

    def moody(self: PromisingRules, rows: I64, now_s: int) -> bool:
        return bool(rng.random() < 0.3) and afresh(self, rows, now_s)

    monkeypatch.setattr(PromisingRules, "_afresh", moody)
    for number in range(WORLDS // 4):
        seen.add(drawn_world(number))
        assert (seen.late, seen.unfinished, seen.failed) == (0, 0, 0), f"setting {number}"
    assert seen.promised > WORLDS


@pytest.mark.parametrize("change", ["grow", "shrink", "start"])
def test_plans_that_forget_a_cost_break_the_promise(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The law can fail: plans hold all costs but one kind, which is paid all the same."""
    between, seen = CostTable.between, Count()

    def forgetful(self: CostTable, levels: I64) -> F64:
        points = tuple({**kinds, change: ((0.0, 0.0),)} for kinds in self.points)
        return between(CostTable(self.row, points, self.source, self.models), levels)

    monkeypatch.setattr(CostTable, "between", forgetful)
    for number in range(cases(60)):
        seen.add(drawn_world(number))
        if seen.late:
            return
    raise AssertionError("nobody was late")


def test_runs_end_in_errors_where_only_halves_of_nodes_are_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law can fail: without the placement by counts, many runs do."""

    def raises(self: PlanAheadRules, rows: I64, now_s: int) -> None:
        raise PolicyError.at("here", "no placement")

    monkeypatch.setattr(PlanAheadRules, "place_by_count", raises)
    seen = Count()
    for number in range(cases(12)):
        seen.add(drawn_world(number))
        if seen.failed > 1:
            return
    raise AssertionError("hardly a run failed")
