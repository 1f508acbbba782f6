"""From a scenario to its result: one history replayed, or many generated ones with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forerun.domains.spot.engine import trials
from forerun.domains.spot.engine.model import Membership, Replay
from forerun.domains.spot.engine.outlook import KnownHazard, KnownProcess, Observed
from forerun.domains.spot.engine.state import Outlook
from forerun.domains.spot.engine.trials import Estimate, Trials, ratio_estimate
from forerun.domains.spot.inputs.prices import fleet_usd, spot_price
from forerun.domains.spot.inputs.recorded import Recording, recording, with_on_demand
from forerun.domains.spot.observer import Observer
from forerun.domains.spot.policies.restart import Restart
from forerun.domains.spot.policy import GrowthRule, RecoveryPolicy, Setting
from forerun.domains.spot.scenario import Prices, Recorded, Scenario, Training
from forerun.domains.spot.scenario.processes import PerNode, Poisson, Process, Tick, generate
from forerun.domains.spot.summary import tables
from forerun.domains.spot.summary.sensitivity import elasticities
from forerun.errors import ScenarioError
from forerun.observers import checked_observers
from forerun.result.run import Interval, Result
from forerun.result.stats import proportion_interval
from forerun.result.tables import Table

NOT_MODELLED = (
    "not modelled: stragglers, notice before a removal, write times that depend on the world size; "
    "step times are constant, victims uniform unless the trace names them"
)
SHARES = ("useful", "slowdown", "stall", "lost", "reconfig", "idle", "inflight")


def run_scenario(
    scenario: Scenario, *, policy: RecoveryPolicy | GrowthRule | None = None, watch: Iterable[Any] = ()
) -> Result:
    """Simulate; `policy` replaces the scenario's."""
    several = "a run under a deadline" if scenario.deadline is not None else ""
    several = several or ("a run of several random histories (`trials`)" if scenario.trials else "")
    watch = checked_observers(watch, Observer, unobserved=several)
    if isinstance(policy, RecoveryPolicy):
        scenario = scenario.with_(policy=policy)
    elif policy is not None:
        scenario = scenario.with_(growth=policy)
    if scenario.deadline is not None:
        from forerun.domains.spot.summary.deadline import run_deadline_scenario

        return run_deadline_scenario(scenario)
    if scenario.trials:
        return _many(scenario)
    return run_history(scenario, watch)


# --------------------------------------------------------------------------- one history


def run_history(
    scenario: Scenario,
    watch: Iterable[Any] = (),
    *,
    reorder: Callable[[Membership], Membership] = lambda fleet: fleet,
) -> Result:
    """One history replayed; `reorder` may break the ties of its fleet another way."""
    record, horizon_s, notes = history(scenario, trial=0)
    record = replace(record, fleet=reorder(record.fleet))
    done = replay_scenario(scenario, record.fleet, horizon_s)
    for observer in watch:
        for spell in done.spells if hasattr(observer, "spell") else ():
            observer.spell(spell)
        for life in done.node_spells if hasattr(observer, "node_spell") else ():
            observer.node_spell(life)
    fleet = with_on_demand(record.fleet, scenario.on_demand_nodes)
    spot_usd, on_demand_usd = _cost(done, scenario, record.fleet)
    cost_usd = spot_usd + on_demand_usd
    wall, nodes = dict(done.wall_s), dict(done.node_s)
    found = {
        "ledger": tables.ledger_table(wall, nodes, done.end_s, cost_usd),
        "spells": tables.spell_table(done),
    }
    if done.node_spells:
        found |= _of_nodes(done, fleet)
    if (prices := scenario.prices).spot_series or prices.spot_file:
        found["price"] = tables.price_table(spot_price(prices), done.end_s)
    return Result(
        scenario=scenario,
        summary=_summary(done, scenario, cost_usd, on_demand_usd),
        tables=found,
        ledgers=(
            tables.wall_ledger(wall, done.end_s),
            tables.node_ledger(nodes, done.alive_node_s),
            tables.goodput_ledger(wall, done.end_s, load_share(scenario.job)),
        ),
        timeline=tables.timeline(done, fleet),
        why=why({line: done.wall_s.get(line, 0.0) / done.end_s for line in SHARES}, scenario),
        notes=(*notes, NOT_MODELLED),
        headline=_headline(scenario),
        next_steps=_next_steps(scenario),
    )


