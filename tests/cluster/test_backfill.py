"""Backfilling by requested times: closed forms, a reference that counts GPUs second by second, and laws on random jobs."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.cluster.domain import DOMAIN
from forerun.cluster.engine.allocator import AllocatorRules, Terms
from forerun.cluster.engine.kernels import node_queue as nq
from forerun.cluster.engine.kernels import queue_state as qs
from forerun.cluster.engine.node_queue import NodeQueueRules
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import rules_for, run_rules
from forerun.cluster.explain import ClusterExplainer
from forerun.cluster.inputs.arrays import Cluster, Jobs
from forerun.cluster.inputs.setting import Setting, Window
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.conservative import Conservative
from forerun.cluster.policies.easy import Easy
from forerun.cluster.policies.first_fit import FirstFit
from forerun.cluster.policies.orders.fcfs import Fcfs
from forerun.cluster.policies.orders.sjf import ShortestRequest
from forerun.cluster.policies.orders.wfp3 import Wfp3
from forerun.cluster.policy import Order, View, orders
from forerun.core.cli.main import run as command_line
from forerun.core.errors import TraceError
from forerun.core.scenarios import load

from ..conftest import cases
from .conftest import waited

CASES = cases(0)
POLICIES: tuple[BackfillPolicy, ...] = (
    FirstFit(),
    Easy(),
    Easy(promises=2),
    Conservative(),
    Conservative(examined=2),
)
ORDERS: tuple[Order, ...] = (Fcfs(), ShortestRequest(), Wfp3())
VARIANTS = tuple(policy.with_(order=order) for policy in POLICIES for order in ORDERS)


def named(policy: BackfillPolicy) -> str:
    number = policy.promises or policy.examined or ""
    return f"{type(policy).__name__}{number}-{type(policy.order).__name__}"


def setting(submit: Any, gpus: Any, work: Any, request: Any, total: int) -> Setting:
    """Rigid jobs on one node."""
    return Setting(Jobs.of(submit, gpus, work, requested_s=request), Cluster.uniform(1, 1, total), None, 60)


def rules_of(made: Setting, policy: BackfillPolicy) -> NodeQueueRules:
    return NodeQueueRules(made, Record(made), policy.terms(), policy.order)


def compiled(made: Setting, policy: BackfillPolicy) -> Record:
    rules = rules_of(made, policy)
    run_rules(rules)
    return rules.record


def through_a_view(made: Setting, policy: BackfillPolicy) -> Record:
    record = Record(made)
    run_rules(AllocatorRules(made, record, policy, policy.build(np.random.default_rng(0)), Terms()))
    return record


def starts(made: Setting, policy: BackfillPolicy) -> list[float]:
    found: list[float] = compiled(made, policy).first_start_s.tolist()
    return found


# -- closed forms ------------------------------------------------------------------------------------------------------


def test_spare_gpus_and_the_shadow_time() -> None:
    """Four GPUs; 0 has two until 100 as believed. 1 needs three: it is due at 100, with one GPU to spare.

    2 (one GPU, 50 s) ends before, 3 (one GPU, 500 s) takes the spare one, 4 (one GPU, 500 s) would delay 1.
    """
    made = setting([0, 1, 2, 3, 4], [2, 3, 1, 1, 1], [100, 10, 50, 500, 500], [100, 10, 50, 500, 500], 4)
    assert starts(made, Easy()) == [0, 100, 2, 3, 110]


def test_a_job_that_ends_by_the_shadow_time_may_use_all_that_is_free() -> None:
    made = setting([0, 1, 2, 3], [2, 4, 2, 2], [100, 10, 98, 97], [100, 10, 98, 97], 4)
    assert starts(made, Easy()) == [0, 100, 2, 110], "2 + 98 is the shadow time"
    later = setting([0, 1, 2, 3], [2, 4, 2, 2], [100, 10, 99, 97], [100, 10, 99, 97], 4)
    assert starts(later, Easy()) == [0, 100, 110, 3], "2 + 99 is beyond it, 3 + 97 is not"


def test_an_early_end_lets_the_first_start_early() -> None:
    """0 asks for 1,000 s and takes 50: 1 starts then, under every policy; 2 has used the time until then."""
    made = setting([0, 1, 2], [2, 4, 2], [50, 10, 30], [1000, 10, 400], 4)
    for policy in POLICIES:
        assert starts(made, policy.with_(order=Fcfs())) == [0, 50, 2]


def test_a_kept_promise_forbids_what_one_promise_allows() -> None:
    """With one promise 3 takes the GPU that 1 leaves, and delays 2, which more promises protect."""
    made = setting([0, 1, 2, 3], [3, 3, 4, 1], [100, 100, 100, 250], [100, 100, 100, 250], 4)
    assert starts(made, Easy()) == [0, 100, 253, 3]
    assert starts(made, Easy(promises=2)) == [0, 100, 200, 300]
    assert starts(made, Conservative()) == [0, 100, 200, 300]
    assert starts(made, FirstFit(order=Fcfs())) == [0, 100, 253, 3]


def test_a_job_that_outlives_its_request_is_believed_to_last_a_grace_longer() -> None:
    """0 asks for 10 s and takes 100. At 20 s it is believed to end at 20 + grace; 2 may start if it ends by then."""
    made = setting([0, 5, 20], [2, 4, 2], [100, 10, 40], [10, 10, 40], 4)
    assert starts(made, Easy(grace_s=40)) == [0, 100, 20]
    assert starts(made, Easy(grace_s=39)) == [0, 100, 110]
    assert starts(made, Conservative(grace_s=40)) == [0, 100, 20]


def test_promises_move_forward_in_the_order_of_the_queue() -> None:
    """0 ends at 50 instead of 100: 1 moves from 100 to 50, 2 with it; 3, which came last, may not pass 2."""
    made = setting([0, 1, 2, 3], [4, 4, 4, 4], [50, 10, 10, 10], [100, 20, 20, 20], 4)
    rules = rules_of(made, Conservative())
    queue = rules.queue
    nq.advance(queue, rules.terms, 4.0)
    assert queue.promises.at.tolist()[1:] == [100, 120, 140]
    nq.advance(queue, rules.terms, np.inf)
    assert queue.first_start.tolist() == [0, 50, 60, 70]
    assert queue.first_promise.tolist()[1:] == [100, 120, 140]


def test_orders() -> None:
    """At 100 s three jobs of all GPUs wait: for 90, 50 and 10 s, with requests of 300, 50 and 40."""
    made = setting([0, 10, 50, 90], [4, 4, 4, 4], [100, 30, 20, 10], [100, 300, 50, 40], 4)
    assert starts(made, Easy(order=Fcfs())) == [0, 100, 130, 150]
    assert starts(made, Easy(order=ShortestRequest())) == [0, 130, 110, 100]
    # (90 / 300)^3 = .027, (50 / 50)^3 = 1, (10 / 40)^3 = .016; at 120 s (110 / 300)^3 = .049, (30 / 40)^3 = .42
    assert starts(made, Easy(order=Wfp3())) == [0, 130, 100, 120]


def test_wfp3_prefers_large_jobs() -> None:
    made = setting([0, 10, 10], [4, 1, 4], [100, 50, 50], [100, 50, 50], 4)
    assert starts(made, Easy(order=Wfp3())) == [0, 150, 100]
    assert starts(made, Easy(order=Fcfs())) == [0, 100, 150]


def test_announced_maintenance_drains_the_cluster() -> None:
    """All four GPUs from 100 to 150 s. 0 may not start before, for its request, nor the wide 2; 1 ends by 100."""
    made = setting([0, 1, 2], [2, 2, 4], [60, 20, 10], [120, 99, 120], 4)
    known = replace(made, maintenance=(Window(100, 150, 4, 0),))
    for policy in POLICIES:
        fcfs = policy.with_(order=Fcfs())
        assert starts(known, fcfs) == [150, 1, 210]
        assert starts(made, fcfs) == [0, 1, 60]


def test_unannounced_maintenance_does_not_drain() -> None:
    """Announced when it begins, at 50 s: 0 goes on until 60; 1, promised 120, waits for its end; half the GPUs stay."""
    made = setting([0, 1, 52], [4, 4, 2], [60, 20, 10], [120, 60, 10], 4)
    late = replace(made, maintenance=(Window(50, 150, 2, 50),))
    for policy in POLICIES:
        assert starts(late, policy.with_(order=Fcfs())) == [0, 150, 60]


def test_a_plan_made_anew_looks_so_far_and_at_so_many() -> None:
    """1 needs all four GPUs and is due at 100, 2 (two GPUs for 200 s) would delay it, 3 (two GPUs for 50 s) would not.

    Where no start more than 90 s away is promised, 2 starts; where two waiting jobs are looked at, 3 waits with them.
    """
    made = setting([0, 1, 2, 3], [2, 4, 2, 2], [100, 10, 200, 50], [100, 10, 200, 50], 4)
    assert starts(made, Easy(promises=5)) == [0, 100, 110, 3]
    assert starts(made, Easy(promises=5, window_s=90)) == [0, 202, 2, 100]
    assert starts(made, Easy(promises=5, examined=2)) == [0, 100, 110, 110]


def test_how_many_jobs_may_move_forward_in_a_pass() -> None:
    """0 ends at 50 instead of 100, and 1 moves to 50. 2 moves to 70, the believed end of 1, only where two may move."""
    made = setting([0, 1, 2, 3], [4, 4, 4, 4], [50, 30, 10, 10], [100, 20, 70, 20], 4)
    for policy, promised in ((Conservative(), [70, 140]), (Conservative(examined=1), [120, 190])):
        rules = rules_of(made, policy)
        queue = rules.queue
        nq.advance(queue, rules.terms, 51.0)
        assert queue.promises.at[2:].tolist() == promised
        nq.advance(queue, rules.terms, np.inf)
        assert queue.first_start.tolist() == [0, 50, 80, 90]


def test_a_hole_is_long_enough_where_only_rounding_makes_it_shorter() -> None:
    """0 ends at 10.1 instead of 11; 1, promised 20 after a window, asks for 1.1 s, and the window begins 10.1 + 1.1 s."""
    made = setting([0, 1], 4, [10, 1], [11, 1], 4)
    exact = replace(made.jobs, duration_s=np.array([10.1, 1.0]), requested_s=np.array([11.0, 1.1]))
    made = replace(made, jobs=exact, maintenance=(Window(10.1 + 1.1, 20, 4, 0),))
    assert (10.1 + 1.1) - 10.1 < 1.1
    for policy in POLICIES:
        assert starts(made, policy.with_(order=Fcfs())) == [0, 10.1]


# -- a reference that counts GPUs second by second -----------------------------------------------------------------------


def second_by_second(made: Setting, policy: BackfillPolicy) -> list[int]:
    """Starts, from a table of free GPUs for each second to come, made anew at every second. Times are whole seconds.

    Kept promises are laid down in the order of the queue, later where they no longer fit, and each job in that order is then
    moved to the first second in which it fits beside all others.
    """
    jobs, total = made.jobs, made.cluster.gpus
    submit, gpus, work = jobs.submit_s.tolist(), jobs.gpus.tolist(), jobs.duration_s.tolist()
    request, grace = jobs.requested_s.tolist(), int(policy.grace_s)
    count = len(submit)
    start: list[int] = [-1] * count
    promise: dict[int, int] = {}
    changed_at = 0
    horizon = max(submit) + sum(request) + sum(work) + grace + max(request) + 1
    horizon += int(max((window.to_s for window in made.maintenance), default=0))

    def key(job: int, now: int) -> tuple[float, int]:
        if isinstance(policy.order, ShortestRequest):
            return request[job], job
        waits = (now - submit[job]) / request[job] if isinstance(policy.order, Wfp3) else 0.0
        return -(waits * waits * waits * gpus[job]), job

    for now in range(horizon):
        if -1 not in start:
            break
        came = any(at == now for at in submit)
        ended = any(start[job] >= 0 and start[job] + work[job] == now for job in range(count))
        marked = any(now in (each.announced_s, each.from_s, each.to_s) for each in made.maintenance)
        if not (came or ended or marked or now in promise.values()):
            continue  # nothing happens
        changed_at = now
        free = np.full(2 * horizon, total)

        def fill(job: int, at: int, sign: int = 1, free: Any = free) -> None:
            free[at : at + request[job]] -= sign * gpus[job]

        def fits(job: int, at: int, free: Any = free) -> bool:
            return bool((free[at : at + request[job]] >= gpus[job]).all())

        for job in range(count):
            if start[job] >= 0 and start[job] + work[job] > now:
                believed = start[job] + request[job]
                free[now : believed if believed > now else now + grace] -= gpus[job]
        for window in made.maintenance:
            if window.announced_s <= now:
                free[max(now, int(window.from_s)) : int(window.to_s)] -= window.gpus
        waiting = sorted(
            (job for job in range(count) if start[job] < 0 and submit[job] <= now), key=lambda j: key(j, now)
        )
        before, promise = promise, {}
        for job in waiting:
            if job in before:
                second = (at for at in range(now, 2 * horizon) if fits(job, at))
                promise[job] = before[job] if fits(job, before[job]) else next(second)
                fill(job, promise[job])
        reserved = 0
        for place, job in enumerate(waiting):
            if place >= (policy.examined or count) and not policy.keeps_promises:
                break
            moves = place < (policy.examined or count) or promise.get(job, now) == now
            mine = promise.pop(job, None)
            if mine is not None:
                fill(job, mine, -1)
            at = next(at for at in range(now, 2 * horizon) if fits(job, at))
            if not moves and at > now and mine is not None:
                at = mine
            at = at if mine is None else min(at, mine)
            if at == now:
                start[job] = now
                fill(job, at)
            elif policy.keeps_promises:
                promise[job] = at
                fill(job, at)
            elif reserved < policy.promises:
                reserved += 1
                if at <= now + (policy.window_s or math.inf):
                    fill(job, at)
    assert changed_at < horizon
    return start


KINDS_OF_JOB = tuple(itertools.product((1, 2, 3), ((1, 2), (2, 2), (3, 1), (2, 5))))  # GPUs, (work, request)
SUBMISSIONS = ((0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 2), (0, 1, 1, 3), (0, 1, 2, 3))


def small_instances(step: int, first: int) -> Any:
    """Jobs on three GPUs: every so-many-th of all instances of up to four jobs."""
    everything = itertools.chain.from_iterable(
        itertools.product((times[:count],), itertools.product(KINDS_OF_JOB, repeat=count))
        for count in (1, 2, 3, 4)
        for times in sorted({times[:count] for times in SUBMISSIONS})
    )
    for submit, kinds in itertools.islice(everything, first, None, step):
        gpus, both = zip(*kinds, strict=True)
        yield setting(submit, gpus, [work for work, _ in both], [request for _, request in both], 3)


@pytest.mark.parametrize("policy", VARIANTS, ids=named)
def test_all_small_instances_agree_with_the_reference(policy: BackfillPolicy) -> None:
    """All of them where FORERUN_CASES is set; else every 2500-th, each variant with others."""
    policy, seen = policy.with_(grace_s=2.0), 0
    at = VARIANTS.index(policy.with_(grace_s=60.0))
    for made in small_instances(1 if CASES else 2500, 0 if CASES else 83 * at):
        assert starts(made, policy) == second_by_second(made, policy), made.jobs
        seen += 1
    assert seen > 40


def drawn(rng: np.random.Generator, most: int = 30, *, late: bool = True) -> Setting:
    """Up to `most` jobs on one to twelve GPUs, with requests from half to four times what they take."""
    count, total = int(rng.integers(1, most)), int(rng.choice([1, 3, 8, 12]))
    work = rng.integers(1, 60, count)
    factor = rng.choice([0.5, 1.0, 1.0, 2.0, 4.0] if late else [1.0, 1.0, 2.0, 4.0], count)
    request = np.maximum(1, np.rint(work * factor)).astype(np.int64)
    return setting(
        np.sort(rng.integers(0, 200, count)), rng.integers(1, total + 1, count), work, request, total
    )


def drawn_windows(rng: np.random.Generator, gpus: int) -> tuple[Window, ...]:
    """None, one or two windows of up to 100 s, announced at any time before."""
    windows = []
    for _ in range(int(rng.integers(0, 3))):
        from_s = int(rng.integers(0, 250))
        to_s, announced_s = from_s + int(rng.integers(1, 100)), int(rng.integers(0, from_s + 1))
        windows.append(Window(from_s, to_s, int(rng.integers(1, gpus + 1)), announced_s))
    return tuple(windows)


@pytest.mark.parametrize("policy", VARIANTS, ids=named)
def test_random_jobs_agree_with_the_reference_and_through_a_view(policy: BackfillPolicy) -> None:
    rng = np.random.default_rng(VARIANTS.index(policy))
    for _ in range(max(CASES // len(VARIANTS), 2)):
        made, grace = drawn(rng), policy.with_(grace_s=float(rng.choice([1.0, 7.0, 60.0])))
        made = replace(made, maintenance=drawn_windows(rng, made.cluster.gpus))
        fast = compiled(made, grace)
        assert fast.first_start_s.tolist() == second_by_second(made, grace)
        slow = through_a_view(made, grace)
        assert fast.end_s.tolist() == slow.end_s.tolist()


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_long_queues_agree_through_a_view(order: Order) -> None:
    """A hundred waiting jobs that ask for more counts of GPUs than promises are told apart by, half of them early by far."""
    rng = np.random.default_rng(20 + ORDERS.index(order))
    for policy in (Conservative(order=order), Conservative(order=order, examined=30)):
        for _ in range(max(CASES // 100, 1)):
            gpus = np.concatenate((rng.integers(1, 65, 60), rng.integers(1, 8, 60)))
            work = np.ceil(rng.lognormal(4, 1.5, 120)).astype(np.int64)
            request = np.ceil(work * rng.choice([0.8, 1.0, 2.0, 5.0], 120)).astype(np.int64)
            made = setting(np.sort(rng.integers(0, 200, 120)), rng.permutation(gpus), work, request, 64)
            made = replace(made, maintenance=(Window(900, 1000, 50, 300), Window(2000, 2100, 20, 2000)))
            assert compiled(made, policy).end_s.tolist() == through_a_view(made, policy).end_s.tolist()


def test_a_run_cut_anywhere_is_the_same_run() -> None:
    rng = np.random.default_rng(5)
    for policy in VARIANTS:
        made = drawn(rng)
        one, other = rules_of(made, policy), rules_of(made, policy)
        whole, pieces = one.queue, other.queue
        nq.advance(whole, one.terms, np.inf)
        for cut in np.sort(rng.uniform(0, 800, 40)).tolist():
            nq.advance(pieces, one.terms, cut)
        nq.advance(pieces, one.terms, np.inf)
        assert whole.first_start.tolist() == pieces.first_start.tolist()
        assert (
            whole.event_time[: whole.meta[qs.EVENTS]].tolist()
            == pieces.event_time[: pieces.meta[qs.EVENTS]].tolist()
        )


# -- laws --------------------------------------------------------------------------------------------------------------


def most_in_use(record: Record) -> int:
    times, rows, gpus = record.changes()
    held, most = np.zeros(len(record.setting.jobs), np.int64), 0
    for at in range(len(times)):
        held[rows[at]] = gpus[at]
        if at + 1 == len(times) or times[at + 1] > times[at]:
            most = max(most, int(held.sum()))
    return most


@pytest.mark.parametrize("policy", VARIANTS, ids=named)
def test_no_more_gpus_are_in_use_than_there_are_and_jobs_run_for_as_long_as_they_take(
    policy: BackfillPolicy,
) -> None:
    rng = np.random.default_rng(100 + VARIANTS.index(policy))
    for _ in range(max(CASES // len(VARIANTS), 10)):
        made = drawn(rng)
        record = compiled(made, policy)
        assert most_in_use(record) <= made.cluster.gpus
        assert (record.end_s - record.first_start_s == made.jobs.duration_s).all()
        assert (record.first_start_s >= made.jobs.submit_s).all()
        assert sorted(record.completed) == list(range(len(made.jobs)))


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_kept_promises_are_never_broken(order: Order) -> None:
    """Where jobs keep to their requests, each starts by the time that it is promised when it comes."""
    policy, moved = Conservative(order=order), 0
    rng = np.random.default_rng(7)
    for _ in range(draws := cases(100)):
        made = drawn(rng, late=False)
        rules = rules_of(made, policy)
        queue = rules.queue
        nq.advance(queue, rules.terms, np.inf)
        assert (queue.first_start <= queue.first_promise).all()
        moved += int((queue.first_start < queue.first_promise).sum())
    assert moved > draws, "early ends do move promises"


def test_the_first_in_the_queue_starts_by_its_shadow_time() -> None:
    """EASY, event by event: whoever stands first after a pass starts by the instant at which the running jobs, at the end
    of their requests, leave it enough."""
    rng = np.random.default_rng(8)
    seen = 0
    for _ in range(draws := cases(100)):
        made = drawn(rng, late=False)
        jobs, total = made.jobs, made.cluster.gpus
        rules = rules_of(made, Easy())
        queue, now = rules.queue, 0.0
        due: dict[int, float] = {}
        while (now := nq.advance(queue, rules.terms, math.nextafter(now, math.inf))) < math.inf:
            running = np.flatnonzero((queue.first_start >= 0) & (queue.end < 0))
            if not queue.meta[qs.WAITING]:
                due = {}
                continue
            head = int(queue.waiting[0])
            free, shadow_s = total - int(jobs.gpus[running].sum()), 0.0
            for job in sorted(
                running.tolist(), key=lambda job: queue.first_start[job] + jobs.requested_s[job]
            ):
                if free >= jobs.gpus[head]:
                    break
                free += int(jobs.gpus[job])
                shadow_s = float(queue.first_start[job] + jobs.requested_s[job])
            assert shadow_s <= due.get(head, math.inf), "others have delayed the first in the queue"
            due, seen = {head: min(shadow_s, due.get(head, math.inf))}, seen + 1
    assert seen > 2 * draws


def test_equal_requests_start_in_the_order_in_which_they_come() -> None:
    """Of one GPU and 60 s each, within which all jobs end."""
    rng = np.random.default_rng(9)
    for policy in (Easy(), Conservative(), FirstFit(order=Fcfs())):
        for _ in range(cases(20)):
            made = drawn(rng)
            count = len(made.jobs)
            alike = setting(
                made.jobs.submit_s, 1, made.jobs.duration_s, np.full(count, 60), made.cluster.gpus
            )
            found = compiled(alike, policy).first_start_s
            assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize("policy", VARIANTS, ids=named)
def test_nothing_depends_on_the_origin_of_time_names_or_units(policy: BackfillPolicy) -> None:
    rng = np.random.default_rng(10)
    for _ in range(cases(5, 500)):
        made = drawn(rng)
        jobs, total = made.jobs, made.cluster.gpus
        plain = compiled(made, policy).first_start_s
        later = replace(made, jobs=replace(jobs, submit_s=jobs.submit_s + 86_400))
        assert compiled(later, policy).first_start_s.tolist() == (plain + 86_400).tolist()
        renamed = replace(made, jobs=replace(jobs, id=tuple(f"x{-row}" for row in range(len(jobs)))))
        assert compiled(renamed, policy).first_start_s.tolist() == plain.tolist()
        slower = setting(8 * jobs.submit_s, jobs.gpus, 8 * jobs.duration_s, 8 * jobs.requested_s, total)
        assert compiled(slower, policy.with_(grace_s=480.0)).first_start_s.tolist() == (8 * plain).tolist()
        larger = setting(jobs.submit_s, 4 * jobs.gpus, jobs.duration_s, jobs.requested_s, 4 * total)
        assert compiled(larger, policy).first_start_s.tolist() == plain.tolist()


def test_one_gpu_jobs_wait_as_in_the_m_m_c_queue() -> None:
    """Erlang's C formula at a load of 0.8 on four GPUs, over 40 runs, within three standard errors."""
    servers, load, mean_s = 4, 0.8, 1e6
    offered = servers * load
    last = offered**servers / math.factorial(servers) / (1 - load)
    waits = last / (sum(offered**k / math.factorial(k) for k in range(servers)) + last)
    expected_s = waits * mean_s / (servers * (1 - load))
    for policy in (Easy(), Conservative(), FirstFit(order=Fcfs())):
        means = []
        for seed in range(40):
            rng = np.random.default_rng(seed)
            submit = np.cumsum(rng.exponential(mean_s / offered, 6000)).astype(np.int64)
            work = np.ceil(rng.exponential(mean_s, 6000)).astype(np.int64)
            made = setting(submit, 1, work, 3 * work, servers)
            means.append((compiled(made, policy).first_start_s - submit)[1000:].mean())
        error_s = np.std(means, ddof=1) / np.sqrt(len(means))
        assert abs(np.mean(means) - expected_s) < 3 * error_s
        assert error_s < 0.05 * expected_s


