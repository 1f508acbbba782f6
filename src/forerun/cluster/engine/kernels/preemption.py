"""Preemption as Slurm has it: jobs that do not fit stop others that may be stopped for them.

What a job would run on if others were stopped is tried by lending their GPUs, one job after another; the last that was
needed is then tried first, so that no job is stopped in vain. A job does not start in the decision that stops others for it,
unless the scheduler acts without delay.
"""

from __future__ import annotations

import numpy as np

from forerun.cluster.engine.kernels import node_plan as npl
from forerun.cluster.engine.kernels import queue_state as qs
from forerun.cluster.engine.kernels import slurm_rule
from forerun.core.kernels.jit import kernel


@kernel(allocates=False)
def act(q: qs.Queue, terms: qs.Terms, now: float) -> None:
    """After a decision: stop jobs whose grace is over, and those in the way of jobs that may stop them."""
    e, clock, stops = q.preemption, q.clock, q.meta[qs.LOGGED]
    if len(e.group) == 0:
        return
    _end_graces(q, terms, now)
    planned = clock[qs.PLANNED_S] == now
    if planned or clock[qs.TRIED_S] == now or terms.latency_s == 0.0:
        _clear_ways(q, terms, now, not planned)
    if q.meta[qs.LOGGED] > stops and terms.latency_s > 0.0:
        slurm_rule.act_soon(clock, terms, now)


@kernel(allocates=False, internal=True)
def _end_graces(q: qs.Queue, terms: qs.Terms, now: float) -> None:
    """Stop jobs whose grace is over; note whom the others make way for, and when the next grace ends."""
    e, at = q.preemption, 0
    e.next_s[0] = np.inf
    while at < q.meta[qs.RUNNING]:
        job = q.ending[at]
        if e.due_s[job] <= now:
            qs.stop(q, terms, job, now, e.again_s[e.group[job]])
            at, e.next_s[0] = 0, np.inf
            continue
        if e.due_s[job] < np.inf:
            e.next_s[0] = min(e.next_s[0], e.due_s[job])
            e.served_s[e.due_for[job]] = now
        at += 1


@kernel(allocates=False, internal=True)
def _clear_ways(q: qs.Queue, terms: qs.Terms, now: float, in_order: bool) -> None:
    """Let waiting jobs stop others. in_order: whether one that cannot start holds up those behind it in its partition."""
    e, s, stays = q.preemption, q.nodes, 0
    for line in range(len(q.held_up)):
        q.held_up[line] = False
    for at in range(q.meta[qs.WAITING]):
        if q.first_start[q.entry_job[q.waiting[at]]] < 0.0:
            q.waiting[stays] = q.waiting[at]
            stays += 1
    q.meta[qs.WAITING] = stays
    for at in range(stays):
        entry = q.waiting[at]
        job, line = slurm_rule.choose(q, entry), q.line[entry]
        if q.first_start[job] >= 0.0 or e.served_s[job] == now or (in_order and q.held_up[line]):
            continue
        count = _in_the_way(q, job, now)
        if count == 0:
            q.held_up[line] = True
            continue
        waits = False
        for turn in range(count):
            waits |= _give_notice(q, terms, e.those[turn], job, now)
        e.served_s[job] = now
        if terms.latency_s == 0.0 and not waits:
            slurm_rule.start(q, terms, job, now)
        else:
            _keep(q, job)
    for node in range(len(e.kept)):
        if e.kept[node] > 0:
            npl.set_free(s.free, s.size, s.levels, node, s.free[node] + e.kept[node])
            e.kept[node] = 0


