"""Which batch size, power limit, GPU and hour, read off the measurements without any learning.

Every measured configuration becomes a point: expected time, energy, cost, and money and carbon where signals are
given. The plan is the cheapest point within the bounds; beside it are the frontier of time against energy, its knee,
the optimum for every weight of energy, the confidence that the recorded paths allow, and a certificate that a small checker
re-verifies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.domains.energy.inputs import read_job
from forerun.domains.energy.inputs.resampling import resampled_mean_epochs
from forerun.domains.energy.inputs.workload import Workload
from forerun.domains.energy.plan.points import Bound, Certificate, Point, certified_frontier, knee, verify
from forerun.domains.energy.plan.signals import amount, best_pieces, best_start
from forerun.domains.energy.policy.view import Floats
from forerun.domains.energy.scenario import Goal, Scenario
from forerun.errors import Infeasible, Problem
from forerun.result.numbers import format_number
from forerun.result.plan import ShownPlan
from forerun.result.tables import Column, Table, TableSchema
from forerun.rng import stream
from forerun.trace.signal import Signal

#: weights of energy at which the plan shows the best configuration
ETAS: Final = tuple(i / 20 for i in range(21))
DRAWS: Final = 2000

POINTS: Final = TableSchema(
    "points",
    (
        Column("gpu", "", "GPU type"),
        Column("batch_size", "", "samples a step"),
        Column("power_limit_w", "W", "limit"),
        Column("reach_share", "", "share of recorded paths that reach the target"),
        Column("time_s", "s", "expected time to the target"),
        Column("energy_j", "J", "expected energy to the target"),
        Column("cost_j", "J", "expected cost at the scenario's weight of energy"),
        Column("power_w", "W", "average draw of all GPUs"),
        Column("usd", "$", "money at the chosen start (nan: no price)"),
        Column("gco2", "g", "carbon at the chosen start (nan: no carbon signal)"),
        Column("start_s", "s", "best start under the deadline"),
        Column("on_frontier", "", "nothing is better in time or energy without being worse in the other"),
        Column("feasible", "", "within all bounds in expectation"),
        Column("violates", "", "the bounds it breaks"),
        Column("probability_best", "", "over the posterior of the recorded paths"),
    ),
    "every measured configuration",
)


@dataclass(frozen=True)
class Confidence:
    """How sure a plan is, over the posterior of the recorded paths.

    best: probability that the chosen point is the best. keeps: probability that it meets each bound. time_s, energy_j: 95 %
    intervals of what it takes.
    """

    best: float
    keeps: dict[str, float]
    time_s: tuple[float, float]
    energy_j: tuple[float, float]


@dataclass(frozen=True, repr=False)
class JobPlan(ShownPlan):
    """The plan of a recurring job.

    scenario: with the goal that was planned. points: every configuration, in the order GPU, size, limit. frontier: ascending
    in time. knee: the frontier point where it bends most. default: the default configuration, if it reaches. chosen: the
    answer. by_eta: the best point at each weight of energy. confidence: how sure it is. certificate: for the checker.
    probability_best: float64[points]. notes: repairs and doubts.
    """

    scenario: Scenario
    points: tuple[Point, ...]
    frontier: tuple[Point, ...]
    knee: Point
    default: Point | None
    chosen: Point
    by_eta: tuple[tuple[float, Point], ...]
    confidence: Confidence
    certificate: Certificate
    probability_best: Floats = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """One sentence: what is chosen, against what, under which bounds."""
        against = ""
        if self.default is not None:
            e = 100 * (1 - self.chosen.energy_j / self.default.energy_j)
            t = 100 * (1 - self.chosen.time_s / self.default.time_s)
            against = f"; against the default it takes {_change(e)} energy and {_change(t)} time"
        named = [
            # A slowdown is named with the time that it amounts to.
            f"{bound.name} ({format_number(bound.limit)} s)"
            if " " in bound.name
            else f"{bound.name} {bound.limit:g}"
            for bound in self.certificate.bounds
        ]
        bounds = ", ".join(named) or "no bounds"
        return f"{self.chosen.name} has the least {self.scenario.goal.minimise} under {bounds}{against}"

    @property
    def summary(self) -> dict[str, Any]:
        """Flat figures, names with units."""
        figures: dict[str, Any] = {
            "gpu": self.chosen.gpu,
            "batch_size": self.chosen.batch_size,
            "power_limit_w": self.chosen.limit_w,
            "time_s": self.chosen.time_s,
            "energy_j": self.chosen.energy_j,
            "cost_j": self.chosen.cost_j,
            "start_s": self.chosen.start_s,
            "probability_best": self.confidence.best,
            "knee_batch_size": self.knee.batch_size,
            "knee_power_limit_w": self.knee.limit_w,
            "points": len(self.points),
            "frontier_points": len(self.frontier),
        }
        if not math.isnan(self.chosen.usd):
            figures |= {"cost_usd": self.chosen.usd, "cost_usd_if_started_now": self.chosen.usd_now}
        if not math.isnan(self.chosen.gco2):
            figures |= {"carbon_gco2": self.chosen.gco2, "carbon_gco2_if_started_now": self.chosen.gco2_now}
        if self.default is not None:
            figures["energy_saved_percent"] = 100 * (1 - self.chosen.energy_j / self.default.energy_j)
            figures["time_saved_percent"] = 100 * (1 - self.chosen.time_s / self.default.time_s)
        return figures

    @property
    def tables(self) -> dict[str, Table]:
        """The points, with frontier, feasibility and the probability to be the best."""
        front = set(self.certificate.frontier)
        rows = []
        for at, p in enumerate(self.points):
            broken = [bound.name for bound in self.certificate.bounds if bound.broken_by(p)]
            row = (p.gpu, p.batch_size, p.limit_w, p.reach, p.time_s, p.energy_j, p.cost_j, p.power_w)
            rest = (p.usd, p.gco2, p.start_s, at in front, not broken, ", ".join(broken))
            rows.append((*row, *rest, float(self.probability_best[at])))
        return {"points": Table.of_rows(POINTS, rows)}

    def check(self) -> JobPlan:
        """Re-verify the certificate; returns self. Raises CheckFailed."""
        verify(self.certificate)
        return self

    def data(self) -> dict[str, Any]:
        """As plain data (`--json`)."""
        return {
            "domain": "energy",
            "summary": self.summary,
            "why": self.why,
            "notes": list(self.notes),
            "frontier": [_plain(point) for point in self.frontier],
            "knee": _plain(self.knee),
            "default": _plain(self.default) if self.default else None,
            "by_eta": [{"eta": eta, **_plain(point)} for eta, point in self.by_eta],
            "confidence": {
                "best": self.confidence.best,
                "keeps": self.confidence.keeps,
                "time_s": list(self.confidence.time_s),
                "energy_j": list(self.confidence.energy_j),
            },
        }


def plan_job(scenario: Scenario) -> JobPlan:
    """The plan of a recurring job. Raises Infeasible naming the bound that cannot be met, and as `inputs.read_job`."""
    goal = scenario.goal
    workloads, repairs = {}, []
    for gpu in _gpus(scenario):
        inputs = read_job(scenario, gpu)
        workloads[gpu] = inputs.workload
        repairs += [repair for repair in inputs.repairs if repair not in repairs]
    points = enumerate_points(workloads, scenario, goal, inputs.price, inputs.carbon)
    return _solve(scenario, goal, workloads, points, tuple(repairs))


def _gpus(scenario: Scenario) -> tuple[str, ...]:
    """The GPU types to plan over."""
    return tuple(scenario.trace.power) if scenario.goal.all_gpus else (scenario.gpu_type,)


def enumerate_points(
    workloads: dict[str, Workload],
    scenario: Scenario,
    goal: Goal,
    price: Signal | None,
    carbon: Signal | None,
) -> tuple[Point, ...]:
    """Every configuration that can reach the target; time is priced at the highest limit of all GPU types."""
    top = scenario.max_power_w or max(workload.max_power_w for workload in workloads.values())
    points = []
    for gpu, workload in workloads.items():
        for at in workload.expected(scenario.eta):
            if at.reach == 0:
                continue
            cost = scenario.eta * at.energy_j + (1 - scenario.eta) * top * at.time_s
            power = goal.gpus * at.energy_j / at.time_s
            totals = (at.reach, at.time_s, at.energy_j, cost, power)
            points.append(_timed(Point(gpu, at.batch_size, at.limit_w, *totals), goal, price, carbon))
    if not points:
        raise Infeasible(Problem(str(scenario.job), "no measured configuration ever reaches the target"))
    return tuple(points)


def _timed(point: Point, goal: Goal, price: Signal | None, carbon: Signal | None) -> Point:
    """The point with its best start: by what is minimised, else by carbon, else by price."""
    leading = {"usd": price, "gco2": carbon}.get(goal.minimise) or carbon or price
    if leading is None:
        return point
    start = 0.0
    stretches: tuple[tuple[float, float], ...] = ((0.0, point.time_s),)
    if goal.deadline_s:
        slot = best_start(leading, point.time_s, point.power_w, deadline_s=goal.deadline_s)
        if slot is not None:
            start = slot.start_s
        stretches = ((start, start + point.time_s),)
        if goal.pausing is not None and slot is not None:
            pieces = best_pieces(
                leading,
                point.time_s,
                point.power_w,
                deadline_s=goal.deadline_s,
                checkpoint_s=goal.pausing.checkpoint_s,
                checkpoint_j=goal.pausing.checkpoint_j,
            )
            if pieces is not None:
                start, stretches = pieces.stretches[0][0], pieces.stretches
    extra_j = goal.pausing.checkpoint_j if goal.pausing else 0.0

    def taken(value: Signal | None) -> tuple[float, float]:
        """What the run takes of a signal as planned, and if it started at once; NaN without a signal."""
        if value is None:
            return math.nan, math.nan
        total = math.fsum(amount(value, a, b - a, point.power_w) for a, b in stretches)
        total += math.fsum(extra_j / 3.6e6 * value.at(a) for a, _ in stretches[1:])
        return total, amount(value, 0.0, point.time_s, point.power_w)

    usd, gco2 = taken(price), taken(carbon)
    timed = replace(point, usd=usd[0], usd_now=usd[1], gco2=gco2[0], gco2_now=gco2[1])
    return replace(timed, start_s=start, stretches=stretches)


def _solve(
    scenario: Scenario,
    goal: Goal,
    workloads: dict[str, Workload],
    points: tuple[Point, ...],
    repairs: tuple[str, ...],
) -> JobPlan:
    """Choose the best feasible point and put everything about it together. Raises Infeasible."""
    default = _default_point(scenario, points)
    bounds = _bounds(goal, default)
    certain = [at for at, point in enumerate(points) if point.reach == 1] or list(range(len(points)))
    frontier, dominated_by = certified_frontier(points, certain)
    feasible = [at for at in range(len(points)) if not any(bound.broken_by(points[at]) for bound in bounds)]
    if not feasible:
        raise _infeasible(scenario, points, bounds)
    figure = goal.minimise
    if all(math.isnan(points[at].value(figure)) for at in feasible):
        what = f"{figure} is to be minimised, but the scenario has no {'price' if figure == 'usd' else 'carbon'} signal"
        raise Infeasible(Problem("goal.minimise", what))
    preferred = [at for at in feasible if points[at].reach == 1] or feasible
    chosen = min(preferred, key=lambda at: points[at].value(figure))
    certificate = Certificate(points, bounds, figure, tuple(frontier), dominated_by, chosen)
    sure, best = _confidence(scenario, workloads, points, bounds, figure, chosen)
    return JobPlan(
        scenario=scenario,
        points=points,
        frontier=tuple(points[at] for at in frontier),
        knee=points[knee(points, frontier)],
        default=default,
        chosen=points[chosen],
        by_eta=_by_eta(scenario, workloads, points, certain),
        confidence=sure,
        certificate=certificate,
        probability_best=best,
        notes=(*repairs, *_doubts(goal, sure, points[chosen], points, certain)),
    ).check()


def _default_point(scenario: Scenario, points: Sequence[Point]) -> Point | None:
    """The default configuration at its highest limit, None if it was not measured or never reaches."""
    mine = [
        point
        for point in points
        if point.gpu == scenario.gpu_type and point.batch_size == scenario.job.default_batch_size
    ]
    return max(mine, key=lambda point: point.limit_w) if mine else None


def _bounds(goal: Goal, default: Point | None) -> tuple[Bound, ...]:
    """The bounds of a goal. Raises Infeasible for a slowdown without a default configuration."""
    bounds = [
        Bound(name, figure, getattr(goal, name))
        for name, figure in (
            ("max_time_s", "time_s"),
            ("max_energy_j", "energy_j"),
            ("power_cap_w", "power_w"),
            ("max_usd", "usd"),
            ("max_gco2", "gco2"),
        )
        if getattr(goal, name)
    ]
    if goal.deadline_s:
        bounds.append(Bound("deadline_s", "time_s", goal.deadline_s))
    if goal.max_slowdown:
        if default is None:
            what = "needs the default configuration, which never reaches the target or was not measured"
            raise Infeasible(Problem("goal.max_slowdown", what))
        bounds.append(
            Bound(f"max_slowdown {goal.max_slowdown:g}", "time_s", goal.max_slowdown * default.time_s)
        )
    return tuple(bounds)


def _infeasible(scenario: Scenario, points: Sequence[Point], bounds: Sequence[Bound]) -> Infeasible:
    """Names the bounds that no point keeps, or the pair of figures that cannot be had together."""
    problems = []
    for bound in bounds:
        nearest = min(points, key=lambda point: _or_infinite(point.value(bound.figure)))
        if bound.broken_by(nearest):
            least = f"the least is {nearest.value(bound.figure):g}, {nearest.name}"
            what = f"no configuration keeps {bound.figure} <= {bound.limit:g}; {least}"
            problems.append(Problem(f"goal.{bound.name}", what))
    if not problems:
        together = " and ".join(bound.name for bound in bounds)
        problems.append(Problem("goal", f"each bound can be met, but not {together} together"))
    return Infeasible(*problems)


def _or_infinite(value: float) -> float:
    """The value, infinite instead of NaN."""
    return math.inf if math.isnan(value) else value


def _by_eta(
    scenario: Scenario, workloads: dict[str, Workload], points: Sequence[Point], certain: Sequence[int]
) -> tuple[tuple[float, Point], ...]:
    """The best certain point at each weight of energy."""
    top = scenario.max_power_w or max(workload.max_power_w for workload in workloads.values())
    best_by_eta = []
    for eta in ETAS:
        best = min(certain, key=lambda at: eta * points[at].energy_j + (1 - eta) * top * points[at].time_s)
        best_by_eta.append((eta, points[best]))
    return tuple(best_by_eta)


def _confidence(
    scenario: Scenario,
    workloads: dict[str, Workload],
    points: Sequence[Point],
    bounds: Sequence[Bound],
    figure: str,
    chosen: int,
) -> tuple[Confidence, Floats]:
    """Sample the posterior of the paths, scale every point with its size's mean epochs, and count.

    Money and carbon scale with energy: starts are not chosen again for each sample.
    """
    rng = stream(scenario.seed, "confidence", str(scenario.job))
    factor = np.ones((DRAWS, len(points)))
    samples: dict[int, Floats] = {}
    for workload in workloads.values():
        for at, size in enumerate(workload.sizes.tolist()):
            if size not in samples:
                samples[size] = resampled_mean_epochs(workload, at, rng, DRAWS)
    for at, point in enumerate(points):
        factor[:, at] = samples[point.batch_size]
    base = np.array([point.value(figure) for point in points])
    values = base * factor
    within: NDArray[np.bool_] = np.ones((DRAWS, len(points)), bool)
    keeps = {}
    for bound in bounds:
        scale = factor if bound.figure != "power_w" else np.ones_like(factor)
        good = np.array([point.value(bound.figure) for point in points]) * scale <= bound.limit * (1 + 1e-12)
        within &= good
        keeps[bound.name] = float(good[:, chosen].mean())
    values = np.where(within & ~np.isnan(values), values, math.inf)
    winner = np.argmin(values, axis=1)
    best = np.bincount(winner[np.isfinite(values.min(axis=1))], minlength=len(points)) / DRAWS
    inside = np.quantile(factor[:, chosen], [0.025, 0.975])
    low, high = float(inside[0]), float(inside[1])
    point = points[chosen]
    return (
        Confidence(
            best=float(best[chosen]),
            keeps=keeps,
            time_s=(low * point.time_s, high * point.time_s),
            energy_j=(low * point.energy_j, high * point.energy_j),
        ),
        best,
    )


def _change(saved_percent: float) -> str:
    """A saving in words; a negative one is more."""
    return f"{abs(saved_percent):.1f} % {'less' if saved_percent >= 0 else 'more'}"


def _doubts(
    goal: Goal, sure: Confidence, chosen: Point, points: Sequence[Point], certain: Sequence[int]
) -> list[str]:
    """Notes on what the recorded paths leave uncertain."""
    notes = [
        f"{name} holds in expectation, but only with probability {share:.0%} over the recorded paths"
        for name, share in sure.keeps.items()
        if share < goal.confidence
    ]
    if chosen.reach < 1:
        notes.append(
            f"{chosen.name} reaches the target in {chosen.reach:.0%} of its recorded paths; retries are counted"
        )
    if len(certain) == len(points) and any(point.reach < 1 for point in points):
        notes.append("no configuration reaches the target in all its recorded paths")
    if sure.best < 0.5:
        notes.append(
            f"the data leave {1 - sure.best:.0%} for another configuration to be the best: see probability_best"
        )
    return notes


def _plain(point: Point) -> dict[str, Any]:
    """A point as plain data; NaN becomes None."""
    fields = {
        "gpu": point.gpu,
        "batch_size": point.batch_size,
        "power_limit_w": point.limit_w,
        "reach_share": point.reach,
        "time_s": point.time_s,
        "energy_j": point.energy_j,
        "cost_j": point.cost_j,
        "power_w": point.power_w,
        "usd": point.usd,
        "gco2": point.gco2,
        "start_s": point.start_s,
        "stretches_s": [list(stretch) for stretch in point.stretches],
    }
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in fields.items()
    }
