"""A queue on named nodes, whole runs at a time, or from any state on (`set_state`).

As Slurm's main scheduler has it, at every arrival and end jobs start in their order until the first that does not fit;
behind it others of the same partition wait. At most every `interval_s`, after news, a plan on named nodes lets others
start, too (see `node_plan`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.kernels import node_plan as npl
from forerun.cluster.engine.kernels.arrays import BOOL, F64, I64
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
QUEUED: Final = 8  # jobs that wait; `WAITING` counts their entries
PLACES: Final = 9

#: a queue without news is planned again at the next minute
MINUTE_S: Final = 60.0
#: jobs start in their order at most so often (`batch_sched_delay`)
BATCH_S: Final = 3.0
#: an ended job is forgotten so much later (`MinJobAge`), within the minute: a plan is made then
FORGET_S: Final = 300.0

#: places in `Queue.clock`
PLANNED_S: Final = 0  # of the last plan
PLAN_S: Final = 1  # of the next one
RANKED_S: Final = 2  # when priorities were counted last
NEWS: Final = 3  # not an instant: whether there was news since the last plan
TRIED_S: Final = 4  # when jobs started in their order last
TRY_S: Final = 5  # when they will
FORGET: Final = 6  # from here on: when ended jobs are forgotten, ascending; one an instant
CLOCK: Final = FORGET + 8

#: what has happened
CAME: Final = 1
ENDED: Final = 2


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
    first_start, end : what becomes of each.
    entry_first : int64[jobs + 1], where the entries of each job begin: one for each of its partitions.
    entry_job, entry_kind, entry_wide, entry_each, line : by entry, its job, what it has there of the columns of `nodes`,
        and the number of the partition.
    nodes, limits, ranks : where jobs run, what keeps them from it, and their order.
    ending, end_key : heap of running jobs by their end.
    waiting : the entries that wait, in their order, and maybe some of jobs that have started.
    held_up : by line, scratch: whether a job of it does not fit.
    line_nodes : int64[lines, words], the nodes of each line.
    shut : int64[words], scratch: the nodes of lines in which a job does not fit.
    window_from, window_to, window_announced, window_nodes : maintenance.
    marks : the instants at which it is announced or ends, ascending.
    clock, meta : instants and counters, see above.
    log_row, log_gpus, event_time, event_pending, event_first : as of the priority queue.
    log_seats, log_node : by change, the first entry of `log_node`; the nodes of jobs that start.
    """

    submit: F64
    work: F64
    gpus: I64
    first_start: F64
    end: F64
    entry_first: I64
    entry_job: I64
    entry_kind: I64
    entry_wide: I64
    entry_each: I64
    line: I64
    nodes: npl.Nodes
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
    latency_s : after an event, until the scheduler acts, at a whole second; 0: it acts at once, with all that happens then.
    tested : how many waiting jobs a plan looks at.
    resolution_s, window_s : of the plan.
    age_per_s, most_age : what each second of waiting adds to a priority, up to how much.
    decay_per_s : of usage.
    count_s : between two counts of priorities; 0: they do not change.
    """

    interval_s: float
    latency_s: float
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
        if meta[QUEUED] > 0:
            now = min(now, q.clock[TRY_S], q.clock[PLAN_S])
        if (now < np.inf or meta[QUEUED] > 0) and meta[PASSED] < len(q.marks):
            now = min(now, q.marks[meta[PASSED]])
        if now >= until_s or now == np.inf or meta[EVENTS] >= len(q.event_time) - 1:
            return now
        if meta[LOGGED] > len(q.log_row) - len(q.end_key) - jobs_now(q, now) - 1:
            return now
        if meta[SEATED] > len(q.log_node) - len(q.nodes.seat_node):
            return now
        before, delayed, news = meta[LOGGED], terms.latency_s > 0.0, 0
        if delayed:  # what is due at a second comes before what happens within it
            decide(q, terms, now, 0)
        while meta[PASSED] < len(q.marks) and q.marks[meta[PASSED]] <= now:
            meta[PASSED] += 1
            news = ENDED if meta[QUEUED] > 0 else news
        while meta[RUNNING] > 0 and q.end_key[0] <= now:
            job, news = q.ending[0], ENDED
            meta[RUNNING] = pop_least(q.ending, q.end_key, meta[RUNNING])
            q.end[job] = now
            npl.take_back(q.nodes, job)
            count_in(q.limits, job, -q.gpus[job], -1)
            charge(q.ranks, job, -q.gpus[job], now, terms.decay_per_s)
            log(q, job, 0)
        while meta[ARRIVED] < jobs and q.submit[meta[ARRIVED]] <= now:
            queue_up(q, meta[ARRIVED], now, terms)
            news |= CAME
            meta[ARRIVED] += 1
        if terms.count_s > 0.0 and now >= q.clock[RANKED_S] + terms.count_s:
            count_anew(q, now, terms)
        if delayed:
            note(q, terms, now, news)
        else:
            decide(q, terms, now, news)
        if news == 0 and meta[LOGGED] == before:  # none starts
            left = (
                meta[RUNNING] > 0
                or meta[ARRIVED] < jobs
                or meta[PASSED] < len(q.marks)
                or q.clock[TRY_S] < np.inf
            )
            if not left and q.clock[PLANNED_S] == now:
                return np.inf  # nor ever will
            continue
        q.event_time[meta[EVENTS]] = now
        q.event_pending[meta[EVENTS]] = meta[QUEUED]
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
def rank(q: Queue, entry: int, now: float, terms: Terms) -> None:
    """Count the priority of an entry: a whole number."""
    ranks, job = q.ranks, q.entry_job[entry]
    age = min(max(now - ranks.since[job], 0.0) * terms.age_per_s, terms.most_age)
    total = ranks.fixed[entry] + age + ranks.fair[ranks.owner[job]]
    ranks.priority[entry] = np.floor(np.round(total * 1e6) / 1e6)


@kernel(inline=True)
def before(ranks: Ranks, entry: int, other: int) -> bool:
    """Whether an entry goes before another."""
    if ranks.tier[entry] != ranks.tier[other]:
        return bool(ranks.tier[entry] > ranks.tier[other])
    if ranks.priority[entry] != ranks.priority[other]:
        return bool(ranks.priority[entry] > ranks.priority[other])
    return entry < other


@kernel(inline=True)
def choose(q: Queue, entry: int) -> int:
    """The job of an entry, which from now on asks for what it has in this partition."""
    job = q.entry_job[entry]
    if q.first_start[job] < 0.0:
        q.nodes.kind[job], q.nodes.wide[job] = q.entry_kind[entry], q.entry_wide[entry]
        q.nodes.each[job] = q.entry_each[entry]
    return int(job)


@kernel(allocates=False)
def queue_up(q: Queue, job: int, now: float, terms: Terms) -> None:
    """A job joins the queue, once for each of its partitions, each at its place."""
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


@kernel(allocates=False)
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


@kernel(allocates=False)
def decide(q: Queue, terms: Terms, now: float, news: int) -> None:
    """Start jobs in their order, and by a plan, if it is time for it.

    news: `CAME` or `ENDED` or both, if a job came or ended.
    """
    meta, clock = q.meta, q.clock
    q.nodes.meta[npl.STARTS] = 0
    note(q, terms, now, news)
    for turn in range(2):
        # the plan comes first, or last where nothing is delayed
        if turn != (terms.latency_s == 0.0):
            if clock[TRY_S] <= now:
                clock[TRY_S], clock[TRIED_S] = np.inf, now
                if try_in_order(q, terms, now):
                    clock[PLAN_S] = min(clock[PLAN_S], _plan_by(clock, terms, now))
        elif clock[PLAN_S] <= now:
            plan(q, terms, now, last_that_may(q, terms))
            _plan_next(clock, terms, now, q.nodes.meta[npl.AGAIN] > 0, meta[QUEUED])


@kernel(allocates=False)
def note(q: Queue, terms: Terms, now: float, news: int) -> None:
    """Note what happens now, and with it when jobs start in order, and by a plan. news: as of `decide`."""
    clock = q.clock
    _catch_up(q, terms, now)
    if news == 0:
        return
    delayed = terms.latency_s > 0.0
    clock[TRY_S] = min(clock[TRY_S], max(_soon(terms, now), clock[TRIED_S] + BATCH_S) if delayed else now)
    if news & ENDED:
        _forget_after(clock, now, terms.latency_s)
    clock[NEWS] = 1.0
    clock[PLAN_S] = min(clock[PLAN_S], _plan_by(clock, terms, now))


@kernel(inline=True)
def _plan_by(clock: F64, terms: Terms, now: float) -> float:
    """When a plan is made after news."""
    if terms.interval_s == np.inf:
        return np.inf
    return float(max(_soon(terms, now), clock[PLANNED_S] + terms.interval_s))


@kernel(inline=True)
def _soon(terms: Terms, now: float) -> float:
    """When the scheduler acts on what happens now."""
    return float(np.floor(now) + terms.latency_s if terms.latency_s > 0.0 else now)


@kernel(allocates=False)
def _plan_next(clock: F64, terms: Terms, now: float, again: bool, waiting: int) -> None:
    """Note that a plan was made, and when the next one is without news.

    again: whether a job started or waits for what another one waits for, too. waiting: jobs that wait now.
    """
    clock[PLANNED_S], clock[PLAN_S] = now, np.inf
    if terms.interval_s == 0.0:
        clock[NEWS] = 0.0
        return
    if again or (waiting > 1 and clock[NEWS] > 0.0):
        clock[PLAN_S] = now + terms.interval_s
    elif waiting > 1:
        next_minute = np.floor(now / MINUTE_S) * MINUTE_S + MINUTE_S + terms.latency_s
        clock[PLAN_S] = max(next_minute, now + terms.interval_s)
    clock[NEWS] = 0.0
    for at in range(FORGET, CLOCK):
        if now < clock[at] < np.inf:
            clock[PLAN_S] = min(clock[PLAN_S], max(clock[at], now + terms.interval_s))
            break


@kernel(allocates=False)
def _forget_after(clock: F64, now: float, latency_s: float) -> None:
    """Note when a job is forgotten that ends now."""
    at_s = np.ceil((now + FORGET_S) / MINUTE_S) * MINUTE_S + latency_s
    stays = FORGET
    for at in range(FORGET, CLOCK):
        if clock[at] > now and clock[at] != at_s:
            clock[stays] = clock[at]
            stays += 1
    # of no more minutes than there are places, as instants within the next six are all there are
    while stays > FORGET and clock[stays - 1] == np.inf:
        stays -= 1
    clock[stays] = at_s
    for at in range(stays + 1, CLOCK):
        clock[at] = np.inf


@kernel(allocates=False)
def _catch_up(q: Queue, terms: Terms, now: float) -> None:
    """Let pass what was due while no job waited: a plan of no jobs, too, puts off the next one."""
    clock = q.clock
    while True:
        if clock[TRY_S] < now and clock[TRY_S] <= clock[PLAN_S]:
            clock[TRIED_S], clock[TRY_S] = clock[TRY_S], np.inf
        elif clock[PLAN_S] < now:
            _plan_next(clock, terms, clock[PLAN_S], False, 0)
        else:
            return


@kernel(allocates=False)
def try_in_order(q: Queue, terms: Terms, now: float) -> bool:
    """Start jobs in their order; whether any does. One that does not fit holds up those behind it."""
    meta, s = q.meta, q.nodes
    started, stays = False, 0
    npl.clear(q.shut)
    for line in range(len(q.held_up)):
        q.held_up[line] = False
    for at in range(meta[WAITING]):
        entry = q.waiting[at]
        job = choose(q, entry)
        if q.first_start[job] >= 0.0:
            continue
        line = q.line[entry]
        if not q.held_up[line] and fits(q.limits, job, q.gpus[job]):
            leave_open(q, now, now + s.request[job])
            for word in range(len(q.shut)):
                s.usable[word] &= ~q.shut[word]
            if npl.starts_at_once(s, job):
                start(q, terms, job, now)
                started = True
                continue
            q.held_up[line] = True
            for word in range(len(q.shut)):
                q.shut[word] |= q.line_nodes[line, word]
        q.waiting[stays] = entry
        stays += 1
    meta[WAITING] = stays
    return started


@kernel(allocates=False)
def plan(q: Queue, terms: Terms, now: float, last: int) -> None:
    """Plan the waiting jobs up to a place in the queue, and start those whose turn is now.

    Of those behind, none of which can start, only so many are planned as say whether one waits for another.
    """
    meta, s = q.meta, q.nodes
    npl.begin_plan(s, now, terms.resolution_s, terms.window_s)
    for window in range(len(q.window_from)):
        if q.window_announced[window] <= now < q.window_to[window]:
            for pool in range(len(s.slots)):
                npl.keep_free(s, pool, q.window_from[window], q.window_to[window], q.window_nodes[window])
    stays = 0
    for at in range(meta[WAITING]):
        entry = q.waiting[at]
        job = choose(q, entry)
        if q.first_start[job] >= 0.0:
            continue
        npl.clear(s.beyond)
        for window in range(len(q.window_from)):
            until_s = min(q.window_to[window], now + s.request[job])
            if q.window_announced[window] <= now and s.horizon[0] <= q.window_from[window] < until_s:
                for word in range(len(s.beyond)):
                    s.beyond[word] |= q.window_nodes[window, word]
        looks = at <= last or (at < terms.tested and s.meta[npl.AGAIN] == 0)
        if looks and fits(q.limits, job, q.gpus[job]) and npl.plan_job(s, job, now, terms.resolution_s):
            start(q, terms, job, now)
            s.meta[npl.AGAIN] = 1
            continue
        q.waiting[stays] = entry
        stays += 1
    meta[WAITING] = stays


@kernel(allocates=False)
def last_that_may(q: Queue, terms: Terms) -> int:
    """The place of the last job that a plan may start, by limits and free nodes; -1: there is none."""
    for at in range(min(q.meta[WAITING], terms.tested) - 1, -1, -1):
        job = choose(q, q.waiting[at])
        if q.first_start[job] < 0.0 and npl.may_start(q.nodes, job) and fits(q.limits, job, q.gpus[job]):
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
    meta[QUEUED] -= 1
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
    running ones end as their `work` says. Earlier promises do not count; usage stays as it is.

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
    for place in range(CLOCK):
        q.clock[place] = np.inf
    q.clock[PLANNED_S] = q.clock[RANKED_S] = q.clock[TRIED_S] = -np.inf
    q.clock[NEWS] = 0.0
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
        queue_up(q, waiting[at], now, terms)
    return homeless


@kernel(allocates=False)
def name_gpus(q: Queue, first_gpu: I64, owner: I64, row: I64, event: I64, first: I64, count: I64) -> int:
    """Name the GPUs of the jobs that start in the log, the first free ones of their nodes; how many runs of GPUs these are.

    Parameters
    ----------
    first_gpu : int64[nodes + 1], of each node.
    owner : by GPU, the job that has it, -1: none; changed in place.
    row, event, first, count : written, by run: the job, the event in which it starts, the first GPU, and how many.
    """
    runs, at = 0, 0
    for number in range(q.meta[EVENTS]):
        for at in range(q.event_first[number], q.event_first[number + 1]):
            job, left = q.log_row[at], q.log_gpus[at]
            if left == 0:
                gpu, left = 0, q.gpus[job]
                while gpu < len(owner) and (left > 0 or q.nodes.each[job] == npl.WHOLE):
                    if owner[gpu] == job:
                        owner[gpu] = -1
                        left -= 1
                    gpu += 1
                continue
            last = q.log_seats[at + 1] if at + 1 < q.meta[LOGGED] else q.meta[SEATED]
            for seat in range(q.log_seats[at], last):
                node = q.log_node[seat]
                whole = q.nodes.each[job] == npl.WHOLE
                takes = first_gpu[node + 1] - first_gpu[node] if whole else min(q.nodes.each[job], left)
                for gpu in range(first_gpu[node], first_gpu[node + 1]):
                    if takes == 0 or owner[gpu] >= 0:
                        continue
                    joins = runs > 0 and row[runs - 1] == job and first[runs - 1] + count[runs - 1] == gpu
                    if not joins:
                        row[runs], event[runs], first[runs], count[runs] = job, number, gpu, 0
                        runs += 1
                    owner[gpu] = job
                    count[runs - 1] += 1
                    takes -= 1
                    left -= 1
    return int(runs)
