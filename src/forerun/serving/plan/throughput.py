"""How much traffic a budget carries: the trace sped up step by step until no configuration within the budget keeps up.

Feasibility need not be monotone in the rate, so the answer is the last rate before the first failure from below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from forerun.serving.plan.exact import Found, cheapest
from forerun.serving.plan.greedy import Steps, with_choice
from forerun.serving.plan.space import Choice, Configuration, Space
from forerun.serving.plan.stage_runs import StageRuns

#: ratio of neighbouring rates on the grid
GRID: Final = 1.02

#: grid points above the trace's own rate, and below it
MOST_STEPS: Final = 400


@dataclass(frozen=True)
class Carried:
    """The most traffic that a budget carries.

    Parameters
    ----------
    rate_rps : the highest rate before the first failure (0: none on the grid).
    factor : that rate over the trace's own.
    plan : its plan (None: there is none).
    fails_at_rps : the rate that fails (0: none).
    tried : (rate, cost of its cheapest plan within the budget, nan if none).
    """

    rate_rps: float
    factor: float
    plan: Found | None
    fails_at_rps: float
    tried: tuple[tuple[float, float], ...]


def most_traffic(space: Space, budget_usd_per_h: float) -> Carried:
    """The last rate f0 * 1.02^k, counted up from the lowest on the grid, at which the exact plan fits the budget.

    The grid begins where the budget first suffices below the trace's own rate, or at that rate.

    Parameters
    ----------
    space : with the trace at its own rate f0.
    budget_usd_per_h : most that all replicas may cost together, in $/h.
    """
    budget, base = space.whole_budget(budget_usd_per_h), space.traffic.rate_rps
    tried: dict[int, Found] = {}

    def at(k: int) -> Found:
        if k not in tried:
            traffic = space.traffic.scaled(GRID**-k)
            tried[k] = cheapest(space.under(traffic=traffic), budget=budget)
        return tried[k]

    k = 0
    while at(k).configuration is None and k > -MOST_STEPS:
        k -= 1
    while at(k).configuration is not None and k < MOST_STEPS:
        k += 1
    rows = tuple((base * GRID**j, tried[j].cost) for j in sorted(tried))
    if k - 1 not in tried or tried[k - 1].configuration is None:
        return Carried(0.0, 0.0, None, base * GRID**k, rows)
    fails = base * GRID**k if at(k).configuration is None else 0.0
    return Carried(base * GRID ** (k - 1), GRID ** (k - 1), tried[k - 1], fails, rows)


def bottleneck_first(space: Space, budget_usd_per_h: float) -> tuple[float, Steps]:
    """The baseline in the InferLine notebook's comments.

    Cheapest hardware, batch 1, one replica; then for the stage of least throughput the first of larger batch, one
    more replica, better hardware that raises it within the budget, the P99 times of full batches within the objective
    along every path; until nothing helps.

    Parameters
    ----------
    space : with the trace at its own rate.
    budget_usd_per_h : most that all replicas may cost together, in $/h.

    Returns the last rate on the grid, counted up from the lowest, at which that configuration keeps the objective in
    simulation (0: at none).
    """
    budget = space.whole_budget(budget_usd_per_h)
    now: Configuration = tuple(
        Choice(min(offers, key=lambda offer: offer.price).hardware, 1, 1) for offers in space.offers
    )
    if space.whole_cost(now) > budget:
        return 0.0, Steps(None, 1)
    evaluations, improved = 1, True
    while improved:
        improved = False
        rates = [_carries(space, s, choice) for s, choice in enumerate(now)]
        stage = rates.index(min(rates))
        for choice in _better(space, stage, now[stage]):
            candidate = with_choice(now, stage, choice)
            evaluations += 1
            full = [space.offer(s, c.hardware).p99_ms[c.max_batch] for s, c in enumerate(candidate)]
            fits = space.whole_cost(candidate) <= budget and space.longest_path_ms(full) <= space.slo_ms
            if fits and _carries(space, stage, choice) > rates[stage]:
                now, improved = candidate, True
                break
    return _last_met(space, now), Steps(now, evaluations)


def _carries(space: Space, stage: int, choice: Choice) -> float:
    return space.offer(stage, choice.hardware).qps[choice.max_batch] * choice.replicas


def _last_met(space: Space, configuration: Configuration) -> float:
    """The last rate on the grid before a configuration first fails, counted up from where it keeps the objective."""

    def keeps(k: int) -> bool:
        faster = space.under(traffic=space.traffic.scaled(GRID**-k))
        return StageRuns(faster, faster.traffic).misses(configuration) is not None

    k = 0
    while not keeps(k) and k > -MOST_STEPS:
        k -= 1
    while keeps(k + 1) and k < MOST_STEPS:
        k += 1
    return space.traffic.rate_rps * GRID**k if k > -MOST_STEPS or keeps(k) else 0.0


def _better(space: Space, stage: int, choice: Choice) -> list[Choice]:
    """A larger batch, one replica more, better hardware; what there is of them."""
    offer, better = space.offer(stage, choice.hardware), []
    larger = next((batch for batch in offer.batches if batch > choice.max_batch), None)
    if larger is not None:
        better.append(choice._replace(max_batch=larger))
    better.append(choice._replace(replicas=choice.replicas + 1))
    dearer = [o for o in space.offers[stage] if o.price > offer.price and choice.max_batch in o.batches]
    if dearer:
        better.append(choice._replace(hardware=min(dearer, key=lambda other: other.price).hardware))
    return better
