"""What nodes cost: every second billed, and what on-demand nodes alone would cost."""

from __future__ import annotations

import math

from forerun.spot.engine.run import HistoryOutcome
from forerun.spot.inputs import Inputs
from forerun.spot.scenario import Prices


def history_usd(outcome: HistoryOutcome) -> tuple[float, float]:
    """Dollars for the spot nodes and for the on-demand nodes of one history.

    A price that changes is paid as it goes; with one price, each rental of a node is rounded to billing units, if any.
    """
    scenario, done = outcome.inputs.scenario, outcome.replay
    steady_s = scenario.on_demand_nodes * done.end_s
    prices = scenario.prices
    on_demand = steady_s * prices.on_demand_usd_per_h / 3600.0
    if prices.changes:
        price, spot = outcome.inputs.home.usd_per_h, scenario.on_demand_nodes
        held = [(one.start_s, one.end_s) for one in done.node_spells if one.node >= spot]
        return math.fsum(float(price.integral(*span)) for span in held) / 3600.0, on_demand
    if prices.billing_s == 0 and prices.minimum_s == 0:
        return (done.alive_node_s - steady_s) * prices.spot_usd_per_h / 3600.0, on_demand
    rentals: dict[tuple[int, float], float] = {}
    ends: dict[int, tuple[tuple[int, float], float]] = {}
    for spell in sorted(done.node_spells, key=lambda spell: (spell.node, spell.start_s)):
        rental, end_s = ends.get(spell.node, ((spell.node, spell.start_s), -1.0))
        if end_s != spell.start_s:
            rental = (spell.node, spell.start_s)
        rentals[rental] = rentals.get(rental, 0.0) + spell.end_s - spell.start_s
        ends[spell.node] = (rental, spell.end_s)
    billed = sum(
        billed_s(rental_s, prices)
        for (node, _), rental_s in rentals.items()
        if node >= scenario.on_demand_nodes
    )
    return billed * prices.spot_usd_per_h / 3600.0, on_demand


def billed_s(rental_s: float, prices: Prices) -> float:
    """Seconds billed for a rental: whole units, and not less than the minimum.

    Parameters
    ----------
    rental_s : how long a node was rented without a break.
    prices : with the length of a unit and the minimum (0: none).
    """
    seconds = max(rental_s, prices.minimum_s)
    if prices.billing_s:
        seconds = math.ceil(seconds / prices.billing_s - 1e-12) * prices.billing_s
    return seconds


def all_on_demand_usd_per_million_samples(inputs: Inputs) -> float | None:
    """Dollars a million samples on on-demand nodes only, without a loss.

    At the number of nodes that costs least. None if the scenario has no price of on-demand nodes.
    """
    job, price = inputs.scenario.job, inputs.scenario.prices.on_demand_usd_per_h
    if price == 0:
        return None
    reachable = range(job.depth * job.min_pipelines, job.depth * job.max_pipelines + 1, job.depth)
    best = min(size * seconds for size, seconds in inputs.job.step_s.items() if size in reachable)
    return best / 3600.0 * price / job.samples_per_step * 1e6
