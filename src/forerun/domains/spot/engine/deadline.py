"""One job with a deadline on one instance that is spot, on-demand or none: policies, and the best in
hindsight.

The clock runs in ticks.  At the end of each, what was held is paid for and has worked, after the rest of its
change-over; spot that is no longer there is taken away; then the policy says what to hold.  At the end one
more tick of its last answer is paid.  [Wu et al., Can't be late: optimizing spot instance savings under
deadlines, NSDI'24.]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from forerun.errors import Infeasible, PolicyError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from forerun.domains.spot.policy import DeadlineRule


class Held(Enum):
    """What kind of instance the job holds."""

    NONE = "none"
    SPOT = "spot"
    ON_DEMAND = "on_demand"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineJob:
    """Work, deadline, tick, change-over in seconds; prices in dollars an hour."""

    work_s: float = 48 * 3600.0
    deadline_s: float = 52 * 3600.0
    tick_s: float = 600.0
    changeover_s: float = 360.0
    spot_usd_per_h: float = 0.9731
    on_demand_usd_per_h: float = 3.06

    def price_usd(self, held: Held) -> float:
        """The price of one tick."""
        per_h = {Held.NONE: 0.0, Held.SPOT: self.spot_usd_per_h, Held.ON_DEMAND: self.on_demand_usd_per_h}[
            held
        ]
        return per_h * self.tick_s / 3600.0


@dataclass(frozen=True, slots=True)
class DeadlineView:
    """What a policy may know: the clock, the work done, what is held, and whether spot is there now.

    `changeover_left_s`: what is left of the change-over of what is held.
    """

    elapsed_s: float
    done_s: float
    held: Held
    changeover_left_s: float
    spot_available: bool
    job: DeadlineJob

    @property
    def remaining_s(self) -> float:
        """Work left."""
        return self.job.work_s - self.done_s

    @property
    def left_s(self) -> float:
        """Time to the deadline, in whole ticks."""
        return math.floor((self.job.deadline_s - self.elapsed_s) / self.job.tick_s) * self.job.tick_s

    def ticks_needed_s(self, changeovers: int) -> float:
        """Time to finish after so many change-overs, in whole ticks."""
        tick_s = self.job.tick_s
        return math.ceil((self.remaining_s + changeovers * self.job.changeover_s) / tick_s) * tick_s


@dataclass(frozen=True, slots=True)
class DeadlineRun:
    """What it cost and when it was done; `held` has what was paid for in each tick."""

    cost_usd: float
    finish_s: float
    held: Sequence[Held]


def run_deadline(job: DeadlineJob, rule: DeadlineRule, available: Sequence[bool]) -> DeadlineRun:
    """Follow a policy over the ticks of a trace (`available`: whether spot is there in each).

    Raises Infeasible if the trace ends before the work is done, PolicyError if spot is asked for where none
    is.
    """
    policy = rule.build()
    held, over_s, done_s = Held.NONE, 0.0, 0.0
    paid: list[Held] = []
    for tick, spot in enumerate(available):
        paid.append(held)
        if held is not Held.NONE:  # the tick that ends here was worked, even if spot vanishes at its end
            credit_s = max(job.tick_s - over_s, 0.0)
            over_s -= job.tick_s - credit_s
            done_s += min(credit_s, job.work_s - done_s)
        if held is Held.SPOT and not spot:
            held = Held.NONE
        view = DeadlineView(tick * job.tick_s, done_s, held, over_s, spot, job)
        answer = policy.choose(view)
        if answer is Held.SPOT and not spot:
            raise PolicyError.at(f"tick {tick}", f"{type(rule).__name__} asks for spot where there is none")
        if done_s >= job.work_s:
            paid.append(answer)
            return DeadlineRun(sum(map(job.price_usd, paid)), tick * job.tick_s, paid)
        if answer is not Held.NONE and answer is not held:
            over_s = job.changeover_s
        held = answer
    raise Infeasible.at(
        "deadline job", f"{job.work_s - done_s:.0f} s of work are left after {len(available)} ticks"
    )


def hourly_rate_trace(rate_per_h: float, ticks: int, tick_s: float, seed: int) -> list[bool]:
    """Whether spot is there, tick by tick, if it is preempted with a probability `rate_per_h` an hour.

    Draws from Python's generator, so that trace number `seed` is the one of the paper's study.
    """
    random = Random(seed)
    preempted = 1 - (1 - rate_per_h) ** (tick_s / 3600)
    return [random.random() >= preempted for _ in range(ticks)]


# --------------------------------------------------------------------------- the best in hindsight


@dataclass(frozen=True, slots=True)
class Bound:
    """The cheapest way through a known trace, and its cost."""

    cost_usd: float
    held: Sequence[Held]


def offline_bound(job: DeadlineJob, available: Sequence[bool]) -> Bound:
    """The cheapest cost that meets the deadline when the trace is known: exact, by dynamic programming.

    State: tick, what is held, work done in units of gcd(tick, change-over).  A change-over shorter than a
    tick is worked off in the tick that starts it.  Raises Infeasible if not even on-demand from the start is
    in time, ValueError for a change-over longer than a tick.
    """
    unit, gain, goal = _units(job)
    ticks = min(len(available), math.floor(job.deadline_s / job.tick_s + 1e-9))
    price = [0.0, job.price_usd(Held.SPOT), job.price_usd(Held.ON_DEMAND)]
    change = round(job.changeover_s / unit)
    best = np.full((3, goal + 1), np.inf)
    best[0, 0] = 0.0
    history: list[tuple[NDArray[np.int8], list[int]]] = []
    for tick in range(ticks):
        following, came = np.full((3, goal + 1), np.inf), np.zeros((3, goal + 1), dtype=np.int8)
        before_goal = [goal, goal, goal]
        for to in range(3):
            if to == 1 and not available[tick]:
                continue
            for source in range(3):
                work = 0 if to == 0 else gain if to == source else gain - change
                moved, carried = _worked(best[source], work)
                moved += price[to]
                better = moved < following[to] - 1e-12
                if better[goal]:
                    before_goal[to] = carried
                following[to][better], came[to][better] = moved[better], source
        best = following
        history.append((came, before_goal))
    end = int(np.argmin(best[:, goal]))
    if not np.isfinite(best[end, goal]):
        raise Infeasible.at("deadline job", "no choice of instances meets the deadline on this trace")
    return Bound(float(best[end, goal]), _path(job, history, end))


def _units(job: DeadlineJob) -> tuple[int, int, int]:
    """Unit of work in seconds, a tick's and the job's work in it."""
    if job.changeover_s > job.tick_s:
        raise ValueError("the bound needs a change-over no longer than a tick")
    unit = math.gcd(round(job.tick_s), round(job.changeover_s)) or round(job.tick_s)
    return unit, round(job.tick_s / unit), math.ceil(job.work_s / unit - 1e-9)


def _worked(cost: NDArray[np.float64], units: int) -> tuple[NDArray[np.float64], int]:
    """Cheapest cost by work done after `units` more, capped at the goal; and the work from which the goal is
    met.
    """
    if units == 0:
        return cost.copy(), cost.size - 1
    shifted = np.full_like(cost, np.inf)
    shifted[units:] = cost[:-units]
    carried = cost.size - 1 - units + int(np.argmin(cost[-units - 1 :]))
    shifted[-1] = cost[carried]
    return shifted, carried


def _path(job: DeadlineJob, history: Sequence[tuple[NDArray[np.int8], list[int]]], end: int) -> list[Held]:
    """Which instance each tick held on a cheapest way: the tables of sources, followed back from the goal."""
    unit, gain, goal = _units(job)
    change = round(job.changeover_s / unit)
    kinds = (Held.NONE, Held.SPOT, Held.ON_DEMAND)
    path: list[Held] = []
    kind, work = end, goal
    for came, before_goal in reversed(history):
        path.append(kinds[kind])
        source = int(came[kind, work])
        units = 0 if kind == 0 else gain if kind == source else gain - change
        work = before_goal[kind] if work == goal else work - units
        kind = source
    return path[::-1]


def bound_by_mip(job: DeadlineJob, available: Sequence[bool]) -> float:
    """The same cost as a 0/1 programme solved by HiGHS; also for change-overs longer than a tick.

    Variables per tick: spot a, on-demand b, their starts x >= a - a', y >= b - b'.  Work: sum of tick (a + b)
    is at least the work and a change-over for every start.
    """
    import highspy

    ticks = min(len(available), math.floor(job.deadline_s / job.tick_s + 1e-9))
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", 1e-9)
    spot = [solver.addBinary(obj=job.price_usd(Held.SPOT)) for _ in range(ticks)]
    steady = [solver.addBinary(obj=job.price_usd(Held.ON_DEMAND)) for _ in range(ticks)]
    starts = []
    for held in (spot, steady):
        begun = [solver.addVariable(lb=0.0, ub=1.0) for _ in range(ticks)]
        starts += begun
        solver.addConstr(begun[0] >= held[0])
        for before, now, start in zip(held, held[1:], begun[1:]):
            solver.addConstr(start >= now - before)
    for tick in range(ticks):
        solver.addConstr(spot[tick] + steady[tick] <= 1)
        if not available[tick]:
            solver.addConstr(spot[tick] <= 0)
    work = sum(job.tick_s * held for held in [*spot, *steady]) - sum(
        job.changeover_s * start for start in starts
    )
    solver.addConstr(work >= job.work_s)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise Infeasible.at("deadline job", "no choice of instances meets the deadline on this trace")
    return float(solver.getInfo().objective_function_value)


def runs(
    job: DeadlineJob, rule: DeadlineRule, rate_per_h: float, traces: int, until_s: float | None = None
) -> Iterator[DeadlineRun]:
    """What a rule does on the paper's traces 0, 1, ..."""
    ticks = math.ceil((until_s or job.deadline_s) / job.tick_s) + 2
    for seed in range(traces):
        yield run_deadline(job, rule, hourly_rate_trace(rate_per_h, ticks, job.tick_s, seed))
