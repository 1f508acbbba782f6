"""The state of a run under a policy that decides through a view: arrivals, ends, progress, GPUs on nodes.

Packed state: `f[column, job]` floats and `i[column, job]` integers, so that a call from Python passes few arrays. A
policy decides between calls: `advance` goes to the next decision, `gather` lays the jobs out as a view, `apply` carries
an allocation out. GPU number g belongs to `owner[g]` (-1: free); node n has the GPUs `node_first[n]` up to
`node_first[n + 1]`; where nodes do not matter `owner` is empty.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.cluster.engine.kernels.heap import pop_least, push, push_least, remove
from forerun.cluster.engine.kernels.placement import BUDDY, block_on, place
from forerun.core.kernels.jit import kernel

# columns of f
LEFT: Final = 0  # seconds of work left, at the requested count
SINCE: Final = 1  # when work was last counted, or when the restart is over
SPEED: Final = 2  # work done in a second
END: Final = 3
SERVED: Final = 4  # GPU time it has had, in GPU-seconds
USEFUL: Final = 5  # GPU-seconds of work
PAUSED: Final = 6  # seconds of restarting
CHANGED: Final = 7  # when its GPUs last changed
SUBMIT: Final = 8
DEADLINE: Final = 9
WORK: Final = 10
SCALE: Final = 11  # speed = rate * scale
WORKED: Final = 12  # seconds of work
REQUEST: Final = 13  # seconds that the job asked for
DELAY: Final = 14  # seconds after the end of the job before it at which it comes; negative: there is none
LOST: Final = 15  # GPU-seconds of work that is lost
FLOATS: Final = 16

# columns of i
HELD: Final = 0
TYPE: Final = 1
STATE: Final = 2
STARTS: Final = 3
WANT: Final = 4  # requested GPUs
KIND: Final = 5
USER: Final = 6
EFFORT: Final = 7
PREEMPTS: Final = 8
COSTS: Final = 9  # row of the costs
BEFORE: Final = 10  # GPUs before the present decision, of jobs that go on with others
ROW: Final = 11  # the job's own number, by which equal ends are ranked
REACH: Final = 12  # its row of `reach`
NODES: Final = 13  # nodes that it asks for; 0: as few as can be
ALONE: Final = 14  # whether no other job may be on its nodes
FOLLOWER: Final = 15  # the first job that comes after its end; -1: none
SIBLING: Final = 16  # the next one that comes after the end of the same job; -1: none
INTS: Final = 17

# what a change of GPUs is, by which it costs
RESTART: Final = 0
GROW: Final = 1
SHRINK: Final = 2
MOVE: Final = 3
BEGIN: Final = 4
DRAIN: Final = 5

# places in meta
ARRIVED: Final = 0
ACTIVE: Final = 1
RUNNING: Final = 2
LOGGED: Final = 3
ENDED: Final = 4
RETURNING: Final = 5
DRAWS: Final = 6

ABSENT: Final = 0
WAITING: Final = 1
HOLDING: Final = 2
DONE: Final = 3

#: the owner of GPUs that no job can have, and of those that a job would get
NOBODY: Final = 1 << 62
TRIED: Final = NOBODY - 1

# what is wrong with an allocation
FINE: Final = 0
NEGATIVE: Final = 1
ILLEGAL_COUNT: Final = 2
TOO_MANY: Final = 3
NO_ROOM: Final = 4


class AllocatorState(NamedTuple):
    """The packed state.

    Parameters
    ----------
    f, i : float64[FLOATS, jobs] and int64[INTS, jobs], the columns above.
    active : rows that wait or run, in the order in which they came; among them such that have ended since `gather`.
    coming, coming_s : heap of jobs that come at an instant other than their submission, as of `heap`.
    end_order, end_key, end_at : heap of running jobs by their end, as of `heap`.
    rate : float64[types, kinds, GPUs + 1], iterations a second.
    type_free, type_size : GPUs of each type, free and in all.
    owner : the job on each GPU, -1: none; empty where nodes do not matter.
    node_first, node_type : the first GPU of each node (and one after the last), and its type.
    reach : int64[classes, nodes], 1 for the nodes that jobs of a class may use.
    cost : float64[rows, 6, GPUs + 1], seconds of a start after preemption, of growing, shrinking and moving, by the larger
        count, of the first start, and until the GPUs that a job gives up are free; beyond the last one the last applies.
    penalty : speed of a job on that many nodes, relative to one; beyond the last number the last applies.
    meta : the counters above.
    log_time, log_row, log_gpus : changes of GPUs that the caller has not taken yet.
    """

    f: F64
    i: I64
    active: I64
    coming: I64
    coming_s: F64
    end_order: I64
    end_key: F64
    end_at: I64
    rate: F64
    type_free: I64
    type_size: I64
    owner: I64
    node_first: I64
    node_type: I64
    reach: I64
    cost: F64
    penalty: F64
    meta: I64
    log_time: F64
    log_row: I64
    log_gpus: I64


@kernel
def speed_of(s: AllocatorState, job: int, gpus: int, gpu_type: int) -> float:
    """Work a job does in a second; 0 where it cannot run."""
    if gpus == 0:
        return 0.0
    kind = s.i[KIND, job]
    if kind < 0:
        return 1.0 if gpus == s.i[WANT, job] else 0.0
    if gpus >= s.rate.shape[2]:
        return 0.0
    return float(s.rate[gpu_type, kind, gpus] * s.f[SCALE, job])


@kernel
def advance(s: AllocatorState, until_s: float) -> float:
    """Play all ends and arrivals up to and including `until_s`; the instant of the next one (infinity: none).

    Stops early where the log is nearly full: the instant is then `until_s` or before, and the caller calls again.
    """
    while True:
        arrival = next_arrival_s(s)
        end = s.f[END, s.end_order[0]] if s.meta[RUNNING] > 0 else np.inf
        if min(arrival, end) > until_s:
            return min(arrival, end)
        if end <= arrival:
            job = s.end_order[0]
            _count_work(s, job, end)
            _give_up(s, job, end)
            s.f[LEFT, job] = 0.0
            leave(s, job, end)
        else:
            if s.meta[RETURNING] > 0 and s.coming_s[0] == arrival:
                job = s.coming[0]
                s.meta[RETURNING] = pop_least(s.coming, s.coming_s, s.meta[RETURNING])
            else:
                job = s.meta[ARRIVED]
                s.meta[ARRIVED] += 1
            if s.i[STATE, job] != DONE:  # it may have left before it came
                s.active[s.meta[ACTIVE]] = job
                s.meta[ACTIVE] += 1
                s.i[STATE, job] = WAITING
                s.f[SUBMIT, job] = min(s.f[SUBMIT, job], arrival)  # a restart keeps its place
                s.f[CHANGED, job] = arrival
        if s.meta[LOGGED] + 8 >= len(s.log_row):
            return min(until_s, min(arrival, end))


@kernel
def next_arrival_s(s: AllocatorState) -> float:
    """When the next job comes by what is known now; infinity: none."""
    while s.meta[ARRIVED] < s.f.shape[1] and s.f[DELAY, s.meta[ARRIVED]] >= 0.0:
        s.meta[ARRIVED] += 1
    arrival = s.f[SUBMIT, s.meta[ARRIVED]] if s.meta[ARRIVED] < s.f.shape[1] else np.inf
    return float(min(arrival, s.coming_s[0] if s.meta[RETURNING] > 0 else np.inf))


@kernel
def leave(s: AllocatorState, job: int, now: float) -> None:
    """A job is done with, whether it ended or never will run; those that wait for its end come."""
    s.i[STATE, job] = DONE
    s.meta[ENDED] += 1
    follower = s.i[FOLLOWER, job]
    while follower >= 0:
        _come(s, follower, now + s.f[DELAY, follower])
        follower = s.i[SIBLING, follower]


@kernel
def _come(s: AllocatorState, job: int, at_s: float) -> None:
    """A job comes at an instant."""
    s.meta[RETURNING] = push_least(s.coming, s.coming_s, s.meta[RETURNING], job, at_s)


@kernel
def set_ends(s: AllocatorState, ended_s: F64) -> None:
    """Running jobs end when they were seen to have ended, by row; of the others (nan) no end is known."""
    jobs = s.end_order[: s.meta[RUNNING]].copy()
    s.meta[RUNNING] = 0
    for job in jobs:
        _expect_end(s, job, np.inf if np.isnan(ended_s[job]) else ended_s[job])


@kernel
def see(s: AllocatorState, now: float, left: F64, owed_s: F64) -> float:
    """Running jobs have as much work left as was observed, and their ends are predicted from it; the next event's instant.

    Parameters
    ----------
    left : by row, seconds of work on the requested GPUs.
    owed_s : by row, seconds until the job works again.
    """
    jobs = s.end_order[: s.meta[RUNNING]].copy()
    s.meta[RUNNING] = 0
    for job in jobs:
        span = max(0.0, now - s.f[SINCE, job])
        s.f[USEFUL, job] += s.i[HELD, job] * span
        s.f[WORKED, job] += span
        s.f[LEFT, job] = left[job]
        s.f[SINCE, job] = now + owed_s[job]
        end = s.f[SINCE, job] + left[job] / s.f[SPEED, job]
        # an end that is overdue is looked for once a second
        _expect_end(s, job, end if end > now else now + 1.0)
    return min(next_arrival_s(s), s.f[END, s.end_order[0]] if s.meta[RUNNING] > 0 else np.inf)


@kernel
def _expect_end(s: AllocatorState, job: int, end: float) -> None:
    """Enter a running job's end into the heap of ends."""
    s.f[END, job] = end
    s.meta[RUNNING] = push(s.end_order, s.end_key, s.end_at, s.i[ROW], s.meta[RUNNING], job, end)