@kernel(allocates=False, internal=True)
def _in_the_way(q: qs.Queue, job: int, now: float) -> int:
    """How many of `those` have to go so that a job can start, whose nodes are chosen then; 0: it stops none."""
    e, s = q.preemption, q.nodes
    some = _candidates(q, job, now)
    if some == 0 or not qs.fits(q.limits, job, s.kind[job], q.gpus[job]) or _picks(q, job, now):
        return 0
    for at in range(some):
        npl.lend(s, e.those[at], 1)
    fits = _picks(q, job, now)
    for at in range(some):
        npl.lend(s, e.those[at], -1)
    if not fits:
        return 0
    count = _needed(q, job, now)
    last = e.those[count - 1]
    for at in range(count - 1, 0, -1):
        e.those[at] = e.those[at - 1]
    e.those[0] = last
    count, on_chosen = _needed(q, job, now), 0
    for at in range(count):
        other = e.those[at]
        for seat in range(s.seat_first[other], s.seat_first[other] + s.seat_count[other]):
            if (s.chosen[s.seat_node[seat] >> 6] >> (s.seat_node[seat] & 63)) & 1:
                e.those[on_chosen] = other
                on_chosen += 1
                break
    return on_chosen


@kernel(allocates=False, internal=True)
def _needed(q: qs.Queue, job: int, now: float) -> int:
    """How many of `those`, one after another, have to go so that a job fits; its nodes are chosen then."""
    e, count = q.preemption, 0
    while True:
        npl.lend(q.nodes, e.those[count], 1)
        count += 1
        if _picks(q, job, now):
            break
    for at in range(count):
        npl.lend(q.nodes, e.those[at], -1)
    return count


@kernel(allocates=False, internal=True)
def _picks(q: qs.Queue, job: int, now: float) -> bool:
    """Whether a job fits now, outside maintenance; then its nodes are chosen."""
    slurm_rule.leave_open(q, now, now + q.nodes.request[job])
    return npl.starts_at_once(q.nodes, job)


@kernel(allocates=False, internal=True)
def _candidates(q: qs.Queue, job: int, now: float) -> int:
    """How many running jobs another may stop; they are in `those`, those on few nodes first, then the oldest."""
    e, s, count = q.preemption, q.nodes, 0
    mine = e.group[job]
    for at in range(q.meta[qs.RUNNING]):
        other = q.ending[at]
        turn, ran_s = e.turn[mine, e.group[other]], now - q.first_start[other]
        if turn < 0 or e.due_s[other] < np.inf or ran_s < e.exempt_s[0] or ran_s == 0.0:
            continue
        to = count
        while to > 0:
            before = e.those[to - 1]
            its_turn = e.turn[mine, e.group[before]]
            if its_turn != turn:
                later = its_turn > turn
            elif s.seat_count[before] != s.seat_count[other]:
                later = s.seat_count[before] > s.seat_count[other]
            else:
                later = e.number[before] > e.number[other]
            if not later:
                break
            e.those[to] = before
            to -= 1
        e.those[to] = other
        count += 1
    return count


@kernel(allocates=False, internal=True)
def _give_notice(q: qs.Queue, terms: qs.Terms, other: int, job: int, now: float) -> bool:
    """Stop a job for another, at once or after its grace; whether it runs on until then."""
    e = q.preemption
    grace_s = e.grace_s[e.group[other]]
    if grace_s == 0.0:
        qs.stop(q, terms, other, now, e.again_s[e.group[other]])
        return False
    e.due_s[other], e.due_for[other] = now + grace_s, job
    e.next_s[0] = min(e.next_s[0], now + grace_s)
    return True


@kernel(allocates=False, internal=True)
def _keep(q: qs.Queue, job: int) -> None:
    """Until the decision is over the chosen nodes are a job's, though it does not run yet."""
    e, s = q.preemption, q.nodes
    s.seat_count[job] = 0
    for node in range(len(s.size)):
        if (s.chosen[node >> 6] >> (node & 63)) & 1:
            gpus = npl.gpus_on(s, job, node, s.wide[job])
            e.kept[node] += gpus
            npl.set_free(s.free, s.size, s.levels, node, s.free[node] - gpus)
            s.seat_count[job] += 1
    s.seat_count[job] = 0
