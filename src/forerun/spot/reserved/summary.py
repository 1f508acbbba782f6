"""The result of a job on a reserved cluster: effective time, goodput, interruptions by class, and what a change is worth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from forerun.core.result.ledger import Ledger
from forerun.core.result.run import Result
from forerun.core.result.tables import Column, Table, TableSchema
from forerun.core.result.timeline import Timeline
from forerun.spot.engine.estimates import Estimate, finish_figures, ratio_estimate
from forerun.spot.engine.run import ClusterOutcome, cluster_trials
from forerun.spot.inputs import Inputs
from forerun.spot.reserved import cluster_kernel as kernel
from forerun.spot.reserved.cluster import ClusterTrials
from forerun.spot.reserved.scenario import Cluster, Failures
from forerun.spot.scenario.job import JobSpec
from forerun.spot.summary.sizes import closed_form_sizes, simulated_sizes
from forerun.spot.summary.tables import LEDGER_COLUMNS

STATES: Final = ("training", "detecting", "restarting", "waiting", "maintenance")
"""States of the job, by the kernel's numbers."""
LINES: Final = (
    "useful",
    "stall",
    "lost",
    "detection",
    "restart",
    "waiting",
    "maintenance",
    "inflight",
    "spare",
    "repair",
)
"""Lines of the ledgers as they are shown; waiting is of wall time only, the last two of nodes only."""
PARTS: Final = ("schedule", "start", "communicator", "load")
MEANINGS: Final = {
    "useful": "time of steps that are not rolled back",
    "stall": "training blocked by checkpoints that are not rolled back",
    "lost": "time of work that was rolled back",
    "detection": "from a failure until the job stops",
    "restart": "schedule, start, communicator and load",
    "schedule": "restarts: the scheduler finds nodes",
    "start": "restarts: processes start",
    "communicator": "restarts: processes connect",
    "load": "restarts: the state is loaded",
    "waiting": "fewer nodes than the job needs, until a repair",
    "maintenance": "planned stops, with the checkpoint before",
    "inflight": "the step that was running at the end",
    "spare": "ready, in no job",
    "repair": "under repair",
}
NOT_MODELLED: Final = (
    "not modelled: stragglers, write times that depend on the size of the cluster, failures of storage; step times are "
    "constant"
)
MOST_PAIRED: Final = 400
"""Trials of each side of a comparison in the table of sensitivity."""

LEDGER = TableSchema("ledger", LEDGER_COLUMNS, "where wall time, node time and money went")
CLASSES = TableSchema(
    "classes",
    (
        Column("failure", "", "class of failures, or growth, or maintenance"),
        Column("failures_per_day", "", "that took something, in the whole cluster"),
        Column("interruptions_per_day", "", "that stopped training"),
        Column("lost_s", "s", "work rolled back, of a trial"),
        Column("stopped_s", "s", "until training went on, of a trial"),
        Column("share", "share", "of wall time, both together"),
    ),
    "what each class of failures cost",
)
TRIALS = TableSchema(
    "trials",
    (
        Column("trial", "", "number of the trial"),
        Column("steps_completed", "", "steps complete at the end"),
        Column("end_s", "s", "end of the trial: the goal, or the horizon"),
        Column("finished", "", "whether the goal was reached"),
        Column("ettr", "share", "effective training time ratio"),
        Column("lost_share", "share", "share of wall time rolled back"),
        Column("interruptions", "", "failures that stopped training"),
        Column("restarts", "", "restarts begun"),
    ),
    "one row a trial",
)
STRETCHES = TableSchema(
    "stretches",
    (
        Column("state", "", "training, detecting, restarting, waiting or maintenance"),
        Column("start_s", "s", "start"),
        Column("end_s", "s", "end, not included"),
        Column("nodes", "nodes", "nodes in the job"),
        Column("cause", "", "why it began"),
    ),
    "what the job did in trial 0, one row a stretch",
)
SENSITIVITY = TableSchema(
    "worth",
    (
        Column("change", "", "what changes"),
        Column("ettr_change", "share", "what it adds to the effective training time ratio"),
        Column("low", "share", "lower end of the 95 % interval"),
        Column("high", "share", "upper end"),
        Column("gpu_h_per_day", "gpu_h", "useful GPU-hours a day that it adds"),
    ),
    "what a change is worth, by paired trials with the same failures",
)


