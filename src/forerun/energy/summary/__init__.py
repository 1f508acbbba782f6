"""From what happened to the result: figures against the default and the oracle, tables, ledgers, intervals, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from forerun.core.result.run import Result
from forerun.core.result.tables import Table
from forerun.energy.engine import JobOutcome, Outcome, PipelineOutcome
from forerun.energy.engine.simulation import History
from forerun.energy.summary import pipeline, tables
from forerun.energy.summary.confidence import intervals
from forerun.energy.summary.savings import SAVED, Reference, reference, savings

HEADLINE: Final = (
    *(*SAVED, "cost_ratio_to_oracle", "energy_j", "cost_usd"),
    *("time_s", "recurrences", "attempts"),
)
#: known bugs that the data meet which a result's notes list
MOST_NOTES: Final = 6


def summarize(outcome: Outcome) -> Result:
    """The result of a run. The intervals of a job run it again, at other seeds."""
    if isinstance(outcome, PipelineOutcome):
        return pipeline.summarize(outcome)
    inputs, history = outcome.inputs, outcome.history
    scenario = inputs.scenario
    against = reference(inputs.workload, scenario.eta)
    attempts = tables.attempts_table(history)
    made = {
        "attempts": attempts,
        "recurrences": tables.recurrences_table(
            attempts, against.oracle.cost_j if against.oracle else math.nan
        ),
        "arms": tables.arms_table(outcome.beliefs),
        "limits": tables.limits_table(outcome.limits, scenario.eta),
        "configurations": tables.configurations_table(inputs.workload.expected(scenario.eta)),
        "oddities": tables.known_bugs_table(history),
    }
    summary = _summary(history, made, against) | _priced(outcome)
    if scenario.trace.resample:
        summary["resampled_runs"] = min(
            len(paths) for s in range(len(inputs.workload.sizes)) if len(paths := inputs.workload.paths_of(s))
        )
    return Result(
        scenario=scenario,
        summary=summary,
        tables=made,
        ledgers=tables.ledgers(history),
        timeline=tables.timeline(history),
        why=_why(summary, against),
        notes=_notes(outcome),
        intervals=intervals(outcome, against),
        headline=tuple(name for name in HEADLINE if name in summary),
        next_steps=("forerun plan {scenario}", "forerun compare {scenario}"),
    ).check()


def _summary(history: History, tables: Mapping[str, Table], against: Reference) -> dict[str, Any]:
    """Flat figures of a run, names with units.

    tables: of the run. against: the default and the oracle, with which it is compared.
    """
    per = tables["recurrences"]
    attempts = tables["attempts"]
    saved = savings(per["energy_j"], per["time_s"], per["cost_j"], against)
    failed = len(attempts) - int(attempts["reached"].astype(bool).sum())
    summary: dict[str, Any] = {
        "recurrences": len(per),
        "attempts": len(attempts),
        "failed_attempts": failed,
        "energy_j": float(per["energy_j"].sum()),
        "time_s": float(per["time_s"].sum()),
        "cost_j": float(per["cost_j"].sum()),
    }
    if against.default:
        summary |= {name: getattr(saved, attribute) for name, attribute in SAVED.items()}
    if against.oracle:
        summary["cost_ratio_to_oracle"] = saved.cost_ratio
        summary["regret_j"] = float(per["regret_cum_j"][-1])
        summary["oracle_batch_size"] = against.oracle.batch_size
        summary["oracle_power_limit_w"] = against.oracle.limit_w
    summary["last_batch_size"] = int(per["batch_size"][-1])
    summary["last_power_limit_w"] = float(per["power_limit_w"][-1])
    summary["oddities_met"] = int(sum(history.known_bugs.values()))
    return summary


def _priced(outcome: JobOutcome) -> dict[str, float]:
    """Money and carbon of all attempts at the times at which they ran."""
    totals = {}
    inputs = outcome.inputs
    for name, value in (("cost_usd", inputs.price), ("carbon_gco2", inputs.carbon)):
        if value is None:
            continue
        total = 0.0
        for line in outcome.history.attempts:
            seconds = line.outcome.time_s * line.ratio
            if seconds > 0:
                watts = line.outcome.energy_j / line.outcome.time_s
                total += watts * float(value.integral(line.start_s, line.start_s + seconds)) / 3.6e6
        totals[name] = total
    return totals


def _why(summary: dict[str, Any], against: Reference) -> str:
    """One sentence: what could be saved at most, and what the policy cost over that."""
    if against.default is None or against.oracle is None:
        return f"the policy's last batch size is {summary['last_batch_size']}"
    best = against.oracle
    saving = 100 * (1 - best.cost_j / against.default.cost_j)
    overhead = 100 * (summary["cost_ratio_to_oracle"] - 1)
    where = f"batch size {best.batch_size} at {best.limit_w:g} W"
    same = (best.batch_size, best.limit_w) == (against.default.batch_size, against.default.limit_w)
    what = (
        f"nothing is cheaper than the default, {where}"
        if same
        else f"the cheapest configuration, {where}, costs {saving:.1f} % less than the default"
    )
    spent = f"{abs(overhead):.1f} % {'more' if overhead >= 0 else 'less'}"
    return (
        f"{what}; over {summary['recurrences']} recurrences the policy cost {spent} than running it every time, and "
        f"its last batch size is {summary['last_batch_size']}"
    )


def _notes(outcome: JobOutcome) -> tuple[str, ...]:
    """Repairs of the files, then the known bugs that the data meet."""
    known = outcome.inputs.workload.notes
    lines = [f"{code}: {text}" for code, text in known[:MOST_NOTES]]
    if len(known) > MOST_NOTES:
        lines.append(f"and {len(known) - MOST_NOTES} more notes about the trace")
    return (*outcome.inputs.repairs, *lines)
