"""Which batch size, power limit, GPU and hour, read off the measurements without any learning.

Every measured configuration becomes a point: expected time, energy, cost, and money and carbon where signals are
given. The plan is the cheapest point within the bounds; beside it are the frontier of time against energy, its knee,
the optimum for every weight of energy, the confidence that the recorded paths allow, and a certificate that a small checker
re-verifies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import Infeasible, Problem
from forerun.core.result.numbers import format_number, plain
from forerun.core.result.plan import ShownPlan
from forerun.core.result.tables import Column, Table, TableSchema
from forerun.core.rng import stream
from forerun.core.trace.signal import Signal
from forerun.energy.inputs import JobInputs, read_job
from forerun.energy.inputs.resampling import resampled_mean_epochs
from forerun.energy.inputs.workload import Workload
from forerun.energy.plan.points import Certificate, PlanBound, Point, certified_frontier, knee, verify
from forerun.energy.plan.signals import WorkSchedule, amount, best_pieces, best_start
from forerun.energy.policy.view import Floats
from forerun.energy.scenario import Goal, Scenario

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
            energy, time = map(_change, self._saved.values())
            against = f"; against the default it takes {energy} energy and {time} time"
        named = [
            # A slowdown is named with the time that it amounts to.
            f"{bound.name} {bound.limit:g}"
            if bound.against is None
            else f"{bound.name} ({format_number(bound.limit)} s)"
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
        return figures | self._saved

    @property
    def _saved(self) -> dict[str, float]:
        """What is saved against the default configuration; empty without one."""
        if self.default is None:
            return {}
        return {
            "energy_saved_percent": 100 * (1 - self.chosen.energy_j / self.default.energy_j),
            "time_saved_percent": 100 * (1 - self.chosen.time_s / self.default.time_s),
        }

    @property
    def tables(self) -> dict[str, Table]:
        """The points, with frontier, feasibility and the probability to be the best."""
        front = set(self.certificate.frontier)
        broken = [
            [bound.name for bound in self.certificate.bounds if bound.broken_by(point)]
            for point in self.points
        ]
        points = Table.of_records(
            POINTS,
            self.points,
            power_limit_w="limit_w",
            reach_share="reach",
            on_frontier=[at in front for at in range(len(self.points))],
            feasible=[not names for names in broken],
            violates=[", ".join(names) for names in broken],
            probability_best=self.probability_best,
        )
        return {"points": points}

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
            "confidence": plain(asdict(self.confidence)),
        }


def plan_job(scenario: Scenario) -> JobPlan:
    """The plan of a recurring job. Raises Infeasible naming the bound that cannot be met, and as `inputs.read_job`."""
    goal = scenario.goal
    gpus = tuple(scenario.trace.power) if goal.all_gpus else (scenario.gpu_type,)
    inputs = {gpu: read_job(scenario, gpu) for gpu in gpus}
    workloads = {gpu: one.workload for gpu, one in inputs.items()}
    repairs = dict.fromkeys(repair for one in inputs.values() for repair in one.repairs)
    # Time is priced at the highest limit of all GPU types.
    top_w = scenario.max_power_w or max(workload.max_power_w for workload in workloads.values())
    points = _points(inputs, top_w)
    default = _default_point(scenario, points)
    bounds = _bounds(goal, points, default)
    certain = [at for at, point in enumerate(points) if point.reach == 1] or list(range(len(points)))
    frontier, dominated_by = certified_frontier(points, certain)
    feasible = [at for at in range(len(points)) if not any(bound.broken_by(points[at]) for bound in bounds)]
    if not feasible:
        raise _infeasible(points, bounds)
    figure = goal.minimise
    if all(math.isnan(points[at].value(figure)) for at in feasible):
        what = f"{figure} is to be minimised, but the scenario has no {'price' if figure == 'usd' else 'carbon'} signal"
        raise Infeasible(Problem("goal.minimise", what))
    preferred = [at for at in feasible if points[at].reach == 1] or feasible
    chosen = min(preferred, key=lambda at: points[at].value(figure))
    certificate = Certificate(points, bounds, figure, tuple(frontier), dominated_by, chosen)
    sure, best = _confidence(scenario, workloads, certificate)
    return JobPlan(
        scenario=scenario,
        points=points,
        frontier=tuple(points[at] for at in frontier),
        knee=points[knee(points, frontier)],
        default=default,
        chosen=points[chosen],
        by_eta=tuple((eta, _best_at(eta, top_w, points, certain)) for eta in ETAS),
        confidence=sure,
        certificate=certificate,
        probability_best=best,
        notes=(*repairs, *_doubts(goal, sure, points[chosen], points, certain)),
    ).check()


def _points(inputs: Mapping[str, JobInputs], top_w: float) -> tuple[Point, ...]:
    """Every configuration that can reach the target. inputs: by GPU type. top_w: prices a second [W]."""
    points = []
    for gpu, one in inputs.items():
        eta, goal = one.scenario.eta, one.scenario.goal
        for at in one.workload.expected(eta):
            if at.reach == 0:
                continue
            cost = eta * at.energy_j + (1 - eta) * top_w * at.time_s
            power = goal.gpus * at.energy_j / at.time_s
            point = Point(gpu, at.batch_size, at.limit_w, at.reach, at.time_s, at.energy_j, cost, power)
            points.append(_timed(point, goal, one.price, one.carbon))
    if not points:
        raise Infeasible(Problem(str(one.scenario.job), "no measured configuration ever reaches the target"))
    return tuple(points)


def _best_at(eta: float, top_w: float, points: Sequence[Point], certain: Sequence[int]) -> Point:
    """The best certain point at a weight of energy."""
    best = min(certain, key=lambda at: eta * points[at].energy_j + (1 - eta) * top_w * points[at].time_s)
    return points[best]


def _timed(point: Point, goal: Goal, price: Signal | None, carbon: Signal | None) -> Point:
    """The point with its best start: by what is minimised, else by carbon, else by price.

    price: [usd/kWh]; carbon: [g/kWh]; None if the scenario has none.
    """
    leading = {"usd": price, "gco2": carbon}.get(goal.minimise) or carbon or price
    if leading is None:
        return point
    when: WorkSchedule | None = None
    if goal.deadline_s and goal.pausing is not None:
        when = best_pieces(
            leading,
            point.time_s,
            point.power_w,
            deadline_s=goal.deadline_s,
            checkpoint_s=goal.pausing.checkpoint_s,
            checkpoint_j=goal.pausing.checkpoint_j,
        )
    elif goal.deadline_s:
        when = best_start(leading, point.time_s, point.power_w, deadline_s=goal.deadline_s)
    stretches = when.stretches if when is not None else ((0.0, point.time_s),)
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
    return replace(timed, start_s=stretches[0][0], stretches=stretches)


def _default_point(scenario: Scenario, points: Sequence[Point]) -> Point | None:
    """The default configuration at its highest limit, None if it was not measured or never reaches."""
    mine = [
        point
        for point in points
        if point.gpu == scenario.gpu_type and point.batch_size == scenario.job.default_batch_size
    ]
    return max(mine, key=lambda point: point.limit_w) if mine else None


def _bounds(goal: Goal, points: Sequence[Point], default: Point | None) -> tuple[PlanBound, ...]:
    """The bounds of a goal. Raises Infeasible for a slowdown without a default configuration."""
    figures = {
        "max_time_s": "time_s",
        "max_energy_j": "energy_j",
        "power_cap_w": "power_w",
        "max_usd": "usd",
        "max_gco2": "gco2",
        "deadline_s": "time_s",
    }
    limits = {name: getattr(goal, name) for name in figures}
    bounds = [PlanBound(name, figures[name], limit) for name, limit in limits.items() if limit]
    if goal.max_slowdown:
        if default is None:
            what = "needs the default configuration, which never reaches the target or was not measured"
            raise Infeasible(Problem("goal.max_slowdown", what))
        limit = goal.max_slowdown * default.time_s
        name = f"max_slowdown {goal.max_slowdown:g}"
        bounds.append(PlanBound(name, "time_s", limit, against=points.index(default)))
    return tuple(bounds)


def _infeasible(points: Sequence[Point], bounds: Sequence[PlanBound]) -> Infeasible:
    """Names the bounds that no point keeps, or the pair of figures that cannot be had together."""
    problems = []
    for bound in bounds:
        nearest = min(points, key=lambda point: np.nan_to_num(point.value(bound.figure), nan=math.inf))
        if bound.broken_by(nearest):
            least = f"the least is {nearest.value(bound.figure):g}, {nearest.name}"
            what = f"no configuration keeps {bound.figure} <= {bound.limit:g}; {least}"
            problems.append(Problem(f"goal.{bound.name}", what))
    if not problems:
        together = " and ".join(bound.name for bound in bounds)
        problems.append(Problem("goal", f"each bound can be met, but not {together} together"))
    return Infeasible(*problems)


def _confidence(
    scenario: Scenario, workloads: Mapping[str, Workload], certificate: Certificate
) -> tuple[Confidence, Floats]:
    """Sample the posterior of the paths, scale every point with its size's mean epochs, and count.

    A limit that is a multiple of a point's figure scales with that point. Money and carbon scale with energy: starts are
    not chosen again for each sample.
    """
    rng = stream(scenario.seed, "confidence", str(scenario.job))
    points, chosen = certificate.points, certificate.chosen
    samples: dict[int, Floats] = {}
    for workload in workloads.values():
        for at, size in enumerate(workload.sizes.tolist()):
            if size not in samples:
                samples[size] = resampled_mean_epochs(workload, at, rng, DRAWS)
    factor = np.stack([samples[point.batch_size] for point in points], axis=1)
    values = np.array([point.value(certificate.minimise) for point in points]) * factor
    within: NDArray[np.bool_] = np.ones_like(factor, bool)
    keeps = {}
    for bound in certificate.bounds:
        scale = factor if bound.figure != "power_w" else np.ones_like(factor)
        limit = bound.limit * (1 if bound.against is None else factor[:, [bound.against]])
        good = np.array([point.value(bound.figure) for point in points]) * scale <= limit * (1 + 1e-12)
        within &= good
        keeps[bound.name] = float(good[:, chosen].mean())
    values = np.where(within & ~np.isnan(values), values, math.inf)
    winner = np.argmin(values, axis=1)
    best = np.bincount(winner[np.isfinite(values.min(axis=1))], minlength=len(points)) / DRAWS
    low, high = np.quantile(factor[:, chosen], [0.025, 0.975]).tolist()
    point = points[chosen]
    time_s, energy_j = (
        (low * point.time_s, high * point.time_s),
        (low * point.energy_j, high * point.energy_j),
    )
    return Confidence(float(best[chosen]), keeps, time_s, energy_j), best


def _change(saved_percent: float) -> str:
    """A saving in words; a negative one is more."""
    return f"{abs(saved_percent):.1f} % {'less' if saved_percent >= 0 else 'more'}"


def _doubts(
    goal: Goal, sure: Confidence, chosen: Point, points: Sequence[Point], certain: Sequence[int]
) -> list[str]:
    """Notes on what the recorded paths leave uncertain. certain: indices of the points whose paths all reach."""
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
    renamed = {"limit_w": "power_limit_w", "reach": "reach_share"}
    fields = {renamed.get(name, name): value for name, value in asdict(point).items()}
    for name in ("usd_now", "gco2_now"):
        del fields[name]
    fields["stretches_s"] = fields.pop("stretches")
    return cast(dict[str, Any], plain(fields))
