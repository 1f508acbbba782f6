"""Published results of Zeus [You, Chung, Chowdhury, NSDI 2023] that the public traces allow, beside ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np

from forerun.core.errors import Infeasible
from forerun.core.result.figures import Axis, Columns, Figure, Rule, by_series
from forerun.energy.engine.batch import Attempts, Work, run_many
from forerun.energy.inputs.workload import Workload
from forerun.energy.policies.default import Default
from forerun.energy.policies.grid import Grid
from forerun.energy.policies.grid_bounded import GridBounded
from forerun.energy.policies.jit import Jit
from forerun.energy.policies.joint import Joint
from forerun.energy.policies.pruning_gts import PruningGts
from forerun.energy.policy import KnobSpec, Pair
from forerun.energy.policy.rules import Rules
from forerun.energy.policy.view import Floats
from forerun.energy.scenario import Drift
from forerun.energy.summary.savings import Reference, Savings, of_attempts, reference
from forerun.replication.reproduction import Progress, Reproduced, Reproduction, Row, from_points
from forerun.replication.zeus import reproduce_hardware
from forerun.replication.zeus.groups import REGIMES, regime
from forerun.replication.zeus.public import GPUS, SOURCE, public_workload
from forerun.replication.zeus.published import JOBS, published

PAPER: Final = "You, Chung, Chowdhury: Zeus, NSDI 2023"
COMPAT: Final = Rules.of("compat")
CORRECTED: Final = Rules.of("corrected")
#: baselines begin with configurations that may fail: they get the retries that the reference's loop refuses at first
BASELINE: Final = COMPAT.with_(first_may_retry=True)
ETA, BETA = 0.5, 2.0
PUBLISHED: Final = Pair(batch_size=PruningGts(), limit=Jit())
CURVES: Final = "the paper shows this as a curve or bars, without numbers"
RANGE: Final = "the paper gives the range over its jobs only"
UNKNOWN: Final = "the paper's seeds and averaging are not public"


def _runs(
    workload: Workload,
    spec: KnobSpec,
    seeds: Sequence[int],
    rules: Rules,
    *,
    eta: float = ETA,
    beta: float = BETA,
) -> list[Attempts]:
    """Runs of the customary number of recurrences, one a seed.

    Parameters
    ----------
    workload : job, paths and measured epochs.
    spec : the policy.
    seeds : of the runs.
    rules : known bugs that apply.
    eta : weight of energy against time (default: 0.5).
    beta : bound of an attempt over the least cost so far (default: 2).
    """
    return run_many(
        Work(workload, spec, eta=eta, beta=beta, rules=rules, recurrences=workload.recurrences()),
        seeds,
        compile_above=1000,
    )


def _ours(name: str, compat: float | None, corrected: float | None = None, *, note: str = CURVES) -> Row:
    """A number of ours that the paper shows as a curve."""
    return Row.unpublished(name, compat, corrected, note)


def _mean(saved: Sequence[Savings], what: str) -> float:
    """Mean of one figure of the savings. what: its field."""
    return float(np.mean([getattr(one, what) for one in saved]))


# --- what could be saved at most --------------------------------------------------------------------------------


#: the introduction gives its percents to a tenth
WITHIN_POINTS: Final = 0.1


def potential(gpu: str, dataset: str, rules: Rules) -> dict[str, float]:
    """Least energy of both knobs, of the limit alone and of the batch size alone: change against default [%].

    Only configurations whose recorded runs all reach the target count. [Zeus, introduction.]

    Parameters
    ----------
    gpu : one of `GPUS`.
    dataset : a key of `JOBS`.
    rules : known bugs that apply.

    Raises
    ------
    Infeasible : the default never reaches the target.
    """
    workload = public_workload(gpu, dataset, rules)
    default = reference(workload, ETA).default
    if default is None:
        raise Infeasible.at(str(workload.job), "the default never reaches the target")
    certain = [point for point in workload.expected(ETA) if point.reach == 1]
    candidates = {
        "joint": certain,
        "power limit only": [point for point in certain if point.batch_size == default.batch_size],
        "batch size only": [point for point in certain if point.limit_w == default.limit_w],
    }
    return {
        name: 100 * (min(point.energy_j for point in points) / default.energy_j - 1)
        for name, points in candidates.items()
    }


def _potential(progress: Progress) -> Reproduced:
    """zeus-savings-potential: the least energy of each knob against the default."""
    rows, bars = [], []
    table = {dataset: potential("v100", dataset, COMPAT) for dataset in JOBS}
    again = {dataset: potential("v100", dataset, CORRECTED) for dataset in JOBS}
    for knob in ("joint", "power limit only"):
        stated = published("zeus-savings-potential", knob)
        for which, pick in (("least", min), ("most", max)):
            ours = pick(-change[knob] for change in table.values())
            mine = pick(-change[knob] for change in again.values())
            name = f"{knob}: {which} energy saved, percent"
            rows.append(Row(name, stated[which], ours, mine, WITHIN_POINTS, "range over six jobs"))
    for dataset, changes in table.items():
        for knob, change in changes.items():
            name = f"{dataset}, {knob}: energy change percent"
            rows.append(_ours(name, change, again[dataset][knob], note=RANGE))
            bars.append((dataset, knob, change))
    figure = Figure.of(
        "points",
        "zeus-savings-potential",
        "Energy that the best configuration saves against the default, V100",
        from_points(("job", "knob", "change"), bars),
        x=Axis("change", "energy against the default", "%"),
        y="job",
        series="knob",
        caption="Least energy over all measured configurations whose recorded runs all reach the target.",
    )
    return Reproduced(tuple(rows), (figure,))


# --- one job again and again -------------------------------------------------------------------------------------


def last_five(gpu: str, dataset: str, rules: Rules, seeds: Sequence[int]) -> list[Savings]:
    """Savings of the published policy, one entry per seed.

    Parameters
    ----------
    gpu : one of `GPUS`.
    dataset : a key of `JOBS`.
    rules : known bugs that apply.
    seeds : of the runs.
    """
    workload = public_workload(gpu, dataset, rules)
    against, n = reference(workload, ETA), workload.recurrences()
    return [of_attempts(log, n, against) for log in _runs(workload, PUBLISHED, seeds, rules)]


def _single(progress: Progress) -> Reproduced:
    """zeus-single: savings of the published policy in the last five recurrences."""
    rows = []
    compat, corrected = {}, {}
    for dataset in JOBS:
        progress(f"zeus-single: {dataset}")
        compat[dataset] = last_five("v100", dataset, COMPAT, range(1, 201))
        corrected[dataset] = last_five("v100", dataset, CORRECTED, range(1, 21))
    stated = published("zeus-single", "energy")
    for which, pick in (("least", min), ("most", max)):
        ours = pick(_mean(runs, "energy_last") for runs in compat.values())
        mine = pick(_mean(runs, "energy_last") for runs in corrected.values())
        name = f"{which} energy saved in the last five, percent"
        rows.append(Row(name, stated[which], ours, mine, None, UNKNOWN))
    for dataset, saved in compat.items():
        again = corrected[dataset]
        for label, what in (("energy", "energy_last"), ("time", "time_last")):
            note = "seeds 1-200 in compat, 1-20 in corrected"
            name = f"{dataset}: {label} saved in the last five, percent"
            rows.append(_ours(name, _mean(saved, what), _mean(again, what), note=note))
    example = public_workload("v100", "librispeech", COMPAT)
    (log,) = _runs(example, PUBLISHED, [1], COMPAT)
    name = "the public example: energy of 210 recurrences, J"
    rows.append(_ours(name, float(log.energy_j.sum()), note="no sum is published"))
    return Reproduced(tuple(rows), (_choices(example, log),))


def _choices(workload: Workload, log: Attempts) -> Figure:
    """The batch sizes of one run over its recurrences."""
    return Figure.of(
        "points",
        "zeus-single-choices",
        "Batch sizes over recurrences: the public example",
        {
            "recurrence": log.recurrence,
            "batch_size": workload.sizes[log.size],
            "ended": [("reached", "stopped", "gave up", "never ran")[code] for code in log.ended],
        },
        x="recurrence",
        y=Axis("batch_size", "batch size", log=True),
        series="ended",
        caption="Two walks over the sizes, then sampling of the survivors.",
    )


# --- regret ------------------------------------------------------------------------------------------------------

#: spec, rules and seeds of each policy
REGRET_POLICIES: Final[dict[str, tuple[KnobSpec, Rules, int]]] = {
    "pruning-gts": (PUBLISHED, COMPAT, 200),
    "joint": (Joint(), COMPAT, 10),
    "default": (Default(), BASELINE, 10),
    "grid-bounded": (GridBounded(), BASELINE, 10),
    "grid": (Grid(), BASELINE, 2),
}


def mean_ratios(name: str, seeds: int = 0) -> dict[tuple[str, str], float]:
    """Mean cost over the oracle's of one policy on each of the 24 public workloads, in compat.

    Parameters
    ----------
    name : a key of `REGRET_POLICIES`.
    seeds : how many, from 1 on (default: 0, as many as `REGRET_POLICIES` says).

    Returns
    -------
    Ratios by (GPU, data set).
    """
    spec, rules, usual = REGRET_POLICIES[name]
    ratios = {}
    for gpu in GPUS:
        for dataset in JOBS:
            workload = public_workload(gpu, dataset, COMPAT)
            against, n = reference(workload, ETA), workload.recurrences()
            logs = _runs(workload, spec, range(1, (seeds or usual) + 1), rules)
            ratios[gpu, dataset] = _mean([of_attempts(log, n, against) for log in logs], "cost_ratio")
    return ratios


def _regret(progress: Progress, *, part: int = 1) -> Reproduced:
    """Every policy on the 24 workloads; `part`: runs one seed in this many."""
    rows = []
    for name, (_, _, usual) in REGRET_POLICIES.items():
        progress(f"zeus-regret: {name} on 24 workloads")
        seeds = max(1, usual // part)
        ratios = list(mean_ratios(name, seeds).values())
        note = f"24 workloads, {seeds} seeds; the paper's curves carry no numbers"
        rows.append(_ours(f"{name}: mean cost over the oracle's", float(np.mean(ratios)), note=note))
        rows.append(_ours(f"{name}: worst workload", max(ratios)))
    figures = tuple(_regret_figure(dataset) for dataset in ("librispeech", "cifar100"))
    return Reproduced(tuple(rows), figures)


def _regret_figure(dataset: str) -> Figure:
    """Cumulative regret of every policy on one job, with bands over seeds."""
    workload = public_workload("v100", dataset, COMPAT)
    against, n = reference(workload, ETA), workload.recurrences()
    curves: dict[str, Columns] = {}
    for name, (spec, rules, seeds) in REGRET_POLICIES.items():
        if name == "grid":
            continue
        regrets = regret_curves(_runs(workload, spec, range(1, max(seeds, 20) + 1), rules), n, against)
        low, middle, high = np.percentile(regrets, [5, 50, 95], axis=0)
        curves[name] = {"recurrence": np.arange(1, n + 1), "regret": middle, "low": low, "high": high}
    return Figure.of(
        "line",
        f"zeus-regret-{dataset}",
        f"Cumulative regret, {dataset} on V100",
        by_series("policy", curves),
        x="recurrence",
        y=Axis("regret", "cumulative regret", "J"),
        series="policy",
        caption="Median and 5 to 95 % of seeds; regret is cost above the oracle's expected cost.",
    )


def regret_curves(logs: Sequence[Attempts], recurrences: int, against: Reference) -> Floats:
    """Cumulative regret of each run: cost above the oracle's expected cost.

    Parameters
    ----------
    logs : attempts of each run.
    recurrences : how many each run has.
    against : the oracle of the workload; nan throughout where it has none.

    Returns
    -------
    float64[runs, recurrences] [J].
    """
    oracle = against.oracle.cost_j if against.oracle else float("nan")
    return np.array([np.cumsum(log.per_recurrence(log.cost_j, recurrences) - oracle) for log in logs])


# --- groups ------------------------------------------------------------------------------------------------------


def _groups(progress: Progress) -> Reproduced:
    """zeus-groups: savings in synthetic groups of three kinds."""
    rows = []
    note = "synthetic groups: the published group trace is not obtainable; paper: 7 to 52 % energy over real groups"
    spec = Pair(batch_size=PruningGts(concurrency=True), limit=Jit())
    for name in REGIMES:
        progress(f"zeus-groups: {name}")
        for dataset in JOBS:
            saved = {}
            for rules, label in ((COMPAT, "compat"), (CORRECTED, "corrected")):
                saved[label] = group_saving(dataset, name, rules, spec, seeds=range(1, 6))
            text = f"{dataset}, {name}: energy saved, percent"
            rows.append(_ours(text, saved["compat"], saved["corrected"], note=note))
    return Reproduced(tuple(rows), notes=("groups are synthetic, not the published ones",))


def group_saving(dataset: str, name: str, rules: Rules, spec: KnobSpec, seeds: Sequence[int]) -> float:
    """Mean energy saved in a synthetic group of 120 submissions, percent; seeds that end in a failure are left out.

    Parameters
    ----------
    dataset : a key of `JOBS`; the GPU is a V100.
    name : the regime of the group.
    rules : known bugs that apply.
    spec : the policy.
    seeds : of the group and of the run; nan if every one fails.
    """
    workload = public_workload("v100", dataset, rules)
    against = reference(workload, ETA)
    assert against.default is not None
    saved = []
    for seed in seeds:
        rows = regime(name, 120, against.default.time_s, seed)  # type: ignore[arg-type]
        try:
            (log,) = run_many(
                Work(workload, spec, eta=ETA, beta=BETA, rules=rules, rows=rows),
                [seed],
                compile_above=10**9,
            )
        except Infeasible:
            continue
        ratio = np.array([row.runtime_ratio for row in rows])[log.recurrence]
        base = against.default.energy_j * sum(row.runtime_ratio for row in rows)
        saved.append(100 * (1 - float((log.energy_j * ratio).sum()) / base))
    return float(np.mean(saved)) if saved else float("nan")


# --- frontiers, GPUs, sensitivity, drift ---------------------------------------------------------------------------


def _pareto(progress: Progress) -> Reproduced:
    """zeus-pareto: the frontier of time against energy of each job."""
    from forerun.energy.plan.points import Point, certified_frontier, knee

    rows, figures = [], []
    for dataset in JOBS:
        workload = public_workload("v100", dataset, CORRECTED)
        at = [p for p in workload.expected(ETA) if p.reach == 1]
        points = [
            Point("v100", p.batch_size, p.limit_w, 1.0, p.time_s, p.energy_j, p.cost_j, 0.0) for p in at
        ]
        frontier, _ = certified_frontier(points, range(len(points)))
        bend = points[knee(points, frontier)]
        rows.append(_ours(f"{dataset}: configurations on the frontier", len(frontier), len(frontier)))
        rows.append(_ours(f"{dataset}: batch size at the knee", bend.batch_size, bend.batch_size))
        rows.append(_ours(f"{dataset}: limit at the knee, W", bend.limit_w, bend.limit_w))
        on = set(frontier)
        shown = [
            (point.time_s, point.energy_j, "frontier" if i in on else "dominated")
            for i, point in enumerate(points)
        ]
        figures.append(
            Figure.of(
                "points",
                f"zeus-pareto-{dataset}",
                f"Time and energy to the target, {dataset} on V100",
                from_points(("time_s", "energy_j", "which"), shown),
                x=Axis("time_s", "time to the target", "s", log=True),
                y=Axis("energy_j", "energy to the target", "J", log=True),
                series="which",
                order=("frontier", "dominated"),
                caption="Configurations whose recorded runs all reach; the rule marks the knee.",
                rules=(Rule(bend.time_s, f"knee: {bend.batch_size} at {bend.limit_w:g} W"),),
            )
        )
    return Reproduced(tuple(rows), tuple(figures))


def _gpus(progress: Progress) -> Reproduced:
    """zeus-gpus: potential and savings on the other GPU types."""
    rows = []
    for gpu in GPUS[1:]:
        for dataset in JOBS:
            progress(f"zeus-gpus: {gpu} {dataset}")
            compat, mine = potential(gpu, dataset, COMPAT), potential(gpu, dataset, CORRECTED)
            for knob, change in compat.items():
                rows.append(_ours(f"{gpu} {dataset}, {knob}: energy change percent", change, mine[knob]))
            saved = last_five(gpu, dataset, COMPAT, range(1, 201))
            for label, what in (("energy", "energy_last"), ("time", "time_last")):
                name = f"{gpu} {dataset}: {label} saved in the last five, percent"
                rows.append(_ours(name, _mean(saved, what), note="seeds 1-200"))
    return Reproduced(tuple(rows))


def _sensitivity(progress: Progress, *, seeds: int = 50) -> Reproduced:
    """zeus-sensitivity: weight of energy, bound and window."""
    rows = []
    for dataset in JOBS:
        progress(f"zeus-sensitivity: {dataset}")
        workload = public_workload("v100", dataset, COMPAT)
        n = workload.recurrences()
        for eta in (0.0, 0.25, 0.5, 0.75, 1.0):
            logs = _runs(workload, PUBLISHED, range(1, seeds + 1), COMPAT, eta=eta)
            saved = [of_attempts(log, n, reference(workload, eta)) for log in logs]
            rows.append(_ours(f"{dataset}, eta {eta}: energy saved, percent", _mean(saved, "energy")))
            rows.append(_ours(f"{dataset}, eta {eta}: time saved, percent", _mean(saved, "time")))
        for beta in (1.2, 1.5, 2.0, 3.0, float("inf")):
            ratio = _ratio(workload, PUBLISHED, beta, seeds)
            rows.append(_ours(f"{dataset}, beta {beta}: cost over the oracle's", ratio))
        for window in (0, 3, 10):
            ratio = _ratio(workload, Pair(batch_size=PruningGts(window=window), limit=Jit()), BETA, seeds)
            rows.append(_ours(f"{dataset}, window {window}: cost over the oracle's", ratio))
    return Reproduced(
        tuple(rows), notes=(f"{seeds} seeds each; seeds at which the policy fails are left out",)
    )


def _ratio(workload: Workload, spec: KnobSpec, beta: float, seeds: int) -> float | None:
    """Mean cost over the oracle's; None if the policy fails at every seed.

    Parameters
    ----------
    workload : job, paths and measured epochs.
    spec : the policy.
    beta : bound of an attempt over the least cost so far.
    seeds : how many, from 1 on; those at which the policy fails are left out.
    """
    against, n = reference(workload, ETA), workload.recurrences()
    logs = []
    for seed in range(1, seeds + 1):
        try:
            logs += _runs(workload, spec, [seed], COMPAT, beta=beta)
        except Infeasible:
            continue
    return _mean([of_attempts(log, n, against) for log in logs], "cost_ratio") if logs else None


#: GPU, data set, exponent, pivot of the five synthetic changes
DRIFTS: Final = (
    ("v100", "librispeech", -0.6, 48.0),
    ("v100", "squad", -0.35, 16.0),
    ("v100", "librispeech", 0.25, 48.0),
    ("rtx6000", "librispeech", -0.6, 32.0),
    ("v100", "sentiment140", -0.4, 64.0),
)
DRIFT_AT, DRIFT_RECURRENCES = 120, 240


def drift_excess(
    case: tuple[str, str, float, float], spec: KnobSpec, rules: Rules, seeds: Sequence[int]
) -> list[float]:
    """Cost after the change over the new optimum's, minus one, for each seed.

    Parameters
    ----------
    case : GPU, data set, exponent and pivot of the change.
    spec : the policy.
    rules : known bugs that apply.
    seeds : of the runs of `DRIFT_RECURRENCES` recurrences; the change comes at `DRIFT_AT`.
    """
    gpu, dataset, exponent, pivot = case
    workload = public_workload(gpu, dataset, rules)
    after = reference(workload.drifted(exponent, pivot), ETA).oracle
    assert after is not None
    change = (Drift(from_recurrence=DRIFT_AT, exponent=exponent, pivot=pivot),)
    logs = run_many(
        Work(workload, spec, eta=ETA, beta=BETA, rules=rules, recurrences=DRIFT_RECURRENCES, drift=change),
        seeds,
    )
    costs = [log.per_recurrence(log.cost_j, DRIFT_RECURRENCES)[DRIFT_AT:] for log in logs]
    return [float(cost.mean()) / after.cost_j - 1 for cost in costs]


def _drift(progress: Progress) -> Reproduced:
    """zeus-drift: windowed learning after a synthetic change of the job."""
    rows = []
    for case in DRIFTS:
        for window in (0, 10, 3):
            progress(f"zeus-drift: {case[0]} {case[1]} window {window}")
            spec = Pair(batch_size=PruningGts(window=window), limit=Jit())
            excess = float(np.mean(drift_excess(case, spec, COMPAT, range(1, 21))))
            name = f"{case[0]} {case[1]}, exponent {case[2]}, window {window}: excess cost after the change"
            rows.append(_ours(name, excess, note="synthetic change, 20 seeds"))
    return Reproduced(
        tuple(rows), notes=("the paper's drifting data set is not public; the change here is synthetic",)
    )


def _entry(
    name: str,
    title: str,
    place: str,
    run: Callable[[Progress], Reproduced],
    minutes: float,
    quick: Callable[[Progress], Reproduced] | None = None,
) -> Reproduction:
    """A reproduction from the public trace."""
    return Reproduction(name, title, f"{PAPER}, {place}", run, (SOURCE,), minutes, quick)


REPRODUCTIONS: tuple[Reproduction, ...] = (
    _entry("zeus-savings-potential", "What both knobs can save at most", "introduction", _potential, 0.1),
    _entry("zeus-single", "Savings of the published policy, job by job", "abstract", _single, 0.3),
    _entry(
        "zeus-regret",
        "Cumulative regret of optimiser and baselines",
        "evaluation",
        _regret,
        0.7,
        partial(_regret, part=5),
    ),
    _entry("zeus-groups", "Savings when submissions overlap", "evaluation", _groups, 0.3),
    _entry("zeus-pareto", "Frontier of time against energy", "motivation", _pareto, 0.1),
    _entry("zeus-gpus", "Potential and savings on three more GPU types", "evaluation", _gpus, 0.3),
    _entry(
        "zeus-sensitivity",
        "Weight of energy, early stopping and window",
        "evaluation",
        _sensitivity,
        0.3,
        partial(_sensitivity, seeds=8),
    ),
    _entry("zeus-drift", "Windowed learning when the job changes", "evaluation", _drift, 0.5),
    *reproduce_hardware.REPRODUCTIONS,
)
