"""From a scenario to its result: run, compare with the default and the oracle, and say what happened."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from forerun.domains.energy import pipeline_plan, tables
from forerun.domains.energy.batch import Attempts, columns, run_many
from forerun.domains.energy.model import Expected, Floats
from forerun.domains.energy.observer import Observer
from forerun.domains.energy.policy import Chooser, KnobRecipe
from forerun.domains.energy.scenario import Scenario, paired
from forerun.domains.energy.simulate import Drift, Run, Shop, group, sequence
from forerun.domains.energy.stats import drawn_world
from forerun.domains.energy.workload import Workload
from forerun.domains.energy.world import World, read_world
from forerun.errors import ForerunError, ScenarioError
from forerun.observers import checked_observers
from forerun.result.run import Interval, Result
from forerun.result.tables import Table
from forerun.rng import stream
from forerun.trace.steps import signal

#: worlds drawn for the interval that also counts the recorded paths as a sample
DRAWN_WORLDS = 20
LAST = 5
#: recurrences of one run, whose records are kept (about a kilobyte each), and of all runs behind the intervals
MOST_RECURRENCES: Final = 1_000_000
MOST_IN_ALL: Final = 20_000_000
#: least CPU time of a recurrence in the readable loops [s]; a policy may take several times as long
RECURRENCE_S: Final = 65e-6


@dataclass(frozen=True)
class Reference:
    """What a run is compared with: the default configuration and the oracle's, None where there is none."""

    default: Expected | None
    oracle: Expected | None


def run_scenario(scenario: Scenario, *, policy: Chooser | None = None, watch: Iterable[Any] = ()) -> Result:
    """The result of a scenario; `policy` replaces its policy. Raises the room's named failures."""
    pipeline = "a pipeline, which is planned and not simulated," if scenario.pipeline is not None else ""
    watch = checked_observers(watch, Observer, unobserved=pipeline)
    if scenario.pipeline is not None:
        return pipeline_plan.run(scenario)
    return run_world(scenario, read_world(scenario), policy=policy, watch=watch)


def run_world(
    scenario: Scenario, world: World, *, policy: Chooser | None = None, watch: Iterable[Any] = ()
) -> Result:
    """The result of a scenario on a world that was read, or changed since."""
    check_size(scenario, world)
    recipe = paired(policy, scenario.limit_policy) if policy else scenario.chooser
    shop, run = play(scenario, world, recipe, scenario.first_seed)
    for observer in watch:
        for line in run.attempts:
            observer.attempt(line)
    against = reference(world.workload, scenario.eta)
    found = {"attempts": tables.attempts_table(run)}
    oracle_j = against.oracle.cost_j if against.oracle else math.nan
    found["recurrences"] = tables.recurrences_table(found["attempts"], oracle_j)
    found["arms"] = tables.arms_table(shop.policy)
    found["limits"] = tables.limits_table(shop.policy, scenario.eta)
    found["configurations"] = tables.configurations_table(world.workload.expected(scenario.eta))
    found["oddities"] = tables.oddities_table(run)
    summary = _summary(run, found, against)
    summary.update(_priced(scenario, run))
    intervals, centres = _intervals(scenario, world, recipe, against, run)
    summary.update(centres)
    return Result(
        scenario=scenario,
        summary=summary,
        tables=found,
        ledgers=tables.ledgers(run),
        timeline=tables.timeline(run),
        why=_why(summary, against),
        notes=_notes(world, run),
        intervals=intervals,
        headline=tuple(name for name in HEADLINE if name in summary),
        next_steps=("forerun plan {scenario}", "forerun compare {scenario}"),
    ).check()


HEADLINE = (
    "energy_saved_percent",
    "time_saved_percent",
    "energy_saved_last5_percent",
    "time_saved_last5_percent",
    "cost_ratio_to_oracle",
    "energy_j",
    "time_s",
    "recurrences",
    "attempts",
)


def play(scenario: Scenario, world: World, recipe: KnobRecipe, seed: int) -> tuple[Shop, Run]:
    """One run of a scenario at a seed, with the records that only the readable loops keep."""
    shop = Shop(
        world.workload,
        recipe,
        eta=scenario.eta,
        beta=scenario.bound_factor,
        rules=scenario.switches,
        seed=seed,
        drift=drifts(scenario),
    )
    if world.rows:
        return shop, group(shop, world.rows)
    return shop, sequence(shop, recurrences_of(scenario, world))


