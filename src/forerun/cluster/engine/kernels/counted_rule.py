"""Promises that are kept where all GPUs are alike: those of one node, in a profile that makes most of a pass short.

They only ever move forward, as those of `promise_rule` do; the profile (`linked_profile`) says of most at once that they
cannot move. A pass may also move the first jobs in the queue only; others start as soon as they fit, and whoever comes
among the first later makes up for what it has missed.
"""

from __future__ import annotations

import numpy as np

from forerun.cluster.engine.kernels import linked_profile as lp
from forerun.cluster.engine.kernels import node_plan as npl
from forerun.cluster.engine.kernels import node_promises as pr
from forerun.cluster.engine.kernels import queue_state as qs
from forerun.core.kernels.jit import kernel


@kernel(allocates=False, internal=True)
def decide(q: qs.Queue, terms: qs.Terms, now: float, news: int) -> None:
    """Move promises forward, make those of new jobs, and start whose time has come. news: what has happened."""
    q.nodes.meta[npl.STARTS] = 0
    lp.forget(q.linked, now)
    crowded = announce(q, now)
    crowded |= believe(q, terms, now)
    wake_s, q.clock[qs.WAKE_S] = q.clock[qs.WAKE_S], np.inf
    if q.meta[qs.WAITING] == 0:
        return
    if crowded:
        lay_out_again(q, terms, now)
    pass_kept(q, terms, now, wake_s <= now or news != 0)


@kernel(allocates=False, internal=True)
def announce(q: qs.Queue, now: float) -> bool:
    """Take announced windows out of the profile; whether more GPUs are now given away than there are."""
    meta, p, crowded = q.meta, q.linked, False
    while meta[qs.ANNOUNCED] < len(q.window_from) and q.window_announced[meta[qs.ANNOUNCED]] <= now:
        window = meta[qs.ANNOUNCED]
        meta[qs.ANNOUNCED] += 1
        if q.window_to[window] > now:
            step = lp.step_from(p, max(now, q.window_from[window]))
            crowded |= lp.least_free(p, step, q.window_to[window]) < q.window_gpus[window, 0]
            lp.take(p, step, q.window_to[window], q.window_gpus[window, 0])
    return bool(crowded)


@kernel(allocates=False, internal=True)
def believe(q: qs.Queue, terms: qs.Terms, now: float) -> bool:
    """Jobs that have outlived their request go on for `grace_s`; whether more GPUs are now given away than there are."""
    s, belief, p, late = q.nodes, q.promises.belief, q.linked, False
    for at in range(s.meta[npl.RUNS]):
        if s.run_end[at] > now:
            break
        job, late = s.runs[at], True
        step = p.ends[job] if belief[job] > now else p.link[lp.HEAD]
        p.ends[job] = lp.take(p, step, now + terms.grace_s, q.gpus[job])
        if belief[job] > now:
            lp.release(p, step)
        belief[job] = now + terms.grace_s
    return bool(late and lp.least_free(p, p.link[lp.HEAD], now + terms.grace_s) < 0)


@kernel(allocates=False, internal=True)
def lay_out_again(q: qs.Queue, terms: qs.Terms, now: float) -> None:
    """Make the profile anew, where others have what was promised: who no longer fits is promised a later start."""
    meta, s, p, made = q.meta, q.nodes, q.linked, q.promises
    lp.start_over(p, now, s.size[0])
    for at in range(s.meta[npl.RUNS]):
        job = s.runs[at]
        p.ends[job] = lp.take(p, p.link[lp.HEAD], max(made.belief[job], now), q.gpus[job])
    for window in range(meta[qs.ANNOUNCED]):
        if q.window_to[window] > now:
            step = lp.step_from(p, max(now, q.window_from[window]))
            lp.take(p, step, q.window_to[window], q.window_gpus[window, 0])
    if terms.order == qs.WFP3:
        qs.count_anew(q, now, terms)
    for at in range(meta[qs.WAITING]):
        job = q.waiting[at]
        at_s = made.at[job]
        if at_s == pr.NO_PROMISE or at_s == np.inf:
            continue
        step = lp.step_from(p, max(at_s, now))
        p.refs[step] -= 1  # `promise` counts it
        if lp.least_free(p, step, p.time[step] + s.request[job]) < q.gpus[job]:
            first = lp.earliest(p, s.request[job], q.gpus[job], np.inf)
            p.refs[step] += 1
            lp.release(p, step)
            step = first
        made.at[job] = np.inf
        if step != lp.NONE:
            made.at[job] = p.time[step]
            lp.promise(p, job, step, s.request[job], q.gpus[job])


