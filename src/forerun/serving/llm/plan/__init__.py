"""Plans for pipelines with stages that serve language models: the cheapest cell that keeps every objective, and proof.

What may be chosen is in the stages' sections `plan`. Cells are looked at in ascending cost; a cell is passed over only where
a bound excludes it, and every other that is cheaper than the plan is run. So the plan is the cheapest, whatever the engine
does with more seats or more replicas, and the certificate lists why each cheaper cell is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from forerun.core.errors import Infeasible, Problem
from forerun.core.result.numbers import format_number
from forerun.core.result.tables import Table
from forerun.core.units import split_name
from forerun.serving.engine.modes.default import arrived, simulated
from forerun.serving.inputs.fresh import sped_up
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.prepare import prepare
from forerun.serving.llm.calibration.knee import COVERED, STEP
from forerun.serving.llm.plan import tables as plan_tables
from forerun.serving.llm.plan.confidence import (
    FRESH,
    MORE,
    MOST_WORLDS,
    WORLDS,
    Ladder,
    Tried,
    ladder,
    settling,
    tried_in,
    worlds_of,
)
from forerun.serving.llm.plan.language_plan import LanguagePlan, certificate_of
from forerun.serving.llm.plan.runs import Figures, Margin, Shown, attempt, shown, whole
from forerun.serving.llm.plan.search import TOGETHER, Objective, Search, VisitedCell, World, rank
from forerun.serving.llm.plan.space import Cell, Choice, Space, Variant, space_of
from forerun.serving.llm.scenario.language_model import PLAN_AXES
from forerun.serving.llm.summary.fitted import fit_report
from forerun.serving.llm.summary.objectives import prefixes
from forerun.serving.scenario import SOURCE_NAME, Scenario
from forerun.serving.scenario.limits import check_traces, fits, may_miss
from forerun.serving.scenario.traces import RESAMPLED, ClosedLoop, resamples
from forerun.serving.summary.clients import counted
from forerun.serving.summary.totals import offered_loads

__all__ = ["LanguagePlan", "language_plan"]

#: the option that comes nearest, of the dearest cells that are cheaper than the plan
CHEAPER: Final = "the next cheaper"

#: cells that are run to the end to say how near an infeasible space comes
MOST_TRIED: Final = 64
#: dearer cells that are looked at for the next that keeps the objectives
MOST_BEHIND: Final = 256
#: shares of the scenario's own rate that the plan is run at
RATE_SHARES: Final = (0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0)
#: how far the rate is sped up to see what each hardware carries at most, and how precisely that is located
MOST_SHARE: Final = 16
PRECISION: Final = 0.02
#: how much dearer than the plan cells of the Pareto front may be
PARETO_SHARE: Final = 2


def language_plan(
    scenario: Scenario,
    objective: Objective,
    *,
    max_replicas: int,
    confidence: float,
    traces: int,
    frontier: bool,
) -> LanguagePlan:
    """The cheapest cell.

    Parameters
    ----------
    scenario : its own configuration is what the plan is compared with.
    objective : what is minimised: $ per hour, or $ per token of the answers.
    max_replicas : of a stage that lists no numbers of replicas.
    confidence, traces : the objectives must be kept in all but floor((1 - confidence) * traces) of that many worlds, each a
        fresh trace with a draw of all costs (confidence 0: on the scenario's own trace, at the costs as stated; traces 0: as
        many as it takes).
    frontier : also run every cell up to twice the plan's cost, for the Pareto front.

    Raises Infeasible naming the objective that binds, ScenarioError or UsageError.
    """
    inputs = prepare(scenario)
    space = space_of(scenario, inputs, max_replicas=max_replicas)
    asked, traces = traces, traces or (WORLDS if confidence else 0)
    if traces:
        check_traces(traces + FRESH, len(inputs.arrivals_ms))
    own = World(0, space, inputs)
    worlds = worlds_of(space, inputs, range(1, traces + 1)) if traces else [own]
    search = Search(own, worlds, may_miss(confidence, traces), objective)
    while True:
        best = search.cheapest()
        if best is None:
            raise _infeasible(search)
        tried = tried_in(search, best, traces, confidence) if traces else None
        enough = tried is None or tried.share.high >= confidence
        if enough or asked or MORE * traces > MOST_WORLDS or not fits(MORE * traces, len(inputs.arrivals_ms)):
            break
        # The plan was lucky in these worlds: there are too few of them.
        more = worlds_of(space, inputs, range(traces + 1, MORE * traces + 1))
        traces *= MORE
        search = search.among(more, may_miss(confidence, traces))
    certificate = certificate_of(search, best, max_replicas=max_replicas, traces=traces)
    left_out = space.count - sum(one.failing > search.failing or search.keeps(one) for one in search.tried)
    options = _options(search, best, inputs)
    plan = options["the plan"]
    summary = _summary(search, best, plan)
    summary |= {"cells_left_out": left_out, "cost_now_usd_per_h": _cost_now(inputs)}
    # The plan and what stands beside it may be one configuration: the first name is kept.
    notes = list(
        {
            one.text: said for name, one in reversed(options.items()) if (said := _saturating(name, one.sure))
        }.values()
    )
    notes.reverse()
    notes += [f"load: {words}"] if (words := scenario.load_in_words) else []
    tables = {"options": _options_table(options)}
    doubt, cheaper = "", ""
    if tried is not None:
        steps = ladder(search, best, confidence)
        tables["confidence"] = plan_tables.confidence_table(search, steps)
        # What it costs and in how many worlds it holds come first.
        costs = {name: summary.pop(name) for name in ("cost_usd_per_h", "per_million_tokens_usd")}
        summary = costs | _in_worlds(search, best, tried, confidence) | summary
        notes += _settled_by(search, best, steps, inputs)
        notes += [RESAMPLED] if resamples(scenario.trace) else []
    else:
        misses, allowed = plan.figures.misses, scenario.allowed_misses(plan.figures.queries)
        if allowed > 0 and misses > 0.8 * allowed:
            notes.append(
                f"the plan uses {misses} of {allowed} misses on this one trace; on fresh traffic it may use more: plan with "
                "confidence and traces"
            )
        doubt = _doubt(plan, lambda margin: margin.value_ms <= margin.limit_ms)
        cheaper = _may_keep(search, best, inputs)
        notes += [f"a cheaper configuration may keep the objectives: {cheaper}"] if cheaper else []
    summary["proved_cheapest"] = not (doubt or cheaper)
    notes += [
        f"{stage.name}: the plan has prefill and decode apart, and nothing that costs as much and does both keeps the "
        "objectives. It rests on replicas that decode never processing a prompt, and on their iterations taking what cost "
        "says; deployments that were measured beside as many replicas that do both gained nothing, so measure it first"
        for stage, choice in zip(space.stages, best.cell)
        if stage.specs[choice.variant].decode is not None
    ]
    notes += _of_fitted_costs(space, best.cell, inputs)
    if frontier:
        tables["pareto"] = _front(search, best)
        tables["hardware"] = _hardware_table(search, inputs)
        tables["rates"] = _rates_table(space.inputs(best.cell, inputs))
    if space.count == len(space.stages[0].replicas) and len(space.stages) == 1:
        notes.append(
            "only the number of replicas was chosen: list hardware, max_seqs, token_budget, balance or scheduler in the "
            f"section plan of {space.stages[0].name}"
        )
    tables["cells"] = plan_tables.cells_table(search)
    why = _why(search, best, options)
    if tried is not None:
        why = (
            f"{why}. It keeps the objectives in {traces - best.failing} of {traces} models and traffics, and holds in "
            f"{tried.kept / tried.worlds:.0%} of {tried.worlds} others"
        )
    if doubt:
        why = f"{why}. That is at the costs as fitted, and not certain: {doubt}"
    return LanguagePlan(scenario, space, best.cell, summary, why, tuple(notes), tables, certificate)


def _summary(search: Search, best: VisitedCell, plan: _Option) -> dict[str, Any]:
    space, figures = search.space, plan.figures
    cheaper = [one for one in search.tried if one.key < best.key]
    return {
        "cost_usd_per_h": plan.cost_usd_per_h,
        "per_million_tokens_usd": plan.per_million_tokens_usd,
        "attainment": figures.attainment,
        "goodput_share": figures.goodput_share,
        **{f"{name}_attainment": share for name, share in figures.shares.items()},
        "ttft_p99_ms": plan.sure.figures.ttft_p99_ms,
        "tpot_p99_ms": plan.sure.figures.tpot_p99_ms,
        "misses": figures.misses,
        "queries": figures.queries,
        "cells": space.count,
        "cheaper_cells_run": sum(not search.excluded(one) for one in cheaper),
        "cheaper_cells_bounded": sum(search.excluded(one) for one in cheaper),
    }


def _cost_now(inputs: Inputs) -> float:
    """$ per hour of what the scenario runs now."""
    own = (price * stage.replicas for price, stage in zip(inputs.prices_usd_per_h, inputs.pipeline.stages))
    return sum(own) + sum(inputs.decode_usd_per_h)


class _Option(NamedTuple):
    """Something that stands beside the plan.

    Parameters
    ----------
    text : the configuration in words.
    cost_usd_per_h : what it costs.
    inputs : it on the scenario's own traffic.
    figures : of a whole run there.
    sure : what can be said of these.
    """

    text: str
    cost_usd_per_h: float
    inputs: Inputs
    figures: Figures
    sure: Shown

    @property
    def per_million_tokens_usd(self) -> float:
        """$ for a million tokens of the answers, while the traffic comes."""
        return self.cost_usd_per_h * 1e6 / self.figures.tokens_per_h


def _option(text: str, cost_usd_per_h: float, inputs: Inputs) -> _Option:
    """Run to the end on the scenario's own traffic."""
    figures = whole(inputs)
    return _Option(text, cost_usd_per_h, inputs, figures, shown(inputs, figures))


