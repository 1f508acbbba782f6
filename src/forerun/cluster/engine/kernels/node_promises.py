"""Starts that waiting jobs are promised, on GPUs of named nodes, and where a job may start beside them.

A promise takes GPUs of nodes for the whole request from an instant on, in a profile that also has what running jobs are
believed to need (`node_profile`). Nodes are given in units, of which each has a profile: a node is one of them, or each of
its GPUs, where these are not alike (the buddy placement).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.kernels import node_plan as npl
from forerun.cluster.engine.kernels import node_profile as pf
from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.cluster.engine.kernels.placement import BUDDY, CONSOLIDATED, block_on, place, share_of
from forerun.core.kernels.jit import kernel

#: the promise of a job that has none
NO_PROMISE: Final = -1.0
#: what a search may use: what is believed to be free then, what is free now and not promised, what is free now, everything
THEN: Final = 0
NOW: Final = 1
RAW: Final = 2
EVER: Final = 3
#: places in `Promises.meta`
PICKED: Final = 0  # units that were picked last
SPARE: Final = 1  # the first entry of promised units that was given up
USED: Final = 2  # entries that were ever used


class Promises(NamedTuple):
    """What jobs are promised. Times in seconds.

    Parameters
    ----------
    profile, whole : free GPUs of each unit, and how many it has in all.
    held : int64[units], how many promises and announced windows take GPUs of each.
    unit_first : int64[nodes + 1], the first unit of each node.
    node_size : int64[nodes], its GPUs.
    largest, other : int64[classes], GPUs of the largest node of each class, and the class that jobs try after it (-1: none).
    from_node, to_node : int64[classes], the nodes among which those of each class are.
    asks : int64[jobs], the class that each job tries first.
    said : int64[jobs], the nodes that it asks for; 0: as few as can be.
    at : float64[jobs], the start that each is promised.
    belief : float64[jobs], when a running job is believed to end.
    first : int64[jobs], the first promised unit of each; unit, gpus, after : of each promised unit: which, how many GPUs,
        and the next one.
    given, raised : int64[words], the units that have GPUs free which they did not have before, since promises were last
        moved forward, and until then.
    closed : int64[classes], whether limits keep a job from each.
    class_free : int64[classes], GPUs that are free in each, as of `count_free`.
    chosen : jobs that are promised a start for one pass.
    pick_unit, pick_gpus : the units that were picked last, and how many GPUs of each.
    free, size, owner, node, share, key : scratch of searches.
    draws : int64[1], of the random placement.
    meta : counters, see above.
    """

    profile: pf.Profile
    whole: I64
    held: I64
    unit_first: I64
    node_size: I64
    largest: I64
    other: I64
    from_node: I64
    to_node: I64
    asks: I64
    said: I64
    at: F64
    belief: F64
    first: I64
    unit: I64
    gpus: I64
    after: I64
    given: I64
    raised: I64
    closed: I64
    class_free: I64
    chosen: I64
    pick_unit: I64
    pick_gpus: I64
    free: I64
    size: I64
    owner: I64
    node: I64
    share: I64
    key: F64
    draws: I64
    meta: I64


class Asked(NamedTuple):
    """The shape of a job on nodes of a class: so many nodes, with `most` GPUs on the first `full` and `rest` on the others.

    any: whether it takes whatever GPUs are free instead.
    """

    wide: int
    most: int
    full: int
    rest: int
    any: bool


@kernel(inline=True)
def shape_of(s: npl.Nodes, p: Promises, job: int, kind: int, placement: int) -> Asked:
    """The shape of a job on nodes of a class."""
    gpus, said, largest = s.gpus[job], p.said[job], max(p.largest[kind], 1)
    wide = said if said > 0 else (gpus + largest - 1) // largest
    most, rest = share_of(gpus, wide, said, largest, 0), share_of(gpus, wide, said, largest, wide - 1)
    full = wide
    if rest < most:
        full = gpus % wide if said > 0 else wide - 1
    loose = placement == BUDDY or (placement == CONSOLIDATED and said == 0 and s.each[job] != npl.WHOLE)
    return Asked(wide, most, full, rest, loose)


@kernel(inline=True)
def has_free(s: npl.Nodes, p: Promises, job: int) -> bool:
    """Whether as many GPUs are free as a job has, in any class that it may use, as of `count_free`; limits aside."""
    kind, gpus = p.asks[job], s.gpus[job]
    while p.class_free[kind] < gpus and p.other[kind] >= 0:
        kind = p.other[kind]
    return bool(p.class_free[kind] >= gpus)


@kernel(allocates=False, internal=True)
def may_start(s: npl.Nodes, p: Promises, job: int, placement: int, seed: int) -> bool:
    """Whether enough GPUs are free for a job in a class that it may use, whoever is promised them."""
    kind = p.asks[job]
    while kind >= 0:
        asked = shape_of(s, p, job, kind, placement)
        first, last = s.from_word[kind], s.to_word[kind]
        if p.closed[kind]:
            pass
        elif asked.any:
            enough = p.class_free[kind] >= s.gpus[job]
            if enough and placement == BUDDY:
                enough = _fill(s, p, job, kind, 0.0, 0.0, placement, RAW) and _pick(
                    s, p, job, kind, placement, seed
                )
            if enough:
                return True
        else:
            level = s.levels[npl.level_of(s.each[job] if s.each[job] == npl.WHOLE else asked.most, s.levels)]
            enough = npl.enough(level, s.reach[kind], first, last, asked.full)
            if enough and asked.full < asked.wide:
                level = s.levels[npl.level_of(asked.rest, s.levels)]
                enough = npl.enough(level, s.reach[kind], first, last, asked.wide)
            if enough:
                return True
        kind = p.other[kind]
    return False


@kernel(allocates=False, internal=True)
def count_free(s: npl.Nodes, p: Promises) -> None:
    """Count the GPUs that are free in each class."""
    for kind in range(len(p.class_free)):
        free = 0
        for word in range(s.from_word[kind], s.to_word[kind]):
            left = s.levels[1, word] & s.reach[kind, word]
            while left != 0:
                free += s.free[(word << 6) + npl.lowest(left)]
                left &= left - 1
        p.class_free[kind] = free


@kernel(allocates=False)
def could_ever(s: npl.Nodes, p: Promises, job: int, placement: int, seed: int) -> bool:
    """Whether a job has a place on empty nodes."""
    kind = p.asks[job]
    while kind >= 0:
        if (
            not p.closed[kind]
            and _fill(s, p, job, kind, 0.0, 0.0, placement, EVER)
            and _pick(s, p, job, kind, placement, seed)
        ):
            return True
        kind = p.other[kind]
    return False


@kernel(allocates=False, internal=True)
def _fill(
    s: npl.Nodes,
    p: Promises,
    job: int,
    kind: int,
    start: float,
    end: float,
    placement: int,
    what: int,
) -> bool:
    """Let `free` be the GPUs of the nodes of a class that are free between two instants; whether there are enough in all.

    what: `THEN`, `NOW` (the first instant is now: what is free and not promised stays free), `RAW` (now, whoever is promised
    it), or `EVER` (all nodes are empty).
    """
    there = 0
    for node in range(p.from_node[kind], p.to_node[kind]):
        p.free[node] = p.size[node] = 0
        unit = p.unit_first[node]
        if not (s.reach[kind, unit >> 6] >> (unit & 63)) & 1:
            continue
        p.size[node] = p.node_size[node]
        for each in range(unit, p.unit_first[node + 1]):
            free = s.size[each] if what == EVER else s.free[each]
            if what == THEN or (what == NOW and p.held[each] > 0):
                free = pf.least(p.profile, each, start, end)
            if placement == BUDDY:
                p.owner[each] = -1 if free > 0 else 0
            p.free[node] += max(free, 0)
        there += p.free[node]
    return bool(there >= s.gpus[job])


@kernel(allocates=False, internal=True)
def _pick(s: npl.Nodes, p: Promises, job: int, kind: int, placement: int, seed: int) -> bool:
    """Let the placement pick units for a job of what `_fill` found free; whether it has a place."""
    first, last = p.from_node[kind], p.to_node[kind]
    whole = s.each[job] == npl.WHOLE
    count = place(
        p.free[first:last],
        p.size[first:last],
        s.gpus[job],
        p.said[job],
        whole,
        placement,
        seed,
        p.draws,
        p.owner,
        p.unit_first[first : last + 1],
        p.node,
        p.share,
    )
    p.meta[PICKED] = 0
    for at in range(count):
        node = first + p.node[at]
        unit, each = p.unit_first[node], p.share[at]
        if placement == BUDDY:
            unit, each = block_on(p.owner, unit, p.unit_first[node + 1], each), 1
        for turn in range(p.share[at] if placement == BUDDY else 1):
            p.pick_unit[p.meta[PICKED]], p.pick_gpus[p.meta[PICKED]] = unit + turn, each
            p.meta[PICKED] += 1
    return count > 0


@kernel(allocates=False, internal=True)
def picks_now(s: npl.Nodes, p: Promises, job: int, now: float, placement: int, seed: int) -> bool:
    """Whether a job has a place for its whole request from now on, beside all promises; then it is picked."""
    kind = p.asks[job]
    while kind >= 0:
        s.kind[job] = kind
        enough = not p.closed[kind] and _fill(s, p, job, kind, now, now + s.request[job], placement, NOW)
        if enough and _pick(s, p, job, kind, placement, seed):
            return True
        kind = p.other[kind]
    return False


@kernel(allocates=False, internal=True)
def picks_soonest(
    s: npl.Nodes, p: Promises, job: int, now: float, before: float, placement: int, seed: int
) -> float:
    """The first start before an instant that a job can be promised; its units are picked. The instant itself: none."""
    best, kind, chosen = before, p.asks[job], -1
    while kind >= 0:
        if not p.closed[kind]:
            start = _soonest(s, p, job, kind, now, best, placement, seed)
            if start < best:
                best, chosen = start, kind
        kind = p.other[kind]
    if chosen >= 0:
        s.kind[job] = chosen
        if p.other[p.asks[job]] >= 0:  # another class may have been picked from since
            _fill(s, p, job, chosen, best, best + s.request[job], placement, THEN)
            _pick(s, p, job, chosen, placement, seed)
    return float(best)


@kernel(allocates=False, internal=True)
def _soonest(
    s: npl.Nodes, p: Promises, job: int, kind: int, now: float, before: float, placement: int, seed: int
) -> float:
    """As `picks_soonest`, on nodes of a class, before an instant.

    Each step goes to the first instant at which as many nodes as it needs are free by themselves.
    """
    start, request, asked = now, s.request[job], shape_of(s, p, job, kind, placement)
    if p.largest[kind] == 0:
        return np.inf
    while start < before:
        later = start
        if not asked.any:
            later = max(later, _enough_from(s, p, job, kind, start, asked.most, asked.full))
            if asked.full < asked.wide and later < before:
                later = max(later, _enough_from(s, p, job, kind, start, asked.rest, asked.wide))
        if later > start:
            start = later
            continue
        if _fill(s, p, job, kind, start, start + request, placement, THEN) and _pick(
            s, p, job, kind, placement, seed
        ):
            return start
        start = _next_rise(s, p, kind, start)
    return np.inf


@kernel(allocates=False, internal=True)
def _enough_from(
    s: npl.Nodes, p: Promises, job: int, kind: int, start: float, gpus: int, count: int
) -> float:
    """The first instant from `start` on by which so many nodes have so many GPUs free for the request, each by itself."""
    ready, later, request = 0, 0, s.request[job]
    for node in range(p.from_node[kind], p.to_node[kind]):
        unit = p.unit_first[node]
        if p.node_size[node] < gpus or not (s.reach[kind, unit >> 6] >> (unit & 63)) & 1:
            continue
        need = p.node_size[node] if s.each[job] == npl.WHOLE else gpus
        at = pf.earliest(p.profile, unit, start, request, need)
        if at <= start:
            ready += 1
            if ready >= count:
                return start
        elif at < np.inf:
            p.key[later] = at
            later += 1
    if ready + later < count:
        return np.inf
    return _least_of(p.key, later, count - ready)


@kernel(allocates=False, internal=True)
def _least_of(key: F64, count: int, which: int) -> float:
    """The which-th least of the first numbers of an array (the first is 1), which are shuffled."""
    low, high, wanted = 0, count - 1, which - 1
    while low < high:
        pivot, left, right = key[(low + high) >> 1], low, high
        while left <= right:
            while key[left] < pivot:
                left += 1
            while key[right] > pivot:
                right -= 1
            if left <= right:
                key[left], key[right] = key[right], key[left]
                left += 1
                right -= 1
        if wanted <= right:
            high = right
        elif wanted >= left:
            low = left
        else:
            break
    return float(key[wanted])


@kernel(allocates=False, internal=True)
def _next_rise(s: npl.Nodes, p: Promises, kind: int, after_s: float) -> float:
    """The first instant after another at which any unit of a class has more free GPUs; infinite: none."""
    first = np.inf
    for node in range(p.from_node[kind], p.to_node[kind]):
        unit = p.unit_first[node]
        if (s.reach[kind, unit >> 6] >> (unit & 63)) & 1:
            for each in range(unit, p.unit_first[node + 1]):
                first = min(first, pf.next_rise(p.profile, each, after_s))
    return first


@kernel(allocates=False)
def promise(s: npl.Nodes, p: Promises, job: int, start: float) -> None:
    """A job is promised the units that are picked."""
    p.at[job], p.first[job] = start, pf.NONE
    for at in range(p.meta[PICKED] - 1, -1, -1):
        entry = p.meta[SPARE]
        if entry == pf.NONE:
            entry = p.meta[USED]
            p.meta[USED] += 1
        else:
            p.meta[SPARE] = p.after[entry]
        p.unit[entry], p.gpus[entry], p.after[entry] = p.pick_unit[at], p.pick_gpus[at], p.first[job]
        p.first[job] = entry
    lay(s, p, job, 1)


@kernel(allocates=False, internal=True)
def lay(s: npl.Nodes, p: Promises, job: int, sign: int) -> None:
    """A promise is in the profile from now on (1), or no more (-1)."""
    start, end = p.at[job], p.at[job] + s.request[job]
    entry = p.first[job]
    while entry != pf.NONE:
        pf.take(p.profile, p.unit[entry], start, end, sign * p.gpus[entry])
        p.held[p.unit[entry]] += sign
        entry = p.after[entry]


@kernel(allocates=False)
def picks_promised(p: Promises, job: int) -> None:
    """Pick what a job is promised."""
    p.meta[PICKED], entry = 0, p.first[job]
    while entry != pf.NONE:
        p.pick_unit[p.meta[PICKED]], p.pick_gpus[p.meta[PICKED]] = p.unit[entry], p.gpus[entry]
        p.meta[PICKED] += 1
        entry = p.after[entry]


@kernel(allocates=False, internal=True)
def release(p: Promises, job: int) -> None:
    """A promise, which is not in the profile, lapses."""
    while p.first[job] != pf.NONE:
        entry = p.first[job]
        p.first[job] = p.after[entry]
        p.after[entry], p.meta[SPARE] = p.meta[SPARE], entry
    p.at[job] = NO_PROMISE


@kernel(allocates=False, internal=True)
def holds(s: npl.Nodes, p: Promises, job: int) -> bool:
    """Whether what a job is promised is free, where its promise is not in the profile."""
    start, end = p.at[job], p.at[job] + s.request[job]
    entry = p.first[job]
    while entry != pf.NONE:
        if pf.least(p.profile, p.unit[entry], start, end) < p.gpus[entry]:
            return False
        entry = p.after[entry]
    return True


@kernel(allocates=False, internal=True)
def occupy(s: npl.Nodes, p: Promises, job: int, from_s: float, to_s: float, sign: int) -> None:
    """A running job is believed to need its GPUs from one instant to another (1), or not to need them (-1)."""
    for seat in range(s.seat_first[job], s.seat_first[job] + s.seat_count[job]):
        pf.take(p.profile, s.seat_node[seat], from_s, to_s, sign * s.seat_gpus[seat])


@kernel(allocates=False, internal=True)
def forget(s: npl.Nodes, p: Promises, job: int, now: float) -> None:
    """What is over on a running job's nodes goes out of the profile."""
    for seat in range(s.seat_first[job], s.seat_first[job] + s.seat_count[job]):
        pf.forget(p.profile, s.seat_node[seat], now)


