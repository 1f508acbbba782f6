"""Rules by which jobs start beside promises, or in plain order.

One pass goes through the waiting jobs; whoever fits for its whole request starts. Of those that do not, the first few are
promised a start for this pass alone (`ONCE`; none: first fit), or all are (`KEPT`); such a promise only ever moves forward
(see `node_promises`). In plain order a job that does not fit holds up those behind it of its partition.
"""

from __future__ import annotations

import numpy as np

from forerun.cluster.engine.kernels import node_plan as npl
from forerun.cluster.engine.kernels import node_profile as pf
from forerun.cluster.engine.kernels import node_promises as pr
from forerun.cluster.engine.kernels import queue_state as qs
from forerun.core.kernels.jit import kernel


@kernel(allocates=False, internal=True)
def allowed(q: qs.Queue, job: int) -> bool:
    """Whether limits allow a job to run on GPUs of any class; they are noted in `closed`."""
    some, kind = False, q.promises.asks[job]
    while kind >= 0:
        may = qs.fits(q.limits, job, kind, q.gpus[job])
        q.promises.closed[kind] = not may
        some |= may
        kind = q.promises.other[kind]
    return some


@kernel(allocates=False, internal=True)
def decide(q: qs.Queue, terms: qs.Terms, now: float) -> None:
    """Start jobs by the rule of the terms."""
    q.nodes.meta[npl.STARTS] = 0
    crowded = announce(q, now)
    crowded |= believe(q, terms, now)
    q.clock[qs.WAKE_S] = np.inf
    levels = q.nodes.levels
    some = terms.rule == qs.KEPT or npl.enough(levels[1], levels[0], 0, levels.shape[1], 1)
    if q.meta[qs.WAITING] == 0 or not some:
        return
    if terms.order == qs.WFP3:
        qs.count_anew(q, now, terms)
    if terms.rule == qs.IN_ORDER:
        pass_in_order(q, terms, now)
    elif terms.rule == qs.KEPT:
        pass_kept(q, terms, now, crowded)
    else:
        pass_once(q, terms, now)


@kernel(allocates=False, internal=True)
def start_picked(q: qs.Queue, terms: qs.Terms, job: int, now: float) -> None:
    """A job starts on the picked units."""
    s, p = q.nodes, q.promises
    qs.make_space(q)
    take_picked(q, job)
    p.belief[job] = now + s.request[job]
    pr.forget(s, p, job, now)
    pr.occupy(s, p, job, now, p.belief[job], 1)
    qs.note_start(q, terms, job, now)


@kernel(allocates=False, internal=True)
def take_picked(q: qs.Queue, job: int) -> None:
    """A job has the picked units."""
    s, p = q.nodes, q.promises
    s.seat_first[job], s.seat_count[job] = s.meta[npl.SEATS], 0
    for at in range(p.meta[pr.PICKED]):
        npl.take_seat(s, job, p.pick_unit[at], p.pick_gpus[at])


@kernel(allocates=False, internal=True)
def announce(q: qs.Queue, now: float) -> bool:
    """Take announced maintenance out of the profile; whether others have or were promised its GPUs.

    What has failed is out for ever until it is back.
    """
    p, meta, crowded = q.promises, q.meta, False
    while meta[qs.RETURNED] < len(q.failures) and q.window_to[q.failures[meta[qs.RETURNED]]] <= now:
        take_away(q, q.failures[meta[qs.RETURNED]], now, -1)
        meta[qs.RETURNED] += 1
        for word in range(len(p.given)):
            p.given[word] = -1
    while meta[qs.ANNOUNCED] < len(q.window_from) and q.window_announced[meta[qs.ANNOUNCED]] <= now:
        if q.window_to[meta[qs.ANNOUNCED]] > now:
            crowded |= take_away(q, meta[qs.ANNOUNCED], now, 1)
        meta[qs.ANNOUNCED] += 1
    return crowded


