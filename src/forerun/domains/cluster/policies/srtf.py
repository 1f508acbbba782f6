"""Shortest remaining time first."""

from __future__ import annotations

from typing import ClassVar

from forerun.domains.cluster.inputs.setting import F64
from forerun.domains.cluster.policy import OracleView, PriorityPolicy


class Srtf(PriorityPolicy, tag="srtf", frozen=True, kw_only=True):
    """The jobs of least remaining time run, others give way. It knows durations."""

    paper: ClassVar[str] = "Schrage, 1968"
    needs: ClassVar[tuple[str, ...]] = ("gpus", "duration")
    guarantees: ClassVar[str] = "least mean completion time on one GPU without restart cost"
    cost: ClassVar[str] = "O(log jobs) an event"
    preemptive: ClassVar[bool] = True
    kernel_key: ClassVar[int] = 3

    @staticmethod
    def key(view: OracleView) -> F64:
        """Work left."""
        priority: F64 = view.left_s
        return priority
