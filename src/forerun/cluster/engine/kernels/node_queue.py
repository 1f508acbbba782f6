"""A queue on named nodes, whole runs at a time, or from any state on (`set_state`).

As Slurm's main scheduler has it, at every arrival and end jobs start in their order until the first that does not fit;
behind it others of the same partition wait. At most every `interval_s`, after news, a plan on named nodes lets others
start, too (see `node_plan`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.kernels import node_plan as npl
from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.cluster.engine.kernels.heap import pop_least, push_least
from forerun.core.kernels.jit import kernel

#: places in `Queue.meta`; the first six are those of the priority queue
ARRIVED: Final = 0
WAITING: Final = 1
RUNNING: Final = 2
LOGGED: Final = 4
EVENTS: Final = 5
SEATED: Final = 6  # entries of `log_node`
PASSED: Final = 7  # instants of `marks`
PLACES: Final = 8

#: a queue without news is planned again at the next minute
MINUTE_S: Final = 60.0

#: places in `Queue.clock`
PLANNED_S: Final = 0  # of the last plan
PLAN_S: Final = 1  # of the next one
RANKED_S: Final = 2  # when priorities were counted last
NEWS: Final = 3  # not an instant: whether there was news since the last plan


class Limits(NamedTuple):
    """Limits of what groups of jobs have running.

    Parameters
    ----------
    first, groups : the groups of each job: `groups[first[job]:first[job + 1]]`.
    most_gpus, most_jobs : of each group at once.
    gpus, jobs : that it has.
    """

    first: I64
    groups: I64
    most_gpus: I64
    most_jobs: I64
    gpus: I64
    jobs: I64


class Ranks(NamedTuple):
    """What the order of waiting jobs is made of; larger priorities go first.

    Parameters
    ----------
    tier, fixed : of each job, what comes before its priority, and what of this does not change.
    since : when each begins to grow older.
    owner : whose GPU time each job is charged to.
    fair : what each owner's share adds to the priority of its jobs.
    usage, usage_gpus, usage_s : GPU seconds of each owner, decayed to an instant, its GPUs since, and this instant.
    priority : of each job as of its last count.
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
    submit, work, gpus, line : of the jobs, in order of submission; line: a job that does not fit holds up its own.
    first_start, end : what becomes of each.
    nodes, limits, ranks : where jobs run, what keeps them from it, and their order.
    ending, end_key : heap of running jobs by their end.
    waiting : the jobs that wait, in their order.
    held_up : by line, the decision at which it was held up last.
    window_from, window_to, window_announced, window_nodes : maintenance.
    marks : the instants at which it is announced or ends, ascending.
    clock, meta : instants and counters, see above.
    log_row, log_gpus, event_time, event_pending, event_first : as of the priority queue.
    log_seats, log_node : by change, the first entry of `log_node`; the nodes of jobs that start.
    """

    submit: F64
    work: F64
    gpus: I64
    line: I64
    first_start: F64
    end: F64
    nodes: npl.Nodes
    limits: Limits
    ranks: Ranks
    ending: I64
    end_key: F64
    waiting: I64
    held_up: F64
    window_from: F64
    window_to: F64
    window_announced: F64
    window_nodes: I64
    marks: F64
    clock: F64
    meta: I64
    log_row: I64
    log_gpus: I64
    log_seats: I64
    log_node: I64
    event_time: F64
    event_pending: I64
    event_first: I64


class Terms(NamedTuple):
    """What a run goes by.

    Parameters
    ----------
    interval_s : between plans at least; 0: a plan at every decision. Infinite: none is made.
    tested : how many waiting jobs a plan looks at.
    resolution_s, window_s : of the plan.
    age_per_s, most_age : what each second of waiting adds to a priority, up to how much.
    decay_per_s : of usage.
    count_s : between two counts of priorities; 0: they do not change.
    """

    interval_s: float
    tested: int
    resolution_s: float
    window_s: float
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
            now = min(now, q.clock[PLAN_S])
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
            q.end[job] = now
            npl.take_back(q.nodes, job)
            count_in(q.limits, job, -q.gpus[job], -1)
            charge(q.ranks, job, -q.gpus[job], now, terms.decay_per_s)
            log(q, job, 0)
        while meta[ARRIVED] < jobs and q.submit[meta[ARRIVED]] <= now:
            job, news = meta[ARRIVED], True
            meta[ARRIVED] += 1
            rank(q.ranks, job, now, terms)
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
def fits(limits: Limits, job: int, gpus: int) -> bool:
    """Whether limits allow one more job."""
    for at in range(limits.first[job], limits.first[job + 1]):
        group = limits.groups[at]
        if limits.gpus[group] + gpus > limits.most_gpus[group]:
            return False
        if limits.jobs[group] >= limits.most_jobs[group]:
            return False
    return True


@kernel(inline=True)
def count_in(limits: Limits, job: int, gpus: int, jobs: int) -> None:
    """One job more or less runs."""
    for at in range(limits.first[job], limits.first[job + 1]):
        limits.gpus[limits.groups[at]] += gpus
        limits.jobs[limits.groups[at]] += jobs


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


@kernel(inline=True)
def rank(ranks: Ranks, job: int, now: float, terms: Terms) -> None:
    """Count a job's priority: a whole number."""
    age = min(max(now - ranks.since[job], 0.0) * terms.age_per_s, terms.most_age)
    total = ranks.fixed[job] + age + ranks.fair[ranks.owner[job]]
    ranks.priority[job] = np.floor(np.round(total * 1e6) / 1e6)


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
        rank(q.ranks, q.waiting[at], now, terms)
    for at in range(1, q.meta[WAITING]):
        job, to = q.waiting[at], at
        while to > 0 and before(q.ranks, job, q.waiting[to - 1]):
            q.waiting[to] = q.waiting[to - 1]
            to -= 1
        q.waiting[to] = job


