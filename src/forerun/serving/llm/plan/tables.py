"""What a plan for language models records, as tables."""

from __future__ import annotations

from typing import Final

from forerun.core.result.stats import proportion_interval
from forerun.core.result.tables import Column, Table, TableSchema
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.llm.plan.confidence import Ladder
from forerun.serving.llm.plan.runs import Figures, shown
from forerun.serving.llm.plan.search import Search, VisitedCell
from forerun.serving.llm.plan.space import Cell, Space

_CONFIGURATION: Final = Column("configuration", "", "replicas x hardware and what was chosen, by stage")
_FIGURES: Final = (
    Column("attainment", "", "share of queries that meet every limit"),
    Column("ttft_p99_ms", "ms", "99th percentile of the time to first token"),
    Column("tpot_p99_ms", "ms", "99th percentile of the mean time between tokens"),
)

OPTIONS: Final = TableSchema(
    "options",
    (
        Column("option", "", "the plan, what the scenario runs now, and the plan's neighbours"),
        Column("cost_usd_per_h", "$/h", "price times replicas, all stages"),
        Column("per_million_tokens_usd", "$", "the same over the tokens of all answers, in millions"),
        Column("met", "", "whether all objectives are kept"),
        *_FIGURES,
        _CONFIGURATION,
    ),
    "the plan beside what is next to it, on the scenario's own traffic",
)

PARETO: Final = TableSchema(
    "pareto",
    (Column("cost_usd_per_h", "$/h", "price times replicas, all stages"), *_FIGURES, _CONFIGURATION),
    "cells that keep the objectives, up to twice the plan's cost, than which no other is as cheap and better in anything",
)

CELLS: Final = TableSchema(
    "cells",
    (
        Column("cost_usd_per_h", "$/h", "price times replicas, all stages"),
        Column("verdict", "", "met, missed, bounded: cannot do it, or left out: as dear, worse in one world"),
        Column("reason", "", "of a bounded cell"),
        Column("hardware", "", "what the stages run on"),
        *_FIGURES,
        _CONFIGURATION,
    ),
    "the cells that were looked at, cheapest first; figures where the objectives are kept, with a confidence in the first "
    "model and traffic",
)

RATES: Final = TableSchema(
    "rates",
    (
        Column("share", "", "of the scenario's own rate, or of its clients"),
        Column("rate_rps", "1/s", "mean rate at which queries come"),
        Column("met", "", "whether all objectives are kept"),
        Column("ttft_p50_ms", "ms", "median time to first token"),
        *_FIGURES,
    ),
    "the plan at other rates",
)

HARDWARE: Final = TableSchema(
    "hardware",
    (
        Column("hardware", "", "what all stages run on; several where stages differ"),
        Column("cost_usd_per_h", "$/h", "of the cheapest cell that keeps the objectives; nan: there is none"),
        Column("most_rps", "1/s", "rate up to which it keeps them: these requests sped up, or more clients"),
        Column("goodput_per_dollar", "1/$", "requests that meet every limit for a dollar, at that rate"),
        Column("per_million_tokens_usd", "$", "cost of a million tokens of the answers, at that rate"),
        _CONFIGURATION,
    ),
    "the cheapest cell of each hardware",
)

CONFIDENCES: Final = TableSchema(
    "confidence",
    (
        Column("confidence", "", "share of the models and traffics that must keep the objectives"),
        Column("kept", "", "share that does"),
        Column("kept_low", "", "and where it lies for all models and traffics: at least"),
        Column("kept_high", "", "and at most"),
        Column("cost_usd_per_h", "$/h", "cost of a cell that keeps them in as many; nan: none does"),
        Column(
            "cheapest", "", "none that is cheaper does; else one may, and a plan with that confidence says it"
        ),
        Column("more_usd_per_h", "$/h", "what it costs more than at the confidence above"),
        _CONFIGURATION,
    ),
    "what more confidence costs",
)


def row_of(figures: Figures | None) -> tuple[float, float, float]:
    """The columns that say how a cell does; nan where it was not run to the end, and near saturation."""
    if figures is None:
        return (float("nan"),) * 3
    return figures.goodput_share, figures.ttft_p99_ms, figures.tpot_p99_ms


def hardware_of(cell: Cell) -> str:
    """What the stages run on, each once."""
    return ", ".join(dict.fromkeys(choice.variant.hardware for choice in cell))


def reason(space: Space, tried: VisitedCell) -> str:
    """Why a bound excludes a cell, in words."""
    place, bound = next(iter(tried.bounds.values()))
    name = space.stages[place].name
    if bound.overworks(tried.cell[place].replicas):
        tokens = "all tokens" if bound.whole else "first tokens"
        return f"{tokens} in time need at least {bound.needed:.3g} replicas of {name}"
    late = "request is" if bound.late == 1 else "requests are"
    return f"{bound.late} {late} late at {name} even alone"


def _sure(space: Space, cell: Cell, figures: Figures, inputs: Inputs) -> Figures:
    """Figures of a cell without those near saturation."""
    return shown(space.inputs(cell, inputs), figures).figures


def cells_table(search: Search) -> Table:
    """The cells that were looked at, cheapest first."""
    rows, space = [], search.space
    for one in search.tried:
        verdict = "met" if search.keeps(one) else "missed" if one.failing > search.failing else "left out"
        verdict = "bounded" if search.excluded(one) else verdict
        kept = (
            _sure(world.space, one.cell, figures, world.inputs)
            for world in search.worlds
            if (figures := one.figures.get(world.number))
        )
        sure = next(kept, None) if verdict == "met" else None
        why, hardware = reason(space, one) if verdict == "bounded" else "", hardware_of(one.cell)
        cost = float(space.cost(one.cell))
        rows.append((cost, verdict, why, hardware, *row_of(sure), space.named(one.cell)))
    return Table.of_rows(CELLS, rows)


def confidence_table(search: Search, steps: Ladder) -> Table:
    """What more confidence costs."""
    rows: list[tuple[object, ...]] = []
    before = float("nan")
    for share, (best, cheapest) in steps.items():
        cost, kept, name = float("nan"), (float("nan"),) * 3, ""
        if best is not None:
            cost, name = float(search.space.cost(best.cell)), search.space.named(best.cell)
            count = len(search.worlds)
            interval = proportion_interval(count - best.failing, count)
            kept = (1 - best.failing / count, interval.low, interval.high)
        rows.append((share, *kept, cost, cheapest, cost - before, name))
        before = cost
    return Table.of_rows(CONFIDENCES, rows)


def pareto(space: Space, kept: list[tuple[Cell, Figures]], inputs: Inputs) -> Table:
    """The cells than which no other is as cheap and as good in everything, and better in something; cheapest first.

    Parameters
    ----------
    kept : cells that keep the objectives, with their figures.
    inputs : the scenario's, on the traffic that these are of.
    """

    def worth(one: tuple[Cell, Figures]) -> tuple[float, ...]:
        """What is less the better."""
        goodput, ttft_ms, tpot_ms = row_of(one[1])
        return float(space.cost(one[0])), -goodput, ttft_ms, tpot_ms

    front: list[tuple[float, ...]] = []
    rows = []
    for cell, figures in sorted(kept, key=worth):
        own = worth((cell, figures))
        if not any(all(a <= b for a, b in zip(other, own)) for other in front):
            front.append(own)
            rows.append((own[0], *row_of(_sure(space, cell, figures, inputs)), space.named(cell)))
    return Table.of_rows(PARETO, rows)