def summarize_cluster(outcome: ClusterOutcome) -> Result:
    """The result of all trials."""
    inputs, done = outcome.inputs, outcome.done
    scenario, cluster = inputs.scenario, inputs.cluster
    end_s, columns = done.columns["end_s"], done.columns
    mean_end_s = float(end_s.mean())
    wall = _wall(columns)
    nodes = {line: float(columns[f"{line}_node_s"].mean()) for line in kernel.NODE_LINES}
    whole_node_s = cluster.nodes * mean_end_s
    cost_usd = end_s * cluster.nodes / 3600.0 * scenario.prices.on_demand_usd_per_h
    estimates = _estimates(done, inputs, cost_usd)
    summary: dict[str, Any] = {name: one.mean for name, one in estimates.items()}
    intervals = {name: one.interval for name, one in estimates.items()} if done.count > 1 else {}
    if scenario.goal.steps:
        chances = {"finished_share": int(np.isfinite(done.finish_s).sum())}
        if scenario.goal.deadline_s:
            chances["done_by_deadline"] = int((done.finish_s <= scenario.goal.deadline_s).sum())
        figures, ends = finish_figures(done.finish_s / 3600.0, chances, done.count)
        summary, intervals = summary | figures, intervals | ends
    summary["trials"] = done.count
    split = {part: float(columns[f"{part}_s"].mean()) for part in PARTS}
    wall_parts: dict[str, float] = {}
    for line, seconds in wall.items():
        wall_parts |= split if line == "restart" else {line: seconds}
    finish = ("finish_p50_h", "finish_p95_h", "done_by_deadline") if scenario.goal.steps else ()
    shown = (
        "ettr",
        "interruptions_per_day",
        "useful_gpu_h",
        "cost_usd",
        "energy_kwh",
        "lost_share",
        "restart_share",
    )
    classes = _class_table(done, cluster)
    return Result(
        scenario=scenario,
        summary=summary,
        tables={
            "ledger": _ledger_table(wall, nodes, mean_end_s, float(cost_usd.mean())),
            "classes": classes,
            "worth": _worth(inputs, done),
            "sizes": closed_form_sizes(inputs),
            "simulated_sizes": simulated_sizes(inputs),
            "trials": Table.of(
                TRIALS,
                trial=np.arange(done.count),
                steps_completed=columns["steps_completed"].astype(np.int64),
                end_s=end_s,
                finished=columns["finished"] > 0,
                ettr=done.effective,
                lost_share=columns["lost_s"] / end_s,
                interruptions=columns["interruptions"].astype(np.int64),
                restarts=columns["restarts"].astype(np.int64),
            ),
            "stretches": (stretches := _stretches(outcome, cluster)),
        },
        timeline=_timeline(stretches),
        ledgers=(
            Ledger("wall time", "s", mean_end_s, wall_parts, MEANINGS),
            Ledger("node time", "node_s", whole_node_s, nodes, MEANINGS),
        ),
        why=_why(wall, mean_end_s, classes),
        notes=(
            *(() if done.count > 1 else ("one trial: more of them give intervals",)),
            "the table of sizes is the closed form for Poisson failures with spares enough and without fast tiers; "
            "everything else is simulated",
            NOT_MODELLED,
        ),
        intervals=intervals,
        headline=tuple(name for name in (*finish, *shown) if summary.get(name)),
        next_steps=("forerun plan {scenario}",),
    )


def _wall(columns: Mapping[str, Any]) -> dict[str, float]:
    """Mean wall time by line, the parts of restarts together."""
    wall = {}
    for line in LINES[:-2]:
        parts = PARTS if line == "restart" else (line,)
        wall[line] = math.fsum(float(columns[f"{part}_s"].mean()) for part in parts)
    return wall


