"""How often to save, and what another interval costs: by the closed form, and simulated on the same fleets.

The closed form knows one world size and instant repair; the simulation has the fleet as it is, with idle time, growth
and other sizes.  Young's and Daly's intervals are those for the stall alone, as a write beside training does not move
the optimum (`docs/spot/reference.md`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from forerun.core.result.tables import Column, Table, TableSchema
from forerun.spot.engine import closed_forms, trials
from forerun.spot.engine.estimates import Estimate, ratio_estimate
from forerun.spot.engine.job import Checkpoints, whole_steps
from forerun.spot.engine.trials import Trials
from forerun.spot.reserved.cluster import ClusterTrials
from forerun.spot.reserved.scenario import Cluster
from forerun.spot.scenario import Scenario
from forerun.spot.scenario.job import JobSpec
from forerun.spot.scenario.processes import PerNode, Poisson

FIXED_STEPS: Final = 10
"""The fixed number of steps that is compared with: Varuna's in the Oobleck artefact."""
MOST_TRIALS: Final = 1000
_SPREAD: Final = (0.25, 0.5, 0.7, 1.4, 2.0, 4.0)
"""Multiples of the closed form's best interval that are tried beside it."""

INTERVALS = TableSchema(
    "intervals",
    (
        Column("choice", "", "whose interval it is; empty for others around the best"),
        Column("steps", "", "steps between checkpoints"),
        Column("interval_s", "s", "their time at the fleet's first size"),
        Column("closed_form", "share", "useful share by the closed form: that size, instant repair"),
        Column("useful", "share", "useful share, simulated"),
        Column("useful_half95", "share", "half-width of its 95 % interval"),
        Column("costs", "share", "throughput given up against the best row, paired"),
        Column("costs_half95", "share", "half-width of its 95 % interval"),
    ),
    "what the time between checkpoints does, by simulation on the same fleets",
)


@dataclass(frozen=True, slots=True)
class Hits:
    """What a fleet does to a job of one size, as the closed forms take it.

    Parameters
    ----------
    rate_per_s : hits a second on the pipelines of that size.
    size : nodes in pipelines.
    step_s : seconds of a step on them.
    stall_s : seconds that a checkpoint blocks training.
    write_s : seconds of a write beside training (0 for synchronous writes, whose time is in `stall_s`).
    reconfig_s : seconds of a pause.
    """

    rate_per_s: float
    size: int
    step_s: float
    stall_s: float
    write_s: float
    reconfig_s: float

    @property
    def best(self) -> closed_forms.BestInterval:
        """The closed form's answer."""
        return closed_forms.best_interval(
            self.rate_per_s, self.step_s, self.stall_s, self.write_s, self.reconfig_s
        )

    def useful(self, steps: int) -> float:
        """The closed form's useful share with a checkpoint every `steps` steps; NaN where a write would take longer."""
        if steps * self.step_s < self.write_s - 1e-9:
            return math.nan
        return closed_forms.useful_every_steps(
            self.rate_per_s, self.step_s, steps, self.stall_s, self.write_s, self.reconfig_s
        )

    @property
    def optimum(self) -> bool:
        """Whether there is an interval that is best: neither a fleet without hits nor checkpoints that are free."""
        return self.rate_per_s > 0 and self.stall_s > 0


