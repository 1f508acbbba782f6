"""Max-min fairness over GPUs of several types."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from forerun.cluster.inputs.arrays import F64, I64
from forerun.cluster.policy import Allocation, Allocator, Scheduler, View
from forerun.core.highs import new_solver, solve
from forerun.core.scenario.numbers import Positive


class GavelMaxMin(Allocator, tag="gavel-maxmin", frozen=True, kw_only=True):
    """The least well-served job is served as well as can be: shares of time on each GPU type from a linear programme.

    Narayanan et al., Gavel, OSDI'20, section 4.1 (max-min fairness, throughput relative to an equal share) and
    section 5 (rounds: the job and type furthest behind its share goes first). A job runs on one type at a time.
    """

    paper: ClassVar[str] = "Narayanan et al., Gavel, OSDI'20"
    needs: ClassVar[tuple[str, ...]] = ("gpus", "profile per GPU type")
    guarantees: ClassVar[str] = "max-min fair shares of throughput, in the long run"
    cost: ClassVar[str] = "one linear programme (jobs x types) whenever the set of jobs changes"
    round_s: Positive = 360.0

    def build(self, rng: np.random.Generator) -> Scheduler:
        """A scheduler that remembers the time each job has had on each type."""
        return GavelScheduler(self.round_s)


class GavelScheduler:
    """Solves for shares when jobs come or go, and serves those furthest behind their share each round."""

    def __init__(self, round_s: float) -> None:
        self.round_s = round_s
        self.known: tuple[int, ...] = ()
        self.share: F64 = np.zeros((0, 0))
        self.had_s: dict[int, F64] = {}

    def allocate(self, view: View) -> Allocation:
        """Jobs by how far each is behind its share, on the type where that is most."""
        jobs = view.job.tolist()
        types = len(view.type_total)
        if tuple(jobs) != self.known:
            self.share = fair_shares(speeds(view), view.gpus, view.type_total)
            self.known = tuple(jobs)
            self.had_s = {job: self.had_s.get(job, np.zeros(types)) for job in jobs}
        had_s = np.array([self.had_s[job] for job in jobs])
        behind = self.share / (had_s + self.round_s)
        gpus, chosen = np.zeros(len(jobs), np.int64), view.gpu_type.copy()
        free = view.type_total.copy()
        for flat in np.argsort(-behind, axis=None, kind="stable").tolist():
            at, gpu_type = divmod(flat, types)
            need = view.gpus[at]
            if gpus[at] == 0 and self.share[at, gpu_type] > 0 and need <= free[gpu_type]:
                gpus[at], chosen[at] = need, gpu_type
                free[gpu_type] -= need
                self.had_s[jobs[at]][gpu_type] += self.round_s
        return Allocation(gpus, chosen)


def speeds(view: View) -> F64:
    """Throughput of each job at its requested count on each type, float64[jobs, types]; 1 where nothing is known."""
    types = len(view.type_total)
    rate = np.ones((view.count, types))
    top = view.rate.shape[2] - 1
    known = (view.kind >= 0) & (view.gpus <= top)
    rate[known] = view.rate[:, view.kind[known], view.gpus[known]].T
    there = np.zeros(rate.shape, np.bool_)
    for at in range(view.count):
        there[at, sorted(view.types_in_reach(at))] = True
    return np.where(there & (view.gpus[:, None] <= view.type_total[None, :]), rate, 0.0)


def fair_shares(speed: F64, gpus: I64, type_total: I64) -> F64:
    """Shares of time of each job on each type that maximise the least relative throughput, float64[jobs, types].

    Relative to what a job would have if it got each type for its part of all GPUs. A job's shares sum to at most 1; on
    each type shares times GPUs sum to at most its GPUs.
    """
    import highspy

    jobs, types = speed.shape
    equal = speed @ (type_total / type_total.sum())
    gain = speed / np.where(equal > 0, equal, 1.0)[:, None]
    solver = new_solver()
    infinite = solver.getInfinity()
    solver.addVars(jobs * types + 1, np.zeros(jobs * types + 1), np.append(np.ones(jobs * types), infinite))
    least = jobs * types
    solver.changeColCost(least, 1.0)
    solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
    for job in range(jobs):
        mine = np.arange(job * types, (job + 1) * types, dtype=np.int32)
        solver.addRow(-infinite, 1.0, types, mine, np.ones(types))
        if equal[job] > 0:
            terms = np.append(mine, least).astype(np.int32)
            solver.addRow(0.0, infinite, types + 1, terms, np.append(gain[job], -1.0))
    for gpu_type in range(types):
        column = np.arange(gpu_type, jobs * types, types, dtype=np.int32)
        solver.addRow(-infinite, float(type_total[gpu_type]), jobs, column, gpus.astype(np.float64))
    status = solve(solver)
    if status != highspy.HighsModelStatus.kOptimal:
        raise AssertionError(f"the program of fair shares for {jobs} jobs ended as {status}")
    values = np.array(solver.getSolution().col_value[: jobs * types]).reshape(jobs, types)
    return np.where(speed > 0, np.clip(values, 0.0, 1.0), 0.0)