def test_first_fit_by_submission_is_backfill_without_reservations() -> None:
    from forerun.cluster.policies.priority import FifoBackfill

    rng = np.random.default_rng(12)
    for _ in range(cases(20)):
        made = drawn(rng)
        record, other = Record(made), FifoBackfill()
        run_rules(AllocatorRules(made, record, other, other.build(rng), Terms()))
        assert starts(made, FirstFit(order=Fcfs())) == record.first_start_s.tolist()


# -- nodes, quotas, other orders -------------------------------------------------------------------------------


def test_jobs_wait_for_whole_nodes_where_they_are_placed() -> None:
    """Two nodes of four GPUs, each with one in use: six are free, but no four on one node until 100 s."""
    jobs = Jobs.of(
        [0, 0, 0, 0, 5], [1, 3, 1, 3, 4], [100, 10, 100, 10, 20], requested_s=[100, 10, 100, 10, 20]
    )
    made = Setting(jobs, Cluster.uniform(1, 2, 4), None, 60)
    for policy in (Easy(), Conservative()):
        assert starts(made, policy) == [0, 0, 0, 0, 10]
        record = Record(made)
        run_rules(rules_for(policy, made, record, Terms(placement="first-fit"), 0))
        assert record.first_start_s.tolist() == [0, 0, 0, 0, 100]
        assert waited(record, policy, Terms(placement="first-fit"))["fragmentation"][4] == 90