@kernel
def _count_work(s: AllocatorState, job: int, now: float) -> None:
    """Bring a running job's account up to now."""
    held = s.i[HELD, job]
    if held == 0:
        return
    s.f[SERVED, job] += held * (now - s.f[CHANGED, job])
    s.f[CHANGED, job] = now
    if now > s.f[SINCE, job]:
        span = now - s.f[SINCE, job]
        s.f[LEFT, job] -= span * s.f[SPEED, job]
        s.f[USEFUL, job] += held * span
        s.f[WORKED, job] += span
        s.f[SINCE, job] = now


@kernel
def _give_up(s: AllocatorState, job: int, now: float) -> None:
    """A job lets all its GPUs go."""
    s.type_free[s.i[TYPE, job]] += s.i[HELD, job]
    s.i[HELD, job] = 0
    s.f[CHANGED, job] = now
    s.meta[RUNNING] = remove(s.end_order, s.end_key, s.end_at, s.i[ROW], s.meta[RUNNING], job)
    if len(s.owner) > 0:
        for g in range(len(s.owner)):
            if s.owner[g] == job:
                s.owner[g] = -1
    _log(s, now, job)


@kernel
def stop(s: AllocatorState, job: int, now: float) -> None:
    """A running job loses its GPUs, and waits."""
    _count_work(s, job, now)
    s.i[STATE, job] = WAITING
    s.i[PREEMPTS, job] += 1
    _give_up(s, job, now)