def _of_nodes(done: Replay, fleet: Membership) -> dict[str, Table]:
    """How many nodes were in which state, and what each of them was when."""
    return {"fleet": tables.fleet_table(done), "lives": tables.life_table(done, fleet)}


def load_share(job: Training) -> float:
    """Share of a pause that is loading the snapshot."""
    return job.load_s / job.reconfig_s if job.reconfig_s else 0.0


def history(scenario: Scenario, trial: int) -> tuple[Recording, float, list[str]]:
    """The fleet's history, how long to simulate, and what to know about it."""
    if not isinstance(scenario.fleet, Recorded):
        fleet = generate(scenario.fleet, seed=scenario.seed, horizon_s=scenario.horizon_s, trial=trial)
        return Recording(fleet), scenario.horizon_s, []
    record = recording(scenario.fleet, scenario.seed)
    horizon_s = scenario.horizon_s or record.end_s
    notes = list(record.notes)
    if horizon_s <= 0:
        from forerun.errors import TraceError

        raise TraceError.at(
            scenario.fleet.file.path,
            "ends at its first instant; give the run a horizon, such as `horizon: 6h`",
        )
    if record.end_s < horizon_s:
        notes.append(f"the trace ends at {record.end_s:g} s; from then on the fleet stays as it is")
    return record, horizon_s, notes


def replay_scenario(scenario: Scenario, fleet: Membership, horizon_s: float) -> Replay:
    """One history of the spot nodes, with the scenario's on-demand nodes beside them."""
    return scenario.policy.replay(
        Setting(
            fleet=with_on_demand(fleet, scenario.on_demand_nodes),
            job=scenario.job.built(horizon_s),
            growth=scenario.growth.build(),
            outlook=outlook_of(scenario.fleet),
            goal_steps=scenario.goal.steps or None,
            samples_per_step=scenario.job.samples_per_step,
        )
    )


def outlook_of(fleet: Recorded | Process) -> Outlook:
    """A generated fleet's removals are known, a recorded one's are learned as they come."""
    if isinstance(fleet, PerNode):
        return KnownHazard(fleet.removal_per_node_h / 3600.0)
    if not isinstance(fleet, Poisson | Tick):
        return Observed()
    sizes = fleet.removal_sizes() if isinstance(fleet, Poisson) else fleet.removal_batch.probabilities()
    shares = {n + 1: float(p) for n, p in enumerate(sizes) if p > 0}
    return KnownProcess(fleet.removals_per_min / 60.0, shares)


def _cost(done: Replay, scenario: Scenario, spot: Membership) -> tuple[float, float]:
    """Dollars for spot and for on-demand nodes."""
    steady_s = scenario.on_demand_nodes * done.end_s
    prices = scenario.prices
    on_demand = steady_s * prices.on_demand_usd_per_h / 3600.0
    if prices.spot_series or prices.spot_file:
        return fleet_usd(spot, spot_price(prices), done.end_s), on_demand
    if prices.billing_s == 0 and prices.minimum_s == 0:
        return (done.alive_node_s - steady_s) * prices.spot_usd_per_h / 3600.0, on_demand
    lives: dict[tuple[int, float], float] = {}
    ends: dict[int, tuple[tuple[int, float], float]] = {}
    for spell in sorted(done.node_spells, key=lambda spell: (spell.node, spell.start_s)):
        life, end_s = ends.get(spell.node, ((spell.node, spell.start_s), -1.0))
        if end_s != spell.start_s:
            life = (spell.node, spell.start_s)
        lives[life] = lives.get(life, 0.0) + spell.end_s - spell.start_s
        ends[spell.node] = (life, spell.end_s)
    billed = sum(
        billed_s(life_s, prices) for (node, _), life_s in lives.items() if node >= scenario.on_demand_nodes
    )
    return billed * prices.spot_usd_per_h / 3600.0, on_demand


def billed_s(life_s: float, prices: Prices) -> float:
    """Seconds billed for a life: whole units, and not less than the minimum."""
    seconds = max(life_s, prices.minimum_s)
    if prices.billing_s:
        seconds = math.ceil(seconds / prices.billing_s - 1e-12) * prices.billing_s
    return seconds


