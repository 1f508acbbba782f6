"""Figures of the ElasticFlow paper regenerated: published values beside ours, as its simulator and as its text has them.

"compat" follows the published simulator's rules, "corrected" the paper's. Where the original trace or seed was never
published the row has no tolerance; the note says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.cluster.engine.allocator import Terms
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import run_rules
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policy import schedulers
from forerun.core.result.figures import Axis, Figure, by_series
from forerun.core.result.stats import standard_error, student_quantile
from forerun.core.study.executors.interrupts import blocked, end_quietly
from forerun.replication.elasticflow.engine import Compat, Corrected
from forerun.replication.elasticflow.live import fig6a_live, fig6b_live, fig7
from forerun.replication.elasticflow.overheads import QUICK_PLAN, fig12
from forerun.replication.elasticflow.public import public_profile, public_setting
from forerun.replication.elasticflow.published import LABEL, PAPER, PUBLISHED, RATIO, SIX
from forerun.replication.reproduction import Progress, Reproduced, Reproduction, Row, from_points

Floats = NDArray[np.float64]

#: cluster of each trace of figure 8(b)
CLUSTERS_8B: Final = {
    **{
        f"elasticflow_traces/cluster{n:02d}.csv": "n128g8" if n in (4, 7, 8, 9) else "n64g8"
        for n in range(1, 10)
    },
    "elasticflow_traces/cluster10.csv": "n32g8",
    "philly_103959.csv": "n4g8",
}


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What the figures need of a run.

    Parameters
    ----------
    ratio : share of deadlines met by the schedule's own rule.
    met_ratio : share of deadlines met by the logged end.
    best_effort_jct_s : mean completion time of jobs without a deadline [s]; nan without such jobs.
    jct_s : mean completion time of all jobs that ended [s] (default: nan).
    times_s : instants of the events [s], if asked for (default: none).
    efficiency : cluster efficiency at these instants (default: none).
    """

    ratio: float
    met_ratio: float
    best_effort_jct_s: float
    jct_s: float = float("nan")
    times_s: tuple[float, ...] = ()
    efficiency: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """One run to make, as plain data that a worker process understands.

    Parameters
    ----------
    schedule : name of the policy.
    trace : path below the domain's data; empty for a drawn trace.
    cluster : name of a cluster specification.
    slot_s : length of a scheduling slot [s].
    gpu_type : `A100` or `T4` (default: A100).
    first : only so many jobs of the trace (default: 0, all).
    corrected : the paper's rules instead of the published simulator's (default: off).
    drawn : jobs, mean gap [s], best-effort share and seed of a drawn trace (default: none).
    keep_events : keep the events for a figure over time (default: off).
    searched : population and generations of Pollux's random search (default: 0, the deterministic search).
    seed : of the run (default: 0).
    """

    schedule: str
    trace: str
    cluster: str
    slot_s: int
    gpu_type: str = "A100"
    first: int = 0
    corrected: bool = False
    drawn: tuple[int, float, float, int] | None = None  # jobs, mean gap, best-effort share, seed
    keep_events: bool = False
    searched: int = 0  # Pollux: population and generations of its random search; 0: the deterministic search
    seed: int = 0


def play(job: Job) -> RunFigures:
    """Make one run.

    Parameters
    ----------
    job : what to run.

    Raises
    ------
    DataError : the public data that it needs is missing.
    """
    policy = schedulers().get(job.schedule)(**_parameters(job))
    setting = replace(_setting(job), own=policy.read())
    record = Record(setting)
    record.seeks_remedies = False
    engine = (Corrected if job.corrected else Compat)({})
    run_rules(engine.rules(policy, setting, record, Terms(), job.seed))
    return outcome(record, keep_events=job.keep_events)


def _parameters(job: Job) -> dict[str, Any]:
    """Pollux trains by goodput where its T4 applications were measured; the others need nothing beyond the setting."""
    if job.schedule != "pollux" or job.gpu_type != "T4":
        return {}
    from forerun.replication.elasticflow.public import public_path

    parameters: dict[str, Any] = {"measurements": str(public_path("pollux_t4"))}
    if job.searched:
        parameters |= {"search": "evolution", "population": job.searched, "generations": job.searched}
    return parameters