@kernel
def requeue(s: AllocatorState, job: int, now: float, delay_s: float, checkpoint_s: float) -> None:
    """A running job loses its GPUs and its work since its last checkpoint, and comes again after a while.

    Parameters
    ----------
    delay_s : how long after; infinite: it never does.
    checkpoint_s : seconds of work between checkpoints; 0: there are none.
    """
    _count_work(s, job, now)
    done = s.f[WORK, job] - s.f[LEFT, job]
    saved = np.floor(done / checkpoint_s) * checkpoint_s if checkpoint_s > 0.0 and delay_s < np.inf else 0.0
    s.f[LOST, job] += (done - saved) / s.f[SPEED, job] * s.i[HELD, job]
    s.f[LEFT, job] = s.f[WORK, job] - saved
    s.i[PREEMPTS, job] += 1
    _give_up(s, job, now)
    stays = 0
    for at in range(s.meta[ACTIVE]):
        s.active[stays] = s.active[at]
        stays += s.active[at] != job
    s.meta[ACTIVE] = stays
    if delay_s < np.inf:
        s.i[STATE, job] = ABSENT
        _come(s, job, now + delay_s)
    else:
        leave(s, job, now)


@kernel
def _log(s: AllocatorState, now: float, job: int) -> None:
    at = s.meta[LOGGED]
    s.log_time[at] = now
    s.log_row[at] = job
    s.log_gpus[at] = s.i[HELD, job]
    s.meta[LOGGED] = at + 1