def recurrences_of(scenario: Scenario, world: World) -> int:
    """Recurrences of one run: the rows of its group, what the scenario says, or the customary number."""
    return len(world.rows) or scenario.recurrences or world.workload.recurrences()


def check_size(scenario: Scenario, world: World) -> None:
    """Raise ScenarioError, with the cost, where a run and those behind its intervals take more than is simulated."""
    each = recurrences_of(scenario, world)
    if each > MOST_RECURRENCES:
        where = "group" if world.rows else "recurrences"
        what = f"{each:,} recurrences in one run take about {_hours(each)}; at most {MOST_RECURRENCES:,} are simulated"
        raise ScenarioError.at(f"$.{where}", what)
    runs = scenario.trials + min(DRAWN_WORLDS, scenario.trials)
    if runs * each > MOST_IN_ALL:
        most = max(1, MOST_IN_ALL // each - DRAWN_WORLDS)
        raise ScenarioError.at(
            "$.trials",
            f"{scenario.trials:,} trials of {each:,} recurrences take about {_hours(runs * each)} or more; at most "
            f"{MOST_IN_ALL:,} recurrences are simulated in all, {most:,} trials here",
        )


def _hours(recurrences: int) -> str:
    return f"{recurrences * RECURRENCE_S / 3600:,.1f} hours"


def drifts(scenario: Scenario) -> tuple[Drift, ...]:
    """The scenario's changes of the job, as the loop knows them."""
    return tuple(Drift(change.from_recurrence, change.exponent, change.pivot) for change in scenario.drift)


def reference(workload: Workload, eta: float) -> Reference:
    """The default configuration at its top limit, and the cheapest one that always reaches."""
    points = workload.expected(eta)
    mine = [point for point in points if point.batch_size == workload.job.default_batch_size]
    certain = [point for point in points if point.reach == 1]
    default = max(mine, key=lambda point: point.limit_w) if mine else None
    if default is not None and default.reach == 0:
        default = None
    return Reference(default, min(certain, key=lambda point: point.cost_j) if certain else None)


@dataclass(frozen=True)
class Savings:
    """Change against the default configuration, in percent (positive: saved), and cost over the oracle's."""

    energy: float
    time: float
    energy_last: float
    time_last: float
    cost_ratio: float


def savings(energy_j: Floats, time_s: Floats, cost_j: Floats, against: Reference) -> Savings:
    """Savings of float64[recurrences] totals; nan where there is nothing to compare with."""
    e0 = against.default.energy_j if against.default else math.nan
    t0 = against.default.time_s if against.default else math.nan
    c0 = against.oracle.cost_j if against.oracle else math.nan

    def saved(values: Floats, base: float) -> float:
        return 100 * (1 - float(values.mean()) / base)

    return Savings(
        saved(energy_j, e0),
        saved(time_s, t0),
        saved(energy_j[-LAST:], e0),
        saved(time_s[-LAST:], t0),
        float(cost_j.mean()) / c0,
    )


def of_attempts(log: Attempts, recurrences: int, against: Reference) -> Savings:
    """Savings of one run given as columns."""
    totals = [log.per_recurrence(values, recurrences) for values in (log.energy_j, log.time_s, log.cost_j)]
    return savings(totals[0], totals[1], totals[2], against)


def _summary(run: Run, found: dict[str, Table], against: Reference) -> dict[str, Any]:
    per = found["recurrences"]
    attempts = found["attempts"]
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
        summary["energy_saved_percent"] = saved.energy
        summary["time_saved_percent"] = saved.time
        summary["energy_saved_last5_percent"] = saved.energy_last
        summary["time_saved_last5_percent"] = saved.time_last
    if against.oracle:
        summary["cost_ratio_to_oracle"] = saved.cost_ratio
        summary["regret_j"] = float(per["regret_cum_j"][-1])
        summary["oracle_batch_size"] = against.oracle.batch_size
        summary["oracle_power_limit_w"] = against.oracle.limit_w
    summary["last_batch_size"] = int(per["batch_size"][-1])
    summary["last_power_limit_w"] = float(per["power_limit_w"][-1])
    summary["oddities_met"] = int(sum(run.fired.values()))
    return summary


def _priced(scenario: Scenario, run: Run) -> dict[str, float]:
    """Money and carbon of all attempts at the instants they ran."""
    found = {}
    wanted = (
        ("cost_usd", signal(scenario.signals.price, unit="usd/kWh", name="price")),
        ("carbon_gco2", signal(scenario.signals.carbon, unit="g/kWh", name="carbon")),
    )
    for name, value in wanted:
        if value is None:
            continue
        total = 0.0
        for line in run.attempts:
            seconds = line.outcome.time_s * line.ratio
            if seconds > 0:
                watts = line.outcome.energy_j / line.outcome.time_s
                total += watts * float(value.integral(line.start_s, line.start_s + seconds)) / 3.6e6
        found[name] = total
    return found


def _intervals(
    scenario: Scenario, world: World, recipe: KnobRecipe, against: Reference, run: Run
) -> tuple[dict[str, Interval], dict[str, float]]:
    """Intervals over seeds, and over drawn worlds and seeds together; for the latter also the medians."""
    if scenario.trials < 2:
        return {}, {}
    n = recurrences_of(scenario, world)
    seeds = range(scenario.first_seed, scenario.first_seed + scenario.trials)
    over_seeds = [of_attempts(columns(run, world.workload), n, against)]
    for seed in seeds[1:]:
        over_seeds += _tolerant(scenario, world, world.workload, recipe, seed, n)
    both = []
    for number in range(min(DRAWN_WORLDS, scenario.trials)):
        rng = stream(scenario.seed, "drawn world", number)
        drawn = drawn_world(world.workload, rng)
        both += _tolerant(scenario, world, drawn, recipe, scenario.first_seed + number, n)
    tight, _ = _named(over_seeds, "", "over seeds")
    wide, centres = _named(both, "_two_level", "over drawn paths and seeds")
    return {**tight, **wide}, centres


def _tolerant(
    scenario: Scenario, world: World, workload: Workload, recipe: KnobRecipe, seed: int, n: int
) -> list[Savings]:
    """One run for an interval; a seed at which the policy fails is left out."""
    try:
        (log,) = run_many(
            workload,
            recipe,
            eta=scenario.eta,
            beta=scenario.bound_factor,
            rules=scenario.switches,
            seeds=[seed],
            recurrences=n,
            rows=world.rows,
            drift=drifts(scenario),
        )
    except ForerunError:
        return []
    return [of_attempts(log, n, reference(workload, scenario.eta))]


def _named(found: list[Savings], suffix: str, method: str) -> tuple[dict[str, Interval], dict[str, float]]:
    names = {
        "energy_saved_percent": [saved.energy for saved in found],
        "time_saved_percent": [saved.time for saved in found],
        "energy_saved_last5_percent": [saved.energy_last for saved in found],
        "time_saved_last5_percent": [saved.time_last for saved in found],
        "cost_ratio_to_oracle": [saved.cost_ratio for saved in found],
    }
    intervals, centres = {}, {}
    for name, values in names.items():
        finite = [value for value in values if math.isfinite(value)]
        if len(finite) < 2:
            continue
        # What one deployment may see: percentiles of runs, outward to a run, so that few runs give their range.
        low = float(np.percentile(finite, 2.5, method="lower"))
        high = float(np.percentile(finite, 97.5, method="higher"))
        intervals[name + suffix] = Interval(low, high, 0.95, f"{method}, {len(finite)} runs")
        centres[name + suffix] = float(np.median(finite))
    return intervals, centres


def _why(summary: dict[str, Any], against: Reference) -> str:
    if against.default is None or against.oracle is None:
        return f"the policy's last batch size is {summary['last_batch_size']}"
    best = against.oracle
    room = 100 * (1 - best.cost_j / against.default.cost_j)
    overhead = 100 * (summary["cost_ratio_to_oracle"] - 1)
    where = f"batch size {best.batch_size} at {best.limit_w:g} W"
    same = (best.batch_size, best.limit_w) == (against.default.batch_size, against.default.limit_w)
    what = (
        f"nothing is cheaper than the default, {where}"
        if same
        else f"the cheapest configuration, {where}, costs {room:.1f} % less than the default"
    )
    spent = f"{abs(overhead):.1f} % {'more' if overhead >= 0 else 'less'}"
    return (
        f"{what}; over {summary['recurrences']} recurrences the policy cost {spent} than running it every time, and "
        f"its last batch size is {summary['last_batch_size']}"
    )


def _notes(world: World, run: Run) -> tuple[str, ...]:
    oddities = [f"{code}: {text}" for code, text in world.workload.notes[:6]]
    more = len(world.workload.notes) - 6
    if more > 0:
        oddities.append(f"and {more} more notes about the trace")
    return (*world.repairs, *oddities)
