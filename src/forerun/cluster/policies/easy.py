"""EASY backfilling."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from forerun.cluster.policies.backfilling.base import BackfillPolicy


class Easy(BackfillPolicy, tag="easy", frozen=True, kw_only=True):
    """A job out of order starts if it does not delay the first job that waits, by their requested times.

    Mu'alem and Feitelson, Utilization, Predictability, Workloads, and User Runtime Estimates in Scheduling the IBM SP2 with
    Backfilling, IEEE TPDS 12(6), 2001, section 2; after Lifka's EASY scheduler of 1995.

    promises: how many of the first jobs that cannot start are promised one at each decision (default 1, as published).
    examined: how many of the first waiting jobs are looked at (default 0: all). window_s: a start further away is not
    promised (default 0: any is). With all three this is the plan of Slurm's backfill scheduler, which is made from nothing
    each time: `bf_max_job_test` is `examined`, `bf_window` is `window_s`, and `promises` is no less than `examined`.
    """

    paper: ClassVar[str] = "Mu'alem and Feitelson, TPDS 2001"
    guarantees: ClassVar[str] = (
        "the first in the queue is not delayed by others, if jobs keep to their requests"
    )
    cost: ClassVar[str] = "O(waiting + running jobs) an event"

    promises: Annotated[int, msgspec.Meta(ge=1)] = 1
    examined: Annotated[int, msgspec.Meta(ge=0)] = 0
    window_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
