"""Why jobs wait, from a schedule that is over: one pass over its instants and the jobs that wait at each.

The first test that fails is the cause (see the constants, which go in that order). What a job is tested by changes only with
the nodes that it may use, with limits that are nearly reached, and at instants that are known: else it keeps its cause.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.core.kernels.jit import kernel

#: the causes, in the order in which they are tested
NOT_ELIGIBLE: Final = 0
HELD: Final = 1
MAINTENANCE: Final = 2
FAILED: Final = 3
LIMIT: Final = 4
GPU_TYPE: Final = 5
IN_USE: Final = 6
FRAGMENTATION: Final = 7
PROMISED: Final = 8
ORDER: Final = 9
CAUSES: Final = 10
#: not a cause: it could start
FITS: Final = 11

#: sorts of limits
PLAIN: Final = 0
OF_ARRAY: Final = 1

#: what happens, in the order in which it does at one instant
ENDS: Final = 0
BEGINS: Final = 1
LEAVES: Final = 2
COMES: Final = 3
MARK: Final = 4

#: how GPUs of several nodes are enough for a job: by their number alone; as many on each of so many nodes; on one node, a
#: larger job on whole nodes and part of one; the same with aligned blocks of a power of two. A job that says on how many
#: nodes it runs has as many on each in the last two as well.
COUNTED: Final = 0
SHAPED: Final = 1
TOGETHER: Final = 2
BLOCKS: Final = 3

#: GPUs on each node of a job that takes nodes whole
WHOLE: Final = -1


class Nodes(NamedTuple):
    """Nodes, and the classes of nodes that jobs may use.

    Parameters
    ----------
    size, first_gpu : int64[nodes], GPUs of each node, and the number of the first.
    free, space : those that no job has, and the most that one job can have of them.
    taken : by GPU, whether a job has it; empty where jobs take any.
    member_first, member : the nodes of each class: `member[member_first[c]:member_first[c + 1]]`.
    class_first, class_of : likewise the classes of each node.
    node_type : int64[nodes], the number of the GPU type of each node.
    levels : int64[classes, GPUs], how many nodes have space for so many.
    largest : of each class, the GPUs of its largest node.
    total, whole, used : of each class, GPUs free, empty nodes, and GPUs in use.
    pool : the pool of each class: classes that share nodes, directly or by others between them, are of one.
    wider : the class with the same nodes and those of other GPU types, -1: none.
    gpu_type : of each class, the GPU type whose limits count.
    version : raised at each change of a class.
    low, away : int64[nodes], scratch.
    """

    size: I64
    first_gpu: I64
    free: I64
    space: I64
    taken: I64
    member_first: I64
    member: I64
    class_first: I64
    class_of: I64
    node_type: I64
    levels: I64
    largest: I64
    total: I64
    whole: I64
    used: I64
    pool: I64
    wider: I64
    gpu_type: I64
    version: I64
    low: I64
    away: I64


class Limits(NamedTuple):
    """Limits, as of `inputs.limits.Limits`.

    Parameters
    ----------
    set_of : int64[types, jobs], which set of groups a job counts against on GPUs of a type.
    first, groups : the groups of each set.
    most_gpus, most_jobs, own_gpus, pool, pool_gpus : of each group and pool.
    sort : of a group's limit: a plain one, or how many tasks of an array may run.
    gpus, jobs, pooled : what is in use.
    largest, news : int64[1], the most GPUs that a job asks for, and whether a limit may be reached now or no more.
    """

    set_of: I64
    first: I64
    groups: I64
    most_gpus: I64
    most_jobs: I64
    own_gpus: I64
    pool: I64
    pool_gpus: I64
    sort: I64
    gpus: I64
    jobs: I64
    pooled: I64
    largest: I64
    news: I64


class Schedule(NamedTuple):
    """Who had GPUs and who waited, and when.

    Parameters
    ----------
    time, what, which : the events in order: an instant, one of the constants above, and of which stretch.
    held_row, held_gpus : of each stretch of GPUs, its job and how many.
    seat_first, seat_node, seat_gpu, seat_count : its GPUs by node, `[seat_first[s]:seat_first[s + 1]]`: the first of them,
        and how many.
    wait_row, wait_to, starts : of each stretch of waiting, its job, its end, and whether the job then has GPUs.
    window_from, window_to, window_known, window_failed : maintenance and failures of nodes.
    window_gpus : int64[windows, nodes], the GPUs that each takes.
    """

    time: F64
    what: I64
    which: I64
    held_row: I64
    held_gpus: I64
    seat_first: I64
    seat_node: I64
    seat_gpu: I64
    seat_count: I64
    wait_row: I64
    wait_to: F64
    starts: I64
    window_from: F64
    window_to: F64
    window_known: F64
    window_failed: I64
    window_gpus: I64


class Jobs(NamedTuple):
    """What jobs ask for, and by what they are summed.

    Parameters
    ----------
    gpus, wide, each, request : GPUs in all, nodes (0: as few as can be), GPUs on each of them, and the time.
    least : free GPUs below which others have the nodes; a job that takes nodes whole may ask for fewer than it takes.
    classes_first, classes : the classes of nodes that each kind of job may use, of which it takes one.
    kind : of each job.
    held_from : when a job goes on hold; infinite: never.
    group, owner : by what waiting is summed, and by whose jobs it is split.
    """

    gpus: I64
    least: I64
    wide: I64
    each: I64
    request: F64
    classes_first: I64
    classes: I64
    kind: I64
    held_from: F64
    group: I64
    owner: I64


class Found(NamedTuple):
    """The outcome; seconds.

    Parameters
    ----------
    waited : float64[jobs, causes].
    limited : float64[groups of jobs, limits], waiting for each limit.
    blamed : float64[classes, owners], waiting for nodes in use, by who had them.
    behind : float64[causes, groups of jobs, owners], waiting for what is promised to others or by the order, by whom it is
        behind.
    fragmented : float64[1], GPU-seconds free while somebody waits for fragmentation.
    stretch, stretch_s : of the job that is asked about, (cause, limit or job ahead), and (begin, end).
    noted : how many of these there are.
    """

    waited: F64
    limited: F64
    blamed: F64
    behind: F64
    fragmented: F64
    stretch: I64
    stretch_s: F64
    noted: I64


class State(NamedTuple):
    """The pass.

    Parameters
    ----------
    waiting, place, waits : the stretches of waiting now, where each stands, and how many.
    cause, detail, since, seen, until, again, by_class : of each stretch of waiting: its cause, the limit or the job ahead,
        since when, the number of changes of its nodes that it has seen, until when its place in the order is judged, when it
        is to be looked at again whatever happens, and by which class.
    blaming, share : of each class, how many wait for nodes in use, and the seconds that a GPU in use has to its account.
    first, first_seen : of each pool, who of those that wait starts first, and as of which number of `queued`.
    queued : of each pool, raised when a job joins or leaves the queue.
    spread, idle : int64[1], how many wait for fragmentation, and GPUs free.
    """

    waiting: I64
    place: I64
    waits: I64
    cause: I64
    detail: I64
    since: F64
    seen: I64
    until: F64
    again: F64
    by_class: I64
    blaming: I64
    share: F64
    first: I64
    first_seen: I64
    queued: I64
    spread: I64
    idle: I64


@kernel(allocates=False)
def _block(nodes: Nodes, node: int) -> int:
    """The most GPUs of a node that one job can have, in an aligned block of a power of two, or all of them."""
    first, size = nodes.first_gpu[node], nodes.size[node]
    if nodes.free[node] == size:
        return int(size)
    best, length = 0, 1
    while length <= size:
        at = 0
        while at + length <= size and best < length:
            whole = True
            for gpu in range(first + at, first + at + length):
                whole &= nodes.taken[gpu] == 0
            if whole:
                best = length
            at += length
        length *= 2
    return best


@kernel(allocates=False)
def _give(nodes: Nodes, node: int, gpu: int, count: int) -> None:
    """GPUs of a node become free, or fewer of them if the count is negative."""
    before, space = nodes.free[node], nodes.space[node]
    nodes.free[node] += count
    if len(nodes.taken):
        for at in range(gpu, gpu + abs(count)):
            nodes.taken[at] = 0 if count > 0 else 1
        nodes.space[node] = _block(nodes, node)
    else:
        nodes.space[node] = nodes.free[node]
    after = nodes.space[node]
    for at in range(nodes.class_first[node], nodes.class_first[node + 1]):
        c = nodes.class_of[at]
        for level in range(max(space, 0) + 1, after + 1):
            nodes.levels[c, level] += 1
        for level in range(max(after, 0) + 1, space + 1):
            nodes.levels[c, level] -= 1
        full = nodes.size[node]
        nodes.whole[c] += int(nodes.free[node] == full) - int(before == full)
        nodes.total[c] += count
        nodes.used[c] -= count
        nodes.version[c] += 1


@kernel(allocates=False)
def _count_in(limits: Limits, gpu_type: int, row: int, gpus: int, jobs: int) -> None:
    """One job more or less counts against its limits."""
    if len(limits.gpus) == 0:
        return
    own_set = limits.set_of[gpu_type, row]
    for at in range(limits.first[own_set], limits.first[own_set + 1]):
        group = limits.groups[at]
        before = max(0, limits.gpus[group] - limits.own_gpus[group])
        limits.gpus[group] += gpus
        limits.jobs[group] += jobs
        most, many = limits.gpus[group] + max(-gpus, 0), limits.jobs[group] + max(-jobs, 0)
        if most + limits.largest[0] > limits.most_gpus[group] or many >= limits.most_jobs[group]:
            limits.news[0] = 1
        pool = limits.pool[group]
        if pool >= 0:
            limits.pooled[pool] += max(0, limits.gpus[group] - limits.own_gpus[group]) - before
            limits.news[0] = 1


@kernel(inline=True)
def _limit_on(limits: Limits, gpu_type: int, row: int, gpus: int, sort: int) -> int:
    """The first limit of a sort that lets a job not start; -1: none."""
    if len(limits.gpus) == 0:
        return -1
    own_set = limits.set_of[gpu_type, row]
    for at in range(limits.first[own_set], limits.first[own_set + 1]):
        group = limits.groups[at]
        if limits.sort[group] != sort:
            continue
        used = limits.gpus[group]
        if used + gpus > limits.most_gpus[group] or limits.jobs[group] >= limits.most_jobs[group]:
            return int(group)
        pool, own = limits.pool[group], limits.own_gpus[group]
        if pool >= 0:
            more = max(0, used + gpus - own) - max(0, used - own)
            if limits.pooled[pool] + more > limits.pool_gpus[pool]:
                return int(group)
    return -1


@kernel(allocates=False)
def _do(nodes: Nodes, c: int, jobs: Jobs, row: int, form: int, space: I64) -> int:
    """Whether some space on the nodes of a class is enough for a job: `FITS`, `FRAGMENTATION` or `IN_USE`."""
    gpus, largest, total, enough, whole = jobs.gpus[row], max(nodes.largest[c], 1), 0, 0, 0
    rest = gpus % largest if form >= TOGETHER and gpus > largest else gpus
    shaped = form != COUNTED and jobs.wide[row] > 0
    need = jobs.each[row] if shaped else rest
    fewest = -(-jobs.least[row] // max(jobs.wide[row], 1))  # of a whole node that would do
    for at in range(nodes.member_first[c], nodes.member_first[c + 1]):
        node = nodes.member[at]
        there = max(space[node], 0)
        total += there
        enough += there >= need if need != WHOLE else there == nodes.size[node] >= fewest
        whole += there == largest
    if total < jobs.least[row]:
        return IN_USE
    if form == COUNTED:
        return FITS
    if shaped:
        return FITS if enough >= jobs.wide[row] else FRAGMENTATION
    if gpus <= largest:
        return FITS if enough >= 1 else FRAGMENTATION
    many = gpus // largest
    return FITS if whole >= many and (rest == 0 or enough > many) else FRAGMENTATION


@kernel(inline=True)
def _now(nodes: Nodes, c: int, jobs: Jobs, row: int, form: int) -> int:
    """As `_do` for the present space, from what is counted of it."""
    gpus, each, largest = jobs.gpus[row], jobs.each[row], max(nodes.largest[c], 1)
    if nodes.total[c] < jobs.least[row]:
        return IN_USE
    if form == COUNTED:
        return FITS
    if jobs.wide[row] > 0:
        enough = nodes.whole[c] if each == WHOLE else nodes.levels[c, min(each, nodes.levels.shape[1] - 1)]
        return FITS if enough >= jobs.wide[row] else FRAGMENTATION
    if gpus <= largest:
        return FITS if nodes.levels[c, gpus] >= 1 else FRAGMENTATION
    many, rest = gpus // largest, gpus % largest
    if nodes.levels[c, largest] < many:
        return FRAGMENTATION
    return FITS if rest == 0 or nodes.levels[c, rest] > many else FRAGMENTATION


@kernel(allocates=False)
def _away(s: Schedule, nodes: Nodes, now: float, request: float, failed: int) -> int:
    """Let `away` be the GPUs that windows take of each node while a job asks for it; how many windows do.

    failed: whether only failures of nodes count.
    """
    for node in range(len(nodes.away)):
        nodes.away[node] = 0
    crossing = 0
    for window in range(len(s.window_from)):
        if failed and not s.window_failed[window]:
            continue
        if s.window_known[window] <= now < s.window_to[window] and s.window_from[window] < now + request:
            crossing += 1
            for node in range(len(nodes.away)):
                nodes.away[node] += s.window_gpus[window, node]
    return crossing


@kernel(allocates=False)
def _in_windows(s: Schedule, nodes: Nodes, c: int, jobs: Jobs, row: int, form: int, now: float) -> int:
    """The first test that a job fails that asks for time in which windows take nodes."""
    request = jobs.request[row]
    for failed in range(1, -1, -1):
        if _away(s, nodes, now, request, failed) == 0:
            continue
        for at in range(nodes.member_first[c], nodes.member_first[c + 1]):
            node = nodes.member[at]
            nodes.low[node] = nodes.size[node] - nodes.away[node]
        if _do(nodes, c, jobs, row, form, nodes.low) != FITS:
            return FAILED if failed else MAINTENANCE
    for at in range(nodes.member_first[c], nodes.member_first[c + 1]):
        node = nodes.member[at]
        nodes.low[node] = nodes.space[node] - nodes.away[node]
    return int(_do(nodes, c, jobs, row, form, nodes.low))


@kernel(inline=True)
def _test(
    s: Schedule,
    nodes: Nodes,
    c: int,
    limits: Limits,
    jobs: Jobs,
    row: int,
    form: int,
    now: float,
    crossing: int,
) -> int:
    """The first test that a job fails on the nodes of one class."""
    gpu_type, gpus = nodes.gpu_type[c], jobs.gpus[row]
    if _limit_on(limits, gpu_type, row, gpus, OF_ARRAY) >= 0:
        return NOT_ELIGIBLE
    code = _in_windows(s, nodes, c, jobs, row, form, now) if crossing else _now(nodes, c, jobs, row, form)
    if code in (MAINTENANCE, FAILED):
        return int(code)
    if _limit_on(limits, gpu_type, row, gpus, PLAIN) >= 0:
        return LIMIT
    wider = nodes.wider[c]
    if code != FITS and wider >= 0:
        if crossing:
            other = _in_windows(s, nodes, wider, jobs, row, form, now)
        elif jobs.each[row] == WHOLE:  # there are nodes of several sizes
            other = _do(nodes, wider, jobs, row, form, nodes.space)
        else:
            other = _now(nodes, wider, jobs, row, form)
        if other == FITS:
            return GPU_TYPE
    return int(code)


@kernel(allocates=False)
def _run_into(
    s: Schedule,
    nodes: Nodes,
    c: int,
    jobs: Jobs,
    row: int,
    form: int,
    now: float,
    until: float,
    event: int,
    free: I64,
) -> int:
    """The stretch of GPUs before whose begin a job would have to end that started now on nodes of a class; -1: none.

    By what really happens from the next event on, until an instant. `free`: scratch.
    """
    for at in range(nodes.member_first[c], nodes.member_first[c + 1]):
        node = nodes.member[at]
        free[node] = nodes.low[node] = nodes.free[node]
    first = -1
    for at in range(event, len(s.time)):
        if s.time[at] >= until:
            return -1
        stretch, sign = s.which[at], 1 if s.what[at] == ENDS else -1
        last = s.seat_first[stretch + 1] if s.what[at] <= BEGINS else 0
        for seat in range(s.seat_first[stretch] if s.what[at] <= BEGINS else 0, last):
            node = s.seat_node[seat]
            free[node] += sign * s.seat_count[seat]
            if sign < 0 and free[node] < nodes.low[node]:
                nodes.low[node] = free[node]
                if first < 0 and _is_member(nodes, c, node):
                    first = stretch
        if first >= 0 and (at + 1 == len(s.time) or s.time[at + 1] > s.time[at]):
            if _do(nodes, c, jobs, row, COUNTED if form == BLOCKS else form, nodes.low) != FITS:
                return int(first)
            first = -1
    return -1


@kernel(allocates=False)
def _is_member(nodes: Nodes, c: int, node: int) -> bool:
    """Whether a node is of a class."""
    member = False
    for at in range(nodes.class_first[node], nodes.class_first[node + 1]):
        member |= nodes.class_of[at] == c
    return bool(member)


@kernel(allocates=False)
def _next_in(p: State, s: Schedule, nodes: Nodes, jobs: Jobs, pool: int) -> int:
    """Who of those that wait for nodes of a pool has some first; -1: none has."""
    if p.first_seen[pool] == p.queued[pool]:
        return int(p.first[pool])
    p.first_seen[pool], p.first[pool] = p.queued[pool], -1
    for at in range(p.waits[0]):
        wait = p.waiting[at]
        kind = jobs.kind[s.wait_row[wait]]
        for entry in range(jobs.classes_first[kind], jobs.classes_first[kind + 1]):
            if nodes.pool[jobs.classes[entry]] == pool and s.starts[wait]:
                best = p.first[pool]
                if best < 0 or (s.wait_to[wait], s.wait_row[wait]) < (s.wait_to[best], s.wait_row[best]):
                    p.first[pool] = wait
    return int(p.first[pool])


@kernel(allocates=False)
def _book(p: State, s: Schedule, jobs: Jobs, found: Found, wait: int, now: float, focus: int) -> None:
    """A stretch of waiting for one cause is over, at least for its account."""
    row, cause, seconds = s.wait_row[wait], p.cause[wait], now - p.since[wait]
    if cause < 0 or seconds <= 0.0:
        p.since[wait] = now
        return
    found.waited[row, cause] += seconds
    detail = p.detail[wait]
    if cause == LIMIT and detail >= 0:
        found.limited[jobs.group[row], detail] += seconds
    if cause >= PROMISED and detail >= 0:
        found.behind[cause - PROMISED, jobs.group[row], jobs.owner[detail]] += seconds
    if row == focus:
        at = found.noted[0]
        goes_on = at > 0 and found.stretch_s[1, at - 1] == p.since[wait]
        if goes_on and found.stretch[0, at - 1] == cause and found.stretch[1, at - 1] == detail:
            at -= 1
        else:
            found.stretch[0, at], found.stretch[1, at] = cause, detail
            found.stretch_s[0, at] = p.since[wait]
        found.stretch_s[1, at] = now
        found.noted[0] = at + 1
    p.since[wait] = now


@kernel(allocates=False)
def _set(
    p: State,
    s: Schedule,
    jobs: Jobs,
    found: Found,
    wait: int,
    cause: int,
    detail: int,
    c: int,
    now: float,
    focus: int,
) -> None:
    """A job waits for this from now on."""
    if cause == p.cause[wait] and detail == p.detail[wait] and c == p.by_class[wait]:
        return
    _book(p, s, jobs, found, wait, now, focus)
    if p.cause[wait] == IN_USE:
        p.blaming[p.by_class[wait]] -= 1
    if cause == IN_USE:
        p.blaming[c] += 1
    p.spread[0] += int(cause == FRAGMENTATION) - int(p.cause[wait] == FRAGMENTATION)
    p.cause[wait], p.detail[wait], p.by_class[wait] = cause, detail, c


@kernel(inline=True)
def _judge(
    s: Schedule,
    nodes: Nodes,
    limits: Limits,
    jobs: Jobs,
    p: State,
    found: Found,
    wait: int,
    now: float,
    event: int,
    form: int,
    backfills: bool,
    focus: int,
    free: I64,
) -> None:
    """Find the cause for which a job waits from now on."""
    row = s.wait_row[wait]
    kind = jobs.kind[row]
    begin, end = jobs.classes_first[kind], jobs.classes_first[kind + 1]
    seen = 0
    for at in range(begin, end):
        c = jobs.classes[at]
        seen += nodes.version[c]
        if nodes.wider[c] >= 0:
            seen += nodes.version[nodes.wider[c]]
    if seen == p.seen[wait] and not limits.news[0] and now < p.again[wait]:
        return
    p.seen[wait] = seen
    if now >= jobs.held_from[row]:
        _set(p, s, jobs, found, wait, HELD, -1, jobs.classes[begin], now, focus)
        return
    crossing, again = 0, jobs.held_from[row]
    for window in range(len(s.window_from)):
        if s.window_known[window] <= now < s.window_to[window]:
            if s.window_from[window] < now + jobs.request[row]:
                crossing += 1
            else:
                again = min(again, s.window_from[window] - jobs.request[row])
    p.again[wait] = again
    code, chosen = -1, jobs.classes[begin]
    for at in range(begin, end):
        c = jobs.classes[at]
        one = _test(s, nodes, c, limits, jobs, row, form, now, crossing)
        if one > code:
            code, chosen = one, c
    if code == FITS:
        if p.cause[wait] >= PROMISED and now < p.until[wait]:
            p.again[wait] = min(again, p.until[wait])
            return
        until = now + jobs.request[row]
        if s.starts[wait]:  # who starts later is not ahead
            until = min(until, s.wait_to[wait])
        stretch = -1
        if backfills:
            stretch = _run_into(s, nodes, chosen, jobs, row, form, now, until, event, free)
        if stretch >= 0:
            begins = event
            while s.what[begins] != BEGINS or s.which[begins] != stretch:
                begins += 1
            p.until[wait] = s.time[begins]
            p.again[wait] = min(again, p.until[wait])
            _set(p, s, jobs, found, wait, PROMISED, s.held_row[stretch], chosen, now, focus)
            return
        first = _next_in(p, s, nodes, jobs, nodes.pool[chosen])
        ahead = s.wait_row[first] if first >= 0 and first != wait else -1
        p.until[wait] = min(until, s.wait_to[first]) if first >= 0 else until
        p.again[wait] = min(again, p.until[wait])
        _set(p, s, jobs, found, wait, ORDER, ahead, chosen, now, focus)
        return
    detail = -1
    if code == LIMIT:
        detail = _limit_on(limits, nodes.gpu_type[chosen], row, jobs.gpus[row], PLAIN)
    _set(p, s, jobs, found, wait, code, detail, chosen, now, focus)


@kernel(allocates=False)
def _move(
    s: Schedule, nodes: Nodes, limits: Limits, jobs: Jobs, p: State, found: Found, stretch: int, sign: int
) -> None:
    """A stretch of GPUs begins (-1) or ends (1)."""
    row, gpu_type = s.held_row[stretch], 0
    for seat in range(s.seat_first[stretch], s.seat_first[stretch + 1]):
        node, count = s.seat_node[seat], s.seat_count[seat]
        if count == 0:
            continue
        gpu_type = nodes.node_type[node]
        _give(nodes, node, s.seat_gpu[seat], sign * count)
        for at in range(nodes.class_first[node], nodes.class_first[node + 1]):
            c = nodes.class_of[at]
            found.blamed[c, jobs.owner[row]] += sign * count * p.share[c]
    p.idle[0] += sign * s.held_gpus[stretch]
    _count_in(limits, gpu_type, row, -sign * s.held_gpus[stretch], -sign)


@kernel(allocates=False)
def seat(s: Schedule, free: I64) -> None:
    """Give stretches of GPUs that are not known their share of the nodes that they name, in turn. free: int64[nodes]."""
    for event in range(len(s.time)):
        if s.what[event] > BEGINS:
            continue
        stretch = s.which[event]
        left = s.held_gpus[stretch]
        for at in range(s.seat_first[stretch], s.seat_first[stretch + 1]):
            if s.what[event] == BEGINS:
                s.seat_count[at] = max(min(free[s.seat_node[at]], left), 0)
                left -= s.seat_count[at]
            free[s.seat_node[at]] += s.seat_count[at] if s.what[event] == ENDS else -s.seat_count[at]


@kernel(allocates=False)
def attribute(
    s: Schedule,
    nodes: Nodes,
    limits: Limits,
    jobs: Jobs,
    p: State,
    found: Found,
    form: int,
    backfills: bool,
    focus: int,
    free: I64,
) -> None:
    """Find out why everybody waits, all the time.

    Parameters
    ----------
    form : how GPUs of several nodes are enough for a job.
    backfills : whether jobs may pass those ahead of them if they do not delay them.
    focus : a job whose stretches are noted; -1: none.
    free : int64[nodes], scratch.
    """
    now = -np.inf
    for event in range(len(s.time)):
        at_s = s.time[event]
        if at_s > now:
            if p.spread[0] > 0:
                found.fragmented[0] += (at_s - now) * p.idle[0]
            for c in range(len(p.blaming)):
                if p.blaming[c] > 0 and nodes.used[c] > 0:
                    p.share[c] += (at_s - now) * p.blaming[c] / nodes.used[c]
            now = at_s
        what, which = s.what[event], s.which[event]
        if what <= BEGINS:
            _move(s, nodes, limits, jobs, p, found, which, 1 if what == ENDS else -1)
        elif what == MARK:
            for c in range(len(nodes.version)):
                nodes.version[c] += 1
        else:
            kind = jobs.kind[s.wait_row[which]]
            for at in range(jobs.classes_first[kind], jobs.classes_first[kind + 1]):
                p.queued[nodes.pool[jobs.classes[at]]] += 1
            if what == COMES:
                p.place[which], p.waiting[p.waits[0]] = p.waits[0], which
                p.waits[0] += 1
                p.since[which] = now
            else:
                _set(p, s, jobs, found, which, -1, -1, 0, now, focus)
                p.waits[0] -= 1
                last = p.waiting[p.waits[0]]
                p.waiting[p.place[which]], p.place[last] = last, p.place[which]
        if event + 1 < len(s.time) and s.time[event + 1] == now:
            continue
        for at in range(p.waits[0]):
            _judge(
                s, nodes, limits, jobs, p, found, p.waiting[at], now, event + 1, form, backfills, focus, free
            )
        limits.news[0] = 0
