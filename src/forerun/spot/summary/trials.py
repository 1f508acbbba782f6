"""The result of many generated histories: means and quantiles, each with its 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.core.result.run import Result
from forerun.core.result.tables import Table
from forerun.spot.engine.estimates import Estimate, finish_figures, quantile, ratio_estimate
from forerun.spot.engine.run import TrialsOutcome, in_kernel
from forerun.spot.engine.trials import Trials
from forerun.spot.inputs import Inputs
from forerun.spot.scenario import Scenario
from forerun.spot.summary import tables
from forerun.spot.summary.history import node_tables
from forerun.spot.summary.sensitivity import elasticities
from forerun.spot.summary.words import NOT_MODELLED, SHARES, headline, next_steps, why

#: trials of which one lies beyond each end of the middle 90 %
ENOUGH: Final = 20


@dataclass(frozen=True, slots=True)
class _Block:
    """Means and counts of some trials: nothing that grows with their number.

    Parameters
    ----------
    count : of trials.
    estimates : means over them by figure, with their intervals.
    wall_s, node_s : mean seconds, and node-seconds, by ledger line.
    finished, in_time : trials that reached the goal, by the horizon and by the deadline.
    """

    count: int
    estimates: Mapping[str, Estimate]
    wall_s: Mapping[str, float]
    node_s: Mapping[str, float]
    finished: int
    in_time: int

    @classmethod
    def of(cls, done: Trials, inputs: Inputs) -> _Block:
        """The means and counts of some trials."""
        scenario, finish_s = inputs.scenario, done.finish_s
        wall, nodes = _mean_lines(done)
        return cls(
            done.count,
            _estimates(done, scenario, _cost_usd(done, inputs)),
            wall,
            nodes,
            int((finish_s <= scenario.horizon_s).sum()),
            int((finish_s <= scenario.goal.deadline_s).sum()),
        )

    @classmethod
    def joined(cls, blocks: Sequence[_Block]) -> _Block:
        """Blocks as one."""
        count = sum(block.count for block in blocks)
        names = [name for name in blocks[0].estimates if all(name in block.estimates for block in blocks)]

        def mean(lines: Sequence[Mapping[str, float]]) -> dict[str, float]:
            weights = [block.count / count for block in blocks]
            return {
                line: math.fsum(w * each[line] for w, each in zip(weights, lines, strict=True))
                for line in lines[0]
            }

        return cls(
            count,
            {name: Estimate.pooled([block.estimates[name] for block in blocks]) for name in names},
            mean([block.wall_s for block in blocks]),
            mean([block.node_s for block in blocks]),
            sum(block.finished for block in blocks),
            sum(block.in_time for block in blocks),
        )


def summarize_trials(outcome: TrialsOutcome) -> Result:
    """The result of all trials, a block at a time: memory does not grow with their number."""
    inputs, done, shown = outcome.inputs, outcome.first, outcome.shown
    scenario = inputs.scenario
    whole = _Block.joined([_Block.of(block, inputs) for block in outcome.blocks()])
    summary: dict[str, Any] = {name: one.mean for name, one in whole.estimates.items()}
    intervals = {name: one.interval for name, one in whole.estimates.items()}
    for share in (0.05, 0.5, 0.95):
        at = quantile(done.columns["steps_completed"], share)
        summary[f"steps_p{round(share * 100)}"] = at.value
        intervals[f"steps_p{round(share * 100)}"] = at.interval
    if scenario.goal.steps:
        chances = {"finished_share": whole.finished}
        if scenario.goal.deadline_s:
            chances["done_by_deadline"] = whole.in_time
        figures, ends = finish_figures(done.finish_s / 3600.0, chances, whole.count)
        summary, intervals = summary | figures, intervals | ends
    summary["trials"] = whole.count
    wall, nodes = dict(whole.wall_s), dict(whole.node_s)
    mean_end_s = math.fsum(wall.values())
    moved = elasticities(inputs) if in_kernel(scenario) else ()
    outcomes = tables.outcomes_table(done, scenario.job.samples_per_step, _cost_usd(done, inputs))
    finish = ("finish_p50_h", "finish_p95_h", "done_by_deadline") if scenario.goal.steps else ()
    return Result(
        scenario=scenario,
        summary=summary,
        tables={
            "ledger": tables.ledger_table(wall, nodes, mean_end_s, float(summary["cost_usd"])),
            "outcomes": outcomes,
            "trials": tables.trial_table(done, _cost_usd(done, inputs)),
            "spells": tables.spell_table(shown.replay),
            **node_tables(shown),
            **({"sensitivity": tables.sensitivity_table(moved)} if moved else {}),
        },
        timeline=tables.timeline(shown.replay, shown.nodes),
        ledgers=tables.ledgers(wall, nodes, mean_end_s, math.fsum(nodes.values()), scenario.job.load_share),
        why=why({line: wall[line] / mean_end_s for line in wall}, scenario),
        notes=(_one_run(outcomes, done.count), *_notes(scenario, done.count)),
        intervals=intervals,
        headline=tuple(name for name in (*finish, *headline(scenario)) if name in summary),
        next_steps=next_steps(scenario),
    )


def _one_run(outcomes: Table, trials: int) -> str:
    """What a single run may bring, beside the means over all.

    Parameters
    ----------
    outcomes : how far the trials differ.
    trials : how many there are.
    """
    means = "intervals above are of means over all trials"
    if trials < ENOUGH:
        return f"{means}; what one run may bring needs {ENOUGH} trials or more"
    words = {
        "steps_completed": "steps completed",
        "useful_share": "useful share",
        "mean_nodes": "nodes in the mean",
        "removals": "removals",
    }
    rows = {row["figure"]: row for row in outcomes.records()}
    shown = (
        f"{text} {rows[name]['low90']:.4g} to {rows[name]['high90']:.4g}" for name, text in words.items()
    )
    return f"{means}; nine of ten trials had: {', '.join(shown)}"


def _notes(scenario: Scenario, rows: int) -> tuple[str, ...]:
    """What to know about the trials. rows: how many of them have a row in the table."""
    prices, notes = scenario.prices, []
    if not in_kernel(scenario):
        notes.append("this policy or process has no kernel: trials were replayed one by one")
    if scenario.trials > rows:
        notes.append(f"quantiles, curves and the table of trials are of the first {rows} trials")
    if prices.changes:
        notes.append(
            "over trials the spot price is its mean until the horizon; one history pays it as it goes"
        )
    if prices.billing_s or prices.minimum_s:
        notes.append("billing units and minimum are not applied over trials; time is billed to the instant")
    return (*notes, "the timeline, the fleet and the spells are of one generated history", NOT_MODELLED)


def _cost_usd(done: Trials, inputs: Inputs) -> NDArray[np.float64]:
    """float64[trials]: what the nodes of each trial cost."""
    return done.cost_usd(inputs.mean_spot_usd_per_h, inputs.scenario.prices.on_demand_usd_per_h)


def _mean_lines(done: Trials) -> tuple[dict[str, float], dict[str, float]]:
    """Mean seconds, and mean node-seconds, by ledger line."""
    wall = {line: float(done.columns[f"{line}_s"].mean()) for line in SHARES if f"{line}_s" in done.columns}
    nodes = {
        line: float(done.columns[f"{line}_node_s"].mean())
        for line in (*SHARES, "standby", "prepping")
        if f"{line}_node_s" in done.columns and line != "idle"
    }
    return wall, nodes


def _estimates(done: Trials, scenario: Scenario, cost_usd: NDArray[np.float64]) -> dict[str, Estimate]:
    """Means over trials of the figures of the summary, with their intervals. cost_usd: float64[trials]."""
    end_s = done.columns["end_s"]
    samples = done.columns["steps_completed"] * scenario.job.samples_per_step
    estimates = {
        "steps_completed": done.steps,
        "samples_per_s": ratio_estimate(samples, end_s),
        "cost_usd": Estimate.of(cost_usd),
    }
    if samples.sum() > 0:
        estimates["usd_per_million_samples"] = ratio_estimate(cost_usd * 1e6, samples)
    # Of the time of all trials together, as the ledgers are, whatever the length of each.
    estimates |= {
        f"{line}_share": ratio_estimate(done.columns[f"{line}_s"], end_s)
        for line in SHARES
        if f"{line}_s" in done.columns
    }
    estimates["mean_nodes"] = ratio_estimate(done.alive_node_s, end_s)
    estimates["reconfigs"] = Estimate.of(done.columns["reconfigs"])
    estimates["rollbacks"] = Estimate.of(done.columns["rollbacks"])
    return estimates
