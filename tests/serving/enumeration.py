"""Every configuration of a space, each simulated from nothing, none left out: the slow way, compiled to be bearable.

Built otherwise than the planners: no memory of stages, no bound, no order of cost. Per stage entries are sorted by (instant,
last parent, rank there), batches are taken one after the other from a list, completions sorted by (end, start order).
"""

from __future__ import annotations

import numpy as np

from forerun.serving.inputs.pipeline import SOURCE
from forerun.serving.plan.space import Choice, Configuration, Space

from .enumeration_kernels import first_of_least_cost


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
    best, misses = first_of_least_cost(
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
