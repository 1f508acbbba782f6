"""The machine of schedules that plan ahead, with the state that the published simulator of ElasticFlow keeps.

It keeps jobs, the events ahead, the placement of GPU sets on nodes and the cache of communication groups. Lists that
the published code keeps in an order of their own are arrays of rows with a count in `meta`. An event is not an object:
a job knows the instant of the end event it sits in (`at`) and its turn there (`turn`); arrivals are a pointer into the
sorted submissions; wake-ups are a sorted array. Source: the published ElasticFlow simulator's rules.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.kernels.arrays import BOOL, F64, I64
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
def remove(rows: I64, count: int, job: int) -> int:
    """Take a job out of a list, keeping its order; the new count."""
    kept = 0
    for i in range(count):
        if rows[i] != job:
            rows[kept] = rows[i]
            kept += 1
    return kept


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