@kernel(allocates=False, internal=True)
def take_away(q: qs.Queue, window: int, now: float, sign: int) -> bool:
    """What a window takes is out of the profile (1), or back in it (-1); whether others have or were promised it."""
    p, crowded = q.promises, False
    from_s, to_s = max(now, q.window_from[window]), q.window_until[window]
    for unit in range(q.window_gpus.shape[1]):
        if q.window_gpus[window, unit] > 0:
            pf.forget(p.profile, unit, now)
            pf.take(p.profile, unit, from_s, to_s, sign * q.window_gpus[window, unit])
            crowded |= sign > 0 and pf.least(p.profile, unit, from_s, to_s) < 0
            if unit < len(p.held):
                p.held[unit] += sign
    return bool(crowded)


@kernel(allocates=False, internal=True)
def believe(q: qs.Queue, terms: qs.Terms, now: float) -> bool:
    """Jobs that have outlived their request go on for `grace_s`; whether promises take what they are believed to have."""
    s, p, crowded = q.nodes, q.promises, False
    for at in range(s.meta[npl.RUNS]):
        if s.run_end[at] > now:
            break
        job, to_s = s.runs[at], now + terms.grace_s
        if p.belief[job] < to_s:
            pr.forget(s, p, job, now)  # else each grace adds steps
            pr.occupy(s, p, job, max(now, p.belief[job]), to_s, 1)
            p.belief[job] = to_s
            crowded |= pr.is_crowded(s, p, job, now, to_s)
    return crowded


@kernel(allocates=False, internal=True)
def pass_once(q: qs.Queue, terms: qs.Terms, now: float) -> None:
    """Start what fits; the first few that do not fit are promised a start, until the end of the pass."""
    meta, s, p = q.meta, q.nodes, q.promises
    pr.count_free(s, p)
    chosen = laid = stays = 0
    for at in range(meta[qs.WAITING]):
        job, starts = q.waiting[at], False
        looks = at < terms.tested and (chosen < terms.promises or pr.has_free(s, p, job))
        if looks and allowed(q, job):
            if pr.may_start(s, p, job, terms.placement, terms.seed):
                while laid < chosen:  # only now is a promise of any consequence
                    promise_once(q, terms, p.chosen[laid], now)
                    laid += 1
                allowed(q, job)
                starts = pr.picks_now(s, p, job, now, terms.placement, terms.seed)
            if starts:
                start_picked(q, terms, job, now)
                pr.count_free(s, p)
            elif chosen < terms.promises and pr.could_ever(s, p, job, terms.placement, terms.seed):
                p.chosen[chosen] = job
                chosen += 1
        if not starts:
            q.waiting[stays] = job
            stays += 1
    meta[qs.WAITING] = stays
    for at in range(laid):
        if p.at[p.chosen[at]] != pr.NO_PROMISE:
            pr.lay(s, p, p.chosen[at], -1)
            pr.release(p, p.chosen[at])


@kernel(allocates=False, internal=True)
def promise_once(q: qs.Queue, terms: qs.Terms, job: int, now: float) -> None:
    """Promise a job its first possible start, if that is near enough."""
    s, p = q.nodes, q.promises
    allowed(q, job)
    start_s = pr.picks_soonest(s, p, job, now, np.inf, terms.placement, terms.seed)
    if start_s < np.inf and start_s <= now + terms.window_s:
        pr.promise(s, p, job, start_s)


@kernel(allocates=False, internal=True)
def lay_out_again(q: qs.Queue, terms: qs.Terms, now: float) -> None:
    """Where others have what was promised, lay promises down in order; those that no longer fit are made anew."""
    s, p = q.nodes, q.promises
    for at in range(q.meta[qs.WAITING]):
        if p.at[q.waiting[at]] != pr.NO_PROMISE:
            pr.lay(s, p, q.waiting[at], -1)
    for at in range(q.meta[qs.WAITING]):
        job = q.waiting[at]
        if p.at[job] == pr.NO_PROMISE:
            continue
        pr.gives(s, p, job)
        p.at[job] = max(p.at[job], now)
        if pr.holds(s, p, job):
            pr.lay(s, p, job, 1)
            continue
        pr.release(p, job)
        allowed(q, job)
        start_s = pr.picks_soonest(s, p, job, now, np.inf, terms.placement, terms.seed)
        if start_s < np.inf:
            pr.promise(s, p, job, start_s)