@kernel
def gather(s: AllocatorState, now: float, view_f: F64, view_i: I64) -> int:
    """Lay the waiting and running jobs out in the order in which they came; how many there are.

    Rows of `view_f`: submit, deadline, GPU-seconds had, seconds waiting or running since the last change, work left,
    work in all, requested time, when the GPUs last changed, seconds until it works. Rows of `view_i`: job, GPUs requested,
    held, kind, user, best effort, type, row of the costs, starts.
    """
    count = 0
    for at in range(s.meta[ACTIVE]):
        job = s.active[at]
        if s.i[STATE, job] == DONE:
            continue
        s.active[count] = job
        held = s.i[HELD, job]
        view_f[0, count] = s.f[SUBMIT, job]
        view_f[1, count] = s.f[DEADLINE, job]
        view_f[2, count] = s.f[SERVED, job] + held * (now - s.f[CHANGED, job])
        view_f[3, count] = now - s.f[CHANGED, job]
        done = (now - s.f[SINCE, job]) * s.f[SPEED, job] if held > 0 and now > s.f[SINCE, job] else 0.0
        view_f[4, count] = s.f[LEFT, job] - done
        view_f[5, count] = s.f[WORK, job]
        view_f[6, count] = s.f[REQUEST, job]
        view_f[7, count] = s.f[CHANGED, job]
        view_f[8, count] = max(0.0, s.f[SINCE, job] - now) if held > 0 else 0.0
        view_i[0, count] = job
        view_i[1, count] = s.i[WANT, job]
        view_i[2, count] = held
        view_i[3, count] = s.i[KIND, job]
        view_i[4, count] = s.i[USER, job]
        view_i[5, count] = s.i[EFFORT, job]
        view_i[6, count] = s.i[TYPE, job]
        view_i[7, count] = s.i[COSTS, job]
        view_i[8, count] = s.i[STARTS, job]
        count += 1
    s.meta[ACTIVE] = count
    return count


@kernel
def _type_for(at: int, gpus: int, view_i: I64, rate: F64, free: I64) -> int:
    """The GPU type for a job: the one it runs on if enough of that is free, else the fastest with enough; -1 if none has."""
    mine = view_i[6, at]
    if view_i[2, at] > 0 and free[mine] >= gpus:
        return int(mine)
    kind = view_i[3, at]
    best, most = -1, 0.0
    for t in range(len(free)):
        speed = 1.0 if kind < 0 else (rate[t, kind, gpus] if gpus < rate.shape[2] else 0.0)
        if free[t] >= gpus and speed > most:
            best, most = t, speed
    return best


@kernel
def take_plain(order: I64, want: I64, free: int, skip: bool, out: I64) -> None:
    """As `take_in_order` on GPUs of one type without quotas, in a fraction of the time where most jobs wait."""
    out[:] = 0
    for k in range(len(order)):
        at = order[k]
        if want[at] <= free:
            out[at] = want[at]
            free -= want[at]
        elif not skip:
            return


@kernel
def take_in_order(
    order: I64,
    want: I64,
    view_i: I64,
    rate: F64,
    type_size: I64,
    skip: bool,
    quota: I64,
    borrow: bool,
    out: I64,
    out_type: I64,
) -> None:
    """Give jobs what they want in order while it lasts, each on GPUs of one type.

    Parameters
    ----------
    order : positions of the view.
    want : GPUs by position.
    view_i, rate, type_size : integers of the view, iterations a second, and GPUs of each type, as of `View`.
    skip : pass over jobs that do not fit; else the first of them ends the distribution.
    quota : GPUs of each user; empty: no quotas.
    borrow : what is left goes round once more, without quotas.
    out, out_type : written: GPUs by position, and their type.
    """
    out[:] = 0
    free = type_size.copy()
    used = np.zeros(max(len(quota), 1), np.int64)
    for turn in range(2 if borrow and len(quota) > 0 else 1):
        for k in range(len(order)):
            at = order[k]
            gpus = want[at]
            if gpus == 0 or out[at] > 0:
                continue
            user = view_i[4, at] if len(quota) > 0 else 0
            if turn == 0 and len(quota) > 0 and used[user] + gpus > quota[user]:
                continue
            chosen = _type_for(at, gpus, view_i, rate, free)
            if chosen >= 0:
                out[at] = gpus
                out_type[at] = chosen
                free[chosen] -= gpus
                if turn == 0:
                    used[user] += gpus
            elif turn == 0 and not skip:
                break