def _options(search: Search, best: VisitedCell, inputs: Inputs) -> dict[str, _Option]:
    """The plan and what is next to it."""
    space = search.space
    cells = {"the plan": best.cell}
    for number, stage in enumerate(space.stages):
        place = stage.replicas.index(best.cell[number].replicas)
        name = f" of {stage.name}" if len(space.stages) > 1 else ""
        for words, other in (("fewer", place - 1), ("more", place + 1)):
            if 0 <= other < len(stage.replicas):
                choice = best.cell[number]._replace(replicas=stage.replicas[other])
                by = abs(choice.replicas - best.cell[number].replicas)
                label = f"{by} replica{'s' if by > 1 else ''} {words}{name}"
                cells[label] = (*best.cell[:number], choice, *best.cell[number + 1 :])
    if (second := _runner_up(search, best)) is not None:
        cells["runner-up"] = second.cell
    if (nearest := _nearest(search, best, inputs)) is not None:
        cells[CHEAPER] = nearest
    cached = PLAN_AXES.index("prefix_cache")
    plain = [cell for cell in space.cells() if not any(one.variant.settings[cached] for one in cell)]
    if best.cell not in plain:
        plain = sorted(plain, key=search.key)[:MOST_BEHIND]
        if (without := _first_kept(search, plain)) is not None:
            cells["without a prefix cache"] = without.cell
    if (both := _doing_both(space, best.cell)) is not None:
        cells["as many that do both"] = both
    beside = {
        name: _option(space.named(cell), float(space.cost(cell)), space.inputs(cell, inputs))
        for name, cell in cells.items()
    }
    now = _option(space.named(space.now()), _cost_now(inputs), inputs)
    return beside | {"as it is now": now}


