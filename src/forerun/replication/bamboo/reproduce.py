"""Published results that this room regenerates, with the published numbers beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from forerun.domains.spot.engine import trials
from forerun.domains.spot.engine.estimates import Estimate
from forerun.domains.spot.engine.job import BackToBack, TrainingJob
from forerun.domains.spot.engine.membership import Membership
from forerun.domains.spot.engine.outlook import Observed
from forerun.domains.spot.engine.replay import replay
from forerun.domains.spot.inputs.recorded import of_membership
from forerun.domains.spot.policies.bamboo.ring import MENDED, HourlyFleet, run_ring
from forerun.domains.spot.policies.immediate import Immediate
from forerun.domains.spot.policies.lazy import Lazy
from forerun.domains.spot.policies.oobleck import Oobleck
from forerun.domains.spot.policies.varuna import Varuna
from forerun.domains.spot.policy import DeadlineJob, Setting, deadline_rules, growth_rules
from forerun.domains.spot.scenario.processes import (
    Burst,
    GeneratorStopped,
    Marks,
    Poisson,
    Tick,
    TickDefects,
    generate,
    tick_rows,
)
from forerun.domains.spot.traces import beside, statistics
from forerun.domains.spot.traces.measured_run import ROUNDED, RUN86, START_DELAY_S, model_run, read_run
from forerun.replication.bamboo import published
from forerun.replication.bamboo.tick_machine import AS_PUBLISHED, MEASURED, Switches, job_of, run_ticks
from forerun.replication.cant_be_late.bound import offline_bound
from forerun.replication.cant_be_late.traces import hourly_rate_trace, runs
from forerun.replication.oobleck.simulator import Checkpoints, ElasticJob, run_elastic
from forerun.result.figures import Axis, Figure
from forerun.result.reproduction import Progress, Reproduced, Reproduction, Row

NOTEBOOK_JOB = TrainingJob(
    depth=16,
    max_pipelines=4,
    step_s={16: 18.0, 32: 11.0, 48: 9.0, 64: 8.0},
    reconfig_s=88.0,
    prep_s=180.0,
    write_s=89.0,
    stall_s=0.0,
    checkpoint=BackToBack(),
    horizon_s=21_300.0,
)
LEVELS = (0.01, 0.02, 0.05, 0.1, 0.163, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
"""Removals, and additions, a minute."""
TRIALS = 20_000
HORIZON_S = 21_300.0
DEFECT_LEVELS = (0.05, 0.25, 0.5)
SEEDS = 12
"""Traces a level for the tick machine, and ..."""
GENERATED = 100
"""... fleets for its generator."""


def _data(name: str) -> Path:
    from forerun.data import dataset

    return dataset(f"spot/{name}")


# --------------------------------------------------------------------------- bamboo-notebook


def bamboo_notebook(progress: Progress) -> Reproduced:
    """The notebook's statistics, its tick machine against the exact semantics, and the question it asked."""
    base = "bamboo/full-64/full-64"
    traces = statistics.read_counts(_data(f"{base}-node-trace.csv"), _data(f"{base}-terminate-trace.csv"))
    rows = [
        Row(f"trace {name}", published.NOTEBOOK_PRINTED[name], value, meant, 1e-12, why)
        for name, value, meant, why in beside(traces)
    ]
    rows += [
        Row(f"stamps: {name}", None, as_filed, repaired)
        for name, (as_filed, repaired) in statistics.stamp_effects(traces).items()
    ]
    for p_per_min in DEFECT_LEVELS:
        progress(f"the tick machine, defect by defect, at {p_per_min} events/min")
        rows += _defect_rows(p_per_min)
    progress("the generator, defect by defect")
    rows += _generator_rows(traces)
    progress(f"{TRIALS} trials at each of {len(LEVELS)} levels")
    levels = {p: trials.run(NOTEBOOK_JOB, _level(p), Immediate(), trials=TRIALS) for p in LEVELS}
    for p, done in levels.items():
        rows += [
            Row(
                f"{line} share at {p} events/min",
                None,
                None,
                done.share(line).mean,
                note=f"±{done.share(line).half95:.1e}",
            )
            for line in ("useful", "lost", "reconfig", "idle")
        ]
        rows.append(
            Row(f"steps at {p} events/min", None, None, done.steps.mean, note=f"±{done.steps.half95:.1f}")
        )
    note = (
        "the notebook's last frame (704 rows) is of an unseeded run of an older cell and is not chased; "
        "its simulation never answered its question, as it stops at world size 0"
    )
    progress("growth rules against immediate growth")
    growth = {stall_s: _growth(stall_s) for stall_s in (0.0, RUN86.stall_s)}
    rows += [
        Row(
            f"{rule} against immediate at {p} events/min, stall {stall_s:.2g} s",
            None,
            None,
            gain.mean,
            note=f"±{gain.half95:.1e}, share of completed steps, paired",
        )
        for stall_s, found in growth.items()
        for (rule, p), gain in found.items()
    ]
    pictures = (_sensitivity(levels), _growth_figure(growth[RUN86.stall_s]), _defects_figure(rows))
    return Reproduced(tuple(rows), pictures, (note,))