@kernel
def check(s: AllocatorState, rows: I64, gpus: I64, types: I64, count: int) -> tuple[int, int]:
    """What is impossible about an allocation: (fault, position of the job), fault 0 if nothing is.

    Counts must not be negative, the jobs must be able to run on them, and no type may be used up beyond its size; whether
    nodes suffice shows when it is carried out.
    """
    used = np.zeros(len(s.type_size), np.int64)
    for at in range(count):
        job = rows[at]
        if gpus[at] < 0:
            return NEGATIVE, at
        if gpus[at] > 0 and not speed_of(s, job, gpus[at], types[at]) > 0.0:
            return ILLEGAL_COUNT, at
        used[types[at]] += gpus[at]
        if used[types[at]] > s.type_size[types[at]]:
            return TOO_MANY, at
    return FINE, -1


@kernel
def apply(
    s: AllocatorState,
    now: float,
    rows: I64,
    gpus: I64,
    types: I64,
    count: int,
    placement: int,
    seed: int,
    named: I64,
    named_first: I64,
) -> None:
    """Carry an allocation out: shrinking and stopping first, then jobs with named GPUs, then the rest as given.

    A running job with named GPUs moves. A job for which there are no admissible nodes keeps waiting.

    Parameters
    ----------
    rows, gpus, types, count : jobs, their GPUs and GPU types by position, and how many positions there are.
    placement, seed : one of the placements above, and the seed of the random one.
    named, named_first : GPUs by number, ascending for each job; those of position p are `named_first[p]` up to
        `named_first[p + 1]` (none: the placement chooses; `named_first` empty: for no job).
    """
    wait = 0.0  # until GPUs that are given up are free
    for at in range(count):
        job = rows[at]
        held = s.i[HELD, job]
        moved = _is_named(named_first, at)
        if held > 0 and (gpus[at] != held or types[at] != s.i[TYPE, job] or moved):
            if gpus[at] <= held:
                wait = max(wait, s.cost[s.i[COSTS, job], DRAIN, min(held, s.cost.shape[2] - 1)])
            _count_work(s, job, now)
            s.i[BEFORE, job] = held
            if gpus[at] == 0:
                s.i[STATE, job] = WAITING
                s.i[PREEMPTS, job] += 1
                _give_up(s, job, now)
            elif types[at] != s.i[TYPE, job] or len(s.owner) > 0:
                _give_up(s, job, now)
                s.meta[LOGGED] -= 1
            else:
                s.type_free[s.i[TYPE, job]] += held
                s.i[HELD, job] = 0
                s.meta[RUNNING] = remove(s.end_order, s.end_key, s.end_at, s.i[ROW], s.meta[RUNNING], job)
    for turn in range(2 if len(named_first) > 0 else 1):
        for at in range(count):
            job = rows[at]
            if gpus[at] == 0 or s.i[HELD, job] > 0:
                continue
            first, last = 0, 0
            if _is_named(named_first, at):
                first, last = named_first[at], named_first[at + 1]
            if len(named_first) > 0 and turn == 0 and last == first:
                continue
            _start(s, now, job, gpus[at], types[at], placement, seed, named, first, last, wait)


@kernel
def _is_named(named_first: I64, at: int) -> bool:
    return bool(len(named_first) > 0 and named_first[at + 1] > named_first[at])