@kernel(allocates=False, internal=True)
def lapse_for_limits(q: qs.Queue, job: int) -> bool:
    """Keep nothing for a job that a limit keeps waiting; whether limits allow it to run."""
    s, p = q.nodes, q.promises
    may = allowed(q, job)
    if p.at[job] != pr.NO_PROMISE and p.closed[s.kind[job]]:
        pr.gives(s, p, job)
        pr.lay(s, p, job, -1)
        pr.release(p, job)
    return may


@kernel(allocates=False, internal=True)
def pass_kept(q: qs.Queue, terms: qs.Terms, now: float, crowded: bool) -> None:
    """Move promises forward where GPUs have become free, make those of new jobs, and start whose time has come."""
    meta, s, p = q.meta, q.nodes, q.promises
    for at in range(meta[qs.WAITING]):
        crowded |= pr.NO_PROMISE < p.at[q.waiting[at]] < now
        lapse_for_limits(q, q.waiting[at])
    if crowded:
        lay_out_again(q, terms, now)
    few = terms.tested < meta[qs.WAITING] or meta[qs.MISSED] > 0
    meta[qs.MISSED] = terms.tested < meta[qs.WAITING]
    for word in range(len(p.given)):
        p.raised[word], p.given[word] = p.given[word], 0
    stays, wake_s = 0, np.inf
    for at in range(meta[qs.WAITING]):
        job = q.waiting[at]
        may, start_s = lapse_for_limits(q, job), np.inf
        had_s = p.at[job]
        if may and had_s == pr.NO_PROMISE:
            start_s = pr.picks_soonest(s, p, job, now, np.inf, terms.placement, terms.seed)
            if q.first_promise[job] < 0.0:
                q.first_promise[job] = start_s
            if now < start_s < np.inf:
                pr.promise(s, p, job, start_s)
        elif may and had_s > now and not few and not pr.may_move(s, p, job):
            start_s = had_s
        elif may:
            start_s = had_s
            kind = s.kind[job]
            pr.lay(s, p, job, -1)
            if had_s > now and at < terms.tested:
                if few or pr.may_be_sooner(s, p, job, now, had_s, terms.placement):
                    start_s = pr.picks_soonest(s, p, job, now, had_s, terms.placement, terms.seed)
            elif had_s > now and pr.picks_now(s, p, job, now, terms.placement, terms.seed):
                start_s = now
            if start_s < had_s:
                pr.gives(s, p, job)
                pr.release(p, job)
                if start_s > now:
                    pr.promise(s, p, job, start_s)
            else:
                s.kind[job] = kind
                if start_s <= now:
                    pr.picks_promised(p, job)
                    pr.release(p, job)
                else:
                    pr.lay(s, p, job, 1)
        if start_s <= now:
            start_picked(q, terms, job, now)
            continue
        wake_s = min(wake_s, start_s)
        q.waiting[stays] = job
        stays += 1
    meta[qs.WAITING] = stays
    q.clock[qs.WAKE_S] = wake_s


@kernel(allocates=False, internal=True)
def pass_in_order(q: qs.Queue, terms: qs.Terms, now: float) -> None:
    """Start jobs in their order. One that does not fit holds up those behind it; one that a limit keeps waiting does not."""
    meta, s, p, stays = q.meta, q.nodes, q.promises, 0
    for line in range(len(q.held_up)):
        q.held_up[line] = False
    for at in range(meta[qs.WAITING]):
        job = q.waiting[at]
        if not q.held_up[q.line[job]] and allowed(q, job):
            if pr.picks_now(s, p, job, now, terms.placement, terms.seed):
                start_picked(q, terms, job, now)
                continue
            q.held_up[q.line[job]] = True
        q.waiting[stays] = job
        stays += 1
    meta[qs.WAITING] = stays


@kernel(allocates=False, internal=True)
def put_somewhere(q: qs.Queue, terms: qs.Terms, job: int, now: float) -> bool:
    """Whether a running job has a place now, which it then has."""
    kind = q.promises.asks[job]
    while kind >= 0:
        q.promises.closed[kind] = 0
        kind = q.promises.other[kind]
    if pr.picks_now(q.nodes, q.promises, job, now, terms.placement, terms.seed):
        take_picked(q, job)
        return True
    return False