def _setting(job: Job) -> Setting:
    """The setting of a run, from a public trace or from a drawn one."""
    if job.drawn is None:
        made = public_setting(job.trace, job.cluster, job.slot_s, job.gpu_type, first=job.first)
        return replace(made, seed=job.seed)
    from forerun.cluster.inputs.files import JobTable, jobs_of, read_cluster
    from forerun.cluster.traces.published import PublishedGenerator, published
    from forerun.replication.elasticflow.public import public_path

    count, gap_s, share, seed = job.drawn
    profile = public_profile(job.gpu_type)
    spec = PublishedGenerator(jobs=count, mean_gap_s=gap_s, best_effort_share=share, slack_seed=seed)
    drawn = published(spec, profile, seed=0)
    return Setting(
        jobs=jobs_of(JobTable("generated", drawn), profile),
        cluster=read_cluster(public_path(f"cluster_specs/{job.cluster}.csv"), job.gpu_type),
        profile=profile,
        slot_s=job.slot_s,
        gpu_type=job.gpu_type,
    )


def outcome(record: Record, *, keep_events: bool = False) -> RunFigures:
    """What the figures need of a run.

    Parameters
    ----------
    record : of a run that is over.
    keep_events : keep the events, at least 2,400 s apart (default: off).
    """
    jobs = record.setting.jobs
    with_deadline = jobs.has_deadline
    total = max(1, int(np.count_nonzero(with_deadline)))
    ended, taken_s = record.end_s >= 0, record.end_s - jobs.submit_s
    met = np.count_nonzero(with_deadline & ended & (record.end_s <= jobs.deadline_s))
    judged = record.accepted + record.declined_count
    times, _, _, _, efficiency = record.events()
    points = _thinned(times) if keep_events else np.zeros(0, np.int64)
    return RunFigures(
        record.accepted / judged if judged else 0.0,
        float(met) / total,
        _mean_of(taken_s[ended & ~with_deadline]),
        _mean_of(taken_s[ended]),
        tuple(times[points].tolist()),
        tuple(efficiency[points].tolist()),
    )


def _mean_of(values: Floats) -> float:
    """The mean; nan of none."""
    return float(values.mean()) if len(values) else float("nan")


def _thinned(times_s: Floats) -> NDArray[np.int64]:
    """The published plot's points: at least 2,400 s after the one before."""
    points, last = [], -np.inf
    for at, time_s in enumerate(times_s.tolist()):
        if time_s - last >= 2400:
            points.append(at)
            last = time_s
    return np.array(points, np.int64)


def play_all(jobs: Sequence[Job], progress: Progress, *, workers: int = 1) -> list[RunFigures]:
    """Make many runs; the figures are in the order of the runs.

    Parameters
    ----------
    jobs : what to run.
    progress : called with a message at each run, in one process only.
    workers : number of processes (default: 1); the results do not depend on it.
    """
    if workers == 1:
        figures = []
        for number, job in enumerate(jobs, 1):
            progress(f"{number} of {len(jobs)}: {LABEL[job.schedule]} on {job.trace or 'a drawn trace'}")
            figures.append(play(job))
        return figures
    context = get_context("forkserver")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=end_quietly) as pool:
        with blocked(), _without_the_script():
            played = pool.map(play, jobs)
        return list(played)


@contextmanager
def _without_the_script() -> Iterator[None]:
    """Processes started here do not run the caller's script again: what they need lies in this package."""
    main = sys.modules["__main__"]
    spec, file = main.__spec__, main.__dict__.pop("__file__", None)
    main.__spec__ = None
    try:
        yield
    finally:
        main.__spec__ = spec
        if file is not None:
            main.__file__ = file


