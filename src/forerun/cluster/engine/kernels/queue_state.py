"""A queue of rigid jobs on named nodes: who waits, who runs, and what every rule by which jobs start does with them."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.kernels import linked_profile as lp
from forerun.cluster.engine.kernels import node_plan as npl
from forerun.cluster.engine.kernels import node_promises as pr
from forerun.cluster.engine.kernels.arrays import BOOL, F64, I64
from forerun.cluster.engine.kernels.heap import push_least
from forerun.core.kernels.jit import kernel

#: places in `Queue.meta`; the first six are those of the priority queue
ARRIVED: Final = 0
WAITING: Final = 1  # entries that wait
RUNNING: Final = 2
LOGGED: Final = 4
EVENTS: Final = 5
SEATED: Final = 6  # entries of `log_node`
PASSED: Final = 7  # instants of `marks`
QUEUED: Final = 8  # jobs that wait
ANNOUNCED: Final = 9  # windows that are in the profile
MISSED: Final = 10  # whether jobs were not looked at in the last pass
RETURNED: Final = 11  # of `failures`, those that are over
LEFT: Final = 12  # of `leavers`, those whose instant has come
PLACES: Final = 13

#: rules by which jobs start: in order, until one does not fit; those that fit, beside promises for this decision, or beside
#: promises that are kept, also where all GPUs are alike; in order, and by Slurm's plan
IN_ORDER: Final = 0
ONCE: Final = 1
KEPT: Final = 2
COUNTED: Final = 3
PLAN: Final = 4

#: orders of the queue: any that does not change; by WFP3; by priorities that are whole numbers
FIXED: Final = 0
WFP3: Final = 2
MULTIFACTOR: Final = 3

#: places in `Queue.clock`
RANKED_S: Final = 0  # when priorities were counted last
WAKE_S: Final = 1  # the next decision without news: a plan, or a promised start
PLANNED_S: Final = 2  # of the last plan
NEWS: Final = 3  # not an instant: whether there was news since the last plan
TRIED_S: Final = 4  # when jobs started in their order last
TRY_S: Final = 5  # when they will
FORGET: Final = 6  # from here on: when ended jobs are forgotten, ascending; one an instant
CLOCK: Final = FORGET + 8

#: what has happened
CAME: Final = 1
ENDED: Final = 2
RANKED: Final = 4


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


class Ranks(NamedTuple):
    """What the order of waiting jobs is made of; larger priorities go first.

    Parameters
    ----------
    tier, fixed : of each entry of a job, what comes before its priority, and what of this does not change.
    since : when each job begins to grow older.
    owner : whose GPU time each job is charged to.
    fair : what each owner's share adds to the priority of its jobs.
    usage, usage_gpus, usage_s : GPU seconds of each owner, decayed to an instant, its GPUs since, and this instant.
    priority : of each entry as of its last count.
    """

    tier: I64
    fixed: F64
    since: F64
    owner: I64
    fair: F64
    usage: F64
    usage_gpus: F64
    usage_s: F64
    priority: F64


class Queue(NamedTuple):
    """A run in progress. Columns have one element a job; times in seconds; -1 is "never".

    Parameters
    ----------
    submit, work, gpus : of the jobs, in order of submission.
    leaves : when each leaves the queue if it has not started; infinite: it does not. leavers: those that do, in order.
    first_start, end : what becomes of each.
    first_promise : the first start that each was promised.
    entry_first : int64[jobs + 1], where the entries of each job begin: one for each of its partitions where the rule is
        `PLAN`, else one.
    entry_job, entry_kind, entry_wide, entry_each, line : by entry, its job, what it has there of the columns of `nodes`,
        and the number of the partition.
    nodes, promises, limits, ranks : where jobs run, what keeps them from it, and their order.
    linked : the profile by which promises are kept where all GPUs are alike.
    ending, end_key : heap of running jobs by their end.
    waiting : the entries that wait, in their order, and maybe some of jobs that have started.
    held_up : by line, scratch: whether a job of it does not fit.
    line_nodes : int64[lines, words], the nodes of each line.
    shut : int64[words], scratch: the nodes of lines in which a job does not fit.
    window_from, window_to, window_announced, window_nodes : maintenance, by announcement.
    window_until : until when schedulers believe that it lasts.
    window_gpus : int64[windows, units and groups], the GPUs that it takes of each.
    failures : windows whose end is not known before it comes, by end.
    marks : the instants of maintenance at which there is a decision, ascending.
    clock, meta : instants and counters, see above.
    log_row, log_gpus, event_time, event_pending, event_first : as of the priority queue.
    log_seats : by change, the first entry of the next two.
    log_node, log_share : the nodes of jobs that start, and their GPUs there.
    """

    submit: F64
    work: F64
    gpus: I64
    leaves: F64
    leavers: I64
    first_start: F64
    end: F64
    first_promise: F64
    entry_first: I64
    entry_job: I64
    entry_kind: I64
    entry_wide: I64
    entry_each: I64
    line: I64
    nodes: npl.Nodes
    promises: pr.Promises
    linked: lp.Linked
    limits: Limits
    ranks: Ranks
    ending: I64
    end_key: F64
    waiting: I64
    held_up: BOOL
    line_nodes: I64
    shut: I64
    window_from: F64
    window_to: F64
    window_announced: F64
    window_until: F64
    window_nodes: I64
    window_gpus: I64
    failures: I64
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
    """What a run goes by. For each mixture of whole numbers and others kernels are compiled anew.

    Parameters
    ----------
    rule, order : of the numbers above.
    tested : how many waiting jobs a decision looks at; where promises are kept, how many may move forward.
    window_s : how far away a start may be that is planned, or promised for a decision.
    promises : how many of the first jobs that do not fit are promised a start for a decision.
    grace_s : how much longer a job is believed to run that has outlived its request.
    interval_s : between plans at least; 0: a plan at every decision. Infinite: none is made.
    latency_s : after an event, until the scheduler acts, at a whole second; 0: it acts at once, with all that happens then.
    resolution_s : of the plan.
    placement, seed : which nodes jobs take (see `placement`).
    age_per_s, most_age : what each second of waiting adds to a priority, up to how much.
    decay_per_s : of usage.
    count_s : between two counts of priorities; 0: they do not change.
    """

    rule: int
    order: int = FIXED
    tested: int = 1 << 40
    window_s: float = np.inf
    promises: int = 0
    grace_s: float = 60.0
    interval_s: float = np.inf
    latency_s: float = 0.0
    resolution_s: float = 0.0
    placement: int = 0
    seed: int = 0
    age_per_s: float = 0.0
    most_age: float = 0.0
    decay_per_s: float = 0.0
    count_s: float = 0.0


@kernel(inline=True)
def log(q: Queue, job: int, gpus: int) -> None:
    """Note a change."""
    q.log_row[q.meta[LOGGED]], q.log_gpus[q.meta[LOGGED]] = job, gpus
    q.log_seats[q.meta[LOGGED]] = q.meta[SEATED]
    q.meta[LOGGED] += 1


@kernel(allocates=False, internal=True)
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


@kernel(allocates=False, internal=True)
def count_in(limits: Limits, job: int, kind: int, gpus: int, jobs: int) -> None:
    """One job more or less runs on GPUs of a class."""
    gpu_type = limits.type_of[kind]
    for at in range(limits.first[gpu_type, job], limits.first[gpu_type, job + 1]):
        group = limits.groups[at]
        if limits.pool[group] >= 0:
            limits.pooled[limits.pool[group]] += from_pool(limits, group, gpus)
        limits.gpus[group] += gpus
        limits.jobs[group] += jobs


@kernel(inline=True)
def charge(ranks: Ranks, job: int, gpus: int, now: float, decay_per_s: float) -> None:
    """An owner has more or fewer GPUs from now on; until now it is charged for those that it had."""
    owner = ranks.owner[job]
    settle(ranks, owner, now, decay_per_s)
    ranks.usage_gpus[owner] += gpus


@kernel(allocates=False)
def settle(ranks: Ranks, owner: int, now: float, decay_per_s: float) -> None:
    """Charge an owner until now: the integral in closed form."""
    seconds = now - ranks.usage_s[owner]
    ranks.usage_s[owner] = now
    if seconds <= 0.0:
        return
    if decay_per_s == 0.0:
        ranks.usage[owner] += ranks.usage_gpus[owner] * seconds
        return
    lost = -np.expm1(-decay_per_s * seconds)
    ranks.usage[owner] += ranks.usage_gpus[owner] * (lost / decay_per_s) - ranks.usage[owner] * lost


@kernel(allocates=False, internal=True)
def rank(q: Queue, entry: int, now: float, terms: Terms) -> None:
    """Count the priority of an entry."""
    ranks, job = q.ranks, q.entry_job[entry]
    if terms.order == WFP3:
        waits = (now - ranks.since[job]) / q.nodes.request[job]
        ranks.priority[entry] = waits * waits * waits * q.gpus[job]
    elif terms.order == MULTIFACTOR:
        age = min(max(now - ranks.since[job], 0.0) * terms.age_per_s, terms.most_age)
        total = ranks.fixed[entry] + age + ranks.fair[ranks.owner[job]]
        ranks.priority[entry] = np.floor(np.round(total * 1e6) / 1e6)
    else:
        ranks.priority[entry] = ranks.fixed[entry]


@kernel(inline=True)
def before(ranks: Ranks, entry: int, other: int) -> bool:
    """Whether an entry goes before another."""
    if ranks.tier[entry] != ranks.tier[other]:
        return bool(ranks.tier[entry] > ranks.tier[other])
    if ranks.priority[entry] != ranks.priority[other]:
        return bool(ranks.priority[entry] > ranks.priority[other])
    return entry < other


@kernel(allocates=False)
def queue_up(q: Queue, job: int, now: float, terms: Terms) -> None:
    """A job joins the queue, once for each of its entries, each at its place."""
    q.meta[QUEUED] += 1
    for entry in range(q.entry_first[job], q.entry_first[job + 1]):
        rank(q, entry, now, terms)
        low, high = 0, q.meta[WAITING]
        while low < high:
            middle = (low + high) >> 1
            if before(q.ranks, entry, q.waiting[middle]):
                high = middle
            else:
                low = middle + 1
        for at in range(q.meta[WAITING], low, -1):
            q.waiting[at] = q.waiting[at - 1]
        q.waiting[low] = entry
        q.meta[WAITING] += 1


@kernel(allocates=False, internal=True)
def drop(q: Queue, terms: Terms, job: int) -> None:
    """A job that waits leaves the queue."""
    s, p, stays = q.nodes, q.promises, 0
    q.meta[QUEUED] -= 1
    for at in range(q.meta[WAITING]):
        if q.entry_job[q.waiting[at]] != job:
            q.waiting[stays] = q.waiting[at]
            stays += 1
    q.meta[WAITING] = stays
    if p.at[job] == pr.NO_PROMISE or p.at[job] == np.inf:
        return
    if terms.rule == COUNTED:
        lp.lapse(q.linked, job, q.gpus[job])
    else:
        pr.gives(s, p, job)
        pr.lay(s, p, job, -1)
        pr.release(p, job)


@kernel(allocates=False, internal=True)
def next_to_leave(q: Queue) -> float:
    """When the next job that waits leaves; infinite: none does. Those that have started, or never came, are passed over."""
    meta = q.meta
    while meta[LEFT] < len(q.leavers):
        job = q.leavers[meta[LEFT]]
        if q.first_start[job] < 0.0 and q.leaves[job] > q.submit[job]:
            return float(q.leaves[job])
        meta[LEFT] += 1
    return np.inf


@kernel(allocates=False, internal=True)
def count_anew(q: Queue, now: float, terms: Terms) -> None:
    """Count all priorities and put the queue in order; it hardly changes from one count to the next."""
    q.clock[RANKED_S] = now
    for at in range(q.meta[WAITING]):
        rank(q, q.waiting[at], now, terms)
    for at in range(1, q.meta[WAITING]):
        entry, to = q.waiting[at], at
        while to > 0 and before(q.ranks, entry, q.waiting[to - 1]):
            q.waiting[to] = q.waiting[to - 1]
            to -= 1
        q.waiting[to] = entry


@kernel(allocates=False, internal=True)
def make_space(q: Queue) -> None:
    """Let there be entries for one more job's nodes."""
    s = q.nodes
    if s.meta[npl.SEATS] + len(s.size) > len(s.seat_node):
        npl.compact(s)


