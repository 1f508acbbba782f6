"""From what the searches find to plans: figures, tables, why, and the certificate; or why there is none."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from forerun.core.errors import Infeasible, Problem
from forerun.core.result.stats import Interval, proportion_interval
from forerun.core.result.tables import Table
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.pipeline import SOURCE
from forerun.serving.plan import sensitivity
from forerun.serving.plan import tables as plan_tables
from forerun.serving.plan.brute import brute_force, configurations
from forerun.serving.plan.certify import certificate
from forerun.serving.plan.exact import Found, Search
from forerun.serving.plan.greedy import Steps, greedy
from forerun.serving.plan.serving_plan import ServingPlan, routing_of
from forerun.serving.plan.space import Choice, Configuration, Space, Traffic
from forerun.serving.plan.stage_runs import StageRuns, tails_ms
from forerun.serving.plan.sweep import sweep
from forerun.serving.plan.tables import named
from forerun.serving.plan.throughput import bottleneck_first, most_traffic
from forerun.serving.scenario import Scenario
from forerun.serving.scenario.limits import may_miss
from forerun.serving.scenario.traces import RESAMPLED, resamples

#: the largest space that is enumerated beside the exact search
BRUTE_BESIDE: Final = 20_000

#: how much more of the objective, and of the load, a plan says the worth of
SLO_MORE_MS: Final = 10.0
RATE_MORE_RPS: Final = 10.0

#: combinations tried to say how near an infeasible pipeline comes
MOST_TRIED: Final = 4000


def cost(scenario: Scenario, inputs: Inputs, space: Space, method: str, frontier: bool) -> ServingPlan:
    """The cheapest configuration, beside what the published optimisers give.

    Parameters
    ----------
    scenario : whose own configuration is compared with the plan.
    inputs : the scenario's, for its routing.
    space : what can be chosen, and the objective.
    method : whose configuration is the plan: `exact`, `greedy`, `sweep` or `brute`. The exact search runs in any case.
    frontier : also plan at other objectives and rates.

    Raises Infeasible where no configuration, or none that the method reaches, keeps the objective.
    """
    exact = Search(space).cheapest()
    if exact.configuration is None:
        raise infeasible(space, exact)
    rows = {"exact": (exact.configuration, exact.runs)} | _others(space, method)
    chosen = rows[method][0]
    if chosen is None:
        what = f"finds no configuration; the exact search finds one at {exact.cost:g} $/h"
        raise Infeasible(Problem(f"method {method}", what))
    tables = {"methods": _methods_table(space, {**rows, "as it is now": (_now(scenario, space), 1)}, exact)}
    notes: list[str] = []
    figures: dict[str, Any] = {
        "optimum_usd_per_h": exact.cost,
        "stage_runs": exact.runs,
        "cells": len(exact.cells),
        "proved_cheapest": method == "exact",
    }
    if frontier:
        tables["frontier"], worth, notes = _frontier(space)
        figures |= worth
    proof: dict[str, Any] = {}
    if method == "exact":
        proof = certificate(space, chosen, routing_of(inputs))
        figures["refuted_parts"] = len(proof["refuted"])
    misses = _misses(space, chosen)
    if space.allowed > 0 and misses > 0.8 * space.allowed:
        notes.append(
            f"the plan uses {misses} of {space.allowed} misses on this one trace; on fresh traffic it may use "
            "more: plan with confidence and traces"
        )
    tables["cells"] = plan_tables.cells_table(space, exact)
    why = _why(space, chosen, exact, method)
    return _answer(scenario, space, chosen, figures, why, notes, tables, certificate=proof)


def chance(
    scenario: Scenario,
    space: Space,
    traffics: Sequence[Traffic],
    confidence: float,
    fresh: Sequence[Traffic],
) -> ServingPlan:
    """The cheapest configuration that keeps the objective on all but few fresh traces.

    Parameters
    ----------
    scenario : whose attainment says how many queries of a trace may miss.
    space : what can be chosen; its own traffic does not count.
    traffics : the traces to plan for, all equally long.
    confidence : it may fail on floor((1 - confidence) * traces) of them.
    fresh : further traces that the plan is tried on.

    Raises Infeasible where there is none.
    """
    allowed = scenario.allowed_misses(traffics[0].queries)
    space = space.under(traffic=traffics[0], allowed=allowed)
    may_fail = may_miss(confidence, len(traffics))
    best = Search(space, traffics, failing=may_fail).cheapest()
    if best.configuration is None:
        raise infeasible(space, best)
    single = Search(space).cheapest()
    drawn = resamples(scenario.trace)
    met, share, tried = kept_on(space, best.configuration, fresh, drawn)
    failing = sum(misses > allowed for misses in best.misses)
    figures = {
        "misses": max(best.misses),
        "confidence": confidence,
        "traces": len(traffics),
        "traces_allowed_to_fail": may_fail,
        "traces_failing": failing,
        "single_trace_cost_usd_per_h": single.cost,
        "fresh_traces": len(fresh),
        "fresh_traces_kept": met,
        **({} if drawn else {"fresh_kept_low_share": share.low, "fresh_kept_high_share": share.high}),
        "stage_runs": best.runs,
        "cells": len(best.cells),
    }
    notes = []
    if single.configuration is not None:
        _, _, alone = kept_on(space, single.configuration, fresh, drawn)
        notes.append(f"a plan from one trace costs {single.cost:g} $/h and is {alone}")
    notes += [RESAMPLED] if drawn else []
    notes.append("cheapest on the traces it was made for; there is no certificate for several traces")
    why = (
        f"{named(space, best.configuration)} is the cheapest, {best.cost:g} $/h, that keeps {scenario.attainment:.6g} "
        f"of the queries within {space.slo_ms:g} ms on {len(traffics) - failing} of {len(traffics)} traces; "
        f"it was {tried}"
    )
    rows = [(i, misses, misses <= allowed) for i, misses in enumerate(best.misses, start=1)]
    tables = {
        "traces": Table.of_rows(plan_tables.TRACES, rows),
        "cells": plan_tables.cells_table(space, best),
    }
    return _answer(
        scenario, space, best.configuration, figures, why, notes, tables, traffics=traffics, failing=may_fail
    )


def kept_on(
    space: Space, configuration: Configuration, fresh: Sequence[Traffic], drawn: bool
) -> tuple[int, Interval, str]:
    """On how many traces that it was not made from a configuration keeps the objective, its share's interval, and words.

    A plan made from one sample uses up the whole allowance of misses there, and breaks on the next. drawn: whether they are
    resamples of one trace, whose share has no interval.
    """
    met = sum(StageRuns(space, traffic).misses(configuration) is not None for traffic in fresh)
    share = proportion_interval(met, len(fresh))
    span = "" if drawn else f" ({share.confidence:.0%} interval {share.low:.0%} to {share.high:.0%})"
    return met, share, f"kept on {met} of {len(fresh)} fresh traces{span}"


def throughput(scenario: Scenario, space: Space, budget_usd_per_h: float) -> ServingPlan:
    """The most traffic that a budget carries: the scenario's trace, sped up or slowed down.

    Parameters
    ----------
    scenario : whose own configuration is compared with the plan.
    space : what can be chosen, with the trace at its own rate.
    budget_usd_per_h : most that the replicas of all stages may cost together, in $/h.

    Raises Infeasible where the budget carries it at no rate.
    """
    carried = most_traffic(space, budget_usd_per_h)
    best = carried.plan
    if best is None or best.configuration is None:
        least = sum(min(offer.price for offer in offers) for offers in space.offers)
        what = f"{budget_usd_per_h:g} $/h carries this trace at no rate down to {carried.fails_at_rps:.4g} queries/s"
        if budget_usd_per_h < least:
            what += f": one replica of the cheapest hardware for every stage costs {least:g} $/h"
        raise Infeasible(Problem("budget_usd_per_h", what))
    faster = space.under(traffic=space.traffic.scaled(1 / carried.factor))
    baseline_rate, baseline = bottleneck_first(space, budget_usd_per_h)
    figures = {
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
        f"{named(space, best.configuration)} ({best.cost:g} $/h); {stop}"
    )
    notes = (
        "rates are tried in steps of 2 % from below and the first failure ends the search: more load is not always worse",
        f"relieving the bottleneck first, as in the notebook's comments, reaches {baseline_rate:.4g}/s"
        + (f" on {named(space, baseline.configuration)}" if baseline.configuration else ""),
    )
    tables = {"rates": Table.of_rows(plan_tables.RATES, carried.tried)}
    return _answer(scenario, faster, best.configuration, figures, why, notes, tables)


def _answer(
    scenario: Scenario,
    space: Space,
    chosen: Configuration,
    figures: Mapping[str, Any],
    why: str,
    notes: Sequence[str],
    tables: Mapping[str, Table],
    *,
    certificate: Mapping[str, Any] | None = None,
    traffics: Sequence[Traffic] = (),
    failing: int = 0,
) -> ServingPlan:
    """The plan, with what every plan says: its cost and misses, and its stages beside what the scenario runs now.

    Parameters
    ----------
    scenario, space : what was planned, and what could be chosen.
    chosen : the configuration of the plan.
    figures : those of this question, which come behind the common ones or replace them.
    why, notes : the reason in a sentence, and what a reader should know besides.
    tables : those of this question; the plan's stages are added.
    certificate : proof that nothing is cheaper (default: none).
    traffics : what the plan must carry (default: the space's traffic).
    failing : on how many of them it may miss too often (default: 0).
    """
    now, misses = _now(scenario, space), _misses(space, chosen)
    summary: dict[str, Any] = {
        "cost_usd_per_h": space.cost(chosen),
        "misses": misses,
        "misses_allowed": space.allowed,
        "attainment": 1 - misses / space.traffic.queries,
        "queries": space.traffic.queries,
        "rate_rps": space.traffic.rate_rps,
        "slo_ms": space.slo_ms,
        "max_replicas": space.max_replicas,
    }
    if _within(space, now):
        summary["cost_now_usd_per_h"] = space.cost(now)
    summary |= figures
    return ServingPlan(
        scenario,
        space,
        chosen,
        summary["misses"],
        summary,
        why,
        tuple(notes),
        {"stages": plan_tables.stages_table(space, chosen, now), **tables},
        certificate or {},
        tuple(traffics) or (space.traffic,),
        failing,
    )


def _now(scenario: Scenario, space: Space) -> Configuration:
    """The configuration that the scenario runs now."""
    placed = [scenario.configuration[name] for name in space.names]
    return tuple(Choice(place.hardware, place.max_batch, place.replicas) for place in placed)


def _misses(space: Space, configuration: Configuration) -> int:
    """Queries that miss, however many."""
    misses = StageRuns(space, space.traffic, cut_short=False).misses(configuration)
    assert misses is not None
    return misses


def infeasible(space: Space, exact: Found) -> Infeasible:
    """Why no configuration keeps the objective: the path that is too long even when idle, or the stage that binds.

    Parameters
    ----------
    space : in which none does.
    exact : the search; the last cell that it visited names the stages that are too slow.
    """
    queries, allowed = space.traffic.queries, space.allowed
    fastest = space.longest_path_ms(space.least_ms)
    blamed = exact.cells[-1].hopeless
    near = _nearest(space, [space.names.index(name) for name in blamed])
    best = f"the best plan keeps {1 - near / queries:.4%} of {queries} queries, {1 - allowed / queries:.4%} is required"
    if _too_long_when_idle(space) > allowed:
        where = f"stage {blamed[-1]}"
        what = f"slo_ms {space.slo_ms:g} binds: the fastest path through the pipeline takes {fastest:.4g} ms with no waiting"
    else:
        where = f"stage {blamed[-1]}" if len(blamed) < len(space.names) else f"stages {', '.join(blamed)}"
        behind = f" behind {', '.join(blamed[:-1])}" if 1 < len(blamed) < len(space.names) else ""
        what = (
            f"slo_ms {space.slo_ms:g} and max_replicas {space.max_replicas} bind: with any hardware, any batch and at "
            f"most {space.max_replicas} a stage{behind}, more than {allowed} queries are late"
        )
    return Infeasible(Problem(where, f"{what}; {best}"))


def _too_long_when_idle(space: Space) -> int:
    """Queries whose path through the pipeline takes too long even if nobody ever waits."""
    return int(np.count_nonzero(tails_ms(space, space.traffic)[SOURCE] > space.slo_ms))


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
    return {name: (answer.configuration, answer.evaluations) for name, answer in steps.items()}


def _methods_table(space: Space, rows: dict[str, tuple[Configuration | None, int]], exact: Found) -> Table:
    gathered = []
    for name, (configuration, evaluated) in rows.items():
        if configuration is None or not _within(space, configuration):
            what = "" if configuration is None else f"{named(space, configuration)}: outside the space"
            gathered.append((name, math.nan, math.nan, math.nan, False, evaluated, what))
            continue
        misses, amount = _misses(space, configuration), space.cost(configuration)
        feasible = misses <= space.allowed
        above = amount / exact.cost - 1 if feasible and exact.cost else math.nan
        text = named(space, configuration)
        gathered.append((name, amount, above, float(misses), feasible, evaluated, text))
    return Table.of_rows(plan_tables.METHODS, gathered)


def _within(space: Space, configuration: Configuration) -> bool:
    return all(
        any(offer.hardware == choice.hardware and choice.max_batch < len(offer.table_ms) for offer in offers)
        for offers, choice in zip(space.offers, configuration)
    )


def _why(space: Space, chosen: Configuration, exact: Found, method: str) -> str:
    here = f"{named(space, chosen)} costs {space.cost(chosen):g} $/h"
    if method != "exact" and space.cost(chosen) == exact.cost:
        return f"{here}, as little as the exact search finds"
    if method != "exact":
        return f"{here}, {space.cost(chosen) / exact.cost - 1:.1%} above the cheapest, {exact.cost:g} $/h"
    hopeless = [cell.hopeless for cell in exact.cells if cell.hopeless]
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


def _frontier(space: Space) -> tuple[Table, dict[str, float], list[str]]:
    """Plans at other objectives and rates; what a little more of either is worth; and in words, where the next step is."""
    slos, rates = sensitivity.by_slo(space), sensitivity.by_rate(space)
    rows = [
        (varied, p.slo_ms, p.rate_rps, p.plan.cost, named(space, p.plan.configuration))
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
    return Table.of_rows(plan_tables.FRONTIER, rows), worth, notes


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
