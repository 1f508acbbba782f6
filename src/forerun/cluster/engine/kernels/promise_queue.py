"""Backfilling by requested times on named nodes, whole runs at a time, or from any state on (`set_state`).

At every arrival and end one pass goes through the waiting jobs; whoever fits for its whole request starts. Of those that do
not, the first few are promised a start for this pass alone (`ONCE`; none: first fit), or all are (`KEPT`); such a promise
only ever moves forward (see `node_promises`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.kernels import node_plan as npl
from forerun.cluster.engine.kernels import node_profile as pf
from forerun.cluster.engine.kernels import node_promises as pr
from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.cluster.engine.kernels.heap import pop_least, push_least
from forerun.cluster.engine.kernels.node_queue import Ranks, charge, settle
from forerun.core.kernels.jit import kernel

#: places in `Queue.meta`; the first six are those of the priority queue
ARRIVED: Final = 0
WAITING: Final = 1
RUNNING: Final = 2
LOGGED: Final = 4
EVENTS: Final = 5
SEATED: Final = 6  # entries of `log_node`
PASSED: Final = 7  # instants of `marks`
ANNOUNCED: Final = 8  # windows that are in the profile
MISSED: Final = 9  # whether jobs were not looked at in the last pass
PLACES: Final = 10

#: rules by which jobs start, see above
ONCE: Final = 1
KEPT: Final = 2

#: orders of the queue: by submission or any that does not change; by WFP3; by priorities that are whole numbers
FIXED: Final = 0
WFP3: Final = 2
MULTIFACTOR: Final = 3

#: places in `Queue.clock`
WAKE_S: Final = 0  # the next promised start
RANKED_S: Final = 1  # when priorities were counted last
CLOCK: Final = 2


class Limits(NamedTuple):
    """Limits of what groups of jobs have running.

    Parameters
    ----------
    type_of : int64[classes], the GPU type of each class.
    first, groups : the groups of each job on GPUs of a type: `groups[first[type, job]:first[type, job + 1]]`.
    most_gpus, most_jobs : of each group at once.
    own_gpus, pool, pool_gpus : GPUs of each group beyond which it takes from a pool (-1: none), and those of the pools.
    gpus, jobs, pooled : that each has.
    """

    type_of: I64
    first: I64
    groups: I64
    most_gpus: I64
    most_jobs: I64
    own_gpus: I64
    pool: I64
    pool_gpus: I64
    gpus: I64
    jobs: I64
    pooled: I64


class Queue(NamedTuple):
    """A run in progress. Columns have one element a job; times in seconds; -1 is "never".

    Parameters
    ----------
    submit, work, gpus : of the jobs, in order of submission.
    first_start, end : what becomes of each.
    nodes, promises, limits, ranks : where jobs run, what keeps them from it, and their order.
    ending, end_key : heap of running jobs by their end.
    waiting : the jobs that wait, in their order.
    window_from, window_to, window_announced : maintenance, by announcement.
    window_gpus : int64[windows, units and groups], the GPUs that it takes of each.
    marks : the instants of maintenance at which there is a decision, ascending.
    clock, meta : instants and counters, see above.
    log_row, log_gpus, event_time, event_pending, event_first : as of the priority queue.
    log_seats : by change, the first entry of the next two.
    log_node, log_share : the nodes of jobs that start, and their GPUs there.
    """

    submit: F64
    work: F64
    gpus: I64
    first_start: F64
    end: F64
    nodes: npl.Nodes
    promises: pr.Promises
    limits: Limits
    ranks: Ranks
    ending: I64
    end_key: F64
    waiting: I64
    window_from: F64
    window_to: F64
    window_announced: F64
    window_gpus: I64
    marks: F64
    clock: F64
    meta: I64
    log_row: I64
    log_gpus: I64
    log_seats: I64
    log_node: I64
    log_share: I64
    event_time: F64
    event_pending: I64
    event_first: I64


class Terms(NamedTuple):
    """What a run goes by.

    Parameters
    ----------
    rule, order : of the numbers above.
    tested : how many waiting jobs a pass looks at; where promises are kept, how many may move forward.
    window_s : how far away a start may be that is promised for a pass.
    promises : how many of the first jobs that do not fit are promised a start for a pass.
    grace_s : how much longer a job is believed to run that has outlived its request.
    placement, seed : which nodes jobs take (see `placement`).
    age_per_s, most_age : what each second of waiting adds to a priority, up to how much.
    decay_per_s : of usage.
    count_s : between two counts of priorities; 0: they do not change.
    """

    rule: int
    order: int
    tested: int
    window_s: float
    promises: int
    grace_s: float
    placement: int
    seed: int
    age_per_s: float
    most_age: float
    decay_per_s: float
    count_s: float


@kernel(allocates=False)
def advance(q: Queue, terms: Terms, until_s: float) -> float:
    """Play on until `until_s` (not included), the end of the trace, a count of priorities, or a full log.

    Returns the instant of the next event; infinity: nothing is left to happen. Cutting a run anywhere does not change it.
    """
    meta, jobs = q.meta, len(q.submit)
    while True:
        now = q.submit[meta[ARRIVED]] if meta[ARRIVED] < jobs else np.inf
        if meta[RUNNING] > 0:
            now = min(now, q.end_key[0])
        if meta[WAITING] > 0:
            now = min(now, q.clock[WAKE_S])
        if (now < np.inf or meta[WAITING] > 0) and meta[PASSED] < len(q.marks):
            now = min(now, q.marks[meta[PASSED]])
        if now >= until_s or now == np.inf or meta[EVENTS] >= len(q.event_time) - 1:
            return now
        if meta[LOGGED] > len(q.log_row) - len(q.end_key) - jobs_now(q, now) - 1:
            return now
        if meta[SEATED] > len(q.log_node) - len(q.nodes.seat_node):
            return now
        news = False
        while meta[PASSED] < len(q.marks) and q.marks[meta[PASSED]] <= now:
            meta[PASSED] += 1
            news = meta[WAITING] > 0
        while meta[RUNNING] > 0 and q.end_key[0] <= now:
            job, news = q.ending[0], True
            meta[RUNNING] = pop_least(q.ending, q.end_key, meta[RUNNING])
            leave(q, terms, job, now)
        while meta[ARRIVED] < jobs and q.submit[meta[ARRIVED]] <= now:
            job, news = meta[ARRIVED], True
            meta[ARRIVED] += 1
            rank(q, job, now, terms)
            insert(q, job)
        if terms.count_s > 0.0 and now >= q.clock[RANKED_S] + terms.count_s:
            count_anew(q, now, terms)
            news = True
        before = meta[LOGGED]
        decide(q, terms, now, news)
        if not news and meta[LOGGED] == before:
            continue  # a plan that starts no job
        q.event_time[meta[EVENTS]] = now
        q.event_pending[meta[EVENTS]] = meta[WAITING]
        meta[EVENTS] += 1
        q.event_first[meta[EVENTS]] = meta[LOGGED]


@kernel(inline=True)
def jobs_now(q: Queue, now: float) -> int:
    """How many jobs wait or come now."""
    at = q.meta[ARRIVED]
    while at < len(q.submit) and q.submit[at] <= now:
        at += 1
    return int(q.meta[WAITING] + at - q.meta[ARRIVED])


@kernel(inline=True)
def log(q: Queue, job: int, gpus: int) -> None:
    """Note a change."""
    q.log_row[q.meta[LOGGED]], q.log_gpus[q.meta[LOGGED]] = job, gpus
    q.log_seats[q.meta[LOGGED]] = q.meta[SEATED]
    q.meta[LOGGED] += 1


@kernel(allocates=False)
def fits(limits: Limits, job: int, kind: int, gpus: int) -> bool:
    """Whether limits allow one more job on GPUs of a class."""
    gpu_type = limits.type_of[kind]
    for at in range(limits.first[gpu_type, job], limits.first[gpu_type, job + 1]):
        group = limits.groups[at]
        if limits.gpus[group] + gpus > limits.most_gpus[group]:
            return False
        if limits.jobs[group] >= limits.most_jobs[group]:
            return False
        pool = limits.pool[group]
        if pool >= 0 and limits.pooled[pool] + from_pool(limits, group, gpus) > limits.pool_gpus[pool]:
            return False
    return True


@kernel(inline=True)
def from_pool(limits: Limits, group: int, gpus: int) -> int:
    """How many of so many GPUs more a group would take from its pool."""
    used, own = limits.gpus[group], limits.own_gpus[group]
    return int(max(0, used + gpus - own) - max(0, used - own))


@kernel(allocates=False)
def count_in(limits: Limits, job: int, kind: int, gpus: int, jobs: int) -> None:
    """One job more or less runs on GPUs of a class."""
    gpu_type = limits.type_of[kind]
    for at in range(limits.first[gpu_type, job], limits.first[gpu_type, job + 1]):
        group = limits.groups[at]
        if limits.pool[group] >= 0:
            limits.pooled[limits.pool[group]] += from_pool(limits, group, gpus)
        limits.gpus[group] += gpus
        limits.jobs[group] += jobs


@kernel(allocates=False)
def allowed(q: Queue, job: int) -> bool:
    """Whether limits allow a job to run on GPUs of any class; they are noted in `closed`."""
    some, kind = False, q.promises.asks[job]
    while kind >= 0:
        may = fits(q.limits, job, kind, q.gpus[job])
        q.promises.closed[kind] = not may
        some |= may
        kind = q.promises.other[kind]
    return some


@kernel(allocates=False)
def rank(q: Queue, job: int, now: float, terms: Terms) -> None:
    """Count a job's priority."""
    ranks = q.ranks
    if terms.order == WFP3:
        waits = (now - ranks.since[job]) / q.nodes.request[job]
        ranks.priority[job] = waits * waits * waits * q.gpus[job]
    elif terms.order == MULTIFACTOR:
        age = min(max(now - ranks.since[job], 0.0) * terms.age_per_s, terms.most_age)
        total = ranks.fixed[job] + age + ranks.fair[ranks.owner[job]]
        ranks.priority[job] = np.floor(np.round(total * 1e6) / 1e6)
    else:
        ranks.priority[job] = ranks.fixed[job]