def _summary(done: Replay, scenario: Scenario, cost_usd: float, on_demand_usd: float) -> dict[str, Any]:
    samples = done.steps_completed * scenario.job.samples_per_step
    summary: dict[str, Any] = {
        "steps_completed": done.steps_completed,
        "steps_durable": done.steps_durable,
        "samples_per_s": samples / done.end_s,
        "cost_usd": cost_usd,
        "on_demand_cost_usd": on_demand_usd,
        "usd_per_million_samples": cost_usd / samples * 1e6 if samples else None,
        "all_on_demand_usd_per_million_samples": _steady_cost(scenario),
    }
    summary |= {f"{line}_share": done.wall_s.get(line, 0.0) / done.end_s for line in SHARES}
    summary |= {
        "mean_nodes": done.alive_node_s / done.end_s,
        "rollbacks": done.counts.rollbacks,
        "reconfigs": done.counts.reconfigs,
        "reconfig_restarts": done.counts.reconfig_restarts,
        "idle_spells": done.counts.idle_spells,
        "steps_lost": done.counts.steps_lost,
        "end_s": done.end_s,
    }
    if scenario.goal.steps:
        summary["finish_h"] = done.finished_s / 3600.0 if done.finished_s is not None else None
    return summary


def _steady_cost(scenario: Scenario) -> float | None:
    """Dollars a million samples on on-demand nodes only, at the best world size, without a loss."""
    job, price = scenario.job, scenario.prices.on_demand_usd_per_h
    if price == 0:
        return None
    reachable = range(job.depth * job.min_pipelines, job.depth * job.max_pipelines + 1, job.depth)
    best = min(size * seconds for size, seconds in job.supplied_step_s().items() if size in reachable)
    return best / 3600.0 * price / job.samples_per_step * 1e6


def _headline(scenario: Scenario) -> tuple[str, ...]:
    paid = scenario.prices.known or scenario.prices.on_demand_usd_per_h > 0
    figures = ["steps_completed", "samples_per_s", "useful_share"]
    figures += ["cost_usd", "usd_per_million_samples"] if paid else []
    figures += ["lost_share", "reconfig_share", "idle_share"]
    if scenario.goal.steps:
        figures.insert(0, "finish_h")
    return tuple(figures)


def _next_steps(scenario: Scenario) -> tuple[str, ...]:
    """What to try next."""
    if not isinstance(scenario.policy, Restart):  # the others have growth of their own; plans are of restarts
        return ("forerun simulate {scenario} --set policy=restart",)
    other = "immediate" if scenario.growth.kernel_code >= 4 else "hazard"
    turn = f"forerun simulate {{scenario}} --set growth={other}"
    if isinstance(
        scenario.fleet, Recorded
    ):  # one history: a process like it has many, and can be planned for
        return (turn, f"forerun trace fit spot {scenario.fleet.file.path} -o fitted.yaml")
    return (turn, "forerun plan {scenario}")


def why(shares: Mapping[str, float], scenario: Scenario) -> str:
    """The largest loss, in a sentence, and what acts on it."""
    advice = {
        "lost": "work rolled back after losses and growth; snapshot more often or grow later",
        "reconfig": "pauses to rebuild pipelines; fewer re-plans, or a recovery without restart, may help",
        "idle": "too few nodes for one pipeline; a smaller depth, spares or on-demand nodes may help",
        "stall": "snapshots that block training; snapshot less often",
        "slowdown": "stages doubled up on one node",
        "inflight": "the step that was running at the end",
    }
    worst = max(advice, key=lambda line: shares.get(line, 0.0))
    if shares.get(worst, 0.0) < 0.005:
        return f"{shares['useful']:.1%} of the time is useful; nothing else takes half a percent"
    return f"{shares['useful']:.1%} of the time is useful; the largest loss, {shares[worst]:.1%}, is {advice[worst]}"


# --------------------------------------------------------------------------- many histories