def _defects_figure(rows: Sequence[Row]) -> Figure:
    """What each defect of the tick machine does to the completed steps, by level."""
    data: dict[str, list[Any]] = {"defect": [], "effect": [], "level": []}
    for p_per_min in DEFECT_LEVELS:
        by_name = {row.name: row for row in rows}
        for name in (*ALONE, ALL_DEFECTS):
            row = by_name[f"{name}: steps at {p_per_min} events/min"]
            data["defect"].append(name)
            data["effect"].append((row.compat or 0.0) / (row.corrected or 1.0) - 1)
            data["level"].append(f"{p_per_min:g} events/min")
    return Figure(
        id="defects",
        title="What each defect of the tick machine does",
        kind="points",
        x=Axis("defect", "defect, alone"),
        y=Axis("effect", "change of the completed steps"),
        data=data,
        series="level",
        order=tuple(f"{p:g} events/min" for p in DEFECT_LEVELS),
        caption=f"Against none of them, on the same {SEEDS} traces a level.",
    )


GROWTH_LEVELS = (0.01, 0.05, 0.1, 0.163, 0.25, 0.5, 1.0)


def _growth(stall_s: float) -> dict[tuple[str, float], Estimate]:
    """Gain of each growth rule in completed steps over immediate growth on the same fleets, as a share of its mean."""
    job, found = replace(NOTEBOOK_JOB, stall_s=stall_s), {}
    for p in GROWTH_LEVELS:
        base = trials.run(job, _level(p), Immediate(), trials=TRIALS).columns["steps_completed"]
        for name in GROWTH_RULES:
            steps = trials.run(job, _level(p), growth_rules().get(name)(), trials=TRIALS).columns[
                "steps_completed"
            ]
            found[name, p] = Estimate.of((steps - base) / base.mean())
    return found


GROWTH_RULES = ("lazy", "lazy2", "drain", "hazard", "hazard_drain")


def _growth_figure(found: dict[tuple[str, float], Estimate]) -> Figure:
    data: dict[str, list[Any]] = {"p": [], "gain": [], "low": [], "high": [], "rule": []}
    for (rule, p), gain in found.items():
        data["p"].append(p)
        data["gain"].append(gain.mean)
        data["low"].append(gain.mean - gain.half95)
        data["high"].append(gain.mean + gain.half95)
        data["rule"].append(rule)
    return Figure(
        id="growth",
        title="What growth rules are worth against growing at once",
        kind="line",
        x=Axis("p", "removals, and additions, a minute", "1/min", log=True),
        y=Axis("gain", "gain in completed steps"),
        data=data,
        series="rule",
        series_label="rule",
        low="low",
        high="high",
        order=GROWTH_RULES,
        caption=f"{TRIALS} fleets a level, the same for every rule; the band is the 95 % interval of the paired mean.",
    )


def _level(p_per_min: float) -> Poisson:
    return Poisson(removals_per_min=p_per_min, adds_per_min=p_per_min, add_burst=Burst(probability=0.058))


ALONE: dict[str, dict[str, Any]] = {
    "extend": {"extend": True},
    "strict": {"strict": True},
    "initial0": {"initial0": True},
    "row_ws": {"row_ws": True},
    "tick": {"tick_s": 5.0},
    "rounded": {"rounded": True},
    "no_stall": {"no_stall": True},
}
"""Each defect of the tick machine by itself; the others are mended."""
ALL_DEFECTS = "all defects, without missing_ws"