def _doing_both(space: Space, cell: Cell) -> Cell | None:
    """A cell with as many replicas that do both instead of pools apart; None where it has none apart, or where the space
    has none that do both."""
    both = []
    for stage, choice in zip(space.stages, cell):
        pool = stage.specs[choice.variant].decode
        if pool is not None:
            settings = dict(zip(PLAN_AXES, choice.variant.settings)) | {"decode": None}
            choice = Choice(
                Variant(choice.variant.hardware, tuple(settings.values())), choice.replicas + pool.replicas
            )
        both.append(choice)
    known = all(choice.variant in stage.specs for stage, choice in zip(space.stages, both))
    return tuple(both) if known and tuple(both) != cell else None


def _nearest(search: Search, best: VisitedCell, inputs: Inputs) -> Cell | None:
    """Of the dearest cells that are cheaper than the plan, those that were run if any were, the one that lacks least."""
    space = search.space
    cheaper = [one for one in search.tried if one.key < best.key]
    dearest = max(((not search.excluded(one), one.key) for one in cheaper), default=None)
    cells = [one.cell for one in cheaper if (not search.excluded(one), one.key) == dearest]
    ran = [
        (_lack(whole(space.inputs(cell, inputs))), number, cell)
        for number, cell in enumerate(_spread(cells, TOGETHER))
    ]
    return min(ran)[2] if ran else None


