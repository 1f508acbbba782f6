"""A queue of rigid jobs on named nodes, whole runs at a time, or from any state on (`set_state`).

Arrivals, ends and maintenance are the same for all rules by which jobs start (`slurm_rule`, `promise_rule`).
"""

from __future__ import annotations

import numpy as np

from forerun.cluster.engine.kernels import counted_rule, preemption, promise_rule, slurm_rule
from forerun.cluster.engine.kernels import node_plan as npl
from forerun.cluster.engine.kernels import node_promises as pr
from forerun.cluster.engine.kernels import queue_state as qs
from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.cluster.engine.kernels.heap import pop_least, push_least
from forerun.cluster.engine.kernels.placement import ANYWHERE
from forerun.core.kernels.jit import kernel


@kernel(allocates=False)
def advance(q: qs.Queue, terms: qs.Terms, until_s: float) -> float:
    """Play on until `until_s` (not included), the end of the trace, a count of priorities, or a full log.

    Returns the instant of the next event; infinity: nothing is left to happen. Cutting a run anywhere does not change it.
    """
    meta, clock, r = q.meta, q.clock, q.restarts
    delayed = terms.latency_s > 0.0
    while True:
        now = qs.next_to_come(q)
        if meta[qs.RUNNING] > 0:
            now = min(now, q.end_key[0])
            if meta[qs.FAILED] < len(r.fails_s):
                now = min(now, r.fails_s[meta[qs.FAILED]])
            if len(q.preemption.group) > 0:
                now = min(now, q.preemption.next_s[0])
        if meta[qs.QUEUED] > 0:
            now = min(now, clock[qs.TRY_S], clock[qs.WAKE_S])
        if (now < np.inf or meta[qs.QUEUED] > 0) and meta[qs.PASSED] < len(q.marks):
            now = min(now, q.marks[meta[qs.PASSED]])
        now = min(now, qs.next_to_leave(q))
        if now >= until_s or now == np.inf or is_full(q):
            return now
        before, news = meta[qs.LOGGED], 0
        while qs.next_to_leave(q) <= now:
            job, news = q.leavers[meta[qs.LEFT]], qs.ENDED
            meta[qs.LEFT] += 1
            qs.drop(q, terms, job)
            qs.done_with(q, job, now)
        if delayed:  # what is due at a second comes before what happens within it
            decide(q, terms, now, 0)
        while meta[qs.PASSED] < len(q.marks) and q.marks[meta[qs.PASSED]] <= now:
            meta[qs.PASSED] += 1
            news = qs.ENDED if meta[qs.QUEUED] > 0 else news
        while meta[qs.RUNNING] > 0 and q.end_key[0] <= now:
            job, news = q.ending[0], qs.ENDED
            meta[qs.RUNNING] = pop_least(q.ending, q.end_key, meta[qs.RUNNING])
            qs.leave(q, terms, job, now)
        while meta[qs.FAILED] < len(r.fails_s) and r.fails_s[meta[qs.FAILED]] <= now:
            if qs.fail_nodes(q, terms, meta[qs.FAILED], now):
                news = qs.ENDED
            meta[qs.FAILED] += 1
        while qs.next_to_come(q) <= now:
            if meta[qs.COMING] > 0 and r.coming_s[0] <= now:
                job = r.coming[0]
                meta[qs.COMING] = pop_least(r.coming, r.coming_s, meta[qs.COMING])
            else:
                job = meta[qs.ARRIVED]
                meta[qs.ARRIVED] += 1
            if qs.come(q, job, now, terms):
                news |= qs.BEGAN if q.begins[job] and terms.rule == qs.PLAN else qs.CAME
        counted_s, due = now, now >= clock[qs.RANKED_S] + terms.count_s
        if terms.rule == qs.PLAN:
            counted_s = npl.floor_s(q.nodes, now, terms.count_s)
            due = counted_s > clock[qs.RANKED_S]
        if terms.count_s > 0.0 and due:
            qs.count_anew(q, counted_s, terms)
            news |= qs.RANKED if terms.rule != qs.PLAN else 0
        if delayed:
            slurm_rule.note(q, terms, now, news)
        else:
            decide(q, terms, now, news)
        preemption.act(q, terms, now)
        if news == 0 and meta[qs.LOGGED] == before:  # none starts
            left = (
                meta[qs.RUNNING] > 0
                or qs.next_to_leave(q) < np.inf
                or qs.next_to_come(q) < np.inf
                or meta[qs.PASSED] < len(q.marks)
            )
            if not left and clock[qs.PLANNED_S] == now and clock[qs.TRY_S] == np.inf:
                return np.inf  # nor ever will
            continue
        q.event_time[meta[qs.EVENTS]] = now
        q.event_pending[meta[qs.EVENTS]] = meta[qs.QUEUED]
        meta[qs.EVENTS] += 1
        q.event_first[meta[qs.EVENTS]] = meta[qs.LOGGED]