def rows_of(
    jobs: Sequence[Job],
    compat: Sequence[RunFigures],
    corrected: Sequence[RunFigures],
    published: Sequence[float | None],
    tolerances: Sequence[float | None],
    notes: Sequence[str],
    *,
    what: str = "deadline ratio",
    of: Sequence[str] = (),
) -> tuple[Row, ...]:
    """Rows `<schedule> <what>[, <of>]`: deadlines met, published beside compat and corrected.

    Parameters
    ----------
    jobs : the runs.
    compat : figures by the published simulator's rules; the schedule's own ratio is quoted.
    corrected : figures by the paper's rules; the ratio by the logged end is quoted.
    published : printed values, None where there is none.
    tolerances : absolute differences admitted, None where nothing is judged.
    notes : one per run.
    what : name of the quantity (default: "deadline ratio").
    of : trace, cluster or share of each run (default: not named).
    """
    return tuple(
        Row(
            f"{LABEL[job.schedule].lower()} {what}" + (f", {of[at]}" if of else ""),
            published[at],
            compat[at].ratio,
            corrected[at].met_ratio,
            tolerances[at],
            notes[at],
        )
        for at, job in enumerate(jobs)
    )


def bars(identifier: str, title: str, rows: Sequence[Row], caption: str) -> Figure:
    """Published and ours side by side, a group of bars a row.

    Parameters
    ----------
    identifier, title : of the figure.
    rows : of `rows_of`; values that do not exist have no bar.
    caption : below the figure.
    """
    shown = {label.lower(): label for label in LABEL.values()}
    kinds = ("published", "compat", "corrected")
    points = []
    for row in rows:
        schedule = row.name.removesuffix(" deadline ratio")
        for kind, value in zip(kinds, (row.published, row.compat, row.corrected), strict=True):
            if value is not None:
                points.append((shown.get(schedule, schedule), value, kind))
    data = from_points(("schedule", "ratio", "which"), points)
    return Figure.of(
        "bar", identifier, title, data, x="schedule", y=RATIO, series="which", caption=caption, order=kinds
    )


def grouped_bars(
    identifier: str,
    title: str,
    groups: Axis,
    cells: Sequence[tuple[str, str, float, float, float]],
    caption: str,
) -> Figure:
    """A group of bars a trace or size, a bar a schedule, as the paper draws them.

    Parameters
    ----------
    identifier, title : of the figure.
    groups : the axis of traces or sizes.
    cells : group, schedule, value, low, high; where all low and high are the value itself, there is no interval.
    caption : below the figure.
    """
    data = from_points((groups.column, "schedule", "ratio", "low", "high"), cells)
    data["schedule"] = [LABEL[name] for name in data["schedule"]]
    if data["low"] == data["ratio"] == data["high"]:
        del data["low"], data["high"]
    order = dict.fromkeys(data["schedule"])
    return Figure.of(
        "bar", identifier, title, data, x=groups, y=RATIO, series="schedule", caption=caption, order=order
    )


def half_interval(values: Floats) -> float:
    """Half of the 95 % interval of a mean over independent draws (Student's t).

    Parameters
    ----------
    values : float64[draws]; 0 for fewer than two.
    """
    count = len(values)
    if count < 2:
        return 0.0
    return student_quantile(0.975, count - 1) * standard_error(values)


def both(
    jobs: Sequence[Job], progress: Progress, *, workers: int = 1
) -> tuple[list[RunFigures], list[RunFigures]]:
    """The runs as published and corrected.

    Parameters
    ----------
    jobs : the runs, as published.
    progress : called with a message at each run.
    workers : number of processes (default: 1).
    """
    corrected = [_corrected(job) for job in jobs]
    made = play_all([*jobs, *corrected], progress, workers=workers)
    return made[: len(jobs)], made[len(jobs) :]


def _corrected(job: Job) -> Job:
    """The same run by the paper's rules."""
    return replace(job, corrected=True)


_SHARES_NOTE: Final = "corrected: deadlines met by the logged end"


