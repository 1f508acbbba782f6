"""First fit: whatever fits starts, in order."""

from __future__ import annotations

from typing import Annotated, ClassVar

from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.orders.wfp3 import Wfp3
from forerun.cluster.policy import Order, orders
from forerun.core.scenario.spec import chosen_from


class FirstFit(BackfillPolicy, tag="first-fit", frozen=True, kw_only=True):
    """Every waiting job that fits the free GPUs starts, the first in order first; nobody is promised anything.

    order: default `wfp3`, by which jobs that have waited long come first, the only thing that helps a wide job here. With
    `fcfs` the policy is `fifo-backfill-unreserved`.
    """

    paper: ClassVar[str] = "textbook; the default order: Tang et al., IEEE Cluster 2009"
    guarantees: ClassVar[str] = "none; a wide job may wait for ever"
    cost: ClassVar[str] = "O(waiting jobs) an event"

    order: Annotated[Order, chosen_from(orders)] = Wfp3()
