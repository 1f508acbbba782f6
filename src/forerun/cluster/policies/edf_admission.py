"""Earliest deadline first with admission: the stronger baseline of Gu et al., ElasticFlow, ASPLOS'23, section 6.4."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from forerun.cluster.inputs.arrays import BOOL, F64, I64
from forerun.cluster.policy import Allocation, OracleAllocator, OracleView, Scheduler

if TYPE_CHECKING:
    from forerun.cluster.engine.kernels.deadline_plan import Shown

#: seconds by which sums of work may be off
_SLIP_S = 1e-6


class EdfAdmission(OracleAllocator, tag="edf-admission", frozen=True, kw_only=True):
    """As EDF over jobs that scale; but a newcomer is refused if by the plan it would be late, or make another job late.

    The plan is what this policy will do if nobody else comes: jobs in order of deadlines, each as fast as those before it
    allow, changes of GPUs paid for. Newcomers are judged one by one, the earliest deadline first. A job that is late in any
    case keeps nobody out. Jobs without a deadline are all admitted, and run on what the others leave. The plan knows GPU
    types and quotas (where these are lent: none); it does not know nodes, limits, or waiting for GPUs that others give up.
    """

    paper: ClassVar[str] = "baseline of Gu et al., ElasticFlow, ASPLOS'23 (figure 9)"
    needs: ClassVar[tuple[str, ...]] = ("profile", "iterations", "deadline")
    guarantees: ClassVar[str] = (
        "every admitted job ends by its deadline, if any nodes will do, without limits and drains"
    )
    cost: ClassVar[str] = "O(jobs²) an arrival, O(jobs log jobs) an end"

    def build(self, rng: np.random.Generator) -> Scheduler:
        """A scheduler that has admitted nobody."""
        return EdfAdmissionScheduler()


class EdfAdmissionScheduler:
    """Remembers who was admitted."""

    def __init__(self) -> None:
        self._admitted: BOOL = np.zeros(0, np.bool_)

    def allocate(self, view: OracleView) -> Allocation:
        """Judge the newcomers, then serve the earliest deadline as fast as it can be served."""
        jobs = view.job
        if (most := int(jobs.max()) + 1) > len(self._admitted):
            self._admitted = np.append(self._admitted, np.zeros(2 * most - len(self._admitted), np.bool_))
        order = np.argsort(view.deadline_s, kind="stable")
        there = self._admitted[jobs] | np.isinf(view.deadline_s)
        refused: dict[int, str] = {}
        for at in order[~there[order]].tolist():
            if why := _against(view, order[there[order]], at):
                refused[int(jobs[at])] = why
            else:
                there[at] = True
        self._admitted[jobs[there]] = True
        return replace(view.take_fastest(order[there[order]]), refused=refused)


def _against(view: OracleView, order: I64, new: int) -> str:
    """Why a newcomer is refused; empty: it is admitted. order: positions of those admitted, by deadline."""
    deadline_s = view.deadline_s
    order = order[np.isfinite(deadline_s[order])]
    if why := too_slow(view, new):
        return why
    if _undisturbed(view, order, new):
        return ""
    behind = int(np.searchsorted(deadline_s[order], deadline_s[new], side="right"))
    ends_s = planned_ends(view, np.insert(order, behind, new))
    if (late_s := ends_s[new] - deadline_s[new]) > _SLIP_S:
        within = f"capacity in [{view.now_s:.0f}, {deadline_s[new]:.0f}] s"
        return f"{within}: planned with the others it would end {late_s:.0f} s late"
    late = order[ends_s[order] > deadline_s[order] + _SLIP_S]
    if len(late):
        late = late[planned_ends(view, order)[late] <= deadline_s[late] + _SLIP_S]
    return f"it would make job {view.ids[int(view.job[late[0]])]} late" if len(late) else ""


def too_slow(view: OracleView, new: int) -> str:
    """Why a job is refused that cannot meet its deadline even alone; empty: it can."""
    late_s = planned_ends(view, np.array([new]))[new] - view.deadline_s[new]
    if late_s <= _SLIP_S:
        return ""
    return f"own speed: alone at its best count it would end {late_s:.0f} s after its deadline"


def _undisturbed(view: OracleView, order: I64, new: int) -> bool:
    """Whether rigid jobs all run and leave enough for another, so that no plan is needed."""
    rigid = (
        len(view.type_total) == 1
        and view.quota is None
        and (view.kind[order] < 0).all()
        and view.kind[new] < 0
    )
    held = view.held[order]
    return bool(rigid and (held > 0).all() and held.sum() + view.gpus[new] <= view.total)


def pools_of(view: OracleView) -> I64:
    """GPUs of each type, then, where they are not lent, of each user's quota."""
    capped = view.quota is not None and not view.quota[-1]
    return (
        np.append(view.type_total, view.quota[:-1]) if capped and view.quota is not None else view.type_total
    )


def shown_of(view: OracleView) -> Shown:
    """What plans for the jobs of a view rest on."""
    from forerun.cluster.engine.kernels.deadline_plan import Shown

    reach = np.ones((view.count, len(view.type_total)), np.int64)
    if len(view.type_total) > 1:
        for at in range(view.count):
            reach[at] = np.isin(np.arange(len(view.type_total)), list(view.types_in_reach(at)))
    levels = np.flatnonzero((view.rate > 0).any(axis=(0, 1)))
    return Shown(view.now_s, view.float_columns, view.int_columns, view.rate, levels, reach, view.costs)


def planned_ends(view: OracleView, order: I64) -> F64:
    """When jobs end that are served in an order, by position; infinite for the others."""
    from forerun.cluster.engine.kernels.deadline_plan import plan_ends

    ends = np.full(view.count, np.inf)
    plan_ends(shown_of(view), order, pools_of(view), len(view.type_total), ends)
    return ends