@kernel(allocates=False)
def decide(q: Queue, terms: Terms, now: float, news: bool) -> None:
    """Start jobs in their order, and by a plan if it is time for one."""
    meta, s = q.meta, q.nodes
    s.meta[npl.STARTS] = 0
    due = q.clock[PLAN_S]
    if news:
        q.clock[NEWS] = 1.0
        soon = np.floor(now) + 1.0 if terms.interval_s > 0.0 else now
        due = min(due, max(q.clock[PLANNED_S] + terms.interval_s, soon))
    q.clock[PLAN_S] = np.inf
    stays = 0
    for at in range(meta[WAITING]):
        job = q.waiting[at]
        if news and q.held_up[q.line[job]] != now and fits(q.limits, job, q.gpus[job]):
            leave_open(q, now, now + s.request[job])
            if npl.starts_at_once(s, job):
                start(q, terms, job, now)
                continue
            q.held_up[q.line[job]] = now
        q.waiting[stays] = job
        stays += 1
    meta[WAITING] = stays
    if terms.interval_s == np.inf or not stays:
        return
    if due > now:
        q.clock[PLAN_S] = due
        return
    # jobs of which none can start are not planned: where several wait, one nearly always waits for another
    last = last_that_may(q, terms) if stays > 1 else 0
    plan(q, terms, now, last)
    again = s.meta[npl.AGAIN] > 0 or last < stays - 1
    if meta[WAITING] > 1 and not again:
        again = q.clock[NEWS] > 0.0
        q.clock[PLAN_S] = max(np.floor(now / MINUTE_S) * MINUTE_S + MINUTE_S + 1.0, now + terms.interval_s)
    if meta[WAITING] and again and terms.interval_s > 0.0:
        q.clock[PLAN_S] = now + terms.interval_s
    q.clock[PLANNED_S], q.clock[NEWS] = now, 0.0


@kernel(allocates=False)
def plan(q: Queue, terms: Terms, now: float, last: int) -> None:
    """Plan the waiting jobs up to a place in the queue, and start those whose turn is now."""
    meta, s = q.meta, q.nodes
    npl.begin_plan(s, now, terms.resolution_s, terms.window_s)
    for window in range(len(q.window_from)):
        if q.window_announced[window] <= now < q.window_to[window]:
            for pool in range(len(s.slots)):
                npl.keep_free(s, pool, q.window_from[window], q.window_to[window], q.window_nodes[window])
    stays = 0
    for at in range(meta[WAITING]):
        job = q.waiting[at]
        if at <= last and fits(q.limits, job, q.gpus[job]) and npl.plan_job(s, job, now, terms.resolution_s):
            start(q, terms, job, now)
            s.meta[npl.AGAIN] = 1
            continue
        q.waiting[stays] = job
        stays += 1
    meta[WAITING] = stays


@kernel(allocates=False)
def last_that_may(q: Queue, terms: Terms) -> int:
    """The place of the last job that a plan may start, by limits and free nodes; -1: there is none."""
    for at in range(min(q.meta[WAITING], terms.tested) - 1, -1, -1):
        job = q.waiting[at]
        if npl.may_start(q.nodes, job) and fits(q.limits, job, q.gpus[job]):
            return at
    return -1