@kernel
def _start(
    s: AllocatorState,
    now: float,
    job: int,
    gpus: int,
    gpu_type: int,
    placement: int,
    seed: int,
    named: I64,
    first: int,
    last: int,
    wait: float,
) -> None:
    """A job gets GPUs, if there are admissible nodes for it."""
    nodes = 1
    if last > first:
        nodes = node = 0
        for k in range(first, last):
            s.owner[named[k]] = job
            if k == first or named[k] >= s.node_first[node + 1]:
                nodes += 1
                while named[k] >= s.node_first[node + 1]:
                    node += 1
                if s.i[ALONE, job]:
                    for g in range(s.node_first[node], s.node_first[node + 1]):
                        if s.owner[g] < 0:
                            s.owner[g] = job
    elif len(s.owner) > 0:
        nodes = find_nodes(s, job, job, gpus, gpu_type, placement, seed)
    elif s.type_free[gpu_type] < gpus:
        nodes = 0
    if nodes == 0:
        if s.i[STATE, job] == HOLDING:  # it was stopped to be moved, and there is no place for it
            s.i[STATE, job] = WAITING
            s.i[PREEMPTS, job] += 1
            _log(s, now, job)
        return
    s.type_free[gpu_type] -= gpus
    before = s.i[BEFORE, job] if s.i[STATE, job] == HOLDING else 0
    fresh = before == 0 and s.i[STARTS, job] == 0
    pause = change_s(s.cost, s.i[COSTS, job], -1 if fresh else before, gpus)
    if gpus >= before:
        pause += wait
    s.i[STATE, job] = HOLDING
    s.i[HELD, job] = gpus
    s.i[TYPE, job] = gpu_type
    s.i[STARTS, job] += 1
    s.f[CHANGED, job] = now
    s.f[SINCE, job] = now + pause
    s.f[PAUSED, job] += pause
    s.f[SPEED, job] = speed_of(s, job, gpus, gpu_type) * s.penalty[min(nodes, len(s.penalty) - 1)]
    s.f[END, job] = now + pause + max(s.f[LEFT, job], 0.0) / s.f[SPEED, job]
    end_s = s.f[END, job]
    s.meta[RUNNING] = push(s.end_order, s.end_key, s.end_at, s.i[ROW], s.meta[RUNNING], job, end_s)
    _log(s, now, job)


@kernel
def change_s(cost: F64, row: int, before: int, after: int) -> float:
    """Seconds that a change of GPUs takes by a row of the costs; before -1: the job never had any."""
    what = MOVE
    if before <= 0:
        what = RESTART if before == 0 else BEGIN
    elif before != after:
        what = GROW if after > before else SHRINK
    return float(cost[row, what, min(max(after, before), cost.shape[2] - 1)])


# -- nodes -------------------------------------------------------------------------------------------------------


@kernel
def find_nodes(
    s: AllocatorState, job: int, mark: int, gpus: int, gpu_type: int, placement: int, seed: int
) -> int:
    """Give a job GPUs on nodes of one type that it may use; the number of nodes, 0 if no admissible place is free.

    It has the shape that it asks for, as long as it has as many GPUs as it asks for. Where it cannot be served in full, it
    gets nothing.

    Parameters
    ----------
    job : whose shape and nodes matter.
    mark : the owner of the GPUs from then on.
    """
    nodes, asked = len(s.node_type), gpus == s.i[WANT, job]
    free, size, share = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    for node in range(nodes):
        if s.node_type[node] == gpu_type and s.reach[s.i[REACH, job], node]:
            size[node] = s.node_first[node + 1] - s.node_first[node]
            for g in range(s.node_first[node], s.node_first[node + 1]):
                free[node] += s.owner[g] < 0
    chosen = np.zeros(nodes, np.int64)
    said, alone = s.i[NODES, job] if asked else 0, s.i[ALONE, job] > 0
    count = place(
        free, size, gpus, said, alone, placement, seed, s.meta[DRAWS:], s.owner, s.node_first, chosen, share
    )
    for k in range(count):
        seize(s, chosen[k], mark, share[k], placement)
    return int(count)


@kernel
def seize(s: AllocatorState, node: int, job: int, gpus: int, placement: int) -> None:
    """Take GPUs of a node: the lowest free ones, or the first of an aligned block."""
    g = s.node_first[node]
    if placement == BUDDY:
        g = max(g, block_on(s.owner, s.node_first[node], s.node_first[node + 1], gpus))
    left = gpus
    while left > 0:
        if s.owner[g] < 0:
            s.owner[g] = job
            left -= 1
        g += 1