@kernel(allocates=False, internal=True)
def note_start(q: Queue, terms: Terms, job: int, now: float) -> None:
    """A job runs from now on, on the nodes that it has."""
    s, meta = q.nodes, q.meta
    npl.enter(s, job, now + s.request[job])
    s.starts[s.meta[npl.STARTS]] = job
    s.meta[npl.STARTS] += 1
    meta[QUEUED] -= 1
    q.first_start[job] = now
    count_in(q.limits, job, s.kind[job], q.gpus[job], 1)
    charge(q.ranks, job, q.gpus[job], now, terms.decay_per_s)
    meta[RUNNING] = push_least(q.ending, q.end_key, meta[RUNNING], job, now + q.work[job])
    log(q, job, q.gpus[job])
    for at in range(s.seat_first[job], s.seat_first[job] + s.seat_count[job]):
        q.log_node[meta[SEATED]], q.log_share[meta[SEATED]] = s.seat_node[at], s.seat_gpus[at]
        meta[SEATED] += 1


@kernel(allocates=False, internal=True)
def leave(q: Queue, terms: Terms, job: int, now: float) -> None:
    """A running job ends."""
    s, p = q.nodes, q.promises
    q.end[job] = now
    if terms.rule == COUNTED and p.belief[job] > now:
        lp.forget(q.linked, now)
        lp.give_back(q.linked, q.linked.link[lp.HEAD], q.linked.ends[job], q.gpus[job])
        lp.release(q.linked, q.linked.ends[job])
    elif terms.rule <= KEPT and p.belief[job] > now:
        pr.forget(s, p, job, now)
        pr.occupy(s, p, job, now, p.belief[job], -1)
        pr.gives(s, p, job)
    npl.take_back(s, job)
    count_in(q.limits, job, s.kind[job], -q.gpus[job], -1)
    charge(q.ranks, job, -q.gpus[job], now, terms.decay_per_s)
    log(q, job, 0)