def fig6a(progress: Progress) -> Reproduced:
    """Figure 6(a) of the ElasticFlow paper: deadlines met, 25 jobs on 4 nodes of 8 A100.

    The 25-job trace was never published; the first 25 rows of the 195-job trace stand in.

    Parameters
    ----------
    progress : called with a message at each run.

    Raises
    ------
    DataError : public data is missing.
    """
    jobs = [Job(name, "elasticflow_traces/195job.csv", "n4g8", 240, first=25) for name in SIX]
    compat, corrected = both(jobs, progress)
    exact = {"edf": 0.005, "dlas-gpu": 0.005, "themis": 0.005}
    published = [PUBLISHED["6a"][job.schedule] for job in jobs]
    notes = [
        "testbed run; the 25-job trace was never published: the first 25 rows of the 195-job trace stand in"
        for _ in jobs
    ]
    rows = rows_of(jobs, compat, corrected, published, [exact.get(job.schedule) for job in jobs], notes)
    return Reproduced(
        rows,
        (bars("fig6a", "Deadlines met, 25 jobs", rows, "Figure 6(a): published bars and ours."),),
        (_SHARES_NOTE,),
    )


def fig8a(progress: Progress) -> Reproduced:
    """Figure 8(a) of the ElasticFlow paper: deadlines met, 195 jobs on 16 nodes of 4 T4, Pollux included.

    Parameters
    ----------
    progress : called with a message at each run.

    Raises
    ------
    DataError : public data is missing.
    """
    names = (*SIX[:-1], "pollux", SIX[-1])
    jobs = [Job(name, "elasticVpollux_e.csv", "n16g4", 60, "T4") for name in names]
    compat, corrected = both(jobs, progress)
    tolerance = {
        "edf": 0.0005,
        "gandiva": 0.0025,
        "dlas-gpu": 0.0005,
        "themis": 0.001,
        "ef-accessctrl": 0.0005,
    }
    note = {
        "chronus": "greedy at every lease; the published .262 is unexplained",
        "pollux": "a random search in the original; here a deterministic one, ef-fig8a-pollux has both over seeds",
    }
    rows = rows_of(
        jobs, compat, corrected, [PUBLISHED["8a"][n] for n in names], [tolerance.get(n) for n in names],
        [note.get(n, "") for n in names],
    )  # fmt: skip
    caption = "Figure 8(a): 195 jobs on 64 T4 GPUs, published bars and ours."
    return Reproduced(rows, (bars("fig8a", "Deadlines met, 195 jobs", rows, caption),), (_SHARES_NOTE,))


def pollux_searches(
    progress: Progress, *, seeds: int = 6, searched: int = 100, small: bool = False
) -> Reproduced:
    """Pollux of figure 8(a) by its own random search over seeds, beside the deterministic one.

    Parameters
    ----------
    progress : called with a message at each run, in one process only.
    seeds : runs of the random search (default: 6).
    searched : population and generations of the random search (default: 100, the paper's).
    small : only the first ten jobs (default: off).
    """
    scenes = (("195 jobs", 0, 0.523, 71_114.0), ("10 jobs", 10, 0.6, 3_288.8))[small:]
    jobs = [
        Job("pollux", "elasticVpollux_e.csv", "n16g4", 60, "T4", first=first, searched=size, seed=seed)
        for _, first, _, _ in scenes
        for size, seed in ((0, 0), *((searched, seed) for seed in range(1, seeds + 1)))
    ]
    made = play_all(jobs, progress, workers=1 if small else 2)
    rows, points = [], []
    for at, (what, _, ratio, jct_s) in enumerate(scenes):
        greedy, *drawn = made[at * (seeds + 1) : (at + 1) * (seeds + 1)]
        whole = what == "195 jobs"
        source = "the paper's bar; its notes say .5026" if whole else "one sample of the reference's search"
        ratios, jcts = np.array([one.ratio for one in drawn]), np.array([one.jct_s for one in drawn])
        spread = f"mean of {seeds} seeds, search of {searched} x {searched}; 95 % interval ±"
        for name, published, one, many in (
            ("deadline ratio", ratio, greedy.ratio, ratios),
            ("mean completion time, s", jct_s, greedy.jct_s, jcts),
        ):
            text = f"pollux {name}, {what}"
            rows.append(Row(f"{text}, deterministic search", published, one, None, None, source))
            half, digits = half_interval(many), 3 if name == "deadline ratio" else 0
            note = f"{spread}{half:.{digits}f}, range {np.ptp(many):.{digits}f}"
            rows.append(Row(f"{text}, random search", published, float(many.mean()), None, None, note))
        for which, mean, half in (
            ("published", ratio, 0.0),
            ("deterministic search", greedy.ratio, 0.0),
            ("random search", float(ratios.mean()), half_interval(ratios)),
        ):
            points.append((what, mean, which, max(mean - half, 0.0), min(mean + half, 1.0)))
    figure = Figure.of(
        "bar",
        "pollux-searches",
        "Deadlines met by Pollux, by search",
        from_points(("trace", "ratio", "which", "low", "high"), points),
        x="trace",
        y=RATIO,
        series="which",
        order=("published", "deterministic search", "random search"),
        caption=f"Pollux in the setting of figure 8(a); the random search's mean and 95 % interval over {seeds} seeds.",
    )
    return Reproduced(tuple(rows), (figure,), ())


