"""Fair-share factors on a tree of accounts and users.

Nodes are numbered, parents before what belongs to them; 0 is the root.
"""

from __future__ import annotations

import numpy as np

from forerun.cluster.engine.kernels.arrays import BOOL, F64, I64
from forerun.cluster.engine.kernels.order import rank_descending
from forerun.core.kernels.jit import kernel


@kernel
def with_accounts(parent: I64, gpu_s: F64) -> F64:
    """The usage of every node, from that of users: an account's is that of all below it."""
    usage = gpu_s.copy()
    for node in range(len(parent) - 1, 0, -1):
        usage[parent[node]] += usage[node]
    return usage


@kernel
def classic(parent: I64, share: F64, gpu_s: F64, damping: float) -> F64:
    """The classic factor of every node: 2^(-(effective usage / normalised shares) / damping)."""
    usage = with_accounts(parent, gpu_s)
    actual = usage / usage[0] if usage[0] > 0 else usage
    effective, shares, factor = actual.copy(), share.copy(), np.ones(len(parent))
    for node in range(1, len(parent)):
        above = parent[node]
        shares[node] *= shares[above]
        if above > 0:
            effective[node] = actual[node] + (effective[above] - actual[node]) * share[node]
        ratio = effective[node] / shares[node] if shares[node] > 0 else np.inf
        factor[node] = 2.0 ** (-ratio / damping)
    return factor


@kernel
def _rounded(value: float) -> float:
    """To twelve digits: what is equal but for rounding is equal."""
    if value == 0.0 or np.isinf(value):
        return value
    unit = 10.0 ** (np.floor(np.log10(value)) - 11.0)
    return float(np.round(value / unit) * unit)


@kernel
def fair_tree(parent: I64, share: F64, is_user: BOOL, gpu_s: F64) -> F64:
    """The Fair Tree factor of every user (0 for accounts): its rank by level fair shares over the number of users.

    Siblings go by their shares over their part of the usage of all of them. Accounts that are equal descend as one; a user
    who equals an account has the rank of its first user.
    """
    count = len(parent)
    usage, below = with_accounts(parent, gpu_s), np.zeros(count, np.int64)
    level, first = np.zeros(count), np.zeros(count + 1, np.int64)
    for node in range(count - 1, 0, -1):
        below[node] += is_user[node]
        below[parent[node]] += below[node]
        first[parent[node] + 1] += 1
        if share[node] > 0:
            served = share[node] * usage[parent[node]] / usage[node] if usage[node] > 0 else np.inf
            level[node] = _rounded(served)
    for node in range(count):
        first[node + 1] += first[node]
    child, filled = np.zeros(count, np.int64), first.copy()
    for node in range(1, count):
        child[filled[parent[node]]] = node
        filled[parent[node]] += 1
    # runs of equal nodes, the one to look at next last; `rank` is that of users who wait for their first equal
    stack, top = np.zeros((count + 1, 3), np.int64), 1
    listed, end = np.zeros(count + 1, np.int64), 1
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, 1, -1
    factor, ranked = np.zeros(count), np.full(count, -1, np.int64)
    size, last = np.zeros(count, np.int64), 0
    while top > 0:
        top -= 1
        begin, stop, rank = stack[top, 0], stack[top, 1], stack[top, 2]
        kids = np.zeros(0, np.int64)
        for at in range(begin, stop):
            node = listed[at]
            if is_user[node]:
                if rank < 0:
                    rank = last
                    last += 1
                ranked[node] = rank
                size[rank] += 1
            else:
                kids = np.append(kids, child[first[node] : first[node + 1]])
        kids = kids[below[kids] > 0]
        if len(kids) == 0:
            continue
        kids = kids[rank_descending(level[kids])]
        for at in range(len(kids) - 1, -1, -1):
            listed[end + at] = kids[at]
        for at in range(len(kids), 0, -1):  # the last run first
            if at == len(kids) or level[kids[at]] != level[kids[at - 1]]:
                stack[top, 0], stack[top, 1], stack[top, 2] = end + at - 1, end + at, -1
                top += 1
            else:
                stack[top - 1, 0] = end + at - 1
        stack[top - 1, 2] = rank
        end += len(kids)
    before = 0
    for rank in range(last):
        size[rank], before = before, before + size[rank]
    for node in range(count):
        if ranked[node] >= 0:
            factor[node] = (below[0] - size[ranked[node]]) / below[0]
    return factor
