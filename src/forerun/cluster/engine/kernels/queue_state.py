"""A queue of rigid jobs on named nodes: who waits, who runs, and what every rule by which jobs start does with them."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.kernels import linked_profile as lp
from forerun.cluster.engine.kernels import node_plan as npl
from forerun.cluster.engine.kernels import node_promises as pr
from forerun.cluster.engine.kernels.arrays import BOOL, F64, I64
from forerun.cluster.engine.kernels.heap import push_least, remove_least
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
COMING: Final = 13  # jobs that come at another instant than their submission
FAILED: Final = 14  # failures of nodes that have happened
PLACES: Final = 15

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
BEGAN: Final = 8  # a job that was there before may start from now on


class Limits(NamedTuple):
    """Limits of what groups of jobs have running.

    Parameters
    ----------
    type_of : int64[classes], the GPU type of each class.
    first, groups : the groups of each job on GPUs of a type: `groups[first[type, job]:first[type, job + 1]]`.
    most_gpus, most_jobs : of each group at once.
    own_gpus, pool, pool_gpus : GPUs of each group beyond which it takes from a pool (-1: none), and those of the pools.
    gpus, jobs, pooled : that each has.
    asks : the GPUs by which each job is admitted; it may have more.
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
    asks: I64


class Ranks(NamedTuple):
    """What the order of waiting jobs is made of; larger priorities go first.

    Parameters
    ----------
    tier, fixed : of each entry of a job, what comes before its priority, and what of this does not change.
    asked : of each entry, when its job was submitted: of the same priority who asked first goes first.
    since : when each job begins to grow older.
    owner : whose GPU time each job is charged to.
    fair : what each owner's share adds to the priority of its jobs.
    usage, usage_gpus, usage_s : GPU seconds of each owner, decayed to an instant, its GPUs since, and this instant.
    priority : of each entry as of its last count.
    """

    tier: I64
    fixed: F64
    asked: F64
    since: F64
    owner: I64
    fair: F64
    usage: F64
    usage_gpus: F64
    usage_s: F64
    priority: F64


#: what `Restarts.place` has beside numbers of jobs
OWN: Final = -1
AS_IT_IS: Final = -2


class Restarts(NamedTuple):
    """Jobs that come after the end of others, and those that come again.

    Parameters
    ----------
    follower, sibling : the first job that comes after the end of each, and the next one after the end of the same; -1: none.
    delay_s : how long after it each comes; negative: it comes at its submission.
    place : of jobs that come after others: the job whose place in a queue by submission each takes, `OWN`: that of the
        instant at which it comes; `AS_IT_IS`: the queue has another order.
    came_s : when each job came first; -1: it has not.
    done_s : work that each had done, and saved, before it runs now.
    lost_gpu_s : GPU-seconds of work of each that are lost.
    stops : how often each was stopped.
    coming, coming_s : heap of jobs that come at an instant other than their submission.
    fails_s, again_s : when nodes fail, ascending, and how long after it what ran on them comes again.
    fails_nodes : int64[failures, words], these nodes.
    """

    follower: I64
    sibling: I64
    delay_s: F64
    place: I64
    came_s: F64
    done_s: F64
    lost_gpu_s: F64
    stops: I64
    coming: I64
    coming_s: F64
    fails_s: F64
    again_s: F64
    fails_nodes: I64


class Preemption(NamedTuple):
    """Which jobs may stop others. Columns have one element a job; empty: no job stops another.

    Parameters
    ----------
    number : of each job, by which the oldest goes first.
    group : of each job, by its partitions or QOS.
    turn : int64[groups, groups], which jobs those of a group stop first, least first; negative: they stop none of these.
    grace_s, again_s : by group, how long its jobs run on that are to be stopped, and after how long they come again;
        infinite: never.
    exempt_s : float64[1], no job is stopped before it has run so long.
    due_s, due_for : when a running job is stopped whose grace has begun, and for whom; infinite: it is not.
    next_s : float64[1], the first of these instants.
    served_s : the last decision in which others were to be stopped for each.
    those : int64[GPUs], scratch: jobs that another may stop, in their order.
    kept : int64[nodes], scratch: GPUs that jobs have been cleared in this decision.
    """

    number: I64
    group: I64
    turn: I64
    grace_s: F64
    again_s: F64
    exempt_s: F64
    due_s: F64
    due_for: I64
    next_s: F64
    served_s: F64
    those: I64
    kept: I64