def fig8b(progress: Progress, *, only: Sequence[str] = ()) -> Reproduced:
    """Figure 8(b) of the ElasticFlow paper: ten internal clusters and one of Philly.

    Two processes run whole traces side by side.

    Parameters
    ----------
    progress : called with one message.
    only : some of the traces, "01" ... "10" or "philly" (default: all).

    Raises
    ------
    DataError : public data is missing.
    """
    traces = [trace for trace in CLUSTERS_8B if not only or _short(trace) in only]
    jobs = [Job(name, trace, CLUSTERS_8B[trace], 60) for trace in traces for name in SIX]
    # longest first, so that two workers end together
    order = sorted(range(len(jobs)), key=lambda at: _weight(jobs[at]), reverse=True)
    progress(f"{len(jobs)} runs in two processes")
    made = dict(zip(order, play_all([jobs[at] for at in order], progress, workers=2), strict=True))
    exact = {"edf", "gandiva", "dlas-gpu", "ef-accessctrl"}
    rows, ours, printed = [], [], []
    for at, job in enumerate(jobs):
        number = list(CLUSTERS_8B).index(job.trace)
        short = _short(job.trace)
        philly = short == "philly"
        published = PUBLISHED["8b"][job.schedule][number]
        name = f"{LABEL[job.schedule].lower()} deadline ratio, {short if philly else f'cluster {short}'}"
        note = "the paper's code version and traces differ"
        if philly:
            note = "the bars came from a cluster of 32 GPUs"
        tolerance = 0.006 if philly and job.schedule in exact else None
        rows.append(Row(name, published, made[at].ratio, None, tolerance, note))
        ours.append((short, job.schedule, *(made[at].ratio,) * 3))
        printed.append((short, job.schedule, *(published,) * 3))
    axis = Axis("trace", "trace")
    figures = (
        grouped_bars(
            "fig8b", "Deadlines met, production traces: ours", axis, ours,
            "Figure 8(b) by our runs of the published rules.",
        ),
        grouped_bars(
            "fig8b-published", "Deadlines met, production traces: published", axis, printed,
            "Figure 8(b) as printed; its traces and code version are not the public ones.",
        ),
    )  # fmt: skip
    left_out = (
        (f"{len(traces)} of {len(CLUSTERS_8B)} traces: {', '.join(map(_short, traces))}",) if only else ()
    )
    return Reproduced(tuple(rows), figures, left_out)


def _short(trace: str) -> str:
    """The name of a trace in figure 8(b)."""
    return "philly" if trace.startswith("philly") else trace[-6:-4]


