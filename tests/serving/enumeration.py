"""Every configuration of a space, each simulated from nothing, none left out: the slow way, compiled to be bearable.

Built otherwise than the planners: no memory of stages, no bound, no order of cost. Per stage entries are sorted by (instant,
last parent, rank there), batches are taken one after the other from a list, completions sorted by (end, start order).
"""

from __future__ import annotations

import numpy as np

from forerun.core.kernels.jit import kernel
from forerun.serving.inputs.pipeline import SOURCE
from forerun.serving.plan.space import Choice, Configuration, Space


def enumerated(space: Space) -> tuple[Configuration | None, int, int]:
    """(a cheapest feasible configuration or None, its misses, how many configurations were simulated)."""
    choices = [
        [
            Choice(offer.hardware, batch, replicas)
            for offer in offers
            for batch in offer.batches
            for replicas in range(1, space.max_replicas + 1)
        ]
        for offers in space.offers
    ]
    widest = max(len(offer.table_ms) for offers in space.offers for offer in offers)
    most = max(len(options) for options in choices)
    stages = len(choices)
    tables = np.zeros((stages, most, widest))
    settings = np.zeros((stages, most, 3), dtype=np.int64)
    for s, options in enumerate(choices):
        for i, choice in enumerate(options):
            offer = space.offer(s, choice.hardware)
            tables[s, i, : len(offer.table_ms)] = offer.table_ms
            settings[s, i] = (choice.max_batch, choice.replicas, space.whole_price(offer) * choice.replicas)
    counts = np.array([len(options) for options in choices])
    queries = space.traffic.queries
    parents = np.full((stages, stages + 1), -2, dtype=np.int64)
    takes = np.ones((stages, stages + 1, queries), dtype=np.bool_)
    for s, above in enumerate(space.parents):
        for p, parent in enumerate(above):
            parents[s, p] = parent
            taken = space.traffic.taken[space.edge_at[s] + p]
            if taken is not None:
                takes[s, p] = taken
    assert SOURCE == -1
    best, misses = _cheapest(
        space.traffic.arrivals_ms, parents, takes, tables, settings, counts, space.slo_ms, space.allowed
    )
    total = int(np.prod(counts))
    if best < 0:
        return None, 0, total
    chosen = []
    for s in range(stages - 1, -1, -1):
        chosen.append(choices[s][int(best % counts[s])])
        best //= counts[s]
    return tuple(reversed(chosen)), int(misses), total


@kernel
def _cheapest(arrivals, parents, takes, tables, settings, counts, slo_ms, allowed):  # type: ignore[no-untyped-def]
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
