"""Time slicing: Gandiva's turns [Xiao et al., OSDI'18, section 3.2].

Deep learning gives early feedback: a job that has run for a little while shows whether it is worth going on. So all jobs
run a little soon, instead of some to their ends first.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np

from forerun.cluster.policy import Allocation, Allocator, Scheduler, View


class TimeSlices(Allocator, tag="gandiva-turns", frozen=True, kw_only=True):
    """Jobs share the GPUs in turns of a slot (`slot_s`): whoever waits longest for a turn comes first, others give way.

    Within a turn nobody is stopped; GPUs that come free go to those who wait. While there is a GPU for everybody there are
    no turns. Left out: packing of two jobs onto one GPU, and growing onto idle GPUs, as a view has whole GPUs and the paper
    does so by trial while jobs run; node sets for jobs of one size, as the scenario's placement chooses nodes.
    """

    paper: ClassVar[str] = "Xiao et al., Gandiva, OSDI'18"
    needs: ClassVar[tuple[str, ...]] = ("gpus",)
    guarantees: ClassVar[str] = "no job starves: everybody has a turn"
    cost: ClassVar[str] = "O(jobs log jobs) an event and a turn"

    def build(self, rng: np.random.Generator) -> Scheduler:
        """A scheduler before the first turn."""
        return TimeSlicesScheduler()


class TimeSlicesScheduler:
    """Remembers when the present turn ends."""

    def __init__(self) -> None:
        self._until_s = 0.0

    def allocate(self, view: View) -> Allocation:
        """At the end of a turn those that have waited longest, and running jobs last; before it, running jobs first."""
        runs = view.held > 0
        stays = runs & (view.now_s < self._until_s)
        if not stays.any():
            self._until_s = view.now_s + view.slot_s
        answer = view.take(np.lexsort((np.where(runs, view.now_s, view.changed_s), ~stays)))
        return replace(answer, wake_s=self._until_s if (answer.gpus == 0).any() else math.inf)