def _estimates(done: ClusterTrials, inputs: Inputs, cost_usd: Any) -> dict[str, Estimate]:
    """Means over trials, with their intervals. cost_usd: float64[trials]."""
    scenario, cluster, columns = inputs.scenario, inputs.cluster, done.columns
    end_s = columns["end_s"]
    samples = columns["steps_completed"] * scenario.job.samples_per_step
    useful_gpu_h = columns["useful_node_s"] * cluster.gpus_per_node / 3600.0
    estimates = {
        "ettr": done.ettr,
        "steps_completed": Estimate.of(columns["steps_completed"]),
        "samples_per_s": ratio_estimate(samples, end_s),
        "interruptions_per_day": ratio_estimate(columns["interruptions"] * 86_400.0, end_s),
        "useful_gpu_h": Estimate.of(useful_gpu_h),
        "gpu_h": Estimate.of(end_s * cluster.nodes * cluster.gpus_per_node / 3600.0),
    }
    if scenario.prices.on_demand_usd_per_h:
        estimates["cost_usd"] = Estimate.of(cost_usd)
        if useful_gpu_h.sum() > 0:
            estimates["usd_per_useful_gpu_h"] = ratio_estimate(cost_usd, useful_gpu_h)
            estimates["usd_per_million_samples"] = ratio_estimate(cost_usd * 1e6, samples)
    if cluster.node_power_w:
        kwh = cluster.node_power_w / 3.6e6
        estimates["energy_kwh"] = Estimate.of((end_s * cluster.nodes - columns["repair_node_s"]) * kwh)
        estimates["useful_kwh"] = Estimate.of(columns["useful_node_s"] * kwh)
    for line in LINES[:-2]:
        parts = PARTS if line == "restart" else (line,)
        estimates[f"{line}_share"] = ratio_estimate(sum(columns[f"{part}_s"] for part in parts), end_s)
    for line in ("spare", "repair"):
        estimates[f"mean_{line}_nodes"] = ratio_estimate(columns[f"{line}_node_s"], end_s)
    estimates["restarts"] = Estimate.of(columns["restarts"])
    return estimates


def _ledger_table(
    wall: Mapping[str, float], nodes: Mapping[str, float], end_s: float, cost_usd: float
) -> Table:
    """The ledgers as a table, money split by node time."""
    wall_s, node_s = (np.array([spent.get(line, 0.0) for line in LINES]) for spent in (wall, nodes))
    return Table.of(
        LEDGER,
        line=np.array(LINES, object),
        wall_s=wall_s,
        share=wall_s / end_s,
        node_s=node_s,
        cost_usd=cost_usd * node_s / node_s.sum(),
    )


def _names(cluster: Cluster) -> tuple[str, ...]:
    """What may end a state, by the kernel's numbers."""
    return (*(one.name for one in cluster.failures), "growth", "maintenance")


def _class_table(done: ClusterTrials, cluster: Cluster) -> Table:
    """What each class cost, the most expensive first; growth and maintenance where they occurred."""
    mean, end_s = done.by_class.mean(axis=0), float(done.columns["end_s"].mean())
    names = _names(cluster)
    classes = len(cluster.failures)
    rows = [
        (
            name,
            86_400 * mean[i, 0] / end_s,
            86_400 * mean[i, 1] / end_s,
            mean[i, 2],
            mean[i, 3],
            (mean[i, 2] + mean[i, 3]) / end_s,
        )
        for i, name in enumerate(names)
        if i < classes or mean[i].sum() > 0
    ]
    return Table.of_rows(CLASSES, sorted(rows, key=lambda row: -row[-1]))


def _stretches(outcome: ClusterOutcome, cluster: Cluster) -> Table:
    """What the job did in trial 0."""
    names, entered = _names(cluster), outcome.log[outcome.log[:, 1] < 0]
    ends = np.append(entered[1:, 0], outcome.done.columns["end_s"][0])
    rows = [
        (STATES[int(-1 - code)], float(t_s), float(end_s), int(nodes), names[int(cause)] if t_s > 0 else "")
        for (t_s, code, nodes, cause), end_s in zip(entered, ends, strict=True)
        if end_s > t_s
    ]
    return Table.of_rows(STRETCHES, rows)


def _timeline(stretches: Table) -> Timeline:
    """The job of trial 0 on one track."""
    causes = tuple(sorted(set(stretches["cause"].tolist()) | {""}))
    return Timeline(
        entities=("job",),
        states=STATES,
        entity=np.zeros(len(stretches), np.int64),
        state=np.array([STATES.index(state) for state in stretches["state"]], np.int64),
        from_s=np.asarray(stretches["start_s"], np.float64),
        to_s=np.asarray(stretches["end_s"], np.float64),
        causes=causes,
        cause=np.array([causes.index(cause) for cause in stretches["cause"]], np.int64),
        label=np.array([f"{nodes} nodes" for nodes in stretches["nodes"]], object),
        groups=("job",),
    )