def hits(scenario: Scenario, job: JobSpec) -> Hits:
    """The hits on the pipelines that the fleet's first nodes make.

    Parameters
    ----------
    scenario : with a Poisson fleet, one of single nodes, or a reserved cluster, where a hang counts as a longer pause.
    job : its shape, its times and its supply of data.
    """
    process = scenario.fleet
    if isinstance(process, Cluster):
        size = process.job_nodes
        step_s = job.supplied_step_s(job.read_supply())[size]
        waited = math.fsum(process.per_node_s(one) * size * one.detection_s for one in process.failures)
        rate = process.job_failures_per_s
        pause_s = job.pause_s + (waited / rate if rate else 0.0)
        return Hits(rate, size, step_s, *job.snapshots.times(job.stall_s, job.write_s), pause_s)
    assert isinstance(process, Poisson | PerNode)
    pipelines = max(job.min_pipelines, min(job.max_pipelines, process.start // job.depth))
    size = pipelines * job.depth
    if isinstance(process, PerNode):
        rate = process.removal_per_node_h / 3600 * size
    else:
        rates = trials.hit_rates(process, process.removal_sizes())
        rate = float(rates[max(process.start, 1), min(size, process.start)])
    step_s = job.supplied_step_s(job.read_supply())[size]
    return Hits(rate, size, step_s, *job.snapshots.times(job.stall_s, job.write_s), job.pause_s)


def suggested_steps(scenario: Scenario, job: JobSpec) -> tuple[int, ...]:
    """Steps between checkpoints that the closed form finds best for the mean fleet, half of it and twice it."""
    fleet_hits = hits(scenario, job)
    if not fleet_hits.optimum:
        return ()
    best = fleet_hits.best.steps
    return tuple(sorted({max(1, best // 2), best, best * 2}))


def named_steps(fleet_hits: Hits) -> dict[str, int]:
    """The intervals that have a name, in steps."""
    best = fleet_hits.best

    def steps(seconds: float) -> int:
        return max(1, round(seconds / fleet_hits.step_s))

    return {
        "closed form": best.steps,
        "Young": steps(best.young_s),
        "Daly": steps(best.daly_s),
        f"every {FIXED_STEPS} steps": FIXED_STEPS,
    }


@dataclass(frozen=True, slots=True)
class CheckpointInterval:
    """One interval that was simulated.

    Parameters
    ----------
    choice : whose it is; empty for others around the best.
    steps, interval_s : between checkpoints.
    closed_form : the useful share by the closed form, NaN where it does not apply.
    useful : that share, simulated.
    costs : throughput given up against the best interval of all, as a share of that one's, paired.
    """

    choice: str
    steps: int
    interval_s: float
    closed_form: float
    useful: Estimate
    costs: Estimate


def compared(
    scenario: Scenario, job: JobSpec, simulate: Callable[[JobSpec], Trials | ClusterTrials]
) -> tuple[CheckpointInterval, ...]:
    """What other intervals between checkpoints would do to a job, by their length.

    Of fleets without hits, and of checkpoints that do not block training, nothing is compared: there rarer, or more
    often, is always better.

    Parameters
    ----------
    job : on the scenario's fleet.
    simulate : runs a job on the fleets that all intervals meet.
    """
    fleet_hits = hits(scenario, job)
    if not fleet_hits.optimum:
        return ()
    named, write = named_steps(fleet_hits), job.snapshots.write
    back = whole_steps(fleet_hits.write_s, fleet_hits.step_s) if fleet_hits.write_s else 1
    around = [max(1, round(fleet_hits.best.steps * factor)) for factor in _SPREAD]
    choices: dict[tuple[int, str], tuple[list[str], Checkpoints]] = {
        (back, "back to back"): (["back to back"], Checkpoints(rule="back_to_back", write=write))
    }
    for name, steps in [*named.items(), *(("", steps) for steps in sorted(set(around)))]:
        rule = Checkpoints(rule="every_steps", steps=steps, write=write)
        names = choices.setdefault((steps, ""), ([], rule))[0]
        names += [name] if name else []
    own = job.snapshots
    if own.rule == "every_seconds":
        steps = own.first_steps(fleet_hits.step_s)
        choices[steps, f"every {own.period_s:g} s"] = ([f"chosen, every {own.period_s:g} s"], own)
    for names, rule in choices.values():
        if rule == own and own.rule != "every_seconds":
            names.append("chosen")
    runs = {key: simulate(job.with_(snapshots=rule)) for key, (_, rule) in choices.items()}
    rates = {key: done.steps_per_s for key, done in runs.items()}
    best = max(rates, key=lambda key: float(rates[key].mean()))
    whole = float(rates[best].mean()) or 1.0
    rows = []
    for key, (names, _) in sorted(choices.items()):
        steps, done = key[0], runs[key]
        closed = fleet_hits.useful(steps)
        if "back to back" in names:
            closed = fleet_hits.best.useful_back_to_back
        useful = ratio_estimate(done.columns["useful_s"], done.columns["end_s"])
        costs = Estimate.of((rates[best] - rates[key]) / whole)
        rows.append(
            CheckpointInterval(", ".join(names), steps, steps * fleet_hits.step_s, closed, useful, costs)
        )
    return tuple(rows)


def interval_table(rows: tuple[CheckpointInterval, ...]) -> Table:
    """The intervals as a table."""
    return Table.of_records(
        INTERVALS,
        rows,
        useful="useful.mean",
        useful_half95="useful.half95",
        costs="costs.mean",
        costs_half95="costs.half95",
    )


def costs_note(rows: tuple[CheckpointInterval, ...]) -> str:
    """What the named intervals cost, in a sentence."""
    costs = [
        f"{name} {row.costs.mean:.1%}" + (f" ± {row.costs.half95:.1%}" if row.costs.half95 else "")
        for row in rows
        for name in row.choice.split(", ")
        if row.choice
    ]
    return f"throughput that each interval gives up against the best simulated: {'; '.join(costs)}"
