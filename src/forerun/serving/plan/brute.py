"""Every configuration, cheapest first: the referee for small spaces. Nothing is pruned but by cost."""

from __future__ import annotations

import itertools
from typing import Final

from forerun.core.errors import Problem, UsageError
from forerun.serving.plan.greedy import Misses, Steps
from forerun.serving.plan.space import Choice, Space

#: the largest space that is enumerated
MOST_CONFIGURATIONS: Final = 1_000_000


def configurations(space: Space) -> int:
    """How many configurations a space has."""
    product = 1
    for offers in space.offers:
        product *= sum(len(offer.batches) for offer in offers) * space.max_replicas
    return product


def brute_force(space: Space, misses: Misses) -> Steps:
    """The first feasible configuration in ascending cost.

    Parameters
    ----------
    space : all whose configurations are enumerated.
    misses : gives how many queries a configuration misses, None if more than allowed.

    Raises UsageError for a space that is too large.
    """
    count = configurations(space)
    if count > MOST_CONFIGURATIONS:
        what = f"the space has {count:,} configurations; at most {MOST_CONFIGURATIONS:,} are enumerated"
        raise UsageError(Problem("method brute", what))
    choices = [
        [
            (space.whole_price(offer) * replicas, Choice(offer.hardware, batch, replicas))
            for offer in offers
            for batch in offer.batches
            for replicas in range(1, space.max_replicas + 1)
        ]
        for offers in space.offers
    ]
    ranked = sorted(itertools.product(*choices), key=lambda chosen: sum(cost for cost, _ in chosen))
    for evaluated, chosen in enumerate(ranked, start=1):
        configuration = tuple(choice for _, choice in chosen)
        if misses(configuration) is not None:
            return Steps(configuration, evaluated)
    return Steps(None, len(ranked))
