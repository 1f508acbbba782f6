"""Plans on named nodes: who starts now, and which nodes the others wait for.

Sets of nodes are rows of 64-bit words. A plan is made from nothing: jobs are looked at in their order, and each takes the
first instant at which enough of its nodes are there for its whole request, beside those that jobs before it wait for. The
nodes of a job that waits are named and whole: from its planned start on no other job may use them.

The rules are those that an unmodified slurmctld 22.05 was seen to follow; tests/cluster/slurm_reference.py says how.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.core.kernels.jit import kernel

#: places in `Nodes.meta`
RUNS: Final = 0  # running jobs
SEATS: Final = 1  # entries of `seat_node`
STARTS: Final = 2  # entries of `starts`
AGAIN: Final = 3  # whether a job waits for a node that is not in use
META: Final = 4

#: what a job asks of each node: all of its GPUs, whoever is on it
WHOLE: Final = -1
#: seconds of the first group of ends of running jobs
GROUP_S: Final = 30.0

_ODD: Final = 0x5555555555555555
_PAIRS: Final = 0x3333333333333333
_NIBBLES: Final = 0x0F0F0F0F0F0F0F0F
_BYTES: Final = 0x0101010101010101


class Nodes(NamedTuple):
    """The nodes, who is on them, and the plan that is being made. Times in seconds.

    Parameters
    ----------
    size, free : int64[nodes], GPUs of each node, and those that no job has.
    levels : int64[levels + 1, words], by number: the nodes that have so many GPUs free; last: those that are empty.
    reach : int64[classes, words], the nodes that jobs of each class may use.
    pool, from_word, to_word : of each class, the number of its pool, and the words in which it has nodes. Classes whose
        partitions share nodes are of one pool; a plan keeps pools apart.
    kind, wide, each, gpus, request : of the jobs, their class, how many nodes they take, GPUs on each of these but the
        last (`WHOLE`: all), GPUs in all, and the time they ask for.
    runs, run_end : running jobs by believed end, ascending, and these ends.
    pool_runs, pool_count : int64[pools, GPUs], those of each pool, and how many they are.
    pool_from, pool_to : int64[pools], the words in which each has nodes.
    place : by job, where it stands in `runs`.
    seat_first, seat_count : by job, its entries of `seat_node` while it runs.
    seat_node, seat_gpus : the nodes of running jobs, and their GPUs there.
    starts : the jobs that the last decision starts.
    horizon : float64[1], until when the plan says who waits for which nodes.
    phase : float64[1], second 0 of the run on the clock to whose multiples plans round.
    slots : int64[pools], how many instants at which its plan changes each pool has.
    slot_s, slot_busy : float64[pools, slots] and int64[pools, slots, words], these instants, and the nodes that are taken or
        waited for from each on.
    last : int64[pools], the place in the queue of the last job of each pool that the plan may start.
    beyond : int64[words], the nodes that maintenance beyond the horizon takes before the job at hand could end.
    later_free : int64[nodes], GPUs free after some ends.
    usable, ready, chosen : int64[words], scratch.
    meta : counters, see above.
    """

    size: I64
    free: I64
    levels: I64
    reach: I64
    pool: I64
    from_word: I64
    to_word: I64
    kind: I64
    wide: I64
    each: I64
    gpus: I64
    request: F64
    runs: I64
    run_end: F64
    pool_runs: I64
    pool_count: I64
    pool_from: I64
    pool_to: I64
    place: I64
    seat_first: I64
    seat_count: I64
    seat_node: I64
    seat_gpus: I64
    starts: I64
    horizon: F64
    phase: F64
    slots: I64
    slot_s: F64
    slot_busy: I64
    last: I64
    beyond: I64
    later_free: I64
    usable: I64
    ready: I64
    chosen: I64
    meta: I64


@kernel(allocates=False, internal=True)
def clear(row: I64) -> None:
    """Set all to 0."""
    for at in range(len(row)):
        row[at] = 0


@kernel(inline=True)
def _ones(word: int) -> int:
    """How many bits of a word are set."""
    word = word - ((word >> 1) & _ODD)
    word = (word & _PAIRS) + ((word >> 2) & _PAIRS)
    word = (word + (word >> 4)) & _NIBBLES
    return ((word * _BYTES) >> 56) & 0x7F


@kernel(inline=True)
def lowest(word: int) -> int:
    """The number of the lowest bit of a word that is set; there is one."""
    return int(_ones((word & -word) - 1))


@kernel(inline=True)
def level_of(each: int, levels: I64) -> int:
    """The row of `levels` that a request asks for."""
    return len(levels) - 1 if each == WHOLE else min(each, len(levels) - 2)


@kernel(allocates=False, internal=True)
def enough(nodes: I64, usable: I64, from_word: int, to_word: int, count: int) -> bool:
    """Whether so many nodes are in both sets, which have some in these words only."""
    there = 0
    for word in range(from_word, to_word):
        there += _ones(nodes[word] & usable[word])
        if there >= count:
            return True
    return False


@kernel(allocates=False, internal=True)
def _choose(nodes: I64, usable: I64, from_word: int, to_word: int, count: int, chosen: I64) -> None:
    """Choose so many of the nodes that are in both sets; there are enough of them in these words.

    They are consecutive where that is possible: the first of the shortest run that is long enough. Else the longest run is
    taken whole, and the rest is chosen of what is left.
    """
    clear(chosen)
    last = to_word << 6
    while count > 0:
        best_at, best, at = -1, 0, from_word << 6
        while at < last:
            word, bit = at >> 6, at & 63
            left = ((nodes[word] & usable[word] & ~chosen[word]) >> bit) & _low(64 - bit)
            if left == 0:
                at = (word + 1) << 6
                continue
            at += lowest(left)
            begin = at
            while at < last:
                word, bit = at >> 6, at & 63
                gaps = ~((nodes[word] & usable[word] & ~chosen[word]) >> bit) & _low(64 - bit)
                run = 64 - bit if gaps == 0 else _ones((gaps & -gaps) - 1)
                at += run
                if bit + run < 64:
                    break
            length = at - begin
            if best_at < 0 or (best < count and length > best) or count <= length < best:
                best_at, best = begin, length
        best = min(best, count)
        for node in range(best_at, best_at + best):
            chosen[node >> 6] |= 1 << (node & 63)
        count -= best


@kernel(inline=True)
def _low(bits: int) -> int:
    """A word whose lowest bits are set, at least one of them."""
    return -1 if bits == 64 else (1 << bits) - 1


@kernel(allocates=False, internal=True)
def set_free(free: I64, size: I64, levels: I64, node: int, gpus: int) -> None:
    """A node has so many GPUs free."""
    word, bit = node >> 6, 1 << (node & 63)
    before = free[node]
    free[node] = gpus
    top = len(levels) - 1
    # where GPUs may be anywhere rows of a log may have more than there are
    for level in range(max(before, 0) + 1, gpus + 1):
        levels[level, word] |= bit
    for level in range(max(gpus, 0) + 1, before + 1):
        levels[level, word] &= ~bit
    if gpus == size[node]:
        levels[top, word] |= bit
    else:
        levels[top, word] &= ~bit


@kernel(allocates=False, internal=True)
def take_chosen(s: Nodes, job: int) -> None:
    """A job has its GPUs of the chosen nodes."""
    kind = s.kind[job]
    s.seat_first[job], s.seat_count[job] = s.meta[SEATS], 0
    for word in range(s.from_word[kind], s.to_word[kind]):
        left = s.chosen[word]
        while left != 0:
            node = (word << 6) + lowest(left)
            left &= left - 1
            take_seat(s, job, node, gpus_on(s, job, node, s.wide[job]))


@kernel(inline=True)
def may_use(s: Nodes, job: int, node: int) -> bool:
    """Whether a node is among those that a job may use."""
    return bool((s.reach[s.kind[job], node >> 6] >> (node & 63)) & 1)


@kernel(inline=True)
def gpus_on(s: Nodes, job: int, node: int, wide: int) -> int:
    """How many GPUs a job takes of its next node, where it has so many nodes."""
    if s.each[job] == WHOLE:
        return int(s.size[node])
    each = s.each[job] if wide == s.wide[job] else (s.gpus[job] + wide - 1) // wide
    return int(min(each, s.gpus[job] - each * s.seat_count[job]))


@kernel(allocates=False, internal=True)
def take_seat(s: Nodes, job: int, node: int, gpus: int) -> None:
    """A job has GPUs of one more node."""
    s.seat_node[s.meta[SEATS]], s.seat_gpus[s.meta[SEATS]] = node, gpus
    s.meta[SEATS] += 1
    s.seat_count[job] += 1
    set_free(s.free, s.size, s.levels, node, s.free[node] - gpus)


@kernel(allocates=False, internal=True)
def enter(s: Nodes, job: int, end: float) -> None:
    """A job, which has its nodes, is among the running ones, and believed to end then."""
    meta, at = s.meta, s.meta[RUNS]
    while at > 0 and s.run_end[at - 1] > end:
        s.runs[at], s.run_end[at] = s.runs[at - 1], s.run_end[at - 1]
        s.place[s.runs[at]] = at
        at -= 1
    s.runs[at], s.run_end[at], s.place[job] = job, end, at
    meta[RUNS] += 1
    mine, at = s.pool_runs[s.pool[s.kind[job]]], s.pool_count[s.pool[s.kind[job]]]
    while at > 0 and s.place[mine[at - 1]] > s.place[job]:
        mine[at] = mine[at - 1]
        at -= 1
    mine[at] = job
    s.pool_count[s.pool[s.kind[job]]] += 1


@kernel(allocates=False, internal=True)
def clear_nodes(s: Nodes) -> None:
    """Nobody runs."""
    for node in range(len(s.size)):
        set_free(s.free, s.size, s.levels, node, s.size[node])
    for pool in range(len(s.pool_count)):
        s.pool_count[pool] = 0
    for at in range(META):
        s.meta[at] = 0


@kernel(allocates=False, internal=True)
def take_back(s: Nodes, job: int) -> None:
    """A job gives up its nodes."""
    first = s.seat_first[job]
    for at in range(first, first + s.seat_count[job]):
        node = s.seat_node[at]
        set_free(s.free, s.size, s.levels, node, s.free[node] + s.seat_gpus[at])
    s.meta[RUNS] -= 1
    for at in range(s.place[job], s.meta[RUNS]):
        s.runs[at], s.run_end[at] = s.runs[at + 1], s.run_end[at + 1]
        s.place[s.runs[at]] = at
    pool = s.pool[s.kind[job]]
    mine, at = s.pool_runs[pool], 0
    while mine[at] != job:
        at += 1
    s.pool_count[pool] -= 1
    for later in range(at, s.pool_count[pool]):
        mine[later] = mine[later + 1]
    s.seat_count[job] = 0


@kernel(allocates=False, internal=True)
def lend(s: Nodes, job: int, sign: int) -> None:
    """The GPUs of a running job count as free (1), or as its own again (-1)."""
    for at in range(s.seat_first[job], s.seat_first[job] + s.seat_count[job]):
        node = s.seat_node[at]
        set_free(s.free, s.size, s.levels, node, s.free[node] + sign * s.seat_gpus[at])


@kernel(allocates=False, internal=True)
def compact(s: Nodes) -> None:
    """Make space in `seat_node`: only the nodes of running jobs stay."""
    meta = s.meta
    # by place, so that nothing is overwritten before it moves
    into, at = 0, 0
    while True:
        least, whose = meta[SEATS], -1
        for run in range(meta[RUNS]):
            job = s.runs[run]
            if s.seat_count[job] and at <= s.seat_first[job] < least:
                least, whose = s.seat_first[job], job
        if whose < 0:
            break
        for seat in range(s.seat_count[whose]):
            s.seat_node[into + seat] = s.seat_node[least + seat]
            s.seat_gpus[into + seat] = s.seat_gpus[least + seat]
        s.seat_first[whose] = into
        into += s.seat_count[whose]
        at = least + s.seat_count[whose]
    meta[SEATS] = into


@kernel(allocates=False, internal=True)
def may_start(s: Nodes, job: int) -> bool:
    """Whether enough nodes are there for a job, whoever waits for them."""
    kind = s.kind[job]
    level = s.levels[level_of(s.each[job], s.levels)]
    return enough(level, s.reach[kind], s.from_word[kind], s.to_word[kind], s.wide[job])


@kernel(allocates=False, internal=True)
def may_start_yet(s: Nodes, job: int, now: float, resolution_s: float) -> bool:
    """Whether enough nodes are there for a job, for which no other one waits by the plan so far."""
    kind = s.kind[job]
    clear(s.beyond)
    _leave_usable(s, kind, now, max(floor_s(s, now + s.request[job], resolution_s), now))
    level = s.levels[level_of(s.each[job], s.levels)]
    return enough(level, s.usable, s.from_word[kind], s.to_word[kind], s.wide[job])


@kernel(allocates=False, internal=True)
def starts_at_once(s: Nodes, job: int) -> bool:
    """Whether enough of the nodes in `usable` are there for a job; then they are chosen."""
    kind = s.kind[job]
    from_word, to_word, level = s.from_word[kind], s.to_word[kind], level_of(s.each[job], s.levels)
    for word in range(from_word, to_word):
        s.usable[word] &= s.reach[kind, word]
    if not enough(s.levels[level], s.usable, from_word, to_word, s.wide[job]):
        return False
    _choose(s.levels[level], s.usable, from_word, to_word, s.wide[job], s.chosen)
    return True


@kernel(allocates=False, internal=True)
def begin_plan(s: Nodes, now: float, resolution_s: float, window_s: float) -> None:
    """Begin a plan in which no node is waited for."""
    since = floor_s(s, now, resolution_s)
    s.horizon[0] = since + window_s
    for pool in range(len(s.slots)):
        s.slots[pool], s.slot_s[pool, 0] = 1, since
        clear(s.slot_busy[pool, 0])
    s.meta[AGAIN] = 0


@kernel(allocates=False, internal=True)
def keep_free(s: Nodes, pool: int, from_s: float, to_s: float, nodes: I64) -> None:
    """Nodes of a pool are taken or waited for from one instant to another."""
    from_s, to_s = max(from_s, s.slot_s[pool, 0]), min(to_s, s.horizon[0])
    if not from_s < to_s:
        return
    first = _cut(s, pool, from_s)
    last = s.slots[pool] if to_s == np.inf else _cut(s, pool, to_s)
    for slot in range(first, last):
        for word in range(s.pool_from[pool], s.pool_to[pool]):
            s.slot_busy[pool, slot, word] |= nodes[word]


@kernel(allocates=False, internal=True)
def _cut(s: Nodes, pool: int, at_s: float) -> int:
    """Let a slot of a pool begin at an instant; which one it is."""
    count = int(s.slots[pool])
    at = count
    while s.slot_s[pool, at - 1] > at_s:
        at -= 1
    if s.slot_s[pool, at - 1] == at_s:
        return at - 1
    for slot in range(count, at - 1, -1):
        s.slot_s[pool, slot] = s.slot_s[pool, slot - 1]
        for word in range(s.pool_from[pool], s.pool_to[pool]):
            s.slot_busy[pool, slot, word] = s.slot_busy[pool, slot - 1, word]
    s.slot_s[pool, at] = at_s
    s.slots[pool] += 1
    return at


@kernel(inline=True)
def floor_s(s: Nodes, at_s: float, step_s: float) -> float:
    """The last multiple of a step by an instant; 0: the instant itself."""
    return float(np.floor((at_s + s.phase[0]) / step_s) * step_s - s.phase[0]) if step_s > 0.0 else at_s


@kernel(inline=True)
def ceil_s(s: Nodes, at_s: float, step_s: float) -> float:
    """The first multiple of a step from an instant on."""
    return float(np.ceil((at_s + s.phase[0]) / step_s) * step_s - s.phase[0])


@kernel(allocates=False, internal=True)
def earliest(s: Nodes, job: int, now: float) -> float:
    """When nodes in `usable` are there for a job, as running jobs end; they are chosen. Infinite: never.

    Now, if it fits now. Else running jobs end by their requests, one after another, and the job is tried after
    each group of ends, never inside one; it starts with the last end of its group. A group goes on as long as the next end
    of any running job, also of one on other nodes, lies within a span. The span is counted from the first end that frees a
    node in the usable, rounded up to a multiple of `GROUP_S`; it is this long at first, and doubles after a group until the
    next end lies within it.
    """
    kind, wide, each = s.kind[job], s.wide[job], s.each[job]
    from_word, to_word, pool = s.from_word[kind], s.to_word[kind], s.pool[kind]
    level = s.levels[level_of(each, s.levels)]
    if enough(level, s.usable, from_word, to_word, wide):
        _choose(level, s.usable, from_word, to_word, wide, s.chosen)
        return now
    missing = wide
    for word in range(from_word, to_word):
        s.ready[word] = level[word] & s.usable[word]
        missing -= _ones(s.ready[word])
    for node in range(from_word << 6, min(to_word << 6, len(s.size))):
        s.later_free[node] = s.free[node]
    origin, span, last = np.inf, GROUP_S, -np.inf
    for at in range(s.pool_count[pool]):
        run = s.pool_runs[pool, at]
        frees = False
        for seat in range(s.seat_first[run], s.seat_first[run] + s.seat_count[run]):
            node = s.seat_node[seat]
            word, bit = node >> 6, 1 << (node & 63)
            if from_word <= word < to_word and s.usable[word] & bit:
                frees = True
                s.later_free[node] += s.seat_gpus[seat]
                wanted = s.size[node] if each == WHOLE else each
                if not s.ready[word] & bit and s.later_free[node] >= wanted:
                    s.ready[word] |= bit
                    missing -= 1
        if not frees:
            continue
        last = s.run_end[s.place[run]]
        if origin == np.inf:
            origin = ceil_s(s, last, GROUP_S)
        following = s.run_end[s.place[run] + 1] if s.place[run] + 1 < s.meta[RUNS] else np.inf
        if following < np.inf and following <= origin + span:
            continue
        if missing <= 0:
            break
        while following < np.inf and following > origin + span:
            span *= 2.0
    if missing > 0 or origin == np.inf:
        return np.inf
    _choose(s.ready, s.usable, from_word, to_word, wide, s.chosen)
    return max(last, now + 1.0)  # whoever has outlived its request still has its nodes


@kernel(allocates=False, internal=True)
def plan_job(s: Nodes, line: I64, job: int, now: float, resolution_s: float) -> bool:
    """Plan a job: choose its nodes and say whether it starts now; else let it wait for them, if there is an instant for it.

    An attempt at an instant may use the nodes for which no job waits from then until the job's end; whoever waits from that
    very end on is in the way, too. The next instant is the first at which a node of its partition comes back, whatever the
    node's type, if the job would start after it, and the job's own start, if a job that waits is in the way of its run
    from there.

    line: int64[words], the nodes of its partition.
    """
    kind, request = s.kind[job], s.request[job]
    pool, from_word, to_word = s.pool[kind], s.from_word[kind], s.to_word[kind]
    begin = now
    while True:
        end = max(floor_s(s, begin + request, resolution_s), begin)  # maintenance may begin between the two
        _leave_usable(s, kind, begin, end)
        change = _comes_back(s, pool, line, begin, end)
        start = freed = np.inf
        if enough(s.reach[kind], s.usable, from_word, to_word, s.wide[job]):
            freed = earliest(s, job, now)
            start = max(freed, begin)
        if start == np.inf or start > change:
            if change == np.inf:
                return False
            begin = change
        elif start <= now:
            return True
        else:
            first, end = floor_s(s, start, resolution_s), floor_s(s, start + request, resolution_s)
            if _is_free(s, kind, first, end):
                keep_free(s, pool, first, end, s.chosen)
                s.meta[AGAIN] |= start > freed or _has_idle(s, kind)
                return False
            if start > begin:
                begin = start
            elif change < np.inf:
                begin = change
            else:
                return False


@kernel(allocates=False, internal=True)
def _leave_usable(s: Nodes, kind: int, begin: float, end: float) -> None:
    """Let `usable` be the nodes of a class for which no job waits between two instants, both included, but for `beyond`."""
    pool, from_word, to_word = s.pool[kind], s.from_word[kind], s.to_word[kind]
    for word in range(from_word, to_word):
        s.usable[word] = s.reach[kind, word] & ~s.beyond[word]
    count = s.slots[pool]
    for at in range(count):
        if s.slot_s[pool, at] > end:
            break
        if at + 1 == count or s.slot_s[pool, at + 1] > begin:
            for word in range(from_word, to_word):
                s.usable[word] &= ~s.slot_busy[pool, at, word]


@kernel(allocates=False, internal=True)
def _comes_back(s: Nodes, pool: int, line: I64, begin: float, end: float) -> float:
    """When a node of a partition comes back first after an instant, up to a change past an end; infinite: never."""
    since = s.slot_s[pool, 0]
    for at in range(s.slots[pool] - 1):
        following, back, same = s.slot_s[pool, at + 1], False, True
        if following >= s.horizon[0]:
            break
        for word in range(s.pool_from[pool], s.pool_to[pool]):
            before, after = s.slot_busy[pool, at, word], s.slot_busy[pool, at + 1, word]
            back |= (before & ~after & line[word]) != 0
            same &= before == after
        if same:
            continue
        if following > begin:
            if back:
                return float(following)
            if since > end:
                break
        since = following
    return np.inf


@kernel(allocates=False, internal=True)
def _is_free(s: Nodes, kind: int, begin: float, end: float) -> bool:
    """Whether no job waits for any of the chosen nodes between two instants."""
    pool, count = s.pool[kind], s.slots[s.pool[kind]]
    for at in range(count):
        if s.slot_s[pool, at] >= end:
            break
        if at + 1 == count or s.slot_s[pool, at + 1] > begin:
            for word in range(s.from_word[kind], s.to_word[kind]):
                if s.chosen[word] & s.slot_busy[pool, at, word]:
                    return False
    return True


@kernel(allocates=False, internal=True)
def _has_idle(s: Nodes, kind: int) -> bool:
    """Whether any of the chosen nodes is empty."""
    idle = 0
    for word in range(s.from_word[kind], s.to_word[kind]):
        idle |= s.chosen[word] & s.levels[len(s.levels) - 1, word]
    return idle != 0