@dataclass(frozen=True, slots=True)
class _Block:
    """What is kept of a block of trials: nothing that grows with their number."""

    count: int
    estimates: Mapping[str, Estimate]
    wall_s: Mapping[str, float]
    node_s: Mapping[str, float]
    finished: int
    in_time: int

    @classmethod
    def of(cls, done: Trials, scenario: Scenario) -> _Block:
        """The means and counts of some trials."""
        wall, nodes = _mean_lines(done)
        finish_s = done.finish_s
        return cls(
            done.count,
            _estimates(done, scenario, _trial_cost(done, scenario)),
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


def _trial_cost(done: Trials, scenario: Scenario) -> Any:
    return done.cost_usd(mean_spot_usd_per_h(scenario), scenario.prices.on_demand_usd_per_h)


def _many(scenario: Scenario) -> Result:
    """All trials, a block at a time: memory does not grow with their number."""
    done, notes = simulate_trials(scenario.with_(trials=min(scenario.trials, trials.BLOCK)))
    blocks = [_Block.of(done, scenario)]
    for first in range(trials.BLOCK, scenario.trials, trials.BLOCK):
        more = scenario.with_(trials=min(trials.BLOCK, scenario.trials - first))
        blocks.append(_Block.of(simulate_trials(more, first)[0], scenario))
    whole, prices = _Block.joined(blocks), scenario.prices
    if len(blocks) > 1:
        notes.append(f"quantiles, curves and the table of trials are of the first {trials.BLOCK} trials")
    if prices.spot_series or prices.spot_file:
        notes.append(
            "over trials the spot price is its mean until the horizon; one history pays it as it goes"
        )
    if prices.billing_s or prices.minimum_s:
        notes.append("billing units and minimum are not applied over trials; time is billed to the instant")
    summary: dict[str, Any] = {name: one.mean for name, one in whole.estimates.items()}
    intervals = {
        name: Interval(one.mean - one.half95, one.mean + one.half95, method=f"normal, {one.trials} trials")
        for name, one in whole.estimates.items()
    }
    for share in (0.05, 0.5, 0.95):
        at = trials.quantile(done.columns["steps_completed"], share)
        summary[f"steps_p{round(share * 100)}"] = at.value
        intervals[f"steps_p{round(share * 100)}"] = Interval(at.low, at.high, method="order statistics")
    if scenario.goal.steps:
        _finish_figures(done, whole, scenario, summary, intervals)
    summary["trials"] = whole.count
    wall, nodes = dict(whole.wall_s), dict(whole.node_s)
    mean_end_s = math.fsum(wall.values())
    matters = elasticities(scenario) if in_kernel(scenario) else ()
    shown_fleet = history(scenario, trial=0)[0].fleet
    shown = replay_scenario(scenario, shown_fleet, scenario.horizon_s)
    notes.append("the timeline, the fleet and the spells are of one generated history")
    finish = ("finish_p50_h", "finish_p95_h", "done_by_deadline") if scenario.goal.steps else ()
    return Result(
        scenario=scenario,
        summary=summary,
        tables={
            "ledger": tables.ledger_table(wall, nodes, mean_end_s, float(summary["cost_usd"])),
            "trials": tables.trial_table(done, _trial_cost(done, scenario)),
            "spells": tables.spell_table(shown),
            **(
                _of_nodes(shown, with_on_demand(shown_fleet, scenario.on_demand_nodes))
                if shown.node_spells
                else {}
            ),
            **({"sensitivity": tables.sensitivity_table(matters)} if matters else {}),
        },
        timeline=tables.timeline(shown, with_on_demand(shown_fleet, scenario.on_demand_nodes)),
        ledgers=(
            tables.wall_ledger(wall, mean_end_s),
            tables.node_ledger(nodes, math.fsum(nodes.values())),
            tables.goodput_ledger(wall, mean_end_s, load_share(scenario.job)),
        ),
        why=why({line: wall[line] / mean_end_s for line in wall}, scenario),
        notes=(*notes, NOT_MODELLED),
        intervals=intervals,
        headline=(
            *(name for name in finish if name in summary),
            *(n for n in _headline(scenario) if n in summary),
        ),
        next_steps=_next_steps(scenario),
    )


def mean_spot_usd_per_h(scenario: Scenario) -> float:
    """The spot price, averaged until the horizon where it changes."""
    return spot_price(scenario.prices).mean(0.0, scenario.horizon_s)


def in_kernel(scenario: Scenario) -> bool:
    """Whether the Monte Carlo kernel knows the process, the policy and the growth rule."""
    known = isinstance(scenario.fleet, Poisson | PerNode) and type(scenario.policy) is Restart
    return known and scenario.growth.kernel_code >= 0 and scenario.job.min_pipelines == 1


def simulate_trials(scenario: Scenario, first: int = 0) -> tuple[Trials, list[str]]:
    """The scenario's trials first, first + 1, ..., in the kernel where it knows the process and the policy, else one by
    one.
    """
    process = scenario.fleet
    assert not isinstance(process, Recorded)
    if in_kernel(scenario) and isinstance(process, Poisson | PerNode):
        done = trials.run(
            scenario.job.built(scenario.horizon_s),
            process,
            scenario.growth,
            trials=scenario.trials,
            seed=scenario.seed,
            goal_steps=scenario.goal.steps or -1,
            on_demand=scenario.on_demand_nodes,
            first_trial=first,
        )
        return done, []
    if scenario.trials > 20_000:
        raise ScenarioError.at(
            "$.trials",
            f"{scenario.trials} trials of this policy and process run one by one; at most 20000 are allowed",
        )
    rows = [
        replay_scenario(scenario, history(scenario, trial)[0].fleet, scenario.horizon_s)
        for trial in range(first, first + scenario.trials)
    ]
    return of_replays(rows, scenario), [
        "this policy or process has no kernel: trials were replayed one by one"
    ]


def of_replays(rows: list[Replay], scenario: Scenario) -> Trials:
    """Replays as the columns of trials."""
    from forerun.domains.spot.engine import kernels

    columns: dict[str, Any] = {}
    for line in (*SHARES, "standby", "prepping"):
        columns[f"{line}_s"] = np.array([row.wall_s.get(line, 0.0) for row in rows])
        columns[f"{line}_node_s"] = np.array([row.node_s.get(line, 0.0) for row in rows])
    for name in ("steps_completed", "steps_durable"):
        columns[name] = np.array([float(getattr(row, name)) for row in rows])
    for name in ("reconfigs", "reconfig_restarts", "rollbacks", "adds"):
        columns[name] = np.array([float(getattr(row.counts, name)) for row in rows])
    columns["removals"] = np.array(
        [float(r.counts.removed_active + r.counts.removed_standby + r.counts.removed_prepping) for r in rows]
    )
    columns["end_s"] = np.array([row.end_s for row in rows])
    columns["finished"] = np.array([float(row.finished_s is not None) for row in rows])
    assert set(kernels.COLUMNS) <= set(columns)
    return Trials(columns, scenario.horizon_s, scenario.on_demand_nodes)


def _mean_lines(done: Trials) -> tuple[dict[str, float], dict[str, float]]:
    """Mean seconds, and mean node-seconds, by ledger line."""
    wall = {line: float(done.columns[f"{line}_s"].mean()) for line in SHARES if f"{line}_s" in done.columns}
    nodes = {
        line: float(done.columns[f"{line}_node_s"].mean())
        for line in (*SHARES, "standby", "prepping")
        if f"{line}_node_s" in done.columns and line != "idle"
    }
    return wall, nodes


def _estimates(done: Trials, scenario: Scenario, cost: Any) -> dict[str, Estimate]:
    end_s = done.columns["end_s"]
    samples = done.columns["steps_completed"] * scenario.job.samples_per_step
    found = {
        "steps_completed": done.steps,
        "samples_per_s": ratio_estimate(samples, end_s),
        "cost_usd": Estimate.of(cost),
    }
    if samples.sum() > 0:
        found["usd_per_million_samples"] = ratio_estimate(cost * 1e6, samples)
    # Of the time of all trials together, as the ledgers are, whatever the length of each.
    found |= {
        f"{line}_share": ratio_estimate(done.columns[f"{line}_s"], end_s)
        for line in SHARES
        if f"{line}_s" in done.columns
    }
    found["mean_nodes"] = ratio_estimate(done.alive_node_s, end_s)
    found["reconfigs"] = Estimate.of(done.columns["reconfigs"])
    found["rollbacks"] = Estimate.of(done.columns["rollbacks"])
    return found


def _finish_figures(
    done: Trials, whole: _Block, scenario: Scenario, summary: dict[str, Any], intervals: dict[str, Interval]
) -> None:
    """Time to the goal: quantiles, censored where trials did not get there, and the chance of the
    deadline.
    """
    hours = done.finish_s / 3600.0
    summary["finished_share"] = whole.finished / whole.count
    intervals["finished_share"] = proportion_interval(whole.finished, whole.count, method="Wilson")
    for at in (0.05, 0.5, 0.95, 0.99):
        found = trials.quantile(hours, at)
        name = f"finish_p{round(at * 100)}_h"
        summary[name] = found.value if math.isfinite(found.value) else None
        if math.isfinite(found.high):
            intervals[name] = Interval(found.low, found.high, method="order statistics")
    if scenario.goal.deadline_s:
        summary["done_by_deadline"] = whole.in_time / whole.count
        intervals["done_by_deadline"] = proportion_interval(whole.in_time, whole.count, method="Wilson")