def _defect_rows(p_per_min: float) -> list[Row]:
    """Mean completed steps with each defect alone, and with all, against none, on the same traces."""
    process = Tick(removals_per_min=p_per_min, adds_per_min=p_per_min)
    fleets = [generate(process, seed=seed, horizon_s=HORIZON_S) for seed in range(1, SEEDS + 1)]

    def mean_steps(switches: Switches) -> float:
        return fmean(run_ticks(fleet, HORIZON_S, switches).final_step for fleet in fleets)

    none = mean_steps(MEASURED)
    settings = {name: replace(MEASURED, **changed) for name, changed in ALONE.items()}
    settings[ALL_DEFECTS] = replace(AS_PUBLISHED, missing_ws=False)
    rows = []
    for name, switches in settings.items():
        steps = mean_steps(switches)
        note = f"{steps / none - 1:+.1%}, means of {SEEDS} traces"
        rows.append(Row(f"{name}: steps at {p_per_min} events/min", None, steps, none, note=note))
    job = job_of(MEASURED)
    exact = replace(
        NOTEBOOK_JOB,
        step_s=job.step_s,
        reconfig_s=job.reconfig_s,
        write_s=job.write_s,
        stall_s=job.stall_s,
    )
    steps = fmean(replay(fleet, exact, Immediate(), Observed()).steps_completed for fleet in fleets)
    rows.append(
        Row(
            f"none: steps at {p_per_min} events/min", None, none, steps, note="corrected: the exact simulator"
        )
    )
    many = (generate(process, seed=seed, horizon_s=HORIZON_S) for seed in range(GENERATED))
    dead = sum(run_ticks(fleet, HORIZON_S).error_world_size is not None for fleet in many)
    name = f"missing_ws: runs stopped by a KeyError at {p_per_min} events/min"
    return [*rows, Row(name, None, dead, 0.0, note=f"of {GENERATED}")]


def _generator_rows(traces: statistics.CountTraces) -> list[Row]:
    """Fleets of the fitted process with each defect of the generator alone: removals, nodes, and steps of the job."""
    values = statistics.as_the_notebook(traces)
    process = Tick(
        removals_per_min=values["chance_preempt_this_minute"],
        adds_per_min=values["chance_add_this_minute"],
        removal_batch=Marks(mean=values["preempt_count_mean"], std=values["preempt_count_std"]),
        add_batch=Marks(mean=values["regular_add_mean"], std=values["regular_add_std"]),
        add_burst=Burst(probability=values["probability_big_add"], low=11, high=32),
    )
    mended = TickDefects(rate_over_12=False, marks=False)
    drifting = replace(mended, marks=True)
    none, marked = _generated(process, mended), _generated(process, drifting)
    rows = []
    for name in ("sample_set", "over_ask", "clamp_hole", "rate_over_12", "marks", "big_share"):
        # Only the rounded normals round to 0, so the hole beside the cap is shown on those.
        base, before = (mended, none) if name != "clamp_hole" else (drifting, marked)
        found = _generated(process, replace(base, **{name: True}))
        if name in ("sample_set", "over_ask"):
            note = f"of {GENERATED}; runs that go on are as without it"
            rows.append(
                Row(f"{name}: runs stopped by an error", None, found.stopped, none.stopped, note=note)
            )
            continue
        note = f"means of {GENERATED} fleets of the fitted process"
        for what in ("removals/min", "most nodes", "mean nodes", "steps"):
            rows.append(Row(f"{name}: {what}", None, found.means[what], before.means[what], note=note))
    return rows


@dataclass(frozen=True, slots=True)
class _Generated:
    stopped: int
    means: dict[str, float]


def _generated(process: Tick, defects: TickDefects) -> _Generated:
    stopped, figures = 0, []
    for seed in range(GENERATED):
        try:
            fleet = Membership.from_rows(tick_rows(process, seed, HORIZON_S, defects))
        except GeneratorStopped:
            stopped += 1
            continue
        seen = statistics.fleet_statistics(fleet, HORIZON_S)
        steps = replay(fleet, NOTEBOOK_JOB, Immediate(), Observed()).steps_completed
        figures.append((seen.removes / HORIZON_S * 60, seen.max_nodes, seen.mean_nodes, steps))
    names = ("removals/min", "most nodes", "mean nodes", "steps")
    means = [fmean(column) for column in zip(*figures, strict=True)] if figures else [0.0] * len(names)
    return _Generated(stopped, dict(zip(names, means, strict=True)))


