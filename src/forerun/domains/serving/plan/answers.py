"""From what the searches find to plans: figures, tables, why, and the certificate; or why there is none."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from forerun.domains.serving.inputs import Inputs
from forerun.domains.serving.inputs.pipeline import SOURCE
from forerun.domains.serving.plan import sensitivity
from forerun.domains.serving.plan import tables as plan_tables
from forerun.domains.serving.plan.brute import brute_force, configurations
from forerun.domains.serving.plan.certify import certificate
from forerun.domains.serving.plan.chance import cheapest_on_most, survival, traces_allowed_to_fail
from forerun.domains.serving.plan.exact import Found, Search
from forerun.domains.serving.plan.greedy import Steps, greedy, longest_path_ms
from forerun.domains.serving.plan.serving_plan import ServingPlan, routing_of
from forerun.domains.serving.plan.space import Choice, Configuration, Space, Traffic, configuration_of
from forerun.domains.serving.plan.stage_runs import StageRuns, tails_ms
from forerun.domains.serving.plan.sweep import sweep, visiting_shares
from forerun.domains.serving.plan.tables import named
from forerun.domains.serving.plan.throughput import bottleneck_first, most_traffic
from forerun.domains.serving.scenario import Scenario
from forerun.errors import Infeasible, Problem
from forerun.result.tables import Table

#: the largest space that is enumerated beside the exact search
BRUTE_BESIDE: Final = 20_000

#: how much more of the objective, and of the load, a plan says the worth of
SLO_MORE_MS: Final = 10.0
RATE_MORE_RPS: Final = 10.0

#: combinations tried to say how near an infeasible pipeline comes
MOST_TRIED: Final = 4000


def cost(scenario: Scenario, inputs: Inputs, space: Space, method: str, frontier: bool) -> ServingPlan:
    """The cheapest configuration, beside what the published optimisers find."""
    found = Search(space).cheapest()
    if found.configuration is None:
        raise infeasible(space, found)
    rows = {"exact": (found.configuration, found.runs)} | _others(space, method)
    chosen = rows[method][0]
    if chosen is None:
        what = f"finds no configuration; the exact search finds one at {found.cost:g} $/h"
        raise Infeasible(Problem(f"method {method}", what))
    now = configuration_of(scenario, space)
    methods = _methods_table(space, {**rows, "as it is now": (now, 1)}, found)
    tables = {
        "stages": plan_tables.stages_table(space, chosen, now, visiting_shares(space)),
        "methods": methods,
    }
    notes: list[str] = []
    worth: dict[str, float] = {}
    if frontier:
        tables["frontier"], worth, notes = _frontier(space)
    tables["cells"] = _cells_table(space, found)
    summary = _summary(space, chosen, now)
    summary |= {
        "optimum_usd_per_h": found.cost,
        "stage_runs": found.runs,
        "cells": len(found.cells),
        "proved_cheapest": method == "exact",
        **worth,
    }
    proof: dict[str, Any] = {}
    if method == "exact":
        proof = certificate(space, chosen, routing_of(inputs))
        summary["refuted_parts"] = len(proof["refuted"])
    why = _why(space, chosen, found, method)
    if space.allowed > 0 and summary["misses"] > 0.8 * space.allowed:
        notes.append(
            f"the plan uses {summary['misses']} of {space.allowed} misses on this one trace; on fresh traffic it may use "
            "more: plan with confidence and traces"
        )
    return ServingPlan(
        scenario,
        space,
        chosen,
        summary["misses"],
        summary,
        why,
        tuple(notes),
        tables,
        proof,
        (space.traffic,),
    )


def chance(
    scenario: Scenario,
    space: Space,
    traffics: Sequence[Traffic],
    confidence: float,
    fresh: Sequence[Traffic],
) -> ServingPlan:
    """The cheapest configuration that keeps the objective on all but few fresh traces."""
    allowed = scenario.allowed_misses(traffics[0].queries)
    space = space.under(traffic=traffics[0], allowed=allowed)
    found = cheapest_on_most(space, traffics, confidence)
    if found.configuration is None:
        raise infeasible(space, found)
    single = Search(space).cheapest()
    now = configuration_of(scenario, space)
    tried = survival(space, found.configuration, fresh)
    failing = sum(misses > allowed for misses in found.misses)
    summary = _summary(space, found.configuration, now) | {
        "misses": max(found.misses),
        "confidence": confidence,
        "traces": len(traffics),
        "traces_allowed_to_fail": traces_allowed_to_fail(confidence, len(traffics)),
        "traces_failing": failing,
        "single_trace_cost_usd_per_h": single.cost,
        "fresh_traces": tried.traces,
        "fresh_traces_kept": tried.kept,
        "fresh_kept_low_share": tried.low,
        "fresh_kept_high_share": tried.high,
        "stage_runs": found.runs,
        "cells": len(found.cells),
    }
    notes = []
    if single.configuration is not None:
        alone = survival(space, single.configuration, fresh)
        notes.append(f"a plan from one trace costs {single.cost:g} $/h and is {alone}")
    notes.append("cheapest on the traces it was made for; there is no certificate for several traces")
    why = (
        f"{named(space, found.configuration)} is the cheapest, {found.cost:g} $/h, that keeps {scenario.attainment:.6g} "
        f"of the queries within {space.slo_ms:g} ms on {len(traffics) - failing} of {len(traffics)} traces; "
        f"{'it was ' if tried.traces else ''}{tried}"
    )
    rows = [(i, misses, misses <= allowed) for i, misses in enumerate(found.misses, start=1)]
    tables = {
        "stages": plan_tables.stages_table(space, found.configuration, now, visiting_shares(space)),
        "traces": plan_tables.table_of(plan_tables.TRACES, rows),
        "cells": _cells_table(space, found),
    }
    return ServingPlan(
        scenario,
        space,
        found.configuration,
        max(found.misses),
        summary,
        why,
        tuple(notes),
        tables,
        {},
        tuple(traffics),
        failing=int(summary["traces_allowed_to_fail"]),
    )


def throughput(scenario: Scenario, space: Space, budget_usd_per_h: float) -> ServingPlan:
    """The most traffic that a budget carries."""
    carried = most_traffic(space, budget_usd_per_h)
    found = carried.found
    if found is None or found.configuration is None:
        least = sum(min(offer.price for offer in offers) for offers in space.offers)
        what = f"{budget_usd_per_h:g} $/h carries this trace at no rate down to {carried.fails_at_rps:.4g} queries/s"
        if budget_usd_per_h < least:
            what += f": one replica of the cheapest hardware for every stage costs {least:g} $/h"
        raise Infeasible(Problem("budget_usd_per_h", what))
    faster = space.under(traffic=space.traffic.scaled(1 / carried.factor))
    baseline_rate, baseline = bottleneck_first(space, budget_usd_per_h)
    now = configuration_of(scenario, space)
    summary = _summary(faster, found.configuration, now) | {
        "rate_rps": carried.rate_rps,
        "budget_usd_per_h": budget_usd_per_h,
        "fails_at_rate_rps": carried.fails_at_rps,
        "bottleneck_first_rate_rps": baseline_rate,
        "rates_tried": len(carried.tried),
    }
    stop = (
        f"at {carried.fails_at_rps:.4g}/s nothing within the budget keeps it"
        if carried.fails_at_rps
        else "the grid ends there"
    )
    why = (
        f"{budget_usd_per_h:g} $/h carries {carried.rate_rps:.4g} queries/s of this trace, on "
        f"{named(space, found.configuration)} ({found.cost:g} $/h); {stop}"
    )
    notes = (
        "rates are tried in steps of 2 % from below and the first failure ends the search: more load is not always worse",
        f"relieving the bottleneck first, as in the notebook's comments, reaches {baseline_rate:.4g}/s"
        + (f" on {named(space, baseline.configuration)}" if baseline.configuration else ""),
    )
    tables = {
        "stages": plan_tables.stages_table(faster, found.configuration, now, visiting_shares(space)),
        "rates": plan_tables.table_of(plan_tables.RATES, carried.tried),
    }
    return ServingPlan(
        scenario,
        faster,
        found.configuration,
        found.misses[0],
        summary,
        why,
        notes,
        tables,
        {},
        (faster.traffic,),
    )


def infeasible(space: Space, found: Found) -> Infeasible:
    """Why no configuration keeps the objective: the path that is too long even when idle, or the stage that binds."""
    queries, allowed = space.traffic.queries, space.allowed
    fastest = longest_path_ms(space, space.least_ms)
    blamed = found.cells[-1].hopeless
    near = _nearest(space, [space.names.index(name) for name in blamed])
    best = f"the best found keeps {1 - near / queries:.4%} of {queries} queries, {1 - allowed / queries:.4%} is wanted"
    if _too_long_when_idle(space) > allowed:
        where = f"stage {blamed[-1]}"
        what = f"slo_ms {space.slo_ms:g} binds: the fastest way through the pipeline takes {fastest:.4g} ms with no waiting"
    else:
        where = f"stage {blamed[-1]}" if len(blamed) < len(space.names) else f"stages {', '.join(blamed)}"
        behind = f" behind {', '.join(blamed[:-1])}" if 1 < len(blamed) < len(space.names) else ""
        what = (
            f"slo_ms {space.slo_ms:g} and max_replicas {space.max_replicas} bind: with any hardware, any batch and at "
            f"most {space.max_replicas} a stage{behind}, more than {allowed} queries are late"
        )
    return Infeasible(Problem(where, f"{what}; {best}"))


def _too_long_when_idle(space: Space) -> int:
    """Queries whose way through the pipeline takes too long even if nobody ever waits."""
    tails = tails_ms(space, space.traffic)
    least = np.zeros(space.traffic.queries)
    for s, parents in enumerate(space.parents):
        for edge, parent in enumerate(parents, start=space.edge_at[s]):
            if parent == SOURCE:
                takes = space.traffic.taken[edge]
                ahead = tails[s] + space.least_ms[s]
                least = np.maximum(least, ahead if takes is None else np.where(takes, ahead, 0.0))
    return int(np.count_nonzero(least > space.slo_ms))


def _nearest(space: Space, stages: Sequence[int]) -> int:
    """Fewest forced misses of some stages with most replicas, over hardware and batches (the first few thousand)."""
    known = StageRuns(space, space.traffic, cut_short=False)
    choices = [
        [
            Choice(offer.hardware, batch, space.max_replicas)
            for offer in space.offers[s]
            for batch in offer.batches
        ]
        for s in stages
    ]
    fewest = space.traffic.queries
    for chosen in itertools.islice(itertools.product(*choices), MOST_TRIED):
        outcomes: dict[int, Any] = {}
        late = 0
        for s, choice in zip(stages, chosen):
            outcomes[s] = known.stage_run(s, choice, [outcomes.get(p) for p in space.parents[s]])
            late |= outcomes[s].late
        fewest = min(fewest, late.bit_count())
    return fewest


def _others(space: Space, method: str) -> dict[str, tuple[Configuration | None, int]]:
    """What the published optimisers find, and brute force where the space is small or it was asked for."""
    known = StageRuns(space, space.traffic)
    steps: dict[str, Steps] = {
        "greedy": greedy(space, known.misses),
        "sweep": sweep(space, known.misses),
    }
    if method == "brute" or configurations(space) <= BRUTE_BESIDE:
        steps["brute"] = brute_force(space, known.misses)
    return {name: (found.configuration, found.evaluations) for name, found in steps.items()}


def _methods_table(space: Space, rows: dict[str, tuple[Configuration | None, int]], found: Found) -> Table:
    known = StageRuns(space, space.traffic, cut_short=False)
    gathered = []
    for name, (configuration, evaluated) in rows.items():
        if configuration is None or not _within(space, configuration):
            what = "" if configuration is None else f"{named(space, configuration)}: outside the space"
            gathered.append((name, math.nan, math.nan, math.nan, False, evaluated, what))
            continue
        misses = known.misses(configuration)
        assert misses is not None
        amount = space.cost(configuration)
        feasible = misses <= space.allowed
        above = amount / found.cost - 1 if feasible and found.cost else math.nan
        gathered.append(
            (name, amount, above, float(misses), feasible, evaluated, named(space, configuration))
        )
    return plan_tables.table_of(plan_tables.METHODS, gathered)


def _within(space: Space, configuration: Configuration) -> bool:
    return all(
        any(offer.hardware == choice.hardware and choice.max_batch < len(offer.table_ms) for offer in offers)
        for offers, choice in zip(space.offers, configuration)
    )


def _summary(space: Space, plan: Configuration, now: Configuration) -> dict[str, Any]:
    misses = StageRuns(space, space.traffic, cut_short=False).misses(plan)
    assert misses is not None
    found: dict[str, Any] = {
        "cost_usd_per_h": space.cost(plan),
        "misses": misses,
        "misses_allowed": space.allowed,
        "attainment": 1 - misses / space.traffic.queries,
        "queries": space.traffic.queries,
        "rate_rps": space.traffic.rate_rps,
        "slo_ms": space.slo_ms,
        "max_replicas": space.max_replicas,
    }
    if _within(space, now):
        found["cost_now_usd_per_h"] = space.cost(now)
    return found


def _why(space: Space, chosen: Configuration, found: Found, method: str) -> str:
    here = f"{named(space, chosen)} costs {space.cost(chosen):g} $/h"
    if method != "exact" and space.cost(chosen) == found.cost:
        return f"{here}, as little as the exact search finds"
    if method != "exact":
        return f"{here}, {space.cost(chosen) / found.cost - 1:.1%} above the cheapest, {found.cost:g} $/h"
    hopeless = [cell.hopeless for cell in found.cells if cell.hopeless]
    if not hopeless:
        return f"{here} and is the cheapest hardware there is with one replica a stage"
    stages = max(set(hopeless), key=hopeless.count)
    blamed = " with ".join(reversed(stages)) if len(stages) < len(space.names) else "all stages together"
    cheaper = (
        f"the {len(hopeless)} cheaper choices of hardware and replicas that had to be looked at are"
        if len(hopeless) > 1
        else "the one cheaper choice of hardware and replicas that had to be looked at is"
    )
    return (
        f"{here}; {cheaper} too slow whatever the batches, {'most often ' * (len(hopeless) > 1)}at {blamed}"
    )


def _cells_table(space: Space, found: Found) -> Table:
    rows = []
    for tried in found.cells:
        cell = "; ".join(
            f"{n}: {count} x {hardware}" for n, (hardware, count) in zip(space.names, tried.cell)
        )
        rows.append((tried.cost, cell, ", ".join(tried.hopeless)))
    return plan_tables.table_of(plan_tables.CELLS, rows)


def _frontier(space: Space) -> tuple[Table, dict[str, float], list[str]]:
    """Plans at other objectives and rates; what a little more of either is worth; and in words, where the next step is."""
    slos, rates = sensitivity.by_slo(space), sensitivity.by_rate(space)
    rows = [
        (varied, p.slo_ms, p.rate_rps, p.found.cost, named(space, p.found.configuration))
        for varied, points in (("objective", slos), ("load", rates))
        for p in points
    ]
    here = next(point for point in slos if point.slo_ms == space.slo_ms)
    looser, busier = (
        sensitivity.at_slo(space, space.slo_ms + SLO_MORE_MS),
        sensitivity.busier(space, RATE_MORE_RPS),
    )
    worth = {
        "slo_10ms_more_saves_usd_per_h": here.cost - looser.cost,
        "rate_10rps_more_costs_usd_per_h": busier.cost - here.cost,
    }
    notes = [_of_slo(space, slos, here, worth["slo_10ms_more_saves_usd_per_h"])]
    notes.append(_of_rate(space, rates, here, worth["rate_10rps_more_costs_usd_per_h"]))
    return plan_tables.table_of(plan_tables.FRONTIER, rows), worth, notes


def _of_slo(space: Space, points: Sequence[sensitivity.Point], here: sensitivity.Point, saved: float) -> str:
    """What more of the objective saves: 10 ms, and up to the next step."""
    begin = f"{SLO_MORE_MS:g} ms more of objective save {saved:.4g} $/h"
    step = sensitivity.next_step_down(space, points)
    if step is None:
        return f"{begin}; no cheaper plan up to {points[-1].slo_ms:.4g} ms"
    more, less = step.slo_ms - here.slo_ms, here.cost - step.cost
    return (
        f"{begin}; the next step is at {step.slo_ms:.4g} ms: {more:.4g} ms more save {less:.4g} $/h "
        f"({SLO_MORE_MS * less / more:.3g} $/h for every {SLO_MORE_MS:g} ms)"
    )


def _of_rate(space: Space, points: Sequence[sensitivity.Point], here: sensitivity.Point, extra: float) -> str:
    """What more load costs: 10 queries/s, and up to the next step."""
    rate = space.traffic.rate_rps
    costs = f"cost {extra:.4g} $/h more" if math.isfinite(extra) else "cannot be carried"
    begin = f"{RATE_MORE_RPS:g} queries/s more {costs}"
    step = sensitivity.next_step_up(space, points)
    if step is None:
        return f"{begin}; no dearer plan up to {points[-1].rate_rps:.4g}/s"
    more = step.rate_rps - rate
    if not math.isfinite(step.cost):
        return f"{begin}; from {step.rate_rps:.4g}/s on nothing keeps the objective"
    dearer = step.cost - here.cost
    return (
        f"{begin}; the next step is at {step.rate_rps:.4g}/s: {more:.4g} queries/s more cost {dearer:.4g} $/h "
        f"({RATE_MORE_RPS * dearer / more:.3g} $/h for every {RATE_MORE_RPS:g} queries/s)"
    )
