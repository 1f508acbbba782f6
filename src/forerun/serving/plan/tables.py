"""What a plan records, as tables."""

from __future__ import annotations

from typing import Final

from forerun.core.result.tables import Column, Table, TableSchema
from forerun.serving.plan.exact import Found, VisitedCell
from forerun.serving.plan.space import Configuration, Space

STAGES: Final = TableSchema(
    "stages",
    (
        Column("stage", "", "the stage"),
        Column("hardware", "", "hardware of the plan"),
        Column("max_batch", "queries", "largest batch of the plan"),
        Column("replicas", "", "replicas of the plan"),
        Column("cost_usd_per_h", "$/h", "price times replicas"),
        Column("share", "", "share of the plan's cost"),
        Column("load", "", "queries offered over what the replicas carry at their largest batch"),
        Column("now", "", "what the scenario runs: hardware, largest batch, replicas"),
    ),
    "the plan, a stage a row",
)

METHODS: Final = TableSchema(
    "methods",
    (
        Column("method", "", "how the configuration was chosen"),
        Column("cost_usd_per_h", "$/h", "its cost; nan where the method has no answer"),
        Column("above_optimum_share", "", "cost above the optimum, relative to it"),
        Column("misses", "queries", "queries above the objective; nan where the method has no answer"),
        Column("feasible", "", "whether the objective is met"),
        Column("evaluated", "", "configurations that the method looked at; stages run for the exact search"),
        Column("configuration", "", "replicas x hardware and largest batch, by stage"),
    ),
    "optimisers side by side",
)

FRONTIER: Final = TableSchema(
    "frontier",
    (
        Column("varied", "", "what was varied: the objective or the load"),
        Column("slo_ms", "ms", "objective"),
        Column("rate_rps", "1/s", "mean rate of the trace"),
        Column("cost_usd_per_h", "$/h", "cost of the cheapest plan; nan where there is none"),
        Column("configuration", "", "that plan"),
    ),
    "the cheapest plan at other objectives and loads",
)

CELLS: Final = TableSchema(
    "cells",
    (
        Column("cost_usd_per_h", "$/h", "cost of the cell"),
        Column("cell", "", "replicas x hardware, by stage"),
        Column(
            "hopeless_stages", "", "stages that are too slow together whatever the batches; empty: feasible"
        ),
    ),
    "hardware and replicas in the order they were looked at",
)

RATES: Final = TableSchema(
    "rates",
    (
        Column("rate_rps", "1/s", "mean rate of the sped-up trace"),
        Column(
            "cost_usd_per_h", "$/h", "cost of the cheapest plan within the budget; nan where there is none"
        ),
    ),
    "rates that were tried",
)

TRACES: Final = TableSchema(
    "traces",
    (
        Column("trace", "", "number of the fresh trace"),
        Column("misses", "queries", "queries above the objective"),
        Column("kept", "", "whether the attainment is met"),
    ),
    "the traces that the plan was made for",
)


def stages_table(space: Space, plan: Configuration, now: Configuration) -> Table:
    """The plan by stage, beside what the scenario runs now.

    Parameters
    ----------
    space : prices, and what a replica carries.
    plan : the configuration that was chosen.
    now : the scenario's own, which may lie outside the space.
    """
    total, rows = space.cost(plan), []
    for s, choice in enumerate(plan):
        offer = space.offer(s, choice.hardware)
        cost = offer.price * choice.replicas
        load = space.traffic.rate_rps * space.shares[s] / (offer.qps[choice.max_batch] * choice.replicas)
        here = f"{now[s].replicas} x {now[s].hardware}, batch {now[s].max_batch}"
        rows.append((space.names[s], *choice, cost, cost / total if total else 0.0, load, here))
    return Table.of_rows(STAGES, rows)


def cells_table(space: Space, exact: Found) -> Table:
    """The choices of hardware and replicas that an exact search looked at.

    Parameters
    ----------
    space : names the stages.
    exact : the search, with its cells in the order that they were visited.
    """

    def text(tried: VisitedCell) -> str:
        placed = zip(space.names, tried.cell)
        return "; ".join(f"{name}: {count} x {hardware}" for name, (hardware, count) in placed)

    return Table.of_records(
        CELLS,
        exact.cells,
        cost_usd_per_h="cost",
        cell=text,
        hopeless_stages=lambda tried: ", ".join(tried.hopeless),
    )


def named(space: Space, configuration: Configuration | None) -> str:
    """A configuration in words: `ResNet: 2 x TXP, batch 16; KSVM: 1 x cpu, batch 8`.

    Parameters
    ----------
    space : names the stages.
    configuration : by stage (None: empty).
    """
    return "; ".join(
        f"{name}: {choice.replicas} x {choice.hardware}, batch {choice.max_batch}"
        for name, choice in zip(space.names, configuration or ())
    )
