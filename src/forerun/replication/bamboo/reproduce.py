"""Bamboo's published results, regenerated, with the published numbers beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from forerun.core.data.fetch import dataset
from forerun.core.result.figures import Axis, Figure
from forerun.replication.bamboo import published
from forerun.replication.bamboo.generator import GeneratorBugs, GeneratorStopped, tick_rows
from forerun.replication.bamboo.published import ROUNDED, RUN86
from forerun.replication.bamboo.ring import NO_BUGS, HourlyFleet, run_ring
from forerun.replication.bamboo.tick_machine import AS_PUBLISHED, MEASURED, Switches, job_of, run_ticks
from forerun.replication.reproduction import Progress, Reproduced, Reproduction, Row, from_points
from forerun.spot.engine import trials
from forerun.spot.engine.estimates import Estimate
from forerun.spot.engine.job import TrainingJob
from forerun.spot.engine.membership import Membership
from forerun.spot.engine.outlook import Observed
from forerun.spot.engine.replay import replay
from forerun.spot.policies.immediate import Immediate
from forerun.spot.policy import growth_rules
from forerun.spot.scenario.batches import Burst, Marks
from forerun.spot.scenario.processes import Poisson, Tick, generate
from forerun.spot.traces import statistics
from forerun.spot.traces.measured_run import START_DELAY_S, model_run, read_run
from forerun.spot.traces.tables import beside

NOTEBOOK_JOB = TrainingJob(
    depth=16,
    max_pipelines=4,
    step_s={16: 18.0, 32: 11.0, 48: 9.0, 64: 8.0},
    reconfig_s=88.0,
    prep_s=180.0,
    write_s=89.0,
    stall_s=0.0,
    horizon_s=21_300.0,
)
LEVELS = (0.01, 0.02, 0.05, 0.1, 0.163, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
"""Removals, and additions, a minute."""
#: the axis of those levels
LEVEL = Axis("p", "removals, and additions, a minute", "1/min", log=True)
#: what the time of a run goes to
LINES = ("useful", "lost", "reconfig", "idle")
TRIALS = 20_000
HORIZON_S = 21_300.0
DEFECT_LEVELS = (0.05, 0.25, 0.5)
SEEDS = 12
"""Traces a level for the tick machine, and ..."""
GENERATED = 100
"""... fleets for its generator."""


# --------------------------------------------------------------------------- bamboo-notebook


def stamp_effects(traces: statistics.CountTraces) -> dict[str, tuple[float, float]]:
    """What the notebook's time stamps do, as (with them, repaired): its switch `stamps`.

    Additions carry the time of the row before them; terminations after midnight keep the date of the day before; the
    operator's teardown counts as a loss.

    Parameters
    ----------
    traces : the counts and terminations as filed.

    Returns
    -------
    Pairs by the name of the quantity.
    """
    steps, as_filed = np.diff(traces.counts), np.diff(traces.termination_s)
    meant = statistics.corrected(traces)
    return {
        "additions stamped too early by, s": (fmean(np.diff(traces.count_s)[steps > 0].tolist()), 0.0),
        "mean gap of terminations, s": (float(as_filed.mean()), meant.mean_gap_s),
        "shortest gap of terminations, s": (float(as_filed.min()), float(np.diff(meant.removal_s).min())),
        "nodes lost by falls of the count": (float(-steps[steps < 0].sum()), float(traces.seen_lost)),
    }


def bamboo_notebook(progress: Progress) -> Reproduced:
    """The notebook's statistics, its tick machine against the exact semantics, and the question it asked.

    Runs every known bug of the tick machine and of the generator alone, then `TRIALS` trials at each level of `LEVELS`
    and the growth rules against immediate growth.

    Parameters
    ----------
    progress : called with a message at each step.

    Raises
    ------
    DataError : the notebook's traces are missing.
    """
    base = "bamboo/full-64/full-64"
    traces = statistics.read_counts(
        dataset(f"spot/{base}-node-trace.csv"), dataset(f"spot/{base}-terminate-trace.csv")
    )
    rows = [
        Row(f"trace {name}", published.NOTEBOOK_PRINTED[name], value, meant, 1e-12, why)
        for name, value, meant, why in beside(traces)
    ]
    rows += [
        Row.unpublished(f"stamps: {name}", as_filed, repaired)
        for name, (as_filed, repaired) in stamp_effects(traces).items()
    ]
    for p_per_min in DEFECT_LEVELS:
        progress(f"the tick machine, defect by defect, at {p_per_min} events/min")
        rows += _defect_rows(p_per_min)
    progress("the generator, defect by defect")
    rows += _generator_rows(traces)
    progress(f"{TRIALS} trials at each of {len(LEVELS)} levels")
    levels = {p: trials.run(NOTEBOOK_JOB, _level(p), Immediate(), trials=TRIALS) for p in LEVELS}
    for p, done in levels.items():
        for line in LINES:
            share = done.share(line)
            name = f"{line} share at {p} events/min"
            rows.append(Row.unpublished(name, corrected=share.mean, note=f"±{share.half95:.1e}"))
        steps, name = done.steps, f"steps at {p} events/min"
        rows.append(Row.unpublished(name, corrected=steps.mean, note=f"±{steps.half95:.1f}"))
    note = (
        "the notebook's last frame (704 rows) is of an unseeded run of an older cell and is not chased; "
        "its simulation never answered its question, as it stops at world size 0"
    )
    progress("growth rules against immediate growth")
    growth = {stall_s: _growth(stall_s) for stall_s in (0.0, RUN86.stall_s)}
    for stall_s, gains in growth.items():
        for (rule, p), gain in gains.items():
            name = f"{rule} against immediate at {p} events/min, stall {stall_s:.2g} s"
            note_95 = f"±{gain.half95:.1e}, share of completed steps, paired"
            rows.append(Row.unpublished(name, corrected=gain.mean, note=note_95))
    pictures = (_sensitivity(levels), _growth_figure(growth[RUN86.stall_s]), _defects_figure(rows))
    return Reproduced(tuple(rows), pictures, (note,))


def _defects_figure(rows: Sequence[Row]) -> Figure:
    """What each defect of the tick machine does to the completed steps, by level."""
    by_name = {row.name: row for row in rows}
    points = []
    for p_per_min in DEFECT_LEVELS:
        for name in (*ALONE, ALL_DEFECTS):
            row = by_name[f"{name}: steps at {p_per_min} events/min"]
            effect = (row.compat or 0.0) / (row.corrected or 1.0) - 1
            points.append((name, effect, f"{p_per_min:g} events/min"))
    return Figure.of(
        "points",
        "defects",
        "What each defect of the tick machine does",
        from_points(("defect", "effect", "level"), points),
        x=Axis("defect", "defect, alone"),
        y=Axis("effect", "change of the completed steps"),
        series="level",
        order=tuple(f"{p:g} events/min" for p in DEFECT_LEVELS),
        caption=f"Against none of them, on the same {SEEDS} traces a level.",
    )


GROWTH_LEVELS = (0.01, 0.05, 0.1, 0.163, 0.25, 0.5, 1.0)


def _growth(stall_s: float) -> dict[tuple[str, float], Estimate]:
    """Gain of each growth rule in completed steps over immediate growth on the same fleets, as a share of its mean."""
    job, gains = replace(NOTEBOOK_JOB, stall_s=stall_s), {}
    for p in GROWTH_LEVELS:
        base = trials.run(job, _level(p), Immediate(), trials=TRIALS).columns["steps_completed"]
        for name in GROWTH_RULES:
            steps = trials.run(job, _level(p), growth_rules().get(name)(), trials=TRIALS).columns[
                "steps_completed"
            ]
            gains[name, p] = Estimate.of((steps - base) / base.mean())
    return gains


GROWTH_RULES = ("lazy", "lazy2", "drain", "hazard", "hazard_drain")


def _growth_figure(gains: dict[tuple[str, float], Estimate]) -> Figure:
    """The gain of each growth rule against the level of preemption, with 95 % bands.

    Parameters
    ----------
    gains : by (rule, removals a minute), as shares of the steps under immediate growth.
    """
    return Figure.of(
        "line",
        "growth",
        "What growth rules are worth against growing at once",
        from_points(
            ("p", "gain", "low", "high", "rule"),
            [(p, *_band(gain), rule) for (rule, p), gain in gains.items()],
        ),
        x=LEVEL,
        y=Axis("gain", "gain in completed steps"),
        series="rule",
        series_label="rule",
        order=GROWTH_RULES,
        caption=f"{TRIALS} fleets a level, the same for every rule; the band is the 95 % interval of the paired mean.",
    )


def _band(estimate: Estimate) -> tuple[float, float, float]:
    """The mean and the ends of its 95 % interval."""
    return estimate.mean, estimate.mean - estimate.half95, estimate.mean + estimate.half95


def _level(p_per_min: float) -> Poisson:
    """The fleet process of one level: as many removals as additions a minute, and rare large additions."""
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
    """Mean completed steps with each defect alone, and with all, against none, on the same traces.

    Also the machine without defects beside the exact simulator, and how many runs the notebook's KeyError stops.

    Parameters
    ----------
    p_per_min : removals, and additions, a minute.
    """
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
        rows.append(Row.unpublished(f"{name}: steps at {p_per_min} events/min", steps, none, note))
    job = job_of(MEASURED)
    measured = {name: getattr(job, name) for name in ("step_s", "reconfig_s", "write_s", "stall_s")}
    exact = replace(NOTEBOOK_JOB, **measured)
    steps = fmean(replay(fleet, exact, Immediate(), Observed()).steps_completed for fleet in fleets)
    name = f"none: steps at {p_per_min} events/min"
    rows.append(Row.unpublished(name, none, steps, "corrected: the exact simulator"))
    many = (generate(process, seed=seed, horizon_s=HORIZON_S) for seed in range(GENERATED))
    dead = sum(run_ticks(fleet, HORIZON_S).error_world_size is not None for fleet in many)
    name = f"missing_ws: runs stopped by a KeyError at {p_per_min} events/min"
    return [*rows, Row.unpublished(name, dead, 0.0, f"of {GENERATED}")]


def _generator_rows(traces: statistics.CountTraces) -> list[Row]:
    """Fleets of the fitted process with each defect of the generator alone: removals, nodes, and steps of the job.

    Parameters
    ----------
    traces : the counts from which the notebook fits its process.
    """
    values = statistics.as_the_notebook(traces)
    process = Tick(
        removals_per_min=values["chance_preempt_this_minute"],
        adds_per_min=values["chance_add_this_minute"],
        removal_batch=Marks(mean=values["preempt_count_mean"], std=values["preempt_count_std"]),
        add_batch=Marks(mean=values["regular_add_mean"], std=values["regular_add_std"]),
        add_burst=Burst(probability=values["probability_big_add"], low=11, high=32),
    )
    mended = GeneratorBugs(rate_over_12=False, marks=False)
    drifting = replace(mended, marks=True)
    none, marked = _generated(process, mended), _generated(process, drifting)
    rows = []
    for name in ("sample_set", "over_ask", "clamp_hole", "rate_over_12", "marks", "big_share"):
        # Only the rounded normals round to 0, so the hole beside the cap is shown on those.
        base, before = (mended, none) if name != "clamp_hole" else (drifting, marked)
        alone = _generated(process, replace(base, **{name: True}))
        if name in ("sample_set", "over_ask"):
            note = f"of {GENERATED}; runs that go on are as without it"
            what = f"{name}: runs stopped by an error"
            rows.append(Row.unpublished(what, alone.stopped, none.stopped, note))
            continue
        note = f"means of {GENERATED} fleets of the fitted process"
        for what in OF_FLEETS:
            rows.append(Row.unpublished(f"{name}: {what}", alone.means[what], before.means[what], note))
    return rows


#: what is averaged over generated fleets
OF_FLEETS = ("removals/min", "most nodes", "mean nodes", "steps")


@dataclass(frozen=True, slots=True)
class _Generated:
    """Fleets whose generation an error stopped, and the means of the others by `OF_FLEETS`."""

    stopped: int
    means: dict[str, float]


def _generated(process: Tick, defects: GeneratorBugs) -> _Generated:
    """What `GENERATED` fleets of a process give, seed by seed, and how many the generator fails to make.

    Parameters
    ----------
    process : the fitted process.
    defects : the generator's known bugs.
    """
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
    means = [fmean(column) for column in zip(*figures, strict=True)] if figures else [0.0] * len(OF_FLEETS)
    return _Generated(stopped, dict(zip(OF_FLEETS, means, strict=True)))


def _sensitivity(levels: dict[float, trials.Trials]) -> Figure:
    """Where the time goes at each level of preemption, with 95 % bands.

    Parameters
    ----------
    levels : the trials by removals (and additions) a minute.
    """
    points = [(p, *_band(done.share(line)), line) for p, done in levels.items() for line in LINES]
    return Figure.of(
        "line",
        "sensitivity",
        "Where the time goes at each level of preemption",
        from_points(("p", "share", "low", "high", "line"), points),
        x=LEVEL,
        y=Axis("share", "share of wall time"),
        series="line",
        series_label="time",
        order=LINES,
        caption=f"{TRIALS:,} trials of 355 minutes a level; the band is the 95 % interval of the mean.",
    )


# --------------------------------------------------------------------------- bamboo-run86


def bamboo_run86(progress: Progress) -> Reproduced:
    """The real 2.66-hour run: measured against the model, and against the notebook's model.

    Both models are driven by the segments of the run itself. The rows compare steps executed, steps retained and the
    share of wall time of each line of the ledger.

    Parameters
    ----------
    progress : called with a message at each step.

    Raises
    ------
    DataError : the logs of run 86 are missing.
    """
    progress("reading the run's logs")
    run = read_run(dataset("spot/bamboo/run-86/reconfig.csv").parent)
    model = model_run(run, run.profile, delay_s=START_DELAY_S)
    notebook = model_run(run, ROUNDED)
    through, rounded = "steps retained through the last reconfiguration", "rounded, no stall"
    rows = [
        Row("steps executed", run.executed, None, model.total_executed, 0.015 * run.executed),
        Row(through, run.retained, None, model.total_retained, 0.05 * run.retained),
        Row("steps executed, notebook's profile", run.executed, notebook.total_executed, None, note=rounded),
        Row("steps retained, notebook's profile", run.retained, notebook.total_retained, None, note=rounded),
    ]
    measured = run.ledger()
    rows += [
        Row(f"{line} share", seconds / run.total_s, None, model.ledger_s[line] / run.total_s, 0.03)
        for line, seconds in measured.items()
    ]
    for i, segment in enumerate(run.segments):
        note = f"{segment.world_size} nodes"
        rows.append(
            Row(f"steps executed in segment {i}", segment.executed, None, model.executed[i], note=note)
        )
    ledgers = {"measured": measured, "model": model.ledger_s, "notebook's model": notebook.ledger_s}
    points = [
        (label, line, seconds / run.total_s)
        for label, ledger in ledgers.items()
        for line, seconds in ledger.items()
    ]
    figure = Figure.of(
        "stacked_bar",
        "run86-ledger",
        "A measured run and two models of it",
        from_points(("of", "line", "share"), points),
        x=Axis("of", "run"),
        y=Axis("share", "share of wall time"),
        series="line",
        series_label="time",
        order=("useful", "stall", "lost", "reconfig", "other"),
        caption="Models are driven by the run's own segments; the notebook leaves out that checkpoints block training.",
    )
    return Reproduced(tuple(rows), (figure,))


# --------------------------------------------------------------------------- bamboo-table


def bamboo_table(progress: Progress) -> Reproduced:
    """Bamboo's simulator on BERT: means over 60 seeds at five hourly removal probabilities.

    `compat` is the simulator with its known bugs, over seeds 1 to 60; `corrected` is the ring without them, over seeds 1
    to 10. [Thorpe et al., Bamboo, NSDI'23.]

    Parameters
    ----------
    progress : called with a message at each probability.
    """
    job, rows = published.BAMBOO_JOBS["BERT"], []
    points: list[tuple[float, float, str]] = []
    for p, figures in published.BAMBOO_TABLE.items():
        progress(f"60 runs at {p} an hour")
        printed, mended = [], []
        for seed in range(1, 61):
            fleet = HourlyFleet(remove=[p] * 24, seed=seed)
            goal = published.BAMBOO_GOAL_STEPS
            printed.append(run_ring(job, fleet, goal_steps=goal).summary(published.SPOT_USD_PER_H))
            if seed <= 10:
                one = run_ring(job, fleet, bugs=NO_BUGS, goal_steps=goal)
                mended.append(one.summary(published.SPOT_USD_PER_H) | {"average_instances": one.mean_nodes})
        for name, value in figures.items():
            compat, corrected = (fmean(run[name] for run in runs) for runs in (printed, mended))
            note = "corrected: mean of seeds 1 to 10"
            rows.append(Row(f"{name} at {p}/h", value, compat, corrected, 5.1e-5, note))
        for label, runs in (("as published", printed), ("mended", mended)):
            points.append((p, fmean(run["average_performance"] for run in runs), label))
    figure = Figure.of(
        "line",
        "bamboo-throughput",
        "BERT on a ring with redundant stages",
        from_points(("p", "samples_per_s", "of"), points),
        x=Axis("p", "chance that a node vanishes within an hour", "", log=True),
        y=Axis("samples_per_s", "throughput", "samples/s"),
        series="of",
        order=("as published", "mended"),
        caption="Means over 60 seeds, and over 10 with the simulator's defects mended.",
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
)