def _weight(job: Job) -> float:
    """Rough work of a run: large traces and ElasticFlow take longest."""
    size = {"04": 16, "07": 13, "08": 13, "09": 11, "02": 6, "05": 4, "03": 3, "06": 2, "01": 2}.get(
        job.trace[-6:-4], 1
    )
    return size * {"ef-accessctrl": 20, "chronus": 4, "edf": 3, "themis": 2}.get(job.schedule, 1)


def fig9(progress: Progress, *, seeds: int = 20) -> Reproduced:
    """Sources of improvement: EDF, plus admission control, plus elastic scaling, both; over several draws.

    The generator's slack was unseeded, so the paper's draw cannot be had; one draw that the authors' generator made is
    public and is simulated as well, in both modes.

    Parameters
    ----------
    progress : called with one message.
    seeds : draws (default: 20).
    """
    names, clusters = tuple(PUBLISHED["9"]), ("n8g8", "n16g8", "n32g8")
    trace = "generated/fig9_1000job_1500lam_gseed9.csv"
    pairs = [(name, cluster) for name in names for cluster in clusters]
    drawn = [
        Job(name, "", cluster, 240, drawn=(1000, 1500.0, 0.0, seed))
        for name, cluster in pairs
        for seed in range(seeds)
    ]
    given = [Job(name, trace, cluster, 240) for name, cluster in pairs]
    jobs = [*drawn, *given, *map(_corrected, given)]
    progress(f"{len(jobs)} runs in two processes")
    made = play_all(jobs, progress, workers=2)
    ratio = np.array([run.ratio for run in made[: len(drawn)]]).reshape(len(pairs), seeds)
    compat, corrected = made[len(drawn) : len(drawn) + len(given)], made[len(drawn) + len(given) :]
    sizes = {"n8g8": "64 GPUs", "n16g8": "128 GPUs", "n32g8": "256 GPUs"}
    rows, ours, printed = [], [], []
    for at, (name, cluster) in enumerate(pairs):
        published = PUBLISHED["9"][name][clusters.index(cluster)]
        mean, half = float(ratio[at].mean()), half_interval(ratio[at])
        what = f"{LABEL[name].lower()} deadline ratio, {sizes[cluster]}"
        note = f"mean of {seeds} draws of an unseeded generator, 95 % interval ±{half:.3f}, range {np.ptp(ratio[at]):.3f}"
        rows.append(Row(what, published, mean, None, None, note))
        note = "the one public draw, which is not the paper's"
        rows.append(Row(f"{what}, public draw", None, compat[at].ratio, corrected[at].met_ratio, None, note))
        ours.append((sizes[cluster], name, mean, max(mean - half, 0.0), min(mean + half, 1.0)))
        printed.append((sizes[cluster], name, published, published, published))
    axis = Axis("size", "cluster")
    by_size = [at for size in sizes.values() for at, cell in enumerate(ours) if cell[0] == size]
    figures = (
        grouped_bars(
            "fig9", "Sources of improvement: ours", axis, [ours[at] for at in by_size],
            f"Figure 9: what admission control and elastic scaling each add; mean and 95 % interval over {seeds} draws.",
        ),
        grouped_bars(
            "fig9-published", "Sources of improvement: published", axis, [printed[at] for at in by_size],
            "Figure 9 as printed: one draw of an unseeded generator.",
        ),
    )  # fmt: skip
    return Reproduced(tuple(rows), figures, (_SHARES_NOTE,))


