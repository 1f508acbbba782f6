"""The plan: the chosen candidate, the runner-up, the Pareto front, and a certificate that can be checked again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forerun.core.errors import CheckFailed
from forerun.core.result.plan import ShownPlan
from forerun.core.result.tables import Column, Table, TableSchema
from forerun.spot.engine.estimates import Estimate
from forerun.spot.plan.checkpoint_intervals import CheckpointInterval, interval_table
from forerun.spot.plan.race import Runner, meet, recovery_words
from forerun.spot.scenario import Scenario

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
        Column("finish_h", "h", "time by which the required share of trials is done"),
        Column("samples_per_s", "1/s", "mean throughput"),
        Column("done_share", "share", "share of trials done by the deadline, or at all"),
        Column("pareto", "", "whether no other finalist is both cheaper and sooner"),
        Column("verdict", "", "chosen, runner-up, finalist, dropped or infeasible"),
    ),
    "one row a candidate, the chosen one first",
)


FRONT = TableSchema("front", CANDIDATES.columns, "candidates than which no other is both cheaper and sooner")


RECOVERIES = TableSchema(
    "recoveries",
    (
        Column("recovery", "", "recovery policy"),
        Column("name", "", "its best candidate"),
        Column("cost_usd", "usd", "mean cost"),
        Column("finish_h", "h", "time by which the required share of trials is done"),
        Column("samples_per_s", "1/s", "mean throughput"),
        Column("done_share", "share", "share of trials done by the deadline, or at all"),
        Column(
            "behind", "", "mean difference of the objective to the chosen candidate, paired; above 0 is worse"
        ),
        Column("behind_half95", "", "half-width of its 95 % interval"),
        Column("verdict", "", "chosen, behind, not distinguishable or infeasible"),
    ),
    "one row a recovery policy, with its best candidate",
)

UNITS = {"cost": "usd", "time": "s", "throughput": "samples/s"}
"""Of the objectives."""


@dataclass(frozen=True, slots=True)
class RecoveryChoice:
    """The best candidate of a recovery policy.

    Parameters
    ----------
    best : the candidate, with all trials.
    behind : by how much it is worse than the chosen one in the objective, paired.
    is_chosen : whether it is the chosen one.
    """

    best: Runner
    behind: Estimate
    is_chosen: bool

    @property
    def recovery(self) -> str:
        """The policy with its parameters."""
        return recovery_words(self.best.candidate.recovery)

    @property
    def verdict(self) -> str:
        """How it compares, in a word or two."""
        if self.is_chosen:
            return "chosen"
        if not self.best.is_feasible:
            return "infeasible"
        return "behind" if abs(self.behind.mean) > self.behind.half95 else "not distinguishable"


def recoveries_note(rows: Sequence[RecoveryChoice], objective: str) -> str:
    """Which recovery policy wins, and by how much. rows: the chosen one first."""
    first, *others = rows
    said = []
    for row in others:
        gap = f"{row.behind.mean:.4g} ± {row.behind.half95:.2g} {UNITS[objective]}"
        said.append(
            f"{row.recovery} does not keep the bounds"
            if row.verdict == "infeasible"
            else f"{row.recovery} is behind by {gap}"
            if row.verdict == "behind"
            else f"{row.recovery} cannot be distinguished from it (difference {gap})"
        )
    return f"recovery: {first.recovery} is chosen; with its best candidate {', '.join(said)}"


@dataclass(frozen=True, repr=False, slots=True)
class SpotPlan(ShownPlan):
    """What to run with, and why.

    Parameters
    ----------
    scenario, objective : what was planned.
    chosen : the best.
    runner_up : the next, if another is feasible.
    difference : by how much it is behind, paired.
    runners : all candidates.
    front : the feasible ones than which no other is both cheaper and sooner.
    notes : what a reader must know.
    intervals : other times between checkpoints for the chosen candidate.
    recoveries : the best candidate of each recovery policy, the chosen one first (default: there is one policy).
    """

    scenario: Scenario
    objective: str
    chosen: Runner
    runner_up: Runner | None
    difference: Estimate | None
    runners: tuple[Runner, ...]
    front: tuple[Runner, ...]
    notes: tuple[str, ...]
    intervals: tuple[CheckpointInterval, ...] = ()
    recoveries: tuple[RecoveryChoice, ...] = ()

    @property
    def significant(self) -> bool:
        """Whether the interval of the paired difference to the runner-up excludes 0."""
        return self.difference is not None and abs(self.difference.mean) > self.difference.half95

    @property
    def why(self) -> str:
        """The choice in a sentence."""
        chosen, prices = self.chosen, self.scenario.prices
        text = f"{chosen.candidate.name}: {chosen.rate:.4g} samples/s"
        if prices.known or prices.on_demand_usd_per_h:
            text += f", {chosen.mean_usd:.4g} usd"
        if chosen.finish_h is not None:
            certainty = self.scenario.goal.certainty
            text += f", done by {chosen.finish_h:.2f} h with probability {certainty:g}"
        if self.runner_up is None or self.difference is None:
            return f"{text}; nothing else is feasible"
        gap = f"{abs(self.difference.mean):.4g} ± {self.difference.half95:.2g} {UNITS[self.objective]}"
        verdict = (
            f"ahead by {gap}" if self.significant else f"cannot be distinguished from it (difference {gap})"
        )
        return f"{text}; next is {self.runner_up.candidate.name}, {verdict}"

    @property
    def summary(self) -> dict[str, Any]:
        """Flat figures of the choice."""
        chosen, rule = self.chosen, self.chosen.candidate.job.snapshots
        return {
            "objective": self.objective,
            "depth": chosen.candidate.depth,
            "snapshots": chosen.candidate.snapshots,
            "every_steps": rule.steps if rule.rule == "every_steps" else 0,
            "growth": chosen.candidate.growth,
            "spares": chosen.candidate.spares,
            "on_demand_nodes": chosen.candidate.on_demand_nodes,
            "cost_usd": chosen.mean_usd,
            "finish_h": chosen.finish_h,
            "samples_per_s": chosen.rate,
            "done_share": chosen.done_share,
            "runner_up": self.runner_up.candidate.name if self.runner_up else None,
            "difference": self.difference.mean if self.difference else None,
            "difference_half95": self.difference.half95 if self.difference else None,
            "significant": self.significant,
            "candidates": len(self.runners),
            "trials": chosen.count,
            **({"recovery": recovery_words(chosen.candidate.recovery)} if self.recoveries else {}),
        }

    @property
    def tables(self) -> dict[str, Table]:
        """All candidates, the Pareto front of them, and other times between checkpoints for the chosen one."""
        ordered = sorted(
            self.runners, key=lambda r: (r is not self.chosen, bool(r.out), r.score(self.objective))
        )
        tables = {
            name: self._rows(self._with_recovery(schema), runners)
            for name, schema, runners in (("candidates", CANDIDATES, ordered), ("front", FRONT, self.front))
        }
        if self.intervals:
            tables["intervals"] = interval_table(self.intervals)
        if self.recoveries:
            tables["recoveries"] = Table.of_records(
                RECOVERIES,
                self.recoveries,
                name="best.candidate.name",
                cost_usd="best.mean_usd",
                finish_h=lambda row: math.nan if row.best.finish_h is None else row.best.finish_h,
                samples_per_s="best.rate",
                done_share="best.done_share",
                behind="behind.mean",
                behind_half95="behind.half95",
            )
        return tables

    def _with_recovery(self, schema: TableSchema) -> TableSchema:
        """The columns of candidates, with their recovery policies where there are several."""
        if not self.recoveries:
            return schema
        return replace(schema, columns=(Column("recovery", "", "recovery policy"), *schema.columns))

    def _rows(self, schema: TableSchema, runners: Sequence[Runner]) -> Table:
        """A table of candidates, in their order.

        Parameters
        ----------
        schema : the columns of `CANDIDATES`, or those with the recovery policy.
        runners : the candidates.
        """
        costs = [Estimate.of(runner.cost_usd) for runner in runners]
        front = {id(runner) for runner in self.front}
        choices = ("name", "depth", "snapshots", "growth", "spares", "on_demand_nodes")
        return Table.of_records(
            schema,
            runners,
            **{name: f"candidate.{name}" for name in choices},
            **(
                {"recovery": lambda runner: recovery_words(runner.candidate.recovery)}
                if self.recoveries
                else {}
            ),
            trials="count",
            cost_usd=[cost.mean for cost in costs],
            cost_half95_usd=[cost.half95 for cost in costs],
            finish_h=lambda runner: math.nan if runner.finish_h is None else runner.finish_h,
            samples_per_s="rate",
            pareto=lambda runner: id(runner) in front,
            verdict=self._verdict,
        )

    def _verdict(self, runner: Runner) -> str:
        """What became of a candidate, in a word."""
        if runner is self.chosen:
            return "chosen"
        if runner is self.runner_up:
            return "runner-up"
        if runner.out == "worse":
            return "dropped"
        return "finalist" if not runner.out and runner.is_feasible else "infeasible"

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
            **({"recoveries": tables["recoveries"].records()} if "recoveries" in tables else {}),
        }

    def check(self) -> SpotPlan:
        """Compute the certificate again: the chosen one's trials, its feasibility, and that no finalist is better.

        Raises CheckFailed.
        """
        chosen = self.chosen
        again = meet(chosen.candidate, self.scenario, chosen.count, 0)
        same = (
            np.array_equal(getattr(again, name), getattr(chosen, name)) for name in ("cost_usd", "finish_s")
        )
        if not all(same):
            raise CheckFailed.at("plan", "the chosen candidate's trials differ when simulated again")
        if not again.is_feasible:
            raise CheckFailed.at("plan", "the chosen candidate does not keep the bounds")
        score = again.score(self.objective)
        for runner in self.runners:
            if not runner.out and runner.is_feasible and runner.score(self.objective) < score:
                raise CheckFailed.at("plan", f"{runner.candidate.name} is better than the chosen candidate")
        return self