@kernel(inline=True)
def is_full(q: qs.Queue) -> bool:
    """Whether the log may have no space for what happens at one instant: everybody ends or is stopped, others start."""
    meta = q.meta
    return bool(
        meta[qs.EVENTS] >= len(q.event_time) - 1
        or meta[qs.LOGGED] > len(q.log_row) - 3 * len(q.end_key)
        or meta[qs.SEATED] > len(q.log_node) - len(q.nodes.seat_node)
    )


@kernel(allocates=False, inline=True)
def decide(q: qs.Queue, terms: qs.Terms, now: float, news: int) -> None:
    """Start jobs by the rule of the terms. news: what has happened, as numbers of `queue_state`."""
    if terms.rule == qs.PLAN:
        slurm_rule.decide(q, terms, now, news)
    elif terms.rule == qs.COUNTED:
        counted_rule.decide(q, terms, now, news)
    else:
        promise_rule.decide(q, terms, now)


@kernel(allocates=False)
def set_state(
    q: qs.Queue,
    terms: qs.Terms,
    now: float,
    running: I64,
    start_s: F64,
    seat_first: I64,
    seat_node: I64,
    seat_gpus: I64,
    waiting: I64,
) -> int:
    """Let these jobs run and these wait at an instant, whatever went before; how many have no nodes to run on.

    From here `decide` says whom the policy would start, and `advance` plays on: jobs come that are submitted after now, and
    running ones end as their `work` says. Earlier promises do not count; usage stays as it is.

    Parameters
    ----------
    running : int64[count], the numbers of the jobs that run.
    start_s : float64[count], since when.
    seat_first, seat_node, seat_gpus : the nodes of the job at a place of `running`, and its GPUs there (0: an even share):
        entries `seat_first[at]` up to `seat_first[at + 1]`. Nodes that it may not use, or on which its GPUs are not free,
        are left out, unless GPUs may be anywhere. Where it is left with none it is put on the nodes on which it would start
        now; if there are none, too, it runs without. Jobs beyond the number of GPUs are passed over.
    waiting : the jobs that wait, in any order.
    """
    s, p, meta = q.nodes, q.promises, q.meta
    npl.clear_nodes(s)
    pr.clear_promises(s, p)
    for group in range(len(q.limits.gpus)):
        q.limits.gpus[group] = q.limits.jobs[group] = 0
    for pool in range(len(q.limits.pooled)):
        q.limits.pooled[pool] = 0
    for owner in range(len(q.ranks.usage_gpus)):
        qs.settle(q.ranks, owner, now, terms.decay_per_s)
        q.ranks.usage_gpus[owner] = 0.0
    for place in range(qs.PLACES):
        meta[place] = 0
    while meta[qs.ARRIVED] < len(q.submit) and q.submit[meta[qs.ARRIVED]] <= now:
        meta[qs.ARRIVED] += 1
    while meta[qs.FAILED] < len(q.restarts.fails_s) and q.restarts.fails_s[meta[qs.FAILED]] <= now:
        meta[qs.FAILED] += 1
    while meta[qs.PASSED] < len(q.marks) and q.marks[meta[qs.PASSED]] <= now:
        meta[qs.PASSED] += 1
    while meta[qs.RETURNED] < len(q.failures) and q.window_to[q.failures[meta[qs.RETURNED]]] <= now:
        meta[qs.RETURNED] += 1
    while meta[qs.LEFT] < len(q.leavers) and q.leaves[q.leavers[meta[qs.LEFT]]] <= now:
        meta[qs.LEFT] += 1
    for place in range(qs.CLOCK):
        q.clock[place] = np.inf
    q.clock[qs.RANKED_S] = q.clock[qs.PLANNED_S] = q.clock[qs.TRIED_S] = -np.inf
    q.clock[qs.NEWS] = 0.0
    most = len(s.runs) - 1
    homeless = max(len(running) - most, 0)
    for at in range(min(len(running), most)):
        job = running[at]
        s.seat_first[job], s.seat_count[job] = s.meta[npl.SEATS], 0
        wide = seat_first[at + 1] - seat_first[at]
        if wide > 0 and terms.rule <= qs.KEPT:
            s.kind[job] = pr.class_on(s, p, job, seat_node[seat_first[at]])
        for seat in range(seat_first[at], seat_first[at + 1]):
            node = seat_node[seat]
            gpus = seat_gpus[seat] if seat_gpus[seat] > 0 else npl.gpus_on(s, job, node, wide)
            is_there = gpus <= s.free[node] or terms.placement == ANYWHERE
            if npl.may_use(s, job, node) and gpus > 0 and is_there:
                npl.take_seat(s, job, node, gpus)
        if s.seat_count[job] == 0:
            if terms.rule == qs.PLAN:
                homeless += not slurm_rule.put_somewhere(q, job, now)
            else:
                homeless += not promise_rule.put_somewhere(q, terms, job, now)
        npl.enter(s, job, start_s[at] + s.request[job])
        p.belief[job] = start_s[at] + s.request[job]
        if terms.rule <= qs.KEPT:
            pr.occupy(s, p, job, -np.inf, p.belief[job], 1)
        q.first_start[job], q.end[job] = start_s[at], -1.0
        qs.count_in(q.limits, job, s.kind[job], q.gpus[job], 1)
        qs.charge(q.ranks, job, q.gpus[job], now, terms.decay_per_s)
        end = max(start_s[at] + q.work[job], now)
        meta[qs.RUNNING] = push_least(q.ending, q.end_key, meta[qs.RUNNING], job, end)
    if terms.rule == qs.COUNTED:
        counted_rule.lay_out_again(q, terms, now)
    for at in range(len(waiting)):
        q.first_start[waiting[at]] = q.end[waiting[at]] = -1.0
        qs.queue_up(q, waiting[at], now, terms)
    return homeless


