"""ElasticFlow [Gu et al., ASPLOS'23]: deadlines are promised, and kept by jobs that scale."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from forerun.cluster.inputs.arrays import F64
from forerun.cluster.policies.edf_admission import pools_of, shown_of, too_slow
from forerun.cluster.policy import Allocation, OracleAllocator, OracleView, Scheduler, Usable

if TYPE_CHECKING:
    from forerun.cluster.engine.kernels.deadline_plan import Served, Spans

#: seconds by which sums of work may be off
_SLIP_S: Final = 1e-6


class ElasticFlow(OracleAllocator, tag="elasticflow", frozen=True, kw_only=True):
    """Deadline guarantees by elastic scaling: least shares first, spare GPUs by marginal return.

    Gu et al., ElasticFlow, ASPLOS'23, sections 4.2 (admission, minimum satisfactory share) and 4.3 (elastic scaling).

    A plan is a promise, changes of GPUs paid for. At each instant all jobs are planned afresh, the earliest deadline first;
    where one would be late by that, the plans in force go on. A newcomer is admitted with all planned afresh, or beside the
    plans in force. Spare GPUs go to one job after another, a step at a time, where a step costs least GPU time and the job's
    own plan is still in time. Jobs without a deadline, and such as are late in any case, run on what is left. Plans know GPU
    types and quotas (where these are lent: none); they do not know nodes, limits, or waiting for GPUs that others give up.
    """

    paper: ClassVar[str] = "Gu et al., ElasticFlow, ASPLOS'23"
    needs: ClassVar[tuple[str, ...]] = ("profile", "iterations", "deadline")
    guarantees: ClassVar[str] = (
        "every admitted job ends by its deadline, if any nodes will do, without limits and drains"
    )
    cost: ClassVar[str] = "O(jobs² · levels) an event, nearly all in trials of one more step"

    def build(self, rng: np.random.Generator) -> Scheduler:
        """A scheduler that has promised nothing."""
        return ElasticFlowScheduler()


class ElasticFlowScheduler:
    """Remembers whom it admitted, and the plans in force."""

    def __init__(self) -> None:
        self._admitted: set[int] = set()
        #: the plan of each job that is promised its deadline
        self._plans: dict[int, F64] = {}
        self._ending: frozenset[int] = frozenset()

    def allocate(self, view: OracleView) -> Allocation:
        """Plan all jobs, judge the newcomers, hand spare GPUs out."""
        # who ends within rounding has ended before others get its GPUs
        ending = frozenset(view.job[_remaining_s(view) <= _SLIP_S].tolist())
        if ending - self._ending:
            self._ending = ending
            return Allocation(view.held.copy(), view.gpu_type.copy())
        jobs, timed = view.job.tolist(), np.isfinite(view.deadline_s)
        order = np.argsort(view.deadline_s, kind="stable").tolist()
        plans = _Plans(view, {at: self._plans[job] for at, job in enumerate(jobs) if job in self._plans})
        plans.renew([at for at in order if timed[at] and jobs[at] in self._admitted])
        refused = {}
        for at in order:
            if jobs[at] in self._admitted:
                continue
            if not timed[at] or plans.admit(at):
                self._admitted.add(jobs[at])
                continue
            within = f"capacity in [{view.now_s:.0f}, {view.deadline_s[at]:.0f}] s"
            beside = f"{within}: beside what is promised to others it would be late"
            refused[jobs[at]] = too_slow(view, at) or beside
        promised = sorted(plans.of)
        plans.use_spare([at for at in order if jobs[at] not in refused], promised)
        self._plans = {jobs[at]: plans.of[at] for at in promised}
        gpus, types = np.zeros(view.count, np.int64), view.gpu_type.copy()
        for at, step in plans.present.items():
            gpus[at], types[at] = step.gpus, step.gpu_type
        answer = view.seated(gpus, types, np.argsort(-gpus, kind="stable"), skip=True)
        return replace(answer, wake_s=plans.next_change_s(promised), refused=refused)


def _remaining_s(view: OracleView) -> F64:
    """Seconds until running jobs end on the GPUs that they have; infinite for the others."""
    held, scales = view.held, view.kind >= 0
    speed = np.where(held > 0, 1.0, 0.0)
    at = np.flatnonzero(scales & (held > 0))
    speed[at] = (
        view.rate[view.gpu_type[at], view.kind[at], held[at]] / view.rate[0, view.kind[at], view.gpus[at]]
    )
    work_s: F64 = np.divide(view.left_s, speed, out=np.full(view.count, np.inf), where=speed > 0)
    return work_s + view.owed_s


class _Plans:
    """Plans at one instant, by position of the view.

    Parameters
    ----------
    view : the view.
    in_force : the plans that hold unless better ones are made.

    Attributes
    ----------
    of : the plans, float64[pieces, 4] as of `kernels.deadline_plan`.
    present : the GPUs that jobs have from now on, of those that have any.
    """

    def __init__(self, view: OracleView, in_force: dict[int, F64]) -> None:
        from forerun.cluster.engine.kernels.deadline_plan import all_free

        self.view, self._in_force = view, in_force
        self._shown, self._pools, self._types = shown_of(view), pools_of(view), len(view.type_total)
        self.of: dict[int, F64] = {}
        self.present: dict[int, Usable] = {}
        self._left: Spans = all_free(view.now_s, self._pools, self._types, 2)

    def renew(self, order: Sequence[int]) -> None:
        """Plan admitted jobs: all afresh, in an order, else as the plans in force go on; who is late by those, beside."""
        promised = [at for at in order if at in self._in_force]
        late = [at for at in order if at not in self._in_force]
        if not self._afresh(promised):
            late += [at for at in promised if not self._goes_on(at)]
        for at in late:
            self._beside(at)

    def admit(self, at: int) -> bool:
        """Plan a newcomer, with all planned afresh or beside the plans that there are; whether it is in time."""
        deadline_s = self.view.deadline_s
        return self._afresh(sorted((*self.of, at), key=lambda one: (deadline_s[one], one))) or self._beside(
            at
        )

    def next_change_s(self, promised: Sequence[int]) -> float:
        """When the plan of one of some jobs changes next; ends are no changes."""
        now_s, next_s = self.view.now_s + _SLIP_S, math.inf
        for at in promised:
            changes = np.append(self.of[at][:, 0], self.of[at][:-1, 1])
            next_s = min(next_s, float(changes[changes > now_s].min(initial=math.inf)))
        return next_s

    def use_spare(self, order: Sequence[int], promised: Sequence[int]) -> None:
        """Give jobs what their plans give them now, and spare GPUs step by step; `order` ranks equals.

        Gu et al., algorithm 2. Who waits goes first; then whoever needs least GPU time more for each GPU more. Jobs whose
        plans are not `promised` have GPUs until the next change of those.
        """
        usable = {at: self.view.usable(at) for at in order}
        gpu_s = dict.fromkeys(order, 0.0)
        for at in promised:
            from_s, until_s, gpus, gpu_type = self.of[at].T
            gpu_s[at] = float((gpus * (until_s - from_s)).sum())
            if from_s[0] <= self.view.now_s + _SLIP_S:
                self.present[at] = next(
                    one for one in usable[at] if one[:2] == (int(gpu_type[0]), int(gpus[0]))
                )
        none, ranks, given = Usable(0, 0, 0.0), {at: rank for rank, at in enumerate(order)}, 0
        steps: list[tuple[float, int, int, Usable, F64, float]] = []

        def seek(at: int) -> None:
            """Enter the next step of a job, if it can be taken."""
            now = self.present.get(at, none)
            faster = [one for one in usable[at] if one.speed > now.speed]
            if not faster:
                return
            step = min(faster, key=lambda one: (one.speed, one.gpus))
            more = step.gpus - now.gpus * (step.gpu_type == now.gpu_type)
            if more > self._left.left[self._left.after[0], step.gpu_type]:
                return
            served, plan = self._made(at, step, is_promised=at in promised_set)
            if served.end < math.inf:
                costs_s = (served.gpu_s - gpu_s[at]) / max(more, 1) if now.gpus else -math.inf
                heapq.heappush(steps, (costs_s, ranks[at], given, step, plan, served.gpu_s))

        promised_set = set(promised)
        for at in order:
            seek(at)
        while steps:
            _, rank, when, step, plan, needed_s = heapq.heappop(steps)
            at = order[rank]
            if when == given:
                if at not in promised_set:
                    plan = plan[:1].copy()
                    plan[0, 1] = min(plan[0, 1], self.next_change_s(promised))
                self._take(at, plan)
                self.present[at], gpu_s[at] = step, needed_s
                given += 1
            seek(at)

    def _afresh(self, order: Sequence[int]) -> bool:
        """Plan jobs in an order, with nothing planned before; if one would be late, nothing has changed."""
        from forerun.cluster.engine.kernels.deadline_plan import plan_shares

        first = np.full(len(order) + 1, -1, np.int64)
        left, plans = plan_shares(self._shown, np.array(order, np.int64), self._pools, self._types, first)
        if first[-1] < 0:
            return False
        self._left = left
        self.of = {at: plans[first[n] : first[n + 1]] for n, at in enumerate(order)}
        return True

    def _goes_on(self, at: int) -> bool:
        """Carry the plan in force of a job on from now; whether it ends in time by that."""
        from forerun.cluster.engine.kernels.deadline_plan import plan_along

        own = self._in_force[at].copy()
        own[:, :2][np.abs(own[:, :2] - self.view.now_s) <= _SLIP_S] = self.view.now_s
        end_s = own[-1, 1]
        own[-1, 1] += _SLIP_S  # sums of work are that much off
        plan, by_s = np.empty((2 * len(own) + 2, 4)), float(self.view.deadline_s[at]) + _SLIP_S
        served = plan_along(self._shown, at, own, len(self._pools), self._types, by_s, plan)
        if served.end == math.inf:
            return False
        plan = plan[: served.pieces].copy()
        plan[:, 1] = np.minimum(plan[:, 1], end_s)
        self._take(at, plan)
        return True

    def _beside(self, at: int) -> bool:
        """Plan a job on what the others leave; whether it is in time. If not, nothing has changed."""
        served, plan = self._made(at, Usable(0, 0, 0.0), is_promised=True)
        if served.end < math.inf:
            self._take(at, plan)
        return served.end < math.inf

    def _made(self, at: int, step: Usable, *, is_promised: bool) -> tuple[Served, F64]:
        """A job's plan beside the others that begins with a step (of no GPUs: as it may)."""
        from forerun.cluster.engine.kernels.deadline_plan import plan_beside

        own = self.of.get(at, np.empty((0, 4)))
        plan = np.empty((int(self._left.meta[0]) + 2 * len(own), 4))
        served = plan_beside(self._shown, self._left, at, own, step.gpus, step.gpu_type, is_promised, plan)
        return served, plan[: served.pieces].copy()

    def _take(self, at: int, plan: F64) -> None:
        """A plan becomes a job's own, in place of the one that it has."""
        from forerun.cluster.engine.kernels.deadline_plan import book, grown

        own, user = self.of.get(at, plan[:0]), int(self.view.user[at])
        left = grown(self._left, 2 * (len(own) + len(plan)))
        book(left, own, len(own), user, -1, False)
        book(left, plan, len(plan), user, 1, False)
        self._left, self.of[at] = left, plan
