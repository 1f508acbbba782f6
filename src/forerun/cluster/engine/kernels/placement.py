"""On which nodes a placement puts a job: its shape, and the choice among nodes that have enough free GPUs."""

from __future__ import annotations

from typing import Final

import numpy as np

from forerun.cluster.engine.kernels.arrays import I64
from forerun.cluster.engine.kernels.common import GOLDEN, mixed
from forerun.core.kernels.jit import kernel

# placements
ANYWHERE: Final = 0
FIRST_FIT: Final = 1
BEST_FIT: Final = 2
CONSOLIDATED: Final = 3
BUDDY: Final = 4
RANDOM: Final = 5


@kernel(inline=True)
def share_of(gpus: int, wide: int, said: int, largest: int, turn: int) -> int:
    """The GPUs that a job takes of one of its nodes.

    A job that says on how many nodes it runs is spread evenly, those with one more first. Another takes the largest nodes
    whole, and the rest of one more.

    Parameters
    ----------
    gpus, wide : of the job, and its nodes.
    said : the nodes that it asks for; 0: it does not say.
    largest : GPUs of the largest node that it may use.
    turn : which of its nodes, from 0.
    """
    if said > 0:
        return int(gpus // wide + (turn < gpus % wide))
    return int(min(largest, gpus - turn * largest))


@kernel(allocates=False)
def place(
    free: I64,
    size: I64,
    gpus: int,
    said: int,
    whole: bool,
    placement: int,
    seed: int,
    draws: I64,
    owner: I64,
    node_first: I64,
    node: I64,
    share: I64,
) -> int:
    """Choose nodes for a job, and its GPUs on each; how many nodes, 0 if it has no place.

    Parameters
    ----------
    free, size : int64[nodes], GPUs of each, 0 for nodes that it may not use; `free` is used up.
    gpus, said, whole : what it asks for: GPUs, nodes (0: as few as can be), and whether it takes them whole.
    placement, seed, draws : one of the placements above, the seed of the random one, and int64[1], its draws so far.
    owner, node_first : for the buddy placement, int64[GPUs], negative where one is free, and the first GPU of each node.
    node, share : written.
    """
    largest = 0
    for each in range(len(size)):
        largest = max(largest, size[each])
    if largest == 0:
        return 0
    wide = said if said > 0 else (gpus + largest - 1) // largest
    if placement == CONSOLIDATED and said == 0 and not whole and wide > 1:
        return _fewest(free, gpus, node, share)
    for turn in range(wide):
        need = share_of(gpus, wide, said, largest, turn)
        # of nodes that are taken whole one is as good as another
        any_will_do = whole or (said == 0 and need == largest)
        rule = FIRST_FIT if any_will_do and placement != BUDDY else placement
        best = _choose(free, size, need, whole, rule, seed, draws, owner, node_first)
        if best < 0:
            if placement == CONSOLIDATED and said == 0 and not whole:
                return _fewest(free, gpus, node, share)
            return 0
        node[turn], share[turn] = best, size[best] if whole else need
        free[best] = 0
    return int(wide)


@kernel(allocates=False, internal=True)
def _choose(
    free: I64,
    size: I64,
    need: int,
    whole: bool,
    placement: int,
    seed: int,
    draws: I64,
    owner: I64,
    node_first: I64,
) -> int:
    """The node for so many GPUs, -1 if none has them."""
    best, fitting = -1, 0
    for node in range(len(free)):
        if free[node] < need or (whole and free[node] < size[node]):
            continue
        if placement == FIRST_FIT:
            return node
        if placement == BUDDY and block_on(owner, node_first[node], node_first[node + 1], need) < 0:
            continue
        if placement == RANDOM:
            fitting += 1
            draws[0] += 1
            drawn = mixed(np.uint64(seed) + np.uint64(draws[0]) * GOLDEN)
            if drawn % np.uint64(fitting) == np.uint64(0):
                best = node
        elif best < 0 or free[node] < free[best]:
            best = node
    return best


@kernel(allocates=False, internal=True)
def _fewest(free: I64, gpus: int, node: I64, share: I64) -> int:
    """Nodes with most free GPUs first, until the job is served; the last piece goes to the node that it leaves fullest."""
    left, count = gpus, 0
    while left > 0:
        best, most = -1, 0
        for each in range(len(free)):
            better = free[each] > most if most < left else left <= free[each] < most
            if better:
                best, most = each, free[each]
        if best < 0:
            return 0
        node[count], share[count] = best, min(left, most)
        left -= share[count]
        free[best] = 0
        count += 1
    return count


@kernel(allocates=False)
def block_on(owner: I64, first: int, last: int, gpus: int) -> int:
    """The first GPU of a free aligned block of a power of two that holds `gpus`, among those of a node; -1: none."""
    size = 1
    while size < gpus:
        size *= 2
    if size > last - first:  # the node is no power of two: all of it
        size = last - first
    g = first
    while g + size <= last and gpus <= size:
        whole = True
        for k in range(size):
            whole &= owner[g + k] < 0
        if whole:
            return int(g)
        g += size
    return -1