def test_a_quota_keeps_a_job_waiting_and_promises_it_nothing() -> None:
    jobs = Jobs.of([0, 1, 2], [2, 2, 2], [100, 10, 10], requested_s=[100, 10, 10], user=["ann", "ann", "bob"])
    made = Setting(jobs, Cluster.uniform(1, 1, 4), None, 60)
    for policy in (Easy(), Conservative()):
        record = Record(made)
        run_rules(rules_for(policy, made, record, Terms(quota=np.array([2, 4, 0])), 0))
        assert record.first_start_s.tolist() == [0, 100, 2]
        assert waited(record, policy, Terms(quota=np.array([2, 4, 0])))["limit"][1] == 99


def test_an_order_of_ones_own_decides_through_a_view() -> None:
    class Largest(Order, tag="largest", frozen=True):
        """The most GPUs first."""

        def keys(self, view: View) -> Any:
            return -view.gpus.astype(np.float64)

    made = setting([0, 1, 2, 3], [4, 1, 2, 4], [10, 5, 5, 5], [10, 5, 5, 5], 4)
    record = Record(made)
    rules = rules_for(Easy(order=Largest()), made, record, Terms(), 0)
    assert isinstance(rules, AllocatorRules)
    run_rules(rules)
    assert record.first_start_s.tolist() == [0, 15, 15, 10]
    assert isinstance(rules_for(Easy(), made, Record(made), Terms(), 0), NodeQueueRules)
    assert orders().names() == ("fcfs", "multifactor", "sjf", "wfp3")