class Queue(NamedTuple):
    """A run in progress. Columns have one element a job; times in seconds; -1 is "never".

    Parameters
    ----------
    submit, gpus : of the jobs, in order of submission.
    work : seconds for which each runs when it starts.
    begins : whether each is there before it comes, and waits for its begin time: Slurm sees at the next minute that it came.
    leaves : when each leaves the queue if it has not started; infinite: it does not. leavers: those that do, in order.
    restarts, preemption : who comes after others, and again, and who stops whom.
    first_start, end : since when each runs, or ran, unless it was stopped, and when it ended.
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
    window_gpus : int64[windows, units], the GPUs that it takes of each.
    failures : windows whose end is not known before it comes, by end.
    marks : the instants of maintenance at which there is a decision, ascending.
    clock, meta : instants and counters, see above.
    log_row, log_gpus, event_time, event_pending, event_first : as of the priority queue.
    log_back : by change, when a job that is stopped comes again; nan: it is not.
    log_seats : by change, the first entry of the next two.
    log_node, log_share : the nodes of jobs that start, and their GPUs there.
    """

    submit: F64
    work: F64
    gpus: I64
    begins: BOOL
    leaves: F64
    leavers: I64
    restarts: Restarts
    preemption: Preemption
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
    log_back: F64
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
    restart_s : for which a job that was stopped does not work when it runs again.
    checkpoint_s : of work between checkpoints, up to the last of which it stays done; 0: there are none.
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
    restart_s: float = 0.0
    checkpoint_s: float = 0.0


@kernel(inline=True)
def log(q: Queue, job: int, gpus: int) -> None:
    """Note a change."""
    q.log_row[q.meta[LOGGED]], q.log_gpus[q.meta[LOGGED]] = job, gpus
    q.log_back[q.meta[LOGGED]], q.log_seats[q.meta[LOGGED]] = np.nan, q.meta[SEATED]
    q.meta[LOGGED] += 1


@kernel(allocates=False, internal=True)
def fits(limits: Limits, job: int, kind: int, gpus: int) -> bool:
    """Whether limits allow one more job on GPUs of a class."""
    gpu_type, gpus = limits.type_of[kind], min(gpus, limits.asks[job])
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
    if seconds <= 0.0:
        return
    ranks.usage_s[owner] = now
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
    if ranks.asked[entry] != ranks.asked[other]:
        return bool(ranks.asked[entry] < ranks.asked[other])
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
def take_out(q: Queue, job: int) -> bool:
    """Take all entries of a job out of the queue; whether there were any."""
    stays, count = 0, q.meta[WAITING]
    for at in range(count):
        if q.entry_job[q.waiting[at]] != job:
            q.waiting[stays] = q.waiting[at]
            stays += 1
    q.meta[WAITING] = stays
    return bool(stays < count)


@kernel(allocates=False, internal=True)
def drop(q: Queue, terms: Terms, job: int) -> None:
    """A job leaves the queue, if it waits."""
    s, p = q.nodes, q.promises
    if not take_out(q, job):
        return
    q.meta[QUEUED] -= 1
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
        started = q.first_start[job] >= 0.0 or q.restarts.stops[job] > 0
        if not started and q.leaves[job] > q.submit[job]:
            return float(q.leaves[job])
        meta[LEFT] += 1
    return np.inf


@kernel(allocates=False, internal=True)
def next_to_come(q: Queue) -> float:
    """When the next job comes by what is known now; infinite: none does."""
    meta, r = q.meta, q.restarts
    while len(r.follower) > 0 and meta[ARRIVED] < len(q.submit) and r.delay_s[meta[ARRIVED]] >= 0.0:
        meta[ARRIVED] += 1
    at_s = q.submit[meta[ARRIVED]] if meta[ARRIVED] < len(q.submit) else np.inf
    return float(min(at_s, r.coming_s[0]) if meta[COMING] > 0 else at_s)