def fig10(progress: Progress) -> Reproduced:
    """Figure 10 of the ElasticFlow paper: cluster efficiency over time, 100 jobs on 128 GPUs.

    Parameters
    ----------
    progress : called with a message at each run.

    Raises
    ------
    DataError : public data is missing.
    """
    trace = "generated/fig10_100jobs_1500lam_seed1.csv"
    jobs = [Job(name, trace, "n16g8", 240, keep_events=True) for name in SIX]
    compat, corrected = both(jobs, progress)
    published = [PUBLISHED["10"].get(job.schedule) for job in jobs]
    tolerances = [0.0005 if job.schedule in PUBLISHED["10"] else None for job in jobs]
    notes = [
        "the authors' shipped logs" if job.schedule in PUBLISHED["10"] else "not shipped" for job in jobs
    ]
    rows = rows_of(jobs, compat, corrected, published, tolerances, notes)
    curves = {
        LABEL[job.schedule]: {"time_s": run.times_s, "efficiency": run.efficiency}
        for job, run in zip(jobs, compat, strict=True)
    }
    figure = Figure.of(
        "step",
        "fig10",
        "Cluster efficiency",
        by_series("schedule", curves),
        x="time_s",
        y=Axis("efficiency", "cluster efficiency"),
        series="schedule",
        caption="Figure 10: throughput over one-GPU throughput of the running jobs, per GPU; a point per 2,400 s.",
    )
    return Reproduced(rows, (figure,))


def fig11(progress: Progress, *, seeds: int = 20) -> Reproduced:
    """Best-effort jobs beside jobs with deadlines, their share from 10 to 90 %, over several draws.

    Figure 11 of the ElasticFlow paper: (a) deadlines met, (b) completion times of best-effort jobs against Gandiva's.

    Parameters
    ----------
    progress : called with one message.
    seeds : draws (default: 20).
    """
    shares = tuple(range(1, 10))
    keys = [(name, share) for name in SIX for share in shares]
    jobs = [
        Job(name, "", "n8g8", 240, drawn=(200, 900.0, share / 10, seed))
        for name, share in keys
        for seed in range(seeds)
    ]
    progress(f"{len(jobs)} runs in two processes")
    made = play_all(jobs, progress, workers=2)
    ratio = np.array([run.ratio for run in made]).reshape(len(keys), seeds)
    jct = np.array([run.best_effort_jct_s for run in made]).reshape(len(keys), seeds)
    base = {share: jct[keys.index(("gandiva", share))] for share in shares}
    rows = []
    drawn: dict[str, list[tuple[str, float, float, float, float, float]]] = {"a": [], "b": []}
    for at, (name, share) in enumerate(keys):
        gain = base[share] / jct[at]
        for part, kind, values, table in (
            ("a", "deadline ratio", ratio[at], PUBLISHED["11a"]),
            ("b", "completion time gain", gain, PUBLISHED["11b"]),
        ):
            half, mean = half_interval(values), float(values.mean())
            published = table[name][share - 1]
            text = f"{LABEL[name].lower()} {kind}, {10 * share} % best effort"
            note = f"mean of {seeds} draws of an unseeded generator, 95 % interval ±{half:.3f}, range {np.ptp(values):.3f}"
            rows.append(Row(text, published, mean, None, None, note))
            most = 1.0 if part == "a" else np.inf  # a share has no interval beyond 0 and 1
            low, high = max(mean - half, 0.0), min(mean + half, most)
            drawn[part].append((name, 10.0 * share, mean, low, high, published))
    return Reproduced(tuple(rows), tuple(_lines_of_11(drawn, seeds)))


def _lines_of_11(
    drawn: dict[str, list[tuple[str, float, float, float, float, float]]], seeds: int
) -> Iterator[Figure]:
    """Figure 11 as the paper draws it, and each schedule beside its published line.

    Parameters
    ----------
    drawn : for the parts a and b, (schedule, share [%], mean, low, high, published).
    seeds : draws of each mean, for the captions.
    """
    for part, title, label in (
        ("a", "Deadlines met beside best-effort jobs", "deadlines met, share"),
        ("b", "Best-effort jobs beside deadlines", "completion time, Gandiva's over this one's"),
    ):
        cells = drawn[part]
        x, y = Axis("share", "best-effort jobs", "%"), Axis("value", label)
        caption = f"mean and 95 % interval over {seeds} draws"
        yield Figure.of(
            "line",
            f"fig11{part}",
            title,
            from_points(("schedule", "share", "value"), [(LABEL[name], *cell[:2]) for name, *cell in cells]),
            x=x,
            y=y,
            series="schedule",
            order=[LABEL[name] for name in SIX],
            caption=f"Figure 11({part}): mean over {seeds} draws.",
        )
        for name in SIX:
            if part == "b" and name == "gandiva":
                continue  # over itself
            mine = [cell for schedule, *cell in cells if schedule == name]
            ours = [(share, mean, low, high, "ours") for share, mean, low, high, _ in mine]
            printed = [(share, *(published,) * 3, "published") for share, *_, published in mine]
            yield Figure.of(
                "line",
                f"fig11{part}-{name}",
                f"{title}: {LABEL[name]}",
                from_points(("share", "value", "low", "high", "which"), [*ours, *printed]),
                x=x,
                y=y,
                series="which",
                order=("ours", "published"),
                caption=f"Figure 11({part}), {LABEL[name]}: {caption}, and the published line.",
            )