@kernel(inline=True)
def before(ranks: Ranks, job: int, other: int) -> bool:
    """Whether a job goes before another."""
    if ranks.tier[job] != ranks.tier[other]:
        return bool(ranks.tier[job] > ranks.tier[other])
    if ranks.priority[job] != ranks.priority[other]:
        return bool(ranks.priority[job] > ranks.priority[other])
    return job < other


@kernel(allocates=False)
def insert(q: Queue, job: int) -> None:
    """A job joins the queue at its place."""
    low, high = 0, q.meta[WAITING]
    while low < high:
        middle = (low + high) >> 1
        if before(q.ranks, job, q.waiting[middle]):
            high = middle
        else:
            low = middle + 1
    for at in range(q.meta[WAITING], low, -1):
        q.waiting[at] = q.waiting[at - 1]
    q.waiting[low] = job
    q.meta[WAITING] += 1


@kernel(allocates=False)
def count_anew(q: Queue, now: float, terms: Terms) -> None:
    """Count all priorities and put the queue in order; it hardly changes from one count to the next."""
    q.clock[RANKED_S] = now
    for at in range(q.meta[WAITING]):
        rank(q, q.waiting[at], now, terms)
    for at in range(1, q.meta[WAITING]):
        job, to = q.waiting[at], at
        while to > 0 and before(q.ranks, job, q.waiting[to - 1]):
            q.waiting[to] = q.waiting[to - 1]
            to -= 1
        q.waiting[to] = job