# -- from a file ---------------------------------------------------------------------------------------------------------

SCENARIO = "domain: cluster\ntrace: jobs.csv\nmachines: {nodes: [{count: 1, gpus: 4}]}\npolicy: easy\n"


def written(folder: Path, rows: str) -> Path:
    (folder / "jobs.csv").write_text(f"job_id,submit_s,gpus,duration_s,requested_s\n{rows}")
    (folder / "cluster.yaml").write_text(SCENARIO)
    return folder / "cluster.yaml"


def test_a_scenario_names_policy_order_and_promises(tmp_path: Path) -> None:
    path = written(tmp_path, "a,0,3,100,100\nb,1,3,100,100\nc,2,4,100,100\nd,3,1,250,250\n")
    for given, expected in (
        ("easy", [0, 100, 253, 3]),
        ("{name: easy, promises: 2}", [0, 100, 200, 300]),
        ("{name: easy, order: sjf}", [0, 100, 253, 3]),
        ("{name: conservative, order: {name: wfp3}, grace: 5min}", [0, 100, 200, 300]),
        ("first-fit", [0, 100, 253, 3]),
    ):
        result = forerun.simulate(load(path, [f"policy={given}"]))
        assert result.tables["jobs"]["first_start_s"].tolist() == expected, given


def test_jobs_without_a_requested_time_take_the_greatest_and_are_an_error_where_none_has_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "a,0,3,100,150\nb,1,3,100,\nc,2,3,100,120\n")
    notes = forerun.simulate(load(path)).notes
    assert "1 of 3 jobs without a requested time take the greatest one, 150 s" in notes
    path = written(tmp_path, "a,0,3,100,\nb,1,3,100,\n")
    with pytest.raises(TraceError, match=r"2 of 2 jobs have no requested time, by which easy plans .*job a"):
        forerun.simulate(load(path))
    assert command_line(["simulate", str(path), "-q"]) == 2
    assert "overestimate" in capsys.readouterr().err
    made_up = forerun.simulate(load(path, ["trace.overestimate=2"]))
    assert made_up.summary["finished_jobs"] == 2
    assert forerun.simulate(load(path, ["policy=fifo"])).summary["finished_jobs"] == 2