@kernel(allocates=False, internal=True)
def is_crowded(s: npl.Nodes, p: Promises, job: int, from_s: float, to_s: float) -> bool:
    """Whether promises take GPUs that a running job is believed to have."""
    for seat in range(s.seat_first[job], s.seat_first[job] + s.seat_count[job]):
        unit = s.seat_node[seat]
        if p.held[unit] > 0 and pf.least(p.profile, unit, from_s, to_s) < 0:
            return True
    return False


@kernel(allocates=False, internal=True)
def gives(s: npl.Nodes, p: Promises, job: int) -> None:
    """A job leaves the GPUs that it has or is promised to others."""
    for seat in range(s.seat_first[job], s.seat_first[job] + s.seat_count[job]):
        p.given[s.seat_node[seat] >> 6] |= 1 << (s.seat_node[seat] & 63)
    entry = p.first[job]
    while entry != pf.NONE:
        p.given[p.unit[entry] >> 6] |= 1 << (p.unit[entry] & 63)
        entry = p.after[entry]


@kernel(allocates=False, internal=True)
def may_move(s: npl.Nodes, p: Promises, job: int) -> bool:
    """Whether a job has left GPUs that a job may use."""
    kind = p.asks[job]
    while kind >= 0:
        for word in range(s.from_word[kind], s.to_word[kind]):
            if s.reach[kind, word] & (p.raised[word] | p.given[word]):
                return True
        kind = p.other[kind]
    return False


