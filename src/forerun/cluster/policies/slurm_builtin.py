"""Slurm's scheduler without backfill."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from forerun.cluster.policies.slurm_backfill import SlurmBackfill

if TYPE_CHECKING:
    from forerun.cluster.engine.kernels.queue_state import Terms


class SlurmBuiltin(SlurmBackfill, tag="slurm-builtin", frozen=True, kw_only=True):
    """FIFO as Slurm has it (`SchedulerType=sched/builtin`): in order of priority, and in each partition by itself.

    As `slurm-backfill` at every arrival and end, without its plans, so that parameters of plans are errors.
    """

    needs: ClassVar[tuple[str, ...]] = ("gpus",)
    guarantees: ClassVar[str] = "nobody passes another job of the partition that comes before it"
    cost: ClassVar[str] = "O(waiting jobs) an event"
    backfills: ClassVar[bool] = False

    def problems(self) -> list[tuple[str, str]]:
        """No parameter of plans is given."""
        plain = SlurmBackfill()
        names = ("bf_interval_s", "bf_max_job_test", "bf_resolution_s", "bf_window_s")
        given = [name for name in names if getattr(self, name) != getattr(plain, name)]
        return [(name, "is of plans, which sched/builtin does not make") for name in given]

    def terms(self, placement: int = 0, seed: int = 0) -> Terms:
        """Those of a scheduler that never plans."""
        return super().terms(placement, seed)._replace(interval_s=math.inf)