def _why(wall: Mapping[str, float], end_s: float, classes: Table) -> str:
    """The largest loss in a sentence, and the class that costs most."""
    advice = {
        "lost": "work rolled back; checkpoint more often",
        "restart": "restarts; make them shorter, or the failures rarer",
        "detection": "the wait until a failure is noticed; shorten time-outs",
        "waiting": "the wait for a repaired node; keep more spares",
        "stall": "checkpoints that block training; checkpoint less often",
        "maintenance": "planned maintenance",
    }
    worst = max(advice, key=lambda line: wall.get(line, 0.0))
    share = wall["useful"] / end_s
    if wall[worst] / end_s < 0.005:
        return f"{share:.1%} of the time is useful; nothing else takes half a percent"
    costly = (
        f"; of the classes, {classes['failure'][0]} costs most, {classes['share'][0]:.1%}"
        if len(classes)
        else ""
    )
    return f"{share:.1%} of the time is useful; the largest loss, {wall[worst] / end_s:.1%}, is {advice[worst]}{costly}"


# --------------------------------------------------------------------------- what a change is worth


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of the scenario that somebody could pay for.

    Parameters
    ----------
    name : in words.
    inputs : with the change.
    """

    name: str
    inputs: Inputs


def _worth(inputs: Inputs, done: ClusterTrials) -> Table:
    """What each change adds, by trials with the same failures, the largest first."""
    count = min(MOST_PAIRED, done.count)
    base = done.effective[:count]
    gpu_h_per_day = 24.0 * inputs.cluster.gpus
    rows = []
    for change in _changes(inputs):
        moved = cluster_trials(change.inputs, count).effective - base
        gain = Estimate.of(moved)
        rows.append(
            (
                change.name,
                gain.mean,
                gain.mean - gain.half95,
                gain.mean + gain.half95,
                gain.mean * gpu_h_per_day,
            )
        )
    return Table.of_rows(SENSITIVITY, sorted(rows, key=lambda row: -row[1]))


def _changes(inputs: Inputs) -> list[_Change]:
    """An hour more between failures, a minute less of restart and detection, one more spare, other intervals."""
    scenario, cluster, job = inputs.scenario, inputs.cluster, inputs.scenario.job
    changes: list[_Change] = []

    def changed(name: str, **parts: Any) -> None:
        after = scenario.with_(**parts)
        changes.append(
            _Change(
                name, replace(inputs, scenario=after, job=after.job.built(inputs.horizon_s, inputs.supply))
            )
        )

    if cluster.failures:
        mtbf_s = 1 / cluster.job_failures_per_s
        factor = mtbf_s / (mtbf_s + 3600.0)
        rarer = tuple(_scaled_rate(one, factor) for one in cluster.failures)
        changed("1 h more between failures of the job", fleet=cluster.with_(failures=rarer))
        waits = [max(0.0, one.detection_s - 60.0) for one in cluster.failures]
        if any(one.detection_s for one in cluster.failures):
            sooner = tuple(
                one.with_(detection_s=wait) for one, wait in zip(cluster.failures, waits, strict=True)
            )
            changed("detection 1 min sooner", fleet=cluster.with_(failures=sooner))
        if cluster.spares < cluster.job_nodes:
            changed("1 spare more", fleet=cluster.with_(spares=cluster.spares + 1))
    if job.pause_s > 0:
        factor = max(0.0, job.pause_s - 60.0) / job.pause_s
        changed("restart 1 min shorter", job=job.with_pause(factor))
    for tier in job.tiers:
        rest = tuple(other for other in job.tiers if other is not tier)
        changed(f"without checkpoints in {tier.name}", job=job.with_(tiers=rest))
    for words, factor in (("half the interval", 0.5), ("twice the interval", 2.0)):
        other = _other_interval(job, factor)
        if other is not None:
            changed(words, job=other)
    return changes


def _scaled_rate(one: Failures, factor: float) -> Failures:
    """A class that fails `factor` times as often."""
    if one.per_1000_node_days:
        return one.with_(per_1000_node_days=one.per_1000_node_days * factor)
    name = next(
        name for name in ("gpu_mtbf_s", "node_mtbf_s", "group_mtbf_s", "job_mtbf_s") if getattr(one, name)
    )
    return one.with_(**{name: getattr(one, name) / factor})


def _other_interval(job: JobSpec, factor: float) -> JobSpec | None:
    """The job with another interval; None where checkpoints are back to back, or no whole number of steps is left."""
    rule = job.snapshots
    if rule.rule == "every_seconds":
        return job.with_(snapshots=rule.with_(period_s=rule.period_s * factor))
    steps = round(rule.steps * factor)
    return job.with_(snapshots=rule.with_(steps=steps)) if rule.rule == "every_steps" and steps >= 1 else None