@kernel(allocates=False, internal=True)
def come(q: Queue, job: int, now: float, terms: Terms) -> bool:
    """A job comes, or comes again; whether it joins the queue: it may have left before."""
    r = q.restarts
    if q.leaves[job] <= now and r.stops[job] == 0:
        return False
    first = r.came_s[job] < 0.0
    if first:
        r.came_s[job] = now
    if len(r.follower) > 0 and r.delay_s[job] >= 0.0 and first and r.place[job] != AS_IT_IS:
        fixed = q.ranks.fixed
        for entry in range(q.entry_first[job], q.entry_first[job + 1]):
            fixed[entry] = -now if r.place[job] == OWN else fixed[q.entry_first[r.place[job]]]
    if not first or (len(r.follower) > 0 and r.delay_s[job] >= 0.0):
        q.ranks.since[job] = now
    if not first and terms.order == MULTIFACTOR:  # who comes again goes behind its equals
        for entry in range(q.entry_first[job], q.entry_first[job + 1]):
            q.ranks.asked[entry] = now
    queue_up(q, job, now, terms)
    return True


@kernel(allocates=False, internal=True)
def done_with(q: Queue, job: int, now: float) -> None:
    """A job is done with, whether it ended or left; those that wait for its end come."""
    r = q.restarts
    if len(r.follower) == 0:
        return
    follower = r.follower[job]
    while follower >= 0:
        q.meta[COMING] = push_least(r.coming, r.coming_s, q.meta[COMING], follower, now + r.delay_s[follower])
        follower = r.sibling[follower]


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
    late_s = terms.restart_s if q.restarts.stops[job] > 0 else 0.0
    meta[RUNNING] = push_least(q.ending, q.end_key, meta[RUNNING], job, now + late_s + q.work[job])
    log(q, job, q.gpus[job])
    for at in range(s.seat_first[job], s.seat_first[job] + s.seat_count[job]):
        q.log_node[meta[SEATED]], q.log_share[meta[SEATED]] = s.seat_node[at], s.seat_gpus[at]
        meta[SEATED] += 1


@kernel(allocates=False, internal=True)
def leave(q: Queue, terms: Terms, job: int, now: float) -> None:
    """A running job ends."""
    q.end[job] = now
    give_up(q, terms, job, now)
    done_with(q, job, now)


@kernel(allocates=False, internal=True)
def give_up(q: Queue, terms: Terms, job: int, now: float) -> None:
    """A job that runs no more lets its GPUs go."""
    s, p = q.nodes, q.promises
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


@kernel(allocates=False)
def stop(q: Queue, terms: Terms, job: int, now: float, again_s: float) -> None:
    """A running job loses its GPUs and its work since its last checkpoint, and comes again after a while.

    again_s: after how long. Infinite: never; then nothing of its work stays.
    """
    r, meta = q.restarts, q.meta
    late_s = terms.restart_s if r.stops[job] > 0 else 0.0
    done_s = r.done_s[job] + max(0.0, now - q.first_start[job] - late_s)
    saves = terms.checkpoint_s > 0.0 and again_s < np.inf
    saved_s = np.floor(done_s / terms.checkpoint_s) * terms.checkpoint_s if saves else 0.0
    r.lost_gpu_s[job] += (done_s - saved_s) * q.gpus[job]
    q.work[job] += r.done_s[job] - saved_s
    r.done_s[job] = saved_s
    r.stops[job] += 1
    meta[RUNNING] = remove_least(q.ending, q.end_key, meta[RUNNING], job)
    give_up(q, terms, job, now)
    q.log_back[meta[LOGGED] - 1] = now + again_s
    q.first_start[job] = -1.0
    if len(q.preemption.due_s) > 0:
        q.preemption.due_s[job] = np.inf
    take_out(q, job)  # its other entries
    if again_s < np.inf:
        meta[COMING] = push_least(r.coming, r.coming_s, meta[COMING], job, now + again_s)
    else:
        done_with(q, job, now)


@kernel(allocates=False, internal=True)
def fail_nodes(q: Queue, terms: Terms, failure: int, now: float) -> bool:
    """Nodes fail: what runs on them is stopped; whether anything is."""
    r, at, some = q.restarts, 0, False
    while at < q.meta[RUNNING]:
        job = q.ending[at]
        first, hit = q.nodes.seat_first[job], False
        for seat in range(first, first + q.nodes.seat_count[job]):
            node = q.nodes.seat_node[seat]
            hit |= (r.fails_nodes[failure, node >> 6] >> (node & 63)) & 1 == 1
        if hit:
            stop(q, terms, job, now, r.again_s[failure])
            at, some = 0, True
        else:
            at += 1
    return some