@kernel(allocates=False)
def decide(q: Queue, terms: Terms, now: float, news: bool) -> None:
    """Start jobs by the rule of the terms."""
    q.nodes.meta[npl.STARTS] = 0
    if terms.order == WFP3:
        count_anew(q, now, terms)
    crowded = announce(q, now)
    crowded |= believe(q, terms, now)
    q.clock[WAKE_S] = np.inf
    if q.meta[WAITING] == 0:
        return
    if terms.rule == KEPT:
        pass_kept(q, terms, now, crowded)
    else:
        pass_once(q, terms, now)


@kernel(allocates=False)
def start_picked(q: Queue, terms: Terms, job: int, now: float) -> None:
    """A job starts on the picked units."""
    s, p = q.nodes, q.promises
    make_space(q)
    s.seat_first[job], s.seat_count[job] = s.meta[npl.SEATS], 0
    for at in range(p.meta[pr.PICKED]):
        npl.take_seat(s, job, p.pick_unit[at], p.pick_gpus[at])
    p.belief[job] = now + s.request[job]
    npl.enter(s, job, p.belief[job])
    s.starts[s.meta[npl.STARTS]] = job
    s.meta[npl.STARTS] += 1
    pr.forget(s, p, job, now)
    pr.occupy(s, p, job, now, p.belief[job], 1)
    note_start(q, terms, job, now)


@kernel(allocates=False)
def make_space(q: Queue) -> None:
    """Let there be entries for one more job's nodes."""
    s = q.nodes
    if s.meta[npl.SEATS] + len(s.size) > len(s.seat_node):
        npl.compact(s)


