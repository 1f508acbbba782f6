"""Slurm's backfill scheduler: closed forms, a reference that counts bins of the plan, and how promises are broken."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from forerun.cluster.engine.allocator import AllocatorRules, Terms
from forerun.cluster.engine.backfill import BackfillRules
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import rules_for, run_rules
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policies.conservative import Conservative
from forerun.cluster.policies.easy import Easy
from forerun.cluster.policies.orders.wfp3 import Wfp3
from forerun.cluster.policies.slurm_backfill import SlurmBackfill
from forerun.cluster.policy import Policy

from ..conftest import cases
from .test_backfill import drawn, setting

CASES = cases(0)


def starts(made: Setting, policy: Policy) -> list[float]:
    record = Record(made)
    run_rules(rules_for(policy, made, record, Terms(), 0))
    found: list[float] = record.first_start_s.tolist()
    return found


def test_jobs_out_of_order_wait_for_the_next_plan() -> None:
    """Four GPUs: 0 has two until 100, 1 needs all, 2 fits beside 0 and ends before 1 is due."""
    made = setting([0, 1, 2], [2, 4, 2], [100, 10, 20], [100, 10, 20], 4)
    assert starts(made, SlurmBackfill(bf_interval_s=30, bf_resolution_s=1)) == [0, 100, 30]
    assert starts(made, SlurmBackfill(bf_interval_s=7, bf_resolution_s=1)) == [0, 100, 7]
    assert starts(made, SlurmBackfill(bf_interval_s=30, bf_resolution_s=0)) == [0, 100, 30]
    assert starts(made, SlurmBackfill(bf_interval_s=0, bf_resolution_s=0)) == [0, 100, 2]


def test_ends_are_rounded_up_in_the_plan() -> None:
    """At 30 s 0 has 70 s left, 80 in steps of 40: there 2, which takes 80, is in nobody's way, but takes 10 s too long."""
    made = setting([0, 1, 2], [2, 4, 2], [100, 10, 80], [100, 10, 80], 4)
    assert starts(made, SlurmBackfill(bf_interval_s=30, bf_resolution_s=1)) == [0, 100, 110]
    assert starts(made, SlurmBackfill(bf_interval_s=30, bf_resolution_s=40)) == [0, 110, 30]


def test_how_far_and_at_how_many_jobs_a_plan_looks() -> None:
    made = setting([0, 1, 2, 3], [2, 4, 2, 2], [100, 10, 200, 50], [100, 10, 200, 50], 4)
    plain = SlurmBackfill(bf_interval_s=10, bf_resolution_s=1)
    assert starts(made, plain) == [0, 100, 110, 10]
    assert starts(made, plain.with_(bf_max_job_test=2)) == [0, 100, 110, 110]
    assert starts(made, plain.with_(bf_window_s=80)) == [0, 210, 10, 100], "2 delays 1, which is 90 s away"


def test_a_plan_made_from_nothing_breaks_what_conservative_keeps() -> None:
    """Two GPUs; 0 asks for 120 s and takes 40. At 3 s job 3 is to start at 42, when 2 ends, and 1, which needs both, at 120.

    When 0 ends, 1 comes first in a plan from nothing, at 42, and 3 at 62. Kept, 3 starts at 40 and 1 at 60.
    """
    made = setting([0, 1, 2, 3], [1, 2, 1, 1], [40, 20, 40, 20], [120, 20, 40, 60], 2)
    anew = SlurmBackfill(bf_interval_s=0, bf_resolution_s=1, bf_window_s=0)
    assert starts(made, anew) == [0, 42, 2, 62]
    assert starts(made, Conservative()) == [0, 60, 2, 40]


def reference(made: Setting, policy: SlurmBackfill) -> list[int]:
    """Starts, second by second; a plan is an array of bins of `bf_resolution` from now on. Whole seconds only."""
    jobs, total = made.jobs, made.cluster.gpus
    submit, gpus, work = jobs.submit_s.tolist(), jobs.gpus.tolist(), jobs.duration_s.tolist()
    request, count = jobs.requested_s.tolist(), len(jobs)
    start = [-1] * count
    step = int(policy.bf_resolution_s)
    now = first = min(submit)
    while -1 in start:
        running = [job for job in range(count) if start[job] >= 0 and start[job] + work[job] > now]
        waiting = [job for job in range(count) if start[job] < 0 and submit[job] <= now]
        if isinstance(policy.order, Wfp3):
            waiting.sort(key=lambda job: -(((now - submit[job]) / request[job]) ** 3) * gpus[job])
        free = total - sum(gpus[job] for job in running)
        ends = [start[job] + work[job] for job in range(count) if start[job] >= 0]
        if (now - first) % int(policy.bf_interval_s):
            for job in waiting:
                if gpus[job] > free or (now not in ends and now not in submit):
                    break
                start[job] = now
                free -= gpus[job]
        else:
            longest = sum(request) + sum(work) + int(policy.grace_s)
            plan = np.full(2 * longest // step + 2 * count + 4, total)
            for job in running:
                left = start[job] + request[job] - now
                plan[: math.ceil((left if left > 0 else policy.grace_s) / step)] -= gpus[job]
            for job in waiting[: policy.bf_max_job_test]:
                bins = math.ceil(request[job] / step)
                at = next(k for k in range(len(plan)) if (plan[k : k + bins] >= gpus[job]).all())
                if at == 0:
                    start[job] = now
                if at * step <= (policy.bf_window_s or math.inf):
                    plan[at : at + bins] -= gpus[job]
        now += 1
    return start


def test_random_jobs_agree_with_the_reference() -> None:
    rng = np.random.default_rng(4)
    for _ in range(max(CASES, 60)):
        made = drawn(rng, 20)
        policy = SlurmBackfill(
            order=Wfp3() if rng.random() < 0.3 else Easy().order,
            bf_interval_s=float(rng.choice([1, 5, 30])),
            bf_resolution_s=float(rng.choice([1, 7, 60])),
            bf_max_job_test=int(rng.choice([1, 3, 100])),
            bf_window_s=float(rng.choice([0, 20, 500])),
        )
        found = starts(made, policy)
        assert found == reference(made, policy), (made.jobs, policy)
        later = replace(made, jobs=replace(made.jobs, submit_s=made.jobs.submit_s + 86_413))
        assert starts(later, policy) == [at + 86_413 for at in found]


def test_a_plan_at_every_event_to_the_second_is_easy_with_many_promises() -> None:
    rng = np.random.default_rng(5)
    for _ in range(40):
        made = drawn(rng)
        policy = SlurmBackfill(bf_interval_s=0, bf_resolution_s=0, bf_max_job_test=4, bf_window_s=50)
        assert starts(made, policy) == starts(made, Easy(promises=4, examined=4, window_s=50))
        record = Record(made)
        assert isinstance(rules_for(policy, made, record, Terms(), 0), BackfillRules)
        assert isinstance(rules_for(SlurmBackfill(), made, record, Terms(), 0), AllocatorRules)
        run_rules(AllocatorRules(made, record, policy, policy.build(rng), Terms()))
        assert record.first_start_s.tolist() == starts(made, policy)