@kernel(allocates=False)
def leave_open(q: Queue, from_s: float, to_s: float) -> None:
    """Let `usable` be the nodes that are in no maintenance between two instants, as far as it is announced."""
    usable = q.nodes.usable
    for word in range(len(usable)):
        usable[word] = -1
        for window in range(len(q.window_from)):
            if (
                q.window_announced[window] <= from_s
                and q.window_from[window] < to_s
                and q.window_to[window] > from_s
            ):
                usable[word] &= ~q.window_nodes[window, word]


@kernel(allocates=False)
def start(q: Queue, terms: Terms, job: int, now: float) -> None:
    """A job starts on the chosen nodes."""
    s, meta = q.nodes, q.meta
    if s.meta[npl.SEATS] + len(s.size) > len(s.seat_node):
        npl.compact(s)
    npl.give(s, job, now)
    q.first_start[job] = now
    count_in(q.limits, job, q.gpus[job], 1)
    charge(q.ranks, job, q.gpus[job], now, terms.decay_per_s)
    meta[RUNNING] = push_least(q.ending, q.end_key, meta[RUNNING], job, now + q.work[job])
    log(q, job, q.gpus[job])
    for at in range(s.seat_first[job], s.seat_first[job] + s.seat_count[job]):
        q.log_node[meta[SEATED]] = s.seat_node[at]
        meta[SEATED] += 1


@kernel(allocates=False)
def set_state(
    q: Queue,
    terms: Terms,
    now: float,
    running: I64,
    start_s: F64,
    seat_first: I64,
    seat_node: I64,
    waiting: I64,
) -> int:
    """Let these jobs run and these wait at an instant, whatever went before; how many have no nodes to run on.

    From here `decide` says whom the policy would start, and `advance` plays on: jobs come that are submitted after now, and
    running ones end as their `work` says. Promises of before bind nobody; usage stays as it is.

    Parameters
    ----------
    running : int64[count], the numbers of the jobs that run.
    start_s : float64[count], since when.
    seat_first, seat_node : the nodes of the job at a place of `running`: `seat_node[seat_first[at]:seat_first[at + 1]]`.
        Those that it may not use, or on which its GPUs are not free, are left out. Where it is left with none it is put
        on the nodes on which it would start now; if there are none, too, it runs without. Jobs beyond the number of
        GPUs are passed over.
    waiting : the jobs that wait, in any order.
    """
    s, meta = q.nodes, q.meta
    npl.clear_nodes(s)
    for group in range(len(q.limits.gpus)):
        q.limits.gpus[group] = q.limits.jobs[group] = 0
    for owner in range(len(q.ranks.usage_gpus)):
        settle(q.ranks, owner, now, terms.decay_per_s)
        q.ranks.usage_gpus[owner] = 0.0
    for place in range(PLACES):
        meta[place] = 0
    while meta[ARRIVED] < len(q.submit) and q.submit[meta[ARRIVED]] <= now:
        meta[ARRIVED] += 1
    while meta[PASSED] < len(q.marks) and q.marks[meta[PASSED]] <= now:
        meta[PASSED] += 1
    q.clock[PLANNED_S] = q.clock[RANKED_S] = -np.inf
    q.clock[PLAN_S], q.clock[NEWS] = np.inf, 0.0
    for line in range(len(q.held_up)):
        q.held_up[line] = -np.inf
    most = len(s.runs) - 1
    homeless = max(len(running) - most, 0)
    for at in range(min(len(running), most)):
        job = running[at]
        s.seat_first[job], s.seat_count[job] = s.meta[npl.SEATS], 0
        wide = seat_first[at + 1] - seat_first[at]
        for seat in range(seat_first[at], seat_first[at + 1]):
            node = seat_node[seat]
            gpus = npl.gpus_on(s, job, node, wide)
            if npl.may_use(s, job, node) and 0 < gpus <= s.free[node]:
                npl.take_seat(s, job, node, gpus)
        if s.seat_count[job] == 0:
            leave_open(q, now, now)
            if npl.starts_at_once(s, job):
                npl.take_chosen(s, job)
            else:
                homeless += 1
        npl.enter(s, job, start_s[at] + s.request[job])
        q.first_start[job], q.end[job] = start_s[at], -1.0
        count_in(q.limits, job, q.gpus[job], 1)
        charge(q.ranks, job, q.gpus[job], now, terms.decay_per_s)
        end = max(start_s[at] + q.work[job], now)
        meta[RUNNING] = push_least(q.ending, q.end_key, meta[RUNNING], job, end)
    for at in range(len(waiting)):
        q.first_start[waiting[at]] = q.end[waiting[at]] = -1.0
        rank(q.ranks, waiting[at], now, terms)
        insert(q, waiting[at])
    return homeless
