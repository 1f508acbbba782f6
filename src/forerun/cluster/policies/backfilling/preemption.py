"""Preemption by partitions or qualities of service, as Slurm has it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Literal

import msgspec
import numpy as np

from forerun.cluster.engine.kernels.allocator import NOBODY
from forerun.cluster.inputs.arrays import I64, JobLabels
from forerun.cluster.inputs.limits import Tally
from forerun.cluster.inputs.setting import REQUEUE_S
from forerun.cluster.policy import View
from forerun.core.scenario.numbers import NotNegative
from forerun.core.scenario.spec import Spec


class Preemption(Spec, frozen=True, kw_only=True):
    """Whose jobs may stop whose, where they do not fit otherwise.

    by: whether partitions or qualities of service (`qos`) say it. over: by the name of one, those whose jobs its jobs stop,
    the first of them first. cancels: those whose jobs end for good when they are stopped; others come again `requeue_s`
    later (default 121, as Slurm's do) and have lost their work, see `costs.checkpoint_s`. grace_s: how long its jobs run on
    that are to be stopped, by name (default: not at all). exempt_s: no job is stopped before it has run so long (default 0).
    """

    by: Literal["partition", "qos"]
    over: dict[str, tuple[str, ...]]
    cancels: tuple[str, ...] = ()
    grace_s: dict[str, Annotated[float, msgspec.Meta(ge=0)]] = {}
    exempt_s: NotNegative = 0.0
    requeue_s: NotNegative = REQUEUE_S

    def problems(self) -> list[tuple[str, str]]:
        """A group that may stop itself, directly or through others: nothing says who goes first."""
        if (name := in_circle(self.over)) is None:
            return []
        stopped = ", ".join(self.over[name])
        return [("over", f"{self.by} {name} stops jobs of {stopped}, which may stop its own in turn")]


def in_circle(over: Mapping[str, Collection[str]]) -> str | None:
    """The first that may stop itself, directly or through others; None: there is none."""
    for name in over:
        reached, fresh = set[str](), set(over[name])
        while fresh:
            reached |= fresh
            fresh = {other for one in fresh for other in over.get(one, ())} - reached
        if name in reached:
            return name
    return None


class Preempting:
    """Preemption at work in one run.

    Parameters
    ----------
    rule : whose jobs may stop whose.

    Attributes
    ----------
    doomed : by number, jobs that are to be stopped: when, and for whom.
    """

    def __init__(self, rule: Preemption) -> None:
        self.rule = rule
        self.doomed: dict[int, tuple[float, int]] = {}

    def due(self, view: View) -> dict[int, float]:
        """Jobs whose grace is over now, by position, and after how many seconds they come again."""
        place = {job: at for at, job in enumerate(view.job.tolist()) if view.held[at]}
        self.doomed = {job: one for job, one in self.doomed.items() if job in place}
        over = [job for job, (at_s, _) in self.doomed.items() if at_s <= view.now_s]
        for job in over:
            del self.doomed[job]
        return {place[job]: self._back_s(view.labels, job) for job in over}

    @property
    def wake_s(self) -> float:
        """When the next grace is over; infinite: no job has one."""
        return min((at_s for at_s, _ in self.doomed.values()), default=math.inf)

    def stop(
        self, view: View, owner: I64, waiting: Sequence[int], *, in_order: bool
    ) -> tuple[dict[int, float], dict[int, I64]]:
        """Whom waiting jobs stop now: by position, when they come again; and where jobs then have room at once.

        Parameters
        ----------
        view : jobs and nodes.
        owner : the job on each GPU, those that start now among them; changed.
        waiting : positions of the jobs that wait still, in their order.
        in_order : whether one that cannot start holds up those behind it in its partition.
        """
        assert view.reach is not None
        stopped, places, closed = dict[int, float](), dict[int, I64](), set[int]()
        served = {job for _, job in self.doomed.values()}
        tally = None
        if view.limits is not None:
            tally = Tally(view.limits, planned=False)
            for at in np.flatnonzero(view.held > 0).tolist():
                tally.add(int(view.job[at]), int(view.gpu_type[at]), int(view.held[at]))
        for at in waiting:
            job, line = int(view.job[at]), int(view.reach.line[view.job[at]])
            if job in served or (in_order and line in closed):
                continue
            seats = self._seats(view, at, owner, tally)
            if not len(seats):
                closed.add(line)
                continue
            place = {int(view.job[other]): other for other in np.flatnonzero(view.held > 0).tolist()}
            at_once = True
            for other in np.unique(owner[seats][owner[seats] >= 0]).tolist():
                names = self._names(view.labels, other)
                if grace_s := max((self.rule.grace_s.get(name, 0.0) for name in names), default=0.0):
                    self.doomed[other], at_once = (view.now_s + grace_s, job), False
                else:
                    stopped[place[other]] = self._back_s(view.labels, other)
                    owner[owner == other] = -1
            owner[seats] = job
            if at_once:
                places[at] = seats
        return stopped, places

    def _seats(self, view: View, at: int, owner: I64, tally: Tally | None) -> I64:
        """The GPUs that a job takes once the jobs on them are stopped; none: it stops no job."""
        job, gpus, nowhere = int(view.job[at]), int(view.gpus[at]), np.zeros(0, np.int64)
        lower = [other for name in self._names(view.labels, job) for other in self.rule.over.get(name, ())]
        those = self._candidates(view, lower) if lower else []
        if not those:
            return nowhere
        until_s = view.now_s + float(view.requested_s[at])
        owner = owner.copy()
        for window in view.windows:
            if window.from_s < until_s and window.to_s > view.now_s:
                owner[np.isin(view.node_of, window.nodes)] = NOBODY
        everybody = np.where(np.isin(owner, those), -1, owner)
        for number in view.types_for(at, gpus):
            if tally is not None and not tally.fits(job, number, gpus):
                continue
            if len(view.seats_for(at, owner, gpus, number)) or not len(
                view.seats_for(at, everybody, gpus, number)
            ):
                continue
            those, _ = _removed(view, at, owner, number, those)
            return _removed(view, at, owner, number, [those[-1], *those[:-1]])[1]
        return nowhere

    def _candidates(self, view: View, lower: list[str]) -> list[int]:
        """The numbers of running jobs that may be stopped, in their order: those on few nodes first, then the oldest."""
        found = []
        for at in np.flatnonzero(view.held > 0).tolist():
            job = int(view.job[at])
            places = [lower.index(name) for name in self._names(view.labels, job) if name in lower]
            if places and job not in self.doomed and view.unchanged_s[at] >= self.rule.exempt_s:
                found.append((min(places), len(view.on_nodes(at)), job))
        return [job for _, _, job in sorted(found)]

    def _names(self, labels: JobLabels | None, job: int) -> list[str]:
        """The partitions or the QOS of a job."""
        return [] if labels is None else getattr(labels, self.rule.by)[job].split(",")

    def _back_s(self, labels: JobLabels | None, job: int) -> float:
        """After how many seconds a job comes again that is stopped; infinite: never."""
        cancels = set(self._names(labels, job)) & set(self.rule.cancels)
        return math.inf if cancels else self.rule.requeue_s


def _removed(view: View, at: int, owner: I64, number: int, those: list[int]) -> tuple[list[int], I64]:
    """The first of some jobs that have to go so that another fits, and its GPUs then."""
    tried = owner
    for turn, job in enumerate(those, 1):
        tried = np.where(tried == job, -1, tried)
        if len(seats := view.seats_for(at, tried, int(view.gpus[at]), number)):
            return those[:turn], seats
    return those, owner[:0]