@kernel(allocates=False, internal=True)
def moved(q: qs.Queue, job: int, at_s: float, now: float, first_jobs: bool) -> int:
    """The step to which the promise of a job, of an instant that is to come, moves forward; NONE: it stays.

    first_jobs: whether the job is among those that may move; others only start, if they fit now.
    """
    p, need, request = q.linked, q.gpus[job], q.nodes.request[job]
    first = begins = p.begins[job]
    if not first_jobs:
        if lp.least_free(p, p.link[lp.HEAD], min(now + request, at_s)) >= need:
            first = p.link[lp.HEAD]
    else:
        while p.free[p.before[first]] >= need:
            first = p.before[first]
        if p.soonest[p.slot[job]] + request <= at_s:
            first = lp.search(p, job, first, request, need)
    if first == begins:
        return int(lp.NONE)
    if p.time[first] + request > at_s:
        lp.slide(p, job, first, request, need)
    else:
        lp.move(p, job, first, request, need)
    return int(first)


@kernel(allocates=False, internal=True)
def pass_kept(q: qs.Queue, terms: qs.Terms, now: float, changed: bool) -> None:
    """One pass through the queue. changed: whether the order may be another than at the last one."""
    meta, s, p, made = q.meta, q.nodes, q.linked, q.promises
    few = terms.tested < meta[qs.WAITING] or meta[qs.MISSED] > 0
    meta[qs.MISSED] = terms.tested < meta[qs.WAITING]
    raised = p.meta[lp.GIVEN] > 0  # no other promise can move
    p.meta[lp.GIVEN] = 0
    if terms.order == qs.WFP3 and (few or raised or changed):
        qs.count_anew(q, now, terms)
    stays, wake_s, limited = 0, np.inf, len(q.limits.groups) > 0
    for at in range(meta[qs.WAITING]):
        job = q.waiting[at]
        need, request, at_s = q.gpus[job], s.request[job], made.at[job]
        # a job that a limit stops is promised nothing
        if limited and not qs.fits(q.limits, job, s.kind[job], need):
            if at_s != pr.NO_PROMISE and at_s < np.inf:
                lp.lapse(p, job, need)
                raised = True
            made.at[job] = pr.NO_PROMISE
            q.waiting[stays] = job
            stays += 1
            continue
        if at_s == pr.NO_PROMISE or at_s == np.inf:
            first, at_s = lp.earliest(p, request, need, np.inf), np.inf
            if first != lp.NONE:
                at_s = p.time[first]
                lp.promise(p, job, first, request, need)
            if q.first_promise[job] < 0.0:
                q.first_promise[job] = at_s
        elif at_s > now and (raised or few):
            first = moved(q, job, at_s, now, at < terms.tested)
            if first != lp.NONE:
                at_s, raised = p.time[first], True
        made.at[job] = at_s
        if at_s <= now:
            start(q, terms, job, now)
            continue
        wake_s = min(wake_s, at_s)
        q.waiting[stays] = job
        stays += 1
    meta[qs.WAITING] = stays
    q.clock[qs.WAKE_S] = wake_s


@kernel(allocates=False, internal=True)
def start(q: qs.Queue, terms: qs.Terms, job: int, now: float) -> None:
    """A job starts; its GPUs are in the profile already."""
    qs.make_space(q)
    q.nodes.seat_first[job], q.nodes.seat_count[job] = q.nodes.meta[npl.SEATS], 0
    npl.take_seat(q.nodes, job, 0, q.gpus[job])
    q.promises.belief[job], q.promises.at[job] = now + q.nodes.request[job], pr.NO_PROMISE
    qs.note_start(q, terms, job, now)
