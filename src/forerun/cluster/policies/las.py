"""Least attained service first."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from forerun.cluster.policy import Allocation, Allocator, Scheduler, View


class Las(Allocator, tag="las", frozen=True, kw_only=True):
    """The jobs that have had the fewest GPU-seconds run, others give way; decided anew every `round_s` seconds.

    Gu et al., Tiresias, NSDI'19, section 3: two-dimensional attained service, without its discretised queues.
    """

    paper: ClassVar[str] = "Gu et al., Tiresias, NSDI'19 (continuous form)"
    needs: ClassVar[tuple[str, ...]] = ("gpus",)
    guarantees: ClassVar[str] = "no job starves: every waiting job becomes the least served"
    cost: ClassVar[str] = "O(jobs log jobs) a round"
    round_s: float = 60.0

    def build(self, rng: np.random.Generator) -> Scheduler:
        """A scheduler without memory."""
        return LasScheduler()


class LasScheduler:
    """Serves the least served first."""

    def allocate(self, view: View) -> Allocation:
        """Serve jobs by the GPU-seconds that they have had so far."""
        return view.take(np.argsort(view.served_gpu_s, kind="stable"))