@kernel(allocates=False)
def name_gpus(q: qs.Queue, first_gpu: I64, owner: I64, row: I64, event: I64, first: I64, count: I64) -> int:
    """Name the GPUs of the jobs that start in the log, the first free ones of their nodes; how many runs of GPUs these are.

    Parameters
    ----------
    first_gpu : int64[nodes + 1], of each node.
    owner : by GPU, the job that has it, -1: none; changed in place.
    row, event, first, count : written, by run: the job, the event in which it starts, the first GPU, and how many.
    """
    runs, meta = 0, q.meta
    for number in range(meta[qs.EVENTS]):
        for at in range(q.event_first[number], q.event_first[number + 1]):
            job = q.log_row[at]
            if q.log_gpus[at] == 0:
                for gpu in range(len(owner)):
                    if owner[gpu] == job:
                        owner[gpu] = -1
                continue
            begin = q.log_seats[at]
            last = q.log_seats[at + 1] if at + 1 < meta[qs.LOGGED] else meta[qs.SEATED]
            _sort_seats(q, begin, last)
            for seat in range(begin, last):
                node, takes = q.log_node[seat], q.log_share[seat]
                for gpu in range(first_gpu[node], first_gpu[node + 1]):
                    if takes == 0 or owner[gpu] >= 0:
                        continue
                    joins = runs > 0 and row[runs - 1] == job and event[runs - 1] == number
                    if not joins or first[runs - 1] + count[runs - 1] != gpu:
                        row[runs], event[runs], first[runs], count[runs] = job, number, gpu, 0
                        runs += 1
                    owner[gpu] = job
                    count[runs - 1] += 1
                    takes -= 1
    return int(runs)


@kernel(allocates=False, internal=True)
def _sort_seats(q: qs.Queue, begin: int, last: int) -> None:
    """Put the nodes of a job that starts in order."""
    for seat in range(begin + 1, last):
        node, share, at = q.log_node[seat], q.log_share[seat], seat
        while at > begin and q.log_node[at - 1] > node:
            q.log_node[at], q.log_share[at] = q.log_node[at - 1], q.log_share[at - 1]
            at -= 1
        q.log_node[at], q.log_share[at] = node, share