def _sensitivity(levels: dict[float, trials.Trials]) -> Figure:
    data: dict[str, list[Any]] = {"p": [], "share": [], "low": [], "high": [], "line": []}
    for p, done in levels.items():
        for line in ("useful", "lost", "reconfig", "idle"):
            share = done.share(line)
            data["p"].append(p)
            data["share"].append(share.mean)
            data["low"].append(share.mean - share.half95)
            data["high"].append(share.mean + share.half95)
            data["line"].append(line)
    return Figure(
        id="sensitivity",
        title="Where the time goes at each level of preemption",
        kind="line",
        x=Axis("p", "removals, and additions, a minute", "1/min", log=True),
        y=Axis("share", "share of wall time"),
        data=data,
        series="line",
        series_label="time",
        low="low",
        high="high",
        order=("useful", "lost", "reconfig", "idle"),
        caption=f"{TRIALS:,} trials of 355 minutes a level; the band is the 95 % interval of the mean.",
    )


# --------------------------------------------------------------------------- bamboo-run86


def bamboo_run86(progress: Progress) -> Reproduced:
    """The real 2.66-hour run: measured against the model, and against the notebook's model."""
    progress("reading the run's logs")
    run = read_run(_data("bamboo/run-86/reconfig.csv").parent)
    model = model_run(run, run.profile, delay_s=START_DELAY_S)
    notebook = model_run(run, ROUNDED)
    rows = [
        Row("steps executed", run.executed, None, model.total_executed, 0.015 * run.executed),
        Row(
            "steps retained through the last reconfiguration",
            run.retained,
            None,
            model.total_retained,
            0.05 * run.retained,
        ),
        Row(
            "steps executed, notebook's profile",
            run.executed,
            notebook.total_executed,
            None,
            note="rounded, no stall",
        ),
        Row(
            "steps retained, notebook's profile",
            run.retained,
            notebook.total_retained,
            None,
            note="rounded, no stall",
        ),
    ]
    measured = run.ledger()
    rows += [
        Row(f"{line} share", seconds / run.total_s, None, model.ledger_s[line] / run.total_s, 0.03)
        for line, seconds in measured.items()
    ]
    rows += [
        Row(
            f"steps executed in segment {i}",
            segment.executed,
            None,
            model.executed[i],
            note=f"{segment.world_size} nodes",
        )
        for i, segment in enumerate(run.segments)
    ]
    data: dict[str, list[Any]] = {"of": [], "line": [], "share": []}
    for label, ledger in (
        ("measured", measured),
        ("model", model.ledger_s),
        ("notebook's model", notebook.ledger_s),
    ):
        for line, seconds in ledger.items():
            data["of"].append(label)
            data["line"].append(line)
            data["share"].append(seconds / run.total_s)
    figure = Figure(
        id="run86-ledger",
        title="A measured run and two models of it",
        kind="stacked_bar",
        x=Axis("of", "run"),
        y=Axis("share", "share of wall time"),
        data=data,
        series="line",
        series_label="time",
        order=("useful", "stall", "lost", "reconfig", "other"),
        caption="Models are driven by the run's own segments; the notebook leaves out that checkpoints block training.",
    )
    return Reproduced(tuple(rows), (figure,))


# --------------------------------------------------------------------------- bamboo-table


