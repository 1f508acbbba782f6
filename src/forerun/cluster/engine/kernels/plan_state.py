"""The machine that the elastic and deadline-first schedules of the published simulator share.

It keeps jobs, the events ahead, the placement of GPU sets on nodes and the cache of communication groups. Lists that
the published code keeps in an order of their own are arrays of rows with a count in `meta`. An event is not an object:
a job knows the instant of the end event it sits in (`at`) and its turn there (`turn`); arrivals are a pointer into the
sorted submissions; wake-ups are a sorted array. Source: the published ElasticFlow simulator's rules.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.kernels.arrays import BOOL, F64, I64
from forerun.cluster.engine.kernels.common import overhead_s
from forerun.cluster.engine.kernels.planner import key_before, whole_up
from forerun.core.kernels.jit import kernel

#: places in `meta`
RUNNABLE: Final = 0
PENDING: Final = 1
RUNNING: Final = 2
WAKES: Final = 3
FREE_NODES: Final = 4
TURN: Final = 5
ARRIVED: Final = 6  # jobs that have been submitted
FIRST: Final = 7  # the first job of the present arrivals
ENDS: Final = 8
TICKS: Final = 9
SETS: Final = 10
KEYS: Final = 11
ACCEPTED: Final = 12
FINISHED: Final = 13
SORTED: Final = 14  # whether the free nodes are sorted yet
OPEN: Final = 15  # whether more jobs may always come, known or not

#: states of a job
ABSENT: Final = 0
WAITING: Final = 1
HOLDING: Final = 2
GONE: Final = 3

#: an instant after everything
FAR: Final = 1 << 62

#: size classes of GPU sets
CLASSES: Final = np.array([1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 88, 128, 256], np.int64)


#: columns of `j`, one element a job; times in seconds, -1 is "none"
SUBMIT: Final = 0
DEADLINE: Final = 1
SLO: Final = 2  # 1: it has a deadline
KIND: Final = 3
TOP: Final = 4  # how many levels it may use
GPUS: Final = 5
LEVEL: Final = 6  # the level of GPUS, -1: none
END: Final = 7
OLD_END: Final = 8
PLANNED: Final = 9  # end before rounding to slots
CHARGED: Final = 10  # overhead still to be served
EVENT_AT: Final = 11  # instant of the end event it sits in
MY_TURN: Final = 12  # its turn there
STATE: Final = 13
SLOT: Final = 14  # row of its plan
LAST_GPUS: Final = 15  # GPUs at the last charge
SET_OF: Final = 16  # the GPU set it is placed in
HIT: Final = 17  # 1: its communication group was known
COLUMNS: Final = 18

#: the fourth list, beside RUNNABLE, PENDING and RUNNING: rows whose end event this is
ENDING: Final = 3

#: columns of `sets`: GPUs, GPUs used, first place in `set_nodes`, jobs, class
CAP: Final = 0
USED: Final = 1
FIRST_NODE: Final = 2
JOBS_IN: Final = 3
CLASS: Final = 4


class PlanState(NamedTuple):
    """The packed state: few arrays, so that kernels compile and call each other cheaply.

    Who sits where is in `Places`: a kernel costs its number of arrays to compile, and few need both.

    Parameters
    ----------
    j : int64[COLUMNS, jobs], the columns above.
    left : float64[jobs], iterations to do.
    useful : float64[jobs], GPU-seconds of work.
    rate : float64[kinds, levels], iterations a second; 0 where a kind cannot run.
    meta : the counters above.
    lists : int64[4, 2 jobs], rows of jobs in the lists' own orders; their lengths are in `meta`.
    wakes : ascending instants of wake-ups.
    free_slots : rows of `plans` not in use, as a stack; the first element is its size.
    plans, plan_n : int64[2, slots, keys], instants and GPUs of the committed plans, and the entries of each.
    free : int64[2, keys], the profile of free GPUs, as of `planner`.
    levels, floor_level : the legal GPU counts, as of `planner.Ladder`.
    """

    j: I64
    left: F64
    useful: F64
    rate: F64
    meta: I64
    lists: I64
    wakes: I64
    free_slots: I64
    plans: I64
    plan_n: I64
    free: I64
    levels: I64
    floor_level: I64


class Places(NamedTuple):
    """Jobs on nodes, in sets of whole nodes that jobs share.

    Parameters
    ----------
    j, meta : those of `PlanState`.
    node_turn : number of each node in its switch.
    free_nodes : nodes of no set; their number is in `meta`.
    node_set : the set of each node; -1: none.
    sets : int64[5, nodes + 1], the sets in use, by the columns above.
    set_nodes : nodes of the sets, one set after another.
    set_jobs : int64[nodes + 1, GPUs of a node + 1], jobs of each set.
    class_sets, class_n : int64[classes, nodes + 1], sets by the size class of their free space, and how many.
    known : bool[GPUs, levels], communication groups met, by first rank and size.
    """

    j: I64
    meta: I64
    node_turn: I64
    free_nodes: I64
    node_set: I64
    sets: I64
    set_nodes: I64
    set_jobs: I64
    class_sets: I64
    class_n: I64
    known: BOOL


@kernel
def is_wake(m: PlanState, time_s: int) -> bool:
    """Whether an empty wake-up event stands at an instant."""
    place = key_before(m.wakes, m.meta[WAKES], time_s) + 1
    return bool(place < m.meta[WAKES] and m.wakes[place] == time_s)


@kernel
def is_event(m: PlanState, time_s: int) -> bool:
    """Whether any event stands at an instant."""
    if is_wake(m, time_s):
        return True
    place = m.meta[ARRIVED] + np.searchsorted(m.j[SUBMIT, m.meta[ARRIVED] :], time_s)
    if place < len(m.j[SUBMIT]) and m.j[SUBMIT, place] == time_s:
        return True
    due = False
    for i in range(m.meta[RUNNABLE]):
        due |= m.j[EVENT_AT, m.lists[RUNNABLE, i]] == time_s
    return bool(due)


@kernel
def add_wake(m: PlanState, time_s: int) -> None:
    """Put an empty event at an instant if none is there."""
    if is_event(m, time_s):
        return
    count = m.meta[WAKES]
    place = key_before(m.wakes, count, time_s) + 1
    for i in range(count, place, -1):
        m.wakes[i] = m.wakes[i - 1]
    m.wakes[place] = time_s
    m.meta[WAKES] = count + 1


@kernel
def drop_wake(m: PlanState, time_s: int) -> None:
    """Take the empty event at an instant away."""
    place = key_before(m.wakes, m.meta[WAKES], time_s) + 1
    for i in range(place, m.meta[WAKES] - 1):
        m.wakes[i] = m.wakes[i + 1]
    m.meta[WAKES] -= 1


@kernel
def register(m: PlanState, job: int) -> None:
    """Put a job into the event at its end."""
    m.j[EVENT_AT, job] = m.j[END, job]
    m.j[MY_TURN, job] = m.meta[TURN]
    m.meta[TURN] += 1


@kernel
def set_end(m: PlanState, job: int) -> None:
    """Move a job from the event at its old end to the one at its new end; an event left empty goes, wake-up or not."""
    old = m.j[OLD_END, job]
    if old == m.j[END, job]:
        return
    if m.j[EVENT_AT, job] == old and old >= 0:
        m.j[EVENT_AT, job] = -1
        if is_wake(m, old):
            alone = True
            for i in range(m.meta[RUNNABLE]):
                alone &= m.j[EVENT_AT, m.lists[RUNNABLE, i]] != old
            if alone:
                drop_wake(m, old)
    register(m, job)


@kernel
def next_instant(m: PlanState, now_s: int, slot_s: int) -> int:
    """The next instant: events within a slot of now are postponed to the slot's end; -1 if no event is left.

    A lone last event is not postponed, where no more jobs can come.
    """
    jobs = len(m.j[SUBMIT])
    first, second = int(FAR), int(FAR)  # the two least distinct instants of events
    arrived = m.meta[ARRIVED]
    if arrived < jobs:
        first = m.j[SUBMIT, arrived]
        later = np.searchsorted(m.j[SUBMIT, arrived:], first, side="right") + arrived
        if later < jobs:
            second = m.j[SUBMIT, later]
    for i in range(m.meta[WAKES]):
        if i > 1:
            break
        first, second = two_least(first, second, m.wakes[i])
    for i in range(m.meta[RUNNABLE]):
        time_s = m.j[EVENT_AT, m.lists[RUNNABLE, i]]
        if time_s >= 0:
            first, second = two_least(first, second, time_s)
    if first == FAR:
        return -1
    if first - now_s <= slot_s and (second < FAR or m.meta[OPEN] == 1):
        return now_s + slot_s
    return first


@kernel
def go_on(m: PlanState, now_s: int, slot_s: int) -> int:
    """Go to the next instant, in one call; -1 if no event is left."""
    moment = next_instant(m, now_s, slot_s)
    if moment >= 0:
        take_events(m, moment)
    return moment


@kernel
def take_events(m: PlanState, moment: int) -> None:
    """Go to an instant: move `FIRST` and `ARRIVED` around the rows that arrive by then, and use wake-ups until then up.

    Writes the rows that end by then into the list `ENDING`, in order.
    """
    jobs = len(m.j[SUBMIT])
    arrived = m.meta[ARRIVED]
    m.meta[FIRST] = arrived
    while arrived < jobs and m.j[SUBMIT, arrived] <= moment:
        arrived += 1
    m.meta[ARRIVED] = arrived
    gone = 0
    while gone < m.meta[WAKES] and m.wakes[gone] <= moment:
        gone += 1
    for i in range(gone, m.meta[WAKES]):
        m.wakes[i - gone] = m.wakes[i]
    m.meta[WAKES] -= gone
    _collect_ends(m, moment)


@kernel
def two_least(first: int, second: int, time_s: int) -> tuple[int, int]:
    """The two least distinct instants, with one more looked at."""
    if time_s < first:
        return time_s, first
    if first < time_s < second:
        return first, time_s
    return first, second


@kernel
def _collect_ends(m: PlanState, moment: int) -> None:
    """The rows whose end events were postponed to this moment, by (instant, turn)."""
    count = 0
    for i in range(m.meta[RUNNABLE]):
        job = m.lists[RUNNABLE, i]
        if 0 <= m.j[EVENT_AT, job] <= moment:
            place = count
            while place > 0 and _later(m, m.lists[ENDING, place - 1], job):
                m.lists[ENDING, place] = m.lists[ENDING, place - 1]
                place -= 1
            m.lists[ENDING, place] = job
            count += 1
    for i in range(count):
        m.j[EVENT_AT, m.lists[ENDING, i]] = -1
    m.meta[ENDS] = count


@kernel
def _later(m: PlanState, one: int, other: int) -> bool:
    same = m.j[EVENT_AT, one] == m.j[EVENT_AT, other]
    return bool(
        m.j[EVENT_AT, one] > m.j[EVENT_AT, other] or (same and m.j[MY_TURN, one] > m.j[MY_TURN, other])
    )


@kernel
def progress(m: PlanState, elapsed_s: int, now_s: int) -> None:
    """Count the work done since the last instant; a job whose work is done before its end event ends now.

    A job works on the GPUs it has, less what it was charged, until its planned end: what lies between that and the end of
    the slot is lost. Jobs that end now join the list `ENDING`.

    Parameters
    ----------
    elapsed_s : seconds since the last instant.
    now_s : the present one.
    """
    for i in range(m.meta[RUNNABLE]):
        job = m.lists[RUNNABLE, i]
        if m.j[GPUS, job] <= 0:
            continue
        rate = m.rate[m.j[KIND, job], m.j[LEVEL, job]]
        spent = elapsed_s
        until = m.j[PLANNED, job] if m.j[PLANNED, job] >= 0 else m.j[END, job]
        if now_s > until:
            spent -= now_s - until
        spent = max(0, spent - m.j[CHARGED, job])
        work = spent * rate
        if m.left[job] <= work and m.j[END, job] > now_s:
            m.j[OLD_END, job] = m.j[END, job]
            ended = now_s - elapsed_s + whole_up(m.left[job] / rate)
            spent = m.j[END, job] - now_s + elapsed_s
            work = spent * rate
            m.j[END, job] = now_s
            set_end(m, job)
            m.j[EVENT_AT, job] = -1
            m.lists[ENDING, m.meta[ENDS]] = job
            m.meta[ENDS] += 1
            m.j[END, job] = ended
        m.left[job] -= work
        m.useful[job] += m.j[GPUS, job] * max(spent, 0)
        m.j[CHARGED, job] = 0


@kernel
def see(m: PlanState, elapsed_s: int, now_s: int, left: F64, owed_s: F64, ended_s: F64) -> None:
    """Take the work done from what was observed, in place of `progress`; arrays by row.

    A job ends when it was seen to. One whose end event has passed, or that ended in another one, gets its event anew.

    Parameters
    ----------
    elapsed_s : seconds since the last instant.
    now_s : the present one.
    left : iterations left.
    owed_s : seconds until a job with GPUs works again.
    ended_s : when a job ended; nan: it has not.
    """
    for i in range(m.meta[ENDS]):
        m.j[EVENT_AT, m.lists[ENDING, i]] = -1
    m.meta[ENDS] = 0
    for i in range(m.meta[RUNNABLE]):
        job = m.lists[RUNNABLE, i]
        rate = m.rate[m.j[KIND, job], m.j[LEVEL, job]] if m.j[GPUS, job] > 0 else 0.0
        if rate > 0.0:
            m.useful[job] += m.j[GPUS, job] * max(0.0, min((m.left[job] - left[job]) / rate, elapsed_s))
        m.left[job] = left[job]
        m.j[CHARGED, job] = 0
        if not np.isnan(ended_s[job]):
            m.j[EVENT_AT, job] = -1
            m.j[END, job] = whole_up(ended_s[job])
            m.j[PLANNED, job] = m.j[END, job]
            m.lists[ENDING, m.meta[ENDS]] = job
            m.meta[ENDS] += 1
        elif rate > 0.0 and (m.j[END, job] <= now_s or m.j[EVENT_AT, job] < 0):
            m.j[END, job] = max(now_s + 1, whole_up(now_s + owed_s[job] + left[job] / rate))
            m.j[PLANNED, job] = m.j[END, job]
            register(m, job)


@kernel
def remove(rows: I64, count: int, job: int) -> int:
    """Take a job out of a list, keeping its order; the new count."""
    kept = 0
    for i in range(count):
        if rows[i] != job:
            rows[kept] = rows[i]
            kept += 1
    return kept


@kernel
def start(m: PlanState, job: int) -> None:
    """A waiting job begins to run."""
    m.meta[PENDING] = remove(m.lists[PENDING], m.meta[PENDING], job)
    m.lists[RUNNING, m.meta[RUNNING]] = job
    m.meta[RUNNING] += 1
    m.j[STATE, job] = HOLDING
    if m.j[SLO, job] != 0:
        m.meta[ACCEPTED] += 1


# -- placement ---------------------------------------------------------------------------------------------------


@kernel(inline=True)
def class_of(size: int) -> int:
    """The class of a free space: the largest class that divides it."""
    for c in range(len(CLASSES) - 1, -1, -1):
        if CLASSES[c] <= size and size % CLASSES[c] == 0:
            return c
    return 0


@kernel(inline=True)
def class_index(gpus: int) -> int:
    """The list for a job of `gpus`: its own class, or the largest below."""
    largest = 0
    for c in range(len(CLASSES)):
        if CLASSES[c] <= gpus:
            largest = c
    return largest


@kernel
def let_in(rows: I64, count: int, row: int, keys: I64) -> None:
    """Insert a row into a list that is sorted by a key, after its equals."""
    spot = count
    while spot > 0 and keys[rows[spot - 1]] > keys[row]:
        rows[spot] = rows[spot - 1]
        spot -= 1
    rows[spot] = row


@kernel
def move_class(sets: I64, class_sets: I64, class_n: I64, which: int, to: int) -> None:
    """Put a GPU set into another class (-1: none); both classes are sorted by GPUs used, and equals keep their order."""
    used, own = sets[USED], sets[CLASS]
    left = own[which]
    if left >= 0:
        class_n[left] = remove(class_sets[left], class_n[left], which)
    if to >= 0:
        class_sets[to, class_n[to]] = which
        class_n[to] += 1
    own[which] = to
    for c in (left, to):
        if c < 0:
            continue
        members = class_sets[c]
        for i in range(1, class_n[c]):
            let_in(members, i, members[i], used)


@kernel
def place_in_order(m: Places, rows: I64, count: int, gpus_per_node: int) -> bool:
    """Place jobs one after another; false if the nodes do not suffice.

    A job goes to the GPU sets of its own class, then of larger ones downwards; else fresh nodes are opened.

    Parameters
    ----------
    rows, count : the jobs, in the order in which they are placed; those without GPUs are passed over.
    gpus_per_node : GPUs of each node.
    """
    j, meta, sets = m.j, m.meta, m.sets
    class_sets, class_n, free_nodes = m.class_sets, m.class_n, m.free_nodes
    set_nodes, set_jobs, node_set = m.set_nodes, m.set_jobs, m.node_set
    for r in range(count):
        job = rows[r]
        gpus = j[GPUS, job]
        if gpus <= 0:
            continue
        own = class_index(gpus)
        which = -1
        for step in range(len(CLASSES) - own):
            c = own if step == 0 else len(CLASSES) - step
            if class_n[c] == 0:
                continue
            first = class_sets[c, 0]
            if sets[CAP, first] - sets[USED, first] >= gpus:
                which = first
                break
            for i in range(1, class_n[c]):
                class_sets[c, i - 1] = class_sets[c, i]
            class_sets[c, class_n[c] - 1] = first
        if which < 0:
            nodes = -(-gpus // gpus_per_node)
            if nodes > meta[FREE_NODES]:
                return False
            which = meta[SETS]
            meta[SETS] += 1
            begin = 0 if which == 0 else sets[FIRST_NODE, which - 1] + sets[CAP, which - 1] // gpus_per_node
            sets[FIRST_NODE, which] = begin
            sets[CAP, which] = nodes * gpus_per_node
            sets[USED, which] = 0
            sets[JOBS_IN, which] = 0
            sets[CLASS, which] = -1
            for i in range(nodes):
                set_nodes[begin + i] = free_nodes[i]
                node_set[free_nodes[i]] = which
            for i in range(nodes, meta[FREE_NODES]):
                free_nodes[i - nodes] = free_nodes[i]
            meta[FREE_NODES] -= nodes
        set_jobs[which, sets[JOBS_IN, which]] = job
        sets[JOBS_IN, which] += 1
        sets[USED, which] += gpus
        j[SET_OF, job] = which
        # the class of the free space; a full set goes by the job just placed
        free = sets[CAP, which] - sets[USED, which]
        move_class(sets, class_sets, class_n, which, own if free == 0 else class_of(free))
    return True


@kernel
def place_by_count(j: I64, rows: I64, count: int, gpus_per_node: int, owner: I64) -> None:
    """Give jobs, in order, GPUs of empty nodes by their number alone: on several nodes where no node has enough.

    `owner`: int64[GPUs], filled with the row of the job that holds each GPU, -1: none; there are enough for all jobs. A
    job, or what is left of it, goes to the fullest node that can take it, else to the emptiest.
    """
    free = np.full(len(owner) // gpus_per_node, gpus_per_node, np.int64)
    owner[:] = -1
    for r in range(count):
        job = rows[r]
        left = j[GPUS, job]
        while left > 0:
            best = 0
            for node in range(1, len(free)):
                if free[best] < left:
                    better = free[node] > free[best]
                else:
                    better = left <= free[node] < free[best]
                if better:
                    best = node
            part = min(left, free[best])
            begin = (best + 1) * gpus_per_node - free[best]  # the free GPUs of a node are its last ones
            owner[begin : begin + part] = job
            free[best] -= part
            left -= part


@kernel
def release(m: Places, rows: I64, count: int, gpus_per_node: int, everybody: bool) -> None:
    """Give jobs' GPUs back, in order; a set without jobs returns its nodes, which stay sorted by number in the switch.

    Parameters
    ----------
    rows, count : the jobs; those without a set are passed over.
    gpus_per_node : GPUs of each node.
    everybody : no other job has any GPUs, so sets are counted from none again.
    """
    j, meta, sets = m.j, m.meta, m.sets
    class_sets, class_n, free_nodes = m.class_sets, m.class_n, m.free_nodes
    node_turn, set_nodes, set_jobs, node_set = m.node_turn, m.set_nodes, m.set_jobs, m.node_set
    for r in range(count):
        job = rows[r]
        which = j[SET_OF, job]
        if which < 0:
            continue
        j[SET_OF, job] = -1
        sets[USED, which] -= j[GPUS, job]
        sets[JOBS_IN, which] = remove(set_jobs[which], sets[JOBS_IN, which], job)
        free = sets[CAP, which] - sets[USED, which]
        to = class_of(free) if sets[USED, which] > 0 else -1
        if to < 0:
            if not meta[SORTED]:
                for i in range(1, meta[FREE_NODES]):
                    let_in(free_nodes, i, free_nodes[i], node_turn)
                meta[SORTED] = 1
            first = sets[FIRST_NODE, which]
            for i in range(first, first + sets[CAP, which] // gpus_per_node):
                node_set[set_nodes[i]] = -1
                let_in(free_nodes, meta[FREE_NODES], set_nodes[i], node_turn)
                meta[FREE_NODES] += 1
        elif free == CLASSES[sets[CLASS, which]]:
            continue
        move_class(sets, class_sets, class_n, which, to)
    if everybody:
        meta[SETS] = 0


@kernel
def learn_groups(m: Places, rows: I64, count: int, gpus_per_node: int) -> None:
    """Walk the nodes with a rank counter; `HIT` tells which jobs' groups were known, then all are."""
    for i in range(count):
        m.j[HIT, rows[i]] = 0
    for learns in (False, True):
        rank = 0
        for node in range(len(m.node_turn)):
            which = m.node_set[node]
            begin = rank
            if which >= 0:
                job = m.set_jobs[which, 0]
                if m.sets[CAP, which] > gpus_per_node or m.j[GPUS, job] >= gpus_per_node:
                    if not _counted(m, which, node, gpus_per_node):
                        _meet(m, rank, job, learns)
                else:
                    for i in range(m.sets[JOBS_IN, which]):
                        job = m.set_jobs[which, i]
                        _meet(m, rank, job, learns)
                        rank += m.j[GPUS, job]
            rank = begin + gpus_per_node


