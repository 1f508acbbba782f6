"""Shortest requested time first."""

from __future__ import annotations

from typing import ClassVar

from forerun.cluster.inputs.arrays import F64
from forerun.cluster.policy import Order, View


class ShortestRequest(Order, tag="sjf", frozen=True, kw_only=True):
    """By the requested time, the shortest first."""

    paper: ClassVar[str] = "textbook"
    number: ClassVar[int] = 1

    def keys(self, view: View) -> F64:
        """The requested time in seconds."""
        return view.requested_s