def bamboo_table(progress: Progress) -> Reproduced:
    """Bamboo's simulator on BERT: means over 60 seeds at five hourly removal probabilities."""
    job, rows = published.BAMBOO_JOBS["BERT"], []
    drawn: dict[str, list[Any]] = {"p": [], "samples_per_s": [], "of": []}
    for p, figures in published.BAMBOO_TABLE.items():
        progress(f"60 runs at {p} an hour")
        printed, mended = [], []
        for seed in range(1, 61):
            fleet = HourlyFleet(remove=[p] * 24, seed=seed)
            goal = published.BAMBOO_GOAL_STEPS
            printed.append(run_ring(job, fleet, goal_steps=goal).summary(published.SPOT_USD_PER_H))
            if seed <= 10:
                one = run_ring(job, fleet, defects=MENDED, goal_steps=goal)
                mended.append(one.summary(published.SPOT_USD_PER_H) | {"average_instances": one.mean_nodes})
        rows += [
            Row(
                f"{name} at {p}/h",
                value,
                fmean(run[name] for run in printed),
                fmean(run[name] for run in mended),
                5.1e-5,
                "corrected: mean of seeds 1 to 10",
            )
            for name, value in figures.items()
        ]
        for label, runs_of in (("as published", printed), ("mended", mended)):
            made = fmean(run["average_performance"] for run in runs_of)
            for column, shown in zip(drawn, (p, made, label), strict=True):
                drawn[column].append(shown)
    figure = Figure(
        id="bamboo-throughput",
        title="BERT on a ring with redundant stages",
        kind="line",
        x=Axis("p", "chance that a node vanishes within an hour", "", log=True),
        y=Axis("samples_per_s", "throughput", "samples/s"),
        data=drawn,
        series="of",
        order=("as published", "mended"),
        caption="Means over 60 seeds, and over 10 with the simulator's defects mended.",
    )
    return Reproduced(tuple(rows), (figure,))


# --------------------------------------------------------------------------- oobleck-throughput


def oobleck_throughput(progress: Progress) -> Reproduced:
    """The Oobleck artefact: throughput of four models on six traces under Oobleck and Varuna."""
    from forerun.trace.reader import read_trace

    rows = []
    drawn: dict[str, dict[str, list[Any]]] = {
        model: {"minutes": [], "samples_per_s": [], "system": []} for model in published.ELASTIC_JOBS
    }
    for name in published.ELASTIC_TRACES:
        progress(f"trace {name}")
        fleet = of_membership(read_trace(_data(f"oobleck/{name}.csv"), "spot_membership"))
        changes = [(round(t_s * 1000), is_add, node) for t_s, is_add, node in fleet.rows()]
        # The artefact takes additions of an instant in file order and has no removal beside them at 0.
        for model, (oobleck, varuna, checkpoint_ms) in published.ELASTIC_JOBS.items():
            every = published.VARUNA_EVERY_STEPS
            free = Checkpoints(every_steps=every, checkpoint_ms=checkpoint_ms, free=True)
            paid = Checkpoints(every_steps=every, checkpoint_ms=checkpoint_ms)
            done = {
                "oobleck": run_elastic(oobleck, changes),
                "varuna": run_elastic(varuna, changes, paid),
                "varuna_nockpt": run_elastic(varuna, changes, free),
            }
            meant = {
                "oobleck": _corrected_rate(fleet, oobleck, 0, Oobleck(pause_s=oobleck.pause_ms / 1000)),
                "varuna": _corrected_rate(fleet, varuna, checkpoint_ms, Varuna(every_steps=every)),
            }
            rows += [
                Row(
                    f"{system} {model} {name} samples/s",
                    published.ELASTIC_RESULTS[system][model][name],
                    run.samples_per_s,
                    meant.get(system),
                    1e-6,
                )
                for system, run in done.items()
            ]
            minutes = float(name[:-1]) * (60 if name.endswith("h") else 1)
            for system, rate in (
                *((system, run.samples_per_s) for system, run in done.items()),
                *((f"{system}, corrected", rate) for system, rate in meant.items()),
            ):
                for column, shown in zip(drawn[model], (minutes, rate, system), strict=True):
                    drawn[model][column].append(shown)
    pictures = tuple(_oobleck_figure(model, data) for model, data in drawn.items())
    note = "corrected: the room's exact semantics; the artefact lets steps complete during pauses"
    return Reproduced(tuple(rows), pictures, (note,))


def _oobleck_figure(model: str, data: dict[str, list[Any]]) -> Figure:
    return Figure(
        id=f"elastic-{model}",
        title=f"{model}: throughput by how often a node fails",
        kind="line",
        x=Axis("minutes", "time between failures", "min", log=True),
        y=Axis("samples_per_s", "throughput", "samples/s"),
        data=data,
        series="system",
        order=("oobleck", "varuna_nockpt", "varuna", "oobleck, corrected", "varuna, corrected"),
        caption="As the artefact's simulators have it, and by the room's exact semantics (corrected).",
    )