def _entry(
    identifier: str,
    title: str,
    place: str,
    play_it: Callable[[Progress], Reproduced],
    minutes: float,
    quick: Callable[[Progress], Reproduced] | None = None,
    *,
    beside: Sequence[str] = (),
) -> Reproduction:
    """`beside`: the data it needs beside cluster shapes and throughput."""
    datasets = ("elasticflow", *beside)
    return Reproduction(identifier, title, f"{PAPER}, {place}", play_it, datasets, minutes, quick)


REPRODUCTIONS: Final = (
    _entry(
        "ef-fig6a", "Deadlines met by six schedulers, 25 jobs", "figure 6(a)", fig6a, 0.1,
        beside=("elasticflow_traces",),
    ),
    _entry(
        "ef-fig6a-live", "Deadlines met by six schedulers, 25 jobs as real, paced processes", "figure 6(a)",
        fig6a_live, 2.0, partial(fig6a_live, first=10, schedules=("edf", "ef-accessctrl")),
        beside=("elasticflow_traces",),
    ),
    _entry(
        "ef-fig6b-live", "Deadlines met by six schedulers, 195 jobs as real, paced processes", "figure 6(b)",
        fig6b_live, 15.0, partial(fig6b_live, first=10, nodes=4, schedules=("edf",)),
        beside=("elasticflow_traces",),
    ),
    _entry(
        "ef-fig7", "GPUs allocated and jobs admitted over time, by real, paced processes", "figure 7",
        fig7, 15.0, partial(fig7, first=10, nodes=4, schedules=("ef-accessctrl",)), beside=("elasticflow_traces",),
    ),
    _entry(
        "ef-fig8a", "Deadlines met by seven schedulers, 195 jobs", "figure 8(a)", fig8a, 0.3,
        beside=("pollux_t4",),
    ),
    _entry(
        "ef-fig8a-pollux", "Pollux by its random search, over seeds", "figure 8(a)", pollux_searches, 2.0,
        partial(pollux_searches, seeds=2, searched=20), beside=("pollux_t4",),
    ),
    _entry(
        "ef-fig8b", "Deadlines met on eleven production traces", "figure 8(b)", fig8b, 1.5,
        partial(fig8b, only=("10", "philly")), beside=("elasticflow_traces", "philly_elasticflow"),
    ),
    _entry(
        "ef-fig9", "What admission control and elastic scaling add", "figure 9", fig9, 1.1, partial(fig9, seeds=2),
        beside=("elasticflow_generated",),
    ),
    _entry(
        "ef-fig10", "Cluster efficiency over time", "figure 10", fig10, 0.1, beside=("elasticflow_generated",)
    ),
    _entry("ef-fig11", "Best-effort jobs beside deadlines", "figure 11", fig11, 0.7, partial(fig11, seeds=3)),
    Reproduction(
        "ef-fig12", "Seconds of profiling and of changes: published, and ours on this machine", f"{PAPER}, figure 12",
        fig12, minutes=5.0, quick=partial(fig12, plan=QUICK_PLAN, programs=("numpy_job",)),
    ),
)  # fmt: skip