def test_a_scenario_announces_maintenance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "a,0,2,60,120\nb,1,2,20,99\nc,2,4,10,120\n")
    window = "maintenance=[{from: 100s, to: 150s}]"
    result = forerun.simulate(load(path, [window]))
    assert result.tables["jobs"]["first_start_s"].tolist() == [150, 1, 210]
    placed = forerun.simulate(load(path, [window, "placement=first-fit"]))
    assert placed.tables["jobs"]["first_start_s"].tolist() == [150, 1, 210]
    late = forerun.simulate(load(path, ["maintenance=[{from: 100s, to: 150s, announced: 1min, gpus: 3}]"]))
    assert late.tables["jobs"]["first_start_s"].tolist() == [0, 1, 150]
    assert load(path) == load(path, ["maintenance=null"])
    for given, said in (
        ([window, "policy=fifo"], "fifo does not"),
        (["maintenance=[{from: 100s, to: 90s}]"], "more than 100"),
        (["maintenance=[{from: 100s, to: 190s, gpus: 5}]"], "the cluster has 4"),
    ):
        arguments = [part for text in given for part in ("--set", text)]
        assert command_line(["simulate", str(path), *arguments, "-q"]) == 2
        assert said in capsys.readouterr().err


def test_what_is_proposed_next_can_be_run(tmp_path: Path) -> None:
    """Policies that do not know of maintenance are neither proposed nor tried under it."""
    scenario = load(
        written(tmp_path, "a,0,2,60,120\nb,1,2,20,99\n"), ["maintenance=[{from: 100s, to: 150s}]"]
    )
    result = forerun.simulate(scenario)
    assert any("--policy conservative --policy first-fit" in step for step in result.next_steps)
    tried = next(
        each for each in ClusterExplainer(DOMAIN).what_ifs(scenario, result) if each.path == "policy"
    )
    assert tried.values == ("conservative", "first-fit")
    for name in tried.values:
        assert (
            forerun.simulate(load(tmp_path / "cluster.yaml", [f"policy={name}"])).summary["finished_jobs"]
            == 2
        )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{name: easy, promises: 0}", "promises"),
        ("{name: easy, grace_s: 0}", "grace"),
        ("{name: easy, order: lifo}", "no order of jobs named 'lifo'"),
        ("{name: conservative, promises: 2}", "promises"),
    ],
)
def test_parameters_that_make_no_sense_are_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, said: str
) -> None:
    path = written(tmp_path, "a,0,3,100,100\n")
    assert command_line(["simulate", str(path), "--set", f"policy={given}", "-q"]) == 2
    assert said in capsys.readouterr().err
