"""The compiled part of `enumeration`, in a module of its own: compiled code is kept while it and its imports stay."""

from __future__ import annotations

import numpy as np

from forerun.core.kernels.jit import kernel


@kernel
def first_of_least_cost(arrivals, parents, takes, tables, settings, counts, slo_ms, allowed):  # type: ignore[no-untyped-def]
    """The number of a cheapest configuration with at most `allowed` misses (-1: none), and its misses."""
    stages, queries = counts.shape[0], arrivals.shape[0]
    total = 1
    for s in range(stages):
        total *= counts[s]
    end = np.empty((stages + 1, queries))
    rank = np.empty((stages + 1, queries), dtype=np.int64)
    option = np.empty(stages, dtype=np.int64)
    best, best_cost, best_misses = -1, -1, -1
    for number in range(total):
        rest, cost = number, 0
        for s in range(stages - 1, -1, -1):
            option[s] = rest % counts[s]
            rest //= counts[s]
            cost += settings[s, option[s], 2]
        for q in range(queries):
            end[0, q], rank[0, q] = arrivals[q], q
        misses = 0
        for s in range(stages):
            _stage(s, parents, takes, tables[s, option[s]], settings[s, option[s]], end, rank)
        for q in range(queries):
            last = arrivals[q]
            for s in range(stages):
                last = max(last, end[s + 1, q])
            misses += last - arrivals[q] > slo_ms
        if misses <= allowed and (best < 0 or cost < best_cost):
            best, best_cost, best_misses = number, cost, misses
    return best, best_misses


@kernel
def _stage(s, parents, takes, table, setting, end, rank):  # type: ignore[no-untyped-def]
    """When the stage completes each query (-inf: it does not come by), and in what order."""
    queries = end.shape[1]
    at, behind, place, who = (
        np.empty(queries),
        np.empty(queries),
        np.empty(queries),
        np.empty(queries, np.int64),
    )
    came = 0
    for q in range(queries):
        found, last_ms, last_parent, last_rank = False, 0.0, 0, 0
        for p in range(parents.shape[1]):
            parent = parents[s, p]
            if parent < -1 or not takes[s, p, q] or end[parent + 1, q] == -np.inf:
                continue
            if not found or end[parent + 1, q] >= last_ms:
                found, last_ms, last_parent, last_rank = True, end[parent + 1, q], p, rank[parent + 1, q]
        end[s + 1, q] = -np.inf
        if found:
            i = came
            while i > 0 and (at[i - 1], behind[i - 1], place[i - 1]) > (last_ms, last_parent, last_rank):
                at[i], behind[i], place[i], who[i] = at[i - 1], behind[i - 1], place[i - 1], who[i - 1]
                i -= 1
            at[i], behind[i], place[i], who[i] = last_ms, last_parent, last_rank, q
            came += 1
    free = np.full(setting[1], -np.inf)
    batch_end, batch_first, batch_size = np.empty(came), np.empty(came, np.int64), np.empty(came, np.int64)
    head, batches, now_ms = 0, 0, -np.inf
    while head < came:
        replica = np.argmin(free)
        now_ms = max(now_ms, max(at[head], free[replica]))
        size = 0
        while size < setting[0] and head + size < came and at[head + size] <= now_ms:
            size += 1
        free[replica] = now_ms + table[size]
        batch_end[batches], batch_first[batches], batch_size[batches] = free[replica], head, size
        batches += 1
        head += size
    out = 0
    done = np.zeros(batches, np.bool_)
    for _ in range(batches):
        first = -1
        for b in range(batches):
            if not done[b] and (first < 0 or batch_end[b] < batch_end[first]):
                first = b
        done[first] = True
        for i in range(batch_first[first], batch_first[first] + batch_size[first]):
            end[s + 1, who[i]], rank[s + 1, who[i]] = batch_end[first], out
            out += 1