def _lack(figures: Figures) -> tuple[float, float]:
    """How far a cell is from keeping the objectives, the less the better."""
    return sum(figures.lacking.values()), -figures.attainment


def _spread(cells: Sequence[Cell], most: int) -> Sequence[Cell]:
    """At most so many of some cells, from all over them."""
    return cells[:: -(-len(cells) // most) or 1]


def _runner_up(search: Search, best: VisitedCell) -> VisitedCell | None:
    """The next cheapest cell that keeps the objectives; None where there is none among the next few hundred."""

    def kept(tried: Sequence[VisitedCell]) -> list[VisitedCell]:
        return [one for one in tried if one.cell != best.cell and search.keeps(one)]

    if not kept(search.tried):
        behind = [cell for cell in search.space.cells() if search.key(cell) > best.key]
        _first_kept(search, sorted(behind, key=search.key)[:MOST_BEHIND])
    return min(kept(search.tried), key=lambda one: (one.key, rank(one)), default=None)


def _saturating(name: str, one: Shown) -> str:
    """The figures of an option that have no value, in words; empty if all have."""
    words = [
        f"{split_name(figure)[0]} between {format_number(low)} and {format_number(high)} ms"
        for figure, (low, high) in one.between.items()
    ]
    interval = f", only an interval ({COVERED:.0%}): {', '.join(words)}" if words else ""
    if one.figures.overloaded:
        stages = ", ".join(one.figures.overloaded)
        return (
            f"overload: {name}: more comes to {stages} than it can carry, so times to the first token depend on how long "
            f"the trace is; they have no value{interval}"
        )
    cause = f"iterations {STEP:.0%} longer or shorter change figures by half or more; they have no value"
    return f"saturating: {name}: {cause}{interval}" if words else ""


def _doubt(option: _Option, counts: Callable[[Margin], bool]) -> str:
    """Which objectives lie within the fit's intervals of what must be within them, and what would settle it; empty if none.

    Parameters
    ----------
    option : the cell, run on the scenario's own traffic.
    counts : which objectives are asked about: those that it keeps, or those that it misses.
    """
    doubtful = option.sure.doubtful
    asked = {key: margin for key, margin in option.figures.margins.items() if counts(margin)}
    # A cell that misses an objective beyond doubt is out, whatever the others may be.
    if not asked or not (asked.keys() & doubtful.keys()):
        return ""
    words = []
    for key, margin in asked.items():
        if key in doubtful:
            low, high = doubtful[key]
            words.append(
                f"the fit's {COVERED:.0%} interval of the P{100 * margin.share:.4g} of the {margin.words}, {low:.3g} to "
                f"{high:.3g} ms ({margin.value_ms:.3g} simulated), contains the objective, {margin.limit_ms:g} ms"
            )
    loads = []
    for stage in option.inputs.pipeline.stages:
        if stage.llm is not None and stage.llm.cost.fit is not None:
            load = _of_a_replica(
                option.inputs, option.figures.came_rps[stage.name] / stage.replicas, stage.replicas
            )
            loads.append(f"one replica of {stage.name} under {load}")
    return f"{'; '.join(words)}. To settle it, measure {' and '.join(loads)} ({option.text}), and fit to that, too"


def _may_keep(search: Search, best: VisitedCell, inputs: Inputs) -> str:
    """Why a cheaper cell, which was run and misses an objective, may keep it at costs that the fit does not exclude; empty
    if none may. The dearest is asked first."""
    space = search.space
    for one in reversed(search.tried):
        if one.key >= best.key or search.excluded(one) or search.keeps(one):
            continue
        placed = space.inputs(one.cell, inputs)
        if any(stage.llm is not None and stage.llm.cost.fit is not None for stage in placed.pipeline.stages):
            option = _option(space.named(one.cell), float(space.cost(one.cell)), placed)
            if doubt := _doubt(option, lambda margin: margin.value_ms > margin.limit_ms):
                return doubt
    return ""


def _options_table(options: dict[str, _Option]) -> Table:
    rows = []
    for name, one in options.items():
        row = plan_tables.row_of(one.sure.figures)
        rows.append((name, one.cost_usd_per_h, one.per_million_tokens_usd, one.figures.met, *row, one.text))
    return Table.of_rows(plan_tables.OPTIONS, rows)


def _in_worlds(search: Search, best: VisitedCell, tried: Tried, confidence: float) -> dict[str, Any]:
    """In how many worlds the plan keeps the objectives, of those that it was made for and of others."""
    share = {"fresh_kept_low_share": tried.share.low, "fresh_kept_high_share": tried.share.high}
    return {
        "fresh_kept_share": tried.kept / tried.worlds,
        "confidence": confidence,
        "traces": len(search.worlds),
        "traces_kept": len(search.worlds) - best.failing,
        "traces_allowed_to_fail": search.failing,
        "fresh_traces": tried.worlds,
        "fresh_traces_kept": tried.kept,
        **({} if resamples(search.space.scenario.trace) else share),
    }


def _settled_by(search: Search, best: VisitedCell, steps: Ladder, inputs: Inputs) -> list[str]:
    """The measurement that is worth most, in words; none where none is worth anything."""
    found = settling(search, best, steps)
    if found is None:
        return []
    loads = " and ".join(
        f"{_of_a_replica(inputs, rate_rps, choice.replicas)} to one replica of {name}"
        for (name, rate_rps), choice in zip(found.rates_rps.items(), found.cell)
    )
    return [
        f"to settle it, send {loads} for {found.minutes:.0f} minutes, as {search.space.named(found.cell)}, and fit to that, "
        f"too: with {found.holds:.0%} of what its costs may be, it keeps the objectives on the scenario's own traffic, so "
        f"the expected saving is {found.saving_usd_per_h:.3g} $/h"
    ]


def _of_a_replica(inputs: Inputs, rate_rps: float, replicas: int) -> str:
    """The load of one of some replicas, in words.

    Parameters
    ----------
    inputs : the scenario's.
    rate_rps : of the requests that come to one of them.
    """
    if isinstance(trace := inputs.scenario.trace, ClosedLoop):
        return f"{trace.clients / replicas:.3g} of these clients"
    return f"{rate_rps:.3g} requests/s of this traffic"


def _of_fitted_costs(space: Space, cell: Cell, inputs: Inputs) -> tuple[str, ...]:
    """Where costs were fitted: whether the plan is beyond what they were fitted to, or so near saturation that errors of the
    fit decide."""
    planned = space.inputs(cell, inputs)
    if all(stage.llm is None or stage.llm.cost.fit is None for stage in planned.pipeline.stages):
        return ()
    sent, _ = arrived(planned)
    sent, run = counted(sent, simulated(sent, "full"))
    return fit_report(sent, run, planned, prefixes(sent.pipeline), offered_loads(sent, run)).notes


def _front(search: Search, best: VisitedCell) -> Table:
    """The Pareto front of the cells up to twice the plan's cost."""
    space = search.space
    most = PARETO_SHARE * space.cost(best.cell)
    tried = search.look([cell for cell in space.cells() if space.cost(cell) <= most])
    number, drawn, inputs = search.worlds[0]
    kept = [
        (one.cell, figures) for one in tried if search.keeps(one) and (figures := one.figures.get(number))
    ]
    return plan_tables.pareto(drawn, kept, inputs)


def _rates_table(planned: Inputs) -> Table:
    """The plan on the same requests, sped up and slowed down."""
    rows = []
    for share in RATE_SHARES:
        other = sped_up(planned, share)
        figures = whole(other)
        known, rps = shown(other, figures).figures, figures.came_rps[SOURCE_NAME]
        rows.append((share, rps, figures.met, known.ttft_p50_ms, *plan_tables.row_of(known)))
    return Table.of_rows(plan_tables.RATES, rows)


def _hardware_table(search: Search, inputs: Inputs) -> Table:
    """The cheapest cell of each hardware that keeps the objectives, among the first few hundred of each; what it carries."""
    space = search.space
    by_hardware: dict[str, list[Cell]] = {}
    for cell in sorted(space.cells(), key=search.key):
        by_hardware.setdefault(plan_tables.hardware_of(cell), []).append(cell)
    rows = []
    for label, cells in by_hardware.items():
        first = _first_kept(search, cells[: MOST_BEHIND * len(space.stages)])
        if first is None:
            rows.append((label, *(float("nan"),) * 4, ""))
            continue
        level = search.look([cell for cell in cells if search.key(cell) == first.key])
        chosen = min((one for one in level if search.keeps(one)), key=rank).cell
        cost, busy = float(space.cost(chosen)), whole(_at_most(space.inputs(chosen, inputs)))
        most_rps, of_tokens = busy.came_rps[SOURCE_NAME], cost * 1e6 / busy.tokens_per_h
        of_goodput = busy.goodput_share * most_rps * 3600 / cost if cost else float("nan")
        rows.append((label, cost, most_rps, of_goodput, of_tokens, space.named(chosen)))
    return Table.of_rows(plan_tables.HARDWARE, rows)


def _at_most(placed: Inputs) -> Inputs:
    """The same requests, sped up as far as a cell keeps the objectives: by doubling, then by halving the step.

    More load is not always worse, so between the rate and the next that was tried objectives may be kept again. Where they
    are missed on the scenario's own trace, its own rate.
    """

    def kept(share: float) -> bool:
        return attempt(sped_up(placed, share))[0] is not None

    low, high = 1.0, 2.0
    while high <= MOST_SHARE and kept(high):
        low, high = high, 2 * high
    while high - low > PRECISION * low:
        middle = (low + high) / 2
        low, high = (middle, high) if kept(middle) else (low, middle)
    return sped_up(placed, low)


def _first_kept(search: Search, cells: Sequence[Cell]) -> VisitedCell | None:
    """The first of some cells, in ascending cost, that keeps the objectives."""
    together = TOGETHER if len(search.worlds) == 1 else 1
    for begin in range(0, len(cells), together):
        for tried in search.look(cells[begin : begin + together]):
            if search.keeps(tried):
                return tried
    return None


def _why(search: Search, best: VisitedCell, options: dict[str, _Option]) -> str:
    space = search.space
    cheaper = [one for one in search.tried if one.key < best.key]
    run = sum(not search.excluded(one) for one in cheaper)
    here = f"{space.named(best.cell)} costs {float(space.cost(best.cell)):g} $/h"
    if not cheaper:
        return f"{here}, and no cell is cheaper"
    ran = "was run and misses" if run == 1 else "were run and miss"
    parts = [f"{run:,} {ran} an objective"] if run else []
    parts += [f"{len(cheaper) - run:,} cannot do the work in time"] if len(cheaper) > run else []
    why = f"{here}; of the {len(cheaper):,} cheaper cells {' and '.join(parts)}"
    if len(cheaper) == 1:
        why = f"{here}; the one cheaper cell {parts[0].removeprefix('1 ')}"
    nearest = options[CHEAPER]
    lacks = (
        "keeps the objectives on the scenario's own trace at costs as stated, not in enough of the models and traffics"
        if nearest.figures.met
        else f"falls short: {_lacks(nearest.figures)}"
    )
    return f"{why}; at the next lower cost {nearest.text} comes nearest, but {lacks}"


def _lacks(figures: Figures) -> str:
    """What a cell that misses lacks, in words: the objective that binds, the share that keeps it, the share required."""
    margin = figures.margins[figures.binds]
    return (
        f"{100 * figures.shares[figures.binds]:.4g} % of the requests keep the {margin.words} within {margin.limit_ms:g} "
        f"ms, {100 * margin.share:.6g} % are required"
    )


def _infeasible(search: Search) -> Infeasible:
    """Which objective binds, and how far off the best is: among some cells with most replicas."""
    _, space, inputs = search.worlds[0]
    most = tuple(max(stage.replicas) for stage in space.stages)
    largest = [cell for cell in space.cells() if tuple(choice.replicas for choice in cell) == most]
    ran = {cell: whole(space.inputs(cell, inputs)) for cell in _spread(largest, MOST_TRIED)}
    cell = min(ran, key=lambda one: _lack(ran[one]))
    (tried,) = search.look([cell])
    drawn = [whole(search.placed(tried, world, world.inputs)) for world in search.worlds]
    figures, kept = max(drawn, key=_lack), sum(one.met for one in drawn)
    worst = (
        f"it keeps them in {kept} of {len(drawn)} models and traffics, {len(drawn) - search.failing} are required; in the "
        "worst of them "
    )
    bounded = sum(search.excluded(one) for one in search.tried)
    none = f"none of {space.count:,} cells keeps the objectives ({bounded:,} cannot do the work in time)"
    nearest = f"the nearest of {len(ran):,} with most replicas, "
    if space.count == 1:
        none, nearest = "the one cell that may be chosen does not keep the objectives", ""
    what = f"{none}; {nearest}{space.named(cell)}: {worst if len(drawn) > 1 else ''}{_lacks(figures)}"
    return Infeasible(Problem(f"objective {figures.binds}", what))