@kernel(allocates=False)
def note_start(q: Queue, terms: Terms, job: int, now: float) -> None:
    """A job runs from now on."""
    s, meta = q.nodes, q.meta
    q.first_start[job] = now
    count_in(q.limits, job, s.kind[job], q.gpus[job], 1)
    charge(q.ranks, job, q.gpus[job], now, terms.decay_per_s)
    meta[RUNNING] = push_least(q.ending, q.end_key, meta[RUNNING], job, now + q.work[job])
    log(q, job, q.gpus[job])
    for at in range(s.seat_first[job], s.seat_first[job] + s.seat_count[job]):
        q.log_node[meta[SEATED]], q.log_share[meta[SEATED]] = s.seat_node[at], s.seat_gpus[at]
        meta[SEATED] += 1


@kernel(allocates=False)
def leave(q: Queue, terms: Terms, job: int, now: float) -> None:
    """A running job ends."""
    s, p = q.nodes, q.promises
    q.end[job] = now
    if p.belief[job] > now:
        pr.forget(s, p, job, now)
        pr.occupy(s, p, job, now, p.belief[job], -1)
        pr.gives(s, p, job)
    npl.take_back(s, job)
    count_in(q.limits, job, s.kind[job], -q.gpus[job], -1)
    charge(q.ranks, job, -q.gpus[job], now, terms.decay_per_s)
    log(q, job, 0)


@kernel(allocates=False)
def announce(q: Queue, now: float) -> bool:
    """Take announced maintenance out of the profile; whether others have or were promised its GPUs."""
    p, crowded = q.promises, False
    while q.meta[ANNOUNCED] < len(q.window_from) and q.window_announced[q.meta[ANNOUNCED]] <= now:
        window = q.meta[ANNOUNCED]
        q.meta[ANNOUNCED] += 1
        from_s, to_s = max(now, q.window_from[window]), q.window_to[window]
        for unit in range(q.window_gpus.shape[1]):
            if q.window_gpus[window, unit] > 0 and to_s > now:
                pf.take(p.profile, unit, from_s, to_s, q.window_gpus[window, unit])
                crowded |= pf.least(p.profile, unit, from_s, to_s) < 0
                if unit < len(p.held):
                    p.held[unit] += 1
    return crowded


@kernel(allocates=False)
def believe(q: Queue, terms: Terms, now: float) -> bool:
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


@kernel(allocates=False)
def pass_once(q: Queue, terms: Terms, now: float) -> None:
    """Start what fits; the first few that do not fit are promised a start, until the end of the pass."""
    meta, s, p = q.meta, q.nodes, q.promises
    pr.count_free(s, p)
    chosen = laid = stays = 0
    for at in range(meta[WAITING]):
        job, starts = q.waiting[at], False
        if at < terms.tested and allowed(q, job):
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
    meta[WAITING] = stays
    for at in range(laid):
        if p.at[p.chosen[at]] != pr.NO_PROMISE:
            pr.lay(s, p, p.chosen[at], -1)
            pr.release(p, p.chosen[at])


@kernel(allocates=False)
def promise_once(q: Queue, terms: Terms, job: int, now: float) -> None:
    """Promise a job its first possible start, if that is near enough."""
    s, p = q.nodes, q.promises
    allowed(q, job)
    start_s = pr.picks_soonest(s, p, job, now, np.inf, terms.placement, terms.seed)
    if start_s < np.inf and start_s <= now + terms.window_s:
        pr.promise(s, p, job, start_s)


@kernel(allocates=False)
def lay_out_again(q: Queue, terms: Terms, now: float) -> None:
    """Where others have what was promised, lay promises down in order; those that no longer fit are made anew."""
    s, p = q.nodes, q.promises
    for at in range(q.meta[WAITING]):
        if p.at[q.waiting[at]] != pr.NO_PROMISE:
            pr.lay(s, p, q.waiting[at], -1)
    for at in range(q.meta[WAITING]):
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


@kernel(allocates=False)
def lapse_for_limits(q: Queue, job: int) -> bool:
    """Keep nothing for a job that a limit keeps waiting; whether limits allow it to run."""
    s, p = q.nodes, q.promises
    may = allowed(q, job)
    if p.at[job] != pr.NO_PROMISE and p.closed[s.kind[job]]:
        pr.gives(s, p, job)
        pr.lay(s, p, job, -1)
        pr.release(p, job)
    return may


