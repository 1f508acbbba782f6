"""The plan: the chosen candidate, the runner-up, the Pareto front, and a certificate that can be checked again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from forerun.domains.spot.engine.estimates import Estimate
from forerun.domains.spot.plan.checkpoint_intervals import (
    CheckpointInterval,
    interval_table,
)
from forerun.domains.spot.plan.race import (
    Runner,
    done_share,
    finish_h,
    is_feasible,
    meet,
    values_of,
)
from forerun.domains.spot.scenario import Scenario
from forerun.errors import CheckFailed
from forerun.result.plan import ShownPlan
from forerun.result.tables import Column, Table, TableSchema

CANDIDATES = TableSchema(
    "candidates",
    (
        Column("name", "", "shape, checkpoints, growth rule, spares, on-demand nodes"),
        Column("depth", "nodes", "nodes in a pipeline"),
        Column("snapshots", "", "back to back, or steps between checkpoints"),
        Column("growth", "", "growth rule"),
        Column("spares", "nodes", "spot nodes beyond the fleet's own"),
        Column("on_demand_nodes", "nodes", "nodes that never vanish"),
        Column("trials", "", "trials it stayed in the race for"),
        Column("cost_usd", "usd", "mean cost"),
        Column("cost_half95_usd", "usd", "half-width of its 95 % interval"),
        Column("finish_h", "h", "time by which the wanted share of trials is done"),
        Column("samples_per_s", "1/s", "mean throughput"),
        Column("done_share", "share", "share of trials done by the deadline, or at all"),
        Column("pareto", "", "whether no other finalist is both cheaper and sooner"),
        Column("verdict", "", "chosen, runner-up, finalist, dropped or infeasible"),
    ),
    "one row a candidate, the chosen one first",
)


FRONT = TableSchema("front", CANDIDATES.columns, "candidates than which no other is both cheaper and sooner")


@dataclass(frozen=True, repr=False, slots=True)
class SpotPlan(ShownPlan):
    """What to run with, and why."""

    scenario: Scenario
    objective: str
    chosen: Runner
    runner_up: Runner | None
    difference: Estimate | None
    runners: tuple[Runner, ...]
    front: tuple[Runner, ...]
    notes: tuple[str, ...]
    intervals: tuple[CheckpointInterval, ...] = ()
    """Other times between checkpoints for the chosen candidate."""

    @property
    def told_apart(self) -> bool:
        """Whether the interval of the paired difference to the runner-up excludes 0."""
        return self.difference is not None and abs(self.difference.mean) > self.difference.half95

    @property
    def why(self) -> str:
        """The choice in a sentence."""
        text = f"{self.chosen.candidate.name}: {_said(self.chosen, self.scenario)}"
        if self.runner_up is None or self.difference is None:
            return f"{text}; nothing else is feasible"
        unit = {"cost": "usd", "time": "s", "throughput": "samples/s"}[self.objective]
        gap = f"{abs(self.difference.mean):.4g} ± {self.difference.half95:.2g} {unit}"
        verdict = (
            f"ahead by {gap}" if self.told_apart else f"cannot be distinguished from it (difference {gap})"
        )
        return f"{text}; next is {self.runner_up.candidate.name}, {verdict}"

    @property
    def summary(self) -> dict[str, Any]:
        """Flat figures of the choice."""
        candidate, rule = self.chosen.candidate, self.chosen.candidate.job.snapshots
        return {
            "objective": self.objective,
            "depth": candidate.job.depth,
            "snapshots": candidate.checkpoints,
            "every_steps": rule.steps if rule.rule == "every_steps" else 0,
            "growth": candidate.growth,
            "spares": candidate.spares,
            "on_demand_nodes": candidate.on_demand_nodes,
            "cost_usd": float(self.chosen.cost_usd.mean()),
            "finish_h": finish_h(self.chosen, self.scenario),
            "samples_per_s": float(self.chosen.samples_per_s.mean()),
            "done_share": done_share(self.chosen, self.scenario),
            "runner_up": self.runner_up.candidate.name if self.runner_up else None,
            "difference": self.difference.mean if self.difference else None,
            "difference_half95": self.difference.half95 if self.difference else None,
            "told_apart": self.told_apart,
            "candidates": len(self.runners),
            "trials": self.chosen.count,
        }

    @property
    def tables(self) -> dict[str, Table]:
        """All candidates, the Pareto front of them, and other times between checkpoints for the chosen one."""
        front = {id(runner) for runner in self.front}
        order = sorted(self.runners, key=lambda r: (r is not self.chosen, bool(r.out), score(r, self)))
        rows = [_row(runner, self, id(runner) in front) for runner in order]
        tables = {
            "candidates": Table.of_rows(CANDIDATES, rows),
            "front": Table.of_rows(FRONT, [_row(runner, self, True) for runner in self.front]),
        }
        return tables | ({"intervals": interval_table(self.intervals)} if self.intervals else {})

    def data(self) -> dict[str, Any]:
        """As plain data."""
        tables = self.tables
        return {
            "summary": self.summary,
            "why": self.why,
            "notes": list(self.notes),
            "front": [runner.candidate.name for runner in self.front],
            "candidates": tables["candidates"].records(),
            "intervals": tables["intervals"].records() if "intervals" in tables else [],
        }

    def check(self) -> SpotPlan:
        """Compute the certificate again: the chosen one's trials, its feasibility, and that no finalist is
        better.

        Raises CheckFailed.
        """
        again = meet(self.chosen.candidate, self.scenario, self.chosen.count, 0)
        if not np.array_equal(again.cost_usd, self.chosen.cost_usd) or not np.array_equal(
            again.finish_s, self.chosen.finish_s
        ):
            raise CheckFailed.at("plan", "the chosen candidate's trials differ when simulated again")
        if not is_feasible(again, self.scenario):
            raise CheckFailed.at("plan", "the chosen candidate does not keep the bounds")
        for runner in self.runners:
            if (
                not runner.out
                and is_feasible(runner, self.scenario)
                and score(runner, self) < score(again, self)
            ):
                raise CheckFailed.at("plan", f"{runner.candidate.name} is better than the chosen candidate")
        return self


def score(runner: Runner, plan: SpotPlan) -> float:
    return float(values_of(runner, plan.objective, plan.scenario).mean())


def _said(runner: Runner, scenario: Scenario) -> str:
    parts = [f"{float(runner.samples_per_s.mean()):.4g} samples/s"]
    if scenario.prices.known or scenario.prices.on_demand_usd_per_h:
        parts.append(f"{float(runner.cost_usd.mean()):.4g} usd")
    hours = finish_h(runner, scenario)
    if hours is not None:
        parts.append(f"done by {hours:.2f} h with probability {scenario.goal.certainty:g}")
    return ", ".join(parts)


def _row(runner: Runner, plan: SpotPlan, pareto: bool) -> tuple[Any, ...]:
    candidate, cost = runner.candidate, Estimate.of(runner.cost_usd)
    hours = finish_h(runner, plan.scenario)
    verdict = {"worse": "dropped", "infeasible": "infeasible"}.get(runner.out, "finalist")
    if verdict == "finalist" and not is_feasible(runner, plan.scenario):
        verdict = "infeasible"
    verdict = "chosen" if runner is plan.chosen else "runner-up" if runner is plan.runner_up else verdict
    figures: Mapping[str, Any] = {
        "name": candidate.name,
        "depth": candidate.job.depth,
        "snapshots": candidate.checkpoints,
        "growth": candidate.growth,
        "spares": candidate.spares,
        "on_demand_nodes": candidate.on_demand_nodes,
        "trials": runner.count,
        "cost_usd": cost.mean,
        "cost_half95_usd": cost.half95,
        "finish_h": math.nan if hours is None else hours,
        "samples_per_s": float(runner.samples_per_s.mean()),
        "done_share": done_share(runner, plan.scenario),
        "pareto": pareto,
        "verdict": verdict,
    }
    return tuple(figures[column.name] for column in CANDIDATES.columns)
