"""Earliest deadline first over jobs that scale: the baseline of Gu et al., ElasticFlow, ASPLOS'23, section 6.1."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from forerun.cluster.policy import Allocation, Allocator, Scheduler, View


class EdfElastic(Allocator, tag="edf-elastic", frozen=True, kw_only=True):
    """In order of deadlines each job runs on as many GPUs as make it faster, and others give way; at arrivals and ends.

    A job takes the count of greatest throughput that is still free; a rigid one what it asks for, or waits. Jobs without a
    deadline come last, in order of submission. Nobody is refused, so that one late job delays those behind it.
    """

    paper: ClassVar[str] = "baseline of Gu et al., ElasticFlow, ASPLOS'23"
    needs: ClassVar[tuple[str, ...]] = ("profile", "iterations", "deadline")
    guarantees: ClassVar[str] = "none under overload; optimal on one GPU below it"
    cost: ClassVar[str] = "O(jobs log jobs) an event"

    def build(self, rng: np.random.Generator) -> Scheduler:
        """A scheduler without memory."""
        return EdfElasticScheduler()


class EdfElasticScheduler:
    """Serves the earliest deadline as fast as it can be served."""

    def allocate(self, view: View) -> Allocation:
        """Jobs by deadline, then by submission, each on the GPUs on which it is fastest."""
        return view.take_fastest(np.argsort(view.deadline_s, kind="stable"))