@kernel(allocates=False)
def pass_kept(q: Queue, terms: Terms, now: float, crowded: bool) -> None:
    """Move promises forward where GPUs have become free, make those of new jobs, and start whose time has come."""
    meta, s, p = q.meta, q.nodes, q.promises
    for at in range(meta[WAITING]):
        crowded |= pr.NO_PROMISE < p.at[q.waiting[at]] < now
        lapse_for_limits(q, q.waiting[at])
    if crowded:
        lay_out_again(q, terms, now)
    few = terms.tested < meta[WAITING] or meta[MISSED] > 0
    meta[MISSED] = terms.tested < meta[WAITING]
    for pool in range(len(p.given)):
        p.raised[pool], p.given[pool] = p.given[pool], 0
    stays, wake_s = 0, np.inf
    for at in range(meta[WAITING]):
        job = q.waiting[at]
        may, start_s = lapse_for_limits(q, job), np.inf
        had_s = p.at[job]
        if may and had_s == pr.NO_PROMISE:
            start_s = pr.picks_soonest(s, p, job, now, np.inf, terms.placement, terms.seed)
            if now < start_s < np.inf:
                pr.promise(s, p, job, start_s)
        elif may and had_s > now and not few and not pr.may_move(s, p, job):
            start_s = had_s
        elif may:
            start_s = had_s
            kind = s.kind[job]
            pr.lay(s, p, job, -1)
            if had_s > now and at < terms.tested:
                start_s = pr.picks_soonest(s, p, job, now, had_s, terms.placement, terms.seed)
            elif had_s > now and pr.picks_now(s, p, job, now, terms.placement, terms.seed):
                start_s = now
            if start_s < had_s:
                forward = s.kind[job]
                s.kind[job] = kind
                pr.gives(s, p, job)
                s.kind[job] = forward
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
    meta[WAITING] = stays
    q.clock[WAKE_S] = wake_s


@kernel(allocates=False)
def put_somewhere(q: Queue, terms: Terms, job: int, now: float) -> bool:
    """Whether a running job has a place now, which it then has."""
    s, p = q.nodes, q.promises
    kind = p.asks[job]
    while kind >= 0:
        p.closed[kind] = 0
        kind = p.other[kind]
    if pr.picks_now(s, p, job, now, terms.placement, terms.seed):
        for at in range(p.meta[pr.PICKED]):
            npl.take_seat(s, job, p.pick_unit[at], p.pick_gpus[at])
        return True
    return False


@kernel(allocates=False)
def set_state(
    q: Queue,
    terms: Terms,
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
        are left out. Where it is left with none it is put on the nodes on which it would start now; if there are none,
        too, it runs without. Jobs beyond the number of GPUs are passed over.
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
        settle(q.ranks, owner, now, terms.decay_per_s)
        q.ranks.usage_gpus[owner] = 0.0
    for place in range(PLACES):
        meta[place] = 0
    while meta[ARRIVED] < len(q.submit) and q.submit[meta[ARRIVED]] <= now:
        meta[ARRIVED] += 1
    while meta[PASSED] < len(q.marks) and q.marks[meta[PASSED]] <= now:
        meta[PASSED] += 1
    q.clock[RANKED_S], q.clock[WAKE_S] = -np.inf, np.inf
    most = len(s.runs) - 1
    homeless = max(len(running) - most, 0)
    for at in range(min(len(running), most)):
        job = running[at]
        s.seat_first[job], s.seat_count[job] = s.meta[npl.SEATS], 0
        wide = seat_first[at + 1] - seat_first[at]
        for seat in range(seat_first[at], seat_first[at + 1]):
            node = seat_node[seat]
            gpus = seat_gpus[seat] if seat_gpus[seat] > 0 else npl.gpus_on(s, job, node, wide)
            if npl.may_use(s, job, node) and 0 < gpus <= s.free[node]:
                npl.take_seat(s, job, node, gpus)
        if s.seat_count[job] == 0 and not put_somewhere(q, terms, job, now):
            homeless += 1
        npl.enter(s, job, start_s[at] + s.request[job])
        p.belief[job] = start_s[at] + s.request[job]
        pr.occupy(s, p, job, -np.inf, p.belief[job], 1)
        q.first_start[job], q.end[job] = start_s[at], -1.0
        count_in(q.limits, job, s.kind[job], q.gpus[job], 1)
        charge(q.ranks, job, q.gpus[job], now, terms.decay_per_s)
        end = max(start_s[at] + q.work[job], now)
        meta[RUNNING] = push_least(q.ending, q.end_key, meta[RUNNING], job, end)
    for at in range(len(waiting)):
        q.first_start[waiting[at]] = q.end[waiting[at]] = -1.0
        rank(q, waiting[at], now, terms)
        insert(q, waiting[at])
    return homeless
