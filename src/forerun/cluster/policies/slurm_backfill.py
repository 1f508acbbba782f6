"""Slurm's backfill scheduler."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import msgspec
import numpy as np

from forerun.cluster.inputs.arrays import F64
from forerun.cluster.inputs.setting import Window
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.backfilling.preemption import Preemption
from forerun.cluster.policies.orders.multifactor import Multifactor
from forerun.cluster.policy import Allocation, Scheduler, View

if TYPE_CHECKING:
    from forerun.cluster.engine.kernels.queue_state import Terms
    from forerun.cluster.engine.queue_view import Ran

DAY_S: Final = 86_400.0


class SlurmBackfill(BackfillPolicy, tag="slurm-backfill", frozen=True, kw_only=True):
    """The first in the queue start as they fit; at most every `bf_interval` a plan made from nothing lets others start, too.

    The plan looks at the first `bf_max_job_test` waiting jobs in order. It starts those whose turn is now, and names the
    nodes that each of the others waits for, whole: from its planned start on no other job may use them. The next plan knows
    nothing of it: unlike those of `conservative`, its promises can be broken. A second after arrivals and ends jobs start in
    order; one that does not fit holds up all behind it that ask for nodes of its partition. A job of several partitions
    waits in each. It takes the shortest run of consecutive nodes that is long enough. Equals go by their submission, also
    where they may start later; that a begin time has come is seen at the next minute.

    Slurm's documentation, Scheduling Configuration Guide (sched_config.html) and slurm.conf(5), `SchedulerParameters`,
    version 25.05, whose defaults are the defaults here; what it leaves open is as Debian's slurmctld 22.05 was seen to do.
    No source was read.

    bf_interval_s: seconds between plans (default 30; 0: a plan at every arrival and end). bf_max_job_test: default 500.
    bf_resolution_s: the plan rounds instants down to multiples of so many seconds (default 60; 0: none). bf_window_s: a
    start further away is not planned (default 1 day; 0: any is). preemption: whose jobs stop whose; they start as soon as
    the stopped ones are gone (default: no job stops another; that of the site's files, where they say it).
    """

    added_later: ClassVar[tuple[str, ...]] = ("preemption",)
    places: ClassVar[bool] = True
    paper: ClassVar[str] = "Slurm's documentation, 25.05"
    guarantees: ClassVar[str] = "as `easy` at each plan; a start that is planned may come later"
    cost: ClassVar[str] = "O(jobs tested x running and promised ones) a plan"

    bf_interval_s: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    bf_max_job_test: Annotated[int, msgspec.Meta(ge=1)] = 500
    bf_resolution_s: Annotated[float, msgspec.Meta(ge=0)] = 60.0
    bf_window_s: Annotated[float, msgspec.Meta(ge=0)] = DAY_S
    preemption: Preemption | None = None

    @property
    def examined(self) -> int:
        """See `bf_max_job_test`."""
        return self.bf_max_job_test

    @property
    def window_s(self) -> float:
        """See `bf_window_s`."""
        return self.bf_window_s

    @property
    def compiles(self) -> bool:
        """Whether a compiled queue knows the order."""
        return super().compiles and self.order.number != 2

    def terms(self, placement: int = 0, seed: int = 0) -> Terms:
        """How far and how often it plans, of an order in which priorities do not change."""
        from forerun.cluster.engine.kernels import queue_state as qs

        return qs.Terms(
            rule=qs.PLAN,
            order=qs.MULTIFACTOR if isinstance(self.order, Multifactor) else qs.FIXED,
            tested=self.bf_max_job_test,
            window_s=float(self.bf_window_s or math.inf),
            interval_s=float(self.bf_interval_s),
            latency_s=1.0 if self.bf_interval_s else 0.0,
            resolution_s=float(self.bf_resolution_s),
        )

    def build(self, rng: np.random.Generator) -> Scheduler:
        """A scheduler that remembers when it planned last."""
        return SlurmScheduler(self)


class SlurmScheduler:
    """Decides through a view as the compiled queue does.

    Parameters
    ----------
    policy : the order, and how far and how often it plans.

    Attributes
    ----------
    clock : when it planned last, when it wants to plan again, and whether there was news in between.
    seen : jobs and maintenance at the last decision: what has come or gone since is news.
    running : by number, the jobs that ran from the last decision on.
    """

    def __init__(self, policy: SlurmBackfill) -> None:
        from forerun.cluster.engine.queue_arrays import fresh_clock
        from forerun.cluster.engine.queue_view import Stopping

        self.policy, self.ranking = policy, policy.order.build()
        self.clock: F64 = fresh_clock()
        self.seen: tuple[frozenset[int], tuple[Window, ...]] = (frozenset(), ())
        self.running: dict[int, Ran] = {}
        self.stopping = None if policy.preemption is None else Stopping(policy.preemption)

    def allocate(self, view: View) -> Allocation:
        """Start jobs in order until the first that does not fit, and others by a plan if it is time for one."""
        from forerun.cluster.engine.queue_view import Ran, decided

        order = np.argsort(self.ranking.keys(view), kind="stable")
        jobs, windows = self.seen
        self.seen = seen = (frozenset(view.job.tolist()), view.windows)
        fresh = np.array([job not in jobs for job in view.job.tolist()], np.bool_)
        waiting = order[view.held[order] == 0]
        ended = bool(jobs - seen[0]) or windows != view.windows
        gone = [self.running[job] for job in sorted(jobs - seen[0]) if job in self.running]
        answer, _ = decided(
            view,
            self.policy.terms(),
            waiting,
            self.clock,
            fresh=fresh,
            ended=ended,
            gone=gone,
            promised={},
            stopping=self.stopping,
        )
        self.seen = seen[0] - {int(view.job[at]) for at in answer.requeued or {}}, seen[1]
        nodes = answer.nodes or {}
        self.running = {
            int(view.job[at]): Ran(
                int(view.job[at]),
                int(view.gpus[at]),
                float(view.requested_s[at]),
                float(view.changed_s[at] if view.held[at] else view.now_s),
                tuple(sorted(nodes.get(at) or view.on_nodes(at))),
            )
            for at in np.flatnonzero(answer.gpus > 0).tolist()
        }
        return answer