@kernel(allocates=False, internal=True)
def may_be_sooner(s: npl.Nodes, p: Promises, job: int, now: float, before: float, placement: int) -> bool:
    """Whether a job may start before an instant, as far as units tell that others have left since it was promised that.

    A start that was not possible before is on one of these.
    """
    kind, request = p.asks[job], s.request[job]
    if p.other[kind] >= 0:
        return True
    asked = shape_of(s, p, job, kind, placement)
    least = 1 if asked.any else min(asked.most, asked.rest)
    for word in range(s.from_word[kind], s.to_word[kind]):
        left = s.reach[kind, word] & (p.raised[word] | p.given[word])
        while left != 0:
            unit = (word << 6) + npl.lowest(left)
            left &= left - 1
            need = int(p.whole[unit]) if s.each[job] == npl.WHOLE else least
            if p.whole[unit] >= need and pf.earliest(p.profile, unit, now, request, need) < before:
                return True
    return False


@kernel(allocates=False)
def class_on(s: npl.Nodes, p: Promises, job: int, unit: int) -> int:
    """The class, of those that a job tries, that has a unit; the last one if none has."""
    kind = p.asks[job]
    while p.other[kind] >= 0 and not (s.reach[kind, unit >> 6] >> (unit & 63)) & 1:
        kind = p.other[kind]
    return int(kind)


@kernel(allocates=False)
def clear_promises(s: npl.Nodes, p: Promises) -> None:
    """No job runs, and none is promised anything."""
    units = len(s.size)
    pf.start_over(p.profile, p.whole)
    for unit in range(units):
        p.held[unit] = 0
    for job in range(len(p.at)):
        p.at[job], p.first[job] = NO_PROMISE, pf.NONE
    for word in range(len(p.given)):
        p.given[word] = -1
    p.meta[SPARE], p.meta[USED] = pf.NONE, 0
