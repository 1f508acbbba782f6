"""Conservative backfilling."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from forerun.cluster.policies.backfilling.base import BackfillPolicy


class Conservative(BackfillPolicy, tag="conservative", frozen=True, kw_only=True):
    """Every job is promised a start when it comes; a job out of order starts if it delays nobody's.

    Mu'alem and Feitelson, IEEE TPDS 12(6), 2001, section 2 (see `easy`). When jobs end before their requested time, promises
    move forward in the queue's order, each as far as those of all others allow. None ever moves back, unless a job outlives
    its request and has the GPUs when they are due.

    examined: how many of the first waiting jobs are moved forward at each decision (default 0: all); others keep their
    promise, and start as soon as they fit. Where hundreds of jobs wait, a good part of them moves at every early end.
    """

    paper: ClassVar[str] = "Mu'alem and Feitelson, TPDS 2001"
    guarantees: ClassVar[str] = (
        "each job starts by the time it is promised when it comes, if jobs keep to their requests"
    )
    cost: ClassVar[str] = "O(waiting jobs + steps that promises move by) an event"
    keeps_promises: ClassVar[bool] = True

    examined: Annotated[int, msgspec.Meta(ge=0)] = 0
