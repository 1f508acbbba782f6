"""Slurm's backfill scheduler."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, ClassVar, Final

import msgspec
import numpy as np

from forerun.cluster.policies.backfilling.base import BackfillPolicy, BackfillScheduler
from forerun.cluster.policy import Allocation, Scheduler, View

DAY_S: Final = 86_400.0


class SlurmBackfill(BackfillPolicy, tag="slurm-backfill", frozen=True, kw_only=True):
    """The first in the queue start as they fit; every `bf_interval` a plan made from nothing lets others start, too.

    The plan promises a start to each of the first `bf_max_job_test` waiting jobs, in order, and starts those whose turn is
    now. The next plan knows nothing of it: unlike those of `conservative`, its promises can be broken. At arrivals and ends
    between two plans jobs start in order until the first that does not fit.

    Slurm's documentation, Scheduling Configuration Guide (sched_config.html) and slurm.conf(5), `SchedulerParameters`,
    version 25.05, whose defaults are the defaults here; no source was read.

    bf_interval_s: seconds between plans, the first of which is at the first submission (default 30; 0: a plan at every
    arrival and end).
    bf_max_job_test: default 500. bf_resolution_s: the plan takes GPUs until the next multiple of so many seconds from now
    (default 60; 0: to the second). bf_window_s: a start further away is not promised (default 1 day; 0: any is).
    """

    paper: ClassVar[str] = "Slurm's documentation, 25.05"
    guarantees: ClassVar[str] = "as `easy` at each plan; a start that is planned may come later"
    cost: ClassVar[str] = "O(jobs tested x running and promised ones) a plan"

    bf_interval_s: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    bf_max_job_test: Annotated[int, msgspec.Meta(ge=1)] = 500
    bf_resolution_s: Annotated[float, msgspec.Meta(ge=0)] = 60.0
    bf_window_s: Annotated[float, msgspec.Meta(ge=0)] = DAY_S

    @property
    def promises(self) -> int:
        """One for each job that is looked at."""
        return self.bf_max_job_test

    @property
    def examined(self) -> int:
        """See `bf_max_job_test`."""
        return self.bf_max_job_test

    @property
    def window_s(self) -> float:
        """See `bf_window_s`."""
        return self.bf_window_s

    @property
    def resolution_s(self) -> float:
        """See `bf_resolution_s`."""
        return self.bf_resolution_s

    @property
    def compiles(self) -> bool:
        """Only where each decision is a plan to the second."""
        return not self.bf_interval_s and not self.bf_resolution_s

    def build(self, rng: np.random.Generator) -> Scheduler:
        """A scheduler that remembers when it planned last."""
        return SlurmScheduler(self, self.bf_interval_s)


class SlurmScheduler(BackfillScheduler):
    """Plans at whole intervals since its first decision, and looks at the front of the queue in between.

    Parameters
    ----------
    policy : the order, and how far it plans.
    interval_s : between plans; 0: every decision is one.
    """

    def __init__(self, policy: BackfillPolicy, interval_s: float) -> None:
        super().__init__(policy)
        self.interval_s = interval_s
        self.began_s = math.nan

    def allocate(self, view: View) -> Allocation:
        """Start jobs by a plan if it is time for one, else in order until the first that does not fit."""
        if not self.interval_s:
            return super().allocate(view)
        if math.isnan(self.began_s):
            self.began_s = view.now_s
        plans = math.floor((view.now_s - self.began_s) / self.interval_s + 1e-9)
        self.in_order_only = self.began_s + plans * self.interval_s < view.now_s
        answer = super().allocate(view)
        waiting = view.gpus[answer.gpus == 0]
        if (
            len(waiting) and waiting.min() <= view.total - answer.gpus.sum()
        ):  # else only an end changes anything
            next_s = self.began_s + (plans + 1) * self.interval_s
            answer = replace(answer, wake_s=min(answer.wake_s, next_s))
        return answer
