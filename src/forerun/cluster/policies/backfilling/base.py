"""What the backfilling policies have in common: a queue in which jobs out of order start where no promise is in their way.

Whole runs and single decisions of a view are made by the same compiled queue (`engine.node_queue`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import msgspec
import numpy as np

from forerun.cluster.inputs.arrays import F64
from forerun.cluster.policies.orders.fcfs import Fcfs
from forerun.cluster.policies.orders.multifactor import Multifactor
from forerun.cluster.policy import Allocation, Allocator, Order, Scheduler, View, orders
from forerun.core.scenario.spec import chosen_from

if TYPE_CHECKING:
    from forerun.cluster.engine.kernels.queue_state import Terms
    from forerun.cluster.engine.queue_view import Promise

#: the built-in policies that plan by requested times, which are compared with each other
BACKFILLING: Final = ("easy", "conservative", "first-fit")


class BackfillPolicy(Allocator, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs on the GPUs that they request, never stopped; jobs out of order start where no promise is in their way.

    The scheduler knows requested times, not durations. It believes that a job runs for its requested time, and one that has
    outlived it, `grace_s` longer than now.

    order: in which waiting jobs are looked at (default: `fcfs`, as they came). grace_s: default 60.
    """

    needs: ClassVar[tuple[str, ...]] = ("gpus", "requested_s")
    keeps_promises: ClassVar[bool] = False
    backfills: ClassVar[bool] = True

    order: Annotated[Order, chosen_from(orders)] = Fcfs()
    grace_s: Annotated[float, msgspec.Meta(gt=0)] = 60.0

    @property
    def promises(self) -> int:
        """How many of the first jobs that cannot start are promised a start at each decision."""
        return 0

    @property
    def examined(self) -> int:
        """How many of the first waiting jobs are looked at, or moved forward, at each decision; 0: all."""
        return 0

    @property
    def window_s(self) -> float:
        """How far away a start may be that a job is promised for one decision; 0: any."""
        return 0.0

    @property
    def compiles(self) -> bool:
        """Whether the compiled queue knows the order."""
        return (self.order.number >= 0 or isinstance(self.order, Multifactor)) and not self.round_s

    def terms(self, placement: int = 0, seed: int = 0) -> Terms:
        """The rule by which jobs start, of an order in which priorities do not change.

        Parameters
        ----------
        placement, seed : where they start (default: anywhere).
        """
        from forerun.cluster.engine.kernels import queue_state as qs

        order = qs.MULTIFACTOR if isinstance(self.order, Multifactor) else qs.FIXED
        return qs.Terms(
            rule=qs.KEPT if self.keeps_promises else qs.ONCE,
            order=qs.WFP3 if self.order.number == qs.WFP3 else order,
            tested=self.examined or 1 << 40,
            window_s=float(self.window_s or math.inf),
            promises=self.promises,
            grace_s=float(self.grace_s),
            placement=placement,
            seed=seed,
        )

    def build(self, rng: np.random.Generator) -> Scheduler:
        """A scheduler that remembers what it has promised, and when it planned."""
        return BackfillScheduler(self)


class BackfillScheduler:
    """Decides through a view as the compiled queue does.

    Parameters
    ----------
    policy : the order, and the rule by which jobs start.

    Attributes
    ----------
    promised : by job, the promises that are kept; empty where each decision makes its own.
    ranking : the order, with what it remembers of the run.
    clock : when it wants to decide again.
    """

    def __init__(self, policy: BackfillPolicy) -> None:
        from forerun.cluster.engine.queue_arrays import fresh_clock

        self.policy, self.ranking = policy, policy.order.build()
        self.promised: dict[int, Promise] = {}
        self.clock: F64 = fresh_clock()

    def allocate(self, view: View) -> Allocation:
        """Let running jobs go on, and start others by the policy's rule."""
        from forerun.cluster.engine.kernels import queue_state as qs
        from forerun.cluster.engine.queue_view import decided

        order = np.argsort(self.ranking.keys(view), kind="stable")
        terms = self.policy.terms()._replace(order=qs.FIXED)
        waiting, none = order[view.held[order] == 0], np.zeros(view.count, np.bool_)
        answer, self.promised = decided(
            view, terms, waiting, self.clock, fresh=none, ended=True, promised=self.promised
        )
        return answer
