"""First come, first served."""

from __future__ import annotations

from typing import ClassVar

from forerun.cluster.inputs.arrays import F64
from forerun.cluster.policy import Order, View


class Fcfs(Order, tag="fcfs", frozen=True, kw_only=True):
    """By submission."""

    paper: ClassVar[str] = "textbook"
    number: ClassVar[int] = 0

    def keys(self, view: View) -> F64:
        """The instant of submission."""
        return view.submit_s