def _corrected_rate(
    fleet: Membership, job: ElasticJob, checkpoint_ms: int, policy: Oobleck | Varuna
) -> float:
    """Samples a second until the last row of the trace, by the exact semantics."""
    sizes = range(job.min_nodes, max(job.step_ms) + 1)
    exact = TrainingJob(
        depth=1,
        max_pipelines=max(job.step_ms),
        min_pipelines=job.min_nodes,
        step_s={n: job.nearest(job.step_ms, n) / 1000 for n in sizes},
        reconfig_s=job.pause_ms / 1000,
        prep_s=job.ready_ms / 1000,
        write_s=checkpoint_ms / 1000,
        stall_s=0.0,
        checkpoint=BackToBack(),
        horizon_s=fleet.end_s,
        warm_start=False,
    )
    setting = Setting(fleet=fleet, job=exact, growth=Lazy(), outlook=Observed())
    done = policy.replay(setting)
    return done.steps_completed * job.samples_per_step / done.end_s


# --------------------------------------------------------------------------- cant-be-late


def cant_be_late(progress: Progress) -> Reproduced:
    """Deadline policies on the paper's traces: 48 hours of work within 52, and the best in hindsight."""
    job, patient = DeadlineJob(), DeadlineJob(deadline_s=1000 * 3600.0)
    rows: list[Row] = []
    drawn: dict[str, list[Any]] = {"policy": [], "rate": [], "cost_usd": []}
    for policy, by_rate in published.DEADLINE_COSTS.items():
        progress(policy)
        for rate, (mean, count) in by_rate.items():
            late = 0
            if policy == "offline_bound":
                found = [
                    offline_bound(job, hourly_rate_trace(rate, 314, job.tick_s, i)).cost_usd
                    for i in range(count)
                ]
            else:
                one = patient if policy in ("spot_only", "on_demand") else job
                rule = deadline_rules().get(policy)()
                done = list(runs(one, rule, rate, count, until_s=150 * 3600.0))
                found = [run.cost_usd for run in done]
                late = sum(run.finish_s > job.deadline_s for run in done)
            rows.append(
                Row(f"{policy} at {rate}/h mean cost usd", mean, fmean(found), None, 1e-6, f"{count} traces")
            )
            if policy in ("greedy", "uniform_progress"):
                rows.append(
                    Row(f"{policy} at {rate}/h deadlines missed", 0.0, late, None, 1e-6, "by design none")
                )
            for column, value in zip(drawn, (policy, rate, fmean(found)), strict=True):
                drawn[column].append(value)
    figure = Figure(
        id="deadline-costs",
        title="What 48 hours of work within 52 cost",
        kind="line",
        x=Axis("rate", "preemptions an hour, as a probability", "1/h"),
        y=Axis("cost_usd", "mean cost", "$"),
        data=drawn,
        series="policy",
        order=tuple(published.DEADLINE_COSTS),
        caption="spot_only has no deadline; offline_bound knows the trace. Means over the paper's traces.",
    )
    return Reproduced(tuple(rows), (figure,))


REPRODUCTIONS = (
    Reproduction(
        "bamboo-notebook",
        "Idle, lost and reconfiguring time at different levels of preemption",
        "Bamboo's authors, simulation notebook of 2021 (uclasystem/bamboo, commit c5a1060)",
        bamboo_notebook,
        datasets=("bamboo_notebook",),
        minutes=0.2,
    ),
    Reproduction(
        "bamboo-run86",
        "A measured elastic run on 64 nodes: predicted against measured",
        "Bamboo's authors, profiling run 86 (uclasystem/bamboo, commit c5a1060)",
        bamboo_run86,
        datasets=("bamboo_notebook",),
    ),
    Reproduction(
        "bamboo-table",
        "Bamboo's simulator: BERT under five removal probabilities",
        "Thorpe et al., Bamboo, NSDI'23, the simulator published with the paper",
        bamboo_table,
        minutes=0.7,
    ),
    Reproduction(
        "oobleck-throughput",
        "Oobleck and Varuna: throughput under six rates of failure",
        "Jang et al., Oobleck, SOSP'23, the artefact's simulators",
        oobleck_throughput,
        datasets=("oobleck",),
        minutes=0.2,
    ),
    Reproduction(
        "cant-be-late",
        "Spot under a deadline: greedy, uniform progress, on-demand and the bound",
        "Wu et al., Can't be late, NSDI'24",
        cant_be_late,
        minutes=0.7,
    ),
)