@kernel
def _meet(m: Places, rank: int, job: int, learns: bool) -> None:
    """Look up whether the group of a job is known, or know it from now on (learns)."""
    if learns:
        m.known[rank, m.j[LEVEL, job]] = True
    else:
        m.j[HIT, job] = m.known[rank, m.j[LEVEL, job]]


@kernel
def _counted(m: Places, which: int, node: int, gpus_per_node: int) -> bool:
    """Whether an earlier node of the same set was already walked."""
    nodes = m.sets[CAP, which] // gpus_per_node
    earlier = False
    for i in range(nodes):
        earlier |= m.set_nodes[m.sets[FIRST_NODE, which] + i] < node
    return bool(earlier)


@kernel
def tick(m: Places, slot_s: int) -> bool:
    """Count a scheduling event; every so many of them all communication groups are forgotten."""
    rebuilt = m.meta[TICKS] > 0 and m.meta[TICKS] % slot_s == 0
    m.meta[TICKS] += 1
    if rebuilt:
        m.known[:] = False
    return bool(rebuilt)


@kernel
def charge(m: PlanState, rows: I64, count: int, rebuilt: bool, unchanged_free: bool, total_gpus: int) -> None:
    """Jobs that have GPUs pay for their restart: their end moves by the overhead.

    Parameters
    ----------
    rows, count : the jobs.
    rebuilt : whether all communication groups are rebuilt at this event.
    unchanged_free : a job whose GPUs are those of the last event pays nothing.
    total_gpus : GPUs of the cluster.
    """
    for i in range(count):
        job = rows[i]
        if m.j[GPUS, job] > 0 and not (unchanged_free and m.j[GPUS, job] == m.j[LAST_GPUS, job]):
            _pay(m, job, overhead_s(m.j[GPUS, job], rebuilt, m.j[HIT, job] != 0, total_gpus))
        m.j[LAST_GPUS, job] = m.j[GPUS, job]


@kernel
def charge_each(m: PlanState, rows: I64, cost_s: I64) -> None:
    """Jobs pay each its own seconds, as a table of costs says: their ends move by them."""
    for i in range(len(rows)):
        job = rows[i]
        if cost_s[i] > 0:
            _pay(m, job, cost_s[i])
        m.j[LAST_GPUS, job] = m.j[GPUS, job]


@kernel
def _pay(m: PlanState, job: int, cost_s: int) -> None:
    """A job's end moves by some seconds, in which it does no work."""
    m.j[CHARGED, job] = cost_s
    m.j[OLD_END, job] = m.j[END, job]
    m.j[END, job] += cost_s
    set_end(m, job)
